//! The command `config`: prints the effective configuration.

use sanderling_config::log::{print, report};
use sanderling_config::{Exit, effective_sections, effective_text};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The configuration to print.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigListing {
    pub(crate) file: PathBuf,
    pub(crate) is_json: bool,
}

impl ConfigListing {
    /// Prints it, or its problems.
    pub(crate) fn run(&self) -> Exit {
        let sections = match effective_sections(&self.file) {
            Ok(sections) => sections,
            Err(problems) => {
                report(&problems);
                return Exit::Failure;
            }
        };
        if !self.is_json {
            print(&effective_text(&sections));
            return Exit::Success;
        }
        let keys = sections.iter().flat_map(|section| section.keys.iter().map(|key| (&section.heading, key)));
        let row = |(heading, key): (&String, &sanderling_config::EffectiveKey)| {
            let (file, line) = key.origin.as_ref().map(|(file, line)| (file.display().to_string(), *line)).unzip();
            json!({ "section": heading, "key": key.key, "value": key.value, "file": file, "line": line })
        };
        print(&format!("{}\n", Value::Array(keys.map(row).collect())));
        Exit::Success
    }
}
