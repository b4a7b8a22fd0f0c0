//! The keys that may change records of a zone by dynamic update (RFC 2136).

use crate::domain_name::DomainName;

/// The record types that a rule can name, other than `TYPE65280` and the like.
pub const UPDATE_TYPES: [&str; 26] = [
    "A",
    "AAAA",
    "CAA",
    "CDNSKEY",
    "CDS",
    "CERT",
    "CNAME",
    "DHCID",
    "DNAME",
    "DS",
    "HINFO",
    "HTTPS",
    "LOC",
    "MX",
    "NAPTR",
    "NS",
    "OPENPGPKEY",
    "PTR",
    "RP",
    "SMIMEA",
    "SOA",
    "SRV",
    "SSHFP",
    "SVCB",
    "TLSA",
    "TXT",
];

/// A key whose owner may change some records of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateRule {
    /// The key that signs the updates.
    pub key: DomainName,
    /// The records' names.
    pub names: Vec<NamePattern>,
    /// The records' types, in upper case; `None` for all.
    pub types: Option<Vec<String>>,
}

/// Names of a zone: `_acme-challenge.**`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(Vec<PatternLabel>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternLabel {
    /// In lower case.
    Exact(String),
    /// `*`: any label.
    One,
    /// `**`: any number of labels, or none.
    Any,
}

impl NamePattern {
    /// The names of `text`, without the zone's name: labels, of which `*` is any one and `**` is any number. `@` is the
    /// name of the zone itself.
    ///
    /// # Errors
    /// Returns the problem.
    pub(super) fn parse(text: &str) -> Result<NamePattern, &'static str> {
        if text == "@" {
            return Ok(NamePattern(Vec::new()));
        }
        let label = |label: &str| match label {
            "*" => Ok(PatternLabel::One),
            "**" => Ok(PatternLabel::Any),
            "" => Err("it has an empty label"),
            _ if label.len() > 63 => Err("it has a label of more than 63 characters"),
            _ if label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte)) => {
                Ok(PatternLabel::Exact(label.to_ascii_lowercase()))
            }
            _ => Err("labels consist of letters, digits, hyphens and underscores, or are * or **"),
        };
        let labels: Vec<PatternLabel> = text.split('.').map(label).collect::<Result<_, _>>()?;
        match labels.iter().filter(|label| **label == PatternLabel::Any).count() {
            0 | 1 => Ok(NamePattern(labels)),
            _ => Err("`**` can occur only once"),
        }
    }

    /// Whether the pattern matches the name with these labels in front of the zone name.
    pub fn matches(&self, labels: &[&[u8]]) -> bool {
        let is_same = |(pattern, label): (&PatternLabel, &&[u8])| match pattern {
            PatternLabel::Exact(exact) => exact.as_bytes().eq_ignore_ascii_case(label),
            PatternLabel::One | PatternLabel::Any => true,
        };
        let Some(any) = self.0.iter().position(|label| *label == PatternLabel::Any) else {
            return self.0.len() == labels.len() && self.0.iter().zip(labels).all(is_same);
        };
        let (before, after) = (&self.0[..any], &self.0[any + 1..]);
        labels.len() >= before.len() + after.len()
            && before.iter().zip(labels).all(is_same)
            && after.iter().rev().zip(labels.iter().rev()).all(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_labels() {
        for (pattern, matching, others) in [
            ("@", &[""][..], &["a", "*"][..]),
            ("www", &["www", "WWW"], &["", "a.www", "www.a", "wwww"]),
            ("*", &["a", "*"], &["", "a.b"]),
            ("_acme-challenge.*", &["_acme-challenge.www"], &["_acme-challenge", "_acme-challenge.a.b"]),
            (
                "_acme-challenge.**",
                &["_acme-challenge", "_acme-challenge.www", "_acme-challenge.a.b"],
                &["", "www", "www._acme-challenge", "x.a.b"],
            ),
            ("**", &["", "a", "a.b"], &[]),
            ("a.**.*.c", &["a.b.c", "a.x.b.c"], &["a.c", "b.c", "a.b.c.d"]),
        ] {
            let parsed = NamePattern::parse(pattern).expect(pattern);
            let matches = |name: &str| {
                let labels: Vec<&[u8]> = name.split('.').filter(|label| !label.is_empty()).map(str::as_bytes).collect();
                parsed.matches(&labels)
            };
            assert!(matching.iter().all(|name| matches(name)), "{pattern}");
            assert!(!others.iter().any(|name| matches(name)), "{pattern}");
        }
        for wrong in ["", "a..b", "a.", "**.**", "a b", "***", "x@"] {
            NamePattern::parse(wrong).expect_err(wrong);
        }
    }
}
