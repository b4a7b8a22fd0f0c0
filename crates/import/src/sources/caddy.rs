//! Makes a model of a Caddyfile.

mod site;
mod tls;
mod matcher;
mod placeholders;
mod table;

use crate::http_sites;
use crate::ledger::Ledger;
use crate::model::{Certificates, Model};
use crate::syntax::{Statement, Word};
use crate::table::has_keys;
use crate::toml_text::{Value, without_variables};
use matcher::networks;
use std::collections::HashMap;

pub(crate) use table::TABLE;

/// Snippets within snippets.
const SNIPPET_DEPTH_MAX: usize = 16;
/// Statements of all sites with their snippets.
const STATEMENTS_MAX: usize = 200_000;

/// The pattern of the files of `import`; a name without a dot or slash is a snippet.
pub(crate) fn included(statement: &Statement) -> Option<String> {
    let name = statement.argument(0);
    let is_file = name.contains(['/', '*', '.']) && !name.contains('{');
    (statement.name() == "import" && is_file).then(|| name.to_owned())
}

/// Options of all sites.
pub(super) struct Options {
    http_port: u16,
    https_port: u16,
    /// Whether sites have automatic certificates.
    is_automatic: bool,
    redirects_to_https: bool,
    bind: Vec<String>,
}

/// The statements with each snippet in place of its import.
pub(crate) fn expand_snippets(statements: &[Statement]) -> Vec<Statement> {
    let literal = |statement| with_words(statement, &|text| without_variables(text));
    let statements: Vec<Statement> = statements.iter().map(literal).collect();
    let mut snippets = HashMap::new();
    for statement in &statements {
        if let Some(name) = statement.name().strip_prefix('(').and_then(|name| name.strip_suffix(')')) {
            snippets.insert(name.to_owned(), statement.block().to_vec());
        }
    }
    let mut count = 0;
    statements
        .into_iter()
        .map(|mut statement| {
            let is_snippet = statement.name().starts_with('(');
            for block in statement.blocks.iter_mut().filter(|_| !is_snippet) {
                *block = expand(std::mem::take(block), &snippets, 0, &mut count);
            }
            statement
        })
        .collect()
}

fn expand(
    statements: Vec<Statement>,
    snippets: &HashMap<String, Vec<Statement>>,
    depth: usize,
    count: &mut usize,
) -> Vec<Statement> {
    let mut expanded = Vec::new();
    for mut statement in statements {
        *count += 1;
        let snippet = snippets.get(statement.argument(0)).filter(|_| statement.name() == "import");
        match snippet.filter(|_| depth < SNIPPET_DEPTH_MAX && *count < STATEMENTS_MAX) {
            Some(snippet) => {
                let arguments = statement.arguments.get(1..).unwrap_or_default();
                let copies = snippet.iter().map(|it| with_arguments(it, arguments)).collect();
                expanded.extend(expand(copies, snippets, depth + 1, count));
            }
            None => {
                for block in &mut statement.blocks {
                    *block = expand(std::mem::take(block), snippets, depth, count);
                }
                expanded.push(statement);
            }
        }
    }
    expanded
}

/// A statement of a snippet with the arguments of its import.
fn with_arguments(statement: &Statement, arguments: &[Word]) -> Statement {
    with_words(statement, &|text| {
        let mut text = text.to_owned();
        for (index, argument) in arguments.iter().enumerate() {
            for name in [format!("{{args[{index}]}}"), format!("{{args.{index}}}")] {
                text = text.replace(&name, &argument.text);
            }
        }
        text
    })
}

/// A statement with each word changed.
fn with_words(statement: &Statement, change: &dyn Fn(&str) -> String) -> Statement {
    let word = |word: &Word| Word { text: change(&word.text), at: word.at };
    let block = |block: &Vec<Statement>| block.iter().map(|nested| with_words(nested, change)).collect();
    Statement {
        name: word(&statement.name),
        arguments: statement.arguments.iter().map(word).collect(),
        blocks: statement.blocks.iter().map(block).collect(),
    }
}

/// Adds all sites to the model.
pub(crate) fn interpret(statements: &[Statement], model: &mut Model, ledger: &mut Ledger) {
    let mut options =
        Options { http_port: 80, https_port: 443, is_automatic: true, redirects_to_https: true, bind: Vec::new() };
    for statement in statements.iter().filter(|statement| statement.name().is_empty()) {
        ledger.keep(statement);
        statement.nested().for_each(|option| global(option, &mut options, model, ledger));
    }
    let mut servers = Vec::new();
    for statement in statements.iter().filter(|statement| !statement.name().is_empty()) {
        if statement.name().starts_with('(') {
            // Its statements are dealt with where they are imported.
            ledger.keep_all(statement);
        } else if statement.name().starts_with("&(") {
            ledger.miss(statement, "named routes are not supported", "write the directives into each site");
        } else if statement.name() == "import" {
            ledger.keep(statement);
        } else {
            servers.extend(site::read(statement, &options, model, ledger));
        }
    }
    let is_automatic = |server: &&http_sites::Server<'_>| server.domain.certificates == Certificates::Automatic;
    let first = servers.iter().find(|server| is_automatic(server) && server.domain.site.is_some());
    let first = first.or(servers.iter().find(is_automatic)).map(|server| server.statement);
    http_sites::add(servers, model, ledger);
    if let (Some(statement), Some(keys)) = (first, &mut model.acme) {
        keys.insert(0, ("agree_to_terms", Value::Boolean(true)));
        let nearest = "read them, or remove [certificates]";
        ledger.by_hand(statement, "`agree_to_terms` agrees to the terms of the authority", nearest);
    }
}

fn global(statement: &Statement, options: &mut Options, model: &mut Model, ledger: &mut Ledger) {
    if !has_keys(TABLE, "options", statement, ledger) {
        return;
    }
    let value = statement.argument(0);
    match statement.name() {
        "email" => tls::set_contact(statement, value, model, ledger),
        "acme_ca" => {
            ledger.keep(statement);
            tls::set_authority(value, model);
        }
        "http_port" | "https_port" => match value.parse() {
            Ok(port) => {
                ledger.keep(statement);
                let is_http = statement.name() == "http_port";
                *(if is_http { &mut options.http_port } else { &mut options.https_port }) = port;
            }
            Err(_) => ledger.miss(statement, "the port must be a number", "write a number"),
        },
        "auto_https" => {
            ledger.keep(statement);
            match value {
                "disable_redirects" => options.redirects_to_https = false,
                "off" | "disable_certs" => options.is_automatic = false,
                _ => {}
            }
        }
        "default_bind" => {
            ledger.keep(statement);
            options.bind = statement.texts().into_iter().map(str::to_owned).collect();
        }
        _ => servers(statement, model, ledger),
    }
}

/// `servers { … }`.
fn servers(statement: &Statement, model: &mut Model, ledger: &mut Ledger) {
    ledger.keep(statement);
    for option in statement.nested() {
        match (option.name(), option.argument(0)) {
            ("trusted_proxies", "static") => match networks(&option.texts()[1..]) {
                Ok(mut known) => {
                    ledger.keep(option);
                    known.sort();
                    known.dedup();
                    if !known.is_empty() {
                        model.http_keys.push(("trusted_proxies", Value::texts(known)));
                        model.http_keys.push(("client_from", "x-forwarded-for".into()));
                    }
                }
                Err(reason) => ledger.miss(option, reason, "list the networks in `trusted_proxies` of [http]"),
            },
            ("trusted_proxies", _) => {
                ledger.miss(
                    option,
                    "trusted proxies are listed by their networks",
                    "list them in `trusted_proxies` of [http]",
                );
            }
            ("listener_wrappers", _) => {
                ledger.miss(
                    option,
                    "listeners have no wrappers",
                    "for the PROXY protocol, set `client_from` in [http]",
                );
            }
            _ => ledger.keep_all(option),
        }
    }
}
