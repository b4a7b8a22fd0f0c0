//! Other loops over UDP datagrams: one for each `select`, `select` and drain, batches of any size; and who asks them.

mod many;

use crate::counters::{Syscall, count};
use many::Many;
use rustix::event::{FdSetElement, PollFd, PollFlags, Timespec, fd_set_insert, fd_set_num_elements, poll, select};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Octets of a query, as a DNS query of one short name with EDNS has them.
pub const QUERY_BYTES: usize = 40;
/// Octets of its reply.
pub const REPLY_BYTES: usize = 120;
/// Datagrams that one drain takes at most, so that other work gets its turn.
const DRAINED_MAX: usize = 100;
/// Queries that wait for a reply at once: with their overhead they fit into the kernel's default receive buffer.
pub const OUTSTANDING_MAX: usize = 128;
/// How long an asker waits before it calls what is outstanding lost.
const PATIENCE: Duration = Duration::from_millis(200);

/// How an [`Echo`] waits and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// `select`, then one datagram: NSD before 2006.
    SelectOne,
    /// `select`, then datagrams until the socket is empty: the proposal of 2006.
    SelectDrain,
    /// `recvmmsg` of so many first, `poll` only when it brought nothing.
    Batches(usize),
}

/// A server that answers each datagram with [`REPLY_BYTES`] octets.
#[derive(Debug)]
pub struct Echo {
    socket: UdpSocket,
    form: Loop,
    room: Many,
}

impl Echo {
    /// On the loopback interface, on a free port.
    pub fn bind(form: Loop) -> io::Result<Echo> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        let count = if let Loop::Batches(count) = form { count } else { 1 };
        Ok(Echo { socket, form, room: Many::new(count, REPLY_BYTES) })
    }

    /// Where it answers.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits if its form does, at most for `timeout`, and answers what is there; how many were answered.
    pub fn turn(&mut self, timeout: Duration) -> io::Result<usize> {
        match self.form {
            Loop::SelectOne => {
                wait_by_select(self.socket.as_fd(), timeout)?;
                Ok(usize::from(self.answer_one()?))
            }
            Loop::SelectDrain => {
                wait_by_select(self.socket.as_fd(), timeout)?;
                for answered in 0..DRAINED_MAX {
                    if !self.answer_one()? {
                        return Ok(answered);
                    }
                }
                Ok(DRAINED_MAX)
            }
            Loop::Batches(_) => self.answer_batch(timeout),
        }
    }

    fn answer_one(&mut self) -> io::Result<bool> {
        let mut bytes = [0; REPLY_BYTES];
        count(Syscall::Recvfrom);
        let peer = match recvfrom(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, _, Some(peer))) => peer,
            Ok((_, _, None)) | Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        count(Syscall::Sendto);
        sendto(&self.socket, &bytes, SendFlags::DONTWAIT, &peer)?;
        Ok(true)
    }

    fn answer_batch(&mut self, timeout: Duration) -> io::Result<usize> {
        count(Syscall::Recvmmsg);
        let received = self.room.receive(self.socket.as_fd(), libc::MSG_DONTWAIT)?;
        if received == 0 {
            count(Syscall::Ppoll);
            let timeout = Timespec::try_from(timeout).ok();
            poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref())?;
            return Ok(0);
        }
        count(Syscall::Sendmmsg);
        self.room.answer(self.socket.as_fd(), received, REPLY_BYTES)
    }
}

fn wait_by_select(socket: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    count(Syscall::Ppoll);
    let number = socket.as_raw_fd();
    let mut set = vec![FdSetElement::default(); fd_set_num_elements(1, number + 1)];
    fd_set_insert(&mut set, number);
    let timeout = Timespec::try_from(timeout).ok();
    // SAFETY: the one descriptor of the set is borrowed, hence open.
    match unsafe { select(number + 1, Some(&mut set), None, None, timeout.as_ref()) } {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A peer that keeps [`OUTSTANDING_MAX`] queries on the way.
#[derive(Debug)]
pub struct Asker {
    socket: UdpSocket,
    queries: Many,
    replies: Many,
}

/// What came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Queries with a reply.
    pub answered: usize,
    /// Queries without one in time.
    pub lost: usize,
}

impl Asker {
    /// Will ask the server at `address`.
    pub fn connect(address: SocketAddr) -> io::Result<Asker> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Asker {
            socket,
            queries: Many::new(OUTSTANDING_MAX, QUERY_BYTES),
            replies: Many::new(OUTSTANDING_MAX, 2 * REPLY_BYTES),
        })
    }

    /// Asks `query_count` times and waits for as many replies, or until a whole window of them is lost.
    pub fn ask(&mut self, query_count: usize) -> io::Result<Asked> {
        let mut asked = Asked::default();
        let mut sent = 0;
        while asked.answered + asked.lost < query_count {
            let outstanding = sent - asked.answered - asked.lost;
            let wanted = (OUTSTANDING_MAX - outstanding).min(query_count - sent);
            if wanted != 0 {
                sent += self.queries.send(self.socket.as_fd(), wanted, QUERY_BYTES)?;
            }
            match self.replies.receive(self.socket.as_fd(), libc::MSG_WAITFORONE)? {
                0 => {
                    asked.lost += sent - asked.answered - asked.lost;
                    if asked.lost >= OUTSTANDING_MAX {
                        asked.lost = query_count - asked.answered;
                    }
                }
                // A reply may come after it was given up.
                received => asked.answered += received.min(sent - asked.answered - asked.lost),
            }
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn every_loop_answers_every_query() {
        const QUERY_COUNT: usize = 1_000;
        for form in [Loop::SelectOne, Loop::SelectDrain, Loop::Batches(8), Loop::Batches(64)] {
            let mut echo = Echo::bind(form).expect("bound");
            let mut asker = Asker::connect(echo.address().expect("bound")).expect("connected");
            let is_done = AtomicBool::new(false);
            let (answered, asked) = std::thread::scope(|scope| {
                let server = scope.spawn(|| {
                    let mut answered = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        answered += echo.turn(Duration::from_millis(5)).expect("it answers");
                    }
                    answered
                });
                let asked = asker.ask(QUERY_COUNT);
                is_done.store(true, Ordering::Relaxed);
                (server.join().expect("no panic"), asked.expect("asked"))
            });
            assert_eq!(asked.answered + asked.lost, QUERY_COUNT, "{form:?}");
            assert!(answered >= asked.answered && asked.answered > 0, "{form:?}: {answered} {asked:?}");
        }
    }

    #[test]
    fn an_asker_of_nobody_gives_up() {
        let nobody = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let mut asker = Asker::connect(nobody.local_addr().expect("bound")).expect("connected");
        assert_eq!(asker.ask(1_000).expect("asked"), Asked { answered: 0, lost: 1_000 });
    }
}
