//! Turns a question of the command line into a request to the server that runs, and its answer into output and an exit
//! status.

use crate::Exit;
use crate::control_message::{Answer, Request};
use sanderling_os::poll_set::PollSet;
use sanderling_os::seqpacket::{MESSAGE_BYTES_MAX, Received, SeqpacketSocket};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Asks the server whose control socket is at `socket`, writes what it answers, and ends as it says. The whole answer
/// must have come after `timeout`.
pub fn ask(request: Request, socket: &Path, timeout: Duration) -> Exit {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    match converse(request, socket, timeout, &mut out, &mut err) {
        Ok(0) => Exit::Success,
        Ok(_) => Exit::Failure,
        Err(fault) => {
            let _ = writeln!(err, "sanderling: {fault}");
            Exit::Failure
        }
    }
}

/// Why there is no answer, or not all of one.
#[derive(Debug)]
enum Fault<'a> {
    /// Nobody listens at the path.
    NobodyThere(&'a Path),
    /// This user may not.
    Forbidden(&'a Path),
    /// Too many others ask.
    Busy(&'a Path),
    /// The server was asked, and has not answered in this time.
    TimedOut(&'a Path, Duration),
    /// The server was asked, and has gone away before it had said how it ended.
    CutOff,
    /// The server says something else.
    Unintelligible,
    /// The answer can't be written here.
    Unwritable(io::Error),
    /// A call of the kernel failed.
    Call(io::Error),
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NobodyThere(path) => write!(
                out,
                "no server answers at {}: is it running? Name its socket with --control PATH",
                path.display()
            ),
            Fault::Forbidden(path) => write!(
                out,
                "{} is out of reach: ask as root, or as the user that the server was started by",
                path.display()
            ),
            Fault::Busy(path) => write!(out, "too many others ask at {}: try again", path.display()),
            Fault::TimedOut(path, timeout) => write!(
                out,
                "the server at {} has not answered within {} s, and may still do what it was asked for: see `sanderling \
                 status`, or wait longer with --timeout SECONDS",
                path.display(),
                timeout.as_secs_f64()
            ),
            Fault::CutOff => write!(out, "the server went away before its answer ended: see its log"),
            Fault::Unintelligible => write!(
                out,
                "the server answers in a form of another version: ask it by the version of sanderling that it was \
                 started with"
            ),
            Fault::Unwritable(error) => write!(out, "the answer can't be written: {error}"),
            Fault::Call(error) => error.fmt(out),
        }
    }
}

fn connect(socket: &Path) -> Result<SeqpacketSocket, Fault<'_>> {
    SeqpacketSocket::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Fault::NobodyThere(socket),
        io::ErrorKind::PermissionDenied => Fault::Forbidden(socket),
        io::ErrorKind::WouldBlock => Fault::Busy(socket),
        _ => Fault::Call(error),
    })
}

/// Asks, copies the texts of the answer to where they belong, and returns the status that ends it.
fn converse<'a>(
    request: Request,
    socket: &'a Path,
    timeout: Duration,
    out: &mut impl Write,
    err: &mut impl Write,
) -> Result<u8, Fault<'a>> {
    let deadline = Instant::now() + timeout;
    let server = connect(socket)?;
    match server.send(&request.encode(), &[]) {
        Ok(true) => {}
        Ok(false) => return Err(Fault::Busy(socket)),
        // It may have said why before it went.
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {}
        Err(error) => return Err(Fault::Call(error)),
    }
    let mut packet = [0; MESSAGE_BYTES_MAX];
    let mut waiting = PollSet::new([server.as_fd()]);
    loop {
        // Asked before each packet: a server that never stops talking is left as well as one that says nothing.
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(Fault::TimedOut(socket, timeout));
        }
        let length_bytes = match server.receive(&mut packet) {
            Ok(Received::Message { length_bytes, .. }) => length_bytes,
            Ok(Received::WouldBlock) => {
                waiting.wait(Some(rest)).map_err(Fault::Call)?;
                continue;
            }
            Ok(Received::Closed) => return Err(Fault::CutOff),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Fault::Unintelligible),
            Err(error) => return Err(Fault::Call(error)),
        };
        match Answer::decode(&packet[..length_bytes]).map_err(|_| Fault::Unintelligible)? {
            Answer::Out(text) => write(out, text)?,
            Answer::Err(text) => write(err, text)?,
            Answer::End(status) => return Ok(status),
        }
    }
}

/// A reader who went away is no fault: what was asked for is done all the same.
fn write<'a>(to: &mut impl Write, text: &str) -> Result<(), Fault<'a>> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Fault::Unwritable(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_message::TEXT_BYTES_MAX;
    use sanderling_os::seqpacket::SeqpacketListener;

    /// Longer than anything takes: a test that passes never waits for it.
    const LONG: Duration = Duration::from_secs(30);
    /// Soon over.
    const SHORT: Duration = Duration::from_millis(30);

    /// Asks for the status, while `serve` plays the server of the first who comes; what came of it.
    fn ask_of(timeout: Duration, serve: impl FnOnce(SeqpacketSocket) + Send) -> (Result<u8, String>, String, String) {
        let folder = tempfile::tempdir().expect("created");
        let path = folder.path().join("control.sock");
        let door = SeqpacketListener::bind(&path, 0o600).expect("bound");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                PollSet::new([door.as_fd()]).wait(Some(LONG)).expect("waited");
                serve(door.accept().expect("accepted").expect("somebody came"));
            });
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let ended = converse(Request::Status, &path, timeout, &mut out, &mut err);
            let ended = ended.map_err(|fault| fault.to_string().replace(&path.display().to_string(), "PATH"));
            let text = |octets| String::from_utf8(octets).expect("text");
            (ended, text(out), text(err))
        })
    }

    /// The request that has come to `client`.
    fn request_of(client: &SeqpacketSocket) -> Request {
        PollSet::new([client.as_fd()]).wait(Some(LONG)).expect("waited");
        let mut packet = [0; MESSAGE_BYTES_MAX];
        match client.receive(&mut packet).expect("received") {
            Received::Message { length_bytes, .. } => Request::decode(&packet[..length_bytes]).expect("a request"),
            other => panic!("{other:?}"),
        }
    }

    fn answer(client: &SeqpacketSocket, answers: &[Answer<'_>]) {
        for answer in answers {
            assert!(client.send(answer.encode(&mut [0; MESSAGE_BYTES_MAX]), &[]).expect("sent"));
        }
    }

    #[test]
    fn an_answer_goes_where_it_belongs_and_ends_with_its_status() {
        let long = "x".repeat(TEXT_BYTES_MAX);
        for status in [0, 1] {
            let (ended, out, err) = ask_of(LONG, |client| {
                assert_eq!(request_of(&client), Request::Status);
                let texts = [Answer::Out("one\n"), Answer::Err("but\n"), Answer::Out(&long), Answer::End(status)];
                answer(&client, &texts);
            });
            assert_eq!((ended, out, err.as_str()), (Ok(status), format!("one\n{long}"), "but\n"));
        }
    }

    #[track_caller]
    fn check_fault(timeout: Duration, serve: impl FnOnce(SeqpacketSocket) + Send, expected: &str) {
        let (ended, _, _) = ask_of(timeout, serve);
        let fault = ended.expect_err(expected);
        assert!(fault.starts_with(expected), "{expected:?} does not begin {fault:?}");
    }

    #[test]
    fn a_server_that_goes_away_is_told() {
        let expected = "the server went away before its answer ended";
        check_fault(LONG, drop, expected);
        check_fault(LONG, |client| assert_eq!(request_of(&client), Request::Status), expected);
        let (ended, out, err) =
            ask_of(LONG, |client| answer(&client, &[Answer::Out("half of\n"), Answer::Err("why\n")]));
        assert_eq!((out.as_str(), err.as_str()), ("half of\n", "why\n"));
        assert!(ended.expect_err(expected).starts_with(expected));
    }

    #[test]
    fn a_server_that_speaks_otherwise_is_told() {
        for packet in [&b"\x07what?"[..], b"\x00\xff", b"\x02"] {
            let serve = |client: SeqpacketSocket| assert!(client.send(packet, &[]).expect("sent"));
            check_fault(LONG, serve, "the server answers in a form of another version");
        }
    }

    #[test]
    fn a_server_that_says_nothing_is_left() {
        let expected = "the server at PATH has not answered within 0.03 s, and may still do what it was asked for";
        let until_the_client_goes = |client: SeqpacketSocket| {
            request_of(&client);
            PollSet::new([client.as_fd()]).wait(Some(LONG)).expect("waited");
        };
        check_fault(SHORT, until_the_client_goes, expected);
    }

    #[test]
    fn a_server_that_never_stops_talking_is_left() {
        let without_end = |client: SeqpacketSocket| {
            // A full buffer is tried again at once; the client's going away ends it.
            while client.send(b"\x00and\n", &[]).is_ok() {}
        };
        check_fault(SHORT, without_end, "the server at PATH has not answered within 0.03 s");
    }

    #[test]
    fn where_nobody_listens_the_remedy_is_told() {
        let folder = tempfile::tempdir().expect("created");
        let path = folder.path().join("control.sock");
        let ask = || {
            let ended = converse(Request::Status, &path, LONG, &mut io::sink(), &mut io::sink());
            ended.expect_err("nobody is there").to_string()
        };
        let expected =
            format!("no server answers at {}: is it running? Name its socket with --control PATH", path.display());
        assert_eq!(ask(), expected);
        // What a server leaves that was killed.
        drop(SeqpacketListener::bind(&path, 0o600).expect("bound"));
        assert_eq!(ask(), expected);
        std::fs::remove_file(&path).expect("removed");
        let _stream = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        assert!(ask().starts_with(&format!("connect(\"{}\") failed: ", path.display())), "{}", ask());
    }

    #[test]
    fn an_answer_that_cannot_be_written_is_a_fault_unless_its_reader_went_away() {
        struct Broken(io::ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert!(write(&mut Broken(io::ErrorKind::BrokenPipe), "text").is_ok());
        let fault = write(&mut Broken(io::ErrorKind::StorageFull), "text").expect_err("full").to_string();
        assert!(fault.starts_with("the answer can't be written: "), "{fault}");
    }
}
