//! From a query to its answer.

pub mod restricted;
pub mod answer;
pub(crate) mod signed_answer;
pub(crate) mod alias_chain;
pub(crate) mod proofs;
pub(crate) mod reply_ttl;
