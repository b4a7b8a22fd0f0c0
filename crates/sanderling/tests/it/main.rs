//! Tests of the whole program, from outside.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod command_line;
mod demo;
mod dns_basics;
mod dns_hostile;
mod dns_zone;
mod http_basics;
mod http_encodings;
mod http_files;
mod http_hostile;
mod http_mirror;
mod http_pipelines;
mod lifecycle;
mod limits;
mod losses;
mod probe;

mod domain;
mod dns_messages;
mod http_answers;
mod supervision;
mod isolation;
