//! The command `check`: reports everything that `serve` could not serve. The command binds no socket.

use crate::access;
use crate::backend_files::BackendFiles;
use crate::certificate_state::CertificateState;
use crate::certificates::Certificates;
use crate::derived_checks;
use crate::exposed_secrets;
use crate::load_status::{LoadStatus, SiteService, ZoneState};
use crate::loader::{Loaded, Loader, hash_seed};
use crate::sandbox::Sandbox;
use crate::service_unit::ServiceUnit;
use crate::signed_zone_checks;
use crate::site_lint;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, Severity, error_text};
use sanderling_config::log::{print, report};
use sanderling_config::{
    Authority, CertificateFiles, Config, ConfigSource, Exit, LogKind, SignedZone, TrustedProxies, Zone, ZoneOrigin,
    account_id, lookup_user, read_issued,
};
use sanderling_ipc::backend_files::read_backend_files;
use sanderling_ipc::derived::DerivedSet;
use sanderling_ipc::secrets::{CertificateContent, NoCertificate, PassedCertificate};
use sanderling_os::process::effective_uid;
use sanderling_os::user::User;
use sanderling_zone_files::{self as zone_files, Derivations};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::Path;

/// How `check` judges and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Whether warnings are errors.
    pub is_strict: bool,
    /// Whether the report is JSON on standard output.
    pub is_json: bool,
}

/// Checks the configuration of `source`, with its sites and zones. `other_problems` are those that other processes
/// would find: of the state folder, of the private keys of zones there, and of the roots of this machine.
pub fn check(
    source: &ConfigSource,
    options: CheckOptions,
    other_problems: impl Fn(&Config, Option<&Path>) -> Vec<Diagnostic>,
) -> Exit {
    let unit = ServiceUnit::of(source).filter(|_| effective_uid() == 0);
    let (diagnostics, summary) = match source.load().and_then(|config| load(&config, unit.as_ref(), other_problems)) {
        Ok((Loaded { mut errors, mut warnings, load_status, .. }, certificates, user)) => {
            errors.append(&mut warnings);
            (errors, user + &summary(&load_status, &certificates))
        }
        Err(diagnostics) => (diagnostics, String::new()),
    };
    let fails = |diagnostic: &Diagnostic| match diagnostic.severity {
        Severity::Error | Severity::Incomplete => true,
        Severity::Warning => options.is_strict,
        Severity::Note => false,
    };
    let has_failed = diagnostics.iter().any(fails);
    if options.is_json {
        print(&json(&diagnostics));
    } else {
        report(&diagnostics);
        if !has_failed {
            print(&summary);
        }
    }
    if has_failed { Exit::Failure } else { Exit::Success }
}

/// Reads `zone`, which should become a zone in the zone folder of `config`, as a server process does; its warnings.
///
/// # Errors
/// Returns all problems of the zone.
pub fn check_zone(config: &Config, zone: &Zone) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
    zone.check_file().map_err(|diagnostic| vec![diagnostic])?;
    let derived = DerivedSet::default();
    let derivation = Derivations::new(config, &derived).of(zone);
    let mut warnings = Vec::new();
    match zone_files::load(zone, &derivation, None, &config.limits, hash_seed(), 0, &mut warnings) {
        Ok(_) => Ok(warnings),
        Err(failure) => {
            warnings.extend(failure.diagnostics);
            Err(warnings)
        }
    }
}

/// The report of `check --json`.
#[derive(Serialize)]
struct Report<'d> {
    errors: usize,
    warnings: usize,
    notes: usize,
    problems: Vec<ReportedProblem<'d>>,
}

#[derive(Serialize)]
struct ReportedProblem<'d> {
    severity: &'static str,
    /// The file, or the argument of the command line.
    place: String,
    line: Option<u32>,
    column: Option<u32>,
    problem: &'d str,
    remedy: &'d str,
}

impl ReportedProblem<'_> {
    fn of(diagnostic: &Diagnostic) -> ReportedProblem<'_> {
        let (place, position) = match &diagnostic.location {
            Location::Argument(argument) => (argument.clone(), None),
            Location::File(file) => (file.display().to_string(), None),
            Location::Position { file, line, column } => (file.display().to_string(), Some((*line, *column))),
        };
        let (line, column) = position.unzip();
        let severity = match diagnostic.severity {
            Severity::Error | Severity::Incomplete => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let Problem { message, remedy } = &diagnostic.problem;
        ReportedProblem { severity, place, line, column, problem: message, remedy }
    }
}

fn json(diagnostics: &[Diagnostic]) -> String {
    let problems: Vec<_> = diagnostics.iter().map(ReportedProblem::of).collect();
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let report = Report { errors: count("error"), warnings: count("warning"), notes: count("note"), problems };
    serde_json::to_string(&report).expect("a report has no map") + "\n"
}

/// Loads certificates as this user, and sites and zones as the server process's user if this process can switch to it;
/// everything as the user of `unit`, if there is one. Also returns a line about the user that the configuration does
/// not name.
fn load(
    config: &Config,
    unit: Option<&ServiceUnit>,
    other_problems: impl Fn(&Config, Option<&Path>) -> Vec<Diagnostic>,
) -> Result<(Loaded, Vec<CertificateState>, String), Vec<Diagnostic>> {
    // The service manager creates the state folder and the folder of the control socket before it switches.
    let state_folder = config.state_folder(None);
    let missing_state_problem = config.missing_state_problem();
    let control_problem = config.control_problem();
    sanderling_os::features::select_all();
    if let Some(unit) = unit {
        let switched = User::lookup(&unit.user, unit.group.as_deref()).and_then(|user| user.switch());
        switched.map_err(|error| {
            let message = format!("the unit cannot start a server as its user: {}", error_text(&error));
            vec![Diagnostic::error(Location::File(unit.path.clone()), Problem::new(message, ""))]
        })?;
    }
    let user = lookup_user(config)?;
    let (certificates, certificate_problems) = load_certificates(config, state_folder.as_deref());
    let mut backend_problems = Vec::new();
    BackendFiles::default().load_passed(config, &read_backend_files(config), &mut backend_problems);
    let problems_of_others = other_problems(config, state_folder.as_deref());
    let secret_file = config.replies.cookie_secret_file.as_ref();
    let secret_problems = secret_file.and_then(|file| file.read().err().or_else(|| file.mode_problem()));
    let keys = config.tsig_keys.iter();
    let key_problems: Vec<Diagnostic> = keys.flat_map(|key| key.problems()).collect();
    let authorities = config.acme.iter().flat_map(|acme| &acme.authorities);
    let accounts = authorities.clone().filter_map(|authority| authority.external_account.as_ref());
    let root_problems: Vec<Diagnostic> = authorities.clone().filter_map(Authority::root_problem).collect();
    let account_problems: Vec<Diagnostic> =
        accounts.filter_map(|account| account.read_key().err().or_else(|| account.mode_problem())).collect();
    let log_problems =
        LogKind::ALL.into_iter().filter_map(|kind| config.log_output(kind)?.path_problem(account_id(config)));
    let log_problems: Vec<Diagnostic> = log_problems.collect();
    let file_problems: Vec<Diagnostic> = config.unreadable_files().collect();
    let (mut name, mut switch_problem) = (None, None);
    if let Some(user) = user {
        let account = config.user_and_group.as_ref();
        let location =
            account.map_or(Location::Argument("check".to_owned()), |account| account.user_location.clone().into());
        if effective_uid() == 0 {
            user.switch().map_err(|error| {
                let message = format!("cannot switch to the user `{}`: {}", user.name, error_text(&error));
                vec![Diagnostic::error(location, Problem::new(message, ""))]
            })?;
            name = Some(user.name);
        } else if user.uid != effective_uid() {
            let message = format!("only root can switch to the user `{}`", user.name);
            let remedy = "start `sanderling serve` as root or as this user, or remove `user`";
            switch_problem = Some(Diagnostic::warning(location, Problem::new(message, remedy)));
        }
    }
    // A user other than the server's may not reach it.
    let state_problem = state_folder.as_deref().filter(|_| switch_problem.is_none());
    let state_problem = state_problem.and_then(|state| config.state_problem(state));
    let mut loader = Loader::new();
    loader.set_user(name.clone().or_else(|| unit.map(|unit| unit.user.clone())));
    let state_of_check = state_folder.clone();
    loader.set_state_folder(state_folder);
    let mut loaded = loader.load(config, &[]);
    let mut problems = certificate_problems;
    problems.extend(secret_problems);
    problems.extend(problems_of_others);
    problems.extend(missing_state_problem);
    problems.extend(key_problems);
    problems.extend(account_problems);
    problems.extend(root_problems);
    problems.extend(backend_problems);
    problems.extend(config.validation_problems());
    problems.extend(config.renewal_command_problems());
    problems.extend(log_problems);
    problems.extend(file_problems);
    let (errors, warnings): (Vec<_>, Vec<_>) = problems.into_iter().partition(Diagnostic::is_error);
    loaded.errors.extend(errors);
    loaded.errors.extend(control_problem);
    loaded.errors.extend(state_problem);
    loaded.warnings.extend(warnings);
    loaded.warnings.extend(access::missing_pages(config, &loaded.snapshot));
    loaded.warnings.extend(config.unused_certificates());
    loaded.warnings.extend(derived_checks::warnings(config, &loaded.snapshot.zones));
    loaded.warnings.extend(config.unencrypted_doh());
    loaded.warnings.extend(config.hsts_risks());
    loaded.warnings.extend(config.metrics.iter().flat_map(|metrics| metrics.risks()));
    loaded.warnings.extend(config.trusted_proxies.iter().filter_map(TrustedProxies::risk));
    loaded.warnings.extend(config.security_notes());
    loaded.warnings.extend(config.hidden_routes());
    loaded.warnings.extend(config.unverified_backends());
    let transfers = config.transfers_by_zone();
    let with_secondaries = config.signed_zones.iter().filter(|zone| !transfers.of(&zone.apex).secondaries.is_empty());
    loaded.warnings.extend(with_secondaries.filter_map(SignedZone::risk_with_secondaries));
    loaded.warnings.extend(signed_zone_checks::risks(config, &loaded.snapshot));
    loaded.warnings.extend(state_of_check.iter().flat_map(|state| config.abandoned_signatures(state)));
    let is_server_user = switch_problem.is_none() && effective_uid() != 0;
    loaded.warnings.extend(switch_problem);
    check_sites(config, &mut loaded);
    // This step comes last: afterwards, this process can read nothing else.
    if is_server_user {
        loaded.warnings.extend(exposed_to_server(config, &loader, state_of_check.as_deref()));
    }
    let user_text = match (unit, name) {
        (Some(unit), _) => format!("user {}, the one of {}\n", unit.user, unit.path.display()),
        (None, Some(name)) if config.user_and_group.is_none() => {
            format!("user {name}, because root does not serve; set `user` to choose another one\n")
        }
        _ => String::new(),
    };
    Ok((loaded, certificates, user_text))
}

/// Adds the problems of the files of sites that could be loaded.
fn check_sites(config: &Config, loaded: &mut Loaded) {
    let ports: Vec<u16> = config.http_listen.iter().chain(&config.https_listen).map(SocketAddr::port).collect();
    let states = loaded.load_status.sites.iter();
    for ((site, opened), state) in config.sites.iter().zip(loaded.snapshot.sites.all()).zip(states) {
        // The error of one that could not be is enough.
        let Some(document_root) = site.document_root.as_ref().filter(|_| state.service == SiteService::Current) else {
            continue;
        };
        match site.unreachable_problem() {
            Some(problem) => loaded.errors.push(problem),
            None => {
                loaded.warnings.extend(site_lint::lint(opened, document_root, &ports, &site.location, &config.limits));
            }
        }
    }
}

/// The secrets that a server process of this user could read: this process becomes one.
fn exposed_to_server(config: &Config, loader: &Loader, state: Option<&Path>) -> Vec<Diagnostic> {
    match Sandbox::enter_for_check(config, loader.zone_directories()) {
        Ok(()) => exposed_secrets::warnings(config, state),
        // The start of the server reports it.
        Err(_) => Vec::new(),
    }
}

/// The certificates, and their problems. Automatic certificates are read from the state folder, if this user has
/// access.
fn load_certificates(config: &Config, state: Option<&Path>) -> (Vec<CertificateState>, Vec<Diagnostic>) {
    let read = |files: &CertificateFiles| {
        let read = match (files.is_automatic, state) {
            (true, Some(state)) => read_issued(state, files).map_err(|error| error_text(&error)),
            (true, None) => Err(String::new()),
            (false, _) => files.read().map_err(|problem| problem.to_string()),
        };
        read.map(|(chain, key)| CertificateContent::Files { chain, key }).map_err(NoCertificate::Unreadable)
    };
    let files: Vec<PassedCertificate> = config.certificates.iter().map(read).collect();
    let mut problems: Vec<Diagnostic> = config
        .certificates
        .iter()
        .filter(|files| !files.is_automatic)
        .flat_map(CertificateFiles::key_problems)
        .collect();
    let mut certificates = Certificates::default();
    certificates.load_files(&config.certificates, &files, &[]);
    problems.append(&mut certificates.diagnostics);
    (certificates.states, problems)
}

/// A line for each site, certificate and zone.
fn summary(load_status: &LoadStatus, certificates: &[CertificateState]) -> String {
    let mut text = String::new();
    for site in &load_status.sites {
        text += &format!("site {} for {}\n", site.root_text(), site.hosts_text());
    }
    for certificate in certificates {
        let domain = certificate.domain_text();
        text += &match &certificate.in_service {
            Some(version) => format!("certificate {} of {domain}: {}\n", certificate.file.display(), version.text()),
            // The certificate may not be issued yet, or its folder may be known or readable only to the server.
            None => format!("certificate of {domain}: automatic; see `sanderling certificates`\n"),
        };
    }
    for zone in &load_status.zones {
        let ZoneState { name, file, origin, serial, record_count, .. } = zone.as_ref();
        match origin {
            ZoneOrigin::Operator | ZoneOrigin::Signer => {}
            ZoneOrigin::Primaries => {
                text += &format!("zone {name} from its primaries\n");
                continue;
            }
            ZoneOrigin::Catalog | ZoneOrigin::ProducedCatalog => {
                text += &format!("catalog {name}\n");
                continue;
            }
        }
        let serial = serial.unwrap_or_default();
        text += &format!("zone {name} from {}: {record_count} records, serial {serial}\n", file.display());
    }
    text + "no errors\n"
}
