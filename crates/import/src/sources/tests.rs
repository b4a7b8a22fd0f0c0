//! Tests of the import as a whole: configurations of each format with the expected results next to them.

use super::*;
use crate::source_files::FILE_BYTES_MAX;
use sanderling_config::ConfigSource;
use std::fs;
use std::path::Path;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The files of a folder.
struct Folder<'p>(&'p Path);

impl SourceFiles for Folder<'_> {
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        // The result must not depend on this machine.
        if path.is_absolute() {
            return Err("there is no such file".to_owned());
        }
        let bytes = fs::read(self.0.join(path)).map_err(|_| "there is no such file".to_owned())?;
        assert!(bytes.len() as u64 <= FILE_BYTES_MAX);
        Ok(bytes)
    }

    fn list(&mut self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let folder = pattern.parent().unwrap_or(Path::new(""));
        if folder.is_absolute() {
            return Err("there is no such folder".to_owned());
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(self.0.join(folder)).map_err(|_| "there is no such folder".to_owned())? {
            paths.push(folder.join(entry.map_err(|error| error.to_string())?.file_name()));
        }
        paths.sort();
        Ok(paths)
    }
}

/// A file with this text, and no others.
struct OneFile<'t>(&'t str);

impl SourceFiles for OneFile<'_> {
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        if path == Path::new("main") { Ok(self.0.as_bytes().to_vec()) } else { Err("there is no such file".to_owned()) }
    }

    fn list(&mut self, _: &Path) -> Result<Vec<PathBuf>, String> {
        Ok(vec![PathBuf::from("main")])
    }
}

/// The import of a file with this text, whose result the server accepts.
fn import_text(kind: SourceKind, text: &str) -> Imported {
    let imported = import(kind, &[PathBuf::from("main")], &mut OneFile(text)).expect("imported");
    let found = problems(&imported.config);
    assert!(!imported.has_content || found.is_empty(), "{text}\n{}\n{found:?}", imported.config);
    imported
}

/// The import of one file of the corpus.
fn import_file(kind: SourceKind, path: &Path) -> Result<Imported, Vec<String>> {
    let name = PathBuf::from(path.file_name().expect("a file"));
    import(kind, &[name], &mut Folder(path.parent().expect("a folder")))
}

/// The problems that the server itself finds in a configuration.
fn problems(config: &str) -> Vec<String> {
    let source = ConfigSource::File(PathBuf::from("sanderling.toml"));
    match source.parse(config.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// The files of the corpus of a kind, in the order of their names.
fn corpus(kind: SourceKind) -> Vec<PathBuf> {
    let folder = Path::new(CORPUS).join(kind.name());
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
    paths.sort();
    paths
}

/// Writes the results next to the configurations instead of comparing them.
const UPDATE: &str = "UPDATE_IMPORTS";

/// Checks the results of all configurations of a kind.
fn check_corpus(kind: SourceKind, count_min: usize) {
    let paths = corpus(kind);
    assert!(paths.len() >= count_min, "{}: {} configurations", kind.name(), paths.len());
    let mut wrong = Vec::new();
    for path in &paths {
        let Imported { config, has_content, report } =
            import_file(kind, path).unwrap_or_else(|errors| panic!("{errors:?}"));
        let text = format!("{config}\n# Report\n\n{report}");
        let expected = path.with_extension("expected");
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&expected, &text).expect("writable");
        }
        let found = problems(&config);
        if has_content != found.is_empty() {
            wrong.push(format!("{}: {found:?}", path.display()));
        } else if fs::read_to_string(&expected).unwrap_or_default() != text {
            wrong.push(format!(
                "{}: run this test once with {UPDATE}=1, and look at the difference",
                expected.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nginx_configurations_have_their_results() {
    check_corpus(SourceKind::Nginx, 40);
}

#[test]
fn caddy_configurations_have_their_results() {
    check_corpus(SourceKind::Caddy, 40);
}

#[test]
fn nsd_configurations_have_their_results() {
    check_corpus(SourceKind::Nsd, 10);
}

#[test]
fn knot_configurations_have_their_results() {
    check_corpus(SourceKind::Knot, 10);
}

#[test]
fn named_configurations_have_their_results() {
    check_corpus(SourceKind::Named, 40);
}

/// The table of the manual with the shares of lines that the configurations of the corpus have in common with a result.
#[test]
fn manual_has_the_shares_of_expressed_lines() {
    let mut table = String::from(
        "\n| kind | configurations | lines | expressed | without a difference | with something to serve |\n\
         |---|--:|--:|--:|--:|--:|\n",
    );
    for kind in SourceKind::ALL {
        let (mut lines, mut expressed, mut exact, mut served) = (0, 0, 0, 0);
        let paths = corpus(kind);
        for path in &paths {
            let imported = import_file(kind, path).expect("imported");
            lines += imported.report.line_count;
            expressed += imported.report.expressed_line_count;
            exact += imported.report.exact_line_count;
            served += usize::from(imported.has_content);
        }
        let percent = |count: usize| (count * 100 + lines / 2) / lines;
        let row = [
            paths.len().to_string(),
            lines.to_string(),
            format!("{} %", percent(expressed)),
            format!("{} %", percent(exact)),
            served.to_string(),
        ];
        table.push_str(&format!("| {} | {} |\n", kind.name(), row.join(" | ")));
    }
    table.push('\n');
    println!("{table}");
    let page = format!("{MANUAL}/import.md");
    let begin = "<!-- Table of shares, generated from crates/import/tests/corpus. -->\n";
    sanderling_testkit::check_manual_table(&page, begin, "<!-- End of the table of shares. -->\n", &table);
}

#[test]
fn manual_has_the_tables_of_directives() {
    for kind in SourceKind::ALL {
        let name = if kind == SourceKind::Named { "bind" } else { kind.name() };
        let page = format!("{MANUAL}/coming-from-{name}.md");
        let begin = "<!-- Tables of directives, generated from crates/import/src/sources. -->\n";
        sanderling_testkit::check_manual_table(&page, begin, "<!-- End of the tables. -->\n", &kind.manual_tables());
    }
}

/// The keys that tables name are those of the configuration.
#[test]
fn tables_name_keys_that_exist() {
    let example = toml::de::DeTable::parse(sanderling_config::EXAMPLE).expect("TOML").into_inner();
    let limits = sanderling_config::limits_help();
    let table = |name: &str| example.get(name).and_then(|value| value.get_ref().as_table()).expect("a section");
    let has = |section: &str, key: &str| match section {
        "limits" => limits.contains(&format!("{key} ")),
        "domain" | "tsig" | "catalog" => {
            table(section).values().filter_map(|value| value.get_ref().as_table()).any(|table| table.contains_key(key))
        }
        section => table(section).contains_key(key),
    };
    for kind in SourceKind::ALL {
        for row in kind.table() {
            let crate::table::Handling::Key(keys, _) = row.handling else { continue };
            for key in keys {
                let is_key =
                    key.split_once('.').map_or_else(|| example.contains_key(*key), |(section, key)| has(section, key));
                assert!(is_key, "{}: `{}` names the key {key}", kind.name(), row.directive);
            }
        }
    }
}

/// A server is joined to the domain that has the first of its names.
#[test]
fn server_with_hosts_of_two_domains_is_joined_to_the_first() {
    let text = "server { listen 80; server_name a.example; root /a; }\n\
                server { listen 80; server_name b.example; root /b; }\n\
                server { listen 80; server_name b.example a.example; root /c; }\n";
    for _ in 0..20 {
        let report = import_text(SourceKind::Nginx, text).report.to_string();
        assert!(report.contains("b.example has other files") && !report.contains("a.example has"), "{report}");
    }
}

#[test]
fn section_of_certificates_is_written_only_for_automatic_ones() {
    let text = |tls: &str| {
        format!(
            "{{\n\temail a@a.example\n\tacme_ca https://ca.example/dir\n}}\n\
        a.example {{\n\troot * /a\n\tfile_server\n\t{tls}\n}}\n"
        )
    };
    for (tls, expected) in [("tls a.pem a.key", false), ("tls internal", false), ("", true)] {
        let config = import_text(SourceKind::Caddy, &text(tls)).config;
        assert_eq!(config.contains("[certificates]"), expected, "{config}");
    }
}

/// Text of the other server is no variable of the environment here, except those of Caddy.
#[test]
fn only_variables_of_caddy_are_variables() {
    let check = |kind, text: &str, expected: &str| {
        let config = import(kind, &[PathBuf::from("main")], &mut OneFile(text)).expect("imported").config;
        assert!(config.contains(expected), "{config}");
    };
    let zone = "zone a.example { type primary; file \"/z/${HOME}/$${B}\"; };";
    check(SourceKind::Named, zone, "zone = \"/z/$${HOME}/$$${B}\"");
    let site = "a.example {\n\troot * /srv/{$FOLDER}/${HOME}\n\tfile_server\n}\n";
    check(SourceKind::Caddy, site, "site = \"/srv/${FOLDER}/$${HOME}\"");
}

#[test]
fn report_has_no_secrets_and_no_control_characters() {
    let report = |kind, text: &str| {
        let imported = import(kind, &[PathBuf::from("main")], &mut OneFile(text)).expect("imported");
        imported.report.to_string()
    };
    let options = "{\n\tacme_dns cloudflare TOKEN\n\tcert_issuer zerossl TOKEN\n}\n";
    let tls = "tls {\n\t\tdns route53 TOKEN\n\t\tdns cloudflare {\n\t\t\tapi_token TOKEN\n\t\t}\n\t\teab id TOKEN\n\t}";
    let site = format!("{options}a.example {{\n\troot * /a\n\tfile_server\n\t{tls}\n\ta\u{1b}[2J\u{202e} b\n}}\n");
    let text = report(SourceKind::Caddy, &site);
    assert!(!text.contains("TOKEN") && text.contains("acme_dns cloudflare …"), "{text}");
    assert!(text.contains("a\\u{1b}[2J\\u{202e} b") && !text.contains(['\u{1b}', '\u{202e}']), "{text}");
    let server = "server { listen 80; root /a; location / { proxy_pass https://b; \
                  proxy_set_header Authorization \"Basic TOKEN\"; } x \"authorization: TOKEN\"; }";
    let text = report(SourceKind::Nginx, server);
    assert!(!text.contains("Basic TOKEN"), "{text}");
}

/// The header that names the client may be said before the proxies.
#[test]
fn header_of_proxies_may_come_first() {
    let (method, proxies) =
        ("real_ip_header proxy_protocol;\n", "set_real_ip_from 10.0.0.0/8;\nset_real_ip_from 192.0.2.1;\n");
    let server = "server { listen 80; server_name a.example; root /a; }\n";
    let config = |text: &str| import_text(SourceKind::Nginx, &format!("{text}{server}")).config;
    let expected = "trusted_proxies = [\"10.0.0.0/8\", \"192.0.2.1\"]\nclient_from = \"proxy-protocol\"\n";
    for text in [format!("{method}{proxies}"), format!("{proxies}{method}")] {
        assert!(config(&text).contains(expected), "{}", config(&text));
    }
    assert!(config(proxies).contains("client_from = \"x-forwarded-for\""), "{}", config(proxies));
    assert!(!config(method).contains("client_from"), "{}", config(method));
}

#[test]
fn limits_are_written_within_their_range_or_reported() {
    let check = |kind: SourceKind, text: &str, written: &[&str], reported: &[&str]| {
        let Imported { config, report, .. } = import_text(kind, text);
        let lines: Vec<&str> = config.split("[limits]").nth(1).unwrap_or("").trim().lines().collect();
        let lines: Vec<&str> = lines.into_iter().take_while(|line| !line.is_empty()).collect();
        assert_eq!(lines, written, "{config}");
        let out_of_range = report.notes.iter().filter(|note| note.reason.ends_with("out of range"));
        assert_eq!(out_of_range.map(|note| note.statement.as_str()).collect::<Vec<_>>(), reported, "{report}");
    };
    let named = |options: &str| {
        format!(
            "options {{ listen-on {{ 127.0.0.1; }}; {options} }};\nzone \"a.example\" {{ type primary; file \"a\"; }};\n"
        )
    };
    let rates = "rate-limit { responses-per-second 2000000; errors-per-second 9999999; slip 3; };";
    check(
        SourceKind::Named,
        &named(&format!("tcp-clients 5000; transfers-out 2000; transfers-in 2000; {rates}")),
        &["dns_tcp_connections_max = 5000", "dns_transfers_max = 2000", "dns_udp_slip = 3"],
        &["transfers-in 2000", "responses-per-second 2000000", "errors-per-second 9999999"],
    );
    let nsd =
        |server: &str| format!("server:\n ip-address: 127.0.0.1\n{server}zone:\n name: a.example\n zonefile: a\n");
    let (large, small) =
        (" tcp-count: 2000000\n tcp-timeout: 601\n rrl-ratelimit: 2000000\n", " rrl-slip: 4\n tcp-timeout: 600\n");
    check(SourceKind::Nsd, &nsd(large), &[], &["tcp-count 2000000", "tcp-timeout 601", "rrl-ratelimit 2000000"]);
    check(SourceKind::Nsd, &nsd(small), &["dns_udp_slip = 4", "dns_tcp_idle_timeout = \"600s\""], &[]);
    check(SourceKind::Nsd, &nsd(" server-count: 2000\n"), &[], &["server-count 2000"]);
    let knot = |server: &str| format!("server:\n  listen: 127.0.0.1@53\n{server}zone:\n  - domain: a.example\n");
    let large = "  tcp-max-clients: 0\n  tcp-idle-timeout: 1h\n  udp-workers: 2000\n";
    check(SourceKind::Knot, &knot(large), &[], &["tcp-max-clients 0", "tcp-idle-timeout 1h", "udp-workers 2000"]);
    check(SourceKind::Knot, &knot("  tcp-max-clients: 9\n"), &["dns_tcp_connections_max = 9"], &[]);
    let nginx = "worker_processes 2000;\nhttp { server { listen 80; server_name a.example; root /a; \
                 keepalive_timeout 4000; limit_conn a 0; } }\n";
    check(SourceKind::Nginx, nginx, &[], &["worker_processes 2000", "keepalive_timeout 4000", "limit_conn a 0"]);
    let nginx = "limit_req_zone $binary_remote_addr zone=a:1m rate=2000000r/s;\n\
                 server { listen 80; server_name a.example; root /a; limit_req zone=a burst=3000000; }\n";
    let expected = ["http_requests_per_second_max = 1000000", "http_requests_at_once_max = 1000000"];
    check(SourceKind::Nginx, nginx, &expected, &[]);
}

#[test]
fn log_of_queries_is_rotated_by_size_or_the_difference_is_reported() {
    for (options, expected) in [
        ("", "[log]\nqueries = \"q\"\n\n"),
        ("size 10k", "[log]\nqueries = \"q\"\nrotate = \"10KiB\"\n\n"),
        ("versions 3 size 2G", "[log]\nqueries = \"q\"\nrotate = \"2GiB\"\nkeep = 3\n\n"),
        ("size 4096", "[log]\nqueries = \"q\"\nrotate = \"4096B\"\n\n"),
        ("versions 3", "the log is not rotated"),
        ("versions unlimited size 1m", "the log is not rotated"),
        ("versions 3 size 99999999g", "the log is not rotated"),
    ] {
        let text = format!(
            "options {{ }};\nlogging {{ channel c {{ file \"q\" {options}; }}; category queries {{ c; }}; }};\n\
             zone \"a.example\" {{ type primary; file \"a\"; }};\n"
        );
        let Imported { config, report, .. } = import_text(SourceKind::Named, &text);
        assert!(format!("{config}{report}").contains(expected), "{options}\n{config}\n{report}");
    }
}

#[test]
fn zone_or_catalog_that_is_defined_twice_is_reported() {
    let catalog = "zone:\n name: c.example\n catalog: consumer\n request-xfr: 192.0.2.1 NOKEY\n";
    let zone = "zone:\n name: a.example\n zonefile: a\n";
    for (name, text) in [("c.example", format!("{zone}{catalog}{catalog}")), ("a.example", format!("{zone}{zone}"))] {
        let Imported { config, report, .. } =
            import_text(SourceKind::Nsd, &format!("server:\n ip-address: 127.0.0.1\n{text}"));
        assert_eq!(config.matches(&format!(".\"{name}\"]")).count(), 1, "{config}");
        assert!(report.to_string().contains(&format!("zone {name} is defined twice")), "{report}");
    }
}

#[test]
fn trusted_proxies_that_are_no_networks_are_reported() {
    let text = |proxies: &str| {
        format!(
            "{{\n\tservers {{\n\t\ttrusted_proxies static {proxies}\n\t}}\n}}\na.example {{\n\troot * /a\n\tfile_server\n}}\n"
        )
    };
    let Imported { config, report, .. } = import_text(SourceKind::Caddy, &text("192.0.2.0/24 proxy.example"));
    assert!(report.to_string().contains("`proxy.example` is not an IP address or network"), "{report}");
    assert!(!config.contains("trusted_proxies"), "{config}");
    let Imported { config, report, .. } = import_text(SourceKind::Caddy, &text("192.0.2.0/24 private_ranges"));
    assert!(!report.to_string().contains("not an IP address"), "{report}");
    assert!(config.contains("\"172.16.0.0/12\", \"192.0.2.0/24\"") && config.contains("client_from"), "{config}");
}

/// A route passes all methods and contents on, unless it has keys against that.
#[test]
fn restrictions_of_requests_for_applications_are_reported() {
    for (kind, text, key) in [
        (
            SourceKind::Nginx,
            "location / { proxy_pass http://127.0.0.1:3000; limit_except GET { deny all; } }",
            "`methods`",
        ),
        (
            SourceKind::Nginx,
            "if ($request_method !~ ^(GET|POST)$) { return 405; } location / { proxy_pass http://127.0.0.1:3000; }",
            "`methods`",
        ),
        (
            SourceKind::Caddy,
            "reverse_proxy 127.0.0.1:3000\n\trequest_body {\n\t\tmax_size 10MB\n\t}",
            "`request_body_max`",
        ),
    ] {
        let text = match kind {
            SourceKind::Nginx => format!("server {{ listen 80; server_name a.example; {text} }}\n"),
            _ => format!("http://a.example {{\n\t{text}\n}}\n"),
        };
        let Imported { config, report, .. } = import_text(kind, &text);
        assert!(config.contains("route.\"/\"") && !config.contains(&key[1..key.len() - 1]), "{config}");
        assert!(report.to_string().contains(&format!("set {key} in the route of an application")), "{report}");
    }
}

#[test]
fn response_without_content_has_no_text() {
    for status in [204, 205] {
        let text = format!(
            "server {{ listen 80; server_name a.example; root /a; \
            if ($request_method = OPTIONS) {{ return {status} gone; }} }}\n"
        );
        let config = import_text(SourceKind::Nginx, &text).config;
        assert!(config.contains(&format!("respond = {{ status = {status} }}")), "{config}");
    }
}

/// No text makes a parser or an interpreter panic, or run without an end.
mod any_text {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str) {
        SourceKind::ALL.into_iter().for_each(|kind| check_kind(kind, text));
    }

    fn check_kind(kind: SourceKind, text: &str) {
        if let Ok(imported) = import(kind, &[PathBuf::from("main")], &mut OneFile(text)) {
            let (found, config) = (problems(&imported.config), &imported.config);
            assert!(!imported.has_content || found.is_empty(), "{}\n{text}\n{config}\n{found:?}", kind.name());
        }
    }

    /// Words of all formats, so that random texts have statements.
    const WORDS: &str = "(server|listen|80|443|ssl|\\{|\\}|;|\n|root|/srv|server_name|a\\.example|b\\.example|\\*\\.c\\.example|\
        location|/|~|=|\\^/x/\\(\\.\\*\\)\\$|return|301|https://b\\.example|\\$request_uri|add_header|X-A|\"v\"|try_files|\\$uri|\
        zone|\"z\\.example\"|type|primary|secondary|file|primaries|192\\.0\\.2\\.1|key|k|allow-transfer|any|options|directory|\
        redir|header|handle|file_server|import|:80|name:|zonefile:|request-xfr:|zone:|server:|NOKEY|- domain:|    |  - id:|\
        dnssec-signing: on|acl:|include|main|auth_basic|allow|deny|all|access_log|rewrite|permanent|update-policy|grant|@x|path)";

    /// The words of a configuration of the corpus, some of which are replaced by others of it.
    fn mutated(kind: SourceKind, index: usize, changes: &[(usize, usize)]) -> String {
        let paths = corpus(kind);
        let text = fs::read_to_string(&paths[index % paths.len()]).expect("text");
        let mut words: Vec<&str> = text.split_inclusive([' ', '\n', ';', '{', '}', ':']).collect();
        for (to, from) in changes.iter().filter(|_| !text.is_empty()) {
            let (to, from) = (to % words.len(), from % words.len());
            words[to] = words[from];
        }
        words.concat()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn mutated_configuration_is_imported_or_refused(
            kind in prop::sample::select(&SourceKind::ALL[..]),
            index in any::<usize>(),
            changes in prop::collection::vec((any::<usize>(), any::<usize>()), 1..6),
        ) {
            // What is nonsense in the source may be nonsense in the result, but it is TOML.
            if let Ok(imported) = import(kind, &[PathBuf::from("main")], &mut OneFile(&mutated(kind, index, &changes))) {
                let result = toml::de::DeTable::parse(&imported.config);
                prop_assert!(result.is_ok(), "{}\n{}", kind.name(), imported.config);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn text_is_parsed_or_refused(text in "\\PC{0,200}") {
            check(&text);
        }

        #[test]
        fn words_are_imported_or_refused(words in prop::collection::vec(WORDS, 0..60), space in "( |\n|\t)") {
            check(&words.join(&space));
        }
    }

    #[test]
    fn file_that_includes_itself_is_refused() {
        for (kind, text) in [
            (SourceKind::Nginx, "include *.conf;"),
            (SourceKind::Named, "include \"*.conf\";"),
            (SourceKind::Caddy, "import *.conf\n"),
            (SourceKind::Nsd, "include: \"*.conf\""),
            (SourceKind::Knot, "include: \"*.conf\"\n"),
        ] {
            let errors = import(kind, &[PathBuf::from("main")], &mut OneFile(text)).expect_err("endless");
            assert_eq!(errors, ["main:1:1: files are included more than 16 levels deep"], "{}", kind.name());
        }
    }

    #[test]
    fn snippet_that_imports_itself_ends() {
        check("(a) {\n\timport a\n\timport a\n}\nb.example {\n\timport a\n}\n");
    }
}
