//! Tests of the whole program, through its sockets, signals and commands.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod access_log;
mod alias_records;
mod catalogs;
mod certificates;
mod clients;
mod command_line;
mod connection_limits;
mod demo;
mod derived_records;
mod dns_large_zone;
mod dns_malformed;
mod dns_options;
mod dns_probes;
mod dnstap;
mod exposed_files;
mod exposed_secrets;
mod failed_writes;
mod features;
mod floods;
mod http_differential;
mod http_malformed;
mod https;
mod io;
mod isolation;
mod keeper;
mod lies;
mod long_downloads;
mod lost_keys;
mod manual;
mod many_sites;
mod metrics;
mod probe;
mod query_log;
mod releases;
mod replaced_processes;
mod rights;
mod rollovers;
mod secondary_zones;
mod signed_zones;
mod site_files;
mod site_lint;
mod site_rules;
mod soak;
mod stalled_disk;
mod supervision;
mod torture;
mod transfers;
mod updates;
mod validated_zones;
mod zone_changes;
mod zones;

mod domain;
mod name_servers;
