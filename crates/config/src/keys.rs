//! The configuration file's keys: one table for the reader, its messages, and the processes that a reload replaces.

use crate::config::{CertificateFiles, Config, WORKER_COUNT_MAX};
use crate::diagnostic::Problem;
use crate::domain_name::DomainName;
use crate::limits;
use crate::routes::{CONNECTIONS_MAX, ERRORS_MAX, REQUESTS_MAX, WEIGHT_MAX};
use crate::service::Service;
use crate::signing::{SignedZone, Signing};
use crate::similar::most_similar;
use crate::site::{Site, SiteOptions};
use crate::zones::Zone;
use std::collections::HashSet;
use std::path::PathBuf;

/// A configuration file with all keys except the limits, for the help.
pub const EXAMPLE: &str = include_str!("example.toml");

/// A key of a section.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// How a message writes it: `workers = 4`.
    pub(super) example: &'static str,
    pub(super) value: Value,
    /// The TOML of the value that it has if the file does not have it; `None` if it has none, or one that depends on
    /// the machine or on other keys. That of a boolean is in `value`.
    pub(super) default: Option<&'static str>,
    /// When a reload needs a new server process.
    pub(super) server: Option<Replaces>,
    /// Gives the agent the part of the key that it reads. If that differs, a reload replaces the agent.
    pub(super) agent: Option<Give>,
    /// As `agent`.
    pub(super) keeper: Option<Give>,
}

/// The properties of a value that the reader needs.
#[derive(Clone, Copy)]
pub(super) enum Value {
    /// True or false, with its default.
    Boolean(bool),
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// A table of the file: `[http]`.
    Section,
    /// Another kind of value, with its own reader function.
    Other,
}

/// Whether the new configuration, the first, cannot be applied by a server process that was started with the second.
type Differs = fn(&Config, &Config) -> bool;
/// Copies a part of the first configuration into the second.
type Give = fn(&Config, &mut Config);

#[derive(Clone, Copy)]
pub(super) enum Replaces {
    /// A process applies only the value with which it was started.
    Changed(Differs),
    /// The sandbox of a process that was started without the key allows less.
    Added(Differs),
}

/// Makes rows of the table from lines such as
/// `key: default or in range = "example", default "value", server (field), agent (field) or { function };`.
macro_rules! keys {
    ($($name:ident $(: $default:literal)? $(in $min:literal ..= $max:expr)? => $example:literal
        $(, default $text:literal)? $(, server $server:tt)? $(, added $added:tt)? $(, agent $agent:tt)? $(, keeper $keeper:tt)?;)*) => {
        &[$(Key {
            name: stringify!($name),
            example: concat!(stringify!($name), " = ", $example),
            value: keys!(@value $($default)? $($min $max)?),
            default: keys!(@default $($text)?),
            server: keys!(@server $($server)? $(added $added)?),
            agent: keys!(@give $($agent)?),
            keeper: keys!(@give $($keeper)?),
        }),*]
    };
    (@value) => { Value::Other };
    (@value $default:literal) => { Value::Boolean($default) };
    (@value $min:literal $max:expr) => { Value::Number($min, $max) };
    (@default) => { None };
    (@default $text:literal) => { Some($text) };
    (@server) => { None };
    (@server ($field:ident)) => { Some(Replaces::Changed(|next, running| next.$field != running.$field)) };
    (@server { $differs:expr }) => { Some(Replaces::Changed($differs)) };
    (@server added { $differs:expr }) => { Some(Replaces::Added($differs)) };
    (@give) => { None };
    (@give ($($field:ident)+)) => { Some(|from, to| { $(to.$field.clone_from(&from.$field);)+ }) };
    (@give { $give:expr }) => { Some($give) };
}

const TOP: &[Key] = keys! {
    workers in 1..=WORKER_COUNT_MAX => "4", server (worker_count);
    listeners => "\"auto\"", default "\"auto\"", server (sockets_per_address);
    user => "\"sanderling\"", server { |next, running| user_of(next) != user_of(running) }, agent (user_and_group), keeper (user_and_group);
    group => "\"sanderling\"", server { |next, running| group_of(next) != group_of(running) }, agent (user_and_group), keeper (user_and_group);
    sandbox: true => "true", server (sandbox), agent (sandbox), keeper (sandbox);
    keys => "\"keeper\"", default "\"keeper\"", server (keys);
    control => "\"control.sock\"";
    state => "\"/var/lib/sanderling\"", server { |next, running| next.uses_state_folder() && next.state != running.state },
        agent (state), keeper (state);
    include => "[\"sites/*.toml\"]";
};

/// The sections, which are keys at the top of the file.
const SECTIONS: &[Key] = &[
    section("http", "[http] on a line of its own", None),
    section("https", "[https] on a line of its own", None),
    section("dns", "[dns] on a line of its own", None),
    section("certificates", "[certificates] on a line of its own", None),
    section("domain", "[domain.\"example.com\"] on a line of its own", None),
    section("tsig", "[tsig.\"transfer\"] with secret_file = \"transfer.key\"", None),
    section(
        "catalog",
        "[catalog.\"catalog.example\"] with secondaries = [{ address = \"192.0.2.5\", key = \"transfer\" }]",
        Some(Replaces::Added(|next, running| !running.has_transferred_zones() && !next.catalogs.is_empty())),
    ),
    section("log", "[log] on a line of its own", None),
    section(
        "metrics",
        "[metrics] on a line of its own",
        Some(Replaces::Changed(|next, running| next.metrics.is_some() != running.metrics.is_some())),
    ),
    section("limits", "[limits] on a line of its own", None),
];

const fn section(name: &'static str, example: &'static str, server: Option<Replaces>) -> Key {
    Key { name, example, value: Value::Section, default: None, server, agent: None, keeper: None }
}

const HTTP: &[Key] = keys! {
    listen => "[\"127.0.0.1:8080\"]", default "[\"127.0.0.1:8080\"]", server (http_listen), agent (http_listen);
    http2: false => "true", server (http2);
    default => "\"example.com\"";
    trusted_proxies => "[\"192.0.2.0/24\", \"2001:db8::/32\"]";
    client_from => "\"proxy-protocol\", \"forwarded\" or \"x-forwarded-for\"";
    rate_limit_exempt => "[\"192.0.2.0/24\", \"2001:db8::/32\"]";
    rate_limit_dry_run: false => "true";
};

const HTTPS: &[Key] = keys! {
    listen => "[\"127.0.0.1:8443\"]", server (https_listen), agent (https_listen);
    refuse_unknown_names: false => "true";
};

const DNS: &[Key] = keys! {
    listen => "[\"127.0.0.1:5353\"]", default "[\"127.0.0.1:5353\"]", server (dns_listen), agent (dns_listen);
    tls => "[\"127.0.0.1:8853\"]", server (dot_listen);
    zones => "\"zones/*.zone\"", agent (zone_folder);
    secondaries => "[{ address = \"192.0.2.5\", key = \"transfer\" }]",
        added { |next, running| !running.has_stored_zones() && next.has_zones() && next.has_secondaries() },
        agent (transfers);
    transfer_allow => "[{ network = \"192.0.2.0/24\", key = \"transfer\" }]", agent (transfers);
    nsid => "\"ns1.example.com\"";
    version => "\"sanderling\"";
    cookies: true => "true";
    cookie_secret_file => "\"cookie.secret\"",
        added { |next, running| !running.has_secrets() && next.replies.cookie_secret_file.is_some() };
    tcp_keepalive: true => "true";
    extended_errors: true => "true";
    error_report_agent => "\"reports.example.com\"";
    resolvers => "[\"system\"]",
        added { |next, running| !running.has_stored_zones() && next.has_zones() && next.resolves_aliases() },
        agent (resolvers has_no_resolvers);
    rate_limit_exempt => "[\"192.0.2.0/24\", \"2001:db8::/32\"]";
    rate_limit_dry_run: false => "true";
};

const CERTIFICATES: &[Key] = keys! {
    agree_to_terms: false => "true", agent (acme);
    contact => "\"mailto:hostmaster@example.com\"", agent (acme);
    authorities => "[\"letsencrypt\"]", default "[\"letsencrypt\"]", agent (acme);
};

const AUTHORITY: &[Key] = keys! {
    name => "\"zerossl\"";
    directory => "\"https://ca.example/directory\"";
    root => "\"ca.pem\"";
    profile => "\"shortlived\"";
    caa => "\"ca.example\"";
    external_account => "{ id = \"KEY-ID\", key_file = \"account.key\" }";
};

const EXTERNAL_ACCOUNT: &[Key] = keys! {
    id => "\"KEY-ID\"";
    key_file => "\"account.key\"";
};

const DOMAIN: &[Key] = keys! {
    site => "\"public\"", agent { site_names };
    aliases => "[\"www.example.com\"]", agent { site_names };
    index => "[\"index.html\"]", default "[\"index.html\"]";
    clean_urls: false => "true";
    listing: false => "true";
    compress: true => "true";
    earlier_releases: true => "true";
    fallback => "\"index.html\"";
    zone => "\"example.com.zone\"", agent { zone_files };
    dnssec => "true", added { |next, running| !next.signed_zones.is_empty() && running.signed_zones.is_empty() },
        agent (signed_zones), keeper { signed_zones };
    primaries => "[{ address = \"192.0.2.7\", key = \"transfer\" }]",
        added { |next, running| !running.has_transferred_zones() && !next.secondary_zones.is_empty() },
        agent (secondary_zones);
    secondaries => "[{ address = \"192.0.2.5\", key = \"transfer\" }]",
        added { |next, running| !running.has_stored_zones() && next.has_zones() && next.has_secondaries() },
        agent (zone_transfers);
    transfer_allow => "[{ network = \"192.0.2.0/24\", key = \"transfer\" }]", agent (zone_transfers);
    update => "[{ key = \"acme\", names = [\"_acme-challenge.**\"], types = [\"TXT\"] }]",
        added { |next, running| !running.has_stored_zones() && !next.zone_updates.is_empty() }, agent { updated_zones };
    media_types => "{ log = \"text/plain; charset=utf-8\" }";
    link_targets => "[\"/srv/uploads\"]";
    hidden_files: false => "true";
    exact_paths: false => "true";
    doh => "\"/dns-query\"";
    certificate => "{ chain = \"fullchain.pem\", key = \"privkey.pem\" }",
        added { |next, running| next.has_tls() && !running.has_secrets() }, agent { automatic_certificates };
    on_renew => "[\"/usr/bin/systemctl\", \"reload\", \"postfix\"]";
    derive => "[\"https\", \"caa\"]", agent (derived);
    mta_sts => "{ mode = \"enforce\" }", agent (derived);
    https_redirect: true => "true";
    hsts => "{ max_age = \"1d\" }";
    redirects => "{ \"/old/*\" = { to = \"/new/:splat\", status = 301 } }";
    headers => "{ \"/assets/*\" = { \"Cache-Control\" = \"max-age=3600\" } }";
    rules_files: true => "true";
    cache => "\"fingerprinted\"";
    cors => "[\"https://app.example\"] or cors = \"*\"";
    security_headers => "\"basic\"";
    auth => "{ \"/private/*\" = { users_file = \"users.htpasswd\" } }";
    access => "{ \"/admin/*\" = { allow = [\"192.0.2.0/24\"] } }";
    route => "{ \"/api/\" = { proxy = \"http://127.0.0.1:3000\" } }", server { has_new_backend }, agent { site_names };
};

const CERTIFICATE: &[Key] = keys! {
    chain => "\"fullchain.pem\"";
    key => "\"privkey.pem\"";
};

const DNSSEC: &[Key] = keys! {
    signed: true => "true";
    algorithm => "\"ecdsap256sha256\"", default "\"ecdsap256sha256\"";
    keys => "\"csk\"", default "\"csk\"";
    nsec3: false => "true";
    serial => "\"keep\"", default "\"increment\"";
    zonemd: false => "true";
    ksk_lifetime => "\"365d\"";
    zsk_lifetime => "\"90d\"";
    dnskey_ttl => "\"1h\"", default "\"1h\"";
    rollover_safety => "\"1h\"", default "\"1h\"";
    parent_servers => "[\"192.0.2.53\"]";
    other_signers => "[\"ns1.example.net\"]";
};

const HSTS: &[Key] = keys! {
    max_age => "\"1d\"";
    max_age_s in 0..=10 * 365 * 86_400 => "86400";
    subdomains: false => "true";
    preload: false => "true";
};

const MTA_STS: &[Key] = keys! {
    mode => "\"enforce\"", default "\"testing\"";
    mx => "[\"mail.example.com\"]";
    max_age => "\"7d\"", default "\"7d\"";
};

const UPDATE_RULE: &[Key] = keys! {
    key => "\"acme\"";
    names => "[\"_acme-challenge.**\"]";
    types => "[\"TXT\"]";
};

const PRIMARY: &[Key] = keys! {
    address => "\"192.0.2.7\"";
    key => "\"transfer\"";
};

const SECONDARY: &[Key] = keys! {
    address => "\"192.0.2.5\"";
    key => "\"transfer\"";
};

const TRANSFER: &[Key] = keys! {
    network => "\"192.0.2.0/24\"";
    key => "\"transfer\"";
};

const REDIRECT: &[Key] = keys! {
    to => "\"/new/:splat\"";
    status in 100..=999 => "301";
    force: false => "true";
    query => "{ id = \":id\" }";
};

const AUTH_RULE: &[Key] = keys! {
    users_file => "\"users.htpasswd\"", server { |next, running| {
        let is_new = |directory| running.users_directories().all(|known| known != directory);
        next.users_directories().any(is_new)
    } };
    realm => "\"private\"";
};

const ACCESS_RULE: &[Key] = keys! {
    allow => "[\"192.0.2.0/24\", \"2001:db8::/32\"]";
    deny => "[\"192.0.2.0/24\", \"2001:db8::/32\"]";
};

const ROUTE: &[Key] = keys! {
    proxy => "\"http://127.0.0.1:3000\"", agent (backend_names);
    fastcgi => "\"unix:/run/php/php-fpm.sock\"", agent (backend_names);
    respond => "{ status = 200, text = \"ok\" }";
    methods => "[\"GET\", \"POST\"]";
    fields => "{ \"X-Canary\" = \"1\" }";
    cookies => "{ beta = true }";
    files_first: false => "true";
    forward_auth => "\"http://127.0.0.1:9091/api/authz/forward-auth\"", server { has_new_backend }, agent (backend_names);
    forward_auth_fields => "[\"Remote-User\", \"Remote-Groups\"]";
    requests_per_second_max in 1..=REQUESTS_MAX => "5";
    requests_at_once_max in 1..=REQUESTS_MAX => "20";
    protocol => "\"h2\"", default "\"http/1.1\"";
    strip_prefix: false => "true";
    host => "\"app.internal\"";
    front_controller => "\"index.php\"";
    request_headers => "{ \"X-Secret\" = \"…\", \"X-Internal\" = false }";
    response_headers => "{ \"X-Powered-By\" = false }";
    compress: false => "true";
    early_hints_http1: false => "true";
    request_body_max => "\"100MiB\"";
    timeout => "\"60s\"";
    connect_timeout => "\"5s\"";
    idle_timeout => "\"4s\"";
    connections_max in 1..=CONNECTIONS_MAX => "512";
    proxy_protocol: false => "true";
    balance => "\"client\"", default "\"least\"";
    errors_max in 1..=ERRORS_MAX => "5";
    slow_start => "\"30s\"", default "\"0s\"";
    check => "\"/healthz\"";
    check_interval => "\"5s\"", default "\"5s\"";
    tls_name => "\"app.internal\"";
    tls_roots => "\"internal-ca.pem\"";
    tls_certificate => "\"client.pem\"";
    tls_key => "\"client.key\"";
    tls_verify: true => "false";
};

const ROUTE_SERVER: &[Key] = keys! {
    url => "\"http://127.0.0.1:3000\"";
    weight in 1..=WEIGHT_MAX => "2";
};

const ROUTE_RESPOND: &[Key] = keys! {
    status in 200..=599 => "200";
    text => "\"ok\"";
};

const TSIG: &[Key] = keys! {
    algorithm => "\"hmac-sha256\"", default "\"hmac-sha256\"", agent (tsig_keys);
    secret_file => "\"transfer.key\"", added { |next, running| !running.has_secrets() && !next.tsig_keys.is_empty() },
        agent (tsig_keys);
};

const CATALOG: &[Key] = keys! {
    primaries => "[{ address = \"192.0.2.7\", key = \"transfer\" }]", agent (catalogs);
    groups => "{ internal = [{ address = \"192.0.2.7\", key = \"transfer\" }] }", agent (catalogs);
    members_below => "[\"customers.example\"]", agent (catalogs);
    secondaries => "[{ address = \"192.0.2.5\", key = \"transfer\" }]", agent (catalogs transfers zone_transfers);
};

const LOG: &[Key] = keys! {
    access => "\"access.log\"";
    format => "\"combined\"", default "\"combined\"";
    one_of in 1..=1_000_000 => "100", default "1";
    queries => "\"queries.log\"";
    queries_format => "\"text\"", default "\"text\"";
    queries_one_of in 1..=1_000_000 => "100", default "1";
    rotate => "\"daily\" or rotate = \"100MiB\"";
    keep in 1..=1_000 => "7", default "7";
    dnstap => "{ socket = \"/run/dnstap.sock\" }";
};

const DNSTAP: &[Key] = keys! {
    socket => "\"/run/dnstap.sock\"";
    messages => "[\"query\", \"response\"]";
    identity => "\"ns1.example.com\"";
};

const METRICS: &[Key] = keys! {
    listen => "[\"127.0.0.1:9180\"]", server { |next, running| next.listen(Service::Metrics) != running.listen(Service::Metrics) };
};

/// Names that earlier versions or other servers have for a key: the section, their name, and the key. A key that is
/// renamed gets a row, so that `check` names its successor.
const OTHER_NAMES: &[(Section, &str, &str)] = &[
    (Section::Top, "threads", "workers"),
    (Section::Top, "worker_processes", "workers"),
    (Section::Domain, "allow_transfer", "transfer_allow"),
    (Section::Domain, "also_notify", "secondaries"),
    (Section::Domain, "autoindex", "listing"),
    (Section::Domain, "document_root", "site"),
    (Section::Domain, "encode", "compress"),
    (Section::Domain, "file", "zone"),
    (Section::Domain, "gzip", "compress"),
    (Section::Domain, "fastcgi", "route"),
    (Section::Domain, "fastcgi_pass", "route"),
    (Section::Domain, "handle", "route"),
    (Section::Domain, "location", "route"),
    (Section::Domain, "masters", "primaries"),
    (Section::Domain, "php_fastcgi", "route"),
    (Section::Domain, "proxy", "route"),
    (Section::Domain, "proxy_pass", "route"),
    (Section::Domain, "redir", "redirects"),
    (Section::Domain, "respond", "route"),
    (Section::Domain, "reverse_proxy", "route"),
    (Section::Domain, "root", "site"),
    (Section::Domain, "server_name", "aliases"),
    (Section::Domain, "slaves", "secondaries"),
    (Section::Domain, "try_files", "fallback"),
];

/// A table of the file with keys that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// Before the first `[section]`.
    Top,
    Http,
    Https,
    Dns,
    Certificates,
    /// `[domain."NAME"]`.
    Domain,
    /// `[tsig."NAME"]`.
    Tsig,
    /// `[catalog."NAME"]`.
    Catalog,
    Log,
    Metrics,
    Limits,
    // The others are values of a key.
    Authority,
    ExternalAccount,
    Certificate,
    Dnssec,
    Hsts,
    MtaSts,
    UpdateRule,
    Primary,
    Secondary,
    Transfer,
    Redirect,
    AuthRule,
    AccessRule,
    Route,
    RouteServer,
    RouteRespond,
    Dnstap,
}

impl Section {
    /// The number of sections with their own heading.
    const WITH_HEADING: usize = Section::Limits as usize + 1;
    pub(super) const ALL: [Section; 28] = [
        Section::Top,
        Section::Http,
        Section::Https,
        Section::Dns,
        Section::Certificates,
        Section::Domain,
        Section::Tsig,
        Section::Catalog,
        Section::Log,
        Section::Metrics,
        Section::Limits,
        Section::Authority,
        Section::ExternalAccount,
        Section::Certificate,
        Section::Dnssec,
        Section::Hsts,
        Section::MtaSts,
        Section::UpdateRule,
        Section::Primary,
        Section::Secondary,
        Section::Transfer,
        Section::Redirect,
        Section::AuthRule,
        Section::AccessRule,
        Section::Route,
        Section::RouteServer,
        Section::RouteRespond,
        Section::Dnstap,
    ];

    /// The section's place, as a message says it, and its keys. The keys of `[limits]` have a separate table.
    const fn row(self) -> (&'static str, &'static [Key]) {
        match self {
            Section::Top => ("at the top of the file, before the first [section]", TOP),
            Section::Http => ("in [http]", HTTP),
            Section::Https => ("in [https]", HTTPS),
            Section::Dns => ("in [dns]", DNS),
            Section::Certificates => ("in [certificates]", CERTIFICATES),
            Section::Domain => ("in [domain.\"NAME\"]", DOMAIN),
            Section::Tsig => ("in [tsig.\"NAME\"]", TSIG),
            Section::Catalog => ("in [catalog.\"NAME\"]", CATALOG),
            Section::Log => ("in [log]", LOG),
            Section::Metrics => ("in [metrics]", METRICS),
            Section::Limits => ("in [limits]", &[]),
            Section::Authority => ("in `authorities`", AUTHORITY),
            Section::ExternalAccount => ("in `external_account`", EXTERNAL_ACCOUNT),
            Section::Certificate => ("in `certificate`", CERTIFICATE),
            Section::Dnssec => ("in `dnssec`", DNSSEC),
            Section::Hsts => ("in `hsts`", HSTS),
            Section::MtaSts => ("in `mta_sts`", MTA_STS),
            Section::UpdateRule => ("in `update`", UPDATE_RULE),
            Section::Primary => ("in `primaries`", PRIMARY),
            Section::Secondary => ("in `secondaries`", SECONDARY),
            Section::Transfer => ("in `transfer_allow`", TRANSFER),
            Section::Redirect => ("in `redirects`", REDIRECT),
            Section::AuthRule => ("in `auth`", AUTH_RULE),
            Section::AccessRule => ("in `access`", ACCESS_RULE),
            Section::Route => ("in `route`", ROUTE),
            Section::RouteServer => ("in a server of `route`", ROUTE_SERVER),
            Section::RouteRespond => ("in `respond`", ROUTE_RESPOND),
            Section::Dnstap => ("in `dnstap`", DNSTAP),
        }
    }

    fn heading(self) -> &'static str {
        self.row().0
    }

    fn rows(self) -> impl Iterator<Item = &'static Key> {
        let sections = if self == Section::Top { SECTIONS } else { &[] };
        self.row().1.iter().chain(sections)
    }

    /// The keys of the section itself, without the sections of the file.
    pub(super) fn own_keys(self) -> impl Iterator<Item = &'static Key> {
        self.row().1.iter()
    }

    /// The row of `name`; `None` for a key of `[limits]`.
    pub(super) fn key(self, name: &str) -> Option<&'static Key> {
        self.rows().find(|key| key.name == name)
    }

    pub(super) fn names(self) -> Vec<&'static str> {
        if self == Section::Limits { limits::keys() } else { self.rows().map(|key| key.name).collect() }
    }

    /// The problem that `key` is unknown in this section, which belongs to the domain, TSIG key or catalog `name`.
    pub(super) fn unknown_key(self, name: &str, key: &str) -> Problem {
        let message = match self {
            Section::Top => format!("unknown key `{key}`"),
            _ => format!("unknown key `{key}` {}", self.heading().replace("NAME", name)),
        };
        Problem::new(message, self.suggestion(key))
    }

    fn suggestion(self, name: &str) -> String {
        let with_heading = &Section::ALL[..Section::WITH_HEADING];
        let other_name = OTHER_NAMES.iter().find(|(section, other, _)| *section == self && *other == name);
        let other_section = || with_heading.iter().find(|section| section.names().contains(&name));
        if let Some((_, _, key)) = other_name {
            format!("its name here is `{key}`")
        } else if self == Section::Top && name.contains('.') {
            format!("write [domain.\"{name}\"] for a domain")
        } else if let (true, Some(section)) = (with_heading.contains(&self), other_section()) {
            format!("`{name}` belongs {}", section.heading())
        } else if let Some(similar) = most_similar(name, self.names().into_iter()) {
            format!("did you mean `{similar}`?")
        } else {
            self.list()
        }
    }

    fn list(self) -> String {
        let quoted = |keys: &[Key]| keys.iter().map(|key| format!("`{}`", key.name)).collect::<Vec<_>>().join(", ");
        let keys = self.row().1;
        match self {
            Section::Top => {
                let headings = Section::ALL[1..Section::WITH_HEADING].iter().map(|section| section.heading());
                let headings: Vec<&str> = headings.map(|heading| heading.trim_start_matches("in ")).collect();
                let (last, others) = headings.split_last().expect("there are sections");
                format!("the keys are {}, {} and {last}", quoted(keys), others.join(", "))
            }
            Section::Limits => "`sanderling help check` lists the limits".to_owned(),
            _ if keys.len() == 1 => format!("the only key is {}", quoted(keys)),
            _ => format!("the keys are {}", quoted(keys)),
        }
    }
}

/// All keys outside `[limits]`, each with its section.
pub(super) fn all_keys() -> impl Iterator<Item = (Section, &'static Key)> {
    Section::ALL.into_iter().flat_map(|section| section.rows().map(move |key| (section, key)))
}

impl Key {
    /// The reason why a server process that was started with `running` cannot apply what `next` has for this key of
    /// `section`.
    pub(super) fn reason_for_new_process(&self, section: Section, next: &Config, running: &Config) -> Option<String> {
        let replaces = self.server?;
        let (Replaces::Changed(differs) | Replaces::Added(differs)) = replaces;
        if !differs(next, running) {
            return None;
        }
        let is_section = matches!(self.value, Value::Section);
        let name = if is_section { format!("[{}]", self.name) } else { format!("`{}`", self.name) };
        Some(match replaces {
            Replaces::Changed(_) if is_section => format!("{name} was added or removed"),
            Replaces::Changed(_) if section == Section::Top => format!("{name} has changed"),
            Replaces::Changed(_) => format!("{name} {} has changed", section.heading()),
            Replaces::Added(_) => format!("{name} was added"),
        })
    }
}

fn user_of(config: &Config) -> Option<&str> {
    config.user_and_group.as_ref().map(|it| it.user.as_str())
}

fn group_of(config: &Config) -> Option<&str> {
    config.user_and_group.as_ref()?.group.as_deref()
}

/// Whether the sandbox of a running process does not allow connections to the applications of `next`, or the process
/// leaves out the cookies of requests, because it was started without a route that needs them.
fn has_new_backend(next: &Config, running: &Config) -> bool {
    !next.backend_ports().is_subset(&running.backend_ports()) || (next.needs_cookies() && !running.needs_cookies())
}

/// The names at which an authority finds a token.
fn site_names(from: &Config, to: &mut Config) {
    let site = |site: &Site| Site {
        hosts: site.hosts.clone(),
        document_root: None,
        location: site.location.clone(),
        options: SiteOptions::default(),
    };
    to.sites = from.sites.iter().map(site).collect();
}

/// The zones, with the files that the agent signs; the server process reads the others.
fn zone_files(from: &Config, to: &mut Config) {
    let signed: HashSet<&DomainName> = from.signed_zones.iter().map(|zone| &zone.apex).collect();
    let zone = |zone: &Zone| {
        let file = if signed.contains(&zone.apex) { zone.file.clone() } else { PathBuf::new() };
        Zone { file, ..zone.clone() }
    };
    to.zones = from.zones.iter().map(zone).collect();
}

/// The zones that have `update`; the server process checks the rules.
fn updated_zones(from: &Config, to: &mut Config) {
    to.zone_updates = from.zone_updates.iter().map(|(apex, _)| (apex.clone(), Vec::new())).collect();
}

/// The requested certificates; the supervisor runs the command of each.
fn automatic_certificates(from: &Config, to: &mut Config) {
    let certificate = |files: &CertificateFiles| CertificateFiles { on_renew: Vec::new(), ..files.clone() };
    to.certificates = from.automatic_certificates().map(certificate).collect();
}

/// The zones whose keys the keeper reads, with the signers whose keys it does not have.
fn signed_zones(from: &Config, to: &mut Config) {
    let zone = |zone: &SignedZone| SignedZone {
        signing: Signing { other_signers: zone.signing.other_signers.clone(), ..Signing::default() },
        ..zone.clone()
    };
    to.signed_zones = from.signed_zones.iter().map(zone).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use toml::de::DeTable;

    const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    const BEGIN: &str = "<!-- Table of replaced processes, generated from crates/config/src/keys.rs. -->\n";
    const END: &str = "<!-- End of the table of replaced processes. -->\n";

    /// The keys that `section` has in `example`.
    fn keys_in_example(section: Section, example: &DeTable<'_>) -> BTreeSet<String> {
        let names = |table: &DeTable<'_>| table.keys().map(|key| key.get_ref().to_string()).collect::<Vec<_>>();
        let heading = section.heading().trim_start_matches("in [").trim_end_matches(']');
        let (name, is_named) = heading.split_once('.').map_or((heading, false), |(name, _)| (name, true));
        if section == Section::Top {
            return names(example).into_iter().collect();
        }
        let table = example.get(name).and_then(|value| value.get_ref().as_table()).expect("a section");
        let named = table.values().filter(|_| is_named).filter_map(|value| value.get_ref().as_table());
        let tables: Vec<_> = if is_named { named.collect() } else { vec![table] };
        tables.into_iter().flat_map(names).collect()
    }

    #[test]
    fn example_and_manual_have_every_key() {
        let example = DeTable::parse(EXAMPLE).expect("TOML").into_inner();
        let manual = std::fs::read_to_string(MANUAL).expect("the manual can be read");
        for (section, key) in all_keys() {
            // The help has the limits below the example, and the pages of a feature have the keys of its tables.
            if key.name == "limits" || !Section::ALL[..Section::WITH_HEADING].contains(&section) {
                continue;
            }
            let (name, heading) = (key.name, section.heading());
            let is_in_example = keys_in_example(section, &example).contains(name);
            assert!(is_in_example, "crates/config/src/example.toml: `{name}` is missing {heading}");
            let is_in_manual = [format!("`{name}`"), format!("[{name}")].iter().any(|text| manual.contains(text));
            assert!(is_in_manual, "docs/configuration.md: `{name}` is missing {heading}");
        }
    }

    #[test]
    fn other_names_are_those_of_keys() {
        for (section, other, key) in OTHER_NAMES {
            assert!(section.key(key).is_some() && section.key(other).is_none(), "{other}: {key}");
            let problem = section.unknown_key("a.test", other);
            assert_eq!(problem.remedy, format!("its name here is `{key}`"));
        }
    }

    #[test]
    fn keys_of_the_stability_page_exist() {
        let keys = all_keys().map(|(section, key)| format!("{section:?}: {}", key.name));
        let limits = limits::keys().into_iter().map(|key| format!("Limits: {key}"));
        sanderling_testkit::check_promised("keys", keys.chain(limits));
    }

    /// No key of a domain excludes another one in its comment, unless the reader refuses them together.
    #[test]
    fn example_does_not_say_that_signed_zones_take_no_updates() {
        let line = EXAMPLE.lines().find(|line| line.starts_with("dnssec = ")).expect("a line with the key");
        assert!(!line.contains("update"), "{line}");
    }

    #[test]
    fn manual_has_the_table_of_what_a_reload_replaces() {
        let mut text = String::from("\n| key | server process | agent | keeper |\n|---|---|---|---|\n");
        for (section, key) in all_keys() {
            let server = match key.server {
                Some(Replaces::Changed(_)) => "changed",
                Some(Replaces::Added(_)) => "first added",
                None => "",
            };
            let [agent, keeper] = [key.agent, key.keeper].map(|give| if give.is_some() { "changed" } else { "" });
            if [server, agent, keeper].iter().any(|effect| !effect.is_empty()) {
                let name = match (key.value, section) {
                    (Value::Section, _) => format!("`[{}]`", key.name),
                    (_, Section::Top) => format!("`{}`", key.name),
                    _ => {
                        format!("`{}` in `{}`", key.name, section.heading().trim_start_matches("in ").trim_matches('`'))
                    }
                };
                text.push_str(&format!("| {name} | {server} | {agent} | {keeper} |\n"));
            }
        }
        text.push_str("| any in `[limits]` | changed | changed, if it applies it | changed, if it applies it |\n\n");
        sanderling_testkit::check_manual_table(MANUAL, BEGIN, END, &text);
    }
}
