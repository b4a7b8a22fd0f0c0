//! The answer of a site to a request for a path, found without a server: for `check`, which follows the links of pages.
//!
//! The look-up is the same as for requests, so that the two cannot differ. It reads no content, and waits for the disk.

use crate::file_error::FileError;
use crate::files::compression::CompressionQueue;
use crate::files::file_lookup::FileLookup;
use crate::files::open_file::{Blocking, EntryLimits, FileKey, LookupContext, OpenError};
use crate::http::site_rules::{Action, Instead};
use crate::options::OpenFilesOptions;
use crate::site::sites::Site;
use sanderling_http::{CanonicalUrl, MalformedPath, Method, SitePath, Status, put_canonical_path};
use sanderling_site_rules::RequestPath;
use std::sync::Arc;
use std::time::Duration;

/// Redirects that browsers follow.
const REDIRECTS_MAX: usize = 20;
/// Descriptors of one file: that of itself, and those of its precompressed files.
const DESCRIPTORS: u64 = 8;

/// The target of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkUse {
    /// A person: a page is opened.
    Navigation,
    /// A page: it needs a script, an image and the like.
    Resource,
}

/// The served sites, and their addresses.
#[derive(Clone, Copy, Debug)]
pub struct Served<'o> {
    /// Which files are served.
    pub files: &'o OpenFilesOptions,
    /// The ports at which the server listens for HTTP and HTTPS.
    pub ports: &'o [u16],
}

/// The context of a link, and the served files.
type LinkOptions<'o> = (LinkUse, &'o OpenFilesOptions);

/// Whether `authority` of a URL, a host and perhaps a port, is one of a site with these hosts. At a port outside its
/// `ports` that is not the usual one, another server of the same host answers.
pub fn is_own_authority(authority: &[u8], hosts: &[String], ports: &[u16]) -> bool {
    let (host, port) = match memchr::memchr(b':', authority) {
        Some(at) => (&authority[..at], &authority[at + 1..]),
        None => (authority, &b""[..]),
    };
    let is_own_port = || {
        let number = str::from_utf8(port).ok().and_then(|port| port.parse().ok());
        port.is_empty() || number.is_some_and(|port| matches!(port, 80 | 443) || ports.contains(&port))
    };
    hosts.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(host)) && is_own_port()
}

/// Why a link does not lead to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// A request gets an error.
    Status(Status),
    /// Redirects lead to one of these locations after the other, and never to a file. Those of the same host are paths.
    /// The last one is among the previous ones, unless there are more than browsers follow.
    Circle(Vec<Vec<u8>>),
}

/// The problem of a link to `target`, a path and perhaps a query, within `site`: `None` if it leads to a file, perhaps
/// by redirects, or to another site. `host` is the host of the request.
pub fn link_error(
    site: &Arc<Site>,
    host: Option<&[u8]>,
    target: &[u8],
    link_use: LinkUse,
    Served { files, ports }: Served<'_>,
) -> Option<LinkError> {
    let first_host = host;
    let mut url = Url { is_https: true, host: host.map(<[u8]>::to_vec), target: target.to_vec() };
    let mut visited = vec![url.clone()];
    let mut locations = vec![url.target.clone()];
    loop {
        let location = match step(site, &url, (link_use, files)) {
            Ok(None) => return None,
            Ok(Some(location)) => location,
            Err(status) => return Some(LinkError::Status(status)),
        };
        url = redirected(&site.hosts, ports, url, &location)?;
        locations.push(if url.host.as_deref() == first_host { url.target.clone() } else { location });
        if visited.contains(&url) || visited.len() > REDIRECTS_MAX {
            return Some(LinkError::Circle(locations));
        }
        visited.push(url.clone());
    }
}

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Url {
    is_https: bool,
    host: Option<Vec<u8>>,
    /// The path, and perhaps a query.
    target: Vec<u8>,
}

/// The next request of a client that was redirected from `url` to `location`; `None` if it does not belong to the site
/// with these hosts.
fn redirected(hosts: &[String], ports: &[u16], url: Url, location: &[u8]) -> Option<Url> {
    let location = location.split(|&byte| byte == b'#').next().unwrap_or_default();
    if location.starts_with(b"/") && !location.starts_with(b"//") {
        return Some(Url { target: location.to_vec(), ..url });
    }
    let schemes = [(&b"https://"[..], true), (&b"http://"[..], false), (&b"//"[..], url.is_https)];
    let (after_scheme, is_https) =
        schemes.iter().find_map(|&(scheme, is_https)| Some((location.strip_prefix(scheme)?, is_https)))?;
    let (host, target) = after_scheme.split_at(memchr::memchr2(b'/', b'?', after_scheme).unwrap_or(after_scheme.len()));
    let name = host.split(|&byte| byte == b':').next().unwrap_or_default();
    is_own_authority(host, hosts, ports).then_some(())?;
    let slash: &[u8] = if target.starts_with(b"/") { b"" } else { b"/" };
    Some(Url { is_https, host: Some(name.to_ascii_lowercase()), target: [slash, target].concat() })
}

/// Follows a link: `Ok(None)` if there is a file, `Ok` with a location if it is redirected.
fn step(site: &Arc<Site>, url: &Url, (link_use, files): LinkOptions<'_>) -> Result<Option<Vec<u8>>, Status> {
    let Url { is_https, host, target } = url;
    let (raw_path, query) = match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (&target[..], None),
    };
    let path = SitePath::parse(raw_path).map_err(|MalformedPath| Status::BadRequest)?;
    let Some(rules) = &site.options.rules else { return find(site, &path, false, (link_use, files)) };
    if rules.is_doh_path(&path) {
        return Ok(None);
    }
    let request = RequestPath {
        is_https: *is_https,
        host: host.as_deref(),
        path: path.as_bytes(),
        ends_with_slash: path.ends_with_slash(),
        query,
    };
    if rules.routes.iter().any(|route| route.pattern.is_match(&request)) {
        // An application answers.
        return Ok(None);
    }
    match Action::by_rules(rules, Method::Get, &request) {
        Action::FileOr(Instead::Outcome(outcome)) => match find(site, &path, false, (link_use, files)) {
            Err(Status::NotFound) => follow(site, Action::of(outcome), (link_use, files)),
            found => found,
        },
        Action::File => find(site, &path, false, (link_use, files)),
        action => follow(site, action, (link_use, files)),
    }
}

fn follow(site: &Arc<Site>, action: Action<'_>, (link_use, files): LinkOptions<'_>) -> Result<Option<Vec<u8>>, Status> {
    match action {
        Action::Redirect(_, location) => Ok(Some(location)),
        Action::Page(status) | Action::OtherFile(_, Some(status)) => Err(status),
        Action::OtherFile(path, None) => match SitePath::parse(&path) {
            Ok(path) => find(site, &path, true, (link_use, files)),
            Err(_) => Err(Status::NotFound),
        },
        Action::File | Action::FileOr(_) | Action::DnsQuery | Action::Respond(_) | Action::Route(_) => Ok(None),
    }
}

/// Looks a file up. `is_of_rule`: a rule leads to the path.
fn find(
    site: &Arc<Site>,
    path: &SitePath<'_>,
    is_of_rule: bool,
    (link_use, files): LinkOptions<'_>,
) -> Result<Option<Vec<u8>>, Status> {
    let missing = || match (&site.options.files.fallback, link_use) {
        (Some(_), LinkUse::Navigation) => Ok(None),
        _ => Err(Status::NotFound),
    };
    if path.traits().intersects(site.options.refused_paths) {
        return missing();
    }
    let canonical = |url| {
        let mut location = Vec::new();
        put_canonical_path(path, url, &mut location);
        Ok(Some(location))
    };
    let mut key = FileKey::default();
    key.set(site.id, path);
    match look_up(site, &key, files) {
        Err(error) if is_of_rule && error.has_clean_url() => Ok(None),
        Err(FileError::IsDirectory) => canonical(CanonicalUrl::WithSlash),
        Err(FileError::Moved(url)) => canonical(url),
        Err(FileError::NotFound | FileError::NotFoundWithPage(_)) => missing(),
        Err(FileError::Forbidden) => Err(Status::Forbidden),
        // These say nothing about the link.
        Ok(()) | Err(FileError::Busy | FileError::Unavailable | FileError::Failed) => Ok(None),
    }
}

fn look_up(site: &Arc<Site>, key: &FileKey, files: &OpenFilesOptions) -> Result<(), FileError> {
    let limits = EntryLimits {
        small_file_bytes_max: 0,
        content_bytes: 0,
        descriptors: DESCRIPTORS,
        listed_entries: files.listing_entries_max,
    };
    let context =
        LookupContext { now_ms: 0, unix_s: 0, limits, attempt_count: u8::MAX, sendfile_after: Duration::ZERO };
    let compression = Arc::new(CompressionQueue::new(files.compression));
    match FileLookup::new(site, key).run(None, context, Blocking::Yes, (&Arc::default(), &compression)) {
        // A file that is being written exists.
        Ok(_) | Err(OpenError::Retry(_)) => Ok(()),
        Err(OpenError::File(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_to_another_port_leads_to_another_server() {
        let hosts = ["example.com".to_owned()];
        let check = |location: &str, expected: Option<(bool, &str)>| {
            let url = Url { is_https: true, host: Some(b"example.com".to_vec()), target: b"/old".to_vec() };
            let found = redirected(&hosts, &[8080], url, location.as_bytes());
            let expected = expected.map(|(is_https, target)| Url {
                is_https,
                host: Some(b"example.com".to_vec()),
                target: target.into(),
            });
            assert_eq!(found, expected, "{location}");
        };
        check("/new#part", Some((true, "/new")));
        check("//example.com/new", Some((true, "/new")));
        check("http://Example.com:80/new", Some((false, "/new")));
        check("https://example.com:443?query", Some((true, "/?query")));
        check("http://example.com:8080/new", Some((false, "/new")));
        check("http://example.com:3000/new", None);
        check("//example.com:3000/new", None);
        check("https://example.com:x/new", None);
        check("https://example.org:8080/new", None);
    }
}
