//! Any bytes to a TLS session, and a correct client whose bytes are changed on the way: the session does not panic,
//! keeps what it promises of its states, and passes what was not changed.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rustls::client::{ClientConfig, ClientConnection};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{RootCertStore, SupportedProtocolVersion};
use sanderling_tls::{
    Alpn, CertificateStore, ServerTls, Session, State, TICKET_KEY_BYTES, TicketKeys, UNSENT_BYTES_MAX, self_signed,
};
use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Bytes { pieces: Vec<&'a [u8]> },
    Client { is_tls12: bool, piece_bytes: u8, changes: Vec<Change>, request: &'a [u8], response_bytes: u16 },
}

/// Changes a byte of the client's stream.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Change {
    at: u16,
    by: u8,
}

struct Configs {
    server: ServerTls,
    clients: [Arc<ClientConfig>; 2],
}

/// More rounds than a handshake, a request and a response need.
const ROUNDS_MAX: usize = 20;

static CONFIGS: LazyLock<Configs> = LazyLock::new(|| {
    let now_unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let certificate = self_signed::localhost(now_unix_s).expect("random numbers");
    let mut store = CertificateStore::new();
    store.add_default(&certificate);
    let tickets = TicketKeys::new(&[1; TICKET_KEY_BYTES], None);
    let client = |version: &'static SupportedProtocolVersion| {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.chain()[0].clone()).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .expect("suites for the version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    };
    Configs {
        server: ServerTls::new(Arc::new(store), Arc::new(tickets), &[Alpn::H2, Alpn::Http1]),
        clients: [client(&rustls::version::TLS13), client(&rustls::version::TLS12)],
    }
});

/// Feeds all of `bytes`; returns the plaintext, or `None` after an error.
fn feed(session: &mut Session, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = bytes.to_vec();
    let Ok(mut length) = session.decrypt_in_place(&mut buffer, bytes.len()) else {
        assert_eq!((session.state(), session.writable_bytes()), (State::Failed, 0));
        return None;
    };
    let mut plaintext = Vec::new();
    loop {
        plaintext.extend_from_slice(&buffer[..length]);
        if !session.is_readable() {
            return Some(plaintext);
        }
        buffer.resize(100, 0);
        length = session.take(&mut buffer);
    }
}

fn sent(session: &mut Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.has_unsent() {
        session.send(&mut bytes).expect("a vector takes all");
    }
    bytes
}

fn run_client(client: &Arc<ClientConfig>, piece_bytes: u8, changes: &[Change], request: &[u8], response: &[u8]) {
    let mut client = ClientConnection::new(Arc::clone(client), "localhost".try_into().expect("a name")).expect("valid");
    client.writer().write_all(request).expect("kept");
    let mut session = Session::new(&CONFIGS.server);
    let (mut stream_bytes, mut received, mut answer) = (0, Vec::new(), Vec::new());
    for _ in 0..ROUNDS_MAX {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("a vector takes all");
        }
        for Change { at, by } in changes {
            if let Some(byte) = usize::from(*at).checked_sub(stream_bytes).and_then(|at| bytes.get_mut(at)) {
                *byte ^= by;
            }
        }
        stream_bytes += bytes.len();
        for piece in bytes.chunks(usize::from(piece_bytes).max(1)) {
            let Some(plaintext) = feed(&mut session, piece) else { return };
            received.extend_from_slice(&plaintext);
        }
        if session.state() == State::Open && received == request {
            let written = session.write(&[&response[answer.len().min(response.len())..]], 0);
            assert!(written <= UNSENT_BYTES_MAX);
        }
        let bytes = sent(&mut session);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("there is room");
            if client.process_new_packets().is_err() {
                // The client has seen what the change led to.
                return;
            }
            let _ = client.reader().read_to_end(&mut answer);
        }
        if answer.len() >= response.len() && received == request {
            break;
        }
    }
    if changes.iter().all(|change| change.by == 0) {
        assert!(received == request && answer == response);
    }
}

fuzz_target!(|input: Input<'_>| {
    match input {
        Input::Bytes { pieces } => {
            let mut session = Session::new(&CONFIGS.server);
            for piece in pieces {
                if feed(&mut session, piece).is_none() {
                    break;
                }
                sent(&mut session);
            }
        }
        Input::Client { is_tls12, piece_bytes, changes, request, response_bytes } => {
            let response = vec![b'r'; usize::from(response_bytes)];
            let client = &CONFIGS.clients[usize::from(is_tls12)];
            run_client(client, piece_bytes, &changes, request, &response);
        }
    }
});
