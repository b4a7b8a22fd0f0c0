//! Which keys each section of the file has, and which of them an unknown one was meant to be.

use super::limits::LIMITS;
use crate::diagnostic::Fault;

/// A section of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// Before the first `[section]`.
    Top,
    Http,
    Dns,
    /// `[domain."NAME"]`.
    Domain,
    Limits,
}

impl Section {
    const ALL: [Section; 5] = [Section::Top, Section::Http, Section::Dns, Section::Domain, Section::Limits];

    fn keys(self) -> Vec<&'static str> {
        match self {
            Section::Top => {
                vec!["workers", "listeners", "user", "group", "sandbox", "control", "http", "dns", "domain", "limits"]
            }
            Section::Http => vec!["listen", "default"],
            Section::Dns => vec!["listen"],
            Section::Domain => vec!["zone", "site", "aliases"],
            Section::Limits => LIMITS.iter().map(|limit| limit.key).collect(),
        }
    }

    /// Where the section is, for people.
    fn place(self) -> &'static str {
        match self {
            Section::Top => "at the top of the file, before the first [section]",
            Section::Http => "in [http]",
            Section::Dns => "in [dns]",
            Section::Domain => "in [domain.\"NAME\"]",
            Section::Limits => "in [limits]",
        }
    }

    pub(super) fn knows(self, key: &str) -> bool {
        self.keys().contains(&key)
    }

    /// What to tell about `key`, which this section does not know.
    pub(super) fn unknown(self, key: &str) -> Fault {
        let problem = match self {
            Section::Top => format!("unknown key `{key}`"),
            _ => format!("unknown key `{key}` {}", self.place()),
        };
        let elsewhere = || Section::ALL.into_iter().find(|section| section.knows(key));
        let remedy = if self == Section::Top && key.contains('.') {
            format!("a domain is written [domain.\"{key}\"]")
        } else if let Some(section) = elsewhere() {
            format!("`{key}` stands {}", section.place())
        } else if let Some(near) = nearest(key, &self.keys()) {
            format!("did you mean `{near}`?")
        } else {
            self.list()
        };
        Fault::new(problem, remedy)
    }

    fn list(self) -> String {
        match self {
            Section::Top => "there are `workers`, `listeners`, `user`, `group`, `sandbox`, `control`, [http], [dns], [domain.\"NAME\"] and [limits]"
                .to_owned(),
            Section::Limits => "`sanderling help check` lists the limits".to_owned(),
            _ => format!("there are `{}`", self.keys().join("`, `")),
        }
    }
}

/// The one of `known` that `key` was most likely meant to be, if any is near: a third of its letters may be wrong.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    /// Letters of the longest key that is compared, as comparing takes time in proportion to their square.
    const KEY_BYTES_MAX: usize = 64;
    if key.len() > KEY_BYTES_MAX {
        return None;
    }
    let distance = |known: &&str| strsim::damerau_levenshtein(&key.to_ascii_lowercase(), known);
    let near = known.iter().copied().min_by_key(distance)?;
    (distance(&near) <= near.len().max(3) / 3).then_some(near)
}
