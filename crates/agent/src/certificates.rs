//! The certificates that are requested: what of each is in the state folder, and when it is renewed.

use crate::clock::{random_between, unix_s};
use crate::failing_names::FailingNames;
use crate::failure::{Failure, Kind};
use crate::json_files::read_json;
use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use sanderling_config::log::{log_error, log_warning};
use sanderling_config::{CertificateFiles, DomainName, LATEST_RENEWAL_PART};
use sanderling_ipc::Connection;
use sanderling_ipc::agent::{CertificateReport, IssuedReport};
use sanderling_state::{CERTIFICATES, KEY_FILE, StateFolder};
use sanderling_tls::Certificate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const DAY_S: u64 = 24 * 3600;
/// Certificates that are valid for less are renewed when half of that has passed, others after two thirds.
const SHORT_LIFETIME_S: u64 = 10 * DAY_S;
/// After so many failures in a row the next authority is tried.
const FAILURES_PER_AUTHORITY: u32 = 3;
const CLOCK_AHEAD: &str = "it is to be renewed although it is new; check the clock of this machine";
/// When the next one is tried if an authority has refused because of too many requests.
const OTHER_AUTHORITY_DELAY_S: u64 = 60;

/// A certificate that is requested.
pub(crate) struct ManagedCertificate {
    /// The domain, which is also the name of its folder.
    pub(crate) name: String,
    pub(crate) names: Vec<String>,
    pub(crate) issued: Option<Issued>,
    pub(crate) record: Record,
    pub(crate) is_in_progress: bool,
    /// The clients that wait for the order.
    pub(crate) waiting: Vec<Connection>,
    /// The clients that wait for the revocations.
    pub(crate) waiting_for_revocation: Vec<Connection>,
    /// Seconds between two renewals at the least, so that no suggestion leads to an endless sequence of orders.
    interval_s: u64,
    /// What its orders depend on ([`OrderBasis`](crate::order_basis::OrderBasis)).
    basis: String,
}

/// A certificate that is revoked when there is another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Revocation {
    /// As DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) is_key_compromised: bool,
    /// The directory of the authority that has issued it, if it is known.
    pub(crate) issued_by: Option<String>,
}

/// What follows from an order that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The same is ordered later.
    Later,
    /// Some names have failed: the others are ordered without them.
    WithoutFailed,
}

/// What was issued.
pub(crate) struct Issued {
    pub(crate) report: IssuedReport,
    /// The names of the configuration that it is not for.
    lacking: Vec<String>,
    /// The certificate itself, without those of its issuers.
    pub(crate) certificate: Option<CertificateDer<'static>>,
    /// Its name at the authority (RFC 9773 §4.1).
    pub(crate) identifier: Option<CertificateIdentifier<'static>>,
}

/// What the state folder has besides the certificate.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When the certificate is renewed.
    renew_at_unix_s: Option<u64>,
    /// Whether the authority has suggested that.
    is_suggested: bool,
    /// The directory of the authority that has issued the certificate.
    #[serde(default)]
    issued_by: Option<String>,
    /// The index of the authority of the next order.
    #[serde(default)]
    authority: usize,
    /// Failed attempts at that authority.
    #[serde(default)]
    authority_failures: u32,
    /// Failed attempts since the last success, and how many of them the authority has refused.
    pub(crate) failure_count: u32,
    #[serde(default)]
    refusal_count: u32,
    /// Until when authorities, by their indexes, want no requests.
    #[serde(default)]
    limited_until_unix_s: BTreeMap<usize, u64>,
    pub(crate) last_error: Option<String>,
    /// The names that orders are made without.
    #[serde(default)]
    failing: FailingNames,
    /// What the last order that has failed depended on.
    #[serde(default)]
    failed_basis: Option<String>,
    /// No attempt is made before, and the delay that has led to it.
    not_before_unix_s: u64,
    #[serde(default)]
    delay_s: u64,
    /// When the authority is asked again when to renew (RFC 9773 §4.3.2).
    #[serde(default)]
    ask_again_at_unix_s: u64,
    #[serde(default)]
    pub(crate) revocations: Vec<Revocation>,
}

impl Record {
    /// The same, as if no order had failed.
    fn without_failures(self) -> Record {
        let Record { renew_at_unix_s, is_suggested, issued_by, ask_again_at_unix_s, revocations, .. } = self;
        Record { renew_at_unix_s, is_suggested, issued_by, ask_again_at_unix_s, revocations, ..Record::default() }
    }

    /// No attempt is made in the next seconds.
    fn delay(&mut self, delay_s: u64) {
        (self.not_before_unix_s, self.delay_s) = (unix_s() + delay_s, delay_s);
    }

    /// No attempt is made before. If the clock was set back since then, it is the same delay from now on.
    fn not_before(&self) -> u64 {
        self.not_before_unix_s.min(unix_s() + self.delay_s)
    }
}

impl ManagedCertificate {
    /// `basis` is what its orders depend on. Failures of orders that depended on something else are forgotten.
    pub(crate) fn load(
        configured: &CertificateFiles,
        interval_s: u64,
        basis: String,
        state: &StateFolder,
    ) -> ManagedCertificate {
        let names: Vec<String> = configured.names.iter().map(|name| name.as_str().to_owned()).collect();
        let name = configured.names.first().map_or(String::new(), |name| name.as_str().to_owned());
        let record = read_json(state, &record_file(&name)).unwrap_or_else(|problem| {
            log_error(&format!("certificate {name}: {problem}; the time of its renewal is chosen again"));
            None
        });
        let record: Record = record.unwrap_or_default();
        let has_failed = record.failure_count > 0 || !record.failing.is_empty();
        let is_corrected = has_failed && record.failed_basis.as_ref() != Some(&basis);
        let mut certificate = ManagedCertificate {
            names: without_redundant(&names),
            record: if is_corrected { record.without_failures() } else { record },
            issued: None,
            is_in_progress: false,
            waiting: Vec::new(),
            waiting_for_revocation: Vec::new(),
            interval_s,
            basis,
            name,
        };
        certificate.load_issued(state);
        certificate
    }

    fn load_issued(&mut self, state: &StateFolder) {
        let read = |file: String| state.read(&file).ok().flatten();
        let chain = state.chain(&self.name).ok().flatten();
        let key = read(format!("{CERTIFICATES}/{}/{KEY_FILE}", self.name));
        self.issued = chain.zip(key).and_then(|(chain, key)| Issued::parse(&chain, &key, &self.names));
    }

    /// When the next order is, and why.
    pub(crate) fn next_order(&self) -> (u64, String) {
        let not_before = self.record.not_before();
        let reason = match &self.issued {
            None => "there is no certificate yet",
            Some(issued) if self.lacks_untried(issued) => "the names of the domain have changed",
            Some(_) if self.is_to_be_revoked() => "the certificate is to be revoked",
            Some(issued) => {
                let renewal = self.next_renewal(issued, not_before);
                // Other failures delay it as well.
                let has_failed = self.record.failure_count > 0;
                let attempt = self.record.failing.next_attempt();
                let attempt = attempt.map(|(at, why)| (if has_failed { at.max(not_before) } else { at }, why));
                return attempt.filter(|(at, _)| *at < renewal.0).unwrap_or(renewal);
            }
        };
        match self.retry_reason() {
            Some(why) => (not_before, why),
            None => (0, reason.to_owned()),
        }
    }

    /// Whether a name is not in the certificate that has not failed.
    fn lacks_untried(&self, issued: &Issued) -> bool {
        issued.lacking.iter().any(|name| !self.record.failing.has(name))
    }

    /// The names of the next order: without those that have failed, until each is tried again; all if the operator
    /// wants it.
    pub(crate) fn names_to_order(&self, is_wanted: bool) -> Vec<String> {
        let ordered = if is_wanted { Vec::new() } else { self.record.failing.ordered(&self.names) };
        if ordered.is_empty() { self.names.clone() } else { ordered }
    }

    /// Whether an authority validates the name over HTTP although it is in a zone of this server: the other way has
    /// failed before.
    pub(crate) fn prefers_http(&self, name: &str) -> bool {
        let of_name = self.record.failing.failure_count(name);
        let failure_count = if of_name > 0 { of_name } else { self.record.failure_count };
        failure_count % 2 == 1
    }

    fn next_renewal(&self, issued: &Issued, not_before: u64) -> (u64, String) {
        let renew_at = self.record.renew_at_unix_s.unwrap_or_else(|| issued.default_renewal());
        let latest = issued.latest_renewal();
        match self.retry_reason() {
            Some(why) if not_before > renew_at => (not_before, why),
            None if not_before > renew_at && issued.default_renewal() <= unix_s() => {
                (not_before, CLOCK_AHEAD.to_owned())
            }
            None if not_before > renew_at => (not_before, "the certificate is new".to_owned()),
            _ if renew_at > latest => (latest, "a sixth of the lifetime is left".to_owned()),
            _ if self.record.is_suggested => (renew_at, "the authority suggests this time (ARI)".to_owned()),
            _ if issued.lifetime_s() < SHORT_LIFETIME_S => (renew_at, "half of the lifetime has passed".to_owned()),
            _ => (renew_at, "two thirds of the lifetime have passed".to_owned()),
        }
    }

    /// When an order that is due at a time is made although its key is not in all caches yet: after half of the time
    /// that is left.
    pub(crate) fn overdue_at(&self, due_unix_s: u64) -> u64 {
        let expires_at = self.issued.as_ref().map_or(0, |issued| issued.report.not_after_unix_s);
        due_unix_s + expires_at.saturating_sub(due_unix_s) / 2
    }

    /// Whether the certificate in service is to be revoked when there is another one.
    pub(crate) fn is_to_be_revoked(&self) -> bool {
        let certificate = self.issued.as_ref().and_then(|issued| issued.certificate.as_deref());
        certificate.is_some_and(|certificate| self.record.revocations.iter().any(|one| one.certificate == certificate))
    }

    /// Has the certificate in service revoked when there is another one.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn begin_revocation(&mut self, is_key_compromised: bool, state: &StateFolder) -> Result<(), String> {
        let certificate = self.issued.as_ref().and_then(|issued| issued.certificate.as_deref());
        let certificate = certificate.ok_or("none is issued")?.to_vec();
        if !self.is_to_be_revoked() {
            let issued_by = self.record.issued_by.clone();
            self.record.revocations.push(Revocation { certificate, is_key_compromised, issued_by });
            let stored = self.try_store(state);
            if stored.is_err() {
                self.record.revocations.pop();
            }
            return stored;
        }
        Ok(())
    }

    /// A revocation is done, or refused.
    pub(crate) fn on_revoked(&mut self, revocation: &Revocation, state: &StateFolder) {
        self.record.revocations.retain(|one| one != revocation);
        self.store(state);
    }

    fn retry_reason(&self) -> Option<String> {
        let count = self.record.failure_count;
        let name = &self.name;
        (count > 0).then(|| format!("attempt {} after failures; `sanderling renew {name}` tries at once", count + 1))
    }

    /// When the next order is after a failure, for the log.
    pub(crate) fn next_attempt(&self) -> String {
        let wait_s = self.record.not_before().saturating_sub(unix_s());
        let wait = if wait_s < 120 { format!("{wait_s} s") } else { format!("{} min", wait_s / 60) };
        format!("the next attempt is in {wait}, or by `sanderling renew {}` at once", self.name)
    }

    /// The index of the authority of the next order, of `count`.
    pub(crate) fn authority_index(&self, count: usize) -> usize {
        self.record.authority % count.max(1)
    }

    /// The same for an order of these names. One that has failed again and again is tried at other authorities.
    pub(crate) fn authority_index_for(&self, names: &[String], count: usize) -> usize {
        let failures = names.iter().map(|name| self.record.failing.failure_count(name)).max().unwrap_or(0);
        (self.record.authority + (failures / FAILURES_PER_AUTHORITY) as usize) % count.max(1)
    }

    /// The directory of the authority that has issued the certificate, if it is known.
    pub(crate) fn issued_by(&self) -> Option<&str> {
        self.record.issued_by.as_deref()
    }

    /// The certificate that an order at the authority with this directory replaces, if that authority makes
    /// suggestions. After a failure the order does not say so, since some authorities fail because of it.
    pub(crate) fn replaced(&self, directory: &str) -> Option<CertificateIdentifier<'static>> {
        let is_first = self.record.failure_count == 0;
        let is_same = is_first && self.record.is_suggested && self.issued_by() == Some(directory);
        self.issued.as_ref().filter(|_| is_same)?.identifier.clone()
    }

    /// A certificate of the authority with this directory was stored.
    pub(crate) fn on_issued(&mut self, directory: &str, state: &StateFolder) {
        self.load_issued(state);
        self.on_new(directory, state);
    }

    /// The certificate is a new one.
    fn on_new(&mut self, directory: &str, state: &StateFolder) {
        let Record { revocations, mut failing, failed_basis, .. } = std::mem::take(&mut self.record);
        let lacking = self.issued.as_ref().map_or(&[][..], |issued| &issued.lacking);
        failing.retain(|name| lacking.iter().any(|other| other == name));
        let issued_by = Some(directory.to_owned());
        self.record = Record { issued_by, revocations, failing, failed_basis, ..Record::default() };
        self.record.renew_at_unix_s = self.issued.as_ref().map(Issued::default_renewal);
        if self.record.renew_at_unix_s.is_some_and(|at| at <= unix_s()) {
            log_warning(&format!("certificate {}: {CLOCK_AHEAD}", self.name));
        }
        self.record.delay(self.interval_s);
        self.store(state);
    }

    /// An order of `names` has failed. There are `authority_count` authorities.
    pub(crate) fn on_failure(
        &mut self,
        failure: &Failure,
        names: &[String],
        authority_count: usize,
        state: &StateFolder,
    ) -> AfterFailure {
        let failed = self.failed_names(failure, names);
        if !failed.is_empty() && self.may_lose(failed.iter().map(|(name, ..)| name.as_str())) {
            for (name, failure, is_suspected) in failed {
                self.record.failing.add(&name, failure, is_suspected);
            }
            self.record.failed_basis = Some(self.basis.clone());
            self.store(state);
            return AfterFailure::WithoutFailed;
        }
        let latest = self.issued.as_ref().filter(|_| !failed.is_empty()).map(Issued::latest_renewal);
        let record = &mut self.record;
        record.failure_count = record.failure_count.saturating_add(1);
        let is_at_fault = !matches!(failure.kind, Kind::NotReady | Kind::State | Kind::Again);
        record.authority_failures += u32::from(is_at_fault);
        record.last_error = Some(failure.to_string());
        record.failed_basis = Some(self.basis.clone());
        let is_refused = matches!(failure.kind, Kind::Refused | Kind::AccountRefused | Kind::Gone);
        record.refusal_count += u32::from(is_refused);
        let other_count = record.failure_count - record.refusal_count;
        let mut delay_s = failure.delay_s(if is_refused { record.refusal_count } else { other_count });
        let is_limited = failure.kind == Kind::RateLimited;
        if is_limited {
            record.limited_until_unix_s.insert(record.authority, unix_s() + delay_s);
        }
        if is_at_fault && (is_limited || record.authority_failures >= FAILURES_PER_AUTHORITY) {
            record.authority = (record.authority + 1) % authority_count.max(1);
            record.authority_failures = 0;
            let limited_until = record.limited_until_unix_s.get(&record.authority).copied().unwrap_or_default();
            let limited_s = limited_until.saturating_sub(unix_s());
            if is_limited && authority_count > 1 {
                delay_s = OTHER_AUTHORITY_DELAY_S.max(limited_s);
            }
        }
        // From then on, the others are ordered without them.
        let until_latest_s = latest.map_or(u64::MAX, |latest| latest.saturating_sub(unix_s()));
        record.delay(delay_s.min(until_latest_s));
        self.store(state);
        AfterFailure::Later
    }

    /// The names of an order that have failed, each with its failure and whether the authority has not said that it is
    /// this one; none if all names have, or another cause.
    fn failed_names<'f>(&self, failure: &'f Failure, names: &[String]) -> Vec<(String, &'f Failure, bool)> {
        let named = failure.of_names.iter().filter(|(name, _)| names.contains(name));
        let mut failed: Vec<_> = named.map(|(name, failure)| (name.clone(), failure, false)).collect();
        if failed.is_empty() && failure.is_about_names {
            // The certificate in service shows that the authority issues for others; without one, the domain itself
            // is the likeliest to be right.
            let is_proven = |name: &String| match &self.issued {
                Some(issued) => !issued.lacking.contains(name),
                None => *name == self.name,
            };
            failed = names.iter().filter(|name| !is_proven(name)).map(|name| (name.clone(), failure, true)).collect();
        }
        if failed.len() < names.len() { failed } else { Vec::new() }
    }

    /// Whether other names are to have another certificate without these, which have failed. As long as the one in
    /// service is valid for all of them, it is worth more than a new one for some.
    fn may_lose<'n>(&self, mut failed: impl Iterator<Item = &'n str>) -> bool {
        let Some(issued) = &self.issued else { return true };
        let is_lacking = |name: &str| issued.lacking.iter().any(|other| other == name);
        unix_s() >= issued.latest_renewal()
            || self.is_to_be_revoked()
            || self.lacks_untried(issued)
            || failed.all(is_lacking)
    }

    /// The clock was ahead until now. What has failed with it is forgotten, unless an order is due to the right clock
    /// as well.
    pub(crate) fn on_clock_set_back(&mut self, state: &StateFolder) {
        let Some(issued) = self.issued.as_ref().filter(|issued| issued.lacking.is_empty()) else { return };
        let renew_at = self.record.renew_at_unix_s.unwrap_or_else(|| issued.default_renewal());
        if renew_at > unix_s() {
            self.record = std::mem::take(&mut self.record).without_failures();
            self.record.ask_again_at_unix_s = 0;
            self.store(state);
        }
    }

    /// The authority suggests a time to renew from `start` to `end` (RFC 9773 §4.2). A time that was chosen stays while
    /// it is in between.
    pub(crate) fn on_suggestion(&mut self, start_unix_s: u64, end_unix_s: u64, state: &StateFolder) {
        let is_in_window = |at: &u64| (start_unix_s..=end_unix_s).contains(at);
        if self.record.is_suggested && self.record.renew_at_unix_s.as_ref().is_some_and(is_in_window) {
            return;
        }
        self.record.renew_at_unix_s = Some(random_between(start_unix_s, end_unix_s));
        self.record.is_suggested = true;
        self.store(state);
    }

    /// The authority is asked again when to renew in so many seconds.
    pub(crate) fn on_asked(&mut self, ask_again_s: u64, state: &StateFolder) {
        self.record.ask_again_at_unix_s = unix_s() + ask_again_s;
        self.store(state);
    }

    /// When the authority is asked when to renew; not later than `wait_s_max` from now, also if the clock was set back.
    pub(crate) fn next_question(&self, wait_s_max: u64) -> u64 {
        self.record.ask_again_at_unix_s.min(unix_s() + wait_s_max)
    }

    fn store(&self, state: &StateFolder) {
        if let Err(error) = self.try_store(state) {
            log_error(&format!("certificate {}: {error}", self.name));
        }
    }

    fn try_store(&self, state: &StateFolder) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(&self.record).expect("its keys are numbers");
        state.write(&record_file(&self.name), &text).map_err(|error| error.to_string())
    }

    /// What the operator sees of it. An order in progress is at `authority`, and waits for what `progress` says.
    pub(crate) fn report(&self, authority: &str, progress: Option<&'static str>) -> CertificateReport {
        CertificateReport {
            name: self.name.clone(),
            names: self.names.clone(),
            authority: authority.to_owned(),
            is_in_progress: self.is_in_progress,
            progress: progress.filter(|_| self.is_in_progress).map(str::to_owned),
            issued: self.issued.as_ref().map(|issued| issued.report.clone()),
            failure_count: self.record.failure_count,
            last_error: self.record.last_error.clone(),
            failing_names: self.record.failing.report(),
        }
    }

    /// What follows `issued` in a message: the names that the certificate is not for, and why.
    pub(crate) fn lacking_text(&self) -> String {
        self.record.failing.text()
    }
}

impl Issued {
    pub(crate) fn parse(chain: &[u8], key: &[u8], names: &[String]) -> Option<Issued> {
        let certificate = Certificate::from_pem(chain, key).ok()?;
        Some(Issued {
            report: IssuedReport {
                names: certificate.names().collect(),
                issuer: certificate.issuer().to_owned(),
                not_before_unix_s: certificate.not_before_unix_s(),
                not_after_unix_s: certificate.not_after_unix_s(),
            },
            lacking: names.iter().filter(|name| !certificate.is_valid_for_host(name.as_bytes())).cloned().collect(),
            certificate: certificate.chain().first().map(|first| first.clone().into_owned()),
            identifier: certificate
                .chain()
                .first()
                .and_then(|first| CertificateIdentifier::try_from(first).ok())
                .map(CertificateIdentifier::into_owned),
        })
    }

    fn lifetime_s(&self) -> u64 {
        self.report.not_after_unix_s.saturating_sub(self.report.not_before_unix_s)
    }

    /// When it is renewed whatever the authority suggests.
    fn latest_renewal(&self) -> u64 {
        self.report.not_after_unix_s.saturating_sub(self.lifetime_s() / LATEST_RENEWAL_PART)
    }

    /// When it is renewed without a suggestion of the authority: spread by 5 % of the lifetime.
    fn default_renewal(&self) -> u64 {
        let lifetime_s = self.lifetime_s();
        let after_s = if lifetime_s < SHORT_LIFETIME_S { lifetime_s / 2 } else { lifetime_s / 3 * 2 };
        let at = self.report.not_before_unix_s + after_s;
        random_between(at - (lifetime_s / 20).min(after_s), at)
    }
}

fn record_file(name: &str) -> String {
    format!("renewals/{name}.json")
}

/// `names` without those that a wildcard among them is for: an authority refuses both in one order.
fn without_redundant(names: &[String]) -> Vec<String> {
    let is_covered = |name: &String| {
        let above = name.split_once('.').map_or("", |(_, above)| above);
        !name.starts_with('*') && names.iter().any(|other| other.strip_prefix("*.") == Some(above))
    };
    names.iter().filter(|name| !is_covered(name)).cloned().collect()
}

/// The zone of this server that has `name`, which may be a wildcard: the deepest one.
pub(crate) fn zone_of<'z>(name: &str, apexes: impl Iterator<Item = &'z DomainName>) -> Option<&'z DomainName> {
    let name = name.strip_prefix("*.").unwrap_or(name);
    let is_above = |apex: &&DomainName| {
        let below = name.strip_suffix(apex.as_str());
        below.is_some_and(|below| below.is_empty() || below.ends_with('.')) || apex.as_str() == "."
    };
    apexes.filter(is_above).max_by_key(|apex| apex.labels().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_800_000_000;

    fn issued(lifetime_s: u64) -> Issued {
        issued_at(START, lifetime_s)
    }

    fn issued_at(not_before_unix_s: u64, lifetime_s: u64) -> Issued {
        let report = IssuedReport {
            names: vec!["example.com".to_owned()],
            issuer: "CA".to_owned(),
            not_before_unix_s,
            not_after_unix_s: not_before_unix_s + lifetime_s,
        };
        Issued { report, lacking: Vec::new(), certificate: None, identifier: None }
    }

    fn managed(issued: Option<Issued>) -> ManagedCertificate {
        ManagedCertificate {
            name: "example.com".to_owned(),
            names: vec!["example.com".to_owned()],
            issued,
            record: Record::default(),
            is_in_progress: false,
            waiting: Vec::new(),
            waiting_for_revocation: Vec::new(),
            interval_s: 3_600,
            basis: "basis".to_owned(),
        }
    }

    fn folder() -> (tempfile::TempDir, StateFolder) {
        let directory = tempfile::tempdir().expect("created");
        let state = StateFolder::open(directory.path()).expect("opened");
        (directory, state)
    }

    /// An order of all names has failed.
    fn fail(certificate: &mut ManagedCertificate, failure: &Failure, authority_count: usize, state: &StateFolder) {
        let names = certificate.names.clone();
        assert_eq!(certificate.on_failure(failure, &names, authority_count, state), AfterFailure::Later);
    }

    #[test]
    fn renewal_is_at_two_thirds_of_the_lifetime_or_half_of_a_short_one() {
        for (days, from, to) in [(90, 90 * 2 / 3 - 5, 60), (6, 2, 3), (45, 27, 30)] {
            let at = issued(days * DAY_S).default_renewal();
            assert!((START + from * DAY_S..=START + to * DAY_S).contains(&at), "{days}: {}", (at - START) / DAY_S);
        }
        assert_eq!(issued(0).default_renewal(), START);
    }

    #[test]
    fn suggested_time_stays_while_it_is_in_the_window() {
        let (_directory, state) = folder();
        let mut certificate = managed(Some(issued(90 * DAY_S)));
        certificate.on_suggestion(START + 10, START + 20, &state);
        let (chosen, why) = certificate.next_order();
        assert!((START + 10..=START + 20).contains(&chosen) && why.contains("(ARI)"), "{chosen} {why}");
        certificate.on_suggestion(START + 5, START + 100, &state);
        assert_eq!(certificate.next_order().0, chosen);
        certificate.on_suggestion(START - 9, START - 9, &state);
        assert_eq!(certificate.next_order().0, START - 9);
    }

    #[test]
    fn authority_is_not_asked_again_at_once_after_a_restart() {
        let (_directory, state) = folder();
        let mut certificate = managed(Some(issued(90 * DAY_S)));
        assert_eq!(certificate.next_question(DAY_S), 0);
        certificate.on_asked(3_600, &state);
        let text = state.read("renewals/example.com.json").expect("read").expect("stored");
        certificate.record = serde_json::from_slice(&text).expect("a record");
        let in_s = |certificate: &ManagedCertificate, wait_s_max| certificate.next_question(wait_s_max) - unix_s();
        assert!((3_590..=3_600).contains(&in_s(&certificate, DAY_S)));
        assert!(in_s(&certificate, 60) <= 60, "the clock was set back");
        certificate.on_new("https://ca.example/dir", &state);
        assert_eq!(certificate.next_question(DAY_S), 0);
    }

    #[test]
    fn no_suggestion_leads_to_endless_orders_or_to_none() {
        let (_directory, state) = folder();
        let now = unix_s();
        let mut certificate = managed(Some(issued_at(now, 90 * DAY_S)));
        certificate.on_new("https://ca.example/dir", &state);
        certificate.on_suggestion(now - DAY_S, now - 1, &state);
        let (at, why) = certificate.next_order();
        assert!((now + 3_600..=unix_s() + 3_600).contains(&at) && why == "the certificate is new", "{at} {why}");
        // After it has expired.
        certificate.on_suggestion(now + 900 * DAY_S, now + 901 * DAY_S, &state);
        assert_eq!(certificate.next_order().0, now + 75 * DAY_S);
        // Another name needs another certificate at once.
        certificate.issued.as_mut().expect("one").lacking = vec!["www.example.com".to_owned()];
        assert_eq!(certificate.next_order().0, 0);
    }

    #[test]
    fn delays_count_failures_of_the_same_kind() {
        let (_directory, state) = folder();
        let mut certificate = managed(None);
        let failure = |kind| Failure::new(kind, "", "");
        (0..4).for_each(|_| fail(&mut certificate, &failure(Kind::Unreachable), 1, &state));
        fail(&mut certificate, &failure(Kind::Refused), 1, &state);
        let delay_s = certificate.next_order().0 - unix_s();
        assert!((59..=66).contains(&delay_s), "{delay_s}");
        // A full disk is no fault of the authority.
        let mut certificate = managed(None);
        (0..9).for_each(|_| fail(&mut certificate, &failure(Kind::State), 2, &state));
        assert_eq!(certificate.authority_index(2), 0);
    }

    #[test]
    fn authorities_that_limit_are_not_asked_in_turns() {
        let (_directory, state) = folder();
        let limited = Failure::new(Kind::RateLimited, "too many", "wait").with_retry_after(Some(7_200));
        let mut certificate = managed(None);
        for (authority, wait_s) in [(1, 60), (0, 7_200), (1, 7_200)] {
            fail(&mut certificate, &limited, 2, &state);
            let delay_s = certificate.next_order().0 - unix_s();
            let is_expected = (wait_s - 2..=wait_s + wait_s / 10).contains(&delay_s);
            assert!(certificate.authority_index(2) == authority && is_expected, "{authority}: {delay_s}");
        }
    }

    #[test]
    fn revocation_is_not_forgotten_and_not_of_another_certificate() {
        let (_directory, state) = folder();
        let with = |der: u8| {
            let mut issued = issued(90 * DAY_S);
            issued.certificate = Some(CertificateDer::from(vec![der]));
            managed(Some(issued))
        };
        assert!(managed(None).begin_revocation(false, &state).is_err_and(|problem| problem == "none is issued"));
        let mut certificate = with(1);
        (0..2).for_each(|_| certificate.begin_revocation(true, &state).expect("stored"));
        let (at, why) = certificate.next_order();
        assert_eq!((at, why.as_str()), (0, "the certificate is to be revoked"));
        // The next certificate, and another agent.
        let read = || read_json::<Record>(&state, "renewals/example.com.json").expect("read").expect("stored");
        let mut certificate = with(2);
        certificate.record = read();
        certificate.on_new("https://ca.example/dir", &state);
        assert!(!certificate.is_to_be_revoked() && certificate.next_order().0 > unix_s() + 3_000);
        let pending = read().revocations;
        let revoked = Revocation { certificate: vec![1], is_key_compromised: true, issued_by: None };
        assert_eq!(pending, std::slice::from_ref(&revoked));
        certificate.on_revoked(&revoked, &state);
        assert_eq!(read().revocations, []);
    }

    #[test]
    fn failures_delay_the_next_attempt_and_lead_to_the_next_authority() {
        let (_directory, state) = folder();
        let mut certificate = managed(None);
        assert_eq!(certificate.next_order(), (0, "there is no certificate yet".to_owned()));
        let failure = Failure::new(Kind::Refused, "the authority refuses", "ask");
        let authorities: Vec<usize> = (0..7)
            .map(|_| {
                fail(&mut certificate, &failure, 2, &state);
                certificate.authority_index(2)
            })
            .collect();
        assert_eq!(authorities, [0, 0, 1, 1, 1, 0, 0]);
        let (at, why) = certificate.next_order();
        assert!(at >= unix_s() + DAY_S && why.starts_with("attempt 8 after failures; `sanderling renew"), "{at} {why}");
        // It survives a restart.
        let text = state.read("renewals/example.com.json").expect("read").expect("stored");
        let record: Record = serde_json::from_slice(&text).expect("a record");
        assert_eq!((record.failure_count, record.last_error.as_deref()), (7, Some("the authority refuses; ask")));
    }

    fn with_aliases(issued: Option<Issued>) -> ManagedCertificate {
        let names = ["example.com", "www.example.com", "gone.test"].map(str::to_owned).to_vec();
        ManagedCertificate { names, ..managed(issued) }
    }

    fn refusal_of(names: &[&str]) -> Failure {
        let refused = |name: &&str| ((*name).to_owned(), Failure::new(Kind::Refused, format!("{name} is refused"), ""));
        Failure::of_names(names.iter().map(refused).collect())
    }

    #[test]
    fn names_that_have_failed_do_not_delay_the_others() {
        let (_directory, state) = folder();
        let mut certificate = with_aliases(None);
        let names = certificate.names_to_order(false);
        let after = certificate.on_failure(&refusal_of(&["gone.test"]), &names, 1, &state);
        assert_eq!((after, certificate.record.failure_count), (AfterFailure::WithoutFailed, 0));
        assert_eq!(certificate.next_order(), (0, "there is no certificate yet".to_owned()));
        assert_eq!(certificate.names_to_order(false), ["example.com", "www.example.com"]);
        assert_eq!(certificate.names_to_order(true), names);
        assert!(certificate.prefers_http("gone.test") && !certificate.prefers_http("example.com"));
        // Another agent, when the others are issued: the name is tried on, alone with its failures.
        let text = state.read("renewals/example.com.json").expect("read").expect("stored");
        certificate.record = serde_json::from_slice(&text).expect("a record");
        let mut of_two = issued_at(unix_s(), 90 * DAY_S);
        of_two.lacking = vec!["gone.test".to_owned()];
        certificate.issued = Some(of_two);
        certificate.on_new("https://ca.example/dir", &state);
        let (at, why) = certificate.next_order();
        assert!(at <= unix_s() + 66 && why == "attempt 2 for gone.test, which has failed", "{at} {why}");
        let expected = ", but not for gone.test: gone.test is refused";
        assert_eq!(
            (certificate.lacking_text().as_str(), certificate.report("ca", None).failing_names.len()),
            (expected, 1)
        );
        for attempt in 2..=3 {
            let after = certificate.on_failure(&refusal_of(&["gone.test"]), &names, 2, &state);
            assert_eq!(after, AfterFailure::WithoutFailed, "{attempt}");
        }
        assert!(certificate.next_order().0 > unix_s() + 5_900);
        // Another authority may issue for it.
        assert_eq!(
            [certificate.authority_index_for(&names, 2), certificate.authority_index_for(&names[..2], 2)],
            [1, 0]
        );
        certificate.issued.as_mut().expect("one").lacking.clear();
        certificate.on_new("https://ca.example/dir", &state);
        assert_eq!(certificate.lacking_text(), "");
    }

    #[test]
    fn failure_of_all_names_or_of_none_delays_the_certificate() {
        let (_directory, state) = folder();
        let mut certificate = with_aliases(None);
        for failure in
            [refusal_of(&["example.com", "www.example.com", "gone.test"]), Failure::new(Kind::Refused, "", "")]
        {
            fail(&mut certificate, &failure, 1, &state);
            assert!(certificate.next_order().0 > unix_s() + 50);
        }
    }

    #[test]
    fn name_that_the_authority_does_not_tell_is_found() {
        let (_directory, state) = folder();
        let mut failure = Failure::new(Kind::Refused, "cannot issue", "");
        failure.is_about_names = true;
        let mut certificate = with_aliases(None);
        let names = certificate.names.clone();
        assert_eq!(certificate.on_failure(&failure, &names, 1, &state), AfterFailure::WithoutFailed);
        assert_eq!(certificate.names_to_order(false), ["example.com"]);
        // With a certificate for the others, it is the one that is new.
        let mut of_two = issued_at(unix_s(), 90 * DAY_S);
        of_two.lacking = vec!["gone.test".to_owned()];
        let mut certificate = with_aliases(Some(of_two));
        assert_eq!(certificate.on_failure(&failure, &names, 1, &state), AfterFailure::WithoutFailed);
        assert_eq!(certificate.names_to_order(false), names[..2]);
        // None is new: all are tried again.
        let mut certificate = with_aliases(Some(issued_at(unix_s(), 90 * DAY_S)));
        fail(&mut certificate, &failure, 1, &state);
    }

    #[test]
    fn name_is_given_up_only_when_the_certificate_in_service_is_about_to_expire() {
        let (_directory, state) = folder();
        let days = |days| unix_s() - days * DAY_S;
        let names = with_aliases(None).names;
        let failure = refusal_of(&["gone.test"]);
        // After 61 days, and after 76.
        let mut certificate = with_aliases(Some(issued_at(days(61), 90 * DAY_S)));
        fail(&mut certificate, &failure, 1, &state);
        let mut certificate = with_aliases(Some(issued_at(days(76), 90 * DAY_S)));
        assert_eq!(certificate.on_failure(&failure, &names, 1, &state), AfterFailure::WithoutFailed);
        assert!(certificate.next_order().0 <= unix_s() && certificate.names_to_order(false) == names[..2]);
        // The delay does not go beyond that moment.
        let mut certificate = with_aliases(Some(issued_at(unix_s() - 4 * DAY_S, 6 * DAY_S)));
        (0..5).for_each(|_| fail(&mut certificate, &failure, 1, &state));
        let latest = certificate.issued.as_ref().expect("one").latest_renewal();
        assert!(certificate.next_order().0 <= latest, "{}", certificate.next_order().0);
        // A new name does not wait for one that has lapsed.
        let mut with_new = issued_at(days(1), 90 * DAY_S);
        with_new.lacking = vec!["www.example.com".to_owned()];
        let mut certificate = with_aliases(Some(with_new));
        assert_eq!(certificate.on_failure(&failure, &names, 1, &state), AfterFailure::WithoutFailed);
    }

    #[test]
    fn failures_are_forgotten_if_what_they_depended_on_was_corrected() {
        let (_directory, state) = folder();
        let configured = CertificateFiles {
            names: vec![DomainName::parse("example.com").expect("a name")],
            is_automatic: true,
            chain: std::path::PathBuf::new(),
            key: std::path::PathBuf::new(),
            on_renew: Vec::new(),
            location: sanderling_config::diagnostic::Location::Argument("test".to_owned()).into(),
        };
        let load = |basis: &str| ManagedCertificate::load(&configured, 3_600, basis.to_owned(), &state);
        let mut certificate = load("wrong");
        let failure = Failure::new(Kind::Refused, "the authority refuses", "ask");
        (0..4).for_each(|_| fail(&mut certificate, &failure, 2, &state));
        let again = load("wrong");
        assert!(again.next_order().0 > unix_s() + 3_600 && again.authority_index(2) == 1, "{:?}", again.record);
        let corrected = load("right");
        assert_eq!(corrected.next_order(), (0, "there is no certificate yet".to_owned()));
        assert_eq!((corrected.authority_index(2), corrected.record.last_error), (0, None));
    }

    #[test]
    fn delay_from_before_the_clock_was_set_back_is_the_same_from_now_on() {
        let (_directory, state) = folder();
        let mut certificate = managed(None);
        let failure = Failure::new(Kind::Refused, "the authority refuses", "ask");
        fail(&mut certificate, &failure, 1, &state);
        let delayed = certificate.next_order().0;
        assert!(delayed >= unix_s() + 55, "{delayed}");
        certificate.record.not_before_unix_s += 90 * DAY_S;
        assert!((unix_s()..=unix_s() + 70).contains(&certificate.next_order().0));
    }

    #[test]
    fn new_certificate_that_looks_old_is_not_renewed_at_once() {
        let (_directory, state) = folder();
        let days_ago = |days| unix_s() - days * DAY_S;
        // The clock is 90 days ahead of that of the authority, or not at all.
        for (days, is_delayed) in [(90, true), (0, false)] {
            let mut certificate = managed(Some(issued_at(days_ago(days), 80 * DAY_S)));
            certificate.on_new("https://ca.example/dir", &state);
            certificate.on_suggestion(days_ago(days) + 60 * DAY_S, days_ago(days) + 61 * DAY_S, &state);
            let (at, why) = certificate.next_order();
            assert!(at > unix_s() + 3_500, "{days}: {at} {why}");
            assert_eq!(why == CLOCK_AHEAD, is_delayed, "{why}");
        }
    }

    #[test]
    fn limit_of_an_authority_leads_to_the_next_one_at_once() {
        let (_directory, state) = folder();
        let limited = Failure::new(Kind::RateLimited, "too many", "wait");
        for (authority_count, authority, wait_s) in [(1, 0, 3 * 3_600), (2, 1, 60)] {
            let mut certificate = managed(None);
            fail(&mut certificate, &limited, authority_count, &state);
            assert_eq!(certificate.authority_index(authority_count), authority);
            let delay_s = certificate.next_order().0 - unix_s();
            assert!((wait_s - 1..=wait_s + wait_s / 10).contains(&delay_s), "{delay_s}");
        }
        // It is no fault of the authority if something here is not ready.
        let mut certificate = managed(None);
        (0..5).for_each(|_| fail(&mut certificate, &Failure::new(Kind::NotReady, "", ""), 2, &state));
        fail(&mut certificate, &Failure::new(Kind::Refused, "", ""), 2, &state);
        assert_eq!(certificate.authority_index(2), 0);
    }

    #[test]
    fn certificate_of_another_authority_is_not_replaced_by_its_name() {
        let (_directory, state) = folder();
        let mut certificate = managed(Some(issued(90 * DAY_S)));
        certificate.on_issued("https://a.example", &state);
        assert_eq!(
            (certificate.issued_by(), certificate.replaced("https://a.example")),
            (Some("https://a.example"), None)
        );
    }

    #[test]
    fn names_that_a_wildcard_is_for_are_left_out() {
        let check = |names: &[&str], expected: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(without_redundant(&names), expected);
        };
        check(&["example.com", "www.example.com", "*.example.com"], &["example.com", "*.example.com"]);
        check(
            &["example.com", "a.b.example.com", "*.example.com"],
            &["example.com", "a.b.example.com", "*.example.com"],
        );
    }

    #[test]
    fn names_are_in_the_zones_above_them() {
        let zones: Vec<DomainName> = ["example.com", "sub.example.com", "b.example"]
            .iter()
            .map(|name| DomainName::parse(name).expect("a name"))
            .collect();
        for (name, expected) in [
            ("example.com", Some("example.com")),
            ("www.example.com", Some("example.com")),
            ("*.example.com", Some("example.com")),
            ("*.sub.example.com", Some("sub.example.com")),
            ("notexample.com", None),
            ("com", None),
            ("a.b.example", Some("b.example")),
        ] {
            assert_eq!(zone_of(name, zones.iter()).map(DomainName::as_str), expected, "{name}");
        }
    }
}
