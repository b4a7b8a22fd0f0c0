//! Reads a `server` of nginx.

mod access;
mod applications;
mod files;
mod limits;
mod redirects;

use super::place::{Location, location};
use super::values::{hsts, seconds, variables};
use super::{Shared, TABLE};
use crate::backends::Application;
use crate::collected::Collected;
use crate::http_sites::{Server, host};
use crate::ledger::Ledger;
use crate::model::{Domain, Listeners, Model};
use crate::networks::socket_address;
use crate::place::{Order, Place};
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::toml_text::Value;
use std::net::SocketAddr;

/// The reader of a server, with the rules that it has found, which are sorted in the end.
struct Reader<'s, 'm> {
    server: Server<'s>,
    shared: &'m Shared,
    model: &'m mut Model,
    ledger: &'m mut Ledger,
    collected: Collected<'s>,
    /// The paths of `error_page`.
    error_pages: Vec<&'s str>,
    /// The directives of the server itself, and inherited ones.
    all: Vec<&'s Statement>,
    /// The locations with a name.
    named: Vec<&'s Statement>,
    /// Whether a location has files, where others are passed on.
    has_files: bool,
    /// A statement that names programs in PHP.
    programs: Option<&'s Statement>,
    /// The application that runs them.
    php: Option<Application>,
    /// The script for paths without a file, and the statement that names it.
    front_controller: Option<(&'s Statement, String)>,
}

/// Reads a server, which has the directives `inherited` too, unless it has its own.
pub(super) fn read<'s>(
    statement: &'s Statement,
    inherited: &[&'s Statement],
    shared: &Shared,
    model: &mut Model,
    ledger: &mut Ledger,
) -> Server<'s> {
    ledger.keep(statement);
    let server = Server {
        statement,
        hosts: Vec::new(),
        is_default: false,
        http: Listeners::default(),
        https: Listeners::default(),
        domain: Domain::default(),
        redirect: None,
        serves_http: false,
        is_passed_on: false,
    };
    let mut reader = Reader {
        server,
        shared,
        model,
        ledger,
        collected: Collected::default(),
        error_pages: Vec::new(),
        all: Vec::new(),
        named: Vec::new(),
        has_files: false,
        programs: None,
        php: None,
        front_controller: None,
    };
    reader.read(statement.block(), inherited);
    reader.finish()
}

impl<'s> Reader<'s, '_> {
    fn read(&mut self, own: &'s [Statement], inherited: &[&'s Statement]) {
        self.listeners(own);
        let is_missing = |it: &&&Statement| own.iter().all(|one| one.name() != it.name());
        let all: Vec<&'s Statement> = inherited.iter().filter(is_missing).copied().chain(own).collect();
        self.server.domain.site = document_root(&all);
        let is_named = |it: &&&Statement| it.name() == "location" && it.argument(0).starts_with('@');
        self.named = all.iter().filter(is_named).copied().collect();
        self.has_files = all.iter().any(|it| has_files(it));
        self.all = all.iter().filter(|it| it.name() != "location").copied().collect();
        let error_pages = all.iter().filter(|it| it.name() == "error_page");
        self.error_pages = error_pages.filter_map(|it| it.arguments.last()).map(|word| word.text.as_str()).collect();
        self.block(&all, &Place::whole());
    }

    fn listeners(&mut self, own: &'s [Statement]) {
        let is_tls = own.iter().any(|it| it.name() == "ssl" && it.argument(0) == "on");
        let mut has_listen = false;
        for statement in own {
            match statement.name() {
                "listen" => {
                    has_listen = true;
                    self.listen(statement, is_tls);
                }
                "server_name" => self.names(statement),
                _ => {}
            }
        }
        if !has_listen {
            self.server.http.add(SocketAddr::from(([0, 0, 0, 0], 80)));
        }
        self.server.serves_http = !self.server.http.is_empty();
    }

    fn listen(&mut self, statement: &'s Statement, is_tls: bool) {
        let texts = statement.texts();
        let (text, flags) = (statement.argument(0), texts.get(1..).unwrap_or_default());
        let address = match text.parse::<u16>() {
            Ok(port) => Some(SocketAddr::from(([0, 0, 0, 0], port))),
            Err(_) => socket_address(&text.replace("localhost", "127.0.0.1"), ':', 80),
        };
        let Some(address) = address else {
            let nearest = "write an address with a port; a socket of systemd is passed with LISTEN_FDS";
            return self.ledger.miss(statement, "this is not an IP address", nearest);
        };
        if flags.contains(&"quic") {
            return self.ledger.miss(statement, "HTTP/3 is not supported", "browsers use HTTP/2 instead");
        }
        self.ledger.keep(statement);
        self.server.is_default |= flags.contains(&"default_server") || flags.contains(&"default");
        if is_tls || flags.contains(&"ssl") {
            self.server.https.add(address);
        } else {
            self.server.http.add(address);
        }
    }

    fn names(&mut self, statement: &'s Statement) {
        self.ledger.keep(statement);
        for word in &statement.arguments {
            let text = word.text.as_str();
            if matches!(text, "_" | "" | "localhost" | "*" | "--" | "-") || text.parse::<std::net::IpAddr>().is_ok() {
                continue;
            }
            match host(text) {
                Some(name) => {
                    self.server.hosts.extend(text.strip_prefix('.').and_then(host));
                    if !self.server.hosts.contains(&name) {
                        self.server.hosts.push(name);
                    }
                }
                None => {
                    let reason = format!("`{text}` is neither a name nor a wildcard such as *.example.com");
                    self.ledger.miss(statement, reason, "list the names");
                }
            }
        }
    }

    /// Reads the directives of a block.
    fn block(&mut self, statements: &[&'s Statement], place: &Place) {
        self.protect(statements, place);
        self.certificates(statements);
        for (index, &statement) in statements.iter().enumerate() {
            match statement.name() {
                "listen" | "server_name" | "allow" | "deny" => {}
                "auth_basic" | "auth_basic_user_file" | "ssl_certificate" | "ssl_certificate_key" => {}
                "location" => self.location(statement, index),
                "fastcgi_pass" | "proxy_pass" | "uwsgi_pass" | "scgi_pass" | "grpc_pass" => {
                    self.pass_on(statement, statements, place, false);
                }
                _ if has_keys(TABLE, "", statement, self.ledger) => self.directive(statement, place),
                _ => {}
            }
        }
    }

    fn directive(&mut self, statement: &'s Statement, place: &Place) {
        let value = statement.argument(0);
        let is_whole = place.is_whole();
        match statement.name() {
            "root" => self.root(statement, place),
            "index" => self.index(statement, place),
            "try_files" => self.try_files(statement, place),
            "return" => self.answer(statement, place),
            "rewrite" => self.rewrite(statement),
            "if" => self.condition(statement, place),
            "error_page" => self.error_page(statement, place),
            "add_header" => self.field(statement, place),
            "expires" => self.expires(statement, place),
            "gzip" => {
                self.ledger.keep(statement);
                if is_whole && value == "off" {
                    self.server.domain.set("compress", Value::Boolean(false));
                }
            }
            "autoindex" if value == "on" && !is_whole => {
                self.ledger.miss(
                    statement,
                    "directory listings are enabled for a whole domain",
                    "set `listing = true`",
                );
            }
            "autoindex" => {
                self.ledger.keep(statement);
                if value == "on" {
                    self.server.domain.set("listing", Value::Boolean(true));
                }
            }
            "types" => self.types(statement),
            "access_log" => self.access_log(statement, place),
            "ssl_reject_handshake" => {
                self.ledger.keep(statement);
                self.model.https_keys = vec![("refuse_unknown_names", Value::Boolean(value == "on"))];
            }
            "limit_req" | "limit_conn" | "keepalive_timeout" => self.limit(statement, place),
            // They are read with the application of the block.
            name if name.starts_with("proxy_") || name.starts_with("fastcgi_") || name.starts_with("client_") => {
                self.ledger.keep(statement);
            }
            _ => self.ledger.miss(statement, "the directive has no effect here", "move it to the level above"),
        }
    }

    fn location(&mut self, statement: &'s Statement, index: usize) {
        let block: Vec<&Statement> = statement.block().iter().collect();
        match location(statement, index) {
            Location::Named => self.named_location(statement),
            Location::Hidden => self.ledger.keep_all(statement),
            Location::Unknown => {
                let is_php = statement.texts().concat().contains("php");
                if is_php && statement.nested().any(|it| it.name() == "fastcgi_pass") {
                    self.ledger.keep(statement);
                    return self.block(&block, &Place::of("/*.php".to_owned(), Order::Exact));
                }
                let protects =
                    statement.nested().any(|it| matches!(it.name(), "deny" | "allow" | "auth_basic" | "return"));
                let end = if protects { ", so the paths are NOT protected" } else { "" };
                let reason = format!("no path pattern is equivalent to the regular expression{end}");
                self.ledger.miss(statement, reason, "write a rule for each path, with `*` or `:name`");
                if is_php {
                    self.programs = Some(statement);
                }
            }
            Location::Place(place) => {
                self.ledger.keep(statement);
                let path = statement.arguments.last().map_or("", |word| &word.text);
                if self.error_pages.contains(&path) && path != "/404.html" && block.iter().all(|it| is_of_page(it)) {
                    return self.ledger.keep_all(statement);
                }
                if path.starts_with("/.well-known/acme-challenge") {
                    return self.ledger.keep_all(statement);
                }
                if statement.argument(0) == "~*" {
                    let reason = "patterns are case-sensitive";
                    self.ledger.differ(statement, reason, "add rules for other spellings, if there are such files");
                }
                if place.is_wider {
                    let reason = "path patterns have no character classes, so more paths match";
                    self.ledger.differ(statement, reason, "check the rules with these paths");
                }
                self.block(&block, &place);
            }
        }
    }

    /// A location that `try_files` or `error_page` names, which have its effect.
    fn named_location(&mut self, statement: &'s Statement) {
        self.ledger.keep(statement);
        for nested in statement.nested() {
            // Those that pass on are read where `try_files` names the location.
            if matches!(nested.name(), "rewrite" | "return") || nested.name().contains('_') {
                self.ledger.keep(nested);
            } else if has_keys(TABLE, "", nested, self.ledger) {
                self.ledger.miss(nested, "the location has no paths", "write a rule for the paths that lead to it");
            }
        }
    }

    fn field(&mut self, statement: &'s Statement, place: &Place) {
        let (name, value) = (statement.argument(0), statement.argument(1).trim());
        if !variables(value).is_empty() {
            let reason = "the value of a header field is fixed, or a part of the path";
            return self.ledger.miss(statement, reason, "write the value; for origins, use `cors`");
        }
        self.ledger.keep(statement);
        match name.to_ascii_lowercase().as_str() {
            "strict-transport-security" if place.is_whole() => match hsts(value) {
                Some(hsts) => self.server.domain.set("hsts", hsts),
                None => self.ledger.miss(statement, "the value is not valid", "set `hsts`"),
            },
            // It is in all responses.
            "x-content-type-options" | "strict-transport-security" => {}
            _ if value.is_empty() => {}
            _ => self.collected.field(statement, place, name, Some(value)),
        }
    }

    fn expires(&mut self, statement: &'s Statement, place: &Place) {
        let value = match statement.argument(0) {
            "off" => return self.ledger.keep(statement),
            "max" => "max-age=315360000".to_owned(),
            "epoch" => "no-cache".to_owned(),
            text if text.starts_with('-') => "no-cache".to_owned(),
            text => match seconds(text.trim_start_matches('+')) {
                Some(seconds) => format!("max-age={seconds}"),
                None => {
                    let reason = "the time of a cache is fixed for each path";
                    return self.ledger.miss(statement, reason, "add `Cache-Control` in `headers`, or set `cache`");
                }
            },
        };
        self.ledger.keep(statement);
        self.collected.field(statement, place, "Cache-Control", Some(&value));
    }

    /// The server with its rules in the order in which they apply.
    fn finish(mut self) -> Server<'s> {
        self.finish_php();
        if self.server.is_passed_on {
            self.server.domain.site = None;
        }
        self.collected.finish(&mut self.server.domain, self.server.redirect.is_some(), self.ledger);
        self.server
    }
}

/// The document root of a server: its own, else that of the location of all paths.
fn document_root(statements: &[&Statement]) -> Option<String> {
    let own = statements.iter().rev().find(|it| it.name() == "root").map(|it| it.argument(0));
    let is_whole =
        |it: &&&Statement| it.name() == "location" && it.arguments.last().is_some_and(|word| word.text == "/");
    let of_location = || statements.iter().find(is_whole)?.nested().find(|it| matches!(it.name(), "root" | "alias"));
    let root = own.or_else(|| of_location().map(|it| it.argument(0)))?;
    (!root.contains('$') && !root.is_empty()).then(|| match root.trim_end_matches('/') {
        "" => "/".to_owned(),
        root => root.to_owned(),
    })
}

fn is_https_of_same_host(url: &str) -> bool {
    let hosts = ["https://$host", "https://$server_name", "https://$http_host"];
    hosts.iter().filter_map(|start| url.strip_prefix(start)).any(|rest| {
        let rest = rest.strip_prefix(":443").or(rest.strip_prefix(":$server_port")).unwrap_or(rest);
        matches!(
            rest,
            "$request_uri" | "$uri" | "$1" | "/$1" | "/$request_uri" | "$uri$is_args$args" | "" | "/" | "$request_uri?"
        )
    })
}

/// Whether a location serves files: it neither passes on nor answers itself.
fn has_files(statement: &Statement) -> bool {
    let is_other = |it: &Statement| it.name().ends_with("_pass") || matches!(it.name(), "return" | "deny" | "internal");
    let path = statement.arguments.last().map_or("", |word| &word.text);
    let is_special = path.starts_with('@') || path.contains("well-known") || path.contains("/\\.");
    statement.name() == "location" && !is_special && !statement.nested().any(is_other)
}

/// Whether a directive of the location of an error page only says where the page is.
fn is_of_page(statement: &Statement) -> bool {
    matches!(statement.name(), "root" | "internal" | "access_log" | "allow" | "alias" | "log_not_found")
}
