//! The same exchange over TCP by `io_uring`: requests come and answers leave without a call for each.

use crate::tcp::Stream;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Whether this kernel, in this process, has it, and can wait with a limit (Linux 5.11). The error of containers that
/// forbid it is EPERM, of kernels that lack it ENOSYS.
pub fn is_there() -> io::Result<()> {
    match IoUring::new(2)? {
        ring if ring.params().is_feature_ext_arg() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
    }
}

/// Answers whatever comes on any of its streams with the same octets.
pub struct Answerer<'a> {
    // Before the buffers: the ring is torn down while what its requests point to is still there.
    ring: IoUring,
    streams: &'a [Stream],
    answer: &'a [u8],
    rooms: Box<[[u8; REQUEST_BYTES_MAX]]>,
    in_flight: usize,
}

/// Octets of the longest request.
const REQUEST_BYTES_MAX: usize = 1024;
/// Marks a completion as that of a send.
const IS_SEND: u64 = 1 << 32;

impl<'a> Answerer<'a> {
    /// Will answer on `streams` with `answer`.
    pub fn new(streams: &'a [Stream], answer: &'a [u8]) -> io::Result<Answerer<'a>> {
        // Two requests for each stream, a receive and a send, fit into the ring at once.
        let entry_count = (2 * streams.len()).next_power_of_two() as u32;
        is_there()?;
        let ring = IoUring::new(entry_count)?;
        let rooms = vec![[0; REQUEST_BYTES_MAX]; streams.len()].into();
        let mut answerer = Answerer { ring, streams, answer, rooms, in_flight: 0 };
        for index in 0..streams.len() {
            answerer.receive_on(index)?;
        }
        Ok(answerer)
    }

    /// Waits for something to come, at most for `timeout`, and answers it; how many requests were answered.
    pub fn turn(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout = types::Timespec::from(timeout);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME)) => return Err(error),
            _ => {}
        }
        let mut completed = [(0, 0); COMPLETIONS_PER_TURN_MAX];
        let mut count = 0;
        for entry in self.ring.completion().take(COMPLETIONS_PER_TURN_MAX) {
            completed[count] = outcome(&entry);
            count += 1;
        }
        self.in_flight -= count;
        let mut answered = 0;
        for (mark, result) in &completed[..count] {
            let is_send = mark & IS_SEND != 0;
            let index = (mark & !IS_SEND) as usize;
            if *result < 0 {
                return Err(io::Error::from_raw_os_error(-result));
            }
            match (is_send, result) {
                (true, _) => answered += 1,
                // The peer has ended.
                (false, 0) => {}
                (false, _) => {
                    self.send_on(index)?;
                    self.receive_on(index)?;
                }
            }
        }
        Ok(answered)
    }

    fn receive_on(&mut self, index: usize) -> io::Result<()> {
        let room = &mut self.rooms[index];
        let descriptor = types::Fd(self.streams[index].as_fd().as_raw_fd());
        let entry = opcode::Recv::new(descriptor, room.as_mut_ptr(), room.len() as u32).build();
        self.push(&entry.user_data(index as u64))
    }

    fn send_on(&mut self, index: usize) -> io::Result<()> {
        let descriptor = types::Fd(self.streams[index].as_fd().as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = opcode::Send::new(descriptor, self.answer.as_ptr(), self.answer.len() as u32).flags(flags).build();
        self.push(&entry.user_data(index as u64 | IS_SEND))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the descriptor belongs to a stream that outlives the ring; the octets are those of `rooms` or
        // `answer`, which neither move nor go until `drop` has seen the last request end.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|_| io::Error::other("the ring has no room, though it was made for all requests"))?;
        self.in_flight += 1;
        Ok(())
    }
}

/// Completions that one turn takes; the others are there for the next.
const COMPLETIONS_PER_TURN_MAX: usize = 128;

fn outcome(entry: &cqueue::Entry) -> (u64, i32) {
    (entry.user_data(), entry.result())
}

impl Drop for Answerer<'_> {
    /// Ends what is under way: the kernel must not write into rooms that are gone.
    fn drop(&mut self) {
        for stream in self.streams {
            // A stream that has ended already needs no end.
            let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Both);
        }
        while self.in_flight != 0 {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    // The rooms may still be written to: better lost than given to somebody else.
                    std::mem::forget(std::mem::take(&mut self.rooms));
                    return;
                }
                _ => self.in_flight -= self.ring.completion().count(),
            }
        }
    }
}

impl std::fmt::Debug for Answerer<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Answerer({} streams, {} requests under way)", self.streams.len(), self.in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::stream::Client;
    use crate::tcp::Listener;

    #[test]
    fn every_request_is_answered() {
        if let Err(error) = is_there() {
            println!("not tested, since io_uring is not to be had here: {error}");
            return;
        }
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_address().expect("bound");
        let mut clients: Vec<_> = (0..3).map(|_| Client::connect(address).expect("connected")).collect();
        let streams: Vec<_> =
            clients.iter().map(|_| listener.accept().expect("accepted").expect("one waits").0).collect();
        let mut answerer = Answerer::new(&streams, b"the answer").expect("made");
        for _ in 0..2 {
            clients.iter_mut().for_each(|client| client.send(b"a request").expect("sent"));
            let mut answered = 0;
            while answered < clients.len() {
                answered += answerer.turn(Duration::from_secs(5)).expect("it answers");
            }
            for client in &mut clients {
                let mut answer = [0; 10];
                client.receive(&mut answer).expect("answered");
                assert_eq!(&answer, b"the answer");
            }
        }
    }
}
