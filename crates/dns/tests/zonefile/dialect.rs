//! The meaning of zone files: directives, owners, TTLs, classes, strings, escapes.

use super::{check, lines};

#[track_caller]
fn check_alone(text: &str, expected: &[&str]) {
    check_records(text.as_bytes(), expected);
}

/// Checks the records of `text`, whatever the warnings of the parser.
#[track_caller]
fn check_records(text: &[u8], expected: &[&str]) {
    let records: Vec<String> = lines(text).into_iter().filter(|line| !line.contains(": warning: ")).collect();
    assert_eq!(records, expected, "\n{}", String::from_utf8_lossy(text));
}

#[test]
fn owners_are_relative_absolute_escaped_or_repeated() {
    check("a A 192.0.2.1\n", &["a.example. 300 A 192.0.2.1"]);
    check("a.b A 192.0.2.1\n", &["a.b.example. 300 A 192.0.2.1"]);
    check("A.Example. A 192.0.2.1\n", &["A.Example. 300 A 192.0.2.1"]);
    check("@ A 192.0.2.1\n", &["example. 300 A 192.0.2.1"]);
    check("* A 192.0.2.1\n", &["*.example. 300 A 192.0.2.1"]);
    check("\\@ A 192.0.2.1\n", &["\\@.example. 300 A 192.0.2.1"]);
    check("\"@\" A 192.0.2.1\n", &["\\@.example. 300 A 192.0.2.1"]);
    check("\"b c\" A 192.0.2.1\n", &["b\\032c.example. 300 A 192.0.2.1"]);
    check("\\$ORIGIN A 192.0.2.1\n", &["\\$ORIGIN.example. 300 A 192.0.2.1"]);
    check("\\097 A 192.0.2.1\n", &["a.example. 300 A 192.0.2.1"]);
    check("a\\;b A 192.0.2.1\n", &["a\\;b.example. 300 A 192.0.2.1"]);
    check("\\195\\188 A 192.0.2.1\n", &["\\195\\188.example. 300 A 192.0.2.1"]);
    check("a\\000 A 192.0.2.1\n", &["a\\000.example. 300 A 192.0.2.1"]);
    check("a A 192.0.2.1\n  A 192.0.2.2\n", &["a.example. 300 A 192.0.2.1", "a.example. 300 A 192.0.2.2"]);
    check("a A 192.0.2.1\n\n;\n\tA 192.0.2.2", &["a.example. 300 A 192.0.2.1", "a.example. 300 A 192.0.2.2"]);
    // Types and classes are owners in place of an owner.
    check("NS A 192.0.2.1\nIN A 192.0.2.1\n", &["NS.example. 300 A 192.0.2.1", "IN.example. 300 A 192.0.2.1"]);
    check("1h A 192.0.2.1\n", &["1h.example. 300 A 192.0.2.1"]);
}

#[test]
fn ttl_and_class_are_read_in_any_order() {
    for (head, ttl_s) in [
        ("", 300),
        ("IN", 300),
        ("in", 300),
        ("CLASS1", 300),
        ("60", 60),
        ("60 IN", 60),
        ("IN 60", 60),
        ("0", 0),
        ("1h30m", 5400),
        ("IN 1H30M5s", 5405),
        ("1w", 604_800),
        ("2147483647", 2_147_483_647),
    ] {
        check(format!("a {head} A 192.0.2.1\n"), &[&format!("a.example. {ttl_s} A 192.0.2.1")]);
    }
}

#[test]
fn record_without_ttl_gets_the_default() {
    let soa = "@ SOA ns h 1 2 3 4 5";
    // MINIMUM of the SOA, without any TTL before.
    check_alone(
        &format!("{soa}\na A 192.0.2.1\n"),
        &["example. 5 SOA ns.example. h.example. 1 2 3 4 5", "a.example. 5 A 192.0.2.1"],
    );
    // The TTL of the last record that has one, without $TTL (RFC 1035 §5.1).
    check_alone(
        "@ 7 SOA ns h 1 2 3 4 5\na A 192.0.2.1\nb 9 A 192.0.2.1\nc A 192.0.2.1\n",
        &[
            "example. 7 SOA ns.example. h.example. 1 2 3 4 5",
            "a.example. 7 A 192.0.2.1",
            "b.example. 9 A 192.0.2.1",
            "c.example. 9 A 192.0.2.1",
        ],
    );
    // $TTL (RFC 2308 §4).
    check_alone(
        "$TTL 1h\na 9 A 192.0.2.1\nb A 192.0.2.1\n$TTL 1d\nc A 192.0.2.1\n",
        &["a.example. 9 A 192.0.2.1", "b.example. 3600 A 192.0.2.1", "c.example. 86400 A 192.0.2.1"],
    );
}

#[test]
fn origin_applies_to_relative_names() {
    check("$ORIGIN sub\na A 192.0.2.1\n", &["a.sub.example. 300 A 192.0.2.1"]);
    check("$origin sub.example.\n@ A 192.0.2.1\n", &["sub.example. 300 A 192.0.2.1"]);
    check("$ORIGIN sub\n$ORIGIN b ; comment\na NS @\n", &["a.b.sub.example. 300 NS b.sub.example."]);
    check("$ORIGIN .\nexample NS a\n", &["example. 300 NS a."]);
    check("$ORIGIN other.\na.example. NS @\n", &["a.example. 300 NS other."]);
}

#[test]
fn blanks_comments_and_parentheses_are_ignored() {
    let expected = &["a.example. 300 MX 10 b.example."];
    check("a MX 10 b", expected);
    check("a MX 10 b\r\n", expected);
    check("a\tMX\t10\tb ; comment", expected);
    check("a MX 10 b;comment ( \"", expected);
    check("\n\n; comment\n \n\t; comment\na MX 10 b\n\n", expected);
    check("a MX (\n 10 ; ten (\n b\n)\n", expected);
    check("(a\nMX\n10\nb)\n", expected);
    check("a MX ((10) (b))\n", expected);
    check("a(MX)10(b)\n", expected);
    check("a MX 10 \"b\"\n", expected);
    check_records(
        b"$TTL 300\na MX 10 b\n\xef\xbb\xbf MX 10 b\n",
        &[expected[0], "\\239\\187\\191.example. 300 MX 10 b.example."],
    );
    assert_eq!(lines(b"\xef\xbb\xbf@ 5 NS a\n"), ["example. 5 NS a.example."]);
    check("$DATE 20260101000000\na MX 10 b\n", expected);
    check("", &[]);
    check(" ", &[]);
    check("()\n(\n)\n ( )", &[]);
}

#[test]
fn names_in_rdata_are_relative_or_absolute() {
    check("a CNAME @\n", &["a.example. 300 CNAME example."]);
    check("a CNAME \\@\n", &["a.example. 300 CNAME \\@.example."]);
    check("a CNAME .\n", &["a.example. 300 CNAME ."]);
    check("a CNAME B.Example.\n", &["a.example. 300 CNAME B.Example."]);
    check("$ORIGIN sub\na SRV 0 0 0 @\n", &["a.sub.example. 300 SRV 0 0 0 sub.example."]);
}

#[test]
fn strings_are_quoted_or_escaped() {
    let txt = |text: &str| format!("a.example. 300 TXT {text}");
    check("a TXT b c\n", &[&txt("\"b\" \"c\"")]);
    check("a TXT \"b c\"\n", &[&txt("\"b c\"")]);
    check("a TXT \"b\"\"c\"d\n", &[&txt("\"b\" \"c\" \"d\"")]);
    check("a TXT b\"c d\"e\n", &[&txt("\"b\" \"c d\" \"e\"")]);
    check("a TXT \"\"\n", &[&txt("\"\"")]);
    check("a TXT \"b;c(d)\" ; e\n", &[&txt("\"b;c(d)\"")]);
    check("a TXT b\\;c\\032d\\\"\n", &[&txt("\"b;c d\\\"\"")]);
    check("a TXT \"b\\\\\" \"\\065\\000\\255\"\n", &[&txt("\"b\\\\\" \"A\\000\\255\"")]);
    check("a TXT ü\n", &[&txt("\"\\195\\188\"")]);
    check("a TXT @ . \\# $x\n", &[&txt("\"@\" \".\" \"#\" \"$x\"")]);
}

#[test]
fn strings_over_255_bytes_are_split() {
    for length in [255, 256, 510, 511, 700] {
        let long = "x".repeat(length);
        let pieces: Vec<String> =
            long.as_bytes().chunks(255).map(|piece| format!("\"{}\"", "x".repeat(piece.len()))).collect();
        let expected = format!("a.example. 300 TXT \"b\" {} \"c\"", pieces.join(" "));
        check_records(format!("a 300 TXT b {long} c\n").as_bytes(), &[&expected]);
    }
}

#[test]
fn types_and_rdata_are_read_in_the_form_of_rfc_3597() {
    check("a TYPE1 192.0.2.1\n", &["a.example. 300 A 192.0.2.1"]);
    check("a type65280 \\# 4 0a00 0001\n", &["a.example. 300 TYPE65280 \\# 4 0A000001"]);
    check("a TYPE65280 \\# 0\n", &["a.example. 300 TYPE65280 \\# 0"]);
    check("a TYPE65280 \\# (\n3 ABC\nDEF )\n", &["a.example. 300 TYPE65280 \\# 3 ABCDEF"]);
    check("a A \\# 4 c0000201\n", &["a.example. 300 A 192.0.2.1"]);
    check("a TYPE15 \\# 5 000A 01 62 00\n", &["a.example. 300 MX 10 b."]);
    check("a NULL \\# 2 abcd\n", &["a.example. 300 NULL \\# 2 ABCD"]);
}

#[test]
fn generate_expands_placeholders() {
    check(
        "$GENERATE 1-3 a$ A 192.0.2.$\n",
        &["a1.example. 300 A 192.0.2.1", "a2.example. 300 A 192.0.2.2", "a3.example. 300 A 192.0.2.3"],
    );
    check(
        "$GENERATE 0-5/2 $ 60 IN CNAME $.b\n",
        &["0.example. 60 CNAME 0.b.example.", "2.example. 60 CNAME 2.b.example.", "4.example. 60 CNAME 4.b.example."],
    );
    check("$GENERATE 9-9 a${1} A 192.0.2.${-9}\n", &["a10.example. 300 A 192.0.2.0"]);
    check(
        "$GENERATE 9-9 ${0,3,d}-${0,3,o}-${246,4,x}-${246,0,X} A 192.0.2.1\n",
        &["009-011-00ff-FF.example. 300 A 192.0.2.1"],
    );
    check("$GENERATE 10-10 ${0,4,n}x.${0,3,N}.y NS .\n", &["a.0.x.A.0.y.example. 300 NS ."]);
    check("$GENERATE 300-300 ${0,1,n} NS .\n", &["c.2.1.example. 300 NS ."]);
    check("$GENERATE 1-1 a TXT \"$ $$ \\$\"\n", &["a.example. 300 TXT \"1\" \"$\" \"$\""]);
    check("$GENERATE 1-1 a TXT \"$\" \"b $\"\n", &["a.example. 300 TXT \"1\" \"b 1\""]);
    check("$GENERATE 1-2 a MX \"1$ b$\"\n", &["a.example. 300 MX 11 b1.example.", "a.example. 300 MX 12 b2.example."]);
    check("$GENERATE 1-1 $$ORIGIN NS .\n", &["\\$ORIGIN.example. 300 NS ."]);
    check(
        "$GENERATE 1-1 a (A\n 192.0.2.$ ; c\n)\nb A 192.0.2.2\n",
        &["a.example. 300 A 192.0.2.1", "b.example. 300 A 192.0.2.2"],
    );
    check("$GENERATE 2147483647-2147483647 a${0} TXT $\n", &["a2147483647.example. 300 TXT \"2147483647\""]);
}

#[test]
fn alias_is_a_line_as_a_record_and_its_ttl_has_no_effect() {
    check(
        "@ ALIAS www.host.test.\n 1h IN alias b.\nx IN 5 Alias www.host.test. ; comment\n\
         $GENERATE 1-2 y$ ALIAS h$.host.test.\n$ORIGIN other.\nz.example. ALIAS h\n",
        &[
            "example. ALIAS www.host.test.",
            "example. ALIAS b.",
            "x.example. ALIAS www.host.test.",
            "y1.example. ALIAS h1.host.test.",
            "y2.example. ALIAS h2.host.test.",
            "z.example. ALIAS h.other.",
        ],
    );
}
