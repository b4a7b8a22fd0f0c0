//! The target of a request line, taken apart (RFC 9112 §3.2).

use memchr::memchr;

use crate::grammar::{PATH, QUERY, is_part, plain_bytes};
use crate::host::Host;

/// What a request is about, as it was sent: nothing is decoded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// A path and a query. The path starts with a slash, the query is without its question mark.
    Path {
        /// From the first slash on; escapes are well-formed.
        path: &'b [u8],
        /// What follows the question mark, when there is one.
        query: Option<&'b [u8]>,
    },
    /// `*`: the server itself, for OPTIONS.
    Asterisk,
    /// The `host:port` of CONNECT.
    Authority,
}

impl<'b> Target<'b> {
    /// origin-form or absolute-form, whose authority comes second.
    ///
    /// RFC 9110 §7.4 has requests for `https` refused that did not come over a secured connection, so `http` is the
    /// only scheme.
    pub(crate) fn parse(target: &'b [u8]) -> Option<(Target<'b>, Option<Host<'b>>)> {
        const SCHEME: &[u8] = b"http://";
        if target.first() == Some(&b'/') {
            return Some((Target::parse_path(target)?, None));
        }
        let (scheme, rest) = target.split_at_checked(SCHEME.len())?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        let authority_bytes = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_bytes);
        Some((Target::parse_path(path)?, Some(Host::parse(authority)?)))
    }

    fn parse_path(target: &'b [u8]) -> Option<Target<'b>> {
        let plain_bytes = plain_bytes(target, PATH);
        if plain_bytes == target.len() && plain_bytes != 0 {
            // The usual target: neither an escape nor a query.
            return Some(Target::Path { path: target, query: None });
        }
        let (path, query) = match memchr(b'?', &target[plain_bytes..]) {
            None => (target, None),
            Some(at) => (&target[..plain_bytes + at], Some(&target[plain_bytes + at + 1..])),
        };
        let is_valid = is_part(&path[plain_bytes..], PATH) && query.is_none_or(|query| is_part(query, QUERY));
        // RFC 9110 §4.2.3: an empty path is the same as "/".
        let path = if path.is_empty() { b"/" } else { path };
        is_valid.then_some(Target::Path { path, query })
    }
}
