/* A clock of the day that is ahead by the number of seconds in the file AHEAD_FILE, for the programs that this is preloaded into. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

/* Before the program gives up the right to open the file. */
__attribute__((constructor)) static void map_file(void) {
    int file = open(AHEAD_FILE, O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) ahead_s = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, time);
    int is_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (result == 0 && is_of_day && ahead_s) time->tv_sec += *ahead_s;
    return result;
}
