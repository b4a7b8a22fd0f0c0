//! Unix sockets that carry messages and file descriptors between local processes (`SOCK_SEQPACKET`, unix(7)).
//!
//! A message arrives whole or not at all, together with its descriptors. No call blocks; a caller waits for the
//! descriptor. The peer is not trusted: a message above the limits is refused as a whole, and its descriptors are
//! closed.

use crate::cloexec;
use crate::counters::{Syscall, count};
use crate::error::with_context;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, UCred, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with, socketpair, sockopt,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Bytes of one message.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// Descriptors of one message; the kernel's limit is 253 (`SCM_MAX_FD`).
pub const DESCRIPTORS_PER_MESSAGE_MAX: usize = 250;

/// Connections that may wait in a listener to be accepted.
const BACKLOG: i32 = 16;

/// Tries of a call that fails because of a signal, or of a peer that closed without reading all messages.
const TRIES_MAX: usize = 4;

const CREATION_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE_MAX), ScmCredentials(1));

/// An end of a connection: non-blocking, and close-on-exec from creation.
#[derive(Debug)]
pub struct SeqpacketSocket(OwnedFd);

/// The process that has sent a message, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The sender's process ID.
    pub pid: i32,
    /// The sender's user ID.
    pub uid: u32,
}

/// The result of receiving.
#[derive(Debug)]
pub enum Received {
    /// A message at the start of the buffer, with its descriptors, which are close-on-exec.
    Message {
        /// The message's length, 1 to [`MESSAGE_BYTES_MAX`].
        length_bytes: usize,
        /// At most [`DESCRIPTORS_PER_MESSAGE_MAX`].
        descriptors: Vec<OwnedFd>,
        /// The message's sender, after [`SeqpacketSocket::identify_senders`].
        sender: Option<Sender>,
    },
    /// No message has arrived.
    WouldBlock,
    /// The peer has closed its end, and all its messages were received.
    Closed,
}

impl SeqpacketSocket {
    /// Creates two sockets that are connected to each other.
    pub fn pair() -> io::Result<(SeqpacketSocket, SeqpacketSocket)> {
        count(Syscall::Socketpair);
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, CREATION_FLAGS, None)
            .map_err(|errno| with_context("socketpair", "SOCK_SEQPACKET", &errno.into()))?;
        Ok((SeqpacketSocket(one), SeqpacketSocket(other)))
    }

    /// Connects to the listener at `path`. `ConnectionRefused` means that no process listens there, `WouldBlock` that
    /// its backlog is full.
    pub fn connect(path: &Path) -> io::Result<SeqpacketSocket> {
        let address = address_of(path, "connect")?;
        let socket = new_socket(path)?;
        count(Syscall::Connect);
        connect(&socket, &address).map_err(|errno| with_context("connect", path.display(), &errno.into()))?;
        Ok(SeqpacketSocket(socket))
    }

    /// Takes over a socket that was inherited or received; an error if it is not a Unix `SOCK_SEQPACKET` socket.
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<SeqpacketSocket> {
        check_type(&descriptor)?;
        Ok(SeqpacketSocket(descriptor))
    }

    /// From now on the kernel names the sender of each message that is received (`SO_PASSCRED`, unix(7)). `SO_PEERCRED`
    /// of a socket that has connected names the process that listened, which may have ended.
    pub fn identify_senders(&self) -> io::Result<()> {
        count(Syscall::Setsockopt);
        sockopt::set_socket_passcred(&self.0, true)
            .map_err(|errno| with_context("setsockopt(SO_PASSCRED)", "a Unix socket", &errno.into()))
    }

    /// The descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends a message of 1 to [`MESSAGE_BYTES_MAX`] bytes with copies of at most [`DESCRIPTORS_PER_MESSAGE_MAX`]
    /// descriptors; other sizes are refused (`InvalidInput`).
    ///
    /// `Ok(false)` means that the peer's buffer is full and nothing was sent. A peer that has closed its end is an
    /// error (`BrokenPipe`, `ConnectionReset`), never a signal.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<bool> {
        // An empty message would look like the end of the connection.
        if message.is_empty() || message.len() > MESSAGE_BYTES_MAX {
            let length = message.len();
            return Err(invalid_input(format!("message of {length} bytes, expected 1 to {MESSAGE_BYTES_MAX}")));
        }
        if descriptors.len() > DESCRIPTORS_PER_MESSAGE_MAX {
            let found = descriptors.len();
            return Err(invalid_input(format!(
                "message with {found} descriptors, expected at most {DESCRIPTORS_PER_MESSAGE_MAX}"
            )));
        }
        let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let has_room = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(has_room, "the space is for the maximum checked above");
        }
        // O_NONBLOCK is shared with the other processes that have the socket; DONTWAIT does not depend on it.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        for _ in 0..TRIES_MAX {
            count(Syscall::Sendmsg);
            match sendmsg(&self.0, &[IoSlice::new(message)], &mut ancillary, flags) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::INTR.into())
    }

    /// Receives the next message. A message that is too long, or whose descriptors exceed this process's limit, is
    /// refused (`InvalidData`), and its descriptors are closed.
    pub fn receive(&self, buffer: &mut [u8; MESSAGE_BYTES_MAX]) -> io::Result<Received> {
        let mut last = Errno::INTR;
        for _ in 0..TRIES_MAX {
            match self.receive_once(buffer) {
                // A peer that closes before it has read all causes a reset, which the kernel reports once, before the
                // messages that wait here.
                Err(errno @ (Errno::INTR | Errno::CONNRESET)) => last = errno,
                Err(Errno::AGAIN) => return Ok(Received::WouldBlock),
                Err(errno) => return Err(errno.into()),
                Ok(raw) => return raw.validate(),
            }
        }
        Err(last.into())
    }

    fn receive_once(&self, buffer: &mut [u8]) -> Result<RawMessage, Errno> {
        let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        count(Syscall::Recvmsg);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let head = recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
        let (mut descriptors, mut sender) = (Vec::new(), None);
        for message in ancillary.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(more) => descriptors.extend(more),
                RecvAncillaryMessage::ScmCredentials(UCred { pid, uid, .. }) => {
                    sender = Some(Sender { pid: pid.as_raw_nonzero().get(), uid: uid.as_raw() });
                }
                _ => {}
            }
        }
        Ok(RawMessage { length_bytes: head.bytes, flags: head.flags, descriptors, sender })
    }
}

struct RawMessage {
    length_bytes: usize,
    flags: ReturnFlags,
    descriptors: Vec<OwnedFd>,
    sender: Option<Sender>,
}

impl RawMessage {
    fn validate(self) -> io::Result<Received> {
        if self.flags.contains(ReturnFlags::TRUNC) {
            return Err(invalid_data(format!("message of more than {MESSAGE_BYTES_MAX} bytes")));
        }
        if self.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > DESCRIPTORS_PER_MESSAGE_MAX {
            return Err(invalid_data(format!(
                "message with more than {DESCRIPTORS_PER_MESSAGE_MAX} descriptors, or more than this process may open; \
                 in that case raise LimitNOFILE= or `ulimit -n`"
            )));
        }
        if self.length_bytes == 0 {
            return Ok(Received::Closed);
        }
        let RawMessage { length_bytes, descriptors, sender, .. } = self;
        Ok(Received::Message { length_bytes, descriptors, sender })
    }
}

impl AsFd for SeqpacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<SeqpacketSocket> for OwnedFd {
    fn from(endpoint: SeqpacketSocket) -> OwnedFd {
        endpoint.0
    }
}

/// A listening socket at a path. Dropping it leaves the path, since another process may have the socket too.
#[derive(Debug)]
pub struct SeqpacketListener(OwnedFd);

impl SeqpacketListener {
    /// Listens at `path`, which must not exist (`AddrInUse`). A process needs write permission on the path to connect:
    /// `mode` applies from creation, less the umask.
    pub fn bind(path: &Path, mode: u32) -> io::Result<SeqpacketListener> {
        let address = address_of(path, "bind")?;
        let socket = new_socket(path)?;
        // `bind` gives the path the mode of the socket, so that it never has a wider one.
        count(Syscall::Fchmod);
        rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(mode))
            .map_err(|errno| with_context("fchmod", path.display(), &errno.into()))?;
        count(Syscall::Bind);
        bind(&socket, &address).map_err(|errno| with_context("bind", path.display(), &errno.into()))?;
        count(Syscall::Listen);
        listen(&socket, BACKLOG).map_err(|errno| with_context("listen", path.display(), &errno.into()))?;
        Ok(SeqpacketListener(socket))
    }

    /// Takes over an inherited listener; an error if it is not a listening Unix `SOCK_SEQPACKET` socket.
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<SeqpacketListener> {
        let object = check_type(&descriptor)?;
        count(Syscall::Fionbio);
        rustix::io::ioctl_fionbio(&descriptor, true)
            .map_err(|errno| with_context("ioctl(FIONBIO)", &object, &errno.into()))?;
        count(Syscall::Getsockopt);
        if !sockopt::socket_acceptconn(&descriptor)? {
            return Err(invalid_data(format!("descriptor {} is not a listening socket", descriptor.as_raw_fd())));
        }
        Ok(SeqpacketListener(descriptor))
    }

    /// Accepts the next connection; `Ok(None)` if none waits. Errors are local ones (`EMFILE`, `ENOMEM`).
    pub fn accept(&self) -> io::Result<Option<SeqpacketSocket>> {
        for _ in 0..TRIES_MAX {
            count(Syscall::Accept4);
            match accept_with(&self.0, CREATION_FLAGS) {
                Ok(socket) => return Ok(Some(SeqpacketSocket(socket))),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }
}

impl AsFd for SeqpacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn new_socket(path: &Path) -> io::Result<OwnedFd> {
    count(Syscall::Socket);
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, CREATION_FLAGS, None)
        .map_err(|errno| with_context("socket", path.display(), &errno.into()))
}

/// The socket address for `path`, which the kernel limits to 108 bytes including a NUL.
fn address_of(path: &Path, call: &str) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|errno| match errno {
        Errno::NAMETOOLONG => {
            let error = io::Error::new(io::ErrorKind::InvalidFilename, "a socket path has at most 107 bytes");
            with_context(call, path.display(), &error)
        }
        _ => with_context(call, path.display(), &errno.into()),
    })
}

/// Makes `descriptor` close-on-exec if it is a Unix `SOCK_SEQPACKET` socket, and an error otherwise. Returns its
/// description.
pub(crate) fn check_type(descriptor: &OwnedFd) -> io::Result<String> {
    let object = format!("descriptor {}", descriptor.as_raw_fd());
    count(Syscall::Getsockopt);
    let kind = sockopt::socket_type(descriptor)
        .map_err(|errno| with_context("getsockopt(SO_TYPE)", &object, &errno.into()))?;
    count(Syscall::Getsockopt);
    let family = sockopt::socket_domain(descriptor)
        .map_err(|errno| with_context("getsockopt(SO_DOMAIN)", &object, &errno.into()))?;
    if kind != SocketType::SEQPACKET || family != AddressFamily::UNIX {
        return Err(invalid_data(format!("{object} is not a Unix SOCK_SEQPACKET socket")));
    }
    cloexec::set(descriptor, &object)?;
    Ok(object)
}

fn invalid_input(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

fn invalid_data(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests;
