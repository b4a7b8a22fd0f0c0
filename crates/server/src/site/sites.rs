//! The web sites of a server, and which of them a request's host selects.

use crate::site::earlier_files::EarlierFiles;
use crate::site::protection::{Protection, ProtectionRules};
use crate::site::script_path;
use sanderling_http::{Host, PathTraits, SitePath, media_type};
use sanderling_os::directory::Directory;
use sanderling_site_rules::{Backend, Cors, FileOptions, ProtectedPaths, Routes, RuleSet};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All sites.
#[derive(Clone, Debug)]
pub struct Sites {
    /// Differs from that of every other value of the process, so that a worker can cache a look-up.
    id: u64,
    sites: Vec<Arc<Site>>,
    by_host: HashMap<Vec<u8>, usize>,
    /// By what follows the asterisk of a wildcard: `.example.com`.
    by_suffix: HashMap<Vec<u8>, usize>,
    default_site: DefaultSite,
}

/// The files that are served for some hosts.
#[derive(Clone, Debug)]
pub struct Site {
    /// Distinguishes the site's files in the open-file cache. A site that a reload does not change keeps its id.
    pub id: u32,
    /// The hosts that select the site, in lower case and without a final dot; `*.example.com` is all names below
    /// example.com, at any depth.
    pub hosts: Vec<String>,
    /// The document root.
    pub root: Root,
    /// How its files are served.
    pub options: SiteOptions,
}

/// How the files of a site are served.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// Directories that symbolic links out of the document root can lead to.
    pub link_targets: Vec<Arc<Directory>>,
    /// The document roots of earlier releases, the last one first: files that their pages need are still served, if
    /// their names change with their content.
    pub previous_roots: Vec<Arc<Directory>>,
    /// The files served from them.
    pub earlier_files: Arc<EarlierFiles>,
    /// Extensions, in lower case and without their dot, each with a media type that takes precedence over the built-in
    /// one. Names without an extension have the empty one.
    pub media_types: Vec<(String, String)>,
    /// How files are found.
    pub files: FileOptions,
    /// Requests for paths with one of these get 404; [`PathTraits::TOO_LONG`] is one of them.
    pub refused_paths: PathTraits,
    /// The files `_redirects` and `_headers` of the document root are not served.
    pub hides_rules_files: bool,
    /// Its other actions; `None` if nothing, so that the path of a request has one test for all of it.
    pub rules: Option<Box<SiteRules>>,
}

/// The actions of a site other than serving files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteRules {
    /// Requests that arrive without encryption are redirected to HTTPS.
    pub redirects_to_https: bool,
    /// Certificate authorities can request challenges here ([`Challenges`](crate::Challenges)).
    pub answers_challenges: bool,
    /// Additional lines in the heads of responses over HTTPS, each with its CRLF.
    pub https_field_lines: String,
    /// The path at which DNS queries are answered (RFC 8484), as in a request.
    pub doh_path: Option<String>,
    /// Fields of all responses, which rules by path may replace.
    pub default_fields: Arc<RuleSet>,
    /// The other origins that may read responses.
    pub cors: Option<Cors>,
    /// Browsers keep files with a hash of their content in their name, and ask for others again.
    pub caches_fingerprinted: bool,
    /// Paths that need a password, or that only clients with some addresses may request.
    pub protection: ProtectionRules,
    /// The requests that an application answers.
    pub routes: Arc<Routes>,
    /// Redirects and fields by path, of the operator.
    pub own_rules: Arc<RuleSet>,
    /// The same, of the files `_redirects` and `_headers` of the site. Those of the operator take precedence.
    pub file_rules: Arc<RuleSet>,
}

impl SiteRules {
    /// Whether DNS queries are answered at `path`.
    pub(crate) fn is_doh_path(&self, path: &SitePath<'_>) -> bool {
        self.doh_path.as_ref().is_some_and(|doh_path| {
            let (doh_path, ends_with_slash) = match doh_path.strip_suffix('/') {
                Some(doh_path) => (doh_path, true),
                None => (doh_path.as_str(), false),
            };
            doh_path.strip_prefix('/').is_some_and(|doh_path| doh_path.as_bytes() == path.as_bytes())
                && path.ends_with_slash() == ends_with_slash
        })
    }

    /// Whether the path of a request may matter.
    pub(crate) fn has_path_rules(&self) -> bool {
        let sets = [&self.default_fields, &self.own_rules, &self.file_rules];
        !self.protection.is_empty()
            || self.cors.is_some()
            || self.caches_fingerprinted
            || !self.routes.is_empty()
            || sets.into_iter().any(|set| !set.is_empty())
    }
}

impl Site {
    /// The same site with other rules of its files.
    #[must_use]
    pub fn with_file_rules(&self, file_rules: RuleSet) -> Site {
        let mut rules = self.options.rules.as_deref().cloned().unwrap_or_default();
        rules.file_rules = Arc::new(file_rules);
        let rules = (rules != SiteRules::default()).then(|| Box::new(rules));
        Site { options: SiteOptions { rules, ..self.options.clone() }, ..self.clone() }
    }
}

/// Without hidden files.
impl Default for SiteOptions {
    fn default() -> SiteOptions {
        SiteOptions {
            link_targets: Vec::new(),
            previous_roots: Vec::new(),
            earlier_files: Arc::default(),
            media_types: Vec::new(),
            files: FileOptions::default(),
            refused_paths: PathTraits::HIDDEN.union(PathTraits::TOO_LONG),
            hides_rules_files: false,
            rules: None,
        }
    }
}

impl Site {
    /// The greatest id.
    pub const ID_MAX: u32 = u32::MAX >> 1;
}

impl SiteOptions {
    /// Whether browsers keep files whose name changes with the content.
    pub(crate) fn caches_fingerprinted(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.caches_fingerprinted)
    }

    /// The protection of the file at this path.
    pub(crate) fn protection_of_file(&self, path: &[u8]) -> Protection {
        let by_rules = self.protection().map_or_else(Protection::default, |rules| rules.of_file(path));
        Protection { is_script: script_path::names_script(path), ..by_rules }
    }

    /// The paths that rules protect, on which the entries of the open-file cache depend.
    pub fn protected_paths(&self) -> [ProtectedPaths; 2] {
        self.protection().map(|rules| rules.paths().map(ProtectedPaths::clone)).unwrap_or_default()
    }

    /// The rules that protect paths, if there are any.
    pub(crate) fn protection(&self) -> Option<&ProtectionRules> {
        self.rules.as_deref().map(|rules| &rules.protection).filter(|rules| !rules.is_empty())
    }

    /// The media type of a file by its name.
    pub(crate) fn media_type(&self, file_name: &[u8]) -> &str {
        let dot = file_name.iter().rposition(|&byte| byte == b'.');
        let extension = dot.map_or(&[][..], |dot| &file_name[dot + 1..]);
        let own = self.media_types.iter().find(|(own, _)| extension.eq_ignore_ascii_case(own.as_bytes()));
        own.map_or_else(|| media_type(file_name), |(_, media_type)| media_type)
    }
}

/// Where a site's files are.
#[derive(Clone, Debug)]
pub enum Root {
    /// Beneath a directory.
    Directory(Arc<Directory>),
    /// In the program itself.
    Builtin(&'static [BuiltinFile]),
    /// The directory could not be opened: requests are answered 503.
    Unavailable,
}

/// A file in the program itself.
#[derive(Clone, Copy, Debug)]
pub struct BuiltinFile {
    /// The path below the document root, without a leading slash.
    pub path: &'static str,
    /// The content.
    pub bytes: &'static [u8],
}

/// The site that answers requests for hosts of no site, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultSite {
    /// None.
    None,
    /// This site, for IP addresses and `localhost` only, so that no foreign name is answered for by accident.
    Addresses(usize),
    /// This site, for all hosts that belong to no other.
    EveryHost(usize),
}

/// Bytes of the longest host name (RFC 1035 §2.3.4, in text).
const HOST_BYTES_MAX: usize = 253;

/// The id of the next [`Sites`].
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Sites {
    /// The sites of a server. No host selects two of them.
    pub fn new(sites: Vec<Site>, default_site: DefaultSite) -> Sites {
        let hosts = |(index, site): (usize, &Site)| {
            site.hosts.iter().map(move |host| (host.as_bytes().to_vec(), index)).collect::<Vec<_>>()
        };
        let (wildcards, by_host): (Vec<_>, Vec<_>) =
            sites.iter().enumerate().flat_map(hosts).partition(|(host, _)| host.starts_with(b"*."));
        let by_suffix = wildcards.into_iter().map(|(host, index)| (host[1..].to_vec(), index)).collect();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (by_host, sites) = (by_host.into_iter().collect(), sites.into_iter().map(Arc::new).collect());
        Sites { id, sites, by_host, by_suffix, default_site }
    }

    /// The backends of all routes. Several routes may have the same.
    pub(crate) fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        let rules = self.sites.iter().filter_map(|site| site.options.rules.as_deref());
        rules.flat_map(|rules| rules.routes.iter()).flat_map(|route| route.backends())
    }

    /// The same sites, of which that at `index` is replaced by one for the same hosts.
    #[must_use]
    pub fn with_site(&self, index: usize, site: Site) -> Sites {
        let mut sites = Sites { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), ..self.clone() };
        sites.sites[index] = Arc::new(site);
        sites
    }

    /// The sites, in the order given.
    pub fn all(&self) -> &[Arc<Site>] {
        &self.sites
    }

    /// Whether `host` belongs to no site, and the site for all other hosts answers.
    pub(crate) fn falls_to_default(&self, host: &[u8]) -> bool {
        matches!(self.default_site, DefaultSite::EveryHost(_)) && self.find_named(host).is_none()
    }

    /// The index of the site for `host`, which only an HTTP/1.0 request lacks.
    fn find(&self, host: Option<&[u8]>) -> Option<usize> {
        let named = host.and_then(|host| self.find_named(host));
        named.or(match self.default_site {
            DefaultSite::EveryHost(index) => Some(index),
            DefaultSite::Addresses(index) if host.is_none_or(is_address) => Some(index),
            DefaultSite::Addresses(_) | DefaultSite::None => None,
        })
    }

    fn find_named(&self, name: &[u8]) -> Option<usize> {
        let name = name.strip_suffix(b".").unwrap_or(name);
        let mut folded = [0; HOST_BYTES_MAX];
        let folded = folded.get_mut(..name.len())?;
        folded.copy_from_slice(name);
        folded.make_ascii_lowercase();
        self.by_host.get(&*folded).copied().or_else(|| self.find_by_wildcard(folded))
    }

    /// The site of the wildcard with the longest suffix of `name`, which is in lower case.
    fn find_by_wildcard(&self, name: &[u8]) -> Option<usize> {
        if self.by_suffix.is_empty() {
            return None;
        }
        // The asterisk does not match an empty label: the name of the domain itself is not below it.
        let mut suffixes = (1..name.len()).filter(|&at| name[at] == b'.').map(|at| &name[at..]);
        suffixes.find_map(|suffix| self.by_suffix.get(suffix).copied())
    }
}

/// The last site that a worker looked up: most requests are for the same host as the previous one.
#[derive(Debug, Default)]
pub(crate) struct SiteCache {
    /// The [`Sites`] of the look-up; `None` before the first.
    sites_id: Option<u64>,
    host: Vec<u8>,
    index: Option<usize>,
}

impl SiteCache {
    /// The site of `sites` for `host`, which only an HTTP/1.0 request lacks.
    #[inline]
    pub(crate) fn find<'c>(&mut self, sites: &'c Sites, host: Option<Host<'_>>) -> Option<&'c Arc<Site>> {
        // No host is empty, so an empty name can mean none.
        let name = host.map_or(&[][..], |host| host.name);
        if self.sites_id != Some(sites.id) || self.host != name {
            self.refresh(sites, name);
        }
        sites.sites.get(self.index?)
    }

    /// The index of the last site.
    pub(crate) fn index(&self) -> Option<usize> {
        self.index
    }

    #[cold]
    fn refresh(&mut self, sites: &Sites, name: &[u8]) {
        self.sites_id = Some(sites.id);
        self.index = sites.find(Some(name).filter(|name| !name.is_empty()));
        self.host.clear();
        self.host.extend_from_slice(name);
    }
}

/// Of `a/b/c`: the document root, `a`, `a/b` and `a/b/c`.
pub(crate) fn ancestors(directory: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let slashes = directory.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(index, _)| index);
    let whole = (!directory.is_empty()).then_some(directory.len());
    [0].into_iter().chain(slashes).chain(whole).map(move |end| &directory[..end])
}

/// Whether a host is an IP address or `localhost`.
pub(crate) fn is_address(host: &[u8]) -> bool {
    let host = host.strip_suffix(b".").unwrap_or(host);
    host.starts_with(b"[")
        || host.eq_ignore_ascii_case(b"localhost")
        || std::str::from_utf8(host).is_ok_and(|host| host.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(default_site: DefaultSite) -> Sites {
        let site = |id, hosts: &[&str]| Site {
            id,
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            root: Root::Builtin(&[]),
            options: SiteOptions::default(),
        };
        Sites::new(vec![site(7, &["example.com", "www.example.com"]), site(8, &["example.org"])], default_site)
    }

    #[track_caller]
    fn check(sites: &Sites, host: &str, expected: Option<u32>) {
        let host = Host::parse(host.as_bytes()).expect("a host");
        let mut cache = SiteCache::default();
        for time in ["first", "again"] {
            assert_eq!(cache.find(sites, Some(host)).map(|site| site.id), expected, "{time}");
        }
    }

    #[test]
    fn a_host_selects_its_site() {
        let sites = sites(DefaultSite::Addresses(1));
        check(&sites, "example.com", Some(7));
        check(&sites, "WWW.Example.COM:8080", Some(7));
        check(&sites, "example.com.", Some(7));
        check(&sites, "example.org", Some(8));
        check(&sites, "evil.example", None);
        check(&sites, &"a".repeat(300), None);
        check(&sites, "127.0.0.1:80", Some(8));
        check(&sites, "[::1]", Some(8));
        check(&sites, "localhost:8080", Some(8));
        check(&sites, "localhost.", Some(8));
        check(&sites, "127.0.0.1.example", None);
        assert_eq!(SiteCache::default().find(&sites, None).map(|site| site.id), Some(8));
    }

    #[test]
    fn a_wildcard_selects_names_below_it_unless_a_longer_or_an_exact_name_does() {
        let site = |id, hosts: &[&str]| Site {
            id,
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            root: Root::Builtin(&[]),
            options: SiteOptions::default(),
        };
        let sites = vec![site(1, &["*.example.com"]), site(2, &["*.a.example.com"]), site(3, &["b.example.com"])];
        let sites = Sites::new(sites, DefaultSite::Addresses(2));
        check(&sites, "x.example.com", Some(1));
        check(&sites, "X.Y.Example.com.", Some(1));
        check(&sites, "x.a.example.com", Some(2));
        check(&sites, "a.example.com", Some(1));
        check(&sites, "b.example.com", Some(3));
        check(&sites, "x.b.example.com", Some(1));
        check(&sites, "example.com", None);
        check(&sites, ".example.com", None);
        check(&sites, "xexample.com", None);
        check(&sites, "*.example.com", Some(1));
        check(&sites, "127.0.0.1", Some(3));
    }

    #[test]
    fn the_cached_site_is_that_of_the_same_host_and_sites() {
        let (first, second) = (sites(DefaultSite::Addresses(1)), sites(DefaultSite::EveryHost(0)));
        let mut cache = SiteCache::default();
        let mut check = |sites: &Sites, host: Option<&str>, expected: Option<u32>| {
            let host = host.map(|host| Host::parse(host.as_bytes()).expect("a host"));
            assert_eq!(cache.find(sites, host).map(|site| site.id), expected, "{host:?}");
        };
        check(&first, Some("example.com"), Some(7));
        check(&first, Some("example.org"), Some(8));
        check(&first, None, Some(8));
        check(&first, Some("evil.example"), None);
        check(&first, Some("evil.example"), None);
        check(&second, Some("evil.example"), Some(7));
        check(&first, Some("evil.example"), None);
    }

    #[test]
    fn the_default_site_answers_every_host_or_none() {
        check(&sites(DefaultSite::EveryHost(0)), "evil.example", Some(7));
        check(&sites(DefaultSite::EveryHost(0)), "127.0.0.1", Some(7));
        check(&sites(DefaultSite::EveryHost(0)), "example.org", Some(8));
        let is_any = |default: DefaultSite, host: &str| sites(default).falls_to_default(host.as_bytes());
        assert!(is_any(DefaultSite::EveryHost(0), "evil.example") && !is_any(DefaultSite::EveryHost(0), "example.org"));
        assert!(!is_any(DefaultSite::Addresses(0), "evil.example"));
        check(&sites(DefaultSite::None), "127.0.0.1", None);
    }
}
