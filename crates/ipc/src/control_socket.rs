//! The control socket: accepts clients, receives one command from each, and sends them the answers.
//!
//! The supervisor owns it; a server process takes over while there is no supervisor.

use crate::connection::{Connection, RETRY_INTERVAL, Received};
use crate::message::{Command, Event, Message, Text};
use sanderling_os::seqpacket::SeqpacketListener;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A client that can connect can stop the server: only the owner may.
const MODE: u32 = 0o600;
/// Concurrent clients; others wait in the listen queue.
const CLIENTS_MAX: usize = 32;
/// Unsent messages of a client; a client that does not read is disconnected.
const UNSENT_MAX: usize = 1_024;
/// Pause in accepting when no descriptor is left for a client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for a client to send its command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// The control socket and its clients.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    listener: SeqpacketListener,
    clients: Vec<Client>,
    next_id: ClientId,
    accept_paused_until: Option<Instant>,
}

/// Identifies a client.
pub type ClientId = u64;

#[derive(Debug)]
struct Client {
    id: ClientId,
    connection: Connection,
    connected_at: Instant,
    state: ClientState,
}

/// The reason for which the server or a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    /// The client has to send its command.
    Connected,
    /// The server has to answer.
    Waiting,
    /// The client has to read the rest of the answer, and is disconnected then.
    Done,
}

/// The result of opening the control socket.
#[derive(Debug)]
pub enum Opened {
    /// The socket is created.
    Created(ControlSocket),
    /// Another process answers at the path; this is a connection to it.
    InUse(Connection),
}

impl ControlSocket {
    /// Creates the control socket at `path`, and its folder if only that is missing.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written, or the path is in use by something else.
    pub fn open(path: &Path) -> io::Result<Opened> {
        match Connection::connect(path) {
            Ok(connection) => return Ok(Opened::InUse(connection)),
            // A process that was killed has left its socket. The kernel says the same of files that are not sockets.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if !fs::symlink_metadata(path)?.file_type().is_socket() {
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists but is not a socket"));
                }
                fs::remove_file(path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => create_folder_of(path)?,
            Err(error) => return Err(error),
        }
        let listener = SeqpacketListener::bind(path, MODE)?;
        Ok(Opened::Created(ControlSocket::new(path.into(), listener)))
    }

    /// Creates the socket again if its path was removed; returns whether it was.
    ///
    /// # Errors
    /// Returns the same errors as [`ControlSocket::open`].
    pub fn restore(&mut self) -> io::Result<bool> {
        if !matches!(fs::symlink_metadata(&self.path), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            return Ok(false);
        }
        create_folder_of(&self.path)?;
        self.listener = SeqpacketListener::bind(&self.path, MODE)?;
        Ok(true)
    }

    /// The control socket at `path` that another process has created.
    pub fn from_fd(path: PathBuf, listener: OwnedFd) -> io::Result<ControlSocket> {
        Ok(ControlSocket::new(path, SeqpacketListener::from_fd(listener)?))
    }

    fn new(path: PathBuf, listener: SeqpacketListener) -> ControlSocket {
        ControlSocket { path, listener, clients: Vec::new(), next_id: 0, accept_paused_until: None }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listening socket.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Adds a client whose command another process has received.
    pub fn adopt_client(&mut self, client: OwnedFd) -> io::Result<ClientId> {
        let connection = Connection::from_fd(client)?;
        Ok(self.add(connection, ClientState::Waiting))
    }

    fn add(&mut self, connection: Connection, state: ClientState) -> ClientId {
        let id = self.next_id;
        self.next_id = self.next_id.saturating_add(1);
        self.clients.push(Client { id, connection, connected_at: Instant::now(), state });
        id
    }

    /// The descriptors to poll for reading.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let accepts = self.clients.len() < CLIENTS_MAX && self.accept_paused_until.is_none();
        let listener = accepts.then(|| self.listener.as_fd());
        // A client that has sent its command and disconnects would be readable forever.
        let clients = self.clients.iter().filter(|client| client.state == ClientState::Connected);
        listener.into_iter().chain(clients.map(|client| client.connection.as_fd()))
    }

    /// When [`ControlSocket::receive_commands`] must be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let connected = self.clients.iter().filter(|client| client.state == ClientState::Connected);
        let timeouts = connected.map(|client| client.connected_at + COMMAND_TIMEOUT);
        let has_unsent = self.clients.iter().any(|client| client.connection.unsent_count() > 0);
        timeouts.chain(has_unsent.then(|| Instant::now() + RETRY_INTERVAL)).chain(self.accept_paused_until).min()
    }

    /// Accepts clients, and returns the commands that have arrived.
    pub fn receive_commands(&mut self) -> Vec<(ClientId, Command)> {
        self.accept();
        let mut commands = Vec::new();
        self.clients.retain_mut(|client| {
            client.flush()
                && match (client.state, client.connection.recv()) {
                    (_, Ok(Received::Closed)) => false,
                    (ClientState::Connected, Ok(Received::WouldBlock)) => {
                        client.connected_at.elapsed() < COMMAND_TIMEOUT
                    }
                    (ClientState::Connected, Ok(Received::Message(Message::Command(command), _))) => {
                        client.state = ClientState::Waiting;
                        commands.push((client.id, command));
                        true
                    }
                    (ClientState::Connected, result) => {
                        let reason = match result {
                            Err(error) => error.to_string(),
                            Ok(_) => "the message is not a command".to_owned(),
                        };
                        let problem =
                            format!("sanderling: {reason}; use the version that the server was started with\n");
                        // A client of another version may not understand the answer either.
                        let _ = client.connection.send(&Message::Event(Event::Stderr(Text::new(&problem))));
                        let _ = client.connection.send(&Message::Event(Event::Done { is_success: false }));
                        false
                    }
                    (ClientState::Waiting | ClientState::Done, result) => result.is_ok(),
                }
        });
        commands
    }

    fn accept(&mut self) {
        if self.accept_paused_until.is_some_and(|until| Instant::now() >= until) {
            self.accept_paused_until = None;
        }
        while self.clients.len() < CLIENTS_MAX && self.accept_paused_until.is_none() {
            match self.listener.accept() {
                Ok(Some(socket)) => drop(self.add(Connection::new(socket), ClientState::Connected)),
                Ok(None) => break,
                // No descriptor is free. The client stays in the queue, and keeps the listener readable.
                Err(_) => self.accept_paused_until = Some(Instant::now() + ACCEPT_PAUSE),
            }
        }
    }

    /// Sends text for a client's standard output.
    pub fn send_stdout(&mut self, id: ClientId, text: &str) {
        Text::parts(text).for_each(|part| self.send(id, Event::Stdout(part)));
    }

    /// Sends text for a client's standard error.
    pub fn send_stderr(&mut self, id: ClientId, text: &str) {
        Text::parts(text).for_each(|part| self.send(id, Event::Stderr(part)));
    }

    /// Ends a client's command, and disconnects it when it has read the answer.
    pub fn finish(&mut self, id: ClientId, is_success: bool) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.state = ClientState::Done;
        }
        self.send(id, Event::Done { is_success });
    }

    /// Sends an event to a client; a client that does not read is disconnected.
    fn send(&mut self, id: ClientId, event: Event) {
        let Some(index) = self.clients.iter().position(|client| client.id == id) else { return };
        let client = &mut self.clients[index];
        let is_sent = client.connection.send(&Message::Event(event)).is_ok();
        if !is_sent || client.connection.unsent_count() > UNSENT_MAX || !client.flush() {
            self.clients.remove(index);
        }
    }

    /// Disconnects all clients: another process answers from now on.
    pub fn disconnect_all(&mut self) {
        self.clients.clear();
    }

    /// Removes a client, and returns its connection.
    pub fn take_client(&mut self, id: ClientId) -> Option<Connection> {
        let index = self.clients.iter().position(|client| client.id == id)?;
        Some(self.clients.remove(index).connection)
    }

    /// A client's descriptor.
    pub fn client_fd(&self, id: ClientId) -> Option<BorrowedFd<'_>> {
        self.clients.iter().find(|client| client.id == id).map(|client| client.connection.as_fd())
    }

    /// Removes the socket from the file system.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Client {
    /// Sends as much as the client has room for; whether it stays connected.
    fn flush(&mut self) -> bool {
        self.connection.flush().is_ok() && (self.state != ClientState::Done || self.connection.unsent_count() > 0)
    }
}

/// Creates the control socket's folder, but none above it: a wrong path leaves no folders.
fn create_folder_of(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The server creates the last directory, so the directory above it is missing.
            let above = folder.parent().unwrap_or(folder).display();
            let message = format!("the directory {above} does not exist; create it or specify another path");
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_os::poll_set::PollSet;

    /// A control socket in a folder of its own.
    fn control_socket() -> (tempfile::TempDir, ControlSocket) {
        let folder = tempfile::tempdir().expect("a folder");
        match ControlSocket::open(&folder.path().join("run/control.sock")).expect("opened") {
            Opened::Created(control) => (folder, control),
            Opened::InUse(_) => panic!("the path is new"),
        }
    }

    /// The events that arrive until the connection is closed.
    fn events(client: &mut Connection) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            match client.recv().expect("received") {
                Received::Message(Message::Event(event), _) => events.push(event),
                Received::Message(other, _) => panic!("{other:?}"),
                Received::WouldBlock => PollSet::new([client.as_fd()]).wait(None).expect("waited"),
                Received::Closed => return events,
            }
        }
    }

    #[test]
    fn command_is_received_and_its_answer_sent() {
        let (_folder, mut control) = control_socket();
        let mut client = Connection::connect(control.path()).expect("connected");
        assert_eq!(control.receive_commands(), []);
        client.send(&Message::Command(Command::Reload { forced_zones: Vec::new() })).expect("sent");
        let commands = control.receive_commands();
        let [(id, Command::Reload { .. })] = commands[..] else { panic!("{commands:?}") };
        control.send_stdout(id, "out");
        control.send_stderr(id, "err");
        control.finish(id, true);
        let expected =
            [Event::Stdout(Text::new("out")), Event::Stderr(Text::new("err")), Event::Done { is_success: true }];
        assert_eq!(events(&mut client), expected);
    }

    #[test]
    fn request_of_another_version_gets_a_reason() {
        let (_folder, mut control) = control_socket();
        let old = sanderling_os::seqpacket::SeqpacketSocket::connect(control.path()).expect("connected");
        assert!(old.send(b"SDLG\x01\x01\0\0", &[]).expect("sent"));
        assert_eq!(control.receive_commands(), []);
        let events = events(&mut Connection::new(old));
        let [Event::Stderr(reason), Event::Done { is_success: false }] = &events[..] else { panic!("{events:?}") };
        assert!(reason.contains("protocol version 1, and this program version 2; use the"), "{reason}");
    }

    #[test]
    fn answering_socket_is_in_use_and_an_orphaned_one_is_replaced() {
        let (_folder, control) = control_socket();
        let path = control.path().to_owned();
        assert!(matches!(ControlSocket::open(&path), Ok(Opened::InUse(_))));
        drop(control);
        assert!(matches!(ControlSocket::open(&path), Ok(Opened::Created(_))));
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "a file").expect("written");
        assert_eq!(ControlSocket::open(&path).expect_err("a file").kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn only_the_last_folder_is_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = ControlSocket::open(&folder.path().join("a/b/control.sock")).expect_err("a is missing");
        assert!(error.to_string().contains("a does not exist; create it"), "{error}");
        assert!(!folder.path().join("a").exists());
    }
}
