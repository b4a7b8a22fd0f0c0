//! The agent and the keeper: sandboxed processes that serve no client. Each process prints the actions that it can
//! still do, one per line.

use crate::inside::{Opened, answer, print};
use rustix::net::{AddressFamily, SocketType};
use sanderling_os::memfd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::request_socket::RequestSocket;
use sanderling_os::sandbox::{Layer, SandboxConfig, enter_as_agent, enter_as_keeper};
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

pub(crate) const AGENT_REPORT: &str = r#"a file that it may read: "a zone"
a page of a site: EACCES
overwriting a page: EACCES
a new file beneath the state folder: ()
renaming it: ()
connecting: ()
listening: EPERM
receiving datagrams at a port: EPERM
accepting a client: EPERM
a Unix socket: EPERM
having the other owners of a listener wait for a client: EPERM
creating a process: EPERM
another thread: 42"#;

pub(crate) const KEEPER_REPORT: &str = r#"a page of a site: EPERM
a page beneath the open root: EPERM
a new file beneath the state folder: EPERM
connecting: EPERM
listening: EPERM
receiving datagrams at a port: EPERM
accepting a client: EPERM
a Unix socket: EPERM
having the other owners of a listener wait for a client: EPERM
creating a process: EPERM
another thread: 42
sealed memory: "content"
a request: true
its answer: true"#;

/// Enters the agent's sandbox, with `zones` to read and `state` to write, and reports.
pub(crate) fn report_as_agent(directory: &Path, opened: &Opened) {
    let address = opened.listener.local_address().expect("bound");
    let [zones, state] = ["zones", "state"].map(|name| File::open(directory.join(name)).expect("opened"));
    let config = SandboxConfig { readable_fds: vec![zones.as_fd()], landlock: Layer::Enabled, seccomp: Layer::Enabled };
    println!("{}", enter_as_agent(config, &[state.as_fd()]).unwrap_or_else(|error| panic!("{error}")));
    print("a file that it may read", fs::read_to_string(directory.join("zones/zone")));
    print("a page of a site", fs::read(directory.join("root/page")).map(drop));
    print("overwriting a page", fs::write(directory.join("root/page"), "changed"));
    let [new, renamed] = ["new", "renamed"].map(|name| directory.join("state").join(name));
    print("a new file beneath the state folder", fs::write(&new, "new"));
    print("renaming it", fs::rename(&new, &renamed));
    report_network(opened, address);
    end();
}

/// Enters the keeper's sandbox, and reports.
pub(crate) fn report_as_keeper(directory: &Path, opened: &Opened) {
    let address = opened.listener.local_address().expect("bound");
    let [asking, answering] = RequestSocket::pair(Duration::from_secs(30)).expect("created");
    println!("{}", enter_as_keeper(Layer::Enabled, None).unwrap_or_else(|error| panic!("{error}")));
    print("a page of a site", fs::read(directory.join("root/page")).map(drop));
    print("a page beneath the open root", opened.root.open_beneath(b"page").map(drop));
    print("a new file beneath the state folder", fs::write(directory.join("state/new"), "new"));
    report_network(opened, address);
    let content = memfd::create("test", b"content").and_then(|file| memfd::read(file, 100));
    print("sealed memory", content.map(|content| String::from_utf8_lossy(&content).into_owned()));
    let [asking, answering] = [asking, answering].map(|end| RequestSocket::from_fd(end).expect("a socket"));
    let mut buffer = [0; 16];
    let received = asking.send(b"request").and_then(|()| answering.receive(&mut buffer));
    print("a request", received.map(|message| message == Some(b"request")));
    let received = answering.send(b"answer").and_then(|()| asking.receive(&mut buffer));
    print("its answer", received.map(|message| message == Some(b"answer")));
    end();
}

fn report_network(opened: &Opened, address: SocketAddr) {
    print("connecting", TcpStream::connect(address).map(drop));
    print("listening", TcpListener::bind("127.0.0.1:0").map(drop));
    print("receiving datagrams at a port", UdpSocket::bind("127.0.0.1:0").map(drop));
    print("accepting a client", opened.listener.accept().map(drop));
    print("a Unix socket", rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).map(drop));
    report_blocking(&opened.listener);
    // SAFETY: takes no pointer.
    print("creating a process", answer(unsafe { libc::fork() }));
    let sum = std::thread::Builder::new().spawn(|| 40 + 2).map(|thread| thread.join());
    print("another thread", sum.map(|sum| sum.expect("no panic")));
}

/// Clears `O_NONBLOCK` of a listener, which it shares with all processes that have it.
pub(crate) fn report_blocking(listener: &impl AsFd) {
    let set = rustix::io::ioctl_fionbio(listener, false);
    print("having the other owners of a listener wait for a client", set);
}

/// Waits for the end of standard input, which the keeper cannot read.
pub(crate) fn end() {
    println!("end");
    PollSet::new([io::stdin().as_fd()]).wait(None).expect("polled");
}
