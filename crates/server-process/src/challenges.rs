//! What certificate authorities look for while an order is in progress: the agent has put it together, and the server
//! answers it from memory, without a change of a site or a zone file.
//!
//! A record for an authority is a small zone of its own, at the name of the record. It takes precedence over the zone
//! above it for this name alone, so that a large zone is not built again, and a reload of that zone has no effect on
//! it.

use sanderling_config::{Config, DomainName};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{HashSeed, Zone, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap};
use sanderling_ipc::agent::Challenge;
use sanderling_server::Challenges;
use sanderling_zone_files::wire_name;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seconds for which resolvers keep a record: the next order has another one.
const TTL_S: u32 = 5;
/// Bytes of a text: it is a digest in base64url.
const TEXT_BYTES_MAX: usize = 255;

/// The challenges of the orders in progress.
#[derive(Debug, Default)]
pub(crate) struct ActiveChallenges {
    tokens: Option<Arc<Challenges>>,
    texts: BTreeMap<DomainName, Vec<String>>,
}

impl ActiveChallenges {
    /// Those of `challenges` that have a valid form.
    pub(crate) fn new(challenges: Vec<Challenge>) -> ActiveChallenges {
        let mut tokens = Vec::new();
        let mut texts: BTreeMap<DomainName, Vec<String>> = BTreeMap::new();
        for challenge in challenges {
            match challenge {
                Challenge::Http { token, content } if is_token(&token) => tokens.push((token, content)),
                Challenge::Dns { name, text } if is_token(&text) => {
                    if let Ok(name) = DomainName::parse(&name) {
                        texts.entry(name).or_default().push(text);
                    }
                }
                Challenge::Http { .. } | Challenge::Dns { .. } => {}
            }
        }
        let tokens = (!tokens.is_empty()).then(|| Arc::new(tokens.into_iter().collect()));
        ActiveChallenges { tokens, texts }
    }

    /// What is answered over HTTP.
    pub(crate) fn tokens(&self) -> Option<Arc<Challenges>> {
        self.tokens.clone()
    }

    /// The names of the records.
    pub(crate) fn names(&self) -> impl Iterator<Item = &DomainName> {
        self.texts.keys()
    }

    /// `zones` with the records for authorities. Those in zones that the agent signs are there already, with
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

/// Whether `text` is in base64url, as tokens and digests are (RFC 8555 §8.3, §8.4).
fn is_token(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.len() <= TEXT_BYTES_MAX && text.bytes().all(is_digit)
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

    fn dns(name: &str, text: &str) -> Challenge {
        Challenge::Dns { name: name.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn records_are_beside_the_zones() {
        let zones = Arc::new(ZoneMap::new(HashSeed(1), []));
        let none = ActiveChallenges::default();
        let config = Config::default();
        assert!(none.tokens().is_none() && none.overlay(&zones, &config).entries().is_empty());
        let name = "_acme-challenge.example.com";
        let one =
            ActiveChallenges::new(vec![dns(name, "one"), dns(name, "two"), dns("_acme-challenge.a.example", "x")]);
        let overlaid = one.overlay(&zones, &config);
        let apexes: Vec<_> = overlaid.entries().iter().map(|entry| entry.apex().to_string()).collect();
        assert_eq!(apexes.len(), 2, "{apexes:?}");
        assert!(overlaid.entries().iter().all(|entry| matches!(entry, ZoneEntry::Served(_))));
        assert!(zones.entries().is_empty());
    }

    #[test]
    fn what_is_no_token_is_not_answered() {
        let of = |challenge| ActiveChallenges::new(vec![challenge]);
        for text in ["", "a b", "\"", "a\n@ A 192.0.2.1", &"x".repeat(256)] {
            assert!(of(dns("_acme-challenge.example.com", text)).texts.is_empty(), "{text:?}");
            let http = Challenge::Http { token: text.to_owned(), content: "content".to_owned() };
            assert!(of(http).tokens().is_none(), "{text:?}");
        }
        assert!(of(dns("..", "text")).texts.is_empty());
        let http = Challenge::Http { token: "token".to_owned(), content: "token.key".to_owned() };
        assert!(of(http).tokens().is_some());
    }
}
