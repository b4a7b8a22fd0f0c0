//! Reads a site of Caddy.

mod applications;
mod rules;
mod log;

use super::matcher::{Matcher, is_matcher, named, paths};
use super::placeholders::environment;
use super::{Options, TABLE, tls};
use crate::collected::Collected;
use crate::http_sites::{Redirect, Server, host};
use crate::ledger::Ledger;
use crate::model::{Certificates, Domain, Listeners, Model};
use crate::place::{Order, Place};
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::toml_text::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The reader of a site, with the rules that it has found, which are sorted in the end.
struct Reader<'s, 'm> {
    server: Server<'s>,
    model: &'m mut Model,
    ledger: &'m mut Ledger,
    collected: Collected<'s>,
    /// The matchers with a name.
    named: Vec<&'s Statement>,
    /// Whether a block serves files, and one passes requests on to PHP.
    has_files: bool,
    has_php: bool,
    /// Blocks for some hosts, each of which is a site.
    parts: Vec<(Vec<String>, &'s Statement)>,
}

/// The addresses of a site.
struct Addresses {
    hosts: Vec<String>,
    http: Listeners,
    https: Listeners,
    is_http_only: bool,
}

/// Reads a site, and the blocks in it that are for some hosts only.
pub(super) fn read<'s>(
    statement: &'s Statement,
    options: &Options,
    model: &mut Model,
    ledger: &mut Ledger,
) -> Vec<Server<'s>> {
    ledger.keep(statement);
    let bind: Vec<String> = match statement.find("bind") {
        Some(bind) => bind.texts().into_iter().map(str::to_owned).collect(),
        None => options.bind.clone(),
    };
    let Addresses { hosts, http, https, is_http_only } = addresses(statement, options, &bind, ledger);
    let is_automatic = options.is_automatic && !is_http_only;
    let certificates = if is_automatic { automatic(&hosts) } else { Certificates::None };
    let server = Server {
        statement,
        hosts,
        is_default: false,
        http,
        https,
        domain: Domain { certificates, ..Domain::default() },
        redirect: None,
        serves_http: is_http_only || !options.redirects_to_https,
        is_passed_on: false,
    };
    let named: Vec<&Statement> = statement.nested().filter(|it| it.name().starts_with('@')).collect();
    let (mut servers, mut blocks) = (Vec::new(), vec![(server, statement)]);
    while let Some((server, statement)) = blocks.pop() {
        let collected = Collected::default();
        let mut reader = Reader {
            server,
            model,
            ledger,
            collected,
            named: named.clone(),
            has_files: false,
            has_php: false,
            parts: Vec::new(),
        };
        reader.read(statement.block());
        let certificates = reader.server.domain.certificates.clone();
        for (hosts, statement) in std::mem::take(&mut reader.parts) {
            let of_files = matches!(certificates, Certificates::Files(_));
            let certificates = if of_files || !is_automatic { certificates.clone() } else { automatic(&hosts) };
            let (http, https) = (reader.server.http.clone(), reader.server.https.clone());
            let domain = Domain { certificates, ..Domain::default() };
            let Server { serves_http, .. } = reader.server;
            let (is_default, redirect, is_passed_on) = (false, None, false);
            let part =
                Server { statement, hosts, is_default, http, https, domain, redirect, serves_http, is_passed_on };
            blocks.push((part, statement));
        }
        servers.push(reader.finish());
    }
    if servers.iter().any(|server| server.domain.certificates == Certificates::Automatic) {
        model.acme.get_or_insert_default();
    }
    servers
}

/// Automatic certificates, unless a host needs another validation than over HTTP, or can have none.
fn automatic(hosts: &[String]) -> Certificates {
    let is_public = |host: &String| host.contains('.') && !host.ends_with(".localhost") && !host.starts_with("*.");
    let is_automatic = !hosts.is_empty() && hosts.iter().all(is_public);
    if is_automatic { Certificates::Automatic } else { Certificates::None }
}

/// The hosts and listeners of the addresses of a site.
fn addresses(statement: &Statement, options: &Options, bind: &[String], ledger: &mut Ledger) -> Addresses {
    let mut found =
        Addresses { hosts: Vec::new(), http: Listeners::default(), https: Listeners::default(), is_http_only: true };
    for word in std::iter::once(&statement.name).chain(&statement.arguments) {
        let text = environment(&word.text);
        let (scheme, rest) = text.split_once("://").unwrap_or(("", &text));
        let rest = match rest.split_once('/') {
            Some((rest, path)) => {
                if !path.is_empty() && path != "*" {
                    let nearest = "use a matcher of paths, with the same host in one site";
                    ledger.differ(statement, "an address has no path: the rules apply to all paths", nearest);
                }
                rest
            }
            None => rest,
        };
        let (name, port) = match rest.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) {
            Some((name, port)) => (name, port.parse().ok()),
            None => (rest, None),
        };
        let is_local =
            matches!(name, "" | "*" | "localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let is_http = scheme == "http"
            || port == Some(options.http_port)
            || (is_local
                && (name.is_empty() || port.is_some())
                && scheme != "https"
                && port != Some(options.https_port));
        let port = port.unwrap_or(if is_http { options.http_port } else { options.https_port });
        for address in bound(bind, name) {
            if is_http {
                found.http.add(SocketAddr::new(address, port));
            } else {
                found.https.add(SocketAddr::new(address, port));
                found.http.add(SocketAddr::new(address, options.http_port));
            }
        }
        found.is_http_only &= is_http;
        match host(name) {
            Some(host) if !is_local => {
                if !found.hosts.contains(&host) {
                    found.hosts.push(host);
                }
            }
            _ if is_local => {}
            _ => {
                let reason = format!("`{name}` is neither a name nor a wildcard such as *.example.com");
                ledger.miss(statement, reason, "write the names");
            }
        }
    }
    found
}

/// The addresses of the listeners of a site with this host.
fn bound(bind: &[String], name: &str) -> Vec<IpAddr> {
    let parse = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let of_bind: Vec<IpAddr> = bind.iter().filter_map(|text| parse(text)).collect();
    match parse(name) {
        // The site is for this machine only.
        _ if of_bind.is_empty() && name == "localhost" => {
            vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        }
        _ if !of_bind.is_empty() => of_bind,
        Some(address) => vec![address],
        None => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
    }
}

impl<'s> Reader<'s, '_> {
    fn read(&mut self, statements: &'s [Statement]) {
        let whole = Place::whole();
        self.server.domain.site = document_root(statements);
        self.has_files = statements.iter().any(has_files);
        self.has_php = statements.iter().any(|it| it.name() == "php_fastcgi");
        self.block(statements, &whole, false);
    }

    /// Reads the directives of a block, whose path is removed before an application gets it if `strips`.
    fn block(&mut self, statements: &'s [Statement], place: &Place, strips: bool) {
        for statement in statements {
            if matches!(statement.name(), "reverse_proxy" | "php_fastcgi") {
                self.pass_on(statement, place, strips);
            } else if statement.name() == "uri" && strips {
                // The prefix of the block is removed for its application.
                self.ledger.keep(statement);
            } else if statement.name().starts_with('@') {
                // Those that no rule can have are reported where they are used.
                self.ledger.keep_all(statement);
            } else if has_keys(TABLE, "site", statement, self.ledger) {
                self.directive(statement, place);
            }
        }
    }

    /// The matcher of a statement, and the index of the argument after it. `None` if it is reported.
    fn matcher(&mut self, statement: &'s Statement, place: &Place, needs_more: bool) -> Option<(Matcher, usize)> {
        let first = statement.argument(0);
        let is_alone = statement.arguments.len() == 1 && needs_more;
        if !is_matcher(first) || is_alone {
            return Some((Matcher::of(place.clone()), 0));
        }
        let found = match first {
            "*" => Ok(Matcher::of(place.clone())),
            name if name.starts_with('@') => named(name, &self.named, place),
            path => paths(&[path]).map(Matcher::of).ok_or_else(|| format!("`{path}` has more than one `*`")),
        };
        match found {
            Ok(matcher) => Some((matcher, 1)),
            Err(reason) => {
                let protects = matches!(statement.name(), "respond" | "error" | "abort" | "basic_auth" | "basicauth");
                let reason = if protects { format!("{reason}, so the paths are NOT protected") } else { reason };
                self.ledger.miss(statement, reason, "write rules for paths, hosts or parameters of the query");
                None
            }
        }
    }

    fn directive(&mut self, statement: &'s Statement, place: &Place) {
        match statement.name() {
            "root" => self.root(statement),
            "file_server" => self.file_server(statement, place),
            "redir" => self.redirect(statement, place),
            "rewrite" => self.rewrite(statement, place),
            "try_files" => self.try_files(statement, place),
            "respond" | "error" | "abort" => self.respond(statement, place),
            "header" => self.header(statement, place),
            "basic_auth" | "basicauth" => self.password(statement, place),
            "handle" | "handle_path" | "route" => self.handle(statement, place),
            "handle_errors" => self.errors(statement),
            "tls" => tls::tls(statement, &mut self.server.domain, self.model, self.ledger),
            "log" => self.log(statement),
            _ => self.ledger.keep_all(statement),
        }
    }

    fn root(&mut self, statement: &'s Statement) {
        let path = statement.arguments.last().map_or("", |word| word.text.as_str());
        let path = environment(path);
        if self.server.domain.site.as_deref() == Some(trimmed(&path)) {
            return self.ledger.keep(statement);
        }
        let nearest = "put a symbolic link into the site, and name its target in `link_targets`";
        self.ledger.miss(statement, "a domain has one document root", nearest);
    }

    fn file_server(&mut self, statement: &'s Statement, place: &Place) {
        self.ledger.keep(statement);
        if statement.texts().contains(&"browse") {
            self.list(statement, place);
        }
        for option in statement.nested() {
            match option.name() {
                "browse" => self.list(option, place),
                "root" => self.root(option),
                "index" => {
                    self.ledger.keep(option);
                    if place.is_whole() && option.argument(0) != "index.html" && option.arguments.len() <= 8 {
                        self.server.domain.set("index", Value::texts(option.texts()));
                    }
                }
                "hide" => self.hide(option),
                "precompressed" | "disable_canonical_uris" | "pass_thru" => self.ledger.keep(option),
                _ => self.ledger.miss(option, "files are sent with their own status", "write a rule with a status"),
            }
        }
    }

    /// `hide .git *.secret`: names with a leading dot and backups are hidden anyway.
    fn hide(&mut self, option: &'s Statement) {
        self.ledger.keep(option);
        for text in option.texts() {
            let name = text.rsplit('/').next().unwrap_or(text);
            match name.strip_prefix('*') {
                _ if name.starts_with('.') => {}
                Some(end) if !end.is_empty() && !end.contains('*') => {
                    let place = Place::of(format!("/*{end}"), Order::Exact);
                    self.collected.answer(option, &place, None, 404, None);
                }
                _ => {
                    let reason = format!("no path pattern is equivalent to `{text}`, so the files are NOT hidden");
                    self.ledger.miss(option, reason, "add rules with `status = 404` for the paths");
                }
            }
        }
    }

    fn list(&mut self, statement: &'s Statement, place: &Place) {
        if place.is_whole() {
            self.ledger.keep_all(statement);
            self.server.domain.set("listing", Value::Boolean(true));
        } else {
            self.ledger.miss(statement, "directory listings are enabled for a whole domain", "set `listing = true`");
        }
    }

    fn handle(&mut self, statement: &'s Statement, place: &Place) {
        let Some((matcher, _)) = self.matcher(statement, place, false) else { return };
        self.ledger.keep(statement);
        if place.is_whole() && !matcher.hosts.is_empty() && matcher.networks.is_none() && !matcher.is_missing {
            self.parts.push((matcher.hosts, statement));
        } else if matcher.has_only_paths() {
            let is_prefix = |it: &Statement| {
                it.name() == "uri"
                    && it.argument(0) == "strip_prefix"
                    && matcher.place.patterns.iter().all(|pattern| {
                        pattern.text.trim_end_matches('*').trim_end_matches('/') == it.argument(1).trim_end_matches('/')
                    })
            };
            let strips = statement.name() == "handle_path" || statement.nested().any(is_prefix);
            self.block(statement.block(), &matcher.place, strips);
        } else {
            let reason = "rules apply to paths or hosts, not to single clients";
            self.ledger.miss(statement, reason, "write `access` for clients");
        }
    }

    fn errors(&mut self, statement: &'s Statement) {
        let rewrite = statement.nested().find_map(|it| match it.name() {
            "rewrite" => Some(it),
            "handle" | "route" => it.find("rewrite"),
            _ => None,
        });
        let page = rewrite.and_then(|it| it.arguments.last()).map(|word| word.text.as_str());
        match page {
            Some("/404.html" | "404.html") => self.ledger.keep_all(statement),
            Some(page) if page.contains("{err.status_code}") || page.contains("{http.error.status_code}") => {
                let reason = "only /404.html is the page of an error; others need rules";
                self.ledger.keep_all(statement);
                self.ledger.differ(statement, reason, "rename or copy the page for 404 to /404.html");
            }
            Some(page) if page.starts_with('/') && !page.contains('{') => {
                self.ledger.keep_all(statement);
                let place = Place { order: Order::Missing, ..Place::whole() };
                self.collected.answer(statement, &place, Some(page), 404, None);
            }
            _ => self.ledger.miss(statement, "an error page must be a file of the site", "put it into /404.html"),
        }
    }

    /// The site with its rules in the order in which they apply.
    fn finish(mut self) -> Server<'s> {
        if self.server.is_passed_on {
            self.server.domain.site = None;
        }
        let is_served = self.server.domain.site.is_some() || self.server.redirect.is_some();
        if is_served && self.server.domain.certificates == Certificates::None && !self.server.https.is_empty() {
            let reason = "the site has no certificate, so it is served over HTTP";
            self.ledger.differ(self.server.statement, reason, "name the files of one in `certificate`");
        }
        if self.server.domain.certificates != Certificates::None && !self.server.serves_http {
            self.server.domain.keys.retain(|(key, _)| *key != "https_redirect");
        }
        let is_redirected = self.server.redirect.is_some();
        self.collected.finish(&mut self.server.domain, is_redirected, self.ledger);
        self.server
    }
}

/// Whether a directive, or one in its block, serves files.
fn has_files(statement: &Statement) -> bool {
    statement.name() == "file_server" || statement.nested().any(has_files)
}

fn trimmed(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => "/",
        path => path,
    }
}

/// The document root of a site: its own, else that of the block for all paths.
fn document_root(statements: &[Statement]) -> Option<String> {
    let of = |statements: &[Statement]| {
        let is_whole = |it: &&Statement| {
            it.name() == "root"
                && !matches!(it.arguments.first(), Some(word) if it.arguments.len() > 1 && word.text != "*")
        };
        let root = statements.iter().find(is_whole).and_then(|it| it.arguments.last());
        let nested = || {
            statements.iter().filter(|it| it.name() == "file_server").find_map(|it| it.find("root")?.arguments.last())
        };
        root.or_else(nested).map(|word| word.text.clone())
    };
    let is_block =
        |it: &&Statement| matches!(it.name(), "handle" | "route") && matches!(it.argument(0), "" | "*" | "/*");
    let root = of(statements).or_else(|| statements.iter().filter(is_block).find_map(|it| of(it.block())));
    let has_files = |it: &Statement| it.name() == "file_server";
    let serves =
        statements.iter().any(has_files) || statements.iter().filter(is_block).any(|it| it.nested().any(has_files));
    let root = root.or_else(|| serves.then(|| ".".to_owned()))?;
    let root = environment(&root);
    (super::placeholders::placeholder(&root).is_none()).then(|| trimmed(&root).to_owned())
}

/// A redirect of a whole site, if there is one.
fn set_redirect(server: &mut Server<'_>, redirect: Option<Redirect>) {
    if redirect.is_some() {
        server.redirect = redirect;
    }
}
