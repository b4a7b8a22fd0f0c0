//! Tests of a server with real sockets, files and threads.
#![forbid(unsafe_code)]

mod costs;
mod encrypted;
mod file_versions;
mod idle_memory;
mod slow_reader;
mod socket_sets;
mod takeover;
mod udp_variants;

mod support;
