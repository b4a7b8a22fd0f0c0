//! Errors and warnings of the parser: what, where, and how to fix it.

use super::{apex, check, error_line, lines};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};

/// The cases in `errors.txt`: zone text and what the parser returns for it.
fn cases() -> Vec<(String, Vec<&'static str>)> {
    let mut cases = vec![];
    let (mut text, mut expected): (Vec<&str>, Vec<&str>) = (vec![], vec![]);
    for line in include_str!("errors.txt").lines() {
        if let Some(line) = line.strip_prefix("> ") {
            expected.push(line);
            continue;
        }
        if !expected.is_empty() {
            cases.push((text.join("\n"), std::mem::take(&mut expected)));
            text.clear();
        }
        if !(text.is_empty() && (line.is_empty() || line.starts_with('#'))) {
            text.push(line);
        }
    }
    cases.push((text.join("\n"), expected));
    cases
}

#[test]
fn errors_say_what_is_wrong_where_and_what_to_do() {
    let mut differences = vec![];
    for (text, expected) in cases() {
        let found = lines(format!("$TTL 300\n{text}").as_bytes());
        if found != expected {
            differences.push(format!("{text}\n> {}\n", found.join("\n> ")));
        }
    }
    assert!(differences.is_empty(), "the parser returns instead:\n{}", differences.join("\n"));
}

#[test]
fn record_without_ttl_and_default_is_an_error() {
    let expected = "1:3: error: the record has no TTL, and there is no default; put $TTL 3600 at the start of the file";
    assert_eq!(lines(b"a A 192.0.2.1\n"), [expected]);
}

#[test]
fn long_tokens_are_shortened_in_messages() {
    let label = "x".repeat(64);
    let name = "x.".repeat(124) + "xxx";
    for (text, shown, problem) in [
        (
            format!("a NS {label}"),
            &label,
            "2:6: error: the host \"…\" has a label of more than 63 bytes; shorten the label, or split it with a dot",
        ),
        (
            format!("a NS {name}"),
            &name,
            "2:6: error: the host \"…\" has more than 255 bytes with its origin; shorten the name, or end it with a dot \
             if it is absolute",
        ),
        (
            format!("a HINFO b {}", label.repeat(4)),
            &label,
            "2:11: error: HINFO OS: \"…\" has more than 255 bytes; shorten it",
        ),
    ] {
        check(text, &[&problem.replace('…', &format!("{}…", &shown[..40]))]);
    }
}

#[test]
fn locations_out_of_range_are_errors() {
    for location in [
        "1 N",
        "91 N 0 E 0",
        "1 60 N 0 E 0",
        "1 2 60 N 0 E 0",
        "1 2 3.1234 N 0 E 0",
        "1 E 0 E 0",
        "90 0 1 N 0 E 0",
        "1 N 1 E 42849672.96",
        "1 N 1 E -100000.01",
        "1 N 1 E 0 90000000.01",
    ] {
        let found = lines(format!("a 5 LOC {location}\n").as_bytes());
        assert!(found.len() == 1 && found[0].starts_with("1:") && found[0].contains(" LOC"), "{location}: {found:?}");
    }
}

#[test]
fn what_other_servers_read_differently_gets_a_warning() {
    let long = "x".repeat(256);
    for (text, expected) in [
        (
            "@ SOA a b 1 2 3 4 300\na A 192.0.2.1\n".to_owned(),
            "1:3: warning: the record has no TTL, and there is no $TTL before it: it and later records get the \
                minimum of the SOA record, 300 (RFC 2308 section 4); put $TTL 3600 at the start of the file",
        ),
        (
            format!("a 5 TXT b {long}\na 5 TXT c\n"),
            "1:11: warning: the string has more than 255 bytes and is split into several strings (RFC 1035 section \
             3.3); write several strings of at most 255 bytes, each in quotes",
        ),
        (
            "b\u{fc} 5 A 192.0.2.1\na 5 TXT \u{fc}\n".to_owned(),
            "1:1: warning: the owner name b\\195\\188.example. has non-ASCII bytes, which resolvers do not query; \
             write its ASCII form, which starts with xn--",
        ),
    ] {
        let found = lines(text.as_bytes());
        assert_eq!(found.len(), 3, "{found:#?}");
        assert_eq!(found[0], expected);
    }
}

#[test]
fn errors_are_reported_up_to_the_limit() {
    let faulty = "a A x\n".repeat(120);
    let found = lines(format!("$TTL 5\n{faulty}").as_bytes());
    assert_eq!(found.len(), 101);
    assert!(found[99].starts_with("101:5: error: A address: "), "{}", found[99]);
    assert_eq!(
        found[100],
        "102:5: error: more than 100 errors; the rest of the zone was not read; fix the earlier errors first"
    );
    let limits = ParserLimits { errors_max: 0, ..ParserLimits::default() };
    let mut parser = Parser::new("a".into(), b"a\nb\n".to_vec(), apex(), limits);
    let Some(Err(error)) = parser.next() else { panic!("an error is expected") };
    assert_eq!(
        error_line(&error),
        "1:2: error: more than 0 errors; the rest of the zone was not read; fix the earlier errors first"
    );
    assert!(parser.next().is_none());
}

#[test]
fn rdata_has_at_most_65535_bytes() {
    let fits = format!("a 5 TXT {}{}\n", ("x".repeat(255) + " ").repeat(255), "x".repeat(254));
    let mut parser = Parser::new("a".into(), fits.clone().into_bytes(), apex(), ParserLimits::default());
    assert!(matches!(parser.next(), Some(Ok(Entry::Record(record))) if record.rdata.len() == 65_535));
    let found = lines(fits.replace('\n', "x\n").as_bytes());
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("1:9: error: TXT text: the record has more than 65535 bytes of data"), "{}", found[0]);
}

/// With quadratic cost each of these would take minutes.
#[test]
fn huge_fields_are_rejected_in_linear_time() {
    let keys: Vec<String> = (0..400_000).map(|number| format!("key{}", number % 65_535)).collect();
    let types: Vec<String> = (0..400_000).rev().map(|number| format!("TYPE{}", number % 65_536)).collect();
    for rdata in [
        format!("TXT {}", "x".repeat(8_000_000)),
        format!("NS {}", "x.".repeat(4_000_000)),
        format!("HTTPS 1 . {}", keys.join(" ")),
        format!("HTTPS 1 . mandatory={}", keys.join(",")),
        format!("HTTPS 1 . alpn={}", "h2,".repeat(2_000_000)),
        format!("OPENPGPKEY {}", "AAAA ".repeat(1_000_000)),
        format!("APL {}", "1:192.0.2.1/32 ".repeat(200_000)),
        format!("A {}", "(".repeat(4_000_000)),
        format!("NSEC . {} NOPE", types.join(" ")),
    ] {
        let found = lines(format!("a 5 {rdata}\n").as_bytes());
        assert_eq!(found.len(), 1, "{}", &rdata[..20]);
        assert!(found[0].contains(": error: "), "{}", found[0]);
    }
}
