//! A redirect, rewrite or error page.

use crate::ascii_name::ascii_form;
use crate::error::RuleError;
use crate::escape::{decode, put_query};
use crate::pattern::{Captures, Pattern, RequestPath};
use crate::template::Template;
use std::borrow::Cow;

/// Bytes of the longest Location, and of the longest path of a file.
const LOCATION_BYTES_MAX: usize = 16 * 1024;
/// The status of a rule that has none.
const STATUS_DEFAULT: u64 = 301;

/// A rule as an operator has written it.
#[derive(Clone, Copy, Debug)]
pub struct RedirectText<'t> {
    /// The pattern.
    pub from: &'t str,
    /// Conditions on the query, each a name with its value.
    pub query: &'t [(&'t str, &'t str)],
    /// The destination.
    pub to: Option<&'t str>,
    /// The status; 301 by default.
    pub status: Option<u64>,
    /// Whether it applies where a file exists too. By default, redirects and errors without their own page do.
    pub force: Option<bool>,
}

/// The action for requests for some paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub(crate) pattern: Pattern,
    action: Action,
    is_forced: bool,
    /// The rule's line in a rules file.
    line: Option<u32>,
}

/// The action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client is sent to another URL.
    Redirect(RedirectStatus, Destination),
    /// The file at another path is served.
    Rewrite(Destination),
    /// An error, with the file at a path as its page or with the built-in page.
    Page(PageStatus, Option<Destination>),
}

/// The status of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectStatus {
    /// 301
    MovedPermanently,
    /// 302
    Found,
    /// 303
    SeeOther,
    /// 307
    TemporaryRedirect,
    /// 308
    PermanentRedirect,
}

/// The status of an error that a rule gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStatus {
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 410
    Gone,
    /// 451
    UnavailableForLegalReasons,
    /// 503
    ServiceUnavailable,
}

/// The destination of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The URL without its fragment.
    url: Template,
    /// The fragment, from `#` on.
    fragment: Option<Template>,
    /// Bytes of its scheme and host; 0 for a path of the same host.
    host_bytes: usize,
    has_query: bool,
}

/// The result of a rule for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client is redirected.
    Redirect(RedirectStatus, Vec<u8>),
    /// The file at this path, which is encoded as in a request, is served.
    Rewrite(Vec<u8>),
    /// An error, with the file at this path as its page.
    Page(PageStatus, Option<Vec<u8>>),
    /// The destination would be too long.
    TooLong,
    /// A part of the request would lead out of the segment of the destination that it is inserted into.
    OutOfSegment,
}

impl Redirect {
    /// Checks a rule.
    ///
    /// # Errors
    /// Returns the problem.
    pub fn new(text: &RedirectText<'_>) -> Result<Redirect, RuleError> {
        let mut pattern = Pattern::parse(text.from, text.query)?;
        if pattern.is_expression()
            && let Some(to) =
                text.to.filter(|to| to.split('$').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
        {
            let message = format!("the destination `{to}` names a group by its number");
            return Err(RuleError::new(message, "name the group, as in `(?<id>[0-9]+)`, and write `:id`"));
        }
        let status = text.status.unwrap_or(STATUS_DEFAULT);
        let action = Action::new(status, text.to, &pattern)?;
        let is_forced_by_default = matches!(action, Action::Redirect(..) | Action::Page(_, None));
        let is_forced = text.force.unwrap_or(is_forced_by_default);
        if let (Action::Redirect(..), Some(to)) = (&action, text.to)
            && to.trim_end_matches('/') == text.from.trim_end_matches('/')
            && to.ends_with('/') != text.from.ends_with('/')
        {
            // The rule adds or removes the slash.
            pattern.require_slash(text.from.ends_with('/'));
        }
        let redirect = Redirect { pattern, action, is_forced, line: None };
        redirect.check_loop(text.from)?;
        Ok(redirect)
    }

    /// Refuses a redirect to itself.
    fn check_loop(&self, from: &str) -> Result<(), RuleError> {
        let is_certain = self.is_forced || self.pattern.exact_path().is_some();
        if !is_certain || self.pattern.has_query() || self.pattern.has_host() {
            return Ok(());
        }
        let Some(path) = self.pattern.example() else { return Ok(()) };
        for ends_with_slash in [false, true] {
            let request = RequestPath { is_https: false, host: None, path: &path, ends_with_slash, query: None };
            let Some(captures) = self.pattern.matches(&request) else { continue };
            let Outcome::Redirect(_, location) = self.outcome(&captures, None) else { return Ok(()) };
            if !location.starts_with(b"/") || location.starts_with(b"//") {
                return Ok(());
            }
            let end = location.iter().position(|byte| b"?#".contains(byte)).unwrap_or(location.len());
            let Some(next) = decode(&location[1..end]) else { return Ok(()) };
            let ends_with_slash = next.is_empty() || next.ends_with(b"/");
            let next = RequestPath { path: next.strip_suffix(b"/").unwrap_or(&next), ends_with_slash, ..request };
            if self.pattern.matches(&next).is_some() {
                let message = format!("the rule `{from}` redirects to itself in a loop");
                return Err(RuleError::new(message, "write a destination that the pattern does not match"));
            }
        }
        Ok(())
    }

    /// This rule, located at this line of a rules file.
    pub(crate) fn at_line(self, line: usize) -> Redirect {
        Redirect { line: u32::try_from(line).ok(), ..self }
    }

    /// The rule's line, if it is in a rules file.
    pub(crate) fn line(&self) -> Option<u32> {
        self.line
    }

    /// The pattern.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Whether it applies where a file exists too.
    pub fn is_forced(&self) -> bool {
        self.is_forced
    }

    /// The rule's action.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// The rule's result for a request with this query.
    pub(crate) fn outcome(&self, captures: &Captures<'_>, query: Option<&[u8]>) -> Outcome {
        let outcome = match &self.action {
            Action::Redirect(status, to) => {
                // Parameters that a rule takes out of the query are not passed on.
                let query = query.filter(|_| !self.pattern.has_query());
                to.expand(captures, query).map(|location| Outcome::Redirect(*status, location))
            }
            Action::Rewrite(to) => to.expand_file(captures).map(Outcome::Rewrite),
            Action::Page(status, None) => Ok(Outcome::Page(*status, None)),
            Action::Page(status, Some(to)) => to.expand_file(captures).map(|path| Outcome::Page(*status, Some(path))),
        };
        outcome.unwrap_or_else(|no_destination| no_destination)
    }
}

impl Action {
    fn new(status: u64, to: Option<&str>, pattern: &Pattern) -> Result<Action, RuleError> {
        if let Some(status) = RedirectStatus::from_code(status) {
            let to = to.ok_or_else(|| {
                RuleError::new("the redirect has no destination", "write one, for example \"/new/:splat\"")
            })?;
            return Ok(Action::Redirect(status, Destination::parse(to, pattern)?));
        }
        let file = |to: &str| Destination::parse_file(to, pattern);
        if status == 200 {
            let missing = || RuleError::new("the rewrite has no destination", "write one, for example \"/index.html\"");
            return Ok(Action::Rewrite(file(to.ok_or_else(missing)?)?));
        }
        let Some(page_status) = PageStatus::from_code(status) else {
            let message = format!("the status {status} is not supported");
            let remedy =
                "write 301, 302, 303, 307 or 308 to redirect, 200 to serve another file, or 403, 404, 410, 451 or 503";
            return Err(RuleError::new(message, remedy));
        };
        Ok(Action::Page(page_status, to.map(file).transpose()?))
    }

    /// The path of the file that it serves, encoded as in a request; `None` if there is none, or if it depends on the
    /// request.
    pub(crate) fn fixed_file(&self) -> Option<Vec<u8>> {
        let (Action::Rewrite(to) | Action::Page(_, Some(to))) = self else { return None };
        if to.url.has_placeholder() { None } else { to.expand_file(&Captures::example()).ok() }
    }
}

impl RedirectStatus {
    fn from_code(code: u64) -> Option<RedirectStatus> {
        Some(match code {
            301 => RedirectStatus::MovedPermanently,
            302 => RedirectStatus::Found,
            303 => RedirectStatus::SeeOther,
            307 => RedirectStatus::TemporaryRedirect,
            308 => RedirectStatus::PermanentRedirect,
            _ => return None,
        })
    }
}

impl PageStatus {
    fn from_code(code: u64) -> Option<PageStatus> {
        Some(match code {
            403 => PageStatus::Forbidden,
            404 => PageStatus::NotFound,
            410 => PageStatus::Gone,
            451 => PageStatus::UnavailableForLegalReasons,
            503 => PageStatus::ServiceUnavailable,
            _ => return None,
        })
    }
}

impl Destination {
    /// A path of the same host, or a URL.
    fn parse(text: &str, pattern: &Pattern) -> Result<Destination, RuleError> {
        if text.is_empty() || text.chars().any(|character| character.is_control() || character == '\\') {
            let message = format!("the destination `{}` is empty or has a byte that no URL has", text.escape_debug());
            return Err(RuleError::new(message, "write a path such as \"/new\", or a URL"));
        }
        let Some((host, rest)) = host_bytes(text).map(|bytes| text.split_at(bytes)) else {
            let message = format!("the destination `{text}` is neither a path nor a URL");
            return Err(RuleError::new(message, "begin with a slash for a path, or with https:// for another host"));
        };
        if !host.is_ascii() {
            return Err(beyond_ascii(text, host));
        }
        if Template::parse_url(host, pattern).is_ok_and(|host| host.has_placeholder()) {
            let message = format!("the client could choose the host of `{text}`");
            return Err(RuleError::new(message, "write the host itself, and placeholders only after it"));
        }
        if !has_valid_authority(host) {
            let message = format!("the destination `{text}` has no host, or a port that is not a number");
            return Err(RuleError::new(
                message,
                "write https:// with a host, and the number of its port if it has one",
            ));
        }
        let (path, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
        let has_query = path.contains('?');
        let (url, host_bytes) = Template::parse_url(path, pattern)?.with_start(host);
        let fragment = Some(fragment).filter(|fragment| !fragment.is_empty());
        let fragment = fragment.map(|fragment| Template::parse_url(fragment, pattern)).transpose()?;
        let to = Destination { url, fragment, host_bytes, has_query };
        if to.expand(&Captures::example(), None) == Err(Outcome::OutOfSegment) {
            let message = format!("the path of `{text}` has a segment `.` or `..`, or an invalid percent-encoding");
            return Err(RuleError::new(message, "write the path that it leads to; a percent sign itself is %25"));
        }
        Ok(to)
    }

    /// The path of a file of the same site.
    fn parse_file(text: &str, pattern: &Pattern) -> Result<Destination, RuleError> {
        let to = Destination::parse(text, pattern)?;
        if to.host_bytes > 0 {
            let message = format!("`{text}` is on another host, and requests are not passed on to others");
            return Err(RuleError::new(message, "write a path of this site, or redirect with status 302"));
        }
        if to.has_query || to.fragment.is_some() {
            let message = format!("the file `{text}` has a query or a fragment");
            return Err(RuleError::new(message, "remove it: it selects no other file"));
        }
        if to.expand_file(&Captures::example()) == Err(Outcome::OutOfSegment) {
            let message = format!("the file `{text}` has an encoded slash in a name");
            return Err(RuleError::new(message, "write the slash itself between a directory and a file"));
        }
        Ok(to)
    }

    /// The path of a file with the parts of a request, none of which has more than one segment.
    ///
    /// # Errors
    /// Returns an error if the action needs a destination.
    fn expand_file(&self, captures: &Captures<'_>) -> Result<Vec<u8>, Outcome> {
        let path = self.expand(captures, None)?;
        // No file has a name with a slash, and the look-up of a file decodes it.
        if decoded_segments(&path).any(|segment| segment.is_none_or(|segment| segment.contains(&b'/'))) {
            return Err(Outcome::OutOfSegment);
        }
        Ok(path)
    }

    /// The URL with the parts of a request, and with its query unless the destination has one.
    ///
    /// # Errors
    /// Returns an error if the action needs a destination.
    fn expand(&self, captures: &Captures<'_>, query: Option<&[u8]>) -> Result<Vec<u8>, Outcome> {
        let mut out = Vec::new();
        self.url.put(captures, &mut out);
        if has_dot_segment(&out[self.host_bytes..]) {
            return Err(Outcome::OutOfSegment);
        }
        if self.host_bytes == 0 {
            // Two slashes would name a host. No operator has written one.
            let slashes = out.iter().take_while(|byte| **byte == b'/').count();
            out.drain(..slashes.saturating_sub(1));
        }
        if let (Some(query), false) = (query, self.has_query) {
            out.push(b'?');
            put_query(query, &mut out);
        }
        if let Some(fragment) = &self.fragment {
            fragment.put(captures, &mut out);
        }
        if out.len() <= LOCATION_BYTES_MAX { Ok(out) } else { Err(Outcome::TooLong) }
    }
}

/// The error of a destination whose scheme and host, `host`, are not ASCII: browsers would not find it percent-encoded.
fn beyond_ascii(text: &str, host: &str) -> RuleError {
    let message = format!("the host of `{text}` has characters beyond ASCII");
    let start = host.find("//").map_or(0, |at| at + 2);
    let (scheme, authority) = host.split_at(start);
    let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
    let remedy = match ascii_form(name) {
        Some(ascii) => format!("write its ASCII form: {scheme}{ascii}{port}"),
        None => "write its ASCII form, which starts with xn--".to_owned(),
    };
    RuleError::new(message, remedy)
}

/// Whether a host, and a number if there is a port, follow the scheme of HTTP in `start`, or the slashes without one.
fn has_valid_authority(start: &str) -> bool {
    let Some(authority) = ["http://", "https://", "//"].iter().find_map(|scheme| start.strip_prefix(scheme)) else {
        return true;
    };
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
    // An IPv6 address is in brackets (RFC 3986 §3.2.2).
    let from = host_and_port.find(']').unwrap_or(0);
    let end = host_and_port[from..].find(':').map_or(host_and_port.len(), |at| from + at);
    let (host, port) = host_and_port.split_at(end);
    let is_number = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    !host.is_empty() && (port.is_empty() || is_number(&port[1..]))
}

/// Whether a segment of the path at the start of `url` is `.` or `..`, literally or for a server that decodes `%2F`
/// too. Encoding the dots would make no difference (URL Standard, "double-dot URL path segment").
fn has_dot_segment(url: &[u8]) -> bool {
    let is_dots = |part: &[u8]| matches!(part, b"." | b"..");
    let has_dots = |segment: &[u8]| segment.split(|byte| b"/\\".contains(byte)).any(is_dots);
    decoded_segments(url).any(|segment| segment.is_none_or(|segment| has_dots(&segment)))
}

/// The segments of the path at the start of `url`, each decoded; `None` for one with an invalid percent-encoding.
fn decoded_segments(url: &[u8]) -> impl Iterator<Item = Option<Cow<'_, [u8]>>> {
    let path_bytes = url.iter().position(|byte| b"?#".contains(byte)).unwrap_or(url.len());
    url[..path_bytes].split(|byte| *byte == b'/').map(decode)
}

/// Bytes of the scheme and the host at the start of a URL; 0 for a path, `None` for anything else.
fn host_bytes(text: &str) -> Option<usize> {
    let authority_start = if text.starts_with("//") {
        2
    } else if text.starts_with('/') {
        return Some(0);
    } else {
        let (scheme, rest) = text.split_once(':')?;
        let is_scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) || !scheme.bytes().all(is_scheme_byte) {
            return None;
        }
        if !rest.starts_with("//") {
            // `mailto:` and the like have no host, and no placeholder.
            return (!rest.is_empty() && !matches!(scheme, "http" | "https")).then_some(text.len());
        }
        scheme.len() + 3
    };
    let authority = &text[authority_start..];
    let authority_bytes = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    (authority_bytes > 0).then_some(authority_start + authority_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule_set::RuleSet;

    fn rule(from: &str, to: &str, status: u64) -> Result<Redirect, RuleError> {
        Redirect::new(&RedirectText { from, query: &[], to: Some(to), status: Some(status), force: None })
    }

    #[track_caller]
    fn check(from: &str, to: &str, path: &str, query: Option<&str>, expected: &str) {
        let rule = rule(from, to, 302).expect("a rule");
        let trimmed = path[1..].strip_suffix('/').unwrap_or(&path[1..]);
        let request = RequestPath {
            is_https: false,
            host: None,
            path: trimmed.as_bytes(),
            ends_with_slash: path.ends_with('/'),
            query: query.map(str::as_bytes),
        };
        let captures = rule.pattern.matches(&request).expect("a match");
        let outcome = rule.outcome(&captures, request.query);
        let Outcome::Redirect(RedirectStatus::Found, location) = outcome else { panic!("{outcome:?}") };
        assert_eq!(String::from_utf8_lossy(&location), expected);
    }

    #[test]
    fn group_of_an_expression_has_a_name() {
        let new =
            |from, to| Redirect::new(&RedirectText { from, query: &[], to: Some(to), status: None, force: None }).err();
        assert_eq!(new("~ ^/old/(?<rest>.*)$", "/new/:rest"), None);
        assert_eq!(new("/old", "/price-$1"), None);
        let error = new("~ ^/old/(.*)$", "/new/$1").expect("an error");
        assert_eq!(error.message, "the destination `/new/$1` names a group by its number");
    }

    #[test]
    fn destination_gets_what_the_pattern_names() {
        check("/old/*", "/new/:splat", "/old/a/b", None, "/new/a/b");
        check("/old/*", "/new/:splat", "/old/a/", None, "/new/a/");
        check("/old/*", "/new/:splat", "/old", None, "/new/");
        check("/n/:year/:slug", "/:slug-:year.html", "/n/2026/x", None, "/x-2026.html");
        check("/p/:code/:name", "/p?code=:code&name=:name", "/p/a&b/c d", None, "/p?code=a%26b&name=c%20d");
        check("/a", "https://example.org:8443/x", "/a", None, "https://example.org:8443/x");
        check("/a/*", "https://example.org", "/a/b", None, "https://example.org");
        check("/a", "mailto:a@example.org", "/a", None, "mailto:a@example.org");
        check("/a", "/ü b", "/a", None, "/%C3%BC%20b");
    }

    #[test]
    fn host_beyond_ascii_is_refused_with_its_ascii_form() {
        for (to, expected) in [
            ("https://bücher.example/", "write its ASCII form: https://xn--bcher-kva.example"),
            ("//Bücher.example:8443/a", "write its ASCII form: //xn--bcher-kva.example:8443"),
            ("https://bu\u{308}cher.example/", "write its ASCII form, which starts with xn--"),
        ] {
            let error = rule("/a", to, 301).expect_err("not ASCII");
            assert_eq!(error.remedy, expected);
            assert_eq!(error.message, format!("the host of `{to}` has characters beyond ASCII"));
        }
    }

    #[test]
    fn destination_without_a_host_or_with_a_wrong_port_is_refused() {
        for (to, is_valid) in [
            ("http://:x/", false),
            ("http://:80/", false),
            ("https://example.com:https/", false),
            ("https://example.com:/", false),
            ("https://example.com:65536/", false),
            ("//@:80/", false),
            ("https://[2001:db8::1]:x/", false),
            ("https://[2001:db8::1]:8443/", true),
            ("https://[2001:db8::1]/", true),
            ("https://user:password@example.com:8443/a", true),
            ("//example.com", true),
            ("app://:x/", true),
        ] {
            let error = rule("/a", to, 301).err().map_or(String::new(), |error| error.message);
            assert_eq!(error.is_empty(), is_valid, "{to}: {error}");
            assert!(is_valid || error == format!("the destination `{to}` has no host, or a port that is not a number"));
        }
    }

    #[test]
    fn query_is_passed_on_unless_the_destination_has_one() {
        check("/a", "/b", "/a", Some("x=1"), "/b?x=1");
        check("/a", "/b#part", "/a", Some("x=1"), "/b?x=1#part");
        check("/a", "/b?y=2", "/a", Some("x=1"), "/b?y=2");
        check("/a", "/b?", "/a", Some("x=1"), "/b?");
        check("/a", "https://example.org/", "/a", Some("x"), "https://example.org/?x");
    }

    #[test]
    fn location_never_names_a_host_that_the_operator_has_not_written() {
        check("/old*", "/:splat", "/old/evil.example", None, "/evil.example");
        check("/old*", "/:splat", "/old//evil.example", None, "/evil.example");
        check("/old/*", "/:splat", "/old/\\evil.example", None, "/%5Cevil.example");
        check("/old/*", "/:splat", "/old/a\r\nSet-Cookie: x", None, "/a%0D%0ASet-Cookie:%20x");
        check("/a", "//example.org/b", "/a", None, "//example.org/b");
        for to in ["https://:splat", "https://:splat.example/", "//:splat/", "https://a:splat@b/", "https:/a", "https:"]
        {
            assert!(rule("/x/*", to, 301).is_err(), "{to}");
        }
    }

    /// `expected`: the action for a request for `path` that has `id` in its query, by a rule with the `status`.
    #[track_caller]
    fn check_outcome(from: &str, to: &str, status: u64, path: &str, id: &str, expected: &Outcome) {
        let query = [("id", ":id")];
        let text = RedirectText { from, query: &query, to: Some(to), status: Some(status), force: None };
        let rules = RuleSet::new(vec![Redirect::new(&text).expect("a rule")], Vec::new());
        let id = format!("id={id}");
        let request = RequestPath {
            is_https: false,
            host: None,
            path: path.trim_matches('/').as_bytes(),
            ends_with_slash: path.ends_with('/'),
            query: Some(id.as_bytes()),
        };
        assert_eq!(rules.find(&request).expect("a match").outcome(), *expected, "{path} {id}");
    }

    #[test]
    fn part_of_a_request_stays_in_its_segment_of_a_redirect() {
        let check = |from, to, path, id, expected: Option<&str>| {
            let location = expected.map(|url| Outcome::Redirect(RedirectStatus::Found, url.as_bytes().to_vec()));
            check_outcome(from, to, 302, path, id, &location.unwrap_or(Outcome::OutOfSegment));
        };
        check("/a", "/pub/:id", "/a", "b", Some("/pub/b"));
        check("/a", "/pub/:id", "/a", "b/c", Some("/pub/b%2Fc"));
        check("/a", "/pub/:id", "/a", "/evil.example", Some("/pub/%2Fevil.example"));
        check("/a", "/:id", "/a", "//evil.example", Some("/%2F%2Fevil.example"));
        check("/a", "/:id", "/a", "\\evil.example", Some("/%5Cevil.example"));
        check("/a", "/:id", "/a", "https://evil.example", Some("/https:%2F%2Fevil.example"));
        check("/a", "/pub/:id", "/a", "...", Some("/pub/..."));
        check("/a", "/pub/:id.html", "/a", "..", Some("/pub/...html"));
        check("/a", "/pub/:id", "/a", "%252e%252e", Some("/pub/%252e%252e"));
        check("/a", "/b?x=:id", "/a", "../c", Some("/b?x=..%2Fc"));
        check("/a", "https://example.org/:id", "/a", "@evil.example", Some("https://example.org/@evil.example"));
        for id in [".", "..", "../priv", "x/../../priv", "%2e%2E", "..%2fpriv", "..\\priv", "x/."] {
            check("/a", "/pub/:id", "/a", id, None);
            check("/a", "https://example.org/pub/:id", "/a", id, None);
        }
        check("/a", "/pub/.:id", "/a", ".", None);
        check("/a*", "/pub/:splat", "/a..", "x", None);
        check("/a*", "/pub/:splat", "/a../b", "x", None);
        check("/a*", "/pub/:splat", "/a.b/c..", "x", Some("/pub/.b/c.."));
        check("/a:x", "/pub/:x", "/a..", "x", None);
        check("/:x/*", "/:splat/:x", "/b/c/d", "x", Some("/c/d/b"));
    }

    #[test]
    fn part_of_a_request_stays_in_its_segment_of_a_rewrite() {
        for status in [200, 404] {
            let check = |from, to, path, id, expected: Option<&str>| {
                let file = expected.map(|path| path.as_bytes().to_vec());
                let found = file.map(|path| match status {
                    200 => Outcome::Rewrite(path),
                    _ => Outcome::Page(PageStatus::NotFound, Some(path)),
                });
                check_outcome(from, to, status, path, id, &found.unwrap_or(Outcome::OutOfSegment));
            };
            check("/a", "/pub/:id", "/a", "b", Some("/pub/b"));
            check("/a", "/pub/:id", "/a", "b%3Fc", Some("/pub/b%3Fc"));
            check("/a*", "/pub/:splat", "/a/b/c", "x", Some("/pub//b/c"));
            for id in [".", "..", "b/c", "%2Fb", "../priv", "..%2fpriv", "..\\priv"] {
                check("/a", "/pub/:id", "/a", id, None);
            }
            check("/a*", "/pub/:splat", "/a../priv", "x", None);
        }
    }

    #[test]
    fn rule_that_adds_or_removes_a_slash_matches_only_without_or_with_it() {
        let added = rule("/a", "/a/", 301).expect("a rule");
        let request =
            |ends_with_slash| RequestPath { is_https: false, host: None, path: b"a", ends_with_slash, query: None };
        assert!(added.pattern.matches(&request(false)).is_some() && added.pattern.matches(&request(true)).is_none());
        let removed = rule("/:x/", "/:x", 301).expect("a rule");
        assert!(
            removed.pattern.matches(&request(true)).is_some() && removed.pattern.matches(&request(false)).is_none()
        );
    }

    #[test]
    fn wrong_rule_is_refused_with_a_remedy() {
        for (from, to, status, part) in [
            ("/a", "b", 301, "neither a path"),
            ("/a", "", 301, "empty"),
            ("/a", "/b\nX: y", 301, "byte"),
            ("/a", "/b\\c", 301, "byte"),
            ("/a", "/:splat", 301, "no `*`"),
            ("/a/:b", "/:c", 301, "no `:c`"),
            ("/a/*", "/:Splat", 301, "no `:Splat`"),
            ("/a", "/b", 300, "not supported"),
            ("/a", "/b", 500, "not supported"),
            ("/a", "https://example.org/b", 200, "another host"),
            ("/a", "//example.org/b", 404, "another host"),
            ("/a", "/b?c", 200, "query"),
            ("/a", "/b#c", 404, "fragment"),
            ("/a", "/b/../c", 301, "`..`"),
            ("/a", "/%2e%2E/c", 200, "`..`"),
            ("/a", "/b%2F../c", 301, "`..`"),
            ("/a", "https://example.org/./c", 301, "`..`"),
            ("/a", "/100%", 301, "percent"),
            ("/a", "/b%2Fc", 200, "slash"),
            ("/a", "/a", 301, "itself"),
            ("/a/*", "/a/b/:splat", 301, "itself"),
            ("/*", "/en/:splat", 302, "itself"),
            ("/a/*", "/a/", 301, "itself"),
        ] {
            let error = rule(from, to, status).expect_err(from);
            assert!(error.message.contains(part) && !error.remedy.is_empty(), "{from} {to}: {error:?}");
        }
        let remedy = |to: &str| rule("/:lang/*", to, 301).expect_err(to).remedy;
        assert_eq!(remedy("/:Splat"), "write :splat, or write %3ASplat for the text itself");
        assert_eq!(remedy("/:LANG"), "write :lang, or write %3ALANG for the text itself");
        assert_eq!(remedy("/:x"), "add it to the pattern, or write %3Ax for the text itself");
        let without = |status| RedirectText { from: "/a", query: &[], to: None, status: Some(status), force: None };
        assert!(Redirect::new(&without(301)).is_err() && Redirect::new(&without(200)).is_err());
        assert!(Redirect::new(&without(410)).expect("an error page").is_forced());
        // An existing file below /en/ ends the search.
        let unforced = RedirectText { force: Some(false), ..without(302) };
        assert!(Redirect::new(&RedirectText { from: "/*", to: Some("/en/:splat"), ..unforced }).is_ok());
        assert!(Redirect::new(&RedirectText { to: Some("/a"), ..unforced }).is_err());
    }

    #[test]
    fn destination_that_is_too_long_is_not_sent() {
        let rule = rule("/a/*", "/:splat:splat", 301).expect("a rule");
        let path = [&b"a/"[..], &[b'"'; 4_000]].concat();
        let request = RequestPath { is_https: false, host: None, path: &path, ends_with_slash: false, query: None };
        let captures = rule.pattern.matches(&request).expect("a match");
        assert_eq!(rule.outcome(&captures, None), Outcome::TooLong);
    }
}
