//! Limits and timeouts of the open-file cache.

use std::time::{Duration, Instant};

use crate::domain::{Domain, Setup};
use sanderling_testkit::http::{HttpClient, get};
use sanderling_testkit::wait_until;

/// The numbers that the status shows of the open-file cache, in the order of its line.
#[derive(Debug)]
struct CacheStats {
    files: u64,
    descriptors: u64,
    content_bytes: u64,
    negative: u64,
    watched: u64,
    evicted: u64,
}

impl Domain {
    /// Starts a server with files of 100 bytes at the paths of [`each_file`].
    #[track_caller]
    fn with_files(limits: &str, file_count: usize, worker_count: usize) -> Domain {
        let names: Vec<String> = (0..file_count).map(|number| number.to_string()).collect();
        let site: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &[b'x'; 100][..])).collect();
        Domain::serve(Setup { site: &site, limits, worker_count, ..Setup::default() })
    }

    #[track_caller]
    fn cache_stats(&self) -> CacheStats {
        let text = self.directory.control("status").text();
        let line = text.lines().find(|line| line.contains("open files"));
        let line = line.unwrap_or_else(|| panic!("the status has no line of open files: {text}"));
        let numbers = line.split_whitespace().filter_map(|word| word.trim_matches(['(', ',']).parse().ok());
        match numbers.collect::<Vec<u64>>()[..] {
            [files, descriptors, content_bytes, negative, watched, evicted] => {
                CacheStats { files, descriptors, content_bytes, negative, watched, evicted }
            }
            ref numbers => panic!("{numbers:?} in {line}"),
        }
    }
}

fn each_file(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("/{number}"))
}

/// The numbers after a request for each of `paths`.
#[track_caller]
fn stats_after(limits: &str, file_count: usize, paths: impl Iterator<Item = String>) -> CacheStats {
    let domain = Domain::with_files(limits, file_count, 1);
    let mut client = HttpClient::connect(domain.server.http());
    for path in paths {
        client.get(&path);
    }
    domain.cache_stats()
}

#[test]
fn each_limit_of_the_cache_applies() {
    let missing = || (0..20).map(|number| format!("/missing-{number}"));
    let stats = stats_after("", 20, each_file(20).chain(missing()));
    assert_eq!((stats.files, stats.content_bytes, stats.negative), (20, 20 * 100, 20), "below the limits");
    assert!(stats.watched >= 1);
    let stats = stats_after("watched_folders_max = 0\nmissing_files_max = 8", 1, missing());
    assert!(stats.watched == 0 && stats.negative <= 8, "{stats:?}");
    let stats = stats_after("open_file_content_bytes_max = 1000", 50, each_file(50));
    assert!(stats.files < 50 && stats.content_bytes <= 1_200, "{stats:?}");
    let stats = stats_after("open_files_max = 4", 20, each_file(20));
    assert!(stats.files <= 4 && stats.evicted >= 16, "{stats:?}");
    let stats = stats_after("open_file_descriptors_max = 4\nsmall_file_bytes_max = 99", 20, each_file(20));
    assert!(stats.files <= 5 && stats.descriptors <= 4 && stats.evicted >= 16, "{stats:?}");
}

/// Each look-up evicts a file; it must not be the one that another connection waits for.
#[test]
fn clients_are_answered_where_one_file_may_be_open() {
    const FILE_COUNT: usize = 20;
    let domain = Domain::with_files("open_files_max = 1", FILE_COUNT, 2);
    let mut clients: Vec<HttpClient> = (0..8).map(|_| HttpClient::connect(domain.server.http())).collect();
    for path in each_file(FILE_COUNT) {
        clients.iter_mut().for_each(|client| client.send(get(&path)));
        let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status).collect();
        assert_eq!(statuses, [200; 8], "{path}: {:?}", domain.cache_stats());
    }
}

/// The content stays in memory until it is sent, and no eviction would free it.
#[test]
fn replaced_content_that_is_still_sent_evicts_no_file() {
    let domain = Domain::with_files("open_file_content_bytes_max = 40000", 20, 1);
    domain.directory.replace("public/large", &[b'a'; 30_000]);
    let mut client = HttpClient::connect(domain.server.http());
    assert_eq!(client.get("/large").body[0], b'a');
    let mut slow = HttpClient::connect(domain.server.http());
    // More than sockets hold, and the client reads none of it.
    slow.send(get("/large").repeat(1_000));
    // After these iterations of the only worker, the socket of the slow client is full.
    for _ in 0..100 {
        client.get("/0");
    }
    domain.directory.replace("public/large", &[b'b'; 30_000]);
    wait_until("the new content is served", || client.get("/large").body[0] == b'b');
    for path in each_file(20) {
        assert_eq!(client.get(&path).status, 200);
    }
    let stats = domain.cache_stats();
    assert!(stats.content_bytes > 40_000, "{stats:?}: the old version is still sent");
    assert_eq!((stats.files, stats.evicted), (21, 0));
}

#[test]
fn unused_file_is_closed_after_its_timeout() {
    let limits = "watched_folders_max = 0\nsmall_file_bytes_max = 0\nopen_file_idle_timeout_ms = 300\n\
                  open_file_fresh_ms = 100\nwatched_file_fresh_ms = 100";
    let domain = Domain::with_files(limits, 1, 1);
    let file = domain.directory.path().join("public/0");
    let descriptors = format!("/proc/{}/fd", domain.server.server_process_id());
    let is_open = || {
        let descriptors = std::fs::read_dir(&descriptors).expect("it runs").flatten();
        descriptors.flat_map(|entry| std::fs::read_link(entry.path())).any(|path| path == file)
    };
    let start = Instant::now();
    assert_eq!(HttpClient::connect(domain.server.http()).get("/0").status, 200);
    wait_until("the file is closed", || !is_open());
    // Had it not been open at first, this would be less.
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}
