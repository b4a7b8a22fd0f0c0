//! Sessions with clients of rustls in memory, and with OpenSSL.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod certificates;
mod client;
mod handshake;
mod idle_memory;
mod openssl;
mod records;
mod resumption;
mod robustness;

mod pair;
mod pki;
