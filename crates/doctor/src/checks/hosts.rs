//! The checks of the hosts of sites: addresses, connections, certificates.

use super::{Judgement, Verdict};
use crate::facts::Facts;
use sanderling_agent::outside::{Connection, ConnectionView, HostView, Presented, Trust};
use sanderling_config::duration_text;
use sanderling_os::interfaces::is_public;
use sanderling_server_process::is_renewed_in_time;
use sanderling_tls::{CertificateProblem, PresentedChain};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The judgements of each host.
fn of_hosts(facts: &Facts, judge: impl Fn(&HostView) -> Vec<Judgement>) -> Vec<Judgement> {
    facts.seen().iter().flat_map(|seen| &seen.hosts).flat_map(judge).collect()
}

/// Whether the published addresses are those of this machine, and those that other machines find.
pub(super) fn addresses(facts: &Facts) -> Vec<Judgement> {
    let has_public = facts.interfaces.iter().any(|address| is_public(*address));
    let judge = |address: &IpAddr| {
        if address.is_loopback() || facts.interfaces.contains(address) {
            Verdict::good(format!("{address} is an address of this machine"))
        } else if facts.has_proxies {
            Verdict::unknown(format!("{address} may be the address of a proxy, which `trusted_proxies` has"))
        } else if has_public {
            Verdict::wrong(
                format!("{address} is not an address of this machine"),
                format!("correct the record: this machine has {}", public_text(&facts.interfaces)),
            )
        } else {
            Verdict::unknown(format!("{address} may be the address of a router that forwards to this machine"))
        }
    };
    of_hosts(facts, |host| {
        let verdicts = match &host.addresses {
            Err(why) => vec![Verdict::unknown(why)],
            Ok(addresses) if addresses.is_empty() => {
                let remedy = "add A and AAAA records to its zone, or remove the name from the configuration";
                vec![Verdict::wrong("it has no address", remedy)]
            }
            Ok(addresses) => {
                let why = || Verdict::unknown(format!("{} more addresses are not looked at", host.left_out_count));
                let left_out = (host.left_out_count > 0).then(why);
                // Only all of them can be compared.
                let resolved =
                    host.resolved.iter().filter(|_| host.left_out_count == 0).map(|it| resolved(it, addresses));
                addresses.iter().map(judge).chain(left_out).chain(resolved).collect()
            }
        };
        verdicts.into_iter().map(|verdict| (host.host.to_string(), verdict)).collect()
    })
}

/// Whether a resolver finds `own`, the addresses in the zone of this server.
fn resolved(found: &Result<Vec<IpAddr>, String>, own: &[IpAddr]) -> Verdict {
    let set = |addresses: &[IpAddr]| addresses.iter().copied().collect::<BTreeSet<IpAddr>>();
    match found {
        Err(why) => Verdict::unknown(format!("the addresses that other machines find: {why}")),
        Ok(found) if set(found) == set(own) => Verdict::good("a resolver finds the addresses of the zone"),
        Ok(found) => Verdict::wrong(
            format!("a resolver finds {}, and the zone of this server has {}", list(found), list(own)),
            "enter the name servers of this server at the registrar; after a change, resolvers keep earlier records \
             until their TTL has passed",
        ),
    }
}

fn list(addresses: &[IpAddr]) -> String {
    match addresses {
        [] => "no address".to_owned(),
        addresses => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
    }
}

fn public_text(interfaces: &[IpAddr]) -> String {
    list(&interfaces.iter().copied().filter(|address| is_public(*address)).collect::<Vec<_>>())
}

/// Whether the published addresses accept connections.
pub(super) fn connections(facts: &Facts) -> Vec<Judgement> {
    let judge = |view: &ConnectionView| {
        let key = view.service.listen_key();
        match &view.connection {
            Connection::Accepted | Connection::Encrypted(_) => Verdict::good("it accepts connections"),
            Connection::NoRoute => Verdict::unknown("no route leads there from this machine"),
            Connection::Failed(problem) if !facts.is_running() => {
                Verdict::wrong(format!("no connection: {problem}"), "start the server")
            }
            Connection::Failed(problem) if view.address.is_ipv6() => Verdict::wrong(
                format!("no connection: {problem}"),
                format!("add \"[::]:{}\" to {key}, or remove the AAAA record", view.address.port()),
            ),
            Connection::Failed(problem) => Verdict::wrong(
                format!("no connection: {problem}"),
                format!("add the address to {key}, or let the firewall pass it, or correct the A record"),
            ),
            Connection::NotEncrypted(problem) => Verdict::wrong(
                format!("no TLS: {problem}"),
                "`sanderling certificates` says whether there is a certificate for it",
            ),
        }
    };
    of_hosts(facts, |host| {
        let subject = |view: &ConnectionView| format!("{} at {}, {}", host.host, view.address, view.service);
        host.connections.iter().map(|view| (subject(view), judge(view))).collect()
    })
}

/// Whether clients accept the certificates.
pub(super) fn certificates(facts: &Facts) -> Vec<Judgement> {
    of_hosts(facts, |host| {
        let name = host.host.as_str();
        let mut judgements: Vec<Judgement> = Vec::new();
        for view in &host.connections {
            let Connection::Encrypted(presented) = &view.connection else { continue };
            for verdict in certificate(presented, host, facts.now_unix_s) {
                // The same certificate at each address.
                if !judgements.iter().any(|(_, other)| *other == verdict) {
                    judgements.push((name.to_owned(), verdict));
                }
            }
        }
        judgements
    })
}

fn certificate(presented: &Presented, host: &HostView, now_unix_s: u64) -> Vec<Verdict> {
    let chain = match PresentedChain::new(presented.chain.clone()) {
        Ok(chain) => chain,
        Err(error) => return vec![Verdict::wrong(error.to_string(), error.remedy())],
    };
    let is_trusted = presented.trust == Trust::Trusted;
    let mut problems = chain.problems(now_unix_s, [host.host.as_str()]);
    // As the server itself judges it.
    problems.retain(|problem| !is_renewed_in_time(problem, chain.lifetime_s(), host.is_automatic));
    // Clients have the issuer, or find it in the chain.
    problems.retain(|problem| !is_trusted || !matches!(problem, CertificateProblem::ChainIncomplete { .. }));
    let has_gap = problems.iter().any(|problem| matches!(problem, CertificateProblem::ChainIncomplete { .. }));
    let mut verdicts: Vec<Verdict> =
        problems.iter().map(|problem| Verdict::wrong(problem.to_string(), problem.remedy())).collect();
    match presented.trust {
        Trust::UnknownIssuer if !has_gap => verdicts.push(Verdict::wrong(
            "no trusted root has issued the certificate: browsers warn of it",
            "request one from a public authority (`certificate = \"auto\"`); a private authority is known here by \
             `root` in `authorities`",
        )),
        Trust::NoRoots => verdicts.push(Verdict::unknown(
            "whether clients trust its issuer: this machine has no roots; install the package ca-certificates",
        )),
        _ => {}
    }
    if verdicts.is_empty() {
        let left_s = chain.not_after_unix_s().saturating_sub(now_unix_s);
        verdicts.push(Verdict::good(format!("the certificate is valid for {}", duration_text(left_s))));
    }
    verdicts
}
