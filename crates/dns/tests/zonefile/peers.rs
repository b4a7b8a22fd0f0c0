//! Comparisons with BIND's `named-checkzone` and the crate `domain`.

use super::{TYPES_ZONE, lines, parser, record_line};
use domain::base::iana::Class;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{self, Zonefile};
use sanderling_dns::zonefile::{Entry, Severity};
use std::io::Write;
use std::process::{Command, Stdio};

/// The records without which BIND does not load a zone.
const ZONE_HEAD: &str = "$TTL 300\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n";

/// The records that `named-checkzone` reads from `text`, as a zone file. An error is its message.
fn dump_of_bind(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut child = Command::new("named-checkzone")
        .args(["-i", "none", "-k", "ignore", "-D", "-o", "-", "example.", "-"])
        .env("PATH", format!("{}:/usr/sbin:/usr/bin", std::env::var("PATH").unwrap_or_default()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cannot run named-checkzone; install the package bind9-utils");
    child.stdin.take().expect("standard input is a pipe").write_all(text).expect("named-checkzone reads its input");
    let output = child.wait_with_output().expect("named-checkzone ends");
    if output.status.success() { Ok(output.stdout) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// The records in `text`, sorted, without duplicates, or the first error.
fn records(text: &[u8]) -> Result<Vec<String>, String> {
    let mut parser = parser(text);
    let mut records = vec![];
    while let Some(entry) = parser.next() {
        match entry {
            Ok(Entry::Record(record)) => records.push(record_line(&record)),
            Ok(Entry::Include { path, .. }) => return Err(format!("$INCLUDE {path}")),
            Ok(Entry::Alias(_)) => return Err("ALIAS".to_owned()),
            Err(error) if error.severity == Severity::Warning => {}
            Err(error) => return Err(format!("{}:{}", error.position.line, error.problem)),
        }
    }
    records.sort();
    records.dedup();
    Ok(records)
}

/// The difference between this parser and BIND for `text`; `None` if both reject it or read the same records.
fn difference_from_bind(text: &str) -> Option<String> {
    let zone = format!("{ZONE_HEAD}{text}\n");
    let ours = records(zone.as_bytes());
    let bind = dump_of_bind(zone.as_bytes());
    let same = match (&ours, &bind) {
        (Ok(ours), Ok(dump)) => records(dump).as_ref() == Ok(ours),
        (Err(_), Err(_)) => true,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    };
    let bind = bind.map(|dump| String::from_utf8_lossy(&dump).into_owned());
    (!same).then(|| format!("{text}\nhere: {ours:?}\nBIND: {bind:?}\n"))
}

#[test]
fn bind_reads_the_same_records_of_every_type() {
    let dump = dump_of_bind(TYPES_ZONE).expect("BIND loads the test zone");
    let ours = records(TYPES_ZONE).expect("the test zone has no errors");
    assert!(ours.len() > 100);
    assert_eq!(ours, records(&dump).expect("the dump of BIND has no errors"));
}

#[test]
fn bind_reads_printed_records() {
    let printed = lines(TYPES_ZONE).join("\n") + "\n";
    let dump = dump_of_bind(printed.as_bytes()).expect("BIND loads printed records");
    assert_eq!(records(TYPES_ZONE), records(&dump));
}

#[test]
fn snippets_have_the_same_meaning_in_bind() {
    let snippets: Vec<&str> = include_str!("../zones/snippets.txt").split("\n---\n").collect();
    assert!(snippets.len() > 200);
    let differences: Vec<String> = snippets.into_iter().filter_map(difference_from_bind).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn snippets_that_only_this_parser_accepts() {
    for text in [
        "a A \"192.0.2.1\"",
        "a MX \"10\" b",
        "a CNAME \"@\"",
        "$GENERATE 1-2 a MX 1 b$",
        "a RRSIG A 8 2 1h 20300101000000 1700000000 1 example. AA==",
        "a HTTPS 1 . ohttp",
        "a NSEC b",
        &format!("a TXT {}", "x".repeat(300)),
        "a MD b",
        "a HTTPS 1 . \"alpn=h2\"",
        "a URI 1 1 abc",
        "a CAA 0 \"issue\" \"x\"",
        "$GENERATE 1-1 a$ A \\# 4 c0000201",
        // The expression lacks the delimiters of RFC 3402.
        "a NAPTR 1 1 s x y z",
    ] {
        let zone = format!("{ZONE_HEAD}{text}\n");
        records(zone.as_bytes()).expect("accepted here");
        dump_of_bind(zone.as_bytes()).expect_err(text);
    }
}

#[test]
fn snippets_that_only_bind_accepts() {
    for text in [
        "a HTTPS 1 . key65535=x",
        "a HTTPS 1 . ech=",
        "a EUI64 00-00-5e-ef-10-00-00-2a-00",
        "a GPOS x 1 1",
        "a NXT b A MX",
        "a A6 0 2001:db8::1",
        "a SINK 1 0 0 aGk=",
        "a KEY ZONE DNSSEC 8 AAAA",
    ] {
        let zone = format!("{ZONE_HEAD}{text}\n");
        dump_of_bind(zone.as_bytes()).expect(text);
        records(zone.as_bytes()).expect_err("rejected here");
    }
}

/// The types that version 0.12 of `domain` reads completely.
const TYPES_OF_DOMAIN: &str = "A NS CNAME SOA MB MG MR PTR HINFO MINFO MX TXT AAAA SRV NAPTR DNAME DS SSHFP IPSECKEY RRSIG \
                               NSEC DNSKEY NSEC3 NSEC3PARAM TLSA CDS CDNSKEY OPENPGPKEY ZONEMD SVCB HTTPS CAA TYPE731";

#[test]
fn domain_reads_the_same_rdata_from_printed_records() {
    let mut parser = parser(TYPES_ZONE);
    let mut compared_count = 0;
    while let Some(Ok(Entry::Record(record))) = parser.next() {
        let line = record_line(&record);
        // `domain` requires a value for each key, and reads no escapes in alpn.
        let is_known = TYPES_OF_DOMAIN.split(' ').any(|rtype| rtype == record.rtype.to_string());
        if !is_known || line.ends_with("key669") || line.contains("f\\\\\\\\oo") {
            continue;
        }
        let mut zonefile = Zonefile::from(format!("{line}\n").as_str());
        zonefile.set_default_class(Class::IN);
        zonefile.set_origin("example.".parse().expect("the apex is a name"));
        let entry = zonefile.next_entry().unwrap_or_else(|error| panic!("{line}: {error}"));
        let Some(inplace::Entry::Record(theirs)) = entry else { panic!("{line} is not a record") };
        let mut rdata = vec![];
        theirs.data().compose_rdata(&mut rdata).expect("a vector takes all");
        assert_eq!(rdata, record.rdata, "{line}");
        assert_eq!(theirs.owner().to_string(), record.owner.to_string().trim_end_matches('.'), "{line}");
        assert_eq!((theirs.rtype().to_int(), theirs.ttl().as_secs()), (record.rtype.0, record.ttl_s), "{line}");
        compared_count += 1;
    }
    assert!(compared_count > 45, "{compared_count} records were compared");
}
