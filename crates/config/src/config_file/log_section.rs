//! Reads the section `[log]`.

use super::ConfigBuilder;
use crate::access_log::{AccessLog, AccessLogTarget, Rotation, RotationTime};
use crate::config_reader::{Entry, entries};
use crate::keys::Section;
use crate::units::Quantity;
use sanderling_log_format::Format;
use std::sync::Arc;

const ACCESS_EXAMPLE: &str = "access = \"access.log\"";
const ROTATE_EXAMPLE: &str = "rotate = \"daily\" or rotate = \"100MiB\"";
/// Earlier files that are kept by default.
const KEEP_DEFAULT: u32 = 7;
const KEEP_MAX: u64 = 1000;
const ONE_OF_MAX: u64 = 1_000_000;
/// Bytes of the smallest size of a log file.
const ROTATE_SIZE_MIN: u64 = 1024;

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_log(&mut self, section: Entry<'_, '_>) -> Option<AccessLog> {
        let table = self.reader.table(section, "[log] on a line of its own")?;
        let (mut target, mut format, mut one_of, mut time, mut keep) = (None, None, 1, None, None);
        for entry in entries(table) {
            match entry.key {
                "access" => target = self.read_log_target(entry),
                "format" => format = self.read_format(entry),
                "one_of" => one_of = self.read_log_number(entry, ONE_OF_MAX, 100).unwrap_or(1),
                "rotate" => time = self.read_rotation_time(entry),
                "keep" => keep = self.read_log_number(entry, KEEP_MAX, KEEP_DEFAULT).map(|keep| (entry.offset, keep)),
                key => self.reader.error(entry.offset, Section::Log.unknown_key(key)),
            }
        }
        let Some((target, location)) = target else {
            if !table.contains_key("access") {
                self.error(section.offset, "[log] has no `access`", format!("write {ACCESS_EXAMPLE}"));
            }
            return None;
        };
        match (&time, keep) {
            (None, Some((offset, _))) if !table.contains_key("rotate") => {
                self.error(offset, "`keep` is set, but `rotate` is not", format!("write {ROTATE_EXAMPLE}"));
            }
            (Some((offset, _)), _) if !matches!(target, AccessLogTarget::File(_)) => {
                self.error(*offset, "only a file can be rotated", "remove `rotate`");
            }
            _ => {}
        }
        let keep = keep.map_or(KEEP_DEFAULT, |(_, keep)| keep);
        let rotation = time.map(|(_, time)| Rotation { time, keep });
        let format = Arc::new(format.or_else(|| Format::parse("combined").ok())?);
        Some(AccessLog { target, location, format, one_of, rotation })
    }

    fn read_log_target(&mut self, entry: Entry<'_, '_>) -> Option<(AccessLogTarget, crate::diagnostic::Location)> {
        let (path, location) = self.read_path(entry, ACCESS_EXAMPLE)?;
        let (_, text) = self.reader.string(entry, ACCESS_EXAMPLE)?;
        let target = match text {
            "stdout" => AccessLogTarget::Stdout,
            "syslog" => AccessLogTarget::Syslog,
            _ => AccessLogTarget::File(path),
        };
        Some((target, location))
    }

    fn read_format(&mut self, entry: Entry<'_, '_>) -> Option<Format> {
        let (offset, text) = self.reader.string(entry, "format = \"combined\"")?;
        match Format::parse(text) {
            Ok(format) => Some(format),
            Err(error) => {
                let names: Vec<&str> = Format::variables().map(|(name, _)| name).collect();
                let remedy = format!(
                    "write \"common\", \"combined\", \"json\", or a format with ${} or $http_NAME for a field",
                    names.join(", $")
                );
                self.error(offset, format!("`format` is not a log format: {error}"), remedy);
                None
            }
        }
    }

    fn read_log_number(&mut self, entry: Entry<'_, '_>, max: u64, example: u32) -> Option<u32> {
        u32::try_from(self.reader.number(entry, 1, max, example.into(), "")?).ok()
    }

    fn read_rotation_time(&mut self, entry: Entry<'_, '_>) -> Option<(usize, RotationTime)> {
        let (offset, text) = self.reader.string(entry, ROTATE_EXAMPLE)?;
        let size = Quantity::Size.parse(text).filter(|size| *size >= ROTATE_SIZE_MIN);
        let time = if text == "daily" { Some(RotationTime::Daily) } else { size.map(RotationTime::Size) };
        if time.is_none() {
            let message = format!("`rotate` must be \"daily\" or a size of at least 1 KiB, not {text:?}");
            self.error(offset, message, format!("write {ROTATE_EXAMPLE}"));
        }
        time.map(|time| (offset, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file::parse;
    use std::path::{Path, PathBuf};

    fn read(section: &str) -> Result<AccessLog, String> {
        let text = format!("[log]\n{section}\n[domain.\"example.com\"]\nzone = \"a.zone\"\n");
        let config = parse(Path::new("/etc/s.toml"), text.as_bytes());
        let text = |diagnostics: Vec<_>| diagnostics.iter().map(ToString::to_string).collect::<String>();
        config.map(|config| config.access_log.expect("a log")).map_err(text)
    }

    #[test]
    fn log_has_defaults() {
        let log = read("access = \"access.log\"").expect("valid");
        assert_eq!(log.target, AccessLogTarget::File(PathBuf::from("/etc/access.log")));
        assert_eq!((log.format.as_ref(), log.one_of), (&Format::parse("combined").expect("a preset"), 1));
        assert_eq!(log.rotation, None);
        assert_eq!(read("access = \"stdout\"").expect("valid").target, AccessLogTarget::Stdout);
        assert_eq!(read("access = \"syslog\"").expect("valid").target, AccessLogTarget::Syslog);
    }

    #[test]
    fn rotation_is_by_day_or_size() {
        for (keys, expected) in [
            ("rotate = \"daily\"", Rotation { time: RotationTime::Daily, keep: 7 }),
            ("rotate = \"1GiB\"\nkeep = 3", Rotation { time: RotationTime::Size(1 << 30), keep: 3 }),
        ] {
            let log = read(&format!("access = \"a\"\n{keys}")).expect("valid");
            assert_eq!(log.rotation, Some(expected));
        }
    }

    #[test]
    fn mistakes_are_reported_with_a_remedy() {
        for (keys, expected) in [
            ("format = \"json\"", "[log] has no `access`"),
            ("access = \"a\"\nformat = \"$statuss\"", "there is no variable $statuss"),
            ("access = \"a\"\nformat = \"combined \"", "neither a preset nor contains a variable"),
            (
                "access = \"a\"\nrotate = \"100MB\"",
                "`rotate` must be \"daily\" or a size of at least 1 KiB, not \"100MB\"",
            ),
            ("access = \"a\"\nrotate = \"0MiB\"", "`rotate` must be"),
            ("access = \"a\"\nkeep = 3", "`keep` is set, but `rotate` is not"),
            ("access = \"stdout\"\nrotate = \"daily\"", "only a file can be rotated"),
            ("access = \"a\"\none_of = 0", "`one_of` is out of range: 0; write 1 to 1000000"),
            ("acess = \"a\"", "did you mean `access`?"),
        ] {
            let message = read(keys).expect_err(keys);
            assert!(message.contains(expected), "{keys}: {message}");
        }
    }
}
