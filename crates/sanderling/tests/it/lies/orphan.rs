//! A server process that has lost its supervisor answers the next one at the control socket, and lies about itself.
//!
//! The process is stopped, and the test plays its part with copies of its descriptors, which only root may do.

use super::{BOTH, may_play, serves, small_directory};
use sanderling_os::poll_set::PollSet;
use sanderling_os::process::ProcessHandle;
use sanderling_os::seqpacket::{MESSAGE_BYTES_MAX, Received, SeqpacketListener, SeqpacketSocket};
use sanderling_os::signals::SIGKILL;
use sanderling_testkit::{
    DEADLINE, TestDirectory, TestServer, descriptor_of, inherited_by, send_as, send_signal, wait_until,
};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server process without a supervisor.
struct Orphan {
    directory: TestDirectory,
    /// The supervisor that was killed, whose output ends with the orphan.
    server: Option<TestServer>,
    pid: u32,
    uid: u32,
    http: SocketAddr,
    dns: SocketAddr,
    control: Option<SeqpacketListener>,
    descriptors: Vec<(Value, OwnedFd)>,
}

/// A process that has nothing to do with the server.
struct Stranger(Child);

impl Stranger {
    fn start() -> Stranger {
        Stranger(Command::new("tail").args(["-f", "/dev/null"]).stdin(Stdio::null()).spawn().expect("started"))
    }

    fn handle(&self) -> ProcessHandle {
        ProcessHandle::open(self.0.id().cast_signed()).expect("it runs")
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Orphan {
    fn new() -> Orphan {
        let directory = small_directory();
        let server = TestServer::start_command(directory.serve_command(), BOTH);
        let (pid, http, dns) = (server.server_process_id(), server.http(), server.dns());
        wait_until("the files are served", || serves(http, dns));
        let uid = fs::metadata(format!("/proc/{pid}")).expect("it runs").uid();
        server.signal("KILL");
        server.wait_for_error("lost the supervisor");
        assert!(send_signal("STOP", &pid.to_string()));
        let copies = inherited_by(pid).expect("it runs").into_iter().filter_map(|(number, name)| {
            let kind = match name.as_str() {
                "configuration" => json!("Configuration"),
                "control" => json!("ControlSocket"),
                "http" => json!({ "Listener": { "service": "Http", "is_external": false } }),
                "dns" => json!({ "Listener": { "service": "Dns", "is_external": false } }),
                _ => return None,
            };
            Some((kind, descriptor_of(pid, number).expect("taken")))
        });
        let descriptors: Vec<(Value, OwnedFd)> = copies.collect();
        let control = descriptors.iter().find(|(kind, _)| *kind == json!("ControlSocket")).expect("it has it");
        let control = control.1.as_fd().try_clone_to_owned().expect("a copy");
        let control = Some(SeqpacketListener::from_fd(control).expect("it listens"));
        Orphan { directory, server: Some(server), pid, uid, http, dns, control, descriptors }
    }

    /// Waits for a supervisor that adopts it, and its command.
    fn accept(&self) -> SeqpacketSocket {
        let deadline = Instant::now() + DEADLINE;
        let control = self.control.as_ref().expect("not closed");
        let adopter = loop {
            PollSet::new([control.as_fd()]).wait(Some(Duration::from_secs(1))).expect("waited");
            if let Some(adopter) = control.accept().expect("accepted") {
                break adopter;
            }
            assert!(Instant::now() < deadline, "no supervisor connects");
        };
        while !matches!(adopter.receive(&mut [0; MESSAGE_BYTES_MAX]).expect("received"), Received::Message { .. }) {
            PollSet::new([adopter.as_fd()]).wait(Some(Duration::from_secs(1))).expect("waited");
        }
        adopter
    }

    /// Hands the orphan's descriptors and `more` over to `adopter`, in the name of the orphan or of this process.
    fn hand_over(&self, adopter: &SeqpacketSocket, more: &[(Value, BorrowedFd<'_>)], is_in_its_name: bool) {
        let own = self.descriptors.iter().map(|(kind, descriptor)| (kind, descriptor.as_fd()));
        let all: Vec<(&Value, BorrowedFd<'_>)> =
            own.chain(more.iter().map(|(kind, descriptor)| (kind, *descriptor))).collect();
        let (kinds, descriptors): (Vec<&Value>, Vec<BorrowedFd<'_>>) = all.into_iter().unzip();
        let body = json!([{ "Handover": { "has_more": false } }, kinds]).to_string();
        let packet = [b"SDLG\x02\0\0\0", body.as_bytes()].concat();
        let sender = is_in_its_name.then_some((self.pid, self.uid));
        send_as(adopter.as_fd(), &packet, &descriptors, sender).expect("sent");
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if let Ok(orphan) = ProcessHandle::open(self.pid.cast_signed()) {
            let _ = orphan.send_signal(SIGKILL);
        }
    }
}

fn info(pid: u32, generation: u64, ready_at_unix_s: u64) -> Value {
    json!({ "Process": { "generation": generation, "pid": pid, "is_serving": false, "ready_at_unix_s": ready_at_unix_s } })
}

/// Plays the orphan: `lie` makes what it says of itself, of a stranger and the adopter. The adopter goes on, ends the
/// orphan for what is no message, leaves others alone, and serves the files with the next process.
fn check_adoption(what: &str, lie: impl Fn(&Orphan, &Stranger, u32) -> (Value, OwnedFd)) {
    let (mut orphan, mut stranger) = (Orphan::new(), Stranger::start());
    let mut command = orphan.directory.serve_command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut adopter = command.spawn().expect("started");
    let connection = orphan.accept();
    let (kind, descriptor) = lie(&orphan, &stranger, adopter.id());
    orphan.hand_over(&connection, &[(kind, descriptor.as_fd())], true);
    // The orphan is terminated for this lie.
    let _ = connection.send(b"no message", &[]);
    let start = Instant::now();
    let ended = loop {
        if let Some(status) = adopter.try_wait().expect("a child") {
            break Some(status);
        }
        let has_ended = fs::read_to_string(format!("/proc/{}/status", orphan.pid)).is_err();
        if has_ended && serves(orphan.http, orphan.dns) {
            break None;
        }
        assert!(start.elapsed() < DEADLINE, "{what}: the next process does not serve the files");
        PollSet::new([]).wait(Some(Duration::from_millis(10))).expect("waited");
    };
    assert_eq!(stranger.0.try_wait().expect("a child"), None, "{what}: the stranger goes on");
    if ended.is_none() {
        assert_eq!(orphan.directory.control("stop").code(), Some(0), "{what}");
    }
    let output = adopter.wait_with_output().expect("a child");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((ended, output.status.code()), (None, Some(0)), "{what}: {errors}");
    assert!(errors.contains(&format!("adopting server process {}", orphan.pid)), "{what}: {errors}");
    orphan.server.take().map(TestServer::end);
}

#[test]
fn orphan_that_names_another_process_is_the_one_that_is_ended() {
    if !may_play() {
        return;
    }
    let of = |handle: ProcessHandle| handle.as_fd().try_clone_to_owned().expect("a copy");
    let at = 1_800_000_000;
    check_adoption("a stranger", |_, stranger, _| (info(stranger.0.id(), 1, at), of(stranger.handle())));
    check_adoption("the adopter", |_, _, adopter| {
        let handle = ProcessHandle::open(adopter.cast_signed()).expect("it runs");
        (info(adopter, 1, at), of(handle))
    });
    check_adoption("another generation", |orphan, stranger, _| {
        (info(orphan.pid, u64::MAX, 253_402_300_799), of(stranger.handle()))
    });
}

#[test]
fn adopter_refuses_a_time_that_cannot_be_and_a_process_of_another_user() {
    if !may_play() {
        return;
    }
    let mut orphan = Orphan::new();
    let own = ProcessHandle::open(orphan.pid.cast_signed()).expect("it runs");
    for (ready_at_unix_s, is_in_its_name, expected) in [
        (u64::MAX, true, "is not a valid time in seconds since 1970"),
        (1_800_000_000, false, "belongs to the user with ID 0, but server processes of this configuration belong to"),
    ] {
        let mut command = orphan.directory.serve_command();
        let adopter =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
        let connection = orphan.accept();
        orphan.hand_over(&connection, &[(info(orphan.pid, 1, ready_at_unix_s), own.as_fd())], is_in_its_name);
        let output = adopter.wait_with_output().expect("a child");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && errors.contains(expected), "{}: {errors}", output.status);
        assert_eq!(own.try_wait().expect("no error"), None, "it is not ended for it");
    }
    let _ = own.send_signal(SIGKILL);
    wait_until("the orphan has ended", || own.try_wait().expect("no error").is_some());
    orphan.control = None;
    orphan.descriptors.clear();
    // Without the orphan, the files are served again.
    let next = TestServer::start_command(orphan.directory.serve_command(), BOTH);
    wait_until("the files are served", || serves(next.http(), next.dns()));
    assert_eq!(next.stop().code(), Some(0));
    orphan.server.take().map(TestServer::end);
}
