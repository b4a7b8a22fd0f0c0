//! From a request to its response, whatever the version of HTTP.

pub(crate) mod exchange;
mod forward_auth;
mod backend_exchange;
mod recoding;
mod server_choice;
pub(crate) mod link_target;
pub(crate) mod asked;
pub(crate) mod site_rules;
mod grpc;
pub(crate) mod script;
pub(crate) mod dns_over_https;
pub(crate) mod file_hit;
