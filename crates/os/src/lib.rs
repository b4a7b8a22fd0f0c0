//! The only crate that calls the kernel: one module per kind of descriptor or call, every call counted.
//!
//! It knows no protocol, no cache and no limit. It does not retry what a caller could decide to retry, it never logs,
//! and its only state is the variants selected ([`fallback`]) and the counts ([`counters`]).
//!
//! `unsafe` is for calls that `rustix` does not have.
#![deny(clippy::undocumented_unsafe_blocks)]

// In the order of imports: a module uses only modules below it.
pub mod features;
#[cfg(feature = "io-uring")]
pub mod io_uring;
pub mod sandbox;
pub mod user;
pub mod process;
pub mod panics;
pub mod rlimit;
pub mod heap;
pub mod listen_fds;
pub mod sd_notify;
pub mod signals;
pub mod poll;
pub mod event_fd;
pub mod interfaces;
pub mod udp;
pub mod inotify;
pub mod memfd;
pub mod directory;
mod directory_entries;
mod path_walk;
pub mod log_directory;
pub mod file;
pub mod tcp;
pub mod socket;
pub mod request_socket;
pub mod seqpacket;
pub mod poll_set;
pub mod cloexec;
pub mod clock;
pub mod fallback;
pub mod counters;
pub mod error;
