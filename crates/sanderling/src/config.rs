//! Turns a configuration file, or the arguments of `serve`, into the one value that the program runs by.

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

pub(crate) use address::parse_listen_address;
pub(crate) use domain_name::DomainName;
pub(crate) use flags::{Flags, parse_zone_argument};
pub(crate) use limits::{Limits, help_text as limits_help};
pub(crate) use origin::{CONFIG_VARIABLE, Origin, SearchPlaces};
pub(crate) use settings::{Account, Config, DefaultSite, ListenerCount, Zone};
