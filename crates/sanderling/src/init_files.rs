//! The text of the files that `init` writes.

use sanderling_config::DomainName;
use std::net::{IpAddr, SocketAddr};

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
pub(crate) const DNS_PORT: u16 = 53;
/// The zone files. The state folder is not below it: the server process can read a folder with zones.
pub(crate) const ZONE_FOLDER: &str = "zones";

/// The content of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) name: DomainName,
    /// The addresses in the zone, at least one.
    pub(crate) published: Vec<IpAddr>,
    /// The addresses of this machine at which DNS is served.
    pub(crate) dns_listen: Vec<IpAddr>,
    pub(crate) has_ipv6: bool,
    pub(crate) is_signed: bool,
    pub(crate) has_certificate: bool,
    /// The folder of the site, absolute or below the folder.
    pub(crate) site: String,
    /// The value of `state`; `None` leaves the default.
    pub(crate) state: Option<&'static str>,
}

/// The zone file, below the folder.
pub(crate) fn zone_file(name: &DomainName) -> String {
    format!("{ZONE_FOLDER}/{name}.zone")
}

/// The configuration file.
pub(crate) fn configuration(plan: &Plan) -> String {
    let Plan { name, .. } = plan;
    let all = |port: u16| match plan.has_ipv6 {
        true => format!("[\"0.0.0.0:{port}\", \"[::]:{port}\"]"),
        false => format!("[\"0.0.0.0:{port}\"]"),
    };
    let dns: Vec<String> =
        plan.dns_listen.iter().map(|address| format!("\"{}\"", SocketAddr::new(*address, DNS_PORT))).collect();
    let mut text = format!(
        "# {name}: its site and its zone. `sanderling check` checks this file, `sanderling config` shows all values.\n"
    );
    if let Some(state) = plan.state {
        text += &format!(
            "# Private keys and other data that outlive the server: back this folder up.\nstate = \"{state}\"\n"
        );
    }
    text += &format!("\n[http]\nlisten = {}\n", all(HTTP_PORT));
    let https = format!(
        "[https]\nlisten = {}\n\n# Certificates are requested from Let's Encrypt, and renewed.\n[certificates]\n\
         agree_to_terms = true\n",
        all(HTTPS_PORT)
    );
    text.push('\n');
    for line in https.lines() {
        let mark = if plan.has_certificate || line.is_empty() || line.starts_with('#') { "" } else { "# " };
        text += &format!("{mark}{line}\n");
    }
    text + &format!("\n[dns]\nlisten = [{}]\n\n{}", dns.join(", "), domain_section(plan))
}

/// The section of the domain.
pub(crate) fn domain_section(plan: &Plan) -> String {
    let Plan { name, site, .. } = plan;
    let signed = if plan.is_signed { "dnssec = true\n" } else { "" };
    let zone = zone_file(name);
    format!("[domain.\"{name}\"]\nsite = \"{site}\"\naliases = [\"www.{name}\"]\nzone = \"{zone}\"\n{signed}")
}

/// The zone file.
pub(crate) fn zone(plan: &Plan) -> String {
    let name = &plan.name;
    let mut text = format!(
        "; The zone of {name}. Raise the serial, the first number of the SOA record, with each change;\n\
         ; then `sanderling reload` serves it.\n$TTL 3600\n@ SOA ns1 hostmaster 1 86400 7200 604800 3600\n@ NS ns1\n"
    );
    for owner in ["@", "www", "ns1"] {
        for address in &plan.published {
            let rtype = if address.is_ipv4() { "A" } else { "AAAA" };
            text += &format!("{owner} {rtype} {address}\n");
        }
    }
    text + "; If the domain has mail, its MX and TXT records (SPF, DKIM, DMARC) belong here.\n"
}

/// The first page of the site.
pub(crate) fn page(name: &DomainName) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{name}</title>\n\
         <h1>{name}</h1>\n<p>Sanderling serves this page. Replace it with your own.</p>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            name: DomainName::parse("example.com").expect("a name"),
            published: vec!["192.0.2.5".parse().expect("v4"), "2001:db8::5".parse().expect("v6")],
            dns_listen: vec!["192.0.2.5".parse().expect("v4"), "2001:db8::5".parse().expect("v6")],
            has_ipv6: true,
            is_signed: true,
            has_certificate: true,
            site: "public".to_owned(),
            state: None,
        }
    }

    #[test]
    fn files_have_what_the_plan_says() {
        let text = configuration(&plan());
        for line in [
            "listen = [\"0.0.0.0:443\", \"[::]:443\"]",
            "listen = [\"192.0.2.5:53\", \"[2001:db8::5]:53\"]",
            "agree_to_terms = true",
            "dnssec = true",
            "zone = \"zones/example.com.zone\"",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!text.contains("state"), "{text}");
        let zone = zone(&plan());
        for line in ["www A 192.0.2.5", "ns1 AAAA 2001:db8::5", "@ AAAA 2001:db8::5"] {
            assert!(zone.lines().any(|other| other == line), "{line}\n{zone}");
        }
        let reduced =
            Plan { has_ipv6: false, is_signed: false, has_certificate: false, state: Some("state"), ..plan() };
        let text = configuration(&reduced);
        assert!(text.contains("state = \"state\"\n") && text.contains("[\"0.0.0.0:80\"]"), "{text}");
        for absent in ["dnssec", "\n[https]", "\n[certificates]", "\nagree_to_terms", "[::]"] {
            assert!(!text.contains(absent), "{absent}\n{text}");
        }
        let commented = ["[https]", "listen = [\"0.0.0.0:443\"]", "[certificates]", "agree_to_terms = true"];
        assert!(commented.iter().all(|line| text.contains(&format!("\n# {line}\n"))), "{text}");
    }

    #[test]
    fn address_of_either_family_has_its_own_record_type() {
        let only_v6 =
            Plan { published: vec![IpAddr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9])], ..plan() };
        let zone = zone(&only_v6);
        assert!(zone.contains("@ AAAA 2001:db8::9\n") && !zone.contains(" A "), "{zone}");
    }
}
