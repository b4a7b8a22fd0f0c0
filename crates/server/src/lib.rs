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

// In the order of imports: a module uses only modules below it.
mod server;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod status;
mod threads;
mod socket_set;
mod protocols;
mod http;
mod context;
mod backends;
mod net;
mod logins;
mod files;
mod snapshot;
mod dns;
mod waiter;
mod unix_connector;
mod backend_servers;
mod backend_problems;
mod backend_tls;
mod file_error;
mod site;
mod log;
mod timers;
mod limits;
mod slab;
mod lifecycle;
mod metrics;
pub mod statistics;
mod heartbeat;
mod clock;
mod options;

pub use backend_problems::BackendProblem;
pub use backend_servers::BackendServerStatus;
pub use backend_tls::BackendTlsSettings;
pub use dns::notify::{NotifyInbox, NotifyPolicy, ReceivedNotify};
pub use dns::transfers::{LastTransfer, OutgoingTransfers, RefusedTransfer, TransferPolicy, TransferRule};
pub use dns::updates::{ReceivedUpdate, UpdateInbox, UpdatePolicy};
pub use files::file_cache::CacheStats;
pub use http::link_target::{LinkError, LinkUse, Served, is_own_authority, link_error};
pub use lifecycle::{DrainMode, State};
pub use limits::http_clients::HttpClients;
pub use limits::rate_limit_policy::{IpNetwork, RateLimitPolicy};
pub use log::access_log::AccessLog;
pub use log::dnstap::Dnstap;
pub use log::frame_stream::FrameStream;
pub use log::log_lines::RequestLog;
pub use log::log_queue::{LogStatus, LogTarget};
pub use log::query_log::QueryLog;
pub use metrics::Counter;
pub use options::{
    CompressionOptions, DnsOptions, HttpOptions, OpenFilesOptions, Options, PasswordOptions, StatisticsOptions,
};
pub use protocols::connection::Protocol;
pub use sanderling_http2::Limits as Http2Limits;
pub use server::{HungThread, Server};
pub use site::challenges::Challenges;
pub use site::earlier_files::EarlierFiles;
pub use site::mail_policies::MailPolicies;
pub use site::protection::{AccessRule, AuthRule, ProtectionRules};
pub use site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, SiteRules, Sites};
pub use site::users::{Users, UsersProblem};
pub use snapshot::{Snapshot, Tls};
pub use socket_set::{Role, SocketSet};
pub use statistics::{Slots, Statistics};
pub use status::{Status, ThreadStatus};
pub use unix_connector::{ConnectionResult, UnixConnector, WantedConnection};
