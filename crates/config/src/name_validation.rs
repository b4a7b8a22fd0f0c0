//! How a certificate authority can validate the names of automatic certificates: by a record in a zone of this server,
//! or over HTTP.

use crate::config::Config;
use crate::diagnostic::{Diagnostic, Problem};
use crate::domain_name::DomainName;
use std::collections::HashSet;

/// How an authority validates a name (RFC 8555 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationMethod {
    /// By a record in the name's zone, which a domain of this server has.
    Dns,
    /// Over HTTP.
    Http,
}

/// The ways to validate names with one configuration.
#[derive(Debug)]
pub struct NameValidation<'c> {
    apexes: HashSet<&'c str>,
    hosts: HashSet<&'c str>,
    has_http: bool,
    /// Zones in which the server cannot create records for authorities.
    has_other_zones: bool,
}

impl<'c> NameValidation<'c> {
    /// The names of `config`.
    pub fn new(config: &'c Config) -> NameValidation<'c> {
        NameValidation {
            apexes: config.zones.iter().map(|zone| zone.apex.as_str()).collect(),
            hosts: config.sites.iter().flat_map(|site| &site.hosts).map(DomainName::as_str).collect(),
            has_http: !config.http_listen.is_empty(),
            has_other_zones: config.zone_folder.is_some() || config.has_transferred_zones(),
        }
    }

    /// How `name` is validated. `prefers_http`: over HTTP if both are possible.
    ///
    /// # Errors
    /// Returns an error if no validation method is possible.
    pub fn of(&self, name: &str, prefers_http: bool) -> Result<ValidationMethod, Problem> {
        let is_wildcard = name.starts_with("*.");
        let is_over_http_possible = self.has_http && !is_wildcard && self.hosts.contains(name);
        match (self.is_in_zone(name), is_over_http_possible) {
            (true, true) if prefers_http => Ok(ValidationMethod::Http),
            (true, _) => Ok(ValidationMethod::Dns),
            (false, true) => Ok(ValidationMethod::Http),
            (false, false) => Err(self.problem(name, is_wildcard)),
        }
    }

    fn problem(&self, name: &str, is_wildcard: bool) -> Problem {
        let others =
            if self.has_other_zones { "; zones from folders, primaries and catalogs do not count" } else { "" };
        if is_wildcard {
            let message =
                format!("{name} can only be validated with a record in its zone, but no domain here has that zone");
            return Problem::new(message, format!("add a domain with `zone`, or remove the name{others}"));
        }
        let message = format!("{name} can be validated neither over HTTP nor by DNS");
        Problem::new(
            message,
            format!("add a site with this name and `listen` to [http], or a domain with `zone`{others}"),
        )
    }

    fn is_in_zone(&self, name: &str) -> bool {
        let mut rest = name.strip_prefix("*.").unwrap_or(name);
        loop {
            if self.apexes.contains(rest) {
                return true;
            }
            match rest.split_once('.') {
                Some((_, above)) if !above.is_empty() => rest = above,
                _ => return self.apexes.contains("."),
            }
        }
    }
}

/// The first label of a challenge record (RFC 8555 §8.4).
const CHALLENGE_PREFIX: &str = "_acme-challenge.";

/// The names at which authorities look for records; a client may claim no others.
#[derive(Debug, Default)]
pub struct ChallengeNames<'c>(HashSet<&'c str>);

impl<'c> ChallengeNames<'c> {
    /// The names for the automatic certificates of `config`.
    pub fn new(config: &'c Config) -> ChallengeNames<'c> {
        let names = config.automatic_certificates().flat_map(|certificate| &certificate.names).map(DomainName::as_str);
        ChallengeNames(names.map(|name| name.strip_prefix("*.").unwrap_or(name)).collect())
    }

    /// Whether an authority looks there, for one of these certificates.
    pub fn has(&self, name: &str) -> bool {
        name.strip_prefix(CHALLENGE_PREFIX).is_some_and(|name| self.0.contains(name))
    }

    /// The number of names.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Whether `text` is in base64url, as tokens and digests are (RFC 8555 §8.3, §8.4).
pub fn is_challenge_token(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.len() <= CHALLENGE_TOKEN_BYTES_MAX && text.bytes().all(is_digit)
}

/// Bytes of a token, or of a digest in base64url.
const CHALLENGE_TOKEN_BYTES_MAX: usize = 255;

impl Config {
    /// The names of automatic certificates that no authority can validate.
    pub fn validation_problems(&self) -> Vec<Diagnostic> {
        let validation = NameValidation::new(self);
        let names = self.automatic_certificates().flat_map(|one| one.names.iter().map(move |name| (one, name)));
        let problem = |(certificate, name): (&crate::CertificateFiles, &DomainName)| {
            let problem = validation.of(name.as_str(), false).err()?;
            Some(Diagnostic::error(certificate.location.clone(), problem))
        };
        names.filter_map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConfigSource;

    #[test]
    fn only_names_of_automatic_certificates_have_challenges() {
        let text = "[certificates]\nagree_to_terms = true\n[domain.\"a.example\"]\nsite = \"a\"\nzone = \"a.zone\"\n\
                    aliases = [\"www.a.example\", \"*.b.a.example\"]\n[domain.\"none.example\"]\nsite = \"a\"\ncertificate = \"none\"\n";
        let config = ConfigSource::File("a.toml".into()).parse(text.as_bytes()).expect("correct");
        let names = ChallengeNames::new(&config);
        for (name, expected) in [
            ("_acme-challenge.a.example", true),
            ("_acme-challenge.www.a.example", true),
            ("_acme-challenge.b.a.example", true),
            ("_acme-challenge.other.a.example", false),
            ("_acme-challenge.none.example", false),
            ("a.example", false),
            ("_acme-challenge.", false),
            ("", false),
        ] {
            assert_eq!(names.has(name), expected, "{name}");
        }
        assert_eq!(
            (names.count(), ChallengeNames::new(&Config::default()).has("_acme-challenge.a.example")),
            (3, false)
        );
    }

    #[test]
    fn names_are_validated_in_their_zone_or_over_http() {
        let text = "[certificates]\nagree_to_terms = true\n[domain.\"a.example\"]\nsite = \"a\"\naliases = [\"*.a.example\"]\n\
                    [domain.\"b.example\"]\nsite = \"b\"\nzone = \"b.zone\"\naliases = [\"*.sub.b.example\"]\n\
                    [domain.\"mail.example\"]\ncertificate = \"auto\"\n";
        let config = |text: &str| ConfigSource::File("a.toml".into()).parse(text.as_bytes()).expect("correct");
        let read = config(text);
        let validation = NameValidation::new(&read);
        for (name, prefers_http, expected) in [
            ("a.example", false, Some(ValidationMethod::Http)),
            ("*.a.example", false, None),
            ("b.example", false, Some(ValidationMethod::Dns)),
            ("b.example", true, Some(ValidationMethod::Http)),
            ("*.sub.b.example", true, Some(ValidationMethod::Dns)),
            ("mail.b.example", true, Some(ValidationMethod::Dns)),
            ("ab.example", false, None),
        ] {
            assert_eq!(validation.of(name, prefers_http).ok(), expected, "{name}");
        }
        let problems =
            |text: &str| config(text).validation_problems().iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = "*.a.example can only be validated with a record in its zone, but no domain here has that \
                        zone; add a domain with `zone`, or remove the name";
        let [wildcard, mail] = &problems(text)[..] else { panic!("two") };
        assert!(wildcard.ends_with(expected), "{wildcard}");
        assert!(mail.contains("mail.example can be validated neither over HTTP nor by DNS; add a site"), "{mail}");
        let folder = problems(&format!("[dns]\nzones = \"zones/*.zone\"\n{text}"));
        assert!(folder[0].ends_with("; zones from folders, primaries and catalogs do not count"), "{folder:?}");
    }
}
