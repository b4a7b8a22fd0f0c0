//! Drives the whole program from outside, as its users and its peers do.
#![forbid(unsafe_code)]

mod clients;
mod process;
