//! The files `_redirects` and `_headers` of a document root.

use sanderling_config::Limits;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_os::directory::Directory;
use sanderling_os::file::{FileType, Metadata};
use sanderling_site_rules::{LineProblem, RuleLimits, RuleSet, parse_headers_file, parse_redirects_file};
use std::io;
use std::path::Path;

const REDIRECTS: &str = "_redirects";
const HEADERS: &str = "_headers";

/// The versions of the two files; `None` for a missing file.
pub(crate) type RulesVersion = [Option<Metadata>; 2];

/// The rules of a site's files.
#[derive(Debug, Default)]
pub(crate) struct LoadedRules {
    pub(crate) rules: RuleSet,
    pub(crate) version: RulesVersion,
    /// Lines that are skipped.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// The versions of the files of the document root `root` at the moment.
pub(crate) fn version(root: &Directory) -> RulesVersion {
    [REDIRECTS, HEADERS].map(|name| root.open_beneath(name.as_bytes()).and_then(|file| file.metadata()).ok())
}

/// Reads the files of the document root `root`, which the configuration has as `path`.
pub(crate) fn load(root: &Directory, path: &Path, limits: &Limits) -> LoadedRules {
    let mut loaded = LoadedRules::default();
    let [redirects, headers] = [REDIRECTS, HEADERS].map(|name| read(root, name, limits.rules_file_bytes_max));
    let rule_limits = RuleLimits { rules_max: limits.site_rules_max, patterns_max: limits.site_patterns_max };
    let (mut redirect_rules, mut field_rules) = (Vec::new(), Vec::new());
    for (index, (name, content)) in [(REDIRECTS, redirects), (HEADERS, headers)].into_iter().enumerate() {
        let file = path.join(name);
        let content = match content {
            Ok(None) => continue,
            Ok(Some((metadata, content))) => {
                loaded.version[index] = Some(metadata);
                content
            }
            Err((metadata, problem)) => {
                loaded.version[index] = metadata;
                loaded.warnings.push(Diagnostic::warning(Location::File(file), problem));
                continue;
            }
        };
        let problems = if name == REDIRECTS {
            let (rules, problems) = parse_redirects_file(&content, &mut rule_limits.clone());
            redirect_rules = rules;
            problems
        } else {
            let (rules, problems) = parse_headers_file(&content, &mut rule_limits.clone());
            field_rules = rules;
            problems
        };
        loaded.warnings.extend(problems.into_iter().map(|LineProblem { line, error }| {
            let location = Location::Position { file: file.clone(), line, column: 1 };
            Diagnostic::warning(location, Problem::new(error.message, error.remedy))
        }));
    }
    loaded.rules = RuleSet::new(redirect_rules, field_rules);
    loaded
}

/// The content of a file; `None` if there is none.
#[expect(clippy::type_complexity, reason = "an error has a version too")]
fn read(
    root: &Directory,
    name: &str,
    bytes_max: u64,
) -> Result<Option<(Metadata, Vec<u8>)>, (Option<Metadata>, Problem)> {
    let unreadable = |error: &io::Error| {
        Problem::new(format!("cannot read the file: {}", error_text(error)), "allow the server's user to read it")
    };
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let file = match root.open_beneath(name.as_bytes()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // The directory cannot be entered, which is reported of the site: there may be no such file.
        Err(error) if is_denied(&error) && root.metadata_without_links(name.as_bytes()).is_err() => {
            return Ok(None);
        }
        Err(error) => return Err((None, unreadable(&error))),
    };
    let metadata = file.metadata().map_err(|error| (None, unreadable(&error)))?;
    if metadata.file_type != FileType::Regular {
        let problem = Problem::new("it is not a regular file", "remove it, or set rules_files = false");
        return Err((Some(metadata), problem));
    }
    if metadata.length_bytes > bytes_max {
        let message = format!("the file is larger than {bytes_max} bytes; none of its rules is used");
        let problem = Problem::new(message, "shorten it, or raise `rules_file_max` in [limits]");
        return Err((Some(metadata), problem));
    }
    let mut content = vec![0; usize::try_from(metadata.length_bytes).unwrap_or(usize::MAX)];
    let mut length = 0;
    while length < content.len() {
        match file.read_at(&mut content[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) => return Err((Some(metadata), unreadable(&error))),
        }
    }
    content.truncate(length);
    Ok(Some((metadata, content)))
}
