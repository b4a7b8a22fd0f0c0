//! Configuration files as text, and the configuration or the messages that they give.

use super::*;
use crate::config::processor_count;
use crate::diagnostic::Location;
use crate::limits::{LIMITS, Limits, UNLIMITED};

/// A directory with a site in `public`, a zone in `a.zone` and nothing else.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("public")).unwrap();
    std::fs::write(directory.path().join("a.zone"), "").unwrap();
    directory
}

/// The configuration of a file with this `content` in such a directory, whose path is removed from messages.
pub(super) fn read(content: &[u8]) -> Result<Config, Vec<String>> {
    let directory = directory();
    let prefix = format!("{}/", directory.path().display());
    parse(&directory.path().join("sanderling.toml"), content)
        .map(|mut config| {
            let cut = |path: &mut PathBuf| *path = path.strip_prefix(&prefix).unwrap().to_owned();
            config.sites.iter_mut().flat_map(|site| &mut site.document_root).for_each(cut);
            config.zones.iter_mut().for_each(|zone| cut(&mut zone.file));
            config
        })
        .map_err(|diagnostics| {
            let shown = |one: &Diagnostic| one.to_string().replace(&prefix, "").replace("sanderling.toml:", "");
            diagnostics.iter().map(shown).collect()
        })
}

#[track_caller]
pub(super) fn config(text: &str) -> Config {
    read(text.as_bytes()).unwrap_or_else(|messages| panic!("{messages:#?}\n{text}"))
}

/// `text` gives exactly these messages, each `line:column: message; remedy`.
#[track_caller]
pub(super) fn check(text: &str, expected: &[&str]) {
    match read(text.as_bytes()) {
        Err(messages) => assert_eq!(messages, expected, "\n{text}"),
        Ok(config) => panic!("accepted: {config:#?}\n{text}"),
    }
}

/// The configuration is accepted, and its paths have these problems.
#[track_caller]
fn check_paths(text: &str, expected: &[&str]) {
    let directory = directory();
    let prefix = format!("{}/", directory.path().display());
    let config = parse(&directory.path().join("sanderling.toml"), text.as_bytes()).expect("accepted");
    let problems = config.path_problems();
    let messages = problems.iter().map(|one| one.to_string().replace(&prefix, "").replace("sanderling.toml:", ""));
    assert_eq!(messages.collect::<Vec<_>>(), expected, "\n{text}");
}

/// `before` a complete domain gives these messages.
#[track_caller]
pub(super) fn check_before_domain(before: &str, expected: &[&str]) {
    check(&format!("{before}\n[domain.\"example.com\"]\nsite = \"public\"\nzone = \"a.zone\"\n"), expected);
}

fn names(hosts: &[DomainName]) -> Vec<&str> {
    hosts.iter().map(DomainName::as_str).collect()
}

#[test]
fn all_sections_are_read() {
    let config = config(
        r#"
        workers = 3
        [http]
        listen = ["0.0.0.0:80", "[::]:80"]
        default = "www.second.example"
        [dns]
        listen = ["0.0.0.0:53"]
        [limits]
        http_idle_timeout_ms = 1_000
        dns_cname_chain_max = 0x10
        [domain."zz.example"]
        zone = "a.zone"
        site = "public"
        aliases = ["WWW.zz.example."]
        [domain."second.example"]
        site = "public"
        aliases = ["www.second.example", "only-zone.example"]
        [domain."Only-Zone.Example."]
        zone = "a.zone"
        "#,
    );
    assert_eq!(config.worker_count, 3);
    assert_eq!(config.http_listen, ["0.0.0.0:80".parse().unwrap(), "[::]:80".parse().unwrap()]);
    assert_eq!(config.dns_listen, ["0.0.0.0:53".parse().unwrap()]);
    assert_eq!(config.sites.len(), 2);
    assert_eq!(names(&config.sites[0].hosts), ["zz.example", "www.zz.example"]);
    assert_eq!(names(&config.sites[1].hosts), ["second.example", "www.second.example", "only-zone.example"]);
    assert_eq!(config.sites[1].document_root.as_deref(), Some(Path::new("public")));
    assert_eq!(config.default_site, DefaultSite::Addresses(1));
    assert_eq!(config.zones.len(), 2);
    assert_eq!(config.zones[1].apex.as_str(), "only-zone.example");
    assert_eq!(config.zones[1].file, Path::new("a.zone"));
    let expected = Limits { http_idle_timeout_ms: 1000, dns_cname_chain_max: 16, ..Limits::default() };
    assert_eq!(config.limits, expected);
}

#[test]
fn missing_keys_have_defaults() {
    let config = config("[domain.\"b.example\"]\nsite = \"public\"\n[domain.\"a.example\"]\nsite = \"public\"\n");
    assert_eq!(config.http_listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(config.dns_listen, [], "without a zone nothing listens for DNS");
    assert_eq!(config.default_site, DefaultSite::Addresses(0));
    assert_eq!(names(&config.sites[0].hosts), ["b.example"], "the first of the file, not of the alphabet");
    assert_eq!(config.worker_count, processor_count());
    assert_eq!(config.limits, Limits::default());
}

#[test]
fn zones_without_sites_have_no_http_listener() {
    let config = config("[domain.\"0/25.2.0.192.in-addr.arpa\"]\nzone = \"a.zone\"\n");
    assert_eq!(config.http_listen, []);
    assert_eq!(config.dns_listen, ["127.0.0.1:5353".parse().unwrap()]);
    assert_eq!(config.default_site, DefaultSite::None);
}

#[test]
fn port_0_may_be_listed_twice() {
    let config =
        config("[http]\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n[domain.\"a.example\"]\nsite = \"public\"");
    assert_eq!(config.http_listen.len(), 2);
}

#[test]
fn file_without_domains_is_an_error() {
    let message = "1:1: there is nothing to serve; \
                   add [domain.\"example.com\"] with site = \"FOLDER\" or zone = \"FILE\"";
    check("", &[message]);
    check("# nothing yet\n", &[message]);
    check("[domain]\n", &[message]);
    check("[http]\nlisten = [\"127.0.0.1:80\"]\n", &[message]);
}

#[test]
fn listener_without_content_is_an_error() {
    check(
        "[http]\nlisten = [\"127.0.0.1:80\"]\n[domain.\"a.example\"]\nzone = \"a.zone\"\n",
        &["2:1: [http] has `listen`, but no domain has a `site` or `route`; add one or remove [http]"],
    );
    check(
        "[dns]\nlisten = [\"127.0.0.1:53\"]\n[domain.\"a.example\"]\nsite = \"public\"\n",
        &["2:1: [dns] has `listen`, but no domain has a `zone`; add a zone or remove [dns]"],
    );
}

#[test]
fn unknown_key_has_a_suggestion() {
    for (before, expected) in [
        ("wokers = 2", "1:1: unknown key `wokers`; did you mean `workers`?"),
        ("[htpp]", "1:2: unknown key `htpp`; did you mean `http`?"),
        ("[http]\n  Listen = []", "2:3: unknown key `Listen` in [http]; did you mean `listen`?"),
        (
            "[limits]\nhttp_idle_timeout_s = 60",
            "2:1: unknown key `http_idle_timeout_s` in [limits]; did you mean `http_idle_timeout_ms`?",
        ),
        (
            "[dns]\nudp = true",
            "2:1: unknown key `udp` in [dns]; the keys are `listen`, `tls`, `zones`, `secondaries`, `transfer_allow`, `nsid`, `version`, `cookies`, `cookie_secret_file`, \
            `tcp_keepalive`, `extended_errors`, `error_report_agent`, `resolvers`, `rate_limit_exempt`, `rate_limit_dry_run`",
        ),
        ("[limits]\nx = 1", "2:1: unknown key `x` in [limits]; `sanderling help check` lists the limits"),
        ("colour = 1", &format!("1:1: unknown key `colour`; {TOP_KEYS}")),
        ("\"ü\" = { a = 1 }", &format!("1:1: unknown key `ü`; {TOP_KEYS}")),
        ("\"\\u001b[2J\\nworkers\" = 1", &format!("1:1: unknown key `\\u{{1b}}[2J\\nworkers`; {TOP_KEYS}")),
        ("zone = \"a\"", "1:1: unknown key `zone`; `zone` belongs in [domain.\"NAME\"]"),
        (
            "[dns]\r\n\r\nworkers = 2\r\n",
            "3:1: unknown key `workers` in [dns]; `workers` belongs at the top of the file, before the first [section]",
        ),
        ("[\"a.example\"]\nsite = \"x\"", "1:2: unknown key `a.example`; write [domain.\"a.example\"] for a domain"),
    ] {
        check_before_domain(before, &[expected]);
    }
}

const TOP_KEYS: &str = "the keys are `workers`, `listeners`, `user`, `group`, `sandbox`, `keys`, `control`, `state`, `include`, [http], [https], [dns], [certificates], \
                        [domain.\"NAME\"], [tsig.\"NAME\"], [catalog.\"NAME\"], [log], [metrics] and [limits]";

#[test]
fn table_in_a_domain_is_an_unknown_key() {
    let keys: Vec<String> = Section::Domain.names().iter().map(|key| format!("`{key}`")).collect();
    let unknown = |place: &str, key: &str, domain: &str| {
        format!("{place}: unknown key `{key}` in [domain.\"{domain}\"]; the keys are {}", keys.join(", "))
    };
    check(
        "[domain.\"a.example\"]\nroot = \"a\"\nproperties = { \"Cache-Control\" = \"max-age=60\" }",
        &[
            "2:1: unknown key `root` in [domain.\"a.example\"]; its name here is `site`",
            &unknown("3:1", "properties", "a.example"),
        ],
    );
    check(
        "[domain.localhost]\nsite = \"public\"\n[domain.localhost.properties]\na = 1",
        &[&unknown("3:19", "properties", "localhost")],
    );
}

#[test]
fn domain_name_without_quotes_is_an_error() {
    check(
        "[domain.www.example.com]\nsite = \"public\"\n",
        &["1:9: the name www.example.com is not in quotes; write [domain.\"www.example.com\"]"],
    );
}

#[test]
fn wrong_type_names_the_value_and_an_example() {
    for (before, expected) in [
        ("user = 65534", "1:8: `user` must be a string, not the number 65534; write user = \"65534\""),
        ("control = \"\"", "1:11: `control` is empty; write control = \"control.sock\""),
        ("keys = \"file\"", "1:8: `keys` must be \"keeper\" or \"in-process\"; write keys = \"keeper\""),
        ("keys = true", "1:8: `keys` must be a string, not true; write keys = \"keeper\""),
        ("workers = \"2\"", "1:11: `workers` must be an integer, not the string \"2\"; write workers = 4"),
        ("[http]\nhttp2 = \"yes\"", "2:9: `http2` must be true or false, not the string \"yes\"; write http2 = true"),
        ("http = true", "1:8: `http` must be a table, not true; write [http] on a line of its own"),
        (
            "[http]\nlisten = \"x:80\"",
            "2:10: `listen` must be a list of strings, not the string \"x:80\"; write listen = [\"127.0.0.1:8080\"]",
        ),
        (
            "[dns]\nlisten = [5.3, \"127.0.0.1:53\"]",
            "2:11: `listen` must be a list of strings, not the number 5.3; write listen = [\"127.0.0.1:5353\"]",
        ),
        (
            "[limits]\ndrain_timeout_ms = 1979-05-27",
            "2:20: `drain_timeout_ms` must be an integer, not a date; write drain_timeout_ms = 30000 or \"unlimited\"",
        ),
        (
            "[domain.\"a.example\"]\nsite = [\"public\"]",
            "2:8: `site` must be a string, not a list; write site = \"public\"",
        ),
        (
            "domain.\"a.example\" = 3",
            "1:22: `a.example` must be a table, not the number 3; write [domain.\"example.com\"] on a line of its own",
        ),
    ] {
        check_before_domain(before, &[expected]);
    }
}

#[test]
fn number_out_of_range_is_an_error() {
    for (value, shown) in [("0", "0"), ("1025", "1025"), ("-1", "-1"), ("0x1000", "0x1000")] {
        let expected = format!("1:11: `workers` is out of range: {shown}; write 1 to 1024");
        check_before_domain(&format!("workers = {value}"), &[&expected]);
    }
    check_before_domain(
        "[limits]\ndns_udp_answer_bytes_max = 99999999999999999999",
        &["2:28: `dns_udp_answer_bytes_max` is out of range: 99999999999999999999; write 512 to 4096"],
    );
    check_before_domain(
        "[limits]\ndrain_timeout_ms = -1",
        &["2:20: `drain_timeout_ms` is out of range: -1; write 0 to 604800000 or \"unlimited\""],
    );
}

#[test]
fn limits_accept_min_and_max_and_nothing_beyond() {
    for limit in LIMITS {
        // The target limit must be less than the head limit.
        let other = match limit.key {
            "http_target_bytes_max" => "http_head_bytes_max = 1048576\n",
            "http_head_bytes_max" => "http_target_bytes_max = 256\n",
            _ => "",
        };
        let text = |value: u64| {
            let domain = "[domain.\"a.example\"]\nsite = \"public\"\n";
            format!("{domain}[limits]\n{other}{} = {value}\n", limit.key)
        };
        for value in [limit.min, limit.default, limit.max] {
            // Each range fits the type of its field.
            let limits = format!("{:?}", config(&text(value)).limits);
            assert!(limits.contains(&format!(" {}: {value}", limit.key)), "{limits}");
        }
        let below = limit.min.checked_sub(1);
        for value in below.into_iter().chain([limit.max + 1]) {
            let messages = read(text(value).as_bytes()).expect_err(limit.key);
            assert!(messages[0].contains("is out of range"), "{} = {value}: {messages:?}", limit.key);
        }
    }
}

#[test]
fn drain_timeout_may_be_unlimited() {
    let text = "[domain.\"a.example\"]\nsite = \"public\"\n[limits]\ndrain_timeout_ms = \"unlimited\"";
    assert_eq!(config(text).limits.drain_timeout_ms, UNLIMITED);
    check_before_domain(
        "[limits]\ndrain_timeout_ms = \"never\"\nhttp_idle_timeout_ms = \"unlimited\"",
        &[
            "2:20: `drain_timeout_ms` must be an integer, not the string \"never\"; write drain_timeout_ms = 30000 or \
             \"unlimited\"",
            "3:24: `http_idle_timeout_ms` must be an integer, not the string \"unlimited\"; write \
             http_idle_timeout_ms = 60000",
        ],
    );
}

#[test]
fn target_limit_must_be_less_than_head_limit() {
    check_before_domain(
        "[limits]\nhttp_target_bytes_max = 16384",
        &["2:1: `http_target_max` (16KiB) must be less than `http_head_max` (16KiB, the default), which includes it; \
           raise `http_head_max` or lower `http_target_max`"],
    );
}

#[test]
fn invalid_and_conflicting_addresses_are_errors() {
    check_before_domain(
        "[http]\nlisten = [\":80\", \"localhost:80\", \"::1:80\", \"127.0.0.1\", \"127.0.0.1:65536\", \"web\"]",
        &[
            "2:11: invalid address `:80`, expected ADDR:PORT; \
             write 127.0.0.1:80 for this machine only, 0.0.0.0:80 and [::]:80 for all addresses",
            "2:18: invalid address `localhost:80`, expected ADDR:PORT; write the address: 127.0.0.1:80 or [::1]:80",
            "2:34: invalid address `::1:80`, expected ADDR:PORT; write an IPv6 address in brackets, for example [::1]:8080",
            "2:44: invalid address `127.0.0.1`, expected ADDR:PORT; add a port, for example 127.0.0.1:8080",
            "2:57: invalid address `127.0.0.1:65536`, expected ADDR:PORT; write a port from 0 to 65535",
            "2:76: invalid address `web`, expected ADDR:PORT; for example 127.0.0.1:8080 or [::1]:8080",
        ],
    );
    check_before_domain(
        "[http]\nlisten = [\n  \"127.0.0.1:80\",\n  \"127.0.0.1:80\",\n]",
        &["4:3: 127.0.0.1:80 is listed twice for HTTP; remove one of the two"],
    );
    check_before_domain(
        "[http]\nlisten = [\"127.0.0.1:80\"]\n[dns]\nlisten = [\"127.0.0.1:80\"]",
        &[
            "4:11: 127.0.0.1:80 is listed for both HTTP and DNS; DNS listens on TCP as well; choose another port for one of them",
        ],
    );
    check_before_domain(
        "[http]\nlisten = [\"0.0.0.0:80\", \"127.0.0.1:80\", \"[::]:80\"]",
        &["2:25: 0.0.0.0:80 already includes 127.0.0.1:80; remove 127.0.0.1:80"],
    );
    check_before_domain(
        "[http]\nlisten = [\"[::1]:80\", \"[::]:80\"]",
        &["2:23: [::]:80 already includes [::1]:80; remove [::1]:80"],
    );
    check_before_domain(
        "[http]\nlisten = [\"0.0.0.0:80\"]\n[dns]\nlisten = [\"127.0.0.1:80\"]",
        &["4:11: 127.0.0.1:80 overlaps 0.0.0.0:80, which is listed for HTTP; \
           DNS listens on TCP as well; choose another port for one of them"],
    );
    check_before_domain(
        "[http]\nlisten = []",
        &["2:10: `listen` is empty; write listen = [\"127.0.0.1:8080\"] or remove the line"],
    );
}

#[test]
fn invalid_domain_names_are_errors() {
    let long_label = "a".repeat(64);
    let long_name = ["a"; 128].join(".");
    for (name, problem) in [
        ("bad name", "the character ` ` is not allowed; write a name such as example.com"),
        ("http://a.example/", "the character `:` is not allowed; write a name such as example.com"),
        ("a$b.example", "the character `$` is not allowed; write a name such as example.com"),
        ("a..example", "it has an empty label; remove the extra dot"),
        (".example", "it has an empty label; remove the extra dot"),
        ("", "it is empty; write a name such as example.com"),
        ("a*.example", "the character `*` is not allowed; write a name such as example.com"),
        ("bücher.example", "it has non-ASCII characters; write its ASCII form: xn--bcher-kva.example"),
        (&long_label, "it has a label of 64 characters; a label has at most 63 characters"),
        (&long_name, "it has 255 characters; a name has at most 253 characters"),
        (
            "192.0.2.1",
            "it is an IP address; requests for addresses are answered by the site that `default` in [http] names, \
                else by the first site",
        ),
    ] {
        let shown = name.escape_debug();
        let expected = format!("1:9: invalid domain name `{shown}`: {problem}");
        check(&format!("[domain.\"{name}\"]\nsite = \"public\"\n"), &[&expected]);
        let expected = format!("3:12: invalid domain name `{shown}`: {problem}");
        check(&format!("[domain.\"a.example\"]\nsite = \"public\"\naliases = [\"{name}\"]\n"), &[&expected]);
    }
}

#[test]
fn duplicate_host_or_zone_is_an_error() {
    check(
        "[domain.\"a.example\"]\nzone = \"a.zone\"\n[domain.\"A.example\"]\nzone = \"a.zone\"",
        &["3:9: the zone a.example is defined twice; remove one of the two; the other is on line 1"],
    );
    let second = "[domain.\"b.example\"]\nsite = \"public\"\n";
    check(
        &format!("[domain.\"a.example\"]\nsite = \"public\"\naliases = [\"B.example.\"]\n{second}"),
        &["4:9: b.example is already a host of a.example; remove one of the two; the other is on line 3"],
    );
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\naliases = [\"www.a.example\", \"A.example\", \"www.a.example\"]",
        &[
            "3:29: a.example is listed twice; remove one of the two; the other is on line 1",
            "3:42: www.a.example is listed twice; remove one of the two; the other is on line 3",
        ],
    );
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\n[domain.\"A.example.\"]\nsite = \"public\"",
        &["3:9: a.example is listed twice; remove one of the two; the other is on line 1"],
    );
    check(
        "[domain.\"0/25.example\"]\nsite = \"public\"",
        &[
            "1:9: 0/25.example cannot have a site: no URL contains such a name; give it only a zone; for all names below a \
             name, write *.NAME",
        ],
    );
    check(
        "[domain.\".\"]\nsite = \"public\"",
        &[
            "1:9: . cannot have a site: no URL contains such a name; give it only a zone; for all names below a name, write \
             *.NAME",
        ],
    );
    check(
        "[domain.\"a.*.example\"]\nsite = \"public\"",
        &[
            "1:9: a.*.example cannot have a site: no URL contains such a name; give it only a zone; for all names below a \
             name, write *.NAME",
        ],
    );
}

#[test]
fn variables_of_the_environment_are_replaced_in_strings() {
    let text = "[log]\naccess = \"${NAME}/a.log\"\nformat = \"${status} $host\"\n\
                [domain.\"a.example\"]\nsite = \"public\"\naliases = [\"${NAME}.example\", \"\\u0024{NAME}2.example\"]";
    let directory = directory();
    let path = directory.path().join("sanderling.toml");
    std::fs::write(&path, text).unwrap();
    let read = config_text::read_with(&path, |name| (name == "NAME").then(|| "of-the-reader".to_owned())).unwrap();
    // Another process, which parses the text, has other variables.
    let config = parse(&path, &read).unwrap();
    assert_eq!(names(&config.sites[0].hosts), ["a.example", "of-the-reader.example", "of-the-reader2.example"]);
    assert_eq!(config.files, [path.as_path()]);
    let changed = config_text::read_with(&path, |_| Some("changed".to_owned())).unwrap();
    assert!(changed != read && parse(&path, &changed).unwrap() != config);
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\nzone = \"${CARGO_PKG_NAME}/z\"",
        &["3:8: the environment variable `CARGO_PKG_NAME` is not set; set it for the server, for example with \
           Environment= in its unit file, and for this command; or write `$${…}` for the text itself"],
    );
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\nzone = \"${NO_SUCH_VARIABLE_OF_TESTS}/z\"",
        &[
            "3:8: the environment variable `NO_SUCH_VARIABLE_OF_TESTS` is not set; set it for the server, for example with \
           Environment= in its unit file, and for this command; or write `$${…}` for the text itself",
        ],
    );
}

#[test]
fn wildcards_may_be_hosts_of_sites() {
    let config = config(
        "[http]\ndefault = \"*.b.example\"\n[domain.\"a.example\"]\nsite = \"public\"\naliases = [\"*.a.example\"]\n\
         [domain.\"*.b.example\"]\nsite = \"public\"",
    );
    assert_eq!(names(&config.sites[0].hosts), ["a.example", "*.a.example"]);
    assert_eq!(names(&config.sites[1].hosts), ["*.b.example"]);
    assert_eq!(config.default_site, DefaultSite::Addresses(1));
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\naliases = [\"*.a.example\"]\n\
         [domain.\"*.A.example\"]\nsite = \"public\"",
        &["4:9: *.a.example is already a host of a.example; remove one of the two; the other is on line 3"],
    );
}

#[test]
fn root_and_names_with_wildcards_may_be_zones() {
    let names = [".", "*.a.example", "a.*.example", "0/25.example"];
    let text: String = names.iter().map(|name| format!("[domain.\"{name}\"]\nzone = \"a.zone\"\n")).collect();
    let config = read(text.as_bytes()).expect("accepted");
    assert_eq!(config.zones.iter().map(|zone| zone.apex.as_str()).collect::<Vec<_>>(), names);
    assert_eq!(config.zones[0].apex.labels().count(), 0);
}

#[test]
fn domain_without_site_and_zone_is_an_error() {
    check(
        "[domain.\"a.example\"]\n",
        &[
            "1:9: a.example has no site, no zone, no routes and no redirects; add site = \"FOLDER\", zone = \"FILE\", a route to an application, or redirects",
        ],
    );
    check(
        "[domain.\"a.example\"]\nzone = \"a.zone\"\naliases = [\"www.a.example\"]",
        &["3:1: a.example has aliases, but no site; add site = \"FOLDER\""],
    );
}

#[test]
fn missing_and_wrong_paths_concern_their_own_site_or_zone() {
    check_paths(
        "[domain.\"a.example\"]\nsite = \"publik\"\nzone = \"b.zone\"",
        &[
            "2:8: the site `publik` does not exist; create it or correct the path",
            "3:8: the zone file `b.zone` does not exist; create it or correct the path",
        ],
    );
    check_paths(
        "[domain.\"a.example\"]\nsite = \"a.zone\"\nzone = \"public\"",
        &[
            "2:8: the site `a.zone` is not a directory; specify a directory, not a file",
            "3:8: the zone file `public` is a directory; specify a file in it",
        ],
    );
    check(
        "[domain.\"a.example\"]\nsite = \"\"\nzone = \"/dev/null\"",
        &[
            "2:8: `site` is empty; write site = \"public\"",
            "3:8: the zone file `/dev/null` is not a regular file; specify a regular file",
        ],
    );
}

#[test]
fn control_must_be_a_path_where_a_socket_can_be_created() {
    for (control, expected) in [
        ("a.sock", None),
        ("run/a.sock", None),
        ("public", Some("`control`: public exists but is not a socket; specify another path")),
        ("a.zone", Some("`control`: a.zone exists but is not a socket; specify another path")),
        ("a/b/c", Some("`control`: the directory a does not exist; create it or specify another path")),
        ("\\u0000", Some("without NUL")),
        (&"a".repeat(108), Some("write a path of at most 107 bytes")),
    ] {
        let directory = directory();
        let text = format!("control = \"{control}\"\n[domain.\"a.example\"]\nsite = \"public\"");
        let config = parse(&directory.path().join("sanderling.toml"), text.as_bytes()).expect("accepted");
        let prefix = format!("{}/", directory.path().display());
        let found = config.control_problem().map(|one| one.to_string().replace(&prefix, ""));
        assert_eq!(found.is_some(), expected.is_some(), "{control}: {found:?}");
        assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{control}: {expected:?}");
    }
}

#[test]
fn changed_limits_are_named() {
    let running = Config::default();
    let mut config = Config::default();
    assert_eq!(config.needs_new_process(&running), None);
    config.limits.drain_timeout_ms += 1;
    assert_eq!(config.needs_new_process(&running).unwrap(), "`drain_timeout` has changed");
    config.limits.open_files_max += 1;
    assert_eq!(config.needs_new_process(&running).unwrap(), "`open_files_max`, `drain_timeout` have changed");
    config.http2 = true;
    assert_eq!(config.needs_new_process(&running).unwrap(), "`http2` in [http] has changed");
}

#[test]
fn process_that_is_given_its_first_secrets_is_a_new_one() {
    let without = Config::default();
    let with = Config { has_self_signed_certificate: true, ..Config::default() };
    assert_eq!(with.needs_new_process(&without).unwrap(), "`certificate` was added");
    assert_eq!((with.needs_new_process(&with), without.needs_new_process(&with)), (None, None));
}

#[test]
fn process_that_is_given_its_first_stored_zones_is_a_new_one() {
    let zone =
        "[dns]\nlisten = [\"127.0.0.1:0\"]\n[tsig.k]\nsecret_file = \"k\"\n[domain.\"a.test\"]\nzone = \"a.zone\"\n";
    let without = config(zone);
    for (key, value) in [
        ("update", "[{ key = \"k\", names = [\"**\"], types = [\"ANY\"] }]"),
        ("secondaries", "[{ address = \"192.0.2.1\" }]"),
    ] {
        let with = config(&format!("{zone}{key} = {value}"));
        assert_eq!(with.needs_new_process(&without).unwrap(), format!("`{key}` was added"));
        assert_eq!((with.needs_new_process(&with), without.needs_new_process(&with)), (None, None));
    }
}

#[test]
fn private_keys_have_a_keeper_unless_the_server_process_is_to_have_them() {
    let files = "[domain.\"a.test\"]\nsite = \"a\"\ncertificate = { chain = \"a.pem\", key = \"a.key\" }";
    let [default, keeper, in_process] = ["", "keys = \"keeper\"", "keys = \"in-process\""]
        .map(|keys| config(&format!("{keys}\n[https]\nlisten = [\"127.0.0.1:0\"]\n{files}")));
    assert_eq!([&default, &keeper, &in_process].map(Config::has_keeper), [true, true, false]);
    assert_eq!(default.needs_new_process(&in_process).unwrap(), "`keys` has changed");
    // The self-signed certificate for this machine needs no files.
    assert!(!Config { has_self_signed_certificate: true, ..Config::default() }.has_keeper());
}

#[test]
fn default_must_be_a_host_of_a_site() {
    check_before_domain(
        "[http]\ndefault = \"b.example\"",
        &["2:11: b.example is not a host of any site; write a domain that has a `site` or `route`"],
    );
    check_paths(
        "[http]\ndefault = \"a.example\"\n[domain.\"a.example\"]\nsite = \"publik\"",
        &["4:8: the site `publik` does not exist; create it or correct the path"],
    );
}

#[test]
fn all_problems_are_reported_in_the_order_of_the_file() {
    check(
        "workers = 0\n[limits]\nx = 1\n[http]\nlisten = [\"x\"]\n[domain.\"b b\"]\n[domain.\"a a\"]\n",
        &[
            "1:11: `workers` is out of range: 0; write 1 to 1024",
            "3:1: unknown key `x` in [limits]; `sanderling help check` lists the limits",
            "5:11: invalid address `x`, expected ADDR:PORT; for example 127.0.0.1:8080 or [::1]:8080",
            "6:9: invalid domain name `b b`: the character ` ` is not allowed; write a name such as example.com",
            "7:9: invalid domain name `a a`: the character ` ` is not allowed; write a name such as example.com",
        ],
    );
}

#[test]
fn syntax_errors_have_their_position() {
    check_before_domain("[http", &["1:6: unclosed table; expected `]`"]);
    check_before_domain("user = \"x", &["1:10: the closing quote is missing; add it"]);
    check_before_domain("workers", &["1:8: key with no value; write KEY = VALUE"]);
    check_before_domain(
        "[http]\nlisten = \"x\"\nlisten.y = 1",
        &["3:1: `listen` is already set to a value, and cannot be a table as well; remove one of the two"],
    );
    check_before_domain(
        "[dns]\nlisten = [\"127.0.0.1:53\"]\n[http]\nlisten = [\"127.0.0.1:80\"]\n\"listen\" = []",
        &["5:1: duplicate key `listen`; remove one of the two"],
    );
    check_before_domain(
        "workers = 2\nworkers = 3",
        &["2:1: duplicate key `workers`; it is already set on line 1; remove one of the two"],
    );
    check_before_domain(
        "[http]\ndefault = example",
        &["2:11: string values must be quoted; write quotes around it, for example \"example.com\""],
    );
    check_before_domain("workers =", &["1:10: key with no value; write KEY = VALUE"]);
    check_before_domain("workers = two", &["1:11: invalid boolean; write true or false, or quotes around a string"]);
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\n[domain.\"a.example\"]\nzone = \"a.zone\"",
        &["3:9: duplicate key `a.example`; it is already set on line 1; remove one of the two"],
    );
}

#[test]
fn unclosed_list_is_reported_once() {
    let text = format!("[http]\nlisten = [\"127.0.0.1:80\"\n{}", "[domain.\"a.example\"]\n".repeat(50));
    let messages = read(text.as_bytes()).unwrap_err();
    assert!((1..=3).contains(&messages.len()), "{messages:#?}");
    assert!(messages[0].starts_with("3:1: "), "{messages:#?}");
}

#[test]
fn columns_are_bytes() {
    check("# ä\nä = 1", &["2:1: invalid unquoted key; expected letters, numbers, `-`, `_`"]);
}

#[test]
fn invalid_utf_8_has_its_position() {
    assert_eq!(read(b"[http]\n# \xff").unwrap_err(), ["2:3: invalid UTF-8; save the file as UTF-8"]);
}

#[test]
fn unreadable_file_has_a_reason() {
    let directory = directory();
    let path = directory.path().join("none.toml");
    let diagnostics = config_text::read(&path).unwrap_err();
    assert_eq!(
        diagnostics[0].to_string(),
        format!(
            "{}: cannot read the configuration file: No such file or directory; \
             create it, or specify another file with --config",
            path.display()
        )
    );
    assert_eq!(config_text::read(directory.path()).unwrap_err().len(), 1, "a directory is not a file");
}

#[test]
fn file_above_the_size_limit_is_refused() {
    let directory = directory();
    let path = directory.path().join("large.toml");
    std::fs::File::create(&path).unwrap().set_len(config_text::BYTES_MAX + 1).unwrap();
    let message = config_text::read(&path).unwrap_err()[0].to_string();
    assert!(message.contains("is larger than 16777216 bytes"), "{message}");
}

/// A file with all kinds of lines.
const WHOLE: &str = r#"workers = 2 # two
[http]
listen = ["127.0.0.1:80", "[::1]:80"]
default = 'a.example'
[dns]
listen = [
  "127.0.0.1:53",
]
[limits]
http_idle_timeout_ms = 0x3e8
[domain."a.example"]
site = "public"
zone = "a.zone"
aliases = ["www.a.example"]
"#;

/// Reading any `content` ends, and each message is one line with a position in the text.
fn check_any(content: &[u8]) {
    let path = Path::new("/none/sanderling.toml");
    let Err(diagnostics) = parse(path, content) else { return };
    let lines: Vec<&[u8]> = content.split(|&byte| byte == b'\n').collect();
    assert!(!diagnostics.is_empty());
    for diagnostic in diagnostics {
        let shown = diagnostic.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        let Location::Position { line, column, .. } = diagnostic.location else { panic!("{shown} has no position") };
        let source_line = lines.get(line as usize - 1).unwrap_or_else(|| panic!("{shown} is after the end"));
        assert!((1..=source_line.len() + 1).contains(&(column as usize)), "{shown} is outside its line");
        diagnostic.to_snippet(Some(source_line), crate::diagnostic::Colour::Off);
    }
}

#[test]
fn every_prefix_of_a_file_is_read_or_refused() {
    config(WHOLE);
    for end in 0..WHOLE.len() {
        check_any(&WHOLE.as_bytes()[..end]);
    }
}

#[test]
fn every_changed_byte_is_read_or_refused() {
    for index in 0..WHOLE.len() {
        for other in *b"\0\n\"'[]{}=.,#-\\a0\xff\xc3" {
            let mut content = WHOLE.as_bytes().to_vec();
            content[index] = other;
            check_any(&content);
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    check_any(format!("x = {}", "[".repeat(100_000)).as_bytes());
    check_any(format!("[{}a]", "a.".repeat(100_000)).as_bytes());
    check_any(format!("x = {}", "{a=".repeat(100_000)).as_bytes());
}

#[test]
fn media_types_are_read_by_extension() {
    let site = "[domain.\"a.example\"]\nsite = \"public\"\n";
    let config =
        config(&format!("{site}media_types = {{ LOG = \"text/plain; charset=utf-8\", \"\" = \"text/plain\" }}"));
    let expected = [("log", "text/plain; charset=utf-8"), ("", "text/plain")];
    let expected = expected.map(|(extension, media_type)| (extension.to_owned(), media_type.to_owned()));
    // The keys are in file order or in alphabetical order.
    let mut found = config.sites[0].options.media_types.clone();
    found.sort_unstable_by(|left, right| right.cmp(left));
    assert_eq!(found, expected);

    let example = "write media_types = { log = \"text/plain; charset=utf-8\" }";
    let extension = "write it without a dot: media_types = { log = \"text/plain; charset=utf-8\" }";
    for (value, expected) in [
        ("{ log = \"text\" }", format!("3:23: `text` is not a media type; {example}")),
        ("{ log = \"text/\" }", format!("3:23: `text/` is not a media type; {example}")),
        ("{ log = \"/plain\" }", format!("3:23: `/plain` is not a media type; {example}")),
        ("{ log = \"a b/c\" }", format!("3:23: `a b/c` is not a media type; {example}")),
        ("{ log = \"text/é\" }", format!("3:23: `text/é` is not a media type; {example}")),
        ("{ log = \"a/b\\nX: c\" }", format!("3:23: `a/b\\nX: c` is not a media type; {example}")),
        ("{ \".log\" = \"a/b\" }", format!("3:17: `.log` is not an extension; {extension}")),
        ("{ \"tar.gz\" = \"a/b\" }", format!("3:17: `tar.gz` is not an extension; {extension}")),
        ("{ log = 1 }", format!("3:23: `log` must be a string, not the number 1; {example}")),
        ("\"text/plain\"", format!("3:15: `media_types` must be a table, not the string \"text/plain\"; {example}")),
    ] {
        check(&format!("{site}media_types = {value}\n"), &[&expected]);
    }
    check(
        "[domain.\"a.example\"]\nzone = \"a.zone\"\nmedia_types = {}",
        &["3:1: a.example has media_types, but no site; add site = \"FOLDER\""],
    );
}

#[test]
fn link_targets_are_relative_to_the_file() {
    let site = "[domain.\"a.example\"]\nsite = \"public\"\n";
    let targets = &config(&format!("{site}link_targets = [\"public\", \"/\"]")).sites[0].options.link_targets;
    let paths: Vec<_> = targets.iter().map(|(path, _)| path.as_path()).collect();
    assert!(paths[0].is_absolute() && paths[0].ends_with("public"), "{paths:?}");
    assert_eq!(paths[1], Path::new("/"));
    check(
        &format!("{site}link_targets = \"uploads\"\n"),
        &["3:16: `link_targets` must be a list of strings, not the string \"uploads\"; write link_targets = \
           [\"/srv/uploads\"]"],
    );
    check(
        &format!("{site}link_targets = [\"\"]\n"),
        &["3:17: the link target is empty; write link_targets = [\"/srv/uploads\"]"],
    );
    check(
        "[domain.\"a.example\"]\nzone = \"a.zone\"\nlink_targets = []",
        &["3:1: a.example has link_targets, but no site; add site = \"FOLDER\""],
    );
}

#[test]
fn hidden_files_and_exact_paths_are_booleans() {
    let site = "[domain.\"a.example\"]\nsite = \"public\"\n";
    let options = |keys: &str| {
        let config = config(&format!("{site}{keys}"));
        (config.sites[0].options.hidden_files, config.sites[0].options.exact_paths)
    };
    assert_eq!(options(""), (false, false));
    assert_eq!(options("hidden_files = true"), (true, false));
    assert_eq!(options("exact_paths = true"), (false, true));
    check(
        &format!("{site}hidden_files = 1\n"),
        &["3:16: `hidden_files` must be true or false, not the number 1; write hidden_files = true"],
    );
    check(
        "[domain.\"a.example\"]\nzone = \"a.zone\"\nexact_paths = true",
        &["3:1: a.example has exact_paths, but no site; add site = \"FOLDER\""],
    );
}

#[test]
fn files_of_earlier_releases_are_served_unless_the_domain_says_no() {
    let site = "[domain.\"a.example\"]\nsite = \"public\"\n";
    let is_served = |keys: &str| config(&format!("{site}{keys}")).sites[0].options.files.earlier_releases;
    assert_eq!((is_served(""), is_served("earlier_releases = false")), (true, false));
    check(
        &format!("{site}earlier_releases = 0\n"),
        &["3:20: `earlier_releases` must be true or false, not the number 0; write earlier_releases = true"],
    );
}
