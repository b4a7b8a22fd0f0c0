//! Whether files whose name says that it changes with the content have done so: a name that had other content before is
//! not one of them, whatever it looks like. Called when such a file is opened.

use crate::site::sites::Site;
use sanderling_http::Validator;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

/// Names that are remembered. Of others it is not known.
const NAMES_MAX: usize = 16_384;

/// The first content of each name, by the hash of the site and the path. A site keeps its names over its releases.
#[derive(Debug, Default)]
pub(crate) struct KnownContents {
    hasher: RandomState,
    contents: Mutex<HashMap<u64, Content>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// So far always this one.
    One(Validator),
    Several,
}

impl KnownContents {
    /// Whether the file at `path`, whose content is this one now, has had other content before.
    pub(crate) fn has_changed(&self, site: &Site, path: &[u8], validator: Validator) -> bool {
        let name = self.hasher.hash_one((site.hosts.first(), path));
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        if contents.len() >= NAMES_MAX && !contents.contains_key(&name) {
            return false;
        }
        let known = contents.entry(name).or_insert(Content::One(validator));
        if *known != Content::One(validator) {
            *known = Content::Several;
        }
        *known == Content::Several
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::sites::{Root, SiteOptions};

    fn site(host: &str) -> Site {
        Site { id: 0, hosts: vec![host.to_owned()], root: Root::Unavailable, options: SiteOptions::default() }
    }

    #[test]
    fn name_with_other_content_before_has_changed_for_good() {
        let (known, site_a, site_b) = (KnownContents::default(), site("a"), site("b"));
        let [old, new] = [&b"old"[..], b"new"].map(Validator::of_content);
        for (site, path, validator, expected) in [
            (&site_a, "x", old, false),
            (&site_a, "x", old, false),
            (&site_b, "x", new, false),
            (&site_a, "y", new, false),
            (&site_a, "x", new, true),
            (&site_a, "x", new, true),
            (&site_a, "x", old, true),
            (&site_b, "x", new, false),
        ] {
            assert_eq!(known.has_changed(site, path.as_bytes(), validator), expected, "{path}");
        }
    }

    #[test]
    fn as_many_names_as_fit_are_known() {
        let (known, site) = (KnownContents::default(), site("a"));
        let [old, new] = [&b"old"[..], b"new"].map(Validator::of_content);
        for number in 0..=NAMES_MAX {
            assert!(!known.has_changed(&site, &number.to_le_bytes(), old));
        }
        assert!(known.has_changed(&site, &(NAMES_MAX - 1).to_le_bytes(), new));
        assert!(!known.has_changed(&site, &NAMES_MAX.to_le_bytes(), new));
    }
}
