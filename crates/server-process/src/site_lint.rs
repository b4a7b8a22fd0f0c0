//! The findings of `check` in a site's files: broken links, names without a media type, and precompressed files that do
//! not match their uncompressed file. These are warnings: the site is served anyway.

mod precompressed;
mod reference_url;
mod references;

use crate::options::open_files_options;
use precompressed::{ReadBudget, beneath, coded_file};
use reference_url::SiteHosts;
use references::{PageReferences, Reference};
use sanderling_config::Limits;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::log::log;
use sanderling_http::{PathTraits, SitePath, media_type};
use sanderling_server::{LinkError, LinkUse, OpenFilesOptions, Root, Served, Site, SiteOptions, link_error};
use sanderling_site_rules::RedirectExample;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Warnings of a site about one kind of problem; the rest is counted.
const WARNINGS_MAX: usize = 100;
/// Locations of a circle of redirects that a warning has.
const SHOWN_LOCATIONS_MAX: usize = 6;
/// Time between two progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// The media type of names with an unknown extension.
const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";
/// Extensions that should have the unknown media type: programs and archives that browsers store.
const STORED: [&str; 12] = ["bin", "dat", "deb", "dmg", "exe", "img", "iso", "msi", "pkg", "rpm", "so", "dll"];

/// Checks the files of `site`, whose document root the configuration has as `document_root`, at `location`.
/// `ports`: those at which the server listens for HTTP and HTTPS.
pub(crate) fn lint(
    site: &Arc<Site>,
    document_root: &Path,
    ports: &[u16],
    location: &Location,
    limits: &Limits,
) -> Vec<Diagnostic> {
    let Root::Directory(root) = &site.root else { return Vec::new() };
    // Pages must not need files of earlier releases.
    let options = SiteOptions { previous_roots: Vec::new(), ..site.options.clone() };
    let mut lint = Lint {
        site: Arc::new(Site { options, ..Site::clone(site) }),
        root: root.real_path().to_owned(),
        document_root: document_root.to_owned(),
        ports: ports.to_owned(),
        files: open_files_options(limits),
        budget: ReadBudget::new(limits.check_read_bytes_max),
        decoded_bytes_max: limits.compressed_file_bytes_max.min(limits.compressed_content_bytes_max / 4),
        file_count: 0,
        next_progress: Instant::now() + PROGRESS_INTERVAL,
        links: BTreeMap::new(),
        extensions: BTreeMap::new(),
        warnings: Vec::new(),
    };
    let walk = lint.walk(limits.check_files_max);
    lint.finish(walk, location)
}

struct Lint {
    site: Arc<Site>,
    /// The document root without symbolic links.
    root: PathBuf,
    /// The document root as messages name it.
    document_root: PathBuf,
    ports: Vec<u16>,
    files: OpenFilesOptions,
    budget: ReadBudget,
    /// The largest decoded size of a precompressed file without an uncompressed one.
    decoded_bytes_max: u64,
    file_count: usize,
    next_progress: Instant,
    /// Each target, with its first place and the number of places.
    links: BTreeMap<(String, bool), (Place, usize)>,
    /// Extensions without a media type: the first file, and the number of files.
    extensions: BTreeMap<String, (PathBuf, usize)>,
    warnings: Vec<Diagnostic>,
}

/// A place in a file.
struct Place {
    file: PathBuf,
    line: u32,
    column: u32,
    reference: String,
}

/// Whether the limit of files was reached.
#[derive(Clone, Copy)]
enum Walk {
    Complete,
    Limited,
}

impl Lint {
    /// Checks all files that the site serves. Links to directories are not followed.
    fn walk(&mut self, files_max: usize) -> Walk {
        let mut directories = vec![Vec::new()];
        while let Some(directory) = directories.pop() {
            let entries = match fs::read_dir(beneath(&self.root, &directory)) {
                Ok(entries) => entries,
                Err(error) => {
                    self.warn(&directory, format!("cannot list the directory: {}", error_text(&error)), "");
                    continue;
                }
            };
            let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
            names.sort_unstable();
            for name in names {
                let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
                let path = [&directory, separator, name.as_bytes()].concat();
                if PathTraits::of(&path).intersects(self.site.options.refused_paths) {
                    continue;
                }
                let file = beneath(&self.root, &path);
                match fs::symlink_metadata(&file) {
                    Ok(metadata) if metadata.is_dir() => directories.push(path),
                    Ok(_) if file.is_file() => {
                        if self.file_count == files_max {
                            return Walk::Limited;
                        }
                        self.file_count += 1;
                        self.check_file(&path);
                        self.show_progress();
                    }
                    _ => {}
                }
            }
        }
        Walk::Complete
    }

    fn show_progress(&mut self) {
        if Instant::now() >= self.next_progress {
            self.next_progress += PROGRESS_INTERVAL;
            log(&format!("checking {}: {} files so far", self.document_root.display(), self.file_count));
        }
    }

    fn check_file(&mut self, path: &[u8]) {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if self.site.options.hides_rules_files && matches!(path, b"_redirects" | b"_headers") {
            return;
        }
        let site = Arc::clone(&self.site);
        let media_type = type_of(&site.options, name);
        if let Some(coded) = coded_file(path, |name| type_of(&site.options, name)) {
            let (file, base) = (beneath(&self.root, path), beneath(&self.root, coded.base));
            match precompressed::problem(&coded, &file, &base, &mut self.budget, self.decoded_bytes_max) {
                Ok(Some((problem, remedy))) => self.warn(path, format!("this file {problem}"), remedy),
                Ok(None) => {}
                Err(error) => self.warn(path, format!("cannot read the file: {}", error_text(&error)), ""),
            }
            return;
        }
        if media_type == UNKNOWN_MEDIA_TYPE {
            let extension = Path::new(std::ffi::OsStr::from_bytes(name)).extension().and_then(|text| text.to_str());
            if let Some(extension) =
                extension.map(str::to_ascii_lowercase).filter(|one| !STORED.contains(&one.as_str()))
            {
                let shown = self.shown(path);
                self.extensions.entry(extension).or_insert((shown, 0)).1 += 1;
            }
        }
        let is_page = media_type.starts_with("text/html") || media_type.starts_with("application/xhtml+xml");
        let is_style_sheet = media_type.starts_with("text/css");
        if !is_page && !is_style_sheet {
            return;
        }
        match self.read(path) {
            Ok(Some(content)) if is_page => self.collect(path, &content, references::of_page(&content)),
            Ok(Some(content)) => {
                let references = references::of_style_sheet(&content);
                self.collect(path, &content, PageReferences { base: None, references });
            }
            Ok(None) => {}
            Err(error) => self.warn(path, format!("cannot read the file: {}", error_text(&error)), ""),
        }
    }

    /// The content of a file, unless too much was read.
    fn read(&mut self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let file = beneath(&self.root, path);
        let bytes = file.metadata()?.len();
        if self.budget.take(bytes) { fs::read(file).map(Some) } else { Ok(None) }
    }

    /// Adds the links of a document.
    fn collect(&mut self, path: &[u8], content: &[u8], page: PageReferences) {
        let end = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let site = SiteHosts { hosts: &self.site.hosts, ports: &self.ports };
        // A percent sign in a directory's name is part of the name on disk.
        let own = format!("/{}", String::from_utf8_lossy(&path[..end]).replace('%', "%25"));
        let Some(directory) = page.base.map_or_else(|| Some(own.clone()), |base| site.base(&own, &base)) else {
            return;
        };
        let mut lines = Lines { content, offset: 0, line: 1, line_start: 0 };
        for Reference { url, link_use, offset } in page.references {
            let Some(target) = site.target(&directory, &url) else { continue };
            let (line, column) = lines.position(offset);
            let shown = beneath(&self.document_root, path);
            let place = || Place { file: shown, line, column, reference: url };
            self.links.entry((target, link_use == LinkUse::Navigation)).or_insert_with(|| (place(), 0)).1 += 1;
        }
    }

    /// The path of a file as messages name it.
    fn shown(&self, path: &[u8]) -> PathBuf {
        beneath(&self.document_root, path)
    }

    fn warn(&mut self, path: &[u8], message: String, remedy: &str) {
        let location = Location::File(self.shown(path));
        self.warnings.push(Diagnostic::warning(location, Problem::new(message, remedy)));
    }

    /// The warnings, when all files were checked.
    fn finish(mut self, walk: Walk, location: &Location) -> Vec<Diagnostic> {
        let mut warnings = limited(std::mem::take(&mut self.warnings), "files", location);
        let unknown = self.extensions.iter().map(|(extension, (file, count))| {
            let others = if *count > 1 { format!(", as {} other files", count - 1) } else { String::new() };
            let message = format!("the extension {extension} has no media type{others}: browsers download the file");
            let remedy = format!("add media_types = {{ {extension} = \"TYPE\" }} to the domain");
            Diagnostic::warning(Location::File(file.clone()), Problem::new(message, remedy))
        });
        warnings.extend(limited(unknown.collect(), "extensions", location));
        let host = self.site.hosts.first().map(String::as_bytes);
        let served = Served { files: &self.files, ports: &self.ports };
        let broken = self.links.iter().filter_map(|(link, (place, count))| {
            let link_use = if link.1 { LinkUse::Navigation } else { LinkUse::Resource };
            let others = if *count > 1 { format!(", as do {} other links to it", count - 1) } else { String::new() };
            let (problem, remedy) = match link_error(&self.site, host, link.0.as_bytes(), link_use, served)? {
                LinkError::Status(status) => {
                    (format!("gets status {}", status.code()), format!("add the file of {}", link.0))
                }
                LinkError::Circle(_) => ("is in a redirect loop".to_owned(), "correct the redirects".to_owned()),
            };
            let message = format!("the link to `{}` {problem}{others}", place.reference);
            let remedy = format!("{remedy}, or correct the link");
            let location = Location::Position { file: place.file.clone(), line: place.line, column: place.column };
            Some(Diagnostic::warning(location, Problem::new(message, remedy)))
        });
        warnings.extend(limited(broken.collect(), "links", location));
        warnings.extend(limited(self.missing_targets(location), "rules", location));
        warnings.extend(limited(self.foreign_hosts(location), "hosts of rules", location));
        warnings.extend(limited(self.redirect_circles(location), "redirects", location));
        let limit = match walk {
            Walk::Limited => {
                Some((format!("only {} files of the site were checked", self.file_count), "check_files_max"))
            }
            Walk::Complete if self.budget.unread_count > 0 => {
                Some((format!("skipped {} files of the site", self.budget.unread_count), "check_read_max"))
            }
            Walk::Complete => None,
        };
        let note = |(message, key)| {
            Diagnostic::note(location.clone(), Problem::new(message, format!("raise `{key}` in [limits] to check all")))
        };
        warnings.extend(limit.map(note));
        warnings
    }

    /// A warning for each file of a rule or of `fallback` that does not exist.
    fn missing_targets(&self, location: &Location) -> Vec<Diagnostic> {
        let SiteOptions { rules, files, .. } = &self.site.options;
        let rules_file = Location::File(beneath(&self.document_root, b"_redirects"));
        let mut warnings = Vec::new();
        let mut warn = |what: String, location: &Location| {
            let problem = Problem::new(format!("{what}, which does not exist"), "add the file, or correct the path");
            warnings.push(Diagnostic::warning(location.clone(), problem));
        };
        if let Some(fallback) = files.fallback.as_ref().filter(|path| !self.has_file(path.as_bytes())) {
            warn(format!("`fallback` is the file `{fallback}`"), location);
        }
        for rules in rules.iter() {
            let own = rules.own_rules.fixed_files().map(|path| (path, location));
            for (path, location) in own.chain(rules.file_rules.fixed_files().map(|path| (path, &rules_file))) {
                if SitePath::parse(&path).is_ok_and(|path| !self.has_file(path.as_bytes())) {
                    warn(format!("a rule serves the file `{}`", String::from_utf8_lossy(&path)), location);
                }
            }
        }
        warnings
    }

    /// A warning for each rule that is for another host than the site's: no request for this site matches it.
    fn foreign_hosts(&self, location: &Location) -> Vec<Diagnostic> {
        let hosts = &self.site.hosts;
        let is_own = |host: &str| {
            let is_below = |own: &String| own.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix));
            // The default site answers requests for addresses.
            hosts.is_empty() || host.parse::<IpAddr>().is_ok() || hosts.iter().any(|own| own == host || is_below(own))
        };
        let warning = |host: &str, location: Location| {
            let message = format!("a rule is for the host `{host}`, which is not a host of the site");
            let remedy = format!("write one of its hosts, such as `{}`, or add it to `aliases`", hosts[0]);
            Diagnostic::warning(location, Problem::new(message, remedy))
        };
        let in_file = |name: &[u8]| beneath(&self.document_root, name);
        let file_location = |line: Option<u32>| match line {
            Some(line) => Location::Position { file: in_file(b"_redirects"), line, column: 1 },
            None => Location::File(in_file(b"_headers")),
        };
        let Some(rules) = &self.site.options.rules else { return Vec::new() };
        let own = rules.own_rules.hosts().map(|(host, _)| (host, location.clone()));
        let of_files = rules.file_rules.hosts().map(|(host, line)| (host, file_location(line)));
        let foreign = own.chain(of_files).filter(|(host, _)| !is_own(host));
        foreign.map(|(host, location)| warning(host, location)).collect()
    }

    /// A warning for each circle of redirects, by several rules or by rules and files, at the first rule that leads
    /// into it.
    fn redirect_circles(&self, location: &Location) -> Vec<Diagnostic> {
        let (mut circles, mut warnings) = (BTreeSet::new(), Vec::new());
        let Some(rules) = &self.site.options.rules else { return warnings };
        let examples = rules.own_rules.redirect_examples().chain(rules.file_rules.redirect_examples());
        for RedirectExample { line, host, path } in examples {
            let request_host = host.or_else(|| self.site.hosts.first().map(String::as_str)).map(str::as_bytes);
            let served = Served { files: &self.files, ports: &self.ports };
            let error = link_error(&self.site, request_host, &path, LinkUse::Navigation, served);
            let Some(LinkError::Circle(locations)) = error else { continue };
            let start = locations.iter().position(|one| Some(one) == locations.last()).unwrap_or_default();
            // Each rule of a circle leads into it. A rule that makes paths longer and longer catches the targets of all
            // others.
            let grows = start + 1 == locations.len();
            let circle = if grows { &[][..] } else { &locations[start..] };
            if !circles.insert(circle.iter().cloned().collect::<BTreeSet<_>>()) {
                continue;
            }
            let mut shown: Vec<_> = locations.iter().map(|one| String::from_utf8_lossy(one)).collect();
            if shown.len() > SHOWN_LOCATIONS_MAX {
                shown.truncate(SHOWN_LOCATIONS_MAX);
                shown.push("...".into());
            }
            let of_host = host.map_or(String::new(), |host| format!(" of the host `{host}`"));
            let problem = Problem::new(
                format!("redirects{of_host} form a loop: {}", shown.join(" -> ")),
                "correct one of the rules: browsers give up after 20 redirects",
            );
            let location = line.map_or_else(
                || location.clone(),
                |line| Location::Position { file: beneath(&self.document_root, b"_redirects"), line, column: 1 },
            );
            warnings.push(Diagnostic::warning(location, problem));
        }
        warnings
    }

    /// Whether a rule can serve a file at this path below the document root. The file may be precompressed.
    fn has_file(&self, path: &[u8]) -> bool {
        let extensions: &[&str] = if self.site.options.files.clean_urls { &["", ".html"] } else { &[""] };
        let exists = |extension: &&str| {
            ["", ".br", ".zst", ".gz"]
                .iter()
                .any(|coding| beneath(&self.root, &[path, extension.as_bytes(), coding.as_bytes()].concat()).exists())
        };
        extensions.iter().any(exists)
    }
}

/// The first warnings, and the number of the others.
fn limited(mut warnings: Vec<Diagnostic>, what: &str, location: &Location) -> Vec<Diagnostic> {
    let count = warnings.len();
    if count > WARNINGS_MAX {
        warnings.truncate(WARNINGS_MAX);
        let message = format!("{} more {what} of this site have such a problem", count - WARNINGS_MAX);
        warnings
            .push(Diagnostic::warning(location.clone(), Problem::new(message, "correct those above, and check again")));
    }
    warnings
}

fn type_of<'o>(options: &'o SiteOptions, name: &[u8]) -> &'o str {
    let extension = Path::new(std::ffi::OsStr::from_bytes(name)).extension().unwrap_or_default();
    let own = options.media_types.iter().find(|(own, _)| extension.eq_ignore_ascii_case(own));
    own.map_or_else(|| media_type(name), |(_, media_type)| media_type)
}

/// Finds the lines of offsets that grow.
struct Lines<'c> {
    content: &'c [u8],
    offset: usize,
    line: u32,
    line_start: usize,
}

impl Lines<'_> {
    /// The line and column of a later offset, from 1.
    fn position(&mut self, offset: usize) -> (u32, u32) {
        let offset = offset.clamp(self.offset, self.content.len());
        for at in memchr::memchr_iter(b'\n', &self.content[self.offset..offset]) {
            self.line += 1;
            self.line_start = self.offset + at + 1;
        }
        self.offset = offset;
        (self.line, (offset - self.line_start) as u32 + 1)
    }
}
