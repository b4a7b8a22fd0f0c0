//! A configuration's sites, and how their files are served.

use crate::diagnostic::{Diagnostic, Problem, ValueLocation};
use crate::domain_name::DomainName;
use crate::path_rules::PathRules;
use crate::paths::check_directory;
use sanderling_site_rules::FileOptions;
use std::path::{Path, PathBuf};

/// A web site: a document root that is served for some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The site's hosts, its own domain before the aliases; `*.example.com` is all names below example.com. No host
    /// belongs to two sites. Empty for `serve FOLDER`, where [`DefaultSite::EveryHost`](crate::DefaultSite) selects the
    /// site.
    pub hosts: Vec<DomainName>,
    /// A directory, relative to the working directory or absolute; `None` if only routes answer.
    pub document_root: Option<PathBuf>,
    /// The position of the document root in the configuration, or of the routes.
    pub location: ValueLocation,
    /// How its files are served.
    pub options: SiteOptions,
}

/// How a site's files are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteOptions {
    /// Extensions of file names, in lower case and without their dot, each with a media type that takes precedence over
    /// the built-in one. Names without an extension have the empty one.
    pub media_types: Vec<(String, String)>,
    /// Directories that symbolic links out of the document root can lead to, each with its location in the
    /// configuration.
    pub link_targets: Vec<(PathBuf, ValueLocation)>,
    /// How files are found.
    pub files: FileOptions,
    /// Whether names with a leading dot and backups are served.
    pub hidden_files: bool,
    /// Whether paths that must be normalized are refused.
    pub exact_paths: bool,
    /// Where DNS queries are answered (RFC 8484).
    pub doh: Option<DohPath>,
    /// Whether the server requests the certificate of its hosts.
    pub has_automatic_certificate: bool,
    /// Whether requests over HTTP are redirected to HTTPS, if there is a listener for it.
    pub https_redirect: bool,
    /// The HSTS policy in responses over HTTPS.
    pub hsts: Option<Hsts>,
    /// Redirects and fields by path.
    pub rules: PathRules,
}

/// The path of DNS over HTTPS, in the form of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DohPath {
    /// The path.
    pub path: String,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

/// Strict-Transport-Security (RFC 6797): browsers use the site with HTTPS only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// The time for which browsers remember the policy after they last saw it; 0 makes them forget it.
    pub max_age_s: u64,
    /// Whether it also applies to all names below the host.
    pub subdomains: bool,
    /// Whether the host agrees to be in the list that browsers come with.
    pub preload: bool,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

impl Hsts {
    /// The field line with its CRLF.
    pub fn field_line(&self) -> String {
        let subdomains = if self.subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        format!("Strict-Transport-Security: max-age={}{subdomains}{preload}\r\n", self.max_age_s)
    }

    /// The risks to note before browsers see it.
    pub fn risk(&self) -> Option<Diagnostic> {
        const DAY_S: u64 = 86_400;
        let time = match (self.max_age_s, self.max_age_s / DAY_S) {
            (0, _) => return None,
            (seconds, 0) => format!("{seconds} s"),
            (_, 1) => "a day".to_owned(),
            (_, days) => format!("{days} days"),
        };
        let subdomains = if self.subdomains { " and all names below it" } else { "" };
        let message = format!(
            "`hsts`: browsers that have visited this site refuse it{subdomains} for {time} over HTTP or with an \
                invalid certificate"
        );
        let first = if self.preload { "ask https://hstspreload.org for removal, which takes months, and " } else { "" };
        let remedy = format!("to withdraw it, {first}set `max_age = \"0s\"` for {time} before you remove the key");
        Some(Diagnostic::note(self.location.clone(), Problem::new(message, remedy)))
    }
}

impl Site {
    /// Whether the document root, if there is one, is a directory.
    ///
    /// # Errors
    /// Returns an error if the document root is not a directory, or cannot be reached.
    pub fn check_document_root(&self) -> Result<(), Diagnostic> {
        let Some(document_root) = &self.document_root else { return Ok(()) };
        check_directory("site", document_root).map_err(|problem| Diagnostic::error(self.location.clone(), problem))
    }

    /// The reason why this user cannot reach the document root from `/`. With a relative path, this process may reach
    /// it from its working directory.
    pub fn unreachable_problem(&self) -> Option<Diagnostic> {
        let document_root = std::path::absolute(self.document_root.as_ref()?).ok()?;
        let problem = check_directory("site", &document_root).err()?;
        Some(Diagnostic::error(self.location.clone(), problem))
    }

    /// The document root, for messages.
    pub fn root_text(&self) -> String {
        root_text(self.document_root.as_deref())
    }

    /// The link targets that are not directories, or cannot be reached.
    pub fn link_target_problems(&self) -> impl Iterator<Item = Diagnostic> {
        self.options.link_targets.iter().filter_map(|(path, location)| {
            let problem = check_directory("link target", path).err()?;
            Some(Diagnostic::error(location.clone(), problem))
        })
    }
}

/// A document root for messages; `None` is that of a site without files.
pub fn root_text(document_root: Option<&Path>) -> String {
    document_root.map_or_else(|| "(no files)".to_owned(), |path| path.display().to_string())
}
