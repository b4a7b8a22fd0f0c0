//! The only crate that calls the kernel: one module per kind of descriptor or call, every call counted.
//!
//! This crate knows no protocol, no cache and no limit. It leaves retries to the caller, never logs, and its only state
//! is the selected variants ([`fallback`]) and the counts ([`counters`]).
//!
//! `unsafe` is for calls that `rustix` does not have.
#![deny(clippy::undocumented_unsafe_blocks)]

// Modules are in import order: a module uses only modules below it.
pub mod features;
#[cfg(feature = "io-uring")]
pub mod io_uring;
pub mod sandbox;
pub mod user;
mod accounts;
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
