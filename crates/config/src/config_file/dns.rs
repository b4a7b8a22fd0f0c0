//! The section `[dns]`.

use super::ConfigBuilder;
use super::transfers::parse_address;
use crate::config::{CookieSecretFile, Resolver};
use crate::config_reader::{Entry, entries};
use crate::diagnostic::{Diagnostic, Problem};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::service::Service;
use crate::zones::ZoneFolder;

/// Bytes of the longest text of a reply: `TEXT_BYTES_MAX` of the crate that answers.
const REPLY_TEXT_BYTES_MAX: usize = 128;

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_dns(&mut self, section: Entry<'_, '_>) {
        let Some(table) = self.reader.table(section, "[dns] on a line of its own") else { return };
        for entry in entries(table) {
            match entry.key {
                "listen" => {
                    self.dns_listen = Some(entry.offset);
                    self.config.dns_listen = self.read_listen(entry, Service::Dns);
                }
                "tls" => {
                    self.tls_listen.get_or_insert(entry.offset);
                    self.config.dot_listen = self.read_listen(entry, Service::Dot);
                }
                "zones" => self.read_zone_folder(entry),
                "secondaries" | "transfer_allow" => {
                    let mut transfers = std::mem::take(&mut self.config.transfers);
                    self.read_transfers(entry, &mut transfers);
                    self.config.transfers = transfers;
                }
                "nsid" => self.config.replies.nsid = self.read_reply_text(entry, "nsid = \"ns1.example.com\""),
                "version" => self.config.replies.version = self.read_reply_text(entry, "version = \"sanderling\""),
                "cookies" => self.config.replies.cookies = self.reader.boolean(entry).unwrap_or(true),
                "cookie_secret_file" => {
                    let file = self.read_path(entry, "cookie_secret_file = \"cookie.secret\"");
                    self.config.replies.cookie_secret_file =
                        file.map(|(path, location)| CookieSecretFile { path, location });
                }
                "tcp_keepalive" => self.config.replies.tcp_keepalive = self.reader.boolean(entry).unwrap_or(true),
                "extended_errors" => self.config.replies.extended_errors = self.reader.boolean(entry).unwrap_or(true),
                "error_report_agent" => self.read_error_report_agent(entry),
                "resolvers" => self.read_resolvers(entry),
                "rate_limit_exempt" => self.config.dns_rate_limit.exempt = self.read_networks(entry),
                "rate_limit_dry_run" => {
                    self.config.dns_rate_limit.dry_run = self.reader.boolean(entry).unwrap_or(false);
                }
                key => self.reader.error(entry.offset, Section::Dns.unknown_key(key)),
            }
        }
        if let (Some(file), false) = (&self.config.replies.cookie_secret_file, self.config.replies.cookies) {
            let problem = Problem::new("`cookie_secret_file` is set, but `cookies` is false", "remove one of the two");
            self.reader.add(Diagnostic::error(file.location.clone(), problem));
        }
    }

    fn read_zone_folder(&mut self, entry: Entry<'_, '_>) {
        const EXAMPLE: &str = "zones = \"zones/*.zone\"";
        let Some((offset, text)) = self.reader.string(entry, EXAMPLE) else { return };
        let location = self.reader.location(offset);
        self.config.zone_folder = ZoneFolder::parse(text, self.directory, location);
        if self.config.zone_folder.is_none() {
            let message = format!("`{text}` does not say which files of a folder are zones");
            self.error(offset, message, format!("write the folder and the extension of the files: {EXAMPLE}"));
        }
    }

    /// A text that replies contain.
    fn read_reply_text(&mut self, entry: Entry<'_, '_>, example: &str) -> String {
        let Some((offset, text)) = self.reader.string(entry, example) else { return String::new() };
        if text.is_empty() || text.len() > REPLY_TEXT_BYTES_MAX {
            let message = format!("`{}` has {} bytes", entry.key, text.len());
            self.error(offset, message, format!("write 1 to {REPLY_TEXT_BYTES_MAX} bytes, or remove the key"));
            return String::new();
        }
        text.to_owned()
    }

    fn read_resolvers(&mut self, entry: Entry<'_, '_>) {
        const EXAMPLE: &str = "resolvers = [\"system\"]";
        let resolvers = self.reader.strings(entry, EXAMPLE);
        self.config.has_no_resolvers = resolvers.is_empty();
        for (offset, text) in resolvers {
            match (text, parse_address(text)) {
                ("system", _) => self.config.resolvers.push(Resolver::System),
                (_, Some(address)) => self.config.resolvers.push(Resolver::At(address)),
                (_, None) => {
                    let remedy =
                        format!("write {EXAMPLE} for those of /etc/resolv.conf, or addresses: [\"192.0.2.53\"]");
                    self.error(offset, format!("`{text}` is not the address of a resolver"), remedy);
                }
            }
        }
    }

    fn read_error_report_agent(&mut self, entry: Entry<'_, '_>) {
        const EXAMPLE: &str = "error_report_agent = \"reports.example.com\"";
        let Some((offset, text)) = self.reader.string(entry, EXAMPLE) else { return };
        match DomainName::parse(text) {
            // RFC 9567 §6.1: resolvers report nothing to the root.
            Ok(agent) if agent.labels().next().is_none() => {
                self.error(offset, "the root cannot receive reports", format!("write {EXAMPLE}"));
            }
            Ok(agent) => self.config.replies.error_report_agent = Some(agent),
            Err(problem) => self.reader.error(offset, problem),
        }
    }
}

#[cfg(test)]
mod tests;
