//! Patterns that are regular expressions: `~ ^/item-(?<id>[0-9]+)$`, and `~* \\.env$` for any case of letters.
//!
//! The crate `regex` matches in time that is linear in the path, whatever the expression is.

use super::{Captures, Names, RequestPath};
use crate::error::RuleError;
use regex::bytes::{Regex, RegexBuilder};
use std::borrow::Cow;

/// Memory of one compiled expression.
const COMPILED_BYTES_MAX: usize = 256 * 1024;

/// A regular expression for the path of a request, from its first slash on, decoded and normalized. It matches bytes;
/// its classes are those of ASCII.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    regex: Regex,
    ignores_case: bool,
}

/// Whether the text of a pattern is a regular expression.
pub(super) fn is_expression(text: &str) -> bool {
    text.starts_with('~')
}

impl Expression {
    /// Parses `~ EXPRESSION` or `~* EXPRESSION`. Its named groups are the placeholders of the pattern.
    pub(super) fn parse(text: &str, names: &mut Names) -> Result<Expression, RuleError> {
        let after = text.strip_prefix('~').unwrap_or(text);
        let (ignores_case, expression) = match after.strip_prefix('*') {
            Some(expression) => (true, expression.trim_start()),
            None => (false, after.trim_start()),
        };
        let mut builder = RegexBuilder::new(expression);
        builder.unicode(false).case_insensitive(ignores_case).size_limit(COMPILED_BYTES_MAX);
        let regex = builder.build().map_err(|error| problem(text, &error))?;
        for name in regex.capture_names().flatten() {
            names.add(text, name)?;
        }
        Ok(Expression { regex, ignores_case })
    }

    /// Adds the named groups to `captures`; `None` if the path does not match.
    pub(super) fn match_into(&self, request: &RequestPath<'_>, captures: &mut Captures<'_>) -> Option<()> {
        let slash: &[u8] = if request.ends_with_slash && !request.path.is_empty() { b"/" } else { b"" };
        let path = [b"/", request.path, slash].concat();
        if self.regex.captures_len() == 1 {
            return self.regex.is_match(&path).then_some(());
        }
        let found = self.regex.captures(&path)?;
        for name in self.regex.capture_names().flatten() {
            let value = found.name(name).map(|group| group.as_bytes().to_vec()).unwrap_or_default();
            captures.push(Cow::Owned(value));
        }
        Some(())
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        self.ignores_case == other.ignores_case && self.regex.as_str() == other.regex.as_str()
    }
}

impl Eq for Expression {}

fn problem(text: &str, error: &regex::Error) -> RuleError {
    let text = text.escape_debug();
    match error {
        regex::Error::CompiledTooBig(_) => {
            let message = format!("the regular expression `{text}` takes more than {COMPILED_BYTES_MAX} bytes");
            RuleError::new(message, "repeat less in it, or write several rules")
        }
        error => {
            let shown = error.to_string();
            let cause = shown.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let message = format!("the regular expression `{text}` is not valid: {cause}");
            RuleError::new(message, "write the syntax of RE2, which has no look-around and no back-references")
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pattern::{Pattern, RequestPath};

    /// Whether a request for `path` matches, and the first of the named groups.
    fn matched(pattern: &str, path: &str) -> Option<String> {
        let path = path.strip_prefix('/').expect("a path");
        let request = RequestPath {
            is_https: false,
            host: None,
            path: path.trim_end_matches('/').as_bytes(),
            ends_with_slash: path.is_empty() || path.ends_with('/'),
            query: None,
        };
        let captures = Pattern::parse(pattern, &[]).expect("a pattern").matches(&request)?;
        Some(String::from_utf8_lossy(captures.value(0)).into_owned())
    }

    #[test]
    fn expression_sees_the_path_with_its_slashes() {
        let check = |pattern: &str, path: &str, expected: Option<&str>| {
            assert_eq!(matched(pattern, path).as_deref(), expected, "{pattern} {path}");
        };
        check("~ ^/$", "/", Some(""));
        check("~ ^/a$", "/a", Some(""));
        check("~ ^/a$", "/a/", None);
        check("~^/a/$", "/a/", Some(""));
        check("~ \\.env", "/PROD.ENV", None);
        check("~* \\.env$", "/PROD.ENV", Some(""));
        check("~ ^/item-(?<id>[0-9]+)$", "/item-42", Some("42"));
        check("~ ^/(?<a>x)?y$", "/y", Some(""));
        check("~ ^/.$", "/\u{e9}", None);
    }

    #[test]
    fn wrong_and_large_expressions_are_refused() {
        let check = |pattern: &str, expected: &str| {
            let error = Pattern::parse(pattern, &[]).expect_err(pattern);
            assert!(format!("{}; {}", error.message, error.remedy).contains(expected), "{pattern}: {error:?}");
        };
        check("~ (a", "is not valid: unclosed group");
        check("~ a(?=b)", "is not valid: look-around");
        check("~ (?:a{1000}){1000}", "takes more than 262144 bytes");
        check("~ (?<splat>a)", "has the placeholder `:splat` twice, or `:splat`");
        check("^/old/(.*)$", "looks like a regular expression; write \"~ ^/old/(.*)$\" if it is one");
    }

    /// A back-tracking matcher would not end.
    #[test]
    fn time_is_linear() {
        let path = format!("/{}", "a".repeat(8_000));
        assert_eq!(matched("~ ^/(a+)+b$", &path), None);
        assert_eq!(matched("~ ^/(a|a?)+(a|aa)*c$", &path), None);
    }
}
