//! Packet sockets between threads of the test, and between it and itself run again.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A new folder, which goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sanderling-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("created");
        Folder(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[track_caller]
fn pair() -> (SeqpacketSocket, SeqpacketSocket) {
    SeqpacketSocket::pair().expect("made")
}

#[track_caller]
fn received(endpoint: &SeqpacketSocket) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    match endpoint.receive(&mut buffer).expect("received") {
        Received::Message { length_bytes, descriptors } => (buffer[..length_bytes].to_vec(), descriptors),
        other => panic!("no message: {other:?}"),
    }
}

#[track_caller]
fn check_nothing(endpoint: &SeqpacketSocket) {
    let found = endpoint.receive(&mut [0; MESSAGE_BYTES_MAX]).expect("asked");
    assert!(matches!(found, Received::WouldBlock), "{found:?}");
}

#[track_caller]
fn check_ended(endpoint: &SeqpacketSocket) {
    let found = endpoint.receive(&mut [0; MESSAGE_BYTES_MAX]).expect("asked");
    assert!(matches!(found, Received::Closed), "{found:?}");
}

/// Any descriptor that can be told from others: by its inode.
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
fn messages_keep_their_borders_and_their_order() {
    let (one, other) = pair();
    check_nothing(&other);
    for message in [&b"a"[..], b"second", &[3; MESSAGE_BYTES_MAX]] {
        assert!(one.send(message, &[]).expect("sent"));
    }
    assert!(other.send(b"the other way", &[]).expect("sent"));
    assert_eq!(received(&other).0, b"a");
    assert_eq!(received(&other).0, b"second");
    assert_eq!(received(&other).0, [3; MESSAGE_BYTES_MAX]);
    check_nothing(&other);
    assert_eq!(received(&one).0, b"the other way");
}

#[test]
fn descriptors_cross_and_are_closed_on_exec() {
    let (one, other) = pair();
    let files: Vec<OwnedFd> = (0..DESCRIPTORS_PER_MESSAGE_MAX).map(|_| file()).collect();
    for count in [1, 2, DESCRIPTORS_PER_MESSAGE_MAX] {
        let lent: Vec<BorrowedFd<'_>> = files[..count].iter().map(AsFd::as_fd).collect();
        assert!(one.send(b"with files", &lent).expect("sent"));
        let (message, descriptors) = received(&other);
        assert_eq!(message, b"with files");
        let sent: Vec<u64> = files[..count].iter().map(inode).collect();
        assert_eq!(descriptors.iter().map(inode).collect::<Vec<_>>(), sent);
        assert!(descriptors.iter().all(|descriptor| flags_of(descriptor).0));
    }
}

#[test]
fn what_is_out_of_bounds_is_not_sent() {
    let (one, other) = pair();
    let file = file();
    let too_many = vec![file.as_fd(); DESCRIPTORS_PER_MESSAGE_MAX + 1];
    for (message, descriptors, reason) in [
        (&b""[..], &[][..], "a message of 0 octets: 1 to 4096 can be sent"),
        (&[0; MESSAGE_BYTES_MAX + 1], &[], "a message of 4097 octets: 1 to 4096 can be sent"),
        (b"x", &too_many, "251 descriptors in one message: 250 can be sent"),
    ] {
        let error = one.send(message, descriptors).expect_err("refused");
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidInput, reason));
    }
    check_nothing(&other);
}

#[test]
fn a_message_that_is_too_long_is_refused_and_its_descriptors_closed() {
    let (one, other) = pair();
    let (reader, writer) = std::io::pipe().expect("made");
    let writer = OwnedFd::from(writer);
    let lent = [writer.as_fd()];
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&lent)));
    let message = [0; MESSAGE_BYTES_MAX + 1];
    sendmsg(&one, &[IoSlice::new(&message)], &mut ancillary, SendFlags::empty()).expect("sent");
    drop(writer);
    let error = other.receive(&mut [0; MESSAGE_BYTES_MAX]).expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(error.to_string(), "a message of more than 4096 octets");
    // The pipe has no writer left: nobody holds the copy that was sent.
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]).expect("read"), 0);
    one.send(b"the next one is not touched", &[]).expect("sent");
    assert_eq!(received(&other).0, b"the next one is not touched");
}

#[test]
fn more_descriptors_than_the_bound_are_refused() {
    let (one, other) = pair();
    let file = file();
    let lent = vec![file.as_fd(); DESCRIPTORS_PER_MESSAGE_MAX + 3];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE_MAX + 3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&lent)));
    sendmsg(&one, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).expect("sent");
    let error = other.receive(&mut [0; MESSAGE_BYTES_MAX]).expect_err("too many");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().starts_with("a message with more descriptors than 250"), "{error}");
}

#[test]
fn a_full_peer_is_told_and_takes_more_after_it_has_read() {
    let (one, other) = pair();
    let mut sent_count = 0;
    while one.send(&[0; MESSAGE_BYTES_MAX], &[]).expect("no error") {
        sent_count += 1;
        assert!(sent_count < 100_000, "the kernel's buffers have an end");
    }
    for _ in 0..sent_count {
        assert_eq!(received(&other).0.len(), MESSAGE_BYTES_MAX);
    }
    check_nothing(&other);
    assert!(one.send(b"again", &[]).expect("no error"));
}

#[test]
fn a_peer_that_is_gone_is_an_error_of_sending_and_the_end_of_receiving() {
    let (one, other) = pair();
    drop(other);
    assert_eq!(one.send(b"x", &[]).expect_err("gone").raw_os_error(), Some(libc::EPIPE));
    check_ended(&one);
    check_ended(&one);
}

#[test]
fn what_a_peer_sent_before_it_went_arrives_even_if_it_left_messages_unread() {
    let (one, other) = pair();
    assert!(one.send(b"never read", &[]).expect("sent"));
    assert!(other.send(b"first", &[]).expect("sent"));
    assert!(other.send(b"second", &[]).expect("sent"));
    drop(other);
    assert_eq!(received(&one).0, b"first");
    assert_eq!(received(&one).0, b"second");
    check_ended(&one);
}

#[test]
fn the_peer_is_known() {
    let (one, _other) = pair();
    let peer = one.peer_credentials().expect("known");
    assert_eq!(peer.pid.cast_unsigned(), std::process::id());
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    assert_eq!(peer.gid, rustix::process::getegid().as_raw());
}

#[test]
fn only_a_packet_socket_is_adopted() {
    let (one, other) = pair();
    let number = one.as_fd().as_raw_fd();
    let descriptor = OwnedFd::from(one);
    rustix::io::ioctl_fionbio(&descriptor, false).expect("set");
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).expect("set");
    let one = SeqpacketSocket::from_fd(descriptor).expect("adopted");
    assert_eq!(one.as_fd().as_raw_fd(), number);
    assert_eq!(flags_of(&one), (true, true));
    assert!(other.send(b"x", &[]).expect("sent"));
    assert_eq!(received(&one).0, b"x");

    let (stream, _) = std::os::unix::net::UnixStream::pair().expect("made");
    let error = SeqpacketSocket::from_fd(stream.into()).expect_err("a stream");
    assert!(error.to_string().ends_with("is no Unix packet socket (SOCK_SEQPACKET)"), "{error}");
    let error = SeqpacketSocket::from_fd(file()).expect_err("no socket");
    assert!(error.to_string().starts_with("getsockopt(SO_TYPE)"), "{error}");
    let (one, _other) = pair();
    let error = SeqpacketListener::from_fd(one.into()).expect_err("connected");
    assert!(error.to_string().ends_with("does not listen"), "{error}");
}

#[test]
fn a_door_lets_in_who_comes() {
    let folder = Folder::new("door");
    let path = folder.socket();
    let door = SeqpacketListener::bind(&path, 0o600).expect("bound");
    assert!(door.accept().expect("asked").is_none());
    let client = SeqpacketSocket::connect(&path).expect("connected");
    assert!(client.send(b"before it is accepted", &[]).expect("sent"));
    let accepted = door.accept().expect("asked").expect("one waits");
    assert!(door.accept().expect("asked").is_none());
    assert_eq!(received(&accepted).0, b"before it is accepted");
    for endpoint in [&client, &accepted] {
        assert_eq!(flags_of(endpoint), (true, true));
        assert_eq!(endpoint.peer_credentials().expect("known").pid.cast_unsigned(), std::process::id());
    }
    let door = SeqpacketListener::from_fd(door.0).expect("adopted");
    let _client = SeqpacketSocket::connect(&path).expect("connected");
    assert!(door.accept().expect("asked").is_some());
}

#[test]
fn a_failed_call_is_named_with_its_path() {
    let folder = Folder::new("door-errors");
    let path = folder.socket();
    let shown = path.display().to_string();
    #[track_caller]
    fn check(error: &io::Error, kind: io::ErrorKind, start: &str) {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().starts_with(start), "{error}");
    }
    let error = SeqpacketSocket::connect(&path).expect_err("nothing is there");
    check(&error, io::ErrorKind::NotFound, &format!("connect(\"{shown}\") failed: "));
    drop(SeqpacketListener::bind(&path, 0o600).expect("bound"));
    let error = SeqpacketSocket::connect(&path).expect_err("nobody listens any more");
    check(&error, io::ErrorKind::ConnectionRefused, &format!("connect(\"{shown}\") failed: "));
    let error = SeqpacketListener::bind(&path, 0o600).expect_err("something is there");
    check(&error, io::ErrorKind::AddrInUse, &format!("bind(\"{shown}\") failed: "));
    let long = folder.0.join("x".repeat(108));
    let error = SeqpacketListener::bind(&long, 0o600).expect_err("too long");
    check(&error, io::ErrorKind::InvalidFilename, &format!("bind(\"{}\") failed: a socket's path", long.display()));
}

#[test]
fn a_full_door_is_told_and_nobody_waits_before_it() {
    let folder = Folder::new("door-full");
    let _door = SeqpacketListener::bind(&folder.socket(), 0o600).expect("bound");
    let mut clients = Vec::new();
    let error = loop {
        match SeqpacketSocket::connect(&folder.socket()) {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
        assert!(clients.len() <= BACKLOG as usize + 1, "the backlog is a bound");
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
}

#[test]
fn a_client_that_has_gone_before_it_was_accepted_leaves_its_message() {
    let folder = Folder::new("door-gone");
    let door = SeqpacketListener::bind(&folder.socket(), 0o600).expect("bound");
    let client = SeqpacketSocket::connect(&folder.socket()).expect("connected");
    assert!(client.send(b"in a hurry", &[]).expect("sent"));
    drop(client);
    let accepted = door.accept().expect("asked").expect("one waits");
    assert_eq!(received(&accepted).0, b"in a hurry");
    check_ended(&accepted);
}

/// The umask belongs to the whole process: this test runs itself again in processes that have one of their own.
#[test]
fn the_mode_is_never_wider_than_asked_for() {
    const FOLDER: &str = "SANDERLING_TEST_FOLDER";
    const TEST: &str = "seqpacket::tests::the_mode_is_never_wider_than_asked_for";
    let modes = [0o600, 0o660, 0o666];
    if let Some(folder) = std::env::var_os(FOLDER) {
        for mode in modes {
            SeqpacketListener::bind(&PathBuf::from(&folder).join(format!("{mode:o}")), mode).expect("bound");
        }
        return;
    }
    for (umask, expected) in [("0", modes), ("027", [0o600, 0o640, 0o640]), ("077", [0o600; 3])] {
        let folder = Folder::new(&format!("door-umask-{umask}"));
        let script = format!("umask {umask}; exec \"$0\" --exact {TEST}");
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).arg(std::env::current_exe().expect("known")).env(FOLDER, &folder.0);
        let output = command.output().expect("run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let found = modes.map(|mode| {
            let path = folder.0.join(format!("{mode:o}"));
            std::fs::metadata(path).expect("bound").permissions().mode() & 0o7777
        });
        assert_eq!(found, expected, "umask {umask}");
    }
}
