//! Queries sent at a steady pace, however the server fares, as how long each of them waited for its reply.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{self, REPLY_BYTES_MAX};

/// From one query to the next.
pub(super) const INTERVAL: Duration = Duration::from_millis(1);
/// Queries of one run: there are so many message IDs (RFC 1035 §4.1.1), and each is used once.
const QUERY_COUNT_MAX: usize = 1 << 16;
/// How long the queries of one run can go on.
pub(super) const LENGTH_MAX: Duration = Duration::from_secs(65);
/// How long the reply to the last query is waited for: what comes later is lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the receiver looks whether it is to end.
const END_LOOK_EVERY: Duration = Duration::from_millis(20);

const _: () = assert!(LENGTH_MAX.as_millis() <= QUERY_COUNT_MAX as u128 * INTERVAL.as_millis());

/// What one server is asked, again and again, in this order.
pub(super) struct Pace {
    socket: UdpSocket,
    queries: Vec<Vec<u8>>,
    is_ending: AtomicBool,
}

/// A query that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    /// How long after its time: whatever kept us from sending it.
    pub(super) delay: Duration,
}

/// A reply that holds what was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// The place of its query among all that were sent.
    pub(super) number: usize,
    pub(super) at: Instant,
}

/// All queries of one run, and their replies.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) sent: Vec<Sent>,
    pub(super) received: Vec<Received>,
}

/// How the queries of some stretch of time fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    /// From the sending of a query to its reply.
    pub(super) longest: Duration,
    /// Queries without a reply, or with one that is an error.
    pub(super) lost_count: usize,
    /// The longest delay of our own sending: where it is long, the machine was busy.
    pub(super) delay: Duration,
}

impl Pace {
    /// Asks `server` for each of `queries` in turn: messages whose ID is filled in when they are sent.
    ///
    /// # Errors
    /// The call that failed.
    pub(super) fn new(server: SocketAddr, queries: Vec<Vec<u8>>) -> Result<Pace, String> {
        let failed = |error: std::io::Error| format!("a socket for queries to {server}: {error}");
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
        socket.connect(server).map_err(failed)?;
        socket.set_read_timeout(Some(END_LOOK_EVERY)).map_err(failed)?;
        Ok(Pace { socket, queries, is_ending: AtomicBool::new(false) })
    }

    /// Sends queries and receives replies while `act` runs; `look` sees each reply when it comes.
    pub(super) fn during<T>(
        self,
        look: impl FnMut(&[u8], Instant) + Send,
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<(Exchange, T), String> {
        let (sent, received, acted) = thread::scope(|scope| {
            let sender = scope.spawn(|| self.send());
            let receiver = scope.spawn(|| self.receive(look));
            let acted = act();
            self.is_ending.store(true, Ordering::Relaxed);
            (sender.join(), receiver.join(), acted)
        });
        let panicked = |_| "a thread that asks the server has panicked: report this".to_owned();
        Ok((Exchange { sent: sent.map_err(panicked)?, received: received.map_err(panicked)? }, acted?))
    }

    fn send(&self) -> Vec<Sent> {
        let start = Instant::now();
        let mut sent = Vec::with_capacity(QUERY_COUNT_MAX);
        for (number, query) in self.queries.iter().cycle().take(QUERY_COUNT_MAX).enumerate() {
            let due = start + INTERVAL * number as u32;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if self.is_ending.load(Ordering::Relaxed) {
                break;
            }
            let mut message = query.clone();
            message[..2].copy_from_slice(&(number as u16).to_be_bytes());
            let at = Instant::now();
            sent.push(Sent { at, delay: at - due });
            // One that cannot be sent has no reply, and is counted by that.
            let _ = self.socket.send(&message);
        }
        sent
    }

    fn receive(&self, mut look: impl FnMut(&[u8], Instant)) -> Vec<Received> {
        let mut received = Vec::with_capacity(QUERY_COUNT_MAX);
        let mut message = [0; REPLY_BYTES_MAX];
        let mut end = None;
        while end.is_none_or(|end| Instant::now() < end) {
            // An error is the end of the time to wait, or tells of a query that nobody took: it is lost.
            if let Ok(length) = self.socket.recv(&mut message) {
                let at = Instant::now();
                if let Some(number) = answered_number(&message[..length]) {
                    received.push(Received { number, at });
                    look(&message[..length], at);
                }
            }
            if end.is_none() && self.is_ending.load(Ordering::Relaxed) {
                end = Some(Instant::now() + PATIENCE);
            }
        }
        received
    }
}

/// Which query a message answers with the one record that was asked for.
fn answered_number(message: &[u8]) -> Option<usize> {
    let reply = client::read_reply(message)?;
    let id = u16::from_be_bytes(*message.first_chunk()?);
    (reply.rcode == 0 && reply.is_authoritative && reply.answer_count == 1).then_some(usize::from(id))
}

impl Exchange {
    /// How the queries fared that were sent from `from` on and before `to`.
    pub(super) fn waits(&self, from: Instant, to: Instant) -> Waits {
        let mut replied_at = vec![None; self.sent.len()];
        for reply in &self.received {
            // A second reply to the same query is none; one to a query that was not sent is somebody else's.
            if let Some(at @ None) = replied_at.get_mut(reply.number) {
                *at = Some(reply.at);
            }
        }
        let mut waits = Waits::default();
        let within = self.sent.iter().zip(replied_at).filter(|(sent, _)| (from..to).contains(&sent.at));
        for (sent, replied_at) in within {
            waits.delay = waits.delay.max(sent.delay);
            match replied_at {
                Some(at) => waits.longest = waits.longest.max(at.saturating_duration_since(sent.at)),
                None => waits.lost_count += 1,
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_longest_wait_is_of_the_queries_of_that_time() {
        let start = Instant::now();
        let sent = |at| Sent { at: start + ms(at), delay: ms(at / 10) };
        let received = |number, at| Received { number, at: start + ms(at) };
        let exchange = Exchange {
            sent: [0, 10, 20, 30].map(sent).to_vec(),
            // Out of order; twice; nothing for the third; a number that nobody sent.
            received: vec![received(1, 17), received(0, 9), received(1, 99), received(3, 31), received(7, 50)],
        };
        let all = Waits { longest: ms(9), lost_count: 1, delay: ms(3) };
        assert_eq!(exchange.waits(start, start + ms(100)), all);
        let second = Waits { longest: ms(7), lost_count: 0, delay: ms(1) };
        assert_eq!(exchange.waits(start + ms(10), start + ms(20)), second);
        assert_eq!(exchange.waits(start + ms(40), start + ms(100)), Waits::default());
    }

    #[test]
    fn only_a_reply_with_the_record_counts() {
        assert_eq!(answered_number(b"\x01\x02\x84\0\0\x01\0\x01\0\0\0\0"), Some(258));
        assert_eq!(answered_number(b"\x01\x02\x84\x02\0\x01\0\x01\0\0\0\0"), None, "an RCODE");
        assert_eq!(answered_number(b"\x01\x02\x84\0\0\x01\0\0\0\0\0\0"), None, "no data");
        assert_eq!(answered_number(b"\x01"), None);
    }

    #[test]
    fn every_query_of_a_server_that_replies_has_its_reply() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(ms(1000))).unwrap();
        let pace = Pace::new(server.local_addr().unwrap(), vec![client::query("a.", 1)]).unwrap();
        let mut seen_count = 0;
        let acted = pace.during(
            |_, _| seen_count += 1,
            || {
                let mut message = [0; 512];
                for _ in 0..3 {
                    let (length, client) = server.recv_from(&mut message).map_err(|error| error.to_string())?;
                    message[2] = 0x84;
                    message[7] = 1;
                    server.send_to(&message[..length], client).map_err(|error| error.to_string())?;
                }
                Ok(())
            },
        );
        let (exchange, ()) = acted.unwrap();
        let numbers: Vec<usize> = exchange.received.iter().map(|reply| reply.number).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(seen_count, 3);
        assert!(exchange.sent.len() >= 3);
    }
}
