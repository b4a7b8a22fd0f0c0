//! The policy that tells other mail servers to encrypt mail to a domain (MTA-STS, RFC 8461).

use crate::domain_name::DomainName;

/// Maximum time in seconds for which a policy may be kept (RFC 8461 §3.2).
pub(super) const MAX_AGE_S_MAX: u64 = 31_557_600;
/// A week: long enough for a policy to outlive an attack, and short enough for a mistake.
pub(super) const MAX_AGE_S_DEFAULT: u64 = 604_800;

/// How senders treat a server that does not match the policy (RFC 8461 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailPolicyMode {
    /// Senders do not deliver.
    Enforce,
    /// Senders deliver, and report the mismatch if the domain asks for reports.
    #[default]
    Testing,
    /// Senders forget the policy.
    None,
}

/// A domain's configured policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailPolicy {
    /// How senders treat a server that does not match.
    pub mode: MailPolicyMode,
    /// The mail servers, or `*.` before their domain; if empty, the zone's mail servers.
    pub mx: Vec<DomainName>,
    /// Seconds for which senders keep the policy.
    pub max_age_s: u64,
}

impl MailPolicyMode {
    /// All modes.
    pub(super) const ALL: [MailPolicyMode; 3] =
        [MailPolicyMode::Enforce, MailPolicyMode::Testing, MailPolicyMode::None];

    /// The name of the mode in a policy.
    pub(super) fn name(self) -> &'static str {
        match self {
            MailPolicyMode::Enforce => "enforce",
            MailPolicyMode::Testing => "testing",
            MailPolicyMode::None => "none",
        }
    }
}

impl MailPolicy {
    /// The host that serves the policy of `domain` (RFC 8461 §3.3).
    pub fn host(domain: &DomainName) -> String {
        format!("mta-sts.{domain}")
    }

    /// Whether the mail servers come from the zone.
    pub(super) fn has_mx_of_zone(&self) -> bool {
        self.mx.is_empty() && self.mode != MailPolicyMode::None
    }

    /// The lines of the policy without the mail servers that only the zone knows; [`complete_mail_policy`] adds these.
    pub fn head(&self) -> String {
        let mx: String = self.mx.iter().map(|mx| mx_line(mx.as_str())).collect();
        format!("version: STSv1\r\nmode: {}\r\nmax_age: {}\r\n{mx}", self.mode.name(), self.max_age_s)
    }
}

fn mx_line(mx: &str) -> String {
    format!("mx: {mx}\r\n")
}

/// The policy with this [`head`](MailPolicy::head) of a domain whose zone has these mail servers; `None` if there is
/// none, since a policy without a mail server would forbid all.
pub fn complete_mail_policy(head: &str, mx_of_zone: &[String]) -> Option<String> {
    if head.contains("\nmx: ") || head.contains("\nmode: none\r") {
        return Some(head.to_owned());
    }
    let lines: String = mx_of_zone.iter().map(|mx| mx_line(mx)).collect();
    (!lines.is_empty()).then(|| format!("{head}{lines}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_servers_are_those_of_the_configuration_or_else_of_the_zone() {
        let name = |text| DomainName::parse(text).expect("a name");
        let mut policy = MailPolicy { max_age_s: 60, ..MailPolicy::default() };
        let of_zone = ["a.test".to_owned(), "b.test".to_owned()];
        let check = |policy: &MailPolicy, mx: &[String], expected: Option<&str>| {
            assert_eq!(complete_mail_policy(&policy.head(), mx).as_deref(), expected, "{policy:?}");
        };
        let head = "version: STSv1\r\nmode: testing\r\nmax_age: 60\r\n";
        check(&policy, &of_zone, Some(&format!("{head}mx: a.test\r\nmx: b.test\r\n")));
        check(&policy, &[], None);
        policy.mx = vec![name("*.mail.test")];
        check(&policy, &of_zone, Some(&format!("{head}mx: *.mail.test\r\n")));
        policy = MailPolicy { mode: MailPolicyMode::None, mx: Vec::new(), max_age_s: 60 };
        check(&policy, &[], Some("version: STSv1\r\nmode: none\r\nmax_age: 60\r\n"));
    }
}
