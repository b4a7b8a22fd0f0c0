//! A listener and its connections on one thread, with edge-triggered epoll.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, listen, recv};
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};

const RECEIVE_BYTES_MAX: usize = 16 * 1024;
const EVENT_COUNT_MAX: usize = 512;
/// Connections accepted before events are handled again.
const ACCEPT_COUNT_MAX: usize = 256;
/// A longer backlog than the standard library's, which 1,000 concurrent clients overrun.
const BACKLOG: i32 = 4096;
/// The listener's token; a connection's token is its descriptor.
const LISTENER: u64 = u64::MAX;

pub(crate) trait Protocol {
    fn receive(&mut self, bytes: &[u8]);
    /// Sends until nothing is left, or the socket accepts no more.
    fn send(&mut self, socket: &OwnedFd) -> Result<(), Errno>;
    fn is_done(&self) -> bool;
}

pub(crate) fn serve<P: Protocol>(listener: &TcpListener, mut open: impl FnMut() -> P) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    listen(listener, BACKLOG)?;
    defer_accept(listener)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), interest)?;
    let mut connections: Vec<Option<(OwnedFd, P)>> = Vec::new();
    let mut buffer = vec![0; RECEIVE_BYTES_MAX];
    let mut events = [const { MaybeUninit::uninit() }; EVENT_COUNT_MAX];
    loop {
        let (ready, _) = match epoll::wait(&epoll, &mut events, None) {
            Err(Errno::INTR) => continue,
            waited => waited?,
        };
        let mut is_accepting = false;
        for token in ready.iter().map(|event| event.data.u64()) {
            is_accepting |= token == LISTENER;
            if let Some(entry) = connections.get_mut(token as usize)
                && let Some((socket, connection)) = entry
                && !is_kept(socket, connection, &mut buffer)
            {
                *entry = None;
            }
        }
        let mut accept_count = 0;
        while is_accepting && accept_count < ACCEPT_COUNT_MAX {
            let socket = match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno.into()),
            };
            accept_count += 1;
            let mut connection = open();
            // The request has often arrived with the connection.
            if is_kept(&socket, &mut connection, &mut buffer) {
                let token = socket.as_raw_fd() as usize;
                epoll::add(&epoll, &socket, EventData::new_u64(token as u64), interest)?;
                connections.resize_with(connections.len().max(token + 1), || None);
                connections[token] = Some((socket, connection));
            }
        }
        if accept_count == ACCEPT_COUNT_MAX {
            // The next wait reports the listener again.
            epoll::modify(&epoll, listener, EventData::new_u64(LISTENER), interest)?;
        }
    }
}

/// Receives and sends as much as possible; whether the connection is kept.
fn is_kept(socket: &OwnedFd, connection: &mut impl Protocol, buffer: &mut [u8]) -> bool {
    matches!(exchange(socket, connection, buffer), Ok(true) | Err(Errno::AGAIN))
}

fn exchange(socket: &OwnedFd, connection: &mut impl Protocol, buffer: &mut [u8]) -> Result<bool, Errno> {
    connection.send(socket)?;
    loop {
        let (received_bytes, _) = recv(socket, &mut *buffer, RecvFlags::empty())?;
        if received_bytes == 0 {
            return Ok(false);
        }
        connection.receive(&buffer[..received_bytes]);
        connection.send(socket)?;
        if connection.is_done() {
            return Ok(false);
        }
        // A short read proves that an edge-triggered socket is empty (epoll(7), question 9).
        if received_bytes < buffer.len() {
            return Ok(true);
        }
    }
}

/// Delivers a connection when its first bytes have arrived (tcp(7), TCP_DEFER_ACCEPT).
fn defer_accept(listener: &TcpListener) -> io::Result<()> {
    let seconds: libc::c_int = 1;
    let length = size_of_val(&seconds) as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
    // SAFETY: the kernel reads `length` bytes of `seconds`, which outlives the call.
    let result = unsafe { libc::setsockopt(listener.as_raw_fd(), level, option, (&raw const seconds).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
