//! HTTP/2 on a connection to a backend, with one request at a time.
//!
//! What arrives is always received, so that the backend can open the window of the request while the client's side is
//! slow to take the response: the window of the response limits what waits.

use super::{BackendConnection, EARLY_HINTS, Progress, Protocol, Tools};
use crate::net::call::{CallError, CallResponse, CallState};
use sanderling_http::{ParsedResponse, ResponseError, ResponseLimits, Scheme, parse_response};
use sanderling_http2::{Arrived, ClientFault, ClientSession, RESPONSE_WINDOW_BYTES, Scratch};

/// Bytes of frames that are not sent, above which no content of a request is added.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// Replies to frames of the backend that it does not receive, at most.
const REPLIES_BYTES_MAX: usize = 256 * 1024;
/// Bytes that are received in one step, far more than the window of the response.
const RECEIVED_BYTES_MAX: usize = 1024 * 1024;
/// From this amount of content on, the client's side says when it has taken some, so that the window is opened.
const NOTICED_BYTES_MIN: usize = RESPONSE_WINDOW_BYTES as usize / 2;

/// The session and its output.
#[derive(Debug)]
pub(super) struct Http2Link {
    session: ClientSession,
    scratch: Scratch,
    /// Frames, of which `sent_bytes` were sent.
    out: Vec<u8>,
    sent_bytes: usize,
    request: RequestState,
}

/// How much of the current request has become frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    /// Nothing.
    Head,
    /// The head.
    Content,
    /// All of it, with the end of the stream.
    Ended,
}

impl Default for Http2Link {
    fn default() -> Http2Link {
        Http2Link {
            session: ClientSession::new(),
            scratch: Scratch::default(),
            out: Vec::new(),
            sent_bytes: 0,
            request: RequestState::Ended,
        }
    }
}

impl Http2Link {
    /// A request begins.
    pub(super) fn begin(&mut self) {
        self.request = RequestState::Head;
    }

    /// Whether another request may follow.
    pub(super) fn is_reusable(&self) -> bool {
        self.session.can_begin() && self.request == RequestState::Ended && self.unsent().is_empty()
    }

    /// Frames that were not sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.out[self.sent_bytes..]
    }

    /// So many bytes of [`Http2Link::unsent`] were sent.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent_bytes += count;
        if self.sent_bytes == self.out.len() {
            (self.out, self.sent_bytes) = (Vec::new(), 0);
        }
    }

    /// Makes frames of the request, as much as the backend takes, and returns the unsent ones.
    pub(super) fn frames(&mut self, state: &mut CallState, scheme: Scheme) -> &[u8] {
        let Http2Link { session, out, request, sent_bytes, .. } = self;
        session.open_window(state.content_bytes(), out);
        if *request == RequestState::Head {
            let (head, content) = state.request.unsent();
            let is_last = !state.request.is_open() && content.is_empty();
            session.begin(head, scheme, is_last, out);
            *request = if is_last { RequestState::Ended } else { RequestState::Content };
            let head_bytes = head.len();
            state.request.advance(head_bytes);
        }
        while *request == RequestState::Content && out.len() - *sent_bytes < UNSENT_BYTES_MAX {
            let (_, content) = state.request.unsent();
            let is_last = !state.request.is_open();
            let taken_bytes = session.put_content(content, is_last, out);
            if is_last && taken_bytes == content.len() {
                *request = RequestState::Ended;
            } else if taken_bytes == 0 {
                break;
            }
            state.request.advance(taken_bytes);
        }
        self.unsent()
    }
}

impl BackendConnection {
    fn link(&mut self) -> &mut Http2Link {
        match &mut self.protocol {
            Protocol::Http2(link) => link,
            Protocol::Http1 | Protocol::FastCgi(_) => unreachable!("the connection speaks HTTP/2"),
        }
    }

    /// Receives frames until nothing has arrived or the response is complete, and sends the replies; whether something
    /// was received.
    pub(super) fn receive_frames(&mut self, state: &mut CallState, tools: &mut Tools<'_>) -> Result<bool, CallError> {
        let mut received_bytes = 0;
        while self.transport.is_readable() && !is_complete(state) {
            let count = self.receive_bytes(tools)?;
            if count == 0 && self.transport.has_ended() {
                return Err(CallError::Closed);
            }
            if count == 0 {
                break;
            }
            received_bytes += count;
            if received_bytes > RECEIVED_BYTES_MAX {
                return Err(CallError::Http2(ClientFault::TooManyFrames));
            }
            self.take_frames(&tools.room[..count], state)?;
        }
        state.is_response_full(NOTICED_BYTES_MIN);
        match self.send(state) {
            Err(error) if !is_complete(state) => Err(error),
            _ => Ok(received_bytes > 0),
        }
    }

    /// Takes the frames at the start of what has arrived, and keeps the rest.
    fn take_frames(&mut self, arrived: &[u8], state: &mut CallState) -> Result<(), CallError> {
        let mut kept = std::mem::take(&mut self.unprocessed);
        let mut bytes = arrived;
        if !kept.is_empty() {
            kept.extend_from_slice(arrived);
            bytes = &kept;
        }
        loop {
            let Http2Link { session, scratch, out, .. } = self.link();
            let (taken_bytes, arrived) = match session.receive(bytes, scratch, out) {
                Ok(taken) => taken,
                // What follows a complete response ends the connection, but not the response.
                Err(_) if is_complete(state) => {
                    self.link().request = RequestState::Content;
                    return Ok(());
                }
                Err(fault) => return Err(CallError::Http2(fault)),
            };
            bytes = &bytes[taken_bytes..];
            let is_last = match arrived {
                Arrived::Partial => break,
                Arrived::Head { is_last } => {
                    let head = std::mem::take(&mut scratch.head);
                    self.take_head_of_stream(head, state)?;
                    is_last
                }
                Arrived::Content { content, is_last } => {
                    state.put_content(content);
                    is_last
                }
                Arrived::Trailers => {
                    state.set_trailers(&scratch.head);
                    true
                }
            };
            if is_last {
                state.complete();
            }
        }
        self.unprocessed = bytes.to_vec();
        if self.link().unsent().len() > REPLIES_BYTES_MAX {
            return Err(CallError::Http2(ClientFault::TooManyFrames));
        }
        Ok(())
    }

    /// Takes the head of a response, or of an interim one.
    fn take_head_of_stream(&mut self, head: Vec<u8>, state: &mut CallState) -> Result<(), CallError> {
        let parsed = parse_response(&head, state.request.is_head, &ResponseLimits::default());
        let ParsedResponse::Complete { response, .. } = parsed.map_err(CallError::Invalid)? else {
            return Err(CallError::Invalid(ResponseError::InvalidLine));
        };
        if response.status() < 200 {
            return state.note_interim((response.status() == EARLY_HINTS).then_some(&head[..]));
        }
        self.take_response(&response, state)?;
        state.response = CallResponse::Head(head);
        Ok(())
    }

    /// An unused connection: the backend may send frames that are not of a response, and gets replies to them.
    pub(super) fn advance_idle_link(&mut self, tools: &mut Tools<'_>) -> Progress {
        let mut received_bytes = 0;
        while self.transport.is_readable() {
            let Ok(count) = self.transport.receive(tools.room) else { return Progress::Over };
            received_bytes += count;
            if (count == 0 && self.transport.has_ended()) || received_bytes > RECEIVED_BYTES_MAX {
                return Progress::Over;
            }
            if count == 0 {
                break;
            }
            let mut all = std::mem::take(&mut self.unprocessed);
            all.extend_from_slice(&tools.room[..count]);
            let Http2Link { session, scratch, out, .. } = self.link();
            // Anything of a response is a fault, as there is no request.
            let Ok((taken_bytes, _)) = session.receive(&all, scratch, out) else { return Progress::Over };
            all.drain(..taken_bytes);
            self.unprocessed = all;
        }
        let unsent = self.link().unsent().to_vec();
        if self.transport.is_writable() && !unsent.is_empty() {
            let Ok(count) = self.transport.send_both(&unsent, &[]) else { return Progress::Over };
            self.sent_before += count as u64;
            self.link().advance(count);
        }
        if self.link().is_reusable() { Progress::Waits } else { Progress::Over }
    }
}

fn is_complete(state: &CallState) -> bool {
    matches!(state.response, CallResponse::Complete(_))
}
