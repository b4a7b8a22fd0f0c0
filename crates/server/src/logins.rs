//! Passwords: which are checked, and in which order.

pub(crate) mod authenticator;
pub(crate) mod login_queue;
