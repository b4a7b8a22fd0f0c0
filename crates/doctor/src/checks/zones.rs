//! The checks of zones: delegation, glue, name servers, signatures, DS and CAA records.

use super::{Judgement, Verdict};
use crate::facts::Facts;
use sanderling_agent::outside::{Delegation, DsView, OwnAnswers, ParentView, ServerAnswer, ServerView, ZoneView};
use sanderling_config::duration_text;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The judgements of each zone.
fn of_zones(facts: &Facts, judge: impl Fn(&ZoneView) -> Vec<Judgement>) -> Vec<Judgement> {
    match &facts.outside {
        Some(Ok(seen)) => seen.zones.iter().flat_map(judge).collect(),
        Some(Err(problem)) => vec![("the network".to_owned(), Verdict::unknown(problem))],
        None => Vec::new(),
    }
}

/// Whether the parent zone has the name servers of the zone.
pub(super) fn delegation(facts: &Facts) -> Vec<Judgement> {
    let servers = |delegation: &Delegation| match delegation {
        Delegation::Hidden => None,
        Delegation::None => Some(BTreeSet::new()),
        Delegation::Servers { servers, .. } => Some(servers.iter().cloned().collect()),
    };
    let mut judgements = of_zones(facts, |zone| {
        let others = deviating(zone, |parent| servers(parent.delegation.as_ref().ok()?));
        [vec![(zone.apex.to_string(), delegation_of(zone))], others].concat()
    });
    if let Some(count) = facts.seen().map(|seen| seen.left_out_count).filter(|count| *count > 0) {
        let why = "they are not looked at: give the name of one of them";
        judgements.push((format!("{count} more zones and hosts"), Verdict::unknown(why)));
    }
    if facts.seen().is_some_and(|seen| seen.zones.is_empty() && seen.hosts.is_empty()) {
        judgements.push(match &facts.name {
            Some(name) => {
                let remedy = "name a domain that `sanderling config` shows, or add this one";
                (name.clone(), Verdict::wrong("the configuration has no zone or site with this name", remedy))
            }
            None => ("no domain".to_owned(), Verdict::unknown("the configuration has no zone or site")),
        });
    }
    judgements
}

/// The servers of the parent zone whose answer is not that of the first one which has an answer.
fn deviating(zone: &ZoneView, answer: impl Fn(&ParentView) -> Option<BTreeSet<String>>) -> Vec<Judgement> {
    let mut answers = zone.parents.iter().filter_map(|parent| Some((parent.server.ip(), answer(parent)?)));
    let Some((first_server, first)) = answers.next() else { return Vec::new() };
    let only_of = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
        one.difference(other).cloned().collect::<Vec<String>>().join(", ")
    };
    let judge = |(server, other): (IpAddr, BTreeSet<String>)| {
        let (lacking, own) = (only_of(&first, &other), only_of(&other, &first));
        let differs = match (lacking.is_empty(), own.is_empty()) {
            (true, true) => return None,
            (false, true) => format!("lacks {lacking}, which {first_server} has"),
            (true, false) => format!("has {own}, which {first_server} lacks"),
            (false, false) => format!("has {own}, and {first_server} has {lacking}"),
        };
        let remedy = "after a change at the registrar, wait until all servers of the parent zone have it; if they \
                      still differ after a day, tell the registrar";
        let verdict = Verdict::wrong(format!("this server of the parent zone {differs}"), remedy);
        Some((format!("{} at {server}", zone.apex), verdict))
    };
    answers.filter_map(judge).collect()
}

fn delegation_of(zone: &ZoneView) -> Verdict {
    let own = zone.own.as_ref().map_or(&[][..], |own| &own.servers);
    let at_parent = match &zone.delegation {
        Err(why) => return Verdict::unknown(why),
        Ok(Delegation::Hidden) => {
            return Verdict::unknown(
                "the servers of the parent zone serve this zone too, and do not show its delegation",
            );
        }
        Ok(Delegation::None) => {
            let remedy =
                format!("enter the name servers at the registrar: {}", list_or(own, "those of its NS records"));
            return Verdict::wrong("the parent zone does not have it: no resolver finds its name servers", remedy);
        }
        Ok(Delegation::Servers { servers, .. }) => servers,
    };
    let set = |servers: &[String]| servers.iter().cloned().collect::<BTreeSet<String>>();
    if own.is_empty() || set(own) == set(at_parent) {
        return Verdict::good(format!("the parent zone refers to {}", at_parent.join(", ")));
    }
    Verdict::wrong(
        format!("the parent zone refers to {}, and the zone has {}", at_parent.join(", "), own.join(", ")),
        "enter the name servers of the zone at the registrar, or change its NS records",
    )
}

/// Whether the parent zone has the addresses of name servers that are in the zone.
pub(super) fn glue(facts: &Facts) -> Vec<Judgement> {
    let addresses = |parent: &ParentView| match &parent.delegation {
        Ok(Delegation::Servers { glue, .. }) => {
            Some(glue.iter().map(|(host, address)| format!("{host} at {address}")).collect())
        }
        _ => None,
    };
    of_zones(facts, |zone| match (&zone.own, &zone.delegation) {
        (Ok(own), Ok(Delegation::Servers { servers, glue })) => {
            [glue_of(own, servers, glue), deviating(zone, addresses)].concat()
        }
        // The check of the delegation says why it is not known.
        _ => Vec::new(),
    })
}

fn glue_of(own: &OwnAnswers, servers: &[String], glue: &[(String, IpAddr)]) -> Vec<Judgement> {
    let of_host = |addresses: &[(String, IpAddr)], host: &String| -> BTreeSet<IpAddr> {
        addresses.iter().filter(|(other, _)| other == host).map(|(_, address)| *address).collect()
    };
    let text = |addresses: &BTreeSet<IpAddr>| {
        list_or(&addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), "no address")
    };
    let judge = |host: &String| {
        let (wanted, found) = (of_host(&own.addresses, host), of_host(glue, host));
        let verdict = match (wanted.is_empty(), found.is_empty()) {
            // It is in another zone.
            (true, _) => return None,
            (false, true) => Verdict::wrong(
                "the parent zone has no address of it (glue), so that no resolver finds it",
                format!("enter its addresses at the registrar: {}", text(&wanted)),
            ),
            (false, false) if wanted == found => Verdict::good(format!("the parent zone has {}", text(&found))),
            (false, false) => Verdict::wrong(
                format!("the parent zone has {}, and the zone has {}", text(&found), text(&wanted)),
                "enter the addresses of the zone at the registrar, or change its A and AAAA records",
            ),
        };
        Some((host.clone(), verdict))
    };
    servers.iter().filter_map(judge).collect()
}

/// Whether each name server answers, with the version of this server.
pub(super) fn name_servers(facts: &Facts) -> Vec<Judgement> {
    of_zones(facts, |zone| {
        let own = match &zone.own {
            Ok(own) => own,
            Err(problem) if facts.is_running() => {
                let what = format!("this server does not answer for it: {problem}");
                let remedy = format!("`sanderling zone status {}` says why", zone.apex);
                return vec![(zone.apex.to_string(), Verdict::wrong(what, remedy))];
            }
            Err(_) => {
                return vec![(zone.apex.to_string(), Verdict::unknown("this server does not run, or does not answer"))];
            }
        };
        let missing = zone.without_address.iter().map(|problem| {
            let remedy = "correct the NS record, or give the name an address";
            (zone.apex.to_string(), Verdict::wrong(problem, remedy))
        });
        let servers = zone.servers.iter().map(|server| (name(zone, server), name_server(server, own)));
        missing.chain(servers).collect()
    })
}

fn name(zone: &ZoneView, server: &ServerView) -> String {
    format!("{} at {} ({})", zone.apex, server.host, server.address.ip())
}

fn name_server(server: &ServerView, own: &OwnAnswers) -> Verdict {
    match &server.answer {
        ServerAnswer::NoRoute => Verdict::unknown("no route leads there from this machine"),
        ServerAnswer::Silent(problem) => Verdict::wrong(
            format!("it does not answer over UDP: {problem}"),
            "start it, and let its firewall pass port 53 for UDP and TCP; or remove its NS record and address",
        ),
        ServerAnswer::Lame(problem) => Verdict::wrong(
            format!("it does not serve the zone: {problem}"),
            "configure the zone there, or remove its NS record, at the registrar too",
        ),
        ServerAnswer::Soa { serial, .. } if *serial != own.serial => Verdict::wrong(
            format!("it has serial {serial}, and this server {}", own.serial),
            "look at its log for failed transfers; this server must allow them (`secondaries`, `transfer_allow`). \
             After a change, secondaries follow within seconds if they get NOTIFY",
        ),
        ServerAnswer::Soa { serial, .. } => match &server.tcp_problem {
            Some(problem) => Verdict::wrong(
                format!("it accepts no connection over TCP: {problem}"),
                "let its firewall pass port 53 for TCP too: resolvers need it for long answers",
            ),
            None => Verdict::good(format!("it answers with serial {serial}, over UDP and TCP")),
        },
    }
}

/// Whether the signatures that name servers answer with are valid at this time.
pub(super) fn signatures(facts: &Facts) -> Vec<Judgement> {
    of_zones(facts, |zone| {
        let is_signed = zone.own.as_ref().is_ok_and(|own| own.has_keys);
        let judge = |server: &ServerView| {
            let ServerAnswer::Soa { expires_unix_s, .. } = server.answer else { return None };
            let verdict = match expires_unix_s {
                None if is_signed => Verdict::wrong(
                    "it answers without signatures, and this server with them",
                    "let it transfer the signed zone from this server",
                ),
                None => return None,
                Some(expires) => signature_verdict(expires, facts.now_unix_s),
            };
            Some((name(zone, server), verdict))
        };
        zone.servers.iter().filter_map(judge).collect()
    })
}

/// Times are compared as serial numbers (RFC 4034 §3.1.5).
fn signature_verdict(expires_unix_s: u32, now_unix_s: u64) -> Verdict {
    let left_s = i64::from(expires_unix_s.wrapping_sub(now_unix_s as u32).cast_signed());
    match left_s {
        0.. => Verdict::good(format!("its signatures are valid for {}", duration_text(left_s.unsigned_abs()))),
        _ => Verdict::wrong(
            format!(
                "its signatures expired {} ago: validating resolvers refuse its answers",
                duration_text(left_s.unsigned_abs())
            ),
            "`sanderling dnssec status` says why the zone is not signed again; for another server, why it does not \
             transfer the zone. Check the clock of this machine",
        ),
    }
}

/// Whether the DS records of the parent zone belong to the keys of the zone.
pub(super) fn ds(facts: &Facts) -> Vec<Judgement> {
    let texts = |parent: &ParentView| {
        let records = parent.ds.as_ref().ok()?;
        Some(records.iter().map(|record| record.text.clone()).collect())
    };
    of_zones(facts, |zone| {
        let Ok(own) = &zone.own else { return Vec::new() };
        let verdict = match &zone.parent_ds {
            Err(why) => Verdict::unknown(why),
            Ok(records) => ds_verdict(own, records, zone.apex.as_str()),
        };
        [vec![(zone.apex.to_string(), verdict)], deviating(zone, texts)].concat()
    })
}

fn ds_verdict(own: &OwnAnswers, records: &[DsView], apex: &str) -> Verdict {
    let wanted = || list_or(&own.wanted_ds, "those that `sanderling dnssec status` shows");
    let texts = || records.iter().map(|record| record.text.as_str()).collect::<Vec<_>>().join(", ");
    match (own.has_keys, records.is_empty()) {
        (false, true) => Verdict::good("the zone is not signed, and the parent zone has no DS record"),
        (false, false) => Verdict::wrong(
            format!(
                "the zone is not signed, and the parent zone has {}: validating resolvers refuse all answers",
                texts()
            ),
            "if the state folder with the keys was lost, restore its backup; otherwise have the DS records removed at \
             the registrar, and sign the zone only when they have expired from caches",
        ),
        (true, true) if own.wanted_ds.is_empty() => {
            Verdict::good("the zone is signed; its DS record is due when its keys are in all caches")
        }
        (true, true) => Verdict::wrong(
            "the keys are ready, and the parent zone has no DS record: no resolver validates the zone",
            format!("enter this DS record at the registrar: {}", wanted()),
        ),
        (true, false) if records.iter().any(|record| record.has_key) => {
            Verdict::good("the parent zone has the DS record of a key of the zone")
        }
        (true, false) => Verdict::wrong(
            format!(
                "the parent zone has {}, which belongs to no key of the zone: validating resolvers refuse all answers",
                texts()
            ),
            format!(
                "if the state folder was lost, restore its backup; otherwise replace the DS records at the registrar \
                 with {}. `sanderling dnssec status {apex}` shows the keys",
                wanted()
            ),
        ),
    }
}

/// Whether CAA records let the authorities issue.
pub(super) fn caa(facts: &Facts) -> Vec<Judgement> {
    of_zones(facts, |zone| {
        let wrong = |caa: &sanderling_agent::outside::CaaView| {
            let what = format!("{} may not issue a certificate: {}", caa.authority, caa.problem);
            (zone.apex.to_string(), Verdict::wrong(what, caa.remedy))
        };
        zone.forbidden.iter().map(wrong).collect()
    })
}

fn list_or(items: &[String], none: &str) -> String {
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}
