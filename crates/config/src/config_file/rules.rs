//! A domain's keys for redirects and header fields by path.

use super::ConfigBuilder;
use crate::config_reader::{Entry, Keys};
use crate::diagnostic::{Diagnostic, Problem, ValueLocation};
use crate::keys::Section;
use crate::path_rules::{AccessRule, AuthRule, PathRules};
use crate::site::SiteOptions;
use sanderling_site_rules::{
    Cors, Field, FieldRule, Pattern, Redirect, RedirectText, RequestPath, RuleError, RuleLimits, SecurityHeaders,
};
use toml::de::DeValue;

const REDIRECT_EXAMPLE: &str = "\"/old/*\" = { to = \"/new/:splat\", status = 301 }";
const FIELDS_EXAMPLE: &str = "\"/assets/*\" = { \"Cache-Control\" = \"max-age=3600\" }";
/// The realm shown to clients.
const DEFAULT_REALM: &str = "private";

impl ConfigBuilder<'_, '_> {
    /// Reads the keys of a domain that are rules.
    pub(super) fn read_rules(&mut self, keys: &Keys<'_, '_>) -> PathRules {
        let has_site = keys.get("site").is_some();
        PathRules {
            routes: keys.get("route").map(|entry| self.read_routes(entry, has_site)).unwrap_or_default(),
            redirects: keys.get("redirects").map(|entry| self.read_redirects(entry)).unwrap_or_default(),
            fields: keys.get("headers").map(|entry| self.read_field_rules(entry)).unwrap_or_default(),
            access: keys.get("access").map(|entry| self.read_access(entry)).unwrap_or_default(),
            auth: keys.get("auth").map(|entry| self.read_auth(entry)).unwrap_or_default(),
            caches_fingerprinted: keys.get("cache").is_some_and(|entry| self.read_cache(entry)),
            cors: keys.get("cors").and_then(|entry| self.read_cors(entry)),
            security_headers: keys.get("security_headers").and_then(|entry| self.read_security_headers(entry)),
            reads_files: self.reader.boolean(keys, "rules_files"),
        }
    }

    fn read_auth(&mut self, section: Entry<'_, '_>) -> Vec<AuthRule> {
        let (mut rules, mut limits) = (Vec::new(), self.rule_limits());
        for rule in self.reader.entries(section) {
            let Some(pattern) = self.read_protected_paths(rule, &mut limits) else { continue };
            let Some(keys) = self.reader.keys(rule, Section::AuthRule) else { continue };
            let users_file = self.read_path(keys.get("users_file"));
            let realm = keys.get("realm").map_or(Some(DEFAULT_REALM.to_owned()), |entry| self.read_realm(entry));
            match (users_file, realm) {
                (Some((users_file, location)), Some(realm)) => {
                    rules.push(AuthRule { pattern, realm, users_file, location });
                }
                (None, Some(_)) if !self.reader.has_problems() => {
                    let message = format!("the path `{}` has no `users_file`", rule.key);
                    self.error(rule.offset, message, format!("write {}", rule.example));
                }
                _ => {}
            }
        }
        rules
    }

    fn read_access(&mut self, section: Entry<'_, '_>) -> Vec<AccessRule> {
        let (mut rules, mut limits) = (Vec::new(), self.rule_limits());
        for rule in self.reader.entries(section) {
            let Some(pattern) = self.read_protected_paths(rule, &mut limits) else { continue };
            let Some(keys) = self.reader.keys(rule, Section::AccessRule) else { continue };
            let [allow, deny] = ["allow", "deny"].map(|key| keys.get(key).map(|entry| self.read_networks(entry)));
            if allow.is_none() && deny.is_none() && !self.reader.has_problems() {
                let message = format!("the path `{}` has neither `allow` nor `deny`", rule.key);
                self.error(rule.offset, message, format!("write {}", rule.example));
            }
            let location = self.reader.location(rule.offset);
            rules.push(AccessRule { pattern, allow, deny: deny.unwrap_or_default(), location });
        }
        rules
    }

    /// The paths that a rule protects.
    fn read_protected_paths(&mut self, rule: Entry<'_, '_>, limits: &mut RuleLimits) -> Option<Pattern> {
        match Pattern::parse(rule.key, &[]).and_then(|pattern| limits.take(&pattern).map(|()| pattern)) {
            Ok(pattern) if pattern.has_host() => {
                let message = format!("the path `{}` is for a single host", rule.key);
                self.error(
                    rule.offset,
                    message,
                    "write it without the host, because other hosts would not be protected",
                );
                None
            }
            Ok(pattern) if pattern.is_expression() => {
                let message = format!("the path `{}` is a regular expression", rule.key);
                self.error(rule.offset, message, "write a path, such as \"/private/*\": all forms of it are protected");
                None
            }
            Ok(pattern) => Some(pattern),
            Err(error) => {
                self.rule_error(rule.offset, error);
                None
            }
        }
    }

    /// Refuses a file that would be served for paths without a file although it is protected.
    pub(super) fn check_fallback(&mut self, options: &SiteOptions) {
        let Some(fallback) = &options.files.fallback else { return };
        let path =
            RequestPath { is_https: false, host: None, path: fallback.as_bytes(), ends_with_slash: false, query: None };
        let auth = options.rules.auth.iter().map(|rule| (&rule.pattern, &rule.location, "auth", "without a password"));
        let access =
            options.rules.access.iter().map(|rule| (&rule.pattern, &rule.location, "access", "to all clients"));
        if let Some((_, location, key, to)) = auth.chain(access).find(|(pattern, ..)| pattern.is_match(&path)) {
            let message = format!("the `fallback` {fallback} is protected by `{key}`, and would be served {to}");
            let problem = Problem::new(message, "choose another file for `fallback`");
            self.reader.add(Diagnostic::error(location.clone(), problem));
        }
    }

    fn read_realm(&mut self, entry: Entry<'_, '_>) -> Option<String> {
        let (offset, text) = self.reader.string(entry)?;
        // The realm is sent between quotes (RFC 9110 §5.6.4).
        if text.is_empty() || !text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte)) {
            let message = "`realm` is empty, or has a quote or a non-ASCII character";
            self.error(offset, message, format!("write {}", entry.example));
            return None;
        }
        Some(text.to_owned())
    }

    fn read_cache(&mut self, entry: Entry<'_, '_>) -> bool {
        match self.reader.string(entry) {
            Some((_, "fingerprinted")) => true,
            Some((offset, text)) => {
                let remedy = format!("write {}; `headers` sends other fields by path", entry.example);
                self.error(offset, format!("\"{text}\" is not a value of `cache`"), remedy);
                false
            }
            None => false,
        }
    }

    fn read_security_headers(&mut self, entry: Entry<'_, '_>) -> Option<(SecurityHeaders, ValueLocation)> {
        let (offset, name) = self.reader.string(entry)?;
        let Some(set) = SecurityHeaders::from_name(name) else {
            self.error(offset, format!("unknown set of security headers \"{name}\""), "write \"basic\" or \"strict\"");
            return None;
        };
        Some((set, self.reader.location(entry.offset)))
    }

    fn read_cors(&mut self, entry: Entry<'_, '_>) -> Option<Cors> {
        if matches!(entry.value.get_ref(), DeValue::String(text) if text == "*") {
            return Some(Cors::Any);
        }
        let mut origins = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            if Cors::is_origin(text) {
                origins.push(text.to_owned());
            } else {
                let remedy = format!("write a scheme and a host in lower case, and no path: {}", entry.example);
                self.error(offset, format!("\"{text}\" is not an origin"), remedy);
            }
        }
        Some(Cors::Origins(origins))
    }

    fn rule_limits(&self) -> RuleLimits {
        let limits = &self.config.limits;
        RuleLimits { rules_max: limits.site_rules_max, patterns_max: limits.site_patterns_max }
    }

    fn read_redirects(&mut self, section: Entry<'_, '_>) -> Vec<Redirect> {
        let (mut redirects, mut limits) = (Vec::new(), self.rule_limits());
        for entry in self.reader.entries(section) {
            let Some(redirect) = self.read_redirect(entry) else { continue };
            match redirect.and_then(|redirect| limits.take(redirect.pattern()).map(|()| redirect)) {
                Ok(redirect) => redirects.push(redirect),
                Err(error) => self.rule_error(entry.offset, error),
            }
        }
        redirects
    }

    /// `None` if a value has the wrong type, which was reported.
    fn read_redirect(&mut self, rule: Entry<'_, '_>) -> Option<Result<Redirect, RuleError>> {
        let mut text = RedirectText { from: rule.key, query: &[], to: None, status: None, force: None };
        match rule.value.get_ref() {
            DeValue::String(to) => {
                text.to = Some(to);
                return Some(Redirect::new(&text));
            }
            DeValue::Table(_) => {}
            _ => {
                let message = format!("the rule `{}` is neither a destination nor a table", rule.key);
                self.error(rule.value.span().start, message, format!("write {REDIRECT_EXAMPLE}"));
                return None;
            }
        }
        let problem_count = self.reader.problem_count();
        let keys = self.reader.keys(rule, Section::Redirect)?;
        text.to = keys.get("to").and_then(|entry| self.reader.string(entry)).map(|(_, to)| to);
        text.status = self.reader.count(&keys, "status");
        text.force = keys.get("force").map(|_| self.reader.boolean(&keys, "force"));
        let mut query = Vec::new();
        for entry in keys.get("query").map(|entry| self.reader.entries(entry)).unwrap_or_default() {
            query.push((entry.key, self.reader.string(entry)?.1));
        }
        let is_read = self.reader.problem_count() == problem_count;
        is_read.then(|| Redirect::new(&RedirectText { query: &query, ..text }))
    }

    fn read_field_rules(&mut self, section: Entry<'_, '_>) -> Vec<FieldRule> {
        let (mut rules, mut limits) = (Vec::new(), self.rule_limits());
        for entry in self.reader.entries(section) {
            let pattern = Pattern::parse(entry.key, &[]).and_then(|pattern| limits.take(&pattern).map(|()| pattern));
            match pattern {
                Ok(pattern) => {
                    let fields = self.read_fields(entry, &pattern);
                    rules.push(FieldRule::new(pattern, fields));
                }
                Err(error) => self.rule_error(entry.offset, error),
            }
        }
        rules
    }

    fn read_fields(&mut self, rule: Entry<'_, '_>, pattern: &Pattern) -> Vec<Field> {
        let mut fields = Vec::new();
        for entry in self.reader.entries(rule.with_example(FIELDS_EXAMPLE)) {
            let field = match entry.value.get_ref() {
                DeValue::String(value) => Field::set(entry.key, value, pattern),
                DeValue::Boolean(false) => Field::remove(entry.key),
                _ => {
                    let message = format!("the value of `{}` is neither a string nor false", entry.key);
                    let remedy = format!("write {FIELDS_EXAMPLE}; false removes the field");
                    self.error(entry.value.span().start, message, remedy);
                    continue;
                }
            };
            match field {
                Ok(field) => fields.push(field),
                Err(error) => self.rule_error(entry.offset, error),
            }
        }
        fields
    }

    pub(super) fn rule_error(&mut self, offset: usize, RuleError { message, remedy }: RuleError) {
        self.reader.error(offset, Problem::new(message, remedy));
    }
}

#[cfg(test)]
mod tests {
    use crate::config_file::tests::{check, config};

    fn domain(rules: &str) -> String {
        format!("[domain.\"example.com\"]\nsite = \"public\"\n{rules}")
    }

    #[test]
    fn rules_are_read_in_the_order_of_the_file() {
        let text = domain(
            "rules_files = false\n[domain.\"example.com\".redirects]\n\"/old/*\" = { to = \"/new/:splat\", status = 308 }\n\
             \"/b\" = \"/c\"\n\"/a\" = { status = 410 }\n\"/s\" = { to = \"/s/:id\", query = { id = \":id\" }, force = false }\n\
             [domain.\"example.com\".headers]\n\"/z/*\" = { \"Cache-Control\" = \"no-store\", \"X-A\" = false }\n\
             \"/*\" = { X-B = \"1\" }\n",
        );
        let rules = &config(&text).sites[0].options.rules;
        assert!(!rules.reads_files);
        let forced: Vec<bool> = rules.redirects.iter().map(sanderling_site_rules::Redirect::is_forced).collect();
        assert_eq!(forced, [true, true, true, false]);
        assert_eq!(rules.fields.len(), 2);
        assert!(config(&domain("")).sites[0].options.rules.reads_files);
    }

    #[test]
    fn wrong_rule_is_reported_with_its_line_and_a_remedy() {
        for (rules, expected) in [
            (
                "redirects = { \"old\" = \"/new\" }",
                "3:15: the pattern `old` does not begin with a slash; write \"/old\"",
            ),
            (
                "redirects = { \"^/old/(.*)$\" = \"/new/$1\" }",
                "3:15: the pattern `^/old/(.*)$` looks like a regular expression; write \"~ ^/old/(.*)$\" if it \
                 is one, or a path, in which `*` matches any rest and `:name` a segment, as in \"/old/*\"",
            ),
            (
                "redirects = { \"/a\" = 1 }",
                "3:22: the rule `/a` is neither a destination nor a table; write \"/old/*\" = { to = \"/new/:splat\", \
                 status = 301 }",
            ),
            (
                "redirects = { \"/a\" = { to = \"/b\", code = 1 } }",
                "3:35: unknown key `code` in `redirects`; the keys are `to`, `status`, `force`, `query`",
            ),
            (
                "redirects = { \"/a\" = { to = \"/b\", status = 418 } }",
                "3:15: the status 418 is not supported; write 301, 302, 303, 307 or 308 to redirect, 200 to serve another \
                 file, or 403, 404, 410, 451 or 503",
            ),
            (
                "redirects = { \"/a\" = \"/b\\r\\nX: y\" }",
                "3:15: the destination `/b\\r\\nX: y` is empty or has a byte that no URL has; write a path such as \
                 \"/new\", or a URL",
            ),
            (
                "headers = { \"/a\" = { Content-Length = \"1\" } }",
                "3:22: `Content-Length` cannot be set by a rule; remove it; the server writes it for each response",
            ),
            (
                "headers = { \"/a\" = { X-A = true } }",
                "3:28: the value of `X-A` is neither a string nor false; write \"/assets/*\" = { \"Cache-Control\" = \
                 \"max-age=3600\" }; false removes the field",
            ),
            (
                "auth = { \"/a/*\" = { realm = \"a\" } }",
                "3:10: the path `/a/*` has no `users_file`; write auth = { \"/private/*\" = { users_file = \"users.htpasswd\" } }",
            ),
            (
                "auth = { \"https://example.com/a\" = { users_file = \"u\" } }",
                "3:10: the path `https://example.com/a` is for a single host; write it without the host, because \
                    other hosts would not be protected",
            ),
            (
                "access = { \"/a\" = {} }",
                "3:12: the path `/a` has neither `allow` nor `deny`; write access = { \"/admin/*\" = { allow = [\"192.0.2.0/24\"] } }",
            ),
            (
                "access = { \"/a\" = { allow = [\"192.0.2.1/24\"] } }",
                "3:30: `192.0.2.1/24` is an address with host bits, not a network; write 192.0.2.0/24, or 192.0.2.1 \
                 for this address only",
            ),
            (
                "access = { \"/a\" = { only = [\"192.0.2.0/24\"] } }",
                "3:21: unknown key `only` in `access`; the keys are `allow`, `deny`",
            ),
            (
                "access = { \"http://example.com/a\" = { deny = [\"192.0.2.0/24\"] } }",
                "3:12: the path `http://example.com/a` is for a single host; write it without the host, because other \
                    hosts would not be protected",
            ),
            (
                "auth = { \"/a\" = { users_file = \"u\", realm = \"\\\"\" } }",
                "3:45: `realm` is empty, or has a quote or a non-ASCII character; write realm = \"private\"",
            ),
            (
                "cache = \"yes\"",
                "3:9: \"yes\" is not a value of `cache`; write cache = \"fingerprinted\"; `headers` sends other \
                 fields by path",
            ),
            (
                "cors = [\"https://app.example/\"]",
                "3:9: \"https://app.example/\" is not an origin; write a scheme and a host in lower case, and no path: cors = \
                 [\"https://app.example\"] or cors = \"*\"",
            ),
            (
                "security_headers = \"all\"",
                "3:20: unknown set of security headers \"all\"; write \"basic\" or \"strict\"",
            ),
            (
                "rules_files = 1",
                "3:15: `rules_files` must be true or false, not the number 1; write rules_files = true",
            ),
        ] {
            check(&domain(rules), &[expected]);
        }
    }

    #[test]
    fn fallback_must_not_be_protected() {
        let rules = domain("fallback = \"app/index.html\"\nauth = { \"/PATH/*\" = { users_file = \"u\" } }\n");
        config(&rules.replace("PATH", "private"));
        let expected = "4:36: the `fallback` app/index.html is protected by `auth`, and would be served without a password; choose \
                        another file for `fallback`";
        check(&rules.replace("PATH", "app"), &[expected]);
        let rules = domain("fallback = \"app/index.html\"\naccess = { \"/app/*\" = { deny = [\"192.0.2.0/24\"] } }\n");
        let expected = "4:12: the `fallback` app/index.html is protected by `access`, and would be served to all clients; choose \
                        another file for `fallback`";
        check(&rules, &[expected]);
    }

    #[test]
    fn rules_beyond_the_limits_are_refused_wherever_the_limits_are() {
        let rules = domain("redirects = { \"/a\" = \"/x\", \"/b/*\" = \"/x\", \"/c/*\" = \"/x\" }\n");
        config(&format!("{rules}[limits]\nsite_rules_max = 3\nsite_patterns_max = 2\n"));
        let expected = "3:43: the site has too many rules; remove some, or raise `site_rules_max` in [limits]";
        check(&format!("{rules}[limits]\nsite_rules_max = 2\n"), &[expected]);
        let expected = "3:43: the site has too many rules with `*`, `:name` or `~`; remove some, write paths without them, or \
                        raise `site_patterns_max` in [limits]";
        check(&format!("{rules}[limits]\nsite_patterns_max = 1\n"), &[expected]);
    }
}
