//! Reads the section `[limits]`.

use super::ConfigBuilder;
use crate::config_reader::{Entry, entries};
use crate::keys::Section;
use crate::limits::{self, Limit, UNLIMITED};
use crate::units::Quantity;
use toml::de::{DeTable, DeValue};

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_limits(&mut self, section: Entry<'_, '_>) {
        let Some(table) = self.reader.table(section) else { return };
        // The limits that are set, each with its key's offset.
        let mut offsets: Vec<(&'static str, usize)> = Vec::new();
        for entry in entries(table, "") {
            let Some((limit, has_unit)) = limits::find(entry.key) else {
                self.reader.error(entry.offset, Section::Limits.unknown_key("", entry.key));
                continue;
            };
            if let Some(&(_, earlier)) = offsets.iter().find(|(key, _)| *key == limit.key) {
                self.error_of_two(entry.offset, format!("`{}` sets a limit that is already set", entry.key), earlier);
            }
            offsets.push((limit.key, entry.offset));
            if let Some(value) = self.read_limit(entry, limit, has_unit) {
                limit.set(&mut self.config.limits, value);
            }
        }
        self.check_target_limit(table);
    }

    /// The value of `entry`, the key of `limit`; the unit is in the key or in the value.
    fn read_limit(&mut self, entry: Entry<'_, '_>, limit: &Limit, has_unit: bool) -> Option<u64> {
        let or = if limit.may_be_unlimited { " or \"unlimited\"" } else { "" };
        let key_without_unit = limit.key_without_unit().unwrap_or_default();
        let example = format!("{} = {}", entry.key, limit.default);
        let entry = entry.with_example(&example);
        match (entry.value.get_ref(), limit.quantity()) {
            (DeValue::String(text), _) if limit.may_be_unlimited && text == "unlimited" => Some(UNLIMITED),
            (DeValue::String(text), Some(quantity)) => {
                let value = quantity.parse(text);
                if !has_unit && value.is_none() {
                    return self.reader.number(entry, limit.min, limit.max, or);
                }
                if has_unit && value.is_some_and(|value| (limit.min..=limit.max).contains(&value)) {
                    return value;
                }
                let (message, remedy) = match value {
                    Some(_) if has_unit => (format!("`{}` is out of range: {text:?}", entry.key), limit.range()),
                    Some(_) => (
                        format!("`{}` takes a number without a unit", entry.key),
                        format!("{key_without_unit} = {text:?}"),
                    ),
                    None => {
                        let units = quantity.unit_names();
                        (format!("{text:?} is not an integer with one of the units {units}"), limit.range())
                    }
                };
                self.error(entry.value.span().start, message, format!("write {remedy}{or}"));
                None
            }
            (_, Some(_)) if has_unit => {
                let message = format!("`{}` needs a unit", entry.key);
                let remedy = format!("write {} = {}{or}", entry.key, limit.format(limit.default));
                self.error(entry.value.span().start, message, remedy);
                None
            }
            _ => self.reader.number(entry, limit.min, limit.max, or),
        }
    }

    fn check_target_limit(&mut self, table: &DeTable<'_>) {
        const KEYS: [&str; 2] = ["http_target_bytes_max", "http_head_bytes_max"];
        let values = [self.config.limits.http_target_bytes_max, self.config.limits.http_head_bytes_max];
        let is_set = |key: &str| limits::find(key).is_some_and(|(limit, _)| KEYS.contains(&limit.key));
        let last_set = entries(table, "").into_iter().rfind(|entry| is_set(entry.key));
        if let (Some(entry), true) = (last_set, values[0] >= values[1]) {
            let names = KEYS.map(|key| key.replace("_bytes", ""));
            let shown = |index: usize| {
                let is_this =
                    |entry: &Entry<'_, '_>| limits::find(entry.key).is_some_and(|(limit, _)| limit.key == KEYS[index]);
                let default = if entries(table, "").iter().any(is_this) { "" } else { ", the default" };
                format!("`{}` ({}{default})", names[index], Quantity::Size.format(values[index] as u64))
            };
            let message = format!("{} must be less than {}, which includes it", shown(0), shown(1));
            self.error(entry.offset, message, format!("raise `{}` or lower `{}`", names[1], names[0]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_before_domain, config};

    fn with_limits(limits: &str) -> String {
        format!("[domain.\"a.example\"]\nsite = \"public\"\n[limits]\n{limits}")
    }

    #[test]
    fn limits_are_numbers_or_have_a_unit() {
        let limits = config(&with_limits(
            "http_idle_timeout = \"2min\"\nhttp_head_max = \"32 KiB\"\nhttp_header_deadline_ms = 5000\ndrain_timeout = \"unlimited\"",
        ))
        .limits;
        assert_eq!((limits.http_idle_timeout_ms, limits.http_head_bytes_max), (120_000, 32 << 10));
        assert_eq!((limits.http_header_deadline_ms, limits.drain_timeout_ms), (5_000, u64::MAX));
    }

    #[test]
    fn mistakes_in_units_are_reported_with_a_remedy() {
        for (line, expected) in [
            ("http_idle_timeout = 60", "2:21: `http_idle_timeout` needs a unit; write http_idle_timeout = \"1min\""),
            (
                "http_idle_timeout = \"1ms\"",
                "2:21: `http_idle_timeout` is out of range: \"1ms\"; write \"100ms\" to \"1h\"",
            ),
            (
                "http_head_max = \"99999999999TiB\"",
                "2:17: `http_head_max` is out of range: \"99999999999TiB\"; write \"1KiB\" to \"1MiB\"",
            ),
            (
                "http_head_max = \"16KB\"",
                "2:17: \"16KB\" is not an integer with one of the units B, KiB, MiB, GiB or TiB; write \"1KiB\" to \
                 \"1MiB\"",
            ),
            (
                "drain_timeout_ms = \"30s\"",
                "2:20: `drain_timeout_ms` takes a number without a unit; write drain_timeout = \"30s\" or \
                 \"unlimited\"",
            ),
            (
                "http_idle_timeout_ms = \"60\"",
                "2:24: `http_idle_timeout_ms` must be an integer, not the string \"60\"; write http_idle_timeout_ms = \
                 60000",
            ),
            (
                "http_head_max = \"16KiB\"\nhttp_head_bytes_max = 16384",
                "3:1: `http_head_bytes_max` sets a limit that is already set; remove one of the two; the other is on line 2",
            ),
            (
                "http_idle_timeot = \"1min\"",
                "2:1: unknown key `http_idle_timeot` in [limits]; did you mean `http_idle_timeout`?",
            ),
        ] {
            check_before_domain(&format!("[limits]\n{line}"), &[expected]);
        }
    }
}
