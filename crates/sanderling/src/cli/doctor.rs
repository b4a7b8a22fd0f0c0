//! The arguments of `doctor`.

use super::parse_zone_name;
use super::search::find_path;
use clap::Args;
use sanderling_agent::outside::Places;
use sanderling_config::{DomainName, SearchPaths};
use sanderling_doctor::Options;
use sanderling_ipc::control_path::{RuntimeEnv, of_client};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

const DNS_PORT: u16 = 53;

/// Look at the server, this machine and its domains as the world sees them
///
/// It says what is right, what is wrong, and what to do: the configuration with its files, users and keys, the running
/// server, programs at its ports, the limit of open files, the clock, the delegation, glue and DS records of the parent
/// zone, all name servers, signatures, CAA records, the published addresses, and the certificates there. It changes
/// nothing. Run it as root, or it cannot see what belongs to other users.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo sanderling doctor
  sudo sanderling doctor example.com          only this domain
  sanderling doctor --json                    for programs
  sanderling doctor --resolver 9.9.9.9        ask another resolver for the parent zone

Exit status: 0 if nothing is wrong, 1 if something is, 2 for a wrong command line.")]
pub(super) struct DoctorArgs {
    /// The domain, with the names below it [default: all of the configuration, up to 32 zones and 64 hosts]
    #[arg(value_name = "NAME", value_parser = parse_zone_name)]
    name: Option<DomainName>,

    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The control socket of the server [default: that of the configuration file, else the default path]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// A resolver to ask for the servers of the parent zone; can be repeated [default: the key `resolvers`]
    #[arg(long = "resolver", value_name = "ADDR[:PORT]", value_parser = parse_server)]
    resolvers: Vec<SocketAddr>,

    /// A server of the parent zone; can be repeated [default: the key `parent_servers`, else all of them]
    #[arg(long = "parent-server", value_name = "ADDR[:PORT]", value_parser = parse_server)]
    parent_servers: Vec<SocketAddr>,

    /// Write JSON instead of text
    #[arg(long)]
    json: bool,
}

impl DoctorArgs {
    /// # Errors
    /// There is no configuration file.
    pub(super) fn options(self, search_paths: &SearchPaths, env: &RuntimeEnv) -> Result<Options, clap::Error> {
        let config_file = match self.config {
            Some(file) => file,
            None => find_path("doctor", search_paths)?,
        };
        let socket = of_client(self.control, Some(config_file.clone()), search_paths, env);
        let places = Places { name: self.name, resolvers: self.resolvers, parent_servers: self.parent_servers };
        Ok(Options { config_file, socket, places, is_json: self.json })
    }
}

/// An address with the port of DNS if it has none.
fn parse_server(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
    address.or_else(|_| text.parse()).map_err(|_| "write an address such as 192.0.2.53 or 192.0.2.53:5353".to_owned())
}
