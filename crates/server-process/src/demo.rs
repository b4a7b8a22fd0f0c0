//! The built-in domain: its site and its zone as bytes, and the text that tells how to ask for them.

use sanderling_server::BuiltinFile;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The name of the built-in zone; names below `test` belong to nobody (RFC 6761 §6.2).
pub(crate) const APEX: &str = "sanderling.test";

/// The zone file of [`APEX`].
pub(crate) const ZONE: &str = include_str!("../../../demo/demo.zone");

/// The files of the site.
pub(crate) const SITE: &[BuiltinFile] = &[
    BuiltinFile { path: "index.html", bytes: include_bytes!("../../../demo/site/index.html") },
    BuiltinFile { path: "style.css", bytes: include_bytes!("../../../demo/site/style.css") },
    BuiltinFile { path: "sanderling.svg", bytes: include_bytes!("../../../demo/site/sanderling.svg") },
    BuiltinFile { path: "favicon.svg", bytes: include_bytes!("../../../demo/site/favicon.svg") },
    BuiltinFile { path: "robots.txt", bytes: include_bytes!("../../../demo/site/robots.txt") },
];

/// What `demo` prints once it answers at `http` and `dns`: lines to paste into another terminal.
pub(crate) fn greeting(http: SocketAddr, dns: SocketAddr) -> String {
    let (http, dns) = (reachable(http), reachable(dns));
    let (server, port) = (dns.ip(), dns.port());
    format!(
        "\
The built-in domain {APEX} is being served. Open it in a browser:

  http://{http}/

or ask for it by hand, in another terminal:

  curl -i http://{http}/robots.txt
  curl --connect-to ::{http} http://{APEX}/robots.txt
  dig @{server} -p {port} {APEX}
  dig @{server} -p {port} blog.{APEX}
  dig @{server} -p {port} anything.wild.{APEX} TXT
  dig @{server} -p {port} big.{APEX} TXT

Ctrl-C ends it. `sanderling serve FOLDER` serves your own files.
"
    )
}

/// An address that this machine can connect to: a listener on every address is reached by loopback.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_greeting_has_the_real_ports() {
        let text = greeting("127.0.0.1:40123".parse().unwrap(), "127.0.0.1:40124".parse().unwrap());
        for line in [
            "  http://127.0.0.1:40123/",
            "  curl --connect-to ::127.0.0.1:40123 http://sanderling.test/robots.txt",
            "  dig @127.0.0.1 -p 40124 sanderling.test",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is missing in\n{text}");
        }
    }

    #[test]
    fn the_greeting_names_addresses_that_can_be_reached() {
        let text = greeting("[::]:80".parse().unwrap(), "0.0.0.0:53".parse().unwrap());
        assert!(text.contains("  http://[::1]:80/\n"), "{text}");
        assert!(text.contains("  dig @127.0.0.1 -p 53 sanderling.test\n"), "{text}");
    }

    #[test]
    fn the_folder_of_the_site_has_no_file_that_is_left_out() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/site");
        let mut found: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut embedded: Vec<&str> = SITE.iter().map(|file| file.path).collect();
        found.sort();
        embedded.sort_unstable();
        assert_eq!(found, embedded);
    }

    /// The page must look the same on a machine without a network, and every link in it must lead somewhere.
    #[test]
    fn every_reference_of_the_page_is_a_file_of_the_site() {
        let page = str::from_utf8(SITE[0].bytes).unwrap();
        let references: Vec<&str> = ["href=\"", "src=\""]
            .iter()
            .flat_map(|start| page.split(start).skip(1))
            .map(|rest| rest.split('"').next().unwrap_or_default())
            .collect();
        assert!(references.len() >= 3, "{references:?}");
        for reference in references {
            let path = reference.strip_prefix('/').unwrap_or_else(|| panic!("{reference} leaves the site"));
            assert!(SITE.iter().any(|file| file.path == path), "{reference} is no file of the site");
        }
    }
}
