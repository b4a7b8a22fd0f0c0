//! The command `check`: reports everything that would keep `serve` from starting. It binds no socket.

use crate::loader::Loader;
use crate::sandbox::lookup_user;
use sanderling_config::diagnostic::Diagnostic;
use sanderling_config::log::{print, report};
use sanderling_config::{Config, ConfigSource, DomainName};
use sanderling_dns::ZoneEntry;
use sanderling_ipc::Exit;
use sanderling_server::Snapshot;

/// Checks the configuration of `source`, with its sites and zones.
pub fn check(source: &ConfigSource) -> Exit {
    match load(source) {
        Ok((config, snapshot, warnings)) => {
            report(&warnings);
            print(&summary(&config, &snapshot));
            Exit::Success
        }
        Err(diagnostics) => {
            report(&diagnostics);
            Exit::Failure
        }
    }
}

fn load(source: &ConfigSource) -> Result<(Config, Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
    let config = source.load()?;
    lookup_user(&config)?;
    let (snapshot, warnings) = Loader::default().load(&config).into_snapshot(&config)?;
    Ok((config, snapshot, warnings))
}

/// A line for each site and zone.
fn summary(config: &Config, snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for site in &config.sites {
        let hosts = site.hosts.iter().map(DomainName::as_str).collect::<Vec<_>>().join(", ");
        let hosts = if hosts.is_empty() { "every host".to_owned() } else { hosts };
        text.push_str(&format!("site {} for {hosts}\n", site.folder.display()));
    }
    for (zone, entry) in config.zones.iter().zip(snapshot.zones.entries()) {
        let ZoneEntry::Served(built) = entry else { continue };
        let (name, file) = (zone.apex.as_str(), zone.file.display());
        let (record_count, serial) = (built.record_count(), built.serial());
        text.push_str(&format!("zone {name} from {file}: {record_count} records, serial {serial}\n"));
    }
    text.push_str("no errors\n");
    text
}
