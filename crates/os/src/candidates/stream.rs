//! The far end of connections that are measured: connects, reads what it is owed, and leaves no trace in the kernel.

use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// How long the far end waits for anything: far longer than any answer takes, so that a loss is an error, not a hang.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes congestion control by timers (BBR's pacing) out of the measurement. An error says that cubic is not there.
pub fn use_cubic(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, "cubic")?)
}

/// One connection, seen from the peer that asked for it; blocking.
#[derive(Debug)]
pub struct Client(TcpStream);

impl Client {
    /// Connects to a listener of this process.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client(stream))
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Receives until `into` is full.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(into)
    }

    /// Closes by a reset, so that neither end keeps the port for a minute (TIME-WAIT).
    pub fn reset(self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.0, Some(Duration::ZERO))?)
    }
}
