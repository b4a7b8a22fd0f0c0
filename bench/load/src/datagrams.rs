//! A window of queries over one UDP socket, sent and received in batches.

use crate::calls::Batch;
use crate::channel::Channel;
use crate::queries::Queries;
use crate::random::Random;
use crate::tally::Tally;
use crate::window::{WINDOW_COUNT, Window};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

pub struct Datagrams {
    socket: UdpSocket,
    window: Window,
    batch: Batch<WINDOW_COUNT>,
}

impl Datagrams {
    pub fn connect(server: SocketAddr) -> io::Result<Datagrams> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        Ok(Datagrams { socket, window: Window::new(), batch: Batch::new() })
    }
}

impl Channel for Datagrams {
    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    fn receive(&mut self, queries: &Queries, tally: &mut Tally) -> io::Result<bool> {
        let count = match self.batch.receive(&self.socket) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        for index in 0..count {
            self.window.take_reply(queries, self.batch.received(index), tally);
        }
        Ok(count > 0)
    }

    fn send(&mut self, queries: &Queries, random: &mut Random, _: &mut Tally) -> io::Result<()> {
        let mut count = 0;
        let batch = &mut self.batch;
        self.window.fill(queries, random, |id, query| {
            batch.put(count, query)[..2].copy_from_slice(&id.to_be_bytes());
            count += 1;
        });
        // What did not go is lost like any datagram, and found out as such.
        if count > 0 {
            self.batch.send(&self.socket, count)?;
        }
        Ok(())
    }
}
