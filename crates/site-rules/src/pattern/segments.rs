//! Patterns with segments of a path: `/old/*`, `/news/:year/:slug`, `/*.pdf`, `/about`.

use super::{Captures, Names, RequestPath, placeholder};
use crate::error::RuleError;
use crate::escape::decode;
use std::borrow::Cow;

/// The segments of a pattern. `*` matches any bytes, and occurs at most once; `:name` a part of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    /// The segments before the one with `*`.
    head: Vec<Segment>,
    splat: Option<Splat>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<[u8]>),
    /// `prefix:name.suffix`; the part between them is not empty.
    Placeholder {
        prefix: Box<[u8]>,
        suffix: Box<[u8]>,
    },
}

/// `*` with the text before and after it in its segment, and the following segments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Splat {
    prefix: Box<[u8]>,
    suffix: Box<[u8]>,
    tail: Vec<Segment>,
}

impl Segments {
    /// Parses the `path` of the pattern `text`.
    pub(super) fn parse(text: &str, path: &str, names: &mut Names) -> Result<Segments, RuleError> {
        check_is_path(text)?;
        let mut segments = Segments { head: Vec::new(), splat: None };
        let Some(path) = path.strip_prefix('/') else {
            let remedy = format!("write \"/{}\"", text.trim_start_matches('/'));
            return Err(RuleError::new(format!("the pattern `{text}` does not begin with a slash"), remedy));
        };
        if path.contains(['?', '#']) {
            let message = format!("the pattern `{text}` has a query or a fragment");
            return Err(RuleError::new(message, "leave it out; `query` has conditions on the query"));
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.is_empty() {
            return Ok(segments);
        }
        for segment in path.split('/') {
            if let Some((prefix, suffix)) = segment.split_once('*') {
                if segments.splat.is_some() || suffix.contains('*') {
                    let message = format!("the pattern `{text}` has more than one `*`");
                    return Err(RuleError::new(message, "leave one; `:name` matches a segment"));
                }
                if placeholder(prefix).is_some() || placeholder(suffix).is_some() {
                    let message = format!("`*` and a placeholder are in one segment of `{text}`");
                    return Err(RuleError::new(message, "put a slash between them"));
                }
                let (prefix, suffix) = (literal(text, prefix)?, literal(text, suffix)?);
                segments.splat = Some(Splat { prefix, suffix, tail: Vec::new() });
                continue;
            }
            let segment = Segment::parse(text, segment, names)?;
            match &mut segments.splat {
                Some(splat) => splat.tail.push(segment),
                None => segments.head.push(segment),
            }
        }
        Ok(segments)
    }

    pub(super) fn has_splat(&self) -> bool {
        self.splat.is_some()
    }

    /// The path, if it is the only one that the pattern can match.
    pub(super) fn exact_path(&self) -> Option<Vec<u8>> {
        let literals: Option<Vec<&[u8]>> = self.head.iter().map(Segment::literal).collect();
        literals.filter(|_| self.splat.is_none()).map(|segments| segments.join(&b'/'))
    }

    /// The first segment, if all paths have it in common.
    pub(super) fn first(&self) -> Option<&[u8]> {
        self.head.first().and_then(Segment::literal)
    }

    /// Bytes of the pattern without its `*` and placeholders. The end of a pattern without `*` counts as one, and the
    /// slash of `/api/*` does not, because it matches `/api` too: so `/api` has more than `/api/*`.
    pub(super) fn literal_bytes(&self) -> usize {
        let of = |segments: &[Segment]| segments.iter().map(|segment| 1 + segment.literal_bytes()).sum::<usize>();
        of(&self.head)
            + match &self.splat {
                None => 1,
                Some(splat) if splat.is_rest() => 0,
                Some(Splat { prefix, suffix, tail }) => 1 + prefix.len() + suffix.len() + of(tail),
            }
    }

    /// Whether it matches one path and all below it: `/api/*`.
    pub(super) fn is_prefix(&self) -> bool {
        self.splat.as_ref().is_some_and(Splat::is_rest) && self.head.iter().all(|segment| segment.literal().is_some())
    }

    /// A path that the pattern matches.
    pub(super) fn example(&self) -> Vec<u8> {
        let of = |segment: &Segment| match segment {
            Segment::Literal(bytes) => bytes.to_vec(),
            Segment::Placeholder { prefix, suffix } => [prefix, &b"x"[..], suffix].concat(),
        };
        let splat = self.splat.iter().map(|splat| [&splat.prefix, &b"x"[..], &splat.suffix].concat());
        let tail = self.splat.iter().flat_map(|splat| splat.tail.iter().map(of));
        self.head.iter().map(of).chain(splat).chain(tail).collect::<Vec<_>>().join(&b'/')
    }

    /// Adds the named parts of the path to `captures`; `None` if it does not match.
    pub(super) fn match_into<'r>(&self, request: &RequestPath<'r>, captures: &mut Captures<'r>) -> Option<()> {
        let mut rest = Some(request.path).filter(|path| !path.is_empty());
        for segment in &self.head {
            let (first, after) = take_first(rest?);
            rest = after;
            segment.match_into(first, captures)?;
        }
        match &self.splat {
            None => rest.is_none().then_some(()),
            Some(splat) => splat.match_into(rest, request.ends_with_slash, captures),
        }
    }
}

impl Segment {
    fn parse(text: &str, segment: &str, names: &mut Names) -> Result<Segment, RuleError> {
        let Some((prefix, name, suffix)) = placeholder(segment) else {
            let bytes = literal(text, segment)?;
            // A path with such segments is normalized before it is matched.
            if matches!(&*bytes, b"" | b"." | b"..") {
                let message = format!("the pattern `{text}` has an empty segment, `.` or `..`, which no path has");
                return Err(RuleError::new(message, "remove that segment"));
            }
            return Ok(Segment::Literal(bytes));
        };
        if placeholder(suffix).is_some() {
            let message = format!("two placeholders are in one segment of `{text}`");
            return Err(RuleError::new(message, "put a slash between them, or write one for both"));
        }
        names.add(text, name)?;
        Ok(Segment::Placeholder { prefix: literal(text, prefix)?, suffix: literal(text, suffix)? })
    }

    fn literal(&self) -> Option<&[u8]> {
        match self {
            Segment::Literal(bytes) => Some(bytes),
            Segment::Placeholder { .. } => None,
        }
    }

    fn literal_bytes(&self) -> usize {
        match self {
            Segment::Literal(bytes) => bytes.len(),
            Segment::Placeholder { prefix, suffix } => prefix.len() + suffix.len(),
        }
    }

    fn capture<'r>(&self, segment: &'r [u8]) -> Option<Option<&'r [u8]>> {
        match self {
            Segment::Literal(bytes) => (**bytes == *segment).then_some(None),
            Segment::Placeholder { prefix, suffix } => {
                let value = segment.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
                (!value.is_empty()).then_some(Some(value))
            }
        }
    }

    fn match_into<'r>(&self, segment: &'r [u8], captures: &mut Captures<'r>) -> Option<()> {
        if let Some(value) = self.capture(segment)? {
            captures.push(Cow::Borrowed(value));
        }
        Some(())
    }
}

impl Splat {
    /// Whether it is the last segment, without other text: `*` stands for the rest of the path.
    fn is_rest(&self) -> bool {
        self.prefix.is_empty() && self.suffix.is_empty() && self.tail.is_empty()
    }

    fn match_into<'r>(&self, rest: Option<&'r [u8]>, ends_with_slash: bool, captures: &mut Captures<'r>) -> Option<()> {
        let Some(mut rest) = rest else {
            // `/old/*` matches `/old` and `/old/` too.
            return self.is_rest().then_some(());
        };
        // The segments after `*` are the last ones of the path.
        let end = rest;
        for _ in &self.tail {
            let slash = memchr::memrchr(b'/', rest)?;
            rest = &rest[..slash];
        }
        captures.splat = rest.strip_prefix(&*self.prefix)?.strip_suffix(&*self.suffix)?;
        captures.splat_has_slash = ends_with_slash && self.suffix.is_empty() && self.tail.is_empty();
        let mut after = end[rest.len()..].strip_prefix(b"/");
        for segment in &self.tail {
            let (first, later) = take_first(after?);
            after = later;
            segment.match_into(first, captures)?;
        }
        Some(())
    }
}

/// Refuses text that is common in regular expressions and rare in paths.
fn check_is_path(text: &str) -> Result<(), RuleError> {
    const PARTS: [&str; 13] = ["(.*", ".*)", "(.+", ".+)", "(?", ")?", "(/", "[^", "]+", "\\d", "\\w", "\\.", "\\/"];
    if !text.starts_with('^') && !text.ends_with('$') && !PARTS.iter().any(|part| text.contains(part)) {
        return Ok(());
    }
    let text = text.escape_debug();
    let message = format!("the pattern `{text}` looks like a regular expression");
    let remedy = format!(
        "write \"~ {text}\" if it is one, or a path, in which `*` matches any rest and `:name` a segment, as in \
         \"/old/*\""
    );
    Err(RuleError::new(message, remedy))
}

/// The first segment of a nonempty path, and the rest.
fn take_first(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'/', path) {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    }
}

/// The bytes that a part of a pattern matches.
fn literal(text: &str, part: &str) -> Result<Box<[u8]>, RuleError> {
    let Some(bytes) = decode(part.as_bytes()) else {
        let message = format!("the pattern `{text}` has an invalid percent-encoding");
        return Err(RuleError::new(message, "write % and two hexadecimal digits; a percent sign itself is %25"));
    };
    if bytes.iter().any(|byte| byte.is_ascii_control() || matches!(byte, b'/' | b'\\')) {
        let message = format!("the pattern `{}` has a byte that no path has", text.escape_debug());
        return Err(RuleError::new(message, "remove it"));
    }
    Ok(bytes.into())
}
