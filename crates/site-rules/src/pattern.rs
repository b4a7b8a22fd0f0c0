//! Patterns of paths: `/old/*`, `/news/:year/:slug`, `/*.pdf`, `/about`; or a regular expression: `~ ^/(?<id>[0-9]+)$`.

mod segments;
mod expression;

use crate::ascii_name::ascii_form;
use crate::error::RuleError;
use crate::escape::decode_query;
use expression::{Expression, is_expression};
use segments::Segments;
use std::borrow::Cow;

/// Placeholders of one pattern.
const PLACEHOLDERS_MAX: usize = 16;
/// Bytes of the longest pattern.
const PATTERN_BYTES_MAX: usize = 1_024;
/// Conditions on the query of one rule.
const QUERY_CONDITIONS_MAX: usize = 8;

/// A request's target, decoded and normalized as for a file's look-up.
#[derive(Clone, Copy, Debug)]
pub struct RequestPath<'r> {
    /// Whether the request uses HTTPS.
    pub is_https: bool,
    /// The host, in any letter case; `None` if the request has none.
    pub host: Option<&'r [u8]>,
    /// The decoded path, without a slash at its start or end, and without empty segments.
    pub path: &'r [u8],
    /// Whether the path of the request ends with a slash, as a directory's does; always for the root.
    pub ends_with_slash: bool,
    /// The query as it was received.
    pub query: Option<&'r [u8]>,
}

/// A pattern of paths, perhaps of one host, perhaps with conditions on the query.
///
/// `*` matches any bytes, and occurs at most once; `:name` for a part of one segment. A slash at the end makes no
/// difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The only host, in lower case; `None` for every one.
    host: Option<Box<str>>,
    /// The pattern is for `http://`, so that a rule may lead to the same URL with HTTPS. A pattern for `https://`
    /// matches both.
    excludes_https: bool,
    paths: Paths,
    slash: Slash,
    names: Names,
    query: Vec<QueryCondition>,
}

/// The paths of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Paths {
    Segments(Segments),
    Expression(Expression),
}

/// The names of the placeholders, in the order of their values in [`Captures`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names(Vec<Box<str>>);

/// Whether the request path must end with a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slash {
    Any,
    Only(bool),
}

/// `name=value` or `name=:placeholder`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QueryCondition {
    name: Box<[u8]>,
    /// The decoded value; `None` for a placeholder.
    value: Option<Box<[u8]>>,
}

/// The parts of a request that a pattern names.
#[derive(Debug, Default)]
pub(crate) struct Captures<'r> {
    /// The part that `*` matches.
    pub(crate) splat: &'r [u8],
    /// Whether a slash follows it.
    pub(crate) splat_has_slash: bool,
    values: [Cow<'r, [u8]>; PLACEHOLDERS_MAX],
    count: usize,
}

impl Captures<'static> {
    /// Parts of a request that have no special character.
    pub(crate) fn example() -> Captures<'static> {
        Captures { splat: b"x", values: [const { Cow::Borrowed(b"x") }; _], ..Captures::default() }
    }
}

impl<'r> Captures<'r> {
    pub(crate) fn value(&self, index: usize) -> &[u8] {
        &self.values[index]
    }

    fn push(&mut self, value: Cow<'r, [u8]>) {
        self.values[self.count] = value;
        self.count += 1;
    }
}

impl Pattern {
    /// Parses a pattern. `query` has the conditions on the query, each with its value.
    ///
    /// # Errors
    /// Returns the problem.
    pub fn parse(text: &str, query: &[(&str, &str)]) -> Result<Pattern, RuleError> {
        if text.len() > PATTERN_BYTES_MAX {
            let message = format!("the pattern is longer than {PATTERN_BYTES_MAX} bytes");
            return Err(RuleError::new(message, "shorten it"));
        }
        let mut names = Names::default();
        let (host, paths) = if is_expression(text) {
            (None, Paths::Expression(Expression::parse(text, &mut names)?))
        } else {
            let (host, path) = split_host(text)?;
            (host, Paths::Segments(Segments::parse(text, path, &mut names)?))
        };
        let excludes_https = text.starts_with("http://");
        let mut pattern = Pattern { host, excludes_https, paths, slash: Slash::Any, names, query: Vec::new() };
        pattern.parse_query(query)?;
        Ok(pattern)
    }

    fn parse_query(&mut self, query: &[(&str, &str)]) -> Result<(), RuleError> {
        if query.len() > QUERY_CONDITIONS_MAX {
            let message = format!("the rule has more than {QUERY_CONDITIONS_MAX} conditions on the query");
            return Err(RuleError::new(message, "remove some"));
        }
        for (name, value) in query {
            let capture = placeholder(value).filter(|(prefix, _, suffix)| prefix.is_empty() && suffix.is_empty());
            if let Some((_, placeholder, _)) = capture {
                self.names.add(name, placeholder)?;
            }
            let value = capture.is_none().then(|| decode_query(value.as_bytes()).into());
            self.query.push(QueryCondition { name: decode_query(name.as_bytes()).into(), value });
        }
        Ok(())
    }

    /// Matches only paths that end with a slash, or that do not.
    pub(crate) fn require_slash(&mut self, ends_with_slash: bool) {
        self.slash = Slash::Only(ends_with_slash);
    }

    /// Whether it matches only paths that end with a slash.
    pub(crate) fn requires_slash(&self) -> bool {
        self.slash == Slash::Only(true)
    }

    /// The index of the placeholder with this name.
    pub(crate) fn name_index(&self, name: &str) -> Option<usize> {
        self.names.0.iter().position(|own| **own == *name)
    }

    /// The name that the pattern has with another case: its own placeholder, or `splat`.
    pub(crate) fn name_in_other_case(&self, name: &str) -> Option<&str> {
        let splat = self.has_splat().then_some("splat");
        let names = self.names.0.iter().map(|own| &**own);
        splat.into_iter().chain(names).find(|own| own.eq_ignore_ascii_case(name))
    }

    fn segments(&self) -> Option<&Segments> {
        match &self.paths {
            Paths::Segments(segments) => Some(segments),
            Paths::Expression(_) => None,
        }
    }

    /// Whether it is a regular expression.
    pub fn is_expression(&self) -> bool {
        matches!(self.paths, Paths::Expression(_))
    }

    pub(crate) fn has_splat(&self) -> bool {
        self.segments().is_some_and(Segments::has_splat)
    }

    pub(crate) fn has_query(&self) -> bool {
        !self.query.is_empty()
    }

    /// Whether the pattern is for a single host.
    pub fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// The host, if the pattern is for a single host.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The path, if it is the only one that the pattern can match.
    pub(crate) fn exact_path(&self) -> Option<Vec<u8>> {
        self.segments()?.exact_path()
    }

    /// The first segment of all paths that the pattern matches, if they have it in common.
    pub(crate) fn first_segment(&self) -> Option<&[u8]> {
        self.segments()?.first()
    }

    /// How much of a path the pattern gives: a regular expression comes before all paths.
    pub(crate) fn precedence(&self) -> usize {
        self.segments().map_or(usize::MAX, Segments::literal_bytes)
    }

    /// Whether it matches one path and all below it: `/api/*`.
    pub fn is_prefix(&self) -> bool {
        self.segments().is_some_and(Segments::is_prefix)
    }

    /// A path that the pattern matches; `None` for a regular expression.
    pub(crate) fn example(&self) -> Option<Vec<u8>> {
        self.segments().map(Segments::example)
    }

    /// Whether it matches.
    pub fn is_match(&self, request: &RequestPath<'_>) -> bool {
        self.matches(request).is_some()
    }

    /// The named parts of the pattern in `request`; `None` if it does not match.
    pub(crate) fn matches<'r>(&self, request: &RequestPath<'r>) -> Option<Captures<'r>> {
        if let Some(own) = &self.host
            && !request.host.is_some_and(|host| is_host(host, own.as_bytes()))
        {
            return None;
        }
        if self.excludes_https && request.is_https {
            return None;
        }
        if matches!(self.slash, Slash::Only(ends_with_slash) if ends_with_slash != request.ends_with_slash) {
            return None;
        }
        let mut captures = Captures::default();
        match &self.paths {
            Paths::Segments(segments) => segments.match_into(request, &mut captures)?,
            Paths::Expression(expression) => expression.match_into(request, &mut captures)?,
        }
        for condition in &self.query {
            condition.match_into(request.query?, &mut captures)?;
        }
        Some(captures)
    }
}

impl Names {
    /// Adds the name of a placeholder of the pattern `text`.
    fn add(&mut self, text: &str, name: &str) -> Result<(), RuleError> {
        if name == "splat" || self.0.iter().any(|other| **other == *name) {
            let message = format!("the pattern `{text}` has the placeholder `:{name}` twice, or `:splat`");
            return Err(RuleError::new(message, "give it another name"));
        }
        if self.0.len() == PLACEHOLDERS_MAX {
            let message = format!("the pattern `{text}` has more than {PLACEHOLDERS_MAX} placeholders");
            return Err(RuleError::new(message, "use `*` for the rest"));
        }
        self.0.push(name.into());
        Ok(())
    }
}

impl QueryCondition {
    fn match_into<'r>(&self, query: &'r [u8], captures: &mut Captures<'r>) -> Option<()> {
        let mut fields = query.split(|&byte| byte == b'&').map(|field| {
            let at = memchr::memchr(b'=', field).unwrap_or(field.len());
            (&field[..at], field.get(at + 1..).unwrap_or_default())
        });
        let (_, value) = fields.find(|(name, value)| {
            *decode_query(name) == *self.name
                && self.value.as_ref().map_or(!value.is_empty(), |own| **own == *decode_query(value))
        })?;
        if self.value.is_none() {
            captures.push(decode_query(value));
        }
        Some(())
    }
}

fn is_host(host: &[u8], own: &[u8]) -> bool {
    host.strip_suffix(b".").unwrap_or(host).eq_ignore_ascii_case(own)
}

/// Splits `https://host/path`.
fn split_host(text: &str) -> Result<(Option<Box<str>>, &str), RuleError> {
    let Some((scheme, rest)) = text.split_once("://") else { return Ok((None, text)) };
    if !matches!(scheme, "http" | "https") {
        let message = format!("the pattern `{text}` has an unknown scheme");
        return Err(RuleError::new(message, "write a path such as \"/old/*\", or https://HOST/old/*"));
    }
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if host.is_empty() || !host.bytes().all(is_name) {
        let message = format!("`{host}` in the pattern `{text}` is not a host name");
        let ascii = ascii_form(host).filter(|_| !host.is_ascii());
        let remedy = ascii.map_or_else(
            || "write a name without a port, `*` and `:`".to_owned(),
            |ascii| format!("write its ASCII form: {ascii}"),
        );
        return Err(RuleError::new(message, remedy));
    }
    Ok((Some(host.to_ascii_lowercase().into()), if path.is_empty() { "/" } else { path }))
}

/// The first placeholder in `text`, with what is before and after it.
pub(crate) fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let bytes = text.as_bytes();
    let is_start = |&(at, _): &(usize, char)| bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
    let (at, _) = text.char_indices().filter(|&(_, character)| character == ':').find(is_start)?;
    let name_bytes = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    Some((&text[..at], &text[at + 1..at + 1 + name_bytes], &text[at + 1 + name_bytes..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'r>(path: &'r str, query: Option<&'r str>) -> RequestPath<'r> {
        let path = path.strip_prefix('/').expect("a path");
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        RequestPath {
            is_https: false,
            host: Some(b"Example.COM"),
            path: trimmed.as_bytes(),
            ends_with_slash: path.is_empty() || path.ends_with('/'),
            query: query.map(str::as_bytes),
        }
    }

    /// `expected`: the splat and the placeholders.
    #[track_caller]
    fn check(pattern: &str, path: &str, expected: Option<(&str, &[&str])>) {
        let pattern = Pattern::parse(pattern, &[]).expect("a pattern");
        let found = pattern.matches(&request(path, None)).map(|captures| {
            let splat = String::from_utf8_lossy(captures.splat).into_owned();
            let slash = if captures.splat_has_slash { "/" } else { "" };
            let values = (0..captures.count).map(|index| String::from_utf8_lossy(captures.value(index)).into_owned());
            (splat + slash, values.collect::<Vec<_>>())
        });
        let expected =
            expected.map(|(splat, values)| (splat.to_owned(), values.iter().map(|&value| value.to_owned()).collect()));
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn path_without_special_characters_matches_itself_with_and_without_a_slash() {
        check("/about", "/about", Some(("", &[])));
        check("/about", "/about/", Some(("", &[])));
        check("/about/", "/about", Some(("", &[])));
        check("/about", "/about/x", None);
        check("/about", "/About", None);
        check("/", "/", Some(("", &[])));
        check("/", "/x", None);
        check("/caf%C3%A9", "/café", Some(("", &[])));
        check("/café", "/café", Some(("", &[])));
        check("/a%2Ab", "/a*b", Some(("", &[])));
        check("/a:1", "/a:1", Some(("", &[])));
        check("/a(b)+c$d[1]", "/a(b)+c$d[1]", Some(("", &[])));
        check("/.*", "/.a", Some(("a", &[])));
        check("/old%24", "/old$", Some(("", &[])));
    }

    #[test]
    fn splat_stands_for_the_rest_of_the_path() {
        check("/old/*", "/old/a/b", Some(("a/b", &[])));
        check("/old/*", "/old/a/", Some(("a/", &[])));
        check("/old/*", "/old/", Some(("", &[])));
        check("/old/*", "/old", Some(("", &[])));
        check("/old/*", "/older", None);
        check("/*", "/", Some(("", &[])));
        check("/*", "/a", Some(("a", &[])));
        check("/*.pdf", "/a/b.pdf", Some(("a/b", &[])));
        check("/*.pdf", "/a/b.pdf/c", None);
        check("/a/b*", "/a/bcd", Some(("cd", &[])));
        check("/a/b*c", "/a/bc", Some(("", &[])));
        check("/a/bc*cd", "/a/bcd", None);
        check("/a/*/z", "/a/b/c/z", Some(("b/c", &[])));
        check("/a/*/z", "/a/z", None);
    }

    #[test]
    fn placeholder_stands_for_a_part_of_a_segment() {
        check("/news/:year/:slug", "/news/2026/a-b", Some(("", &["2026", "a-b"])));
        check("/news/:year/:slug", "/news/2026", None);
        check("/news/:year/:slug", "/news/2026/a/b", None);
        check("/:a", "/", None);
        check("/post-:id.html", "/post-7.html", Some(("", &["7"])));
        check("/post-:id.html", "/post-.html", None);
        check("/:lang/*/:last", "/en/a/b/c", Some(("a/b", &["en", "c"])));
        check("/:lang/*/:last", "/en/c", None);
    }

    #[test]
    fn pattern_of_a_host_matches_requests_for_it() {
        check("https://example.com/a", "/a", Some(("", &[])));
        check("http://example.com", "/", Some(("", &[])));
        check("https://www.example.com/a", "/a", None);
    }

    #[test]
    fn pattern_of_http_matches_no_request_with_https() {
        for (pattern, matches_https) in [("http://example.com/*", false), ("https://example.com/*", true), ("/*", true)]
        {
            let pattern = Pattern::parse(pattern, &[]).expect("a pattern");
            let http = request("/a", None);
            let https = RequestPath { is_https: true, ..http };
            assert_eq!((pattern.is_match(&http), pattern.is_match(&https)), (true, matches_https), "{pattern:?}");
        }
    }

    #[test]
    fn conditions_on_the_query_must_all_hold() {
        let pattern = Pattern::parse("/store", &[("id", ":id"), ("kind", "a b")]).expect("a pattern");
        let id = |query: Option<&str>| {
            let request = request("/store", query);
            pattern.matches(&request).map(|captures| String::from_utf8_lossy(captures.value(0)).into_owned())
        };
        assert_eq!(id(Some("id=7&kind=a+b")).as_deref(), Some("7"));
        assert_eq!(id(Some("x&kind=a%20b&%69d=%41%2f")).as_deref(), Some("A/"));
        for query in [None, Some(""), Some("id=7"), Some("id=&kind=a+b"), Some("id&kind=a+b"), Some("kind=a&id=7")] {
            assert_eq!(id(query), None, "{query:?}");
        }
    }

    #[test]
    fn wrong_pattern_is_refused_with_a_remedy() {
        for (pattern, part) in [
            ("old", "slash"),
            ("/a/*/*", "more than one"),
            ("/a**", "more than one"),
            ("/a/:b*", "in one segment"),
            ("/:a-:b", "two placeholders"),
            ("/:a/:a", "twice"),
            ("/:splat", "splat"),
            ("/a//b", "empty segment"),
            ("/a/../b", "empty segment"),
            ("/a?b", "query"),
            ("/a#b", "fragment"),
            ("/%zz", "percent"),
            ("/a%2Fb", "byte"),
            ("/a%00", "byte"),
            ("/a\\b", "byte"),
            ("ftp://example.com/", "scheme"),
            ("https://*.example.com/", "host name"),
            ("https://:sub.example.com/", "host name"),
            ("^/old/(.*)$", "regular expression"),
            ("^/old", "regular expression"),
            ("/old/(.*)", "regular expression"),
            ("/old/(.+)/x", "regular expression"),
            ("/old/[^/]+", "regular expression"),
            ("/post-[0-9]+", "regular expression"),
            ("/post-\\d+", "regular expression"),
            ("/a\\.html", "regular expression"),
            ("/old(/.*)?", "regular expression"),
            ("/old$", "regular expression"),
        ] {
            let error = Pattern::parse(pattern, &[]).expect_err(pattern);
            assert!(error.message.contains(part) && !error.remedy.is_empty(), "{pattern}: {error:?}");
        }
        let long = format!("/{}", "a".repeat(PATTERN_BYTES_MAX));
        assert!(Pattern::parse(&long, &[]).is_err() && Pattern::parse(&long[..PATTERN_BYTES_MAX], &[]).is_ok());
        let many = |count: usize| (0..count).map(|number| format!("/:p{number}")).collect::<String>();
        assert!(Pattern::parse(&many(PLACEHOLDERS_MAX), &[]).is_ok());
        assert!(Pattern::parse(&many(PLACEHOLDERS_MAX + 1), &[]).is_err());
    }
}
