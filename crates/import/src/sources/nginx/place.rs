//! The paths of a `location`, and the order in which nginx selects it.

use crate::place::{Order, Place};
use crate::regex;
use crate::syntax::Statement;

/// The kind of a location.
pub(super) enum Location {
    Place(Place),
    /// `@name`, which others refer to.
    Named,
    /// Files whose names begin with a dot.
    Hidden,
    /// An expression without a pattern, or no path.
    Unknown,
}

/// The location of a statement, the one with this index in its block.
pub(super) fn location(statement: &Statement, index: usize) -> Location {
    let (modifier, path) = match statement.arguments.len() {
        1 => ("", statement.argument(0)),
        _ => (statement.argument(0), statement.argument(1)),
    };
    // A modifier may be written together with its path.
    let (modifier, path) = match (modifier, path.strip_prefix('=')) {
        ("", Some(path)) => ("=", path),
        other => (other.0, path),
    };
    let prefix = |order: fn(usize) -> Order| {
        let text =
            if path.contains(['*', ':']) { path.replace('*', "%2A").replace(':', "%3A") } else { path.to_owned() };
        let order = order(usize::MAX - path.len());
        Location::Place(Place::of(format!("{text}*"), order))
    };
    match modifier {
        "" if path.starts_with('@') => Location::Named,
        "" | "=" | "^~" if !path.starts_with('/') => Location::Unknown,
        "" | "^~" if path == "/" => Location::Place(Place::whole()),
        "=" => Location::Place(Place::of(path.to_owned(), Order::Exact)),
        "^~" => prefix(Order::Preferred),
        "" => prefix(Order::Prefix),
        _ if path.starts_with("/\\.") && !path.starts_with("/\\.well-known") => Location::Hidden,
        _ if path.starts_with("^/\\.") && !path.contains("well-known") => Location::Hidden,
        _ => match regex::patterns(path) {
            Some(found) => Location::Place(Place {
                patterns: found.patterns,
                order: Order::Expression(index),
                is_wider: found.is_wider,
            }),
            None => Location::Unknown,
        },
    }
}
