//! The import of one file, which may include itself.

use sanderling_import::{SourceFiles, SourceKind, import};
use std::path::{Path, PathBuf};

struct OneFile<'t>(&'t [u8]);

impl SourceFiles for OneFile<'_> {
    fn read(&mut self, _: &Path) -> Result<Vec<u8>, String> {
        Ok(self.0.to_vec())
    }

    fn list(&mut self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        Ok(vec![pattern.to_owned()])
    }
}

pub fn check(kind: SourceKind, text: &[u8]) {
    if let Ok(imported) = import(kind, &[PathBuf::from("main")], &mut OneFile(text)) {
        assert!(imported.report.expressed_line_count <= imported.report.line_count);
        assert!(imported.report.exact_line_count <= imported.report.expressed_line_count);
    }
}
