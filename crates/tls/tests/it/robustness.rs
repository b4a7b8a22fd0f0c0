//! Clients that send anything, and files that have anything.

use crate::pair::{Pair, VERSIONS, http_client, server_tls};
use crate::pki::pki;
use sanderling_testkit::seed;
use sanderling_tls::{Certificate, CertificateError, Session, SessionError, State};
use std::sync::Arc;

const CLIENTS: usize = 10_000;
const FILES: usize = 5_000;

fn client_hello(version: usize) -> Vec<u8> {
    Pair::new(&Arc::new(http_client(VERSIONS[version])), "example.com", &server_tls()).client_bytes()
}

/// Feeds all, as far as the session takes it, and checks what it promises.
fn feed(session: &mut Session, bytes: &[u8]) -> Result<(), SessionError> {
    let fed = session.feed(bytes);
    let mut sent = Vec::new();
    while session.has_unsent() {
        session.send(&mut sent).unwrap();
    }
    match fed {
        Ok(fed) => {
            assert_eq!(fed, bytes.len());
            assert_ne!(session.state(), State::Failed);
            Ok(())
        }
        Err(error) => {
            assert_eq!((session.state(), session.writable_bytes()), (State::Failed, 0));
            assert!(!matches!(error, SessionError::Internal(_)), "{error}");
            Err(error)
        }
    }
}

#[test]
fn changed_client_hellos_are_answered_or_refused() {
    let mut random = fastrand::Rng::with_seed(seed());
    let tls = server_tls();
    let hellos = [client_hello(0), client_hello(1)];
    let mut refused_count = 0;
    for _ in 0..CLIENTS {
        let mut hello = random.choice(&hellos).unwrap().clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..hello.len());
            match random.u8(..5) {
                0 => hello[at] ^= 1 << random.u8(..8),
                1 => hello[at] = random.u8(..),
                2 => drop(hello.drain(at..hello.len().min(at + random.usize(..20)))),
                3 => hello.insert(at, random.u8(..)),
                _ => {
                    let copied = hello[at..].to_vec();
                    hello.extend_from_slice(&copied);
                }
            }
            hello.resize(hello.len().max(1), 0);
        }
        let mut session = Session::new(&tls);
        let pieces = random.usize(1..hello.len() + 1);
        refused_count += usize::from(hello.chunks(pieces).any(|piece| feed(&mut session, piece).is_err()));
    }
    println!("{refused_count} of {CLIENTS} were refused");
    assert!(refused_count > CLIENTS / 4 && refused_count < CLIENTS);
}

#[test]
fn connection_may_end_after_any_byte_of_the_handshake() {
    for version in [0, 1] {
        let hello = client_hello(version);
        for length in 0..hello.len() {
            let mut session = Session::new(&server_tls());
            hello[..length].iter().for_each(|byte| feed(&mut session, &[*byte]).unwrap());
            assert_eq!((session.state(), session.is_readable()), (State::Handshaking, false));
        }
    }
}

#[test]
fn fragments_of_a_client_hello_in_records_of_one_byte_are_joined() {
    for version in [0, 1] {
        let mut pair = Pair::new(&Arc::new(http_client(VERSIONS[version])), "example.com", &server_tls());
        let hello = pair.client_bytes();
        let (header, message) = hello.split_first_chunk::<5>().unwrap();
        for byte in message {
            pair.feed(&[header[0], header[1], header[2], 0, 1, *byte]).unwrap();
        }
        pair.run().unwrap();
        pair.exchange(b"a request", b"a response");
    }
}

#[test]
fn clear_http_and_endless_handshake_messages_are_refused() {
    let mut session = Session::new(&server_tls());
    let error = feed(&mut session, b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n").unwrap_err();
    assert!(matches!(error, SessionError::Invalid(_)), "{error}");

    // A ClientHello that claims 16 MiB, in full records.
    let mut session = Session::new(&server_tls());
    let first = [&[22, 3, 1, 64, 0, 1, 255, 255, 255][..], &[0; 16_380]].concat();
    let next = [&[22, 3, 1, 64, 0][..], &[0; 16_384]].concat();
    let refused = feed(&mut session, &first).is_err() || (0..4).any(|_| feed(&mut session, &next).is_err());
    assert!(refused);
}

#[test]
fn changed_record_ends_the_session_with_an_alert() {
    use std::io::Write;
    for version in [0, 1] {
        let mut pair = Pair::new(&Arc::new(http_client(VERSIONS[version])), "example.com", &server_tls());
        pair.run().unwrap();
        pair.client.writer().write_all(b"a request").unwrap();
        let mut record = pair.client_bytes();
        *record.last_mut().unwrap() ^= 1;
        assert!(matches!(pair.session.feed(&record), Err(SessionError::Invalid(_))));
        let alert = pair.session_bytes();
        pair.feed_client(&alert);
        assert_eq!(pair.client_error, Some(rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac)));
    }
}

fn pem_of(der: &[u8]) -> Vec<u8> {
    let base64 = data_encoding::BASE64.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n").into_bytes()
}

#[test]
fn name_with_a_dot_at_its_end_is_no_name_of_the_certificate() {
    let (name, with_dot) = (b"other.example.com", b"other.example.co.");
    let mut der = pki().read("other-der.pem");
    let places: Vec<_> = (0..der.len()).filter(|&at| der[at..].starts_with(name)).collect();
    places.into_iter().for_each(|at| der[at..at + name.len()].copy_from_slice(with_dot));
    let certificate = Certificate::from_pem(&pem_of(&der), &pki().read("other.key")).unwrap();
    assert!(!certificate.names().any(|name| name.starts_with("other")));
    assert!(!certificate.is_valid_for_host(with_dot) && !certificate.is_valid_for_host(name));
}

/// A chain whose bytes or PEM are changed. If a certificate can still be read, all functions that serving uses are
/// called on it.
#[test]
fn changed_chains_are_loaded_or_refused() {
    let mut random = fastrand::Rng::with_seed(seed());
    let (key, pem, der) =
        (pki().read("other.key"), pki().chain(&["other", "intermediate"]), pki().read("other-der.pem"));
    let (mut loaded_count, mut invalid_count) = (0, 0);
    for _ in 0..FILES {
        let is_pem = random.bool();
        let mut changed = if is_pem { pem.clone() } else { der.clone() };
        let at = random.usize(..changed.len());
        match random.u8(..3) {
            0 => changed[at] ^= 1 << random.u8(..8),
            1 => changed[at] = random.u8(..),
            _ => changed.truncate(at),
        }
        let chain = if is_pem { changed } else { pem_of(&changed) };
        match Certificate::from_pem(&chain, &key) {
            Ok(certificate) => {
                loaded_count += 1;
                let problems = certificate.problems(1_800_000_000, ["other.example.com", "192.0.2.1"]);
                assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
                assert!(certificate.names().all(|name| certificate.is_valid_for_host(name.as_bytes())));
            }
            Err(error) => invalid_count += usize::from(matches!(error, CertificateError::InvalidCertificate { .. })),
        }
    }
    println!("{loaded_count} of {FILES} were loaded, {invalid_count} were invalid");
    assert!(loaded_count > FILES / 10 && invalid_count > FILES / 10);
}
