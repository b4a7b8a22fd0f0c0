//! The rules of a site for some paths.

use crate::diagnostic::{Diagnostic, Problem, ValueLocation};
use crate::routes::SiteRoute;
use sanderling_site_rules::{Cors, FieldRule, Pattern, Redirect, SecurityHeaders};
use std::net::IpAddr;
use std::path::PathBuf;

/// A site's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// Redirects, rewrites and error pages, in the order of the file.
    pub redirects: Vec<Redirect>,
    /// Fields of responses, in the order of the file.
    pub fields: Vec<FieldRule>,
    /// Fields that protect visitors, and where the configuration has them.
    pub security_headers: Option<(SecurityHeaders, ValueLocation)>,
    /// The other origins that may read responses.
    pub cors: Option<Cors>,
    /// Whether browsers may keep files with a content hash in their name, and must revalidate others.
    pub caches_fingerprinted: bool,
    /// Paths that need a password; the first that matches counts.
    pub auth: Vec<AuthRule>,
    /// Paths that only clients with some addresses may request; the first that matches counts.
    pub access: Vec<AccessRule>,
    /// The requests that an application answers, in the order of the file.
    pub routes: Vec<SiteRoute>,
    /// Whether the files `_redirects` and `_headers` of the document root have rules too. They are not served then.
    pub reads_files: bool,
}

/// Paths that only clients with some addresses may request. A network is an address and the bits of its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// The paths.
    pub pattern: Pattern,
    /// The networks of the clients that may; `None`: all.
    pub allow: Option<Vec<(IpAddr, u8)>>,
    /// The networks of clients that may not, even if they are in `allow`.
    pub deny: Vec<(IpAddr, u8)>,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

/// Paths that need a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRule {
    /// The paths.
    pub pattern: Pattern,
    /// The realm shown to the client.
    pub realm: String,
    /// The file with the users, relative to the working directory or absolute.
    pub users_file: PathBuf,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

/// The default: only the rules files in the document root.
impl Default for PathRules {
    fn default() -> PathRules {
        PathRules {
            redirects: Vec::new(),
            fields: Vec::new(),
            security_headers: None,
            cors: None,
            caches_fingerprinted: false,
            auth: Vec::new(),
            access: Vec::new(),
            routes: Vec::new(),
            reads_files: true,
        }
    }
}

impl PathRules {
    /// Notes about `security_headers`.
    pub fn note(&self) -> Option<Diagnostic> {
        let (set, location) = self.security_headers.as_ref()?;
        let fields: Vec<String> = set.fields().iter().map(|(name, value)| format!("`{name}: {value}`")).collect();
        let message = format!("`security_headers`: {}", set.effect());
        let remedy = format!("a field in `headers` replaces one of these fields: {}", fields.join(", "));
        Some(Diagnostic::note(location.clone(), Problem::new(message, remedy)))
    }
}
