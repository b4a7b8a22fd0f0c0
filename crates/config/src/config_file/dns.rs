//! The section `[dns]`.

use super::ConfigBuilder;
use crate::config::CookieSecretFile;
use crate::config_reader::{Entry, entries};
use crate::diagnostic::{Diagnostic, Problem};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::service::Service;
use crate::zones::ZoneFolder;
use std::net::IpAddr;

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
                "rate_limit_exempt" => self.read_rate_limit_exempt(entry),
                "rate_limit_dry_run" => self.config.rate_limit.dry_run = self.reader.boolean(entry).unwrap_or(false),
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

    fn read_rate_limit_exempt(&mut self, entry: Entry<'_, '_>) {
        const EXAMPLE: &str = "rate_limit_exempt = [\"192.0.2.0/24\", \"2001:db8::/32\"]";
        for (offset, text) in self.reader.strings(entry, EXAMPLE) {
            match parse_network(text) {
                Some(network) => self.config.rate_limit.exempt.push(network),
                None => {
                    let message = format!("`{text}` is not a network");
                    self.error(offset, message, "write an address and the bits of its prefix, such as 192.0.2.0/24");
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

/// An address with the bits of its prefix, which has no others; all of its bits without them.
fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix_bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let (bits, all_bits) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let prefix_bits = prefix_bits.map_or(Some(all_bits), |bits| bits.parse().ok())?;
    let host_bits = bits.checked_shl(u32::from(prefix_bits)).unwrap_or(0);
    (prefix_bits <= all_bits && host_bits == 0).then_some((address, prefix_bits))
}

#[cfg(test)]
mod tests;
