//! The accepted differences between correct replies, each with its reason.

use crate::peer::Program;
use crate::support::question::Question;
use crate::support::reply::{Reply, ReplyRecord};
use sanderling_dns::{Name, Rtype, ZoneEntry, ZoneMap};

/// The reason why a reply may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Clause {
    /// RFC 8482 §4.1: each program selects another of the RRsets.
    AnyOfSeveral,
    /// RFC 1183 §1, RFC 2230 §3.1 and RFC 9460 §4.1: these types have an additional section, which some programs omit.
    AdditionalOmitted,
    /// RFC 9471 §3.2: addresses with a referral are optional, except for those below the delegation point.
    SiblingGlue,
    /// RFC 4035 §3.1.4.1: without the parent zone, the DS of an apex is answered with NODATA from the zone itself. The
    /// others refer to the parent zone's servers, if a zone above it is served.
    DsWithoutParent,
    /// RFC 1034 §3.6.2 leaves open where a loop of aliases ends. NSD stops at the first name that is repeated, or that
    /// a DNAME makes longer and longer; Knot and BIND write records twice, or answer SERVFAIL.
    EndOfLoop,
    /// RFC 1034 §4.3.2 step 3a: the target of an alias is looked up from step 2 on, as by NSD; the others stay in the
    /// zone. For the DS of an apex, that is the parent zone (RFC 4035 §3.1.4.1).
    AliasIntoOtherZone,
    /// RFC 4034 §3 and §4: RRSIG and NSEC records may be beside a CNAME, so it is not followed for them. NSD follows
    /// it.
    DnssecOfAlias,
    /// RFC 8482 §7: some programs select a few of the signatures of a name.
    SomeSignatures,
    /// RFC 4035 §3.1.3.4: a wildcard without records of its own is denied the type by the NSEC record before it. Knot
    /// and BIND omit that record; NSD answers with NXDOMAIN (RFC 4592 §2.2.2).
    EmptyWildcard,
    /// RFC 5155 §7.2.4 and §7.2.5: for the DS of a name that a wildcard matches and Opt-Out covers, the record of the
    /// wildcard may be left out, as by NSD and Knot.
    DsOfWildcard,
    /// RFC 4592 §4.4 leaves open what the DNAME of a wildcard does.
    DnameOfWildcard,
    /// RFC 4592 §4.2 leaves open what the NS RRset of a wildcard does to names that match it.
    NsOfWildcard,
}

/// The clause that allows `ours` beside `theirs`.
pub(crate) fn of(map: &ZoneMap, question: &Question, ours: &Reply, theirs: &[(Program, &Reply)]) -> Option<Clause> {
    let is_same_section = |other: &Reply, section: usize| other.set_of(section) == ours.set_of(section);
    let has_same_head = |reply: &&Reply| reply.rcode == ours.rcode && reply.flags == ours.flags;
    let alike = theirs.iter().map(|(_, reply)| *reply).filter(has_same_head);
    let has_ns_of_wildcard = |reply: &Reply| {
        let mut records = reply.sections.iter().flatten();
        records.any(|record| record.rtype == Rtype::NS && record.owner.starts_with(b"\x01*"))
    };
    if theirs.iter().any(|(_, reply)| has_ns_of_wildcard(reply)) {
        return Some(Clause::NsOfWildcard);
    }
    if question.rtype == Rtype::ANY && alike.clone().any(|reply| !reply.sections[0].is_empty()) {
        return (!ours.sections[0].is_empty()).then_some(Clause::AnyOfSeveral);
    }
    let has_signature = |reply: &Reply| !reply.sections[0].is_empty() || reply.is_truncated();
    if question.rtype == Rtype::RRSIG && theirs.iter().any(|(_, reply)| has_signature(reply)) {
        return has_signature(ours).then_some(Clause::SomeSignatures);
    }
    if matches!(question.rtype, Rtype::AFSDB | Rtype::KX | Rtype::SVCB | Rtype::HTTPS) {
        let is_bare = |reply: &Reply| reply.sections[2].is_empty();
        if alike.clone().any(|reply| is_bare(reply) && is_same_section(reply, 0) && is_same_section(reply, 1)) {
            return Some(Clause::AdditionalOmitted);
        }
    }
    let without = without_proof_of_empty_wildcard(&ours.sections[1]);
    if alike.clone().any(|reply| is_same_section(reply, 0) && without.contains(&reply.set_of(1))) {
        return Some(Clause::EmptyWildcard);
    }
    let has_nsec3 = ours.sections[1].iter().any(|record| record.rtype == Rtype::NSEC3);
    if question.rtype == Rtype::DS && has_nsec3 && alike.clone().any(|reply| is_same_section(reply, 1)) {
        return Some(Clause::DsOfWildcard);
    }
    if ours.sections[0].iter().any(|record| record.rtype == Rtype::DNAME && record.owner.starts_with(b"\x01*")) {
        return Some(Clause::DnameOfWildcard);
    }
    let is_of_child = ours.sections[1].first().is_some_and(|soa| soa.owner.eq_ignore_ascii_case(&question.name));
    if question.rtype == Rtype::DS && is_of_child && theirs.iter().all(|(_, reply)| !reply.is_authoritative()) {
        return Some(Clause::DsWithoutParent);
    }
    let glue = required_glue(ours);
    let has_same_glue = |reply: &Reply| is_same_section(reply, 1) && required_glue(reply) == glue;
    if glue.is_some() && alike.clone().any(has_same_glue) {
        return Some(Clause::SiblingGlue);
    }
    if ends_in_loop(&ours.sections[0]) {
        return Some(Clause::EndOfLoop);
    }
    if matches!(question.rtype, Rtype::RRSIG | Rtype::NSEC) && aliases(&ours.sections[0]).next().is_some() {
        return Some(Clause::DnssecOfAlias);
    }
    let apex_of = |name: &[u8]| {
        let is_above = |entry: &&ZoneEntry| Name::parse(name).expect("a name").is_at_or_below(entry.apex());
        map.entries().iter().filter(is_above).map(ZoneEntry::apex).max_by_key(|apex| apex.length_bytes())
    };
    let leads_into_other_zone = |record: &&ReplyRecord| {
        let apex = apex_of(&record.rdata);
        apex.is_some() && (apex != apex_of(&record.owner) || question.rtype == Rtype::DS)
    };
    aliases(&ours.sections[0]).any(|record| leads_into_other_zone(&record)).then_some(Clause::AliasIntoOtherZone)
}

/// The addresses with a referral below its delegation point; `None` without a referral.
fn required_glue(reply: &Reply) -> Option<Vec<&ReplyRecord>> {
    let point = reply.sections[1].iter().find(|record| record.rtype == Rtype::NS)?;
    let is_below = |record: &&ReplyRecord| {
        Name::parse(&record.owner).expect("a name").is_at_or_below(Name::parse(&point.owner).expect("a name"))
    };
    Some(reply.sections[2].iter().filter(is_below).collect())
}

fn aliases(answer: &[ReplyRecord]) -> impl Iterator<Item = &ReplyRecord> {
    answer.iter().filter(|record| record.rtype == Rtype::CNAME)
}

/// Whether the last alias of `answer` leads to another one of them, or to a DNAME of them.
fn ends_in_loop(answer: &[ReplyRecord]) -> bool {
    let Some(last) = answer.last().filter(|record| record.rtype == Rtype::CNAME) else { return false };
    let target = Name::parse(&last.rdata).expect("a name");
    answer.iter().any(|record| {
        let owner = Name::parse(&record.owner).expect("a name");
        target.eq_ignore_case(owner) || record.rtype == Rtype::DNAME && target.is_at_or_below(owner)
    })
}

/// The lines of an authority section without one of the NSEC records whose next name is below a wildcard, for each of
/// them.
fn without_proof_of_empty_wildcard(authority: &[ReplyRecord]) -> Vec<Vec<String>> {
    let is_below_wildcard = |record: &&ReplyRecord| {
        let next = Name::parse(&record.rdata).ok().filter(|_| record.rtype == Rtype::NSEC);
        next.is_some_and(|next| next.labels().skip(1).any(|label| label == b"*"))
    };
    let without = |nsec: &ReplyRecord| {
        let is_signature = |record: &ReplyRecord| record.rtype == Rtype::RRSIG && record.rdata[..2] == [0, 47];
        let is_removed = |record: &ReplyRecord| record.owner == nsec.owner && (record == nsec || is_signature(record));
        let kept = authority.iter().filter(|record| !is_removed(record));
        let mut lines: Vec<String> = kept.map(|record| record.to_string().to_ascii_lowercase()).collect();
        lines.sort();
        lines
    };
    authority.iter().filter(is_below_wildcard).map(without).collect()
}
