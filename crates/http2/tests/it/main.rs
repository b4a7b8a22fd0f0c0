//! Tests of whole connections.
#![forbid(unsafe_code)]

mod client;
mod floods;
mod h2_client;
mod mutations;
mod requests;

mod support;
