//! A window of queries over one TCP connection (RFC 1035 §4.2.2, RFC 7766 §6.2.1.1): pipelined, answered in any order.

use crate::channel::Channel;
use crate::queries::Queries;
use crate::random::Random;
use crate::tally::Tally;
use crate::window::Window;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

/// Octets that one receive takes at most.
const RECEIVE_BYTES_MAX: usize = 16 * 1024;

pub struct Stream {
    server: SocketAddr,
    socket: TcpStream,
    window: Window,
    buffer: Vec<u8>,
    /// Octets at the start of `buffer` that have come and are not yet whole replies.
    begun_bytes: usize,
    outgoing: Vec<u8>,
}

impl Stream {
    pub fn connect(server: SocketAddr) -> io::Result<Stream> {
        Ok(Stream {
            server,
            socket: open(server)?,
            window: Window::new(),
            // A reply may be as long as its length field can say.
            buffer: vec![0; usize::from(u16::MAX) + RECEIVE_BYTES_MAX],
            begun_bytes: 0,
            outgoing: Vec::new(),
        })
    }

    /// The server has closed, as servers do after some number of queries; what was outstanding is lost.
    fn connect_again(&mut self, tally: &mut Tally) -> io::Result<()> {
        self.window.lose_all(tally);
        self.begun_bytes = 0;
        tally.reconnect_count += 1;
        self.socket = open(self.server)?;
        Ok(())
    }

    fn take_replies(&mut self, queries: &Queries, tally: &mut Tally) {
        let received = &self.buffer[..self.begun_bytes];
        let mut at = 0;
        while let Some(&[high, low]) = received.get(at..at + 2) {
            let length_bytes = usize::from(u16::from_be_bytes([high, low]));
            let Some(reply) = received.get(at + 2..at + 2 + length_bytes) else { break };
            self.window.take_reply(queries, reply, tally);
            at += 2 + length_bytes;
        }
        self.buffer.copy_within(at..self.begun_bytes, 0);
        self.begun_bytes -= at;
    }
}

fn open(server: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Channel for Stream {
    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    fn receive(&mut self, queries: &Queries, tally: &mut Tally) -> io::Result<bool> {
        let end = self.begun_bytes + RECEIVE_BYTES_MAX;
        match self.socket.read(&mut self.buffer[self.begun_bytes..end]) {
            Ok(0) => self.connect_again(tally).map(|()| true),
            Ok(received_bytes) => {
                self.begun_bytes += received_bytes;
                self.take_replies(queries, tally);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.connect_again(tally).map(|()| true),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, queries: &Queries, random: &mut Random, tally: &mut Tally) -> io::Result<()> {
        self.outgoing.clear();
        let outgoing = &mut self.outgoing;
        self.window.fill(queries, random, |id, query| {
            outgoing.extend((query.len() as u16).to_be_bytes());
            outgoing.extend(id.to_be_bytes());
            outgoing.extend(&query[2..]);
        });
        // A window of queries is far smaller than a send buffer: it goes at once, or the connection is over.
        match self.socket.write_all(&self.outgoing) {
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                self.connect_again(tally)
            }
            sent => sent,
        }
    }
}
