//! Aliases with generated names: the limit of a chain, substitutions of DNAME, names that are too long.

use super::support::exchange::ask;
use super::support::question::Question;
use super::support::reply::Reply;
use super::support::zone_text::zone_map;
use sanderling_dns::Rtype;

/// The reply for a chain of `count` aliases with names of about 60 × `padding` bytes, of which the server follows
/// `limit`. The last alias leads to a name with the data `end`.
fn chain_reply(count: usize, padding: usize, end: &str, limit: usize) -> Reply {
    let suffix = format!("{}.", "x".repeat(60)).repeat(padding) + "z.";
    let link = |index| format!("c{index}.{suffix} CNAME C{}.{suffix}\n", index + 1);
    let links: String = (0..count).map(link).collect();
    let zones = zone_map(&format!("$ORIGIN z.\n{links}c{count}.{suffix} {end}")).with_cname_chain_max(limit);
    ask(&zones, &Question::parse(&format!("c0.{suffix} A +tcp +edns")))
}

#[track_caller]
fn check_chain(count: usize, padding: usize, limit: usize) {
    let reply = chain_reply(count, padding, "A 192.0.2.1", limit);
    let types: Vec<Rtype> = reply.sections[0].iter().map(|record| record.rtype).collect();
    let mut expected = vec![Rtype::CNAME; count.min(limit)];
    expected.extend((count <= limit).then_some(Rtype::A));
    assert_eq!(types, expected, "{count} aliases, {limit} followed");
    assert_eq!((reply.rcode, reply.sections[1].len()), (0, 0));
    for pair in reply.sections[0].windows(2) {
        assert_eq!(pair[0].rdata, pair[1].owner, "each link holds");
    }
}

#[test]
fn cname_chain_is_followed_up_to_its_limit() {
    for limit in [1, 2, 15, 16, 17, 64] {
        for chain_count in [limit - 1, limit, limit + 1] {
            check_chain(chain_count, 0, limit);
        }
    }
    // The highest limit is 64.
    check_chain(64, 0, 100);
}

#[test]
fn cname_chain_beyond_the_reach_of_pointers() {
    // 64 names of about 250 bytes: from byte 16,384 on, owners are not compressed.
    for chain_count in [60, 61, 62, 63, 64] {
        check_chain(chain_count, 4, 64);
    }
}

#[test]
fn long_cname_chain_to_nxdomain_has_the_soa() {
    let reply = chain_reply(63, 4, "CNAME missing.z.", 64);
    assert_eq!((reply.rcode, reply.sections[0].len(), reply.sections[1].len()), (3, 64, 1));
    assert_eq!(reply.sections[1][0].to_string(), "z. 5 SOA ns.a. h.a. 1 2 3 4 5");
}

/// Checks a row of RFC 6672 §2.2, table 1. The result is `None` for no match.
#[track_caller]
fn check_substitution(name: &str, owner: &str, target: &str, result: Option<&str>) {
    let apex = owner.rsplit('.').nth(1).expect("a label before the root");
    let zones = zone_map(&format!("$ORIGIN {apex}.\n{owner} DNAME {target}"));
    let reply = ask(&zones, &Question::parse(&format!("{name} A +tcp")));
    let made = reply.sections[0].get(..2).map(|records| [records[0].to_string(), records[1].to_string()]);
    let expected = result.map(|result| [format!("{owner} 60 DNAME {target}"), format!("{name} 60 CNAME {result}")]);
    assert_eq!(made, expected, "{name}\n{reply}");
}

#[test]
fn dname_substitutions_of_rfc_6672_table_1() {
    check_substitution("com.", "example.com.", "example.net.", None);
    check_substitution("example.com.", "example.com.", "example.net.", None);
    check_substitution("a.example.com.", "example.com.", "example.net.", Some("a.example.net."));
    check_substitution("a.b.example.com.", "example.com.", "example.net.", Some("a.b.example.net."));
    check_substitution("ab.example.com.", "b.example.com.", "example.net.", None);
    check_substitution("foo.example.com.", "example.com.", "example.net.", Some("foo.example.net."));
    check_substitution("a.x.example.com.", "x.example.com.", "example.net.", Some("a.example.net."));
    check_substitution("a.example.com.", "example.com.", "y.example.net.", Some("a.y.example.net."));
    check_substitution("cyc.example.com.", "example.com.", "example.com.", Some("cyc.example.com."));
    check_substitution("cyc.example.com.", "example.com.", "c.example.com.", Some("cyc.c.example.com."));
    check_substitution("shortloop.x.x.", "x.", ".", Some("shortloop.x."));
    check_substitution("shortloop.x.", "x.", ".", Some("shortloop."));
}

/// Checks RCODE, number of answer records and length of the first CNAME's target, for a DNAME at `d.example.`.
#[track_caller]
fn check_dname(target: &str, prefix: &str, rcode: u16, answer_count: usize, target_bytes: Option<usize>) {
    let zones = zone_map(&format!("$ORIGIN example.\nd DNAME {target}"));
    let reply = ask(&zones, &Question::parse(&format!("{prefix}.d.example. A +tcp")));
    assert_eq!((reply.rcode, reply.sections[0].len()), (rcode, answer_count), "{reply}");
    let found = reply.sections[0].get(1).map(|cname| cname.rdata.len());
    assert!(target_bytes.is_none() || found == target_bytes, "{reply}");
}

#[test]
fn name_that_grows_with_each_dname_ends_in_yxdomain_or_at_the_chain_limit() {
    let check = |label: &str, rcode: u16, answer_count: usize| {
        let zones = zone_map(&format!("$ORIGIN example.\nd DNAME {label}.e\ne DNAME d"));
        let reply = ask(&zones, &Question::parse("x.d.example. A +tcp"));
        assert_eq!((reply.rcode, reply.sections[0].len()), (rcode, answer_count), "{reply}");
    };
    // Three times 61 bytes fit, the fourth does not.
    check(&"y".repeat(60), 6, 2 + 6);
    check("a", 0, 2 + 16);
}

#[test]
fn dname_to_a_name_below_itself_is_applied_once() {
    for target in ["d", "a.d", "a.b.d"] {
        check_dname(target, "x", 0, 2, None);
    }
}

#[test]
fn dname_with_too_long_result_is_yxdomain_rfc_6672_section_2_2() {
    let target = [&*"y".repeat(63); 3].join(".");
    check_dname(&target, &"z".repeat(52), 3, 2, Some(254));
    check_dname(&target, &"z".repeat(53), 3, 2, Some(255));
    check_dname(&target, &"z".repeat(54), 6, 1, None);
}
