//! A sandboxed process that prints what it can still do, one line each.

use crate::connections::report_connections;
use crate::other_processes::{report_as_agent, report_as_keeper, report_blocking};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{AddressFamily, SocketType};
use sanderling_os::directory::Directory;
use sanderling_os::inotify::Inotify;
use sanderling_os::poll_set::PollSet;
use sanderling_os::sandbox::{CoreDumps, Landlock, Layer, Sandbox, SandboxConfig, drop_privileges, enter};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::{Batch, Socket};
use sanderling_os::user::User;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Never reached by a test that passes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The descriptors that the process opened before it entered the sandbox.
pub(crate) struct Opened {
    pub(crate) listener: Listener,
    client: TcpStream,
    socket: Socket,
    resolver: UdpSocket,
    pub(crate) root: Directory,
    inotify: Inotify,
    unix: UnixStream,
    log: std::fs::File,
}

/// Enters a sandbox with the files in `directory`, as `user`, then does `task`.
pub(crate) fn run(directory: &Path, user: Option<&str>, task: &str) {
    sanderling_os::features::select_all();
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(any).expect("bound");
    let socket = Socket::bind(any).expect("bound");
    let resolver = UdpSocket::bind(any).expect("bound");
    resolver.connect(socket.local_address().expect("bound")).expect("connected");
    let client = TcpStream::connect(listener.local_address().expect("bound")).expect("connected");
    let opened = Opened {
        listener,
        client,
        socket,
        resolver,
        root: Directory::open(&directory.join("root")).expect("opened"),
        inotify: Inotify::new().expect("created"),
        unix: UnixStream::pair().expect("created").0,
        log: std::fs::File::options().append(true).open(directory.join("log")).expect("opened"),
    };
    let mut user = user.map(|user| User::lookup(user, None).expect("found"));
    if task == "report-unprivileged" {
        // As if that user had started this process: it cannot change its user or capabilities.
        user.take().inspect(|user| user.switch().expect("root may"));
    }
    let zones = Directory::open(&directory.join("zones")).expect("opened");
    let core_dumps = if task == "without-core-dumps" { CoreDumps::Forbidden } else { CoreDumps::Allowed };
    drop_privileges(user.as_ref(), core_dumps).unwrap_or_else(|error| panic!("{error}"));
    match task {
        "agent" => return report_as_agent(directory, &opened),
        "keeper" => return report_as_keeper(directory, &opened),
        "connections" => return report_connections(&opened),
        _ => {}
    }
    let config = SandboxConfig {
        readable_fds: vec![opened.root.as_fd(), zones.as_fd()],
        landlock: if task == "without-landlock" { Layer::Disabled } else { Layer::Enabled },
        seccomp: if task == "without-seccomp" { Layer::Disabled } else { Layer::Enabled },
    };
    let sandbox = enter(config, &[]).unwrap_or_else(|error| panic!("{error}"));
    match task {
        "report" | "report-unprivileged" | "without-core-dumps" => report(&sandbox, directory, opened),
        "without-landlock" | "without-seccomp" => report_one_layer(&sandbox, directory, &opened),
        other => attack(other),
    }
}

/// Prints a line per attempt, then waits for the end of standard input, so that the test can inspect this process.
fn report(sandbox: &Sandbox, directory: &Path, opened: Opened) {
    println!("{sandbox}");
    println!("Landlock enforced: {}", matches!(sandbox.landlock, Landlock::Enforced { .. }));
    report_reading(directory, &opened);
    report_denied(directory, &opened.unix, &opened.log);
    report_blocking(&opened.listener);
    report_threads();
    report_serving(opened);
    println!("end");
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input).expect("read to its end");
}

/// Prints a few lines in which the two layers differ.
fn report_one_layer(sandbox: &Sandbox, directory: &Path, opened: &Opened) {
    println!("{sandbox}");
    print("/etc/passwd", std::fs::read("/etc/passwd").map(drop));
    print("creating a file", std::fs::write(directory.join("root/new"), "new"));
    print("connecting", TcpStream::connect(opened.listener.local_address().expect("bound")).map(drop));
    print("binding", std::net::TcpListener::bind("127.0.0.1:0").map(drop));
    // SAFETY: takes no pointer; signal 0 only asks.
    print("signalling the parent", answer(unsafe { libc::kill(libc::getppid(), 0) }));
    print("a page beneath the open root", opened.root.open_beneath(b"page").map(drop));
    println!("end");
}

fn report_reading(directory: &Path, opened: &Opened) {
    let content = opened.root.open_beneath(b"page").and_then(|file| {
        let mut buffer = [0; 16];
        let length = file.read_at(&mut buffer, 0)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    });
    print("a page beneath the open root", content);
    print("a zone by its path", std::fs::read_to_string(directory.join("zones/zone")));
    print("the list of a readable directory", std::fs::read_dir(directory.join("zones")).map(Iterator::count));
    print("a watch of the root", opened.inotify.add_watch(&opened.root).map(|_| "set"));
    print("the path of the root", real_name(opened));
    print("/etc/passwd", std::fs::read("/etc/passwd").map(drop));
    print("a file that is not readable", std::fs::read(directory.join("secret")).map(drop));
    print("a link out of the root", opened.root.open_beneath(b"out").map(drop));
    print("/proc/self/environ", std::fs::read("/proc/self/environ").map(drop));
}

fn real_name(opened: &Opened) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", opened.root.as_fd().as_raw_fd());
    let path = std::fs::read_link(link)?;
    Ok(path.file_name().map(PathBuf::from).unwrap_or_default())
}

fn report_denied(directory: &Path, unix: &UnixStream, log: &std::fs::File) {
    print("overwriting a page", std::fs::write(directory.join("root/page"), "changed"));
    print("creating a file", std::fs::write(directory.join("root/new"), "new"));
    print("removing a page", std::fs::remove_file(directory.join("root/page")));
    print("renaming a page", std::fs::rename(directory.join("root/page"), directory.join("root/other")));
    let writing = rustix::fs::openat2(
        CWD,
        directory.join("root/page"),
        OFlags::WRONLY,
        Mode::empty(),
        rustix::fs::ResolveFlags::empty(),
    );
    print("opening for writing by openat2", writing.map(drop).map_err(io::Error::from));
    print("a TCP socket", rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).map(drop));
    print("a Unix socket", rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).map(drop));
    // SAFETY: takes no pointer.
    print("switching to root", answer(unsafe { libc::setuid(0) }));
    // SAFETY: takes no pointer; the parent is another process, and signal 0 only asks.
    print("signalling the parent", answer(unsafe { libc::kill(libc::getppid(), 0) }));
    // SAFETY: takes no pointer.
    print("creating a process", answer(unsafe { libc::fork() }));
    print("executable memory by mmap", map(libc::PROT_READ | libc::PROT_EXEC).map(drop));
    let page = map(libc::PROT_READ).expect("memory");
    // SAFETY: the page was just mapped, and nothing else uses it.
    let executable = unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC) };
    print("executable memory by mprotect", answer(executable));
    // SAFETY: no pointer is taken for this request.
    print("typing into a terminal", answer(unsafe { libc::ioctl(1, libc::TIOCSTI) }));
    let filter = [0_u8; 16];
    // SAFETY: the option has the given length.
    let attached = unsafe { libc::setsockopt(1, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, filter.as_ptr().cast(), 16) };
    print("loading a program into the kernel", answer(attached));
    // socket(7), of Linux 6.5.
    const SO_PEERPIDFD: libc::c_int = 77;
    let (mut value, mut length) = (0_i32, 4);
    let pointer = (&raw mut value).cast();
    // SAFETY: the option has the given length.
    let peer = unsafe { libc::getsockopt(unix.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, pointer, &raw mut length) };
    print("a descriptor of the process at the other end", answer(peer));
    // SAFETY: takes no pointer.
    print("overwriting a log", answer(unsafe { libc::fcntl(log.as_raw_fd(), libc::F_SETFL, 0) }));
}

fn report_threads() {
    let sum = std::thread::Builder::new().name("added".into()).spawn(|| 40 + 2).map(|thread| thread.join());
    print("another thread", sum.map(|sum| sum.expect("no panic")));
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| panic!("on purpose"));
    print("a panic", io::Result::Ok(if caught.is_err() { "caught" } else { "not caught" }));
    std::thread::sleep(Duration::from_millis(1));
    let sources = sanderling_os::poll::Poller::new().and_then(|poller| poller.waker(7).map(|waker| waker.wake()));
    print("a poller with a waker", sources.map(|woken| woken.map_err(|error: io::Error| error.kind())));
}

fn report_serving(opened: Opened) {
    let Opened { listener, mut client, socket, resolver, root, .. } = opened;
    wait(&listener);
    let (stream, _) = listener.accept().expect("accepted").expect("a connection");
    client.write_all(b"question").expect("sent");
    wait(&stream);
    let mut buffer = [0; 16];
    print("received from a connection", stream.receive(&mut buffer).map(|length| length == 8));
    let file = root.open_beneath(b"page").expect("opened");
    let length = file.metadata().expect("facts").length_bytes as usize;
    print("a file sent to a connection", file.send_to(&stream, &mut 0, length));
    let mut received = vec![0; length];
    client.read_exact(&mut received).expect("received");
    print("an option of a connection", stream.reset_on_close());

    resolver.send(b"question").expect("sent");
    wait(&socket);
    let mut batch = Batch::new();
    print("datagrams received", socket.receive(&mut batch));
    let (_, mut replies) = batch.queries_and_replies();
    replies.buffer()[..6].copy_from_slice(b"answer");
    replies.push(0, 6);
    print("datagrams lost", io::Result::Ok(socket.send(&mut batch)));
    print("the answer", resolver.recv(&mut buffer).map(|length| length == 6));
}

fn wait(source: &impl AsFd) {
    PollSet::new([source.as_fd()]).wait(Some(TIMEOUT)).expect("no error");
}

fn attack(task: &str) {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the sandbox allows none of these, and the kernel would refuse the null pointers.
    let done = unsafe {
        match task {
            "execve" => libc::execve(c"/bin/true".as_ptr(), [std::ptr::null()].as_ptr(), [std::ptr::null()].as_ptr()),
            "ptrace" => libc::ptrace(libc::PTRACE_TRACEME, 0, nothing, nothing) as libc::c_int,
            "unshare" => libc::unshare(libc::CLONE_NEWUSER),
            "io_uring" => libc::syscall(libc::SYS_io_uring_setup, 1, nothing) as libc::c_int,
            "bpf" => libc::syscall(libc::SYS_bpf, 0, nothing, 0) as libc::c_int,
            "mount" => libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), 0, nothing),
            "abort" => std::process::abort(),
            other => panic!("unknown task \"{other}\""),
        }
    };
    println!("{task} was allowed: {:?}", answer(done));
}

fn map(protection: libc::c_int) -> io::Result<*mut libc::c_void> {
    // SAFETY: maps new memory.
    let page =
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(page) }
}

pub(crate) fn answer(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Prints `subject: outcome`, an error by its name.
pub(crate) fn print<T: Debug, E: Into<io::Error>>(subject: &str, outcome: Result<T, E>) {
    match outcome.map_err(Into::into) {
        Ok(value) => println!("{subject}: {value:?}"),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM) => println!("{subject}: EPERM"),
            Some(libc::EACCES) => println!("{subject}: EACCES"),
            Some(libc::EXDEV) => println!("{subject}: EXDEV"),
            _ => println!("{subject}: {error}"),
        },
    }
}
