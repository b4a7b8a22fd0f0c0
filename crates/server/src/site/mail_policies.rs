//! Policies for mail servers (MTA-STS), which their hosts serve from memory, whatever site has the host.

use sanderling_http::Host;
use std::collections::HashMap;

/// The first label of a host with a policy (RFC 8461 §3.3), with its dot.
const HOST_PREFIX: &[u8] = b"mta-sts.";
/// The path of a policy.
const POLICY_PATH: &[u8] = b"/.well-known/mta-sts.txt";

/// The policy of each host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailPolicies {
    by_host: HashMap<Vec<u8>, Vec<u8>>,
}

impl MailPolicies {
    /// The policy at `path` of `host`.
    pub(crate) fn find(&self, host: Host<'_>, path: &[u8]) -> Option<&[u8]> {
        let name = host.name.strip_suffix(b".").unwrap_or(host.name);
        let prefix = name.get(..HOST_PREFIX.len())?;
        if path != POLICY_PATH || !prefix.eq_ignore_ascii_case(HOST_PREFIX) {
            return None;
        }
        self.by_host.get(&name.to_ascii_lowercase()).map(Vec::as_slice)
    }
}

/// Hosts in lower case, each with its policy.
impl FromIterator<(String, String)> for MailPolicies {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(policies: I) -> MailPolicies {
        let by_host = policies.into_iter().map(|(host, policy)| (host.into_bytes(), policy.into_bytes()));
        MailPolicies { by_host: by_host.collect() }
    }
}
