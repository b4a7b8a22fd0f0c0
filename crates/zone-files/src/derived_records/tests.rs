//! Tests of the records that are added to a zone's text.

use crate::derived_records::Derivations;
use crate::zone_loader;
use sanderling_config::diagnostic::Diagnostic;
use sanderling_config::{Config, ConfigSource, DerivedKind};
use sanderling_dns::{HashSeed, LineForm, ZoneTextWriter};
use sanderling_ipc::derived::{DerivedRecord, DerivedSet, DerivedZone};
use std::collections::BTreeMap;
use std::path::PathBuf;

const CONFIG: &str = "[https]\nlisten = [\"127.0.0.1:443\"]\n[certificates]\nagree_to_terms = true\n\
                      [domain.\"a.test\"]\nsite = \"public\"\nzone = \"a.zone\"\naliases = [\"www.a.test\"]\n";
const APEX: &str = "@ 60 SOA ns host 10 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n@ 60 A 192.0.2.1\n";

fn config(text: &str) -> Config {
    ConfigSource::File(PathBuf::from("sanderling.toml")).parse(text.as_bytes()).expect("a configuration")
}

fn record(kind: DerivedKind, owner: &str, data: &str) -> DerivedRecord {
    DerivedRecord { kind, owner: owner.to_owned(), ttl_s: 300, data: data.to_owned() }
}

/// The records that the agent has derived for `a.test` in three changes.
fn set() -> DerivedSet {
    let records = vec![
        record(DerivedKind::Https, "a.test", "1 . alpn=h2"),
        record(DerivedKind::Https, "www.a.test", "1 . alpn=h2"),
        record(DerivedKind::Caa, "a.test", "0 issue \"ca.example\""),
        record(DerivedKind::Caa, "a.test", "0 issue \"other.example\""),
        record(DerivedKind::Caa, "www.a.test", "0 issue \"ca.example\""),
        // The configuration does not have it any more.
        record(DerivedKind::Caa, "old.a.test", "0 issue \"ca.example\""),
    ];
    DerivedSet { zones: BTreeMap::from([("a.test".to_owned(), DerivedZone { change_count: 3, records })]) }
}

/// The zone of the file `text` with what is derived for it, and all diagnostics.
fn merged(config_text: &str, text: &str) -> (String, Vec<String>) {
    merged_with(&set(), config_text, text)
}

fn merged_with(set: &DerivedSet, config_text: &str, text: &str) -> (String, Vec<String>) {
    merge(set, config_text, text).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The zone with all diagnostics, or all errors.
fn merge(set: &DerivedSet, config_text: &str, text: &str) -> Result<(String, Vec<String>), Vec<String>> {
    let config = config(config_text);
    let derivation = Derivations::new(&config, set).of(&config.zones[0]);
    let folder = tempfile::tempdir().expect("created");
    let file = folder.path().join("a.zone");
    std::fs::write(&file, text).expect("written");
    let zone = sanderling_config::Zone { file, ..config.zones[0].clone() };
    let mut warnings = Vec::new();
    let read = zone_loader::load(&zone, &derivation, None, &config.limits, HashSeed(1), 0, &mut warnings);
    let texts = |diagnostics: &[Diagnostic]| -> Vec<String> {
        let path = folder.path().display().to_string();
        diagnostics.iter().map(|diagnostic| diagnostic.to_string().replace(&path, "")).collect()
    };
    let read = read.map_err(|failure| texts(&failure.diagnostics))?;
    read.zone.check();
    let mut shown = String::new();
    let form_of = |owner: sanderling_dns::Name<'_>, rtype| {
        read.added.origin(owner, rtype).map_or(LineForm::Plain, LineForm::Commented)
    };
    while ZoneTextWriter::default().write_with_forms(&read.zone, None, &mut shown, usize::MAX, form_of) {}
    Ok((shown, texts(&warnings)))
}

#[track_caller]
fn check_lines(shown: &str, expected: &[&str]) {
    let of_file = [" NS ", " A ", " AAAA ", " CNAME ", " DNAME ", " DNSKEY "];
    let lines: Vec<&str> = shown.lines().filter(|line| of_file.iter().all(|rtype| !line.contains(rtype))).collect();
    assert_eq!(lines, expected);
}

#[test]
fn records_and_addresses_are_added_and_the_serial_is_raised() {
    let (shown, notes) =
        merged(CONFIG, &format!("{APEX}www 60 A 192.0.2.2\nwww 60 A 192.0.2.3\nWWW 60 AAAA 2001:db8::1\n"));
    check_lines(
        &shown,
        &[
            "a.test. 60 IN SOA ns.a.test. host.a.test. 13 1 1 1 1 ; derived: the file's serial is 10",
            "a.test. 300 IN HTTPS 1 . alpn=\"h2\" ipv4hint=192.0.2.1 ; derived: https",
            "a.test. 300 IN CAA 0 issue \"ca.example\" ; derived: caa",
            "a.test. 300 IN CAA 0 issue \"other.example\" ; derived: caa",
            "www.a.test. 300 IN HTTPS 1 . alpn=\"h2\" ipv4hint=192.0.2.2,192.0.2.3 ipv6hint=2001:db8::1 ; derived: https",
            "www.a.test. 300 IN CAA 0 issue \"ca.example\" ; derived: caa",
        ],
    );
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn records_of_the_file_have_precedence() {
    let file = format!("{APEX}@ 60 CAA 0 issue \"mine.example\"\nwww 60 CNAME @\n");
    let (shown, notes) = merged(CONFIG, &file);
    check_lines(
        &shown,
        &[
            "a.test. 60 IN SOA ns.a.test. host.a.test. 13 1 1 1 1 ; derived: the file's serial is 10",
            "a.test. 300 IN HTTPS 1 . alpn=\"h2\" ipv4hint=192.0.2.1 ; derived: https",
            "a.test. 60 IN CAA 0 issue \"mine.example\"",
        ],
    );
    let note = |place: &str, rtype: &str, owner: &str, kind: &str| {
        format!(
            "/a.zone:{place}: note: the file has precedence: no {rtype} record is derived for {owner}; \
             remove the record to have it derived; \"{kind}\" in `derive` has no effect here"
        )
    };
    assert_eq!(
        notes,
        [
            note("5:6", "CAA", "a.test", "caa"),
            note("6:8", "HTTPS", "www.a.test", "https"),
            note("6:8", "CAA", "www.a.test", "caa")
        ]
    );
}

#[test]
fn names_without_addresses_or_in_other_zones_get_no_records() {
    // Below a delegation and below a DNAME: the answer is elsewhere.
    let alias = CONFIG.replace("www.a.test", "www.b.a.test");
    for above in ["b 60 NS ns\n", "b 60 DNAME b.example.\n"] {
        let (shown, _) = merged(&alias, &format!("{APEX}{above}"));
        assert!(!shown.contains("www.b.a.test. 300"), "{shown}");
    }
    let (shown, _) = merged(CONFIG, APEX);
    assert!(!shown.contains("www.a.test. 300 IN HTTPS"), "{shown}");
}

#[test]
fn signed_zone_stays_as_it_is_signed() {
    let key = "@ 60 DNSKEY 257 3 13 GzSvWQ==\n";
    let signed = "the zone a.test is signed (DNSSEC), so no records are derived for it: they would have no signatures; \
                  write derive = [] in its domain, and the records into the zone file before it is signed";
    let (shown, notes) = merged(CONFIG, &format!("{APEX}{key}"));
    check_lines(&shown, &["a.test. 60 IN SOA ns.a.test. host.a.test. 10 1 1 1 1"]);
    assert_eq!(notes[0], format!("/a.zone:5:6: note: {signed}"));
    let explicit = format!("{CONFIG}derive = [\"https\"]\n");
    let (_, notes) = merged(&explicit, &format!("{APEX}{key}"));
    assert!(notes[0].ends_with(&format!(":9:1: warning: {signed}")), "{notes:?}");
}

#[test]
fn serial_stays_raised_when_nothing_is_derived_any_more() {
    let (shown, _) = merged(&format!("{CONFIG}derive = []\n"), APEX);
    check_lines(&shown, &["a.test. 60 IN SOA ns.a.test. host.a.test. 13 1 1 1 1 ; derived: the file's serial is 10"]);
}

#[test]
fn challenges_are_added_to_records_of_the_file_unless_the_name_is_delegated_or_an_alias() {
    let record = |text: &str| DerivedRecord {
        kind: DerivedKind::Challenge,
        owner: "_acme-challenge.a.test".to_owned(),
        ttl_s: 5,
        data: format!("\"{text}\""),
    };
    let zone = DerivedZone { change_count: 1, records: vec![record("one"), record("two")] };
    let set = DerivedSet { zones: BTreeMap::from([("a.test".to_owned(), zone)]) };
    let texts = |file: &str| {
        let (shown, notes) = merged_with(&set, CONFIG, &format!("{APEX}{file}"));
        assert!(notes.is_empty(), "{notes:?}");
        let lines = shown.lines().filter(|line| line.contains(" TXT "));
        lines.map(|line| line.rsplit_once("TXT ").map_or("", |(_, text)| text).to_owned()).collect::<Vec<_>>()
    };
    let derived = |text: &str| format!("\"{text}\" ; derived: challenge");
    assert_eq!(texts(""), [derived("one"), derived("two")]);
    assert_eq!(texts("_acme-challenge 5 TXT file\n").len(), 3);
    for rtype in ["NS", "CNAME"] {
        assert!(texts(&format!("_acme-challenge 5 {rtype} ns\n")).is_empty(), "{rtype}");
    }
}

#[test]
fn challenges_at_other_names_or_with_other_data_are_not_added() {
    for (owner, data) in [
        ("a.test", "\"one\""),
        ("mail.a.test", "\"one\""),
        ("_acme-challenge.mail.a.test", "\"one\""),
        ("_acme-challenge.a.test", "\"v=spf1 +all\""),
        ("_acme-challenge.a.test", "one"),
        ("_acme-challenge.a.test. 5 IN A 198.51.100.7\n;", "\"one\""),
    ] {
        let zone = DerivedZone { change_count: 1, records: vec![record(DerivedKind::Challenge, owner, data)] };
        let set = DerivedSet { zones: BTreeMap::from([("a.test".to_owned(), zone)]) };
        let (shown, _) = merged_with(&set, CONFIG, APEX);
        assert!(!shown.contains(" TXT ") && !shown.contains("198.51.100.7"), "{owner}: {shown}");
    }
}

/// The zone of the file with a policy for mail servers of this head.
fn with_policy(head: &str, file: &str) -> (Vec<String>, Vec<String>) {
    let records = vec![
        record(DerivedKind::MtaSts, "_mta-sts.a.test", head),
        record(DerivedKind::MtaStsHost, "mta-sts.a.test", ""),
    ];
    let zone = DerivedZone { change_count: 1, records };
    let set = DerivedSet { zones: BTreeMap::from([("a.test".to_owned(), zone)]) };
    let (shown, notes) = merged_with(&set, &format!("{CONFIG}derive = [\"mta-sts\"]\n"), &format!("{APEX}{file}"));
    (shown.lines().filter(|line| line.contains("mta-sts")).map(str::to_owned).collect(), notes)
}

#[test]
fn record_of_a_policy_follows_its_content_and_its_host_has_the_addresses_of_the_domain() {
    let head = "version: STSv1\r\nmode: testing\r\nmax_age: 60\r\n";
    let mx = "@ 60 MX 10 Mail\nmail 60 A 192.0.2.5\n@ 60 MX 20 mx.example.\n";
    let (lines, notes) = with_policy(head, &format!("{mx}@ 60 AAAA 2001:db8::1\n"));
    assert!(notes.is_empty(), "{notes:?}");
    // The digest of the policy with `mx: mail.a.test` and `mx: mx.example`.
    assert_eq!(
        lines,
        [
            "_mta-sts.a.test. 300 IN TXT \"v=STSv1; id=6a094823c436d51e81fc3197e748a237;\" ; derived: mta-sts",
            "mta-sts.a.test. 300 IN A 192.0.2.1 ; derived: mta-sts-host",
            "mta-sts.a.test. 300 IN AAAA 2001:db8::1 ; derived: mta-sts-host"
        ]
    );
    let of = |head: &str, file: &str| with_policy(head, file).0.remove(0);
    assert_eq!(of(head, "@ 60 MX 0 mx.example.\n@ 60 MX 30 mail\n"), lines[0], "preferences are not in the policy");
    assert_ne!(of(head, "@ 60 MX 10 mail\n"), lines[0]);
    assert_ne!(of(&head.replace("testing", "enforce"), mx), lines[0]);
    // The configuration lists the mail servers.
    let listed = format!("{head}mx: mx.other\r\n");
    assert_eq!(of(&listed, ""), of(&listed, mx));
}

#[test]
fn policy_without_a_mail_server_is_not_derived() {
    let head = "version: STSv1\r\nmode: enforce\r\nmax_age: 60\r\n";
    for file in ["", "@ 60 MX 0 .\n"] {
        let (lines, notes) = with_policy(head, file);
        assert!(!lines.iter().any(|line| line.contains("_mta-sts")), "{lines:?}");
        assert!(
            notes[0].ends_with(
                ":9:1: warning: cannot derive a policy for mail servers for a.test, which has no MX record; add one, \
                 or list the mail servers: mta_sts = { mx = [\"mail.example.com\"] }"
            ),
            "{notes:?}"
        );
    }
    let (lines, notes) = with_policy(&head.replace("enforce", "none"), "");
    assert!(lines[0].contains("v=STSv1") && notes.is_empty(), "{lines:?} {notes:?}");
}

#[test]
fn records_of_the_file_have_precedence_over_a_policy_and_its_host() {
    let head = "version: STSv1\r\nmode: none\r\nmax_age: 60\r\n";
    let (lines, notes) = with_policy(head, "_mta-sts 60 TXT \"v=STSv1; id=1;\"\nmta-sts 60 CNAME ns\n");
    assert_eq!(lines, ["_mta-sts.a.test. 60 IN TXT \"v=STSv1; id=1;\"", "mta-sts.a.test. 60 IN CNAME ns.a.test."]);
    assert!(notes.len() == 1 && notes[0].contains("no TXT record is derived for _mta-sts.a.test"), "{notes:?}");
}

/// A configuration that resolves `ALIAS`, and the agent's records of two targets.
fn with_aliases() -> (String, DerivedSet) {
    let address = |owner: &str, data: &str| DerivedRecord { ttl_s: 70, ..record(DerivedKind::Alias, owner, data) };
    let mut set = set();
    let zone = set.zones.get_mut("a.test").expect("it is there");
    zone.records.extend([
        address("www.host.example", "192.0.2.7"),
        address("www.host.example", "192.0.2.8"),
        address("www.host.example", "2001:db8::7"),
        // The file does not have it any more.
        address("old.host.example", "192.0.2.9"),
    ]);
    (CONFIG.replacen("[https]", "[dns]\nlisten = [\"127.0.0.1:53\"]\nresolvers = [\"system\"]\n[https]", 1), set)
}

const WITHOUT_ADDRESSES: &str = "@ 60 SOA ns host 10 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n@ 60 MX 10 mail\n";

#[test]
fn names_with_alias_have_the_addresses_of_the_target() {
    let (config, set) = with_aliases();
    let file = format!(
        "{WITHOUT_ADDRESSES}@ ALIAS WWW.host.example.\nmail 60 IN ALIAS www.host.example.\nx ALIAS new.host.example.\n"
    );
    let (shown, notes) = merged_with(&set, &config, &file);
    let alias = "derived: alias of www.host.example";
    for line in [
        "a.test. 60 IN SOA ns.a.test. host.a.test. 13 1 1 1 1 ; derived: the file's serial is 10".to_owned(),
        format!("a.test. 70 IN A 192.0.2.7 ; {alias}"),
        format!("a.test. 70 IN A 192.0.2.8 ; {alias}"),
        format!("a.test. 70 IN AAAA 2001:db8::7 ; {alias}"),
        "a.test. 60 IN MX 10 mail.a.test.".to_owned(),
        format!("mail.a.test. 70 IN AAAA 2001:db8::7 ; {alias}"),
        // Hints are these addresses.
        "a.test. 300 IN HTTPS 1 . alpn=\"h2\" ipv4hint=192.0.2.7,192.0.2.8 ipv6hint=2001:db8::7 ; derived: https"
            .to_owned(),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    assert!(!shown.contains("192.0.2.9") && !shown.contains("x.a.test") && notes.is_empty(), "{shown}{notes:?}");
    // Before there is an answer, the MX record has a target nevertheless.
    let (shown, notes) = merged_with(&DerivedSet::default(), &config, &file);
    assert!(!shown.contains("192.0.2.7") && notes.is_empty(), "{shown}{notes:?}");
}

#[test]
fn alias_beside_addresses_or_without_resolvers_is_an_error() {
    let (config, set) = with_aliases();
    let alias = format!("{WITHOUT_ADDRESSES}x ALIAS www.host.example.\n");
    let own = |rtype: &str| {
        format!(
            "x.a.test. has both ALIAS and {rtype}; remove one of them: by ALIAS, the name gets the A and AAAA records \
             of the target"
        )
    };
    for (line, expected) in [
        ("x 60 A 192.0.2.1\n", own("A")),
        ("X 60 AAAA 2001:db8::1\n", own("AAAA")),
        ("x 60 CNAME www\n", own("CNAME")),
        ("x ALIAS other.host.example.\n", "x.a.test. has two ALIAS records; remove one of them".to_owned()),
        (
            "@ 60 DNSKEY 257 3 13 GzSvWQ==\n",
            "the zone file is already signed (DNSSEC): the ALIAS addresses would have no signatures; write A and AAAA \
                records instead, or let this server sign the zone with `dnssec = true`"
                .to_owned(),
        ),
    ] {
        for set in [&set, &DerivedSet::default()] {
            let errors = merge(set, &config, &format!("{alias}{line}")).expect_err(line);
            assert!(errors[0].ends_with(&expected), "{line}: {errors:?}");
        }
    }
    for line in ["x 60 TXT text\n", "x 60 MX 0 .\n"] {
        merge(&set, &config, &format!("{alias}{line}")).expect(line);
    }
    let errors = merge(&set, CONFIG, &alias).expect_err("no resolver");
    assert_eq!(
        errors,
        ["/a.zone:5:3: ALIAS has no effect here: no resolver is asked for the addresses of its target; set \
          `resolvers` in [dns], for example resolvers = [\"system\"]; a state folder is also needed"]
    );
}

#[test]
fn addresses_of_listeners_are_added_and_other_records_have_them() {
    let address = |owner: &str, data: &str| record(DerivedKind::Addresses, owner, data);
    let mut set = set();
    let zone = set.zones.get_mut("a.test").expect("it is there");
    for name in ["a.test", "www.a.test"] {
        zone.records.extend([address(name, "192.0.2.7"), address(name, "2001:db8::7")]);
    }
    let config = format!("{CONFIG}derive = [\"https\", \"addresses\"]\n");
    let file = format!("{WITHOUT_ADDRESSES}www 60 A 192.0.2.99\nmail 60 A 192.0.2.5\n");
    let (shown, notes) = merged_with(&set, &config, &file);
    let expected = [
        "a.test. 300 IN A 192.0.2.7 ; derived: addresses",
        "a.test. 300 IN AAAA 2001:db8::7 ; derived: addresses",
        "a.test. 300 IN HTTPS 1 . alpn=\"h2\" ipv4hint=192.0.2.7 ipv6hint=2001:db8::7 ; derived: https",
        // The file has precedence.
        "www.a.test. 60 IN A 192.0.2.99",
        "www.a.test. 300 IN HTTPS 1 . alpn=\"h2\" ipv4hint=192.0.2.99 ; derived: https",
    ];
    for line in expected {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    assert!(!shown.contains("www.a.test. 300 IN A"), "{shown}");
    assert!(notes.len() == 1 && notes[0].contains("no A record is derived for www.a.test"), "{notes:?}");
    // ALIAS is a record of the file as well.
    let (aliases, _) = with_aliases();
    let config = format!("{aliases}derive = [\"addresses\"]\n");
    let (shown, notes) =
        merged_with(&set, &config, &format!("{WITHOUT_ADDRESSES}@ ALIAS x.host.example.\nmail 60 A 192.0.2.5\n"));
    assert!(
        !shown.contains("a.test. 300 IN A 192.0.2.7\n") && notes[0].contains("no A record is derived for a.test"),
        "{notes:?}"
    );
}
