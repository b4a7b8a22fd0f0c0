//! The files of a server of nginx: document root, index, `try_files`, media types.

use super::Reader;
use crate::place::Place;
use crate::syntax::Statement;
use crate::toml_text::Value;

impl<'s> Reader<'s, '_> {
    pub(super) fn root(&mut self, statement: &'s Statement, place: &Place) {
        if self.server.domain.site.as_deref() == Some(statement.argument(0).trim_end_matches('/')) {
            return self.ledger.keep(statement);
        }
        let is_challenge = place.patterns.iter().all(|pattern| pattern.text.starts_with("/.well-known"));
        if is_challenge {
            return self.ledger.keep(statement);
        }
        let nearest = "put a symbolic link into the site, and name its target in `link_targets`";
        self.ledger.miss(statement, "a domain has one document root", nearest);
    }

    pub(super) fn index(&mut self, statement: &'s Statement, place: &Place) {
        if statement.texts().iter().any(|name| name.ends_with(".php")) {
            self.programs = Some(statement);
        }
        let names: Vec<&str> =
            statement.texts().into_iter().filter(|name| !name.ends_with(".php") && !name.contains('$')).collect();
        let is_default = names.first() == Some(&"index.html") || names.is_empty();
        if place.is_whole() && !is_default && names.len() <= 8 && names.iter().all(|name| !name.contains('/')) {
            self.ledger.keep(statement);
            self.server.domain.set("index", Value::texts(names));
        } else if is_default {
            self.ledger.keep(statement);
        } else {
            self.ledger.miss(statement, "the names of index files apply to a whole domain", "set `index`");
        }
    }

    pub(super) fn try_files(&mut self, statement: &'s Statement, place: &Place) {
        let mut texts = statement.texts();
        if texts.len() > 2 && texts.last() == Some(&"=404") && !texts[texts.len() - 2].contains('$') {
            texts.pop();
        }
        let Some((last, tried)) = texts.split_last() else { return };
        let has_clean_urls = tried.contains(&"$uri.html");
        let is_file =
            |text: &str| matches!(text, "$uri" | "$uri/" | "$uri.html" | "$uri/index.html" | "$uri/index.htm" | "");
        if !tried.iter().all(|text| is_file(text)) {
            let nearest = "write a rewrite with `status = 200` for the paths";
            return self.ledger.miss(statement, "only the file of the path itself is tried", nearest);
        }
        self.ledger.keep(statement);
        if has_clean_urls {
            if !place.is_whole() {
                return self.ledger.miss(
                    statement,
                    "URLs without .html are for a whole domain",
                    "set `clean_urls = true`",
                );
            }
            self.server.domain.set("clean_urls", Value::Boolean(true));
            let reason = "/about.html is redirected to /about, so that each page has one URL";
            self.ledger.differ(statement, reason, "nothing is needed");
        }
        match *last {
            "=404" | "$uri" | "$uri/" => {}
            name if name.starts_with('@') => match self.named_target(name) {
                None if self.named_pass(name).is_some() => {
                    let (pass, block) = self.named_pass(name).expect("a location that passes on");
                    self.pass_on(pass, &block, place, true);
                }
                Some(file) => self.collected.answer(statement, place, Some(&file), 200, None),
                None => self.ledger.miss(
                    statement,
                    "missing files are not passed on to another server",
                    "keep nginx for these paths",
                ),
            },
            file if file.contains(".php") && place.is_whole() => {
                let script = file.split('?').next().unwrap_or(file).split('$').next().unwrap_or(file);
                self.front_controller = Some((statement, script.trim_start_matches('/').to_owned()));
            }
            file if file.contains(".php") && place.patterns.iter().any(|it| it.text.ends_with(".php")) => {}
            file if file.contains(".php") => {
                self.programs = Some(statement);
                self.ledger.miss(
                    statement,
                    "only a whole site has a script for paths without a file",
                    "write a route with `fastcgi`",
                );
            }
            file if file.starts_with('/') && !file.contains('$') => {
                let file = file.split('?').next().unwrap_or(file).to_owned();
                self.collected.answer(statement, place, Some(&file), 200, None);
            }
            _ => self.ledger.miss(statement, "a path without a file gets 404 or another file", "write a rule for it"),
        }
    }

    /// The statement of a named location that passes requests on, and its block.
    fn named_pass(&self, name: &str) -> Option<(&'s Statement, Vec<&'s Statement>)> {
        let location = self.named.iter().find(|it| it.argument(0) == name)?;
        let pass = location.nested().find(|it| matches!(it.name(), "proxy_pass" | "fastcgi_pass"))?;
        Some((pass, location.nested().collect()))
    }

    /// The file that a named location rewrites all paths to.
    fn named_target(&self, name: &str) -> Option<String> {
        let location = self.named.iter().find(|it| it.argument(0) == name)?;
        let rewrite = location
            .find("rewrite")
            .filter(|it| matches!(it.argument(0), "^" | ".*" | "^(.*)$" | "^(.+)$" | "^.*$"))?;
        let file = rewrite.argument(1);
        (file.starts_with('/') && !file.contains(['$', '?']) && !file.ends_with(".php")).then(|| file.to_owned())
    }

    pub(super) fn types(&mut self, statement: &'s Statement) {
        self.ledger.keep_all(statement);
        let mut entries = match self.server.domain.get("media_types") {
            Some(Value::Table(entries)) => entries.clone(),
            _ => Vec::new(),
        };
        for nested in statement.nested().filter(|nested| nested.name().contains('/')) {
            for extension in nested.texts() {
                let extension = extension.to_ascii_lowercase();
                if entries.iter().all(|(known, _)| *known != extension) {
                    entries.push((extension, nested.name().into()));
                }
            }
        }
        if !entries.is_empty() {
            self.server.domain.set("media_types", Value::Table(entries));
        }
    }
}
