//! All rules of a site, or of one of their sources, compiled.

use crate::error::RuleError;
use crate::escape::{Place, put_encoded};
use crate::field::{FieldEdits, FieldRule};
use crate::index::Index;
use crate::pattern::{Captures, Pattern, RequestPath};
use crate::redirect::{Action, Outcome, Redirect};

/// The number of rules that may still be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLimits {
    /// Rules.
    pub rules_max: usize,
    /// The rules that match more than one path.
    pub patterns_max: usize,
}

impl RuleLimits {
    /// Takes off a rule with this pattern.
    ///
    /// # Errors
    /// Returns an error if there are too many rules.
    pub fn take(&mut self, pattern: &Pattern) -> Result<(), RuleError> {
        if pattern.exact_path().is_none() {
            self.patterns_max = self.patterns_max.checked_sub(1).ok_or_else(|| {
                let message = "the site has too many rules with `*`, `:name` or `~`";
                RuleError::new(
                    message,
                    "remove some, write paths without them, or raise `site_patterns_max` in [limits]",
                )
            })?;
        }
        self.rules_max = self.rules_max.checked_sub(1).ok_or_else(|| {
            RuleError::new("the site has too many rules", "remove some, or raise `site_rules_max` in [limits]")
        })?;
        Ok(())
    }
}

/// Rules that are looked up by an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    redirects: Vec<Redirect>,
    redirect_index: Index,
    fields: Vec<FieldRule>,
    field_index: Index,
}

/// A request that a redirect matches.
#[derive(Debug)]
pub struct RedirectExample<'s> {
    /// The line of the redirect, if it is in a file of rules.
    pub line: Option<u32>,
    /// The host, if the redirect is only for one.
    pub host: Option<&'s str>,
    /// The path, percent-encoded.
    pub path: Vec<u8>,
}

/// The first rule that matches a request.
#[derive(Debug)]
pub struct Match<'s, 'r> {
    rule: &'s Redirect,
    captures: Captures<'r>,
    query: Option<&'r [u8]>,
}

impl Match<'_, '_> {
    /// Whether it applies where a file exists too.
    pub fn is_forced(&self) -> bool {
        self.rule.is_forced()
    }

    /// The action for the request.
    pub fn outcome(&self) -> Outcome {
        self.rule.outcome(&self.captures, self.query)
    }
}

impl RuleSet {
    /// Compiles rules; the rules of each kind keep their order.
    pub fn new(redirects: Vec<Redirect>, fields: Vec<FieldRule>) -> RuleSet {
        RuleSet {
            redirect_index: Index::new(redirects.iter().map(|rule| &rule.pattern)),
            field_index: Index::new(fields.iter().map(|rule| &rule.pattern)),
            redirects,
            fields,
        }
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.redirects.is_empty() && self.fields.is_empty()
    }

    /// The number of redirects, and of rules for fields.
    pub fn rule_counts(&self) -> (usize, usize) {
        (self.redirects.len(), self.fields.len())
    }

    /// The paths of the files that rewrites and error pages serve for every request, percent-encoded.
    pub fn fixed_files(&self) -> impl Iterator<Item = Vec<u8>> {
        self.redirects.iter().filter_map(|rule| rule.action().fixed_file())
    }

    /// The rules for only one host: the host, and the line of a redirect in a rules file.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, Option<u32>)> {
        let redirects = self.redirects.iter().map(|rule| (&rule.pattern, rule.line()));
        let fields = self.fields.iter().map(|rule| (&rule.pattern, None));
        redirects.chain(fields).filter_map(|(pattern, line)| Some((pattern.host()?, line)))
    }

    /// For each redirect without conditions on the query, a request that its pattern matches.
    pub fn redirect_examples(&self) -> impl Iterator<Item = RedirectExample<'_>> {
        let redirects = self.redirects.iter().filter(|rule| matches!(rule.action(), Action::Redirect(..)));
        redirects.filter(|rule| !rule.pattern.has_query()).filter_map(|rule| {
            let pattern = &rule.pattern;
            let mut path = vec![b'/'];
            put_encoded(&pattern.example()?, Place::Path, &mut path);
            if pattern.requires_slash() && path.len() > 1 {
                path.push(b'/');
            }
            Some(RedirectExample { line: rule.line(), host: pattern.host(), path })
        })
    }

    /// The first redirect, rewrite or error page for a request. Allocates nothing if there is none, unless a rule has
    /// conditions on the query.
    pub fn find<'r>(&self, request: &RequestPath<'r>) -> Option<Match<'_, 'r>> {
        self.redirect_index.candidates(request.path).find_map(|position| {
            let rule = &self.redirects[position];
            rule.pattern.matches(request).map(|captures| Match { rule, captures, query: request.query })
        })
    }

    /// Adds the fields of all rules that match a request, in their order.
    pub fn add_fields<'s>(&'s self, request: &RequestPath<'_>, edits: &mut FieldEdits<'s>) {
        for position in self.field_index.candidates(request.path) {
            let rule = &self.fields[position];
            if let Some(captures) = rule.pattern.matches(request) {
                edits.add(rule, &captures);
            }
        }
    }
}
