//! Configuration files and what is made of them, as text.

use super::*;

/// A folder with a site in `public`, a zone in `a.zone` and nothing else.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("public")).unwrap();
    std::fs::write(folder.path().join("a.zone"), "").unwrap();
    folder
}

/// What `octets` become in such a folder, whose path is cut from messages.
fn read(octets: &[u8]) -> Result<Config, Vec<String>> {
    let folder = folder();
    let prefix = format!("{}/", folder.path().display());
    parse(&folder.path().join("sanderling.toml"), octets)
        .map(|mut config| {
            let cut = |path: &mut PathBuf| *path = path.strip_prefix(&prefix).unwrap().to_owned();
            config.sites.iter_mut().for_each(|site| cut(&mut site.folder));
            config.zones.iter_mut().for_each(|zone| cut(&mut zone.file));
            config
        })
        .map_err(|diagnostics| {
            let shown = |one: &Diagnostic| one.to_string().replace(&prefix, "").replace("sanderling.toml:", "");
            diagnostics.iter().map(shown).collect()
        })
}

#[track_caller]
fn config(text: &str) -> Config {
    read(text.as_bytes()).unwrap_or_else(|messages| panic!("refused: {messages:#?}\n{text}"))
}

/// `text` is refused with exactly these messages, each `line:column: problem; remedy`.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    match read(text.as_bytes()) {
        Err(messages) => assert_eq!(messages, expected, "\n{text}"),
        Ok(config) => panic!("accepted: {config:#?}\n{text}"),
    }
}

/// `keys` stand in the section of a domain that is otherwise complete.
#[track_caller]
fn check_before_site(before: &str, expected: &[&str]) {
    check(&format!("{before}\n[domain.\"example.com\"]\nsite = \"public\"\nzone = \"a.zone\"\n"), expected);
}

fn names(hosts: &[DomainName]) -> Vec<&str> {
    hosts.iter().map(DomainName::as_str).collect()
}

#[test]
fn a_whole_file_becomes_a_configuration() {
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
    assert_eq!(config.sites[1].folder, Path::new("public"));
    assert_eq!(config.default_site, DefaultSite::Addresses(1));
    assert_eq!(config.zones.len(), 2);
    assert_eq!(config.zones[1].apex.as_str(), "only-zone.example");
    assert_eq!(config.zones[1].file, Path::new("a.zone"));
    let expected = Limits { http_idle_timeout_ms: 1000, dns_cname_chain_max: 16, ..Limits::default() };
    assert_eq!(config.limits, expected);
}

#[test]
fn what_is_left_out_has_a_default() {
    let config = config("[domain.\"b.example\"]\nsite = \"public\"\n[domain.\"a.example\"]\nsite = \"public\"\n");
    assert_eq!(config.http_listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(config.dns_listen, [], "without a zone nothing listens for DNS");
    assert_eq!(config.default_site, DefaultSite::Addresses(0));
    assert_eq!(names(&config.sites[0].hosts), ["b.example"], "the first of the file, not of the alphabet");
    assert_eq!(config.worker_count, processor_count());
    assert_eq!(config.limits, Limits::default());
}

#[test]
fn zones_alone_need_no_site() {
    let config = config("[domain.\"0/25.2.0.192.in-addr.arpa\"]\nzone = \"a.zone\"\n");
    assert_eq!(config.http_listen, []);
    assert_eq!(config.dns_listen, ["127.0.0.1:5353".parse().unwrap()]);
    assert_eq!(config.default_site, DefaultSite::None);
}

#[test]
fn port_0_may_be_asked_for_twice() {
    let config =
        config("[http]\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n[domain.\"a.example\"]\nsite = \"public\"");
    assert_eq!(config.http_listen.len(), 2);
}

#[test]
fn a_file_without_a_domain_is_refused() {
    let message = "1:1: there is nothing to serve; \
                   add [domain.\"example.com\"] and below it site = \"FOLDER\" or zone = \"FILE\"";
    check("", &[message]);
    check("# nothing yet\n", &[message]);
    check("[domain]\n", &[message]);
    check("[http]\nlisten = [\"127.0.0.1:80\"]\n", &[message]);
}

#[test]
fn listeners_need_something_to_answer_with() {
    check(
        "[http]\nlisten = [\"127.0.0.1:80\"]\n[domain.\"a.example\"]\nzone = \"a.zone\"\n",
        &["2:1: [http] listens, but no domain has a `site`; add one or remove [http]"],
    );
    check(
        "[dns]\nlisten = [\"127.0.0.1:53\"]\n[domain.\"a.example\"]\nsite = \"public\"\n",
        &["2:1: [dns] listens, but no domain has a `zone`; add one or remove [dns]"],
    );
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    check_before_site("wokers = 2", &["1:1: unknown key `wokers`; did you mean `workers`?"]);
    check_before_site("[htpp]", &["1:2: unknown key `htpp`; did you mean `http`?"]);
    check_before_site(
        "[http]\n  Listen = [\"127.0.0.1:80\"]",
        &["2:3: unknown key `Listen` in [http]; did you mean `listen`?"],
    );
    check_before_site(
        "[limits]\nhttp_idle_timeout_s = 60",
        &["2:1: unknown key `http_idle_timeout_s` in [limits]; did you mean `http_idle_timeout_ms`?"],
    );
    check(
        "[domain.\"a.example\"]\nfolder = \"public\"",
        &["2:1: unknown key `folder` in [domain.\"NAME\"]; there are `zone`, `site`, `aliases`"],
    );
}

#[test]
fn an_unknown_key_like_no_other_lists_those_that_are_there() {
    check_before_site(
        "colour = 1",
        &[
            "1:1: unknown key `colour`; there are `workers`, `listeners`, `user`, `group`, `sandbox`, `control`, [http], [dns], [domain.\"NAME\"] and [limits]",
        ],
    );
    check_before_site("[dns]\nudp = true", &["2:1: unknown key `udp` in [dns]; there are `listen`"]);
    check_before_site(
        "[limits]\nx = 1",
        &["2:1: unknown key `x` in [limits]; `sanderling help check` lists the limits"],
    );
}

#[test]
fn a_key_of_another_section_is_sent_there() {
    check_before_site("zone = \"a\"", &["1:1: unknown key `zone`; `zone` stands in [domain.\"NAME\"]"]);
    check_before_site(
        "[dns]\nworkers = 2",
        &["2:1: unknown key `workers` in [dns]; `workers` stands at the top of the file, before the first [section]"],
    );
    check_before_site(
        "[\"a.example\"]\nsite = \"x\"",
        &["1:2: unknown key `a.example`; a domain is written [domain.\"a.example\"]"],
    );
}

#[test]
fn a_domain_without_quotes_is_told_apart_from_tables() {
    check(
        "[domain.www.example.com]\nsite = \"public\"\n",
        &["1:9: the name www.example.com is not in quotes; write [domain.\"www.example.com\"]"],
    );
}

#[test]
fn a_wrong_type_says_what_was_found_and_what_to_write() {
    check_before_site(
        "workers = \"2\"",
        &["1:11: `workers` must be a whole number, but here is the string \"2\"; write workers = 4"],
    );
    check_before_site(
        "http = true",
        &["1:8: `http` must be a table, but here is true; write [http] on a line of its own"],
    );
    check_before_site(
        "[http]\nlisten = \"127.0.0.1:80\"",
        &["2:10: `listen` must be a list of strings, but here is the string \"127.0.0.1:80\"; \
           write listen = [\"127.0.0.1:8080\"]"],
    );
    check_before_site(
        "[dns]\nlisten = [53, \"127.0.0.1:53\", 5.3]",
        &[
            "2:11: `listen` must be a list of strings, but here is the number 53; write listen = [\"127.0.0.1:5353\"]",
            "2:31: `listen` must be a list of strings, but here is the number 5.3; write listen = [\"127.0.0.1:5353\"]",
        ],
    );
    check_before_site(
        "[limits]\ndrain_timeout_ms = 1979-05-27",
        &["2:20: `drain_timeout_ms` must be a whole number, but here is a date; write drain_timeout_ms = 30000"],
    );
    check(
        "[domain.\"a.example\"]\nsite = [\"public\"]",
        &["2:8: `site` must be a string, but here is a list; write site = \"public\""],
    );
    check(
        "domain = { \"a.example\" = 3 }",
        &["1:26: `a.example` must be a table, but here is the number 3; \
           write [domain.\"example.com\"] on a line of its own"],
    );
}

#[test]
fn numbers_have_a_range() {
    for (value, shown) in [("0", "0"), ("1025", "1025"), ("-1", "-1"), ("0x1000", "0x1000")] {
        let expected = format!("1:11: `workers` is out of range: {shown}; it goes from 1 to 1024");
        check_before_site(&format!("workers = {value}"), &[&expected]);
    }
    check_before_site(
        "[limits]\ndns_udp_answer_bytes_max = 99999999999999999999",
        &["2:28: `dns_udp_answer_bytes_max` is out of range: 99999999999999999999; it goes from 512 to 4096"],
    );
}

#[test]
fn every_limit_takes_its_least_and_its_most_and_no_more() {
    for limit in LIMITS {
        // The target's limit must stay below the head's, so that either is tried beside the other's far end.
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
            config(&text(value));
        }
        let below = limit.min.checked_sub(1);
        for value in below.into_iter().chain([limit.max + 1]) {
            let messages = read(text(value).as_bytes()).expect_err(limit.key);
            assert!(messages[0].contains("is out of range"), "{} = {value}: {messages:?}", limit.key);
        }
    }
}

#[test]
fn a_target_must_fit_into_its_head() {
    check_before_site(
        "[limits]\nhttp_target_bytes_max = 16384",
        &["1:2: `http_target_bytes_max` is not below `http_head_bytes_max`; \
           the target is a part of the head; raise the head's or lower the target's"],
    );
}

#[test]
fn addresses_are_checked_and_taken_once() {
    check_before_site(
        "[http]\nlisten = [\":80\", \"localhost:80\", \"::1:80\", \"127.0.0.1\", \"127.0.0.1:65536\", \"web\"]",
        &[
            "2:11: `:80` is no address and port; \
             write 127.0.0.1:80 for this machine alone, 0.0.0.0:80 and [::]:80 for every address",
            "2:18: `localhost:80` is no address and port; write the address itself: 127.0.0.1:80 or [::1]:80",
            "2:34: `::1:80` is no address and port; IPv6 addresses stand in brackets, as in [::1]:8080",
            "2:44: `127.0.0.1` is no address and port; add a port, as in 127.0.0.1:8080",
            "2:57: `127.0.0.1:65536` is no address and port; a port is a number from 0 to 65535",
            "2:76: `web` is no address and port; write one such as 127.0.0.1:8080 or [::1]:8080",
        ],
    );
    check_before_site(
        "[http]\nlisten = [\n  \"127.0.0.1:80\",\n  \"127.0.0.1:80\",\n]",
        &["4:3: 127.0.0.1:80 is listed twice for HTTP; remove one of the two"],
    );
    check_before_site(
        "[http]\nlisten = [\"127.0.0.1:80\"]\n[dns]\nlisten = [\"127.0.0.1:80\"]",
        &["4:11: 127.0.0.1:80 is listed for both HTTP and DNS; DNS listens on TCP too; give one of them another port"],
    );
    check_before_site(
        "[http]\nlisten = []",
        &["2:10: `listen` is empty; write listen = [\"127.0.0.1:8080\"] or remove the line"],
    );
}

#[test]
fn names_are_checked() {
    let long_label = "a".repeat(64);
    let long_name = ["a"; 128].join(".");
    for (name, problem) in [
        ("bad name", "it has the character ` `; write a bare name such as example.com"),
        ("http://a.example/", "it has the character `:`; write a bare name such as example.com"),
        ("a..example", "a part between two dots is empty; remove the dot that is too many"),
        (".example", "a part between two dots is empty; remove the dot that is too many"),
        (".", "it is empty; write one such as example.com"),
        ("", "it is empty; write one such as example.com"),
        ("*.example.com", "it has a wildcard; write each name out; in a zone file wildcards are fine"),
        ("bücher.example", "it has letters beyond ASCII; write its ASCII form, which starts with xn--"),
        (&long_label, "a part of it has 64 letters; 63 is the most"),
        (&long_name, "it has 255 letters; 253 is the most"),
        (
            "192.0.2.1",
            "it is an address; requests for an address go to the site that `default` in [http] names, \
             or else to the first site",
        ),
    ] {
        let expected = format!("1:9: `{name}` is no domain name: {problem}");
        check(&format!("[domain.\"{name}\"]\nsite = \"public\"\n"), &[&expected]);
        let expected = format!("3:12: `{name}` is no domain name: {problem}");
        check(&format!("[domain.\"a.example\"]\nsite = \"public\"\naliases = [\"{name}\"]\n"), &[&expected]);
    }
}

#[test]
fn no_host_has_two_sites() {
    let second = "[domain.\"b.example\"]\nsite = \"public\"\n";
    check(
        &format!("[domain.\"a.example\"]\nsite = \"public\"\naliases = [\"B.example.\"]\n{second}"),
        &["4:9: b.example is a host of a.example already; remove one of the two"],
    );
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\naliases = [\"www.a.example\", \"A.example\", \"www.a.example\"]",
        &[
            "3:29: a.example is there twice; remove one of the two",
            "3:42: www.a.example is there twice; remove one of the two",
        ],
    );
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\n[domain.\"A.example.\"]\nsite = \"public\"",
        &["3:9: a.example is there twice; remove one of the two"],
    );
    check(
        "[domain.\"0/25.example\"]\nsite = \"public\"",
        &["1:9: 0/25.example can't have a site: no URL can name it; give it a zone only"],
    );
}

#[test]
fn no_zone_is_there_twice() {
    check(
        "[domain.\"a.example\"]\nzone = \"a.zone\"\n[domain.\"A.example\"]\nzone = \"a.zone\"",
        &["3:9: the zone a.example is there twice; remove one of the two"],
    );
}

#[test]
fn a_domain_has_a_site_or_a_zone() {
    check(
        "[domain.\"a.example\"]\n",
        &["1:9: a.example has neither a site nor a zone; add site = \"FOLDER\" or zone = \"FILE\""],
    );
    check(
        "[domain.\"a.example\"]\nzone = \"a.zone\"\naliases = [\"www.a.example\"]",
        &["3:1: a.example has aliases, but no site; add site = \"FOLDER\""],
    );
}

#[test]
fn paths_start_at_the_file_and_must_lead_somewhere() {
    check(
        "[domain.\"a.example\"]\nsite = \"publik\"\nzone = \"b.zone\"",
        &[
            "2:8: the site `publik` does not exist; create it or correct the path",
            "3:8: the zone file `b.zone` does not exist; create it or correct the path",
        ],
    );
    check(
        "[domain.\"a.example\"]\nsite = \"a.zone\"\nzone = \"public\"",
        &[
            "2:8: the site `a.zone` is not a folder; name the folder that holds the file",
            "3:8: the zone file `public` is a folder; name the zone file in it",
        ],
    );
    check(
        "[domain.\"a.example\"]\nsite = \"\"\nzone = \"/dev/null\"",
        &[
            "2:8: `site` is empty; write site = \"public\"",
            "3:8: the zone file `/dev/null` is not a regular file; copy the zone into one",
        ],
    );
}

#[test]
fn the_default_is_a_host_of_a_site() {
    check_before_site(
        "[http]\ndefault = \"b.example\"",
        &["2:11: no site has the host b.example; name a domain that has a `site`"],
    );
    check(
        "[http]\ndefault = \"a.example\"\n[domain.\"a.example\"]\nsite = \"publik\"",
        &["4:8: the site `publik` does not exist; create it or correct the path"],
    );
}

#[test]
fn every_fault_is_told_in_the_order_of_the_file() {
    check(
        "workers = 0\n[limits]\nx = 1\n[http]\nlisten = [\"x\"]\n[domain.\"b b\"]\n[domain.\"a a\"]\n",
        &[
            "1:11: `workers` is out of range: 0; it goes from 1 to 1024",
            "3:1: unknown key `x` in [limits]; `sanderling help check` lists the limits",
            "5:11: `x` is no address and port; write one such as 127.0.0.1:8080 or [::1]:8080",
            "6:9: `b b` is no domain name: it has the character ` `; write a bare name such as example.com",
            "7:9: `a a` is no domain name: it has the character ` `; write a bare name such as example.com",
        ],
    );
}

#[test]
fn broken_toml_is_told_where_it_breaks() {
    check_before_site("[http", &["1:6: unclosed table; expected `]`"]);
    check_before_site("workers = 2\nworkers = 3", &["2:1: duplicate key; remove one of the two"]);
    check_before_site(
        "[http]\ndefault = example",
        &["2:11: string values must be quoted; write it in quotes, as in \"example.com\""],
    );
    check_before_site("workers = two", &["1:11: invalid boolean; write true or false, or put a string in quotes"]);
    check(
        "[domain.\"a.example\"]\nsite = \"public\"\n[domain.\"a.example\"]\nzone = \"a.zone\"",
        &["3:9: duplicate key; remove one of the two"],
    );
}

#[test]
fn an_unclosed_list_is_not_told_again_for_every_line_behind_it() {
    let text = format!("[http]\nlisten = [\"127.0.0.1:80\"\n{}", "[domain.\"a.example\"]\n".repeat(50));
    let messages = read(text.as_bytes()).unwrap_err();
    assert!((1..=3).contains(&messages.len()), "{messages:#?}");
    assert!(messages[0].starts_with("3:1: "), "{messages:#?}");
}

#[test]
fn columns_count_octets() {
    check("# ä\nä = 1", &["2:1: invalid unquoted key; expected letters, numbers, `-`, `_`"]);
    check_before_site(
        "\"ü\" = { a = 1 }",
        &[
            "1:1: unknown key `ü`; there are `workers`, `listeners`, `user`, `group`, `sandbox`, `control`, [http], [dns], [domain.\"NAME\"] and [limits]",
        ],
    );
}

#[test]
fn windows_line_ends_are_fine() {
    check_before_site("[dns]\r\n\r\nx = 1\r\n", &["3:1: unknown key `x` in [dns]; there are `listen`"]);
}

#[test]
fn a_key_can_not_paint_over_the_report() {
    check_before_site(
        "\"\\u001b[2J\\nworkers\" = 1",
        &["1:1: unknown key `\\u{1b}[2J\\nworkers`; \
           there are `workers`, `listeners`, `user`, `group`, `sandbox`, `control`, [http], [dns], [domain.\"NAME\"] and [limits]"],
    );
}

#[test]
fn octets_that_are_not_utf_8_have_a_place() {
    assert_eq!(read(b"[http]\n# \xff").unwrap_err(), ["2:3: this is not UTF-8; save the file as UTF-8"]);
}

#[test]
fn a_file_that_can_not_be_read_says_why() {
    let folder = folder();
    let path = folder.path().join("none.toml");
    let diagnostics = super::read(&path).unwrap_err();
    assert_eq!(
        diagnostics[0].to_string(),
        format!(
            "{}: the configuration file can't be read: No such file or directory (os error 2); \
             create it or name another with --config",
            path.display()
        )
    );
    assert_eq!(super::read(folder.path()).unwrap_err().len(), 1, "a folder is no file");
}

#[test]
fn a_file_beyond_the_limit_is_refused() {
    let folder = folder();
    let path = folder.path().join("large.toml");
    std::fs::File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
    let message = super::read(&path).unwrap_err()[0].to_string();
    assert!(message.contains("has more than 16777216 bytes"), "{message}");
}

/// A file with every kind of line.
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

/// Whatever `octets` are, reading them ends, and each message is one line whose place is in the text.
fn check_any(octets: &[u8]) {
    let path = Path::new("/none/sanderling.toml");
    let Err(diagnostics) = parse(path, octets) else { return };
    let lines: Vec<&[u8]> = octets.split(|&octet| octet == b'\n').collect();
    assert!(!diagnostics.is_empty());
    for diagnostic in diagnostics {
        let shown = diagnostic.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        let Place::Position { line, column, .. } = diagnostic.place else { panic!("{shown} has no place") };
        let source_line = lines.get(line as usize - 1).unwrap_or_else(|| panic!("{shown} is behind the end"));
        assert!((1..=source_line.len() + 1).contains(&(column as usize)), "{shown} is outside of its line");
        diagnostic.render(Some(source_line), crate::diagnostic::Colour::Off);
    }
}

#[test]
fn every_beginning_of_a_file_is_read_or_refused_with_a_place() {
    config(WHOLE);
    for end in 0..WHOLE.len() {
        check_any(&WHOLE.as_bytes()[..end]);
    }
}

#[test]
fn any_octet_may_be_wrong() {
    for index in 0..WHOLE.len() {
        for other in *b"\0\n\"'[]{}=.,#-\\a0\xff\xc3" {
            let mut octets = WHOLE.as_bytes().to_vec();
            octets[index] = other;
            check_any(&octets);
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    check_any(format!("x = {}", "[".repeat(100_000)).as_bytes());
    check_any(format!("[{}a]", "a.".repeat(100_000)).as_bytes());
    check_any(format!("x = {}", "{a=".repeat(100_000)).as_bytes());
}
