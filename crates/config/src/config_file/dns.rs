//! The section `[dns]`.

use super::ConfigBuilder;
use super::transfers::parse_address;
use crate::config::{CookieSecretFile, DnsReplies, Resolver};
use crate::config_reader::Entry;
use crate::diagnostic::{Diagnostic, Problem};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::service::Service;
use crate::zones::ZoneFolder;

/// Bytes of the longest text of a reply: `TEXT_BYTES_MAX` of the crate that answers.
const REPLY_TEXT_BYTES_MAX: usize = 128;

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_dns(&mut self, section: Entry<'_, '_>) {
        let Some(keys) = self.reader.keys(section, Section::Dns) else { return };
        if let Some(entry) = keys.get("listen") {
            self.dns_listen = Some(entry.offset);
            self.config.dns_listen = self.read_listen(entry, Service::Dns);
        }
        if let Some(entry) = keys.get("tls") {
            self.tls_listen.get_or_insert(entry.offset);
            self.config.dot_listen = self.read_listen(entry, Service::Dot);
        }
        keys.get("zones").into_iter().for_each(|entry| self.read_zone_folder(entry));
        self.config.transfers = self.read_transfers(&keys);
        keys.get("resolvers").into_iter().for_each(|entry| self.read_resolvers(entry));
        self.config.dns_rate_limit = self.read_rate_limit(&keys);
        let secrets = self.read_path(keys.get("cookie_secret_file"));
        self.config.replies = DnsReplies {
            nsid: keys.get("nsid").map(|entry| self.read_reply_text(entry)).unwrap_or_default(),
            version: keys.get("version").map(|entry| self.read_reply_text(entry)).unwrap_or_default(),
            cookies: self.reader.boolean(&keys, "cookies"),
            cookie_secret_file: secrets.map(|(path, location)| CookieSecretFile { path, location }),
            tcp_keepalive: self.reader.boolean(&keys, "tcp_keepalive"),
            extended_errors: self.reader.boolean(&keys, "extended_errors"),
            error_report_agent: keys.get("error_report_agent").and_then(|entry| self.read_error_report_agent(entry)),
        };
        if let (Some(file), false) = (&self.config.replies.cookie_secret_file, self.config.replies.cookies) {
            let problem = Problem::new("`cookie_secret_file` is set, but `cookies` is false", "remove one of the two");
            self.reader.add(Diagnostic::error(file.location.clone(), problem));
        }
    }

    fn read_zone_folder(&mut self, entry: Entry<'_, '_>) {
        let Some((offset, text)) = self.reader.string(entry) else { return };
        let location = self.reader.location(offset);
        self.config.zone_folder = ZoneFolder::parse(text, self.directory, location);
        if self.config.zone_folder.is_none() {
            let message = format!("`{text}` does not select the zone files of a folder");
            self.error(offset, message, format!("write the folder and the extension of the files: {}", entry.example));
        }
    }

    /// A text that replies contain.
    fn read_reply_text(&mut self, entry: Entry<'_, '_>) -> String {
        let Some((offset, text)) = self.reader.string(entry) else { return String::new() };
        if text.is_empty() || text.len() > REPLY_TEXT_BYTES_MAX {
            let message = format!("`{}` has {} bytes", entry.key, text.len());
            self.error(offset, message, format!("write 1 to {REPLY_TEXT_BYTES_MAX} bytes, or remove the key"));
            return String::new();
        }
        text.to_owned()
    }

    fn read_resolvers(&mut self, entry: Entry<'_, '_>) {
        let resolvers = self.reader.strings(entry);
        self.config.has_no_resolvers = resolvers.is_empty();
        for (offset, text) in resolvers {
            match (text, parse_address(text)) {
                ("system", _) => self.config.resolvers.push(Resolver::System),
                (_, Some(address)) => self.config.resolvers.push(Resolver::At(address)),
                (_, None) => {
                    let example = entry.example;
                    let remedy = format!(
                        "write {example} for the resolvers in /etc/resolv.conf, or addresses: [\"192.0.2.53\"]"
                    );
                    self.error(offset, format!("`{text}` is not the address of a resolver"), remedy);
                }
            }
        }
    }

    fn read_error_report_agent(&mut self, entry: Entry<'_, '_>) -> Option<DomainName> {
        let (offset, text) = self.reader.string(entry)?;
        match DomainName::parse(text) {
            // RFC 9567 §6.1: resolvers report nothing to the root.
            Ok(agent) if agent.labels().next().is_none() => {
                self.error(offset, "the root cannot receive reports", format!("write {}", entry.example));
                None
            }
            Ok(agent) => Some(agent),
            Err(problem) => {
                self.reader.error(offset, problem);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
