//! Sockets within this process, and within the test program started again.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

fn socket_path() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("created");
    let path = directory.path().join("socket");
    (directory, path)
}

#[track_caller]
fn pair() -> (SeqpacketSocket, SeqpacketSocket) {
    SeqpacketSocket::pair().expect("created")
}

#[track_caller]
fn received(endpoint: &SeqpacketSocket) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    match endpoint.receive(&mut buffer).expect("received") {
        Received::Message { length_bytes, descriptors, .. } => (buffer[..length_bytes].to_vec(), descriptors),
        other => panic!("not a message: {other:?}"),
    }
}

#[track_caller]
fn check_empty(endpoint: &SeqpacketSocket) {
    let found = endpoint.receive(&mut [0; MESSAGE_BYTES_MAX]).expect("no error");
    assert!(matches!(found, Received::WouldBlock), "{found:?}");
}

#[track_caller]
fn check_closed(endpoint: &SeqpacketSocket) {
    let found = endpoint.receive(&mut [0; MESSAGE_BYTES_MAX]).expect("no error");
    assert!(matches!(found, Received::Closed), "{found:?}");
}

/// A descriptor that its inode identifies.
fn file() -> OwnedFd {
    rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("created")
}

fn inode(descriptor: impl AsFd) -> u64 {
    rustix::fs::fstat(descriptor).expect("open").st_ino
}

fn flags_of(descriptor: impl AsFd) -> (bool, bool) {
    let closes = rustix::io::fcntl_getfd(&descriptor).expect("open").contains(rustix::io::FdFlags::CLOEXEC);
    let is_nonblocking = rustix::fs::fcntl_getfl(&descriptor).expect("open").contains(rustix::fs::OFlags::NONBLOCK);
    (closes, is_nonblocking)
}

#[test]
fn messages_keep_their_boundaries_and_order() {
    let (one, other) = pair();
    check_empty(&other);
    for message in [&b"a"[..], b"second", &[3; MESSAGE_BYTES_MAX]] {
        assert!(one.send(message, &[]).expect("sent"));
    }
    assert!(other.send(b"the other way", &[]).expect("sent"));
    assert_eq!(received(&other).0, b"a");
    assert_eq!(received(&other).0, b"second");
    assert_eq!(received(&other).0, [3; MESSAGE_BYTES_MAX]);
    check_empty(&other);
    assert_eq!(received(&one).0, b"the other way");
}

#[test]
fn received_descriptors_are_close_on_exec() {
    let (one, other) = pair();
    let files: Vec<OwnedFd> = (0..DESCRIPTORS_PER_MESSAGE_MAX).map(|_| file()).collect();
    for count in [1, 2, DESCRIPTORS_PER_MESSAGE_MAX] {
        let passed: Vec<BorrowedFd<'_>> = files[..count].iter().map(AsFd::as_fd).collect();
        assert!(one.send(b"with files", &passed).expect("sent"));
        let (message, descriptors) = received(&other);
        assert_eq!(message, b"with files");
        let sent: Vec<u64> = files[..count].iter().map(inode).collect();
        assert_eq!(descriptors.iter().map(inode).collect::<Vec<_>>(), sent);
        assert!(descriptors.iter().all(|descriptor| flags_of(descriptor).0));
    }
}

#[test]
fn message_out_of_range_is_not_sent() {
    let (one, other) = pair();
    let file = file();
    let too_many = vec![file.as_fd(); DESCRIPTORS_PER_MESSAGE_MAX + 1];
    for (message, descriptors, reason) in [
        (&b""[..], &[][..], "message of 0 bytes, expected 1 to 4096"),
        (&[0; MESSAGE_BYTES_MAX + 1], &[], "message of 4097 bytes, expected 1 to 4096"),
        (b"x", &too_many, "message with 251 descriptors, expected at most 250"),
    ] {
        let error = one.send(message, descriptors).expect_err("refused");
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidInput, reason));
    }
    check_empty(&other);
}

#[test]
fn message_beyond_a_limit_is_refused_and_its_descriptors_are_closed() {
    for (message_bytes, count, expected) in [
        (MESSAGE_BYTES_MAX + 1, 1, "message of more than 4096 bytes"),
        (1, DESCRIPTORS_PER_MESSAGE_MAX + 3, "message with more than 250 descriptors"),
    ] {
        let (one, other) = pair();
        let (reader, writer) = std::io::pipe().expect("made");
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE_MAX + 3))];
        let passed = vec![writer.as_fd(); count];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
        let message = vec![0; message_bytes];
        sendmsg(&one, &[IoSlice::new(&message)], &mut ancillary, SendFlags::empty()).expect("sent");
        drop(writer);
        let error = other.receive(&mut [0; MESSAGE_BYTES_MAX]).expect_err(expected);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().starts_with(expected), "{error}");
        // The end of file proves that the copies of the writer were closed.
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]).expect("read"), 0);
        one.send(b"the next message", &[]).expect("sent");
        assert_eq!(received(&other).0, b"the next message");
    }
}

#[test]
fn send_to_a_full_peer_succeeds_after_it_has_read() {
    let (one, other) = pair();
    let mut sent_count = 0;
    while one.send(&[0; MESSAGE_BYTES_MAX], &[]).expect("no error") {
        sent_count += 1;
        assert!(sent_count < 100_000, "the kernel's buffers are bounded");
    }
    for _ in 0..sent_count {
        assert_eq!(received(&other).0.len(), MESSAGE_BYTES_MAX);
    }
    check_empty(&other);
    assert!(one.send(b"again", &[]).expect("no error"));
}

#[test]
fn messages_of_a_closed_peer_arrive_even_if_it_left_messages_unread() {
    let (one, other) = pair();
    assert!(one.send(b"never read", &[]).expect("sent"));
    assert!(other.send(b"first", &[]).expect("sent"));
    assert!(other.send(b"second", &[]).expect("sent"));
    drop(other);
    assert_eq!(received(&one).0, b"first");
    assert_eq!(received(&one).0, b"second");
    check_closed(&one);
    assert_eq!(one.send(b"x", &[]).expect_err("closed").raw_os_error(), Some(libc::EPIPE));
    check_closed(&one);
}

#[test]
fn from_fd_accepts_only_a_seqpacket_socket() {
    let (one, other) = pair();
    let number = one.as_fd().as_raw_fd();
    let descriptor = OwnedFd::from(one);
    rustix::io::ioctl_fionbio(&descriptor, false).expect("set");
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).expect("set");
    let one = SeqpacketSocket::from_fd(descriptor).expect("accepted");
    assert_eq!(one.as_fd().as_raw_fd(), number);
    assert_eq!(flags_of(&one), (true, false));
    check_empty(&one);
    assert!(other.send(b"x", &[]).expect("sent"));
    assert_eq!(received(&one).0, b"x");

    let (stream, _) = std::os::unix::net::UnixStream::pair().expect("made");
    let error = SeqpacketSocket::from_fd(stream.into()).expect_err("a stream");
    assert!(error.to_string().ends_with("is not a Unix SOCK_SEQPACKET socket"), "{error}");
    let error = SeqpacketSocket::from_fd(file()).expect_err("no socket");
    assert!(error.to_string().starts_with("getsockopt(SO_TYPE)"), "{error}");
    let (one, _other) = pair();
    let error = SeqpacketListener::from_fd(one.into()).expect_err("connected");
    assert!(error.to_string().ends_with("is not a listening socket"), "{error}");
}

#[test]
fn listener_accepts_connections() {
    let (_directory, path) = socket_path();
    let listener = SeqpacketListener::bind(&path, 0o600).expect("bound");
    assert!(listener.accept().expect("no error").is_none());
    let client = SeqpacketSocket::connect(&path).expect("connected");
    assert!(client.send(b"before it is accepted", &[]).expect("sent"));
    let accepted = listener.accept().expect("no error").expect("a connection");
    assert!(listener.accept().expect("no error").is_none());
    assert_eq!(received(&accepted).0, b"before it is accepted");
    for endpoint in [&client, &accepted] {
        assert_eq!(flags_of(endpoint), (true, true));
    }
    let listener = SeqpacketListener::from_fd(listener.0).expect("accepted");
    let _client = SeqpacketSocket::connect(&path).expect("connected");
    assert!(listener.accept().expect("no error").is_some());
}

#[test]
fn error_has_the_call_and_the_path() {
    let (_directory, path) = socket_path();
    let shown = path.display().to_string();
    let check = |error: io::Error, kind: io::ErrorKind, call: &str| {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().starts_with(&format!("{call}(\"{shown}")), "{error}");
    };
    check(SeqpacketSocket::connect(&path).expect_err("no path"), io::ErrorKind::NotFound, "connect");
    drop(SeqpacketListener::bind(&path, 0o600).expect("bound"));
    // A child that another test has just forked holds the listener until it executes its program.
    let refused = loop {
        match SeqpacketSocket::connect(&path) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
            _ => std::thread::yield_now(),
        }
    };
    check(refused, io::ErrorKind::ConnectionRefused, "connect");
    check(SeqpacketListener::bind(&path, 0o600).expect_err("the path exists"), io::ErrorKind::AddrInUse, "bind");
    let long = PathBuf::from(format!("{shown}{}", "x".repeat(108)));
    check(SeqpacketListener::bind(&long, 0o600).expect_err("too long"), io::ErrorKind::InvalidFilename, "bind");
}

#[test]
fn connect_to_a_full_backlog_fails_without_blocking() {
    let (_directory, path) = socket_path();
    let _listener = SeqpacketListener::bind(&path, 0o600).expect("bound");
    let mut clients = Vec::new();
    let error = loop {
        match SeqpacketSocket::connect(&path) {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
        assert!(clients.len() <= BACKLOG as usize + 1, "the backlog is bounded");
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
}

/// The umask belongs to the process, so this test runs itself again in processes with other umasks.
#[test]
fn mode_of_the_path_is_the_one_asked_for_less_the_umask() {
    const DIRECTORY: &str = "SANDERLING_TEST_DIRECTORY";
    const TEST: &str = "seqpacket::tests::mode_of_the_path_is_the_one_asked_for_less_the_umask";
    let modes = [0o600, 0o660, 0o666];
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        for mode in modes {
            SeqpacketListener::bind(&PathBuf::from(&directory).join(format!("{mode:o}")), mode).expect("bound");
        }
        return;
    }
    for (umask, expected) in [("0", modes), ("027", [0o600, 0o640, 0o640]), ("077", [0o600; 3])] {
        let directory = tempfile::tempdir().expect("created");
        let script = format!("umask {umask}; exec \"$0\" --exact {TEST}");
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).arg(std::env::current_exe().expect("known")).env(DIRECTORY, directory.path());
        let output = command.output().expect("run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let found = modes.map(|mode| {
            let path = directory.path().join(format!("{mode:o}"));
            std::fs::metadata(path).expect("bound").permissions().mode() & 0o7777
        });
        assert_eq!(found, expected, "umask {umask}");
    }
}

#[test]
fn kernel_names_the_sender() {
    let (one, other) = pair();
    let sender = || {
        assert!(one.send(b"a", &[file().as_fd()]).expect("sent"));
        match other.receive(&mut [0; MESSAGE_BYTES_MAX]).expect("received") {
            Received::Message { sender, descriptors, .. } if descriptors.len() == 1 => sender,
            found => panic!("{found:?}"),
        }
    };
    assert_eq!(sender(), None);
    other.identify_senders().expect("set");
    let own = Sender { pid: std::process::id().cast_signed(), uid: rustix::process::getuid().as_raw() };
    assert_eq!(sender(), Some(own));
}
