//! What is wrong with a zone file, where it stands, and what is said about it.

use super::{apex, check, error_line, lines};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};

/// `text` stands on line 2, behind `$TTL`; its one error is `expected`.
#[track_caller]
fn check_error(text: &str, expected: &str) {
    check(text, &[expected]);
}

#[test]
fn entries() {
    check_error(
        " A 192.0.2.1",
        "2:2: error: this record has no owner, and there is none before it; start the line with the owner; @ is the origin",
    );
    check_error(
        "a",
        "2:2: error: the record ends before its type; write owner, TTL, class, type and data in one line, or in parentheses",
    );
    check_error(
        "a 5 IN",
        "2:7: error: the record ends before its type; write owner, TTL, class, type and data in one line, or in parentheses",
    );
    check_error(
        "a NOPE x",
        "2:3: error: \"NOPE\" is no record type; write a type such as A or MX, or TYPE65280 for one that has no name",
    );
    check_error(
        "a TYPE65536 x",
        "2:3: error: \"TYPE65536\" is no record type; write a type such as A or MX, or TYPE65280 for one that has no name",
    );
    check_error(
        "a IN IN A 192.0.2.1",
        "2:6: error: \"IN\" is no record type; write a type such as A or MX, or TYPE65280 for one that has no name",
    );
    check_error(
        "a 5 IN 5 A 192.0.2.1",
        "2:8: error: \"5\" is no record type; write a type such as A or MX, or TYPE65280 for one that has no name",
    );
    check_error("a CH A 192.0.2.1", "2:3: error: the class \"CH\" is not IN; write IN, or no class at all");
    check_error("a CLASS3 A 192.0.2.1", "2:3: error: the class \"CLASS3\" is not IN; write IN, or no class at all");
    check_error(
        "a 3x A 192.0.2.1",
        "2:3: error: \"3x\" is no TTL; write seconds, or numbers with the units w, d, h, m or s, as in 1h30m",
    );
    check_error(
        "a 4294967296 A 192.0.2.1",
        "2:3: error: \"4294967296\" is no TTL; write seconds, or numbers with the units w, d, h, m or s, as in 1h30m",
    );
    check_error("a ANY x", "2:3: error: ANY stands for no data: it cannot be in a zone; take the record away");
    check_error("a OPT \\# 0", "2:3: error: OPT stands for no data: it cannot be in a zone; take the record away");
    check_error("a TSIG x", "2:3: error: TSIG stands for no data: it cannot be in a zone; take the record away");
    check_error("a TYPE252 x", "2:3: error: AXFR stands for no data: it cannot be in a zone; take the record away");
    check_error(
        "a A 192.0.2.1 192.0.2.2",
        "2:15: error: \"192.0.2.2\" is more than belongs here; take it away, or start a new line before it",
    );
}

#[test]
fn a_record_without_any_ttl() {
    let expected =
        "1:3: error: this record has no TTL, and none was given before; put $TTL 3600 at the start of the file";
    assert_eq!(lines(b"a A 192.0.2.1\n"), [expected]);
}

#[test]
fn warnings_leave_the_zone_usable() {
    check(
        "b.other. A 192.0.2.1\n A 192.0.2.2\nc A 192.0.2.3\n",
        &[
            "2:1: warning: b.other. is outside the zone example.: its records are left out; \
         take them away, or mend the name or the $ORIGIN before it",
            "c.example. 300 A 192.0.2.3",
        ],
    );
    check(
        "a 2147483648 A 192.0.2.1\nb A 192.0.2.2\n",
        &[
            "2:3: warning: the TTL \"2147483648\" is over 2147483647 seconds and counts as 0; write a TTL of days, not of centuries",
            "a.example. 0 A 192.0.2.1",
            "b.example. 300 A 192.0.2.2",
        ],
    );
    check(
        "$TTL 4294967295\nb A 192.0.2.2\n",
        &[
            "2:6: warning: the TTL \"4294967295\" is over 2147483647 seconds and counts as 0; write a TTL of days, not of centuries",
            "b.example. 0 A 192.0.2.2",
        ],
    );
}

#[test]
fn a_ttl_over_the_limit_in_a_record_with_an_error_is_forgotten() {
    check(
        "a 2147483648 A x\nb A 192.0.2.2\n",
        &[
            "2:16: error: the address of A, \"x\", is no IPv4 address; write four numbers up to 255, as in 192.0.2.1",
            "b.example. 300 A 192.0.2.2",
        ],
    );
}

#[test]
fn tokens() {
    check_error("a TXT \"b", "2:7: error: the string that starts here has no end on this line; add the closing quote");
    check_error(
        "a TXT \"b\\",
        "2:7: error: the string that starts here has no end on this line; add the closing quote",
    );
    check_error(
        "a TXT b\\",
        "2:8: error: a backslash stands at the end of the line; write \\\\ for a backslash; join lines with parentheses",
    );
    check_error(
        "a TXT b\\256",
        "2:7: error: \"b\\256\" is no string: it has an escape that is no octet; write three decimal digits, \\000 to \\255, or \\\\ for a backslash",
    );
    check_error(
        "a TXT \\12",
        "2:7: error: \"\\12\" is no string: it has an escape that is no octet; write three decimal digits, \\000 to \\255, or \\\\ for a backslash",
    );
    check_error("a A 192.0.2.1 )", "2:15: error: this parenthesis closes none; take it away, or open one before");
    check_error(
        "a A (\n192.0.2.1\n",
        "2:5: error: the parenthesis opened here is never closed; close it behind the last field of the record",
    );
    check_error("a A", "2:4: error: the address of A is missing; the fields are: address");
    check_error(
        "a MX (\n\n10 ; b\n)",
        "5:2: error: the exchange of MX is missing; the fields are: preference, exchange",
    );
}

#[test]
fn names() {
    check_error(
        "a..b A 192.0.2.1",
        "2:1: error: the owner \"a..b\" has an empty label; write one dot between two labels, and none before the first",
    );
    check_error(
        "\"\" A 192.0.2.1",
        "2:1: error: the owner \"\" has an empty label; write one dot between two labels, and none before the first",
    );
    check_error(
        "a CNAME b\\999",
        "2:9: error: the target \"b\\999\" has an escape that is no octet; write three decimal digits, \\000 to \\255, or \\\\ for a backslash",
    );
    let label = "x".repeat(64);
    check_error(
        &format!("a NS {label}"),
        &format!(
            "2:6: error: the host \"{}…\" has a label of more than 63 octets; shorten the label, or cut it with a dot",
            &label[..40]
        ),
    );
    let name = "x.".repeat(124) + "xxx";
    check_error(
        &format!("a NS {name}"),
        &format!(
            "2:6: error: the host \"{}…\" is longer than 255 octets, its origin included; shorten the name, or end it with a dot if it is absolute",
            &name[..40]
        ),
    );
    check_error(
        "$ORIGIN a..b",
        "2:9: error: the origin \"a..b\" has an empty label; write one dot between two labels, and none before the first",
    );
}

#[test]
fn after_a_faulty_owner_its_records_are_read_for_errors_alone() {
    check(
        "a A 192.0.2.1\nb..c A 192.0.2.2\n A 192.0.2.3\n A x\nd A 192.0.2.4\n",
        &[
            "a.example. 300 A 192.0.2.1",
            "3:1: error: the owner \"b..c\" has an empty label; write one dot between two labels, and none before the first",
            "5:4: error: the address of A, \"x\", is no IPv4 address; write four numbers up to 255, as in 192.0.2.1",
            "d.example. 300 A 192.0.2.4",
        ],
    );
}

#[test]
fn directives() {
    check_error(
        "$NOPE x",
        "2:1: error: \"$NOPE\" is no directive; there are $ORIGIN, $TTL, $INCLUDE and $GENERATE; an owner that starts with $ is written \\$",
    );
    check_error("$ORIGIN", "2:8: error: $ORIGIN has nothing behind it; write a name");
    check_error(
        "$TTL x",
        "2:6: error: \"x\" is no TTL; write seconds, or numbers with the units w, d, h, m or s, as in 1h30m",
    );
    check_error(
        "$TTL 1h 5",
        "2:9: error: \"5\" is more than belongs here; take it away, or start a new line before it",
    );
    check_error("$INCLUDE", "2:9: error: $INCLUDE has nothing behind it; write a file name");
    check_error(
        "$INCLUDE a b c",
        "2:14: error: \"c\" is more than belongs here; take it away, or start a new line before it",
    );
    check(
        "a NS b\n $TTL 5",
        &[
            "a.example. 300 NS b.example.",
            "3:2: error: \"$TTL\" is no record type; write a type such as A or MX, or TYPE65280 for one that has no name",
        ],
    );
}

#[test]
fn generate() {
    check_error(
        "$GENERATE",
        "2:10: error: $GENERATE ends before its range; write $GENERATE start-stop owner type RDATA",
    );
    check_error(
        "$GENERATE 1-2 a",
        "2:16: error: $GENERATE ends before its type; write $GENERATE start-stop owner type RDATA",
    );
    check_error(
        "$GENERATE 1-2 a A",
        "2:18: error: $GENERATE ends before its RDATA; write $GENERATE start-stop owner type RDATA",
    );
    for range in ["2-1", "1", "1-", "-1", "1-2/0", "1-x", "0-2147483648", "1-2/x", "1-2-3"] {
        check_error(
            &format!("$GENERATE {range} a A 192.0.2.1"),
            &format!(
                "2:11: error: \"{range}\" is no range; write start-stop or start-stop/step, as in 1-254 or 0-62/2"
            ),
        );
    }
    check_error(
        "$GENERATE 0-1048576 a A 192.0.2.1",
        "2:11: error: \"0-1048576\" is more than 1048576 records; cut the range, or use a wildcard",
    );
    let remedy = "write $, ${offset}, ${offset,width} or ${offset,width,base} with a base of d, o, x, X, n or N";
    for place in ["{", "{x}", "{}", "{0,x}", "{0,1,z}", "{0,1,d,}", "{0,128}"] {
        let problem = if place == "{" { "a place ${ has no end" } else { "a place ${…} is wrong" };
        check_error(&format!("$GENERATE 1-9 a${place} A 192.0.2.1"), &format!("2:1: error: {problem}; {remedy}"));
    }
    // The first line that is wrong ends it.
    check(
        "$GENERATE 254-300 a$ A 192.0.2.$\nb NS .",
        &[
            "a254.example. 300 A 192.0.2.254",
            "a255.example. 300 A 192.0.2.255",
            "2:1: error: the address of A, \"192.0.2.256\", is no IPv4 address; write four numbers up to 255, as in 192.0.2.1",
            "b.example. 300 NS .",
        ],
    );
    check_error(
        "$GENERATE 2147483647-2147483647 a${1} NS .",
        &format!("2:1: error: a value with its offset is over 2147483647; {remedy}"),
    );
}

#[test]
fn rdata() {
    check_error(
        "a A 192.0.2.256",
        "2:5: error: the address of A, \"192.0.2.256\", is no IPv4 address; write four numbers up to 255, as in 192.0.2.1",
    );
    check_error(
        "a A 192.0.2.01",
        "2:5: error: the address of A, \"192.0.2.01\", is no IPv4 address; write four numbers up to 255, as in 192.0.2.1",
    );
    check_error(
        "a AAAA 192.0.2.1",
        "2:8: error: the address of AAAA, \"192.0.2.1\", is no IPv6 address; write hexadecimal groups, as in 2001:db8::1",
    );
    check_error(
        "a MX b 10",
        "2:6: error: the preference of MX, \"b\", is no number in range; write a number from 0 to 65535",
    );
    check_error(
        "a SRV 1 65536 3 b",
        "2:9: error: the weight of SRV, \"65536\", is no number in range; write a number from 0 to 65535",
    );
    check_error(
        "@ SOA a b 1 2 3 4x 5",
        "2:17: error: the expire of SOA, \"4x\", is no time; write seconds, or numbers with the units w, d, h, m or s, as in 1h30m",
    );
    check_error("a HINFO b", "2:10: error: the OS of HINFO is missing; the fields are: CPU, OS");
    check_error(
        &format!("a HINFO b {}", "x".repeat(256)),
        &format!(
            "2:11: error: the OS of HINFO, \"{}…\", is no string of at most 255 octets; shorten it",
            "x".repeat(40)
        ),
    );
    check_error(
        "a DS 1 NOPE 1 00",
        "2:8: error: the algorithm of DS, \"NOPE\", is no number or name; write a number from 0 to 255, or a name such as RSAMD5 for 1",
    );
    check_error(
        "a DS 1 8 2 0g",
        "2:12: error: the digest of DS, \"0g\", is no hexadecimal text; \"g\" cannot stand there",
    );
    check_error(
        "a DS 1 8 2 00",
        "2:12: error: the digest of DS has not the length that its algorithm gives; see the RFC of DS for what the field may be",
    );
    check_error(
        "a DNSKEY 256 3 8 AAA",
        "2:18: error: the public key of DNSKEY, \"AAA\", is no complete base 64 text; digits are missing, or there are too many: copy the whole of it",
    );
    check_error(
        "a NSEC b A NOPE",
        "2:12: error: the types of NSEC, \"NOPE\", is no record type; write types such as A or TYPE65280",
    );
    check_error(
        "a RRSIG A 8 1 5 20231301000000 0 1 . AA==",
        "2:17: error: the expiration of RRSIG, \"20231301000000\", is no date; write YYYYMMDDHHmmSS, or seconds since 1970",
    );
    check_error(
        "a X25 123",
        "2:7: error: the PSDN address of X25 is no string of four digits or more; see the RFC of X25 for what the field may be",
    );
    check_error(
        "a APL 3:x/1",
        "2:7: error: the prefixes of APL, \"3:x/1\", is no range of addresses; write 1:192.0.2.0/24, 2:2001:db8::/32, or ! before one",
    );
    check_error(
        "a NULL x",
        "2:8: error: the data of NULL cannot be written in fields; write \\# length hexadecimal-digits (RFC 3597)",
    );
}

#[test]
fn octets() {
    check_error(
        "a TYPE65280 \\#",
        "2:15: error: the length of TYPE65280 is missing; write \\# length hexadecimal-digits (RFC 3597)",
    );
    check_error(
        "a TYPE65280 \\# x",
        "2:16: error: the length of TYPE65280, \"x\", is no number in range; write the number of octets, 0 to 65535",
    );
    check_error(
        "a TYPE65280 \\# 2 ab",
        "2:16: error: the length is 2, but 1 octets follow; count the octets: two digits are one",
    );
    check_error(
        "a TYPE65280 \\# 0 ab",
        "2:16: error: the length is 0, but 1 octets follow; count the octets: two digits are one",
    );
    check_error(
        "a A \\# 3 ababab",
        "2:5: error: these octets are no A: its address ends too early; write the data in the fields of A",
    );
    check_error(
        "a MX \\# 4 0001 c00c",
        "2:6: error: these octets are no MX: its exchange is no uncompressed name; write the data in the fields of MX",
    );
}

#[test]
fn service_parameters() {
    let remedy = "write key, key=value or key=\"value\", as in alpn=h2,h3 port=8443";
    let check_value = |param: &str, expected: &str| {
        let key = param.split('=').next().unwrap_or_default();
        check_error(
            &format!("a HTTPS 1 . {param}"),
            &format!("2:13: error: the parameters of HTTPS, \"{param}\", is no {key} with {expected}; {remedy}"),
        );
    };
    check_value("port=65536", "a number from 0 to 65535");
    check_value("port", "a number from 0 to 65535");
    check_value("alpn=", "a list of protocols");
    check_value("alpn=h2,,h3", "a list of protocols");
    check_value("ipv4hint=192.0.2", "a list of IPv4 addresses");
    check_value("ipv6hint=::1,", "a list of IPv6 addresses");
    check_value("ech=A", "text in base 64");
    check_value("ohttp=1", "no value");
    check_value("mandatory=nope", "a list of keys");
    check_error(
        "a HTTPS 1 . nope=1",
        "2:13: error: the parameters of HTTPS, \"nope=1\", is no parameter that is known; write a key of RFC 9460 in lower case, or key65280",
    );
    check_error(
        "a HTTPS 1 . alpn=h2 port=1 alpn=h3",
        "2:28: error: the parameters of HTTPS, \"alpn=h3\", is no new parameter: alpn was there before; a key may stand once: put its values into one list",
    );
    let check_together = |params: &str, problem: &str| {
        check_error(
            &format!("a HTTPS 1 . {params}"),
            &format!("2:13: error: the parameters of HTTPS {problem}; see the RFC of HTTPS for what the field may be"),
        );
    };
    check_together("mandatory=port", "lack a key that mandatory lists");
    check_together("mandatory=port,port port=1", "have a key twice, or out of order, in the list of mandatory keys");
    check_together("mandatory=mandatory", "have mandatory in the list of mandatory keys");
    check_together("no-default-alpn", "have no-default-alpn without alpn");
    check_together("dohpath=/dns", "have a dohpath that is no template like /dns-query{?dns}");
    check_together("key3=53x", "have a port that is no number of 16 bits");
}

#[test]
fn places() {
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
fn all_errors_of_a_file_are_told_up_to_a_bound() {
    let faulty = "a A x\n".repeat(120);
    let found = lines(format!("$TTL 5\n{faulty}").as_bytes());
    assert_eq!(found.len(), 101);
    assert!(found[99].starts_with("101:5: error: the address of A"), "{}", found[99]);
    assert_eq!(
        found[100],
        "102:5: error: there are more than 100 errors; the rest was not read; mend the errors before this one first"
    );
    let limits = ParserLimits { errors_max: 0, ..ParserLimits::default() };
    let mut parser = Parser::new("a".into(), b"a\nb\n".to_vec(), apex(), limits);
    let Some(Err(error)) = parser.next() else { panic!("an error was expected") };
    assert_eq!(
        error_line(&error),
        "1:2: error: there are more than 0 errors; the rest was not read; mend the errors before this one first"
    );
    assert!(parser.next().is_none());
}

#[test]
fn records_are_at_most_65535_octets_long() {
    let strings = format!("a 5 TXT {}", "x".repeat(255).as_str().to_owned() + " ");
    let fits = format!("a 5 TXT {} {}\n", (strings[8..].to_owned()).repeat(255), "x".repeat(254));
    let mut parser = Parser::new("a".into(), fits.clone().into_bytes(), apex(), ParserLimits::default());
    assert!(matches!(parser.next(), Some(Ok(Entry::Record(record))) if record.rdata.len() == 65_535));
    let found = lines(fits.replace('\n', "x\n").as_bytes());
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("1:9: error: the text of TXT makes the record longer than 65535 octets"),
        "{}",
        found[0]
    );
}

/// Each of these would take minutes if its cost grew with the square of its length.
#[test]
fn huge_fields_are_refused_in_time() {
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
