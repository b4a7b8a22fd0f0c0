//! The control socket's client: sends a command to the running server, writes its answer, returns the exit status.

use crate::connection::{Connection, Received};
use crate::control_path::{FILE_NAME, SYSTEM_FOLDER};
use crate::message::{Command, DecodeError, Event, Message};
use sanderling_config::Exit;
use sanderling_config::diagnostic::error_text;
use sanderling_os::poll_set::PollSet;
use sanderling_os::process::effective_uid;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the longest status, of a server with some ten thousand zones.
const STATUS_BYTES_MAX: usize = 16 << 20;
/// Bytes of the longest answer to another command that is not copied to an output.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends `command` to the server with the control socket at `socket`, and writes its answer. The whole answer must
/// arrive within `timeout`.
pub fn run(command: Command, socket: &Path, timeout: Duration) -> Exit {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let server = connect(socket).map_err(|error| error.to_string());
    match server.and_then(|server| exchange(command, server, socket, timeout, &mut out, &mut err)) {
        Ok(true) => Exit::Success,
        Ok(false) => Exit::Failure,
        Err(problem) => {
            let _ = writeln!(err, "sanderling: {problem}");
            Exit::Failure
        }
    }
}

/// Sends `command` as [`run`] does; returns the text that it would write to standard output.
///
/// # Errors
/// Returns an error if the answer is incomplete, or the command has failed.
pub fn ask(command: Command, socket: &Path, timeout: Duration) -> Result<String, AskError> {
    let (mut out, mut err) = (Answer::to(&command), Answer::to(&command));
    let server = connect(socket)?;
    match exchange(command, server, socket, timeout, &mut out, &mut err).map_err(AskError::NoAnswer)? {
        true => Ok(out.into_text()),
        false => Err(AskError::Failed(err.into_text().trim().replace("sanderling: ", ""))),
    }
}

/// The text that `command` writes to standard output, even if it fails: the status of a server with problems is one.
///
/// # Errors
/// There is no complete answer.
pub fn output_of(command: Command, socket: &Path, timeout: Duration) -> Result<String, AskError> {
    let mut out = Answer::to(&command);
    let server = connect(socket)?;
    exchange(command, server, socket, timeout, &mut out, &mut io::sink()).map_err(AskError::NoAnswer)?;
    Ok(out.into_text())
}

/// An answer in memory. Another program may have the control socket, and send without end.
struct Answer {
    text: Vec<u8>,
    bytes_max: usize,
}

impl Answer {
    fn to(command: &Command) -> Answer {
        let bytes_max = if matches!(command, Command::Status(_)) { STATUS_BYTES_MAX } else { ANSWER_BYTES_MAX };
        Answer { text: Vec::new(), bytes_max }
    }

    fn into_text(self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

impl Write for Answer {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if text.len() > self.bytes_max.saturating_sub(self.text.len()) {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {} bytes", self.bytes_max)));
        }
        self.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a command was not carried out, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskError {
    /// No server has the control socket.
    Absent(String),
    /// No server has received it, although one may run.
    Unreachable(String),
    /// The server may have carried it out.
    NoAnswer(String),
    /// The server has not carried it out, for this reason.
    Failed(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Absent(text)
            | AskError::Unreachable(text)
            | AskError::NoAnswer(text)
            | AskError::Failed(text) => out.write_str(text),
        }
    }
}

fn connect(socket: &Path) -> Result<Connection, AskError> {
    connect_or_hint(socket, &Path::new(SYSTEM_FOLDER).join(FILE_NAME))
}

/// Connects to `socket`; `of_system` is the socket that another user would have looked at.
fn connect_or_hint(socket: &Path, of_system: &Path) -> Result<Connection, AskError> {
    let path = socket.display();
    // It also may exist if this user cannot look.
    let has_system_server =
        || socket != of_system && effective_uid() != 0 && !matches!(of_system.try_exists(), Ok(false));
    Connection::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused if has_system_server() => AskError::Unreachable(format!(
            "no server answers at {path}, where one of this user has its socket, but {} exists: run this command as root \
             or as the user of that server",
            of_system.display()
        )),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => AskError::Absent(format!(
            "no server answers at {path}: start it, or specify its socket with --control PATH (`demo` and `serve FOLDER` \
             have no control socket unless `serve` is given --control)"
        )),
        ErrorKind::PermissionDenied => AskError::Unreachable(format!(
            "cannot connect to {path}: permission denied; run this command as root or as the user that started the server"
        )),
        ErrorKind::WouldBlock => AskError::Unreachable(format!("too many clients are waiting at {path}; try again")),
        _ => AskError::Unreachable(format!("cannot connect to the server: {}", error_text(&error))),
    })
}

/// Sends the command to the server at `socket`, copies the answer to `out` and `err`, and returns whether the command
/// has succeeded.
///
/// # Errors
/// Returns the reason why the answer is incomplete, and the remedy.
fn exchange(
    command: Command,
    mut server: Connection,
    socket: &Path,
    timeout: Duration,
    out: &mut impl Write,
    err: &mut impl Write,
) -> Result<bool, String> {
    let deadline = Instant::now() + timeout;
    match server.send(&Message::Command(command)) {
        // The reason may have arrived before the connection was closed.
        Err(error) if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
            return Err(format!("cannot send the command: {}", error_text(&error)));
        }
        _ => {}
    }
    let other_version = |reason: String| {
        format!(
            "the running server has another version: {reason}; use the program that it was started with, or restart it"
        )
    };
    loop {
        // The deadline is checked before each message, in case a server sends without end.
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(format!(
                "the server at {} did not answer within {} s and may still carry out the command: see `sanderling \
                    status`, or wait longer with --timeout SECONDS",
                socket.display(),
                timeout.as_secs_f64()
            ));
        }
        match server.recv() {
            Ok(Received::Message(Message::Event(Event::Stdout(text)), _)) => write(out, &text)?,
            Ok(Received::Message(Message::Event(Event::Stderr(text)), _)) => write(err, &text)?,
            Ok(Received::Message(Message::Event(Event::Done { is_success }), _)) => return Ok(is_success),
            Ok(Received::Message(other, _)) => return Err(other_version(format!("unexpected answer {other:?}"))),
            Ok(Received::WouldBlock) => {
                let waited = PollSet::new([server.as_fd()]).wait(Some(rest));
                waited.map_err(|error| format!("cannot wait for the answer: {}", error_text(&error)))?;
            }
            Ok(Received::Closed) => {
                return Err("the server closed the connection before the end of its answer; see its log".to_owned());
            }
            Err(error) if error.get_ref().is_some_and(|error| error.is::<DecodeError>()) => {
                return Err(other_version(error.to_string()));
            }
            Err(error) => return Err(format!("cannot receive the answer: {}", error_text(&error))),
        }
    }
}

/// A reader that has disconnected is not an error: the command is carried out anyway.
fn write(output: &mut impl Write, text: &str) -> Result<(), String> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write the answer: {}", error_text(&error)))
        }
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
    /// Plays a server.
    type Serve = fn(SeqpacketSocket);
    const STATUS: Command = Command::Status(StatusFormat::Text);

    /// The result of asking a server that `serve` plays for the status, with both outputs.
    fn ask(timeout: Duration, serve: Serve) -> (Result<bool, String>, String, String) {
        let folder = tempfile::tempdir().expect("created");
        let path = folder.path().join("control.sock");
        let listener = SeqpacketListener::bind(&path, 0o600).expect("bound");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                PollSet::new([listener.as_fd()]).wait(Some(LONG)).expect("waited");
                serve(listener.accept().expect("accepted").expect("a client"));
            });
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let server = connect(&path).map_err(|error| error.to_string());
            let result = server.and_then(|server| exchange(STATUS, server, &path, timeout, &mut out, &mut err));
            let text = |bytes| String::from_utf8(bytes).expect("text");
            (result.map_err(|error| error.replace(&path.display().to_string(), "PATH")), text(out), text(err))
        })
    }

    /// Receives the request for the status, and sends `events`.
    fn answer(client: SeqpacketSocket, events: &[Event]) -> Connection {
        let mut client = Connection::new(client);
        PollSet::new([client.as_fd()]).wait(Some(LONG)).expect("waited");
        assert!(matches!(client.recv(), Ok(Received::Message(Message::Command(STATUS), _))));
        events.iter().for_each(|event| client.send(&Message::Event(event.clone())).expect("sent"));
        client
    }

    fn half() -> [Event; 3] {
        [Event::Stdout(Text::new("one\n")), Event::Stderr(Text::new("but\n")), Event::Stdout(Text::new("two\n"))]
    }

    #[test]
    fn answer_is_written_and_its_result_returned() {
        const CLOSED: &str = "the server closed the connection before the end of its answer; see its log";
        fn finish(client: SeqpacketSocket, is_success: bool) {
            answer(client, &half()).send(&Message::Event(Event::Done { is_success })).expect("sent");
        }
        let cases: [(Serve, Result<bool, String>); 3] = [
            (|client| finish(client, true), Ok(true)),
            (|client| finish(client, false), Ok(false)),
            (|client| drop(answer(client, &half())), Err(CLOSED.to_owned())),
        ];
        for (serve, expected) in cases {
            assert_eq!(ask(LONG, serve), (expected, "one\ntwo\n".to_owned(), "but\n".to_owned()));
        }
    }

    #[test]
    fn incomplete_answers_have_a_reason_and_a_remedy() {
        let closed = "the server closed the connection before the end of its answer";
        let other_version = "the running server has another version: ";
        let silent = "the server at PATH did not answer within 0.03 s and may still carry out the command";
        let cases: [(Serve, Duration, &str); 7] = [
            (drop, LONG, closed),
            (|client| assert!(client.send(b"\x01the server knows form 1\n", &[]).expect("sent")), LONG, other_version),
            (|client| assert!(client.send(b"SDLG\x03\0\0\0[]", &[]).expect("sent")), LONG, other_version),
            (
                |client| assert!(client.send(b"SDLG\x02\0\0\0[{\"Event\":\"Dance\"},[]]", &[]).expect("sent")),
                LONG,
                other_version,
            ),
            (|client| drop(answer(client, &[Event::Heartbeat])), LONG, other_version),
            (|client| PollSet::new([answer(client, &[]).as_fd()]).wait(Some(LONG)).expect("waited"), SHORT, silent),
            (
                |client| {
                    let mut client = Connection::new(client);
                    while client.send(&Message::Event(Event::Stdout(Text::new("and\n")))).is_ok() {}
                },
                SHORT,
                silent,
            ),
        ];
        for (serve, timeout, expected) in cases {
            let error = ask(timeout, serve).0.expect_err(expected);
            assert!(error.starts_with(expected), "{expected:?} is not the start of {error:?}");
        }
    }

    #[test]
    fn answer_in_memory_has_a_limit() {
        for (command, bytes_max) in [(STATUS, STATUS_BYTES_MAX), (Command::Stop, ANSWER_BYTES_MAX)] {
            let mut answer = Answer::to(&command);
            write(&mut answer, &"x".repeat(bytes_max)).expect("it is just short enough");
            let error = write(&mut answer, "x").expect_err("one byte more");
            assert_eq!(error, format!("cannot write the answer: it has more than {bytes_max} bytes"));
            assert_eq!(answer.into_text().len(), bytes_max);
        }
    }

    #[test]
    fn missing_server_is_an_error_with_a_remedy() {
        let folder = tempfile::tempdir().expect("created");
        let path = folder.path().join("control.sock");
        let check = |expected: &str| {
            let error = connect(&path).expect_err("no server");
            assert_eq!(matches!(error, AskError::Absent(_)), expected.starts_with("no server answers"), "{error:?}");
            assert!(error.to_string().starts_with(&expected.replace("PATH", path.to_str().expect("text"))), "{error}");
        };
        check("no server answers at PATH: start it, or specify its socket with --control");
        // The socket of a server that was killed.
        drop(SeqpacketListener::bind(&path, 0o600).expect("bound"));
        check("no server answers at PATH: start it, or specify its socket with --control");
        std::fs::remove_file(&path).expect("removed");
        let _stream = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        check("cannot connect to the server: connect(\"PATH\") failed: ");
    }

    #[test]
    fn server_of_another_user_is_named() {
        let folder = tempfile::tempdir().expect("created");
        let [own, of_system] = ["own", "system"].map(|name| folder.path().join(name));
        let error = connect_or_hint(&own, &of_system).expect_err("no server");
        assert!(matches!(error, AskError::Absent(_)), "{error:?}");
        std::fs::write(&of_system, "").expect("written");
        let error = connect_or_hint(&own, &of_system).expect_err("no server");
        let expected = format!("but {} exists: run this command as root", of_system.display());
        let is_root = effective_uid() == 0;
        assert_eq!(error.to_string().contains(&expected), !is_root, "{error:?}");
        assert_eq!(matches!(error, AskError::Unreachable(_)), !is_root, "{error:?}");
    }

    #[test]
    fn output_error_is_reported_unless_the_reader_has_gone() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it exists");
        let error = write(&mut &full, "text").expect_err("full");
        assert!(error.starts_with("cannot write the answer: No space left"), "{error}");
        let (reader, mut writer) = io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(write(&mut writer, "text"), Ok(()));
    }
}
