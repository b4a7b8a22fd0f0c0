//! The configuration that the arguments of `serve` and `check` give.

use crate::backend_address::{Spoken, parse_backend_address};
use crate::config::{CertificateFiles, Config, DefaultSite, processor_count};
use crate::diagnostic::{Diagnostic, Location, Problem};
use crate::domain_name::DomainName;
use crate::listen_address::ListenAddresses;
use crate::path_rules::PathRules;
use crate::routes::{SiteRoute, TIMEOUT_MS_DEFAULT, proxy_route, route_pattern};
use crate::service::Service;
use crate::site::{Site, SiteOptions};
use crate::zones::{Zone, ZoneOrigin};
use sanderling_site_rules::{FileOptions, Route};
use std::collections::HashSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The arguments, each well-formed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The document root for every Host.
    pub directory: Option<PathBuf>,
    /// Whether directories without an index are listed.
    pub listing: bool,
    /// Addresses of HTTP; 127.0.0.1:8080 if empty and there is a directory.
    pub http_listen: Vec<SocketAddr>,
    /// Addresses of HTTPS.
    pub https_listen: Vec<SocketAddr>,
    /// The certificate chain and its private key; if `None`, HTTPS has a self-signed certificate.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The applications that answer, for every Host.
    pub proxies: Vec<ProxyFlag>,
    /// The zones.
    pub zones: Vec<Zone>,
    /// Addresses of DNS; 127.0.0.1:5353 if empty and there are zones.
    pub dns_listen: Vec<SocketAddr>,
    /// Threads that serve; one per processor if `None`.
    pub worker_count: Option<usize>,
}

/// An application that answers for all paths below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyFlag {
    /// The argument, as it was given.
    pub argument: String,
    /// The route.
    pub route: Route,
}

impl ProxyFlag {
    /// The flag, as it was given.
    fn shown(&self) -> String {
        format!("--proxy {}", self.argument)
    }
}

/// Parses the argument of `--proxy`, `[PATH=]ADDRESS`. Without a path, it is the root.
///
/// # Errors
/// Which half is wrong.
pub fn parse_proxy_argument(text: &str) -> Result<ProxyFlag, Problem> {
    let (path, address) = match text.split_once('=') {
        Some((path, address)) if text.starts_with('/') => (path, address),
        _ => ("/", text),
    };
    let pattern = route_pattern(path).map_err(|error| Problem::new(error.message, error.remedy))?;
    let route = proxy_route(path, pattern, parse_backend_address(address, Spoken::Http)?, TIMEOUT_MS_DEFAULT);
    Ok(ProxyFlag { argument: text.to_owned(), route })
}

/// Parses the argument of `--zone`, `NAME=FILE`.
///
/// # Errors
/// Returns the half that is missing or wrong.
pub fn parse_zone_argument(text: &str) -> Result<Zone, Problem> {
    let expected = "expected NAME=FILE, for example example.com=example.com.zone";
    let Some((name, file)) = text.split_once('=') else {
        return Err(Problem::new(format!("`{text}` has no `=`"), expected));
    };
    if name.is_empty() {
        return Err(Problem::new("the zone name is missing", expected));
    }
    if file.is_empty() {
        return Err(Problem::new("the zone file is missing", expected));
    }
    let location = Location::Argument(format!("--zone {text}")).into();
    Ok(Zone { apex: DomainName::parse(name)?, file: PathBuf::from(file), location, origin: ZoneOrigin::Operator })
}

impl Config {
    /// The configuration for `flags`.
    ///
    /// # Errors
    /// Returns all problems, such as duplicates. A missing path is reported only together with another one: see
    /// [`Config::path_problems`].
    pub fn from_flags(flags: &Flags) -> Result<Config, Vec<Diagnostic>> {
        let mut diagnostics = Vec::new();
        let mut check = |argument: String, result: Result<(), Problem>| {
            if let Err(problem) = result {
                diagnostics.push(Diagnostic::error(Location::Argument(argument), problem));
            }
        };
        let mut apexes = HashSet::new();
        for Zone { apex, file, .. } in &flags.zones {
            if !apexes.insert(apex) {
                let problem = Problem::new(format!("the zone {apex} is listed twice"), "remove one of the two");
                check(format!("--zone {apex}={}", file.display()), Err(problem));
            }
        }
        for (index, proxy) in flags.proxies.iter().enumerate() {
            if flags.proxies[..index].iter().any(|earlier| earlier.route.pattern == proxy.route.pattern) {
                let message = format!("the path {} is listed twice", proxy.route.name);
                let remedy = "remove one of the two; a configuration file can name several servers of an application";
                check(proxy.shown(), Err(Problem::new(message, remedy)));
            }
        }
        let mut addresses = ListenAddresses::default();
        for &address in &flags.http_listen {
            check(format!("--http {address}"), addresses.add(address, Service::Http));
        }
        for &address in &flags.https_listen {
            let argument = format!("--https {address}");
            check(argument.clone(), addresses.add(address, Service::Https));
            if flags.certificate.is_none() && !address.ip().is_loopback() {
                let message = format!("{address} needs a trusted certificate");
                let remedy = "specify one with `serve --certificate FILE --key FILE`, or listen on 127.0.0.1 or [::1] \
                    with a self-signed one";
                check(argument, Err(Problem::new(message, remedy)));
            }
        }
        for &address in &flags.dns_listen {
            check(format!("--dns {address}"), addresses.add(address, Service::Dns));
        }
        let mut config = flags.to_config();
        config.set_default_addresses();
        if diagnostics.is_empty() {
            return Ok(config);
        }
        // All errors, not only the first one.
        diagnostics.extend(config.path_problems());
        Err(diagnostics)
    }
}

impl Flags {
    /// The arguments of `serve` with this content.
    pub(super) fn to_arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        let mut add = |name: &str, value: OsString| arguments.extend([OsString::from(name), value]);
        for address in &self.http_listen {
            add("--http", address.to_string().into());
        }
        for address in &self.https_listen {
            add("--https", address.to_string().into());
        }
        if let Some((chain, key)) = &self.certificate {
            add("--certificate", chain.into());
            add("--key", key.into());
        }
        for proxy in &self.proxies {
            add("--proxy", proxy.argument.clone().into());
        }
        for Zone { apex, file, .. } in &self.zones {
            let mut value = OsString::from(format!("{apex}="));
            value.push(file);
            add("--zone", value);
        }
        for address in &self.dns_listen {
            add("--dns", address.to_string().into());
        }
        if let Some(count) = self.worker_count {
            add("--workers", count.to_string().into());
        }
        if self.listing {
            arguments.push("--listing".into());
        }
        if let Some(directory) = &self.directory {
            // After the end of the options: it may begin with a dash.
            arguments.extend([OsString::from("--"), directory.clone().into()]);
        }
        arguments
    }

    /// The routes. With a directory, that of the root answers for paths without a file, or the directory would have no
    /// use.
    fn routes(&self) -> Vec<SiteRoute> {
        let route = |proxy: &ProxyFlag| {
            let files_first = self.directory.is_some() && proxy.route.name == "/";
            let location = Location::Argument(proxy.shown()).into();
            SiteRoute { route: Route { files_first, ..proxy.route.clone() }, location }
        };
        self.proxies.iter().map(route).collect()
    }

    fn to_config(&self) -> Config {
        let argument = self.directory.as_ref().map(|directory| directory.display().to_string());
        let first_proxy = || self.proxies.first().map(ProxyFlag::shown);
        let site = argument.or_else(first_proxy).map(|argument| {
            let files = FileOptions { listing: self.listing, ..FileOptions::default() };
            let rules = PathRules { routes: self.routes(), ..PathRules::default() };
            Site {
                hosts: Vec::new(),
                document_root: self.directory.clone(),
                location: Location::Argument(argument).into(),
                options: SiteOptions { files, rules, ..SiteOptions::default() },
            }
        });
        let certificate = self.certificate.clone().map(|(chain, key)| {
            let location = Location::Argument(format!("--certificate {}", chain.display())).into();
            CertificateFiles { names: Vec::new(), is_automatic: false, chain, key, on_renew: Vec::new(), location }
        });
        let default_site = if site.is_some() { DefaultSite::EveryHost(0) } else { DefaultSite::None };
        let mut config = Config {
            worker_count: self.worker_count.unwrap_or_else(processor_count),
            http_listen: self.http_listen.clone(),
            https_listen: self.https_listen.clone(),
            dns_listen: self.dns_listen.clone(),
            sites: site.into_iter().collect(),
            default_site,
            zones: self.zones.clone(),
            certificates: certificate.into_iter().collect(),
            has_self_signed_certificate: !self.https_listen.is_empty() && self.certificate.is_none(),
            ..Config::default()
        };
        config.backend_names = config.names_of_backends();
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str, file: PathBuf) -> Zone {
        let location = Location::Argument(format!("--zone {name}={}", file.display())).into();
        Zone { apex: DomainName::parse(name).unwrap(), file, location, origin: ZoneOrigin::Operator }
    }

    #[test]
    fn directory_answers_every_host() {
        let directory = tempfile::tempdir().unwrap();
        let flags = Flags { directory: Some(directory.path().into()), ..Flags::default() };
        let config = Config::from_flags(&flags).unwrap();
        assert_eq!(
            (config.sites[0].hosts.len(), config.sites[0].document_root.as_deref()),
            (0, Some(directory.path()))
        );
        assert_eq!(config.default_site, DefaultSite::EveryHost(0));
        assert_eq!((config.http_listen, config.dns_listen), (vec!["127.0.0.1:8080".parse().unwrap()], vec![]));
        assert_eq!(config.worker_count, processor_count());
    }

    #[test]
    fn application_answers_every_host_and_leaves_files_of_the_directory_to_it() {
        let proxy = |text: &str| parse_proxy_argument(text).unwrap();
        let alone = Flags { proxies: vec![proxy("127.0.0.1:3000")], ..Flags::default() };
        let config = Config::from_flags(&alone).unwrap();
        assert_eq!((config.sites[0].document_root.as_deref(), config.default_site), (None, DefaultSite::EveryHost(0)));
        assert!(!config.sites[0].options.rules.routes[0].route.files_first);
        assert_eq!(config.http_listen, ["127.0.0.1:8080".parse().unwrap()]);
        let directory = tempfile::tempdir().unwrap();
        let both = Flags {
            directory: Some(directory.path().into()),
            proxies: vec![proxy("/api/=http://localhost:3000"), proxy("unix:/run/app=1.sock")],
            ..Flags::default()
        };
        let config = Config::from_flags(&both).unwrap();
        let routes = &config.sites[0].options.rules.routes;
        let found: Vec<_> = routes.iter().map(|it| (it.route.name.as_str(), it.route.files_first)).collect();
        assert_eq!(found, [("/api/", false), ("/", true)]);
        let arguments = both.to_arguments();
        assert_eq!(arguments[..4], ["--proxy", "/api/=http://localhost:3000", "--proxy", "unix:/run/app=1.sock"]);
        let twice = Flags { proxies: vec![proxy("/a/=127.0.0.1:1"), proxy("/a/*=127.0.0.1:2")], ..Flags::default() };
        let messages: Vec<String> = Config::from_flags(&twice).unwrap_err().iter().map(ToString::to_string).collect();
        let expected = "--proxy /a/*=127.0.0.1:2: the path /a/* is listed twice; remove one of the two; a configuration \
                        file can name several servers of an application";
        assert_eq!(messages, [expected]);
        let problem = |text: &str| parse_proxy_argument(text).unwrap_err().message;
        assert_eq!(problem("/api/=app"), "`app` has no port");
        let named = Flags { proxies: vec![proxy("app.internal:3000")], ..Flags::default() };
        let config = Config::from_flags(&named).unwrap();
        assert_eq!(config.backend_names.into_iter().collect::<Vec<_>>(), ["app.internal"]);
        assert_eq!(problem("/a*b*/=127.0.0.1:1"), "the pattern `/a*b*/*` has more than one `*`");
    }

    #[test]
    fn zones_without_a_directory_have_no_http_listener() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let flags = Flags { zones: vec![zone("a.example", file.path().into())], ..Flags::default() };
        let config = Config::from_flags(&flags).unwrap();
        assert_eq!(config.default_site, DefaultSite::None);
        assert_eq!((config.http_listen, config.dns_listen), (vec![], vec!["127.0.0.1:5353".parse().unwrap()]));
    }

    #[test]
    fn all_problems_are_reported_with_their_arguments() {
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let flags = Flags {
            directory: Some("/none/public".into()),
            http_listen: vec![address, address],
            zones: vec![zone("a.example", "/none/a".into()), zone("a.example", "/dev/null".into())],
            dns_listen: vec![address],
            https_listen: vec!["0.0.0.0:443".parse().unwrap(), "[::1]:443".parse().unwrap()],
            ..Flags::default()
        };
        let messages: Vec<String> =
            Config::from_flags(&flags).unwrap_err().iter().map(|diagnostic| diagnostic.to_string()).collect();
        assert_eq!(
            messages,
            [
                "--zone a.example=/dev/null: the zone a.example is listed twice; remove one of the two",
                "--http 127.0.0.1:80: 127.0.0.1:80 is listed twice for HTTP; remove one of the two",
                "--https 0.0.0.0:443: 0.0.0.0:443 needs a trusted certificate; specify one with `serve --certificate \
                    FILE --key FILE`, or listen on 127.0.0.1 or [::1] with a self-signed one",
                "--dns 127.0.0.1:80: 127.0.0.1:80 is listed for both HTTP and DNS; \
                 DNS listens on TCP as well; choose another port for one of them",
                "/none/public: the site `/none/public` does not exist; create it or correct the path",
                "--zone a.example=/none/a: the zone file `/none/a` does not exist; create it or correct the path",
                "--zone a.example=/dev/null: the zone file `/dev/null` is not a regular file; specify a regular file",
            ]
        );
    }
}
