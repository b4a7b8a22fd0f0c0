//! The files that a service reads: two sites, a zone and the configuration.

use anyhow::{Context, ensure};
use loadgen::{DnsTarget, HttpTarget, IdleClose, Load, parse_questions};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The configuration file, within the folder.
pub(crate) const CONFIG: &str = "sanderling.toml";
/// The request target: a page that differs between the sites.
pub(crate) const PAGE_PATH: &str = "/page.html";
/// Each site's page.
const PAGES: [&str; 2] = ["first/page.html", "second/page.html"];
/// Bytes of a page, which is sent together with its head.
const PAGE_BYTES: usize = 3_000;
/// Questions whose answers stay the same when the zone changes.
const QUESTIONS: &str = "example.com A\nexample.com MX\nwww.example.com A\nmail.example.com AAAA\n\
                         missing.example.com A NXDOMAIN\n";

/// The folder with the files, and the addresses of the service.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) dns: SocketAddr,
}

impl Site {
    /// `addresses`: the addresses of HTTP, HTTPS and DNS.
    pub(crate) fn write(folder: &Path, addresses: [SocketAddr; 3], config: &Config) -> anyhow::Result<Site> {
        let [http, https, dns] = addresses;
        let site = Site { folder: folder.to_owned(), http, https, dns };
        for (page, letter) in PAGES.iter().zip(["a", "b"]) {
            site.replace(page, &letter.repeat(PAGE_BYTES))?;
        }
        site.set_version(0)?;
        if config.has_https {
            site.renew_certificate()?;
        }
        site.set_config(config)?;
        Ok(site)
    }

    /// Writes a version of the zone, which has a TXT record with [`version_text`]. The serial stays the same, as it is
    /// part of negative answers, which must not change during a load.
    pub(crate) fn set_version(&self, version: usize) -> io::Result<()> {
        let text = version_text(version);
        let zone = format!(
            "$ORIGIN example.com.\n$TTL 300\n@ IN SOA ns hostmaster 1 7200 1800 1209600 60\n@ IN NS ns\n\
             @ IN A 192.0.2.1\n@ IN MX 10 mail\nns IN A 192.0.2.2\nwww IN A 192.0.2.1\nmail IN AAAA 2001:db8::4\n\
             version IN TXT {text}\n"
        );
        self.replace("example.com.zone", &zone)
    }

    pub(crate) fn set_config(&self, config: &Config) -> io::Result<()> {
        self.replace(CONFIG, &config.text(self))
    }

    /// Makes a self-signed certificate with a new key; returns it in its encoded form.
    pub(crate) fn renew_certificate(&self) -> anyhow::Result<Vec<u8>> {
        let [new_chain, new_key] = ["new-chain.pem", "new-key.pem"].map(|name| self.folder.join(name));
        let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=example.com \
            -addext subjectAltName=DNS:example.com,DNS:*.example.com";
        let mut openssl = Command::new("openssl");
        openssl.args(arguments.split_whitespace()).arg("-keyout").arg(&new_key).arg("-out").arg(&new_chain);
        let made = openssl.output().context("openssl (Debian package openssl)")?;
        ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
        let encoded = Command::new("openssl").args(["x509", "-outform", "DER", "-in"]).arg(&new_chain).output()?;
        fs::rename(new_key, self.folder.join("key.pem"))?;
        fs::rename(new_chain, self.folder.join("chain.pem"))?;
        Ok(encoded.stdout)
    }

    pub(crate) fn page(&self, site_index: usize) -> io::Result<Vec<u8>> {
        fs::read(self.folder.join(PAGES[site_index]))
    }

    /// Replaces a file by a rename, so that it is never read half-written.
    pub(crate) fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let new = path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, &path)
    }

    /// Directs a load to the service. Pages of either site are correct.
    pub(crate) fn target(&self, mut load: Load) -> anyhow::Result<Load> {
        let http = HttpTarget {
            host: "example.com".to_owned(),
            contents: vec![self.page(0)?, self.page(1)?],
            idle_close: IdleClose::AtNextRequest,
            ..HttpTarget::new(self.http, PAGE_PATH, Vec::new())
        };
        load.https = Some(HttpTarget { address: self.https, ..http.clone() });
        load.http = Some(http);
        load.dns = Some(DnsTarget::new(self.dns, parse_questions(QUESTIONS).expect("the questions are valid")));
        Ok(load)
    }
}

/// The text of the record `version.example.com`. No text is a prefix of another.
pub(crate) fn version_text(version: usize) -> String {
    format!("version-{version}-")
}

pub(crate) fn alias(version: usize) -> String {
    format!("alias-{version}.example.com")
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) worker_count: usize,
    /// `None` is the default of the server.
    pub(crate) listener_count: Option<usize>,
    /// The first domain's site; the second has the other.
    pub(crate) site_index: usize,
    pub(crate) alias_version: usize,
    /// Maximum time for a new server process to become ready.
    pub(crate) start_timeout_ms: u64,
    pub(crate) has_https: bool,
}

impl Config {
    pub(crate) fn new(worker_count: usize) -> Config {
        let (site_index, alias_version, start_timeout_ms) = (0, 0, 5_000);
        Config { worker_count, listener_count: None, site_index, alias_version, start_timeout_ms, has_https: true }
    }

    pub(crate) fn without_https(worker_count: usize) -> Config {
        Config { has_https: false, ..Config::new(worker_count) }
    }

    pub(crate) fn text(&self, site: &Site) -> String {
        let Config { worker_count, listener_count, site_index, alias_version, start_timeout_ms, has_https } = self;
        let Site { http, https, dns, .. } = site;
        let [https, certificate] = match has_https {
            true => [
                format!("[https]\nlisten = [\"{https}\"]\n\n"),
                "certificate = { chain = \"chain.pem\", key = \"key.pem\" }\nhttps_redirect = false\n".to_owned(),
            ],
            false => [String::new(), String::new()],
        };
        let listeners = listener_count.map_or(String::new(), |count| format!("listeners = {count}\n"));
        let sites = [["first", "second"], ["second", "first"]][*site_index];
        format!(
            "workers = {worker_count}\n{listeners}\n[http]\nlisten = [\"{http}\"]\n\n{https}[dns]\nlisten = [\"{dns}\"]\n\n\
             [domain.\"example.com\"]\nsite = \"{}\"\nzone = \"example.com.zone\"\naliases = [\"{}\"]\n{certificate}\n\
             [domain.\"example.org\"]\nsite = \"{}\"\n\n[limits]\nstart_timeout_ms = {start_timeout_ms}\n",
            sites[0],
            alias(*alias_version),
            sites[1]
        )
    }
}
