//! Changes of two configurations, at least one of each key, with the processes that a reload replaces for them.

/// A configuration with most keys.
const FULL: &str = include_str!("key_changes/full.toml");
/// A configuration without secrets, and without anything for the agent to do.
const SMALL: &str = include_str!("key_changes/small.toml");

/// A change of one key.
#[derive(Clone, Debug)]
pub struct KeyChange {
    /// The configuration before it.
    pub before: &'static str,
    /// The configuration after it.
    pub after: String,
    /// The section or table of the key, as the configuration names it: `Http`, `AuthRule`.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// The text that it brings.
    pub new: String,
    /// The processes that a reload replaces, of `server agent keeper`.
    pub replaced: &'static str,
}

/// All changes. A line of the files has `section | key | old text | new text | replaced processes`.
///
/// # Panics
/// Panics if a line has another form, or its old text is not in the configuration.
pub fn key_changes() -> Vec<KeyChange> {
    let files = [(FULL, include_str!("key_changes/of_full.txt")), (SMALL, include_str!("key_changes/of_small.txt"))];
    let of_file = |(before, lines): (&'static str, &'static str)| lines.lines().map(move |line| change(before, line));
    files.into_iter().flat_map(of_file).collect()
}

fn change(before: &'static str, line: &'static str) -> KeyChange {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [section, key, old, new, replaced] = columns[..] else { panic!("{line}: not five columns") };
    let [old, new] = [old, new].map(|text| text.replace("\\n", "\n"));
    assert!(before.contains(&old), "{line}: not in the configuration");
    KeyChange { before, after: before.replacen(&old, &new, 1), section, key, new, replaced }
}
