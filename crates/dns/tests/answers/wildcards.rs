//! Wildcards: the example zone of RFC 4592 §2.2.1 and the types of RFC 4592 §4.

use super::check;

/// RFC 4592 §2.2.1, with data for its SOA and SRV.
const EXAMPLE: &str = r#"
    $ORIGIN example.
    $TTL 3600
    example. SOA ns.example.com. hostmaster.example. 1 2 3 4 5
    example. NS ns.example.com.
    example. NS ns.example.net.
    *.example. TXT "this is a wildcard"
    *.example. MX 10 host1.example.
    sub.*.example. TXT "this is not a wildcard"
    host1.example. A 192.0.2.1
    _ssh._tcp.host1.example. SRV 0 0 22 host1.example.
    _ssh._tcp.host2.example. SRV 0 0 22 host1.example.
    subdel.example. NS ns.example.com.
    subdel.example. NS ns.example.net.
"#;

const NODATA: &str = "NOERROR aa
    authority: example. 5 SOA ns.example.com. hostmaster.example. 1 2 3 4 5";
const NXDOMAIN: &str = "NXDOMAIN aa
    authority: example. 5 SOA ns.example.com. hostmaster.example. 1 2 3 4 5";

#[test]
fn synthesized_answers_2_2_1() {
    check(
        EXAMPLE,
        "host3.example. MX",
        "NOERROR aa
         answer: host3.example. 3600 MX 10 host1.example.
         additional: host1.example. 3600 A 192.0.2.1",
    );
    check(EXAMPLE, "host3.example. A", NODATA);
    check(
        EXAMPLE,
        "foo.bar.example. TXT",
        r#"NOERROR aa
         answer: foo.bar.example. 3600 TXT "this is a wildcard""#,
    );
}

#[test]
fn answers_without_synthesis_2_2_1() {
    // host1 exists.
    check(EXAMPLE, "host1.example. MX", NODATA);
    // sub.*.example exists.
    check(EXAMPLE, "sub.*.example. MX", NODATA);
    // _tcp.host1.example is an empty non-terminal without a wildcard child.
    check(EXAMPLE, "_telnet._tcp.host1.example. SRV", NXDOMAIN);
    check(
        EXAMPLE,
        "host.subdel.example. A",
        "NOERROR
         authority: subdel.example. 3600 NS ns.example.com.
         authority: subdel.example. 3600 NS ns.example.net.",
    );
    // *.example exists and is the closest encloser.
    check(EXAMPLE, "ghost.*.example. MX", NXDOMAIN);
}

#[test]
fn wildcard_itself_can_be_queried() {
    check(
        EXAMPLE,
        "*.example. TXT",
        r#"NOERROR aa
         answer: *.example. 3600 TXT "this is a wildcard""#,
    );
    check(
        EXAMPLE,
        "sub.*.example. TXT",
        r#"NOERROR aa
         answer: sub.*.example. 3600 TXT "this is not a wildcard""#,
    );
    check(EXAMPLE, "*.example. A", NODATA);
}

/// RFC 4592 §3.3.1: names, and whether `*.example.` is the source of their synthesis.
#[test]
fn closest_encloser_and_source_of_synthesis_3_3_1() {
    for (name, is_synthesized) in [
        ("host3.example.", true),
        ("_telnet._tcp.host1.example.", false),
        ("_dns._udp.host2.example.", false),
        ("_telnet._tcp.host3.example.", true),
        ("_chat._udp.host3.example.", true),
        ("foobar.*.example.", false),
    ] {
        let synthesized = format!("NOERROR aa\nanswer: {name} 3600 TXT \"this is a wildcard\"");
        check(EXAMPLE, &format!("{name} TXT"), if is_synthesized { &synthesized } else { NXDOMAIN });
    }
}

#[test]
fn empty_non_terminal_exists_2_2_2() {
    check(EXAMPLE, "host2.example. MX", NODATA);
    check(EXAMPLE, "_tcp.host2.example. MX", NODATA);
    check(EXAMPLE, "_tcp.Host1.example. ANY", NODATA);
}

#[test]
fn label_with_other_bytes_beside_the_asterisk_is_not_a_wildcard_2_1_1() {
    let zone = "$ORIGIN example.
        $TTL 60
        example. SOA ns h 1 2 3 4 5
        example. NS ns
        ns A 192.0.2.53
        *a.example. A 192.0.2.1
        **.b.example. A 192.0.2.2";
    let none = "NXDOMAIN aa\nauthority: example. 5 SOA ns.example. h.example. 1 2 3 4 5";
    check(zone, "xa.example. A", none);
    check(zone, "x.b.example. A", none);
    check(zone, "*a.example. A", "NOERROR aa\nanswer: *a.example. 60 A 192.0.2.1");
}

/// A zone in which `*.w.example.` has `record`.
fn wildcard_of(record: &str) -> String {
    format!(
        "$ORIGIN example.
        $TTL 60
        example. SOA ns h 1 2 3 4 5
        example. NS ns
        ns A 192.0.2.53
        t.example. A 192.0.2.7
        *.w.example. {record}
        "
    )
}

#[test]
fn wildcard_ns_is_data_4_2() {
    // Not a delegation: the NS records are synthesized as any other data.
    let zone = wildcard_of("NS ns.example.");
    let nodata = "NOERROR aa\nauthority: example. 5 SOA ns.example. h.example. 1 2 3 4 5";
    check(&zone, "x.w.example. A", nodata);
    check(
        &zone,
        "x.w.example. NS",
        "NOERROR aa
         answer: x.w.example. 60 NS ns.example.
         additional: ns.example. 60 A 192.0.2.53",
    );
}

#[test]
fn wildcard_cname_is_followed_4_3() {
    let zone = wildcard_of("CNAME t.example.");
    check(
        &zone,
        "x.y.W.example. A",
        "NOERROR aa
         answer: x.y.W.example. 60 CNAME t.example.
         answer: t.example. 60 A 192.0.2.7",
    );
    check(&zone, "x.w.example. CNAME", "NOERROR aa\nanswer: x.w.example. 60 CNAME t.example.");
    check(&zone, "x.w.example. ANY", "NOERROR aa\nanswer: x.w.example. 60 CNAME t.example.");
}

#[test]
fn wildcard_cname_to_a_name_that_it_covers_is_a_loop() {
    // The wildcard covers its own target: a loop, written once.
    check(
        &wildcard_of("CNAME x.w.example."),
        "y.w.example. A",
        "NOERROR aa
         answer: y.w.example. 60 CNAME x.w.example.
         answer: x.w.example. 60 CNAME x.w.example.",
    );
}

#[test]
fn wildcard_srv_4_5() {
    check(
        &wildcard_of("SRV 0 0 80 t.example."),
        "_x._tcp.w.example. SRV",
        "NOERROR aa
         answer: _x._tcp.w.example. 60 SRV 0 0 80 t.example.
         additional: t.example. 60 A 192.0.2.7",
    );
}

#[test]
fn empty_wildcard_exists_4_9() {
    let zone = wildcard_of("A 192.0.2.1").replace("*.w.example.", "sub.*.w.example.");
    let nodata = "NOERROR aa\nauthority: example. 5 SOA ns.example. h.example. 1 2 3 4 5";
    check(&zone, "x.w.example. A", nodata);
    check(&zone, "x.y.w.example. A", nodata);
    check(&zone, "*.w.example. A", nodata);
    check(&zone, "sub.*.w.example. A", "NOERROR aa\nanswer: sub.*.w.example. 60 A 192.0.2.1");
}

#[test]
fn wildcard_directly_below_the_apex() {
    let zone = wildcard_of("A 192.0.2.1").replace("*.w.example.", "*.example.");
    check(&zone, "a.b.c.d.example. A", "NOERROR aa\nanswer: a.b.c.d.example. 60 A 192.0.2.1");
    // t exists and has no wildcard child.
    check(&zone, "a.t.example. A", "NXDOMAIN aa\nauthority: example. 5 SOA ns.example. h.example. 1 2 3 4 5");
}

#[test]
fn wildcard_below_a_wildcard() {
    let zone = wildcard_of("A 192.0.2.1") + "*.*.w.example. A 192.0.2.2";
    check(&zone, "x.w.example. A", "NOERROR aa\nanswer: x.w.example. 60 A 192.0.2.1");
    check(&zone, "y.x.w.example. A", "NOERROR aa\nanswer: y.x.w.example. 60 A 192.0.2.1");
    check(&zone, "y.*.w.example. A", "NOERROR aa\nanswer: y.*.w.example. 60 A 192.0.2.2");
    check(&zone, "*.*.w.example. A", "NOERROR aa\nanswer: *.*.w.example. 60 A 192.0.2.2");
}
