//! A domain name as the operator writes it, checked and in lower case.

use crate::diagnostic::Problem;
use sanderling_site_rules::ascii_form;
use std::fmt;

/// Bytes of the longest name without its last dot (RFC 1035 §2.3.4 counts 255 with the lengths of the labels).
const TEXT_BYTES_MAX: usize = 253;
/// Bytes of the longest label (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: usize = 63;
const ROOT: &str = ".";
const WILDCARD: &str = "*";

/// A domain name: lower case, no dot at the end, no escapes; `.` is the root. Equal names are equal by `==`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

impl DomainName {
    /// Parses a name with or without its last dot.
    ///
    /// Labels consist of letters, digits, hyphens and underscores, and of slashes for the zones of RFC 2317 §4. A label
    /// may be `*`, because a zone may have such an apex (RFC 4592 §4.1).
    ///
    /// # Errors
    /// Returns the reason why `text` is not a name.
    pub fn parse(text: &str) -> Result<DomainName, Problem> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let problem =
            |reason: &str, remedy: &str| Err(Problem::new(format!("invalid domain name `{text}`: {reason}"), remedy));
        if text == ROOT {
            return Ok(DomainName(ROOT.to_owned()));
        }
        if name.is_empty() {
            return problem("it is empty", "write a name such as example.com");
        }
        if text.parse::<std::net::IpAddr>().is_ok() {
            return problem(
                "it is an IP address",
                "requests for addresses are answered by the site that `default` in [http] names, else by the first \
                 site",
            );
        }
        if !name.is_ascii() {
            let remedy = match ascii_form(name) {
                Some(ascii) => format!("write its ASCII form: {ascii}"),
                None => "write its ASCII form, which starts with xn--".to_owned(),
            };
            return problem("it has non-ASCII characters", &remedy);
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/');
        let labels = || name.split('.').filter(|&label| label != WILDCARD);
        if let Some(other) = labels().flat_map(str::bytes).find(|&byte| !is_allowed(byte)) {
            let other = char::from(other);
            let shown = if other.is_control() { other.escape_default().to_string() } else { other.to_string() };
            return problem(&format!("the character `{shown}` is not allowed"), "write a name such as example.com");
        }
        if name.split('.').any(str::is_empty) {
            return problem("it has an empty label", "remove the extra dot");
        }
        if let Some(label) = name.split('.').find(|label| label.len() > LABEL_BYTES_MAX) {
            let reason = format!("it has a label of {} characters", label.len());
            return problem(&reason, "a label has at most 63 characters");
        }
        if name.len() > TEXT_BYTES_MAX {
            return problem(&format!("it has {} characters", name.len()), "a name has at most 253 characters");
        }
        Ok(DomainName(name.to_ascii_lowercase()))
    }

    /// Parses an argument of the command line, which may have other characters than ASCII.
    ///
    /// # Errors
    /// Returns the reason why `text` is not a name.
    pub fn parse_argument(text: &str) -> Result<DomainName, Problem> {
        let ascii = if text.is_ascii() { None } else { ascii_form(text) };
        DomainName::parse(ascii.as_deref().unwrap_or(text))
    }

    /// The name in lower case, without a dot at the end: `www.example.com`; the root is `.`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels from left to right; none is empty or longer than 63 bytes.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.split('.').filter(|label| !label.is_empty())
    }

    /// Whether a site can have this host: a name that a URL can have, or `*.` before such a name. The root and other
    /// names with a slash or an asterisk are for zones only.
    pub(super) fn can_be_host(&self) -> bool {
        let name = self.0.strip_prefix("*.").unwrap_or(&self.0);
        self.0 != ROOT && !name.contains(['/', '*'])
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
