//! The journals of zones: continues them when a zone is loaded, and reads those that the agent has stored for an
//! earlier process.

use sanderling_config::log::log_warning;
use sanderling_config::{Config, DomainName, JOURNALS, Limits, TransfersByZone, journal_file};
use sanderling_dns::Zone;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The zones with journals, and their journal files.
pub(crate) struct ZoneJournals<'c> {
    transfers: TransfersByZone<'c>,
    bytes_max: usize,
    /// The state folder, if journals are stored.
    state: Option<&'c Path>,
}

/// The journals that have changed, encoded, with their zones' names. Without content, the journal no longer exists.
pub(crate) type ChangedJournals = Vec<(String, Vec<u8>)>;

impl<'c> ZoneJournals<'c> {
    pub(crate) fn new(config: &'c Config, state: Option<&'c Path>) -> ZoneJournals<'c> {
        let Limits { zone_journal_bytes_max: bytes_max, .. } = config.limits;
        ZoneJournals { transfers: config.transfers_by_zone(), bytes_max, state }
    }

    /// Gives `good` its journal: the previous version's journal plus the changes, or the stored journal. Adds the
    /// journals that the agent must store to `changed`.
    pub(crate) fn give(
        &self,
        apex: &DomainName,
        before: Option<&Zone>,
        good: &mut Zone,
        changed: &mut ChangedJournals,
    ) {
        let is_transferred = self.transfers.of(apex).rules().next().is_some();
        if !is_transferred || self.bytes_max == 0 {
            return;
        }
        match (before, self.state) {
            (Some(before), _) => {
                good.continue_journal(before, self.bytes_max);
                changed.push((apex.as_str().to_owned(), good.encoded_journal().unwrap_or_default()));
            }
            (None, Some(state)) => self.restore(&state.join(journal_file(apex)), good),
            (None, None) => {}
        }
    }

    fn restore(&self, path: &Path, good: &mut Zone) {
        let mut encoded = Vec::new();
        let read = File::open(path).and_then(|file| file.take(self.bytes_max as u64 + 1).read_to_end(&mut encoded));
        let problem = match read {
            Ok(bytes) if bytes > self.bytes_max => {
                Some(format!("it has more than {} bytes (`zone_journal_max`)", self.bytes_max))
            }
            Ok(_) => good.restore_journal(&encoded).err().map(|error| error.to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            let path = path.display();
            log_warning(&format!("not using the journal {path}: {problem}; secondaries get the whole zone once"));
        }
    }
}

/// The folder with the journals.
pub(crate) fn folder(state: &Path) -> PathBuf {
    state.join(JOURNALS)
}
