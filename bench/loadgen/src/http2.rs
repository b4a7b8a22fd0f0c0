//! The client for HTTP/2: concurrent requests on some connections, by the crate `h2`.
//!
//! A request of a connection that the server has closed by GOAWAY is lost, unless GOAWAY says that it was not processed
//! (RFC 9113 §6.8): it is then sent on another connection, as browsers do, and counted.

use crate::outcome::{Cause, Note};
use crate::report::{Recorder, Request};
use crate::streams::cause_of;
use crate::tls::Tls;
use h2::client::SendRequest;
use h2::{Error, Reason};
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::time::timeout_at;

/// No request has content, so that any buffer is the right one.
type Sender = SendRequest<&'static [u8]>;

/// A GET on persistent connections.
pub(crate) struct Http2 {
    pub(crate) server: SocketAddr,
    pub(crate) tls: Tls,
    pub(crate) url: String,
    /// Each of them is correct.
    pub(crate) contents: Arc<[Vec<u8>]>,
    pub(crate) deadline: Duration,
    pub(crate) recorder: Rc<Recorder>,
    slots: Vec<Mutex<Option<Sender>>>,
    taken_count: Cell<usize>,
}

/// The end of a request that has no correct response.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Unprocessed,
    Lost(Cause, String),
}

impl Http2 {
    pub(crate) fn new(
        server: SocketAddr,
        host: &str,
        path: &str,
        contents: Vec<Vec<u8>>,
        connection_count: usize,
        deadline: Duration,
        recorder: &Rc<Recorder>,
    ) -> io::Result<Rc<Http2>> {
        let (tls, url, recorder) = (Tls::new(host, b"h2")?, format!("https://{host}{path}"), Rc::clone(recorder));
        let slots = (0..connection_count).map(|_| Mutex::default()).collect();
        let (contents, taken_count) = (contents.into(), Cell::new(0));
        Ok(Rc::new(Http2 { server, tls, url, contents, deadline, recorder, slots, taken_count }))
    }

    pub(crate) async fn exchange(self: Rc<Self>, request: Request) {
        let mut received_bytes = 0;
        let ended = timeout_at(request.due + self.deadline, self.response(&mut received_bytes)).await;
        let lost = match ended {
            Ok(Ok(())) => return self.recorder.count_ok(request),
            Ok(Err((cause, detail))) => (cause, detail),
            Err(_) => (Cause::Timeout, format!("deadline after {received_bytes} bytes")),
        };
        self.recorder.count_lost(request, lost.0, || lost.1);
    }

    /// Sends the request until it was processed.
    async fn response(&self, received_bytes: &mut usize) -> Result<(), (Cause, String)> {
        loop {
            let sender = self.sender().await.map_err(|error| (cause_of(&error, 0), format!("connect: {error}")))?;
            match exchange(sender, &self.url, &self.contents, received_bytes).await {
                Ok(()) => return Ok(()),
                Err(End::Lost(cause, detail)) => return Err((cause, detail)),
                Err(End::Unprocessed) => self.recorder.note(Note::Unprocessed),
            }
        }
    }

    /// The next connection in turn, which is opened if there is none or it accepts no more requests.
    async fn sender(&self) -> io::Result<Sender> {
        let index = self.taken_count.replace(self.taken_count.get() + 1) % self.slots.len();
        let mut slot = self.slots[index].lock().await;
        if let Some(sender) = slot.take() {
            match sender.ready().await {
                Ok(sender) => return Ok(slot.insert(sender).clone()),
                Err(error) => self.recorder.note(closed_by(&error)),
            }
        }
        let sender = connect(self.tls.connect(self.server).await?).await?;
        self.recorder.note(Note::Opened);
        Ok(slot.insert(sender).clone())
    }

    /// Notes the connections that the server has closed.
    pub(crate) async fn check_idle(&self) {
        for slot in &self.slots {
            if let Some(sender) = slot.lock().await.take()
                && let Err(error) = sender.ready().await
            {
                self.recorder.note(closed_by(&error));
            }
        }
    }
}

/// The way in which the server has closed a connection.
fn closed_by(error: &Error) -> Note {
    if error.is_go_away() { Note::ConnectionClose } else { Note::IdleClose }
}

async fn connect(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> io::Result<Sender> {
    let builder = h2::client::Builder::new();
    let (sender, connection) = builder.handshake(stream).await.map_err(io_error)?;
    // Each request reports its own error.
    tokio::task::spawn_local(async move { drop(connection.await) });
    Ok(sender)
}

fn io_error(error: Error) -> io::Error {
    if error.is_io() { error.into_io().expect("it is one") } else { io::Error::other(error) }
}

async fn exchange(mut sender: Sender, url: &str, contents: &[Vec<u8>], received_bytes: &mut usize) -> Result<(), End> {
    let request = http_types::Request::get(url).body(()).expect("the target is valid");
    let (response, _) = sender.send_request(request, true).map_err(|error| end_of(&error, 0))?;
    let response = response.await.map_err(|error| end_of(&error, 0))?;
    if response.status() != 200 {
        return Err(End::Lost(Cause::WrongStatus, format!("status {}", response.status())));
    }
    let (mut body, mut content) = (response.into_body(), Vec::new());
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| end_of(&error, content.len().max(1)))?;
        content.extend_from_slice(&data);
        *received_bytes = content.len();
        body.flow_control().release_capacity(data.len()).map_err(|error| end_of(&error, content.len()))?;
    }
    if contents.contains(&content) {
        Ok(())
    } else {
        Err(End::Lost(Cause::WrongContent, format!("{} bytes differ from each expected content", content.len())))
    }
}

/// The meaning of an error for a request.
fn end_of(error: &Error, received_bytes: usize) -> End {
    if error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR) && received_bytes == 0 {
        return End::Unprocessed;
    }
    let cause = error.get_io().map_or(Cause::BadResponse, |error| cause_of(error, received_bytes));
    End::Lost(cause, format!("{error} after {received_bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::LocalSet;

    /// The end of a request whose server sends `frames` after the request, and closes the connection.
    fn end(frames: &'static [&'static [u8]]) -> Result<(), End> {
        let serve = |mut stream: DuplexStream| async move {
            // SETTINGS without a parameter, and the acknowledgement of the client's.
            stream.write_all(b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0").await.expect("open");
            let mut received = Vec::new();
            // HEADERS with END_STREAM and END_HEADERS on stream 1.
            while !received.windows(6).any(|bytes| bytes == [1, 5, 0, 0, 0, 1]) {
                assert!(stream.read_buf(&mut received).await.expect("open") > 0);
            }
            for frame in frames {
                stream.write_all(frame).await.expect("open");
            }
            stream.shutdown().await.expect("open");
            while stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {}
        };
        let run = async {
            let (client, server) = tokio::io::duplex(65_536);
            tokio::task::spawn_local(serve(server));
            let sender = connect(client).await.expect("the preface is sent");
            exchange(sender, "https://h/", &[b"abc".to_vec()], &mut 0).await
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("resources suffice");
        LocalSet::new().block_on(&runtime, run)
    }

    /// `:status: 200` on stream 1.
    const HEADERS: &[u8] = b"\0\0\x01\x01\x04\0\0\0\x01\x88";
    const CONTENT: &[u8] = b"\0\0\x03\0\x01\0\0\0\x01abc";
    const OTHER_CONTENT: &[u8] = b"\0\0\x03\0\x01\0\0\0\x01xyz";
    const GOAWAY_0: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
    const GOAWAY_1: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x01\0\0\0\0";
    /// With ENHANCE_YOUR_CALM.
    const GOAWAY_CALM: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";
    /// With REFUSED_STREAM.
    const RST_STREAM: &[u8] = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x07";

    #[track_caller]
    fn check_lost(frames: &'static [&'static [u8]], expected: Cause) {
        assert!(matches!(end(frames), Err(End::Lost(cause, _)) if cause == expected), "{:?}", end(frames));
    }

    #[test]
    fn only_a_request_above_the_last_stream_of_goaway_is_unprocessed() {
        assert_eq!(end(&[HEADERS, CONTENT]), Ok(()));
        assert_eq!(end(&[GOAWAY_1, HEADERS, CONTENT]), Ok(()));
        assert_eq!(end(&[GOAWAY_0]), Err(End::Unprocessed));
        check_lost(&[GOAWAY_1], Cause::ClosedBefore);
        check_lost(&[GOAWAY_CALM], Cause::BadResponse);
        check_lost(&[RST_STREAM], Cause::BadResponse);
        check_lost(&[], Cause::ClosedBefore);
        check_lost(&[HEADERS], Cause::ClosedDuring);
        check_lost(&[HEADERS, OTHER_CONTENT], Cause::WrongContent);
    }
}
