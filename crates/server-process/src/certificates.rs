//! Loads the certificates and shared keys that the supervisor passes on.
//!
//! A certificate that cannot be used affects no other: its last good version stays in service. The supervisor keeps the
//! last good versions for the next process, in sealed memory.

use crate::backend_files::BackendFiles;
use crate::certificate_state::{CertificateState, InService, SHOWN_NAMES_MAX, is_renewed_in_time};
use crate::keeper_link::KeeperLink;
use crate::reply_options::reply_options;
use crate::transfers::TsigSecrets;
use crate::tsig_key_state::{SecretInService, TsigKeyState};
use sanderling_config::diagnostic::{Diagnostic, Problem, error_text};
use sanderling_config::log::log_error;
use sanderling_config::{CertificateFiles, Config, DomainName, Service};
use sanderling_dns::ReplyOptions;
use sanderling_ipc::derived::ServedCertificate;
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::secrets::{
    CertificateContent, KEY_LIFETIME_S, KeptCertificate, NoCertificate, PassedCertificate, SharedKeys,
    TICKET_KEY_BYTES, certificates_from_memfd, kept_certificates_from_memfd, kept_certificates_to_memfd,
};
use sanderling_os::clock::unix_seconds;
use sanderling_server::{BackendTlsSettings, Snapshot, Tls};
use sanderling_tls::self_signed::localhost;
use sanderling_tls::{
    Alpn, Certificate, CertificateError, CertificateProblem, CertificateStore, RemoteSigner, ServerTls, TicketKeys,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Minimum remaining validity in seconds of the certificate for `localhost` when it is passed on.
const SELF_SIGNED_LEFT_S_MIN: u64 = 86_400;

const _: () = assert!(
    TICKET_KEY_BYTES == sanderling_tls::TICKET_KEY_BYTES && KEY_LIFETIME_S == sanderling_tls::TICKET_LIFETIME_S as u64
);

/// The secrets from the supervisor.
#[derive(Debug, Default)]
pub(crate) struct SecretDescriptors {
    pub(crate) certificates: Option<OwnedFd>,
    /// Sockets to the keeper that has their keys; none without a keeper.
    pub(crate) keeper_sockets: Vec<OwnedFd>,
    pub(crate) shared_keys: Option<OwnedFd>,
    pub(crate) tsig_secrets: Option<OwnedFd>,
    /// The files for encrypted connections to applications.
    pub(crate) backend_files: Option<OwnedFd>,
    /// The certificates kept by an earlier process; `None` if this one has served.
    pub(crate) kept: Option<OwnedFd>,
}

/// The secrets that came to a serving process.
impl From<Descriptors> for SecretDescriptors {
    fn from(received: Descriptors) -> SecretDescriptors {
        let Descriptors { certificates, keeper_sockets, shared_keys, tsig_secrets, backend_files, .. } = received;
        SecretDescriptors { certificates, keeper_sockets, shared_keys, tsig_secrets, backend_files, kept: None }
    }
}

/// The received secrets, ready for use.
#[derive(Debug, Default)]
pub(crate) struct LoadedSecrets {
    /// The TLS settings of new connections; `None` without certificates.
    pub(crate) tls: Option<Arc<Tls>>,
    /// The options of DNS replies, with the keys of cookies and TSIG.
    reply_options: Arc<ReplyOptions>,
    /// The settings of connections to applications.
    backend_tls: Arc<BackendTlsSettings>,
    /// The shared keys as they were passed on, for the next supervisor.
    pub(crate) keys_file: Option<OwnedFd>,
}

impl LoadedSecrets {
    pub(crate) fn put_into(self, snapshot: &mut Snapshot) {
        (snapshot.tls, snapshot.reply_options) = (self.tls, self.reply_options);
        snapshot.backend_tls = self.backend_tls;
    }
}

/// The certificates in service.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    /// The versions in service, by domain.
    last_good: HashMap<String, Vec<Version>>,
    /// The certificate for `localhost`.
    self_signed: Option<Certificate>,
    /// The state of each, in the order of the configuration.
    pub(crate) states: Vec<CertificateState>,
    /// The certificates in service, for the agent.
    pub(crate) served: Vec<ServedCertificate>,
    /// The last good versions, for the next process.
    pub(crate) kept: Option<OwnedFd>,
    tsig: TsigSecrets,
    backend_files: BackendFiles,
    /// All certificates whose keys the keeper has use it.
    keeper: Arc<KeeperLink>,
    /// The problems of the certificates and the TSIG secrets.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Lines about certificates that have replaced those in service.
    pub(crate) replaced: Vec<String>,
}

/// A good version of a certificate.
#[derive(Clone, Debug)]
struct Version {
    /// The file of the chain that it was read from.
    file: PathBuf,
    certificate: Certificate,
}

impl Certificates {
    /// Loads the secrets from the supervisor for `config`.
    ///
    /// # Errors
    /// Returns an error if the certificates belong to another configuration, or are malformed. Nothing has changed
    /// then.
    pub(crate) fn load(&mut self, config: &Config, descriptors: SecretDescriptors) -> io::Result<LoadedSecrets> {
        let SecretDescriptors {
            certificates,
            keeper_sockets,
            shared_keys: keys_file,
            tsig_secrets,
            backend_files,
            kept,
        } = descriptors;
        let shared_keys = keys_file.as_ref().map(SharedKeys::from_memfd).transpose()?;
        self.diagnostics.clear();
        self.replaced.clear();
        let tsig_keys = self.tsig.load(config, tsig_secrets, &mut self.diagnostics)?;
        let backend_tls = self.backend_files.load(config, backend_files, &mut self.diagnostics)?;
        let tls = match (certificates, &shared_keys) {
            (Some(certificates), Some(keys)) => {
                self.keeper.replace(keeper_sockets);
                Some(self.load_tls(config, &certificates, keys, kept.as_ref())?)
            }
            _ => {
                let Certificates { tsig, backend_files, diagnostics, .. } = std::mem::take(self);
                *self = Certificates { tsig, backend_files, diagnostics, ..Certificates::default() };
                None
            }
        };
        let reply_options = reply_options(config, shared_keys.as_ref(), tsig_keys);
        Ok(LoadedSecrets { tls, reply_options, backend_tls, keys_file })
    }

    /// The TLS settings of new connections.
    fn load_tls(
        &mut self,
        config: &Config,
        certificates: &OwnedFd,
        keys: &SharedKeys,
        kept: Option<&OwnedFd>,
    ) -> io::Result<Arc<Tls>> {
        let files = certificates_from_memfd(certificates)?;
        if files.len() != config.certificates.len() {
            return Err(io::Error::other("the certificates belong to another configuration"));
        }
        let tickets = TicketKeys::new(&keys.tickets.current, keys.tickets.previous.as_deref());
        let kept = kept.or(self.kept.as_ref()).map(read_kept).unwrap_or_default();
        let mut store = self.load_files(&config.certificates, &files, &kept);
        self.keep(files, &kept);
        if config.has_self_signed_certificate {
            store.add_default(self.self_signed()?);
        }
        if store.is_empty() && config.automatic_certificates().next().is_none() {
            self.diagnostics.extend(no_certificate_problem(config));
        }
        Ok(Arc::new(tls(store, tickets, config.refuses_unknown_names)))
    }

    /// The certificate for `localhost`, replaced if it expires before the next ticket keys are made.
    fn self_signed(&mut self) -> io::Result<&Certificate> {
        let now_unix_s = unix_seconds();
        let current = self.self_signed.take().filter(|it| it.not_after_unix_s() > now_unix_s + SELF_SIGNED_LEFT_S_MIN);
        let certificate = match current {
            Some(certificate) => certificate,
            None => localhost(now_unix_s).map_err(io::Error::other)?,
        };
        Ok(self.self_signed.insert(certificate))
    }

    /// Keeps the good versions for the next process.
    fn keep(&mut self, files: Vec<PassedCertificate>, before: &[KeptCertificate]) {
        let mut kept = Vec::new();
        for (state, files) in self.states.iter().zip(files) {
            let domain = state.domain().to_owned();
            match (files, &state.problem, &state.in_service) {
                (Ok(content), None, _) => kept.push(KeptCertificate { domain, file: state.file.clone(), content }),
                (_, _, Some(version)) => {
                    let mut of_file = before.iter().filter(|kept| kept.file == version.file);
                    let of_domain = of_file.clone().find(|kept| kept.domain == domain);
                    let found = of_domain.or_else(|| of_file.next());
                    kept.extend(found.map(|kept| KeptCertificate { domain, ..kept.clone() }));
                }
                _ => {}
            }
        }
        match kept_certificates_to_memfd(kept.iter()) {
            Ok(kept) => self.kept = Some(kept),
            Err(error) => {
                log_error(&format!("cannot keep certificates for the next server process: {}", error_text(&error)));
            }
        }
    }

    /// Loads the certificates' files. A domain whose files cannot be used keeps its current certificate, or gets its
    /// certificate from `kept`.
    pub(crate) fn load_files(
        &mut self,
        certificates: &[CertificateFiles],
        files: &[PassedCertificate],
        kept: &[KeptCertificate],
    ) -> CertificateStore {
        let keeper: Arc<dyn RemoteSigner> = Arc::clone(&self.keeper) as _;
        let mut store = CertificateStore::new();
        let mut before = std::mem::take(&mut self.last_good);
        if before.is_empty() {
            before = versions_of(kept, &keeper);
        }
        self.states.clear();
        self.served.clear();
        let mut rest = files;
        for (group_index, group) in certificates.chunk_by(|one, next| one.names == next.names).enumerate() {
            let (files, after) = rest.split_at(group.len());
            rest = after;
            let loaded = load_domain(group, files, &before, &keeper);
            let in_service: Vec<&Certificate> = loaded.iter().filter_map(Loaded::certificate).collect();
            let used_later = loaded.iter().filter_map(|it| it.not_used.as_ref()?.certificate.as_ref());
            let all: Vec<&Certificate> = in_service.iter().copied().chain(used_later).collect();
            add_to_store(&group[0].names, &all, group_index == 0, &mut store);
            let of_domain: Vec<_> = loaded.iter().filter_map(|it| Some((it.configured, it.certificate()?))).collect();
            for one in &loaded {
                let mut is_refused = false;
                let warnings = match (&one.not_used, one.certificate()) {
                    (None, Some(certificate)) => {
                        let problems = problems(one.configured, certificate, &in_service);
                        let is_apart = |problem: &CertificateProblem| problem.is_of_time() || problem.is_of_name();
                        is_refused = problems.iter().any(|it| it.is_of_all_clients() && !is_apart(it));
                        let mut warnings = warnings(one.configured, problems);
                        warnings.extend(unused_warning(one.configured, certificate, &of_domain));
                        warnings
                    }
                    _ => Vec::new(),
                };
                self.add_state(one, &warnings, &in_service, is_refused);
                self.diagnostics.extend(warnings);
            }
            let versions: Vec<_> = loaded.iter().filter_map(|it| it.version.clone()).collect();
            self.last_good.entry(domain_of(group)).or_default().extend(versions);
            self.diagnostics.extend(loaded.into_iter().filter_map(|it| Some(it.not_used?.problem)));
        }
        store
    }

    /// `of_domain` are those in service.
    fn add_state(
        &mut self,
        loaded: &Loaded<'_>,
        warnings: &[Diagnostic],
        of_domain: &[&Certificate],
        is_refused: bool,
    ) {
        let Loaded { configured, version, has_replaced, not_used } = loaded;
        let in_service =
            version.as_ref().map(|version| InService::of(&version.certificate, &version.file, configured.is_automatic));
        let names: Vec<String> = configured.names.iter().map(|name| name.as_str().to_owned()).collect();
        let state = CertificateState {
            missing_names: names.iter().filter(|name| !is_valid_in(of_domain, name)).cloned().collect(),
            names,
            file: configured.chain.clone(),
            in_service,
            problem: not_used.as_ref().map(|not_used| not_used.problem.to_string()),
            warnings: warnings.iter().map(ToString::to_string).collect(),
            is_refused,
        };
        self.served.extend(version.as_ref().and_then(|version| served(configured, &version.certificate)));
        if let Some(version) = state.in_service.as_ref().filter(|_| *has_replaced) {
            self.replaced.push(format!("certificate of {} replaced: {}", state.domain_text(), version.text()));
        }
        self.states.push(state);
    }

    /// The effects of problems, a line for each certificate.
    pub(crate) fn problems_text(&self) -> String {
        self.states.iter().map(CertificateState::problem_text).collect()
    }

    /// Whether there are certificates, and none can be used.
    pub(crate) fn are_all_unusable(&self) -> bool {
        !self.states.is_empty() && self.states.iter().all(|state| state.in_service.is_none())
    }

    /// Certificates and TSIG keys whose current files are not used.
    pub(crate) fn problem_count(&self) -> usize {
        let tsig_keys = self.tsig_keys().iter().filter(|key| key.secret != SecretInService::Current).count();
        self.backend_files.problem_count
            + tsig_keys
            + self.states.iter().filter(|state| state.problem.is_some()).count()
    }

    /// The state of each TSIG key, in the order of the configuration.
    pub(crate) fn tsig_keys(&self) -> &[TsigKeyState] {
        self.tsig.states()
    }
}

/// The reason why a certificate's current files are not used.
struct NotUsed {
    problem: Diagnostic,
    /// A certificate that is used when the one in service is no longer valid.
    certificate: Option<Certificate>,
}

/// A certificate of the configuration.
struct Loaded<'c> {
    configured: &'c CertificateFiles,
    /// The version in service.
    version: Option<Version>,
    /// Whether it has replaced another certificate.
    has_replaced: bool,
    not_used: Option<NotUsed>,
}

impl Loaded<'_> {
    fn certificate(&self) -> Option<&Certificate> {
        self.version.as_ref().map(|version| &version.certificate)
    }
}

/// The facts about a certificate in service for the agent.
fn served(configured: &CertificateFiles, certificate: &Certificate) -> Option<ServedCertificate> {
    let names = configured.names.iter().map(DomainName::as_str);
    let key = Certificate::key_id_of(certificate.chain().first()?)?;
    Some(ServedCertificate {
        domain: configured.names.first()?.as_str().to_owned(),
        names: names.filter(|name| certificate.is_valid_for_host(name.as_bytes())).map(str::to_owned).collect(),
        key: key.to_string(),
    })
}

fn domain_of(group: &[CertificateFiles]) -> String {
    group[0].names.first().map_or_else(String::new, |name| name.as_str().to_owned())
}

fn versions_of(kept: &[KeptCertificate], keeper: &Arc<dyn RemoteSigner>) -> HashMap<String, Vec<Version>> {
    let mut versions: HashMap<String, Vec<Version>> = HashMap::new();
    for KeptCertificate { domain, file, content } in kept {
        if let Ok(certificate) = certificate_of(content, keeper) {
            versions.entry(domain.clone()).or_default().push(Version { file: file.clone(), certificate });
        }
    }
    versions
}

/// Loads a domain's certificates: the files of each, or a version in `before`: the version with the same path, or
/// another of the domain without a successor.
fn load_domain<'c>(
    group: &'c [CertificateFiles],
    files: &[PassedCertificate],
    before: &HashMap<String, Vec<Version>>,
    keeper: &Arc<dyn RemoteSigner>,
) -> Vec<Loaded<'c>> {
    let mut of_domain = before.get(&domain_of(group)).cloned().unwrap_or_default();
    let mut take = |chain: &PathBuf| {
        let index = of_domain.iter().position(|version| version.file == *chain)?;
        Some(of_domain.remove(index))
    };
    let of_same_path: Vec<_> = group.iter().map(|configured| take(&configured.chain)).collect();
    let mut others = of_domain.into_iter();
    let load_one =
        |((configured, files), of_same_path): ((&'c CertificateFiles, &PassedCertificate), Option<Version>)| {
            let loaded = load(configured, files, keeper);
            // The domain may have another name now.
            let of_any_domain = || before.values().flatten().find(|version| version.file == configured.chain).cloned();
            let before = of_same_path.or_else(|| others.next());
            let (certificate, before) = match loaded {
                Err(problem) => {
                    // A certificate that was not issued yet is not a problem: the agent reports its progress.
                    let is_awaited = configured.is_automatic && matches!(files, Err(NoCertificate::Unreadable(_)));
                    let not_used = (!is_awaited).then_some(NotUsed { problem, certificate: None });
                    let version = before.or_else(of_any_domain);
                    return Loaded { configured, version, has_replaced: false, not_used };
                }
                Ok(certificate) => (certificate, before),
            };
            if let Some(before) = &before
                && let Some(not_used) = regression(configured, &certificate, &before.certificate)
            {
                return Loaded {
                    configured,
                    version: Some(before.clone()),
                    has_replaced: false,
                    not_used: Some(not_used),
                };
            }
            let has_replaced = before.is_some_and(|before| before.certificate.chain() != certificate.chain());
            let version = Some(Version { file: configured.chain.clone(), certificate });
            Loaded { configured, version, has_replaced, not_used: None }
        };
    group.iter().zip(files).zip(of_same_path).map(load_one).collect()
}

/// The reason why `certificate` must not replace `previous`, which is valid now: the new one is not valid now, or for
/// no name of the domain.
fn regression(configured: &CertificateFiles, certificate: &Certificate, previous: &Certificate) -> Option<NotUsed> {
    let now_unix_s = unix_seconds();
    if !previous.is_valid_at(now_unix_s) {
        return None;
    }
    let names = || configured.names.iter().map(|name| name.as_str().as_bytes());
    let chain = configured.chain.display();
    let not_used = |problem: &dyn std::fmt::Display, remedy: String| {
        let message = format!("cannot use `{chain}`: {problem}; the previous version stays in service");
        Diagnostic::error(configured.location.clone(), Problem::new(message, remedy))
    };
    let has_name = |certificate: &Certificate| names().any(|name| certificate.is_valid_for_host(name));
    if has_name(previous) && !has_name(certificate) {
        let needed: Vec<_> = configured.names.iter().map(DomainName::as_str).take(SHOWN_NAMES_MAX).collect();
        let remedy = format!("specify a certificate for {}", needed.join(", "));
        let problem = not_used(&"the certificate is not valid for any name of the domain", remedy);
        return Some(NotUsed { problem, certificate: None });
    }
    let covers = |name| previous.is_valid_for_host(name) || !certificate.is_valid_for_host(name);
    if certificate.is_valid_at(now_unix_s) || !names().all(covers) {
        return None;
    }
    let problem = certificate.time_problem(now_unix_s)?;
    let problem = not_used(&problem, problem.remedy().to_owned());
    Some(NotUsed { problem, certificate: Some(certificate.clone()) })
}

/// The good versions that an earlier process has kept; none if it has sent something else, which must not prevent this
/// process from serving.
fn read_kept(kept: &OwnedFd) -> Vec<KeptCertificate> {
    kept_certificates_from_memfd(kept).unwrap_or_else(|error| {
        log_error(&format!(
            "cannot read the certificates kept by an earlier server process: {}; continuing without them",
            error_text(&error)
        ));
        Vec::new()
    })
}

/// The TLS settings of new connections.
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

/// The problem that no certificate at all is in service.
fn no_certificate_problem(config: &Config) -> Option<Diagnostic> {
    let addresses: Vec<_> = Service::ALL
        .into_iter()
        .filter(|service| service.is_encrypted())
        .flat_map(|service| config.listen(service))
        .map(ToString::to_string)
        .collect();
    let message = format!("no certificate is in service: all handshakes at {} fail", addresses.join(", "));
    Some(Diagnostic::error(config.certificates.first()?.location.clone(), Problem::new(message, "correct the files")))
}

fn load(
    configured: &CertificateFiles,
    files: &PassedCertificate,
    keeper: &Arc<dyn RemoteSigner>,
) -> Result<Certificate, Diagnostic> {
    let location = || configured.location.clone();
    let unusable = |problem: &dyn std::fmt::Display, remedy: &str| {
        let (chain, key) = (configured.chain.display(), configured.key.display());
        Diagnostic::error(location(), Problem::new(format!("cannot use `{chain}` with `{key}`: {problem}"), remedy))
    };
    match files {
        Ok(content) => certificate_of(content, keeper).map_err(|error| unusable(&error, error.remedy())),
        Err(NoCertificate::Unreadable(error)) => Err(Diagnostic::error(location(), Problem::new(error, ""))),
        Err(NoCertificate::Unusable { problem, remedy }) => Err(unusable(problem, remedy)),
    }
}

fn certificate_of(
    content: &CertificateContent,
    keeper: &Arc<dyn RemoteSigner>,
) -> Result<Certificate, CertificateError> {
    match content {
        CertificateContent::Files { chain, key } => Certificate::from_pem(chain, key),
        CertificateContent::Held(chain) => Certificate::with_remote_key(chain.clone(), keeper),
    }
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

/// The reason why clients may refuse the certificate, which is one of `of_domain`. It may lack a name for which another
/// certificate is valid.
fn problems(
    configured: &CertificateFiles,
    certificate: &Certificate,
    of_domain: &[&Certificate],
) -> Vec<CertificateProblem> {
    let now_unix_s = unix_seconds();
    let names = configured.names.iter().map(DomainName::as_str);
    let needed = names.filter(|name| certificate.is_valid_for_host(name.as_bytes()) || !is_valid_in(of_domain, name));
    let mut problems = certificate.problems(now_unix_s, needed);
    let lifetime_s = certificate.not_after_unix_s().saturating_sub(certificate.not_before_unix_s());
    problems.retain(|problem| !is_renewed_in_time(problem, lifetime_s, configured.is_automatic));
    // Clients that do not support the key get another certificate.
    if of_domain.iter().all(|certificate| certificate.key_problem().is_some()) {
        problems.extend(certificate.key_problem());
    }
    problems
}

fn warnings(configured: &CertificateFiles, problems: Vec<CertificateProblem>) -> Vec<Diagnostic> {
    let diagnostic = |problem: CertificateProblem| {
        let message = format!("`{}`: {problem}", configured.chain.display());
        let remedy = match problem {
            CertificateProblem::Expired { .. }
            | CertificateProblem::ExpiresSoon { .. }
            | CertificateProblem::MissingName(_)
                if configured.is_automatic =>
            {
                "`sanderling certificates` says why, and when the server will retry"
            }
            _ => problem.remedy(),
        };
        Diagnostic::warning(configured.location.clone(), Problem::new(message, remedy))
    };
    problems.into_iter().map(diagnostic).collect()
}

/// The warning that the certificate, one of `of_domain`, is not used for the domain's names. Among those that are valid
/// for a name and have the same type of key, the first one is used, if possible one that is valid now.
fn unused_warning(
    configured: &CertificateFiles,
    certificate: &Certificate,
    of_domain: &[(&CertificateFiles, &Certificate)],
) -> Option<Diagnostic> {
    let now_unix_s = unix_seconds();
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
            format!("`{unused}` is not used: it is not valid for any name of the domain"),
            "remove it, or request a certificate with the names of the domain",
        ),
    };
    Some(Diagnostic::warning(configured.location.clone(), problem))
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
                backend_files: None,
                certificates: Some(certificates_to_memfd(&[]).expect("created")),
                keeper_sockets: Vec::new(),
                shared_keys: Some(SharedKeys::default().to_memfd().expect("created")),
                kept,
            };
            let mut certificates = Certificates::default();
            let loaded = certificates.load(&config, descriptors).expect("loaded");
            assert!(loaded.tls.is_some());
            // The next process gets certificates that this process can read.
            let kept = certificates.kept.expect("kept");
            assert_eq!(kept_certificates_from_memfd(&kept).expect("read"), []);
        }
    }
}
