//! The server: workers (HTTP, and DNS over TCP), datagram threads (DNS over UDP), and the open-file cache.
//!
//! ```text
//! Server::run ─┬─ Worker      an event loop: HTTP and DNS over TCP     per iteration: wait, dispatch, ready list, timers
//!              ├─ Datagrams   no poller: DNS over UDP                  per iteration: receive, answer, send; then wait
//!              ├─ job         what may wait for the file system
//!              ├─ read        file content that is not in the page cache
//!              ├─ compress    files that clients would accept so
//!              └─ watcher     inotify
//! ```
//!
//! It knows no command line, no configuration file and no supervisor: it is given bound sockets and a [`Snapshot`] of
//! what to serve, whose parts can be replaced at any time.
#![forbid(unsafe_code)]

// The order is that of imports: a module uses those below it.
mod server;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod status;
mod worker;
mod listener_state;
mod socket_set;
mod datagrams;
mod connections;
mod shared;
mod late_replies;
mod connection;
mod http1;
mod http2;
mod exchange;
mod link_target;
mod site_rules;
mod dns_over_https;
mod dns_stream;
mod file_hit;
mod context;
mod send_queue;
mod body_source;
mod file_chunk;
mod transport;
mod proxy_protocol;
#[cfg(any(test, feature = "simulation"))]
mod memory_stream;
mod local_files;
mod authenticator;
mod login_queue;
mod file_cache;
mod eviction;
mod watched_directories;
mod file_reads;
mod jobs;
mod work_queue;
mod known_contents;
mod file_lookup;
mod open_file;
mod compression;
mod decoding;
mod file_variant;
mod disk_file;
mod snapshot;
mod notify;
mod transfers;
mod updates;
mod received_updates;
mod waiter;
mod file_error;
mod challenges;
mod mail_policies;
mod access_log;
mod query_log;
mod dnstap;
mod log_lines;
mod log_queue;
mod frame_stream;
mod sites;
mod earlier_files;
mod protection;
mod users;
mod timers;
mod rate_window;
mod key_queue;
mod idle_list;
mod slab;
mod request_budget;
mod permits;
mod buffer_budget;
mod rate_limit;
mod http_clients;
mod rate_limit_policy;
mod lifecycle;
mod metrics;
pub mod statistics;
mod heartbeat;
mod clock;
mod options;

pub use access_log::AccessLog;
pub use challenges::Challenges;
pub use connection::Protocol;
pub use dnstap::Dnstap;
pub use earlier_files::EarlierFiles;
pub use file_cache::CacheStats;
pub use frame_stream::FrameStream;
pub use http_clients::HttpClients;
pub use lifecycle::{DrainMode, State};
pub use link_target::{LinkError, LinkUse, Served, is_own_authority, link_error};
pub use log_lines::RequestLog;
pub use log_queue::{LogStatus, LogTarget};
pub use mail_policies::MailPolicies;
pub use metrics::Counter;
pub use notify::{NotifyInbox, NotifyPolicy, ReceivedNotify};
pub use options::{
    CompressionOptions, DnsOptions, HttpOptions, OpenFilesOptions, Options, PasswordOptions, StatisticsOptions,
};
pub use protection::{AccessRule, AuthRule, ProtectionRules};
pub use query_log::QueryLog;
pub use rate_limit_policy::{IpNetwork, RateLimitPolicy};
pub use sanderling_http2::Limits as Http2Limits;
pub use server::{HungThread, Server};
pub use sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, SiteRules, Sites};
pub use snapshot::{Snapshot, Tls};
pub use socket_set::{Role, SocketSet};
pub use statistics::{Slots, Statistics};
pub use status::{Status, ThreadStatus};
pub use transfers::{LastTransfer, OutgoingTransfers, TransferPolicy, TransferRule};
pub use updates::{ReceivedUpdate, UpdateInbox, UpdatePolicy};
pub use users::{Users, UsersProblem};
