//! The target of a request line (RFC 9112 §3.2).

use memchr::memchr;

use crate::grammar::{PATH, QUERY, is_valid_part, unescaped_bytes};
use crate::host::Host;

/// A scheme of URIs that a server answers for (RFC 9110 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without encryption.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// A request target as received, without any decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// origin-form, or the path and query of absolute-form.
    Path {
        /// Starts with a slash; its percent-encodings are valid.
        path: &'b [u8],
        /// The part after the question mark, if there is one. A percent sign in it may begin no encoding.
        query: Option<&'b [u8]>,
    },
    /// asterisk-form: the server itself, for OPTIONS.
    Asterisk,
    /// authority-form: the `host:port` of CONNECT.
    Authority,
}

/// A target, with the scheme and host of absolute-form and authority-form.
#[derive(Clone, Copy)]
pub(crate) struct ParsedTarget<'b> {
    pub(crate) target: Target<'b>,
    pub(crate) scheme: Option<Scheme>,
    /// A valid [`Host`].
    pub(crate) authority: Option<&'b [u8]>,
}

impl<'b> ParsedTarget<'b> {
    /// Parses origin-form or absolute-form.
    pub(crate) fn parse(target: &'b [u8]) -> Option<ParsedTarget<'b>> {
        if target.first() == Some(&b'/') {
            return Some(ParsedTarget { target: Target::parse_path(target)?, scheme: None, authority: None });
        }
        ParsedTarget::parse_absolute(target)
    }

    #[cold]
    fn parse_absolute(target: &'b [u8]) -> Option<ParsedTarget<'b>> {
        let (name, rest) = target.split_at(memchr(b':', target)?);
        let is_named = |scheme: &Scheme| name.eq_ignore_ascii_case(scheme.name().as_bytes());
        let scheme = [Scheme::Http, Scheme::Https].into_iter().find(is_named)?;
        let rest = rest.strip_prefix(b"://")?;
        let authority_bytes = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_bytes);
        Host::parse(authority)?;
        Some(ParsedTarget { target: Target::parse_path(path)?, scheme: Some(scheme), authority: Some(authority) })
    }
}

impl<'b> Target<'b> {
    fn parse_path(target: &'b [u8]) -> Option<Target<'b>> {
        let unescaped = unescaped_bytes(target, PATH);
        if unescaped == target.len() && unescaped != 0 {
            // Fast path: neither a percent-encoding nor a query.
            return Some(Target::Path { path: target, query: None });
        }
        let (path, query) = match memchr(b'?', &target[unescaped..]) {
            None => (target, None),
            Some(at) => (&target[..unescaped + at], Some(&target[unescaped + at + 1..])),
        };
        let is_valid = is_valid_part(&path[unescaped..], PATH)
            && query.is_none_or(|query| unescaped_bytes(query, QUERY) == query.len());
        // RFC 9110 §4.2.3: an empty path is equivalent to "/".
        let path = if path.is_empty() { b"/" } else { path };
        is_valid.then_some(Target::Path { path, query })
    }
}
