//! The section `[dns]` as text, and the configuration or the messages that it gives.

use super::super::tests::{check_before_domain, config};
use super::*;
use crate::config::DnsReplies;
use crate::diagnostic::Location;

#[test]
fn options_of_dns_replies_are_read() {
    const ZONE: &str = "[domain.\"example.com\"]\nzone = \"a.zone\"\n";
    let replies = config(ZONE).replies;
    assert_eq!(replies, DnsReplies::default());
    assert!(replies.cookies && replies.tcp_keepalive && replies.extended_errors && replies.nsid.is_empty());
    let text = "nsid = \"n\"\nversion = \"v\"\ncookies = false\ntcp_keepalive = false\nextended_errors = false\n\
                error_report_agent = \"Reports.example.\"\n";
    let expected = DnsReplies {
        nsid: "n".to_owned(),
        version: "v".to_owned(),
        cookies: false,
        cookie_secret_file: None,
        tcp_keepalive: false,
        extended_errors: false,
        error_report_agent: DomainName::parse("reports.example").ok(),
    };
    assert_eq!(config(&format!("[dns]\n{text}{ZONE}")).replies, expected);
    let file = config(&format!("[dns]\ncookie_secret_file = \"s\"\n{ZONE}")).replies.cookie_secret_file.expect("set");
    assert!(file.path.ends_with("s"));
    for (line, expected) in [
        ("nsid = 1", "2:8: `nsid` must be a string, not the number 1; write nsid = \"ns1.example.com\""),
        ("nsid = \"\"", "2:8: `nsid` has 0 bytes; write 1 to 128 bytes, or remove the key"),
        ("cookies = \"on\"", "2:11: `cookies` must be true or false, not the string \"on\"; write cookies = true"),
        (
            "tcp_keepalive = 1",
            "2:17: `tcp_keepalive` must be true or false, not the number 1; write tcp_keepalive = true",
        ),
        (
            "resolvers = [\"system\", \"ns\"]",
            "2:24: `ns` is not the address of a resolver; write resolvers = [\"system\"] for the resolvers in /etc/resolv.conf, or addresses: [\"192.0.2.53\"]",
        ),
        (
            "extended_errors = 1",
            "2:19: `extended_errors` must be true or false, not the number 1; write extended_errors = true",
        ),
        (
            "error_report_agent = \".\"",
            "2:22: the root cannot receive reports; write error_report_agent = \"reports.example.com\"",
        ),
        (
            "error_report_agent = \"a..b\"",
            "2:22: invalid domain name `a..b`: it has an empty label; remove the extra dot",
        ),
        (
            "cookie_secret_file = \"\"",
            "2:22: `cookie_secret_file` is empty; write cookie_secret_file = \"cookie.secret\"",
        ),
        (
            "cookie_secret_file = \"s\"\ncookies = false",
            "2:22: `cookie_secret_file` is set, but `cookies` is false; remove one of the two",
        ),
    ] {
        check_before_domain(&format!("[dns]\n{line}"), &[expected]);
    }
    let longest = "v".repeat(128);
    assert_eq!(config(&format!("[dns]\nversion = \"{longest}\"\n{ZONE}")).replies.version, longest);
    let message = "2:11: `version` has 129 bytes; write 1 to 128 bytes, or remove the key";
    check_before_domain(&format!("[dns]\nversion = \"{longest}v\""), &[message]);
}

#[test]
fn folder_of_zones_is_read() {
    let config = config("[dns]\nzones = \"zones/*.zone\"\n");
    let folder = config.zone_folder.as_ref().expect("set");
    assert!(folder.pattern().ends_with("zones/*.zone"), "{}", folder.pattern());
    assert!(config.has_zones() && config.has_cookies() && !config.dns_listen.is_empty());
    let message = "2:9: `zones` does not select the zone files of a folder; write the folder and the extension of the \
                   files: zones = \"zones/*.zone\"";
    check_before_domain("[dns]\nzones = \"zones\"", &[message]);
}

#[test]
fn exemptions_from_the_rate_limit_are_read() {
    const ZONE: &str = "[domain.\"example.com\"]\nzone = \"a.zone\"\n";
    let networks = r#"["192.0.2.0/24", "192.0.2.1", "0.0.0.0/0", "2001:db8::/32", "::1", "::/0", "192.0.2.2/32"]"#;
    let read =
        config(&format!("[dns]\nrate_limit_exempt = {networks}\nrate_limit_dry_run = true\n{ZONE}")).dns_rate_limit;
    let shown: Vec<String> = read.exempt.iter().map(|(address, bits)| format!("{address}/{bits}")).collect();
    assert_eq!(shown.join(" "), "192.0.2.0/24 192.0.2.1/32 0.0.0.0/0 2001:db8::/32 ::1/128 ::/0 192.0.2.2/32");
    assert!(read.dry_run && !config(ZONE).dns_rate_limit.dry_run);
    for network in ["192.0.2.0/", "192.0.2.0/-1", "a", ""] {
        let message =
            format!("2:22: `{network}` is not a network; write an address and a prefix length, such as 192.0.2.0/24");
        check_before_domain(&format!("[dns]\nrate_limit_exempt = [\"{network}\"]"), &[&message]);
    }
}

#[test]
fn cookie_secret_file_has_one_or_two_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let read = |content: &str| {
        std::fs::write(&path, content).unwrap();
        let file = CookieSecretFile { path: path.clone(), location: Location::Argument("test".to_owned()).into() };
        file.read().map(|(first, second)| (*first, second.map(|second| *second))).map_err(|error| error.to_string())
    };
    let (first, second) = ("000102030405060708090a0b0c0d0e0F", "ff".repeat(16));
    let bytes = std::array::from_fn(|index| index as u8);
    assert_eq!(read(first), Ok((bytes, None)));
    assert_eq!(read(&format!("{first}\r\n\n {second}\n")), Ok((bytes, Some([0xff; 16]))));
    for (content, reason) in [
        ("\n", "is empty"),
        ("00", "has a line of the wrong length"),
        (&format!("{first}0"), "has a line of the wrong length"),
        (&format!("{first}00"), "has a line of the wrong length"),
        (&format!("{first}\n{}", "g".repeat(32)), "has a character that is not a hexadecimal digit"),
        (&format!("{first}\n{second}\n{second}"), "has more than two secrets"),
    ] {
        let error = read(content).expect_err(content);
        assert!(error.contains(&format!("`{}` {reason}; write one or two lines", path.display())), "{error}");
    }
}

#[test]
fn resolvers_are_those_of_the_system_or_addresses() {
    const ZONE: &str = "[domain.\"example.com\"]\nzone = \"a.zone\"\n";
    let text = "[dns]\nresolvers = [\"system\", \"192.0.2.53\", \"[2001:db8::1]:5353\"]\n";
    let with = config(&format!("{text}{ZONE}"));
    let [v4, v6] = ["192.0.2.53:53", "[2001:db8::1]:5353"].map(|text| Resolver::At(text.parse().expect("an address")));
    assert_eq!(with.resolvers, [Resolver::System, v4, v6]);
    // The agent queries the resolvers, for the targets that the server process sends it.
    assert!(with.has_stored_zones() && with.has_derived_records());
    let without = config(ZONE);
    assert!(!without.has_stored_zones() && !without.has_derived_records());
}
