//! The agent: the process that makes outgoing connections and writes the state folder. The agent requests certificates
//! (RFC 8555) and renews them, derives records from them and from the configuration, transfers zones from primary
//! servers (RFC 5936), signs zones (RFC 4035) with the keeper's keys, and notifies secondary servers (RFC 1996).
//!
//! Its promises, such as an order in progress, are in the state folder: it can be killed at any moment, and the next
//! agent continues. It is the only crate with asynchronous code, in one thread; no client of the server waits for it.
//!
//! Another process, `sanderling doctor`, looks at domains from outside with the same clients ([`outside`]).
#![forbid(unsafe_code)]

// In the order of imports: a module uses only modules below it.
pub mod outside;
mod startup;
mod main_loop;
mod derived;
mod alias_targets;
mod listener_addresses;
mod pinned_keys;
mod rotation;
mod order_basis;
mod order;
mod accounts;
mod certificates;
mod failing_names;
mod schedule;
mod caa;
mod zones;
mod produced_catalogs;
mod resolver_files;
mod catalogs;
mod catalog_members;
mod secondary_zone;
mod signed_zone;
mod signed_version;
mod signing_keys;
mod zone_observer;
mod keeper_client;
mod command_answer;
mod served_zones;
mod alias_names;
mod zone_transfer;
mod transfer_stage;
mod notifier;
mod name_servers;
mod parent_servers;
mod journals;
mod updates;
mod backend_names;
mod failure;
mod https_client;
mod host_addresses;
mod resolvers;
mod dns_exchange;
mod tsig_keys;
mod unverified_tls;
mod link;
mod json_files;
mod retry;
mod blocking;
mod clock;
#[cfg(test)]
mod testing;

pub use accounts::roots_problem;
pub use startup::run;
