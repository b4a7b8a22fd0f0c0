//! Unix sockets that carry bounded messages and descriptors between processes of this machine (`SOCK_SEQPACKET`).
//!
//! A message arrives whole or not at all, and its descriptors arrive with it. Nothing here waits: who wants to wait
//! waits for the descriptor. What comes in may be hostile: it is bounded, and what does not fit is refused as a whole.

use crate::cloexec;
use crate::counters::{Syscall, count};
use crate::error::with_context;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with, socketpair, sockopt,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Octets of one message.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// Descriptors of one message; the kernel's own bound is 253 (`SCM_MAX_FD`).
pub const DESCRIPTORS_PER_MESSAGE_MAX: usize = 250;

/// Connections that wait at a door until they are accepted.
const BACKLOG: i32 = 16;

/// Tries of one call that a signal, or the reset of a peer that left messages behind, has ended early.
const TRIES_MAX: usize = 4;

const CREATION_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE_MAX));

/// One end of a connection. Its descriptor is close-on-exec from birth, and no call on it waits.
#[derive(Debug)]
pub struct SeqpacketSocket(OwnedFd);

/// What a call for a message brought.
#[derive(Debug)]
pub enum Received {
    /// A message, which stands at the start of the buffer, and the descriptors that came with it, close-on-exec.
    Message {
        /// Its octets: 1 to [`MESSAGE_BYTES_MAX`].
        length_bytes: usize,
        /// At most [`DESCRIPTORS_PER_MESSAGE_MAX`].
        descriptors: Vec<OwnedFd>,
    },
    /// Nothing is there now.
    WouldBlock,
    /// The peer is gone, and all it has sent was received.
    Closed,
}

/// Who connected, or made the pair: as the kernel saw it at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The number of the process; 0 when it cannot be seen from here (another PID namespace).
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

impl SeqpacketSocket {
    /// Two ends that are connected to each other.
    pub fn pair() -> io::Result<(SeqpacketSocket, SeqpacketSocket)> {
        count(Syscall::Socketpair);
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, CREATION_FLAGS, None)
            .map_err(|errno| with_context("socketpair", "a pair of packet sockets", &errno.into()))?;
        Ok((SeqpacketSocket(one), SeqpacketSocket(other)))
    }

    /// Connects to the door at `path`. `ConnectionRefused` tells that nobody listens there any more, `WouldBlock` that
    /// too many others wait there.
    pub fn connect(path: &Path) -> io::Result<SeqpacketSocket> {
        let address = address_of(path, "connect")?;
        let socket = new_socket(path)?;
        count(Syscall::Connect);
        connect(&socket, &address).map_err(|errno| with_context("connect", path.display(), &errno.into()))?;
        Ok(SeqpacketSocket(socket))
    }

    /// Takes over an end that was inherited or received; refuses whatever is no packet socket of this machine.
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<SeqpacketSocket> {
        let descriptor = adopt_packet_socket(descriptor)?;
        Ok(SeqpacketSocket(descriptor))
    }

    /// Sends a message of 1 to [`MESSAGE_BYTES_MAX`] octets, and with it copies of at most
    /// [`DESCRIPTORS_PER_MESSAGE_MAX`] descriptors; other sizes are refused (`InvalidInput`).
    ///
    /// `Ok(false)`: the peer's buffer is full, and nothing was sent. A peer that is gone is an error (`BrokenPipe`,
    /// `ConnectionReset`), never a signal.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<bool> {
        // An empty one could not be told from the end of the connection.
        if message.is_empty() || message.len() > MESSAGE_BYTES_MAX {
            return Err(refused(format!(
                "a message of {} octets: 1 to {MESSAGE_BYTES_MAX} can be sent",
                message.len()
            )));
        }
        if descriptors.len() > DESCRIPTORS_PER_MESSAGE_MAX {
            let found = descriptors.len();
            return Err(refused(format!(
                "{found} descriptors in one message: {DESCRIPTORS_PER_MESSAGE_MAX} can be sent"
            )));
        }
        let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let has_room = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(has_room, "the space is made for the most descriptors that are let through above");
        }
        // A descriptor's O_NONBLOCK is shared with whoever else has the socket: that no call waits is said here again.
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

    /// Receives the next message. One that is longer than the buffer, or whose descriptors do not all fit into this
    /// process, is refused (`InvalidData`), and its descriptors are closed.
    pub fn receive(&self, buffer: &mut [u8; MESSAGE_BYTES_MAX]) -> io::Result<Received> {
        let mut last = Errno::INTR;
        for _ in 0..TRIES_MAX {
            match self.receive_once(buffer) {
                // A peer that went away before it had read all leaves a reset, which the kernel tells once, and tells
                // before the messages that wait here.
                Err(errno @ (Errno::INTR | Errno::CONNRESET)) => last = errno,
                Err(Errno::AGAIN) => return Ok(Received::WouldBlock),
                Err(errno) => return Err(errno.into()),
                Ok(arrived) => return arrived.checked(),
            }
        }
        Err(last.into())
    }

    fn receive_once(&self, buffer: &mut [u8]) -> Result<Arrived, Errno> {
        let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        count(Syscall::Recvmsg);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let head = recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                descriptors.extend(more);
            }
        }
        Ok(Arrived { length_bytes: head.bytes, flags: head.flags, descriptors })
    }

    /// Who is at the other end (`SO_PEERCRED`).
    pub fn peer_credentials(&self) -> io::Result<PeerCredentials> {
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        count(Syscall::Getsockopt);
        // Not by rustix, whose process number may not be 0: the kernel does say 0 for one that cannot be seen from here.
        // SAFETY: the kernel writes at most `length` octets into `credentials`, which is that long and all integers.
        let done = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut length,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PeerCredentials { pid: credentials.pid, uid: credentials.uid, gid: credentials.gid })
    }
}

/// What one call of the kernel brought, not yet looked at.
struct Arrived {
    length_bytes: usize,
    flags: ReturnFlags,
    descriptors: Vec<OwnedFd>,
}

impl Arrived {
    fn checked(self) -> io::Result<Received> {
        if self.flags.contains(ReturnFlags::TRUNC) {
            return Err(untrusted(format!("a message of more than {MESSAGE_BYTES_MAX} octets")));
        }
        if self.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > DESCRIPTORS_PER_MESSAGE_MAX {
            return Err(untrusted(format!(
                "a message with more descriptors than {DESCRIPTORS_PER_MESSAGE_MAX}, or than this process may open: \
                 raise LimitNOFILE= or `ulimit -n`"
            )));
        }
        if self.length_bytes == 0 {
            return Ok(Received::Closed);
        }
        Ok(Received::Message { length_bytes: self.length_bytes, descriptors: self.descriptors })
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

/// A listening socket at a path. The path stays when the door is dropped: another process may have the socket too.
#[derive(Debug)]
pub struct SeqpacketListener(OwnedFd);

impl SeqpacketListener {
    /// Listens at `path`, where nothing may be yet (`AddrInUse`). Who may write to the path may connect: `mode` tells
    /// who, and is in force from birth; the process's umask may take away from it, as from a file's.
    pub fn bind(path: &Path, mode: u32) -> io::Result<SeqpacketListener> {
        let address = address_of(path, "bind")?;
        let socket = new_socket(path)?;
        // The path gets the mode that the socket has when it is bound: so there is no moment with a wider one.
        count(Syscall::Fchmod);
        rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(mode))
            .map_err(|errno| with_context("fchmod", path.display(), &errno.into()))?;
        count(Syscall::Bind);
        bind(&socket, &address).map_err(|errno| with_context("bind", path.display(), &errno.into()))?;
        count(Syscall::Listen);
        listen(&socket, BACKLOG).map_err(|errno| with_context("listen", path.display(), &errno.into()))?;
        Ok(SeqpacketListener(socket))
    }

    /// Takes over a door that was inherited; refuses whatever is no listening packet socket of this machine.
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<SeqpacketListener> {
        let descriptor = adopt_packet_socket(descriptor)?;
        count(Syscall::Getsockopt);
        if !sockopt::socket_acceptconn(&descriptor)? {
            return Err(untrusted(format!("descriptor {} does not listen", descriptor.as_raw_fd())));
        }
        Ok(SeqpacketListener(descriptor))
    }

    /// The next connection that waits; `Ok(None)` when none does. An error is one of this machine (`EMFILE`, `ENOMEM`).
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

/// The kernel has 108 octets for a path, its NUL included.
fn address_of(path: &Path, call: &str) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|errno| match errno {
        Errno::NAMETOOLONG => {
            let error = io::Error::new(io::ErrorKind::InvalidFilename, "a socket's path has at most 107 octets");
            with_context(call, path.display(), &error)
        }
        _ => with_context(call, path.display(), &errno.into()),
    })
}

/// Checks what `descriptor` is, and makes it as if it had been made here.
fn adopt_packet_socket(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    let object = format!("descriptor {}", descriptor.as_raw_fd());
    count(Syscall::Getsockopt);
    let kind = sockopt::socket_type(&descriptor)
        .map_err(|errno| with_context("getsockopt(SO_TYPE)", &object, &errno.into()))?;
    count(Syscall::Getsockopt);
    let family = sockopt::socket_domain(&descriptor)
        .map_err(|errno| with_context("getsockopt(SO_DOMAIN)", &object, &errno.into()))?;
    if kind != SocketType::SEQPACKET || family != AddressFamily::UNIX {
        return Err(untrusted(format!("{object} is no Unix packet socket (SOCK_SEQPACKET)")));
    }
    cloexec::set(&descriptor, &object)?;
    count(Syscall::Fionbio);
    rustix::io::ioctl_fionbio(&descriptor, true)
        .map_err(|errno| with_context("ioctl(FIONBIO)", &object, &errno.into()))?;
    Ok(descriptor)
}

fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

fn untrusted(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests;
