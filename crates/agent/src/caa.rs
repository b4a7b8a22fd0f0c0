//! CAA records in the zones of this server (RFC 8659): whether they let an authority issue. The authority checks the
//! records itself, but each refusal counts against its limits.

use crate::name_servers::{Answer, NameServers};
use sanderling_config::DomainName;
use sanderling_dns::Rtype;
use sanderling_zone_files::wire_name;

/// The flag of a property that an authority must understand (RFC 8659 §4.1).
const CRITICAL: u8 = 0x80;
/// Properties that name the authorities that may issue.
const ISSUE: &[u8] = b"issue";
const ISSUE_WILDCARD: &[u8] = b"issuewild";

/// The issuing authority, the account there, and the validation method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issuance<'i> {
    /// The name of the authority in CAA records.
    pub(crate) authority: &'i str,
    /// The URL of the account there; not known if it cannot be read.
    pub(crate) account: Option<&'i str>,
    /// How the name is validated, as `dns-01`.
    pub(crate) method: &'i str,
}

/// The reason why the certificate may not be issued for `name`, and the remedy. The name is in the zone at `apex`, and
/// may be a wildcard. Records above the zone are not looked for.
pub(crate) async fn problem(
    name_servers: &NameServers,
    name: &str,
    apex: &DomainName,
    issuance: Issuance<'_>,
) -> Option<(String, &'static str)> {
    let (host, is_wildcard) = name.strip_prefix("*.").map_or((name, false), |host| (host, true));
    let mut owner = DomainName::parse(host).ok()?;
    loop {
        match name_servers.ask_self(wire_name(&owner).as_name(), Rtype::CAA, wire_name(apex).as_name()).await {
            Ok(Answer::Records(records)) if records.is_empty() => {}
            Ok(Answer::Records(records)) => {
                let property = if is_wildcard { "issuewild" } else { "issue" };
                let Issuance { authority, account, method } = issuance;
                let (why, remedy) = match verdict(&records, issuance, is_wildcard) {
                    Verdict::Allowed => return None,
                    Verdict::NotNamed => (
                        format!("forbid it for {name}: there is no 0 {property} \"{authority}\""),
                        "add it to the zone, or remove the others",
                    ),
                    Verdict::OtherAccount => (
                        format!(
                            "allow {authority} to issue only for another account: `accounturi` is not {}",
                            account.unwrap_or("known")
                        ),
                        "set it to this account, or remove `accounturi`",
                    ),
                    Verdict::OtherMethod => (
                        format!("forbid {authority} to validate {name} by {method}: it is not in `validationmethods`"),
                        "add it there, or remove `validationmethods`",
                    ),
                    Verdict::UnknownProperty => ("have an unknown critical property".to_owned(), "remove it"),
                };
                return Some((format!("the CAA records at {owner} {why}"), remedy));
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
    /// The records name other authorities.
    NotNamed,
    /// The records name the authority, with another account.
    OtherAccount,
    /// The records name the authority and the account, with other validation methods.
    OtherMethod,
    /// A record has an unknown critical property, so the authority may not issue.
    UnknownProperty,
}

/// Whether the CAA records of a name, of which there is one, let this be issued (RFC 8659 §4.2, §4.3).
fn verdict(records: &[Vec<u8>], issuance: Issuance<'_>, is_wildcard: bool) -> Verdict {
    let parsed = || records.iter().filter_map(|rdata| Property::parse(rdata));
    if parsed().any(|property| property.is_critical && !property.is_known()) {
        return Verdict::UnknownProperty;
    }
    let has_wildcard_rules = is_wildcard && parsed().any(|property| property.has_tag(ISSUE_WILDCARD));
    let tag = if has_wildcard_rules { ISSUE_WILDCARD } else { ISSUE };
    let rules: Vec<Property<'_>> = parsed().filter(|property| property.has_tag(tag)).collect();
    let named: Vec<&Property<'_>> = rules.iter().filter(|property| property.names(issuance.authority)).collect();
    let of_account: Vec<_> = named.iter().filter(|property| property.allows_account(issuance.account)).collect();
    match () {
        () if rules.is_empty() => Verdict::Allowed,
        () if named.is_empty() => Verdict::NotNamed,
        () if of_account.is_empty() => Verdict::OtherAccount,
        () if of_account.iter().any(|property| property.allows_method(issuance.method)) => Verdict::Allowed,
        () => Verdict::OtherMethod,
    }
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

    fn names(&self, authority: &str) -> bool {
        let issuer = self.value.split(|&byte| byte == b';').next().unwrap_or_default();
        issuer.trim_ascii().eq_ignore_ascii_case(authority.as_bytes())
    }

    /// RFC 8657 §3. An unknown account may be the permitted account.
    fn allows_account(&self, account: Option<&str>) -> bool {
        account.is_none_or(|account| self.parameters(b"accounturi").all(|uri| uri == account.as_bytes()))
    }

    /// RFC 8657 §4.
    fn allows_method(&self, method: &str) -> bool {
        let is_listed =
            |methods: &[u8]| methods.split(|&byte| byte == b',').any(|one| one.trim_ascii() == method.as_bytes());
        self.parameters(b"validationmethods").all(is_listed)
    }

    /// The values of the parameters with this name.
    fn parameters(&self, name: &'static [u8]) -> impl Iterator<Item = &'r [u8]> {
        let value_of = move |parameter: &'r [u8]| {
            let equals = parameter.iter().position(|&byte| byte == b'=')?;
            let (found, value) = parameter.split_at(equals);
            found.trim_ascii().eq_ignore_ascii_case(name).then(|| value[1..].trim_ascii())
        };
        self.value.split(|&byte| byte == b';').skip(1).filter_map(value_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUANCE: Issuance<'static> =
        Issuance { authority: "ca.example", account: Some("https://ca.example/acct/1"), method: "dns-01" };

    #[test]
    fn parameters_restrict_the_account_and_the_validation() {
        const OWN: &str = "accounturi=https://ca.example/acct/1";
        let check_with = |issuance: Issuance<'_>, parameters: &[&str], expected: Verdict| {
            let record = |parameters: &&str| [b"\0\x05issueca.example; ", parameters.as_bytes()].concat();
            let records: Vec<Vec<u8>> = parameters.iter().map(record).collect();
            assert_eq!(verdict(&records, issuance, false), expected, "{parameters:?}");
        };
        let check = |parameters: &[&str], expected: Verdict| check_with(ISSUANCE, parameters, expected);
        check(&[OWN], Verdict::Allowed);
        check(&[&format!(" {OWN} ;validationmethods = http-01 , dns-01;")], Verdict::Allowed);
        check(&["unknown=1"], Verdict::Allowed);
        check(&["accounturi=https://ca.example/acct/12"], Verdict::OtherAccount);
        check(&["AccountURI="], Verdict::OtherAccount);
        check(&[&format!("accounturi=https://ca.example/acct/2; {OWN}")], Verdict::OtherAccount);
        check(&["accounturi=https://ca.example/acct/2", OWN], Verdict::Allowed);
        check(&["validationmethods=http-01"], Verdict::OtherMethod);
        check(&["validationmethods=http-01", "validationmethods=dns-01"], Verdict::Allowed);
        // Each record fails for a different reason.
        check(&["accounturi=https://ca.example/acct/2", &format!("{OWN}; validationmethods=")], Verdict::OtherMethod);
        let unknown = Issuance { account: None, ..ISSUANCE };
        check_with(unknown, &["accounturi=https://ca.example/acct/2"], Verdict::Allowed);
        check_with(unknown, &["validationmethods=http-01"], Verdict::OtherMethod);
    }

    #[test]
    fn records_allow_the_authorities_that_they_name() {
        let check = |records: &[(u8, &str, &str)], is_wildcard: bool, expected: Verdict| {
            let rdata = |(flags, tag, value): &(u8, &str, &str)| {
                [&[*flags, tag.len() as u8], tag.as_bytes(), value.as_bytes()].concat()
            };
            let rdatas: Vec<Vec<u8>> = records.iter().map(rdata).collect();
            assert_eq!(verdict(&rdatas, ISSUANCE, is_wildcard), expected, "{records:?}");
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
            assert_eq!(verdict(&[rdata.to_vec()], ISSUANCE, false), Verdict::Allowed);
        }
    }
}
