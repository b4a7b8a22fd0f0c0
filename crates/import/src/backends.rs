//! Routes to applications: the addresses and times of reverse proxies, as the configuration writes them.

use crate::model::{Domain, Route};
use crate::place::Place;
use crate::toml_text::Value;
use std::net::{IpAddr, SocketAddr};

/// The reason for an address that a route cannot have.
const NO_NAME: &str = "applications at host names are not imported";

/// The protocol of an application.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    FastCgi,
}

impl Protocol {
    fn key(self) -> &'static str {
        match self {
            Protocol::Http => "proxy",
            Protocol::FastCgi => "fastcgi",
        }
    }
}

/// An application with the keys of its routes.
#[derive(Clone)]
pub(crate) struct Application {
    protocol: Protocol,
    servers: Vec<(String, u64)>,
    /// Other keys: times, fields.
    pub(crate) keys: Vec<(&'static str, Value)>,
}

impl Application {
    /// An application at these addresses, each with its weight.
    pub(crate) fn new(protocol: Protocol, servers: Vec<(String, u64)>) -> Application {
        Application { protocol, servers, keys: Vec::new() }
    }

    /// Sets a key, unless it is set.
    pub(crate) fn set(&mut self, key: &'static str, value: Value) {
        if self.keys.iter().all(|(known, _)| *known != key) {
            self.keys.push((key, value));
        }
    }

    /// Adds an entry to the table of a key.
    pub(crate) fn add_entry(&mut self, key: &'static str, name: &str, value: Value) {
        match self.keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, Value::Table(entries))) => {
                if entries.iter().all(|(known, _)| !known.eq_ignore_ascii_case(name)) {
                    entries.push((name.to_owned(), value));
                }
            }
            _ => self.keys.push((key, Value::Table(vec![(name.to_owned(), value)]))),
        }
    }

    /// The address, or the list of them.
    fn address(&self) -> Value {
        let one = |(address, weight): &(String, u64)| match weight {
            1 => Value::from(address.as_str()),
            weight => Value::table([("url", address.as_str().into()), ("weight", Value::Number(*weight))]),
        };
        match &self.servers[..] {
            [single] => Value::from(single.0.as_str()),
            several => Value::List(several.iter().map(one).collect()),
        }
    }
}

/// Adds routes for the patterns of a place to an application, with further keys.
pub(crate) fn add_routes(
    domain: &mut Domain,
    place: &Place,
    application: &Application,
    more: &[(&'static str, Value)],
) {
    for pattern in &place.patterns {
        let mut keys = vec![(application.protocol.key(), application.address())];
        keys.extend(more.iter().cloned());
        keys.extend(application.keys.iter().cloned());
        add_route(domain, &pattern.text, keys);
    }
}

/// Adds a route; the first one of a pattern is kept. Whether it was added.
pub(crate) fn add_route(domain: &mut Domain, pattern: &str, keys: Vec<(&'static str, Value)>) -> bool {
    // A path that ends with a slash means all paths below it.
    let path = pattern.strip_suffix('*').filter(|path| path.ends_with('/')).unwrap_or(pattern).to_owned();
    let is_new = domain.routes.iter().all(|route| route.path != path);
    if is_new {
        domain.routes.push(Route { path, keys });
    }
    is_new
}

/// Adds a route with a fixed response. Whether it was added.
pub(crate) fn add_response(domain: &mut Domain, pattern: &str, status: u16, text: &str) -> bool {
    add_route(domain, pattern, vec![("respond", response(status, text))])
}

/// The value of `respond`. A response with status 204 or 205 has no content.
pub(crate) fn response(status: u16, text: &str) -> Value {
    let mut response = vec![("status".to_owned(), Value::Number(status.into()))];
    if !text.is_empty() && !matches!(status, 204 | 205) {
        response.push(("text".to_owned(), text.into()));
    }
    Value::Table(response)
}

/// Whether a route can answer with this status and text.
pub(crate) fn is_response(status: u16, text: &str) -> bool {
    ((200..300).contains(&status) || (400..600).contains(&status)) && text.len() <= 4_096
}

/// The address of a server in the form of the configuration: `http://127.0.0.1:3000`, `127.0.0.1:9000` or
/// `unix:/run/app.sock`.
///
/// # Errors
/// The reason for an address that a route cannot have.
pub(crate) fn address(text: &str, protocol: Protocol) -> Result<String, String> {
    let plain = text.strip_prefix("http://").unwrap_or(text);
    if plain.starts_with("https://") || plain.contains("://") {
        return Err(format!("`{text}`: applications are reached over HTTP/1.1 and FastCGI without TLS"));
    }
    // nginx: unix:/run/app.sock, perhaps with a colon at its end; Caddy: unix//run/app.sock.
    if let Some(path) = plain.strip_prefix("unix:").or(plain.strip_prefix("unix/")) {
        let path = path.trim_end_matches(':');
        let is_path =
            path.starts_with('/') && path.len() < 100 && !path.contains(['$', '{', '\0']) && !path.ends_with('/');
        return if is_path { Ok(format!("unix:{path}")) } else { Err(format!("`{text}` is not the path of a socket")) };
    }
    let (host, port) = match plain.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) {
        Some((host, port)) => (host, port.parse().unwrap_or(0)),
        None => (plain, if protocol == Protocol::Http { 80 } else { 0 }),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ip = match bare.parse::<IpAddr>() {
        Ok(ip) => ip,
        Err(_) if bare.eq_ignore_ascii_case("localhost") || bare.is_empty() => IpAddr::from([127, 0, 0, 1]),
        Err(_) => return Err(NO_NAME.to_owned()),
    };
    if port == 0 || ip.is_unspecified() {
        return Err(format!("`{text}` has no port, or means all addresses"));
    }
    let address = SocketAddr::new(ip, port);
    Ok(if protocol == Protocol::Http { format!("http://{address}") } else { address.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_routes() {
        for (text, protocol, expected) in [
            ("http://127.0.0.1:3000", Protocol::Http, Ok("http://127.0.0.1:3000")),
            ("localhost:3000", Protocol::Http, Ok("http://127.0.0.1:3000")),
            (":3000", Protocol::Http, Ok("http://127.0.0.1:3000")),
            ("http://[::1]:80", Protocol::Http, Ok("http://[::1]:80")),
            ("unix:/run/app.sock:", Protocol::Http, Ok("unix:/run/app.sock")),
            ("unix//run/php.sock", Protocol::FastCgi, Ok("unix:/run/php.sock")),
            ("127.0.0.1:9000", Protocol::FastCgi, Ok("127.0.0.1:9000")),
            ("app:3000", Protocol::Http, Err(())),
            ("https://127.0.0.1:8443", Protocol::Http, Err(())),
            ("127.0.0.1", Protocol::FastCgi, Err(())),
        ] {
            assert_eq!(address(text, protocol).as_deref().map_err(|_| ()), expected, "{text}");
        }
    }
}
