//! A connection of HTTP/2 over TLS that accepts any certificate.

use super::frames::{PREFACE, frame, kind};
use crate::service::LIMIT;
use anyhow::Context;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};

pub(super) struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    received: Vec<u8>,
}

impl Client {
    /// Connects and sends the preface with empty settings.
    pub(super) fn connect(server: SocketAddr) -> anyhow::Result<Client> {
        static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| Arc::new(loadgen::tls_config(b"h2")));
        let socket = TcpStream::connect(server)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(LIMIT))?;
        socket.set_write_timeout(Some(LIMIT))?;
        let name = ServerName::try_from("localhost").context("a name")?;
        let session = ClientConnection::new(Arc::clone(&CONFIG), name)?;
        let mut client = Client { stream: StreamOwned::new(session, socket), received: Vec::new() };
        client.send(&[PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat())?;
        Ok(client)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Waits for the end of the connection, with its error code if there is one, or for the reply to a ping, if the
    /// client `may_ping`: then the server has processed all that was sent before.
    pub(super) fn end_or_pong(&mut self, may_ping: bool) -> anyhow::Result<Option<Option<u32>>> {
        const NAME: &[u8; 8] = b"the end?";
        if may_ping {
            // If the server has closed the connection, there is something to read.
            let _ = self.send(&frame(kind::PING, 0, 0, NAME));
        }
        let mut piece = vec![0; 64 * 1024];
        loop {
            while let Some((kind, payload)) = self.next_frame() {
                match kind {
                    kind::PING if payload == NAME => return Ok(None),
                    kind::GOAWAY => {
                        let code = payload.get(4..8).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes);
                        return Ok(Some(code));
                    }
                    _ => {}
                }
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(Some(None)),
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) => return Ok(Some(None)),
            }
        }
    }

    /// Takes the next frame that has arrived whole.
    fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let header = self.received.first_chunk::<9>()?;
        let (length, kind) = (u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize, header[3]);
        let payload = self.received.get(9..9 + length)?.to_vec();
        self.received.drain(..9 + length);
        Some((kind, payload))
    }
}
