//! The domain that is served while it is disturbed: two sites, a zone, and the configuration, each as it stands at a turn.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The name of the configuration in the folder.
pub(super) const CONFIG: &str = "sanderling.toml";
/// What is asked for: a page that both sites have, each its own.
pub(super) const PAGE_PATH: &str = "/page.html";
/// The page of each site.
const PAGES: [&str; 2] = ["first/page.html", "second/page.html"];
/// Octets of a page: sent in one piece with its head.
const PAGE_BYTES: usize = 3_000;
/// Names that stay as they are, whatever else changes in the zone.
const QUESTIONS: &str = "example.com A\nexample.com MX\nwww.example.com A\nmail.example.com AAAA\n";

/// The files of the domain.
pub(super) struct Domain {
    folder: PathBuf,
}

impl Domain {
    /// Writes the files into a folder that is there.
    pub(super) fn write(folder: &Path) -> Result<Domain, String> {
        let domain = Domain { folder: folder.to_owned() };
        for (page, letter) in PAGES.iter().zip(["a", "b"]) {
            domain.write_file(page, &letter.repeat(PAGE_BYTES))?;
        }
        domain.write_file("names", QUESTIONS)?;
        domain.set_turn(0)?;
        Ok(domain)
    }

    /// The zone of this turn: its serial, and a record that names it.
    pub(super) fn set_turn(&self, turn: usize) -> Result<(), String> {
        let zone = format!(
            "$ORIGIN example.com.\n$TTL 300\n\
             @    IN SOA ns hostmaster {} 7200 1800 1209600 60\n     \
             IN NS ns\n     IN A 192.0.2.1\n     IN MX 10 mail\n\
             ns   IN A 192.0.2.2\nwww  IN A 192.0.2.1\nmail IN AAAA 2001:db8::4\n\
             turn IN TXT {}\n",
            turn + 1,
            turn_text(turn)
        );
        self.write_file("example.com.zone", &zone)
    }

    /// Writes a configuration, or something that is none.
    pub(super) fn set_config(&self, text: &str) -> Result<(), String> {
        self.write_file(CONFIG, text)
    }

    /// The files of which each answer over HTTP must be one.
    pub(super) fn pages(&self) -> [PathBuf; 2] {
        PAGES.map(|page| self.folder.join(page))
    }

    /// The page of the first site or of the second.
    pub(super) fn page(&self, is_second: bool) -> Result<Vec<u8>, String> {
        let path = self.folder.join(PAGES[usize::from(is_second)]);
        fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The questions of the load.
    pub(super) fn names(&self) -> PathBuf {
        self.folder.join("names")
    }

    /// Replaces a file as an editor does, so that nobody reads half of it.
    fn write_file(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let new = path.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(failed)
    }
}

/// What the record `turn.example.com` says at a turn. No such text is the beginning of another.
pub(super) fn turn_text(turn: usize) -> String {
    format!("turn-{turn}-")
}

/// The alias of `example.com` at a turn.
pub(super) fn alias(turn: usize) -> String {
    format!("alias-{turn}.example.com")
}

/// What the configuration says beside the files.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) worker_count: usize,
    /// Siblings of each listener; `None` leaves it to the server.
    pub(super) listener_count: Option<usize>,
    /// Whether the two domains have changed their sites.
    pub(super) is_swapped: bool,
    /// The turn of the alias.
    pub(super) alias_turn: usize,
    /// How long a new server process may take to be ready; `None` leaves it to the server.
    pub(super) start_timeout_ms: Option<u64>,
}

impl Config {
    pub(super) fn new(worker_count: usize) -> Config {
        Config { worker_count, listener_count: None, is_swapped: false, alias_turn: 0, start_timeout_ms: None }
    }

    /// The file, for services at these addresses.
    pub(super) fn text(&self, http: SocketAddr, dns: SocketAddr) -> String {
        let listeners = self.listener_count.map_or(String::new(), |count| format!("listeners = {count}\n"));
        let limits = self.start_timeout_ms.map_or(String::new(), |ms| format!("\n[limits]\nstart_timeout_ms = {ms}\n"));
        let (first, second) = if self.is_swapped { ("second", "first") } else { ("first", "second") };
        format!(
            "workers = {}\n{listeners}\n[http]\nlisten = [\"{http}\"]\n\n[dns]\nlisten = [\"{dns}\"]\n\n\
             [domain.\"example.com\"]\nsite = \"{first}\"\nzone = \"example.com.zone\"\naliases = [\"{}\"]\n\n\
             [domain.\"example.org\"]\nsite = \"{second}\"\n{limits}",
            self.worker_count,
            alias(self.alias_turn)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_written_like_this() {
        let mut config = Config::new(3);
        (config.is_swapped, config.alias_turn, config.start_timeout_ms) = (true, 7, Some(800));
        let address = "127.0.0.1:8080".parse().expect("it is an address");
        let expected = "\
workers = 3

[http]
listen = [\"127.0.0.1:8080\"]

[dns]
listen = [\"127.0.0.1:8080\"]

[domain.\"example.com\"]
site = \"second\"
zone = \"example.com.zone\"
aliases = [\"alias-7.example.com\"]

[domain.\"example.org\"]
site = \"first\"

[limits]
start_timeout_ms = 800
";
        assert_eq!(config.text(address, address), expected);
    }
}
