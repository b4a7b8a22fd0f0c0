//! Settings that several formats have: limits, workers, the user, and keys of `[dns]`.

use crate::ledger::Ledger;
use crate::model::Model;
use crate::syntax::Statement;
use crate::toml_text::Value;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

/// Sets a limit to a number, or reports one that the limit cannot have.
pub(crate) fn set_limit(
    statement: &Statement,
    text: &str,
    key: &'static str,
    range: RangeInclusive<u64>,
    model: &mut Model,
    ledger: &mut Ledger,
) {
    let value = text.parse().ok().filter(|count| range.contains(count)).map(Value::Number);
    let nearest = format!("set `{key}` in [limits] to a number from {} to {}", range.start(), range.end());
    set(statement, key, value, nearest, model, ledger);
}

/// Sets the time after which idle connections are closed, or reports one that the limit cannot have.
pub(crate) fn set_idle_timeout(
    statement: &Statement,
    seconds: Option<u64>,
    key: &'static str,
    max_minutes: u64,
    model: &mut Model,
    ledger: &mut Ledger,
) {
    let seconds = seconds.filter(|seconds| (1..=max_minutes * 60).contains(seconds));
    let nearest = format!("set `{key}` in [limits] to a time of at most {max_minutes} minutes");
    set(statement, key, seconds.map(|seconds| format!("{seconds}s").into()), nearest, model, ledger);
}

fn set(
    statement: &Statement,
    key: &'static str,
    value: Option<Value>,
    nearest: String,
    model: &mut Model,
    ledger: &mut Ledger,
) {
    match value {
        None => ledger.miss(statement, "the limit is out of range", nearest),
        Some(value) => match model.set_limit(key, value) {
            true => ledger.keep(statement),
            false => ledger.miss(statement, "the limit has another value already", "set it in [limits]"),
        },
    }
}

/// Sets the number of workers, or reports one that cannot be.
pub(crate) fn set_workers(statement: &Statement, model: &mut Model, ledger: &mut Ledger) {
    match statement.argument(0).parse().ok().filter(|count| (1..=1_024).contains(count)) {
        Some(count) => {
            ledger.keep(statement);
            model.top.push(("workers", Value::Number(count)));
        }
        None => {
            ledger.miss(statement, "the number of workers is out of range", "set `workers` to a number from 1 to 1024");
        }
    }
}

/// Sets the user, which must be able to read the `files`, and the group.
pub(crate) fn set_user(
    statement: &Statement,
    (user, group): (&str, &str),
    files: &str,
    model: &mut Model,
    ledger: &mut Ledger,
) {
    model.top.push(("user", user.into()));
    if !group.is_empty() {
        model.top.push(("group", group.into()));
    }
    let nearest = "`sanderling check`, run as root, reports those that are not";
    ledger.by_hand(statement, format!("the {files} must be readable by this user"), nearest);
}

/// Sets a key of `[dns]` with a text.
pub(crate) fn set_dns_text(model: &mut Model, key: &'static str, value: &str) {
    let is_valid = !value.is_empty() && value.len() <= 128;
    model.dns_keys.retain(|(known, _)| *known != key);
    model.dns_keys.extend(is_valid.then(|| (key, Value::from(value))));
}

/// Listens for DNS on all addresses.
pub(crate) fn listen_on_all_addresses(port: u16, model: &mut Model) {
    model.dns.add(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    model.dns.add(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
}

/// The path of a file, with the directory that it is relative to.
pub(crate) fn in_directory(directory: &str, file: String) -> String {
    if file.starts_with('/') || directory.is_empty() {
        return file;
    }
    format!("{}/{file}", directory.trim_end_matches('/'))
}

/// The pattern of the files of `include`.
pub(crate) fn included(statement: &Statement) -> Option<String> {
    (statement.name() == "include" && !statement.argument(0).is_empty()).then(|| statement.argument(0).to_owned())
}
