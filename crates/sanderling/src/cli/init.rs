//! The arguments of `init`.

use super::parse_zone_name;
use crate::init::Init;
use clap::Args;
use sanderling_config::DomainName;
use std::net::IpAddr;
use std::path::PathBuf;

/// Write a configuration, a zone and a site for a domain on this machine
///
/// It writes sanderling.toml, zones/NAME.zone with the addresses of this machine, and a first page, and says what to
/// enter at the registrar and which command comes next. The site is in the folder `public`, or in /srv/NAME if the
/// files are in /etc/sanderling, which is deleted with the package. It overwrites nothing but a configuration that has
/// only comments, such as that of a package, and keeps a site with files as it is. If the configuration has another
/// domain, it prints what to add to it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling init example.com
  sudo sanderling init example.com --dir /etc/sanderling
  sanderling init example.com --address 203.0.113.5     behind a router that forwards the ports

Exit status: 0 if the files were written, 1 if not, 2 for a wrong command line.")]
pub(super) struct InitArgs {
    /// The domain
    #[arg(value_name = "NAME", value_parser = parse_zone_name)]
    name: DomainName,

    /// The folder of the files
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,

    /// An address that the Internet reaches this machine by; can be repeated [default: those of its interfaces]
    #[arg(long = "address", value_name = "ADDRESS", value_parser = parse_own_address)]
    addresses: Vec<IpAddr>,

    /// Leave the zone unsigned
    #[arg(long)]
    no_dnssec: bool,

    /// Ask nothing, and agree to the terms of Let's Encrypt, which issues the certificate
    #[arg(long)]
    yes: bool,
}

/// An address of one machine.
fn parse_own_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "write an address such as 203.0.113.5 or 2001:db8::5".to_owned())?;
    let is_of_others = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    match address.is_unspecified() || address.is_multicast() || is_of_others {
        true => {
            Err("clients cannot connect to it; write an address that the Internet reaches this machine by".to_owned())
        }
        false => Ok(address),
    }
}

impl From<InitArgs> for Init {
    fn from(arguments: InitArgs) -> Init {
        let InitArgs { name, dir, addresses, no_dnssec, yes } = arguments;
        Init { name, folder: dir, addresses, is_signed: !no_dnssec, agrees: yes }
    }
}
