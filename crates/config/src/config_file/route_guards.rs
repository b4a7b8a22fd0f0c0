//! The keys of a route that restrict its requests: an authenticator, and a limit for each client.

use super::ConfigBuilder;
use crate::backend_address::{Spoken, parse_backend_address};
use crate::config_reader::{Entry, Keys};
use crate::routes::{
    FORWARD_AUTH_FIELDS_MAX, FORWARD_AUTH_TARGET_BYTES_MAX, FORWARD_AUTH_TIMEOUT_MS, REQUESTS_AT_ONCE_DEFAULT,
    proxy_route,
};
use sanderling_site_rules::{ForwardAuth, Pattern, RouteRate, is_connection_field, is_token};
use std::sync::Arc;

/// The keys of which a route without an answer of its own has one.
pub(super) const KEYS: [&str; 2] = ["forward_auth", "requests_per_second_max"];

impl ConfigBuilder<'_, '_> {
    /// Reads `forward_auth` and `forward_auth_fields` of the route `rule`.
    pub(super) fn read_forward_auth(
        &mut self,
        rule: Entry<'_, '_>,
        keys: &Keys<'_, '_>,
        pattern: &Pattern,
    ) -> Option<Box<ForwardAuth>> {
        let fields = keys.get("forward_auth_fields").map(|entry| self.read_auth_fields(entry, keys));
        let Some(entry) = keys.get("forward_auth") else {
            if let Some(entry) = keys.get("forward_auth_fields") {
                self.error(entry.offset, "`forward_auth_fields` has no effect without `forward_auth`", "remove it");
            }
            return None;
        };
        let (offset, text) = self.reader.string(entry)?;
        let (address, target) = divide(text);
        let is_sent = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if !target.bytes().all(is_sent) || target.len() > FORWARD_AUTH_TARGET_BYTES_MAX {
            let message = format!("`{}` has no valid path", text.escape_debug());
            self.error(offset, message, format!("write {}", entry.example));
            return None;
        }
        match parse_backend_address(address, Spoken::Http) {
            Ok(server) => {
                let route = proxy_route(rule.key, pattern.clone(), server, FORWARD_AUTH_TIMEOUT_MS);
                let (route, target) = (Arc::new(route), target.to_owned());
                Some(Box::new(ForwardAuth { route, target, fields: fields.unwrap_or_default() }))
            }
            Err(problem) => {
                self.reader.error(offset, problem);
                None
            }
        }
    }

    fn read_auth_fields(&mut self, entry: Entry<'_, '_>, keys: &Keys<'_, '_>) -> Vec<String> {
        let edited: Vec<&str> = match keys.get("request_headers") {
            Some(section) => self.reader.entries(section).into_iter().map(|edit| edit.key).collect(),
            None => Vec::new(),
        };
        let mut fields: Vec<String> = Vec::new();
        for (offset, name) in self.reader.strings(entry) {
            let is_same = |other: &str| other.eq_ignore_ascii_case(name);
            let problem = if !is_token(name) {
                Some(("is not the name of a field", "write letters, digits and hyphens"))
            } else if is_connection_field(name) {
                Some(("cannot be changed by a route", "remove it"))
            } else if fields.iter().any(|other| is_same(other)) {
                Some(("is listed twice", "remove one of the two"))
            } else if edited.iter().any(|other| is_same(other)) {
                Some(("is in `request_headers` too", "remove one of the two"))
            } else {
                None
            };
            match problem {
                Some((problem, remedy)) => self.error(offset, format!("`{}` {problem}", name.escape_debug()), remedy),
                None => fields.push(name.to_owned()),
            }
        }
        if fields.len() > FORWARD_AUTH_FIELDS_MAX {
            let message = format!("`forward_auth_fields` has {} names", fields.len());
            self.error(entry.value.span().start, message, format!("list at most {FORWARD_AUTH_FIELDS_MAX}"));
        }
        fields
    }

    /// Reads the requests that each client may make.
    pub(super) fn read_route_rate(&mut self, keys: &Keys<'_, '_>) -> Option<RouteRate> {
        let per_second_max = self.reader.count(keys, "requests_per_second_max");
        let at_once_max = self.reader.count(keys, "requests_at_once_max").unwrap_or(REQUESTS_AT_ONCE_DEFAULT);
        if let (Some(entry), None) = (keys.get("requests_at_once_max"), keys.get("requests_per_second_max")) {
            let message = "`requests_at_once_max` has no effect without `requests_per_second_max`";
            self.error(entry.offset, message, "add requests_per_second_max = 5, or remove it");
        }
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Some(RouteRate { per_second_max: number(per_second_max?), at_once_max: number(at_once_max) })
    }
}

/// The address and the path of `http://127.0.0.1:9091/auth?x`, or of `unix:/run/auth.sock:/auth`.
fn divide(text: &str) -> (&str, &str) {
    let start = match text.strip_prefix("unix:") {
        Some(_) => {
            return text
                .rfind(":/")
                .filter(|&at| at > "unix".len())
                .map_or((text, "/"), |at| (&text[..at], &text[at + 1..]));
        }
        None => text.find("://").map_or(0, |at| at + "://".len()),
    };
    text[start..].find(['/', '?']).map_or((text, "/"), |at| text.split_at(start + at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file::tests::{check, config};
    use sanderling_site_rules::{Route, RouteAction};
    use std::time::Duration;

    fn with(keys: &str) -> String {
        format!("[domain.\"example.com\"]\nsite = \"public\"\n[domain.\"example.com\".route.\"/a/\"]\n{keys}\n")
    }

    fn route(keys: &str) -> Route {
        config(&with(keys)).sites[0].options.rules.routes[0].route.clone()
    }

    #[test]
    fn authenticator_is_read_with_its_path_and_fields() {
        let check = |url: &str, address: &str, target: &str| {
            let keys =
                format!("proxy = \"127.0.0.1:1\"\nforward_auth = \"{url}\"\nforward_auth_fields = [\"Remote-User\"]");
            let auth = route(&keys).forward_auth.expect("an authenticator");
            let RouteAction::Pass(pass) = &auth.route.action else { panic!("{auth:?}") };
            assert_eq!((pass.backend.servers[0].address.to_string().as_str(), auth.target.as_str()), (address, target));
            assert_eq!(pass.timeout, Duration::from_secs(10));
            assert_eq!(auth.fields, ["Remote-User"]);
        };
        check("http://127.0.0.1:9091/api/authz/forward-auth", "127.0.0.1:9091", "/api/authz/forward-auth");
        check("http://127.0.0.1:4180/oauth2/auth?allowed_groups=a", "127.0.0.1:4180", "/oauth2/auth?allowed_groups=a");
        check("127.0.0.1:9091", "127.0.0.1:9091", "/");
        check("unix:/run/auth.sock:/auth", "unix:/run/auth.sock", "/auth");
        check("unix:/run/auth.sock", "unix:/run/auth.sock", "/");
        let tls = |address: &str| {
            let auth = route(&format!("forward_auth = \"{address}\"")).forward_auth.expect("an authenticator");
            auth.route.backends().any(|backend| backend.tls.is_some())
        };
        assert!(tls("https://auth.internal/verify") && !tls("http://auth.internal/verify"));
        let text = with("proxy = \"127.0.0.1:1\"\nforward_auth = \"127.0.0.1:2\"");
        assert_eq!(config(&text).backend_ports().into_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn route_with_a_guard_needs_no_answer_of_its_own() {
        let guarded = route("forward_auth = \"127.0.0.1:2/auth\"");
        assert_eq!((guarded.action, guarded.rate), (RouteAction::File, None));
        let limited = route("requests_per_second_max = 5");
        let rate = RouteRate { per_second_max: 5, at_once_max: 100 };
        assert_eq!((limited.action, limited.rate), (RouteAction::File, Some(rate)));
    }

    #[test]
    fn wrong_guard_is_refused() {
        let auth = "forward_auth = \"127.0.0.1:2/auth\"\n";
        for (keys, expected) in [
            (
                "forward_auth = \"127.0.0.1:2/a b\"".to_owned(),
                "4:16: `127.0.0.1:2/a b` has no valid path; write forward_auth = \
                \"http://127.0.0.1:9091/api/authz/forward-auth\"",
            ),
            (
                format!("{auth}forward_auth_fields = [\"a b\"]"),
                "5:24: `a b` is not the name of a field; write letters, \
                digits and hyphens",
            ),
            (format!("{auth}forward_auth_fields = [\"Host\"]"), "5:24: `Host` cannot be changed by a route; remove it"),
            (format!("{auth}forward_auth_fields = [\"A\", \"a\"]"), "5:29: `a` is listed twice; remove one of the two"),
            (
                format!(
                    "{auth}proxy = \"127.0.0.1:1\"\nrequest_headers = {{ A = \"b\" }}\nforward_auth_fields = [\"a\"]"
                ),
                "7:24: `a` is in `request_headers` too; remove one of the two",
            ),
            (
                format!("{auth}files_first = true"),
                "5:1: `files_first` has no effect without `proxy` or another answer; \
                remove it, or add the answer",
            ),
            (
                "respond = { status = 204 }\nforward_auth_fields = [\"A\"]".to_owned(),
                "5:1: `forward_auth_fields` has no \
                effect without `forward_auth`; remove it",
            ),
            (
                "respond = { status = 204 }\nrequests_at_once_max = 1".to_owned(),
                "5:1: `requests_at_once_max` has no effect \
                without `requests_per_second_max`; add requests_per_second_max = 5, or remove it",
            ),
            (
                "requests_per_second_max = 0".to_owned(),
                "4:27: `requests_per_second_max` is out of range: 0; write 1 to 1000000",
            ),
        ] {
            check(&with(&keys), &[expected]);
        }
    }
}
