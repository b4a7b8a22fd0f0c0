//! The keeper: the only process with the private keys of certificates, which signs handshakes for the server processes,
//! and with the private keys of zones, which signs records for the agent.
//!
//! A server process that runs foreign code can have handshakes signed as long as it runs, but gets no key, and no
//! signature of anything else. The keeper has no network access, and no files except the zone keys. The supervisor
//! gives it the certificates' keys in sealed memory, and a socket for each worker. The keeper outlives a supervisor as
//! long as a server process has such a socket.
#![forbid(unsafe_code)]

// Modules are in import order: a module uses only modules below it.
mod startup;
pub mod key_transfer;
mod main_loop;
mod zone_thread;
mod zone_keys;
pub mod bind_key;
mod zone_key;
mod der;
mod rrsig_input;
mod provider;
mod signing_thread;
mod key_set;
mod handshake_input;

pub use startup::run;
