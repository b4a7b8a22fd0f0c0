//! The files for encrypted connections to applications, on their way to a server process, which cannot read them:
//! the content of the sealed file [`FdKind::BackendFiles`](crate::FdKind::BackendFiles).

use crate::secrets::{CertificateContent, NoCertificate, PassedCertificate, certificates_to_memfd};
use sanderling_config::diagnostic::Problem;
use sanderling_config::{Config, TlsFiles, TlsTrust, read_backend_certificate, read_backend_roots};
use std::io;
use std::os::fd::OwnedFd;
use zeroize::Zeroizing;

/// Reads the files of each set ([`Config::backend_tls_files`]): the roots, and the certificate for applications that
/// ask for one. Each is there, and empty if the set has none.
pub fn read_backend_files(config: &Config) -> Vec<PassedCertificate> {
    config.backend_tls_files().into_iter().flat_map(|(files, _)| [read_roots(files), read_certificate(files)]).collect()
}

/// The same in sealed memory; `None` if there is no set.
///
/// # Errors
/// The memory cannot be made.
pub fn backend_files_to_memfd(config: &Config) -> io::Result<Option<OwnedFd>> {
    let files = read_backend_files(config);
    if files.is_empty() { Ok(None) } else { certificates_to_memfd(&files).map(Some) }
}

fn read_roots(files: &TlsFiles) -> PassedCertificate {
    match &files.trust {
        TlsTrust::System => {
            let roots = rustls_native_certs::load_native_certs().certs;
            Ok(CertificateContent::Held(roots.into_iter().map(|root| root.to_vec()).collect()))
        }
        TlsTrust::Roots(path) => {
            let chain = read_backend_roots(path).map_err(|problem| unreadable(&problem))?;
            Ok(CertificateContent::Files { chain, key: Zeroizing::default() })
        }
        TlsTrust::Anything => Ok(CertificateContent::Held(Vec::new())),
    }
}

fn read_certificate(files: &TlsFiles) -> PassedCertificate {
    let Some(certificate) = &files.certificate else { return Ok(CertificateContent::Held(Vec::new())) };
    let (chain, key) = read_backend_certificate(certificate).map_err(|problem| unreadable(&problem))?;
    Ok(CertificateContent::Files { chain, key })
}

fn unreadable(problem: &Problem) -> NoCertificate {
    NoCertificate::Unreadable(problem.to_string())
}
