//! Logs and limits, which all servers of nginx share here.

use super::Reader;
use crate::place::Place;
use crate::settings::{set_idle_timeout, set_limit};
use crate::sources::nginx::values::{log_format, seconds};
use crate::syntax::Statement;
use crate::toml_text::Value;

/// The largest rate and burst of requests of a client, which is as good as none.
const LIMIT_MAX: u64 = 1_000_000;

impl<'s> Reader<'s, '_> {
    pub(super) fn access_log(&mut self, statement: &'s Statement, place: &Place) {
        let path = statement.argument(0);
        let known = self.model.log.iter().find(|(key, _)| *key == "access").map(|(_, value)| value.clone());
        let target = match path {
            "off" if !place.is_whole() => return self.ledger.keep(statement),
            "off" => {
                let reason = "one log has the requests of all domains and paths";
                return self.ledger.differ(statement, reason, "remove `access` in [log] to log nothing");
            }
            path if path.starts_with("syslog:") => "syslog",
            path => path,
        };
        match known {
            Some(known) if known == Value::from(target) => self.ledger.keep(statement),
            Some(_) if !place.is_whole() || !self.model.log.is_empty() => {
                let nearest = "use a format with $host, and select the lines of a domain with grep or awk";
                self.ledger.miss(statement, "one log has the requests of all domains", nearest);
            }
            _ if target.contains('$') => self.ledger.miss(statement, "the path of the log is fixed", "write the path"),
            _ => {
                self.ledger.keep(statement);
                self.model.log.push(("access", target.into()));
                match log_format(statement.argument(1), self.shared) {
                    Ok(Some(format)) => self.model.log.push(("format", format.into())),
                    Ok(None) => {}
                    Err(variable) => {
                        let reason =
                            format!("a format cannot contain `${variable}`, so the log has the format `combined`");
                        self.ledger.differ(statement, reason, "set `format` in [log]");
                    }
                }
            }
        }
    }

    pub(super) fn limit(&mut self, statement: &'s Statement, place: &Place) {
        if !place.is_whole() && statement.name() != "keepalive_timeout" {
            return self.ledger.miss(statement, "a limit applies to all paths of the server", "set it in [limits]");
        }
        let (first, second) = (statement.argument(0), statement.argument(1));
        match statement.name() {
            "keepalive_timeout" => {
                set_idle_timeout(statement, seconds(first), "http_idle_timeout", 60, self.model, self.ledger);
            }
            "limit_conn" => {
                let key = "http_connections_per_client_max";
                set_limit(statement, second, key, 1..=1_000_000, self.model, self.ledger);
            }
            _ => self.limit_requests(statement),
        }
    }

    /// `limit_req zone=NAME burst=20`.
    fn limit_requests(&mut self, statement: &Statement) {
        let value =
            |name: &str| statement.texts().into_iter().find_map(|text| text.strip_prefix(name).map(str::to_owned));
        let nearest = "set `http_requests_per_second_max` in [limits]";
        let Some(rate) = value("zone=").and_then(|name| self.shared.rates.get(&name).copied()) else {
            return self.ledger.miss(statement, "the rate of the zone is unknown", nearest);
        };
        let burst = value("burst=").and_then(|burst| burst.parse().ok()).unwrap_or(1_u64).clamp(1, LIMIT_MAX);
        let is_set = self.model.set_limit("http_requests_per_second_max", Value::Number(rate.clamp(1, LIMIT_MAX)))
            && self.model.set_limit("http_requests_at_once_max", Value::Number(burst));
        if is_set {
            self.ledger.keep(statement);
        } else {
            self.ledger.miss(statement, "the limit has another value already", nearest);
        }
    }
}
