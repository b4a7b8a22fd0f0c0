//! What a site does with some paths besides serving files.

use sanderling_site_rules::{FieldRule, Redirect};

/// The rules of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// Redirects, rewrites and error pages, in the order of the file.
    pub redirects: Vec<Redirect>,
    /// Fields of responses, in the order of the file.
    pub fields: Vec<FieldRule>,
    /// Whether the files `_redirects` and `_headers` of the document root have rules too. They are not served then.
    pub reads_files: bool,
}

/// Only those of the document root.
impl Default for PathRules {
    fn default() -> PathRules {
        PathRules { redirects: Vec::new(), fields: Vec::new(), reads_files: true }
    }
}
