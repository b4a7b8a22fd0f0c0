//! The rules of a server, collected in the order of its file, and sorted as the other server applies them.

use crate::http_sites::{Redirect, Target};
use crate::ledger::Ledger;
use crate::model::{AccessRule, AuthRule, Certificates, Domain, RedirectRule};
use crate::place::{Order, Place};
use crate::regex::PathPattern;
use crate::rules::{self, is_pattern};
use crate::syntax::Statement;

/// A field for a pattern; without a value it is removed.
type FieldOfPlace<'s> = (Order, String, (String, Option<String>), &'s Statement);

/// The rules of a server.
#[derive(Default)]
pub(crate) struct Collected<'s> {
    redirects: Vec<(Order, RedirectRule, &'s Statement)>,
    fields: Vec<FieldOfPlace<'s>>,
    auth: Vec<(Order, AuthRule)>,
    access: Vec<(Order, AccessRule)>,
}

impl<'s> Collected<'s> {
    /// Adds one rule.
    pub(crate) fn redirect(&mut self, order: Order, rule: RedirectRule, statement: &'s Statement) {
        self.redirects.push((order, rule, statement));
    }

    /// Adds a rule with this destination for each pattern of a place.
    pub(crate) fn answer(
        &mut self,
        statement: &'s Statement,
        place: &Place,
        to: Option<&str>,
        status: u16,
        force: Option<bool>,
    ) {
        for pattern in &place.patterns {
            let rule = RedirectRule { from: pattern.text.clone(), to: to.map(str::to_owned), status, force };
            self.redirects.push((place.order, rule, statement));
        }
    }

    /// Adds a redirect of the paths of a place; that of a whole server is returned.
    ///
    /// # Errors
    /// The variable that a destination cannot contain.
    pub(crate) fn send_to(
        &mut self,
        statement: &'s Statement,
        place: &Place,
        status: u16,
        destination: impl Fn(&PathPattern) -> Result<String, String>,
    ) -> Result<Option<Redirect>, String> {
        for pattern in &place.patterns {
            let to = destination(pattern)?;
            if place.is_whole() && to.contains("://") {
                return Ok(Some(Redirect { to: Target::Url(to), status }));
            }
            let rule = RedirectRule { from: pattern.text.clone(), to: Some(to), status, force: None };
            self.redirects.push((place.order, rule, statement));
        }
        Ok(None)
    }

    /// Adds a field to the responses of a place; without a value it is removed.
    pub(crate) fn field(&mut self, statement: &'s Statement, place: &Place, name: &str, value: Option<&str>) {
        for pattern in &place.patterns {
            let field = (name.to_owned(), value.map(str::to_owned));
            self.fields.push((place.order, pattern.text.clone(), field, statement));
        }
    }

    /// Requires a password for a place.
    pub(crate) fn protect(&mut self, place: &Place, users_file: &str, realm: &str) {
        for pattern in place.patterns.iter().filter(|pattern| is_pattern(&pattern.text)) {
            let (pattern, users_file, realm) = (pattern.text.clone(), users_file.to_owned(), realm.to_owned());
            self.auth.push((place.order, AuthRule { pattern, users_file, realm }));
        }
    }

    /// Restricts a place to clients with these addresses.
    pub(crate) fn restrict(&mut self, place: &Place, allow: Option<&[String]>, deny: &[String]) {
        for pattern in place.patterns.iter().filter(|pattern| is_pattern(&pattern.text)) {
            let rule =
                AccessRule { pattern: pattern.text.clone(), allow: allow.map(<[String]>::to_vec), deny: deny.to_vec() };
            self.access.push((place.order, rule));
        }
    }

    /// Adds the rules to a domain. Redirects are left out if the whole server is redirected.
    pub(crate) fn finish(mut self, domain: &mut Domain, is_redirected: bool, ledger: &mut Ledger) {
        if domain.certificates == Certificates::None {
            domain.keys.retain(|(key, _)| *key != "hsts");
        }
        self.redirects.sort_by_key(|(order, ..)| *order);
        for (_, rule, statement) in self.redirects.into_iter().filter(|_| !is_redirected) {
            rules::add_redirect(domain, rule, statement, ledger);
        }
        // A later rule replaces a field of an earlier one.
        self.fields.sort_by_key(|(order, ..)| std::cmp::Reverse(*order));
        for (_, pattern, (name, value), statement) in self.fields {
            let earlier = domain.field(&pattern, &name).filter(|earlier| Some(*earlier) != value.as_deref());
            let value = match (earlier, value) {
                (Some(earlier), Some(value)) => Some(joined(earlier, &value)),
                (_, value) => value,
            };
            rules::add_field(domain, &pattern, (&name, value.as_deref()), statement, ledger);
        }
        self.auth.sort_by_key(|(order, _)| *order);
        self.access.sort_by_key(|(order, _)| *order);
        domain.auth = self.auth.into_iter().map(|(_, rule)| rule).collect();
        domain.access = self.access.into_iter().map(|(_, rule)| rule).collect();
        domain.auth.dedup_by(|later, earlier| later.pattern == earlier.pattern);
        domain.access.dedup_by(|later, earlier| later.pattern == earlier.pattern);
    }
}

/// A list of values without those that are in both.
fn joined(earlier: &str, value: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in earlier.split(',').chain(value.split(',')).map(str::trim) {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join(", ")
}
