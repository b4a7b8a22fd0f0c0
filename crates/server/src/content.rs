//! What is served, and for whom: an immutable value, which workers take up whole when it is replaced.

use sanderling_dns::ZoneMap;
use sanderling_http::Host;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sites and zones.
#[derive(Debug)]
pub struct Content {
    /// Tells it from every other content that the process has had.
    id: u64,
    sites: Vec<Arc<Site>>,
    by_host: HashMap<Vec<u8>, usize>,
    default_site: DefaultSite,
    zones: ZoneMap,
}

/// A folder of files for some hosts.
#[derive(Debug)]
pub struct Site {
    /// Tells the files of one site from those of another in the open-file cache. A site that stays the same when the
    /// content is replaced keeps it.
    pub id: u32,
    /// The hosts that select it: names in lower case without a dot at the end.
    pub hosts: Vec<String>,
    /// Where its files are.
    pub root: Root,
}

/// Where files are.
#[derive(Debug)]
pub enum Root {
    /// Beneath a folder.
    Folder(sanderling_os::directory::Directory),
    /// In the program itself.
    Builtin(&'static [BuiltinFile]),
}

/// A file in the program itself.
#[derive(Clone, Copy, Debug)]
pub struct BuiltinFile {
    /// Its path below the root, without a slash before it.
    pub path: &'static str,
    /// What it holds.
    pub bytes: &'static [u8],
}

/// Which site answers a request whose Host no site claims; the number is its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultSite {
    /// None.
    None,
    /// This one if the Host is an IP address or `localhost`: so nobody's name is answered for by accident.
    Addresses(usize),
    /// This one, whatever the Host.
    EveryHost(usize),
}

/// Octets of the longest host that can be one of ours (RFC 1035 §2.3.4, in text).
const HOST_BYTES_MAX: usize = 253;

impl Content {
    /// The content of `sites` and `zones`; no host selects two sites.
    pub fn new(sites: Vec<Site>, default_site: DefaultSite, zones: ZoneMap) -> Content {
        let hosts = |(index, site): (usize, &Site)| {
            site.hosts.iter().map(move |host| (host.as_bytes().to_vec(), index)).collect::<Vec<_>>()
        };
        let by_host = sites.iter().enumerate().flat_map(hosts).collect();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Content { id, sites: sites.into_iter().map(Arc::new).collect(), by_host, default_site, zones }
    }

    /// The zones.
    pub fn zones(&self) -> &ZoneMap {
        &self.zones
    }

    /// The sites.
    pub fn sites(&self) -> &[Arc<Site>] {
        &self.sites
    }

    /// The index of the site that `host` selects; only a request of HTTP/1.0 has none.
    fn index_for(&self, host: Option<&[u8]>) -> Option<usize> {
        if let DefaultSite::EveryHost(index) = self.default_site {
            return Some(index);
        }
        let claimed = host.and_then(|host| self.index_claimed(host));
        claimed.or(match self.default_site {
            DefaultSite::Addresses(index) if host.is_none_or(is_address) => Some(index),
            _ => None,
        })
    }

    /// The index of the site that has `name` among its hosts.
    fn index_claimed(&self, name: &[u8]) -> Option<usize> {
        let name = name.strip_suffix(b".").unwrap_or(name);
        let mut folded = [0; HOST_BYTES_MAX];
        let folded = folded.get_mut(..name.len())?;
        folded.copy_from_slice(name);
        folded.make_ascii_lowercase();
        self.by_host.get(&*folded).copied()
    }
}

/// The id of the next content.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The site that was asked for last, by its host: mostly it is asked for again, and then not looked for.
#[derive(Debug, Default)]
pub(crate) struct LastSite {
    /// Of the content that it was found in; `None` before the first.
    content_id: Option<u64>,
    host: Vec<u8>,
    index: Option<usize>,
}

impl LastSite {
    /// The site of `content` that `host` selects; only a request of HTTP/1.0 has none.
    #[inline]
    pub(crate) fn site_for<'c>(&mut self, content: &'c Content, host: Option<Host<'_>>) -> Option<&'c Arc<Site>> {
        // No host is empty: nothing stands for none.
        let name = host.map_or(&[][..], |host| host.name);
        if self.content_id != Some(content.id) || self.host != name {
            self.look_for(content, name);
        }
        content.sites.get(self.index?)
    }

    #[cold]
    fn look_for(&mut self, content: &Content, name: &[u8]) {
        self.content_id = Some(content.id);
        self.index = content.index_for(Some(name).filter(|name| !name.is_empty()));
        self.host.clear();
        self.host.extend_from_slice(name);
    }
}

/// Whether a Host is no name but an address, or the name of whatever machine asks.
fn is_address(host: &[u8]) -> bool {
    host.starts_with(b"[")
        || host.eq_ignore_ascii_case(b"localhost")
        || std::str::from_utf8(host).is_ok_and(|host| host.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(default_site: DefaultSite) -> Content {
        let site = |id, hosts: &[&str]| Site {
            id,
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            root: Root::Builtin(&[]),
        };
        let zones = ZoneMap::new(sanderling_dns::HashSeed(1), []);
        Content::new(vec![site(7, &["example.com", "www.example.com"]), site(8, &["example.org"])], default_site, zones)
    }

    #[track_caller]
    fn check(content: &Content, host: &str, expected: Option<u32>) {
        let host = Host::parse(host.as_bytes()).expect("a host");
        let mut last = LastSite::default();
        for time in ["first", "again"] {
            assert_eq!(last.site_for(content, Some(host)).map(|site| site.id), expected, "{time}");
        }
    }

    #[test]
    fn a_host_selects_its_site() {
        let content = content(DefaultSite::Addresses(1));
        check(&content, "example.com", Some(7));
        check(&content, "WWW.Example.COM:8080", Some(7));
        check(&content, "example.com.", Some(7));
        check(&content, "example.org", Some(8));
        check(&content, "evil.example", None);
        check(&content, &"a".repeat(300), None);
        check(&content, "127.0.0.1:80", Some(8));
        check(&content, "[::1]", Some(8));
        check(&content, "localhost:8080", Some(8));
        check(&content, "127.0.0.1.example", None);
        assert_eq!(LastSite::default().site_for(&content, None).map(|site| site.id), Some(8));
    }

    #[test]
    fn the_last_site_is_that_of_the_same_host_in_the_same_content() {
        let (first, second) = (content(DefaultSite::Addresses(1)), content(DefaultSite::EveryHost(0)));
        let mut last = LastSite::default();
        let mut check = |content: &Content, host: Option<&str>, expected: Option<u32>| {
            let host = host.map(|host| Host::parse(host.as_bytes()).expect("a host"));
            assert_eq!(last.site_for(content, host).map(|site| site.id), expected, "{host:?}");
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
    fn one_site_may_answer_every_host() {
        check(&content(DefaultSite::EveryHost(0)), "evil.example", Some(7));
        check(&content(DefaultSite::None), "127.0.0.1", None);
    }
}
