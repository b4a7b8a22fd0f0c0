//! The configuration: reads a TOML file or the arguments of `serve`, checks them, and reports everything that is wrong.
//!
//! It opens no socket and starts nothing. Every other crate of the program gets its settings from here.
#![forbid(unsafe_code)]

mod origin;
mod file;
mod tree;
mod keys;
mod flags;
mod settings;
mod paths;
mod address;
mod domain_name;
mod limits;
mod service;
pub mod terminal;
pub mod diagnostic;

pub use address::parse_listen_address;
pub use domain_name::DomainName;
pub use flags::{Flags, parse_zone_argument};
pub use limits::{Limits, help_text as limits_help};
pub use origin::{CONFIG_VARIABLE, Origin, SearchPlaces};
pub use service::{Role, Service};
pub use settings::{Account, Config, DefaultSite, ListenerCount, Site, Zone};
