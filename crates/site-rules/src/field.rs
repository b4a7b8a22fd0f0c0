//! Header fields that rules add to responses, or take away from them.

use crate::error::RuleError;
use crate::pattern::{Captures, Pattern};
use crate::template::Template;

/// Bytes of the longest value.
pub const FIELD_VALUE_BYTES_MAX: usize = 4_096;

/// Fields that the server itself has to write, in lower case. Connection fields do not exist in HTTP/2 (RFC 9113
/// §8.2.2).
const OWNED: &[&str] = &[
    "accept-ranges",
    "age",
    "allow",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "location",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// Fields between the server and an application that a route cannot change, in lower case.
const OF_CONNECTION: &[&str] = &[
    "close",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The fields of responses to requests for some paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRule {
    pub(crate) pattern: Pattern,
    pub(crate) fields: Vec<Field>,
}

/// A header field of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: Box<str>,
    action: FieldAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldAction {
    /// Replaces the field of the server and of earlier rules.
    Set(Template),
    /// Replaces the server's field, and is appended to the value of earlier rules after a comma.
    Join(Template),
    Remove,
}

impl FieldRule {
    /// The rule of `pattern`.
    pub fn new(pattern: Pattern, fields: Vec<Field>) -> FieldRule {
        FieldRule { pattern, fields }
    }

    /// Adds a field.
    pub fn push(&mut self, field: Field) {
        self.fields.push(field);
    }

    /// The pattern.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }
}

impl Field {
    /// A field that replaces the field of earlier rules.
    ///
    /// # Errors
    /// Returns the problem.
    pub fn set(name: &str, value: &str, pattern: &Pattern) -> Result<Field, RuleError> {
        let value = checked_value(name, value)?;
        Ok(Field { name: checked_name(name)?, action: FieldAction::Set(Template::parse_field(value, pattern)) })
    }

    /// A field whose value is appended to the values of earlier rules.
    ///
    /// # Errors
    /// Returns the problem.
    pub fn join(name: &str, value: &str, pattern: &Pattern) -> Result<Field, RuleError> {
        let value = checked_value(name, value)?;
        Ok(Field { name: checked_name(name)?, action: FieldAction::Join(Template::parse_field(value, pattern)) })
    }

    /// Takes away the field of the server and of earlier rules.
    ///
    /// # Errors
    /// Returns an error if the response needs the field.
    pub fn remove(name: &str) -> Result<Field, RuleError> {
        if name.eq_ignore_ascii_case("vary") || name.eq_ignore_ascii_case("content-type") {
            let message = format!("`{name}` cannot be removed: caches and browsers would use the response wrongly");
            return Err(RuleError::new(message, "remove the line"));
        }
        Ok(Field { name: checked_name(name)?, action: FieldAction::Remove })
    }
}

/// Whether it is a token (RFC 9110 §5.6.2).
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether a route cannot change this field, of a request or a response: the server writes it itself for each
/// connection, or never passes it on.
pub fn is_connection_field(name: &str) -> bool {
    OF_CONNECTION.iter().any(|own| name.eq_ignore_ascii_case(own))
}

fn checked_name(name: &str) -> Result<Box<str>, RuleError> {
    if !is_token(name) {
        let message = format!("`{}` is not the name of a field", name.escape_debug());
        return Err(RuleError::new(message, "write a name of letters, digits and hyphens, for example Cache-Control"));
    }
    if name.eq_ignore_ascii_case("basic-auth") {
        let message = "`Basic-Auth` is not supported: the path is NOT protected";
        return Err(RuleError::new(message, "write the path in the table `auth` of the domain"));
    }
    if OWNED.iter().any(|owned| name.eq_ignore_ascii_case(owned)) {
        let remedy = match name.to_ascii_lowercase().as_str() {
            "location" => "remove it; a redirect sends it",
            "www-authenticate" => "remove it; the table `auth` of the domain sends it",
            "content-encoding" => "remove it; a precompressed file name.br, name.zst or name.gz sends it",
            _ => "remove it; the server writes it for each response",
        };
        return Err(RuleError::new(format!("`{name}` cannot be set by a rule"), remedy));
    }
    Ok(name.into())
}

fn checked_value<'v>(name: &str, value: &'v str) -> Result<&'v str, RuleError> {
    let trimmed = value.trim_matches([' ', '\t']);
    if trimmed.is_empty() {
        return Err(RuleError::new(format!("the value of `{name}` is empty"), "write one, or remove the field"));
    }
    // RFC 9110 §5.5.
    if trimmed.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        let message = format!("the value of `{name}` has a control character");
        return Err(RuleError::new(message, "write it on one line"));
    }
    if trimmed.len() > FIELD_VALUE_BYTES_MAX {
        let message = format!("the value of `{name}` is longer than {FIELD_VALUE_BYTES_MAX} bytes");
        return Err(RuleError::new(message, "shorten it"));
    }
    Ok(trimmed)
}

/// The fields of one response, made from all rules of its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldEdits<'r> {
    edits: Vec<FieldEdit<'r>>,
    privacy: Privacy,
}

/// Which responses shared caches must not keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Privacy {
    /// None.
    #[default]
    Shared,
    /// The file. Errors and redirects of this server do not depend on the client.
    File,
    /// All: those of an application do.
    All,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldEdit<'r> {
    name: &'r str,
    /// `None` if the field is taken away.
    value: Option<Vec<u8>>,
    /// A rule that would append its value after a comma replaces the field instead.
    is_default: bool,
}

/// The kind of a response's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentOf {
    /// The content of the request path, or of no file.
    Path,
    /// The content of the request path, which has had other content before, whatever its name says.
    ReusedPath,
    /// The content of another file, because there is none at the path.
    OtherPath,
}

/// The fields that responses of a status can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// 200 and 206: all fields.
    Content,
    /// 304: no field that describes the content (RFC 9110 §15.4.5).
    NotModified,
    /// Others: neither such fields nor those for caches, because the rules describe the file.
    Other,
}

impl<'r> FieldEdits<'r> {
    /// No field is changed.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.privacy == Privacy::Shared
    }

    /// Whether a rule has the field `name`.
    pub fn has(&self, name: &str) -> bool {
        self.edits.iter().any(|edit| edit.name.eq_ignore_ascii_case(name))
    }

    /// Whether the content must be sent unchanged (RFC 9111 §5.2.2.6).
    pub fn forbids_transformation(&self) -> bool {
        let names_it = |value: &[u8]| value.to_ascii_lowercase().windows(12).any(|text| text == b"no-transform");
        let is_cache_control = |edit: &&FieldEdit<'_>| edit.name.eq_ignore_ascii_case("cache-control");
        self.edits.iter().filter(is_cache_control).any(|edit| edit.value.as_deref().is_some_and(names_it))
    }

    /// Replaces the field `name`.
    pub fn set(&mut self, name: &'r str, value: Vec<u8>) {
        self.put(name, Some(value));
    }

    /// Shared caches must not keep the response: unless its `Cache-Control` says so, it is replaced.
    pub fn set_private(&mut self) {
        self.privacy = Privacy::File;
    }

    /// The same, whatever status the response has.
    pub fn set_all_private(&mut self) {
        self.privacy = Privacy::All;
    }

    /// From now on rules replace the fields so far.
    pub fn end_defaults(&mut self) {
        self.edits.iter_mut().for_each(|edit| edit.is_default = true);
    }

    /// Applies a rule of the path.
    pub(crate) fn add(&mut self, rule: &'r FieldRule, captures: &Captures<'_>) {
        for Field { name, action } in &rule.fields {
            let expand = |template: &Template| {
                let mut value = Vec::new();
                template.put(captures, &mut value);
                value
            };
            match action {
                FieldAction::Remove => self.put(name, None),
                FieldAction::Set(template) => self.put(name, Some(expand(template))),
                FieldAction::Join(template) => self.join(name, expand(template)),
            }
        }
    }

    fn put(&mut self, name: &'r str, value: Option<Vec<u8>>) {
        // `Vary` fields add up (RFC 9110 §12.5.5).
        if !name.eq_ignore_ascii_case("vary") {
            self.edits.retain(|edit| !edit.name.eq_ignore_ascii_case(name));
        }
        self.edits.push(FieldEdit { name, value, is_default: false });
    }

    fn join(&mut self, name: &'r str, value: Vec<u8>) {
        // A list of cookies is not divided by commas (RFC 6265 §3).
        let is_list = !name.eq_ignore_ascii_case("set-cookie");
        let may_follow = |edit: &&mut FieldEdit<'_>| !edit.is_default && edit.name.eq_ignore_ascii_case(name);
        let earlier = self.edits.iter_mut().find(may_follow).filter(|_| is_list);
        match earlier.and_then(|edit| edit.value.as_mut()) {
            Some(values) => {
                values.extend_from_slice(b", ");
                values.extend_from_slice(&value);
            }
            None if is_list => self.put(name, Some(value)),
            None => self.edits.push(FieldEdit { name, value: Some(value), is_default: false }),
        }
    }

    /// Changes the head that begins at `start` and ends with `out`. The content of another path is not `immutable`, as
    /// a file at the path may appear. The content of a path with earlier content is `immutable` only if a rule says so.
    pub fn apply(&self, start: usize, content_of: ContentOf, out: &mut Vec<u8>) {
        let kind = ResponseKind::of(&out[start..]);
        out.truncate(out.len() - 2);
        for FieldEdit { name, value, is_default } in &self.edits {
            if !kind.may_have(name) {
                continue;
            }
            let mut value = value.as_deref();
            let is_immutable = value.is_some_and(|value| memchr::memmem::find(value, b"immutable").is_some());
            match content_of {
                ContentOf::OtherPath if is_immutable && is_for_caches(name) => continue,
                ContentOf::ReusedPath if is_immutable && *is_default => value = Some(&b"no-cache"[..]),
                _ => {}
            }
            // The server's own `Vary` is kept (RFC 9110 §12.5.5).
            if !name.eq_ignore_ascii_case("vary") && !name.eq_ignore_ascii_case("set-cookie") {
                while let Some((line_start, line_end)) = find_line(&out[start..], name.as_bytes()) {
                    out.drain(start + line_start..start + line_end);
                }
            }
            if let Some(value) = value {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b": ");
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
        }
        match self.privacy {
            Privacy::All => put_private(start, out),
            Privacy::File if kind.may_have(CACHE_CONTROL) => put_private(start, out),
            Privacy::File | Privacy::Shared => {}
        }
        out.extend_from_slice(b"\r\n");
    }
}

const CACHE_CONTROL: &str = "Cache-Control";

/// Replaces `Cache-Control` in the head that begins at `start`, unless it keeps the response from shared caches.
fn put_private(start: usize, out: &mut Vec<u8>) {
    let mut lines = Vec::new();
    while let Some((line_start, line_end)) = find_line(&out[start..], CACHE_CONTROL.as_bytes()) {
        lines.extend(out.drain(start + line_start..start + line_end));
    }
    let text = lines.to_ascii_lowercase();
    let is_private =
        [&b"private"[..], b"no-store"].iter().any(|directive| memchr::memmem::find(&text, directive).is_some());
    out.extend_from_slice(if is_private { &lines } else { b"Cache-Control: private, no-cache\r\n" });
}

impl ResponseKind {
    /// The kind, by the status in the head.
    fn of(head: &[u8]) -> ResponseKind {
        match head.get(b"HTTP/1.1 ".len()..).and_then(|rest| rest.get(..3)) {
            Some(b"200" | b"206") => ResponseKind::Content,
            Some(b"304") => ResponseKind::NotModified,
            _ => ResponseKind::Other,
        }
    }

    fn may_have(self, name: &str) -> bool {
        let has_prefix =
            |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        let is_of_content = has_prefix("content-") && !has_prefix("content-security-policy");
        match self {
            ResponseKind::Content => true,
            ResponseKind::NotModified => !is_of_content || name.eq_ignore_ascii_case("content-location"),
            ResponseKind::Other => !is_of_content && !is_for_caches(name),
        }
    }
}

/// Whether a field tells caches how long a response may be used.
fn is_for_caches(name: &str) -> bool {
    const CACHE_CONTROL: &[u8] = b"cache-control";
    let end = name.len().checked_sub(CACHE_CONTROL.len()).map(|start| &name.as_bytes()[start..]);
    name.eq_ignore_ascii_case("expires") || end.is_some_and(|end| end.eq_ignore_ascii_case(CACHE_CONTROL))
}

/// Start and end of the line of a field, with its CRLF.
fn find_line(head: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let mut start = memchr::memchr(b'\n', head)? + 1;
    while let Some(length) = memchr::memchr(b'\n', &head[start..]) {
        let line = &head[start..start + length];
        if line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name) {
            return Some((start, start + length + 1));
        }
        start += length + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nServer: s\r\nContent-Type: text/html\r\nVary: Accept-Encoding\r\n\
                        X-Content-Type-Options: nosniff\r\n\r\n";

    fn rule(fields: &[(&str, Option<&str>)], joins: bool) -> FieldRule {
        let pattern = Pattern::parse("/:file/*", &[]).expect("a pattern");
        let field = |&(name, value): &(&str, Option<&str>)| match value {
            None => Field::remove(name).expect("a field"),
            Some(value) if joins => Field::join(name, value, &pattern).expect("a field"),
            Some(value) => Field::set(name, value, &pattern).expect("a field"),
        };
        let fields = fields.iter().map(field).collect();
        FieldRule { pattern, fields }
    }

    fn apply(rules: &[FieldRule], head: &str) -> String {
        let request = crate::RequestPath {
            is_https: false,
            host: None,
            path: b"a\xff/b\"c",
            ends_with_slash: false,
            query: None,
        };
        let mut edits = FieldEdits::default();
        for rule in rules {
            let captures = rule.pattern.matches(&request).expect("a match");
            edits.add(rule, &captures);
        }
        let mut out = format!("before\r\n\r\n{head}").into_bytes();
        edits.apply(10, ContentOf::Path, &mut out);
        let out = String::from_utf8(out).expect("text");
        out.strip_prefix("before\r\n\r\n").expect("earlier output stays").to_owned()
    }

    #[test]
    fn field_replaces_that_of_the_server_or_takes_it_away() {
        let rules = [rule(
            &[("content-type", Some("text/plain")), ("X-Content-Type-Options", None), ("X-A", Some("1"))],
            false,
        )];
        let expected =
            "HTTP/1.1 200 OK\r\nServer: s\r\nVary: Accept-Encoding\r\ncontent-type: text/plain\r\nX-A: 1\r\n\r\n";
        assert_eq!(apply(&rules, HEAD), expected);
    }

    #[test]
    fn later_rule_replaces_joins_or_takes_away_the_field_of_an_earlier_one() {
        let of = |rules: &[FieldRule]| apply(rules, "HTTP/1.1 200 OK\r\n\r\n");
        let rules = [rule(&[("X-A", Some("1"))], false), rule(&[("x-a", Some("2"))], false)];
        assert_eq!(of(&rules), "HTTP/1.1 200 OK\r\nx-a: 2\r\n\r\n");
        let rules = [rule(&[("X-A", Some("1"))], true), rule(&[("x-a", Some("2"))], true)];
        assert_eq!(of(&rules), "HTTP/1.1 200 OK\r\nX-A: 1, 2\r\n\r\n");
        let rules = [rule(&[("X-A", Some("1"))], true), rule(&[("x-a", None)], true)];
        assert_eq!(of(&rules), "HTTP/1.1 200 OK\r\n\r\n");
        let rules = [rule(&[("Set-Cookie", Some("a=1"))], true), rule(&[("Set-Cookie", Some("b=2"))], true)];
        assert_eq!(of(&rules), "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n");
    }

    #[test]
    fn private_response_keeps_a_cache_control_that_says_so() {
        let check = |lines: &str, expected: &str| {
            let mut out = format!("HTTP/1.1 200 OK\r\n{lines}X: 1\r\n\r\n").into_bytes();
            let mut edits = FieldEdits::default();
            edits.set_private();
            edits.apply(0, ContentOf::Path, &mut out);
            assert_eq!(String::from_utf8(out), Ok(format!("HTTP/1.1 200 OK\r\nX: 1\r\n{expected}\r\n")), "{lines}");
        };
        let added = "Cache-Control: private, no-cache\r\n";
        check("", added);
        check("Cache-Control: public, max-age=60\r\n", added);
        check("Cache-Control: max-age=60\r\ncache-control: s-maxage=9\r\n", added);
        for own in ["Cache-Control: Private, max-age=60\r\n", "cache-control: no-store\r\n"] {
            check(own, own);
        }
    }

    #[test]
    fn vary_of_the_server_stays() {
        let rules = [rule(&[("Vary", Some("Cookie"))], false)];
        assert!(apply(&rules, HEAD).ends_with("X-Content-Type-Options: nosniff\r\nVary: Cookie\r\n\r\n"));
        assert!(apply(&rules, HEAD).contains("\r\nVary: Accept-Encoding\r\n"));
    }

    #[test]
    fn value_gets_what_the_pattern_names_without_bytes_that_no_field_has() {
        let rules = [rule(&[("X-A", Some("title \":splat\" of :file, :other https://a"))], false)];
        let expected = "X-A: title \"b%22c\" of a%FF, :other https://a\r\n\r\n";
        assert!(apply(&rules, HEAD).ends_with(expected), "{}", apply(&rules, HEAD));
    }

    #[test]
    fn fields_of_the_content_and_for_caches_are_not_those_of_an_error() {
        let fields = [
            ("Content-Type", Some("a/b")),
            ("Content-Language", Some("en")),
            ("Content-Location", Some("/a")),
            ("Content-Security-Policy", Some("x")),
            ("Cache-Control", Some("immutable")),
            ("CDN-Cache-Control", Some("immutable")),
            ("Expires", Some("0")),
            ("X-A", Some("1")),
        ];
        let rules = [rule(&fields, false)];
        let of = |status: &str| apply(&rules, &format!("HTTP/1.1 {status}\r\n\r\n"));
        for status in ["200 OK", "206 Partial Content"] {
            assert_eq!(of(status).lines().count(), 10, "{status}");
        }
        let head = of("304 Not Modified");
        assert_eq!(head.lines().count(), 8, "{head}");
        assert!(head.contains("Cache-Control") && head.contains("Content-Location") && head.contains("Expires"));
        for status in ["404 Not Found", "204 No Content", "301 Moved Permanently", "416 Range Not Satisfiable"] {
            let expected = format!("HTTP/1.1 {status}\r\nContent-Security-Policy: x\r\nX-A: 1\r\n\r\n");
            assert_eq!(of(status), expected);
        }
    }

    #[test]
    fn substitute_for_a_missing_file_is_not_immutable() {
        let mut edits = FieldEdits::default();
        edits.set("Cache-Control", b"max-age=1, immutable".to_vec());
        edits.set("X-A", b"immutable".to_vec());
        check_applied(&edits, ContentOf::Path, "Cache-Control: max-age=1, immutable\r\nX-A: immutable\r\n");
        check_applied(&edits, ContentOf::OtherPath, "X-A: immutable\r\n");
    }

    #[test]
    fn path_with_other_content_before_is_immutable_only_by_a_rule() {
        let immutable = "Cache-Control: max-age=1, immutable\r\n";
        let mut edits = FieldEdits::default();
        edits.set("Cache-Control", b"max-age=1, immutable".to_vec());
        check_applied(&edits, ContentOf::ReusedPath, immutable);
        edits.end_defaults();
        check_applied(&edits, ContentOf::ReusedPath, "Cache-Control: no-cache\r\n");
        check_applied(&edits, ContentOf::Path, immutable);
    }

    #[track_caller]
    fn check_applied(edits: &FieldEdits<'_>, content_of: ContentOf, expected: &str) {
        let mut out = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        edits.apply(0, content_of, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), format!("HTTP/1.1 200 OK\r\n{expected}\r\n"));
    }

    #[test]
    fn field_of_the_server_and_wrong_field_are_refused_with_a_remedy() {
        let pattern = Pattern::parse("/*", &[]).expect("a pattern");
        for name in ["Content-Length", "TRANSFER-ENCODING", "connection", "Date", "Location", "ETag", "Basic-Auth"] {
            let error = Field::set(name, "x", &pattern).expect_err(name);
            assert!(error.message.contains(name) && !error.remedy.is_empty(), "{error:?}");
            assert!(Field::remove(name).is_err() && Field::join(name, "x", &pattern).is_err());
        }
        for name in ["", "A B", "A:", "Ä", "A\r\nB"] {
            Field::set(name, "x", &pattern).expect_err(name);
        }
        for value in ["", " \t", "a\r\nB: c", "a\0", "a\x7f"] {
            Field::set("X-A", value, &pattern).expect_err(value);
        }
        assert!(Field::set("X-A", &"a".repeat(FIELD_VALUE_BYTES_MAX), &pattern).is_ok());
        assert!(Field::set("X-A", &"a".repeat(FIELD_VALUE_BYTES_MAX + 1), &pattern).is_err());
        assert!(Field::remove("Vary").is_err() && Field::remove("content-type").is_err());
    }
}
