//! Header fields that protect a site's visitors.

use crate::field::{Field, FieldRule};
use crate::pattern::Pattern;

/// A set of such fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityHeaders {
    /// The fields that break hardly any site.
    Basic,
    /// The fields for a site whose pages load nothing from other hosts.
    Strict,
}

impl SecurityHeaders {
    /// The set with this name.
    pub fn from_name(name: &str) -> Option<SecurityHeaders> {
        match name {
            "basic" => Some(SecurityHeaders::Basic),
            "strict" => Some(SecurityHeaders::Strict),
            _ => None,
        }
    }

    /// Names and values.
    pub fn fields(self) -> &'static [(&'static str, &'static str)] {
        match self {
            SecurityHeaders::Basic => &[
                ("X-Frame-Options", "SAMEORIGIN"),
                ("Referrer-Policy", "strict-origin-when-cross-origin"),
                ("Cross-Origin-Opener-Policy", "same-origin-allow-popups"),
            ],
            SecurityHeaders::Strict => &[
                (
                    "Content-Security-Policy",
                    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; \
                     base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
                ),
                ("X-Frame-Options", "DENY"),
                ("Referrer-Policy", "no-referrer"),
                ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
                ("Cross-Origin-Opener-Policy", "same-origin"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
            ],
        }
    }

    /// The effects on a site's pages.
    pub fn effect(self) -> &'static str {
        match self {
            SecurityHeaders::Basic => {
                "other sites cannot show its pages in frames, and learn only the host that visitors come from"
            }
            SecurityHeaders::Strict => {
                "its pages cannot contain inline scripts, use scripts, styles, fonts or frames of other hosts, or send forms \
                 to other hosts, and no other site can embed its pages or files"
            }
        }
    }

    /// The rule that sends the fields for all paths.
    pub fn rule(self) -> FieldRule {
        let pattern = Pattern::parse("/*", &[]).expect("a valid pattern");
        let field = |(name, value): &(&str, &str)| Field::set(name, value, &pattern).expect("a valid field");
        let fields = self.fields().iter().map(field).collect();
        FieldRule::new(pattern, fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_is_a_valid_rule() {
        for name in ["basic", "strict"] {
            let set = SecurityHeaders::from_name(name).expect("a set");
            assert_eq!(set.rule().fields.len(), set.fields().len());
        }
        assert_eq!(SecurityHeaders::from_name("none"), None);
    }
}
