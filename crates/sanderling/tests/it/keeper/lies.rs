//! A server process that runs foreign code: it speaks the keeper's protocol, and asks for signatures that it must not
//! get.

use super::{P256, domain};
use sanderling_dnssec::{Algorithm, KeyRole, PublicKey};
use sanderling_ipc::secrets::{CertificateContent, certificates_from_memfd, certificates_to_memfd};
use sanderling_ipc::signing::{
    ANSWER_BYTES_MAX, KEY_ID_BYTES, REQUEST_BYTES_MAX, Refusal, SignAnswer, SignRequest, SigningCounts,
};
use sanderling_ipc::zone_signing::{ZoneKeyAnswer, ZoneKeyRequest};
use sanderling_ipc::{Command, Connection, Event, FdKind, IncomingFds, Message, Received, handover};
use sanderling_os::memfd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::process::ProcessHandle;
use sanderling_os::request_socket::RequestSocket;
use sanderling_testkit::{DEADLINE, TestDirectory, run_program, sanderling};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

const ECDSA_NISTP256_SHA256: u16 = 0x0403;
const RSA_PSS_SHA256: u16 = 0x0804;
const ED25519_SCHEME: u16 = 0x0807;
const CONFIG: &str =
    "[domain.\"example.com\"]\nsite = \"public\"\n[domain.\"a.test\"]\nzone = \"a.zone\"\ndnssec = true\n";

/// A keeper that this test has started as a supervisor does.
struct Keeper {
    handle: ProcessHandle,
    connection: Connection,
    directory: TestDirectory,
}

impl Keeper {
    fn start() -> Keeper {
        Keeper::start_with(&[])
    }

    /// With the keys of zones in the folder `state`.
    fn start_with_zone_keys() -> Keeper {
        Keeper::start_with(&["--state", "state"])
    }

    fn start_with(arguments: &[&str]) -> Keeper {
        let directory = domain(CONFIG, P256);
        let (ours, theirs) = Connection::pair().expect("created");
        let config = memfd::create("configuration", CONFIG.as_bytes()).expect("created");
        let descriptors = vec![(FdKind::Connection, theirs.as_fd()), (FdKind::Configuration, config.as_fd())];
        let in_directory = |argument: &&str| match *argument {
            "state" => directory.argument("state"),
            other => other.to_owned(),
        };
        fs::create_dir(directory.argument("state")).expect("created");
        // A process of root switches to another user.
        fs::set_permissions(directory.argument("state"), fs::Permissions::from_mode(0o777)).expect("changed");
        let own = ["internal-keeper", "--config", &directory.argument("sanderling.toml")].map(OsString::from);
        let arguments: Vec<OsString> =
            own.into_iter().chain(arguments.iter().map(in_directory).map(OsString::from)).collect();
        let program = sanderling().get_program().to_owned();
        let descriptors = handover::named(descriptors);
        let handle = sanderling_os::process::spawn(Path::new(&program), "keeper", &arguments, &descriptors);
        Keeper { handle: handle.expect("started"), connection: ours, directory }
    }

    fn send(&mut self, command: Command, descriptors: IncomingFds) {
        self.connection.send_with(&Message::Command(command), descriptors).expect("it runs");
    }

    /// Waits for an event.
    fn wait_for<T>(&mut self, mut wanted: impl FnMut(Event, IncomingFds) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.connection.recv().expect("it runs") {
                Received::Message(Message::Event(event), descriptors) => {
                    if let Some(found) = wanted(event, descriptors) {
                        return found;
                    }
                }
                Received::WouldBlock => {
                    assert!(Instant::now() < deadline, "no such event within {DEADLINE:?}");
                    PollSet::new([self.connection.as_fd()]).wait(Some(Duration::from_secs(1))).expect("polled");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Has it hold the directory's key; the certificate without the key.
    fn hold(&mut self) -> Vec<u8> {
        let read = |name| Zeroizing::new(fs::read(self.directory.argument(name)).expect("written"));
        let content = CertificateContent::Files { chain: read("chain.pem"), key: read("key.pem") };
        let file = certificates_to_memfd(&[Ok(content)]).expect("created");
        self.send(Command::HoldKeys { number: 7 }, vec![(FdKind::Certificates, file)]);
        let file = self.wait_for(|event, descriptors| match event {
            Event::KeysHeld { number: 7 } => descriptors.into_iter().next(),
            _ => None,
        });
        let certificates = certificates_from_memfd(file.1).expect("read");
        let [Ok(content)] = &certificates[..] else { panic!("{certificates:?}") };
        content.held().expect("without the key").to_vec()
    }

    /// A worker's socket.
    fn connect(&mut self) -> RequestSocket {
        let [asking, answering] = RequestSocket::pair(DEADLINE).expect("created");
        self.send(Command::ServeKeys, vec![(FdKind::Keeper, answering)]);
        RequestSocket::from_fd(asking).expect("a socket")
    }

    /// The agent's socket.
    fn connect_agent(&mut self) -> UnixStream {
        let (asking, answering) = UnixStream::pair().expect("created");
        asking.set_read_timeout(Some(DEADLINE)).expect("set");
        self.send(Command::ServeZoneKeys, vec![(FdKind::ZoneKeys, answering.into())]);
        asking
    }

    fn wait_for_counts(&mut self, expected: SigningCounts) {
        self.wait_for(|event, _| (event == Event::KeeperReport(expected)).then_some(()));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.handle.send_signal(sanderling_os::signals::SIGKILL);
    }
}

fn ask_raw(socket: &RequestSocket, message: &[u8]) -> Result<Vec<u8>, Refusal> {
    socket.send(message).expect("it runs");
    let mut answer = [0; ANSWER_BYTES_MAX];
    let answer = socket.receive(&mut answer).expect("it runs").expect("short");
    SignAnswer::decode(answer).expect("an answer").result.map(<[u8]>::to_vec)
}

fn ask(socket: &RequestSocket, key: &[u8; KEY_ID_BYTES], scheme: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut request = [0; REQUEST_BYTES_MAX];
    let request = SignRequest { number: 1, scheme, key, input }.encode(&mut request).expect("it fits");
    ask_raw(socket, request)
}

/// The input that a server signs in TLS 1.3.
fn certificate_verify() -> Vec<u8> {
    [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat()
}

/// The name of a certificate's key: the SHA-256 of its public key, as OpenSSL computes it.
fn key_id(directory: &TestDirectory) -> [u8; KEY_ID_BYTES] {
    let script = format!(
        "openssl x509 -in {} -noout -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary",
        directory.argument("chain.pem")
    );
    run_program("sh", "dash", &["-c", &script]).output.try_into().expect("32 bytes")
}

/// A certificate request for the key of the directory without its signature: what a signature would make valid.
fn certificate_request(directory: &TestDirectory) -> Vec<u8> {
    let (key, out) = (directory.argument("key.pem"), directory.argument("request.der"));
    let arguments = ["req", "-new", "-key", &key, "-subj", "/CN=a", "-outform", "der", "-out", &out];
    assert!(run_program("openssl", "openssl", &arguments).status.success());
    let whole = fs::read(out).expect("written");
    // SEQUENCE { SEQUENCE { what is signed }, ... }, of which both are short.
    let inner = whole.iter().skip(1).position(|byte| *byte == 0x30).expect("an element") + 1;
    let (header_bytes, length) = if whole[inner + 1] == 0x81 { (3, whole[inner + 2]) } else { (2, whole[inner + 1]) };
    whole[inner..inner + header_bytes + usize::from(length)].to_vec()
}

#[test]
fn keeper_signs_handshakes_and_nothing_else() {
    let mut keeper = Keeper::start();
    let certificate = keeper.hold();
    let text = fs::read_to_string(keeper.directory.argument("key.pem")).expect("written");
    assert!(!certificate.windows(8).any(|part| text.as_bytes().starts_with(part)), "a certificate as DER");
    let (socket, key) = (keeper.connect(), key_id(&keeper.directory));
    let input = certificate_verify();

    let signature = ask(&socket, &key, ECDSA_NISTP256_SHA256, &input).expect("a handshake");
    keeper.directory.write("input", &input);
    keeper.directory.write("signature", &signature);
    let script = "openssl x509 -in chain.pem -noout -pubkey >public.pem && \
                  openssl dgst -sha256 -verify public.pem -signature signature input";
    let script = format!("cd {} && {script}", keeper.directory.path().display());
    let verified = run_program("sh", "dash", &["-c", &script]);
    assert_eq!(verified.text(), "Verified OK\n", "{verified}");

    let request = certificate_request(&keeper.directory);
    let mut other_key = key;
    other_key[0] ^= 1;
    let mut refused = [0; Refusal::ALL.len()];
    let mut check = |answer: Result<Vec<u8>, Refusal>, expected: Refusal| {
        assert_eq!(answer, Err(expected));
        refused[expected as usize - 1] += 1;
    };
    // A record set of a zone as it is signed (RFC 4034 §3.1.8.1), a token, nothing.
    let of_zone =
        b"\0\x01\x0d\x02\0\0\x0e\x10e\0\0\0d\0\0\0\x01\x02\x07example\x03com\0\x01a\0\0\x01\0\x01\0\0\0\0\0\x04abcd";
    let padded: Vec<u8> = request.iter().copied().chain([0; 100]).take(146).collect();
    let shapes: [&[u8]; 8] =
        [&request, &padded, of_zone, b"eyJhbGciOiJFUzI1NiJ9.e30", b"", &input[1..], &input[..129], &[b' '; 146]];
    for wrong in shapes {
        check(ask(&socket, &key, ECDSA_NISTP256_SHA256, wrong), Refusal::NotOfHandshake);
    }
    check(ask(&socket, &other_key, ECDSA_NISTP256_SHA256, &input), Refusal::UnknownKey);
    for scheme in [RSA_PSS_SHA256, 0, 0xffff] {
        check(ask(&socket, &key, scheme, &input), Refusal::WrongScheme);
    }
    for malformed in [&[0][..], &[1, 0, 4, 3, 0, 0, 0], &[2; 100], &[1; 100], &vec![0; 10_000]] {
        check(ask_raw(&socket, malformed), Refusal::Malformed);
    }
    assert!(ask(&socket, &key, ECDSA_NISTP256_SHA256, &input).is_ok(), "it goes on");
    keeper.wait_for_counts(SigningCounts { signatures: 2, zone_signatures: 0, refused });
}

#[test]
fn requests_in_a_wrong_order_or_of_a_wrong_size_get_nothing() {
    let mut keeper = Keeper::start_with_zone_keys();
    let input = certificate_verify();
    // The keeper does not hold a key yet.
    let early = keeper.connect();
    let key = key_id(&keeper.directory);
    assert_eq!(ask(&early, &key, ECDSA_NISTP256_SHA256, &input), Err(Refusal::UnknownKey));
    keeper.hold();
    assert!(ask(&early, &key, ECDSA_NISTP256_SHA256, &input).is_ok());
    let mut buffer = [0; REQUEST_BYTES_MAX];
    let whole = SignRequest { number: 1, scheme: ECDSA_NISTP256_SHA256, key: &key, input: &input };
    let whole = whole.encode(&mut buffer).expect("it fits").to_vec();
    // Each prefix of a request: none is a shorter request that is signed.
    for length in 1..whole.len() {
        assert!(ask_raw(&early, &whole[..length]).is_err(), "{length} bytes");
    }
    // A request for a key of a zone before there is one, as the agent and as a worker.
    let mut agent = keeper.connect_agent();
    let sign = ZoneKeyRequest::Sign { zone: "a.test".to_owned(), key: [7; KEY_ID_BYTES], inputs: vec![input.clone()] };
    assert!(matches!(ask_as_agent(&mut agent, &sign), ZoneKeyAnswer::Refused(_)));
    let make = ZoneKeyRequest::Make { zone: "a.test".to_owned(), algorithm: 15 };
    assert_eq!(ask_raw(&early, &make.to_message().expect("short")), Err(Refusal::Malformed));
    // A message whose length exceeds the limit: the connection ends, and nothing more is read.
    let mut lying = keeper.connect_agent();
    lying.write_all(&[0xff; 64]).expect("it runs");
    assert!(ZoneKeyAnswer::receive(&mut lying).is_err());
    // A part of one: the others are answered meanwhile.
    let mut slow = keeper.connect_agent();
    slow.write_all(&make.to_message().expect("short")[..5]).expect("it runs");
    assert!(matches!(ask_as_agent(&mut agent, &make), ZoneKeyAnswer::Keys(_)));
    assert!(ask(&early, &key, ECDSA_NISTP256_SHA256, &input).is_ok(), "it goes on");
}

fn ask_as_agent(socket: &mut UnixStream, request: &ZoneKeyRequest) -> ZoneKeyAnswer {
    socket.write_all(&request.to_message().expect("short")).expect("it runs");
    ZoneKeyAnswer::receive(socket).expect("it runs")
}

#[test]
fn keys_of_zones_sign_for_the_agent_alone_and_records_of_their_zone_alone() {
    const ED25519: u8 = 15;
    let mut keeper = Keeper::start_with_zone_keys();
    keeper.hold();
    let (mut agent, worker) = (keeper.connect_agent(), keeper.connect());
    let zone = || "a.test".to_owned();
    let ZoneKeyAnswer::Keys(keys) =
        ask_as_agent(&mut agent, &ZoneKeyRequest::Make { zone: zone(), algorithm: ED25519 })
    else {
        panic!("no key")
    };
    let key = &keys[0];
    let public = PublicKey { algorithm: Algorithm::Ed25519, role: KeyRole::Csk, bytes: key.public_key.clone() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as u32;
    let input = |owner: &[u8]| {
        let times = [now + 3600, now - 3600].map(u32::to_be_bytes).concat();
        let head = [&[0, 16, ED25519, 2, 0, 0, 1, 44][..], &times, &public.tag().to_be_bytes(), b"\x01a\x04test\0"];
        [&head.concat()[..], owner, &[0, 16, 0, 1, 0, 0, 1, 44, 0, 2, 1, b'x']].concat()
    };
    let of_zone = input(b"\x01a\x04test\0");
    let sign = |zone, input: &[u8]| ZoneKeyRequest::Sign { zone, key: key.id, inputs: vec![input.to_vec()] };
    let answer = ask_as_agent(&mut agent, &sign(zone(), &of_zone));
    assert!(matches!(&answer, ZoneKeyAnswer::Signatures(signatures) if signatures[0].len() == 64), "{answer:?}");
    for request in [
        sign(zone(), &input(b"\x01b\x04test\0")),
        sign(zone(), &certificate_verify()),
        sign("b.test".to_owned(), &input(b"\x01b\x04test\0")),
    ] {
        let answer = ask_as_agent(&mut agent, &request);
        assert!(matches!(answer, ZoneKeyAnswer::Refused(_)), "{answer:?}");
    }
    for scheme in [ECDSA_NISTP256_SHA256, ED25519_SCHEME] {
        assert_eq!(ask(&worker, &key.id, scheme, &of_zone), Err(Refusal::NotOfHandshake));
        assert_eq!(ask(&worker, &key.id, scheme, &certificate_verify()), Err(Refusal::UnknownKey));
    }
    // The keeper does not accept the agent's messages from a worker.
    let message = sign(zone(), &of_zone).to_message().expect("short");
    assert_eq!(ask_raw(&worker, &message), Err(Refusal::Malformed));
}

#[test]
fn flood_of_one_server_process_does_not_stop_the_signatures_for_others() {
    const FLOOD_COUNT: u64 = 20_000;
    let mut keeper = Keeper::start();
    keeper.hold();
    let (flooding, silent, honest) = (keeper.connect(), keeper.connect(), keeper.connect());
    let (key, input) = (key_id(&keeper.directory), certificate_verify());
    // A client does not read the answers: the keeper queues no more of them than the kernel does.
    let [asking, answering] = RequestSocket::pair(Duration::from_millis(100)).expect("created");
    keeper.send(Command::ServeKeys, vec![(FdKind::Keeper, answering)]);
    let unread = RequestSocket::from_fd(asking).expect("a socket");
    let mut unread_count = 0;
    while unread.send(&[0; 48]).is_ok() {
        unread_count += 1;
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..FLOOD_COUNT {
                assert_eq!(ask_raw(&flooding, &[0; 48]), Err(Refusal::Malformed));
            }
        });
        let mut longest = Duration::ZERO;
        for _ in 0..200 {
            let start = Instant::now();
            assert!(ask(&honest, &key, ECDSA_NISTP256_SHA256, &input).is_ok());
            longest = longest.max(start.elapsed());
        }
        println!("a signature took at most {longest:?}; {unread_count} requests were sent without reading answers");
    });
    drop((silent, unread));
    keeper.wait_for(|event, _| match event {
        Event::KeeperReport(counts) => (counts.signatures == 200 && counts.refused[0] >= FLOOD_COUNT).then_some(()),
        _ => None,
    });
}
