//! The keys of a domain that say how a request's file is found.

use super::ConfigBuilder;
use crate::config_reader::Entry;

/// Names that may be tried for each directory.
const INDEX_COUNT_MAX: usize = 8;
/// Bytes of the longest file name: NAME_MAX.
const NAME_BYTES_MAX: usize = 255;
/// Bytes of the longest path below a document root.
const PATH_BYTES_MAX: usize = 1024;

impl ConfigBuilder<'_, '_> {
    /// The names of the file that answers for a directory.
    pub(super) fn read_index(&mut self, entry: Entry<'_, '_>) -> Vec<String> {
        let mut names = Vec::new();
        for (offset, name) in self.reader.strings(entry) {
            if !is_file_name(name) {
                let remedy = format!("write {}", entry.example);
                self.error(offset, format!("`{name}` is not a file name"), remedy);
            } else if names.len() == INDEX_COUNT_MAX {
                self.error(offset, format!("`index` has more than {INDEX_COUNT_MAX} names"), "remove some");
                break;
            } else {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// The path of the file that answers navigations, below the document root.
    pub(super) fn read_fallback(&mut self, entry: Entry<'_, '_>) -> Option<String> {
        let (offset, path) = self.reader.string(entry)?;
        if path.len() > PATH_BYTES_MAX || !path.split('/').all(is_file_name) {
            let example = entry.example;
            let remedy = format!("write the path of a file in the site, without a leading slash: {example}");
            self.error(offset, format!("\"{path}\" is not a path in the site"), remedy);
            return None;
        }
        Some(path.to_owned())
    }
}

/// Whether the request path can have this name as its last segment.
fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= NAME_BYTES_MAX
        && !name.bytes().any(|byte| matches!(byte, b'/' | b'\\') || byte.is_ascii_control())
}

#[cfg(test)]
mod tests {
    use crate::config_file::tests::{check, config, read};

    #[test]
    fn index_is_a_list_of_file_names() {
        let of = |index: &str| format!("[domain.\"a.example\"]\nsite = \"public\"\nindex = {index}");
        assert_eq!(config(&of("[]")).sites[0].options.files.index, [""; 0]);
        let index = ["default.htm", "index.html"];
        assert_eq!(config(&of("[\"default.htm\", \"index.html\"]")).sites[0].options.files.index, index);
        for name in ["", "..", "a/b", "a\u{1}"] {
            let escaped = name.replace('\u{1}', "\\u0001");
            let name = name.escape_default();
            let message = format!("3:10: `{name}` is not a file name; write index = [\"index.html\"]");
            assert_eq!(read(of(&format!("[\"{escaped}\"]")).as_bytes()).expect_err("refused"), [message]);
        }
        let names: Vec<String> = (0..9).map(|number| format!("\"{number}\"")).collect();
        check(&of(&format!("[{}]", names.join(","))), &["3:42: `index` has more than 8 names; remove some"]);
    }

    #[test]
    fn fallback_is_the_path_of_a_file_in_the_site() {
        let of = |path: &str| format!("[domain.\"a.example\"]\nsite = \"public\"\nfallback = \"{path}\"");
        assert_eq!(config(&of("app/index.html")).sites[0].options.files.fallback.as_deref(), Some("app/index.html"));
        for path in ["", "/index.html", "a/", "a//b", "../a", "."] {
            let message = format!(
                "3:12: \"{path}\" is not a path in the site; write the path of a file in the site, without a leading \
                    slash: fallback = \"index.html\""
            );
            check(&of(path), &[&message]);
        }
    }
}
