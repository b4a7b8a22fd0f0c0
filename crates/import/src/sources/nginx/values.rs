//! The values of directives of nginx: log formats, rates, times, and URLs with variables.

use super::Shared;
use crate::ledger::Ledger;
use crate::model::Model;
use crate::networks::network;
use crate::syntax::Statement;
use crate::toml_text::Value;

/// The variables of log formats that nginx and Sanderling have in common.
const LOG_VARIABLES: [&str; 15] = [
    "remote_addr",
    "remote_port",
    "time_local",
    "time_iso8601",
    "msec",
    "remote_user",
    "request",
    "request_method",
    "request_uri",
    "server_protocol",
    "scheme",
    "host",
    "status",
    "body_bytes_sent",
    "request_time",
];
/// The fields of `combined`, which nginx.conf of the packages writes in full under the name `main`.
const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;

/// A directive of `http` that holds for all servers.
pub(super) fn shared(statement: &Statement, shared: &mut Shared, model: &mut Model, ledger: &mut Ledger) {
    match statement.name() {
        "log_format" => {
            ledger.keep(statement);
            let parts: Vec<&str> =
                statement.texts().into_iter().skip(1).filter(|text| !text.starts_with("escape=")).collect();
            shared.formats.insert(statement.argument(0).to_owned(), parts.concat());
        }
        "upstream" => upstream(statement, shared, ledger),
        "limit_req_zone" => limit_zone(statement, shared, ledger),
        "limit_conn_zone" => ledger.keep(statement),
        "set_real_ip_from" => match network(statement.argument(0)) {
            Some(network) => {
                ledger.keep(statement);
                match model.http_keys.iter_mut().find(|(key, _)| *key == "trusted_proxies") {
                    Some((_, Value::List(networks))) => networks.push(network.into()),
                    _ => model.http_keys.push(("trusted_proxies", Value::texts([network]))),
                }
            }
            None => ledger.miss(statement, "this is not an IP address or network", "write its address"),
        },
        "real_ip_header" => {
            let method = match statement.argument(0).to_ascii_lowercase().as_str() {
                "x-forwarded-for" => "x-forwarded-for",
                "forwarded" => "forwarded",
                "proxy_protocol" => "proxy-protocol",
                _ => {
                    let reason = "proxies name the client in X-Forwarded-For, Forwarded or the PROXY protocol";
                    return ledger.miss(statement, reason, "configure the proxy so; most send X-Forwarded-For as well");
                }
            };
            ledger.keep(statement);
            shared.client_from = Some(method);
        }
        _ => {}
    }
}

/// `upstream NAME { server ADDRESS weight=2; }`.
fn upstream(statement: &Statement, shared: &mut Shared, ledger: &mut Ledger) {
    ledger.keep(statement);
    let mut servers = Vec::new();
    for nested in statement.nested() {
        match nested.name() {
            "server" => {
                ledger.keep(nested);
                let options = nested.texts();
                let weight = options.iter().find_map(|text| text.strip_prefix("weight=")?.parse().ok()).unwrap_or(1);
                if options.contains(&"down") {
                    continue;
                }
                if options.contains(&"backup") {
                    let reason = "a backup server gets its share of the requests, too";
                    ledger.differ(nested, reason, "remove it, if it must not answer unless the others are down");
                }
                servers.push((nested.argument(0).to_owned(), weight.clamp(1, 1_000)));
            }
            "keepalive" | "keepalive_timeout" | "keepalive_requests" | "zone" => ledger.keep(nested),
            "least_conn" | "ip_hash" | "hash" | "random" => {
                let reason = "requests are distributed by weight";
                ledger.differ(nested, reason, "write one server, if each client needs the same one");
            }
            _ => ledger.miss(
                nested,
                "a list of servers has only addresses and weights",
                "nothing is needed in most cases",
            ),
        }
    }
    shared.upstreams.insert(statement.argument(0).to_owned(), servers);
}

/// `limit_req_zone $binary_remote_addr zone=NAME:SIZE rate=10r/s`.
fn limit_zone(statement: &Statement, shared: &mut Shared, ledger: &mut Ledger) {
    let key = statement.argument(0);
    if !matches!(key, "$binary_remote_addr" | "$remote_addr") {
        let reason = format!("requests are counted by client, not by `{key}`");
        return ledger.miss(statement, reason, "set `http_requests_per_second_max` in [limits]");
    }
    let value = |name: &str| statement.texts().into_iter().find_map(|text| text.strip_prefix(name).map(str::to_owned));
    let name = value("zone=").unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default().to_owned();
    let rate = value("rate=").unwrap_or_default();
    let per_second = match (rate.strip_suffix("r/s"), rate.strip_suffix("r/m")) {
        (Some(count), _) => count.parse().ok(),
        (_, Some(count)) => count.parse::<u64>().ok().map(|count| count.div_ceil(60)),
        _ => None,
    };
    ledger.keep(statement);
    shared.rates.extend(per_second.map(|rate| (name, rate)));
}

/// The format of the access log for `name`; an error if it has other variables.
pub(super) fn log_format(name: &str, shared: &Shared) -> Result<Option<String>, String> {
    let Some(format) = shared.formats.get(name) else { return Ok(None) };
    if format.starts_with(COMBINED) {
        return Ok(None);
    }
    match variables(format).into_iter().find(|it| !it.starts_with("http_") && !LOG_VARIABLES.contains(&it.as_str())) {
        Some(variable) => Err(variable),
        None => Ok(Some(format.clone())),
    }
}

/// The names of the variables in a text.
pub(super) fn variables(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in text.split('$').skip(1) {
        let part = part.strip_prefix('{').unwrap_or(part);
        let end = part.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(part.len());
        names.push(part[..end].to_owned());
    }
    names
}

/// A time such as `30d`, `1h30m` or `3600`, in seconds.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut digits = String::new();
    for next in text.chars() {
        if next.is_ascii_digit() {
            digits.push(next);
            continue;
        }
        let unit = match next {
            's' | 'S' => 1,
            'm' => 60,
            'h' | 'H' => 3_600,
            'd' | 'D' => 86_400,
            'w' | 'W' => 604_800,
            'M' => 2_592_000,
            'y' => 31_536_000,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<u64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    if !digits.is_empty() {
        total = total.checked_add(digits.parse().ok()?)?;
    }
    (!text.is_empty()).then_some(total)
}

/// A size such as `64m` in the form of the configuration; `None` for no limit.
pub(super) fn size(text: &str) -> Option<String> {
    let (digits, unit) = text.split_at(text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = digits.parse().ok().filter(|number| (1..=1_024).contains(number) || unit.is_empty())?;
    match unit {
        "" if number > 0 && number <= 1 << 30 => Some(format!("{number}B")),
        "k" | "K" => Some(format!("{number}KiB")),
        "m" | "M" => Some(format!("{number}MiB")),
        "g" | "G" => Some(format!("{number}GiB")),
        _ => None,
    }
}

/// `Strict-Transport-Security` as a table of `hsts`; `None` if it is not one.
pub(crate) fn hsts(value: &str) -> Option<Value> {
    let mut entries = Vec::new();
    let mut max_age = None;
    for part in value.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        match part.to_ascii_lowercase().as_str() {
            "includesubdomains" => entries.push(("subdomains".to_owned(), Value::Boolean(true))),
            "preload" => entries.push(("preload".to_owned(), Value::Boolean(true))),
            part => max_age = part.strip_prefix("max-age=")?.trim_matches('"').parse().ok(),
        }
    }
    let max_age: u64 = max_age.filter(|max_age| *max_age <= 315_360_000)?;
    let has_subdomains = entries.iter().any(|(key, _)| key == "subdomains");
    if max_age < 31_536_000 || !has_subdomains {
        entries.retain(|(key, _)| key != "preload");
    }
    entries.insert(0, ("max_age_s".to_owned(), Value::Number(max_age)));
    Some(Value::Table(entries))
}

/// A destination with the variables that a rule can have, for a path that matches `rest`, as a destination writes it.
///
/// # Errors
/// The variable that it cannot have.
pub(super) fn destination(url: &str, rest: &str, captures: &[String]) -> Result<String, String> {
    let mut url = url.to_owned();
    for start in ["$scheme://", "http://", "https://"] {
        for host in ["$host:$server_port", "$http_host", "$host", "$server_name"] {
            if let Some(path) = url.strip_prefix(&format!("{start}{host}")) {
                url = if path.starts_with('/') || path.starts_with('$') { path.to_owned() } else { format!("/{path}") };
            }
        }
    }
    // The scheme of the rule is that of the request only for paths.
    if let Some(rest) = url.strip_prefix("$scheme://") {
        url = format!("https://{rest}");
    }
    // The query is passed on.
    for query in ["$is_args$args", "$is_args$query_string", "?$args", "?$query_string"] {
        url = url.strip_suffix(query).map_or(url.clone(), str::to_owned);
    }
    for (index, capture) in captures.iter().enumerate().rev() {
        for name in [format!("${{{}}}", index + 1), format!("${}", index + 1)] {
            url = url.replace(&name, capture);
        }
    }
    for variable in ["$request_uri", "$document_uri", "$uri"] {
        url = url.replace(variable, rest);
    }
    // `https://host/$request_uri` has two slashes.
    if let Some((scheme, rest)) = url.split_once("://") {
        url = format!("{scheme}://{}", rest.replace("//", "/"));
    } else {
        url = url.replace("//", "/");
    }
    // A rewrite without a query at its end drops that of the request.
    let url = url.strip_suffix('?').map_or(url.clone(), str::to_owned);
    match variables(&url).first() {
        Some(variable) => Err(variable.clone()),
        None => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, expected) in [
            ("30d", Some(2_592_000)),
            ("1h30m", Some(5_400)),
            ("65", Some(65)),
            ("1y", Some(31_536_000)),
            ("max", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn destinations_keep_only_what_rules_can_name() {
        for (url, expected) in [
            ("https://$host$request_uri", Ok("/:splat")),
            ("https://www.example.com$request_uri", Ok("https://www.example.com/:splat")),
            ("$scheme://example.com$request_uri", Ok("https://example.com/:splat")),
            ("/new/$1?$args", Ok("/new/x")),
            ("https://example.com/$request_uri", Ok("https://example.com/:splat")),
            ("/$arg_page", Err("arg_page")),
        ] {
            let found = destination(url, "/:splat", &["x".to_owned()]);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{url}");
        }
    }
}
