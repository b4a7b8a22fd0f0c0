//! The target of a request line (RFC 9112 §3.2).

use memchr::memchr;

use crate::grammar::{PATH, QUERY, is_valid_part, unescaped_bytes};
use crate::host::Host;

/// A request target as received, without any decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// origin-form, or the path and query of absolute-form.
    Path {
        /// Starts with a slash; its percent-encodings are valid.
        path: &'b [u8],
        /// The part after the question mark, if there is one.
        query: Option<&'b [u8]>,
    },
    /// The path and query of absolute-form with the scheme `https`, to be answered on an encrypted connection only (RFC 9110
    /// §7.4): [`Request::over_https`](crate::Request::over_https).
    HttpsPath {
        /// As of [`Target::Path`].
        path: &'b [u8],
        /// As of [`Target::Path`].
        query: Option<&'b [u8]>,
    },
    /// asterisk-form: the server itself, for OPTIONS.
    Asterisk,
    /// authority-form: the `host:port` of CONNECT.
    Authority,
}

impl<'b> Target<'b> {
    /// Parses origin-form, or absolute-form with its authority, a valid [`Host`].
    pub(crate) fn parse(target: &'b [u8]) -> Option<(Target<'b>, Option<&'b [u8]>)> {
        if target.first() == Some(&b'/') {
            return Some((Target::parse_path(target)?, None));
        }
        Target::parse_absolute(target)
    }

    #[cold]
    fn parse_absolute(target: &'b [u8]) -> Option<(Target<'b>, Option<&'b [u8]>)> {
        let (is_https, rest) = match (after_scheme(target, b"http://"), after_scheme(target, b"https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            (None, None) => return None,
        };
        let authority_bytes = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_bytes);
        Host::parse(authority)?;
        let target = match Target::parse_path(path)? {
            Target::Path { path, query } if is_https => Target::HttpsPath { path, query },
            target => target,
        };
        Some((target, Some(authority)))
    }

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
        let is_valid = is_valid_part(&path[unescaped..], PATH) && query.is_none_or(|query| is_valid_part(query, QUERY));
        // RFC 9110 §4.2.3: an empty path is equivalent to "/".
        let path = if path.is_empty() { b"/" } else { path };
        is_valid.then_some(Target::Path { path, query })
    }
}

fn after_scheme<'b>(target: &'b [u8], scheme: &[u8]) -> Option<&'b [u8]> {
    let (own, rest) = target.split_at_checked(scheme.len())?;
    own.eq_ignore_ascii_case(scheme).then_some(rest)
}
