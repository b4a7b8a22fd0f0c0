//! A listener and its connections on one thread: wait, then let each connection that can move move.

use crate::calls::{Events, Poller, accept, lengthen_queue};
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};

/// Octets that one receive takes at most.
const RECEIVE_BYTES_MAX: usize = 16 * 1024;
/// Connections taken from the queue before those that are open get their turn.
const ACCEPTS_PER_TURN_MAX: usize = 256;
/// The number under which the listener is waited for; the connections have their descriptors' numbers.
const LISTENER: u64 = u64::MAX;

/// What is to become of a connection.
pub enum Fate {
    Keep,
    Close,
}

/// What a connection does when its socket can move.
pub trait Advance {
    /// Receives and sends until the socket has nothing more or takes nothing more.
    fn advance(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Fate>;
}

/// Serves for ever; ends by an error of the listener or of the poller only.
pub fn serve<C: Advance>(listener: &TcpListener, mut connect: impl FnMut() -> C) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    lengthen_queue(listener)?;
    let poller = Poller::new()?;
    poller.add(listener, LISTENER)?;
    let mut events = Events::new();
    let mut connections: Vec<Option<(OwnedFd, C)>> = Vec::new();
    let mut buffer = vec![0; RECEIVE_BYTES_MAX];
    let mut has_more_to_accept = false;
    loop {
        if has_more_to_accept {
            has_more_to_accept = accept_some(listener, &poller, &mut connections, &mut buffer, &mut connect)?;
            continue;
        }
        match poller.wait(&mut events) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            waited => waited?,
        }
        for number in events.numbers() {
            if number == LISTENER {
                has_more_to_accept = true;
                continue;
            }
            let place = &mut connections[number as usize];
            let Some((socket, connection)) = place else { continue };
            if is_over(&connection.advance(socket, &mut buffer)) {
                *place = None;
            }
        }
    }
}

/// Takes connections from the queue and lets each move at once, since a request has often come with it. Whether there
/// may be more.
fn accept_some<C: Advance>(
    listener: &TcpListener,
    poller: &Poller,
    connections: &mut Vec<Option<(OwnedFd, C)>>,
    buffer: &mut [u8],
    connect: &mut impl FnMut() -> C,
) -> io::Result<bool> {
    for _ in 0..ACCEPTS_PER_TURN_MAX {
        let socket = match accept(listener) {
            Ok(socket) => socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            // The peer was gone before we came.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error),
        };
        let mut connection = connect();
        if is_over(&connection.advance(&socket, buffer)) {
            continue;
        }
        let number = socket.as_raw_fd() as usize;
        poller.add(&socket, number as u64)?;
        if connections.len() <= number {
            connections.resize_with(number + 1, || None);
        }
        connections[number] = Some((socket, connection));
    }
    Ok(true)
}

fn is_over(advanced: &io::Result<Fate>) -> bool {
    !matches!(advanced, Ok(Fate::Keep))
}
