//! Which files were served from earlier releases of a site, for the operator: by their paths, as many as fit.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that are remembered.
const FILES_MAX: usize = 1_000;

/// The files that were served from earlier releases.
#[derive(Debug, Default)]
pub struct EarlierFiles(Mutex<BTreeSet<String>>);

impl EarlierFiles {
    /// Their number, at most 1,000, and the first paths in their order, at most `shown_max`.
    pub fn list(&self, shown_max: usize) -> (usize, Vec<String>) {
        let files = self.lock();
        (files.len(), files.iter().take(shown_max).cloned().collect())
    }

    /// Remembers a file, by its path below the document root.
    pub(crate) fn record(&self, path: &[u8]) {
        let path = format!("/{}", path.escape_ascii());
        let mut files = self.lock();
        if files.len() < FILES_MAX {
            files.insert(path);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_as_fit_are_listed_once() {
        let files = EarlierFiles::default();
        for number in (0..FILES_MAX + 5).chain(0..5) {
            files.record(format!("a/{number:04}\n.js").as_bytes());
        }
        assert_eq!(files.list(2), (FILES_MAX, vec!["/a/0000\\n.js".to_owned(), "/a/0001\\n.js".to_owned()]));
    }
}
