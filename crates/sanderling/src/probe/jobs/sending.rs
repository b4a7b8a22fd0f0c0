//! A response with a file's content, by its size: copied behind its head, or head first and content from the descriptor.

use super::{Bench, Heading};
use crate::probe::report::Group;
use crate::probe::rounds::{Candidate, Slice};
use crate::probe::scratch::Scratch;
use crate::probe::stopwatch::Stopwatch;
use os::candidates::stream::{Client, use_cubic};
use os::directory::Directory;
use os::file::File;
use os::tcp::{Follows, Listener, Stream};
use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

pub(crate) const JOB: &str = "sending";
pub(crate) const MEMORY: &str = "memory";
pub(crate) const SENDFILE: &str = "MSG_MORE, sendfile";
const READ: &str = "MSG_MORE, read, send";
pub(crate) const SIZES_BYTES: [usize; 5] = [512, 4 << 10, 8 << 10, 16 << 10, 64 << 10];

/// Octets of a response's head.
const HEAD_BYTES: usize = 240;
/// Responses of a slice.
const RESPONSES_PER_SLICE: u64 = 16;
/// Attempts to get one response out before it counts as an error.
const ATTEMPTS_MAX: usize = 1_000;

/// The name of a candidate's row.
pub(crate) fn row_name(candidate: &str, size_bytes: usize) -> String {
    format!("{}: {candidate}", size_name(size_bytes))
}

fn size_name(size_bytes: usize) -> String {
    if size_bytes < 1024 { format!("{size_bytes} B") } else { format!("{} KiB", size_bytes >> 10) }
}

/// Both ends of a connection in one thread: what is sent is received at once, outside of the clock.
struct Ends {
    stream: Stream,
    client: Client,
    received: Vec<u8>,
    /// Of the client's receiving.
    peer: Stopwatch,
}

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(JOB)?;
    let root = Directory::open(scratch.path())?;
    let ends = RefCell::new(Ends::connect()?);
    let files: Vec<(usize, File)> = SIZES_BYTES
        .iter()
        .map(|&size_bytes| {
            let name = size_bytes.to_string();
            scratch.write(&name, size_bytes)?;
            Ok((size_bytes, root.open_beneath(name.as_bytes())?))
        })
        .collect::<io::Result<_>>()?;
    let mut rows = Vec::new();
    for (size_bytes, file) in &files {
        let (size_bytes, ends, baseline) = (*size_bytes, &ends, rows.len());
        let content = vec![b'x'; size_bytes];
        rows.push(Candidate::new(row_name(MEMORY, size_bytes), move || {
            ends.borrow_mut().slice(size_bytes, |ends, watch| ends.send_from_memory(&content, watch))
        }));
        let by_descriptor = |name: &str, way| {
            Candidate::new(row_name(name, size_bytes), move || {
                ends.borrow_mut().slice(size_bytes, |ends, watch| ends.send_from_file(file, size_bytes, watch))
            })
            .by_way(JOB, way)
        };
        rows.push(by_descriptor(SENDFILE, "sendfile"));
        rows.push(by_descriptor(READ, "read"));
        let of_this_size = rows.split_off(baseline);
        rows.extend(of_this_size.into_iter().map(|row| row.against(baseline)));
    }
    let group = bench.calls(Heading::new(JOB, "Sending a response of this size", "response"), rows);
    let note = limit_note(group);
    group.notes.push(note);
    Ok(())
}

/// The size from which on every measured size is cheaper by `sendfile`, beyond a tie.
pub(crate) fn sendfile_from_bytes(group: &Group) -> Option<usize> {
    let is_cheaper = |&&size_bytes: &&usize| {
        let ratio = group.ratio_between(&row_name(SENDFILE, size_bytes), &row_name(MEMORY, size_bytes));
        ratio.is_some_and(|ratio| ratio.worse() < 0.97)
    };
    SIZES_BYTES.iter().rev().take_while(is_cheaper).last().copied()
}

fn limit_note(group: &Group) -> String {
    let limit_bytes = server::OpenFilesOptions::default().small_file_bytes_max as usize;
    let used = format!("the server keeps up to {} in memory", size_name(limit_bytes));
    match sendfile_from_bytes(group) {
        None => format!("sendfile is not cheaper at any of these sizes; {used}"),
        Some(from_bytes) => {
            let fits = SIZES_BYTES.iter().filter(|&&size| size > limit_bytes).min() == Some(&from_bytes);
            let verdict = if fits { ", which fits" } else { "" };
            format!("from {} on sendfile is cheaper; {used}{verdict}", size_name(from_bytes))
        }
    }
}

impl Ends {
    fn connect() -> io::Result<Ends> {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        // Where cubic is missing, the default has to do.
        let _ = use_cubic(&listener);
        let client = Client::connect(listener.local_address()?)?;
        let (stream, _) = listener.accept()?.ok_or_else(|| io::Error::other("the connection did not come"))?;
        Ok(Ends { stream, client, received: vec![0; 256 << 10], peer: Stopwatch::default() })
    }

    fn slice(
        &mut self,
        size_bytes: usize,
        mut send: impl FnMut(&mut Ends, &mut Stopwatch) -> io::Result<()>,
    ) -> io::Result<Slice> {
        let mut watch = Stopwatch::default();
        self.peer = Stopwatch::default();
        let mut error_count = 0;
        for _ in 0..RESPONSES_PER_SLICE {
            if let Err(error) = send(self, &mut watch) {
                if error.kind() != io::ErrorKind::TimedOut {
                    return Err(error);
                }
                error_count += 1;
            }
        }
        let slice = Slice::of_one_thread(&watch, RESPONSES_PER_SLICE, error_count);
        debug_assert!(size_bytes + HEAD_BYTES <= self.received.len(), "one response fits into the room");
        Ok(Slice { peer_cpu_ns: Some(self.peer.cpu_ns()), ..slice })
    }

    /// The content is copied behind its head, and both leave by one call.
    fn send_from_memory(&mut self, content: &[u8], watch: &mut Stopwatch) -> io::Result<()> {
        let mut response = Vec::with_capacity(HEAD_BYTES + content.len());
        watch.time(|| {
            response.extend_from_slice(&[b'h'; HEAD_BYTES]);
            response.extend_from_slice(content);
        });
        let mut sent = 0;
        self.until(response.len(), |stream| {
            let taken = watch.time(|| stream.send(&response[sent..], Follows::Nothing))?;
            sent += taken;
            Ok(taken)
        })
    }

    /// The head goes first, with the word that more comes; then the content from the descriptor.
    fn send_from_file(&mut self, file: &File, size_bytes: usize, watch: &mut Stopwatch) -> io::Result<()> {
        let head = [b'h'; HEAD_BYTES];
        let mut head_sent = 0;
        let mut offset = 0;
        self.until(HEAD_BYTES + size_bytes, |stream| {
            watch.time(|| {
                let mut taken = 0;
                if head_sent < HEAD_BYTES {
                    taken = stream.send(&head[head_sent..], Follows::More)?;
                    head_sent += taken;
                }
                if head_sent == HEAD_BYTES {
                    let before = offset;
                    match file.send_to(stream, &mut offset, size_bytes - before as usize) {
                        // The head is gone already: that counts.
                        Err(error) if taken == 0 || error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                        _ => taken += (offset - before) as usize,
                    }
                }
                Ok(taken)
            })
        })
    }

    /// Sends by `step` until `length_bytes` have left and have arrived.
    fn until(
        &mut self,
        length_bytes: usize,
        mut step: impl FnMut(&Stream) -> io::Result<usize>,
    ) -> io::Result<()> {
        let (mut sent, mut received) = (0, 0);
        for _ in 0..ATTEMPTS_MAX {
            if sent < length_bytes {
                match step(&self.stream) {
                    Ok(taken) => sent += taken,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            let (client, room) = (&mut self.client, &mut self.received);
            received += self.peer.time(|| client.receive_now(room))?;
            if received == length_bytes {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "a response did not arrive"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::numbers::Spread;
    use crate::probe::report::{Basis, Measured, Outcome, Row};

    /// A group in which `sendfile` costs these shares of memory at each of the sizes.
    fn group(ratios: [f64; 5]) -> Group {
        let row = |name: String, ns: f64| Row {
            name,
            thread_count: 1,
            way: None,
            baseline: 0,
            claimed_ratio: None,
            outcome: Outcome::Measured(Measured { cpu_ns: Spread { median: ns, p10: ns }, ..Measured::default() }),
        };
        let rows = SIZES_BYTES.iter().zip(ratios).flat_map(|(&size, ratio)| {
            [row(row_name(MEMORY, size), 1_000.0), row(row_name(SENDFILE, size), 1_000.0 * ratio)]
        });
        let (job, title, unit) = (JOB, String::new(), "response");
        Group { job, title, unit, basis: Basis::Cpu, rows: rows.collect(), choice: None, notes: Vec::new() }
    }

    #[test]
    fn the_limit_is_where_sendfile_begins_to_win_for_good() {
        for (ratios, expected) in [
            ([1.2, 1.1, 1.0, 0.8, 0.6], Some(16 << 10)),
            ([1.2, 0.9, 1.0, 0.8, 0.6], Some(16 << 10)),
            ([0.9, 0.9, 0.9, 0.8, 0.6], Some(512)),
            ([1.2, 1.1, 1.0, 0.8, 0.98], None),
        ] {
            assert_eq!(sendfile_from_bytes(&group(ratios)), expected, "{ratios:?}");
        }
    }

    #[test]
    fn the_limit_is_told_in_words() {
        let fitting = limit_note(&group([1.2, 1.1, 1.0, 0.8, 0.6]));
        assert_eq!(fitting, "from 16 KiB on sendfile is cheaper; the server keeps up to 8 KiB in memory, which fits");
        let never = limit_note(&group([1.2; 5]));
        assert_eq!(never, "sendfile is not cheaper at any of these sizes; the server keeps up to 8 KiB in memory");
    }

    #[test]
    fn responses_arrive_whole_by_every_way() {
        let scratch = Scratch::new("sending-test").expect("made");
        scratch.write("file", 64 << 10).expect("written");
        let file = Directory::open(scratch.path()).and_then(|root| root.open_beneath(b"file")).expect("there");
        let mut ends = Ends::connect().expect("connected");
        for _ in 0..3 {
            let mut watch = Stopwatch::default();
            ends.send_from_memory(&[b'x'; 64 << 10], &mut watch).expect("arrived");
            ends.send_from_file(&file, 64 << 10, &mut watch).expect("arrived");
        }
        assert_eq!(ends.client.receive_now(&mut [0; 16]).expect("open"), 0, "more arrived than was sent");
    }
}
