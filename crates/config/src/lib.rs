//! The configuration: reads a TOML file or the arguments of `serve`, checks them, and reports all problems.
//!
//! This crate opens no sockets and starts no processes. The other crates of the program take their settings from a
//! [`Config`] and report problems of the operator's input as [`diagnostic::Diagnostic`]s.
#![forbid(unsafe_code)]

// In the order of imports: a module uses only modules below it.
mod effective;
mod config_source;
mod config_file;
mod config_text;
mod config_reader;
mod variables;
mod flags;
mod account;
mod process_config;
mod keys;
mod state_folder;
mod name_validation;
mod private_files;
mod backends;
mod config;
mod site;
mod authorities;
mod derive;
mod mail_policy;
mod signing;
mod catalogs;
mod zones;
mod transfers;
mod updates;
mod folder_pattern;
mod path_rules;
mod routes;
mod request_log;
mod backend_address;
mod paths;
mod operator_text;
mod releases;
mod listen_address;
mod domain_name;
mod limits;
mod units;
mod similar;
mod service;
mod exit;
pub mod repeated_messages;
pub mod log;
pub mod diagnostic;

pub use account::{OWN_USER, account_id, lookup_user};
pub use authorities::{Acme, Authority, ExternalAccount};
pub use backends::{read_backend_certificate, read_backend_roots};
pub use catalogs::{CATALOG_MEMBERS, Catalog, CatalogRole, MemberRefusal, OwnZones, read_catalog_members};
pub use config::{
    CertificateFiles, Config, CookieSecretFile, DefaultSite, DnsReplies, KeyPlace, LATEST_RENEWAL_PART, Metrics,
    RateLimit, Resolver, SecretContent, SocketsPerAddress, TrustedProxies, UserAndGroup, processor_count,
};
pub use config_source::{CONFIG_VARIABLE, ConfigSource, DEFAULT_FILES, SearchPaths};
pub use derive::{DerivedKind, DerivedRecords, DerivedRrset};
pub use domain_name::DomainName;
pub use effective::{EffectiveKey, EffectiveSection, effective_sections, effective_text};
pub use exit::Exit;
pub use flags::{Flags, ProxyFlag, parse_proxy_argument, parse_zone_argument};
pub use keys::EXAMPLE;
pub use limits::{Limits, UNLIMITED, help_text as limits_help};
pub use listen_address::{parse_listen_address, remedy_of_stub_resolver};
pub use mail_policy::{MailPolicy, MailPolicyMode, complete_mail_policy};
pub use name_validation::{ChallengeNames, NameValidation, ValidationMethod, is_challenge_token};
pub use operator_text::without_byte_order_mark;
pub use path_rules::{AccessRule, AuthRule, PathRules};
pub use paths::{COOKIE_SECRET_BYTES, CookieSecret};
pub use private_files::PrivateFile;
pub use process_config::{AgentConfig, KeeperConfig};
pub use releases::{PREVIOUS_RELEASES_MAX, ReleaseLink};
pub use request_log::{AccessLog, Dnstap, LogOutput, LogTarget, QueryLog, Rotation, RotationTime};
pub use routes::SiteRoute;
pub use sanderling_log_format::LogKind;
pub use sanderling_site_rules::{TlsFiles, TlsTrust};
pub use service::{ListenerRole, Service};
pub use signing::{
    SIGNED_ZONES, SignedSerial, SignedZone, Signing, SigningAlgorithm, ZONE_KEYS, ZoneKeyLayout, changes_file,
};
pub use similar::most_similar;
pub use site::{DohPath, Hsts, Site, SiteOptions, root_text};
pub use state_folder::{DEFAULT_STATE, STATE_REMEDY, read_beneath, read_issued};
pub use transfers::{Primary, Secondary, TransferRule, TransfersByZone, TsigAlgorithm, TsigKeyFile, ZoneTransfers};
pub use units::duration_text;
pub use updates::{NamePattern, UPDATE_TYPES, UpdateRule};
pub use variables::substitute_from_environment;
pub use zones::{
    JOURNALS, SecondaryZone, TRANSFERRED_ZONES, UPDATES, Zone, ZoneFolder, ZoneListing, ZoneOrigin, journal_file,
    stored_zone_file, update_file, zone_file_name, zone_of,
};
