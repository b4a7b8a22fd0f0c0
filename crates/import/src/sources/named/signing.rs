//! The policies of signed zones of BIND, and the rules of dynamic updates.

use crate::syntax::Statement;
use crate::toml_text::Value;
use crate::zone_rules::{key_name, zone_name};

/// The value of `dnssec` for a block `dnssec-policy`.
pub(super) fn policy(statement: &Statement) -> Value {
    let keys: Vec<&Statement> = statement.find("keys").map(|keys| keys.block().iter().collect()).unwrap_or_default();
    let find = |role: &str| keys.iter().copied().find(|key| key.name() == role);
    let mut entries = Vec::new();
    if let Some(algorithm) = keys.iter().find_map(|key| algorithm(key)).filter(|name| *name != "ecdsap256sha256") {
        entries.push(("algorithm".to_owned(), Value::from(algorithm)));
    }
    let has_zsk = find("zsk").is_some();
    if has_zsk {
        entries.push(("keys".to_owned(), "ksk-zsk".into()));
    }
    if statement.find("nsec3param").is_some() {
        entries.push(("nsec3".to_owned(), Value::Boolean(true)));
    }
    for (key, roles) in [("ksk_lifetime", ["ksk", "csk"]), ("zsk_lifetime", ["zsk", "zsk"])] {
        let lifetime = roles.iter().find_map(|role| find(role)).and_then(|it| super::lists::after(it, "lifetime"));
        if let Some(days) =
            lifetime.and_then(seconds).map(|seconds| seconds / 86_400).filter(|days| (1..=36_500).contains(days))
        {
            entries.push((key.to_owned(), format!("{days}d").into()));
        }
    }
    let ttl = statement.find("dnskey-ttl").and_then(|it| seconds(it.argument(0)));
    if let Some(ttl) = ttl.filter(|ttl| (1..=604_800).contains(ttl) && *ttl != 3_600) {
        entries.push(("dnskey_ttl".to_owned(), format!("{ttl}s").into()));
    }
    if entries.is_empty() { Value::Boolean(true) } else { Value::Table(entries) }
}

/// The algorithm of a key in the form of the configuration.
fn algorithm(key: &Statement) -> Option<&'static str> {
    let text = super::lists::after(key, "algorithm")?.to_ascii_lowercase();
    [("ecdsap256sha256", "13"), ("ed25519", "15"), ("rsasha256", "8")]
        .into_iter()
        .find(|(name, number)| *name == text || *number == text)
        .map(|(name, _)| name)
}

/// A time in ISO 8601 (`P30D`, `PT1H`) or with units (`30d`), in seconds; `None` without an end.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let Some(rest) = text.strip_prefix(['P', 'p']) else {
        return crate::sources::nginx::values::seconds(&text.to_ascii_lowercase());
    };
    let (mut total, mut digits, mut is_time) = (0_u64, String::new(), false);
    for next in rest.to_ascii_uppercase().chars() {
        let unit = match next {
            'T' => {
                is_time = true;
                continue;
            }
            'Y' => 31_536_000,
            'M' if is_time => 60,
            'M' => 2_592_000,
            'W' => 604_800,
            'D' => 86_400,
            'H' => 3_600,
            'S' => 1,
            next => {
                digits.push(next);
                continue;
            }
        };
        total = total.checked_add(digits.parse::<u64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    digits.is_empty().then_some(total)
}

/// A rule of `update` that lets a key change everything.
pub(super) fn update_all(key: &str) -> Value {
    Value::table([("key", key.into()), ("names", Value::texts(["**"])), ("types", Value::texts(["ANY"]))])
}

/// The rule of `update` for `grant KEY TYPE NAME TYPES` in the zone `apex`; `None` if there is none.
pub(super) fn update_rule(statement: &Statement, apex: &str) -> Option<Value> {
    let texts = statement.texts();
    let (key, kind) = (key_name(texts.first()?), *texts.get(1)?);
    if statement.name() != "grant" {
        return None;
    }
    let (names, types) = match kind {
        "zonesub" => (vec!["**".to_owned()], texts.get(2..)?),
        "name" | "subdomain" | "wildcard" => {
            let name = zone_name(texts.get(2)?)?;
            let below = match name.strip_suffix(apex)? {
                "" => "@".to_owned(),
                below => below.strip_suffix('.')?.to_owned(),
            };
            let name = match (kind, below.as_str()) {
                ("subdomain", "@") => "**".to_owned(),
                ("subdomain", _) => format!("**.{below}"),
                _ => below,
            };
            (vec![name], texts.get(3..)?)
        }
        // The name of the key, and those below it.
        "self" | "selfsub" => {
            let below = key.strip_suffix(apex)?.strip_suffix('.')?.to_owned();
            let names = if kind == "selfsub" { vec![format!("**.{below}")] } else { vec![below] };
            (names, texts.get(2..).map(|types| if types.is_empty() { types } else { &types[1..] })?)
        }
        _ => return None,
    };
    let types: Vec<&str> = if types.is_empty() { vec!["ANY"] } else { types.to_vec() };
    Some(Value::table([("key", key.into()), ("names", Value::texts(names)), ("types", Value::texts(types))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::named::parse;

    #[test]
    fn times_are_those_of_bind() {
        for (text, expected) in
            [("P60D", Some(5_184_000)), ("PT1H", Some(3_600)), ("30d", Some(2_592_000)), ("unlimited", None)]
        {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn grants_become_rules() {
        for (text, expected) in [
            (
                "grant k. name _acme-challenge.a.example. TXT;",
                "{ key = \"k\", names = [\"_acme-challenge\"], types = [\"TXT\"] }",
            ),
            ("grant k zonesub ANY;", "{ key = \"k\", names = [\"**\"], types = [\"ANY\"] }"),
            (
                "grant k subdomain dyn.a.example A AAAA;",
                "{ key = \"k\", names = [\"**.dyn\"], types = [\"A\", \"AAAA\"] }",
            ),
            ("grant h.a.example self * A;", "{ key = \"h.a.example\", names = [\"h\"], types = [\"A\"] }"),
            ("deny k name x.a.example A;", "none"),
            ("grant k krb5-self * A;", "none"),
        ] {
            let statements = parse(text, 0, false).expect("parsed");
            let rule = update_rule(&statements[0], "a.example").map_or("none".to_owned(), |rule| rule.to_string());
            assert_eq!(rule, expected, "{text}");
        }
    }
}
