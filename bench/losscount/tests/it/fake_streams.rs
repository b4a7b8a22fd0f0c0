//! A script turned into a TCP server: what it does upon each request.

use rustix::net::{AddressFamily, SocketType};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// What the server does upon a request.
pub(crate) enum Deed {
    /// Sends this and waits for the next request.
    Send(Vec<u8>),
    /// Sends this and closes.
    SendAndClose(Vec<u8>),
    /// Sends this and resets.
    SendAndReset(Vec<u8>),
    /// Nothing, until the client closes.
    Wait,
    /// Sends this when so many connections have been closed or reset.
    SendAfterEnds(u64, Vec<u8>),
}

/// How long a request is.
#[derive(Clone, Copy)]
pub(crate) enum Framing {
    /// To the empty line.
    Http,
    /// As the two octets before it say.
    Dns,
}

/// Runs until it is dropped.
pub(crate) struct FakeStreams {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

type Script = dyn Fn(u64, &[u8]) -> Deed + Send + Sync;

struct Shared {
    script: Box<Script>,
    framing: Framing,
    request_count: AtomicU64,
    end_count: Mutex<u64>,
    ended: Condvar,
}

impl FakeStreams {
    /// The script is given the number of the request, from 0, and the request without its framing.
    pub(crate) fn start(framing: Framing, script: impl Fn(u64, &[u8]) -> Deed + Send + Sync + 'static) -> FakeStreams {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let shared = Arc::new(Shared {
            script: Box::new(script),
            framing,
            request_count: AtomicU64::new(0),
            end_count: Mutex::new(0),
            ended: Condvar::new(),
        });
        let is_over = Arc::new(AtomicBool::new(false));
        let accepting = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                for stream in listener.incoming() {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let (stream, shared) = (stream.expect("descriptors are enough"), Arc::clone(&shared));
                    std::thread::spawn(move || shared.serve(stream));
                }
            }
        });
        FakeStreams { address, is_over, accepting: Some(accepting) }
    }
}

impl Drop for FakeStreams {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            accepting.join().expect("accepting does not panic");
        }
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        while let Some(request) = self.framing.read(&mut stream) {
            let number = self.request_count.fetch_add(1, Ordering::SeqCst);
            match (self.script)(number, &request) {
                Deed::Send(bytes) => stream.write_all(&bytes).expect("the client reads"),
                Deed::SendAfterEnds(count, bytes) => {
                    let ends = self.end_count.lock().expect("nobody panics with it");
                    drop(self.ended.wait_while(ends, |ends| *ends < count).expect("nobody panics with it"));
                    stream.write_all(&bytes).expect("the client reads");
                }
                Deed::SendAndClose(bytes) => {
                    stream.write_all(&bytes).expect("the client reads");
                    return self.end(stream);
                }
                Deed::SendAndReset(bytes) => {
                    stream.write_all(&bytes).expect("the client reads");
                    // To linger for no time is to reset (socket(7), SO_LINGER).
                    rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO))
                        .expect("the stream is open");
                    return self.end(stream);
                }
                Deed::Wait => {
                    // The end or the reset of the client's.
                    let _ = stream.read(&mut [0]);
                    return;
                }
            }
        }
    }

    fn end(&self, stream: TcpStream) {
        drop(stream);
        *self.end_count.lock().expect("nobody panics with it") += 1;
        self.ended.notify_all();
    }
}

impl Framing {
    /// `None` when the client has closed.
    fn read(self, stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut request = Vec::new();
        match self {
            Framing::Http => {
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).ok()?;
                    request.push(byte[0]);
                }
            }
            Framing::Dns => {
                let mut length = [0; 2];
                stream.read_exact(&mut length).ok()?;
                request.resize(usize::from(u16::from_be_bytes(length)), 0);
                stream.read_exact(&mut request).ok()?;
            }
        }
        Some(request)
    }
}

/// A port that is taken and that nobody listens on, for as long as the descriptor lives.
pub(crate) fn refusing_port() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("descriptors are enough");
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback has a free port");
    let address = rustix::net::getsockname(&socket).expect("the socket is bound");
    (socket, SocketAddr::try_from(address).expect("it is an address of IPv4"))
}
