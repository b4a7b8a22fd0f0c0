//! Due queries turned into datagrams from many ports, and the datagrams that come back into right or wrong.

use crate::error_queue::{keep_errors, take_returned};
use crate::lane::{Exchange, Turn};
use crate::outcome::{Cause, Note};
use crate::poller::{Interest, Poller, Ready};
use crate::question::{HEADER_BYTES, Question};
use crate::random::Random;
use crate::reply::{Transport, check_reply};
use crate::schedule::Request;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Octets of the longest datagram (RFC 768): its length field has 16 bits.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Datagrams that came back, fetched from one socket at a time; the poller tells again when there are more.
const RETURNED_PER_READINESS_MAX: usize = 64;

/// Queries over UDP.
pub(crate) struct Datagrams {
    ports: Vec<Port>,
    next_port: usize,
    questions: Arc<[Question]>,
    random: Random,
    deadline: Duration,
    outstanding: HashMap<Key, Outstanding>,
    /// In the order of time, for all queries have one deadline.
    deadlines: VecDeque<(Instant, Key, u64)>,
    query: Vec<u8>,
    buffer: Box<[u8]>,
}

/// A socket of a port of its own: a server spreads its load by the peers' ports.
struct Port {
    socket: UdpSocket,
    /// Counts on from a random id, so that no id comes back before all others of the port were used.
    next_id: u16,
}

/// What tells outstanding queries apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    port_index: usize,
    id: u16,
}

struct Outstanding {
    request: Request,
    question_index: usize,
}

impl Datagrams {
    /// Opens `port_count` sockets and lets `poller` watch them.
    pub(crate) fn open(
        peer: SocketAddr,
        port_count: usize,
        questions: Arc<[Question]>,
        mut random: Random,
        deadline: Duration,
        poller: &Poller,
    ) -> io::Result<Datagrams> {
        let mut ports = Vec::with_capacity(port_count);
        for index in 0..port_count {
            let socket = open_port(peer)?;
            poller.add(&socket, index as u64, Interest::IN)?;
            ports.push(Port { socket, next_id: random.next_u16() });
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

    fn receive(&mut self, port_index: usize, turn: &mut Turn<'_>) {
        let length_bytes = match self.ports[port_index].socket.recv(&mut self.buffer) {
            Ok(length_bytes) => length_bytes,
            // The error queue has told, or will tell, of which query the error is.
            Err(_) => return,
        };
        turn.now = Instant::now();
        let message = &self.buffer[..length_bytes];
        let key = id_of(message).map(|id| Key { port_index, id });
        let Some((key, query)) = key.and_then(|key| self.outstanding.remove(&key).map(|query| (key, query))) else {
            return turn.tally.note(Note::Stray);
        };
        match check_reply(message, key.id, &self.questions[query.question_index], Transport::Udp) {
            Ok(reply) => {
                if reply.is_truncated {
                    turn.tally.note(Note::Truncated);
                }
                turn.tally.count_ok(query.request, turn.now);
            }
            Err((cause, what)) => {
                let port = &self.ports[port_index];
                turn.tally.count_lost(query.request, cause, turn.now, || port.describe(&what));
            }
        }
    }

    /// Takes the datagrams that could not be delivered.
    fn take_all_returned(&mut self, port_index: usize, turn: &mut Turn<'_>) {
        for _ in 0..RETURNED_PER_READINESS_MAX {
            let Some(returned) = take_returned(&self.ports[port_index].socket, &mut self.buffer) else { return };
            let key = id_of(returned).map(|id| Key { port_index, id });
            if let Some(query) = key.and_then(|key| self.outstanding.remove(&key)) {
                let port = &self.ports[port_index];
                let detail = || port.describe("the datagram came back: port unreachable");
                turn.tally.count_lost(query.request, Cause::Refused, turn.now, detail);
            }
        }
    }
}

impl Exchange for Datagrams {
    fn send(&mut self, request: Request, turn: &mut Turn<'_>) {
        let port_index = self.next_port;
        self.next_port = (self.next_port + 1) % self.ports.len();
        let question_index = self.random.index(self.questions.len());
        let port = &mut self.ports[port_index];
        let key = Key { port_index, id: port.next_id };
        port.next_id = port.next_id.wrapping_add(1);
        if self.outstanding.contains_key(&key) {
            let detail = || "all ids of the port wait for their answers".to_owned();
            return turn.tally.count_lost(request, Cause::Unsent, turn.now, detail);
        }
        self.query.clear();
        self.questions[question_index].put_query(key.id, &mut self.query);
        let mut sent = self.ports[port_index].socket.send(&self.query);
        if sent.is_err() {
            // What the call tells may be the fate of an earlier datagram, and this one has not left: once more.
            self.take_all_returned(port_index, turn);
            sent = self.ports[port_index].socket.send(&self.query);
        }
        if let Err(error) = sent {
            let cause = Errno::from_io_error(&error).map_or(Cause::Unsent, |errno| Cause::of(errno, 0));
            let port = &self.ports[port_index];
            return turn.tally.count_lost(request, cause, turn.now, || port.describe(&format!("not sent: {error}")));
        }
        self.outstanding.insert(key, Outstanding { request, question_index });
        self.deadlines.push_back((request.due + self.deadline, key, request.number));
    }

    fn handle_ready(&mut self, ready: Ready, turn: &mut Turn<'_>) {
        let port_index = ready.token_bits as usize;
        if ready.has_error() {
            self.take_all_returned(port_index, turn);
        }
        if ready.can_receive() {
            self.receive(port_index, turn);
        }
    }

    fn expire(&mut self, turn: &mut Turn<'_>) {
        while let Some(&(at, key, number)) = self.deadlines.front()
            && at <= turn.now
        {
            self.deadlines.pop_front();
            // The id may be another query's by now.
            if self.outstanding.get(&key).is_none_or(|query| query.request.number != number) {
                continue;
            }
            if let Some(query) = self.outstanding.remove(&key) {
                let (port, question) = (&self.ports[key.port_index], &self.questions[query.question_index]);
                let detail = || port.describe(&format!("no answer to {question}"));
                turn.tally.count_lost(query.request, Cause::Timeout, turn.now, detail);
            }
        }
    }

    fn outstanding_count(&self) -> usize {
        self.outstanding.len()
    }
}

impl Port {
    fn describe(&self, what: &str) -> String {
        let from =
            self.socket.local_addr().map_or_else(|_| "an unknown port".to_owned(), |address| address.to_string());
        format!("{what}; from {from}")
    }
}

fn open_port(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    socket.set_nonblocking(true)?;
    keep_errors(&socket)?;
    Ok(socket)
}

/// `None` for less than a header.
fn id_of(message: &[u8]) -> Option<u16> {
    let header = message.first_chunk::<HEADER_BYTES>()?;
    Some(u16::from_be_bytes([header[0], header[1]]))
}
