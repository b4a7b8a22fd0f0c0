//! Connections over loopback with both of their ends: a request on every one of them, then every answer.

use sanderling_os::candidates::stream::{Client, use_cubic};
use sanderling_os::tcp::{Listener, Stream};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

/// Octets of a request, as a browser's are.
const REQUEST: [u8; 400] = [b'r'; 400];

/// Connections, and who asks on them.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// The ends that answer.
    pub(crate) streams: Vec<Stream>,
    /// The ends that ask.
    pub(crate) askers: Askers,
}

/// The ends that ask.
#[derive(Debug)]
pub(crate) struct Askers {
    clients: Vec<Client>,
    room: Vec<u8>,
}

impl Conversation {
    /// Connects `connection_count` times, on a port that the kernel chooses.
    pub(crate) fn begin(connection_count: usize) -> io::Result<Conversation> {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        // Where cubic is missing, the default has to do.
        let _ = use_cubic(&listener);
        let address = listener.local_address()?;
        let mut clients = Vec::with_capacity(connection_count);
        let mut streams = Vec::with_capacity(connection_count);
        for _ in 0..connection_count {
            clients.push(Client::connect(address)?);
            let accepted = listener.accept()?;
            streams.push(accepted.ok_or_else(|| io::Error::other("a connection was made and did not come"))?.0);
        }
        Ok(Conversation { streams, askers: Askers { clients, room: Vec::new() } })
    }
}

impl Askers {
    /// Asks `request_count` times on each connection, and reads answers of `answer_bytes` each.
    pub(crate) fn ask(&mut self, request_count: usize, answer_bytes: usize) -> io::Result<()> {
        self.room.resize(answer_bytes, 0);
        for _ in 0..request_count {
            self.clients.iter_mut().try_for_each(|client| client.send(&REQUEST))?;
            self.clients.iter_mut().try_for_each(|client| client.receive(&mut self.room))?;
        }
        Ok(())
    }

    /// Ends all connections without leaving a trace in the kernel.
    pub(crate) fn end(self) -> io::Result<()> {
        self.clients.into_iter().try_for_each(Client::reset)
    }
}
