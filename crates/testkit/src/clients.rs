//! Clients: `curl`, `wget`, `dig`, `kdig`, and raw sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::DEADLINE;
use crate::command::{Ended, run_to_end};

/// Bytes of the longest datagram (RFC 768): its length field has 16 bits.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Bytes after which a response without end fails the test.
const ANSWER_BYTES_MAX: usize = 64 << 20;

const PIECE_BYTES_MAX: usize = 16 * 1024;

/// `curl` with these arguments, without a configuration and a proxy, and silent except for errors.
#[track_caller]
pub fn curl(arguments: &[&str]) -> Ended {
    let fixed = ["--disable", "--silent", "--show-error", "--noproxy", "*"];
    run_program("curl", "curl", &[&fixed, arguments].concat())
}

/// `wget` with these arguments, likewise; it tries once and writes the content to standard output.
#[track_caller]
pub fn wget(arguments: &[&str]) -> Ended {
    let fixed = ["--no-config", "--no-proxy", "--no-verbose", "--tries=1", "--output-document=-"];
    run_program("wget", "wget", &[&fixed, arguments].concat())
}

/// `wget --mirror` of a whole site into `directory`, without a directory for the host.
#[track_caller]
pub fn wget_mirror(url: &str, directory: &str) -> Ended {
    let fixed = ["--no-config", "--no-proxy", "--no-verbose", "--tries=1", "--mirror", "--no-host-directories"];
    run_program("wget", "wget", &[&fixed, ["--directory-prefix", directory, url].as_slice()].concat())
}

/// `dig` at this server, with these arguments: a name, a type, `+short`. `dig` reads no configuration and tries once,
/// over TCP: its UDP sockets are reuseport sockets, like the server's, so it may choose the server's port for itself,
/// and receive its own query.
#[track_caller]
pub fn dig(server: SocketAddr, arguments: &[&str]) -> Ended {
    let (at, port) = (format!("@{}", server.ip()), server.port().to_string());
    let fixed = ["-r", &at, "-p", &port, "+tries=1", "+time=20", "+tcp"];
    run_program("dig", "bind9-dnsutils", &[&fixed, arguments].concat())
}

/// `dig` over UDP, for tests of the differences. The query is repeated if `dig` has received its own query.
#[track_caller]
pub fn dig_udp(server: SocketAddr, arguments: &[&str]) -> Ended {
    let ask = || dig(server, &[&["+notcp"], arguments].concat());
    let ended = ask();
    if ended.to_string().contains("Warning: query response not set") { ask() } else { ended }
}

/// `kdig` at this server, with these arguments.
#[track_caller]
pub fn kdig(server: SocketAddr, arguments: &[&str]) -> Ended {
    let (at, port) = (format!("@{}", server.ip()), server.port().to_string());
    let fixed = [&at, "-p", &port, "+retry=0", "+time=20"];
    run_program("kdig", "knot-dnsutils", &[&fixed, arguments].concat())
}

/// Runs a program that the tests need; if it is missing, the message names its Debian package.
#[track_caller]
pub fn run_program(program: &str, package: &str, arguments: &[&str]) -> Ended {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join(program).is_file()) {
        panic!("`{program}` is not installed; `cargo xtask setup` installs it (Debian package {package})");
    }
    let mut command = Command::new(program);
    // Messages in English, times in UTC: tests compare text.
    command.args(arguments).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    run_to_end(command, DEADLINE)
}

/// A TCP connection for any bytes.
pub struct RawConnection {
    stream: TcpStream,
    peer: SocketAddr,
}

impl RawConnection {
    /// Connects to `peer`.
    #[track_caller]
    pub fn open(peer: SocketAddr) -> RawConnection {
        let stream = TcpStream::connect_timeout(&peer, DEADLINE)
            .unwrap_or_else(|error| panic!("no connection to {peer}: {error}"));
        stream.set_read_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        stream.set_write_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        // Nagle's algorithm would join two writes.
        stream.set_nodelay(true).expect("a connected stream takes the option");
        RawConnection { stream, peer }
    }

    /// Sends `bytes`.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_else(|error| panic!("sending to {}: {error}", self.peer));
    }

    /// Sends what the peer accepts; the peer may close the connection before it has read everything.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// A second handle of the connection, for a thread that sends while another reads.
    #[track_caller]
    pub fn second_end(&self) -> RawConnection {
        RawConnection { stream: self.stream.try_clone().expect("a descriptor is left"), peer: self.peer }
    }

    /// Whether the peer neither sends anything nor closes for this time.
    #[track_caller]
    pub fn is_silent_for(&self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("the time is not zero");
        let peeked = uninterrupted(|| self.stream.peek(&mut [0]));
        self.stream.set_read_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        peeked.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    /// Shuts down the sending side; the response can still be read.
    #[track_caller]
    pub fn finish_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap_or_else(|error| panic!("shutting down {}: {error}", self.peer));
    }

    /// All bytes until the peer closes or resets the connection.
    #[track_caller]
    pub fn read_to_close(&mut self) -> Vec<u8> {
        self.read_while(|_| true)
    }

    /// All bytes until they contain `end`, perhaps with some after it. The peer must not close before.
    #[track_caller]
    pub fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        let contains_end = |bytes: &[u8]| bytes.windows(end.len()).any(|window| window == end);
        let bytes = self.read_while(|bytes| !contains_end(bytes));
        assert!(
            contains_end(&bytes),
            "{} closed before {:?}; it sent {:?}",
            self.peer,
            end.escape_ascii(),
            lossy(&bytes)
        );
        bytes
    }

    /// The next bytes. The peer must not close or reset the connection before.
    #[track_caller]
    pub fn read_piece(&mut self) -> Vec<u8> {
        let mut piece = [0; PIECE_BYTES_MAX];
        let read = uninterrupted(|| self.stream.read(&mut piece));
        let own = self.stream.local_addr();
        match read {
            Ok(0) => panic!("{} has closed the connection of {own:?}", self.peer),
            Ok(count) => piece[..count].to_vec(),
            Err(error) => panic!("reading from {} by {own:?}: {error}", self.peer),
        }
    }

    /// The number of bytes that one read of at most `bytes_max` returns; 0 if the peer has closed or reset the
    /// connection.
    pub fn try_read(&mut self, bytes_max: usize) -> usize {
        self.stream.read(&mut vec![0; bytes_max]).unwrap_or(0)
    }

    /// Exactly `count` bytes.
    #[track_caller]
    pub fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let peer = self.peer;
        self.stream.read_exact(&mut bytes).unwrap_or_else(|error| panic!("reading {count} bytes from {peer}: {error}"));
        bytes
    }

    /// The next DNS message, without its length.
    #[track_caller]
    pub fn read_message(&mut self) -> Vec<u8> {
        let length = self.read_bytes(2);
        self.read_bytes(usize::from(u16::from_be_bytes([length[0], length[1]])))
    }

    #[track_caller]
    fn read_while(&mut self, wants_more: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut piece = [0; PIECE_BYTES_MAX];
        while wants_more(&bytes) {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("reading from {}: {error}; it sent {:?}", self.peer, lossy(&bytes)),
            }
            assert!(bytes.len() <= ANSWER_BYTES_MAX, "{} sends more than {ANSWER_BYTES_MAX} bytes", self.peer);
        }
        bytes
    }
}

/// Sends `bytes` over a connection of its own and reads until the peer closes it.
#[track_caller]
pub fn tcp_exchange(peer: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut connection = RawConnection::open(peer);
    connection.send(bytes);
    connection.read_to_close()
}

/// The reply to a query over TCP, without its length (RFC 1035 §4.2.2).
#[track_caller]
pub fn tcp_reply(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let mut connection = RawConnection::open(server);
    connection.send(&framed(query));
    connection.read_message()
}

/// The reply from a server that may not run; `None` without a connection, or without a reply on it.
pub fn try_tcp_reply(server: SocketAddr, query: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, DEADLINE).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    stream.write_all(&framed(query)).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}

/// A DNS message with its length before it (RFC 1035 §4.2.2).
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("a message has at most 65,535 bytes");
    [&length.to_be_bytes(), message].concat()
}

/// The reply to a query over UDP.
#[track_caller]
pub fn udp_reply(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let client = UdpClient::new(server);
    client.send(query);
    client.receive()
}

/// A UDP socket for one server.
pub struct UdpClient {
    socket: UdpSocket,
    server: SocketAddr,
}

impl UdpClient {
    /// A socket connected to `server`.
    #[track_caller]
    pub fn new(server: SocketAddr) -> UdpClient {
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).expect("the kernel has a free port");
        // A connected socket receives only from its server, and reports a closed port.
        socket.connect(server).unwrap_or_else(|error| panic!("no route to {server}: {error}"));
        UdpClient { socket, server }
    }

    /// Sends a datagram.
    #[track_caller]
    pub fn send(&self, datagram: &[u8]) {
        self.socket.send(datagram).unwrap_or_else(|error| panic!("sending to {}: {error}", self.server));
    }

    /// The next datagram.
    #[track_caller]
    pub fn receive(&self) -> Vec<u8> {
        self.receive_within(DEADLINE).unwrap_or_else(|| panic!("no datagram from {} within {DEADLINE:?}", self.server))
    }

    /// The next datagram; `None` if there is none within `time`.
    #[track_caller]
    pub fn receive_within(&self, time: Duration) -> Option<Vec<u8>> {
        self.socket.set_read_timeout(Some(time)).expect("the time is not zero");
        let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
        match uninterrupted(|| self.socket.recv(&mut datagram)) {
            Ok(count) => {
                datagram.truncate(count);
                Some(datagram)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) => panic!("no datagram from {}: {error}", self.server),
        }
    }
}

/// A stopped and continued process interrupts calls with a timeout (signal(7)).
fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
