//! A response with the content of a file: copied after its head, or sent from the descriptor.

use super::{Bench, CHECK_INTERVAL, Heading};
use crate::clients::Connections;
use crate::compare::{Candidate, Slice};
use crate::report::Group;
use crate::scratch::Scratch;
use crate::selection::TIE_RATIO;
use crate::sides::run_both;
use sanderling_os::directory::Directory;
use sanderling_os::file::File;
use sanderling_os::poll::{Events, Interest, Poller};
use sanderling_os::tcp::{More, Stream};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const JOB: &str = "sendfile";
const MEMORY: &str = "memory";
const SENDFILE: &str = "sendfile";
const READ: &str = "read, send";
const SIZES_BYTES: [usize; 5] = [512, 4 << 10, 8 << 10, 16 << 10, 64 << 10];

/// Bytes of the head of a response.
const HEAD_BYTES: usize = 240;
const HEAD: [u8; HEAD_BYTES] = [b'h'; HEAD_BYTES];
const CONNECTION_COUNT: usize = 16;
/// Requests per connection and slice.
const REQUEST_COUNT: usize = 12;

fn row_name(candidate: &str, size_bytes: usize) -> String {
    format!("{}: {candidate}", size_name(size_bytes))
}

fn size_name(size_bytes: usize) -> String {
    if size_bytes < 1024 { format!("{size_bytes} B") } else { format!("{} KiB", size_bytes >> 10) }
}

/// The source of the content.
#[derive(Clone, Copy)]
enum Content<'c> {
    /// Copied after the head; one call sends both.
    Memory(&'c [u8]),
    /// The head is sent first (`MSG_MORE`), then the content from the descriptor.
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
        let by_variant = |name, variant| {
            let row = candidate(name, Content::File(file, size_bytes)).variant(JOB, variant);
            if is_small { row.used(false) } else { row }
        };
        rows.push(candidate(MEMORY, Content::Memory(bytes)).used(is_small));
        rows.push(by_variant(SENDFILE, "sendfile"));
        rows.push(by_variant(READ, "copy"));
    }
    let title = "Sending a response with content from memory or from an open file";
    let group = bench.loops(Heading::new(JOB, title, "response"), rows);
    let note = limit_note(group);
    group.notes.push(note);
    Ok(())
}

/// The size from which `sendfile` is cheaper for all larger sizes, by more than a tie.
fn sendfile_from_bytes(group: &Group) -> Option<usize> {
    let is_cheaper = |&&size_bytes: &&usize| {
        let ratio = group.row(&row_name(SENDFILE, size_bytes)).and_then(|row| row.ratio);
        ratio.is_some_and(|ratio| ratio.worse() <= TIE_RATIO)
    };
    SIZES_BYTES.iter().rev().take_while(is_cheaper).last().copied()
}

/// Size up to which the server keeps files in memory.
fn limit_bytes() -> usize {
    sanderling_config::Limits::default().small_file_bytes_max as usize
}

/// The limit that would be best here, and that of the server.
fn limit_note(group: &Group) -> String {
    let limit_bytes = limit_bytes();
    let used = format!("the server keeps up to {} in memory", size_name(limit_bytes));
    let Some(from_bytes) = sendfile_from_bytes(group) else {
        return format!("sendfile is not cheaper at any of these sizes; {used}");
    };
    let first_above = SIZES_BYTES.iter().copied().find(|&size_bytes| size_bytes > limit_bytes);
    let fits = if first_above == Some(from_bytes) { ", which fits" } else { "" };
    format!("sendfile is cheaper from {}; {used}{fits}", size_name(from_bytes))
}

fn slice(content: Content<'_>) -> io::Result<Slice> {
    let Connections { streams, mut clients } = Connections::open(CONNECTION_COUNT)?;
    let answer_bytes = HEAD_BYTES + content.length_bytes();
    let (served, asked) =
        run_both(|is_over| serve(&streams, content, is_over), || clients.request(REQUEST_COUNT, answer_bytes))?;
    clients.reset()?;
    Ok(Slice {
        operation_count: (CONNECTION_COUNT * REQUEST_COUNT) as u64,
        cpu_ns: served.cpu_ns,
        wall_ns: asked.wall_ns,
        peer_cpu_ns: Some(asked.cpu_ns),
        ..Slice::default()
    })
}

/// An unfinished response.
#[derive(Default)]
struct Response {
    /// Head and content, if one call sends both.
    buffer: Vec<u8>,
    /// Bytes sent so far.
    sent: usize,
    is_pending: bool,
}

fn serve(streams: &[Stream], content: Content<'_>, is_over: &AtomicBool) -> io::Result<()> {
    let mut poller = Poller::new()?;
    let mut events = Events::with_capacity(2 * CONNECTION_COUNT);
    for (token, stream) in streams.iter().enumerate() {
        poller.register(stream, token, Interest::ReadableAndWritable)?;
    }
    let mut responses: Vec<Response> = streams.iter().map(|_| Response::default()).collect();
    while !is_over.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(CHECK_INTERVAL))?;
        for (token, readiness) in events.iter() {
            let (stream, response) = (&streams[token], &mut responses[token]);
            if readiness.readable && received(stream)? {
                response.begin(content);
            }
            if response.is_pending {
                match response.send(stream, content) {
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

impl Response {
    fn begin(&mut self, content: Content<'_>) {
        self.sent = 0;
        self.is_pending = true;
        if let Content::Memory(bytes) = content {
            self.buffer.clear();
            self.buffer.extend_from_slice(&HEAD);
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Sends until everything is sent, or the stream is full (`WouldBlock`).
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
        self.is_pending = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Basis, Measured, Row};
    use crate::spread::Spread;

    /// A group in which `sendfile` has these costs relative to memory, at each of the sizes.
    fn group(ratios: [f64; 5]) -> Group {
        let row = |name: String, baseline: usize, ns: f64| Row {
            name,
            threads: 1,
            variant: None,
            used: false,
            baseline,
            ratio: None,
            measured: Some(Measured { cpu_ns: Spread { median: ns, p10: ns }, ..Measured::default() }),
            error: None,
        };
        let rows = SIZES_BYTES.iter().zip(ratios).enumerate().flat_map(|(index, (&size, ratio))| {
            let baseline = 2 * index;
            let memory = row(row_name(MEMORY, size), baseline, 1_000.0);
            [memory, row(row_name(SENDFILE, size), baseline, 1_000.0 * ratio)]
        });
        Group::new(JOB, String::new(), "response", Basis::Cpu, rows.collect())
    }

    #[test]
    fn limit_is_where_sendfile_becomes_cheaper_for_good() {
        for (ratios, expected, note) in [
            (
                [1.2, 1.1, 1.0, 0.8, 0.6],
                Some(16 << 10),
                "sendfile is cheaper from 16 KiB; the server keeps up to 32 KiB",
            ),
            ([1.2, 0.9, 1.0, 0.8, 0.6], Some(16 << 10), "sendfile is cheaper from 16 KiB; "),
            ([1.2, 1.1, 1.0, 1.0, 0.6], Some(64 << 10), "sendfile is cheaper from 64 KiB; "),
            ([0.9, 0.9, 0.9, 0.8, 0.6], Some(512), "sendfile is cheaper from 512 B; "),
            ([1.2, 1.1, 1.0, 0.8, 0.98], None, "sendfile is not cheaper at any of these sizes; "),
        ] {
            let group = group(ratios);
            assert_eq!(sendfile_from_bytes(&group), expected, "{ratios:?}");
            assert!(limit_note(&group).starts_with(note), "{}", limit_note(&group));
        }
    }
}
