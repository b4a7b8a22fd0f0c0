//! Loads the certificates and shared keys that the supervisor passes on.
//!
//! A certificate that cannot be used affects no other one: its last good version stays in service. The supervisor keeps the last
//! good versions for the next process, in sealed memory that it does not read.

use crate::transfers::TsigSecrets;
use sanderling_config::diagnostic::{Diagnostic, Problem, error_text};
use sanderling_config::log::log;
use sanderling_config::{CertificateFiles, Config, DomainName};
use sanderling_dns::TsigKeys;
use sanderling_ipc::secrets::{
    KEY_LIFETIME_S, KeptCertificate, PemFiles, SharedKeys, TICKET_KEY_BYTES, certificates_from_memfd,
    kept_certificates_from_memfd, kept_certificates_to_memfd,
};
use sanderling_server::Tls;
use sanderling_tls::self_signed::localhost;
use sanderling_tls::{Alpn, Certificate, CertificateProblem, CertificateStore, ServerTls, TicketKeys, time_problem};
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds that the certificate for `localhost` is valid, at least, when it is passed on.
const SELF_SIGNED_LEFT_S_MIN: u64 = 86_400;

const _: () = assert!(
    TICKET_KEY_BYTES == sanderling_tls::TICKET_KEY_BYTES && KEY_LIFETIME_S == sanderling_tls::TICKET_LIFETIME_S as u64
);

/// What the supervisor has passed on.
#[derive(Debug, Default)]
pub(crate) struct SecretDescriptors {
    pub(crate) certificates: Option<OwnedFd>,
    pub(crate) shared_keys: Option<OwnedFd>,
    pub(crate) tsig_secrets: Option<OwnedFd>,
    /// What an earlier process has kept; `None` if this one has served.
    pub(crate) kept: Option<OwnedFd>,
}

/// What was passed on, ready for use.
#[derive(Debug, Default)]
pub(crate) struct LoadedSecrets {
    /// What new encrypted connections begin with; `None` without certificates.
    pub(crate) tls: Option<Arc<Tls>>,
    /// The keys; `None` if neither certificates nor cookies need them.
    pub(crate) shared_keys: Option<SharedKeys>,
    /// The keys as they were passed on, for the next supervisor.
    pub(crate) keys_file: Option<OwnedFd>,
    /// The keys that sign transfers.
    pub(crate) tsig_keys: TsigKeys,
}

/// The certificates in service.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    /// The last good version of each, by the file of its chain.
    last_good: HashMap<PathBuf, Certificate>,
    /// The certificate for `localhost`.
    self_signed: Option<Certificate>,
    /// The state of each, in the order of the configuration.
    pub(crate) states: Vec<CertificateState>,
    /// The last good versions, for the next process.
    pub(crate) kept: Option<OwnedFd>,
    tsig: TsigSecrets,
}

/// A certificate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CertificateState {
    /// The names that it is used for.
    pub(crate) names: Vec<String>,
    pub(crate) file: PathBuf,
    /// Of the version in service; `None` if there is none, and handshakes for the names fail.
    pub(crate) in_service: Option<InService>,
    /// Why the current files are not used.
    pub(crate) problem: Option<String>,
    /// Why clients may refuse the certificate.
    pub(crate) warnings: Vec<String>,
}

/// What a certificate says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InService {
    issuer: String,
    key_type: &'static str,
    not_before_unix_s: u64,
    pub(crate) not_after_unix_s: u64,
}

impl Certificates {
    /// Loads what the supervisor has passed on for `config`.
    ///
    /// # Errors
    /// The certificates are those of another configuration, or malformed. Nothing has changed.
    pub(crate) fn load(
        &mut self,
        config: &Config,
        descriptors: SecretDescriptors,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> io::Result<LoadedSecrets> {
        let SecretDescriptors { certificates, shared_keys: keys_file, tsig_secrets, kept } = descriptors;
        let shared_keys = keys_file.as_ref().map(SharedKeys::from_memfd).transpose()?;
        let tsig_keys = self.tsig.load(config, tsig_secrets, diagnostics)?;
        let tls = match (certificates, &shared_keys) {
            (Some(certificates), Some(keys)) => {
                Some(self.load_tls(config, &certificates, keys, kept.as_ref(), diagnostics)?)
            }
            _ => {
                *self = Certificates { tsig: std::mem::take(&mut self.tsig), ..Certificates::default() };
                None
            }
        };
        Ok(LoadedSecrets { tls, shared_keys, keys_file, tsig_keys })
    }

    /// What new connections begin with.
    fn load_tls(
        &mut self,
        config: &Config,
        certificates: &OwnedFd,
        keys: &SharedKeys,
        kept: Option<&OwnedFd>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> io::Result<Arc<Tls>> {
        let files = certificates_from_memfd(certificates)?;
        if files.len() != config.certificates.len() {
            return Err(io::Error::other("the certificates are those of another configuration"));
        }
        let tickets = TicketKeys::new(&keys.tickets.current, keys.tickets.previous.as_deref());
        let kept = kept.or(self.kept.as_ref()).map(read_kept).unwrap_or_default();
        let mut store = self.load_files(&config.certificates, &files, &kept, diagnostics);
        self.keep(files, kept);
        if config.has_self_signed_certificate {
            store.add_default(self.self_signed()?);
        }
        Ok(Arc::new(tls(store, tickets, config.refuses_unknown_names)))
    }

    /// The certificate for `localhost`; another one if it expires before the next ticket keys are made.
    fn self_signed(&mut self) -> io::Result<&Certificate> {
        let now_unix_s = now_unix_s();
        let current = self.self_signed.take().filter(|it| it.not_after_unix_s() > now_unix_s + SELF_SIGNED_LEFT_S_MIN);
        let certificate = match current {
            Some(certificate) => certificate,
            None => localhost(now_unix_s).map_err(io::Error::other)?,
        };
        Ok(self.self_signed.insert(certificate))
    }

    /// Keeps the good versions for the next process.
    fn keep(&mut self, files: Vec<PemFiles>, mut kept: Vec<KeptCertificate>) {
        kept.retain(|kept| self.states.iter().any(|state| state.file == kept.file));
        for (state, files) in self.states.iter().zip(files) {
            if let (Ok((chain, key)), None) = (files, &state.problem) {
                kept.retain(|kept| kept.file != state.file);
                kept.push(KeptCertificate { file: state.file.clone(), chain, key });
            }
        }
        match kept_certificates_to_memfd(kept.iter()) {
            Ok(kept) => self.kept = Some(kept),
            Err(error) => {
                log(&format!("cannot keep certificates for the next server process: {}", error_text(&error)));
            }
        }
    }

    /// Loads the files of the certificates; those of which no version is good from `kept`.
    pub(crate) fn load_files(
        &mut self,
        certificates: &[CertificateFiles],
        files: &[PemFiles],
        kept: &[KeptCertificate],
        diagnostics: &mut Vec<Diagnostic>,
    ) -> CertificateStore {
        let mut store = CertificateStore::new();
        let mut last_good = HashMap::new();
        self.states.clear();
        let mut files = files.iter();
        for (group_index, group) in certificates.chunk_by(|one, next| one.names == next.names).enumerate() {
            let loaded: Vec<_> = group
                .iter()
                .zip(files.by_ref())
                .map(|(configured, files)| {
                    let not_used = self.load_one(configured, files, kept);
                    (configured, self.last_good.get(&configured.chain).cloned(), not_used)
                })
                .collect();
            let in_service: Vec<&Certificate> =
                loaded.iter().filter_map(|(_, certificate, _)| certificate.as_ref()).collect();
            let used_later = loaded.iter().filter_map(|(.., not_used)| not_used.as_ref()?.certificate.as_ref());
            let all: Vec<&Certificate> = in_service.iter().copied().chain(used_later).collect();
            add_to_store(&group[0].names, &all, group_index == 0, &mut store);
            let of_domain: Vec<_> =
                loaded.iter().filter_map(|(it, certificate, _)| Some((*it, certificate.as_ref()?))).collect();
            for (configured, certificate, not_used) in &loaded {
                let warnings = match (not_used, certificate) {
                    (None, Some(certificate)) => {
                        let mut warnings = warnings(configured, certificate, &in_service);
                        warnings.extend(unused_warning(configured, certificate, &of_domain));
                        warnings
                    }
                    _ => Vec::new(),
                };
                if let Some(certificate) = certificate {
                    last_good.insert(configured.chain.clone(), certificate.clone());
                }
                self.states.push(CertificateState {
                    names: configured.names.iter().map(|name| name.as_str().to_owned()).collect(),
                    file: configured.chain.clone(),
                    in_service: certificate.as_ref().map(InService::of),
                    problem: not_used.as_ref().map(|not_used| not_used.problem.to_string()),
                    warnings: warnings.iter().map(ToString::to_string).collect(),
                });
                diagnostics.extend(warnings);
            }
            diagnostics.extend(loaded.into_iter().filter_map(|(.., not_used)| Some(not_used?.problem)));
        }
        self.last_good = last_good;
        store
    }

    /// Loads a certificate: its files, or its last good version; why the files are not used.
    fn load_one(
        &mut self,
        configured: &CertificateFiles,
        files: &PemFiles,
        kept: &[KeptCertificate],
    ) -> Option<NotUsed> {
        let of_kept = || {
            let kept = kept.iter().find(|kept| kept.file == configured.chain)?;
            Certificate::from_pem(&kept.chain, &kept.key).ok()
        };
        let previous = self.last_good.remove(&configured.chain).or_else(of_kept);
        let (in_service, not_used) = match (load(configured, files), previous) {
            // It was not issued yet: the agent reports how far it is.
            (Err(_), previous) if configured.is_automatic && files.is_err() => (previous, None),
            (Err(problem), previous) => (previous, Some(NotUsed { problem, certificate: None })),
            (Ok(certificate), Some(previous)) => match time_regression(configured, &certificate, &previous) {
                Some(problem) => (Some(previous), Some(NotUsed { problem, certificate: Some(certificate) })),
                None => (Some(certificate), None),
            },
            (Ok(certificate), None) => (Some(certificate), None),
        };
        self.last_good.extend(in_service.map(|certificate| (configured.chain.clone(), certificate)));
        not_used
    }

    /// Certificates whose current files are not used.
    pub(crate) fn problem_count(&self) -> usize {
        self.states.iter().filter(|state| state.problem.is_some()).count()
    }
}

/// Why the current files of a certificate are not used.
struct NotUsed {
    problem: Diagnostic,
    /// A certificate that is used when that in service is not valid any more.
    certificate: Option<Certificate>,
}

/// Why `certificate` must not replace `previous`: it is not valid now, and `previous` is, for the same names.
fn time_regression(
    configured: &CertificateFiles,
    certificate: &Certificate,
    previous: &Certificate,
) -> Option<Diagnostic> {
    let now_unix_s = now_unix_s();
    let mut names = configured.names.iter().map(|name| name.as_str().as_bytes());
    let covers = |name| previous.is_valid_for_host(name) || !certificate.is_valid_for_host(name);
    if certificate.is_valid_at(now_unix_s) || !previous.is_valid_at(now_unix_s) || !names.all(covers) {
        return None;
    }
    let problem = certificate.time_problem(now_unix_s)?;
    let message =
        format!("cannot use `{}`: {problem}; the previous version stays in service", configured.chain.display());
    Some(Diagnostic::error(configured.location.clone(), Problem::new(message, problem.remedy())))
}

/// The good versions that an earlier process has kept; none if it has sent something else: it must not prevent this one from
/// serving.
fn read_kept(kept: &OwnedFd) -> Vec<KeptCertificate> {
    kept_certificates_from_memfd(kept).unwrap_or_else(|error| {
        log(&format!(
            "cannot read the certificates that an earlier server process has kept: {}; going on without them",
            error_text(&error)
        ));
        Vec::new()
    })
}

/// What new connections begin with.
pub(crate) fn tls(store: CertificateStore, tickets: TicketKeys, refuses_unknown_names: bool) -> Tls {
    let tickets = Arc::new(tickets);
    let mut of_https = store.clone();
    if refuses_unknown_names {
        of_https.refuse_unknown_names();
    }
    let server_tls =
        |store: CertificateStore, alpn: &[Alpn]| ServerTls::new(Arc::new(store), Arc::clone(&tickets), alpn);
    Tls { https: server_tls(of_https, &[Alpn::H2, Alpn::Http1, Alpn::Http10]), dot: server_tls(store, &[Alpn::Dot]) }
}

pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn load(configured: &CertificateFiles, files: &PemFiles) -> Result<Certificate, Diagnostic> {
    let (chain, key) =
        files.as_ref().map_err(|error| Diagnostic::error(configured.location.clone(), Problem::new(error, "")))?;
    Certificate::from_pem(chain, key).map_err(|error| {
        let (chain, key) = (configured.chain.display(), configured.key.display());
        let problem = Problem::new(format!("cannot use `{chain}` with `{key}`: {error}"), error.remedy());
        Diagnostic::error(configured.location.clone(), problem)
    })
}

/// Adds the certificates of a domain for its `names`: for each name those that are valid for it, or all if none is.
fn add_to_store(names: &[DomainName], certificates: &[&Certificate], is_default: bool, store: &mut CertificateStore) {
    for name in names.iter().map(DomainName::as_str) {
        let has_valid = is_valid_in(certificates, name);
        let used = certificates.iter().filter(|it| !has_valid || it.is_valid_for_host(name.as_bytes()));
        used.for_each(|certificate| store.add(name, certificate));
    }
    if is_default {
        certificates.iter().for_each(|certificate| store.add_default(certificate));
    }
}

fn is_valid_in(certificates: &[&Certificate], name: &str) -> bool {
    certificates.iter().any(|certificate| certificate.is_valid_for_host(name.as_bytes()))
}

/// Why clients may refuse the certificate, which is one of `of_domain`. A name for which another one is valid it need not have.
fn warnings(configured: &CertificateFiles, certificate: &Certificate, of_domain: &[&Certificate]) -> Vec<Diagnostic> {
    let now_unix_s = now_unix_s();
    let names = configured.names.iter().map(DomainName::as_str);
    let needed = names.filter(|name| certificate.is_valid_for_host(name.as_bytes()) || !is_valid_in(of_domain, name));
    let problems = certificate.problems(now_unix_s, needed);
    let diagnostic = |problem: CertificateProblem| {
        let message = format!("`{}`: {problem}", configured.chain.display());
        Diagnostic::warning(configured.location.clone(), Problem::new(message, problem.remedy()))
    };
    problems.into_iter().map(diagnostic).collect()
}

/// That the certificate, one of `of_domain`, is not used for the names of the domain. Of those that are valid for a name and have
/// the same type of key, the first one is used, if possible one that is valid now.
fn unused_warning(
    configured: &CertificateFiles,
    certificate: &Certificate,
    of_domain: &[(&CertificateFiles, &Certificate)],
) -> Option<Diagnostic> {
    let now_unix_s = now_unix_s();
    let certificates: Vec<&Certificate> = of_domain.iter().map(|(_, certificate)| *certificate).collect();
    let mut others = Vec::new();
    for name in configured.names.iter().map(DomainName::as_str) {
        let has_valid = is_valid_in(&certificates, name);
        if has_valid && !certificate.is_valid_for_host(name.as_bytes()) {
            continue;
        }
        let mut alike = of_domain.iter().filter(|(_, it)| {
            it.has_same_key_type(certificate) && (!has_valid || it.is_valid_for_host(name.as_bytes()))
        });
        let first_valid = alike.clone().find(|(_, it)| it.is_valid_at(now_unix_s));
        let (used, _) = first_valid.or_else(|| alike.next())?;
        if used.location == configured.location && used.chain == configured.chain {
            return None;
        }
        others.push(used.chain.display());
    }
    let unused = configured.chain.display();
    let problem = match others.first() {
        Some(used) => Problem::new(
            format!("`{unused}` is not used: `{used}` has a key of the same type ({})", certificate.key_type()),
            "remove one of them, or use a certificate with another type of key",
        ),
        None if configured.names.is_empty() => return None,
        None => Problem::new(
            format!("`{unused}` is not used: it is valid for no name of the domain"),
            "remove it, or request a certificate with the names of the domain",
        ),
    };
    Some(Diagnostic::warning(configured.location.clone(), problem))
}

impl CertificateState {
    /// Whether the operator should do something.
    pub(crate) fn needs_attention(&self) -> bool {
        let is_due = self.in_service.as_ref().is_some_and(|version| version.time_problem().is_some());
        self.problem.is_some() || !self.warnings.is_empty() || is_due
    }

    pub(crate) fn names_text(&self) -> String {
        if self.names.is_empty() { "every host".to_owned() } else { self.names.join(" ") }
    }
}

impl InService {
    fn of(certificate: &Certificate) -> InService {
        InService {
            issuer: certificate.issuer().to_owned(),
            key_type: certificate.key_type(),
            not_before_unix_s: certificate.not_before_unix_s(),
            not_after_unix_s: certificate.not_after_unix_s(),
        }
    }

    /// What is wrong with its time now.
    fn time_problem(&self) -> Option<CertificateProblem> {
        time_problem(self.not_before_unix_s, self.not_after_unix_s, now_unix_s())
    }

    /// `ECDSA, issued by R11, 71 days left`.
    pub(crate) fn text(&self) -> String {
        let days = |seconds: u64| match seconds / 86_400 {
            1 => "1 day".to_owned(),
            days => format!("{days} days"),
        };
        let time = match self.time_problem() {
            Some(CertificateProblem::Expired { since_s: ..86_400 }) => "EXPIRED today".to_owned(),
            Some(CertificateProblem::Expired { since_s }) => format!("EXPIRED {} ago", days(since_s)),
            Some(CertificateProblem::NotYetValid { in_s: ..86_400 }) => "NOT YET VALID: in less than a day".to_owned(),
            Some(CertificateProblem::NotYetValid { in_s }) => format!("NOT YET VALID: in {}", days(in_s)),
            Some(_) => format!("{} left, RENEWAL IS DUE", days(self.not_after_unix_s.saturating_sub(now_unix_s()))),
            None => format!("{} left", days(self.not_after_unix_s.saturating_sub(now_unix_s()))),
        };
        format!("{}, issued by {}, {time}", self.key_type, self.issuer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_ipc::secrets::certificates_to_memfd;
    use sanderling_os::memfd;

    #[test]
    fn kept_certificates_that_cannot_be_read_prevent_nothing() {
        let config = Config { has_self_signed_certificate: true, ..Config::default() };
        let own = || kept_certificates_to_memfd([].iter()).expect("created");
        let of_another_version = memfd::create("test", &[0xff, 0, 0]).expect("created");
        for kept in [None, Some(own()), Some(of_another_version), Some(memfd::create("test", b"").expect("created"))] {
            let descriptors = SecretDescriptors {
                tsig_secrets: None,
                certificates: Some(certificates_to_memfd(&[]).expect("created")),
                shared_keys: Some(SharedKeys::default().to_memfd().expect("created")),
                kept,
            };
            let mut certificates = Certificates::default();
            let loaded = certificates.load(&config, descriptors, &mut Vec::new()).expect("loaded");
            assert!(loaded.tls.is_some());
            // The next process gets what this one can read.
            let kept = certificates.kept.expect("kept");
            assert_eq!(kept_certificates_from_memfd(&kept).expect("read"), []);
        }
    }

    #[test]
    fn text_has_the_days_until_the_certificate_expires_or_since_it_has() {
        const DAY_S: i64 = 86_400;
        let check = |left_s: i64, expected: &str| {
            let not_after_unix_s = now_unix_s().strict_add_signed(left_s);
            let not_before_unix_s = not_after_unix_s.strict_add_signed(-90 * DAY_S);
            let version =
                InService { issuer: "R11".to_owned(), key_type: "ECDSA", not_before_unix_s, not_after_unix_s };
            assert_eq!(version.text(), format!("ECDSA, issued by R11, {expected}"), "{left_s} s");
        };
        // The clock goes on meanwhile.
        check(92 * DAY_S + 1_000, "NOT YET VALID: in 2 days");
        check(90 * DAY_S + 1_000, "NOT YET VALID: in less than a day");
        check(31 * DAY_S + 1_000, "31 days left");
        check(2 * DAY_S + 1_000, "2 days left, RENEWAL IS DUE");
        check(DAY_S + 1_000, "1 day left, RENEWAL IS DUE");
        check(1_000, "0 days left, RENEWAL IS DUE");
        check(-1_000, "EXPIRED today");
        check(-DAY_S - 1_000, "EXPIRED 1 day ago");
        check(-2 * DAY_S - 1_000, "EXPIRED 2 days ago");
    }
}
