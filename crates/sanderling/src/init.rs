//! The command `init`: writes a configuration, a zone file and a site for one domain on this machine, and says what to
//! enter at the registrar. It overwrites nothing but a configuration that has only comments.

use crate::init_files::{DNS_PORT, Plan, ZONE_FOLDER, configuration, domain_section, page, zone, zone_file};
use crate::state_files::replace;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::print;
use sanderling_config::{Config, DEFAULT_FILES, DEFAULT_STATE, DomainName, OWN_USER};
use sanderling_doctor::is_port_taken;
use sanderling_os::file::open_regular_without_link;
use sanderling_os::interfaces::{self, is_public};
use sanderling_os::user::User;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const CONFIG_FILE: &str = DEFAULT_FILES[0];
const PAGE_FILE: &str = "index.html";
/// Bytes of the longest configuration with only comments. That of a package has less than 1000.
const COMMENTS_BYTES_MAX: u64 = 64 * 1024;
/// The state folder, next to the configuration, of a user without a default one.
const STATE_FOLDER: &str = "state";
/// The folder of the packages. What it contains is deleted with the package, so that the site is elsewhere.
const SYSTEM_FOLDER: &str = "/etc/sanderling";
/// The folder of sites of a machine.
const SITES_OF_SYSTEM: &str = "/srv";
/// The site of the first domain, next to the configuration.
const SITE_FOLDER: &str = "public";
/// The server reads the files as another user, whatever the umask of this process.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// How often the question is asked.
const QUESTIONS_MAX: usize = 3;
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
    /// Whether a program has the port of DNS at some address, such as the stub resolver of systemd at 127.0.0.53.
    has_resolver: bool,
}

impl Init {
    /// Asks what is not given, and writes the files.
    ///
    /// # Errors
    /// The problem and its remedy. Nothing is written then.
    pub(crate) fn run(self) -> Result<(), String> {
        check_name(&self.name)?;
        let machine = Machine::find().map_err(|error| format!("cannot list the addresses of this machine: {error}"))?;
        let files = [self.folder.join(CONFIG_FILE), self.folder.join(zone_file(&self.name))];
        let is_present = |file: &Path| fs::symlink_metadata(file).is_ok() && !has_only_comments(file);
        if let Some(present) = files.iter().rev().find(|file| is_present(file)) {
            let remedy = if *present == files[0] {
                print(&self.second_domain(&self.plan(&machine, false), &files));
                "for another domain, add what is printed above"
            } else {
                "choose another folder with --dir, or change the file"
            };
            let shown = present.display();
            return Err(format!(
                "{shown} exists already, and nothing was written; {remedy}, and run `sanderling check`"
            ));
        }
        let has_certificate = self.agrees || ask_for_agreement(&self.name)?;
        let plan = self.plan(&machine, has_certificate);
        let mut created = Vec::new();
        let has_page = self.write(&plan, &files, &mut created).inspect_err(|_| remove(&created))?;
        print(&self.report(&plan, has_page));
        Ok(())
    }

    fn plan(&self, machine: &Machine, has_certificate: bool) -> Plan {
        let mut published = Vec::new();
        let given = if self.addresses.is_empty() { machine.published() } else { self.addresses.clone() };
        for address in given {
            if !published.contains(&address) {
                published.push(address);
            }
        }
        Plan {
            name: self.name.clone(),
            dns_listen: machine.listening_for(&published),
            published,
            has_ipv6: machine.has_ipv6(),
            is_signed: self.is_signed,
            has_certificate,
            site: match self.is_of_system() {
                true => format!("{SITES_OF_SYSTEM}/{}", self.name),
                false => SITE_FOLDER.to_owned(),
            },
            state: Config::default().state_folder(None).is_none().then_some(STATE_FOLDER),
        }
    }

    fn is_of_system(&self) -> bool {
        let real = fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        real == Path::new(SYSTEM_FOLDER)
    }

    /// The text that the operator adds to the configuration of another domain.
    fn second_domain(&self, plan: &Plan, [config_file, zone_file]: &[PathBuf; 2]) -> String {
        let site = if self.is_of_system() { plan.site.clone() } else { format!("{SITE_FOLDER}-{}", plan.name) };
        let section = domain_section(&Plan { site, ..plan.clone() });
        format!(
            "in {}:\n\n{section}\nin the new file {}:\n\n{}\n",
            config_file.display(),
            zone_file.display(),
            zone(plan)
        )
    }

    /// Writes the files; whether the site has its first page from here. The new files and folders are in `created`.
    fn write(
        &self,
        plan: &Plan,
        [config_file, zone_file]: &[PathBuf; 2],
        created: &mut Vec<PathBuf>,
    ) -> Result<bool, String> {
        let site = self.folder.join(&plan.site);
        create_folder(&site, created)?;
        create_folder(&self.folder.join(ZONE_FOLDER), created)?;
        write_new(zone_file, &zone(plan), FILE_MODE)?;
        created.push(zone_file.clone());
        // A site that exists already is served as it is.
        let is_empty = fs::read_dir(&site).is_ok_and(|mut entries| entries.next().is_none());
        if is_empty {
            write_new(&site.join(PAGE_FILE), &page(&plan.name), FILE_MODE)?;
            created.push(site.join(PAGE_FILE));
        }
        write_configuration(config_file, &configuration(plan))?;
        Ok(is_empty)
    }

    fn report(&self, plan: &Plan, has_page: bool) -> String {
        let Plan { name, published, .. } = plan;
        let shown = |file: &str| self.folder.join(file).display().to_string();
        let mut text = format!("written: {}, {}", shown(CONFIG_FILE), shown(&zone_file(name)));
        text += &match has_page {
            true => format!(", {}\n", shown(&format!("{}/{PAGE_FILE}", plan.site))),
            false => format!("; the site is {}, as it was\n", shown(&plan.site)),
        };
        let private: Vec<_> = published.iter().filter(|address| !is_public(**address)).collect();
        if !private.is_empty() {
            text += &format!(
                "\nNo client on the Internet reaches {}: {}.\nFind out the public address of this machine, let \
                 the router or the provider forward the ports\n53, 80 and 443, and replace the address in the zone \
                 file; or remove the files, and run this\ncommand with --address ADDRESS.\n",
                list(private.iter()),
                if self.addresses.is_empty() { "no interface has a public address" } else { "it is not public" }
            );
        }
        let forwarded: Vec<_> = published.iter().filter(|address| !plan.dns_listen.contains(address)).collect();
        if !forwarded.is_empty() {
            text += &format!(
                "\n{} is no address of this machine. DNS listens at {}: let the router or the\ncontainer engine \
                 forward port 53 (UDP and TCP), 80 and 443 to it.\n",
                list(forwarded.iter()),
                list(plan.dns_listen.iter().map(|address| SocketAddr::new(*address, DNS_PORT)))
            );
        }
        if !plan.has_certificate {
            text += &format!(
                "\nHTTPS is off. To add it, agree to the terms of the authority: remove the `#` of [https] and\n\
                 [certificates] in {}, and run `sanderling reload`.\n",
                shown(CONFIG_FILE)
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
        let is_found = self.folder == Path::new(".") || self.is_of_system();
        let config = match is_found {
            true => String::new(),
            false => format!(" --config {}", self.folder.join(CONFIG_FILE).display()),
        };
        commands.push((format!("sanderling check{config}"), "is everything right?"));
        commands.push(match Path::new(SERVICE).exists() && self.is_of_system() {
            true => ("sudo systemctl enable --now sanderling".to_owned(), "serve, now and at boot"),
            false => (format!("sudo sanderling serve{config}"), "serve, until Ctrl-C"),
        });
        commands.push((format!("sudo sanderling doctor{config}"), "what does the world see?"));
        let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        let mut text = "\nNext:\n".to_owned();
        for (command, purpose) in commands {
            text += &format!("  {command:<width$}   {purpose}\n");
        }
        let default = || Config::default().state_folder(None).unwrap_or_else(|| PathBuf::from(DEFAULT_STATE));
        let state = plan.state.map_or_else(default, |state| self.folder.join(state));
        if plan.is_signed || plan.has_certificate {
            text += &format!("Private keys will be in {}: back it up (`sanderling backup`).\n", state.display());
        }
        text
    }
}

impl Machine {
    fn find() -> io::Result<Machine> {
        let sources = ELSEWHERE.into_iter().filter_map(interfaces::source_address).collect();
        Ok(Machine { interfaces: interfaces::addresses()?, sources, has_resolver: is_port_taken(DNS_PORT) })
    }

    fn has_ipv6(&self) -> bool {
        self.interfaces.iter().any(IpAddr::is_ipv6)
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

    /// The addresses at which queries to the `published` ones arrive: these; or all, if others are forwarded, since the
    /// address behind a router or of a container may change. A resolver allows only single addresses.
    fn listening_for(&self, published: &[IpAddr]) -> Vec<IpAddr> {
        if published.iter().all(|address| self.interfaces.contains(address)) {
            return published.to_owned();
        }
        let mut single: Vec<IpAddr> =
            published.iter().copied().filter(|address| self.interfaces.contains(address)).collect();
        single.extend(self.sources.iter().filter(|source| !published.contains(source)));
        if self.has_resolver && !single.is_empty() {
            return single;
        }
        let all_v6 = self.has_ipv6().then_some(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        [IpAddr::V4(Ipv4Addr::UNSPECIFIED)].into_iter().chain(all_v6).collect()
    }
}

/// # Errors
/// Returns the reason why `name` is not that of a zone with a site.
fn check_name(name: &DomainName) -> Result<(), String> {
    let text = name.as_str();
    let is_label = |label: &str| {
        label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let problem = |reason: &str, remedy: &str| Err(format!("{text} {reason}; {remedy}"));
    if text == "." || !text.contains('.') {
        return problem("is no domain that can be registered", "name one such as example.com");
    }
    if text.ends_with(".arpa") {
        return problem("is a reverse zone, which has no site", "write a section of its own with the key `zone`");
    }
    if let Some(label) = text.split('.').find(|label| !is_label(label)) {
        return problem(
            &format!("is not the name of a host: `{label}`"),
            "labels have letters, digits, and hyphens, but not at the start or the end",
        );
    }
    match text.strip_prefix("www.").filter(|domain| domain.contains('.')) {
        Some(domain) => problem(&format!("is a host of {domain}"), &format!("name {domain}; {text} is then its alias")),
        None => Ok(()),
    }
}

/// Creates the folder at `path` and those above it.
fn create_folder(path: &Path, created: &mut Vec<PathBuf>) -> Result<(), String> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    let problem = |folder: &Path, problem: &str, remedy: &str| {
        Err(format!(
            "cannot create the folder {}: {problem}; {remedy}, or choose another folder with --dir",
            folder.display()
        ))
    };
    for folder in missing.into_iter().rev() {
        match fs::create_dir(folder).and_then(|()| fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))) {
            Ok(()) => created.push(folder.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return problem(folder, "permission denied", "run this as root (`sudo`)");
            }
            Err(error) => return problem(folder, &error_text(&error), "create it yourself"),
        }
    }
    if path.is_dir() { Ok(()) } else { problem(path, "a file has its name", "remove or rename the file") }
}

/// Removes the files and folders, the last one first.
fn remove(created: &[PathBuf]) {
    for path in created.iter().rev() {
        // What cannot be removed stays, and the error that is reported is that of writing.
        let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
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

/// Writes a configuration to a new file, or in place of one that has only comments.
pub(crate) fn write_configuration(path: &Path, text: &str) -> Result<(), String> {
    if !has_only_comments(path) {
        return write_new(path, text, FILE_MODE);
    }
    let written = replace(path, text.as_bytes(), FILE_MODE);
    written.map_err(|error| format!("cannot write {}: {}", path.display(), error_text(&error)))
}

/// Writes `text` to a new file with this `mode`, whatever the umask.
pub(crate) fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let file = OpenOptions::new().create_new(true).write(true).mode(mode).open(path);
    let written = file.and_then(|mut file| {
        let written = file.write_all(text.as_bytes()).and_then(|()| file.set_permissions(Permissions::from_mode(mode)));
        written.inspect_err(|_| drop(fs::remove_file(path)))
    });
    written.map_err(|error| {
        let is_present = error.kind() == io::ErrorKind::AlreadyExists;
        let remedy = if is_present { "; choose another name, or remove the file" } else { "" };
        format!("cannot write {}: {}{remedy}", path.display(), error_text(&error))
    })
}

/// Whether a certificate should be requested from the default authority. No answer is the default: the terms are those
/// of the authority.
fn ask_for_agreement(name: &DomainName) -> Result<bool, String> {
    let question = format!(
        "HTTPS for {name} needs a certificate. Do you agree to the terms of Let's Encrypt\n\
         (https://letsencrypt.org/repository/)? [y/n] "
    );
    let (mut out, mut input) = (io::stdout().lock(), io::stdin().lock());
    for _ in 0..QUESTIONS_MAX {
        let mut answer = String::new();
        let asked = out.write_all(question.as_bytes()).and_then(|()| out.flush());
        asked.and_then(|()| input.read_line(&mut answer)).map_err(|error| error_text(&error))?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ if answer.is_empty() => break,
            _ => {}
        }
    }
    Err("there is no answer; answer `y` or `n`, or agree with `--yes`".to_owned())
}

fn list(addresses: impl Iterator<Item = impl ToString>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(" and ")
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
        let machine = |interfaces: &[&str], sources: &[&str], has_resolver| Machine {
            interfaces: addresses(interfaces),
            sources: addresses(sources),
            has_resolver,
        };
        let check = |interfaces: &[&str], sources: &[&str], published: &[&str], listening: &[&str]| {
            let machine = machine(interfaces, sources, false);
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
        let forwarded = |interfaces: &[&str], sources: &[&str], has_resolver, listening: &[&str]| {
            let machine = machine(interfaces, sources, has_resolver);
            assert_eq!(machine.listening_for(&addresses(&["5.9.1.2"])), addresses(listening), "{machine:?}");
        };
        forwarded(&["127.0.0.1", "10.0.0.5"], &["10.0.0.5"], true, &["10.0.0.5"]);
        forwarded(&["127.0.0.1", "10.0.0.5"], &["10.0.0.5"], false, &["0.0.0.0"]);
        forwarded(&["127.0.0.1", "::1"], &[], true, &["0.0.0.0", "::"]);
        let dual = machine(&["10.0.0.5", "2a01:4f8::2"], &["10.0.0.5", "2a01:4f8::2"], true);
        let listening = dual.listening_for(&addresses(&["5.9.1.2", "2a01:4f8::2"]));
        assert_eq!(listening, addresses(&["2a01:4f8::2", "10.0.0.5"]), "IPv4 alone is forwarded");
    }

    #[test]
    fn only_a_domain_that_can_be_registered_has_a_site() {
        let check = |name: &str, part: &str| {
            let found = check_name(&DomainName::parse(name).expect("a name")).err().unwrap_or_default();
            assert!(found.contains(part) && found.is_empty() == part.is_empty(), "{name}: {found}");
        };
        check("example.com", "");
        check("xn--mnchen-3ya.de", "");
        check("www.com", "");
        check("com", "can be registered");
        check(".", "can be registered");
        check("exa_mple.com", "`exa_mple`");
        check("xn--zzzz---.de", "`xn--zzzz---`");
        check("*.example.com", "`*`");
        check("2.0.192.in-addr.arpa", "reverse zone");
        check("www.example.com", "name example.com; www.example.com is then its alias");
    }
}
