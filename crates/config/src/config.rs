//! The checked configuration, independent of its source: a file and the arguments of `serve` both become a [`Config`].

use crate::authorities::Acme;
use crate::catalogs::{Catalog, CatalogRole};
use crate::derive::{self, DerivedRecords, DerivedRrset};
use crate::diagnostic::{Diagnostic, Location, Problem, ValueLocation};
use crate::domain_name::DomainName;
use crate::limits::Limits;
use crate::paths::{
    CookieSecret, check_control_path, check_key_mode, check_program, check_readable, check_state_folder,
    has_private_key, read_cookie_secrets, read_secret_file,
};
use crate::request_log::{AccessLog, Dnstap, LogOutput, QueryLog};
use crate::service::Service;
use crate::signing::{SignedZone, abandoned_signatures};
use crate::site::Site;
use crate::transfers::{TransfersByZone, TsigKeyFile, ZoneTransfers};
use crate::updates::UpdateRule;
use crate::zones::{SecondaryZone, Zone, ZoneFolder, zone_of};
use sanderling_log_format::LogKind;
use sanderling_site_rules::ClientFrom;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::available_parallelism;
use zeroize::Zeroizing;

/// The default address of HTTP.
const HTTP_LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// The default address of DNS.
const DNS_LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5353);
/// Workers that one server process may have.
pub(super) const WORKER_COUNT_MAX: u64 = 1024;

/// A checked configuration: names are well-formed, addresses and hosts are unique.
///
/// There are sites or zones; `http_listen` is empty if and only if `sites` is, and `dns_listen` if and only if
/// [`Config::has_zones`] is false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The configuration file and those that it includes; empty for arguments.
    pub files: Vec<PathBuf>,
    /// Threads that serve, 1 to 1024.
    pub worker_count: usize,
    /// Sockets of each address.
    pub sockets_per_address: SocketsPerAddress,
    /// The server process's account; `None` keeps the user that started the program.
    pub user_and_group: Option<UserAndGroup>,
    /// Whether the server process restricts its own access to files and system calls.
    pub sandbox: bool,
    /// The process that holds the private keys of `certificates`.
    pub keys: KeyPlace,
    /// The path of the control socket, if the file sets one.
    pub control: Option<PathBuf>,
    /// The key's position in the file, for messages.
    pub control_location: Option<ValueLocation>,
    /// The state folder, whose content outlives the processes, if the file sets one.
    pub state: Option<PathBuf>,
    /// The key's position in the file, for messages.
    pub state_location: Option<ValueLocation>,
    /// Addresses of HTTP; with port 0 the kernel chooses.
    pub http_listen: Vec<SocketAddr>,
    /// Whether these addresses also accept HTTP/2, from clients that begin with it.
    pub http2: bool,
    /// Addresses of HTTPS; with port 0 the kernel chooses.
    pub https_listen: Vec<SocketAddr>,
    /// Addresses of DNS, over UDP and TCP; with port 0 the kernel chooses.
    pub dns_listen: Vec<SocketAddr>,
    /// Addresses of DNS over TLS; with port 0 the kernel chooses.
    pub dot_listen: Vec<SocketAddr>,
    /// The web sites, in the order of the file.
    pub sites: Vec<Site>,
    /// The site for a Host that is not configured.
    pub default_site: DefaultSite,
    /// The zones, in the order of the file.
    pub zones: Vec<Zone>,
    /// The zones that are transferred from primary servers, in the order of the file.
    pub secondary_zones: Vec<SecondaryZone>,
    /// The signed zones, in the order of the file. Each is one of `zones` or `secondary_zones`.
    pub signed_zones: Vec<SignedZone>,
    /// The catalogs, in the order of the file.
    pub catalogs: Vec<Catalog>,
    /// Further zones, which are listed whenever zones are loaded.
    pub zone_folder: Option<ZoneFolder>,
    /// The keys that sign transfers, in the order of the file.
    pub tsig_keys: Vec<TsigKeyFile>,
    /// The clients that can transfer the zones without their own rules.
    pub transfers: ZoneTransfers,
    /// The rules of single zones.
    pub zone_transfers: Vec<(DomainName, ZoneTransfers)>,
    /// The zones that may be changed by dynamic update, each with its rules.
    pub zone_updates: Vec<(DomainName, Vec<UpdateRule>)>,
    /// The certificates, in the order of the file.
    pub certificates: Vec<CertificateFiles>,
    /// How certificates are requested; `None` if none is.
    pub acme: Option<Acme>,
    /// Each domain's derived records, in the order of the file.
    pub derived: Vec<DerivedRecords>,
    /// Whether HTTPS clients that ask for a name without a certificate are refused; otherwise they get the first
    /// certificate.
    pub refuses_unknown_names: bool,
    /// Whether the server makes a certificate for `localhost`, which is then the only one.
    pub has_self_signed_certificate: bool,
    /// The parts of DNS replies other than records.
    pub replies: DnsReplies,
    /// The resolvers that the agent asks, for the targets of `ALIAS` among others. Without resolvers, no zone may have
    /// `ALIAS`.
    pub resolvers: Vec<Resolver>,
    /// Whether the list is empty, which means that this network has no resolvers: the agent queries none.
    pub has_no_resolvers: bool,
    /// The names of hosts with applications.
    pub backend_names: BTreeSet<String>,
    /// Exemptions from the limits of DNS replies.
    pub dns_rate_limit: RateLimit,
    /// Exemptions from the limit of HTTP requests.
    pub http_rate_limit: RateLimit,
    /// Proxies in front of the server; `None` if clients connect to it.
    pub trusted_proxies: Option<TrustedProxies>,
    /// The log of HTTP requests; `None` if there is none.
    pub access_log: Option<AccessLog>,
    /// The log of DNS queries; `None` if there is none.
    pub query_log: Option<QueryLog>,
    /// The dnstap messages to send.
    pub dnstap: Option<Dnstap>,
    /// Detailed metrics; `None` if there are none.
    pub metrics: Option<Metrics>,
    /// The limits.
    pub limits: Limits,
}

/// A configuration with nothing to serve.
impl Default for Config {
    fn default() -> Config {
        Config {
            files: Vec::new(),
            worker_count: processor_count(),
            sockets_per_address: SocketsPerAddress::Auto,
            user_and_group: None,
            sandbox: true,
            keys: KeyPlace::Keeper,
            control: None,
            control_location: None,
            state: None,
            state_location: None,
            http_listen: Vec::new(),
            http2: false,
            https_listen: Vec::new(),
            dns_listen: Vec::new(),
            dot_listen: Vec::new(),
            sites: Vec::new(),
            default_site: DefaultSite::None,
            zones: Vec::new(),
            secondary_zones: Vec::new(),
            signed_zones: Vec::new(),
            catalogs: Vec::new(),
            zone_folder: None,
            tsig_keys: Vec::new(),
            transfers: ZoneTransfers::default(),
            zone_transfers: Vec::new(),
            zone_updates: Vec::new(),
            certificates: Vec::new(),
            acme: None,
            derived: Vec::new(),
            refuses_unknown_names: false,
            has_self_signed_certificate: false,
            replies: DnsReplies::default(),
            resolvers: Vec::new(),
            has_no_resolvers: false,
            backend_names: BTreeSet::new(),
            dns_rate_limit: RateLimit::default(),
            http_rate_limit: RateLimit::default(),
            trusted_proxies: None,
            access_log: None,
            query_log: None,
            dnstap: None,
            metrics: None,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// The target of a log's lines; `None` if there is no such log.
    pub fn log_output(&self, kind: LogKind) -> Option<&LogOutput> {
        match kind {
            LogKind::Access => self.access_log.as_ref().map(|log| &log.output),
            LogKind::Queries => self.query_log.as_ref().map(|log| &log.output),
            LogKind::Dnstap => self.dnstap.as_ref().map(|dnstap| &dnstap.output),
        }
    }

    /// The reason why a server cannot create its control socket at the configured path.
    pub fn control_problem(&self) -> Option<Diagnostic> {
        let problem = check_control_path(self.control.as_deref()?).err()?;
        Some(Diagnostic::error(self.control_location.clone()?, problem))
    }

    /// The reason why the agent cannot use the state folder `state`; this process checks it as the agent's user.
    pub fn state_problem(&self, state: &Path) -> Option<Diagnostic> {
        let problem = check_state_folder(Some(state).filter(|_| self.needs_agent())?).err()?;
        Some(Diagnostic::error(self.state_place(), problem))
    }

    /// The configuration files that this user cannot read. This process may have read them as root.
    pub fn unreadable_files(&self) -> impl Iterator<Item = Diagnostic> {
        self.files.iter().filter_map(|file| {
            let problem = check_readable("configuration file", file).err()?;
            Some(Diagnostic::error(Location::File(file.clone()), problem))
        })
    }

    /// The directories and zone files that do not exist or are of the wrong kind. Each makes its own site or zone
    /// unavailable, and no other.
    pub fn path_problems(&self) -> Vec<Diagnostic> {
        let sites = self.sites.iter().filter_map(|site| site.check_document_root().err());
        let link_targets = self.sites.iter().flat_map(Site::link_target_problems);
        let folder = self.zone_folder.iter().filter_map(|folder| folder.check().err());
        let zones = self.zones.iter().filter_map(|zone| zone.check_file().err());
        sites.chain(link_targets).chain(zones).chain(folder).collect()
    }

    /// Notes about each `hsts`.
    pub fn hsts_risks(&self) -> impl Iterator<Item = Diagnostic> {
        self.sites.iter().filter_map(|site| site.options.hsts.as_ref()?.risk())
    }

    /// Warns that sites answer DNS queries only over HTTP, which clients do not use. A trusted proxy may add the
    /// encryption.
    pub fn unencrypted_doh(&self) -> impl Iterator<Item = Diagnostic> {
        let is_encrypted = |site: &Site| {
            let is_for_site = |files: &CertificateFiles| files.names.iter().any(|name| site.hosts.contains(name));
            !self.https_listen.is_empty() && self.certificates.iter().any(is_for_site)
        };
        let sites = self.sites.iter().filter(move |site| self.trusted_proxies.is_none() && !is_encrypted(site));
        sites.filter_map(|site| {
            let (doh, domain) = (site.options.doh.as_ref()?, site.hosts.first()?);
            let message =
                format!("{domain} answers DNS queries only without encryption, but clients of DNS over HTTPS need TLS");
            let remedy = "add a `certificate` to the domain and `listen` to [https], or add the proxy that terminates \
                TLS to `trusted_proxies`";
            Some(Diagnostic::warning(doh.location.clone(), Problem::new(message, remedy)))
        })
    }

    /// Notes about each `security_headers`.
    pub fn security_notes(&self) -> impl Iterator<Item = Diagnostic> {
        self.sites.iter().filter_map(|site| site.options.rules.note())
    }

    /// Whether this domain has a site; `None` is the site of `serve FOLDER`.
    pub fn has_site(&self, domain: Option<&str>) -> bool {
        self.sites.iter().any(|site| site.hosts.first().map(DomainName::as_str) == domain)
    }

    /// Whether the configuration has certificates.
    pub fn has_tls(&self) -> bool {
        !self.certificates.is_empty() || self.has_self_signed_certificate
    }

    /// Whether there is a separate process for private keys.
    pub fn has_keeper(&self) -> bool {
        self.keeps_certificates() || !self.signed_zones.is_empty()
    }

    /// Whether the keeper has the private keys of certificates.
    pub fn keeps_certificates(&self) -> bool {
        self.keys == KeyPlace::Keeper && !self.certificates.is_empty()
    }

    /// The certificates that the server requests itself.
    pub fn automatic_certificates(&self) -> impl Iterator<Item = &CertificateFiles> {
        self.certificates.iter().filter(|certificate| certificate.is_automatic)
    }

    /// The derived records of each zone with its own file.
    pub fn derived_rrsets(&self) -> HashMap<&DomainName, Vec<DerivedRrset>> {
        derive::derived_rrsets(&self.derived, &self.zones, &self.https_listen)
    }

    /// The names that the authorities have in CAA records (RFC 8659 §4.2), each once; `None` if one of them is unknown.
    pub fn caa_authorities(&self) -> Option<Vec<&str>> {
        let authorities = self.acme.as_ref()?.authorities.iter();
        let mut names = authorities.map(|authority| authority.caa.as_deref()).collect::<Option<Vec<&str>>>()?;
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// A warning for each certificate that is unused because no listener speaks TLS.
    pub fn unused_certificates(&self) -> impl Iterator<Item = Diagnostic> {
        let is_bound = |service: &Service| !self.listen(*service).is_empty();
        let has_listener = Service::ALL.iter().filter(|service| service.is_encrypted()).any(is_bound);
        self.certificates.iter().filter(move |_| !has_listener).map(|files| {
            let domain = files.names.first().map_or("every host", DomainName::as_str);
            let message = format!("the certificate of {domain} is not used: there is no listener for TLS");
            Diagnostic::warning(
                files.location.clone(),
                Problem::new(message, "add [https] with listen = [\"ADDRESS:443\"]"),
            )
        })
    }

    /// The commands of `on_renew` whose program is missing, or cannot be executed.
    pub fn renewal_command_problems(&self) -> impl Iterator<Item = Diagnostic> {
        self.automatic_certificates().filter_map(|files| {
            let program = files.on_renew.first()?;
            let problem = check_program(Path::new(program)).err()?;
            Some(Diagnostic::error(files.location.clone(), problem))
        })
    }

    /// Whether there are zones, or may be some in a folder.
    pub fn has_zones(&self) -> bool {
        !self.zones.is_empty() || self.has_transferred_zones() || self.zone_folder.is_some()
    }

    /// The transfer rules of each zone.
    pub fn transfers_by_zone(&self) -> TransfersByZone<'_> {
        TransfersByZone::new(&self.transfers, &self.zone_transfers)
    }

    /// Whether there are secondary servers.
    pub fn has_secondaries(&self) -> bool {
        let own = self.zone_transfers.iter().map(|(_, own)| own);
        own.chain([&self.transfers]).any(|transfers| !transfers.secondaries.is_empty())
    }

    /// Whether the agent writes zones.
    pub fn has_transferred_zones(&self) -> bool {
        !self.secondary_zones.is_empty() || !self.catalogs.is_empty()
    }

    /// Whether catalogs bring zones.
    pub fn consumes_catalogs(&self) -> bool {
        self.catalogs.iter().any(|catalog| matches!(catalog.role, CatalogRole::Consumer { .. }))
    }

    /// Whether a zone file may have `ALIAS`, whose targets the agent resolves.
    pub fn resolves_aliases(&self) -> bool {
        !self.resolvers.is_empty()
    }

    /// Whether the agent may derive records for zones.
    pub fn has_derived_records(&self) -> bool {
        !self.derived.is_empty() || self.resolves_aliases()
    }

    /// Whether the state folder has zones, journals of zones, or dynamic updates, or the agent needs to know which
    /// zones are served.
    pub fn has_stored_zones(&self) -> bool {
        !(self.signed_zones.is_empty() && self.zone_updates.is_empty())
            || self.has_transferred_zones()
            || self.has_zones() && (self.has_secondaries() || self.resolves_aliases())
    }

    /// The zones that have a section: those with their own files, then those from primaries.
    pub fn apexes(&self) -> impl Iterator<Item = &DomainName> {
        self.zones.iter().map(|zone| &zone.apex).chain(self.secondary_zones.iter().map(|zone| &zone.apex))
    }

    /// The signing of the zone `apex`; `None` if it is unsigned.
    pub fn signed_zone(&self, apex: &DomainName) -> Option<&SignedZone> {
        self.signed_zones.iter().find(|zone| zone.apex == *apex)
    }

    /// A warning for each zone that is signed according to the state folder `state`, and whose `dnssec` was removed.
    pub fn abandoned_signatures(&self, state: &Path) -> Vec<Diagnostic> {
        let zones = self.zones.iter().filter(|zone| self.signed_zone(&zone.apex).is_none());
        zones.filter_map(|zone| abandoned_signatures(zone, state)).collect()
    }

    /// Whether `name` is in a signed zone.
    pub fn is_signed_at(&self, name: &DomainName) -> bool {
        zone_of(name.as_str(), self.apexes()).is_some_and(|apex| self.signed_zone(apex).is_some())
    }

    /// Whether replies have cookies.
    pub fn has_cookies(&self) -> bool {
        self.replies.cookies && self.has_zones()
    }

    /// Whether a server process holds secrets from the operator's files, or a private key: its memory must not be
    /// readable.
    pub fn has_secrets(&self) -> bool {
        self.has_tls()
            || self.replies.cookie_secret_file.is_some()
            || !self.tsig_keys.is_empty()
            || self.backend_tls_files().iter().any(|(files, _)| files.certificate.is_some())
            || self.users_directories().next().is_some()
    }

    /// The user files' directories.
    pub fn users_directories(&self) -> impl Iterator<Item = PathBuf> {
        let rules = self.sites.iter().flat_map(|site| &site.options.rules.auth);
        rules.map(|rule| match rule.users_file.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
            _ => PathBuf::from("."),
        })
    }

    /// The addresses of `service`.
    pub fn listen(&self, service: Service) -> &[SocketAddr] {
        match service {
            Service::Http => &self.http_listen,
            Service::Https => &self.https_listen,
            Service::Dns => &self.dns_listen,
            Service::Dot => &self.dot_listen,
            Service::Metrics => self.metrics.as_ref().map_or(&[], |metrics| &metrics.listen),
        }
    }

    /// Gives a default address to each service with content that has none, and removes the addresses of other services.
    pub(super) fn set_default_addresses(&mut self) {
        let has_zones = self.has_zones();
        for (listen, default, has_content) in [
            (&mut self.http_listen, HTTP_LISTEN_DEFAULT, !self.sites.is_empty()),
            (&mut self.dns_listen, DNS_LISTEN_DEFAULT, has_zones),
        ] {
            match (has_content, listen.is_empty()) {
                (false, _) => listen.clear(),
                (true, true) => listen.push(default),
                (true, false) => {}
            }
        }
    }

    /// The number of sockets of each address.
    pub fn socket_count(&self) -> usize {
        match self.sockets_per_address {
            // A worker without its own socket shares another worker's socket.
            SocketsPerAddress::Auto => processor_count().max(self.worker_count),
            SocketsPerAddress::Exactly(count) => count,
        }
    }
}

/// The process that holds the private keys of certificates, and signs handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A separate process, which only signs and has no network access.
    Keeper,
    /// The server process.
    InProcess,
}

/// The number of reuseport sockets (`SO_REUSEPORT`) of each address, among which the kernel distributes clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketsPerAddress {
    /// The number of processors or of workers, whichever is larger.
    Auto,
    /// A fixed number, 1 to 1024.
    Exactly(usize),
}

/// The section for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// The listener's addresses; none if there is none.
    pub listen: Vec<SocketAddr>,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

impl Metrics {
    /// The addresses that other networks may reach: a mistake, since everyone could read the metrics.
    pub fn risks(&self) -> impl Iterator<Item = Diagnostic> {
        self.listen.iter().filter(|address| !is_private(address.ip())).map(|address| {
            let message = format!("everyone that can reach {address} can read the metrics");
            let remedy = "listen on 127.0.0.1 or on an address of a private network, or allow only your collector in the firewall";
            Diagnostic::warning(self.location.clone(), Problem::new(message, remedy))
        })
    }
}

/// Whether only this machine or its own network reaches the address: loopback, private use, link-local, or shared by
/// the customers of a network (RFC 1918, RFC 3927, RFC 4193, RFC 4291 §2.5.6, RFC 6598).
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let number = v4.to_bits();
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || number >> 22 == 0x6440_0000 >> 22
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// A user of the system, and a group if it is not the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAndGroup {
    /// Name or number of the user.
    pub user: String,
    /// Name or number of the group.
    pub group: Option<String>,
    /// The location of `user` in the configuration.
    pub user_location: ValueLocation,
    /// The location of `group`, or of `user` if there is no group.
    pub group_location: ValueLocation,
}

/// The parts of DNS replies other than records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsReplies {
    /// The name of this server (RFC 5001, RFC 4892); empty for none.
    pub nsid: String,
    /// The answer for `version.server` and `version.bind`; empty for none.
    pub version: String,
    /// Whether clients that send a cookie get one (RFC 7873).
    pub cookies: bool,
    /// The file with the secrets of cookies.
    pub cookie_secret_file: Option<CookieSecretFile>,
    /// Whether clients that ask for it get the idle timeout of their connection (RFC 7828).
    pub tcp_keepalive: bool,
    /// Whether errors have their reason (RFC 8914).
    pub extended_errors: bool,
    /// The domain to which resolvers report errors (RFC 9567).
    pub error_report_agent: Option<DomainName>,
}

impl Default for DnsReplies {
    fn default() -> DnsReplies {
        DnsReplies {
            nsid: String::new(),
            version: String::new(),
            cookies: true,
            cookie_secret_file: None,
            tcp_keepalive: true,
            extended_errors: true,
            error_report_agent: None,
        }
    }
}

/// A resolver that the agent asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// The resolvers in `/etc/resolv.conf`.
    System,
    /// The resolver at this address.
    At(SocketAddr),
}

/// Exemptions from a limit of requests, or of replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Networks of clients without a limit: an address, and the bits of its prefix.
    pub exempt: Vec<(IpAddr, u8)>,
    /// Whether requests and replies beyond the limit are only counted.
    pub dry_run: bool,
}

/// Proxies in front of the server, and how they name the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies {
    /// The proxies' networks: an address, and the bits of its prefix. Not empty.
    pub networks: Vec<(IpAddr, u8)>,
    /// How the proxies name the client.
    pub client_from: ClientFrom,
    /// The position of the networks in the configuration.
    pub location: ValueLocation,
}

impl TrustedProxies {
    /// A warning that every address counts as a trusted proxy.
    pub fn risk(&self) -> Option<Diagnostic> {
        let all = self.networks.iter().find(|(_, prefix_bits)| *prefix_bits == 0)?;
        let message = format!(
            "`trusted_proxies` has all addresses ({}/0): a client that connects directly can claim any address",
            all.0
        );
        let remedy = "list only the networks of the proxies";
        Some(Diagnostic::warning(self.location.clone(), Problem::new(message, remedy)))
    }
}

/// A file with the secrets of cookies, for servers that share an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieSecretFile {
    /// The path, relative to the working directory or absolute.
    pub path: PathBuf,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

impl CookieSecretFile {
    /// Reads the secret for new cookies, and the second secret with which cookies are valid, if any.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is malformed.
    pub fn read(&self) -> Result<(CookieSecret, Option<CookieSecret>), Diagnostic> {
        read_cookie_secrets(&self.path).map_err(|problem| Diagnostic::error(self.location.clone(), problem))
    }

    /// The reason why the secrets are not secret.
    pub fn mode_problem(&self) -> Option<Diagnostic> {
        let problem = check_key_mode("cookie secret file", &self.path).err()?;
        Some(Diagnostic::warning(self.location.clone(), problem))
    }
}

/// The content of a file that may have a private key. The content is erased when it is dropped.
pub type SecretContent = Zeroizing<Vec<u8>>;

/// The last part of a certificate's lifetime, in which the server renews it whatever its authority suggests.
pub const LATEST_RENEWAL_PART: u64 = 6;

/// The files of a certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The names that it is used for: the domain and its aliases. Several certificates of a domain follow each other.
    /// The first domain's certificates are also used for a name without one.
    pub names: Vec<DomainName>,
    /// Whether the server requests it. After it is issued, its files are in the state folder, and their paths are
    /// relative to that folder.
    pub is_automatic: bool,
    /// The certificates as PEM, the server certificate first.
    pub chain: PathBuf,
    /// The private key as PEM.
    pub key: PathBuf,
    /// The command that runs after a certificate is issued, and its arguments; empty for none.
    pub on_renew: Vec<String>,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

impl CertificateFiles {
    /// Reads the chain and the key.
    ///
    /// # Errors
    /// Returns the unreadable file, and the remedy.
    pub fn read(&self) -> Result<(SecretContent, SecretContent), Problem> {
        let chain = read_secret_file("certificate chain", "PEM", &self.chain)?;
        Ok((chain, read_secret_file("private key", "PEM", &self.key)?))
    }

    /// The reason why the private key is not private, in whichever of the files it is.
    pub fn key_problems(&self) -> impl Iterator<Item = Diagnostic> {
        let other = (self.key != self.chain).then_some(&self.key);
        [&self.chain].into_iter().chain(other).filter_map(|path| {
            let problem = check_key_mode("private key", path).err()?;
            let content = read_secret_file("private key", "PEM", path).ok()?;
            has_private_key(&content).then(|| Diagnostic::warning(self.location.clone(), problem))
        })
    }
}

/// The site for a Host that is not configured, as an index into [`Config::sites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultSite {
    /// There is no site.
    None,
    /// The site answers if the Host is an IP address or `localhost`, so that it does not answer for other names by
    /// accident.
    Addresses(usize),
    /// The site answers every Host.
    EveryHost(usize),
}

/// The number of processors that this process may use; 1 if it is unknown.
pub fn processor_count() -> usize {
    // The number is read once: in the sandbox, it would differ.
    static COUNT: OnceLock<usize> = OnceLock::new();
    let max = usize::try_from(WORKER_COUNT_MAX).unwrap_or(usize::MAX);
    *COUNT.get_or_init(|| available_parallelism().map_or(1, NonZeroUsize::get).min(max))
}
