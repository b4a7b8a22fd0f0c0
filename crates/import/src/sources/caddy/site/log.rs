//! The access log of a site of Caddy.

use super::Reader;
use crate::syntax::Statement;
use crate::toml_text::Value;

impl<'s> Reader<'s, '_> {
    pub(super) fn log(&mut self, statement: &'s Statement) {
        let output = statement.find("output");
        let target = match output.map(|it| (it.argument(0), it.argument(1))) {
            Some(("file", path)) => path.to_owned(),
            Some(("discard", _)) => return self.ledger.keep_all(statement),
            Some(("net", _)) => {
                return self.ledger.miss(
                    statement,
                    "a log must be a file, standard output or syslog",
                    "use `\"syslog\"`",
                );
            }
            Some(("stderr", _)) | None => "/dev/stderr".to_owned(),
            Some(_) => "stdout".to_owned(),
        };
        let known = self.model.log.iter().find(|(key, _)| *key == "access").map(|(_, value)| value.clone());
        if known.is_some_and(|known| known != Value::from(target.as_str())) {
            let nearest = "use a format with $host, and select the lines of a domain with jq or grep";
            return self.ledger.miss(statement, "one log has the requests of all domains", nearest);
        }
        self.ledger.keep_all(statement);
        if !self.model.log.is_empty() {
            return;
        }
        self.model.log.push(("access", target.into()));
        let format = statement.find("format");
        match format.map(|it| it.argument(0)) {
            Some("console" | "transform" | "formatted") => {}
            Some("filter") => {
                self.model.log.push(("format", "json".into()));
                let reason = "fields of the log are selected by its format";
                self.ledger.differ(statement, reason, "set `format` in [log]");
            }
            _ => self.model.log.push(("format", "json".into())),
        }
        let file = output.filter(|it| it.argument(0) == "file");
        let option = |name: &str| file.and_then(|it| it.find(name)).map(|it| it.argument(0).to_owned());
        if let Some(size) = option("roll_size").and_then(|size| mebibytes(&size)) {
            self.model.log.push(("rotate", format!("{size}MiB").into()));
        }
        if let Some(keep) =
            option("roll_keep").and_then(|keep| keep.parse().ok()).filter(|keep| (1..=1_000).contains(keep))
        {
            self.model.log.push(("keep", Value::Number(keep)));
        }
    }
}

/// A size such as `100mb`, `1GiB` or `50` in MiB, rounded down, and at least one.
fn mebibytes(text: &str) -> Option<u64> {
    let end = text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let size = match text[end..].to_ascii_lowercase().as_str() {
        "" | "m" | "mb" | "mib" => number,
        "k" | "kb" | "kib" => number / 1_024,
        "g" | "gb" | "gib" => number.checked_mul(1_024)?,
        _ => return None,
    };
    Some(size.clamp(1, 1_048_576))
}
