//! The command `check`: reports everything that would keep `serve` from starting. It binds no socket.

use crate::domains::{Domains, ZoneState};
use crate::loader::{Loaded, Loader};
use crate::sandbox::lookup_user;
use sanderling_config::ConfigSource;
use sanderling_config::log::{print, report};
use sanderling_ipc::Exit;

/// Checks the configuration of `source`, with its sites and zones.
pub fn check(source: &ConfigSource) -> Exit {
    let loaded = source.load().and_then(|config| {
        lookup_user(&config)?;
        Ok(Loader::new().load(&config))
    });
    match loaded {
        Ok(loaded) if loaded.errors.is_empty() => {
            report(&loaded.warnings);
            print(&summary(&loaded.domains));
            Exit::Success
        }
        Ok(Loaded { mut errors, mut warnings, .. }) => {
            errors.append(&mut warnings);
            report(&errors);
            Exit::Failure
        }
        Err(diagnostics) => {
            report(&diagnostics);
            Exit::Failure
        }
    }
}

/// A line for each site and zone.
fn summary(domains: &Domains) -> String {
    let mut text = String::new();
    for site in &domains.sites {
        text += &format!("site {} for {}\n", site.folder.display(), site.hosts_text());
    }
    for zone in &domains.zones {
        let ZoneState { name, file, serial, record_count, .. } = zone.as_ref();
        let serial = serial.unwrap_or_default();
        text += &format!("zone {name} from {}: {record_count} records, serial {serial}\n", file.display());
    }
    text + "no errors\n"
}
