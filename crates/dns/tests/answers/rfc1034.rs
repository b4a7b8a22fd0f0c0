//! The examples of RFC 1034 §6: the zones of §6.1 and the queries of §6.2.

use super::check;

/// RFC 1034 §6.1, its first zone alone.
const ROOT: &str = "
    $ORIGIN .
    $TTL 86400
    . SOA SRI-NIC.ARPA. HOSTMASTER.SRI-NIC.ARPA. 870611 1800 300 604800 86400
    . NS A.ISI.EDU.
    . NS C.ISI.EDU.
    . NS SRI-NIC.ARPA.
    MIL. NS SRI-NIC.ARPA.
    MIL. NS A.ISI.EDU.
    EDU. NS SRI-NIC.ARPA.
    EDU. NS C.ISI.EDU.
    SRI-NIC.ARPA. A 26.0.0.73
    SRI-NIC.ARPA. A 10.0.0.51
    SRI-NIC.ARPA. MX 0 SRI-NIC.ARPA.
    SRI-NIC.ARPA. HINFO DEC-2060 TOPS20
    ACC.ARPA. A 26.6.0.65
    ACC.ARPA. HINFO PDP-11/70 UNIX
    ACC.ARPA. MX 10 ACC.ARPA.
    USC-ISIC.ARPA. CNAME C.ISI.EDU.
    73.0.0.26.IN-ADDR.ARPA. PTR SRI-NIC.ARPA.
    65.0.6.26.IN-ADDR.ARPA. PTR ACC.ARPA.
    51.0.0.10.IN-ADDR.ARPA. PTR SRI-NIC.ARPA.
    52.0.0.10.IN-ADDR.ARPA. PTR C.ISI.EDU.
    103.0.3.26.IN-ADDR.ARPA. PTR A.ISI.EDU.
    A.ISI.EDU. A 26.3.0.103
    C.ISI.EDU. A 10.0.0.52
";

/// RFC 1034 §6.1, its second zone.
const EDU: &str = "
    $ORIGIN EDU.
    $TTL 172800
    EDU. 86400 SOA SRI-NIC.ARPA. HOSTMASTER.SRI-NIC.ARPA. 870729 1800 300 604800 86400
    EDU. 86400 NS SRI-NIC.ARPA.
    EDU. 86400 NS C.ISI.EDU.
    UCI NS ICS.UCI
    UCI NS ROME.UCI
    ICS.UCI A 192.5.19.1
    ROME.UCI A 192.5.19.31
    ISI NS VAXA.ISI
    ISI NS A.ISI
    ISI NS VENERA.ISI.EDU.
    VAXA.ISI A 10.2.0.27
    VAXA.ISI A 128.9.0.33
    VENERA.ISI.EDU. A 10.1.0.52
    VENERA.ISI.EDU. A 128.9.0.32
    A.ISI A 26.3.0.103
    UDEL.EDU. NS LOUIE.UDEL.EDU.
    UDEL.EDU. NS UMN-REI-UC.ARPA.
    LOUIE.UDEL.EDU. A 10.0.0.96
    LOUIE.UDEL.EDU. A 192.5.39.3
    YALE.EDU. NS YALE.ARPA.
    YALE.EDU. NS YALE-BULLDOG.ARPA.
    MIT.EDU. 43200 NS XX.LCS.MIT.EDU.
    MIT.EDU. 43200 NS ACHILLES.MIT.EDU.
    XX.LCS.MIT.EDU. 43200 A 10.0.0.44
    ACHILLES.MIT.EDU. 43200 A 18.72.0.8
";

#[test]
fn address_query_6_2_1() {
    check(
        ROOT,
        "SRI-NIC.ARPA. A",
        "NOERROR aa
         answer: SRI-NIC.ARPA. 86400 A 26.0.0.73
         answer: SRI-NIC.ARPA. 86400 A 10.0.0.51",
    );
}

#[test]
fn any_query_6_2_2() {
    // RFC 8482 §4.1 allows one RRset; RFC 1034 demanded all.
    check(
        ROOT,
        "SRI-NIC.ARPA. ANY",
        "NOERROR aa
         answer: SRI-NIC.ARPA. 86400 A 26.0.0.73
         answer: SRI-NIC.ARPA. 86400 A 10.0.0.51",
    );
}

#[test]
fn mx_query_with_additional_addresses_6_2_3() {
    check(
        ROOT,
        "SRI-NIC.ARPA. MX",
        "NOERROR aa
         answer: SRI-NIC.ARPA. 86400 MX 0 SRI-NIC.ARPA.
         additional: SRI-NIC.ARPA. 86400 A 26.0.0.73
         additional: SRI-NIC.ARPA. 86400 A 10.0.0.51",
    );
}

#[test]
fn nodata_6_2_4() {
    // RFC 2308 §3 added the SOA.
    check(
        ROOT,
        "SRI-NIC.ARPA. NS",
        "NOERROR aa
         authority: . 86400 SOA SRI-NIC.ARPA. HOSTMASTER.SRI-NIC.ARPA. 870611 1800 300 604800 86400",
    );
}

#[test]
fn nxdomain_6_2_5() {
    check(
        ROOT,
        "SIR-NIC.ARPA. A",
        "NXDOMAIN aa
         authority: . 86400 SOA SRI-NIC.ARPA. HOSTMASTER.SRI-NIC.ARPA. 870611 1800 300 604800 86400",
    );
}

#[test]
fn referral_6_2_6() {
    // A.ISI.EDU is below another delegation point: sibling glue (RFC 9471 §3.2).
    check(
        ROOT,
        "BRL.MIL. A",
        "NOERROR
         authority: MIL. 86400 NS SRI-NIC.ARPA.
         authority: MIL. 86400 NS A.ISI.EDU.
         additional: SRI-NIC.ARPA. 86400 A 26.0.0.73
         additional: SRI-NIC.ARPA. 86400 A 10.0.0.51
         additional: A.ISI.EDU. 86400 A 26.3.0.103",
    );
}

#[test]
fn cname_to_a_delegated_name_6_2_7() {
    // Labels compressed against the delegation point have its stored spelling.
    check(
        ROOT,
        "USC-ISIC.ARPA. A",
        "NOERROR aa
         answer: USC-ISIC.ARPA. 86400 CNAME C.ISI.EDU.
         authority: edu. 86400 NS SRI-NIC.ARPA.
         authority: edu. 86400 NS C.ISI.edu.
         additional: SRI-NIC.ARPA. 86400 A 26.0.0.73
         additional: SRI-NIC.ARPA. 86400 A 10.0.0.51
         additional: C.ISI.edu. 86400 A 10.0.0.52",
    );
}

#[test]
fn cname_query_6_2_8() {
    check(
        ROOT,
        "USC-ISIC.ARPA. CNAME",
        "NOERROR aa
         answer: USC-ISIC.ARPA. 86400 CNAME C.ISI.EDU.",
    );
}

#[test]
fn child_zone_answers_if_it_is_served_too() {
    let both = format!("{ROOT}{EDU}");
    check(
        &both,
        "GW.UDEL.EDU. A",
        "NOERROR
         authority: UDEL.EDU. 172800 NS LOUIE.UDEL.EDU.
         authority: UDEL.EDU. 172800 NS UMN-REI-UC.ARPA.
         additional: LOUIE.UDEL.EDU. 172800 A 10.0.0.96
         additional: LOUIE.UDEL.EDU. 172800 A 192.5.39.3",
    );
    check(
        &both,
        "EDU. NS",
        "NOERROR aa
         answer: EDU. 86400 NS SRI-NIC.ARPA.
         answer: EDU. 86400 NS C.ISI.EDU.",
    );
}

#[test]
fn name_servers_without_address_in_the_zone_have_no_glue() {
    check(
        EDU,
        "CS.YALE.EDU. MX",
        "NOERROR
         authority: YALE.EDU. 172800 NS YALE.ARPA.
         authority: YALE.EDU. 172800 NS YALE-BULLDOG.ARPA.",
    );
}

#[test]
fn reverse_lookup_6_3() {
    check(
        ROOT,
        "65.0.6.26.IN-ADDR.ARPA. PTR",
        "NOERROR aa
         answer: 65.0.6.26.IN-ADDR.ARPA. 86400 PTR ACC.ARPA.",
    );
    // IN-ADDR.ARPA is an empty non-terminal.
    check(
        ROOT,
        "6.26.IN-ADDR.ARPA. PTR",
        "NOERROR aa
         authority: . 86400 SOA SRI-NIC.ARPA. HOSTMASTER.SRI-NIC.ARPA. 870611 1800 300 604800 86400",
    );
}

#[test]
fn case_of_qname_is_preserved() {
    check(
        ROOT,
        "sRi-NiC.aRpA. A",
        "NOERROR aa
         answer: sRi-NiC.aRpA. 86400 A 26.0.0.73
         answer: sRi-NiC.aRpA. 86400 A 10.0.0.51",
    );
    check(
        EDU,
        "www.YaLe.edU. A",
        "NOERROR
         authority: YaLe.edU. 172800 NS YALE.ARPA.
         authority: YaLe.edU. 172800 NS YALE-BULLDOG.ARPA.",
    );
}
