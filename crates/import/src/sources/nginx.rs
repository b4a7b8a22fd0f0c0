//! Makes a model of nginx.conf.

mod server;
mod place;
mod conditions;
pub(super) mod values;
mod table;

use crate::http_sites::{self, Server};
use crate::ledger::Ledger;
use crate::model::Model;
use crate::settings::{set_user, set_workers};
use crate::syntax::Statement;
use crate::table::has_keys;
use std::collections::HashMap;

pub(crate) use table::TABLE;

/// Included files with media types and parameters for other servers, which nginx comes with.
const PACKAGED: [&str; 6] =
    ["mime.types", "fastcgi_params", "fastcgi.conf", "uwsgi_params", "scgi_params", "fastcgi-php.conf"];
/// Directives of `http` that hold for all of its servers.
const FOR_ALL: [&str; 6] =
    ["upstream", "log_format", "limit_req_zone", "limit_conn_zone", "set_real_ip_from", "real_ip_header"];
/// Directives of `http` that each server inherits, unless it has one itself.
const INHERITED: [&str; 26] = [
    "proxy_set_header",
    "proxy_hide_header",
    "proxy_read_timeout",
    "proxy_connect_timeout",
    "proxy_send_timeout",
    "fastcgi_read_timeout",
    "client_max_body_size",
    "root",
    "index",
    "autoindex",
    "gzip",
    "add_header",
    "expires",
    "auth_basic",
    "auth_basic_user_file",
    "allow",
    "deny",
    "ssl_certificate",
    "ssl_certificate_key",
    "error_page",
    "access_log",
    "keepalive_timeout",
    "limit_req",
    "limit_conn",
    "types",
    "try_files",
];

/// The pattern of the files of `include`.
pub(crate) fn included(statement: &Statement) -> Option<String> {
    let path = statement.argument(0);
    let is_packaged = PACKAGED.iter().any(|name| path.ends_with(name)) || path.contains("modules-enabled");
    (statement.name() == "include" && !is_packaged && !path.is_empty()).then(|| path.to_owned())
}

/// Settings of `http` that servers refer to.
#[derive(Default)]
pub(super) struct Shared {
    /// The formats of `log_format`, by their names.
    formats: HashMap<String, String>,
    /// The servers of `upstream`, each with its weight, by the name of the group.
    upstreams: HashMap<String, Vec<(String, u64)>>,
    /// The rates of `limit_req_zone` in requests per second, by the names of the zones.
    rates: HashMap<String, u64>,
    /// The value of `client_from` for `real_ip_header`, which may come before the proxies.
    client_from: Option<&'static str>,
}

/// Adds all servers to the model.
pub(crate) fn interpret(statements: &[Statement], model: &mut Model, ledger: &mut Ledger) {
    let mut servers = Vec::new();
    for statement in statements {
        match statement.name() {
            "http" => {
                ledger.keep(statement);
                servers.extend(http(statement.block(), model, ledger));
            }
            "events" => {
                ledger.keep(statement);
                statement.nested().for_each(|nested| main(nested, model, ledger));
            }
            _ => {}
        }
    }
    // A file of conf.d or sites-enabled has the content of `http`.
    let is_http = |statement: &&Statement| statement.name() == "http";
    if !statements.iter().any(|statement| is_http(&statement)) {
        servers.extend(http(statements, model, ledger));
    } else {
        for statement in statements.iter().filter(|statement| !["http", "events"].contains(&statement.name())) {
            main(statement, model, ledger);
        }
    }
    http_sites::add(servers, model, ledger);
}

/// A directive of the main level.
fn main(statement: &Statement, model: &mut Model, ledger: &mut Ledger) {
    if !has_keys(TABLE, "", statement, ledger) {
        return;
    }
    match (statement.name(), statement.argument(0)) {
        ("user", user) => set_user(statement, (user, statement.argument(1)), "files of the sites", model, ledger),
        ("worker_processes", "auto") => ledger.keep(statement),
        ("worker_processes", _) => set_workers(statement, model, ledger),
        _ => ledger.miss(statement, "the directive has no effect here", "move it into `http` or `server`"),
    }
}

/// The servers in the block of `http`.
fn http<'s>(statements: &'s [Statement], model: &mut Model, ledger: &mut Ledger) -> Vec<Server<'s>> {
    let mut shared = Shared::default();
    for statement in statements.iter().filter(|statement| FOR_ALL.contains(&statement.name())) {
        values::shared(statement, &mut shared, model, ledger);
    }
    let has = |name: &str| model.http_keys.iter().any(|(key, _)| *key == name);
    if has("trusted_proxies") && !has("client_from") {
        model.http_keys.push(("client_from", shared.client_from.unwrap_or("x-forwarded-for").into()));
    }
    let is_inherited = |statement: &&Statement| INHERITED.contains(&statement.name());
    let inherited: Vec<&Statement> = statements.iter().filter(is_inherited).collect();
    let mut servers = Vec::new();
    for statement in statements {
        match statement.name() {
            // Requests for WebSocket are passed on as such.
            "map" if statement.argument(0) == "$http_upgrade" => ledger.keep_all(statement),
            "server" => servers.push(server::read(statement, &inherited, &shared, model, ledger)),
            name if FOR_ALL.contains(&name) => {}
            name if INHERITED.contains(&name) => ledger.keep_all(statement),
            "user" | "worker_processes" => main(statement, model, ledger),
            _ if has_keys(TABLE, "", statement, ledger) => {
                ledger.miss(statement, "the directive has no effect here", "move it into `server`");
            }
            _ => {}
        }
    }
    servers
}
