//! Looks for everything that would keep `serve` from starting, and tells it; nothing is bound.

use crate::confinement::lookup_user;
use crate::loading::Loader;
use sanderling_config::log::{print, report};
use sanderling_config::{Config, ConfigSource, DomainName};
use sanderling_ipc::Exit;
use sanderling_server::Snapshot;

/// Checks what `source` says, with its sites and zones.
pub fn check(source: &ConfigSource) -> Exit {
    let checked = source.load().and_then(|config| {
        lookup_user(&config)?;
        Ok((Loader::default().load(&config)?, config))
    });
    match checked {
        Err(diagnostics) => {
            report(&diagnostics);
            Exit::Failure
        }
        Ok((loaded, config)) => {
            report(&loaded.warnings);
            print(&summary(&config, &loaded.snapshot));
            Exit::Success
        }
    }
}

/// What a good configuration would serve, a line each.
fn summary(config: &Config, snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for site in &config.sites {
        let hosts = site.hosts.iter().map(DomainName::as_str).collect::<Vec<_>>().join(", ");
        let hosts = if hosts.is_empty() { "every host".to_owned() } else { hosts };
        text.push_str(&format!("site {} for {hosts}\n", site.folder.display()));
    }
    for (zone, entry) in config.zones.iter().zip(snapshot.zones.entries()) {
        let sanderling_dns::ZoneEntry::Served(built) = entry else { continue };
        let (name, file) = (zone.apex.as_str(), zone.file.display());
        let (record_count, serial) = (built.record_count(), built.serial());
        text.push_str(&format!("zone {name} from {file}: {record_count} records, serial {serial}\n"));
    }
    text.push_str("no errors\n");
    text
}
