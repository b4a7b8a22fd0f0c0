//! The paths of a block of rules, and the order in which the other server selects it.

use crate::regex::PathPattern;

/// When a place is selected: the lowest one that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    Exact,
    /// The longest first, by its distance from the longest possible length.
    Preferred(usize),
    /// In the order of the file.
    Expression(usize),
    Prefix(usize),
    Whole,
    /// The rest.
    Missing,
}

/// The paths of a block.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) patterns: Vec<PathPattern>,
    pub(crate) order: Order,
    /// Whether the patterns match further paths.
    pub(crate) is_wider: bool,
}

impl Place {
    /// All paths.
    pub(crate) fn whole() -> Place {
        let pattern = PathPattern { text: "/*".to_owned(), captures: vec!["/:splat".to_owned()] };
        Place { patterns: vec![pattern], order: Order::Whole, is_wider: false }
    }

    /// The paths of this pattern.
    pub(crate) fn of(text: String, order: Order) -> Place {
        Place { patterns: vec![PathPattern { text, captures: Vec::new() }], order, is_wider: false }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.order == Order::Whole
    }
}

/// The path that a pattern matches, as a destination writes it.
pub(crate) fn whole_path(pattern: &str) -> String {
    let path = pattern.find("://").and_then(|at| pattern[at + 3..].find('/').map(|slash| &pattern[at + 3 + slash..]));
    path.unwrap_or(pattern).replace('*', ":splat")
}
