//! A datagram with one address put behind it, by as few calls as the kernel allows.

use crate::calls::{Batch, wait_readable};
use std::io::{self, ErrorKind};
use std::net::UdpSocket;

/// An A record whose owner is the name of the question (RFC 1035 §4.1.3, §4.1.4): 192.0.2.1, one hour.
pub const ANSWER: [u8; 16] = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4, 192, 0, 2, 1];

/// Octets before the question (RFC 1035 §4.1.1).
const HEADER_BYTES: usize = 12;

/// Turns the query of `length_bytes` at the start of `message` into its reply, which is `ANSWER` longer. The query must
/// end with its question: there is no looking for the place.
pub fn answer(message: &mut [u8], length_bytes: usize) {
    if length_bytes < HEADER_BYTES {
        return;
    }
    // QR and AA; ANCOUNT is 1.
    message[2] |= 0x84;
    message[7] = 1;
    message[length_bytes..length_bytes + ANSWER.len()].copy_from_slice(&ANSWER);
}

/// Asks first and waits only when nothing has come; the socket stands in no poller, which would cost each datagram.
pub fn serve(socket: &UdpSocket) -> io::Result<()> {
    let mut batch = Batch::new(ANSWER.len());
    loop {
        let count = match batch.receive(socket) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_readable(socket)?;
                continue;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) => continue,
            Err(error) => return Err(error),
        };
        for index in 0..count {
            let (message, length_bytes) = batch.datagram(index);
            answer(message, length_bytes);
        }
        // What does not fit the peer's queue is lost, as datagrams are.
        let _ = batch.send_back(socket, count, ANSWER.len());
    }
}
