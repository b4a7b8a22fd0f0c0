//! Reads the section `[log]`.

use super::ConfigBuilder;
use crate::config_reader::{Entry, Keys};
use crate::keys::Section;
use crate::request_log::{Dnstap, LogOutput, LogTarget, RequestLog, Rotation, RotationTime};
use crate::units::Quantity;
use sanderling_log_format::{Format, LogKind, Variable};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const ROTATE_EXAMPLE: &str = "rotate = \"daily\" or rotate = \"100MiB\"";
/// The number of rotated files that are kept by default.
const KEEP_DEFAULT: u32 = 7;
/// Bytes of a log file that is rotated by its size.
const ROTATE_SIZES: RangeInclusive<u64> = 1 << 10..=1 << 40;

/// The keys of one log of requests.
struct LogKeys {
    target: &'static str,
    format: &'static str,
    default_format: &'static str,
    one_of: &'static str,
}

const ACCESS: LogKeys = LogKeys { target: "access", format: "format", default_format: "combined", one_of: "one_of" };
const QUERIES: LogKeys =
    LogKeys { target: "queries", format: "queries_format", default_format: "text", one_of: "queries_one_of" };

const IDENTITY_BYTES_MAX: usize = 255;

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_log(&mut self, section: Entry<'_, '_>) {
        let Some(keys) = self.reader.keys(section, Section::Log) else { return };
        let [access, queries, dnstap] = ["access", "queries", "dnstap"].map(|key| keys.get(key));
        if access.is_none() && queries.is_none() && dnstap.is_none() {
            let remedy = "write access = \"access.log\", queries = \"queries.log\" or dnstap = { socket = \
                          \"/run/dnstap.sock\" }";
            self.error(section.offset, "[log] has none of `access`, `queries` and `dnstap`", remedy);
            return;
        }
        self.config.dnstap = dnstap.and_then(|entry| self.read_dnstap(entry));
        let rotation = self.read_rotation(&keys);
        self.config.access_log = self.read_request_log(&keys, &ACCESS, rotation);
        self.config.query_log = self.read_request_log(&keys, &QUERIES, rotation);
        let is_file = |output: &LogOutput| matches!(output.target, LogTarget::File(_));
        let outputs = [LogKind::Access, LogKind::Queries].into_iter().filter_map(|kind| self.config.log_output(kind));
        let outputs: Vec<&LogOutput> = outputs.collect();
        let has_file = outputs.iter().any(|output| is_file(output));
        let has_one_file = matches!(outputs[..], [one, other] if is_file(one) && one.target == other.target);
        if let (false, Some(rotate)) = (has_file || outputs.is_empty(), keys.get("rotate")) {
            self.error(rotate.offset, "only a file can be rotated", "remove `rotate`");
        }
        if let (true, Some(queries)) = (has_one_file, queries) {
            self.error(queries.offset, "both logs use the same file", format!("write {}", queries.example));
        }
        for [log, other] in [[LogKind::Access, LogKind::Queries], [LogKind::Queries, LogKind::Access]] {
            let [Some(log), Some(other)] = [log, other].map(|kind| self.config.log_output(kind)) else { continue };
            if let (true, Some(queries)) = (is_earlier_file(log, other), queries) {
                let message = "one log has a name that `rotate` would use for a rotated file of the other";
                self.error(queries.offset, message, format!("write {}", queries.example));
            }
        }
    }

    fn read_request_log<V: Variable>(
        &mut self,
        keys: &Keys<'_, '_>,
        names: &LogKeys,
        rotation: Option<Rotation>,
    ) -> Option<RequestLog<V>> {
        let [target, format, one_of_entry] = [names.target, names.format, names.one_of].map(|key| keys.get(key));
        let Some(target) = target else {
            if let Some(entry) = format.or(one_of_entry) {
                let message = format!("`{}` is set, but `{}` is not", entry.key, names.target);
                self.error(entry.offset, message, format!("write {} = \"{}.log\"", names.target, names.target));
            }
            return None;
        };
        let (path, location) = self.read_path(Some(target))?;
        let (_, text) = self.reader.string(target)?;
        let target = match text {
            // These are links in containers, and the supervisor follows no links.
            "stdout" | "/dev/stdout" => LogTarget::Stdout,
            "/dev/stderr" => LogTarget::Stderr,
            "syslog" => LogTarget::Syslog,
            _ => LogTarget::File(path),
        };
        let format = match format {
            Some(entry) => self.read_format(entry)?,
            None => Format::parse(names.default_format).expect("a preset"),
        };
        let one_of = self.read_log_number(keys, names.one_of).unwrap_or(1);
        let rotation = rotation.filter(|_| matches!(target, LogTarget::File(_)));
        Some(RequestLog { output: LogOutput { target, location, rotation }, format: Arc::new(format), one_of })
    }

    fn read_dnstap(&mut self, section: Entry<'_, '_>) -> Option<Dnstap> {
        let keys = self.reader.keys(section, Section::Dnstap)?;
        let socket = self.read_path(keys.get("socket"));
        let messages = keys.get("messages").map(|entry| self.read_dnstap_messages(entry));
        let identity = keys.get("identity").and_then(|entry| self.reader.string(entry));
        if let Some((offset, text)) = identity.filter(|(_, text)| !(1..=IDENTITY_BYTES_MAX).contains(&text.len())) {
            let message = format!("`identity` has {} bytes", text.len());
            self.error(offset, message, format!("write 1 to {IDENTITY_BYTES_MAX} bytes, or remove the key"));
        }
        let identity = identity.map(|(_, text)| text.to_owned());
        let Some((path, location)) = socket else {
            self.error(section.offset, "`socket` missing in `dnstap`", format!("write {}", section.example));
            return None;
        };
        let (queries, replies) = messages.unwrap_or((true, true));
        let output = LogOutput { target: LogTarget::Dnstap(path), location, rotation: None };
        Some(Dnstap { output, queries, replies, identity })
    }

    /// Whether queries are passed on, and whether replies are.
    fn read_dnstap_messages(&mut self, entry: Entry<'_, '_>) -> (bool, bool) {
        let (mut queries, mut replies) = (false, false);
        for (offset, text) in self.reader.strings(entry) {
            match text {
                "query" => queries = true,
                "response" => replies = true,
                _ => {
                    self.error(
                        offset,
                        format!("{text:?} is not a kind of message"),
                        format!("write {}", entry.example),
                    );
                }
            }
        }
        if !queries && !replies && !self.reader.has_problems() {
            self.error(entry.offset, "`messages` is empty", format!("write {}, or remove the key", entry.example));
        }
        (queries, replies)
    }

    fn read_format<V: Variable>(&mut self, entry: Entry<'_, '_>) -> Option<Format<V>> {
        let (offset, text) = self.reader.string(entry)?;
        Format::parse(text)
            .map_err(|error| {
                let presets: Vec<&str> = Format::<V>::preset_names().collect();
                let variables: Vec<&str> = Format::<V>::variable_names().collect();
                let remedy =
                    format!("write \"{}\", or a format with ${}", presets.join("\", \""), variables.join(", $"));
                self.error(offset, format!("`{}` is not a log format: {error}", entry.key), remedy);
            })
            .ok()
    }

    fn read_rotation(&mut self, keys: &Keys<'_, '_>) -> Option<Rotation> {
        let keep = self.read_log_number(keys, "keep");
        let Some(rotate) = keys.get("rotate") else {
            if let Some(entry) = keys.get("keep") {
                self.error(entry.offset, "`keep` is set, but `rotate` is not", format!("write {ROTATE_EXAMPLE}"));
            }
            return None;
        };
        let time = self.read_rotation_time(rotate)?;
        Some(Rotation { time, keep: keep.unwrap_or(KEEP_DEFAULT) })
    }

    fn read_log_number(&mut self, keys: &Keys<'_, '_>, name: &str) -> Option<u32> {
        u32::try_from(self.reader.count(keys, name)?).ok()
    }

    fn read_rotation_time(&mut self, entry: Entry<'_, '_>) -> Option<RotationTime> {
        let (offset, text) = self.reader.string(entry)?;
        let size = Quantity::Size.parse(text).filter(|size| ROTATE_SIZES.contains(size));
        let time = if text == "daily" { Some(RotationTime::Daily) } else { size.map(RotationTime::Size) };
        if time.is_none() {
            let message = format!("`rotate` must be \"daily\" or a size from \"1KiB\" to \"1TiB\", not {text:?}");
            self.error(offset, message, format!("write {ROTATE_EXAMPLE}"));
        }
        time
    }
}

/// Whether the file of `log` would have the name of a rotated file of `other`: `access.log.1` or `access.log.1.gz`.
fn is_earlier_file(log: &LogOutput, other: &LogOutput) -> bool {
    let (LogTarget::File(log), LogTarget::File(rotated), Some(_)) = (&log.target, &other.target, other.rotation) else {
        return false;
    };
    let suffix = log.as_os_str().as_bytes().strip_prefix(rotated.as_os_str().as_bytes());
    let Some(number) = suffix.and_then(|suffix| suffix.strip_prefix(b".")) else { return false };
    let number = number.strip_suffix(b".gz").unwrap_or(number);
    !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config_file::parse;
    use crate::request_log::AccessLog;
    use sanderling_log_format::{AccessFormat, QueryFormat};
    use std::path::{Path, PathBuf};

    fn read(section: &str) -> Result<Config, String> {
        let text = format!("[log]\n{section}\n[domain.\"example.com\"]\nzone = \"a.zone\"\n");
        let config = parse(Path::new("/etc/s.toml"), text.as_bytes());
        let text = |diagnostics: Vec<_>| diagnostics.iter().map(ToString::to_string).collect::<String>();
        config.map_err(text)
    }

    fn access_log(section: &str) -> AccessLog {
        read(section).expect("valid").access_log.expect("a log")
    }

    #[test]
    fn log_has_defaults() {
        let log = access_log("access = \"access.log\"");
        assert_eq!(log.output.target, LogTarget::File(PathBuf::from("/etc/access.log")));
        assert_eq!((log.format.as_ref(), log.one_of), (&AccessFormat::parse("combined").expect("a preset"), 1));
        assert_eq!(log.output.rotation, None);
        assert_eq!(access_log("access = \"stdout\"").output.target, LogTarget::Stdout);
        assert_eq!(access_log("access = \"/dev/stdout\"").output.target, LogTarget::Stdout);
        assert_eq!(access_log("access = \"/dev/stderr\"").output.target, LogTarget::Stderr);
        assert_eq!(access_log("access = \"syslog\"").output.target, LogTarget::Syslog);
    }

    #[test]
    fn queries_have_a_log_of_their_own() {
        let config = read("queries = \"queries.log\"\nrotate = \"daily\"").expect("valid");
        assert_eq!(config.access_log, None);
        let log = config.query_log.expect("a log");
        assert_eq!((log.format.as_ref(), log.one_of), (&QueryFormat::parse("text").expect("a preset"), 1));
        assert_eq!(log.output.rotation, Some(Rotation { time: RotationTime::Daily, keep: 7 }));
        let config = read("access = \"a\"\nqueries = \"stdout\"\nrotate = \"daily\"").expect("valid");
        assert_eq!(config.query_log.expect("a log").output.rotation, None);
        assert!(read("access = \"a.log\"\nqueries = \"a.log.1\"").is_ok());
        assert!(read("access = \"a.log\"\nqueries = \"a.log.dns\"\nrotate = \"daily\"").is_ok());
    }

    #[test]
    fn dnstap_has_all_messages_by_default() {
        let dnstap = |keys: &str| read(&format!("dnstap = {{ {keys} }}")).expect("valid").dnstap.expect("dnstap");
        let target = LogTarget::Dnstap(PathBuf::from("/etc/tap.sock"));
        let all = dnstap("socket = \"tap.sock\"");
        assert_eq!((all.output.target, all.queries, all.replies, all.identity), (target, true, true, None));
        let replies = dnstap("socket = \"/tap\", messages = [\"response\"], identity = \"ns1\"");
        assert_eq!((replies.queries, replies.replies, replies.identity.as_deref()), (false, true, Some("ns1")));
    }

    #[test]
    fn rotation_is_by_day_or_size() {
        for (keys, expected) in [
            ("rotate = \"daily\"", Rotation { time: RotationTime::Daily, keep: 7 }),
            ("rotate = \"1GiB\"\nkeep = 3", Rotation { time: RotationTime::Size(1 << 30), keep: 3 }),
        ] {
            let log = access_log(&format!("access = \"a\"\n{keys}"));
            assert_eq!(log.output.rotation, Some(expected));
        }
    }

    #[test]
    fn mistakes_are_reported_with_a_remedy() {
        for (keys, expected) in [
            ("rotate = \"daily\"", "[log] has none of `access`, `queries` and `dnstap`"),
            ("dnstap = \"/run/dnstap.sock\"", "`dnstap` must be a table"),
            ("dnstap = { identity = \"a\" }", "`socket` missing in `dnstap`; write dnstap = { socket = "),
            ("dnstap = { socket = \"\" }", "`socket` is empty"),
            (
                "dnstap = { socket = \"a\", messages = [] }",
                "`messages` is empty; write messages = [\"query\", \"response\"]",
            ),
            (
                "dnstap = { socket = \"a\", messages = [\"queries\"] }",
                "\"queries\" is not a kind of message; write messages = ",
            ),
            ("dnstap = { socket = \"a\", identity = \"\" }", "`identity` has 0 bytes; write 1 to 255 bytes"),
            ("dnstap = { socket = \"a\", name = \"b\" }", "unknown key `name` in `dnstap`; the keys are `socket`"),
            ("queries = \"q\"\nformat = \"json\"", "`format` is set, but `access` is not"),
            ("access = \"a\"\nqueries_one_of = 2", "`queries_one_of` is set, but `queries` is not"),
            ("access = \"a\"\nqueries = \"a\"", "both logs use the same file; write queries = \"queries.log\""),
            (
                "access = \"a.log\"\nqueries = \"a.log.1\"\nrotate = \"1KiB\"",
                "a name that `rotate` would use for a rotated file of the other; write queries = \"queries.log\"",
            ),
            (
                "access = \"q.log.12.gz\"\nqueries = \"q.log\"\nrotate = \"daily\"",
                "a name that `rotate` would use for a rotated file of the other",
            ),
            ("queries = \"q\"\nqueries_format = \"combined\"", "`queries_format` is not a log format"),
            (
                "queries = \"q\"\nqueries_format = \"$status\"",
                "there is no variable $status; write \"text\", \"json\", or",
            ),
            ("access = \"a\"\nformat = \"$statuss\"", "there is no variable $statuss"),
            ("access = \"a\"\nformat = \"combined \"", "not a preset and contains no variable"),
            (
                "access = \"a\"\nrotate = \"100MB\"",
                "`rotate` must be \"daily\" or a size from \"1KiB\" to \"1TiB\", not \"100MB\"",
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
