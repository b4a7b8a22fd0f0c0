//! The section `[metrics]`.

use super::ConfigBuilder;
use crate::config::Metrics;
use crate::config_reader::Entry;
use crate::keys::Section;
use crate::service::Service;

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_metrics(&mut self, section: Entry<'_, '_>) {
        let Some(keys) = self.reader.keys(section, Section::Metrics) else { return };
        let mut metrics = Metrics { listen: Vec::new(), location: self.reader.location(section.offset) };
        if let Some(entry) = keys.get("listen") {
            metrics.listen = self.read_listen(entry, Service::Metrics);
            metrics.location = self.reader.location(entry.offset);
        }
        self.config.metrics = Some(metrics);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config_file::parse;
    use std::path::Path;

    fn read(section: &str) -> Result<Config, String> {
        let text = format!("{section}\n[domain.\"example.com\"]\nzone = \"a.zone\"\n");
        let text_of = |diagnostics: Vec<_>| diagnostics.iter().map(ToString::to_string).collect::<String>();
        parse(Path::new("/etc/s.toml"), text.as_bytes()).map_err(text_of)
    }

    #[test]
    fn section_alone_has_no_address() {
        assert_eq!(read("").expect("valid").metrics, None);
        let metrics = read("[metrics]").expect("valid").metrics.expect("the section");
        assert!(metrics.listen.is_empty() && metrics.risks().next().is_none());
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (section, expected) in [
            ("[metrics]\nlisten = 9180", "/etc/s.toml:2:10"),
            ("[metrics]\nlisten = [\"9180\"]", "invalid address `9180`"),
            ("[metrics]\nlisten = []", "`listen` is empty"),
            ("[metrics]\nlistn = []", "did you mean `listen`?"),
            ("metrics = true", "[metrics] on a line of its own"),
            (
                "[dns]\nlisten = [\"127.0.0.1:53\"]\n[metrics]\nlisten = [\"127.0.0.1:53\"]",
                "127.0.0.1:53 is listed for both DNS and metrics",
            ),
        ] {
            let message = read(section).expect_err(section);
            assert!(message.contains(expected), "{section}: {message}");
        }
    }

    #[test]
    fn addresses_that_other_networks_may_reach_are_a_risk() {
        let check = |address: &str, is_risk: bool| {
            let config = read(&format!("[metrics]\nlisten = [\"{address}\"]")).expect("valid");
            let risks: Vec<String> =
                config.metrics.expect("the section").risks().map(|risk| risk.to_string()).collect();
            assert_eq!(risks.len(), usize::from(is_risk), "{address}: {risks:?}");
            assert!(risks.iter().all(|risk| risk.contains("/etc/s.toml:2:1") && risk.contains(address)), "{risks:?}");
        };
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "10.0.0.1:1", "172.16.0.1:1", "192.168.1.1:1"] {
            check(address, false);
        }
        for address in ["169.254.1.1:1", "100.64.0.1:1", "[fd00::1]:1", "[fe80::1]:1"] {
            check(address, false);
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "172.32.0.1:1", "100.128.0.1:1", "[2001:db8::1]:1"] {
            check(address, true);
        }
    }
}
