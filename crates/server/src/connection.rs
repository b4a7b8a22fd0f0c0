//! An HTTP connection: received octets become requests, and their answers are sent, in order, many with one call.
//!
//! A connection that waits for its peer holds a few hundred octets: what it received lies in its worker's buffer until
//! the turn ends, and only what is left then, the start of a request, is kept.

use crate::clock::{Milliseconds, ms};
use crate::open_file::{FileKey, NoFile, OpenFile};
use crate::open_files::Lookup;
use crate::outbox::{FileRest, Outbox, Sent};
use crate::peer::{Buffers, Context, Input, Linger, Next, OUTPUT_BYTES_USUAL, Schedule, Socket};
use crate::permits::Permit;
use crate::tally::Counter;
use sanderling_http::{
    Body, BodySkipper, ContentCoding, FieldName, Framing, LookupError, Parsed, Representation, Request, RequestError,
    Response, SitePath, parse_request, respond,
};
use sanderling_os::tcp::{More, Stream};
use sanderling_table::Ref;
use std::io;

/// Requests of one connection that are answered in one turn.
const REQUESTS_PER_TURN_MAX: usize = 128;
/// Content of a file in memory up to here is copied behind its head; more leaves from where it stands. Up to here the copy
/// costs one to three per cent of a response less than a second piece of the send, at 32 KiB it costs 3 % more
/// (docs/performance/tuning-http.md).
const COPIED_BYTES_MAX: u64 = 16 * 1024;
/// Looks for the file of one request: it may be evicted again before the connection comes back to it, and is, where many
/// files are asked for and few may be open.
const LOOKS_MAX: u8 = 16;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection<'s> {
    stream: Stream,
    _permit: Permit<'s>,
    pub(crate) schedule: Schedule,
    socket: Socket,
    phase: Phase,
    /// The start of a request, as far as it came.
    kept: Vec<u8>,
    /// How many bytes at the start of the next input are known to be an incomplete head.
    scanned_bytes: usize,
    /// A request whose content is still to come before it is answered.
    pending: Option<Box<Pending>>,
    outbox: Outbox<'s>,
    request_count: u64,
    /// How often the file of the request at hand was looked for off the turn.
    look_count: u8,
    /// Why that brought no file, if it did not.
    trouble: Option<NoFile>,
}

/// The head of a request, and what of its content was thrown away so far.
#[derive(Debug)]
struct Pending {
    head: Vec<u8>,
    discard: BodySkipper,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for a request, of which nothing has come.
    Idle,
    /// Part of a request has come.
    Receiving,
    /// It waits for a file that is being looked for.
    Opening,
    /// It owes octets that the socket does not take.
    Sending,
    /// It owes octets, and then it closes.
    Ending(Ending),
    /// It has said all.
    Lingering(Linger),
}

/// How a connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Everything that the peer sent was read.
    Clean,
    /// Something may still be coming, which would make the kernel reset the connection and lose the answer.
    Linger,
}

/// What the octets of the input came to.
#[derive(Debug)]
enum Step<'s> {
    /// They begin a request whose rest is missing.
    Partial,
    /// An answer was written, and a file follows it, if any; the input goes on behind its request.
    Answered(Option<FileRest<'s>>),
    /// The same, and it is the last answer.
    Last(Ending, Option<FileRest<'s>>),
    /// The file is being looked for: the request stays in the input until the connection is told.
    Later,
}

impl<'s> Connection<'s> {
    pub(crate) fn new(stream: Stream, permit: Permit<'s>, deadline_ms: Milliseconds) -> Connection<'s> {
        Connection {
            stream,
            _permit: permit,
            schedule: Schedule::new(deadline_ms),
            socket: Socket::FRESH,
            phase: Phase::Idle,
            kept: Vec::new(),
            scanned_bytes: 0,
            pending: None,
            outbox: Outbox::default(),
            request_count: 0,
            look_count: 0,
            trouble: None,
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The socket has become ready.
    pub(crate) fn note(&mut self, readiness: sanderling_os::poll::Readiness) {
        self.socket.note(readiness);
    }

    /// The file that the connection waits for is in the cache now, or there is trouble with it.
    pub(crate) fn note_file(&mut self, trouble: Option<NoFile>) {
        if self.phase == Phase::Opening {
            self.phase = Phase::Idle;
            self.trouble = trouble;
        }
    }

    /// Does what can be done now, up to the share of a turn. An error is the peer's: it is gone.
    pub(crate) fn advance(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if !self.outbox.is_empty() {
            if !self.socket.is_writable {
                return Ok(Next::Wait);
            }
            let mut progress = 0;
            let sent = self.outbox.resume(&self.stream, &mut context.buffers.scratch, &mut progress)?;
            match self.after_sending(sent, progress, context)? {
                None => {}
                Some(next) => return Ok(next),
            }
        }
        match self.phase {
            Phase::Lingering(_) => self.linger(context),
            Phase::Opening => Ok(Next::Wait),
            _ => self.serve(context),
        }
    }

    /// Receives, answers, sends, until nothing more is there or the turn's share is used.
    fn serve(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        let mut left_count = REQUESTS_PER_TURN_MAX;
        loop {
            let Some(received) = self.fill(context)? else { return Ok(self.rest(context)) };
            // Lent out of the buffers while answers are written there; taking it out costs two words.
            let room = std::mem::take(&mut context.buffers.input);
            let mut input = Input::new(&room[..received]);
            let next = self.answer_input(&mut input, &mut left_count, context);
            if !input.is_empty() {
                self.kept.extend_from_slice(input.rest());
            }
            context.buffers.input = room;
            match next? {
                Some(next) => return Ok(next),
                None if self.socket.has_ended => return Ok(Next::Close),
                None if !self.socket.is_readable => return Ok(self.rest(context)),
                None => {}
            }
        }
    }

    /// Puts what was kept and what the socket has into the input; octets in all, or `None` for nothing new.
    fn fill(&mut self, context: &mut Context<'_, 's>) -> io::Result<Option<usize>> {
        let has_unread = self.has_unread();
        let input = &mut context.buffers.input;
        let kept = self.kept.len();
        let mut filled = kept;
        // Who is not going to be asked again must know all that was asked, to tell which answer is the last.
        while self.socket.is_readable
            && filled < input.len()
            && (context.is_draining || (!has_unread && filled == kept))
        {
            filled += self.socket.receive(&self.stream, &mut input[filled..])?;
        }
        if filled == kept && !has_unread {
            return Ok(if self.socket.has_ended { Some(0) } else { None });
        }
        if kept != 0 {
            input[..kept].copy_from_slice(&self.kept);
            // Given back rather than kept: an idle connection holds no buffer.
            self.kept = Vec::new();
        }
        Ok(Some(filled))
    }

    /// Whether what was kept may hold a whole request: the turn's share ended before it was looked at.
    fn has_unread(&self) -> bool {
        self.phase != Phase::Receiving && (!self.kept.is_empty() || self.pending.is_some())
    }

    /// Answers what the input holds, sending whenever enough is ready; what to do next, or `None` to receive more.
    fn answer_input(
        &mut self,
        input: &mut Input<'_>,
        left_count: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        context.buffers.output.clear();
        loop {
            if input.is_empty() && self.pending.is_none() {
                self.phase = Phase::Idle;
                return self.flush(None, context);
            }
            if *left_count == 0 {
                self.phase = Phase::Idle;
                return Ok(self.flush(None, context)?.or(Some(Next::Again)));
            }
            *left_count -= 1;
            match self.step(input, context) {
                Step::Partial => {
                    self.begin_receiving(context);
                    return self.flush(None, context);
                }
                Step::Answered(None) if context.buffers.output.len() < OUTPUT_BYTES_USUAL => {}
                Step::Answered(file) => {
                    self.phase = Phase::Idle;
                    if let Some(next) = self.flush(file, context)? {
                        return Ok(Some(next));
                    }
                }
                Step::Later => {
                    let sent = self.flush(None, context)?;
                    if matches!(sent, None | Some(Next::Wait)) {
                        self.phase = Phase::Opening;
                        self.schedule.at_ms = context.clock.now_ms() + ms(context.options.http.send_timeout);
                    }
                    return Ok(Some(sent.unwrap_or(Next::Wait)));
                }
                Step::Last(ending, file) => {
                    let ending = if input.is_empty() { ending } else { Ending::Linger };
                    input.skip_all();
                    self.phase = Phase::Ending(ending);
                    let ended = self.flush(file, context)?;
                    return Ok(Some(ended.unwrap_or(Next::Close)));
                }
            }
        }
    }

    /// Takes one request, or what there is of it, off the input and writes its answer.
    fn step(&mut self, input: &mut Input<'_>, context: &mut Context<'_, 's>) -> Step<'s> {
        match self.pending.take() {
            Some(pending) => self.step_content(pending, input, context),
            None => self.step_head(input, context),
        }
    }

    fn step_head(&mut self, input: &mut Input<'_>, context: &mut Context<'_, 's>) -> Step<'s> {
        let (start, bytes) = (input.consumed(), input.rest());
        let scanned_bytes = std::mem::take(&mut self.scanned_bytes);
        let step = match parse_request(bytes, scanned_bytes, &context.options.http.request) {
            Ok(Parsed::Partial) => {
                self.scanned_bytes = bytes.len();
                Step::Partial
            }
            Ok(Parsed::Complete { request, head_bytes }) => {
                input.skip(head_bytes);
                match request.framing {
                    Framing::None => self.answer(&request, input, context),
                    _ => self.step_framed(&request, &bytes[..head_bytes], input, context),
                }
            }
            Err(error) => self.refuse(error, context),
        };
        if matches!(step, Step::Later) {
            input.return_to(start);
        }
        step
    }

    /// A request that brings content, which is thrown away before the request is answered.
    fn step_framed(
        &mut self,
        request: &Request<'_>,
        head: &[u8],
        input: &mut Input<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let mut discard = BodySkipper::new(request.framing, &context.options.http.request);
        let discarded = match discard.advance(input.rest()) {
            Err(error) => return self.refuse(error, context),
            Ok(discarded) => discarded,
        };
        input.skip(discarded.consumed_bytes);
        if discarded.is_done {
            return self.answer(request, input, context);
        }
        if request.fields.contains(FieldName::Expect) {
            // RFC 9110 §10.1.1: who waits for a word before sending content that nobody needs gets the answer
            // instead. Whether the content comes all the same is not known, so the connection ends.
            return match self.answer(request, input, context) {
                Step::Answered(file) | Step::Last(_, file) => Step::Last(Ending::Linger, file),
                step => step,
            };
        }
        self.pending = Some(Box::new(Pending { head: head.to_vec(), discard }));
        Step::Partial
    }

    /// Goes on throwing away content, and answers its request behind it.
    fn step_content(
        &mut self,
        mut pending: Box<Pending>,
        input: &mut Input<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let discarded = match pending.discard.advance(input.rest()) {
            Err(error) => return self.refuse(error, context),
            Ok(discarded) => discarded,
        };
        input.skip(discarded.consumed_bytes);
        if !discarded.is_done {
            self.pending = Some(pending);
            return Step::Partial;
        }
        let step = match parse_request(&pending.head, 0, &context.options.http.request) {
            Ok(Parsed::Complete { request, .. }) => self.answer(&request, input, context),
            Ok(Parsed::Partial) => self.refuse(RequestError::InvalidRequestLine, context),
            Err(error) => self.refuse(error, context),
        };
        if matches!(step, Step::Later) {
            self.pending = Some(pending);
        }
        step
    }

    /// Writes the answer to a whole request, behind which `input` goes on.
    fn answer(&mut self, request: &Request<'_>, input: &Input<'_>, context: &mut Context<'_, 's>) -> Step<'s> {
        let is_last = self.is_last(input, context);
        let site = context.files.site_for(context.content, request.host);
        let path = request.path().map(SitePath::parse);
        let mut lookup = None;
        let mut coding = ContentCoding::Identity;
        let found = match (site, &path) {
            (_, None) => Err(LookupError::NotLookedUp),
            (_, Some(Err(error))) => Err(LookupError::from(*error)),
            (None, _) => Err(LookupError::MisdirectedRequest),
            (Some(site), Some(Ok(path))) => {
                let opened = match self.trouble.take() {
                    Some(trouble) => Lookup::NoFile(trouble),
                    None => context.files.open(site, path, context.key, context.clock),
                };
                match lookup.insert(opened) {
                    Lookup::Lent(file) => found_file(file, request, &mut coding),
                    Lookup::Found(file) => found_file(file, request, &mut coding),
                    Lookup::NoFile(why) => found_no_file(*why, path),
                    Lookup::Later if self.look_count == LOOKS_MAX => Err(LookupError::ServiceUnavailable),
                    Lookup::Later => {
                        self.look_count += 1;
                        return Step::Later;
                    }
                }
            }
        };
        self.look_count = 0;
        self.trouble = None;
        self.request_count += 1;
        context.tally.add(Counter::HttpRequests, 1);
        let mut response = respond(request, found);
        if is_last {
            response = response.with_connection_close();
        }
        let output = &mut context.buffers.output;
        response.write_head(context.clock.date(), output);
        let persistence = response.persistence();
        let file = match response.body() {
            Body::Empty => None,
            Body::Page(page) => {
                output.extend_from_slice(page);
                None
            }
            Body::File { start_bytes, length_bytes } => {
                let held = match &lookup {
                    Some(Lookup::Lent(held)) => held,
                    Some(Lookup::Found(held)) => held,
                    _ => unreachable!("only a file has the content of a file"),
                };
                let settled_after = context.options.open_files.settled_after;
                let is_settled = held.form(coding).is_settled(context.clock.unix_s(), settled_after);
                put_file(held, coding, start_bytes, length_bytes, is_settled, output)
            }
        };
        match persistence.is_close() {
            // Who did not ask for the end may have sent more meanwhile.
            true if is_last => Step::Last(Ending::Linger, file),
            true => Step::Last(Ending::Clean, file),
            false => Step::Answered(file),
        }
    }

    /// Whether no request behind the one that `input` stands behind is answered. When the server drains, all that are
    /// known to have been sent still are: what follows the answer that says `Connection: close` is lost to a client that
    /// does not ask again (RFC 9112 §9.6).
    fn is_last(&self, input: &Input<'_>, context: &Context<'_, 's>) -> bool {
        let is_known_to_be_last = input.is_empty() && !self.socket.is_readable;
        self.request_count + 1 >= context.options.http.requests_per_connection_max
            || (context.is_draining && is_known_to_be_last)
    }

    /// Writes the answer to what is no request. The connection ends behind it, since nobody knows where the next one
    /// would start.
    fn refuse(&mut self, error: RequestError, context: &mut Context<'_, 's>) -> Step<'s> {
        context.tally.add(Counter::HttpRefused, 1);
        write_whole(&Response::error(error.status()), context);
        Step::Last(Ending::Linger, None)
    }

    /// Sends what was written. `None`: all is sent and the connection goes on.
    fn flush(&mut self, file: Option<FileRest<'s>>, context: &mut Context<'_, 's>) -> io::Result<Option<Next>> {
        if context.buffers.output.is_empty() && file.is_none() {
            return Ok(None);
        }
        let mut progress = 0;
        let Buffers { output, scratch, .. } = &mut *context.buffers;
        let behind = if matches!(self.phase, Phase::Ending(_)) { More::Yes } else { More::No };
        let sent = self.outbox.send(&self.stream, output, file, behind, scratch, &mut progress)?;
        context.buffers.output.clear();
        self.after_sending(sent, progress, context)
    }

    fn after_sending(&mut self, sent: Sent, progress: u64, context: &mut Context<'_, 's>) -> io::Result<Option<Next>> {
        let now_ms = context.clock.now_ms();
        match sent {
            Sent::All => match self.phase {
                Phase::Ending(Ending::Clean) if !self.socket.is_readable => Ok(Some(Next::Close)),
                Phase::Ending(_) => {
                    self.phase = Phase::Lingering(Linger::begin(&self.stream, &mut self.schedule, context.clock)?);
                    self.linger(context).map(Some)
                }
                Phase::Sending => {
                    self.phase = Phase::Idle;
                    Ok(None)
                }
                _ => Ok(None),
            },
            Sent::Changed => {
                context.tally.add(Counter::HttpAborted, 1);
                if let Some(file) = self.outbox.file() {
                    context.files.retire(file);
                }
                self.stream.reset_on_close()?;
                Ok(Some(Next::Close))
            }
            Sent::Blocked | Sent::Share => {
                if progress != 0 || !matches!(self.phase, Phase::Sending | Phase::Ending(_)) {
                    self.schedule.at_ms = now_ms + ms(context.options.http.send_timeout);
                }
                if !matches!(self.phase, Phase::Ending(_)) {
                    self.phase = Phase::Sending;
                }
                if sent == Sent::Share {
                    return Ok(Some(Next::Again));
                }
                self.socket.is_writable = false;
                Ok(Some(Next::Wait))
            }
        }
    }

    /// Part of a request has come: the rest has until the deadline, which the next octet does not move.
    fn begin_receiving(&mut self, context: &Context<'_, 's>) {
        if self.phase != Phase::Receiving {
            // The first request of a connection has its deadline from the start of the connection.
            if self.request_count != 0 {
                self.schedule.at_ms = context.clock.now_ms() + ms(context.options.http.header_deadline);
            }
            self.phase = Phase::Receiving;
        }
    }

    /// Nothing more is there for now.
    fn rest(&mut self, context: &Context<'_, 's>) -> Next {
        if self.phase == Phase::Idle {
            if self.request_count != 0 {
                self.schedule.at_ms = context.clock.now_ms() + ms(context.options.http.idle_timeout);
            }
            self.schedule.at_ms = self.schedule.at_ms.min(context.leave_by_ms());
        }
        Next::Wait
    }

    fn linger(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        let Phase::Lingering(linger) = &mut self.phase else { return Ok(Next::Close) };
        linger.go_on(&self.stream, &mut self.socket, &mut context.buffers.scratch)
    }

    /// The deadline has passed. Who has begun a request is told so (RFC 9110 §15.5.9).
    pub(crate) fn expire(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if context.is_draining && self.phase == Phase::Idle {
            return self.leave(context);
        }
        context.tally.add(Counter::HttpTimeouts, 1);
        if self.phase != Phase::Receiving {
            return Ok(Next::Close);
        }
        context.buffers.output.clear();
        write_whole(&Response::error(sanderling_http::Status::RequestTimeout), context);
        self.schedule.at_ms = context.clock.now_ms() + ms(context.options.http.send_timeout);
        self.phase = Phase::Ending(Ending::Linger);
        Ok(self.flush(None, context)?.unwrap_or(Next::Close))
    }

    /// The grace of a draining server is over. A request that came at the last moment is answered all the same.
    fn leave(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        self.socket.is_readable = !self.socket.has_ended;
        match self.serve(context)? {
            Next::Wait if self.phase == Phase::Idle => Ok(Next::Close),
            next => Ok(next),
        }
    }
}

/// The form of a file that answers `request`; `coding` becomes the one that it is in.
fn found_file<'r>(
    file: &'r OpenFile,
    request: &Request<'_>,
    coding: &mut ContentCoding,
) -> Result<&'r Representation, LookupError<'r>> {
    *coding = file.coding_for(&request.fields);
    Ok(&file.form(*coding).representation)
}

fn found_no_file<'r>(why: NoFile, path: &'r SitePath<'r>) -> Result<&'r Representation, LookupError<'r>> {
    match why {
        NoFile::Folder => Err(LookupError::Directory(path)),
        NoFile::Missing => Err(LookupError::NotFound),
        NoFile::Forbidden => Err(LookupError::Forbidden),
        NoFile::Busy => Err(LookupError::ServiceUnavailable),
        NoFile::Failed => Err(LookupError::InternalServerError),
    }
}

/// Writes a response that needs no file.
fn write_whole(response: &Response<'_>, context: &mut Context<'_, '_>) {
    let output = &mut context.buffers.output;
    response.write_head(context.clock.date(), output);
    if let Body::Page(page) = response.body() {
        output.extend_from_slice(page);
    }
}

/// Appends a small part of a file in memory; else tells what is to be sent behind the output.
fn put_file<'s>(
    held: &Ref<'s, FileKey, OpenFile>,
    coding: ContentCoding,
    start_bytes: u64,
    length_bytes: u64,
    is_settled: bool,
    output: &mut Vec<u8>,
) -> Option<FileRest<'s>> {
    let part = start_bytes as usize..(start_bytes + length_bytes) as usize;
    match held.form(coding).body.in_memory() {
        Some(whole) if length_bytes <= COPIED_BYTES_MAX => {
            output.extend_from_slice(&whole[part]);
            None
        }
        _ => Some(FileRest::new(held, coding, start_bytes, length_bytes, is_settled)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Octets of a connection that waits, all of them: it holds nothing else.
    const CONNECTION_BYTES_MAX: usize = 320;

    #[test]
    fn a_connection_that_waits_holds_little() {
        println!("Connection: {} octets, Step: {}", size_of::<Connection<'_>>(), size_of::<Step<'_>>());
        assert!(size_of::<Connection<'_>>() <= CONNECTION_BYTES_MAX);
    }
}
