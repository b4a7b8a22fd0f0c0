//! Redirects, rewrites, errors, fields and passwords of a site of Caddy.

use super::{Reader, set_redirect};
use crate::http_sites::{Redirect, Target};
use crate::model::RedirectRule;
use crate::place::{Order, Place, whole_path};
use crate::regex::PathPattern;
use crate::sources::caddy::placeholders::{destination, environment, placeholder};
use crate::sources::nginx::values::hsts;
use crate::syntax::Statement;
use crate::toml_text::Value;

impl<'s> Reader<'s, '_> {
    pub(super) fn redirect(&mut self, statement: &'s Statement, place: &Place) {
        let Some((matcher, next)) = self.matcher(statement, place, true) else { return };
        let (to, code) = (statement.argument(next), statement.argument(next + 1));
        let status = match code {
            "permanent" => 301,
            "" | "temporary" | "html" => 302,
            code => code.parse().unwrap_or(0),
        };
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return self.ledger.miss(
                statement,
                format!("a redirect cannot have the status `{code}`"),
                "write 301, 302, 303, 307 or 308",
            );
        }
        if matcher.networks.is_some() {
            return self.ledger.miss(statement, "redirects apply to all clients", "write `access` for the paths");
        }
        self.ledger.keep(statement);
        if !matcher.hosts.is_empty() {
            for host in &matcher.hosts {
                match destination(to, "/:splat", &[]) {
                    Ok(to) => {
                        let rule =
                            RedirectRule { from: format!("https://{host}/*"), to: Some(to), status, force: None };
                        self.collected.redirect(Order::Exact, rule, statement);
                    }
                    Err(name) => return self.has_placeholder(statement, &name),
                }
            }
            return;
        }
        let is_https = matches!(to, "https://{host}{uri}" | "https://{host}{path}" | "https://{hostport}{uri}");
        if is_https && matcher.place.is_whole() {
            self.server.redirect = Some(Redirect { to: Target::Https, status });
            return;
        }
        let target = |pattern: &PathPattern| destination(to, &whole_path(&pattern.text), &pattern.captures);
        match self.collected.send_to(statement, &matcher.place, status, target) {
            Ok(redirect) => set_redirect(&mut self.server, redirect),
            Err(name) => self.has_placeholder(statement, &name),
        }
    }

    fn has_placeholder(&mut self, statement: &'s Statement, name: &str) {
        let reason = format!("a destination cannot contain `{name}`");
        self.ledger.miss(statement, reason, "write a rule for each value");
    }

    pub(super) fn rewrite(&mut self, statement: &'s Statement, place: &Place) {
        let Some((matcher, next)) = self.matcher(statement, place, true) else { return };
        let to = statement.argument(next);
        if to.contains(['?', '&']) || to.contains(".php") || !matcher.hosts.is_empty() || matcher.networks.is_some() {
            return self.ledger.miss(
                statement,
                "a rewrite must lead to a file of the site",
                "write a rule for the paths",
            );
        }
        self.ledger.keep(statement);
        let force = (!matcher.is_missing).then_some(true);
        for pattern in &matcher.place.patterns {
            match destination(to, &whole_path(&pattern.text), &pattern.captures) {
                Ok(to) => {
                    let rule = RedirectRule { from: pattern.text.clone(), to: Some(to), status: 200, force };
                    self.collected.redirect(matcher.place.order, rule, statement);
                }
                Err(name) => return self.has_placeholder(statement, &name),
            }
        }
    }

    pub(super) fn try_files(&mut self, statement: &'s Statement, place: &Place) {
        let Some((matcher, next)) =
            self.matcher(statement, place, true).filter(|_| !statement.argument(0).starts_with('/'))
        else {
            return self.ledger.miss(
                statement,
                "only the file of the path itself is tried",
                "write a rewrite for the paths",
            );
        };
        let texts = &statement.texts()[next..];
        let Some((last, tried)) = texts.split_last() else { return };
        let is_tried = |text: &str| {
            matches!(
                text,
                "{path}"
                    | "{uri}"
                    | "{path}/"
                    | "{path}.html"
                    | "{path}/index.html"
                    | "{path}index.html"
                    | "{http.request.uri.path}"
            )
        };
        let (tried, last) = if is_tried(last) { (texts, &"") } else { (tried, last) };
        if !tried.iter().all(|text| is_tried(text)) {
            let nearest = "write a rewrite with `status = 200` for the paths";
            return self.ledger.miss(statement, "only the file of the path itself is tried", nearest);
        }
        self.ledger.keep(statement);
        if tried.contains(&"{path}.html") {
            self.server.domain.set("clean_urls", Value::Boolean(true));
            let reason = "/about.html is redirected to /about, so that each page has one URL";
            self.ledger.differ(statement, reason, "nothing is needed");
        }
        match *last {
            "" | "=404" => {}
            // `php_fastcgi` does this itself.
            file if file.contains(".php") && self.has_php => {}
            file if file.contains(".php") => {
                self.ledger.miss(
                    statement,
                    "missing files are not passed on to an application",
                    "keep Caddy for these paths",
                );
            }
            file if file.contains(['{', '?', '=']) => {
                self.ledger.miss(statement, "a path without a file gets 404 or another file", "write a rule for it");
            }
            file => {
                let file = if file.starts_with('/') { file.to_owned() } else { format!("/{file}") };
                self.collected.answer(statement, &matcher.place, Some(&file), 200, None);
            }
        }
    }

    pub(super) fn respond(&mut self, statement: &'s Statement, place: &Place) {
        let Some((matcher, next)) = self.matcher(statement, place, false) else { return };
        let texts = &statement.texts()[next..];
        let default = match statement.name() {
            "respond" => 200,
            "abort" => 403,
            _ => 500,
        };
        let status: u16 = texts.iter().rev().find_map(|text| text.parse().ok()).unwrap_or(default);
        self.ledger.keep_all(statement);
        if let Some((is_not, networks)) = &matcher.networks {
            match is_not {
                true => self.collected.restrict(&matcher.place, Some(networks), &[]),
                false => self.collected.restrict(&matcher.place, None, networks),
            }
            return;
        }
        let text = texts.iter().find(|text| text.parse::<u16>().is_err()).copied().unwrap_or("");
        let is_rule = matches!(status, 403 | 404 | 410 | 451 | 503) && (text.is_empty() || !matcher.hosts.is_empty());
        if statement.name() == "abort" {
            self.ledger.differ(statement, "the connection is not closed: the status is 403", "nothing is needed");
        }
        match (is_rule, &matcher.hosts[..]) {
            (true, []) => self.collected.answer(statement, &matcher.place, None, status, None),
            (false, []) if statement.name() == "respond" => self.respond_with(statement, &matcher.place, status, text),
            (false, []) => self.respond_with(statement, &matcher.place, status, ""),
            (true, hosts) => {
                for host in hosts {
                    let rule = RedirectRule { from: format!("https://{host}/*"), to: None, status, force: None };
                    self.collected.redirect(Order::Exact, rule, statement);
                }
            }
            (false, _) => self.ledger.miss(statement, "fixed responses apply to paths", "write a site for each host"),
        }
    }

    pub(super) fn header(&mut self, statement: &'s Statement, place: &Place) {
        let Some((matcher, next)) = self.matcher(statement, place, false) else { return };
        if !matcher.has_only_paths() {
            return self.ledger.miss(
                statement,
                "header fields apply to paths",
                "write a rule in `headers` for the paths",
            );
        }
        self.ledger.keep(statement);
        let texts = statement.texts();
        if let Some(name) = texts.get(next) {
            self.field(statement, &matcher.place, name, &texts[next + 1..]);
        }
        for nested in statement.nested() {
            self.ledger.keep(nested);
            if nested.name() != "defer" && nested.name() != "match" {
                self.field(nested, &matcher.place, nested.name(), &nested.texts());
            }
        }
    }

    fn field(&mut self, statement: &'s Statement, place: &Place, name: &str, values: &[&str]) {
        let plain = name.trim_start_matches(['+', '?', '>', '-']).trim_end_matches(':');
        if name.starts_with('-') {
            if plain.contains('*') {
                return self.ledger.miss(statement, "a rule removes fields by their names", "name them");
            }
            return self.collected.field(statement, place, plain, None);
        }
        let value = match values {
            [value] => value.trim(),
            [] => "",
            _ => return self.ledger.miss(statement, "a part of a value cannot be replaced", "write the whole value"),
        };
        if placeholder(value).is_some_and(|name| name.len() > 2 && !name.contains([' ', '"'])) {
            let reason = "the value of a header field is fixed, or a part of the path";
            return self.ledger.miss(statement, reason, "write the value; for origins, use `cors`");
        }
        match plain.to_ascii_lowercase().as_str() {
            "strict-transport-security" if place.is_whole() => match hsts(value) {
                Some(hsts) => self.server.domain.set("hsts", hsts),
                None => self.ledger.miss(statement, "the value is not valid", "set `hsts`"),
            },
            // It is in all responses.
            "x-content-type-options" | "strict-transport-security" => {}
            _ if value.is_empty() => self.collected.field(statement, place, plain, None),
            _ => self.collected.field(statement, place, plain, Some(&environment(value))),
        }
    }

    pub(super) fn password(&mut self, statement: &'s Statement, place: &Place) {
        let Some((matcher, _)) = self.matcher(statement, place, false) else { return };
        if !matcher.has_only_paths() {
            return self.ledger.miss(statement, "passwords apply to paths", "write a rule in `auth` for the paths");
        }
        self.ledger.keep_all(statement);
        let file =
            format!("{}.htpasswd", self.server.hosts.first().map_or("users", |host| host.trim_start_matches("*.")));
        let realm = statement
            .texts()
            .into_iter()
            .rev()
            .find(|text| !matches!(*text, "bcrypt" | "argon2id") && !super::is_matcher(text));
        self.collected.protect(&matcher.place, &file, realm.unwrap_or("private"));
        let nearest = format!("write each user and hash as a line NAME:HASH into `{file}`");
        self.ledger.by_hand(statement, "users and their hashes are in a file", nearest);
    }
}
