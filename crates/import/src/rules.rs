//! Rules of a domain, checked by the code that the server itself uses.

use crate::ledger::Ledger;
use crate::model::{Domain, RedirectRule};
use crate::syntax::Statement;
use sanderling_site_rules::{Field, Pattern, Redirect, RedirectText};

/// Adds a redirect, rewrite or error, unless the server would refuse it, or an earlier rule has the pattern.
pub(crate) fn add_redirect(domain: &mut Domain, rule: RedirectRule, statement: &Statement, ledger: &mut Ledger) {
    let text = RedirectText {
        from: &rule.from,
        query: &[],
        to: rule.to.as_deref(),
        status: Some(rule.status.into()),
        force: rule.force,
    };
    if let Err(error) = Redirect::new(&text) {
        return ledger.miss(statement, error.message, error.remedy);
    }
    if let Some(earlier) = domain.redirects.iter().find(|earlier| earlier.from == rule.from) {
        if *earlier != rule {
            let reason = format!("the pattern `{}` has a rule already", rule.from);
            ledger.miss(statement, reason, "keep one of the two");
        }
        return;
    }
    ledger.keep(statement);
    domain.redirects.push(rule);
}

/// Adds a field to the responses of a pattern, or removes it, unless the server would refuse that.
pub(crate) fn add_field(
    domain: &mut Domain,
    pattern: &str,
    (name, value): (&str, Option<&str>),
    statement: &Statement,
    ledger: &mut Ledger,
) {
    let parsed = Pattern::parse(pattern, &[]);
    let checked = parsed.and_then(|parsed| match value {
        Some(value) => Field::set(name, value, &parsed).map(drop),
        None => Field::remove(name).map(drop),
    });
    match checked {
        Ok(()) => {
            ledger.keep(statement);
            domain.add_field(pattern, name, value.map(str::to_owned));
        }
        Err(error) => ledger.miss(statement, error.message, error.remedy),
    }
}

/// Whether a rule that protects paths can have this pattern.
pub(crate) fn is_pattern(pattern: &str) -> bool {
    Pattern::parse(pattern, &[]).is_ok_and(|pattern| !pattern.has_host())
}
