//! The command `init`: writes a configuration, a zone file and a site for one domain on this machine, and says what to
//! enter at the registrar. It overwrites nothing but a configuration that has only comments.

use crate::init_files::{Plan, SITE_FOLDER, ZONE_FOLDER, configuration, page, zone, zone_file};
use crate::state_files::replace;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::print;
use sanderling_config::{DEFAULT_FILES, DEFAULT_STATE, DomainName, OWN_USER};
use sanderling_os::file::open_regular_without_link;
use sanderling_os::interfaces::{self, is_public};
use sanderling_os::process::effective_uid;
use sanderling_os::user::User;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const CONFIG_FILE: &str = DEFAULT_FILES[0];
const PAGE_FILE: &str = "index.html";
/// Bytes of the longest configuration with only comments. That of a package has less than 1000.
const COMMENTS_BYTES_MAX: u64 = 64 * 1024;
/// Of a new file that every user may read.
pub(crate) const FILE_MODE: u32 = 0o666;
/// The state folder of a user that is not root, next to the configuration.
const STATE_FOLDER: &str = "state";
/// The unit of a package, which serves the configuration in /etc/sanderling.
const SERVICE: &str = "/usr/lib/systemd/system/sanderling.service";
/// Addresses to which no route is special (RFC 5737, RFC 3849): the kernel sends to them from the addresses that it
/// sends to the Internet from. Nothing is sent.
const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// A domain to begin with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) name: DomainName,
    /// The folder of the files.
    pub(crate) folder: PathBuf,
    /// The addresses that the Internet reaches this machine by; those of its interfaces if there are none.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether the zone is signed.
    pub(crate) is_signed: bool,
    /// Whether the terms of the certificate authority are agreed to without a question.
    pub(crate) agrees: bool,
}

/// The addresses of this machine.
#[derive(Debug, Default)]
struct Machine {
    /// Of its interfaces.
    interfaces: Vec<IpAddr>,
    /// The sources of what it sends to the Internet.
    sources: Vec<IpAddr>,
}

impl Init {
    /// Asks what is not given, and writes the files.
    ///
    /// # Errors
    /// The problem and its remedy. Nothing is written if a file exists already.
    pub(crate) fn run(self) -> Result<(), String> {
        let name = self.name.as_str();
        if name == "." || name.contains(['*', '/']) || !name.contains('.') {
            return Err(format!("{name} is not a domain with a site; name one such as example.com"));
        }
        let files = [self.folder.join(CONFIG_FILE), self.folder.join(zone_file(&self.name))];
        if let Some(present) = files.iter().find(|file| fs::symlink_metadata(file).is_ok() && !has_only_comments(file))
        {
            return Err(format!(
                "{} exists already, and nothing was written; choose another folder with --dir, or change the file \
                 and run `sanderling check`",
                present.display()
            ));
        }
        let has_certificate = self.agrees || ask_for_agreement(&self.name)?;
        let machine = Machine::find().map_err(|error| format!("cannot list the addresses of this machine: {error}"))?;
        let plan = self.plan(&machine, has_certificate);
        let has_page = self.write(&plan, &files)?;
        print(&self.report(&plan, has_page));
        Ok(())
    }

    fn plan(&self, machine: &Machine, has_certificate: bool) -> Plan {
        let published = if self.addresses.is_empty() { machine.published() } else { self.addresses.clone() };
        Plan {
            name: self.name.clone(),
            dns_listen: machine.listening_for(&published),
            published,
            has_ipv6: machine.interfaces.iter().any(IpAddr::is_ipv6),
            is_signed: self.is_signed,
            has_certificate,
            state: (effective_uid() != 0).then_some(STATE_FOLDER),
        }
    }

    /// Writes the files; whether the site has its first page from here.
    fn write(&self, plan: &Plan, [config_file, zone_file]: &[PathBuf; 2]) -> Result<bool, String> {
        for folder in [SITE_FOLDER, ZONE_FOLDER] {
            let folder = self.folder.join(folder);
            fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        }
        write_new(zone_file, &zone(plan), FILE_MODE)?;
        let page_file = self.folder.join(SITE_FOLDER).join(PAGE_FILE);
        // A site that exists already is served as it is.
        let is_empty = fs::read_dir(self.folder.join(SITE_FOLDER)).is_ok_and(|mut entries| entries.next().is_none());
        if is_empty {
            write_new(&page_file, &page(&plan.name), FILE_MODE)?;
        }
        if has_only_comments(config_file) {
            let written = replace(config_file, configuration(plan).as_bytes(), FILE_MODE);
            written.map_err(|error| format!("cannot write {}: {}", config_file.display(), error_text(&error)))?;
        } else {
            write_new(config_file, &configuration(plan), FILE_MODE)?;
        }
        Ok(is_empty)
    }

    fn report(&self, plan: &Plan, has_page: bool) -> String {
        let Plan { name, published, .. } = plan;
        let shown = |file: &str| self.folder.join(file).display().to_string();
        let mut text = format!("written: {}, {}", shown(CONFIG_FILE), shown(&zone_file(name)));
        text += &match has_page {
            true => format!(", {}\n", shown(&format!("{SITE_FOLDER}/{PAGE_FILE}"))),
            false => format!("; the site is {}, as it was\n", shown(SITE_FOLDER)),
        };
        let private: Vec<_> = published.iter().filter(|address| !is_public(**address)).collect();
        if !private.is_empty() {
            text += &format!(
                "\nNo client on the Internet reaches {}: {}.\nFind out the public address of this machine, let \
                 the router or the provider forward the ports\n53, 80 and 443, and replace the address in the zone \
                 file; or remove the files, and run this\ncommand with --address ADDRESS.\n",
                list(&private),
                if self.addresses.is_empty() { "no interface has a public address" } else { "it is not public" }
            );
        }
        text += &registrar(plan);
        text + &self.next(plan)
    }

    /// The commands that come next.
    fn next(&self, plan: &Plan) -> String {
        let mut commands = Vec::new();
        if User::lookup(OWN_USER, None).is_err() {
            commands.push((format!("sudo useradd --system {OWN_USER}"), "the user that it serves as"));
        }
        let is_found = self.folder == Path::new(".") || self.folder == Path::new("/etc/sanderling");
        let config = match is_found {
            true => String::new(),
            false => format!(" --config {}", self.folder.join(CONFIG_FILE).display()),
        };
        commands.push((format!("sanderling check{config}"), "is everything right?"));
        let is_of_service = Path::new(SERVICE).exists()
            && fs::canonicalize(&self.folder).is_ok_and(|folder| folder == Path::new("/etc/sanderling"));
        commands.push(match is_of_service {
            true => ("sudo systemctl enable --now sanderling".to_owned(), "serve, now and at boot"),
            false => (format!("sudo sanderling serve{config}"), "serve, until Ctrl-C"),
        });
        commands.push((format!("sudo sanderling doctor{config}"), "what does the world see?"));
        let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        let mut text = "\nNext:\n".to_owned();
        for (command, purpose) in commands {
            text += &format!("  {command:<width$}   {purpose}\n");
        }
        let state = plan.state.map_or(PathBuf::from(DEFAULT_STATE), |state| self.folder.join(state));
        if plan.is_signed || plan.has_certificate {
            text += &format!("Private keys will be in {}: back it up (`sanderling backup`).\n", state.display());
        }
        text
    }
}

impl Machine {
    fn find() -> io::Result<Machine> {
        let sources = ELSEWHERE.into_iter().filter_map(interfaces::source_address).collect();
        Ok(Machine { interfaces: interfaces::addresses()?, sources })
    }

    /// The addresses for the zone, one of each family: public ones if there are any, else those that this machine sends
    /// from.
    fn published(&self) -> Vec<IpAddr> {
        let candidates = || self.sources.iter().chain(&self.interfaces).copied();
        let of_families = |is_wanted: fn(IpAddr) -> bool| -> Vec<IpAddr> {
            let first = |is_of_family: fn(&IpAddr) -> bool| {
                candidates().filter(is_of_family).find(|address| is_wanted(*address))
            };
            first(IpAddr::is_ipv4).into_iter().chain(first(IpAddr::is_ipv6)).collect()
        };
        let public = of_families(is_public);
        let private = || self.sources.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if public.is_empty() { vec![private()] } else { public }
    }

    /// The addresses at which queries to the `published` ones arrive: these, or those behind a router that forwards.
    fn listening_for(&self, published: &[IpAddr]) -> Vec<IpAddr> {
        let own: Vec<IpAddr> = published.iter().copied().filter(|address| self.interfaces.contains(address)).collect();
        match (own.is_empty(), self.sources.is_empty()) {
            (false, _) => own,
            (true, false) => self.sources.clone(),
            (true, true) => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        }
    }
}

/// The data that the operator enters at the registrar.
fn registrar(plan: &Plan) -> String {
    let name = &plan.name;
    let addresses: Vec<String> = plan.published.iter().map(IpAddr::to_string).collect();
    let mut text = format!(
        "\nAt the registrar of {name}:\n  name server   ns1.{name}\n  its address   {}   (\"glue\", \"host\" or \"child \
         name server\")\n",
        addresses.join(", ")
    );
    text += match plan.is_signed {
        true => {
            "  DS record     not yet: `sanderling doctor` shows it, when the name server is in use and the key is ready\n"
        }
        false => "  DS record     none: remove one that is there, since the zone is not signed\n",
    };
    text += "Many registries want two name servers. A second one is a secondary server: `secondaries` in the\n\
             configuration, and its NS record in the zone.\n";
    text
}

/// Whether it is a configuration without a key, as a package installs it: a short file, and no link to one.
fn has_only_comments(file: &Path) -> bool {
    let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let mut text = String::new();
    let read =
        open_regular_without_link(file).and_then(|file| file.take(COMMENTS_BYTES_MAX + 1).read_to_string(&mut text));
    read.is_ok() && text.len() as u64 <= COMMENTS_BYTES_MAX && text.lines().all(is_comment)
}

/// Writes `text` to a new file with this `mode`.
pub(crate) fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let file = OpenOptions::new().create_new(true).write(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let is_present = error.kind() == io::ErrorKind::AlreadyExists;
        let remedy = if is_present { "; choose another name, or remove the file" } else { "" };
        format!("cannot write {}: {}{remedy}", path.display(), error_text(&error))
    })
}

/// Whether a certificate should be requested from the default authority.
fn ask_for_agreement(name: &DomainName) -> Result<bool, String> {
    let question = format!(
        "HTTPS for {name} needs a certificate. Do you agree to the terms of Let's Encrypt\n\
         (https://letsencrypt.org/repository/)? [Y/n] "
    );
    let (mut out, mut answer) = (io::stdout().lock(), String::new());
    let asked = out.write_all(question.as_bytes()).and_then(|()| out.flush());
    asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).map_err(|error| error_text(&error))?;
    if answer.is_empty() {
        return Err("there is no answer; `--yes` agrees without a question".to_owned());
    }
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes"))
}

fn list(addresses: &[&IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn only_a_short_file_of_comments_is_replaced() {
        let folder = tempfile::tempdir().expect("created");
        let path = |name: &str| folder.path().join(name);
        let check = |name: &str, text: &str, expected: bool| {
            fs::write(path(name), text).expect("written");
            assert_eq!(has_only_comments(&path(name)), expected, "{name}");
        };
        check("comments", "# a comment\n\n  # another one\n", true);
        check("key", "# a comment\nstate = \"x\"\n", false);
        check("long", &"#\n".repeat(COMMENTS_BYTES_MAX as usize / 2), true);
        check("longer", &"#\n".repeat(COMMENTS_BYTES_MAX as usize / 2 + 1), false);
        std::os::unix::fs::symlink(path("comments"), path("link")).expect("linked");
        assert!(!has_only_comments(&path("link")) && !has_only_comments(folder.path()));
        replace(&path("link"), b"new", FILE_MODE).expect("replaced");
        assert!(!path("link").is_symlink() && has_only_comments(&path("comments")));
    }

    #[test]
    fn zone_has_the_public_addresses_and_dns_listens_where_queries_arrive() {
        let check = |interfaces: &[&str], sources: &[&str], published: &[&str], listening: &[&str]| {
            let machine = Machine { interfaces: addresses(interfaces), sources: addresses(sources) };
            let found = machine.published();
            assert_eq!(found, addresses(published), "{machine:?}");
            assert_eq!(machine.listening_for(&found), addresses(listening), "{machine:?}");
        };
        let both = ["127.0.0.1", "5.9.1.2", "5.9.1.3", "172.17.0.1", "::1", "2a01:4f8::2", "fe80::1"];
        check(&both, &["5.9.1.3", "2a01:4f8::2"], &["5.9.1.3", "2a01:4f8::2"], &["5.9.1.3", "2a01:4f8::2"]);
        // The route to the Internet has a private source.
        check(&both, &["172.17.0.1"], &["5.9.1.2", "2a01:4f8::2"], &["5.9.1.2", "2a01:4f8::2"]);
        check(&["127.0.0.1", "192.168.1.5"], &["192.168.1.5"], &["192.168.1.5"], &["192.168.1.5"]);
        check(&["127.0.0.1"], &[], &["127.0.0.1"], &["127.0.0.1"]);
        let behind_router =
            Machine { interfaces: addresses(&["127.0.0.1", "10.0.0.5"]), sources: addresses(&["10.0.0.5"]) };
        assert_eq!(behind_router.listening_for(&addresses(&["5.9.1.2"])), addresses(&["10.0.0.5"]));
    }
}
