//! The files of a configuration that no site should serve.

use crate::config::Config;
use crate::diagnostic::ValueLocation;
use crate::request_log::LogTarget;
use sanderling_log_format::LogKind;
use std::path::Path;

/// A file, or a folder with files, that is not for a site's clients.
#[derive(Clone, Copy, Debug)]
pub struct PrivateFile<'c> {
    /// The kind of file: `private key`.
    pub kind: &'static str,
    /// The path, relative to the working directory or absolute.
    pub path: &'c Path,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// The position in the configuration; `None` for the configuration files, and for arguments.
    pub location: Option<&'c ValueLocation>,
}

impl Config {
    /// The files with secrets, such as private keys, that the server process need not read.
    pub fn secret_files(&self) -> Vec<PrivateFile<'_>> {
        let file = |kind, path, location| PrivateFile { kind, path, is_folder: false, location: Some(location) };
        let mut files = Vec::new();
        for certificate in self.certificates.iter().filter(|certificate| !certificate.is_automatic) {
            files.push(file("private key", &certificate.key, &certificate.location));
        }
        let authorities = self.acme.iter().flat_map(|acme| &acme.authorities);
        let accounts = authorities.filter_map(|authority| authority.external_account.as_ref());
        files.extend(accounts.map(|account| file("key of an external account", &account.key_file, &account.location)));
        files.extend(self.tsig_keys.iter().map(|key| file("TSIG secret file", &key.path, &key.location)));
        let cookies = self.replies.cookie_secret_file.iter();
        files.extend(cookies.map(|secret| file("cookie secret file", &secret.path, &secret.location)));
        files
    }

    /// The private files outside the state folder. The files need not exist.
    pub fn private_files(&self) -> Vec<PrivateFile<'_>> {
        let file = |kind, path, location| PrivateFile { kind, path, is_folder: false, location: Some(location) };
        let mut files = Vec::new();
        files.extend(self.files.iter().map(|path| PrivateFile {
            kind: "configuration file",
            path,
            is_folder: false,
            location: None,
        }));
        for (kind, name) in [(LogKind::Access, "access log"), (LogKind::Queries, "query log")] {
            if let Some((LogTarget::File(path), location)) =
                self.log_output(kind).map(|output| (&output.target, &output.location))
            {
                files.push(file(name, path, location));
            }
        }
        for rule in self.sites.iter().flat_map(|site| &site.options.rules.auth) {
            files.push(file("user file", &rule.users_file, &rule.location));
        }
        files.extend(self.secret_files());
        files.extend(self.zones.iter().map(|zone| file("zone file", &zone.file, &zone.location)));
        let folder = |kind, path, location| PrivateFile { kind, path, is_folder: true, location };
        files.extend(
            self.zone_folder.iter().map(|zones| folder("zone folder", &zones.directory, Some(&zones.location))),
        );
        files
    }
}
