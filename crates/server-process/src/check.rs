//! The command `check`: reports everything that `serve` could not serve. It binds no socket.

use crate::access;
use crate::certificates::{CertificateState, Certificates, InService};
use crate::load_status::{LoadStatus, ZoneState};
use crate::loader::{Loaded, Loader};
use crate::sandbox::lookup_user;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::log::{print, report};
use sanderling_config::{CertificateFiles, Config, ConfigSource, Exit};
use sanderling_ipc::secrets::PemFiles;
use sanderling_os::process::effective_uid;

/// Checks the configuration of `source`, with its sites and zones.
pub fn check(source: &ConfigSource) -> Exit {
    match source.load().and_then(|config| load(&config)) {
        Ok((loaded, certificates, default_user)) if loaded.errors.is_empty() => {
            report(&loaded.warnings);
            print(&summary(&loaded.load_status, &certificates, default_user));
            Exit::Success
        }
        Ok((Loaded { mut errors, mut warnings, .. }, ..)) => {
            errors.append(&mut warnings);
            report(&errors);
            Exit::Failure
        }
        Err(diagnostics) => {
            report(&diagnostics);
            Exit::Failure
        }
    }
}

/// Loads certificates as this user, and sites and zones as the user of the server process if this process can switch to it;
/// also the name of that user if the configuration has none.
fn load(config: &Config) -> Result<(Loaded, Vec<CertificateState>, Option<String>), Vec<Diagnostic>> {
    let user = lookup_user(config)?;
    let (certificates, certificate_problems) = load_certificates(config);
    let secret_file = config.replies.cookie_secret_file.as_ref();
    let secret_problems = secret_file.and_then(|file| file.read().err().or_else(|| file.mode_problem()));
    sanderling_os::features::select_all();
    let (mut name, mut switch_problem) = (None, None);
    if let Some(user) = user {
        let account = config.user_and_group.as_ref();
        let location = account.map_or(Location::Argument("check".to_owned()), |account| account.user_location.clone());
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
    let mut loaded = Loader::new().load(config, &[]);
    let mut problems = certificate_problems;
    problems.extend(secret_problems);
    problems.extend(access::problems(config, &loaded.snapshot, name.as_deref()));
    let (errors, warnings): (Vec<_>, Vec<_>) = problems.into_iter().partition(Diagnostic::is_error);
    loaded.errors.extend(errors);
    loaded.errors.extend(config.control_problem());
    loaded.warnings.extend(warnings);
    loaded.warnings.extend(config.hsts_risks());
    loaded.warnings.extend(switch_problem);
    Ok((loaded, certificates, name.filter(|_| config.user_and_group.is_none())))
}

/// The certificates, and what is wrong with them.
fn load_certificates(config: &Config) -> (Vec<CertificateState>, Vec<Diagnostic>) {
    let read = |files: &CertificateFiles| files.read().map_err(|problem| problem.to_string());
    let files: Vec<PemFiles> = config.certificates.iter().map(read).collect();
    let mut problems: Vec<Diagnostic> = config.certificates.iter().filter_map(CertificateFiles::key_problem).collect();
    let mut certificates = Certificates::default();
    certificates.load_files(&config.certificates, &files, &[], &mut problems);
    (certificates.states, problems)
}

/// A line for each site, certificate and zone.
fn summary(load_status: &LoadStatus, certificates: &[CertificateState], default_user: Option<String>) -> String {
    let mut text = String::new();
    if let Some(name) = default_user {
        text += &format!("user {name}, since root does not serve; set `user` to choose another one\n");
    }
    for site in &load_status.sites {
        text += &format!("site {} for {}\n", site.document_root.display(), site.hosts_text());
    }
    for certificate in certificates {
        let version = certificate.in_service.as_ref().map(InService::text).unwrap_or_default();
        text += &format!("certificate {} for {}: {version}\n", certificate.file.display(), certificate.names_text());
    }
    for zone in &load_status.zones {
        let ZoneState { name, file, serial, record_count, .. } = zone.as_ref();
        let serial = serial.unwrap_or_default();
        text += &format!("zone {name} from {}: {record_count} records, serial {serial}\n", file.display());
    }
    text + "no errors\n"
}
