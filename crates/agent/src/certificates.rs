//! The requested certificates, with their state in the state folder and their renewal times.

use crate::clock::{random_between, unix_s};
use crate::failing_names::FailingNames;
use crate::failure::{Failure, Kind};
use crate::json_files::read_json;
use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use sanderling_config::log::{log_error, log_warning};
use sanderling_config::{CertificateFiles, LATEST_RENEWAL_PART};
use sanderling_ipc::Connection;
use sanderling_ipc::agent::{CertificateReport, IssuedReport};
use sanderling_state::{CERTIFICATES, KEY_FILE, StateFolder};
use sanderling_tls::Certificate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const DAY_S: u64 = 24 * 3600;
/// Certificates that are valid for less are renewed when half of that has passed, others after two thirds.
const SHORT_LIFETIME_S: u64 = 10 * DAY_S;
/// The number of failures in a row after which the next authority is tried.
const FAILURES_PER_AUTHORITY: u32 = 3;
const CLOCK_AHEAD: &str = "a new certificate is already due for renewal; check the system clock";
/// The delay before the next authority is tried, if one has refused because of too many requests.
const OTHER_AUTHORITY_DELAY_S: u64 = 60;

/// A requested certificate.
pub(crate) struct ManagedCertificate {
    /// The domain, which is also its folder's name.
    pub(crate) name: String,
    pub(crate) names: Vec<String>,
    pub(crate) issued: Option<Issued>,
    pub(crate) record: Record,
    pub(crate) is_in_progress: bool,
    /// The clients that wait for the order.
    pub(crate) waiting: Vec<Connection>,
    /// The clients that wait for the revocations.
    pub(crate) waiting_for_revocation: Vec<Connection>,
    /// Minimum seconds between two renewals, so that no suggestion leads to an endless sequence of orders.
    interval_s: u64,
    /// The inputs of its orders ([`OrderBasis`](crate::order_basis::OrderBasis)).
    basis: String,
}

/// A certificate to revoke when its replacement is issued.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Revocation {
    /// As DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) is_key_compromised: bool,
    /// The directory of the authority that issued it, if known.
    pub(crate) issued_by: Option<String>,
}

/// The consequences of a failed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The order is retried later, for the same names.
    Later,
    /// Some names have failed: the others are ordered without them.
    WithoutFailed,
}

/// The issued certificate.
pub(crate) struct Issued {
    pub(crate) report: IssuedReport,
    /// The configured names that the certificate does not cover.
    lacking: Vec<String>,
    /// The certificate itself, without its issuers' certificates.
    pub(crate) certificate: Option<CertificateDer<'static>>,
    /// The certificate's identifier at the authority (RFC 9773 §4.1).
    pub(crate) identifier: Option<CertificateIdentifier<'static>>,
}

/// The stored state other than the certificate.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When the certificate is renewed.
    renew_at_unix_s: Option<u64>,
    /// Whether the authority has suggested that.
    is_suggested: bool,
    /// The directory of the authority that has issued the certificate.
    #[serde(default)]
    issued_by: Option<String>,
    /// The index of the next order's authority.
    #[serde(default)]
    authority: usize,
    /// Failed attempts at that authority.
    #[serde(default)]
    authority_failures: u32,
    /// Failed attempts since the last success, and how many of these the authority refused.
    pub(crate) failure_count: u32,
    #[serde(default)]
    refusal_count: u32,
    /// The times until which authorities, by index, accept no requests.
    #[serde(default)]
    limited_until_unix_s: BTreeMap<usize, u64>,
    pub(crate) last_error: Option<String>,
    /// The names that orders are made without.
    #[serde(default)]
    failing: FailingNames,
    /// The inputs of the last failed order.
    #[serde(default)]
    failed_basis: Option<String>,
    /// The earliest time of the next attempt, and the delay that led to it.
    not_before_unix_s: u64,
    #[serde(default)]
    delay_s: u64,
    /// The time of the next request for the authority's renewal suggestion (RFC 9773 §4.3.2).
    #[serde(default)]
    ask_again_at_unix_s: u64,
    #[serde(default)]
    pub(crate) revocations: Vec<Revocation>,
}

impl Record {
    /// This record, as if no order had failed.
    fn without_failures(self) -> Record {
        let Record { renew_at_unix_s, is_suggested, issued_by, ask_again_at_unix_s, revocations, .. } = self;
        Record { renew_at_unix_s, is_suggested, issued_by, ask_again_at_unix_s, revocations, ..Record::default() }
    }

    /// No attempt is made in the next seconds.
    fn delay(&mut self, delay_s: u64) {
        (self.not_before_unix_s, self.delay_s) = (unix_s() + delay_s, delay_s);
    }

    /// The earliest time of the next attempt. If the clock was set back since then, the delay starts again now.
    fn not_before(&self) -> u64 {
        self.not_before_unix_s.min(unix_s() + self.delay_s)
    }
}

impl ManagedCertificate {
    /// `basis` identifies the inputs of its orders. Failures of orders with different inputs are forgotten.
    pub(crate) fn load(
        configured: &CertificateFiles,
        interval_s: u64,
        basis: String,
        state: &StateFolder,
    ) -> ManagedCertificate {
        let names: Vec<String> = configured.names.iter().map(|name| name.as_str().to_owned()).collect();
        let name = configured.names.first().map_or(String::new(), |name| name.as_str().to_owned());
        let record = read_json(state, &record_file(&name)).unwrap_or_else(|problem| {
            log_error(&format!("certificate {name}: {problem}; choosing the renewal time again"));
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

    /// The time of the next order, and the reason.
    pub(crate) fn next_order(&self) -> (u64, String) {
        let not_before = self.record.not_before();
        let reason = match &self.issued {
            None => "there is no certificate yet",
            Some(issued) if self.lacks_untried(issued) => "the domain's names have changed",
            Some(_) if self.is_to_be_revoked() => "the certificate will be revoked",
            Some(issued) => {
                let renewal = self.next_renewal(issued, not_before);
                // Other failures delay the certificate as well.
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

    /// The next order's names: without those that have failed, until each is retried; all if requested by the operator.
    pub(crate) fn names_to_order(&self, is_wanted: bool) -> Vec<String> {
        let ordered = if is_wanted { Vec::new() } else { self.record.failing.ordered(&self.names) };
        if ordered.is_empty() { self.names.clone() } else { ordered }
    }

    /// Whether an authority validates the name over HTTP although it is in a zone of this server: validation by DNS has
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

    /// Whether the current certificate must be revoked once a replacement is issued.
    pub(crate) fn is_to_be_revoked(&self) -> bool {
        let certificate = self.issued.as_ref().and_then(|issued| issued.certificate.as_deref());
        certificate.is_some_and(|certificate| self.record.revocations.iter().any(|one| one.certificate == certificate))
    }

    /// Requests the revocation of the current certificate once it is replaced.
    ///
    /// # Errors
    /// Returns the reason why the certificate cannot be revoked.
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
        (count > 0).then(|| format!("attempt {} after failures; `sanderling renew {name}` retries now", count + 1))
    }

    /// The time of the next order after a failure, for the log.
    pub(crate) fn next_attempt(&self) -> String {
        let wait_s = self.record.not_before().saturating_sub(unix_s());
        let wait = if wait_s < 120 { format!("{wait_s} s") } else { format!("{} min", wait_s / 60) };
        format!("the next attempt is in {wait}; `sanderling renew {}` retries now", self.name)
    }

    /// The index of the next order's authority, of `count`.
    pub(crate) fn authority_index(&self, count: usize) -> usize {
        self.record.authority % count.max(1)
    }

    /// The index of the authority for an order of these names. After several failures, other authorities are tried.
    pub(crate) fn authority_index_for(&self, names: &[String], count: usize) -> usize {
        let failures = names.iter().map(|name| self.record.failing.failure_count(name)).max().unwrap_or(0);
        (self.record.authority + (failures / FAILURES_PER_AUTHORITY) as usize) % count.max(1)
    }

    /// The directory of the authority that issued the certificate, if known.
    pub(crate) fn issued_by(&self) -> Option<&str> {
        self.record.issued_by.as_deref()
    }

    /// The certificate that an order at the authority with this directory replaces, if that authority makes
    /// suggestions. After a failure, the order does not name the replaced certificate, since some authorities fail
    /// because of that.
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
        // From then on, the other names are ordered without them.
        let until_latest_s = latest.map_or(u64::MAX, |latest| latest.saturating_sub(unix_s()));
        record.delay(delay_s.min(until_latest_s));
        self.store(state);
        AfterFailure::Later
    }

    /// The failed names of an order, each with its failure and whether the authority has not identified it; empty if
    /// all names failed, or for another cause.
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

    /// Whether the other names should get a certificate without these, which have failed. While the certificate in
    /// service is valid for all of them, it is better than a new one for some.
    fn may_lose<'n>(&self, mut failed: impl Iterator<Item = &'n str>) -> bool {
        let Some(issued) = &self.issued else { return true };
        let is_lacking = |name: &str| issued.lacking.iter().any(|other| other == name);
        unix_s() >= issued.latest_renewal()
            || self.is_to_be_revoked()
            || self.lacks_untried(issued)
            || failed.all(is_lacking)
    }

    /// The clock was ahead until now. Failures due to the wrong clock are forgotten, unless an order is due by the
    /// right clock as well.
    pub(crate) fn on_clock_set_back(&mut self, state: &StateFolder) {
        let Some(issued) = self.issued.as_ref().filter(|issued| issued.lacking.is_empty()) else { return };
        let renew_at = self.record.renew_at_unix_s.unwrap_or_else(|| issued.default_renewal());
        if renew_at > unix_s() {
            self.record = std::mem::take(&mut self.record).without_failures();
            self.record.ask_again_at_unix_s = 0;
            self.store(state);
        }
    }

    /// The authority suggests a time to renew from `start` to `end` (RFC 9773 §4.2). A chosen time stays while it is
    /// within the range.
    pub(crate) fn on_suggestion(&mut self, start_unix_s: u64, end_unix_s: u64, state: &StateFolder) {
        let is_in_window = |at: &u64| (start_unix_s..=end_unix_s).contains(at);
        if self.record.is_suggested && self.record.renew_at_unix_s.as_ref().is_some_and(is_in_window) {
            return;
        }
        self.record.renew_at_unix_s = Some(random_between(start_unix_s, end_unix_s));
        self.record.is_suggested = true;
        self.store(state);
    }

    /// Schedules the next request for the authority's renewal suggestion.
    pub(crate) fn on_asked(&mut self, ask_again_s: u64, state: &StateFolder) {
        self.record.ask_again_at_unix_s = unix_s() + ask_again_s;
        self.store(state);
    }

    /// The time of the next request for a renewal suggestion; at most `wait_s_max` from now, even if the clock was set
    /// back.
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

    /// The certificate's state, as shown to the operator. The report of an order in progress at `authority`, which
    /// waits for `progress`.
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

    /// The text after `issued` in a message: the names that the certificate lacks, and why.
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

    /// The renewal time, whatever the authority suggests.
    fn latest_renewal(&self) -> u64 {
        self.report.not_after_unix_s.saturating_sub(self.lifetime_s() / LATEST_RENEWAL_PART)
    }

    /// The renewal time without a suggestion of the authority: spread by 5 % of the lifetime.
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

#[cfg(test)]
mod tests;
