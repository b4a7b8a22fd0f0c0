//! TLS for a server (RFC 8446, RFC 5246): sessions, certificates and ticket keys; and sessions with other servers.
//!
//! This crate does no I/O, starts no thread, and takes the time as an argument. Exceptions: rustls reads the clock for
//! the age of tickets, and the clock decides between several certificates of a name. The input and output of the crate:
//!
//! ```text
//! PEM ── Certificate ── CertificateStore ─┐
//! random bytes ────────────── TicketKeys ─┼─ ServerTls ── Session ┬ feed, decrypt_in_place: ciphertext in, plaintext out
//! protocols ──────────────────────── Alpn ─┘  (a listener) (a connection) └ write, send: plaintext in, ciphertext out
//! ```
//!
//! # How a server drives a session
//!
//! - **Receive:** one `recv` into a buffer that all connections of a worker share, then [`Session::decrypt_in_place`]
//!   in the same buffer. Plaintext that does not fit stays in the session: while [`Session::is_readable`], the server
//!   takes it ([`Session::take`]) instead of receiving.
//! - **Send:** [`Session::write`] for a head and content in memory, or for pieces of a file that are read into the
//!   worker's buffer, until [`Session::writable_bytes`] is 0 or all is written; then [`Session::send`], which makes one
//!   vectored write of up to 128 KiB. If the socket takes less, the rest stays in the session, and no further data is
//!   written before it was sent. So a request for content in memory needs two system calls, as without encryption; a
//!   file of 100 KiB needs the reads in addition.
//! - **Handshake:** while the state is [`State::Handshaking`], feed received data, and send the unsent output after
//!   each call. When it becomes [`State::Open`], the ticket is unsent: it leaves with the first response, or at the
//!   latest before the worker waits. A handshake costs as much as many requests, so a worker does a few of them in an
//!   iteration. The server sets a deadline for a handshake. A handshake whose key cannot sign now
//!   ([`Session::awaits_key`]) continues with [`Session::try_key_again`].
//! - **End:** [`Session::close`] and [`Session::send`] before the socket is closed, but only after a complete response:
//!   the client takes `close_notify` for the proof that nothing is missing. When the client has closed its side
//!   ([`State::ClientClosed`]), it can still receive. After an error, the unsent bytes are the alert.
//! - **Time:** [`Session::write`] takes the time in milliseconds, to begin with a short record after a pause.
//!
//! [`ClientSession`] is the other side, for connections to backends, and is driven in the same way. [`ClientTls`] has
//! the certificates that it trusts, and the sessions that it resumes.
//!
//! # Changes
//!
//! [`ServerTls`] is immutable. A reload makes a new value for new connections, with the same [`TicketKeys`] and the
//! changes; open connections continue. A rotation makes other ticket keys. Before the first connection is accepted,
//! [`ServerTls::warm_up`] draws a random number.
//!
//! # Keys
//!
//! A private key may be in another process: [`Certificate::with_remote_key`] takes a [`RemoteSigner`] that asks it, and
//! that process signs with a [`PrivateKey`]; while it does not answer, handshakes wait. aws-lc-rs erases a key that is
//! loaded here when it is dropped; ring does not.
#![forbid(unsafe_code)]

#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
compile_error!("choose a library with the cryptography: the feature `aws-lc-rs` or `ring`");

// Modules are in import order: a module uses only modules below it.
mod client;
mod session;
mod hello;
mod record_boundary;
mod server_tls;
mod certificate_store;
pub mod self_signed;
mod certificate;
mod remote_key;
mod pem_files;
mod certificate_error;
mod der;
mod tickets;
mod alpn;
mod provider;

pub use alpn::Alpn;
pub use certificate::{Certificate, PresentedChain, time_problem};
pub use certificate_error::{CertificateError, CertificateProblem, FileContent, PemFile};
pub use certificate_store::CertificateStore;
pub use client::{ClientError, ClientSession, ClientTls, PeerName, Trust};
pub use remote_key::{KEY_ID_BYTES, KeyId, PrivateKey, RemoteSigner, SignError};
pub use server_tls::ServerTls;
pub use session::{RECORD_BYTES_MAX, Session, SessionError, State, UNSENT_BYTES_MAX, Version, WRITE_PARTS_MAX};
pub use tickets::{TICKET_KEY_BYTES, TICKET_LIFETIME_S, TicketKeys};
