//! A response with the content of a file: copied after its head, or sent from the descriptor.

use super::{Bench, CHECK_INTERVAL, Heading};
use crate::clients::Connections;
use crate::compare::{Candidate, Slice};
use crate::scratch::Scratch;
use crate::sides::run_both;
use sanderling_os::directory::Directory;
use sanderling_os::file::File;
use sanderling_os::poll::{Events, Interest, Poller};
use sanderling_os::tcp::{More, Stream};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const NAME: &str = "sendfile";
const SIZES_BYTES: [usize; 5] = [512, 4 << 10, 8 << 10, 16 << 10, 64 << 10];

const HEAD_BYTES: usize = 240;
const HEAD: [u8; HEAD_BYTES] = [b'h'; HEAD_BYTES];
const CONNECTION_COUNT: usize = 16;
/// Requests per connection and slice.
const REQUEST_COUNT: usize = 12;

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
    let scratch = Scratch::new(NAME)?;
    let root = Directory::open(scratch.path())?;
    let limit_bytes = sanderling_config::Limits::default().small_file_bytes_max as usize;
    let mut contents = Vec::new();
    for size_bytes in SIZES_BYTES {
        let name = size_bytes.to_string();
        scratch.write(&name, size_bytes)?;
        contents.push((vec![b'x'; size_bytes], root.open_beneath(name.as_bytes())?));
    }
    let mut rows = Vec::new();
    for (bytes, file) in &contents {
        let (size_bytes, baseline) = (bytes.len(), rows.len());
        let candidate = |name, content| {
            Candidate::new(format!("{}: {name}", size_name(size_bytes)), move || slice(content)).against(baseline)
        };
        let is_small = size_bytes <= limit_bytes;
        let by_variant = |name, variant| {
            let row = candidate(name, Content::File(file, size_bytes)).variant(NAME, variant);
            if is_small { row.used(false) } else { row }
        };
        rows.push(candidate("memory", Content::Memory(bytes)).used(is_small));
        rows.push(by_variant("sendfile", "sendfile"));
        rows.push(by_variant("read, send", "copy"));
    }
    let title = "Sending a response with content from memory or from an open file";
    let group = bench.loops(Heading::new(NAME, title, "response"), rows);
    group.notes.push(format!("the server keeps files of up to {} in memory", size_name(limit_bytes)));
    Ok(())
}

fn slice(content: Content<'_>) -> io::Result<Slice> {
    let Connections { streams, mut clients } = Connections::open(CONNECTION_COUNT)?;
    let answer_bytes = HEAD_BYTES + content.length_bytes();
    let (served, asked) =
        run_both(|is_over| serve(&streams, content, is_over), || clients.request(REQUEST_COUNT, answer_bytes))?;
    clients.reset()?;
    Ok(Slice::of_both(&served, &asked, CONNECTION_COUNT * REQUEST_COUNT, 0))
}

#[derive(Default)]
struct Response {
    /// Head and content, if one call sends both.
    buffer: Vec<u8>,
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
