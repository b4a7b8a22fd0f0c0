//! `[domain."*"]`: the site for hosts of no other site.

use super::{ConfigBuilder, WITHOUT_SITE};
use crate::config_reader::{Entry, Keys};
use crate::domain_name::DomainName;
use crate::site::Site;

const EVERY_HOST: &str = "*";
/// The keys that need the name of a domain, in addition to those of a domain without a site.
const OF_A_NAME: [&str; 4] = ["aliases", "https_redirect", "hsts", "doh"];

/// Whether the section with this name is that of all hosts.
pub(super) fn is_name(name: &DomainName) -> bool {
    name.as_str() == EVERY_HOST
}

impl ConfigBuilder<'_, '_> {
    /// Reads the section at `offset`. It has no certificate: no authority issues one for all names.
    pub(super) fn read_site_for_every_host(&mut self, offset: usize, keys: &Keys<'_, '_>) {
        let options = self.read_site_options(keys);
        let needs_name = |entry: &&Entry<'_, '_>| WITHOUT_SITE.contains(&entry.key) || OF_A_NAME.contains(&entry.key);
        if let Some(entry) = keys.entries.iter().find(needs_name) {
            let message = format!("the site for all hosts has no name, so it cannot have `{}`", entry.key);
            self.error(entry.offset, message, "move the key to the section of a domain");
        }
        let (document_root, location) = match (keys.get("site"), keys.get("route")) {
            (Some(entry), _) => match self.read_path(Some(entry)) {
                Some((path, location)) => (Some(path), location),
                None => return,
            },
            (None, Some(entry)) => {
                self.check_keys_without_site("the section for all hosts", keys);
                (None, self.reader.location(entry.offset))
            }
            (None, None) if keys.has_unknown => return,
            (None, None) => {
                return self.error(offset, "the section for all hosts has no site", "add site = \"FOLDER\" or a route");
            }
        };
        self.site_for_every_host = Some(self.config.sites.len());
        self.config.sites.push(Site { hosts: Vec::new(), document_root, location, options });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, config};
    use crate::config::DefaultSite;

    #[test]
    fn site_for_every_host_is_the_default() {
        let text = "[domain.\"a.example\"]\nsite = \"a\"\n[domain.\"*\"]\nsite = \"public\"\nlisting = true\n";
        let config = config(text);
        assert_eq!(config.default_site, DefaultSite::EveryHost(1));
        assert!(config.sites[1].hosts.is_empty() && config.sites[1].options.files.listing);
    }

    #[test]
    fn keys_that_need_a_name_are_refused() {
        check(
            "[domain.\"*\"]\nsite = \"public\"\naliases = [\"a.example\"]",
            &[
                "3:1: the site for all hosts has no name, so it cannot have `aliases`; move the key to the section of a domain",
            ],
        );
        check(
            "[domain.\"*\"]\nlisting = true",
            &["1:9: the section for all hosts has no site; add site = \"FOLDER\" or a route"],
        );
        check(
            "[domain.\"*\"]\nauth = {}\nlisting = true\nroute.\"/\" = { proxy = \"http://127.0.0.1:3000\" }",
            &["3:1: the section for all hosts has listing, but no site; add site = \"FOLDER\""],
        );
        check(
            "[http]\ndefault = \"a.example\"\n[domain.\"a.example\"]\nsite = \"public\"\n[domain.\"*\"]\nsite = \"public\"",
            &["2:11: `default` has no effect: [domain.\"*\"] answers for all other hosts; remove one of the two"],
        );
    }

    /// It has none even where sites have one by default.
    #[test]
    fn no_certificate_is_requested_for_every_host() {
        let text = "[certificates]\nagree_to_terms = true\n[domain.\"*\"]\nsite = \"public\"";
        assert!(config(text).certificates.is_empty());
    }
}
