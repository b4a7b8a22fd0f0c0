//! The key of a domain for routes: the requests that an application answers, or a fixed response.

use super::ConfigBuilder;
use crate::backend_address::{ServerAddress, Spoken, parse_backend_address};
use crate::config_reader::{Entry, Keys};
use crate::keys::Section;
use crate::routes::{
    CONNECT_TIMEOUT_MS_DEFAULT, CONNECT_TIMEOUT_MS_MAX, CONNECTIONS_DEFAULT, FASTCGI_IDLE_TIMEOUT_MS_DEFAULT,
    IDLE_TIMEOUT_MS_DEFAULT, IDLE_TIMEOUT_MS_MAX, REQUEST_BODY_BYTES_DEFAULT, REQUEST_BODY_BYTES_MAX,
    RESPONSE_TEXT_BYTES_MAX, ROUTES_MAX, SERVERS_MAX, SiteRoute, TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX, route_pattern,
};
use crate::units::Quantity;
use sanderling_site_rules::{
    Backend, BackendProtocol, BackendRoute, BackendServer, ClientHeader, FIELD_VALUE_BYTES_MAX, FastCgiOptions,
    Pattern, Route, RouteAction, RouteConditions, is_connection_field, is_token,
};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toml::de::DeValue;

/// The keys that are the answer of a route; it has one of them.
const ACTIONS: [&str; 3] = ["proxy", "fastcgi", "respond"];
/// The keys that only some answers have.
const OF_ACTION: &[(&str, &[&str])] = &[
    ("protocol", &["proxy"]),
    ("strip_prefix", &["proxy"]),
    ("front_controller", &["fastcgi"]),
    ("host", &["proxy", "fastcgi"]),
    ("request_headers", &["proxy", "fastcgi"]),
    ("response_headers", &["proxy", "fastcgi"]),
    ("compress", &["proxy", "fastcgi"]),
    ("early_hints_http1", &["proxy"]),
    ("request_body_max", &["proxy", "fastcgi"]),
    ("timeout", &["proxy", "fastcgi"]),
    ("connect_timeout", &["proxy", "fastcgi"]),
    ("idle_timeout", &["proxy", "fastcgi"]),
    ("connections_max", &["proxy", "fastcgi"]),
    ("proxy_protocol", &["proxy"]),
    ("balance", &["proxy", "fastcgi"]),
    ("errors_max", &["proxy", "fastcgi"]),
    ("slow_start", &["proxy", "fastcgi"]),
    ("check", &["proxy", "fastcgi"]),
    ("check_interval", &["proxy", "fastcgi"]),
    ("tls_name", &["proxy"]),
    ("tls_roots", &["proxy"]),
    ("tls_certificate", &["proxy"]),
    ("tls_key", &["proxy"]),
    ("tls_verify", &["proxy"]),
];
/// The script for paths without one, unless the route has another.
const FRONT_CONTROLLER: &str = "index.php";

impl ConfigBuilder<'_, '_> {
    /// Reads `route` of a domain, which has files if `has_site`.
    pub(super) fn read_routes(&mut self, section: Entry<'_, '_>, has_site: bool) -> Vec<SiteRoute> {
        let mut routes = Vec::new();
        for rule in self.reader.entries(section) {
            let Some(pattern) = self.read_route_pattern(rule) else { continue };
            let items = match rule.value.get_ref() {
                DeValue::Array(items) => items.iter().map(|item| (item.span().start, item)).collect(),
                _ => vec![(rule.offset, rule.value)],
            };
            for (offset, item) in items {
                let rule = Entry { offset, ..rule.item(item) };
                routes.extend(self.read_route(rule, pattern.clone(), has_site));
            }
        }
        if routes.len() > ROUTES_MAX {
            let message = format!("the site has {} routes, and may have {ROUTES_MAX}", routes.len());
            self.error(section.offset, message, "remove some, or write patterns for several paths");
        }
        routes
    }

    /// `/api/` is all below it.
    fn read_route_pattern(&mut self, rule: Entry<'_, '_>) -> Option<Pattern> {
        let text = rule.key;
        match route_pattern(text) {
            Ok(pattern) if pattern.has_host() => {
                let message = format!("the path `{text}` is for a single host");
                self.error(rule.offset, message, "write it without the host, in the section of that domain");
                None
            }
            Ok(pattern) => Some(pattern),
            Err(error) => {
                self.rule_error(rule.offset, error);
                None
            }
        }
    }

    fn read_route(&mut self, rule: Entry<'_, '_>, pattern: Pattern, has_site: bool) -> Option<SiteRoute> {
        let problem_count = self.reader.problem_count();
        let keys = self.reader.keys(rule, Section::Route)?;
        let action = self.read_action(rule, &keys, &pattern, has_site);
        let conditions = self.read_conditions(&keys);
        let forward_auth = self.read_forward_auth(rule, &keys, &pattern);
        let rate = self.read_route_rate(&keys);
        // A FastCGI application is a folder with scripts and other files: a script is never sent as a file.
        let files_first = match keys.get("files_first") {
            None => keys.get("fastcgi").is_some(),
            Some(_) => self.reader.boolean(&keys, "files_first"),
        };
        if let (Some(entry), true, false) = (keys.get("files_first"), files_first, has_site) {
            let remedy = "add site = \"FOLDER\" to the domain, or remove `files_first`";
            self.error(entry.offset, "`files_first` needs files, but the domain has no site", remedy);
        }
        let is_read = self.reader.problem_count() == problem_count;
        let (name, action) = (rule.key.to_owned(), action?);
        let route = Route { name, pattern, conditions, files_first, forward_auth, rate, action };
        is_read.then(|| SiteRoute { route, location: self.reader.location(rule.offset) })
    }

    fn read_action(
        &mut self,
        rule: Entry<'_, '_>,
        keys: &Keys<'_, '_>,
        pattern: &Pattern,
        has_site: bool,
    ) -> Option<RouteAction> {
        let mut actions = ACTIONS.iter().filter_map(|name| keys.get(name));
        let Some(action) = actions.next() else {
            if super::route_guards::KEYS.iter().any(|name| keys.get(name).is_some()) {
                self.check_local_route(keys);
                return Some(RouteAction::File);
            }
            // An unknown key is probably the missing one, misspelt.
            if !keys.has_unknown {
                let message = format!("the route `{}` has none of `proxy`, `fastcgi` and `respond`", rule.key);
                self.error(rule.offset, message, "add one, for example proxy = \"http://127.0.0.1:3000\"");
            }
            return None;
        };
        if let Some(other) = actions.next() {
            let message = format!("the route `{}` has both `{}` and `{}`", rule.key, action.key, other.key);
            self.error(other.offset, message, "remove one of the two; a list in `proxy` has several servers");
            return None;
        }
        for (name, of) in OF_ACTION {
            if let (Some(entry), false) = (keys.get(name), of.contains(&action.key)) {
                self.error(entry.offset, format!("`{name}` has no effect with `{}`", action.key), "remove it");
            }
        }
        match action.key {
            "respond" => self.read_respond(action),
            "fastcgi" => {
                if !has_site {
                    let remedy = "add site = \"FOLDER\", the folder with the scripts";
                    self.error(action.offset, "`fastcgi` needs a document root, but the domain has no site", remedy);
                }
                let front_controller = self.read_front_controller(keys);
                let protocol = BackendProtocol::FastCgi(FastCgiOptions { root: PathBuf::new(), front_controller });
                self.read_pass(action, keys, pattern, (protocol, Spoken::FastCgi))
            }
            _ => {
                let protocol = keys.get("protocol").and_then(|entry| self.read_protocol(entry));
                self.read_pass(action, keys, pattern, (protocol.unwrap_or(BackendProtocol::Http1), Spoken::Http))
            }
        }
    }

    /// A route that only guards or limits what its paths have without it.
    fn check_local_route(&mut self, keys: &Keys<'_, '_>) {
        for name in OF_ACTION.iter().map(|(name, _)| *name).chain(["files_first"]) {
            if let Some(entry) = keys.get(name) {
                let message = format!("`{name}` has no effect without `proxy` or another answer");
                self.error(entry.offset, message, "remove it, or add the answer");
            }
        }
    }

    fn read_pass(
        &mut self,
        action: Entry<'_, '_>,
        keys: &Keys<'_, '_>,
        pattern: &Pattern,
        (protocol, spoken): (BackendProtocol, Spoken),
    ) -> Option<RouteAction> {
        let (servers, is_encrypted) = self.read_servers(action, spoken);
        let strip_prefix = self.reader.boolean(keys, "strip_prefix");
        if let (Some(entry), true, false) = (keys.get("strip_prefix"), strip_prefix, pattern.is_prefix()) {
            let remedy = "end the path of the route with a slash, or remove `strip_prefix`";
            self.error(entry.offset, "`strip_prefix` needs a route for all paths below one", remedy);
        }
        let host = keys.get("host").and_then(|entry| self.read_host(entry));
        let tls = match spoken {
            Spoken::Http => self.read_backend_tls(keys, is_encrypted, host.as_deref()),
            Spoken::FastCgi => None,
        };
        let is_plain = tls.is_none() && protocol != BackendProtocol::Http2;
        let distribution = self.read_distribution(keys, spoken, host.as_deref());
        if let (ClientHeader::ProxyV2, false, Some(entry)) =
            (distribution.client_header, is_plain, keys.get("proxy_protocol"))
        {
            let remedy = "remove it: the application gets `X-Forwarded-For` and `Forwarded`";
            self.error(entry.offset, "`proxy_protocol` cannot be used with TLS or HTTP/2 to the application", remedy);
        }
        let mut time = |name, default, max| {
            let entry = keys.get(name);
            let read = entry.and_then(|entry| self.read_quantity(entry, Quantity::Duration, (1, max)));
            Duration::from_millis(read.unwrap_or(default))
        };
        let timeout = time("timeout", TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX);
        let connect_timeout = time("connect_timeout", CONNECT_TIMEOUT_MS_DEFAULT, CONNECT_TIMEOUT_MS_MAX);
        let idle_default = match spoken {
            Spoken::Http => IDLE_TIMEOUT_MS_DEFAULT,
            Spoken::FastCgi => FASTCGI_IDLE_TIMEOUT_MS_DEFAULT,
        };
        let idle_timeout = time("idle_timeout", idle_default, IDLE_TIMEOUT_MS_MAX);
        let connections_max = self.reader.count(keys, "connections_max").unwrap_or(CONNECTIONS_DEFAULT);
        let body = keys.get("request_body_max");
        let body = body.and_then(|entry| self.read_quantity(entry, Quantity::Size, (0, REQUEST_BODY_BYTES_MAX)));
        let backend = Backend {
            servers,
            protocol,
            tls: tls.map(Arc::new),
            connect_timeout,
            idle_timeout,
            connections_max: usize::try_from(connections_max).unwrap_or(usize::MAX),
            distribution,
        };
        Some(RouteAction::Pass(Box::new(BackendRoute {
            backend: Arc::new(backend),
            strip_prefix,
            host,
            request_fields: keys.get("request_headers").map(|entry| self.read_edits(entry)).unwrap_or_default(),
            response_fields: keys.get("response_headers").map(|entry| self.read_edits(entry)).unwrap_or_default(),
            compresses: self.reader.boolean(keys, "compress"),
            sends_hints_by_http1: self.reader.boolean(keys, "early_hints_http1"),
            body_bytes_max: body.unwrap_or(REQUEST_BODY_BYTES_DEFAULT),
            timeout,
        })))
    }

    /// By the names of ALPN.
    fn read_protocol(&mut self, entry: Entry<'_, '_>) -> Option<BackendProtocol> {
        let (offset, text) = self.reader.string(entry)?;
        match text {
            "http/1.1" => Some(BackendProtocol::Http1),
            "h2" => Some(BackendProtocol::Http2),
            _ => {
                let message = format!("`{}` is not a protocol of applications", text.escape_debug());
                self.error(offset, message, "write \"h2\" for HTTP/2 and gRPC, or \"http/1.1\"");
                None
            }
        }
    }

    /// The servers of `proxy` or `fastcgi`: an address, or a list of addresses and tables; and whether connections to
    /// them are encrypted.
    fn read_servers(&mut self, action: Entry<'_, '_>, spoken: Spoken) -> (Vec<BackendServer>, bool) {
        let items = match action.value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| action.item(item)).collect(),
            _ => vec![action],
        };
        if items.is_empty() || items.len() > SERVERS_MAX {
            let message = format!("`{}` has {} servers", action.key, items.len());
            self.error(action.value.span().start, message, format!("list 1 to {SERVERS_MAX}"));
        }
        let mut servers: Vec<BackendServer> = Vec::new();
        let mut of_first = None;
        for item in items {
            let Some((offset, text, weight)) = self.read_server(item) else { continue };
            let ServerAddress { address, is_encrypted } = match parse_backend_address(text, spoken) {
                Ok(server) => server,
                Err(problem) => {
                    self.reader.error(offset, problem);
                    continue;
                }
            };
            if *of_first.get_or_insert(is_encrypted) != is_encrypted {
                let message = format!("`{text}` and the server before it differ in TLS");
                self.error(offset, message, "write https:// for both, or for none");
            }
            if servers.iter().any(|server| server.address == address) {
                let remedy = "remove one of the two; `weight` gives a server more requests";
                self.error(offset, format!("the server `{text}` is listed twice"), remedy);
            } else {
                servers.push(BackendServer { address, weight });
            }
        }
        (servers, of_first.unwrap_or(false))
    }

    /// The address of a server with its offset, and its weight.
    fn read_server<'n>(&mut self, item: Entry<'n, '_>) -> Option<(usize, &'n str, u32)> {
        if !matches!(item.value.get_ref(), DeValue::Table(_)) {
            let (offset, text) = self.reader.string(item)?;
            return Some((offset, text, 1));
        }
        let keys = self.reader.keys(item, Section::RouteServer)?;
        let weight = self.reader.count(&keys, "weight").unwrap_or(1);
        let Some(url) = keys.get("url") else {
            if !keys.has_unknown {
                let message = format!("a server in `{}` has no `url`", item.key);
                self.error(item.value.span().start, message, "write { url = \"http://127.0.0.1:3000\", weight = 2 }");
            }
            return None;
        };
        let (offset, text) = self.reader.string(url)?;
        Some((offset, text, u32::try_from(weight).unwrap_or(u32::MAX)))
    }

    /// A script beneath the document root; `None` for none.
    fn read_front_controller(&mut self, keys: &Keys<'_, '_>) -> Option<String> {
        let Some(entry) = keys.get("front_controller") else { return Some(FRONT_CONTROLLER.to_owned()) };
        if matches!(entry.value.get_ref(), DeValue::Boolean(false)) {
            return None;
        }
        let (offset, text) = self.reader.string(entry)?;
        let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
        if text.is_empty() || text.ends_with('/') || text.contains('\0') || !Path::new(text).components().all(is_name) {
            let message = format!("`{}` is not the path of a file in the document root", text.escape_debug());
            self.error(offset, message, format!("write {}, or false for none", entry.example));
            return None;
        }
        Some(text.to_owned())
    }

    fn read_host(&mut self, entry: Entry<'_, '_>) -> Option<String> {
        let (offset, text) = self.reader.string(entry)?;
        // RFC 3986 §3.2.2, §3.2.3.
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte)) {
            let message = format!("`{}` is not a host", text.escape_debug());
            self.error(offset, message, format!("write {}; a port may follow", entry.example));
            return None;
        }
        Some(text.to_owned())
    }

    fn read_respond(&mut self, section: Entry<'_, '_>) -> Option<RouteAction> {
        let keys = self.reader.keys(section, Section::RouteRespond)?;
        let text = keys.get("text").and_then(|entry| self.reader.string(entry));
        let Some(status) = self.reader.count(&keys, "status") else {
            if keys.get("status").is_none() && !keys.has_unknown {
                self.error(section.offset, "`respond` has no `status`", format!("write {}", section.example));
            }
            return None;
        };
        let (offset, text) = text.unwrap_or((section.offset, ""));
        if (300..400).contains(&status) {
            let remedy = "write the rule in `redirects`, with its destination";
            self.error(section.offset, format!("`respond` has the status {status} of a redirect"), remedy);
        } else if matches!(status, 204 | 205) && !text.is_empty() {
            self.error(offset, format!("a response with status {status} has no content"), "remove `text`");
        } else if text.len() > RESPONSE_TEXT_BYTES_MAX {
            let message = format!("`text` is longer than {RESPONSE_TEXT_BYTES_MAX} bytes");
            self.error(offset, message, "serve it as a file");
        }
        Some(RouteAction::Respond { status: u16::try_from(status).ok()?, text: text.to_owned() })
    }

    fn read_conditions(&mut self, keys: &Keys<'_, '_>) -> RouteConditions {
        let lower = |(name, value): (String, Option<String>)| (name.to_ascii_lowercase(), value);
        let fields = keys.get("fields").map(|entry| self.read_required(entry)).unwrap_or_default();
        RouteConditions {
            methods: keys.get("methods").map(|entry| self.read_methods(entry)).unwrap_or_default(),
            fields: fields.into_iter().map(lower).collect(),
            cookies: keys.get("cookies").map(|entry| self.read_required(entry)).unwrap_or_default(),
        }
    }

    /// The methods; HEAD with GET, which it is a part of (RFC 9110 §9.3.2).
    fn read_methods(&mut self, entry: Entry<'_, '_>) -> Vec<String> {
        let mut methods = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            if !is_token(text) || text.bytes().any(|byte| byte.is_ascii_lowercase()) {
                let message = format!("`{}` is not a method", text.escape_debug());
                self.error(offset, message, format!("write it in upper case, as in {}", entry.example));
            } else {
                methods.push(text.to_owned());
            }
        }
        if matches!(entry.value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            self.error(entry.value.span().start, "`methods` is empty", "list some, or remove it for all of them");
        }
        let has = |name: &str| methods.iter().any(|method| method == name);
        if has("GET") && !has("HEAD") {
            methods.push("HEAD".to_owned());
        }
        methods
    }

    /// The fields or cookies that a request must have, each with its value, or true for any.
    fn read_required(&mut self, section: Entry<'_, '_>) -> Vec<(String, Option<String>)> {
        let entries = self.reader.entries(section).into_iter();
        entries.filter_map(|entry| self.read_field(entry, true, "is any value")).collect()
    }

    /// The fields to set, and to remove where the value is false.
    fn read_edits(&mut self, section: Entry<'_, '_>) -> Vec<(String, Option<String>)> {
        let mut edits = Vec::new();
        for entry in self.reader.entries(section) {
            if is_connection_field(entry.key) {
                let is_host = entry.key.eq_ignore_ascii_case("host");
                let remedy = if is_host { "use the key `host`" } else { "remove it; it belongs to the connection" };
                self.error(entry.offset, format!("`{}` cannot be changed by a route", entry.key), remedy);
            } else {
                edits.extend(self.read_field(entry, false, "removes the field"));
            }
        }
        edits
    }

    /// The name of a field or cookie with its value: `None` for the boolean `other`, which has this meaning.
    fn read_field(&mut self, entry: Entry<'_, '_>, other: bool, meaning: &str) -> Option<(String, Option<String>)> {
        let value = match entry.value.get_ref() {
            DeValue::String(value) => Some(value.to_string()),
            DeValue::Boolean(value) if *value == other => None,
            _ => {
                let message = format!("the value of `{}` is neither a string nor {other}", entry.key);
                let remedy = format!("write {}; {other} {meaning}", entry.example);
                self.error(entry.value.span().start, message, remedy);
                return None;
            }
        };
        self.check_name_and_value(entry, value.as_deref()).then(|| (entry.key.to_owned(), value))
    }

    fn check_name_and_value(&mut self, entry: Entry<'_, '_>, value: Option<&str>) -> bool {
        if !is_token(entry.key) {
            let message = format!("`{}` is not a name", entry.key.escape_debug());
            self.error(entry.offset, message, "write letters, digits and hyphens");
            return false;
        }
        let Some(value) = value else { return true };
        // RFC 9110 §5.5.
        let is_sent = |byte: u8| byte == b'\t' || !byte.is_ascii_control();
        if value.len() > FIELD_VALUE_BYTES_MAX || value.trim() != value || !value.bytes().all(is_sent) {
            let message = format!(
                "the value of `{}` has a control character, space at an end, or more than {FIELD_VALUE_BYTES_MAX} bytes",
                entry.key
            );
            self.error(entry.value.span().start, message, "write it on one line, without space at its ends");
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file::tests::{check, config};
    use sanderling_site_rules::{BackendAddress, Distribution};

    /// A domain with a site, and with this route.
    fn with(path: &str, keys: &str) -> String {
        format!("[domain.\"example.com\"]\nsite = \"public\"\n[domain.\"example.com\".route.\"{path}\"]\n{keys}\n")
    }

    fn routes(text: &str) -> Vec<SiteRoute> {
        config(text).sites[0].options.rules.routes.clone()
    }

    fn pass(text: &str) -> BackendRoute {
        match &routes(text)[0].route.action {
            RouteAction::Pass(pass) => (**pass).clone(),
            RouteAction::Respond { .. } | RouteAction::File => panic!("{text}"),
        }
    }

    #[test]
    fn route_without_further_keys_has_defaults() {
        let text = with("/api/", "proxy = \"http://127.0.0.1:3000\"");
        let route = &routes(&text)[0].route;
        assert_eq!((route.name.as_str(), route.files_first), ("/api/", false));
        assert_eq!(route.pattern, Pattern::parse("/api/*", &[]).expect("a pattern"));
        assert_eq!(route.conditions, RouteConditions::default());
        let servers = vec![BackendServer {
            address: BackendAddress::Tcp("127.0.0.1:3000".parse().expect("an address")),
            weight: 1,
        }];
        let expected = BackendRoute {
            backend: Arc::new(Backend {
                servers,
                protocol: BackendProtocol::Http1,
                tls: None,
                connect_timeout: Duration::from_secs(5),
                idle_timeout: Duration::from_secs(4),
                connections_max: 512,
                distribution: Distribution::default(),
            }),
            strip_prefix: false,
            host: None,
            request_fields: Vec::new(),
            response_fields: Vec::new(),
            compresses: false,
            sends_hints_by_http1: false,
            body_bytes_max: u64::MAX,
            timeout: Duration::from_secs(60),
        };
        assert_eq!(pass(&text), expected);
    }

    #[test]
    fn each_key_of_a_route_is_read() {
        let text = with(
            "/api/",
            "proxy = [\"http://127.0.0.1:3000\", { url = \"unix:/run/a.sock\", weight = 3 }]\nstrip_prefix = true\n\
             host = \"app.internal:81\"\nmethods = [\"GET\", \"POST\"]\nfields = { X-Canary = \"1\", X-Any = true }\n\
             cookies = { Beta = true }\nfiles_first = true\nrequest_headers = { X-A = \"b\", X-B = false }\n\
             response_headers = { X-C = false }\ncompress = true\nearly_hints_http1 = true\nrequest_body_max = \"100MiB\"\ntimeout = \"2min\"\n\
             connect_timeout = \"50ms\"\nidle_timeout = \"9s\"\nconnections_max = 7",
        );
        let route = &routes(&text)[0].route;
        let named = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        assert!(route.files_first);
        assert_eq!(route.conditions.methods, ["GET", "POST", "HEAD"]);
        assert_eq!(route.conditions.fields, [named("x-canary", Some("1")), named("x-any", None)]);
        assert_eq!(route.conditions.cookies, [named("Beta", None)]);
        let pass = pass(&text);
        let weights: Vec<u32> = pass.backend.servers.iter().map(|server| server.weight).collect();
        assert_eq!((weights, pass.strip_prefix, pass.host.as_deref()), (vec![1, 3], true, Some("app.internal:81")));
        assert_eq!(pass.request_fields, [named("X-A", Some("b")), named("X-B", None)]);
        assert_eq!(pass.response_fields, [named("X-C", None)]);
        assert!(pass.compresses && pass.sends_hints_by_http1);
        assert_eq!((pass.body_bytes_max, pass.timeout), (100 << 20, Duration::from_secs(120)));
        assert_eq!(pass.backend.connect_timeout, Duration::from_millis(50));
        assert_eq!((pass.backend.idle_timeout, pass.backend.connections_max), (Duration::from_secs(9), 7));
        let read = config(&text);
        assert_eq!(read.backend_ports().into_iter().collect::<Vec<_>>(), [3000]);
        assert_eq!(read.backend_sockets().into_iter().collect::<Vec<_>>(), [Path::new("/run/a.sock")]);
    }

    #[test]
    fn fastcgi_has_a_front_controller_unless_it_is_false() {
        let front_controller = |keys: &str| {
            let text = with("/*.php", &format!("fastcgi = \"unix:/run/php/php-fpm.sock\"\n{keys}"));
            match &pass(&text).backend.protocol {
                BackendProtocol::FastCgi(options) => options.front_controller.clone(),
                BackendProtocol::Http1 | BackendProtocol::Http2 => panic!("{text}"),
            }
        };
        assert_eq!(front_controller("").as_deref(), Some("index.php"));
        assert_eq!(front_controller("front_controller = \"public/app.php\"").as_deref(), Some("public/app.php"));
        assert_eq!(front_controller("front_controller = false"), None);
    }

    #[test]
    fn fixed_response_has_a_status_and_perhaps_a_text() {
        let respond = |value: &str| match &routes(&with("/health", &format!("respond = {value}")))[0].route.action {
            RouteAction::Respond { status, text } => (*status, text.clone()),
            RouteAction::Pass(_) | RouteAction::File => panic!("{value}"),
        };
        assert_eq!(respond("{ status = 204 }"), (204, String::new()));
        assert_eq!(respond("{ status = 200, text = \"ok\" }"), (200, "ok".to_owned()));
    }

    #[test]
    fn several_routes_of_a_path_are_a_list() {
        let text = "[domain.\"example.com\".route]\n\"/api/\" = [{ proxy = \"http://127.0.0.1:1\", cookies = { beta = true } }, \
             { proxy = \"http://127.0.0.1:2\" }]\n\"/\" = { respond = { status = 404 } }\n";
        let read = routes(text);
        let names: Vec<&str> = read.iter().map(|route| route.route.name.as_str()).collect();
        assert_eq!(names, ["/api/", "/api/", "/"]);
        assert_eq!(read[0].route.conditions.cookies.len(), 1);
    }

    #[test]
    fn domain_with_routes_needs_no_site() {
        let read = config(
            "[domain.\"example.com\"]\naliases = [\"www.example.com\"]\nredirects = { \"/a\" = \"/b\" }\n\
             [domain.\"example.com\".route.\"/\"]\nproxy = \"http://127.0.0.1:3000\"\n",
        );
        assert_eq!((read.sites[0].hosts.len(), read.sites[0].document_root.as_deref()), (2, None));
        assert_eq!(read.http_listen, ["127.0.0.1:8080".parse().expect("an address")]);
        let route = "route = { \"/\" = { respond = { status = 204 } } }";
        check(
            &format!("[domain.\"example.com\"]\n{route}\nlisting = true"),
            &["3:1: example.com has listing, but no site; add site = \"FOLDER\""],
        );
    }

    #[test]
    fn wrong_route_is_reported_with_its_line_and_a_remedy() {
        let proxy = "proxy = \"http://127.0.0.1:3000\"\n";
        let with_proxy = |keys: &str| format!("{proxy}{keys}");
        for (path, keys, expected) in [
            (
                "/a/",
                "timeout = \"1s\"".to_owned(),
                "3:29: the route `/a/` has none of `proxy`, `fastcgi` and `respond`; add one, for example proxy = \
                 \"http://127.0.0.1:3000\"",
            ),
            (
                "/a/",
                with_proxy("respond = { status = 204 }"),
                "5:1: the route `/a/` has both `proxy` and `respond`; remove one of the two; a list in `proxy` has several \
                 servers",
            ),
            ("/a/", "prox = \"x\"".to_owned(), "4:1: unknown key `prox` in `route`; did you mean `proxy`?"),
            ("a/", proxy.to_owned(), "3:29: the pattern `a/*` does not begin with a slash; write \"/a/*\""),
            (
                "https://example.com/a/",
                proxy.to_owned(),
                "3:29: the path `https://example.com/a/` is for a single host; write it without the host, in the \
                 section of that domain",
            ),
            (
                "/a/",
                "proxy = \"app\"".to_owned(),
                "4:9: `app` has no port; write its address and port, for example http://127.0.0.1:3000",
            ),
            ("/a/", "proxy = []".to_owned(), "4:9: `proxy` has 0 servers; list 1 to 64"),
            (
                "/a/",
                "proxy = [\"127.0.0.1:1\", \"http://127.0.0.1:1\"]".to_owned(),
                "4:25: the server `http://127.0.0.1:1` is listed twice; remove one of the two; `weight` gives a \
                 server more requests",
            ),
            (
                "/a/",
                "proxy = [{ weight = 2 }]".to_owned(),
                "4:10: a server in `proxy` has no `url`; write { url = \"http://127.0.0.1:3000\", weight = 2 }",
            ),
            (
                "/a/",
                "proxy = [{ url = \"127.0.0.1:1\", weight = 0 }]".to_owned(),
                "4:42: `weight` is out of range: 0; write 1 to 1000",
            ),
            (
                "/a/",
                "proxy = 3000".to_owned(),
                "4:9: `proxy` must be a string, not the number 3000; write proxy = \"http://127.0.0.1:3000\"",
            ),
            (
                "/a/*.png",
                with_proxy("strip_prefix = true"),
                "5:1: `strip_prefix` needs a route for all paths below one; end the path of the route with a slash, or \
                 remove `strip_prefix`",
            ),
            (
                "/a/",
                with_proxy("host = \"a b\""),
                "5:8: `a b` is not a host; write host = \"app.internal\"; a port may follow",
            ),
            (
                "/a/",
                with_proxy("methods = [\"get\"]"),
                "5:12: `get` is not a method; write it in upper case, as in methods = [\"GET\", \"POST\"]",
            ),
            ("/a/", with_proxy("methods = []"), "5:11: `methods` is empty; list some, or remove it for all of them"),
            (
                "/a/",
                with_proxy("fields = { X-A = 1 }"),
                "5:18: the value of `X-A` is neither a string nor true; write fields = { \"X-Canary\" = \"1\" }; true is \
                 any value",
            ),
            (
                "/a/",
                with_proxy("cookies = { \"a b\" = true }"),
                "5:13: `a b` is not a name; write letters, digits and hyphens",
            ),
            (
                "/a/",
                with_proxy("request_headers = { Content-Length = \"1\" }"),
                "5:21: `Content-Length` cannot be changed by a route; remove it; it belongs to the connection",
            ),
            (
                "/a/",
                with_proxy("response_headers = { Proxy-Authenticate = false }"),
                "5:22: `Proxy-Authenticate` cannot be changed by a route; remove it; it belongs to the connection",
            ),
            (
                "/a/",
                with_proxy("request_headers = { host = false }"),
                "5:21: `host` cannot be changed by a route; use the key `host`",
            ),
            (
                "/a/",
                with_proxy("response_headers = { X-A = \"a\\r\\nB: c\" }"),
                "5:28: the value of `X-A` has a control character, space at an end, or more than 4096 bytes; write it on \
                 one line, without space at its ends",
            ),
            (
                "/a/",
                with_proxy("request_headers = { X-A = true }"),
                "5:27: the value of `X-A` is neither a string nor false; write request_headers = { \"X-Secret\" = \"…\", \
                 \"X-Internal\" = false }; false removes the field",
            ),
            (
                "/a/",
                with_proxy("request_body_max = \"2TiB\""),
                "5:20: `request_body_max` is out of range: \"2TiB\"; write \"0B\" to \"1TiB\"",
            ),
            (
                "/a/",
                with_proxy("timeout = \"1m\""),
                "5:11: \"1m\" is not an integer with one of the units ms, s, min, h or d; write \"1ms\" to \"1d\"",
            ),
            ("/a/", with_proxy("connections_max = 0"), "5:19: `connections_max` is out of range: 0; write 1 to 65536"),
            (
                "/a/",
                with_proxy("front_controller = \"a.php\""),
                "5:1: `front_controller` has no effect with `proxy`; remove it",
            ),
            (
                "/a/",
                "fastcgi = \"127.0.0.1:9000\"\nstrip_prefix = true".to_owned(),
                "5:1: `strip_prefix` has no effect with `fastcgi`; remove it",
            ),
            (
                "/a/",
                "fastcgi = \"127.0.0.1:9000\"\nfront_controller = \"../index.php\"".to_owned(),
                "5:20: `../index.php` is not the path of a file in the document root; write front_controller = \
                 \"index.php\", or false for none",
            ),
            (
                "/a/",
                "respond = { text = \"ok\" }".to_owned(),
                "4:1: `respond` has no `status`; write respond = { status = 200, text = \"ok\" }",
            ),
            ("/a/", "respond = { status = 100 }".to_owned(), "4:22: `status` is out of range: 100; write 200 to 599"),
            (
                "/a/",
                "respond = { status = 302 }".to_owned(),
                "4:1: `respond` has the status 302 of a redirect; write the rule in `redirects`, with its destination",
            ),
            (
                "/a/",
                "respond = { status = 204, text = \"ok\" }".to_owned(),
                "4:34: a response with status 204 has no content; remove `text`",
            ),
            (
                "/a/",
                "respond = { status = 200 }\ntimeout = \"1s\"".to_owned(),
                "5:1: `timeout` has no effect with `respond`; remove it",
            ),
        ] {
            check(&with(path, &keys), &[expected]);
        }
    }

    #[test]
    fn route_that_needs_files_needs_a_site() {
        let without = |keys: &str| format!("[domain.\"example.com\".route.\"/\"]\n{keys}\n");
        check(
            &without("proxy = \"127.0.0.1:3000\"\nfiles_first = true"),
            &[
                "3:1: `files_first` needs files, but the domain has no site; add site = \"FOLDER\" to the domain, or remove \
               `files_first`",
            ],
        );
        check(
            &without("fastcgi = \"127.0.0.1:9000\""),
            &[
                "2:1: `fastcgi` needs a document root, but the domain has no site; add site = \"FOLDER\", the folder with \
               the scripts",
            ],
        );
    }

    #[test]
    fn files_are_sent_first_by_fastcgi_and_its_connections_are_kept_briefly() {
        let read = |keys: &str| {
            let [SiteRoute { route, .. }] = &routes(&with("/", keys))[..] else { panic!("{keys}") };
            let RouteAction::Pass(pass) = &route.action else { panic!("{keys}") };
            (route.files_first, pass.backend.idle_timeout)
        };
        let (brief, long) = (Duration::from_millis(100), Duration::from_secs(4));
        assert_eq!(read("fastcgi = \"127.0.0.1:9000\""), (true, brief));
        assert_eq!(read("fastcgi = \"127.0.0.1:9000\"\nfiles_first = false\nidle_timeout = \"4s\""), (false, long));
        assert_eq!(read("proxy = \"127.0.0.1:9000\""), (false, long));
    }

    #[test]
    fn routes_beyond_the_limit_are_refused() {
        let text = |count: usize| {
            let route = |index| format!("\"/{index}\" = {{ respond = {{ status = 204 }} }}\n");
            format!("[domain.\"example.com\".route]\n{}", (0..count).map(route).collect::<String>())
        };
        assert_eq!(routes(&text(ROUTES_MAX)).len(), ROUTES_MAX);
        check(
            &text(ROUTES_MAX + 1),
            &["1:23: the site has 257 routes, and may have 256; remove some, or write patterns \
                                        for several paths"],
        );
    }

    #[test]
    fn hidden_route_gets_a_warning() {
        let text = with("/a/", "respond = { status = 204 }")
            + "[domain.\"example.com\".route.\"/a/*\"]\nrespond = { status = 404 }\n";
        let warnings: Vec<String> = config(&text).hidden_routes().map(|warning| warning.problem.to_string()).collect();
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with("the route `/a/*` never answers: `/a/` at "), "{warning}");
        assert_eq!(config(&with("/a/", "respond = { status = 204 }")).hidden_routes().count(), 0);
    }
}
