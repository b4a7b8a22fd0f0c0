//! What tests of several crates share: the program under test, its clients, temporary folders, random numbers.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "the names of test helpers say what they do")]

pub mod clients;
pub mod process;
pub mod process_ids;
pub mod random;
