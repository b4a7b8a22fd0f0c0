//! `proxy_pass` and `fastcgi_pass` of nginx: routes to applications.

use super::Reader;
use crate::backends::{self, Application, Protocol, add_routes, address};
use crate::place::{Order, Place};
use crate::sources::nginx::values::{seconds, size, variables};
use crate::syntax::Statement;
use crate::toml_text::Value;
use sanderling_site_rules::is_connection_field;

/// Fields that the server writes itself, in the usual forms.
const USUAL_FIELDS: [&str; 11] = [
    "host",
    "upgrade",
    "connection",
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "accept-encoding",
];

/// Keys of a route.
type Keys = Vec<(&'static str, Value)>;

impl<'s> Reader<'s, '_> {
    /// The paths of a place are answered by an application; with `files_first` only those without a file. Files of
    /// paths whose application cannot be expressed, such as its sources, must not be sent instead.
    pub(super) fn pass_on(
        &mut self,
        statement: &'s Statement,
        block: &[&'s Statement],
        place: &Place,
        files_first: bool,
    ) {
        match self.application(statement, block, place) {
            Ok(_) if statement.name() == "fastcgi_pass" && self.server.domain.site.is_none() => {
                let reason = "FastCGI needs a document root";
                self.ledger.miss(
                    statement,
                    reason,
                    "write `site`, the folder of the scripts, and a route with `fastcgi`",
                );
            }
            Ok((application, more)) => {
                self.ledger.keep(statement);
                self.add_application(statement, place, application, more, files_first);
            }
            Err(reason) if place.is_whole() && !files_first => {
                self.server.is_passed_on = true;
                self.ledger.miss(statement, reason, "keep nginx for this server, or write a route with the address");
            }
            Err(reason) => {
                if !files_first {
                    self.collected.answer(statement, place, None, 404, None);
                }
                let nearest = "write a route with the address; the paths get 404 until then";
                self.ledger.miss(statement, reason, nearest);
            }
        }
    }

    fn add_application(
        &mut self,
        statement: &'s Statement,
        place: &Place,
        application: Application,
        mut more: Keys,
        files_first: bool,
    ) {
        let is_php = statement.name() == "fastcgi_pass" && place.patterns.iter().all(|it| it.text.ends_with(".php"));
        if is_php {
            self.php = Some(application);
            return;
        }
        let is_fastcgi = statement.name() == "fastcgi_pass";
        if is_fastcgi {
            more.push(("front_controller", Value::Boolean(false)));
        }
        let is_whole = place.is_whole() && !files_first;
        if is_whole && self.has_files && self.server.domain.site.is_some() {
            let reason = "a file of the site takes precedence over the application, for all paths";
            self.ledger.differ(statement, reason, "keep files that are not public out of the document root");
        } else if is_whole && !is_fastcgi {
            self.server.domain.site = None;
        }
        let has_files = files_first || (is_whole && self.has_files);
        // Each protocol has another default.
        if self.server.domain.site.is_some() && has_files != is_fastcgi {
            more.push(("files_first", Value::Boolean(has_files)));
        }
        add_routes(&mut self.server.domain, place, &application, &more);
    }

    /// The application of a statement, and keys of its routes.
    fn application(
        &mut self,
        statement: &'s Statement,
        block: &[&'s Statement],
        place: &Place,
    ) -> Result<(Application, Keys), String> {
        let protocol = match statement.name() {
            "proxy_pass" => Protocol::Http,
            "fastcgi_pass" => Protocol::FastCgi,
            _ => return Err("applications speak HTTP/1.1 or FastCGI".to_owned()),
        };
        let text = statement.argument(0);
        if !variables(text).is_empty() {
            return Err("the address of an application is fixed".to_owned());
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => ("", text),
        };
        let (authority, path) = match rest.strip_prefix("unix:").and_then(|socket| socket.split_once(':')) {
            Some((socket, path)) => (format!("unix:{socket}"), path),
            None if rest.starts_with("unix:") => (rest.to_owned(), ""),
            None => match rest.find('/').filter(|_| protocol == Protocol::Http) {
                Some(slash) => (rest[..slash].to_owned(), &rest[slash..]),
                None => (rest.to_owned(), ""),
            },
        };
        let servers = match self.shared.upstreams.get(authority.as_str()) {
            Some(servers) => {
                let one = |(text, weight): &(String, u64)| Ok((address(text, protocol)?, *weight));
                servers.iter().map(one).collect::<Result<Vec<_>, String>>()?
            }
            None => {
                let full = if scheme.is_empty() { authority } else { format!("{scheme}://{authority}") };
                vec![(address(&full, protocol)?, 1)]
            }
        };
        if servers.is_empty() {
            return Err("the group of servers is empty".to_owned());
        }
        let more = match (path, &place.patterns[..]) {
            ("", _) => Vec::new(),
            ("/", _) if place.is_whole() => Vec::new(),
            ("/", [pattern]) if pattern.text.ends_with("/*") => vec![("strip_prefix", Value::Boolean(true))],
            (path, [pattern]) if pattern.text == format!("{path}*") || pattern.text == path => Vec::new(),
            _ => return Err(format!("a route cannot replace its path by `{path}`")),
        };
        let mut application = Application::new(protocol, servers);
        let outer = self.all.clone();
        let is_own = |it: &&&Statement| block.iter().any(|own| own.name() == it.name());
        for setting in block.iter().chain(outer.iter().filter(|it| !is_own(it))) {
            self.setting(setting, &mut application);
        }
        Ok((application, more))
    }

    /// A directive that says how requests are passed on.
    fn setting(&mut self, statement: &'s Statement, application: &mut Application) {
        let (name, value) = (statement.argument(0), statement.argument(1));
        match statement.name() {
            "proxy_set_header" => {
                self.ledger.keep(statement);
                let is_usual = USUAL_FIELDS.contains(&name.to_ascii_lowercase().as_str())
                    || is_connection_field(name) && value.is_empty();
                match variables(value).is_empty() {
                    true if name.eq_ignore_ascii_case("host") && !value.is_empty() => {
                        application.set("host", value.into());
                    }
                    _ if is_usual => {}
                    true if value.is_empty() => application.add_entry("request_headers", name, Value::Boolean(false)),
                    true if !is_connection_field(name) => {
                        application.add_entry("request_headers", name, value.into());
                    }
                    _ => {
                        let reason =
                            "header fields for an application have fixed values, and are not those of the connection";
                        self.ledger.miss(
                            statement,
                            reason,
                            "see which fields the server adds itself: X-Forwarded-For and others",
                        );
                    }
                }
            }
            "proxy_hide_header" | "fastcgi_hide_header" => {
                self.ledger.keep(statement);
                if !is_connection_field(name) {
                    application.add_entry("response_headers", name, Value::Boolean(false));
                }
            }
            "proxy_read_timeout" | "fastcgi_read_timeout" => self.time(statement, "timeout", 86_400, application),
            "proxy_connect_timeout" | "fastcgi_connect_timeout" => {
                self.time(statement, "connect_timeout", 600, application);
            }
            "proxy_send_timeout" | "fastcgi_send_timeout" => self.ledger.keep(statement),
            "client_max_body_size" => {
                self.ledger.keep(statement);
                if let Some(size) = size(name) {
                    application.set("request_body_max", size.into());
                }
            }
            _ => {}
        }
    }

    fn time(&mut self, statement: &Statement, key: &'static str, max_s: u64, application: &mut Application) {
        self.ledger.keep(statement);
        if let Some(time) = seconds(statement.argument(0)).filter(|time| (1..=max_s).contains(time)) {
            application.set(key, format!("{time}s").into());
        }
    }

    /// Adds the routes of PHP, or refuses its programs if there is no application for them.
    pub(super) fn finish_php(&mut self) {
        let front = self.front_controller.take();
        let Some(php) = self.php.take() else {
            if let Some(statement) = self.programs {
                let place = Place::of("/*.php".to_owned(), Order::Exact);
                self.collected.answer(statement, &place, None, 404, None);
            }
            if let Some((statement, _)) = front {
                let reason = "there is no application for paths without a file";
                self.ledger.miss(statement, reason, "write a route with `fastcgi`");
            }
            return;
        };
        let domain = &mut self.server.domain;
        let programs = Place::of("/*.php".to_owned(), Order::Exact);
        let Some((_, script)) = front else {
            add_routes(domain, &programs, &php, &[("front_controller", Value::Boolean(false))]);
            return;
        };
        let mut more = vec![];
        if script != "index.php" {
            more.push(("front_controller", Value::from(script)));
        }
        add_routes(domain, &Place::whole(), &php, &more);
    }

    /// A fixed response for a place, if a rule of `redirects` cannot have its status.
    pub(super) fn respond(&mut self, statement: &'s Statement, place: &Place, status: u16, text: &str) {
        if !backends::is_response(status, text) || !variables(text).is_empty() {
            let reason = format!("a route cannot answer with status {status} and this text");
            return self.ledger.miss(
                statement,
                reason,
                "put the text into a file; a rewrite serves it at another path",
            );
        }
        self.ledger.keep(statement);
        for pattern in &place.patterns {
            backends::add_response(&mut self.server.domain, &pattern.text, status, text);
        }
    }
}
