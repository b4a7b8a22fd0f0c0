//! The paths of a site that only some clients may request: those with an address of some networks, and those with a
//! password.
//!
//! [`Ruling`](crate::site_rules::Ruling) looks for the protection of the path of a request and of the file that is
//! served for it. The rules are the operator's; nothing here changes them.

use crate::rate_limit_policy::IpNetwork;
use crate::users::Users;
use sanderling_site_rules::{Pattern, RequestPath};
use std::net::IpAddr;
use std::sync::Arc;

/// Paths that only clients with some addresses may request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// The paths.
    pub pattern: Pattern,
    /// The clients that may; `None`: all.
    pub allow: Option<Vec<IpNetwork>>,
    /// Those of them that may not.
    pub deny: Vec<IpNetwork>,
}

/// Paths that need a password.
#[derive(Clone, Debug)]
pub struct AuthRule {
    /// The paths.
    pub pattern: Pattern,
    /// What the client is told to log in to.
    pub realm: String,
    /// Those that may log in.
    pub users: Arc<Users>,
}

/// The rules that protect a path. Both must be satisfied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Protection<'r> {
    pub(crate) access: Option<&'r AccessRule>,
    pub(crate) auth: Option<&'r AuthRule>,
}

impl AccessRule {
    pub(crate) fn admits(&self, client: IpAddr) -> bool {
        // A listener of IPv6 alone has clients with IPv4 under such addresses, if the system maps them.
        let client = client.to_canonical();
        let has_client = |networks: &[IpNetwork]| networks.iter().any(|network| network.contains(client));
        !has_client(&self.deny) && self.allow.as_deref().is_none_or(has_client)
    }
}

/// Two rules are equal only if they have the same users, loaded at the same time.
impl PartialEq for AuthRule {
    fn eq(&self, other: &AuthRule) -> bool {
        (&self.pattern, &self.realm) == (&other.pattern, &other.realm) && Arc::ptr_eq(&self.users, &other.users)
    }
}

impl Eq for AuthRule {}

impl<'r> Protection<'r> {
    /// The rules for a path, of a request or of a file: the first of each kind that matches. All paths that may lead to
    /// the same file have the same rules: that of a page without its extension, of a precompressed file, and of a
    /// directory with its index.
    pub(crate) fn of(path: &[u8], index: &[String], access: &'r [AccessRule], auth: &'r [AuthRule]) -> Protection<'r> {
        if access.is_empty() && auth.is_empty() {
            return Protection::default();
        }
        let spellings = spellings_of(path, index);
        let is_match = |pattern: &Pattern| {
            spellings.iter().any(|path| {
                [false, true].into_iter().any(|ends_with_slash| {
                    pattern.is_match(&RequestPath { is_https: false, host: None, path, ends_with_slash, query: None })
                })
            })
        };
        Protection {
            access: access.iter().find(|rule| is_match(&rule.pattern)),
            auth: auth.iter().find(|rule| is_match(&rule.pattern)),
        }
    }
}

/// The paths that may lead to the same file as `path`.
fn spellings_of(path: &[u8], index: &[String]) -> Vec<Vec<u8>> {
    let mut paths = vec![path.to_vec()];
    for coding in [&b".br"[..], b".zst", b".gz"] {
        paths.extend(path.strip_suffix(coding).map(<[u8]>::to_vec));
    }
    for base in paths.clone() {
        paths.extend(base.strip_suffix(b".html").map(<[u8]>::to_vec));
        paths.push([&base, &b".html"[..]].concat());
        for name in index.iter().map(String::as_bytes) {
            let separator: &[u8] = if base.is_empty() { b"" } else { b"/" };
            paths.push([&base, separator, name].concat());
            let directory = base.strip_suffix(name).filter(|rest| rest.is_empty() || rest.ends_with(b"/"));
            paths.extend(directory.map(|rest| rest.strip_suffix(b"/").unwrap_or(rest).to_vec()));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNetwork> {
        let network = |text: &&str| {
            let (address, bits) = text.split_once('/').expect("a prefix");
            IpNetwork::new(address.parse().expect("an address"), bits.parse().expect("bits"))
        };
        texts.iter().map(network).collect()
    }

    #[test]
    fn client_must_be_allowed_and_not_denied() {
        let check = |allow: Option<&[&str]>, deny: &[&str], client: &str, expected: bool| {
            let pattern = Pattern::parse("/*", &[]).expect("a pattern");
            let rule = AccessRule { pattern, allow: allow.map(networks), deny: networks(deny) };
            assert_eq!(rule.admits(client.parse().expect("an address")), expected, "{allow:?} {deny:?} {client}");
        };
        let office: &[&str] = &["192.0.2.0/24", "2001:db8::/32"];
        check(Some(&[]), &[], "192.0.2.1", false);
        check(Some(office), &[], "192.0.2.255", true);
        check(Some(office), &[], "192.0.3.0", false);
        check(Some(office), &[], "2001:db8:ffff::1", true);
        check(Some(office), &[], "2001:db9::1", false);
        check(Some(office), &[], "::ffff:192.0.2.1", true);
        check(Some(office), &["192.0.2.7/32"], "192.0.2.7", false);
        check(Some(office), &["192.0.2.7/32"], "192.0.2.8", true);
        check(None, &["192.0.2.0/24"], "192.0.2.7", false);
        check(None, &["192.0.2.0/24"], "::ffff:192.0.2.7", false);
        check(None, &["192.0.2.0/24"], "198.51.100.1", true);
        check(Some(&["0.0.0.0/0"]), &[], "198.51.100.1", true);
        check(Some(&["0.0.0.0/0"]), &[], "2001:db8::1", false);
    }
}
