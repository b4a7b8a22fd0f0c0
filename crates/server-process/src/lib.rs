//! The server process: inherits sockets and configuration from its supervisor, loads sites and zones, gives up its
//! privileges, serves, and carries out the supervisor's commands. The server process keeps serving if it loses the
//! supervisor.
//!
//! This crate also has the commands that load sites and zones without a supervisor: `check` and `demo`.
#![forbid(unsafe_code)]

mod check;
mod demo;
mod startup;
mod control_loop;
mod zone_answers;
mod status;
mod metrics;
mod sandbox;
mod assembly;
mod certificates;
mod backend_files;
mod keeper_link;
mod challenges;
mod derived_checks;
mod mail_policies;
mod reply_options;
mod transfers;
mod request_logs;
mod loader;
mod site_watcher;
mod rules_files;
mod users_files;
mod client_policy;
mod access;
mod exposed_files;
mod exposed_secrets;
mod site_lint;
mod service_unit;
mod signed_zone_checks;
mod limit_log;
mod heap_trim;
mod service_state;
mod backend_state;
mod certificate_state;
mod tsig_key_state;
mod load_status;
mod zone_guard;
mod zone_journals;
mod zone_updates;
mod catalog_members;
mod kept_zones;
mod options;
mod open_directories;
mod socket_sets;

pub use certificate_state::is_renewed_in_time;
pub use check::{CheckOptions, check, check_zone};
pub use demo::serve_demo;
pub use options::descriptor_problem;
pub use startup::serve;
