//! `reverse_proxy` and `php_fastcgi` of Caddy: routes to applications.

use super::Reader;
use crate::backends::{self, Application, Protocol, add_routes, address};
use crate::place::{Order, Place};
use crate::sources::caddy::matcher::Matcher;
use crate::sources::caddy::placeholders::{environment, placeholder};
use crate::sources::named::seconds;
use crate::syntax::Statement;
use crate::toml_text::Value;
use sanderling_site_rules::is_connection_field;

impl<'s> Reader<'s, '_> {
    /// The paths of a place are answered by an application. Files of paths whose application cannot be expressed, such
    /// as its sources, must not be sent instead.
    pub(super) fn pass_on(&mut self, statement: &'s Statement, place: &Place, strips: bool) {
        let is_php = statement.name() == "php_fastcgi";
        let Some((matcher, next)) = self.matcher(statement, place, false) else {
            self.server.is_passed_on |= place.is_whole();
            return;
        };
        let place = matcher.place.clone();
        match self.application(statement, &matcher, next) {
            Ok(application) if is_php => self.add_php(&place, &application),
            Ok(application) => self.add_proxy(statement, &place, &application, strips),
            Err(reason) => {
                let programs = Place::of("/*.php".to_owned(), Order::Exact);
                match (is_php, place.is_whole()) {
                    (true, true) => self.collected.answer(statement, &programs, None, 404, None),
                    (false, true) => self.server.is_passed_on = true,
                    (_, false) => self.collected.answer(statement, &place, None, 404, None),
                }
                self.ledger.miss(statement, reason, "write a route with the address; the paths get 404 until then");
            }
        }
    }

    /// Files of the site are sent, and all other paths are answered by `index.php`.
    fn add_php(&mut self, place: &Place, application: &Application) {
        if self.server.domain.site.is_none() {
            self.server.domain.site = Some(".".to_owned());
        }
        add_routes(&mut self.server.domain, place, application, &[]);
    }

    fn add_proxy(&mut self, statement: &'s Statement, place: &Place, application: &Application, strips: bool) {
        let mut more = Vec::new();
        if strips && !place.is_whole() {
            if place.patterns.iter().any(|pattern| !pattern.text.ends_with("/*")) {
                let reason = "only the path of a route for all paths below it is removed";
                return self.ledger.miss(statement, reason, "end the path with `/*`");
            }
            more.push(("strip_prefix", Value::Boolean(true)));
        }
        if place.is_whole() && self.server.domain.site.is_some() {
            if self.has_files {
                more.push(("files_first", Value::Boolean(true)));
                let reason = "a file of the site takes precedence over the application, for all paths";
                self.ledger.differ(statement, reason, "keep files that are not public out of the document root");
            } else {
                self.server.domain.site = None;
            }
        }
        add_routes(&mut self.server.domain, place, application, &more);
    }

    fn application(&mut self, statement: &'s Statement, matcher: &Matcher, next: usize) -> Result<Application, String> {
        if !matcher.has_only_paths() {
            return Err("a route is for paths".to_owned());
        }
        let protocol = if statement.name() == "php_fastcgi" { Protocol::FastCgi } else { Protocol::Http };
        let nested = statement.nested().filter(|it| it.name() == "to").flat_map(Statement::texts);
        let texts: Vec<&str> = statement.texts()[next..].iter().copied().chain(nested).collect();
        let mut servers = Vec::new();
        for text in texts {
            let text = environment(text);
            if text.contains(['$', '{']) {
                return Err("the address of an application is fixed".to_owned());
            }
            servers.push((address(&text, protocol)?, 1));
        }
        if servers.is_empty() {
            return Err("the application has no address".to_owned());
        }
        let secure =
            statement.nested().any(|it| it.name() == "transport" && it.nested().any(|it| it.name().starts_with("tls")));
        if secure {
            return Err("applications are reached over HTTP/1.1 and FastCGI without TLS".to_owned());
        }
        self.ledger.keep(statement);
        let mut application = Application::new(protocol, servers);
        statement.nested().for_each(|option| self.option(option, &mut application));
        Ok(application)
    }

    fn option(&mut self, option: &'s Statement, application: &mut Application) {
        let (name, value) = (option.argument(0), option.argument(1));
        match option.name() {
            "to"
            | "flush_interval"
            | "buffer_requests"
            | "buffer_responses"
            | "trusted_proxies"
            | "resolve_root_symlink"
            | "max_buffer_size"
            | "request_buffers"
            | "response_buffers"
            | "stream_timeout"
            | "stream_close_delay" => {
                self.ledger.keep_all(option);
            }
            "header_up" | "header_down" => self.passed_field(option, name, value, application),
            "transport" => {
                self.ledger.keep(option);
                for setting in option.nested() {
                    let time = seconds(setting.argument(0)).filter(|time| (1..=600).contains(time));
                    match (setting.name(), time) {
                        ("dial_timeout", Some(time)) => application.set("connect_timeout", format!("{time}s").into()),
                        ("read_timeout" | "response_header_timeout", Some(time)) => {
                            application.set("timeout", format!("{time}s").into());
                        }
                        _ => {}
                    }
                    self.ledger.keep_all(setting);
                }
            }
            name if name.starts_with("health_") || name.starts_with("fail_") || name.starts_with("unhealthy_") => {
                let reason = "there are no health checks: an application that does not answer is skipped for a while";
                self.ledger.differ(option, reason, "nothing is needed");
            }
            name if name.starts_with("lb_") || name == "max_fails" => {
                self.ledger.differ(option, "requests are distributed by weight", "nothing is needed for one server");
            }
            _ => self.ledger.miss(option, "a route has no such option", "let the application do it"),
        }
    }

    /// `header_up [-]NAME VALUE`, `header_down [-]NAME VALUE`.
    fn passed_field(&mut self, option: &'s Statement, name: &str, value: &str, application: &mut Application) {
        let key = if option.name() == "header_up" { "request_headers" } else { "response_headers" };
        let plain = name.trim_start_matches(['-', '+', '>', '?']);
        let is_usual = plain.to_ascii_lowercase().starts_with("x-forwarded-")
            || ["host", "x-real-ip", "upgrade", "connection"].contains(&plain.to_ascii_lowercase().as_str());
        self.ledger.keep(option);
        match (name.starts_with('-'), placeholder(value)) {
            (true, _) if is_connection_field(plain) => {}
            (true, _) if !plain.contains('*') => application.add_entry(key, plain, Value::Boolean(false)),
            (false, None) if plain.eq_ignore_ascii_case("host") && key == "request_headers" => {
                application.set("host", environment(value).into());
            }
            (false, Some(_)) if is_usual => {}
            (false, None) if option.arguments.len() == 2 && !is_connection_field(plain) => {
                application.add_entry(key, plain, environment(value).into());
            }
            _ => {
                let reason = "header fields for an application have fixed values, and are not those of the connection";
                self.ledger.miss(option, reason, "see which fields the server adds itself: X-Forwarded-For and others");
            }
        }
    }

    /// A fixed response for a place.
    pub(super) fn respond_with(&mut self, statement: &'s Statement, place: &Place, status: u16, text: &str) {
        if !backends::is_response(status, text) || placeholder(text).is_some() || text.contains("{$") {
            let reason = format!("a route cannot answer with status {status} and this text");
            return self.ledger.miss(
                statement,
                reason,
                "put the text into a file; a rewrite serves it at another path",
            );
        }
        for pattern in &place.patterns {
            backends::add_response(&mut self.server.domain, &pattern.text, status, text);
        }
    }
}
