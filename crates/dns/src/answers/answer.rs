//! Answers a query from a map of zones (RFC 1034 §4.3.2), section by section: answer, authority, additional.
//!
//! The caller owns the buffers of query and reply. This code neither allocates nor blocks, and does not panic on any
//! query.

use crate::answers::alias_chain::ChainWriter;
use crate::answers::signed_answer;
use crate::messages::message::{MessageFull, Rcode, ReplyWriter, Section};
use crate::messages::query::{ParsedQuery, ReplyKind};
use crate::messages::question::Edns;
use crate::messages::reply_options::{ExtendedError, OptionsWriter, QueryOptions, ReplyOptions, UDP_REPLY_BYTES};
use crate::messages::tsig::{ReplySigner, TsigError, append_unsigned};
use crate::messages::zone_map::{FoundZone, ZoneMap};
use crate::text::rtype::Rtype;
use crate::zones::layout::Form;
use crate::zones::packed_rrset::{HEADER_BYTES, OPT_BYTES};
use crate::zones::zone::{Lookup, Zone};
use core::net::SocketAddr;

/// Bytes of the longest message (RFC 1035 §4.2.2). `out` has at least this length for TCP.
pub const TCP_REPLY_BYTES_MAX: usize = 65_535;

/// A request's transport, which bounds its reply's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsTransport {
    /// A datagram.
    Udp {
        /// Bytes of the longest reply that is sent without truncation: at least 512.
        reply_bytes_max: u16,
    },
    /// A stream.
    Tcp,
    /// An encrypted stream, whose replies are padded for clients that ask for it (RFC 7830).
    Tls,
    /// HTTP, which has its own idle timeout. Replies are padded as well.
    Https,
}

/// A request's circumstances.
#[derive(Clone, Copy, Debug)]
pub struct RequestInfo {
    /// Address and port of the client.
    pub client: SocketAddr,
    /// The transport of request and reply.
    pub transport: DnsTransport,
    /// The time, in seconds since 1970-01-01 00:00 UTC.
    pub now_unix_s: u64,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send nothing: the message is not a query, and a reply could start a loop.
    NoReply,
    /// Send this many bytes from the start of `out`.
    Reply(usize),
}

/// Answers `query` from `zones` into `out`, which has the length of the longest reply of the transport.
pub fn answer(zones: &ZoneMap, info: &RequestInfo, query: &[u8], out: &mut [u8]) -> Answer {
    answer_parsed(&ParsedQuery::parse(zones, query), info, out)
}

/// Answers a parsed query into `out`, which has the length of the longest reply of the transport.
#[inline]
pub fn answer_parsed(query: &ParsedQuery<'_, '_>, info: &RequestInfo, out: &mut [u8]) -> Answer {
    answer_without_options(query, info.transport, 0, out)
}

/// Like [`answer_parsed`], with the EDNS options that `options` allows and the client requests.
// Inlined, so that this crate has one copy of the code for all answers without options, which is inlined in turn.
#[inline]
pub fn answer_with_options(
    query: &ParsedQuery<'_, '_>,
    info: &RequestInfo,
    options: &ReplyOptions,
    out: &mut [u8],
) -> Answer {
    if query.question.tsig_offset.is_some() {
        return answer_signed(query, info, options, out);
    }
    let prepared = WithOptions::of(query, info, options);
    let (query, reserved_bytes) = (&prepared.query, prepared.writer.length_bytes());
    let answer = match prepared.identity {
        None => answer_without_options(query, info.transport, reserved_bytes, out),
        Some(text) => reply_to(query, info.transport, reserved_bytes, out, |reply| put_identity(text, reply)),
    };
    prepared.finish(answer, info.transport, out)
}

/// Answers with an OPT without options. The reply leaves `reserved_bytes` for options.
#[inline]
fn answer_without_options(
    query: &ParsedQuery<'_, '_>,
    transport: DnsTransport,
    reserved_bytes: usize,
    out: &mut [u8],
) -> Answer {
    match &query.reply_kind {
        ReplyKind::NoReply => Answer::NoReply,
        &ReplyKind::HeaderOnly(rcode) => {
            let mut reply = ReplyWriter::start(out, query.message, 0, HEADER_BYTES);
            Answer::Reply(reply.finish(rcode, limits(query, transport).1))
        }
        &ReplyKind::QuestionOnly(Rcode::NotAuth) => unknown_key(query, transport, out),
        &ReplyKind::QuestionOnly(rcode) => reply_to(query, transport, reserved_bytes, out, |_| rcode),
        ReplyKind::InZone(found) if query.asks_for_signatures() && found.zone.is_signed() => {
            answer_with_signatures(query, found, transport, reserved_bytes, out)
        }
        ReplyKind::InZone(found) => {
            reply_to(query, transport, reserved_bytes, out, |reply| put_sections(query, found, reply))
        }
        ReplyKind::Truncated => truncated(query, transport, reserved_bytes, out),
    }
}

/// A query whose reply has the options that are allowed and requested.
struct WithOptions<'z, 'q, 'o> {
    query: ParsedQuery<'z, 'q>,
    asks_for_padding: bool,
    writer: OptionsWriter,
    /// The text that the query asks for.
    identity: Option<&'o [u8]>,
}

impl<'z, 'q, 'o> WithOptions<'z, 'q, 'o> {
    fn of(query: &ParsedQuery<'z, 'q>, info: &RequestInfo, options: &'o ReplyOptions) -> WithOptions<'z, 'q, 'o> {
        let mut query = *query;
        let asked = QueryOptions::read(query.message, query.options_offset());
        if asked.is_err() && options.cookies.is_some() && !matches!(query.reply_kind, ReplyKind::NoReply) {
            query.reply_kind = ReplyKind::HeaderOnly(Rcode::FormErr);
        }
        let asked = asked.unwrap_or_default();
        if asked.cookie.is_some() && options.cookies.is_some() && query.is_of_edns_alone() {
            // RFC 7873 §5.4: a query for a cookie.
            query.reply_kind = ReplyKind::HeaderOnly(Rcode::NoError);
        }
        let identity = query.identity(options);
        let error = if identity.is_none() { extended_error(&query) } else { None };
        let has_idle_timeout = matches!(info.transport, DnsTransport::Tcp | DnsTransport::Tls);
        let (client, now_unix_s) = (info.client.ip(), info.now_unix_s);
        let zone = match &query.reply_kind {
            ReplyKind::InZone(found) if identity.is_none() => Some(found.zone),
            _ => None,
        };
        let mut writer = OptionsWriter::new(options, &asked, client, now_unix_s, has_idle_timeout, error, zone);
        writer.put_report_agent(options, query.question.section_bytes());
        WithOptions { query, asks_for_padding: asked.asks_for_padding, writer, identity }
    }

    /// Adds the options to the reply.
    fn finish(&self, answer: Answer, transport: DnsTransport, out: &mut [u8]) -> Answer {
        let question = &self.query.question;
        match answer {
            // The reply to an unknown key ends with a TSIG record.
            Answer::Reply(length_bytes) if question.edns.is_some() && question.tsig_offset.is_none() => {
                let is_padded = matches!(transport, DnsTransport::Tls | DnsTransport::Https) && self.asks_for_padding;
                let limit = out.len().min(TCP_REPLY_BYTES_MAX);
                Answer::Reply(self.writer.append(&mut out[..limit], length_bytes, is_padded))
            }
            answer => answer,
        }
    }
}

fn put_identity(text: &[u8], reply: &mut ReplyWriter<'_>) -> Rcode {
    reply.set_authoritative();
    if reply.put_identity(text).is_err() {
        reply.truncate();
    }
    Rcode::NoError
}

/// The reason of an error that is known before the zone is searched.
fn extended_error(query: &ParsedQuery<'_, '_>) -> Option<ExtendedError> {
    match query.reply_kind {
        ReplyKind::QuestionOnly(Rcode::ServFail) => Some(ExtendedError::NotReady),
        ReplyKind::QuestionOnly(Rcode::Refused) => match query.question.qtype {
            Rtype::AXFR | Rtype::IXFR => Some(ExtendedError::Prohibited),
            _ => Some(ExtendedError::NotAuthoritative),
        },
        ReplyKind::QuestionOnly(Rcode::NotImp) | ReplyKind::HeaderOnly(Rcode::NotImp) => {
            Some(ExtendedError::NotSupported)
        }
        _ => None,
    }
}

/// The payload size that replies over TCP announce. The size concerns only UDP, so it is the default size for UDP
/// replies.
const TCP_PAYLOAD_BYTES: u16 = 1_232;

/// Writes a reply that repeats the question, with the sections that `put` writes and the RCODE that it returns.
#[inline]
fn reply_to<'o>(
    query: &ParsedQuery<'_, '_>,
    transport: DnsTransport,
    reserved_bytes: usize,
    out: &'o mut [u8],
    put: impl FnOnce(&mut ReplyWriter<'o>) -> Rcode,
) -> Answer {
    let (limit, own_edns) = limits(query, transport);
    let opt_bytes = if own_edns.is_some() { OPT_BYTES } else { 0 };
    let mut reply =
        ReplyWriter::start(out, query.message, query.question.section_bytes(), limit - opt_bytes - reserved_bytes);
    let rcode = put(&mut reply);
    Answer::Reply(reply.finish(rcode, own_edns))
}

/// Bytes that the reply may have, and the OPT of the reply to a query with one. RFC 3225 §3: DO is copied.
#[inline]
fn limits(query: &ParsedQuery<'_, '_>, transport: DnsTransport) -> (usize, Option<Edns>) {
    let edns = query.question.edns;
    let (limit, payload_bytes) = match transport {
        DnsTransport::Udp { reply_bytes_max } => {
            // RFC 6891 §6.2.3: values below 512 are treated as 512.
            let wanted = edns.map_or(UDP_REPLY_BYTES, |edns| usize::from(edns.payload_bytes));
            (wanted.clamp(UDP_REPLY_BYTES, usize::from(reply_bytes_max)), reply_bytes_max)
        }
        DnsTransport::Tcp | DnsTransport::Tls | DnsTransport::Https => (TCP_REPLY_BYTES_MAX, TCP_PAYLOAD_BYTES),
    };
    (limit, edns.map(|edns| Edns { payload_bytes, version: 0, ..edns }))
}

/// A reply of header and question with the flag TC.
#[cold]
fn truncated(query: &ParsedQuery<'_, '_>, transport: DnsTransport, reserved_bytes: usize, out: &mut [u8]) -> Answer {
    reply_to(query, transport, reserved_bytes, out, |reply| {
        reply.truncate();
        Rcode::NoError
    })
}

/// The reply to a query with TSIG (RFC 8945 §5.2.1): its key is unknown, because the server has none.
#[cold]
fn unknown_key(query: &ParsedQuery<'_, '_>, transport: DnsTransport, out: &mut [u8]) -> Answer {
    let limit = limits(query, transport).0.min(out.len());
    let Answer::Reply(length_bytes) = error_reply(query, transport, Rcode::NotAuth, out) else {
        return Answer::NoReply;
    };
    let length_bytes = match query.tsig() {
        Some((tsig, _)) => append_unsigned(&mut out[..limit], length_bytes, &tsig, TsigError::BadKey),
        None => length_bytes,
    };
    Answer::Reply(length_bytes)
}

/// Answers a signed query, and signs the reply (RFC 8945 §5.2, §5.3).
#[cold]
#[inline(never)]
fn answer_signed(query: &ParsedQuery<'_, '_>, info: &RequestInfo, options: &ReplyOptions, out: &mut [u8]) -> Answer {
    let Some((tsig, offset)) = query.tsig() else { return Answer::NoReply };
    let (result, signer) = tsig.verify(query.message, offset, &options.tsig_keys, info.now_unix_s);
    let signature_bytes = signer.as_ref().map_or(0, ReplySigner::record_bytes);
    let Some(room_bytes) = out.len().checked_sub(signature_bytes) else { return Answer::NoReply };
    let room = &mut out[..room_bytes];
    let answer = match result {
        Ok(()) => {
            let mut query = query.without_tsig();
            let limit = limits(&query, info.transport).0;
            match answer_apart(&query, info, options, room) {
                // RFC 8945 §5.3: a reply for whose signature there is no room is truncated.
                Answer::Reply(length_bytes) if length_bytes + signature_bytes > limit => {
                    query.truncate_reply();
                    answer_apart(&query, info, options, room)
                }
                answer => answer,
            }
        }
        Err(TsigError::BadKey) => return unknown_key(query, info.transport, out),
        Err(TsigError::Malformed) => error_reply(query, info.transport, Rcode::FormErr, room),
        Err(_) => error_reply(query, info.transport, Rcode::NotAuth, room),
    };
    match (answer, signer, result) {
        (Answer::Reply(length_bytes), Some(mut signer), _) => {
            signer.sign(out, length_bytes, info.now_unix_s).map_or(Answer::NoReply, Answer::Reply)
        }
        (Answer::Reply(length_bytes), None, Err(error @ TsigError::BadSig)) => {
            Answer::Reply(append_unsigned(out, length_bytes, &tsig, error))
        }
        (answer, ..) => answer,
    }
}

/// [`answer_with_options`], not inlined.
#[cold]
#[inline(never)]
fn answer_apart(query: &ParsedQuery<'_, '_>, info: &RequestInfo, options: &ReplyOptions, out: &mut [u8]) -> Answer {
    answer_with_options(query, info, options, out)
}

/// A reply of header and question with an error.
#[cold]
#[inline(never)]
fn error_reply(query: &ParsedQuery<'_, '_>, transport: DnsTransport, rcode: Rcode, out: &mut [u8]) -> Answer {
    reply_to(query, transport, 0, out, |_| rcode)
}

/// Answers from a signed zone for a client that asks for signatures.
// Not inlined: answers without signatures stay as fast as without this code.
#[inline(never)]
fn answer_with_signatures<'z>(
    query: &ParsedQuery<'z, '_>,
    found: &FoundZone<'z>,
    transport: DnsTransport,
    reserved_bytes: usize,
    out: &mut [u8],
) -> Answer {
    reply_to(query, transport, reserved_bytes, out, |reply| complete(signed_answer::put(query, found, reply), reply))
}

#[inline]
fn put_sections<'z>(query: &ParsedQuery<'z, '_>, found: &FoundZone<'z>, reply: &mut ReplyWriter<'_>) -> Rcode {
    complete(put_answer(query, found, reply), reply)
}

/// A reply's RCODE, which is truncated if it is full.
#[inline]
fn complete(result: Result<Rcode, MessageFull>, reply: &mut ReplyWriter<'_>) -> Rcode {
    result.unwrap_or_else(|MessageFull| {
        reply.truncate();
        Rcode::NoError
    })
}

/// Writes all sections. RRsets of QNAME itself are copied in packed form; the others are compressed as they are
/// written.
#[inline(always)]
fn put_answer<'z>(
    query: &ParsedQuery<'z, '_>,
    found: &FoundZone<'z>,
    reply: &mut ReplyWriter<'_>,
) -> Result<Rcode, MessageFull> {
    let question = &query.question;
    let qname_bytes = question.qname.length_bytes();
    let lookup = found.zone.lookup(question.qname, found.hashes, question.qtype);
    let is_referral = matches!(lookup, Lookup::Referral(_));
    if !is_referral {
        reply.set_authoritative();
    }
    match lookup {
        Lookup::Answer(found) | Lookup::Referral(found) => {
            let section = if is_referral { Section::Authority } else { Section::Answer };
            let owner = found.owner_in_question(qname_bytes);
            reply.put_packed(section, (found.owner, &found.rrset), owner)?;
            Ok(Rcode::NoError)
        }
        Lookup::Nodata => Ok(put_negative(found.zone, qname_bytes, reply, Rcode::NoError)),
        Lookup::Nxdomain => Ok(put_negative(found.zone, qname_bytes, reply, Rcode::NxDomain)),
        Lookup::Cname(_) | Lookup::Dname(_) => ChainWriter::put(query, found, None, &lookup, reply),
    }
}

/// Writes the SOA with which resolvers cache a negative answer (RFC 2308 §3).
#[inline(always)]
fn put_negative(zone: &Zone, qname_bytes: usize, reply: &mut ReplyWriter<'_>, rcode: Rcode) -> Rcode {
    let soa = zone.negative_soa(Form::Plain);
    let owner = soa.owner_in_question(qname_bytes);
    if reply.put_packed(Section::Authority, (soa.owner, &soa.rrset), owner).is_err() {
        reply.truncate();
    }
    rcode
}
