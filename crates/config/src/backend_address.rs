//! Parses the address of an application: `http://127.0.0.1:3000`, `127.0.0.1:9000`, `unix:/run/app.sock`.

use crate::diagnostic::Problem;
use crate::paths::SOCKET_PATH_BYTES_MAX;
use sanderling_site_rules::BackendAddress;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Bytes of the name of a host, and of one of its labels (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// Of `http://127.0.0.1` and `https://127.0.0.1` (RFC 9110 §4.2.1, §4.2.2).
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// The protocol of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    Http,
    FastCgi,
}

impl Spoken {
    /// How a message writes an address.
    fn example(self) -> &'static str {
        match self {
            Spoken::Http => "http://127.0.0.1:3000",
            Spoken::FastCgi => "127.0.0.1:9000",
        }
    }
}

/// The address of a server, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) address: BackendAddress,
    pub(super) is_encrypted: bool,
}

/// The address that `text` has. Names other than `localhost` are looked up while the server runs.
///
/// # Errors
/// The problem.
pub(super) fn parse_backend_address(text: &str, spoken: Spoken) -> Result<ServerAddress, Problem> {
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_path(text, path).map(|address| ServerAddress { address, is_encrypted: false });
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    match (scheme, spoken) {
        ("" | "http" | "https", Spoken::Http) | ("", Spoken::FastCgi) => {}
        ("h2c" | "h2" | "grpc", Spoken::Http) => {
            let remedy = format!("write {}, and protocol = \"h2\" in the route", spoken.example());
            return Err(Problem::new(format!("`{text}` has the scheme {scheme}"), remedy));
        }
        ("grpcs", Spoken::Http) => {
            let remedy = "write https://ADDRESS:PORT, and protocol = \"h2\" in the route";
            return Err(Problem::new(format!("`{text}` has the scheme {scheme}"), remedy));
        }
        ("ws" | "wss", Spoken::Http) => {
            let remedy = format!("write {}, which carries WebSocket too", spoken.example());
            return Err(Problem::new(format!("`{text}` has the scheme {scheme}"), remedy));
        }
        _ => {
            let message = format!("`{text}` has the unknown scheme `{scheme}`");
            return Err(Problem::new(message, format!("write {} or unix:/run/app.sock", spoken.example())));
        }
    }
    if rest.starts_with("unix:") {
        return Err(Problem::new(format!("`{text}` has a scheme before a UNIX socket"), "write unix:/run/app.sock"));
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        let remedy = "leave it out; `strip_prefix = true` removes the path of the route before the application gets it";
        return Err(Problem::new(format!("`{text}` has a path"), remedy));
    }
    let is_encrypted = scheme == "https";
    let address = parse_tcp(text, authority, spoken, if is_encrypted { HTTPS_PORT } else { HTTP_PORT })?;
    let (ip, port) = match &address {
        BackendAddress::Tcp(address) => (Some(address.ip()), address.port()),
        BackendAddress::Host { port, .. } => (None, *port),
        BackendAddress::Unix(_) => return Ok(ServerAddress { address, is_encrypted }),
    };
    if port == 0 {
        return Err(Problem::new(
            format!("`{text}` has the port 0"),
            "write the port at which the application listens",
        ));
    }
    if ip.is_some_and(|ip| ip.is_unspecified()) {
        let remedy = format!("write the address of one machine, for example {}", spoken.example());
        return Err(Problem::new(format!("`{text}` means all addresses of this machine"), remedy));
    }
    Ok(ServerAddress { address, is_encrypted })
}

fn parse_path(text: &str, path: &str) -> Result<BackendAddress, Problem> {
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        let message = format!("`{}` is not an absolute path of a UNIX socket", text.escape_debug());
        return Err(Problem::new(message, "write unix:/run/app.sock"));
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        let message = format!("the path of the UNIX socket `{path}` is longer than {SOCKET_PATH_BYTES_MAX} bytes");
        return Err(Problem::new(message, "move the socket to a shorter path"));
    }
    Ok(BackendAddress::Unix(PathBuf::from(path)))
}

fn parse_tcp(text: &str, authority: &str, spoken: Spoken, default_port: u16) -> Result<BackendAddress, Problem> {
    if let Ok(address) = authority.parse() {
        return Ok(BackendAddress::Tcp(address));
    }
    let bare = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(authority);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return match spoken {
            // Without brackets, the last group of an IPv6 address may have been meant as a port.
            Spoken::Http if text.contains("://") && (ip.is_ipv4() || authority.starts_with('[')) => {
                Ok(BackendAddress::Tcp(SocketAddr::new(ip, default_port)))
            }
            _ => {
                let shown = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
                let message = format!("`{text}` has no port");
                Err(Problem::new(message, format!("write it after the address, for example {shown}:3000")))
            }
        };
    }
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
    let is_name = host.len() <= NAME_BYTES_MAX
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        && host.bytes().any(|byte| byte.is_ascii_alphabetic())
        && host.strip_suffix('.').unwrap_or(host).split('.').all(|label| (1..=LABEL_BYTES_MAX).contains(&label.len()));
    let is_local = host.eq_ignore_ascii_case("localhost");
    match port.parse::<u16>() {
        Ok(port) if is_local => Ok(BackendAddress::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))),
        Ok(port) if is_name => Ok(BackendAddress::Host { name: host.to_ascii_lowercase(), port }),
        _ if is_name && !is_local && port.is_empty() && text.contains("://") && !authority.ends_with(':') => {
            Ok(BackendAddress::Host { name: host.to_ascii_lowercase(), port: default_port })
        }
        _ if is_name && port.is_empty() => {
            let message = format!("`{text}` has no port");
            Err(Problem::new(message, format!("write its address and port, for example {}", spoken.example())))
        }
        _ => {
            let message = format!("`{}` is not the address of an application", text.escape_debug());
            Err(Problem::new(message, format!("write {} or unix:/run/app.sock", spoken.example())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |text: &str| BackendAddress::Tcp(text.parse().expect("an address"));
        let host = |name: &str, port| BackendAddress::Host { name: name.to_owned(), port };
        for (text, spoken, expected) in [
            ("http://127.0.0.1:3000", Spoken::Http, tcp("127.0.0.1:3000")),
            ("http://127.0.0.1:3000/", Spoken::Http, tcp("127.0.0.1:3000")),
            ("127.0.0.1:3000", Spoken::Http, tcp("127.0.0.1:3000")),
            ("http://192.0.2.1", Spoken::Http, tcp("192.0.2.1:80")),
            ("http://[2001:db8::1]:81", Spoken::Http, tcp("[2001:db8::1]:81")),
            ("http://[::1]", Spoken::Http, tcp("[::1]:80")),
            ("https://192.0.2.1", Spoken::Http, tcp("192.0.2.1:443")),
            ("https://[::1]:8443/", Spoken::Http, tcp("[::1]:8443")),
            ("http://localhost:3000", Spoken::Http, tcp("127.0.0.1:3000")),
            ("http://app.internal:3000", Spoken::Http, host("app.internal", 3000)),
            ("http://App_1.Internal./", Spoken::Http, host("app_1.internal.", 80)),
            ("https://app.internal", Spoken::Http, host("app.internal", 443)),
            ("app:3000", Spoken::Http, host("app", 3000)),
            ("php:9000", Spoken::FastCgi, host("php", 9000)),
            ("127.0.0.1:9000", Spoken::FastCgi, tcp("127.0.0.1:9000")),
            ("localhost:9000", Spoken::FastCgi, tcp("127.0.0.1:9000")),
            ("unix:/run/app.sock", Spoken::Http, BackendAddress::Unix("/run/app.sock".into())),
            ("unix:/run/php/php-fpm.sock", Spoken::FastCgi, BackendAddress::Unix("/run/php/php-fpm.sock".into())),
        ] {
            let expected = ServerAddress { address: expected, is_encrypted: text.starts_with("https") };
            assert_eq!(parse_backend_address(text, spoken), Ok(expected), "{text}");
        }
    }

    #[test]
    fn wrong_address_gets_a_remedy() {
        let long = format!("unix:/{}", "a".repeat(107));
        for (text, spoken, expected) in [
            (
                "ws://127.0.0.1:1",
                Spoken::Http,
                "has the scheme ws; write http://127.0.0.1:3000, which carries WebSocket too",
            ),
            (
                "h2c://127.0.0.1:1",
                Spoken::Http,
                "has the scheme h2c; write http://127.0.0.1:3000, and protocol = \"h2\" in the route",
            ),
            (
                "http://127.0.0.1:9000",
                Spoken::FastCgi,
                "unknown scheme `http`; write 127.0.0.1:9000 or unix:/run/app.sock",
            ),
            ("app", Spoken::Http, "`app` has no port; write its address and port, for example http://127.0.0.1:3000"),
            ("http://app..internal:1", Spoken::Http, "is not the address of an application"),
            ("http://app:99999", Spoken::Http, "is not the address of an application"),
            ("http://app:0", Spoken::Http, "has the port 0; write the port at which"),
            ("http://localhost", Spoken::Http, "`http://localhost` has no port; write its address and port"),
            ("http://127.0.0.1:1/api", Spoken::Http, "has a path; leave it out; `strip_prefix = true` removes"),
            ("http://127.0.0.1:0", Spoken::Http, "has the port 0; write the port at which"),
            ("0.0.0.0:3000", Spoken::Http, "means all addresses of this machine; write the address of one machine"),
            ("127.0.0.1", Spoken::FastCgi, "has no port; write it after the address, for example 127.0.0.1:3000"),
            ("::1", Spoken::Http, "has no port; write it after the address, for example [::1]:3000"),
            ("http://::1", Spoken::Http, "has no port; write it after the address, for example [::1]:3000"),
            (
                "http://127.0.0.1:99999",
                Spoken::Http,
                "is not the address of an application; write http://127.0.0.1:3000",
            ),
            ("3000", Spoken::Http, "is not the address of an application"),
            ("", Spoken::Http, "is not the address of an application"),
            ("unix:run/app.sock", Spoken::Http, "is not an absolute path of a UNIX socket; write unix:/run/app.sock"),
            ("unix:/run/", Spoken::Http, "is not an absolute path of a UNIX socket"),
            ("http://unix:/run/app.sock", Spoken::Http, "has a scheme before a UNIX socket; write unix:/run/app.sock"),
            (&long, Spoken::Http, "is longer than 107 bytes; move the socket to a shorter path"),
        ] {
            let problem = parse_backend_address(text, spoken).expect_err(text);
            let shown = format!("{}; {}", problem.message, problem.remedy);
            assert!(shown.contains(expected), "{shown}");
        }
    }
}
