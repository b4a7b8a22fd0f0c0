//! The keys of a route that say which server of its application gets a request, and when a server counts as down.

use super::ConfigBuilder;
use crate::backend_address::Spoken;
use crate::config_reader::{Entry, Keys};
use crate::routes::{CHECK_INTERVAL_MS_DEFAULT, CHECK_INTERVAL_MS_MAX, CHECK_INTERVAL_MS_MIN, SLOW_START_MS_MAX};
use crate::units::Quantity;
use sanderling_site_rules::{Balance, ClientHeader, Distribution, HealthCheck, is_token};
use std::time::Duration;
use toml::de::DeValue;

/// The start of `balance` before the name of a cookie.
const COOKIE: &str = "cookie:";

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_distribution(
        &mut self,
        keys: &Keys<'_, '_>,
        spoken: Spoken,
        host: Option<&str>,
    ) -> Distribution {
        let client_header = match self.reader.boolean(keys, "proxy_protocol") {
            true => ClientHeader::ProxyV2,
            false => ClientHeader::None,
        };
        let errors_max = self.reader.count(keys, "errors_max").and_then(|count| u32::try_from(count).ok());
        let slow_start = keys.get("slow_start");
        let slow_start =
            slow_start.and_then(|entry| self.read_quantity(entry, Quantity::Duration, (0, SLOW_START_MS_MAX)));
        Distribution {
            balance: keys.get("balance").and_then(|entry| self.read_balance(entry)).unwrap_or_default(),
            client_header,
            errors_max,
            slow_start: Duration::from_millis(slow_start.unwrap_or_default()),
            check: self.read_check(keys, spoken, host),
        }
    }

    fn read_balance(&mut self, entry: Entry<'_, '_>) -> Option<Balance> {
        let (offset, text) = self.reader.string(entry)?;
        match (text, text.strip_prefix(COOKIE)) {
            ("least", _) => Some(Balance::Least),
            ("client", _) => Some(Balance::Client),
            (_, Some(name)) if is_token(name) => Some(Balance::Cookie(name.to_owned())),
            _ => {
                let message = format!("`{}` is not a way to choose a server", text.escape_debug());
                let remedy = "write \"least\" for the least loaded one, \"client\" for the same one for each client, or \
                              \"cookie:NAME\" for the one that a cookie names";
                self.error(offset, message, remedy);
                None
            }
        }
    }

    fn read_check(&mut self, keys: &Keys<'_, '_>, spoken: Spoken, host: Option<&str>) -> Option<HealthCheck> {
        let interval = keys.get("check_interval");
        let Some(entry) = keys.get("check") else {
            if let Some(interval) = interval {
                self.error(
                    interval.offset,
                    "`check_interval` has no effect without `check`",
                    "add check = \"/healthz\"",
                );
            }
            return None;
        };
        let path = match entry.value.get_ref() {
            DeValue::Boolean(true) => None,
            DeValue::Boolean(false) => return None,
            _ => Some(self.read_check_path(entry, spoken)?),
        };
        let range = (CHECK_INTERVAL_MS_MIN, CHECK_INTERVAL_MS_MAX);
        let interval = interval.and_then(|entry| self.read_quantity(entry, Quantity::Duration, range));
        let interval = Duration::from_millis(interval.unwrap_or(CHECK_INTERVAL_MS_DEFAULT));
        Some(HealthCheck { path, host: host.map(str::to_owned), interval })
    }

    fn read_check_path(&mut self, entry: Entry<'_, '_>, spoken: Spoken) -> Option<String> {
        let (offset, path) = self.reader.string(entry)?;
        if spoken == Spoken::FastCgi {
            let message = "`check` has a path, but FastCGI is checked by a connection";
            self.error(offset, message, "write check = true");
            return None;
        }
        // RFC 9112 §3.2.1.
        if !path.starts_with('/') || path.contains('#') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("`{}` is not the path of a request", path.escape_debug());
            self.error(offset, message, format!("write {}, or check = true for a connection only", entry.example));
            return None;
        }
        Some(path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file::tests::{check, config};

    fn with(action: &str, keys: &str) -> String {
        format!("[domain.\"example.com\"]\nsite = \"public\"\n[domain.\"example.com\".route.\"/\"]\n{action}\n{keys}\n")
    }

    const PROXY: &str = "proxy = \"http://127.0.0.1:3000\"";

    fn distribution(keys: &str) -> Distribution {
        let config = config(&with(PROXY, keys));
        config.backends().next().expect("a backend").distribution.clone()
    }

    #[test]
    fn route_without_these_keys_has_the_least_loaded_server_and_no_check() {
        let expected = Distribution {
            balance: Balance::Least,
            client_header: ClientHeader::None,
            errors_max: None,
            slow_start: Duration::ZERO,
            check: None,
        };
        assert_eq!(distribution(""), expected);
        assert_eq!(distribution("balance = \"least\"\ncheck = false\nproxy_protocol = false"), expected);
    }

    #[test]
    fn each_key_is_read() {
        let read = distribution(
            "balance = \"client\"\nproxy_protocol = true\nerrors_max = 5\nslow_start = \"30s\"\n\
             check = \"/healthz?full=1\"\ncheck_interval = \"2s\"\nhost = \"app.internal\"",
        );
        let check = HealthCheck {
            path: Some("/healthz?full=1".to_owned()),
            host: Some("app.internal".to_owned()),
            interval: Duration::from_secs(2),
        };
        let expected = Distribution {
            balance: Balance::Client,
            client_header: ClientHeader::ProxyV2,
            errors_max: Some(5),
            slow_start: Duration::from_secs(30),
            check: Some(check),
        };
        assert_eq!(read, expected);
        assert_eq!(distribution("balance = \"cookie:server\"").balance, Balance::Cookie("server".to_owned()));
        let of_connection = HealthCheck { path: None, host: None, interval: Duration::from_secs(5) };
        assert_eq!(distribution("check = true").check, Some(of_connection));
    }

    #[test]
    fn wrong_value_is_reported_with_a_remedy() {
        for (action, keys, expected) in [
            (
                PROXY,
                "balance = \"random\"",
                "5:11: `random` is not a way to choose a server; write \"least\" for the least loaded one, \"client\" \
                 for the same one for each client, or \"cookie:NAME\" for the one that a cookie names",
            ),
            (
                PROXY,
                "balance = \"cookie:a b\"",
                "5:11: `cookie:a b` is not a way to choose a server; write \"least\" for the least loaded one, \
                 \"client\" for the same one for each client, or \"cookie:NAME\" for the one that a cookie names",
            ),
            (PROXY, "errors_max = 0", "5:14: `errors_max` is out of range: 0; write 1 to 1000"),
            (PROXY, "slow_start = \"2h\"", "5:14: `slow_start` is out of range: \"2h\"; write \"0s\" to \"1h\""),
            (
                PROXY,
                "check = \"healthz\"",
                "5:9: `healthz` is not the path of a request; write check = \"/healthz\", or check = true for a \
                 connection only",
            ),
            (
                PROXY,
                "check = true\ncheck_interval = \"10ms\"",
                "6:18: `check_interval` is out of range: \"10ms\"; write \"100ms\" to \"1h\"",
            ),
            (
                PROXY,
                "check_interval = \"1s\"",
                "5:1: `check_interval` has no effect without `check`; add check = \"/healthz\"",
            ),
            (
                "fastcgi = \"127.0.0.1:9000\"",
                "check = \"/healthz\"",
                "5:9: `check` has a path, but FastCGI is checked by a connection; write check = true",
            ),
            (
                "fastcgi = \"127.0.0.1:9000\"",
                "proxy_protocol = true",
                "5:1: `proxy_protocol` has no effect with `fastcgi`; remove it",
            ),
            (
                "proxy = \"https://192.0.2.1\"",
                "proxy_protocol = true",
                "5:1: `proxy_protocol` cannot be used with TLS or HTTP/2 to the application; remove it: the \
                 application gets `X-Forwarded-For` and `Forwarded`",
            ),
        ] {
            check(&with(action, keys), &[expected]);
        }
    }
}
