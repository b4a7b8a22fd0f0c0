//! `if` of nginx: the conditions that a rule can have.

use crate::syntax::Statement;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// The request is for this host.
    Host(String),
    /// The request is for another host than this one.
    OtherHost(String),
    /// The request is not encrypted.
    Unencrypted,
    /// No file has the path.
    Missing,
    /// The request has this method.
    MethodIs(String),
    /// The method is not one of a list.
    Method,
    /// None of these.
    Unknown,
}

/// The condition of a statement `if (…)`.
pub(super) fn condition(statement: &Statement) -> Condition {
    let text = statement.texts().join(" ");
    let inner = text.trim_start_matches('(').trim_end_matches(')').trim();
    let words: Vec<&str> = inner.split_whitespace().collect();
    match words[..] {
        ["$host" | "$http_host", "=", host] => Condition::Host(host.trim_matches(['"', '\'']).to_owned()),
        ["$host" | "$http_host", "!=", host] => Condition::OtherHost(host.trim_matches(['"', '\'']).to_owned()),
        ["$host" | "$http_host", "~" | "~*", expression] => match plain_host(expression) {
            Some(host) => Condition::Host(host),
            None => Condition::Unknown,
        },
        ["$scheme", "=", "http"] | ["$scheme", "!=", "https"] | ["$https", "=", ""] | ["$https", "!=", "on"] => {
            Condition::Unencrypted
        }
        ["!-e" | "!-f" | "!-d", "$request_filename"] => Condition::Missing,
        ["$request_method", "=", method] => Condition::MethodIs(method.trim_matches(['"', '\'']).to_ascii_uppercase()),
        ["$request_method", "!~" | "!~*", _] => Condition::Method,
        _ => Condition::Unknown,
    }
}

/// The host that an expression such as `^www\.example\.com$` matches.
fn plain_host(expression: &str) -> Option<String> {
    let inner = expression.strip_prefix('^')?;
    let inner = inner.strip_suffix('$').unwrap_or(inner).replace("\\.", ".");
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    inner.bytes().all(is_host_byte).then_some(inner)
}
