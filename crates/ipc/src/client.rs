//! The client of the control socket: sends a command to the running server, writes its answer, returns the exit status.

use crate::connection::{Connection, Received};
use crate::exit::Exit;
use crate::message::{Command, DecodeError, Event, Message};
use sanderling_config::diagnostic::reason;
use sanderling_os::poll_set::PollSet;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Sends `command` to the server with the control socket at `socket`, and writes its answer. The whole answer must arrive
/// within `timeout`.
pub fn run(command: Command, socket: &Path, timeout: Duration) -> Exit {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    match exchange(command, socket, timeout, &mut out, &mut err) {
        Ok(true) => Exit::Success,
        Ok(false) => Exit::Failure,
        Err(error) => {
            let _ = writeln!(err, "sanderling: {error}");
            Exit::Failure
        }
    }
}

/// Why there is no complete answer.
#[derive(Debug)]
enum ClientError<'a> {
    /// No process listens at the path.
    NotRunning(&'a Path),
    /// This user may not connect.
    PermissionDenied(&'a Path),
    /// The listen queue is full.
    Busy(&'a Path),
    /// The answer is not complete after the timeout.
    TimedOut(&'a Path, Duration),
    /// The server has closed the connection before the end of the answer.
    Closed,
    /// The server is of another version.
    OtherVersion(String),
    /// The answer cannot be written here.
    Output(io::Error),
    /// A system call failed.
    Call(io::Error),
}

impl fmt::Display for ClientError<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NotRunning(path) => write!(
                out,
                "no server answers at {}: start it, or name its socket with --control PATH (`demo` and `serve FOLDER` \
                 have no control socket unless `serve` is given --control)",
                path.display()
            ),
            ClientError::PermissionDenied(path) => write!(
                out,
                "cannot connect to {}: permission denied; run this command as root or as the user that started the server",
                path.display()
            ),
            ClientError::Busy(path) => write!(out, "too many clients wait at {}; try again", path.display()),
            ClientError::TimedOut(path, timeout) => write!(
                out,
                "the server at {} has not answered within {} s and may still run the command: see `sanderling status`, \
                 or wait longer with --timeout SECONDS",
                path.display(),
                timeout.as_secs_f64()
            ),
            ClientError::Closed => {
                write!(out, "the server closed the connection before the end of its answer; see its log")
            }
            ClientError::OtherVersion(reason) => write!(
                out,
                "the running server is of another version: {reason}; use the program that it was started with, or \
                 restart it"
            ),
            ClientError::Output(error) => write!(out, "cannot write the answer: {}", reason(error)),
            ClientError::Call(error) => out.write_str(&reason(error)),
        }
    }
}

fn connect(socket: &Path) -> Result<Connection, ClientError<'_>> {
    Connection::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning(socket),
        io::ErrorKind::PermissionDenied => ClientError::PermissionDenied(socket),
        io::ErrorKind::WouldBlock => ClientError::Busy(socket),
        _ => ClientError::Call(error),
    })
}

/// Sends the command, copies the answer to `out` and `err`, and returns whether the command has succeeded.
fn exchange<'a>(
    command: Command,
    socket: &'a Path,
    timeout: Duration,
    out: &mut impl Write,
    err: &mut impl Write,
) -> Result<bool, ClientError<'a>> {
    let deadline = Instant::now() + timeout;
    let mut server = connect(socket)?;
    match server.send(&Message::Command(command)) {
        // The reason may have arrived before the connection was closed.
        Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            return Err(ClientError::Call(error));
        }
        _ => {}
    }
    loop {
        // Before each message: a server that sends without end is left as well.
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(ClientError::TimedOut(socket, timeout));
        }
        match server.recv() {
            Ok(Received::Message(Message::Event(event), _)) => match event {
                Event::Stdout(text) => write(out, &text)?,
                Event::Stderr(text) => write(err, &text)?,
                Event::Done { is_success } => return Ok(is_success),
                other => return Err(ClientError::OtherVersion(format!("unexpected answer {other:?}"))),
            },
            Ok(Received::Message(other, _)) => {
                return Err(ClientError::OtherVersion(format!("unexpected answer {other:?}")));
            }
            Ok(Received::WouldBlock) => {
                PollSet::new([server.as_fd()]).wait(Some(rest)).map_err(ClientError::Call)?;
            }
            Ok(Received::Closed) => return Err(ClientError::Closed),
            Err(error) if error.get_ref().is_some_and(|error| error.is::<DecodeError>()) => {
                return Err(ClientError::OtherVersion(error.to_string()));
            }
            Err(error) => return Err(ClientError::Call(error)),
        }
    }
}

/// A reader that has gone away is not an error: the command is carried out all the same.
fn write<'a>(output: &mut impl Write, text: &str) -> Result<(), ClientError<'a>> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ClientError::Output(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{StatusFormat, Text};
    use sanderling_os::seqpacket::{SeqpacketListener, SeqpacketSocket};

    /// No test that passes waits for it.
    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(30);
    const STATUS: Command = Command::Status(StatusFormat::Text);

    /// The result of asking a server that `serve` plays for the status, with both outputs.
    fn ask(timeout: Duration, serve: impl FnOnce(SeqpacketSocket) + Send) -> (Result<bool, String>, String, String) {
        let folder = tempfile::tempdir().expect("created");
        let path = folder.path().join("control.sock");
        let listener = SeqpacketListener::bind(&path, 0o600).expect("bound");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                PollSet::new([listener.as_fd()]).wait(Some(LONG)).expect("waited");
                serve(listener.accept().expect("accepted").expect("a client"));
            });
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let result = exchange(STATUS, &path, timeout, &mut out, &mut err);
            let result = result.map_err(|error| error.to_string().replace(&path.display().to_string(), "PATH"));
            let text = |bytes| String::from_utf8(bytes).expect("text");
            (result, text(out), text(err))
        })
    }

    fn receive_status(client: &mut Connection) {
        PollSet::new([client.as_fd()]).wait(Some(LONG)).expect("waited");
        match client.recv().expect("received") {
            Received::Message(message, _) => assert_eq!(message, Message::Command(STATUS)),
            other => panic!("{other:?}"),
        }
    }

    fn send(client: &mut Connection, events: impl IntoIterator<Item = Event>) {
        for event in events {
            client.send(&Message::Event(event)).expect("sent");
        }
    }

    #[test]
    fn answer_is_written_and_its_result_returned() {
        for is_success in [true, false] {
            let (result, out, err) = ask(LONG, |client| {
                let mut client = Connection::new(client);
                receive_status(&mut client);
                let [one, but, two] = ["one\n", "but\n", "two\n"].map(Text::new);
                let events = [Event::Stdout(one), Event::Stderr(but), Event::Stdout(two), Event::Done { is_success }];
                send(&mut client, events);
            });
            assert_eq!((result, out.as_str(), err.as_str()), (Ok(is_success), "one\ntwo\n", "but\n"));
        }
    }

    #[track_caller]
    fn check_error(timeout: Duration, serve: impl FnOnce(SeqpacketSocket) + Send, expected: &str) {
        let error = ask(timeout, serve).0.expect_err(expected);
        assert!(error.starts_with(expected), "{expected:?} is not the start of {error:?}");
    }

    #[test]
    fn closed_connection_is_an_error() {
        let expected = "the server closed the connection before the end of its answer";
        check_error(LONG, drop, expected);
        check_error(LONG, |client| receive_status(&mut Connection::new(client)), expected);
        let half = [Event::Stdout(Text::new("half of\n")), Event::Stderr(Text::new("why\n"))];
        let (result, out, err) = ask(LONG, |client| send(&mut Connection::new(client), half));
        assert_eq!((out.as_str(), err.as_str()), ("half of\n", "why\n"));
        assert!(result.expect_err(expected).starts_with(expected));
    }

    #[test]
    fn server_of_another_version_is_an_error() {
        let old_answer = b"\x01the request has form 2, and the server that runs knows form 1\n";
        for packet in [&old_answer[..], b"SDLG\x03\0\0\0[]", b"SDLG\x02\0\0\0[{\"Event\":\"Dance\"},[]]"] {
            let serve = |client: SeqpacketSocket| assert!(client.send(packet, &[]).expect("sent"));
            check_error(LONG, serve, "the running server is of another version: ");
        }
        let serve = |client| send(&mut Connection::new(client), [Event::Heartbeat]);
        check_error(LONG, serve, "the running server is of another version: unexpected answer Heartbeat");
    }

    #[test]
    fn silent_server_is_left_after_the_timeout() {
        let silent = |client: SeqpacketSocket| {
            let mut client = Connection::new(client);
            receive_status(&mut client);
            PollSet::new([client.as_fd()]).wait(Some(LONG)).expect("waited");
        };
        check_error(SHORT, silent, "the server at PATH has not answered within 0.03 s and may still run the command");
    }

    #[test]
    fn endless_answer_is_left_after_the_timeout() {
        let endless = |client: SeqpacketSocket| {
            let mut client = Connection::new(client);
            while client.send(&Message::Event(Event::Stdout(Text::new("and\n")))).is_ok() {}
        };
        check_error(SHORT, endless, "the server at PATH has not answered within 0.03 s");
    }

    #[test]
    fn missing_server_is_an_error_with_a_remedy() {
        let folder = tempfile::tempdir().expect("created");
        let path = folder.path().join("control.sock");
        let error = || {
            let result = exchange(STATUS, &path, LONG, &mut io::sink(), &mut io::sink());
            result.expect_err("no server").to_string()
        };
        let expected = format!("no server answers at {}: start it, or name its socket with --control", path.display());
        assert!(error().starts_with(&expected), "{}", error());
        // The socket of a server that was killed.
        drop(SeqpacketListener::bind(&path, 0o600).expect("bound"));
        assert!(error().starts_with(&expected), "{}", error());
        std::fs::remove_file(&path).expect("removed");
        let _stream = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        assert!(error().starts_with(&format!("connect(\"{}\") failed: ", path.display())), "{}", error());
    }

    #[test]
    fn output_error_is_reported_unless_the_reader_has_gone() {
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
        let error = write(&mut Broken(io::ErrorKind::StorageFull), "text").expect_err("full").to_string();
        assert!(error.starts_with("cannot write the answer: "), "{error}");
    }
}
