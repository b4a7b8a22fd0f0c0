//! Certificates of Caddy: the directive `tls`, and the account with an authority.

use super::TABLE;
use crate::ledger::Ledger;
use crate::model::{Certificates, Domain, Model};
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::toml_text::Value;

/// The directories of authorities that have a name.
const AUTHORITIES: [(&str, &str); 5] = [
    ("acme-v02.api.letsencrypt.org", "letsencrypt"),
    ("acme-staging-v02.api.letsencrypt.org", "letsencrypt-staging"),
    ("acme.zerossl.com", "zerossl"),
    ("dv.acme-v02.api.pki.goog", "google"),
    ("acme.ssl.com", "sslcom"),
];

/// Sets the contact address, unless there is one.
pub(super) fn set_contact(statement: &Statement, address: &str, model: &mut Model, ledger: &mut Ledger) {
    let address = super::placeholders::environment(address);
    let is_address = address.contains('@') && !address.contains(|c: char| c.is_whitespace() || "/\"<>".contains(c));
    if !is_address && !address.contains("${") {
        return ledger.miss(statement, "this is not an e-mail address", "write `contact` in [certificates]");
    }
    ledger.keep(statement);
    let keys = model.acme.get_or_insert_default();
    if keys.iter().all(|(key, _)| *key != "contact") {
        let contact = if address.starts_with("mailto:") { address } else { format!("mailto:{address}") };
        keys.push(("contact", contact.into()));
    }
}

/// Sets the authority with this directory, unless there is one.
pub(super) fn set_authority(directory: &str, model: &mut Model) {
    let keys = model.acme.get_or_insert_default();
    if keys.iter().any(|(key, _)| *key == "authorities") {
        return;
    }
    let known = AUTHORITIES.iter().find(|(host, _)| directory.contains(host));
    let authority = match known {
        Some((_, name)) => Value::from(*name),
        None => Value::table([("directory", directory.into())]),
    };
    keys.push(("authorities", Value::List(vec![authority])));
}

/// `tls …`.
pub(super) fn tls(statement: &Statement, domain: &mut Domain, model: &mut Model, ledger: &mut Ledger) {
    match statement.texts()[..] {
        ["internal"] => {
            domain.certificates = Certificates::None;
            let nearest = "make one with `mkcert`, and name its files in `certificate`";
            return ledger.miss(statement, "there is no local authority for certificates", nearest);
        }
        [chain, key] => {
            ledger.private_key(statement);
            domain.certificates = Certificates::Files(vec![(chain.to_owned(), key.to_owned())]);
        }
        [email] if email.contains('@') || email.starts_with("{$") => {
            set_contact(statement, email, model, ledger);
        }
        _ => ledger.keep(statement),
    }
    for option in statement.nested() {
        if !has_keys(TABLE, "tls", option, ledger) {
            continue;
        }
        match (option.name(), option.argument(0)) {
            ("ca", directory) => {
                ledger.keep(option);
                set_authority(directory, model);
            }
            ("issuer", "acme") if option.blocks.is_empty() => ledger.keep(option),
            ("issuer", "zerossl") if option.blocks.is_empty() => {
                ledger.by_hand(option, "ZeroSSL needs an account", "add `external_account` to the authority");
                set_authority("https://acme.zerossl.com/v2/DV90", model);
            }
            _ => ledger.miss(option, "certificates come from an authority of [certificates]", "write `authorities`"),
        }
    }
}
