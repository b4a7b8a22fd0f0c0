//! A request that is being answered, its progress over several iterations, and what a version of HTTP does with its
//! response.

use crate::clock::{Clock, Milliseconds};
use crate::context::{Buffers, ConnectionInfo, Context};
use crate::file_error::FileError;
use crate::log::access_log::{Origin, Peer, WorkerLog};
use crate::net::body_sink::BodySink;
use crate::net::body_source::Content;
use crate::net::call::CallHandle;
use crate::options::Options;
use crate::waiter::{Event, Waiter};
use sanderling_http::{Persistence, Request, Scheme};
use sanderling_log_format::HttpVersion;
use sanderling_site_rules::Route;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Events that one request waits for: the file may be evicted again before the connection comes back to it, where many
/// files are requested and few may be open.
pub(super) const WAITS_MAX: u8 = 16;

/// A request to answer.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Request<'a>,
    /// Its content; `None` if that has not arrived whole.
    pub(crate) content: Option<&'a [u8]>,
    pub(crate) connection: &'a ConnectionInfo<'a>,
    /// The sender of the request: the client, or the proxy that names it.
    pub(crate) peer: SocketAddr,
    /// The receiver of the event that it waits for.
    pub(crate) waiter: Waiter,
}

impl Asked<'_> {
    /// The scheme of the request: that of a trusted proxy's client, if it names it.
    pub(super) fn scheme(&self) -> Scheme {
        self.request.scheme.unwrap_or_else(|| self.connection.transport.scheme())
    }
}

/// How a version of HTTP carries out the decision about one request.
pub(crate) trait Framing<'s>: Sized {
    const VERSION: HttpVersion;
    /// How the connection continues.
    type Step;

    /// Whether the connection can keep a request that waits.
    fn can_wait(&self, options: &Options) -> bool;
    /// Whether so much content can be written with the head.
    fn takes_at_once(&self, length_bytes: u64) -> bool;
    /// Whether the connection closes after the response.
    fn is_last(&self) -> bool;
    /// Where its head is written, as text.
    fn head<'b>(&self, buffers: &'b mut Buffers) -> &'b mut Vec<u8>;

    /// Sends the head of an interim response, which more follow.
    fn put_interim(&mut self, head: &[u8], buffers: &mut Buffers);
    /// Responds, after the head was written.
    fn respond(
        self,
        persistence: Persistence,
        content: Content<'_, 's>,
        buffers: &mut Buffers,
        options: &Options,
    ) -> Self::Step;
    /// Keeps the request, which begins again once its waiter has received an event.
    fn wait(self, progress: &mut Progress) -> Self::Step;
    /// Receives the content of the request into `sink`: the response depends on it. The request begins again once it
    /// has, or when its waiter has received an event.
    fn need_body(self, sink: BodySink, progress: &mut Progress, context: &mut Context<'_, 's>) -> Self::Step;
    /// Sends the head, after which both sides send to each other until they close.
    fn begin_tunnel(self, call: CallHandle, buffers: &mut Buffers, options: &Options) -> Self::Step;
}

/// The progress of a request that cannot be answered immediately.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The lower half of the time at which its first bytes were received, if that was in an earlier iteration; else 0.
    since_ms: u32,
    /// Events that it has waited for.
    pub(super) wait_count: u8,
    /// The error of its look-up.
    pub(super) error: Option<FileError>,
    /// How far backends have decided about it.
    stage: Stage,
}

/// The decision of an authenticator.
#[derive(Debug)]
pub(super) struct Admission {
    /// The route that the request has, whose authenticator it is.
    pub(super) route: Arc<Route>,
    /// Fields that the backend gets, or does not get from the client.
    pub(super) fields: Vec<(String, Option<String>)>,
}

/// How far backends have decided about a request.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// None was asked.
    #[default]
    New,
    /// The authenticator of this route decides, by this call.
    Asked(Box<(Arc<Route>, CallHandle)>),
    /// An authenticator has admitted it.
    Admitted(Box<Admission>),
    /// A backend answers it.
    Passed(CallHandle),
}

impl Progress {
    /// Notes when the request began, which continues in a later iteration.
    pub(crate) fn note_begin(&mut self, now_ms: Milliseconds) {
        if self.since_ms == 0 {
            self.since_ms = now_ms as u32;
        }
    }

    /// Takes the event that the request has waited for.
    pub(crate) fn note_event(&mut self, event: Event) {
        if let Event::LookedUp(Err(error)) = event {
            self.error = Some(error);
        }
    }

    /// Whether its look-up has failed, or has not ended in time.
    pub(crate) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// When the request began, at the latest now.
    pub(super) fn since_ms(&self, now_ms: Milliseconds) -> Milliseconds {
        match self.since_ms {
            0 => now_ms,
            // A request does not take the 49 days after which the number begins again.
            since_ms => now_ms - Milliseconds::from((now_ms as u32).wrapping_sub(since_ms)),
        }
    }

    /// Of the request, whose site was looked up last.
    pub(super) fn origin(&self, context: &Context<'_, '_>) -> Origin {
        Origin { site_index: context.files.last_site_index(), since_ms: self.since_ms(context.clock.now_ms()) }
    }

    /// The request waits for a further event.
    #[cold]
    pub(super) fn wait<'s, F: Framing<'s>>(&mut self, framing: F, clock: &Clock) -> F::Step {
        self.wait_count = self.wait_count.saturating_add(1);
        self.note_begin(clock.now_ms());
        framing.wait(self)
    }

    /// The request is answered, by no backend.
    #[inline]
    pub(super) fn end(&mut self) {
        debug_assert!(self.call().is_none());
        (self.since_ms, self.wait_count, self.error) = (0, 0, None);
    }

    /// Forgets that the request was admitted, if it has been answered since.
    pub(super) fn end_admission(&mut self) {
        if self.wait_count == 0 {
            self.stage = Stage::New;
        }
    }

    /// Nobody waits for the decision of an authenticator any longer.
    pub(super) fn end_question(&mut self) {
        if let Stage::Asked(_) = self.stage {
            self.stage = Stage::New;
        }
    }

    /// Whether no backend was asked anything.
    #[inline]
    pub(super) fn is_new(&self) -> bool {
        matches!(self.stage, Stage::New)
    }

    pub(super) fn set_stage(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// Takes the stage; the request is new then.
    pub(super) fn take_stage(&mut self) -> Stage {
        std::mem::take(&mut self.stage)
    }

    /// The fields for the backend of an admitted request.
    pub(super) fn admitted_fields(&self) -> &[(String, Option<String>)] {
        if let Stage::Admitted(admission) = &self.stage { &admission.fields } else { &[] }
    }

    /// The call that the request waits for: of the authenticator, or of the backend that answers.
    pub(crate) fn call(&self) -> Option<&CallHandle> {
        match &self.stage {
            Stage::Asked(asked) => Some(&asked.1),
            Stage::Passed(call) => Some(call),
            Stage::New | Stage::Admitted(..) => None,
        }
    }

    /// The call that answers the request; `None` if no backend does.
    pub(crate) fn answering_call(&self) -> Option<&CallHandle> {
        if let Stage::Passed(call) = &self.stage { Some(call) } else { None }
    }
}

/// The request that a response is logged with.
#[derive(Clone, Copy)]
pub(super) enum Logged<'l> {
    Request {
        request: &'l Request<'l>,
        origin: Origin,
    },
    /// The received bytes are not a request.
    Refused {
        received: &'l [u8],
        since_ms: Milliseconds,
    },
}

#[inline(never)]
pub(super) fn log_content(
    log: &Rc<WorkerLog>,
    peer: &Peer,
    logged: Logged<'_>,
    status: u16,
    content: &mut Content<'_, '_>,
) {
    let (content_bytes, rest) = content.counted();
    match logged {
        Logged::Refused { received, since_ms } => log.log_refused(*peer, since_ms, received, status, content_bytes),
        Logged::Request { request, origin } => {
            let line = log.log_response(*peer, origin, request, status, content_bytes, rest.is_some());
            if let (Some(line), Some(rest)) = (line, rest) {
                rest.set_line(line);
            }
        }
    }
}
