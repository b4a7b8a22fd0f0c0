//! Matchers of Caddy: `*`, `/path*` and `@name`.

use crate::http_sites::host;
use crate::networks::network;
use crate::place::{Order, Place};
use crate::regex;
use crate::syntax::Statement;

/// The private networks, for which Caddy has a word.
const PRIVATE_RANGES: [&str; 6] = ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1"];

/// The requests that a matcher selects.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    pub(super) place: Place,
    /// Only these hosts; empty for all.
    pub(super) hosts: Vec<String>,
    /// Clients in these networks, or in none of them.
    pub(super) networks: Option<(bool, Vec<String>)>,
    /// Only paths without a file.
    pub(super) is_missing: bool,
}

impl Matcher {
    /// All requests of a place.
    pub(super) fn of(place: Place) -> Matcher {
        Matcher { place, hosts: Vec::new(), networks: None, is_missing: false }
    }

    /// Whether only paths select.
    pub(super) fn has_only_paths(&self) -> bool {
        self.hosts.is_empty() && self.networks.is_none() && !self.is_missing
    }
}

/// Whether an argument is a matcher, if others follow it.
pub(super) fn is_matcher(text: &str) -> bool {
    text == "*" || text.starts_with('/') || text.starts_with('@')
}

/// The place of path matchers; `None` if one has no pattern.
pub(super) fn paths(texts: &[&str]) -> Option<Place> {
    let mut found: Option<Place> = None;
    for text in texts {
        let text = if text.starts_with('/') { (*text).to_owned() } else { format!("/{text}") };
        if text.matches('*').count() > 1 || text.contains('{') {
            return None;
        }
        let order = match text.as_str() {
            "/*" => Order::Whole,
            text if text.contains('*') => Order::Prefix(usize::MAX - text.len()),
            _ => Order::Exact,
        };
        let place = if order == Order::Whole { Place::whole() } else { Place::of(text.replace(':', "%3A"), order) };
        match &mut found {
            Some(found) => found.patterns.extend(place.patterns),
            None => found = Some(place),
        }
    }
    found
}

/// The matcher with this name among `named`, within a place.
///
/// # Errors
/// The condition that no rule has.
pub(super) fn named(name: &str, named: &[&Statement], place: &Place) -> Result<Matcher, String> {
    let statement =
        named.iter().find(|it| it.name() == name).ok_or_else(|| format!("the matcher {name} is not defined"))?;
    let mut matcher = Matcher::of(place.clone());
    if !statement.arguments.is_empty() {
        condition(&statement.texts(), statement, &mut matcher)?;
        return Ok(matcher);
    }
    for nested in statement.nested() {
        let words: Vec<&str> = std::iter::once(nested.name()).chain(nested.texts()).collect();
        condition(&words, nested, &mut matcher)?;
    }
    Ok(matcher)
}

fn condition(words: &[&str], statement: &Statement, matcher: &mut Matcher) -> Result<(), String> {
    let unknown = || Err(format!("no rule has the condition `{}`", words.first().unwrap_or(&"")));
    match words {
        ["path", texts @ ..] => match paths(texts) {
            Some(place) => matcher.place = place,
            None => return unknown(),
        },
        ["path_regexp", .., expression] => match regex::patterns(expression) {
            Some(found) => {
                let order = Order::Expression(0);
                matcher.place = Place { patterns: found.patterns, order, is_wider: found.is_wider };
            }
            None => return unknown(),
        },
        ["host", names @ ..] => {
            let hosts: Option<Vec<String>> = names.iter().map(|name| host(name)).collect();
            matcher.hosts = hosts.ok_or("a host of the matcher is not a name")?;
        }
        ["remote_ip" | "client_ip", ranges @ ..] => matcher.networks = Some((false, networks(ranges)?)),
        ["not", "remote_ip" | "client_ip", ranges @ ..] => matcher.networks = Some((true, networks(ranges)?)),
        ["not"] => match statement.block() {
            [nested] if matches!(nested.name(), "remote_ip" | "client_ip") => {
                matcher.networks = Some((true, networks(&nested.texts())?));
            }
            [nested] if nested.name() == "file" => matcher.is_missing = true,
            _ => return unknown(),
        },
        ["not", "file", ..] => matcher.is_missing = true,
        _ => return unknown(),
    }
    Ok(())
}

/// The networks in a list of addresses, networks and `private_ranges`.
///
/// # Errors
/// A text that is neither.
pub(super) fn networks(ranges: &[&str]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for range in ranges.iter().filter(|range| **range != "forwarded") {
        match *range {
            "private_ranges" => found.extend(PRIVATE_RANGES.map(str::to_owned)),
            range => found.push(network(range).ok_or_else(|| format!("`{range}` is not an IP address or network"))?),
        }
    }
    Ok(found)
}
