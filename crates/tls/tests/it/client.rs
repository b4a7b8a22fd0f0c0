//! The client's side with the server's side, connected by memory.

use crate::pair::{server_tls, tickets};
use crate::pki::pki;
use sanderling_tls::{
    Alpn, Certificate, CertificateStore, ClientError, ClientSession, ClientTls, PeerName, ServerTls, Session, Trust,
};
use std::sync::Arc;

/// A room that takes all that a test sends.
const ROOM_BYTES: usize = 64 * 1024;

fn trusting(roots: &str) -> ClientTls {
    ClientTls::new(Trust::from_pem(&pki().read(roots)).expect("roots"), None).expect("settings")
}

fn session(tls: &ClientTls, name: &str, alpn: Alpn) -> ClientSession {
    ClientSession::new(tls, &PeerName::parse(name).expect("a name"), alpn).expect("a session")
}

/// Exchanges bytes in pieces until neither side has any; what each side has received.
fn exchange(
    client: &mut ClientSession,
    server: &mut Session,
    piece_bytes: usize,
) -> Result<(Vec<u8>, Vec<u8>), ClientError> {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut room = vec![0; ROOM_BYTES];
    loop {
        let (mut from_client, mut from_server) = (Vec::new(), Vec::new());
        while client.has_unsent() {
            client.send(&mut from_client).expect("a vector takes all");
        }
        // An error of the server reaches the client as an alert.
        let _ = server.feed(&from_client);
        while server.is_readable() {
            let count = server.take(&mut room);
            to_server.extend_from_slice(&room[..count]);
        }
        while server.has_unsent() {
            server.send(&mut from_server).expect("a vector takes all");
        }
        for piece in from_server.chunks(piece_bytes) {
            room[..piece.len()].copy_from_slice(piece);
            if client.is_handshaking() {
                client.feed_all(piece)?;
            } else {
                let count = client.decrypt_in_place(&mut room, piece.len())?;
                to_client.extend_from_slice(&room[..count]);
            }
            while client.is_readable() {
                let count = client.take(&mut room);
                to_client.extend_from_slice(&room[..count]);
            }
        }
        if from_client.is_empty() && from_server.is_empty() {
            return Ok((to_server, to_client));
        }
    }
}

/// The error of a handshake with `server`, if there is one.
fn error_of(tls: &ClientTls, name: &str, alpn: Alpn, server: &ServerTls) -> Option<ClientError> {
    exchange(&mut session(tls, name, alpn), &mut Session::new(server), usize::MAX).err()
}

#[test]
fn requests_and_responses_are_exchanged_and_the_session_is_resumed() {
    let (tls, server_tls) = (trusting("root.pem"), server_tls());
    for (piece_bytes, is_resumed) in [(usize::MAX, false), (1, true), (100, true)] {
        let (mut client, mut server) = (session(&tls, "example.com", Alpn::H2), Session::new(&server_tls));
        assert_eq!(client.write([b"too early", b""]), 0);
        exchange(&mut client, &mut server, piece_bytes).expect("a handshake");
        assert!(!client.is_handshaking());
        assert_eq!((server.alpn(), client.is_resumed()), (Some(Alpn::H2), is_resumed), "{piece_bytes}");
        assert_eq!(client.write([b"head", b"content"]), 11);
        let response = vec![b'x'; 40_000];
        assert_eq!(server.write(&[&response], 0), response.len());
        let (to_server, to_client) = exchange(&mut client, &mut server, piece_bytes).expect("content");
        assert_eq!((&to_server[..], to_client), (&b"headcontent"[..], response));
        assert!(!client.has_peer_closed());
        server.close();
        exchange(&mut client, &mut server, piece_bytes).expect("the end");
        assert!(client.has_peer_closed());
    }
}

#[test]
fn server_that_cannot_be_verified_is_refused_with_the_reason() {
    let (tls, server) = (trusting("root.pem"), server_tls());
    assert_eq!(error_of(&tls, "example.com", Alpn::Http1, &server), None);
    // A certificate that is trusted itself, and no other of its issuer.
    let own =
        ClientTls::new(Trust::from_pem(&pki().read("ecdsa.pem")).expect("a certificate"), None).expect("settings");
    assert_eq!(error_of(&own, "example.com", Alpn::Http1, &server), None);
    let mut by_default = CertificateStore::new();
    let ecdsa = Certificate::from_pem(&pki().chain(&["ecdsa", "intermediate"]), &pki().read("ecdsa.key"));
    by_default.add_default(&ecdsa.expect("a certificate"));
    let by_default = ServerTls::new(Arc::new(by_default), tickets(1, None), &[Alpn::Http1]);
    for tls in [&tls, &own] {
        assert_eq!(error_of(tls, "a.invalid", Alpn::Http1, &by_default), Some(ClientError::WrongName));
        assert_eq!(error_of(tls, "192.0.2.77", Alpn::Http1, &by_default), Some(ClientError::WrongName));
    }
    let empty = ClientTls::new(Trust::from_der([]), None);
    assert_eq!(empty.err(), Some(ClientError::NoRoots));
    let other = trusting("rsa.pem");
    assert_eq!(error_of(&other, "example.com", Alpn::Http1, &server), Some(ClientError::Untrusted));
    let anything = ClientTls::new(Trust::Anything, None).expect("settings");
    assert_eq!(error_of(&anything, "a.invalid", Alpn::Http1, &by_default), None);
    assert_eq!(error_of(&tls, "example.com", Alpn::H2, &by_default), Some(ClientError::NoProtocol("HTTP/2")));
    let mut client = session(&tls, "example.com", Alpn::Http1);
    assert_eq!(client.feed_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(ClientError::NotTls));
}
