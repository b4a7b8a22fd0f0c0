//! The control socket from the side that answers: a door, whoever has come in, and what they ask for.

use crate::control_message::{Answer, Request, pieces};
use sanderling_os::seqpacket::{MESSAGE_BYTES_MAX, Received, SeqpacketListener, SeqpacketSocket};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Whoever may write to the socket may stop the server: its owner alone.
const MODE: u32 = 0o600;
/// Clients that are let in at once; others wait at the door.
const CLIENTS_MAX: usize = 32;
/// Packets of answers that wait for a client to read.
const UNSENT_MAX: usize = 1_024;
/// How soon a client that reads slowly is asked again whether it has room.
const ROOM_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How long nobody is let in when there is no descriptor for it.
const DOOR_PAUSE: Duration = Duration::from_millis(100);
/// How long a client may stay silent before it asks for something.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    door: SeqpacketListener,
    clients: Vec<Client>,
    next_key: Key,
    /// When the door is opened again after nobody could be let in.
    shut_until: Option<Instant>,
}

/// Names a client.
pub type Key = u64;

#[derive(Debug)]
struct Client {
    key: Key,
    endpoint: SeqpacketSocket,
    since: Instant,
    has_asked: bool,
    /// Packets that it had no room for yet.
    unsent: VecDeque<Vec<u8>>,
    /// It goes when it has read them all.
    is_ended: bool,
}

/// What stood at a path where a control socket is to be.
#[derive(Debug)]
pub enum Opened {
    /// Nothing, or a socket that nobody answered any more: now it is ours.
    Ours(Control),
    /// Somebody who answers.
    Taken(SeqpacketSocket),
}

impl Control {
    /// Opens a control socket at `path`; its folder is made if it is not there.
    ///
    /// # Errors
    /// The path cannot be had, or something else stands there.
    pub fn open(path: &Path) -> io::Result<Opened> {
        match SeqpacketSocket::connect(path) {
            Ok(endpoint) => return Ok(Opened::Taken(endpoint)),
            // Left behind by somebody who ended without clearing up.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // The kernel says the same of what is no socket at all, which is not ours to remove.
                if !fs::symlink_metadata(path)?.file_type().is_socket() {
                    return Err(io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        "something else than a socket stands there",
                    ));
                }
                fs::remove_file(path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                    fs::create_dir_all(folder)?;
                }
            }
            Err(error) => return Err(error),
        }
        let door = SeqpacketListener::bind(path, MODE)?;
        Ok(Opened::Ours(Control { path: path.into(), door, clients: Vec::new(), next_key: 0, shut_until: None }))
    }

    /// Goes on with a socket that was opened by another process.
    pub fn adopt(path: PathBuf, door: OwnedFd) -> io::Result<Control> {
        Ok(Control {
            path,
            door: SeqpacketListener::from_fd(door)?,
            clients: Vec::new(),
            next_key: 0,
            shut_until: None,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket itself, to be handed on.
    pub fn door(&self) -> BorrowedFd<'_> {
        self.door.as_fd()
    }

    /// Lets a client go on here that came in elsewhere and has asked already.
    pub fn let_in(&mut self, client: OwnedFd) -> io::Result<Key> {
        let endpoint = SeqpacketSocket::from_fd(client)?;
        Ok(self.enter(endpoint, true))
    }

    fn enter(&mut self, endpoint: SeqpacketSocket, has_asked: bool) -> Key {
        let key = self.next_key;
        self.next_key += 1;
        let since = Instant::now();
        self.clients.push(Client { key, endpoint, since, has_asked, unsent: VecDeque::new(), is_ended: false });
        key
    }

    /// What to wait for.
    pub fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let is_open = self.clients.len() < CLIENTS_MAX && self.shut_until.is_none();
        let door = is_open.then(|| self.door.as_fd());
        // One that has asked is waited for no longer: it would be readable for ever once it has gone.
        let silent = self.clients.iter().filter(|client| !client.has_asked);
        door.into_iter().chain(silent.map(|client| client.endpoint.as_fd()))
    }

    /// When [`Control::requests`] is to be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let silent = self.clients.iter().filter(|client| !client.has_asked).map(|client| client.since + SILENCE_MAX);
        let slow = self.clients.iter().any(|client| !client.unsent.is_empty());
        silent.chain(slow.then(|| Instant::now() + ROOM_LOOK_INTERVAL)).chain(self.shut_until).min()
    }

    /// Lets in who is at the door, and tells what has been asked since.
    pub fn requests(&mut self) -> Vec<(Key, Request)> {
        if self.shut_until.is_some_and(|until| Instant::now() >= until) {
            self.shut_until = None;
        }
        while self.clients.len() < CLIENTS_MAX && self.shut_until.is_none() {
            match self.door.accept() {
                Ok(Some(endpoint)) => drop(self.enter(endpoint, false)),
                Ok(None) => break,
                // Too many descriptors: whoever is at the door stays there, and keeps it readable.
                Err(_) => self.shut_until = Some(Instant::now() + DOOR_PAUSE),
            }
        }
        self.clients.retain_mut(Client::send_what_waits);
        let mut requests = Vec::new();
        self.clients.retain_mut(|client| {
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            if client.has_asked {
                // One that has gone makes room for others.
                return !matches!(client.endpoint.receive(&mut buffer), Ok(Received::Closed) | Err(_));
            }
            match client.endpoint.receive(&mut buffer) {
                Ok(Received::WouldBlock) => client.since.elapsed() < SILENCE_MAX,
                Ok(Received::Message { length_bytes, .. }) => match Request::decode(&buffer[..length_bytes]) {
                    Ok(request) => {
                        client.has_asked = true;
                        requests.push((client.key, request));
                        true
                    }
                    Err(fault) => {
                        let mut packet = [0; MESSAGE_BYTES_MAX];
                        for answer in [Answer::Err(&format!("{fault}\n")), Answer::End(1)] {
                            // Whoever does not understand the answer either has been told what there is to tell.
                            let _ = client.endpoint.send(answer.encode(&mut packet), &[]);
                        }
                        false
                    }
                },
                Ok(Received::Closed) | Err(_) => false,
            }
        });
        requests
    }

    /// Gives a client text for its standard output.
    pub fn out(&mut self, key: Key, text: &str) {
        pieces(text).for_each(|piece| self.answer(key, &Answer::Out(piece)));
    }

    /// Gives a client text for its standard error.
    pub fn err(&mut self, key: Key, text: &str) {
        pieces(text).for_each(|piece| self.answer(key, &Answer::Err(piece)));
    }

    /// Sends a part of its answer to a client; one that does not read it is turned out.
    fn answer(&mut self, key: Key, answer: &Answer<'_>) {
        let Some(index) = self.clients.iter().position(|client| client.key == key) else { return };
        let mut packet = [0; MESSAGE_BYTES_MAX];
        let client = &mut self.clients[index];
        client.unsent.push_back(answer.encode(&mut packet).to_vec());
        if client.unsent.len() > UNSENT_MAX || !client.send_what_waits() {
            self.clients.remove(index);
        }
    }

    /// Ends the answer to a client, which goes.
    pub fn end(&mut self, key: Key, status: u8) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.key == key) {
            client.is_ended = true;
        }
        self.answer(key, &Answer::End(status));
    }

    /// Ends all conversations: somebody else answers from now on.
    pub fn turn_out_all(&mut self) {
        self.clients.clear();
    }

    /// The connection of a client, which is a client no longer.
    pub fn take(&mut self, key: Key) -> Option<SeqpacketSocket> {
        let index = self.clients.iter().position(|client| client.key == key)?;
        Some(self.clients.remove(index).endpoint)
    }

    /// The connection of a client, to be handed on.
    pub fn client(&self, key: Key) -> Option<BorrowedFd<'_>> {
        self.clients.iter().find(|client| client.key == key).map(|client| client.endpoint.as_fd())
    }

    /// Clears the path. To be done by the last who answers.
    pub fn remove(self) {
        // Gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

impl Client {
    /// Whether it stays: it is there, and has not been sent all that it was to be.
    fn send_what_waits(&mut self) -> bool {
        while let Some(packet) = self.unsent.front() {
            match self.endpoint.send(packet, &[]) {
                Ok(true) => drop(self.unsent.pop_front()),
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
        !self.is_ended
    }
}
