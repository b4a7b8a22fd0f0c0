//! The effective configuration: each key with its value, and where the value comes from. It is written as TOML that
//! means the same.

use crate::config::Config;
use crate::config_file;
use crate::config_reader::{ConfigReader, Entry, entries};
use crate::config_source::ConfigSource;
use crate::config_text;
use crate::diagnostic::{Diagnostic, Location};
use crate::keys::{Key, Section, Value};
use crate::limits::LIMITS;
use crate::variables;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// A key whose default needs a certificate, without which the file must not have it.
const REDIRECT: &str = "https_redirect";

/// A section with its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSection {
    /// Its heading without brackets: `domain."example.com"`; empty at the top of the file.
    pub heading: String,
    /// Its keys: those of the file, then the defaults.
    pub keys: Vec<EffectiveKey>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveKey {
    /// The key; that of a table of the section with both names: `dnssec.nsec3`.
    pub key: String,
    /// The value as TOML.
    pub value: String,
    /// The file and the line; `None` for a default.
    pub origin: Option<(PathBuf, u32)>,
}

/// The sections of the configuration file at `path` and of those that it includes, and those that have defaults.
///
/// # Errors
/// The problems of the configuration.
pub fn effective_sections(path: &Path) -> Result<Vec<EffectiveSection>, Vec<Diagnostic>> {
    let source = ConfigSource::File(path.to_owned());
    let content = source.read()?;
    let config = source.parse(&content)?;
    let (files, variables) = config_text::split(path, &content);
    let mut reader = ConfigReader::new(&files, &variables);
    let text = config_file::joined(&files, &mut reader);
    let Some(root) = text.as_deref().and_then(|text| reader.parse(text, 0)) else {
        return Err(reader.into_diagnostics());
    };
    let mut listing = Listing { reader: &reader, config: &config, sections: Vec::new() };
    listing.add_top(&root);
    for (name, section, has_defaults) in [
        ("http", Section::Http, !config.sites.is_empty()),
        ("https", Section::Https, false),
        ("dns", Section::Dns, config.has_zones()),
        ("certificates", Section::Certificates, false),
        ("log", Section::Log, false),
        ("metrics", Section::Metrics, false),
    ] {
        match table_of(&root, name) {
            Some(table) => listing.add_section(name, section, table),
            None if has_defaults => {
                listing.begin(name);
                listing.add_defaults("", section, &[]);
            }
            None => {}
        }
    }
    for (name, section) in [("domain", Section::Domain), ("tsig", Section::Tsig), ("catalog", Section::Catalog)] {
        for entry in table_of(&root, name).into_iter().flat_map(|table| entries(table, "")) {
            if let DeValue::Table(table) = entry.value.get_ref() {
                listing.add_section(&format!("{name}.{}", quoted(entry.key)), section, table);
            }
        }
    }
    listing.add_limits(table_of(&root, "limits"));
    Ok(listing.sections)
}

/// The configuration as a file: a line for each key, with its origin as a comment.
pub fn effective_text(sections: &[EffectiveSection]) -> String {
    /// The column of comments, if the value leaves room.
    const COMMENT_COLUMN: usize = 44;
    let mut text = String::new();
    for EffectiveSection { heading, keys } in sections {
        if !heading.is_empty() {
            text += &format!("\n[{heading}]\n");
        }
        for EffectiveKey { key, value, origin } in keys {
            let origin = match origin {
                Some((file, line)) => format!("{}:{line}", file.display()),
                None => "default".to_owned(),
            };
            text += &format!("{:<COMMENT_COLUMN$}  # {origin}\n", format!("{key} = {value}"));
        }
    }
    text
}

fn table_of<'n, 't>(root: &'n DeTable<'t>, name: &str) -> Option<&'n DeTable<'t>> {
    root.get(name)?.get_ref().as_table()
}

struct Listing<'l> {
    reader: &'l ConfigReader<'l>,
    config: &'l Config,
    sections: Vec<EffectiveSection>,
}

impl Listing<'_> {
    fn begin(&mut self, heading: &str) {
        self.sections.push(EffectiveSection { heading: heading.to_owned(), keys: Vec::new() });
    }

    fn add_top(&mut self, root: &DeTable<'_>) {
        self.begin("");
        let mut present = Vec::new();
        // The included files are part of the listing.
        let own = entries(root, "").into_iter().filter(|entry| entry.key != "include");
        for entry in own.filter(|entry| !matches!(entry.value.get_ref(), DeValue::Table(_))) {
            present.push(entry.key);
            self.add(entry.key.to_owned(), text_of(entry.value.get_ref()), Some(entry));
        }
        if !present.contains(&"workers") {
            self.add("workers".to_owned(), self.config.worker_count.to_string(), None);
        }
        let state = self.config.state_folder(None).filter(|_| self.config.uses_state_folder());
        if let (Some(state), false) = (state, present.contains(&"state")) {
            self.add("state".to_owned(), quoted(&state.to_string_lossy()), None);
        }
        self.add_defaults("", Section::Top, &present);
    }

    fn add_section(&mut self, heading: &str, section: Section, table: &DeTable<'_>) {
        self.begin(heading);
        let mut present = Vec::new();
        for entry in entries(table, "") {
            present.push(entry.key);
            let nested = nested_section(section, entry.key);
            match (entry.value.get_ref(), nested) {
                (DeValue::Table(table), Some(nested)) => {
                    let keys: Vec<&str> = entries(table, "").iter().map(|entry| entry.key).collect();
                    for of_table in entries(table, "") {
                        let key = format!("{}.{}", entry.key, of_table.key);
                        self.add(key, text_of(of_table.value.get_ref()), Some(of_table));
                    }
                    self.add_defaults(&format!("{}.", entry.key), nested, &keys);
                }
                // `dnssec = true` is short for `dnssec = { signed = true }`.
                (DeValue::Boolean(signed), Some(nested)) => {
                    let prefix = format!("{}.", entry.key);
                    self.add(format!("{prefix}signed"), signed.to_string(), Some(entry));
                    if *signed {
                        self.add_defaults(&prefix, nested, &["signed"]);
                    }
                }
                (value, _) => self.add(entry.key.to_owned(), text_of(value), Some(entry)),
            }
        }
        // The defaults of a domain are those of its site.
        if section != Section::Domain || present.contains(&"site") {
            self.add_defaults("", section, &present);
        }
    }

    /// Adds the defaults of `section` without the keys that are `present`.
    fn add_defaults(&mut self, prefix: &str, section: Section, present: &[&str]) {
        for key in section.own_keys().filter(|key| !present.contains(&key.name)) {
            if let Some(default) = key.default_text() {
                self.add(format!("{prefix}{}", key.name), default, None);
            }
        }
    }

    fn add_limits(&mut self, table: Option<&DeTable<'_>>) {
        self.begin("limits");
        let entries = table.map(|table| entries(table, "")).unwrap_or_default();
        for limit in LIMITS {
            let entry = entries.iter().find(|entry| entry.key == limit.key || entry.key == limit.name());
            match entry {
                Some(entry) => {
                    self.add(entry.key.to_owned(), text_of(entry.value.get_ref()), Some(*entry));
                }
                None => self.add(limit.name(), limit.format(limit.default), None),
            }
        }
    }

    fn add(&mut self, key: String, value: String, entry: Option<Entry<'_, '_>>) {
        let origin = entry.and_then(|entry| match Location::from(self.reader.location(entry.offset)) {
            Location::Position { file, line, .. } => Some((file, line)),
            Location::File(_) | Location::Argument(_) => None,
        });
        let section = self.sections.last_mut().expect("a section has begun");
        section.keys.push(EffectiveKey { key, value, origin });
    }
}

/// The section with the keys of a table that is the value of a key.
fn nested_section(section: Section, key: &str) -> Option<Section> {
    match (section, key) {
        (Section::Domain, "dnssec") => Some(Section::Dnssec),
        (Section::Domain, "hsts") => Some(Section::Hsts),
        (Section::Domain, "mta_sts") => Some(Section::MtaSts),
        _ => None,
    }
}

impl Key {
    /// The value that the key has if the file does not have it, as TOML; `None` if it has none, or one that depends on
    /// the machine or on other keys.
    fn default_text(&self) -> Option<String> {
        match self.value {
            Value::Boolean(_) if self.name == REDIRECT => None,
            Value::Boolean(default) => Some(default.to_string()),
            Value::Number(..) | Value::Section | Value::Other => self.default.map(str::to_owned),
        }
    }
}

/// A value as TOML on one line.
fn text_of(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(&variables::escaped(text)),
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(datetime) => datetime.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| text_of(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            let entry = |entry: Entry<'_, '_>| format!("{} = {}", key_text(entry.key), text_of(entry.value.get_ref()));
            let entries: Vec<String> = entries(table, "").into_iter().map(entry).collect();
            format!("{{ {} }}", entries.join(", "))
        }
    }
}

fn key_text(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !key.is_empty() && key.bytes().all(is_bare) { key.to_owned() } else { quoted(key) }
}

/// A basic string (TOML 1.0).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted += &format!("\\u{:04X}", u32::from(control)),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::EXAMPLE;
    use std::fs;

    /// The keys of a file with `text`, whose listing means the same.
    #[track_caller]
    fn listed(text: &str) -> Vec<String> {
        let directory = tempfile::tempdir().expect("created");
        let file = directory.path().join("s.toml");
        let load = |text: &str| {
            fs::write(&file, text).expect("written");
            ConfigSource::File(file.clone()).load().unwrap_or_else(|problems| panic!("{text}\n{problems:#?}"))
        };
        let config = load(text);
        let sections = effective_sections(&file).expect("it has no problems");
        // Places are no part of it, and paths are those of the folder.
        let again = load(&effective_text(&sections));
        let [left, right] = [&config, &again].map(|config| format!("{config:#?}"));
        let difference = left.lines().zip(right.lines()).find(|(one, other)| {
            one != other && !["line: ", "column: "].iter().any(|place| one.trim().starts_with(place))
        });
        assert!(again == config, "{difference:?}\n{}", effective_text(&sections));
        lines(&sections)
    }

    /// `section key = value, line or 0`.
    fn lines(sections: &[EffectiveSection]) -> Vec<String> {
        let line = |heading: &str, key: &EffectiveKey| {
            let line = key.origin.as_ref().map_or(0, |(_, line)| *line);
            format!("{heading} {} = {}, {line}", key.key, key.value)
        };
        sections.iter().flat_map(|section| section.keys.iter().map(|key| line(&section.heading, key))).collect()
    }

    #[test]
    fn listing_of_all_keys_means_the_same_as_the_file() {
        // The files that it includes are not there.
        let text: String =
            EXAMPLE.lines().filter(|line| !line.starts_with("include")).map(|line| format!("{line}\n")).collect();
        listed(&text);
    }

    #[test]
    fn defaults_are_those_of_the_reader() {
        let text = "state = \"state\"\n[http]\n[https]\nlisten = [\"127.0.0.1:1\"]\n[dns]\n\
            [certificates]\nagree_to_terms = true\n[tsig.\"a\\u0062\"]\nsecret_file = \"k\"\n\
            [log]\naccess = \"$${A}.log\"\nqueries = \"q.log\"\nrotate = \"daily\"\n[metrics]\n\
            [domain.\"a.test\"]\nsite = \"p\"\nzone = \"z\"\ndnssec = true\nhsts = { max_age = \"1d\" }\n\
            derive = [\"mta-sts\"]\nmta_sts = { mx = [\"m.test\"] }\nredirects.\"/a b\" = \"/c\"\n\
            [domain.\"b.test\"]\nzone = \"z2\"\n";
        let keys = listed(text);
        for expected in [
            " listeners = \"auto\", 0",
            " state = \"state\", 1",
            "http listen = [\"127.0.0.1:8080\"], 0",
            "https listen = [\"127.0.0.1:1\"], 4",
            "certificates authorities = [\"letsencrypt\"], 0",
            "log access = \"$${A}.log\", 11",
            "log keep = 7, 0",
            "tsig.\"ab\" algorithm = \"hmac-sha256\", 0",
            "domain.\"a.test\" dnssec.signed = true, 18",
            "domain.\"a.test\" dnssec.algorithm = \"ecdsap256sha256\", 0",
            "domain.\"a.test\" mta_sts.mode = \"testing\", 0",
            "domain.\"a.test\" redirects = { \"/a b\" = \"/c\" }, 22",
            "domain.\"a.test\" clean_urls = false, 0",
            "limits drain_timeout = \"30s\", 0",
        ] {
            assert!(keys.iter().any(|key| key == expected), "{expected}\n{keys:#?}");
        }
        assert!(!keys.iter().any(|key| key.starts_with("domain.\"b.test\" clean_urls")), "it has no site: {keys:#?}");
    }

    #[test]
    fn keys_of_included_files_have_their_place() {
        let directory = tempfile::tempdir().expect("created");
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
        write("s.toml", "include = [\"d.toml\"]\n[limits]\ndrain_timeout_ms = 5\n");
        write("d.toml", "\n[domain.\"a.test\"]\nzone = \"z\"\n");
        let sections = effective_sections(&directory.path().join("s.toml")).expect("it has no problems");
        let keys = || sections.iter().flat_map(|section| &section.keys);
        let zone = keys().find(|key| key.key == "zone").expect("listed");
        assert_eq!(zone.origin, Some((directory.path().join("d.toml"), 3)));
        let limits: Vec<String> = lines(&sections).into_iter().filter(|line| line.contains("drain_timeout")).collect();
        assert_eq!(limits, ["limits drain_timeout_ms = 5, 3"]);
        assert!(keys().all(|key| key.key != "include"), "{sections:#?}");
        assert!(sections.iter().all(|section| section.heading != "http"), "there is no site: {sections:#?}");
        write("d.toml", "[domain.\"a.test\"]\nzzone = 1\n");
        let problems = effective_sections(&directory.path().join("s.toml")).expect_err("unknown key");
        assert!(problems[0].to_string().contains("unknown key `zzone`"), "{problems:#?}");
    }
}
