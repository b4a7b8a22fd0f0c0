//! The client for DNS over UDP: queries from many ports, and the errors that the network returns for them.

use crate::dns::{Question, Transport, check_reply, id_of};
use crate::outcome::{Cause, Note};
use crate::report::{Recorder, Request};
use fastrand::Rng;
use rustix::net::{RecvFlags, SendFlags};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// Bytes of the longest datagram (RFC 768).
const DATAGRAM_BYTES_MAX: usize = 65_535;

pub(crate) struct Datagrams {
    ports: Vec<Rc<Port>>,
    next_port: usize,
    random: Rng,
    deadline: Duration,
}

/// A socket with its own port: servers distribute load by the client's port.
struct Port {
    socket: UdpSocket,
    questions: Arc<[Question]>,
    recorder: Rc<Recorder>,
    /// The outstanding queries by ID, with the question's index. IDs count up, so that one is reused only after all
    /// others of the port.
    outstanding: RefCell<HashMap<u16, (Request, usize)>>,
    next_id: RefCell<u16>,
}

impl Datagrams {
    pub(crate) fn open(
        server: SocketAddr,
        port_count: usize,
        questions: &Arc<[Question]>,
        mut random: Rng,
        deadline: Duration,
        recorder: &Rc<Recorder>,
    ) -> io::Result<Datagrams> {
        let mut ports = Vec::with_capacity(port_count);
        for _ in 0..port_count {
            let (questions, recorder) = (Arc::clone(questions), Rc::clone(recorder));
            let (outstanding, next_id) = (RefCell::default(), RefCell::new(random.u16(..)));
            let port = Rc::new(Port { socket: open_socket(server)?, questions, recorder, outstanding, next_id });
            tokio::task::spawn_local(Rc::clone(&port).receive_all());
            ports.push(port);
        }
        Ok(Datagrams { ports, next_port: 0, random, deadline })
    }

    pub(crate) fn send(&mut self, request: Request) {
        let port_index = self.next_port;
        self.next_port = (port_index + 1) % self.ports.len();
        let port = &self.ports[port_index];
        port.send(request, self.random.usize(..port.questions.len()));
    }

    /// Ends the queries whose deadline has passed; returns whether no query is outstanding.
    pub(crate) fn expire(&self) -> bool {
        let now = Instant::now();
        for port in &self.ports {
            let mut outstanding = port.outstanding.borrow_mut();
            for (_, (request, question_index)) in outstanding.extract_if(|_, (it, _)| it.due + self.deadline <= now) {
                port.lose(request, Cause::Timeout, &format!("no reply to {}", port.questions[question_index]));
            }
        }
        self.ports.iter().all(|port| port.outstanding.borrow().is_empty())
    }
}

impl Port {
    fn send(&self, request: Request, question_index: usize) {
        let id = self.next_id.replace_with(|id| id.wrapping_add(1));
        if self.outstanding.borrow().contains_key(&id) {
            return self.lose(request, Cause::NotSent, "all IDs of the port are outstanding");
        }
        let query = self.questions[question_index].query(id);
        let send = || rustix::net::send(&self.socket, &query, SendFlags::empty());
        let mut sent = send();
        if sent.is_err() {
            // The error may belong to an earlier datagram, and this one was not sent.
            self.receive_errors();
            sent = send();
        }
        if let Err(errno) = sent {
            return self.lose(request, Cause::of(errno, 0), &format!("send: {errno}"));
        }
        self.outstanding.borrow_mut().insert(id, (request, question_index));
    }

    async fn receive_all(self: Rc<Self>) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while let Ok(ready) = self.socket.ready(Interest::READABLE | Interest::ERROR).await {
            if ready.is_error() {
                self.receive_errors();
            }
            while let Ok(length_bytes) = self.socket.try_recv(&mut buffer) {
                self.handle_reply(&buffer[..length_bytes]);
            }
        }
    }

    fn handle_reply(&self, message: &[u8]) {
        let id = id_of(message).unwrap_or(0);
        let query = id_of(message).and_then(|id| self.take(id));
        let Some((request, question_index)) = query else { return self.recorder.note(Note::Unexpected) };
        match check_reply(message, id, &self.questions[question_index], Transport::Udp) {
            Ok(reply) => {
                if reply.is_truncated {
                    self.recorder.note(Note::Truncated);
                }
                self.recorder.count_ok(request);
            }
            Err((cause, detail)) => self.lose(request, cause, &detail),
        }
    }

    /// Reads the errors of datagrams that could not be delivered.
    fn receive_errors(&self) {
        let mut buffer = [0; 512];
        let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
        // An error comes with the beginning of the datagram that caused it.
        while let Ok((length_bytes, _)) = rustix::net::recv(&self.socket, &mut buffer, flags) {
            if let Some((request, _)) = id_of(&buffer[..length_bytes]).and_then(|id| self.take(id)) {
                self.lose(request, Cause::Refused, "port unreachable");
            }
        }
        // This makes the runtime wait for the next event.
        let _ = self.socket.try_io(Interest::ERROR, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }

    fn take(&self, id: u16) -> Option<(Request, usize)> {
        self.outstanding.borrow_mut().remove(&id)
    }

    fn lose(&self, request: Request, cause: Cause, what: &str) {
        self.recorder.count_lost(request, cause, || {
            let address = self.socket.local_addr();
            format!("{what}; from {}", address.map_or_else(|_| "an unknown port".to_owned(), |it| it.to_string()))
        });
    }
}

fn open_socket(server: SocketAddr) -> io::Result<UdpSocket> {
    let unspecified: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(unspecified)?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    enable_error_queue(&socket)?;
    UdpSocket::from_std(socket)
}

/// Makes the kernel queue the error of each datagram, instead of reporting only that one has failed (ip(7)).
#[allow(unsafe_code, reason = "rustix does not set this option")]
fn enable_error_queue(socket: &std::net::UdpSocket) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (level, option) = match socket.local_addr()? {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    let on: libc::c_int = 1;
    let length_bytes = size_of_val(&on) as libc::socklen_t;
    // SAFETY: the kernel reads `length_bytes` bytes of `on`, which outlives the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length_bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
