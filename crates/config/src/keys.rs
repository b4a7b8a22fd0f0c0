//! The keys of each section of the configuration file, and suggestions for unknown ones.

use crate::diagnostic::Problem;
use crate::domain_name::DomainName;
use crate::limits;
use crate::similar::most_similar;

/// A configuration file with all keys except the limits, for the help.
pub const EXAMPLE: &str = include_str!("example.toml");

const LOG_KEYS: [&str; 9] =
    ["access", "format", "one_of", "queries", "queries_format", "queries_one_of", "rotate", "keep", "dnstap"];

/// A section of the file.
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
}

impl Section {
    const ALL: [Section; 11] = [
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
    ];

    pub(super) fn keys(self) -> Vec<&'static str> {
        match self {
            Section::Top => {
                vec![
                    "workers",
                    "listeners",
                    "user",
                    "group",
                    "sandbox",
                    "keys",
                    "control",
                    "state",
                    "include",
                    "http",
                    "https",
                    "dns",
                    "certificates",
                    "domain",
                    "tsig",
                    "catalog",
                    "log",
                    "metrics",
                    "limits",
                ]
            }
            Section::Http => vec![
                "listen",
                "default",
                "http2",
                "trusted_proxies",
                "client_from",
                "rate_limit_exempt",
                "rate_limit_dry_run",
            ],
            Section::Https => vec!["listen", "refuse_unknown_names"],
            Section::Dns => vec![
                "listen",
                "tls",
                "zones",
                "secondaries",
                "transfer_allow",
                "nsid",
                "version",
                "cookies",
                "cookie_secret_file",
                "tcp_keepalive",
                "extended_errors",
                "error_report_agent",
                "resolvers",
                "rate_limit_exempt",
                "rate_limit_dry_run",
            ],
            Section::Certificates => vec!["agree_to_terms", "contact", "authorities"],
            Section::Domain => vec![
                "site",
                "aliases",
                "index",
                "clean_urls",
                "listing",
                "compress",
                "earlier_releases",
                "fallback",
                "zone",
                "dnssec",
                "primaries",
                "secondaries",
                "transfer_allow",
                "update",
                "media_types",
                "link_targets",
                "hidden_files",
                "exact_paths",
                "doh",
                "certificate",
                "on_renew",
                "derive",
                "mta_sts",
                "https_redirect",
                "hsts",
                "redirects",
                "headers",
                "rules_files",
                "cache",
                "cors",
                "security_headers",
                "auth",
                "access",
            ],
            Section::Tsig => vec!["algorithm", "secret_file"],
            Section::Catalog => vec!["primaries", "groups", "members_below", "secondaries"],
            Section::Log => LOG_KEYS.to_vec(),
            Section::Metrics => vec!["listen"],
            Section::Limits => limits::keys(),
        }
    }

    pub(super) fn has(self, key: &str) -> bool {
        self.keys().contains(&key)
    }

    fn heading(self) -> &'static str {
        match self {
            Section::Top => "at the top of the file, before the first [section]",
            Section::Http => "in [http]",
            Section::Https => "in [https]",
            Section::Dns => "in [dns]",
            Section::Certificates => "in [certificates]",
            Section::Domain => "in [domain.\"NAME\"]",
            Section::Tsig => "in [tsig.\"NAME\"]",
            Section::Catalog => "in [catalog.\"NAME\"]",
            Section::Log => "in [log]",
            Section::Metrics => "in [metrics]",
            Section::Limits => "in [limits]",
        }
    }

    /// The problem of `key`, which this section does not have.
    pub(super) fn unknown_key(self, key: &str) -> Problem {
        let message = match self {
            Section::Top => format!("unknown key `{key}`"),
            _ => format!("unknown key `{key}` {}", self.heading()),
        };
        Problem::new(message, self.suggestion(key))
    }

    /// The problem of `key`, which the section of a domain does not have.
    pub(super) fn unknown_domain_key(domain: &DomainName, key: &str) -> Problem {
        let message = format!("unknown key `{key}` in [domain.\"{domain}\"]");
        Problem::new(message, Section::Domain.suggestion(key))
    }

    fn suggestion(self, key: &str) -> String {
        let other_section = || Section::ALL.into_iter().find(|section| section.has(key));
        if self == Section::Top && key.contains('.') {
            format!("write [domain.\"{key}\"] for a domain")
        } else if let Some(section) = other_section() {
            format!("`{key}` belongs {}", section.heading())
        } else if let Some(similar) = most_similar(key, self.keys().into_iter()) {
            format!("did you mean `{similar}`?")
        } else {
            self.list()
        }
    }

    fn list(self) -> String {
        let quoted = |keys: &[&str]| keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let keys = self.keys();
        match self {
            Section::Top => {
                let plain: Vec<&str> = keys
                    .into_iter()
                    .filter(|key| {
                        let sections = [
                            "http",
                            "https",
                            "dns",
                            "certificates",
                            "domain",
                            "tsig",
                            "catalog",
                            "log",
                            "metrics",
                            "limits",
                        ];
                        !sections.contains(key)
                    })
                    .collect();
                format!(
                    "the keys are {}, [http], [https], [dns], [certificates], [domain.\"NAME\"], [tsig.\"NAME\"], [catalog.\"NAME\"], [log], [metrics] and [limits]",
                    quoted(&plain)
                )
            }
            Section::Limits => "`sanderling help check` lists the limits".to_owned(),
            _ if keys.len() == 1 => format!("the only key is {}", quoted(&keys)),
            _ => format!("the keys are {}", quoted(&keys)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_has_every_key_in_its_section() {
        let example = toml::de::DeTable::parse(EXAMPLE).expect("TOML").into_inner();
        let of = |name: &str| example.get(name).expect("a section").get_ref().as_table().expect("a section");
        for section in Section::ALL {
            let domains: toml::de::DeTable<'_>;
            let table = match section {
                Section::Top => &example,
                Section::Http => of("http"),
                Section::Https => of("https"),
                Section::Dns => of("dns"),
                Section::Certificates => of("certificates"),
                Section::Domain => {
                    domains = of("domain")
                        .values()
                        .flat_map(|domain| domain.get_ref().as_table().expect("a domain").clone())
                        .collect();
                    &domains
                }
                Section::Tsig => of("tsig").values().next().and_then(|key| key.get_ref().as_table()).expect("a key"),
                Section::Catalog => {
                    domains = of("catalog")
                        .values()
                        .flat_map(|catalog| catalog.get_ref().as_table().expect("a catalog").clone())
                        .collect();
                    &domains
                }
                Section::Log => of("log"),
                Section::Metrics => of("metrics"),
                // The help lists them below the example.
                Section::Limits => continue,
            };
            for key in section.keys().into_iter().filter(|&key| key != "limits") {
                assert!(
                    table.contains_key(key),
                    "crates/config/src/example.toml: `{key}` is missing {}",
                    section.heading()
                );
            }
        }
    }
}
