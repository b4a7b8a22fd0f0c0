//! The threads that serve, and their shared state.

pub(crate) mod worker;
pub(crate) mod listener_state;
pub(crate) mod datagrams;
pub(crate) mod connections;
pub(crate) mod shared;
pub(crate) mod late_replies;
