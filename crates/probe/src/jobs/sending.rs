//! A response with a file's content, by its size: copied behind its head, or sent from the descriptor after it.

use super::{Bench, Heading};
use crate::choices::TIE_RATIO;
use crate::conversation::Conversation;
use crate::report::Group;
use crate::rounds::{Candidate, Slice};
use crate::scratch::Scratch;
use crate::sides::run_both;
use sanderling_os::directory::Directory;
use sanderling_os::file::File;
use sanderling_os::poll::{Events, Interest, Poller};
use sanderling_os::tcp::{More, Stream};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const JOB: &str = "sendfile";
pub(crate) const MEMORY: &str = "memory";
pub(crate) const SENDFILE: &str = "sendfile";
const READ: &str = "read, send";
pub(crate) const SIZES_BYTES: [usize; 5] = [512, 4 << 10, 8 << 10, 16 << 10, 64 << 10];

/// Octets of a response's head.
const HEAD_BYTES: usize = 240;
const HEAD: [u8; HEAD_BYTES] = [b'h'; HEAD_BYTES];
const CONNECTION_COUNT: usize = 16;
/// Requests on each connection in a slice.
const REQUEST_COUNT: usize = 12;
/// How long the server waits before it looks whether the slice is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// The name of a candidate's row.
pub(crate) fn row_name(candidate: &str, size_bytes: usize) -> String {
    format!("{}: {candidate}", size_name(size_bytes))
}

fn size_name(size_bytes: usize) -> String {
    if size_bytes < 1024 { format!("{size_bytes} B") } else { format!("{} KiB", size_bytes >> 10) }
}

/// Where a response's content comes from.
#[derive(Clone, Copy)]
enum Content<'c> {
    /// It is copied behind the head, and both leave by one call.
    Memory(&'c [u8]),
    /// The head leaves with the word that more follows, then the content from the descriptor.
    File(&'c File, usize),
}

impl Content<'_> {
    fn length_bytes(self) -> usize {
        match self {
            Content::Memory(bytes) => bytes.len(),
            Content::File(_, length_bytes) => length_bytes,
        }
    }
}

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(JOB)?;
    let root = Directory::open(scratch.path())?;
    let mut contents = Vec::new();
    for size_bytes in SIZES_BYTES {
        let name = size_bytes.to_string();
        scratch.write(&name, size_bytes)?;
        contents.push((vec![b'x'; size_bytes], root.open_beneath(name.as_bytes())?));
    }
    let mut rows = Vec::new();
    for (bytes, file) in &contents {
        let (size_bytes, baseline) = (bytes.len(), rows.len());
        let candidate =
            |name, content| Candidate::new(row_name(name, size_bytes), move || slice(content)).against(baseline);
        let is_small = size_bytes <= limit_bytes();
        let by_way = |name, way| {
            let row = candidate(name, Content::File(file, size_bytes)).by_way(JOB, way);
            if is_small { row.used(false) } else { row }
        };
        rows.push(candidate(MEMORY, Content::Memory(bytes)).used(is_small));
        rows.push(by_way(SENDFILE, "sendfile"));
        rows.push(by_way(READ, "copy"));
    }
    let title = "Sending a response, its content from memory or from a kept descriptor";
    let group = bench.loops(Heading::new(JOB, title, "response"), rows);
    let note = limit_note(group);
    group.notes.push(note);
    Ok(())
}

/// The size from which on every measured size is cheaper by `sendfile`, beyond a tie.
fn sendfile_from_bytes(group: &Group) -> Option<usize> {
    let is_cheaper = |&&size_bytes: &&usize| {
        let ratio = group.ratio_between(&row_name(SENDFILE, size_bytes), &row_name(MEMORY, size_bytes));
        ratio.is_some_and(|ratio| ratio.worse() <= TIE_RATIO)
    };
    SIZES_BYTES.iter().rev().take_while(is_cheaper).last().copied()
}

/// Octets up to which the server keeps files in memory.
fn limit_bytes() -> usize {
    sanderling_config::Limits::default().small_file_bytes_max as usize
}

/// Where the limit between the two ways lies here, and where the server has it.
fn limit_note(group: &Group) -> String {
    let limit_bytes = limit_bytes();
    let used = format!("the server keeps up to {} in memory", size_name(limit_bytes));
    let Some(from_bytes) = sendfile_from_bytes(group) else {
        return format!("sendfile is not cheaper at any of these sizes; {used}");
    };
    let first_above = SIZES_BYTES.iter().copied().find(|&size_bytes| size_bytes > limit_bytes);
    let fits = if first_above == Some(from_bytes) { ", which fits" } else { "" };
    format!("from {} on sendfile is cheaper; {used}{fits}", size_name(from_bytes))
}

fn slice(content: Content<'_>) -> io::Result<Slice> {
    let Conversation { streams, mut askers } = Conversation::begin(CONNECTION_COUNT)?;
    let answer_bytes = HEAD_BYTES + content.length_bytes();
    let (served, asked) =
        run_both(|is_over| serve(&streams, content, is_over), || askers.ask(REQUEST_COUNT, answer_bytes))?;
    askers.end()?;
    Ok(Slice {
        operation_count: (CONNECTION_COUNT * REQUEST_COUNT) as u64,
        cpu_ns: served.cpu_ns,
        wall_ns: asked.wall_ns,
        peer_cpu_ns: Some(asked.cpu_ns),
        ..Slice::default()
    })
}

/// The response that a connection is owed.
#[derive(Default)]
struct Owed {
    /// Head and content in one, where they leave as one.
    buffer: Vec<u8>,
    /// Octets that have left.
    sent: usize,
    is_owed: bool,
}

fn serve(streams: &[Stream], content: Content<'_>, is_over: &AtomicBool) -> io::Result<()> {
    let mut poller = Poller::new()?;
    let mut events = Events::with_capacity(2 * CONNECTION_COUNT);
    for (token, stream) in streams.iter().enumerate() {
        poller.register(stream, token, Interest::ReadableAndWritable)?;
    }
    let mut owed: Vec<Owed> = streams.iter().map(|_| Owed::default()).collect();
    while !is_over.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(LOOK_INTERVAL))?;
        for (token, readiness) in events.iter() {
            let (stream, owed) = (&streams[token], &mut owed[token]);
            if readiness.readable && received(stream)? {
                owed.begin(content);
            }
            if owed.is_owed {
                match owed.send(stream, content) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => result?,
                }
            }
        }
    }
    Ok(())
}

fn received(stream: &Stream) -> io::Result<bool> {
    match stream.receive(&mut [0; 1024]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        result => Ok(result? != 0),
    }
}

impl Owed {
    fn begin(&mut self, content: Content<'_>) {
        self.sent = 0;
        self.is_owed = true;
        if let Content::Memory(bytes) = content {
            self.buffer.clear();
            self.buffer.extend_from_slice(&HEAD);
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Sends until all has left; the stream's refusal is an error, after which it goes on here.
    fn send(&mut self, stream: &Stream, content: Content<'_>) -> io::Result<()> {
        let whole = HEAD_BYTES + content.length_bytes();
        while self.sent < whole {
            self.sent += match content {
                Content::Memory(_) => stream.send(&self.buffer[self.sent..], More::No)?,
                Content::File(..) if self.sent < HEAD_BYTES => stream.send(&HEAD[self.sent..], More::Yes)?,
                Content::File(file, _) => {
                    let mut offset = (self.sent - HEAD_BYTES) as u64;
                    match file.send_to(stream, &mut offset, whole - self.sent)? {
                        0 => return Err(io::Error::other("the file became shorter")),
                        sent => sent,
                    }
                }
            };
        }
        self.is_owed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Spread;
    use crate::report::{Basis, Measured, Outcome, Row};

    /// A group in which `sendfile` costs these shares of memory at each of the sizes.
    fn group(ratios: [f64; 5]) -> Group {
        let row = |name: String, ns: f64| Row {
            name,
            thread_count: 1,
            way: None,
            is_used: false,
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
        let fitting = limit_note(&group([1.2, 1.1, 1.0, 1.0, 0.6]));
        assert_eq!(fitting, "from 64 KiB on sendfile is cheaper; the server keeps up to 32 KiB in memory, which fits");
        let earlier = limit_note(&group([1.2, 1.1, 1.0, 0.8, 0.6]));
        assert_eq!(earlier, "from 16 KiB on sendfile is cheaper; the server keeps up to 32 KiB in memory");
        let never = limit_note(&group([1.2; 5]));
        assert_eq!(never, "sendfile is not cheaper at any of these sizes; the server keeps up to 32 KiB in memory");
    }

    #[test]
    fn every_response_arrives_whole() {
        let scratch = Scratch::new("sending-test").expect("made");
        scratch.write("file", 64 << 10).expect("written");
        let file = Directory::open(scratch.path()).and_then(|root| root.open_beneath(b"file")).expect("there");
        for content in [Content::Memory(&[b'x'; 64 << 10]), Content::File(&file, 64 << 10)] {
            let slice = slice(content).expect("all of them came");
            assert_eq!(slice.operation_count, (CONNECTION_COUNT * REQUEST_COUNT) as u64);
        }
    }
}
