//! A session's ClientHello, until the server's first messages are signed.
//!
//! The ClientHello is read before the session has a configuration, which depends on it. If the key cannot sign now, the
//! ClientHello is kept, and the handshake begins with it again: rustls signs in the call that takes it, and cannot
//! resume that call.

use crate::server_tls::ServerTls;
use rustls::InvalidMessage;
use rustls::server::{AcceptedAlert, Acceptor, ServerConnection};

/// Bytes of the header of a record (RFC 8446 §5.1), and its type for messages of the handshake.
const HEADER_BYTES: usize = 5;
const HANDSHAKE: u8 = 22;

/// The part of the ClientHello that a session keeps.
#[derive(Debug)]
pub(crate) enum Hello {
    /// The received part of the ClientHello.
    Arriving(Vec<u8>),
    /// Nothing: the server's first messages are signed, or failed.
    Taken,
    /// The client was asked for a second ClientHello (HelloRetryRequest): the first one, and the data received after
    /// it.
    AskedAgain(Vec<u8>),
    /// The key cannot sign now: all that has arrived.
    AwaitsKey {
        bytes: Vec<u8>,
        /// The answer to the first ClientHello was sent.
        was_asked_again: bool,
    },
}

/// The reason why rustls refuses a ClientHello, and the alert for the client.
pub(crate) struct Refused {
    pub(crate) error: rustls::Error,
    pub(crate) alert: Vec<u8>,
}

/// Whether the first record has arrived whole, or is not a handshake record, which rustls then refuses.
pub(crate) fn has_whole_record(bytes: &[u8]) -> bool {
    let Some(&[kind, major_version, _, high, low]) = bytes.first_chunk() else { return false };
    let record_bytes = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    kind != HANDSHAKE || major_version != 3 || bytes.len() >= record_bytes
}

/// Begins a connection with the ClientHello at the start of `bytes`, and also returns the rest. `None` if it has not
/// arrived whole.
pub(crate) fn begin<'b>(tls: &ServerTls, bytes: &'b [u8]) -> Result<Option<(ServerConnection, &'b [u8])>, Refused> {
    let (mut acceptor, mut rest) = (Acceptor::default(), bytes);
    while !rest.is_empty() {
        // If there is no room, a message is longer than rustls accepts.
        if !matches!(acceptor.read_tls(&mut rest), Ok(1..)) {
            return Err(Refused { error: InvalidMessage::HandshakePayloadTooLarge.into(), alert: Vec::new() });
        }
        if let Some(accepted) = acceptor.accept().map_err(refused)? {
            let config = tls.config_for(accepted.client_hello().cipher_suites());
            return Ok(Some((accepted.into_connection(config).map_err(refused)?, rest)));
        }
    }
    Ok(None)
}

/// The name that the client asks for, in lower case.
pub(crate) fn server_name(mut bytes: &[u8]) -> Option<String> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            return accepted.client_hello().server_name().map(str::to_owned);
        }
    }
    None
}

fn refused((error, mut unsent): (rustls::Error, AcceptedAlert)) -> Refused {
    let mut alert = Vec::new();
    unsent.write_all(&mut alert).expect("a vector takes all");
    Refused { error, alert }
}
