//! Redirects, rewrites, errors and conditions of a server of nginx.

use super::{Reader, is_https_of_same_host};
use crate::backends;
use crate::http_sites::{Redirect, Target};
use crate::model::RedirectRule;
use crate::place::{Order, Place, whole_path};
use crate::regex::{self, PathPattern};
use crate::sources::nginx::conditions::{Condition, condition};
use crate::sources::nginx::table::{NO_METHODS, SET_METHODS};
use crate::sources::nginx::values::{destination, variables};
use crate::syntax::Statement;
use crate::toml_text::Value;

impl<'s> Reader<'s, '_> {
    /// `return`.
    pub(super) fn answer(&mut self, statement: &'s Statement, place: &Place) {
        let (status, url) = match statement.argument(0).parse::<u16>() {
            Ok(status) => (status, statement.argument(1)),
            Err(_) => (302, statement.argument(0)),
        };
        match status {
            301 | 302 | 303 | 307 | 308 => self.redirect(statement, place, url, status),
            444 if place.is_whole() => self.ledger.keep(statement),
            444 => {
                self.collected.answer(statement, place, None, 403, None);
                self.ledger.differ(statement, "the connection is not closed: the status is 403", "nothing is needed");
            }
            403 | 404 | 410 | 451 | 503 if !place.is_whole() || self.server.domain.site.is_some() => {
                self.ledger.keep(statement);
                self.collected.answer(statement, place, None, status, None);
            }
            // That of a server for hosts that do not exist here.
            _ if place.is_whole() && self.server.hosts.is_empty() && status >= 400 => self.ledger.keep(statement),
            _ => self.respond(statement, place, status, url),
        }
    }

    fn redirect(&mut self, statement: &'s Statement, place: &Place, url: &str, status: u16) {
        self.ledger.keep(statement);
        if place.is_whole() && is_https_of_same_host(url) {
            self.server.redirect = Some(Redirect { to: Target::Https, status });
            return;
        }
        let to = |pattern: &PathPattern| destination(url, &whole_path(&pattern.text), &pattern.captures);
        match self.collected.send_to(statement, place, status, to) {
            Ok(None) => {}
            Ok(redirect) => self.server.redirect = redirect,
            Err(variable) => self.has_variable(statement, &variable),
        }
    }

    fn has_variable(&mut self, statement: &Statement, variable: &str) {
        let reason = format!("a destination cannot contain `${variable}`");
        self.ledger.miss(statement, reason, "write a rule for each value");
    }

    pub(super) fn rewrite(&mut self, statement: &'s Statement) {
        let (expression, to, flag) = (statement.argument(0), statement.argument(1), statement.argument(2));
        let Some(found) = regex::patterns(expression) else {
            let nearest = "write rules with `*` and `:name` for its paths";
            return self.ledger.miss(statement, "no path pattern is equivalent to the regular expression", nearest);
        };
        let status = match flag {
            "permanent" => 301,
            "redirect" => 302,
            _ if to.contains("://") => 302,
            _ => 200,
        };
        if status == 200 && (to.contains('?') || to.contains(".php")) {
            return self.ledger.miss(
                statement,
                "a rewrite must lead to a file of the site",
                "keep nginx for these paths",
            );
        }
        self.ledger.keep(statement);
        if found.is_wider {
            let reason = "path patterns have no character classes, so more paths match";
            self.ledger.differ(statement, reason, "check the rules with these paths");
        }
        for pattern in found.patterns {
            match destination(to, &whole_path(&pattern.text), &pattern.captures) {
                Ok(to) if status != 200 && pattern.text == "/*" && to.contains("://") => {
                    self.server.redirect = Some(Redirect { to: Target::Url(to), status });
                }
                Ok(to) => {
                    let force = (status == 200).then_some(true);
                    let rule = RedirectRule { from: pattern.text, to: Some(to), status, force };
                    self.collected.redirect(Order::Exact, rule, statement);
                }
                Err(variable) => return self.has_variable(statement, &variable),
            }
        }
    }

    pub(super) fn condition(&mut self, statement: &'s Statement, place: &Place) {
        let answer = statement.nested().find(|it| matches!(it.name(), "return" | "rewrite"));
        let url = answer.map_or("", |it| it.argument(1));
        let status =
            answer.and_then(|it| it.argument(0).parse().ok()).unwrap_or(match answer.map_or("", |it| it.argument(2)) {
                "permanent" => 301,
                _ => 302,
            });
        let is_redirect = (301..=308).contains(&status) && answer.is_some();
        let whole = destination(url, "/:splat", &["/:splat".to_owned()]);
        match condition(statement) {
            Condition::Unencrypted if is_redirect && is_https_of_same_host(url) => {
                self.server.serves_http = false;
                self.ledger.keep_all(statement);
                if self.server.https.is_empty() {
                    let reason = "requests are redirected to HTTPS only for hosts that have a site with a certificate";
                    self.ledger.differ(statement, reason, "name the files of a certificate in `certificate`");
                }
            }
            Condition::Host(_) if is_redirect && is_https_of_same_host(url) => {
                self.server.redirect = Some(Redirect { to: Target::Https, status });
                self.ledger.keep_all(statement);
            }
            Condition::Host(name) if is_redirect && self.server.hosts.contains(&name) && !name.contains('_') => {
                match whole {
                    Ok(to) => {
                        self.ledger.keep_all(statement);
                        let rule =
                            RedirectRule { from: format!("https://{name}/*"), to: Some(to), status, force: None };
                        self.collected.redirect(Order::Exact, rule, statement);
                    }
                    Err(variable) => self.has_variable(statement, &variable),
                }
            }
            Condition::OtherHost(name) if is_redirect && whole.is_ok() => {
                let others: Vec<String> =
                    self.server.hosts.iter().filter(|host| **host != name && !host.contains('_')).cloned().collect();
                self.ledger.keep_all(statement);
                for other in others {
                    let to = whole.clone().ok();
                    let rule = RedirectRule { from: format!("https://{other}/*"), to, status, force: None };
                    self.collected.redirect(Order::Exact, rule, statement);
                }
            }
            Condition::Missing if url.starts_with('/') && !url.contains(['$', '?']) && !url.contains(".php") => {
                self.ledger.keep_all(statement);
                self.collected.answer(statement, place, Some(url), 200, None);
            }
            Condition::Method => {
                self.ledger.keep_all(statement);
                self.ledger.differ(statement, NO_METHODS, SET_METHODS);
            }
            Condition::MethodIs(method) if answer.is_some_and(|it| it.name() == "return") && !is_redirect => {
                self.answer_method(statement, place, &method, (status, url));
            }
            _ => {
                let reason = "rules have no such condition";
                self.ledger.miss(statement, reason, "write rules for paths, hosts or parameters of the query");
            }
        }
    }

    /// A fixed response to a method, such as OPTIONS.
    fn answer_method(&mut self, statement: &'s Statement, place: &Place, method: &str, (status, text): (u16, &str)) {
        if !backends::is_response(status, text) || !variables(text).is_empty() {
            return self.ledger.miss(statement, "a route cannot give this answer", "write a route with `respond`");
        }
        self.ledger.keep_all(statement);
        if statement.nested().any(|it| it.name() == "add_header") {
            let reason = "the response of a route has only the header fields of its path";
            self.ledger.differ(statement, reason, "set `cors`, which answers OPTIONS");
        }
        for pattern in &place.patterns {
            let keys = vec![("methods", Value::texts([method])), ("respond", backends::response(status, text))];
            backends::add_route(&mut self.server.domain, &pattern.text, keys);
        }
    }

    pub(super) fn error_page(&mut self, statement: &'s Statement, place: &Place) {
        let texts = statement.texts();
        let Some((target, codes)) = texts.split_last() else { return };
        let is_success = codes.contains(&"=200") || codes.contains(&"=");
        let codes: Vec<u16> = codes.iter().filter_map(|code| code.parse().ok()).collect();
        self.ledger.keep(statement);
        if target.starts_with('@') || target.contains("://") || target.contains('$') || target.contains(".php") {
            return self.ledger.miss(statement, "an error page must be a file of the site", "name a file");
        }
        if codes.contains(&404) && (is_success || *target != "/404.html") {
            let status = if is_success { 200 } else { 404 };
            let place = Place { order: Order::Missing, ..place.clone() };
            self.collected.answer(statement, &place, Some(target), status, None);
        }
        if codes.iter().any(|code| *code < 500 && *code != 404) {
            let reason = "other errors than 404 have the built-in page";
            self.ledger.differ(statement, reason, "rules with a status and a file as `to` have their own page");
        }
    }
}
