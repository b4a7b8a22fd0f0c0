//! Tests of whole connections.
#![forbid(unsafe_code)]

mod floods;
mod h2_client;
mod mutations;
mod requests;

mod support;
