//! The keys of a route for encrypted connections to its application.

use super::ConfigBuilder;
use crate::config_reader::{Entry, Keys};
use crate::domain_name::DomainName;
use sanderling_site_rules::{BackendTls, TlsFiles, TlsTrust};
use std::net::IpAddr;
use std::path::PathBuf;

/// The keys.
const KEYS: [&str; 5] = ["tls_name", "tls_roots", "tls_certificate", "tls_key", "tls_verify"];

impl ConfigBuilder<'_, '_> {
    /// Reads them for a route whose connections are encrypted or not. `host`: the Host that the application gets, whose
    /// name its certificate has, unless `tls_name` is another one.
    pub(super) fn read_backend_tls(
        &mut self,
        keys: &Keys<'_, '_>,
        is_encrypted: bool,
        host: Option<&str>,
    ) -> Option<BackendTls> {
        if !is_encrypted {
            if let Some(entry) = KEYS.iter().find_map(|name| keys.get(name)) {
                let message = format!("`{}` has no effect without TLS to the application", entry.key);
                self.error(entry.offset, message, "write https:// in `proxy`, or remove it");
            }
            return None;
        }
        let name = match keys.get("tls_name") {
            Some(entry) => self.read_tls_name(entry),
            None => host.map(name_of_host).filter(|name| is_tls_name(name)).map(str::to_owned),
        };
        let certificate = self.read_tls_certificate(keys);
        let roots = self.read_path(keys.get("tls_roots")).map(|(path, _)| path);
        let trust = match (self.reader.boolean(keys, "tls_verify"), roots) {
            (true, Some(roots)) => TlsTrust::Roots(roots),
            (true, None) => TlsTrust::System,
            (false, None) => TlsTrust::Anything,
            (false, Some(_)) => {
                let offset = keys.get("tls_roots").map_or(0, |entry| entry.offset);
                self.error(offset, "`tls_roots` has no effect with tls_verify = false", "remove one of the two");
                TlsTrust::Anything
            }
        };
        Some(BackendTls { name, files: TlsFiles { trust, certificate } })
    }

    fn read_tls_name(&mut self, entry: Entry<'_, '_>) -> Option<String> {
        let (offset, text) = self.reader.string(entry)?;
        if !is_tls_name(text) {
            let message = format!("`{}` is neither a host name nor an IP address", text.escape_debug());
            self.error(offset, message, format!("write {}", entry.example));
            return None;
        }
        Some(text.to_owned())
    }

    /// The files of chain and key.
    fn read_tls_certificate(&mut self, keys: &Keys<'_, '_>) -> Option<(PathBuf, PathBuf)> {
        let entries = [keys.get("tls_certificate"), keys.get("tls_key")];
        let (present, missing) = match entries {
            [Some(certificate), Some(key)] => {
                let chain = self.read_path(Some(certificate));
                let key = self.read_path(Some(key));
                return chain.zip(key).map(|((chain, _), (key, _))| (chain, key));
            }
            [Some(certificate), None] => (certificate, "tls_key = \"client.key\""),
            [None, Some(key)] => (key, "tls_certificate = \"client.pem\""),
            [None, None] => return None,
        };
        let message = format!("`{}` is without the other file of the certificate", present.key);
        self.error(present.offset, message, format!("add {missing}"));
        None
    }
}

/// The host without its port.
fn name_of_host(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_tls_name(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || DomainName::parse(text).is_ok_and(|name| name.can_be_host())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file::tests::{check, config};
    use std::path::Path;

    fn with(keys: &str) -> String {
        format!("[domain.\"example.com\".route.\"/\"]\n{keys}\n")
    }

    fn tls(keys: &str) -> BackendTls {
        let config = config(&with(keys));
        let backend = config.backends().next().expect("an application");
        backend.tls.as_deref().expect("encrypted").clone()
    }

    #[test]
    fn name_is_that_of_the_certificate_or_of_the_host_or_the_address() {
        let name = |keys: &str| tls(&format!("proxy = \"https://10.0.0.5:8443\"\n{keys}")).name;
        assert_eq!(name(""), None);
        assert_eq!(name("host = \"app.internal:8443\"").as_deref(), Some("app.internal"));
        assert_eq!(name("host = \"[::1]:8443\"").as_deref(), Some("::1"));
        assert_eq!(name("host = \"a.internal\"\ntls_name = \"b.internal\"").as_deref(), Some("b.internal"));
    }

    #[test]
    fn files_are_relative_to_the_configuration() {
        let files = |keys: &str| tls(&format!("proxy = \"https://10.0.0.5\"\n{keys}")).files;
        assert_eq!(files(""), TlsFiles { trust: TlsTrust::System, certificate: None });
        assert_eq!(files("tls_verify = false").trust, TlsTrust::Anything);
        let all = files("tls_roots = \"/a/ca.pem\"\ntls_certificate = \"/a/c.pem\"\ntls_key = \"/a/k.pem\"");
        assert_eq!(all.trust, TlsTrust::Roots("/a/ca.pem".into()));
        assert_eq!(all.certificate, Some(("/a/c.pem".into(), "/a/k.pem".into())));
        let text = with("proxy = [\"https://10.0.0.5\", \"https://10.0.0.6\"]\ntls_roots = \"/a/ca.pem\"");
        let read = config(&text);
        let [(files, _)] = &read.backend_tls_files()[..] else { panic!("one set of files") };
        assert_eq!(files.trust, TlsTrust::Roots(Path::new("/a/ca.pem").into()));
    }

    #[test]
    fn wrong_key_is_reported() {
        let https = "proxy = \"https://10.0.0.5\"\n";
        for (keys, expected) in [
            (
                "proxy = \"http://10.0.0.5\"\ntls_name = \"a.b\"".to_owned(),
                "3:1: `tls_name` has no effect without TLS to the application; write https:// in `proxy`, or remove it",
            ),
            (
                format!("{https}tls_name = \"a:1\""),
                "3:12: `a:1` is neither a host name nor an IP address; write tls_name = \"app.internal\"",
            ),
            (
                format!("{https}tls_certificate = \"a\""),
                "3:1: `tls_certificate` is without the other file of the certificate; add tls_key = \"client.key\"",
            ),
            (
                format!("{https}tls_verify = false\ntls_roots = \"a\""),
                "4:1: `tls_roots` has no effect with tls_verify = false; remove one of the two",
            ),
            (
                "proxy = [\"https://10.0.0.5\", \"http://10.0.0.6\"]".to_owned(),
                "2:30: `http://10.0.0.6` and the server before it differ in TLS; write https:// for both, or for none",
            ),
        ] {
            check(&with(&keys), &[expected]);
        }
    }
}
