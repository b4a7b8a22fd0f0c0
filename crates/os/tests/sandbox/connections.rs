//! A server process that connects to applications: what it can still do.

use crate::inside::{Opened, print};
use crate::other_processes::end;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use sanderling_os::poll_set::PollSet;
use sanderling_os::sandbox::{Layer, SandboxConfig, enter};
use sanderling_os::tcp::{Listener, More, Stream};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(crate) const REPORT: &str = r#"connecting to the application: ()
the connection: ()
sent to the application: 8
connecting by IPv6: ()
connecting to another port: EACCES
connecting to another port with the first packet: EPERM
connecting to the application with the first packet: EPERM
a Multipath TCP socket: EPERM
a datagram socket: EPERM
a Unix socket: EPERM
a stream to a Unix socket: EPERM
a raw socket: EPERM
listening: EPERM"#;

/// Never reached by a test that passes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Enters a sandbox that allows connections to the port of the listener, and reports.
pub(crate) fn report_connections(opened: &Opened) {
    let address = opened.listener.local_address().expect("bound");
    let other = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let other_address = other.local_address().expect("bound");
    let config =
        SandboxConfig { readable_fds: [opened.root.as_fd()], landlock: Layer::Enabled, seccomp: Layer::Enabled };
    println!("{}", enter(config, &[address.port()]).unwrap_or_else(|error| panic!("{error}")));
    let stream = Stream::connect(address);
    print(
        "connecting to the application",
        stream.as_ref().map(|_| ()).map_err(|error| io::Error::other(error.to_string())),
    );
    if let Ok(stream) = stream {
        PollSet::for_writing([stream.as_fd()]).wait(Some(TIMEOUT)).expect("no error");
        print("the connection", stream.connect_error());
        print("sent to the application", stream.send(b"question", More::No));
    }
    // Whether there is IPv6 or not, the sandbox does not refuse it.
    let by_ipv6 = socket(AddressFamily::INET6).and_then(|socket| {
        match connect(&socket, SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), address.port())) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
            _ => Ok(()),
        }
    });
    print("connecting by IPv6", by_ipv6.or_else(without_ipv6));
    print("connecting to another port", socket(AddressFamily::INET).and_then(|socket| connect(&socket, other_address)));
    let first_packet = |address| {
        let flags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32);
        let sent = rustix::net::sendto(socket(AddressFamily::INET)?, b"question", flags, &address);
        sent.map(drop).map_err(io::Error::from)
    };
    print("connecting to another port with the first packet", first_packet(other_address));
    print("connecting to the application with the first packet", first_packet(address));
    let multipath = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, Some(ipproto::MPTCP));
    print("a Multipath TCP socket", multipath.map(drop));
    print("a datagram socket", UdpSocket::bind("127.0.0.1:0").map(drop));
    let unix = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
    print("a Unix socket", unix.map(drop));
    print("a stream to a Unix socket", UnixStream::connect("/nonexistent").map(drop));
    let raw = rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, FLAGS, Some(ipproto::TCP));
    print("a raw socket", raw.map(drop));
    print("listening", TcpListener::bind("127.0.0.1:0").map(drop));
    end();
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// As the server creates it.
fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::TCP))?)
}

/// Connecting that has begun is connecting.
fn connect(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    match rustix::net::connect(socket, &address) {
        Err(rustix::io::Errno::INPROGRESS) => Ok(()),
        result => Ok(result?),
    }
}

/// A kernel without IPv6 has no such socket.
fn without_ipv6(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::EAFNOSUPPORT) { Ok(()) } else { Err(error) }
}
