//! Loads the files for encrypted connections to applications, which the supervisor passes on.
//!
//! A set of files that cannot be used keeps its last good version; without one, its applications are not connected.

use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_config::{Config, TlsFiles, TlsTrust};
use sanderling_ipc::secrets::{CertificateContent, NoCertificate, PassedCertificate, certificates_from_memfd};
use sanderling_server::BackendTlsSettings;
use sanderling_tls::{Certificate, CertificateError, ClientTls, Trust};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The settings in service.
#[derive(Debug, Default)]
pub(crate) struct BackendFiles {
    settings: Arc<BackendTlsSettings>,
    /// Sets whose current files are not used.
    pub(crate) problem_count: usize,
}

impl BackendFiles {
    /// The settings for `config`, whose files the supervisor has passed on.
    ///
    /// # Errors
    /// Returns an error if the files belong to another configuration, or are malformed.
    pub(crate) fn load(
        &mut self,
        config: &Config,
        files: Option<OwnedFd>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> io::Result<Arc<BackendTlsSettings>> {
        let passed = files.map_or(Ok(Vec::new()), certificates_from_memfd)?;
        if passed.len() != 2 * config.backend_tls_files().len() {
            return Err(io::Error::other("the files for applications belong to another configuration"));
        }
        Ok(self.load_passed(config, &passed, diagnostics))
    }

    /// The same with the content of the files, two of each set.
    pub(crate) fn load_passed(
        &mut self,
        config: &Config,
        passed: &[PassedCertificate],
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Arc<BackendTlsSettings> {
        self.problem_count = 0;
        let mut loaded = Vec::new();
        for ((files, location), content) in config.backend_tls_files().into_iter().zip(passed.chunks_exact(2)) {
            let settings = match settings_of(files, content) {
                Ok(settings) => Some(settings),
                Err(problem) => {
                    let last_good = self.settings.find(files).cloned();
                    let effect = match last_good {
                        Some(_) => "the last good version stays in service",
                        None => "the application is not connected",
                    };
                    self.problem_count += 1;
                    let problem = Problem::new(format!("{}; {effect}", problem.message), problem.remedy);
                    diagnostics.push(Diagnostic::error(location.clone(), problem));
                    last_good
                }
            };
            loaded.extend(settings.map(|settings| (files.clone(), settings)));
        }
        self.settings = Arc::new(BackendTlsSettings::new(loaded));
        Arc::clone(&self.settings)
    }
}

fn settings_of(files: &TlsFiles, content: &[PassedCertificate]) -> Result<ClientTls, Problem> {
    let [roots, certificate] = content else { return Err(Problem::new("the files are missing".to_owned(), "")) };
    let unusable = |error: &CertificateError, what: String| Problem::new(format!("{what}: {error}"), error.remedy());
    let trust = match (&files.trust, read(roots)?) {
        (TlsTrust::Anything, _) => Trust::Anything,
        (TlsTrust::Roots(path), CertificateContent::Files { chain, .. }) => Trust::from_pem(chain)
            .map_err(|error| unusable(&error, format!("the root certificates in `{}`", path.display())))?,
        (_, CertificateContent::Held(roots)) => Trust::from_der(roots.iter().cloned()),
        (TlsTrust::System, CertificateContent::Files { .. }) => Trust::from_der([]),
    };
    let certificate = match (&files.certificate, read(certificate)?) {
        (Some((path, _)), CertificateContent::Files { chain, key }) => {
            let certificate = Certificate::from_pem(chain, key);
            Some(certificate.map_err(|error| unusable(&error, format!("the certificate in `{}`", path.display())))?)
        }
        _ => None,
    };
    let remedy = "install the package ca-certificates, or write tls_roots";
    ClientTls::new(trust, certificate.as_ref())
        .map_err(|_| Problem::new("this system has no root certificates".to_owned(), remedy))
}

fn read(passed: &PassedCertificate) -> Result<&CertificateContent, Problem> {
    passed.as_ref().map_err(|error| match error {
        NoCertificate::Unreadable(text) => Problem::new(text.clone(), ""),
        NoCertificate::Unusable { problem, remedy } => Problem::new(problem.clone(), remedy.clone()),
    })
}
