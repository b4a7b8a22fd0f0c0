//! What a confined process can still do, told from inside it, a line each.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{AddressFamily, SocketType};
use sanderling_os::directory::Directory;
use sanderling_os::inotify::Inotify;
use sanderling_os::poll_set::PollSet;
use sanderling_os::sandbox::{Landlock, Layer, Sandbox, SandboxConfig, enter};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::{Batch, Socket};
use sanderling_os::user::User;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For a test that passes it never runs out.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the process has from the time before it was confined.
struct Kept {
    listener: Listener,
    client: TcpStream,
    socket: Socket,
    asker: UdpSocket,
    root: Directory,
    watcher: Inotify,
}

/// Confines this process to reading `folder` as `user`, then does what `deed` says.
pub(crate) fn run(folder: &Path, user: Option<&str>, deed: &str) {
    sanderling_os::features::select_all();
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(any).expect("bound");
    let socket = Socket::bind(any).expect("bound");
    let asker = UdpSocket::bind(any).expect("bound");
    asker.connect(socket.local_address().expect("bound")).expect("connected");
    let client = TcpStream::connect(listener.local_address().expect("bound")).expect("connected");
    let kept = Kept {
        listener,
        client,
        socket,
        asker,
        root: Directory::open(&folder.join("root")).expect("opened"),
        watcher: Inotify::new().expect("made"),
    };
    let mut user = user.map(|user| User::lookup(user, None).expect("found"));
    if deed == "report-unprivileged" {
        // As if somebody had started this process as that user: it may change no user and no set any more.
        user.take().inspect(|user| user.switch().expect("root may"));
    }
    let confinement = SandboxConfig {
        user,
        readable_paths: vec![folder.join("zones")],
        readable_fds: vec![kept.root.as_fd()],
        landlock: if deed == "without-landlock" { Layer::Disabled } else { Layer::Enabled },
        seccomp: if deed == "without-seccomp" { Layer::Disabled } else { Layer::Enabled },
    };
    let confined = enter(&confinement).unwrap_or_else(|error| panic!("not confined: {error}"));
    match deed {
        "report" | "report-unprivileged" => report(&confined, folder, kept),
        "without-landlock" | "without-seccomp" => report_one_layer(&confined, folder, &kept),
        other => commit(other),
    }
}

/// A line for each thing that is tried, then a pause until standard input ends: others may look at this process.
fn report(confined: &Sandbox, folder: &Path, kept: Kept) {
    println!("{confined}");
    println!("landlock is there: {}", matches!(confined.landlock, Landlock::Enforced { .. }));
    println!("bounding set: {:?}", confined.bounding);
    let facts = confined.process_status().expect("told");
    println!("filters: {}, threads: {}", facts.seccomp_filter_count, facts.thread_count);
    report_reading(folder, &kept);
    report_denied(folder);
    report_threads();
    report_serving(kept);
    println!("end");
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input).expect("read to its end");
}

/// A few lines in which the two layers differ.
fn report_one_layer(confined: &Sandbox, folder: &Path, kept: &Kept) {
    println!("{confined}");
    tell("/etc/passwd", std::fs::read("/etc/passwd").map(drop));
    tell("making a file", std::fs::write(folder.join("root/new"), "new"));
    tell("connecting", TcpStream::connect(kept.listener.local_address().expect("bound")).map(drop));
    tell("binding", std::net::TcpListener::bind("127.0.0.1:0").map(drop));
    // SAFETY: takes no pointer; signal 0 only asks.
    tell("signalling the parent", answer(unsafe { libc::kill(libc::getppid(), 0) }));
    tell("a page beneath the kept root", kept.root.open_beneath(b"page").map(drop));
    println!("end");
}

fn report_reading(folder: &Path, kept: &Kept) {
    let content = kept.root.open_beneath(b"page").and_then(|file| {
        let mut room = [0; 16];
        let length = file.read_at(&mut room, 0)?;
        Ok(String::from_utf8_lossy(&room[..length]).into_owned())
    });
    tell("a page beneath the kept root", content);
    tell("a zone by its path", std::fs::read_to_string(folder.join("zones/zone")));
    tell("the list of a readable folder", std::fs::read_dir(folder.join("zones")).map(Iterator::count));
    tell("a watch of the root", kept.watcher.add_watch(&kept.root).map(|_| "set"));
    tell("where the root is", real_name(kept));
    tell("/etc/passwd", std::fs::read("/etc/passwd").map(drop));
    tell("a file beside the readable ones", std::fs::read(folder.join("secret")).map(drop));
    tell("a link out of the root", kept.root.open_beneath(b"out").map(drop));
    tell("/proc/self/environ", std::fs::read("/proc/self/environ").map(drop));
}

fn real_name(kept: &Kept) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", kept.root.as_fd().as_raw_fd());
    let path = std::fs::read_link(link)?;
    Ok(path.file_name().map(PathBuf::from).unwrap_or_default())
}

fn report_denied(folder: &Path) {
    tell("writing over a page", std::fs::write(folder.join("root/page"), "changed"));
    tell("making a file", std::fs::write(folder.join("root/new"), "new"));
    tell("removing a page", std::fs::remove_file(folder.join("root/page")));
    tell("renaming a page", std::fs::rename(folder.join("root/page"), folder.join("root/other")));
    let writing = rustix::fs::openat2(
        CWD,
        folder.join("root/page"),
        OFlags::WRONLY,
        Mode::empty(),
        rustix::fs::ResolveFlags::empty(),
    );
    tell("opening for writing by openat2", writing.map(drop).map_err(io::Error::from));
    tell("a TCP socket", rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).map(drop));
    tell("a Unix socket", rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).map(drop));
    // SAFETY: takes no pointer.
    tell("becoming root", answer(unsafe { libc::setuid(0) }));
    // SAFETY: takes no pointer; the parent is another process, and signal 0 only asks.
    tell("signalling the parent", answer(unsafe { libc::kill(libc::getppid(), 0) }));
    // SAFETY: a child would end at once.
    tell("making a process", answer(unsafe { libc::fork() }));
    tell("executable memory by mmap", map(libc::PROT_READ | libc::PROT_EXEC).map(drop));
    let page = map(libc::PROT_READ).expect("memory");
    // SAFETY: the page was just mapped, and nothing else uses it.
    let executable = unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC) };
    tell("executable memory by mprotect", answer(executable));
    // SAFETY: no pointer is taken for this request.
    tell("pushing a key into a terminal", answer(unsafe { libc::ioctl(1, libc::TIOCSTI) }));
    let filter = [0_u8; 16];
    // SAFETY: the option is as long as is told.
    let attached = unsafe { libc::setsockopt(1, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, filter.as_ptr().cast(), 16) };
    tell("a program for the kernel", answer(attached));
}

fn report_threads() {
    let sum = std::thread::Builder::new().name("added".into()).spawn(|| 40 + 2).map(|thread| thread.join());
    tell("another thread", sum.map(|sum| sum.expect("no panic")));
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| panic!("on purpose"));
    tell("a panic", io::Result::Ok(if caught.is_err() { "caught" } else { "not caught" }));
    std::thread::sleep(Duration::from_millis(1));
    let sources = sanderling_os::poll::Poller::new().and_then(|poller| poller.waker(7).map(|waker| waker.wake()));
    tell("a poller with a waker", sources.map(|woken| woken.map_err(|error: io::Error| error.kind())));
}

/// A connection and a datagram, each by the variants in use.
fn report_serving(kept: Kept) {
    let Kept { listener, mut client, socket, asker, root, .. } = kept;
    wait(&listener);
    let (stream, _) = listener.accept().expect("accepted").expect("a connection waits");
    client.write_all(b"question").expect("sent");
    wait(&stream);
    let mut room = [0; 16];
    tell("received from a connection", stream.receive(&mut room).map(|length| length == 8));
    let file = root.open_beneath(b"page").expect("opened");
    let length = file.metadata().expect("facts").length_bytes as usize;
    tell("a file sent to a connection", file.send_to(&stream, &mut 0, length));
    let mut got = vec![0; length];
    client.read_exact(&mut got).expect("received");
    tell("an option of a connection", stream.reset_on_close());

    asker.send(b"question").expect("sent");
    wait(&socket);
    let mut batch = Batch::new();
    tell("datagrams received", socket.receive(&mut batch));
    let (_, reply) = batch.query_and_reply(0);
    reply[..6].copy_from_slice(b"answer");
    batch.set_reply(0, 6);
    tell("datagrams sent", io::Result::Ok(socket.send(&mut batch).sent_count));
    tell("the answer", asker.recv(&mut room).map(|length| length == 6));
}

fn wait(source: &impl AsFd) {
    PollSet::new([source.as_fd()]).wait(Some(DEADLINE)).expect("waited");
}

/// Does what ends the process.
fn commit(deed: &str) {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: none of these is let through; an error would be told for the null pointers.
    let done = unsafe {
        match deed {
            "execve" => libc::execve(c"/bin/true".as_ptr(), [std::ptr::null()].as_ptr(), [std::ptr::null()].as_ptr()),
            "ptrace" => libc::ptrace(libc::PTRACE_TRACEME, 0, nothing, nothing) as libc::c_int,
            "unshare" => libc::unshare(libc::CLONE_NEWUSER),
            "io_uring" => libc::syscall(libc::SYS_io_uring_setup, 1, nothing) as libc::c_int,
            "bpf" => libc::syscall(libc::SYS_bpf, 0, nothing, 0) as libc::c_int,
            "mount" => libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), 0, nothing),
            "abort" => std::process::abort(),
            other => panic!("no deed \"{other}\""),
        }
    };
    println!("{deed} went through: {:?}", answer(done));
}

fn map(protection: libc::c_int) -> io::Result<*mut libc::c_void> {
    // SAFETY: new memory, which nobody else has.
    let page =
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(page) }
}

fn answer(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// `subject: what came of it`, an error by the name of its number.
fn tell<T: Debug, E: Into<io::Error>>(subject: &str, outcome: Result<T, E>) {
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
