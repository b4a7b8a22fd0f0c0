//! Finds the rules that a path may match, in their order, without trying all of them.

use crate::pattern::Pattern;
use std::collections::HashMap;

/// The positions of rules, by the common part of their patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Patterns of one path.
    exact: HashMap<Box<[u8]>, Vec<u32>>,
    /// Patterns whose first segment is text.
    by_first_segment: HashMap<Box<[u8]>, Vec<u32>>,
    /// All other patterns.
    others: Vec<u32>,
}

impl Index {
    pub(crate) fn new<'p>(patterns: impl Iterator<Item = &'p Pattern>) -> Index {
        Index::with_keys(patterns, |path| path)
    }

    /// The index for patterns with keys in place of paths and first segments.
    pub(crate) fn with_keys<'p>(patterns: impl Iterator<Item = &'p Pattern>, key_of: impl Fn(&[u8]) -> &[u8]) -> Index {
        let mut index = Index::default();
        for (position, pattern) in patterns.enumerate() {
            let list = match (pattern.exact_path(), pattern.first_segment()) {
                (Some(path), _) => index.exact.entry(key_of(&path).into()).or_default(),
                (None, Some(segment)) => index.by_first_segment.entry(key_of(segment).into()).or_default(),
                (None, None) => &mut index.others,
            };
            list.push(u32::try_from(position).unwrap_or(u32::MAX));
        }
        index
    }

    /// The positions of rules that may match `path`, ascending.
    #[inline]
    pub(crate) fn candidates(&self, path: &[u8]) -> Candidates<'_> {
        self.candidates_by(path, &path[..memchr::memchr(b'/', path).unwrap_or(path.len())])
    }

    /// The candidates by the keys of the path and of its first segment.
    #[inline]
    pub(crate) fn candidates_by(&self, path: &[u8], first: &[u8]) -> Candidates<'_> {
        Candidates {
            lists: [
                self.exact.get(path).map_or(&[], Vec::as_slice),
                self.by_first_segment.get(first).map_or(&[], Vec::as_slice),
                &self.others,
            ],
        }
    }
}

/// Merges ascending lists.
pub(crate) struct Candidates<'i> {
    lists: [&'i [u32]; 3],
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let list = self.lists.iter_mut().filter(|list| !list.is_empty()).min_by_key(|list| list[0])?;
        let (first, rest) = list.split_first()?;
        *list = rest;
        Some(*first as usize)
    }
}
