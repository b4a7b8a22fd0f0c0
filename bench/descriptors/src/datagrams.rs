//! Answering datagrams that wait already, as under load: one for each wait, drained, and in batches.

use crate::job::{Candidate, Job, Row};
use sanderling_os::candidates::datagrams::{Echo, Loop, OUTSTANDING_MAX, QUERY_BYTES, REPLY_BYTES};
use sanderling_os::udp::{Batch, Socket};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

pub const JOB: Job = Job {
    name: "datagrams",
    operations_per_thread: OUTSTANDING_MAX,
    rows: &[
        Row::new("select, one", || echo(Loop::SelectOne)),
        Row::new("select, drain", || echo(Loop::SelectDrain)),
        Row::new("batches of 8", || echo(Loop::Batches(8))),
        Row::new("batches of 32", || echo(Loop::Batches(32))),
        Row::new("batches of 64", || echo(Loop::Batches(64))),
        Row::new("the server's own", || {
            let socket = Socket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port is free");
            let address = socket.local_address().expect("it is bound");
            Box::new(Answering { server: Own { socket, batch: Batch::new() }, peer: Peer::connect(address) })
        }),
    ],
};

/// How long a datagram that was sent over loopback may take to be there.
const PATIENCE: Duration = Duration::from_secs(1);

fn echo(form: Loop) -> Box<dyn Candidate> {
    let server = Echo::bind(form).expect("a port is free");
    let address = server.address().expect("it is bound");
    Box::new(Answering { server, peer: Peer::connect(address) })
}

/// A server's loop, of which a turn answers some of what is there.
trait Turn {
    fn turn(&mut self) -> usize;
}

impl Turn for Echo {
    fn turn(&mut self) -> usize {
        Echo::turn(self, PATIENCE).expect("the socket is open")
    }
}

/// The loop of the server's own thread for datagrams, with an answer that costs nothing.
struct Own {
    socket: Socket,
    batch: Batch,
}

impl Turn for Own {
    fn turn(&mut self) -> usize {
        let received = self.socket.receive(&mut self.batch).expect("the socket is open");
        for index in 0..received {
            let (query, reply) = self.batch.query_and_reply(index);
            reply[..query.bytes.len()].copy_from_slice(query.bytes);
            self.batch.set_reply(index, REPLY_BYTES);
        }
        self.socket.send(&mut self.batch);
        received
    }
}

/// A server whose peer asks first, all at once, and takes the replies before it asks again.
struct Answering<S> {
    server: S,
    peer: Peer,
}

impl<S: Turn> Candidate for Answering<S> {
    fn set_up(&mut self) {
        self.peer.ask();
    }

    fn run(&mut self, operation_count: usize) {
        let mut answered = 0;
        while answered < operation_count {
            answered += self.server.turn();
        }
    }
}

struct Peer(UdpSocket);

impl Peer {
    fn connect(address: SocketAddr) -> Peer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        socket.connect(address).expect("loopback leads there");
        socket.set_nonblocking(true).expect("a socket has this flag");
        Peer(socket)
    }

    /// Takes what came, and asks as often as fits into the server's receive buffer.
    fn ask(&self) {
        while self.0.recv(&mut [0; 2 * REPLY_BYTES]).is_ok() {}
        for _ in 0..OUTSTANDING_MAX {
            self.0.send(&[0; QUERY_BYTES]).expect("loopback takes a datagram at once");
        }
    }
}
