//! The challenges for certificate authorities while an order is in progress: the agent collects them, and the server
//! answers them from memory, without a change of a site or a zone file.
//!
//! A record for an authority is a small separate zone, at the record's name. This zone takes precedence over the
//! enclosing zone only for this name, so that a large zone is not rebuilt, and a reload of the enclosing zone has no
//! effect on the record.

use sanderling_config::log::log_warning;
use sanderling_config::{ChallengeNames, Config, DomainName, is_challenge_token};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{HashSeed, Zone, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap};
use sanderling_ipc::agent::Challenge;
use sanderling_server::Challenges;
use sanderling_zone_files::wire_name;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seconds for which resolvers keep a record: the next order has a new record.
const TTL_S: u32 = 5;
/// Records, and tokens, for each name of an automatic certificate: an order has one for the name and one for a
/// wildcard, and the previous order may not have ended.
const PER_NAME_MAX: usize = 4;

/// The challenges of the orders in progress.
#[derive(Debug, Default)]
pub(crate) struct ActiveChallenges {
    tokens: Option<Arc<Challenges>>,
    texts: BTreeMap<DomainName, Vec<String>>,
}

impl ActiveChallenges {
    /// The members of `challenges` that are well-formed and for names of automatic certificates: the agent must not be
    /// able to claim others.
    pub(crate) fn new(challenges: Vec<Challenge>, config: &Config) -> ActiveChallenges {
        let names = ChallengeNames::new(config);
        let (mut tokens, tokens_max) = (Vec::new(), names.count() * PER_NAME_MAX);
        let mut texts: BTreeMap<DomainName, Vec<String>> = BTreeMap::new();
        let mut ignored_count = 0_u64;
        for challenge in challenges {
            match challenge {
                Challenge::Http { token, content }
                    if is_key_authorization(&content, &token) && tokens.len() < tokens_max =>
                {
                    tokens.push((token, content));
                }
                Challenge::Dns { name, text } if is_challenge_token(&text) && names.has(&name) => {
                    let Ok(name) = DomainName::parse(&name) else { continue };
                    let of_name = texts.entry(name).or_default();
                    if of_name.len() < PER_NAME_MAX {
                        of_name.push(text);
                    }
                }
                Challenge::Http { .. } | Challenge::Dns { .. } => ignored_count += 1,
            }
        }
        if ignored_count > 0 {
            log_warning(&format!(
                "ignoring {ignored_count} challenges, which are malformed or for a name without an automatic \
                    certificate"
            ));
        }
        let tokens = (!tokens.is_empty()).then(|| Arc::new(tokens.into_iter().collect()));
        ActiveChallenges { tokens, texts }
    }

    /// The challenges over HTTP.
    pub(crate) fn tokens(&self) -> Option<Arc<Challenges>> {
        self.tokens.clone()
    }

    /// The records' names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &DomainName> {
        self.texts.keys()
    }

    /// `zones` with the records for authorities. Zones that the agent signs already contain these records, with
    /// signatures.
    pub(crate) fn overlay(&self, zones: &Arc<ZoneMap>, config: &Config) -> Arc<ZoneMap> {
        let mut overlaid = Arc::clone(zones);
        for (name, texts) in self.texts.iter().filter(|(name, _)| !config.is_signed_at(name)) {
            if let Some(zone) = challenge_zone(name, texts, zones.seed()) {
                overlaid = Arc::new(overlaid.with_entry(ZoneEntry::Served(Arc::new(zone))));
            }
        }
        overlaid
    }
}

/// Whether `content` is the token with the digest of the account's key (RFC 8555 §8.1).
fn is_key_authorization(content: &str, token: &str) -> bool {
    let digest = content.strip_prefix(token).and_then(|rest| rest.strip_prefix('.'));
    is_challenge_token(token) && digest.is_some_and(is_challenge_token)
}

fn challenge_zone(name: &DomainName, texts: &[String], seed: HashSeed) -> Option<Zone> {
    let mut text = format!("$TTL {TTL_S}\n@ SOA @ hostmaster 1 60 60 60 {TTL_S}\n@ NS @\n");
    texts.iter().for_each(|value| text += &format!("@ TXT \"{value}\"\n"));
    let apex = wire_name(name);
    let mut parser = Parser::new("challenge".to_owned(), text.into_bytes(), apex.as_name(), ParserLimits::default());
    let mut builder = ZoneBuilder::new(apex.as_name(), seed, ZoneLimits { records_per_rrset_max: texts.len().max(1) });
    while let Some(Ok(entry)) = parser.next() {
        if let Entry::Record(record) = entry {
            builder.add(&record);
        }
    }
    builder.finish(Position { file_index: 0, line: 1, column: 1 }).zone
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::ConfigSource;

    /// With automatic certificates for example.com and a.example.
    fn config() -> Config {
        let domain = |name: &str| format!("[domain.\"{name}\"]\nsite = \"public\"\n");
        let text = format!("[certificates]\nagree_to_terms = true\n{}{}", domain("example.com"), domain("a.example"));
        ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes()).expect("correct")
    }

    fn dns(name: &str, text: &str) -> Challenge {
        Challenge::Dns { name: name.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn records_are_beside_the_zones() {
        let zones = Arc::new(ZoneMap::new(HashSeed(1), []));
        let none = ActiveChallenges::default();
        let config = config();
        assert!(none.tokens().is_none() && none.overlay(&zones, &config).entries().is_empty());
        let name = "_acme-challenge.example.com";
        let one = ActiveChallenges::new(
            vec![dns(name, "one"), dns(name, "two"), dns("_acme-challenge.a.example", "x")],
            &config,
        );
        let overlaid = one.overlay(&zones, &config);
        let apexes: Vec<_> = overlaid.entries().iter().map(|entry| entry.apex().to_string()).collect();
        assert_eq!(apexes.len(), 2, "{apexes:?}");
        assert!(overlaid.entries().iter().all(|entry| matches!(entry, ZoneEntry::Served(_))));
        assert!(zones.entries().is_empty());
    }

    #[test]
    fn what_is_no_token_is_not_answered() {
        let of = |challenge| ActiveChallenges::new(vec![challenge], &config());
        for text in ["", "a b", "\"", "a\n@ A 192.0.2.1", &"x".repeat(256)] {
            assert!(of(dns("_acme-challenge.example.com", text)).texts.is_empty(), "{text:?}");
            let http = Challenge::Http { token: text.to_owned(), content: "content".to_owned() };
            assert!(of(http).tokens().is_none(), "{text:?}");
        }
        assert!(of(dns("..", "text")).texts.is_empty());
        let http = Challenge::Http { token: "token".to_owned(), content: "token.key".to_owned() };
        assert!(of(http).tokens().is_some());
        for content in ["content", "other.key", "token.", "token.<script>"] {
            let http = Challenge::Http { token: "token".to_owned(), content: content.to_owned() };
            assert!(of(http).tokens().is_none(), "{content}");
        }
    }

    #[test]
    fn other_names_than_those_of_automatic_certificates_cannot_be_claimed() {
        let zones = Arc::new(ZoneMap::new(HashSeed(1), []));
        let config = config();
        for name in [
            "example.com",
            "com",
            ".",
            "",
            "www.example.com",
            "_acme-challenge.www.example.com",
            "_acme-challenge.com",
            "a._acme-challenge.example.com",
        ] {
            let claimed = ActiveChallenges::new(vec![dns(name, "x")], &config);
            assert!(claimed.overlay(&zones, &config).entries().is_empty(), "{name}");
        }
        let none = Config::default();
        let http = Challenge::Http { token: "token".to_owned(), content: "token.key".to_owned() };
        let claimed = ActiveChallenges::new(vec![dns("_acme-challenge.example.com", "x"), http.clone()], &none);
        assert!(claimed.tokens().is_none() && claimed.texts.is_empty());
        // The number of challenges is bounded.
        let many = (0..100).map(|number| dns("_acme-challenge.example.com", &number.to_string()));
        let https = (0..100).map(|_| http.clone());
        let bounded = ActiveChallenges::new(many.chain(https).collect(), &config);
        assert_eq!(bounded.texts.values().map(Vec::len).sum::<usize>(), PER_NAME_MAX);
    }
}
