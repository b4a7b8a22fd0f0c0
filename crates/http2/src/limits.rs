//! A connection's limits, and its budgets for frames that cost work but are not requests.

use sanderling_http::RequestLimits;

use crate::frame::{HEADER_BYTES, U31_MAX};

/// A connection's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limits of a request, as in HTTP/1.1. The head has the form of HTTP/1.1 here.
    pub request: RequestLimits,
    /// Concurrent streams (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub streams_max: u32,
    /// Maximum requests of a connection, which is then shut down.
    pub requests_max: u64,
    /// Maximum bytes of an encoded header block. A larger block ends the connection, since it cannot be skipped, and so
    /// does a block that decodes to several times as much.
    pub header_block_bytes_max: usize,
    /// Bytes of requests that cannot be answered yet, with the content that they wait for. With several requests, a
    /// request that exceeds the limit is refused, and can be repeated.
    pub kept_request_bytes_max: usize,
    /// CONTINUATION frames of one header block.
    pub continuations_max: u8,
    /// Streams reset by the client or because of its errors, beyond those that whole responses and content account for.
    pub reset_budget: u32,
    /// Frames that neither are a request nor have content, beyond those that responses and their content account for.
    pub control_budget: u32,
    /// An eighth of the bytes received beyond eight times those that are header fields or content, in either direction.
    pub overhead_bytes_max: u64,
    /// Whether the heads of requests have their cookies, on which only applications and conditions of routes depend.
    pub keeps_cookies: bool,
    /// Whether a request may ask for a WebSocket (RFC 8441), which is a request to switch the protocol then.
    pub accepts_websockets: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            request: RequestLimits::default(),
            streams_max: 100,
            requests_max: 10_000,
            header_block_bytes_max: 32 * 1024,
            kept_request_bytes_max: 64 * 1024,
            continuations_max: 8,
            reset_budget: 200,
            control_budget: 1_000,
            overhead_bytes_max: 1024 * 1024,
            keeps_cookies: false,
            accepts_websockets: false,
        }
    }
}

/// Factor for the decoded size of a header block: it multiplies [`Limits::header_block_bytes_max`], or the limit of a
/// request head if that is larger.
const DECODED_TIMES_MAX: usize = 4;

impl Limits {
    /// Bytes of names and values of one header block. Each byte of a block can stand for a field of several KiB, which
    /// takes time even if it is ignored.
    pub(crate) fn decoded_bytes_max(&self) -> usize {
        self.header_block_bytes_max.max(self.request.head_bytes_max).saturating_mul(DECODED_TIMES_MAX)
    }

    /// The window of a stream for content of requests: all accepted bytes, and the first one too many.
    pub(crate) fn content_window(&self) -> u32 {
        self.request.body_bytes_max.saturating_add(1).min(u64::from(U31_MAX)) as u32
    }
}

/// A limit that a client has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExceededLimit {
    /// [`Limits::streams_max`]: the request is refused, to be repeated.
    Streams,
    /// The limit [`Limits::kept_request_bytes_max`].
    KeptRequestBytes,
    /// [`Limits::header_block_bytes_max`]: this and the following ones end the connection.
    HeaderBlockBytes,
    /// [`Limits::continuations_max`].
    Continuations,
    /// [`Limits::reset_budget`].
    Resets,
    /// [`Limits::control_budget`].
    ControlFrames,
    /// [`Limits::overhead_bytes_max`].
    OverheadBytes,
}

/// Bytes of sent content per additional control frame of the client: clients open the windows of stream and connection
/// in steps of several KiB.
const CONTENT_BYTES_PER_CONTROL: u32 = 1024;
/// A DATA frame with as much content, or more, is answered by the client with WINDOW_UPDATE for the stream and for the
/// connection, if its windows are small.
const ANSWERED_CONTENT_BYTES: u32 = 256;
const CONTROLS_PER_DATA: u32 = 2;
/// Control frames that a client may send with each request, for example PRIORITY_UPDATE and PING.
const CONTROLS_PER_RESPONSE: u32 = 4;

/// Bytes of sent content per additional reset by the client: a video player that seeks cancels a response after
/// receiving much of it, and an attacker has to receive as much.
const CONTENT_BYTES_PER_RESET: u32 = 32 * 1024;
/// Maximum received bytes per byte of header fields and content, above which the input counts as a flood.
const RECEIVED_PER_PAYLOAD: u64 = 8;

/// A connection's remaining budgets.
///
/// Each budget recovers by honest behaviour, up to its limit. No budget covers a connection's whole life, since a long
/// download would use it up, and none grows, so that a flood after a download ends as soon as a flood before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budgets {
    resets: u32,
    controls: u32,
    /// Content sent that has not added to `controls` yet.
    content_bytes: u32,
    /// Content sent that has not added to `resets` yet.
    reset_content_bytes: u32,
    /// Bytes received that no header fields and no content account for.
    overhead_bytes: u64,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Budgets {
        Budgets {
            resets: limits.reset_budget,
            controls: limits.control_budget,
            content_bytes: 0,
            reset_content_bytes: 0,
            overhead_bytes: 0,
        }
    }

    /// A frame was received.
    pub(crate) fn note_frame(&mut self, payload_bytes: usize, limits: &Limits) -> Result<(), ExceededLimit> {
        self.overhead_bytes += (HEADER_BYTES + payload_bytes) as u64;
        let is_exceeded = self.overhead_bytes / RECEIVED_PER_PAYLOAD > limits.overhead_bytes_max;
        if is_exceeded { Err(ExceededLimit::OverheadBytes) } else { Ok(()) }
    }

    /// Header fields or content were received or sent.
    pub(crate) fn note_payload(&mut self, bytes: usize) {
        self.overhead_bytes = self.overhead_bytes.saturating_sub(bytes as u64 * RECEIVED_PER_PAYLOAD);
    }

    /// The received frame is not a request and has no content.
    pub(crate) fn take_control(&mut self) -> Result<(), ExceededLimit> {
        self.controls = self.controls.checked_sub(1).ok_or(ExceededLimit::ControlFrames)?;
        Ok(())
    }

    /// A stream was reset by the client, or because of the client.
    pub(crate) fn take_reset(&mut self) -> Result<(), ExceededLimit> {
        self.resets = self.resets.checked_sub(1).ok_or(ExceededLimit::Resets)?;
        Ok(())
    }

    /// A response was sent whole.
    pub(crate) fn note_answered(&mut self, limits: &Limits) {
        self.give_resets(1, limits);
        self.give_controls(CONTROLS_PER_RESPONSE, limits);
    }

    /// A DATA frame was sent.
    pub(crate) fn note_sent(&mut self, bytes: u32, limits: &Limits) {
        // The client answers content by frames that open its windows.
        self.note_payload(bytes as usize);
        self.reset_content_bytes += bytes;
        self.give_resets(self.reset_content_bytes / CONTENT_BYTES_PER_RESET, limits);
        self.reset_content_bytes %= CONTENT_BYTES_PER_RESET;
        self.content_bytes += bytes;
        let of_content = self.content_bytes / CONTENT_BYTES_PER_CONTROL;
        self.content_bytes %= CONTENT_BYTES_PER_CONTROL;
        let of_frame = if bytes >= ANSWERED_CONTENT_BYTES { CONTROLS_PER_DATA } else { 0 };
        self.give_controls(of_content.max(of_frame), limits);
    }

    fn give_resets(&mut self, count: u32, limits: &Limits) {
        self.resets = self.resets.saturating_add(count).min(limits.reset_budget);
    }

    fn give_controls(&mut self, count: u32, limits: &Limits) {
        self.controls = self.controls.saturating_add(count).min(limits.control_budget);
    }
}
