//! Answers requests over TCP by io_uring, for the command `probe`: the server itself uses epoll.

use crate::tcp::Stream;
use ::io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Answers each request on its streams with the same bytes.
pub struct Responder<'a> {
    // This field precedes the buffers: the ring is dropped while the buffers of its requests still exist.
    ring: IoUring,
    streams: &'a [Stream],
    answer: &'a [u8],
    buffers: Box<[[u8; REQUEST_BYTES_MAX]]>,
    in_flight: usize,
}

/// Bytes of the longest request.
const REQUEST_BYTES_MAX: usize = 1024;
/// Marks the completion of a send.
const IS_SEND: u64 = 1 << 32;

impl<'a> Responder<'a> {
    /// Answers on `streams` with `answer`. The error is EPERM in a container that forbids io_uring, ENOSYS on a kernel
    /// without its timeouts (before Linux 5.11).
    pub fn new(streams: &'a [Stream], answer: &'a [u8]) -> io::Result<Responder<'a>> {
        // Room for a receive and a send of each stream.
        let entry_count = (2 * streams.len()).next_power_of_two() as u32;
        let ring = IoUring::new(entry_count)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let buffers = vec![[0; REQUEST_BYTES_MAX]; streams.len()].into();
        let mut responder = Responder { ring, streams, answer, buffers, in_flight: 0 };
        for index in 0..streams.len() {
            responder.receive_on(index)?;
        }
        Ok(responder)
    }

    /// Waits for requests, at most for `timeout`, answers them, and returns the number of sent answers.
    pub fn run_once(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout = types::Timespec::from(timeout);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME)) => return Err(error),
            _ => {}
        }
        let mut completed = [(0, 0); COMPLETIONS_PER_ITERATION_MAX];
        let mut count = 0;
        for entry in self.ring.completion().take(COMPLETIONS_PER_ITERATION_MAX) {
            completed[count] = (entry.user_data(), entry.result());
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
                // The peer has closed the connection.
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
        let buffer = &mut self.buffers[index];
        let descriptor = types::Fd(self.streams[index].as_fd().as_raw_fd());
        let entry = opcode::Recv::new(descriptor, buffer.as_mut_ptr(), buffer.len() as u32).build();
        self.push(&entry.user_data(index as u64))
    }

    fn send_on(&mut self, index: usize) -> io::Result<()> {
        let descriptor = types::Fd(self.streams[index].as_fd().as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = opcode::Send::new(descriptor, self.answer.as_ptr(), self.answer.len() as u32).flags(flags).build();
        self.push(&entry.user_data(index as u64 | IS_SEND))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the descriptor belongs to a stream that outlives the ring; the bytes belong to `buffers` or `answer`,
        // which are neither moved nor freed until `drop` has seen the last request end.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| io::Error::other("the submission queue is full"))?;
        self.in_flight += 1;
        Ok(())
    }
}

/// Completions handled in one iteration.
const COMPLETIONS_PER_ITERATION_MAX: usize = 128;

impl Drop for Responder<'_> {
    /// Ends all requests: the kernel must not write into freed buffers.
    fn drop(&mut self) {
        for stream in self.streams {
            // An error means that the stream is closed already.
            let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Both);
        }
        while self.in_flight != 0 {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    // The kernel may still write to the buffers: leak them.
                    std::mem::forget(std::mem::take(&mut self.buffers));
                    return;
                }
                _ => self.in_flight -= self.ring.completion().count(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Listener;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn every_request_is_answered() {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_address().expect("bound");
        let mut clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).expect("connected")).collect();
        let streams: Vec<_> = clients.iter().map(|_| listener.accept().expect("accepted").expect("one").0).collect();
        let mut responder = match Responder::new(&streams, b"the answer") {
            Ok(responder) => responder,
            Err(error) => return println!("not tested: io_uring is not available here: {error}"),
        };
        for _ in 0..2 {
            clients.iter_mut().for_each(|client| client.write_all(b"a request").expect("sent"));
            let mut answered = 0;
            while answered < clients.len() {
                answered += responder.run_once(Duration::from_secs(5)).expect("no error");
            }
            for client in &mut clients {
                let mut answer = [0; 10];
                client.read_exact(&mut answer).expect("answered");
                assert_eq!(&answer, b"the answer");
            }
        }
    }
}
