//! Limits of clients, and of the memory and the connections that they take.

pub(crate) mod rate_window;
pub(crate) mod key_queue;
pub(crate) mod idle_list;
pub(crate) mod request_budget;
pub(crate) mod permits;
pub(crate) mod buffer_budget;
pub(crate) mod rate_limit;
pub(crate) mod http_clients;
pub(crate) mod rate_limit_policy;
