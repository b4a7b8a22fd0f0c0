//! The condition of the sites, zones, certificates and TSIG keys of a server process, and of the processes that it
//! needs. This module alone decides it: `status` and its exit status, `zone list`, `zone status`, the metrics, and so
//! the alerts and `top` all have it.

use crate::certificate_state::CertificateState;
use crate::load_status::{LoadStatus, SiteService, SiteState, ZoneState};
use crate::tsig_key_state::{SecretInService, TsigKeyState};
use sanderling_config::{Config, LogKind};
use sanderling_ipc::agent::AgentReport;
use sanderling_ipc::{ProcessSupervision, Supervision};
use sanderling_server::BackendServerStatus;
use sanderling_tls::CertificateProblem;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

/// A zone must be signed again before its signatures expire within this time.
const SIGNATURE_WARNING: Duration = Duration::from_secs(3 * 24 * 3600);

/// Makes an enum of conditions, from the best to the worst, with the name of each.
macro_rules! conditions {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl Condition for $name {
            const ALL: &[$name] = &[$($name::$variant),*];

            fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

/// The condition in which an object is served.
pub(crate) trait Condition: Copy + PartialEq + 'static {
    /// All conditions; the first one is the only good one.
    const ALL: &[Self];

    /// The word that all views have for it.
    fn name(self) -> &'static str;

    /// Whether the object is served as configured.
    fn is_good(self) -> bool {
        self == Self::ALL[0]
    }
}

conditions! {
    /// How a site is served.
    SiteCondition {
        /// The whole document root is served.
        Served = "served",
        /// The document root, but not all link targets, rules or user files.
        Incomplete = "incomplete",
        /// An earlier directory.
        Kept = "kept",
        /// The server process's user cannot read it: requests get status 403.
        Unreadable = "unreadable",
        /// Requests get status 503.
        Unavailable = "unavailable",
    }
}

conditions! {
    /// How a zone is served.
    ZoneCondition {
        /// The newest version is served, signed if configured.
        Served = "served",
        /// An earlier version: the newest one cannot be loaded, signed or transferred, or dynamic updates stored. Or a
        /// catalog that lists zones which this server no longer has.
        Kept = "kept",
        /// Signatures that should have been replaced expire soon.
        Expiring = "expiring",
        /// The zone is served without signatures, although it should be signed.
        Unsigned = "unsigned",
        /// Signatures have expired: validating resolvers refuse its answers.
        Bogus = "bogus",
        /// Queries are answered with SERVFAIL.
        Unavailable = "unavailable",
    }
}

conditions! {
    /// How a certificate is served.
    CertificateCondition {
        /// The current one, which clients accept for long enough.
        Served = "served",
        /// The renewal is due, or has failed.
        Due = "due",
        /// An earlier one: the current files have errors.
        Kept = "kept",
        /// The certificate is valid for some names of the domain, and not for all.
        Incomplete = "incomplete",
        /// All clients refuse the certificate: it has expired, is not valid yet, has none of the names, or is not for
        /// servers.
        Invalid = "invalid",
        /// Handshakes for the names fail.
        Unavailable = "unavailable",
    }
}

conditions! {
    /// How messages are signed with a TSIG key.
    TsigKeyCondition {
        /// Messages are signed with the secret in the key's file.
        Served = "served",
        /// Messages are signed with an earlier secret: the file cannot be used.
        Kept = "kept",
        /// Not at all: messages signed with it are refused.
        Unavailable = "unavailable",
    }
}

conditions! {
    /// Whether a server of an application gets requests.
    BackendCondition {
        /// It gets its share.
        Served = "served",
        /// It gets none while another server does.
        Down = "down",
    }
}

/// The problems that the agent reports, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentProblems {
    /// The reason why zones are not signed, or not with their newest records.
    signing: HashMap<String, String>,
    /// The reason why zones are not transferred.
    transfers: HashMap<String, String>,
    /// The reason why zones that are not signed take no dynamic updates.
    updates: HashMap<String, String>,
    /// The reason why catalogs of this server are not up to date.
    catalogs: HashMap<String, String>,
    /// The reason why certificates are not issued.
    certificates: HashMap<String, String>,
}

impl AgentProblems {
    pub(crate) fn of(report: AgentReport) -> AgentProblems {
        let mut problems = AgentProblems::default();
        for zone in report.zones {
            if let Some(problem) = zone.signing.and_then(|signing| signing.problem) {
                problems.signing.insert(zone.name.clone(), problem);
            }
            if let Some(problem) = zone.updates_problem {
                problems.updates.insert(zone.name.clone(), problem);
            }
            if let Some(problem) = zone.catalog_problem {
                problems.catalogs.insert(zone.name.clone(), problem);
            }
            if let Some(problem) = zone.transfer.and_then(|transfer| transfer.problem) {
                problems.transfers.insert(zone.name, problem);
            }
        }
        for certificate in report.certificates {
            if let Some(error) = certificate.last_error {
                problems.certificates.insert(certificate.name, error);
            }
        }
        problems
    }

    /// The reason why a certificate is not issued.
    pub(crate) fn certificate(&self, domain: &str) -> Option<&str> {
        self.certificates.get(domain).map(String::as_str)
    }
}

/// Judges the state of each part at one moment.
#[derive(Debug)]
pub(crate) struct ServiceState<'s> {
    problems: &'s AgentProblems,
    /// Zones that should have signatures.
    signed_zones: HashSet<&'s str>,
    supervision: &'s Supervision,
    /// Whether the supervisor runs.
    has_supervisor: bool,
    /// The servers of applications.
    backend_servers: Vec<BackendServerStatus>,
    now: SystemTime,
}

impl<'s> ServiceState<'s> {
    pub(crate) fn new(
        config: &'s Config,
        problems: &'s AgentProblems,
        supervision: &'s Supervision,
        has_supervisor: bool,
        backend_servers: Vec<BackendServerStatus>,
    ) -> ServiceState<'s> {
        let signed_zones = config.signed_zones.iter().filter(|zone| !zone.is_leaving);
        ServiceState {
            problems,
            signed_zones: signed_zones.map(|zone| zone.apex.as_str()).collect(),
            supervision,
            has_supervisor,
            backend_servers,
            now: SystemTime::now(),
        }
    }

    /// The problems that the agent reports.
    pub(crate) fn agent_problems(&self) -> &'s AgentProblems {
        self.problems
    }

    pub(crate) fn backend_servers(&self) -> &[BackendServerStatus] {
        &self.backend_servers
    }

    pub(crate) fn backend_server(&self, server: &BackendServerStatus) -> BackendCondition {
        if server.down.is_some() { BackendCondition::Down } else { BackendCondition::Served }
    }

    pub(crate) fn site(&self, site: &SiteState) -> SiteCondition {
        match (&site.service, &site.problem) {
            (SiteService::Unavailable | SiteService::LeftOut, _) => SiteCondition::Unavailable,
            (SiteService::Unreadable, _) => SiteCondition::Unreadable,
            (SiteService::Kept(_), _) => SiteCondition::Kept,
            (SiteService::Current, Some(_)) => SiteCondition::Incomplete,
            (SiteService::Current, None) => SiteCondition::Served,
        }
    }

    pub(crate) fn zone(&self, zone: &ZoneState) -> ZoneCondition {
        let expire_at = zone.signatures_expire_at;
        let expires_within = |time| expire_at.is_some_and(|at| at <= self.now + time);
        if zone.serial.is_none() {
            ZoneCondition::Unavailable
        } else if expires_within(Duration::ZERO) {
            ZoneCondition::Bogus
        } else if expire_at.is_none() && self.signed_zones.contains(zone.name.as_str()) {
            ZoneCondition::Unsigned
        } else if expires_within(SIGNATURE_WARNING) {
            ZoneCondition::Expiring
        } else if self.zone_problem(zone).is_some() {
            ZoneCondition::Kept
        } else {
            ZoneCondition::Served
        }
    }

    /// The reason why the newest version of a zone is not served.
    pub(crate) fn zone_problem<'z>(&self, zone: &'z ZoneState) -> Option<&'z str>
    where
        's: 'z,
    {
        let AgentProblems { signing, transfers, updates, catalogs, certificates: _ } = self.problems;
        let of_agent =
            || [signing, transfers, updates, catalogs].into_iter().find_map(|problems| problems.get(&zone.name));
        zone.problem.as_ref().or_else(of_agent).map(String::as_str)
    }

    pub(crate) fn certificate(&self, certificate: &CertificateState) -> CertificateCondition {
        let Some(version) = &certificate.in_service else { return CertificateCondition::Unavailable };
        let has_failed = self.problems.certificate(certificate.domain()).is_some();
        match version.time_problem() {
            Some(CertificateProblem::Expired { .. } | CertificateProblem::NotYetValid { .. }) => {
                CertificateCondition::Invalid
            }
            _ if certificate.is_refused || certificate.lacks_all_names() => CertificateCondition::Invalid,
            _ if !certificate.missing_names.is_empty() => CertificateCondition::Incomplete,
            _ if certificate.problem.is_some() => CertificateCondition::Kept,
            time_problem if time_problem.is_some() || has_failed => CertificateCondition::Due,
            _ => CertificateCondition::Served,
        }
    }

    pub(crate) fn tsig_key(&self, key: &TsigKeyState) -> TsigKeyCondition {
        match key.secret {
            SecretInService::Current => TsigKeyCondition::Served,
            SecretInService::LastGood { .. } => TsigKeyCondition::Kept,
            SecretInService::None { .. } => TsigKeyCondition::Unavailable,
        }
    }

    /// The needed processes, and whether each runs.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let Supervision { agent, keeper, .. } = self.supervision;
        let process = |name, process: &ProcessSupervision| {
            // Without a supervisor, both processes have exited.
            process.is_needed.then_some((name, process.is_running && self.has_supervisor))
        };
        let others = [process("agent", agent), process("keeper", &keeper.process)];
        [("supervisor", self.has_supervisor)].into_iter().chain(others.into_iter().flatten())
    }

    /// The text of `/readyz`, with a line for each problem; an error if nothing is answered for.
    pub(crate) fn readiness(
        &self,
        load_status: &LoadStatus,
        certificates: &[CertificateState],
        tsig_keys: &[TsigKeyState],
        failed_logs: &[LogKind],
    ) -> Result<String, String> {
        let problems = self.problems(load_status, certificates, tsig_keys, failed_logs);
        let lines = problems.iter().map(|problem| format!("{problem}\n")).collect::<String>();
        match self.is_ready(load_status) {
            true if lines.is_empty() => Ok("ready\n".to_owned()),
            true => Ok(format!("ready, with problems:\n{lines}")),
            false => Err(lines),
        }
    }

    /// Whether a site or a zone is answered for, or there is none to answer for. One that cannot be served does not
    /// take the others from their clients.
    fn is_ready(&self, load_status: &LoadStatus) -> bool {
        let LoadStatus { sites, zones, .. } = load_status;
        let is_site_served = || sites.iter().any(|site| self.site(site) != SiteCondition::Unavailable);
        let is_zone_answered = || zones.iter().any(|zone| self.zone(zone) != ZoneCondition::Unavailable);
        (sites.is_empty() && zones.is_empty()) || is_site_served() || is_zone_answered()
    }

    /// The deviations from the configuration, in a few words each, the worst first.
    pub(crate) fn problems(
        &self,
        load_status: &LoadStatus,
        certificates: &[CertificateState],
        tsig_keys: &[TsigKeyState],
        failed_logs: &[LogKind],
    ) -> Vec<String> {
        let mut out: Vec<String> =
            self.processes().filter(|(_, runs)| !runs).map(|(name, _)| format!("the {name} does not run")).collect();
        put_counts(&mut out, "site", &counts(load_status.sites.iter().map(|site| self.site(site))));
        put_counts(&mut out, "zone", &counts(load_status.zones.iter().map(|zone| self.zone(zone))));
        put_counts(&mut out, "certificate", &counts(certificates.iter().map(|it| self.certificate(it))));
        put_counts(&mut out, "TSIG key", &counts(tsig_keys.iter().map(|key| self.tsig_key(key))));
        let servers = self.backend_servers.iter().map(|server| self.backend_server(server));
        put_counts(&mut out, "backend server", &counts(servers));
        if load_status.folder.as_ref().is_some_and(|folder| folder.problem_count > 0) {
            out.push("the zone folder has errors".to_owned());
        }
        out.extend(failed_logs.iter().map(|log| format!("the {log} is not written")));
        out
    }
}

/// The number of items in each condition, in the order of [`Condition::ALL`].
pub(crate) fn counts<C: Condition>(conditions: impl Iterator<Item = C>) -> Vec<(C, u64)> {
    let mut counts: Vec<(C, u64)> = C::ALL.iter().map(|&condition| (condition, 0)).collect();
    for condition in conditions {
        counts.iter_mut().filter(|(other, _)| *other == condition).for_each(|(_, count)| *count += 1);
    }
    counts
}

/// `2 zones unavailable`, for each condition that is not good.
fn put_counts<C: Condition>(out: &mut Vec<String>, noun: &str, counts: &[(C, u64)]) {
    for (condition, count) in counts.iter().rev().filter(|(condition, count)| !condition.is_good() && *count > 0) {
        let plural = if *count == 1 { "" } else { "s" };
        out.push(format!("{count} {noun}{plural} {}", condition.name()));
    }
}

#[cfg(test)]
mod tests;
