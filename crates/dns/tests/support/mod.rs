//! Shared by the tests of answers: zones from text, queries, replies as text, and a reference implementation.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod exchange;
pub(crate) mod random_zone;
pub(crate) mod reference;
pub(crate) mod question;
pub(crate) mod reply;
pub(crate) mod zone_text;
pub(crate) mod signer;
pub(crate) mod validator;
