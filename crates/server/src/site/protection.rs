//! The paths of a site that only some clients may request: those with an address of some networks, and those with a
//! password.
//!
//! [`Ruling`](crate::http::site_rules::Ruling) looks for the protection of the path of a request, and of the
//! file that was found for it, whichever way led to it. The rules are the operator's; nothing here changes them.

use crate::limits::rate_limit_policy::IpNetwork;
use crate::site::users::Users;
use sanderling_site_rules::{FileOptions, Pattern, ProtectedPaths};
use std::net::IpAddr;
use std::sync::Arc;

/// Clients that may request some paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// The clients that may; `None`: all.
    pub allow: Option<Vec<IpNetwork>>,
    /// The networks that have no access, even if `allow` has them.
    pub deny: Vec<IpNetwork>,
}

/// A password that some paths need.
#[derive(Clone, Debug)]
pub struct AuthRule {
    /// The realm shown to the client.
    pub realm: String,
    /// Those that may log in.
    pub users: Arc<Users>,
}

/// All rules of a site that protect paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectionRules {
    access: Vec<AccessRule>,
    auth: Vec<AuthRule>,
    access_paths: ProtectedPaths,
    auth_paths: ProtectedPaths,
}

/// The rules that protect a path, by their positions in [`ProtectionRules`]. Both must be satisfied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protection {
    pub(crate) access: Option<u32>,
    pub(crate) auth: Option<u32>,
    /// Whether a site that runs scripts does not send it: a file with the path of a script.
    pub(crate) is_script: bool,
}

impl AccessRule {
    pub(crate) fn admits(&self, client: IpAddr) -> bool {
        let has_client = |networks: &[IpNetwork]| networks.iter().any(|network| network.contains(client));
        !has_client(&self.deny) && self.allow.as_deref().is_none_or(has_client)
    }
}

/// Two rules are equal only if they have the same users, loaded at the same time.
impl PartialEq for AuthRule {
    fn eq(&self, other: &AuthRule) -> bool {
        self.realm == other.realm && Arc::ptr_eq(&self.users, &other.users)
    }
}

impl Eq for AuthRule {}

impl ProtectionRules {
    /// Rules with their patterns, the first of which that matches counts, in a site with these options.
    pub fn new(
        access: Vec<(Pattern, AccessRule)>,
        auth: Vec<(Pattern, AuthRule)>,
        files: &FileOptions,
    ) -> ProtectionRules {
        let (access_patterns, access) = access.into_iter().unzip();
        let (auth_patterns, auth) = auth.into_iter().unzip();
        let paths = |patterns| ProtectedPaths::new(patterns, files);
        ProtectionRules { access, auth, access_paths: paths(access_patterns), auth_paths: paths(auth_patterns) }
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.access.is_empty() && self.auth.is_empty()
    }

    /// The paths, on which entries of the open-file cache depend.
    pub fn paths(&self) -> [&ProtectedPaths; 2] {
        [&self.access_paths, &self.auth_paths]
    }

    /// The protection of the file at this path, or of a request for it that is not looked up yet.
    pub(crate) fn of_file(&self, path: &[u8]) -> Protection {
        self.find(|paths| paths.find_for_file(path))
    }

    /// The protection of a missing file for this path of a request: nothing must reveal that it is missing.
    pub(crate) fn of_missing(&self, path: &[u8], ends_with_slash: bool) -> Protection {
        self.find(|paths| paths.find_for_missing(path, ends_with_slash))
    }

    fn find(&self, find: impl Fn(&ProtectedPaths) -> Option<usize>) -> Protection {
        let [access, auth] =
            self.paths().map(|paths| find(paths).map(|position| u32::try_from(position).expect("rules are few")));
        Protection { access, auth, is_script: false }
    }

    /// The rule at a position of a [`Protection`].
    pub(crate) fn access(&self, position: u32) -> &AccessRule {
        &self.access[position as usize]
    }

    /// The rule at a position of a [`Protection`].
    pub(crate) fn auth(&self, position: u32) -> &AuthRule {
        &self.auth[position as usize]
    }
}

impl Protection {
    /// Whether a client that satisfies all of `satisfied` satisfies this too.
    #[inline]
    pub(crate) fn is_implied_by(self, satisfied: &[Protection]) -> bool {
        let has = |rule: Option<u32>, of: fn(&Protection) -> Option<u32>| {
            rule.is_none() || satisfied.iter().any(|protection| of(protection) == rule)
        };
        has(self.access, |protection| protection.access) && has(self.auth, |protection| protection.auth)
    }
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
            let rule = AccessRule { allow: allow.map(networks), deny: networks(deny) };
            assert_eq!(rule.admits(client.parse().expect("an address")), expected, "{allow:?} {deny:?} {client}");
        };
        let office: &[&str] = &["192.0.2.0/24", "2001:db8::/32"];
        check(Some(&[]), &[], "192.0.2.1", false);
        check(Some(office), &[], "192.0.2.255", true);
        check(Some(office), &[], "192.0.3.0", false);
        check(Some(office), &[], "2001:db8:ffff::1", true);
        check(Some(office), &[], "2001:db9::1", false);
        check(Some(office), &["192.0.2.7/32"], "192.0.2.7", false);
        check(Some(office), &["192.0.2.7/32"], "192.0.2.8", true);
        check(None, &["192.0.2.0/24"], "192.0.2.7", false);
        check(None, &["192.0.2.0/24"], "198.51.100.1", true);
        check(Some(&["0.0.0.0/0"]), &[], "198.51.100.1", true);
        check(Some(&["0.0.0.0/0"]), &[], "2001:db8::1", false);
    }

    #[test]
    fn satisfied_rules_imply_the_same_rules_alone() {
        let rules = |access, auth| Protection { access, auth, is_script: false };
        let none = rules(None, None);
        assert!(none.is_implied_by(&[]) && none.is_implied_by(&[rules(Some(0), None)]));
        assert!(rules(Some(1), None).is_implied_by(&[rules(Some(0), None), rules(Some(1), Some(0))]));
        assert!(rules(Some(1), Some(2)).is_implied_by(&[rules(Some(1), None), rules(None, Some(2))]));
        assert!(!rules(Some(1), Some(2)).is_implied_by(&[rules(Some(1), None), rules(None, Some(1))]));
        assert!(!rules(None, Some(0)).is_implied_by(&[]));
    }
}
