//! CAA records in the zones of this server (RFC 8659): whether they let an authority issue. It would look itself, but a refusal counts
//! against its limits.

use crate::name_servers::{Answer, NameServers};
use sanderling_config::DomainName;
use sanderling_dns::Rtype;
use sanderling_zone_files::wire_name;

/// The flag of a property that an authority must understand (RFC 8659 §4.1).
const CRITICAL: u8 = 0x80;
/// Properties that name the authorities that may issue.
const ISSUE: &[u8] = b"issue";
const ISSUE_WILDCARD: &[u8] = b"issuewild";

/// Why `authority`, a name in CAA records, may not issue for `name`, which is in the zone at `apex` and may be a wildcard, and the
/// remedy. Records above the zone are not looked for.
pub(crate) async fn problem(
    name_servers: &NameServers,
    name: &str,
    apex: &DomainName,
    authority: &str,
) -> Option<(String, &'static str)> {
    let (host, is_wildcard) = name.strip_prefix("*.").map_or((name, false), |host| (host, true));
    let mut owner = DomainName::parse(host).ok()?;
    loop {
        match name_servers.ask_self(wire_name(&owner).as_name(), Rtype::CAA, wire_name(apex).as_name()).await {
            Ok(Answer::Records(records)) if records.is_empty() => {}
            Ok(Answer::Records(records)) => {
                let property = if is_wildcard { "issuewild" } else { "issue" };
                return match verdict(&records, authority, is_wildcard) {
                    Verdict::Allowed => None,
                    Verdict::NotNamed => Some((
                        format!(
                            "the CAA records at {owner} forbid it for {name}: there is no 0 {property} \"{authority}\""
                        ),
                        "add it to the zone, or remove the others",
                    )),
                    Verdict::UnknownProperty => Some((
                        format!("the CAA records at {owner} have a critical property that is not known"),
                        "remove it",
                    )),
                };
            }
            // The authority looks at other places, or this server cannot be asked.
            Ok(Answer::Alias | Answer::Referral) | Err(_) => return None,
        }
        if owner == *apex {
            return None;
        }
        owner = DomainName::parse(owner.as_str().split_once('.')?.1).ok()?;
    }
}

/// Whether CAA records let an authority issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// They name others.
    NotNamed,
    /// One is critical, and an authority that does not know it may not issue.
    UnknownProperty,
}

/// Whether the CAA records of a name, of which there is one, let `authority` issue (RFC 8659 §4.2, §4.3).
fn verdict(records: &[Vec<u8>], authority: &str, is_wildcard: bool) -> Verdict {
    let parsed = || records.iter().filter_map(|rdata| Property::parse(rdata));
    if parsed().any(|property| property.is_critical && !property.is_known()) {
        return Verdict::UnknownProperty;
    }
    let has_wildcard_rules = is_wildcard && parsed().any(|property| property.has_tag(ISSUE_WILDCARD));
    let tag = if has_wildcard_rules { ISSUE_WILDCARD } else { ISSUE };
    let mut rules = parsed().filter(|property| property.has_tag(tag)).peekable();
    let is_named = |property: Property<'_>| property.issuer().eq_ignore_ascii_case(authority.as_bytes());
    if rules.peek().is_none() || rules.any(is_named) { Verdict::Allowed } else { Verdict::NotNamed }
}

/// A CAA record.
struct Property<'r> {
    is_critical: bool,
    tag: &'r [u8],
    value: &'r [u8],
}

impl<'r> Property<'r> {
    fn parse(rdata: &'r [u8]) -> Option<Property<'r>> {
        let (&[flags, tag_bytes], rest) = rdata.split_first_chunk::<2>()?;
        let (tag, value) = rest.split_at_checked(usize::from(tag_bytes))?;
        Some(Property { is_critical: flags & CRITICAL != 0, tag, value })
    }

    fn has_tag(&self, tag: &[u8]) -> bool {
        self.tag.eq_ignore_ascii_case(tag)
    }

    fn is_known(&self) -> bool {
        [ISSUE, ISSUE_WILDCARD, b"iodef"].iter().any(|tag| self.has_tag(tag))
    }

    /// The name of the authority, without parameters.
    fn issuer(&self) -> &'r [u8] {
        self.value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_allow_the_authorities_that_they_name() {
        let check = |records: &[(u8, &str, &str)], is_wildcard: bool, expected: Verdict| {
            let rdata = |(flags, tag, value): &(u8, &str, &str)| {
                [&[*flags, tag.len() as u8], tag.as_bytes(), value.as_bytes()].concat()
            };
            let rdatas: Vec<Vec<u8>> = records.iter().map(rdata).collect();
            assert_eq!(verdict(&rdatas, "ca.example", is_wildcard), expected, "{records:?}");
        };
        for is_wildcard in [false, true] {
            check(&[(0, "issue", "ca.example")], is_wildcard, Verdict::Allowed);
            check(&[(0, "Issue", " CA.example ; validationmethods=dns-01")], is_wildcard, Verdict::Allowed);
            check(&[(0, "issue", "other.example"), (0, "issue", "ca.example")], is_wildcard, Verdict::Allowed);
            check(&[(0, "issue", "other.example")], is_wildcard, Verdict::NotNamed);
            check(&[(0, "issue", ";")], is_wildcard, Verdict::NotNamed);
            check(&[(0, "iodef", "mailto:a@b.example"), (0, "unknown", "x")], is_wildcard, Verdict::Allowed);
            check(&[(CRITICAL, "unknown", "x"), (0, "issue", "ca.example")], is_wildcard, Verdict::UnknownProperty);
        }
        let separate = [(0, "issue", "ca.example"), (0, "issuewild", ";")];
        check(&separate, false, Verdict::Allowed);
        check(&separate, true, Verdict::NotNamed);
        check(&[(0, "issue", ";"), (0, "issuewild", "ca.example")], true, Verdict::Allowed);
    }

    #[test]
    fn malformed_records_say_nothing() {
        for rdata in [&[][..], &[0], &[0, 9, b'i']] {
            assert_eq!(verdict(&[rdata.to_vec()], "ca.example", false), Verdict::Allowed);
        }
    }
}
