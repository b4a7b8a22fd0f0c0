//! Redirects, rewrites, header fields and routes by path: parses a site's rules, and finds the rules for a request.
//! This crate also has the site options that configuration and server share.
//!
//! Used by `config`, which reports wrong rules, by `server-process`, which reads the files `_redirects` and `_headers`
//! of a document root, and by `server`, which answers by the rules. This crate does no I/O.
//!
//! A rule has a [`Pattern`] of paths. Redirects and fields are compiled into a [`RuleSet`], which finds the rules of a
//! path by an index: of thousands of rules, only rules with this path or its first segment are tried. [`Routes`] are
//! few; they are tried in turn, and come from `config` alone.
#![forbid(unsafe_code)]

mod headers_file;
mod redirects_file;
mod routes;
mod distribution;
mod rule_set;
mod protected_paths;
mod security;
mod cors;
mod fingerprint;
mod index;
mod redirect;
mod field;
mod template;
mod pattern;
mod escape;
mod ascii_name;
mod error;
mod options;

pub use ascii_name::ascii_form;
pub use cors::Cors;
pub use distribution::{Balance, CHECK_FAILURES_MAX, ClientHeader, Distribution, HealthCheck};
pub use error::{LineProblem, RuleError};
pub use field::{
    ContentOf, FIELD_VALUE_BYTES_MAX, Field, FieldEdits, FieldRule, ResponseKind, is_connection_field, is_token,
};
pub use fingerprint::{changes_with_content, is_build_file};
pub use headers_file::parse_headers_file;
pub use options::{ClientFrom, FileOptions};
pub use pattern::{Pattern, RequestPath};
pub use protected_paths::ProtectedPaths;
pub use redirect::{Action, Outcome, PageStatus, Redirect, RedirectStatus, RedirectText};
pub use redirects_file::parse_redirects_file;
pub use routes::{
    Backend, BackendAddress, BackendProtocol, BackendRoute, BackendServer, BackendTls, FastCgiOptions, ForwardAuth,
    Route, RouteAction, RouteConditions, RouteRate, RouteRequest, Routes, TlsFiles, TlsTrust,
};
pub use rule_set::{Match, RedirectExample, RuleLimits, RuleSet};
pub use security::SecurityHeaders;
