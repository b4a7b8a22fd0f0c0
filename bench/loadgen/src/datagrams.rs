//! The client for DNS over UDP: queries from many ports, and the errors that the network returns for them.

use crate::dns::{Question, Transport, check_reply, id_of};
use crate::outcome::{Cause, Note};
use crate::runner::{Client, Context, Interest, Poller, Request};
use fastrand::Rng;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the longest datagram (RFC 768).
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Errors read from one socket per event; the poller reports the rest again.
const ERRORS_PER_EVENT_MAX: usize = 64;

/// Queries over UDP.
pub(crate) struct Datagrams {
    ports: Vec<Port>,
    next_port: usize,
    questions: Arc<[Question]>,
    random: Rng,
    deadline: Duration,
    outstanding: HashMap<QueryKey, Outstanding>,
    /// In the order of time, as all queries have the same deadline.
    deadlines: VecDeque<(Instant, QueryKey, u64)>,
    query: Vec<u8>,
    buffer: Box<[u8]>,
}

/// A socket with its own port: servers distribute load by the port of the client.
struct Port {
    socket: UdpSocket,
    /// Counts up from a random ID, so that an ID is reused only after all others of the port.
    next_id: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QueryKey {
    port_index: usize,
    id: u16,
}

struct Outstanding {
    request: Request,
    question_index: usize,
}

impl Datagrams {
    /// Opens `port_count` sockets and registers them.
    pub(crate) fn open(
        server: SocketAddr,
        port_count: usize,
        questions: Arc<[Question]>,
        mut random: Rng,
        deadline: Duration,
        poller: &Poller,
    ) -> io::Result<Datagrams> {
        let mut ports = Vec::with_capacity(port_count);
        for index in 0..port_count {
            let socket = open_socket(server)?;
            poller.add(&socket, index as u64, Interest::IN)?;
            ports.push(Port { socket, next_id: random.u16(..) });
        }
        Ok(Datagrams {
            ports,
            next_port: 0,
            questions,
            random,
            deadline,
            outstanding: HashMap::new(),
            deadlines: VecDeque::new(),
            query: Vec::new(),
            buffer: vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice(),
        })
    }

    fn receive(&mut self, port_index: usize, cx: &mut Context<'_>) {
        // An error belongs to a query that the error queue names.
        let Ok(length_bytes) = self.ports[port_index].socket.recv(&mut self.buffer) else { return };
        cx.now = Instant::now();
        let message = &self.buffer[..length_bytes];
        let key = id_of(message).map(|id| QueryKey { port_index, id });
        let Some((key, query)) = key.and_then(|key| Some((key, self.outstanding.remove(&key)?))) else {
            return cx.recorder.note(Note::Unexpected);
        };
        match check_reply(message, key.id, &self.questions[query.question_index], Transport::Udp) {
            Ok(reply) => {
                if reply.is_truncated {
                    cx.recorder.note(Note::Truncated);
                }
                cx.recorder.count_ok(query.request, cx.now);
            }
            Err((cause, detail)) => self.ports[port_index].lose(query.request, cause, &detail, cx),
        }
    }

    /// Reads the errors of datagrams that could not be delivered.
    fn receive_errors(&mut self, port_index: usize, cx: &mut Context<'_>) {
        for _ in 0..ERRORS_PER_EVENT_MAX {
            let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
            let socket = &self.ports[port_index].socket;
            // The error comes with the beginning of the datagram that caused it.
            let Ok((length_bytes, _)) = rustix::net::recv(socket, &mut self.buffer[..], flags) else { return };
            let key = id_of(&self.buffer[..length_bytes]).map(|id| QueryKey { port_index, id });
            if let Some(query) = key.and_then(|key| self.outstanding.remove(&key)) {
                self.ports[port_index].lose(query.request, Cause::Refused, "port unreachable", cx);
            }
        }
    }
}

impl Client for Datagrams {
    fn send(&mut self, request: Request, cx: &mut Context<'_>) {
        let port_index = self.next_port;
        self.next_port = (self.next_port + 1) % self.ports.len();
        let question_index = self.random.usize(..self.questions.len());
        let port = &mut self.ports[port_index];
        let key = QueryKey { port_index, id: port.next_id };
        port.next_id = port.next_id.wrapping_add(1);
        if self.outstanding.contains_key(&key) {
            return port.lose(request, Cause::NotSent, "all IDs of the port are outstanding", cx);
        }
        self.query.clear();
        self.questions[question_index].put_query(key.id, &mut self.query);
        let mut sent = self.ports[port_index].socket.send(&self.query);
        if sent.is_err() {
            // The error may be that of an earlier datagram, and this one was not sent.
            self.receive_errors(port_index, cx);
            sent = self.ports[port_index].socket.send(&self.query);
        }
        if let Err(error) = sent {
            let cause = Errno::from_io_error(&error).map_or(Cause::NotSent, |errno| Cause::of(errno, 0));
            return self.ports[port_index].lose(request, cause, &format!("send: {error}"), cx);
        }
        self.outstanding.insert(key, Outstanding { request, question_index });
        self.deadlines.push_back((request.due + self.deadline, key, request.number));
    }

    fn handle_event(&mut self, token: u64, ready: Interest, cx: &mut Context<'_>) {
        let port_index = token as usize;
        if ready.contains(Interest::ERR) {
            self.receive_errors(port_index, cx);
        }
        self.receive(port_index, cx);
    }

    fn expire(&mut self, cx: &mut Context<'_>) {
        while let Some(&(at, key, number)) = self.deadlines.front()
            && at <= cx.now
        {
            self.deadlines.pop_front();
            // Another query may have the same ID by now.
            if self.outstanding.get(&key).is_some_and(|query| query.request.number == number)
                && let Some(query) = self.outstanding.remove(&key)
            {
                let detail = format!("no reply to {}", self.questions[query.question_index]);
                self.ports[key.port_index].lose(query.request, Cause::Timeout, &detail, cx);
            }
        }
    }

    fn outstanding_count(&self) -> usize {
        self.outstanding.len()
    }
}

impl Port {
    fn lose(&self, request: Request, cause: Cause, what: &str, cx: &mut Context<'_>) {
        cx.recorder.count_lost(request, cause, cx.now, || {
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
    let socket = UdpSocket::bind(unspecified)?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    enable_error_queue(&socket)?;
    Ok(socket)
}

/// Makes the kernel queue the error of each datagram, instead of reporting only that one has failed (ip(7)).
#[allow(unsafe_code, reason = "rustix does not set this option")]
fn enable_error_queue(socket: &UdpSocket) -> io::Result<()> {
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
