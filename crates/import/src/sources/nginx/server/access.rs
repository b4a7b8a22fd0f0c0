//! Passwords, addresses and certificates of a server of nginx.

use super::Reader;
use crate::model::Certificates;
use crate::networks::network;
use crate::place::Place;
use crate::syntax::Statement;

impl<'s> Reader<'s, '_> {
    /// `auth_basic`, `allow` and `deny` of a block.
    pub(super) fn protect(&mut self, statements: &[&'s Statement], place: &Place) {
        let find = |name: &str| statements.iter().copied().find(|it| it.name() == name);
        match (find("auth_basic"), find("auth_basic_user_file")) {
            (Some(realm), _) if realm.argument(0) == "off" => {
                let reason = "no rule removes the password of an enclosing block";
                self.ledger.miss(realm, reason, "write rules of `auth` for the paths that need a password");
            }
            (Some(realm), Some(file)) => self.auth(realm, file, place),
            (found, other) => {
                for statement in found.into_iter().chain(other) {
                    self.ledger.miss(statement, "the realm or the user file is missing here", "add a rule in `auth`");
                }
            }
        }
        let rules: Vec<&'s Statement> =
            statements.iter().copied().filter(|it| matches!(it.name(), "allow" | "deny")).collect();
        if rules.is_empty() {
            return;
        }
        let (mut allow, mut deny, mut is_closed) = (Vec::new(), Vec::new(), false);
        for statement in rules {
            self.ledger.keep(statement);
            match (statement.name(), statement.argument(0), network(statement.argument(0))) {
                _ if is_closed => {}
                (name, "all", _) => is_closed = name == "deny",
                ("allow", _, Some(network)) => allow.push(network),
                (_, _, Some(network)) => deny.push(network),
                _ => self.ledger.miss(statement, "this is not an IP address or network", "write its address"),
            }
        }
        let allow = is_closed.then_some(allow);
        if allow.is_none() && deny.is_empty() {
            return;
        }
        self.collected.restrict(place, allow.as_deref(), &deny);
    }

    fn auth(&mut self, realm: &'s Statement, file: &'s Statement, place: &Place) {
        let is_realm_byte = |byte: u8| matches!(byte, b' '..=b'~') && !b"\"\\$".contains(&byte);
        let text = realm.argument(0);
        let is_valid = !text.is_empty() && text.bytes().all(is_realm_byte);
        self.ledger.keep(realm);
        if file.argument(0).contains('$') {
            return self.ledger.miss(file, "the path of the user file is fixed", "write the path");
        }
        let reason = "hashes of crypt, MD5 and SHA are refused, because guessing them is too fast";
        self.ledger.by_hand(file, reason, format!("set each password again: htpasswd -B {} NAME", file.argument(0)));
        self.collected.protect(place, file.argument(0), if is_valid { text } else { "private" });
    }

    pub(super) fn certificates(&mut self, statements: &[&'s Statement]) {
        let all = |name: &str| statements.iter().copied().filter(|it| it.name() == name).collect::<Vec<_>>();
        let (chains, keys) = (all("ssl_certificate"), all("ssl_certificate_key"));
        let mut files = Vec::new();
        for (index, chain) in chains.iter().enumerate() {
            match keys.get(index) {
                Some(key) if !chain.argument(0).contains(['$', ':']) && !key.argument(0).contains(['$', ':']) => {
                    self.ledger.keep(chain);
                    match self.server.https.is_empty() {
                        true => self.ledger.keep(key),
                        false => self.ledger.private_key(key),
                    }
                    files.push((chain.argument(0).to_owned(), key.argument(0).to_owned()));
                }
                key => {
                    for statement in key.into_iter().chain([chain]) {
                        self.ledger.miss(statement, "a certificate needs two files", "name the chain and the key");
                    }
                }
            }
        }
        if !files.is_empty() && !self.server.https.is_empty() {
            self.server.domain.certificates = Certificates::Files(files);
        } else if !files.is_empty() {
            chains.iter().chain(&keys).for_each(|statement| self.ledger.keep(statement));
        }
    }
}
