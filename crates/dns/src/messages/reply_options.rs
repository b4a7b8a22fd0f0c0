//! The parts of replies other than records: EDNS options that clients ask for, extended errors, and the server's
//! identity.

use crate::messages::cookie::{CLIENT_COOKIE_BYTES, COOKIE_BYTES, CookieSecrets, SERVER_COOKIE_BYTES};
use crate::messages::question::FormErr;
use crate::messages::tsig::{TsigKeys, split_counted};
use crate::text::name::{NAME_BYTES_MAX, Name, NameBuf};
use crate::zones::packed_rrset::{HEADER_BYTES, OPT_BYTES};
use crate::zones::zone::Zone;
use alloc::string::String;
use core::net::IpAddr;
use core::num::NonZeroU16;

/// Bytes of a UDP reply to a client that does not announce a larger payload (RFC 1035 §4.2.1).
pub(crate) const UDP_REPLY_BYTES: usize = 512;

/// Bytes of the longest `nsid` and `version`: with the longest question, all options but the agent fit into 512 bytes.
pub const TEXT_BYTES_MAX: usize = 128;

const NSID: u16 = 3;
const COOKIE: u16 = 10;
const TCP_KEEPALIVE: u16 = 11;
const PADDING: u16 = 12;
const EXTENDED_ERROR: u16 = 15;
const REPORT_CHANNEL: u16 = 18;
const ZONE_VERSION: u16 = 19;
/// The type of the version of a zone that is its serial, the only one (RFC 9660 §4.1).
const SOA_SERIAL: u8 = 0;
/// Number of labels of the zone without the root, type, and serial.
const ZONE_VERSION_BYTES: usize = 6;
/// Bytes of an option header.
const OPTION_HEAD_BYTES: usize = 4;
/// Bytes of all options but padding.
const OPTIONS_BYTES_MAX: usize = (OPTION_HEAD_BYTES + TEXT_BYTES_MAX)
    + (OPTION_HEAD_BYTES + COOKIE_BYTES)
    + 2 * (OPTION_HEAD_BYTES + 2)
    + (OPTION_HEAD_BYTES + ZONE_VERSION_BYTES)
    + (OPTION_HEAD_BYTES + NAME_BYTES_MAX);
/// Replies are padded to a multiple of this (RFC 8467 §4.1).
const PADDED_BYTES: usize = 468;

/// The options in replies. The default is none.
#[derive(Clone, Debug, Default)]
pub struct ReplyOptions {
    /// This server's name: NSID (RFC 5001), and `id.server` and `hostname.bind` of the class CH (RFC 4892). At most
    /// [`TEXT_BYTES_MAX`] bytes; empty for none.
    pub nsid: String,
    /// `version.server` and `version.bind` of the class CH. At most [`TEXT_BYTES_MAX`] bytes; empty for none.
    pub version: String,
    /// Cookies (RFC 7873), if clients that send one get one.
    pub cookies: Option<CookieSecrets>,
    /// The idle timeout of connections in units of 100 ms, for clients that ask for it (RFC 7828).
    pub tcp_keepalive_100ms: Option<u16>,
    /// Whether the reason of an error is in the reply (RFC 8914).
    pub has_extended_errors: bool,
    /// The domain to which resolvers report errors with the zones (RFC 9567).
    pub error_report_agent: Option<NameBuf>,
    /// Keys that sign queries and replies.
    pub tsig_keys: TsigKeys,
}

impl ReplyOptions {
    /// Whether the options affect every reply with EDNS, even if the client requests none.
    #[inline]
    pub fn concern_all(&self) -> bool {
        self.error_report_agent.is_some()
    }

    /// The text for `name` of the class CH, if there is one.
    pub(crate) fn identity(&self, name: Name<'_>) -> Option<&[u8]> {
        let is = |bytes: &[u8]| name.as_bytes().eq_ignore_ascii_case(bytes);
        let text = if is(b"\x07version\x04bind\0") || is(b"\x07version\x06server\0") {
            &self.version
        } else if is(b"\x02id\x06server\0") || is(b"\x08hostname\x04bind\0") {
            &self.nsid
        } else {
            return None;
        };
        Some(text_bytes(text)).filter(|text| !text.is_empty())
    }
}

/// The allowed bytes of `text`.
fn text_bytes(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)]
}

/// The reason of an error (RFC 8914 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum ExtendedError {
    NotReady = 14,
    Prohibited = 18,
    NotAuthoritative = 20,
    NotSupported = 21,
}

/// The options of a query that change the reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueryOptions<'q> {
    asks_for_nsid: bool,
    /// The client cookie, and the whole option.
    pub(crate) cookie: Option<(&'q [u8; CLIENT_COOKIE_BYTES], &'q [u8])>,
    asks_for_keepalive: bool,
    asks_for_zone_version: bool,
    pub(crate) asks_for_padding: bool,
}

impl<'q> QueryOptions<'q> {
    /// The options of `message`, whose length is at `offset`. An error is a malformed cookie (RFC 7873 §5.2.2).
    pub(crate) fn read(message: &'q [u8], offset: Option<NonZeroU16>) -> Result<QueryOptions<'q>, FormErr> {
        let mut options = QueryOptions::default();
        let Some(offset) = offset else { return Ok(options) };
        let (mut left, _) = split_counted(&message[usize::from(offset.get())..]).ok_or(FormErr)?;
        while let Some((code, after)) = left.split_first_chunk::<2>() {
            let (data, after) = split_counted(after).ok_or(FormErr)?;
            match u16::from_be_bytes(*code) {
                NSID => options.asks_for_nsid = true,
                // RFC 7873 §5.2: all but the first are ignored.
                COOKIE if options.cookie.is_none() => {
                    let (client_cookie, server_cookie) = data.split_first_chunk().ok_or(FormErr)?;
                    if !server_cookie.is_empty() && !SERVER_COOKIE_BYTES.contains(&server_cookie.len()) {
                        return Err(FormErr);
                    }
                    options.cookie = Some((client_cookie, data));
                }
                TCP_KEEPALIVE => options.asks_for_keepalive = true,
                PADDING => options.asks_for_padding = true,
                ZONE_VERSION => options.asks_for_zone_version = data.is_empty(),
                _ => {}
            }
            left = after;
        }
        Ok(options)
    }
}

/// The options of one reply, in wire form.
pub(crate) struct OptionsWriter {
    bytes: [u8; OPTIONS_BYTES_MAX],
    length: usize,
}

impl OptionsWriter {
    /// The options of the reply to a query with the options `asked`, from `zone` unless it is refused.
    pub(crate) fn new(
        options: &ReplyOptions,
        asked: &QueryOptions<'_>,
        client: IpAddr,
        now_unix_s: u64,
        has_idle_timeout: bool,
        error: Option<ExtendedError>,
        zone: Option<&Zone>,
    ) -> OptionsWriter {
        let mut writer = OptionsWriter { bytes: [0; OPTIONS_BYTES_MAX], length: 0 };
        if asked.asks_for_nsid && !options.nsid.is_empty() {
            writer.put(NSID, text_bytes(&options.nsid));
        }
        if let (Some(secrets), Some((client_cookie, cookie))) = (&options.cookies, asked.cookie) {
            // Timestamps of cookies have 32 bits and wrap around.
            writer.put(COOKIE, &secrets.reply_cookie(client_cookie, cookie, client, now_unix_s as u32));
        }
        let asks_for_keepalive = asked.asks_for_keepalive && has_idle_timeout;
        if let Some(timeout_100ms) = options.tcp_keepalive_100ms.filter(|_| asks_for_keepalive) {
            writer.put(TCP_KEEPALIVE, &timeout_100ms.to_be_bytes());
        }
        // RFC 9660 §3.2: the option is about the zone that encloses the queried name.
        if let Some(zone) = zone.filter(|_| asked.asks_for_zone_version) {
            let [a, b, c, d] = zone.serial().to_be_bytes();
            writer.put(ZONE_VERSION, &[zone.apex_depth as u8, SOA_SERIAL, a, b, c, d]);
        }
        if let Some(error) = error.filter(|_| options.has_extended_errors) {
            writer.put(EXTENDED_ERROR, &(error as u16).to_be_bytes());
        }
        writer
    }

    /// Adds the domain to which errors are reported, if it fits into a reply to a question of this length: the other
    /// options are more important.
    pub(crate) fn put_report_agent(&mut self, options: &ReplyOptions, question_bytes: usize) {
        let Some(agent) = &options.error_report_agent else { return };
        let agent = agent.as_name().as_bytes();
        let length_bytes = HEADER_BYTES + question_bytes + OPT_BYTES + self.length + OPTION_HEAD_BYTES + agent.len();
        if length_bytes <= UDP_REPLY_BYTES {
            self.put(REPORT_CHANNEL, agent);
        }
    }

    fn put(&mut self, code: u16, data: &[u8]) {
        for part in [&code.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data] {
            self.bytes[self.length..self.length + part.len()].copy_from_slice(part);
            self.length += part.len();
        }
    }

    pub(crate) fn length_bytes(&self) -> usize {
        self.length
    }

    /// Appends the options to the OPT without options at the end of the first `length_bytes` bytes of `out`, and pads
    /// the reply if `is_padded`. Returns the new length, which fits into `out`.
    pub(crate) fn append(&self, out: &mut [u8], length_bytes: usize, is_padded: bool) -> usize {
        debug_assert!(length_bytes >= HEADER_BYTES + 11, "the reply ends with an OPT");
        let mut end = length_bytes + self.length;
        out[length_bytes..end].copy_from_slice(&self.bytes[..self.length]);
        if is_padded && end + OPTION_HEAD_BYTES <= out.len() {
            let padded = (end + OPTION_HEAD_BYTES).next_multiple_of(PADDED_BYTES).min(out.len());
            let padding_bytes = (padded - end - OPTION_HEAD_BYTES) as u16;
            out[end..end + 2].copy_from_slice(&PADDING.to_be_bytes());
            out[end + 2..end + OPTION_HEAD_BYTES].copy_from_slice(&padding_bytes.to_be_bytes());
            out[end + OPTION_HEAD_BYTES..padded].fill(0);
            end = padded;
        }
        let options_bytes = (end - length_bytes) as u16;
        out[length_bytes - 2..length_bytes].copy_from_slice(&options_bytes.to_be_bytes());
        end
    }
}
