//! Answers a query from a map of zones (RFC 1034 §4.3.2), section by section: answer, authority, additional.
//!
//! The caller owns the buffers of query and reply. Nothing here allocates, blocks or panics on any bytes of a query.

use crate::compression::NameOffsets;
use crate::message::{MessageFull, Rcode, ReplyWriter, Section};
use crate::name::{LABEL_COUNT_MAX, Name, NameBuf};
use crate::name_hash::{IndexedName, NameHash};
use crate::packed_rrset::{HEADER_BYTES, OPT_BYTES, OwnerLocation};
use crate::query::{ParsedQuery, ReplyKind};
use crate::question::Edns;
use crate::reply_options::{ExtendedError, OptionsWriter, QueryOptions, ReplyOptions, UDP_REPLY_BYTES};
use crate::rtype::Rtype;
use crate::tsig::{ReplySigner, TsigError, append_unsigned};
use crate::zone::{FoundRrset, Lookup, Zone};
use crate::zone_map::{CNAME_CHAIN_MAX, FoundZone, ZoneMap};
use core::net::SocketAddr;

/// Bytes of the longest message (RFC 1035 §4.2.2). `out` has at least this length for TCP.
pub const TCP_REPLY_BYTES_MAX: usize = 65_535;

/// The transport of a request, which bounds the length of its reply.
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
    /// HTTP, which has its own idle timeout. Replies are padded likewise.
    Https,
}

/// The circumstances of a request.
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

/// [`answer_parsed`], with what `options` allows and the client asks for.
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
        ReplyKind::InZone(found) => {
            reply_to(query, transport, reserved_bytes, out, |reply| put_sections(query, found, reply))
        }
        ReplyKind::Truncated => truncated(query, transport, reserved_bytes, out),
    }
}

/// A query whose reply has the options that are allowed and that the client asks for.
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
        let identity = options.identity(query.question.qname).filter(|_| query.is_for_identity());
        let error = if identity.is_none() { extended_error(&query) } else { None };
        let has_idle_timeout = matches!(info.transport, DnsTransport::Tcp | DnsTransport::Tls);
        let question_bytes = query.question.section_bytes();
        let (client, now_unix_s) = (info.client.ip(), info.now_unix_s);
        let writer = OptionsWriter::new(options, &asked, client, now_unix_s, has_idle_timeout, error, question_bytes);
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

/// The payload size that replies over TCP announce. It concerns UDP alone, so it is the default of UDP replies.
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

#[inline]
fn put_sections(query: &ParsedQuery<'_, '_>, found: &FoundZone<'_>, reply: &mut ReplyWriter<'_>) -> Rcode {
    put_answer(query, found, reply).unwrap_or_else(|MessageFull| {
        reply.truncate();
        Rcode::NoError
    })
}

/// Writes all sections. RRsets of QNAME itself are copied in packed form; the others are compressed as they are written.
#[inline(always)]
fn put_answer(
    query: &ParsedQuery<'_, '_>,
    found: &FoundZone<'_>,
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
            let owner = owner_in_question(&found, qname_bytes);
            reply.put_packed(section, (found.owner, &found.rrset), owner)?;
            Ok(Rcode::NoError)
        }
        Lookup::Nodata => Ok(put_negative(found.zone, qname_bytes, reply, Rcode::NoError)),
        Lookup::Nxdomain => Ok(put_negative(found.zone, qname_bytes, reply, Rcode::NxDomain)),
        Lookup::Cname(_) | Lookup::Dname(_) => ChainWriter::put(query, found, &lookup, reply),
    }
}

/// Writes the SOA with which resolvers cache a negative answer (RFC 2308 §3).
#[inline(always)]
fn put_negative(zone: &Zone, qname_bytes: usize, reply: &mut ReplyWriter<'_>, rcode: Rcode) -> Rcode {
    let soa = zone.negative_soa();
    let owner = owner_in_question(&soa, qname_bytes);
    if reply.put_packed(Section::Authority, (soa.owner, &soa.rrset), owner).is_err() {
        reply.truncate();
    }
    rcode
}

/// The owner of `found` as a suffix of QNAME. Of a wildcard, it is the suffix of the same length.
fn owner_in_question(found: &FoundRrset<'_>, qname_bytes: usize) -> OwnerLocation {
    let length_bytes = found.owner.length_bytes();
    OwnerLocation { offset: HEADER_BYTES + qname_bytes - length_bytes, length_bytes }
}

/// The aliases that a reply has followed.
struct AliasChain<'z> {
    aliases: [Alias<'z>; CNAME_CHAIN_MAX],
    count: usize,
}

#[derive(Clone, Copy, Default)]
struct Alias<'z> {
    /// The hash of the alias's own name. Among so few names, equal hashes mean equal names.
    name: NameHash,
    /// The zone and the node of the CNAME or DNAME.
    owner: Option<(&'z Zone, usize)>,
}

impl<'z> AliasChain<'z> {
    fn push(&mut self, name: NameHash, zone: &'z Zone, found: &FoundRrset<'_>) {
        self.aliases[self.count] = Alias { name, owner: Some((zone, found.node)) };
        self.count += 1;
    }

    fn contains_name(&self, name: NameHash) -> bool {
        self.aliases[..self.count].iter().any(|alias| alias.name == name)
    }

    fn contains_owner(&self, zone: &Zone, found: &FoundRrset<'_>) -> bool {
        let is_owner = |(of, node): (&Zone, usize)| core::ptr::eq(of, zone) && node == found.node;
        self.aliases[..self.count].iter().filter_map(|alias| alias.owner).any(is_owner)
    }
}

/// Writes a chain of aliases, and the data at its end.
struct ChainWriter<'a, 'z, 'o> {
    qtype: Rtype,
    zones: &'z ZoneMap,
    reply: &'a mut ReplyWriter<'o>,
    known: NameOffsets,
    chain: AliasChain<'z>,
}

impl<'z> ChainWriter<'_, 'z, '_> {
    /// Writes the chain that starts with `lookup`, the result for QNAME in the zone of `found`.
    // Not inlined: the chain takes kilobytes of stack that other answers do not need.
    #[inline(never)]
    fn put(
        query: &ParsedQuery<'z, '_>,
        found: &FoundZone<'z>,
        lookup: &Lookup<'z>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<Rcode, MessageFull> {
        let (question, zones) = (&query.question, query.zones.expect("the zone was found in them"));
        let chain = AliasChain { aliases: [Alias::default(); CNAME_CHAIN_MAX], count: 0 };
        let known = NameOffsets::of_question(question.qname);
        let mut writer = ChainWriter { qtype: question.qtype, zones, reply, known, chain };
        let (mut zone, mut hash, mut lookup) = (found.zone, found.hashes.name, *lookup);
        let mut name = question.qname.to_owned();
        loop {
            if let Lookup::Cname(alias) | Lookup::Dname(alias) = &lookup {
                if writer.chain.count == writer.zones.cname_chain_max() {
                    // The bound: the answer is the chain so far.
                    return Ok(Rcode::NoError);
                }
                let is_written = writer.chain.contains_owner(zone, alias);
                writer.chain.push(hash, zone, alias);
                name = match &lookup {
                    Lookup::Dname(dname) => match writer.put_dname(dname, name.as_name(), is_written)? {
                        // QTYPE CNAME: the synthesized CNAME is the answer. RFC 6672 §3.2 would go on, but no server
                        // does, and NXDOMAIN for the target would deny the record in the answer section.
                        Some(_) if writer.qtype == Rtype::CNAME => return Ok(Rcode::NoError),
                        // The same DNAME would apply again and again, to longer and longer names.
                        Some(_) if dname.alias_target().1.as_name().is_at_or_below(dname.owner) => {
                            return Ok(Rcode::NoError);
                        }
                        Some(target) => target,
                        None => return Ok(Rcode::YxDomain),
                    },
                    _ => writer.put_cname(alias, name.as_name())?,
                };
            } else {
                return writer.put_end(zone, &lookup, name.as_name());
            }
            let indexed = IndexedName::of(name.as_name());
            // RFC 1034 §4.3.2 step 3a: the target is looked up from step 2 on, in the nearest zone of the server.
            let Ok(next) = writer.zones.find(&indexed, writer.qtype) else { return Ok(Rcode::NoError) };
            (zone, hash) = (next.zone, next.hashes.name);
            if writer.chain.contains_name(hash) {
                // A loop: all its aliases are in the answer section.
                return Ok(Rcode::NoError);
            }
            lookup = zone.lookup(name.as_name(), next.hashes, writer.qtype);
        }
    }

    /// Writes the result of the lookup in `zone` for `name`, the last target of the chain.
    fn put_end(&mut self, zone: &Zone, lookup: &Lookup<'_>, name: Name<'_>) -> Result<Rcode, MessageFull> {
        match lookup {
            // QTYPE DNAME, and the DNAME has led back to its own owner.
            Lookup::Answer(found) if found.is_dname_of(name) && self.chain.contains_owner(zone, found) => {
                Ok(Rcode::NoError)
            }
            Lookup::Answer(found) => self.put_rrset(Section::Answer, found, name),
            Lookup::Referral(found) => self.put_rrset(Section::Authority, found, found.owner),
            Lookup::Nodata => Ok(self.put_negative(zone, Rcode::NoError)),
            // RFC 6604 §3: the RCODE is that of the last name of the chain.
            Lookup::Nxdomain => Ok(self.put_negative(zone, Rcode::NxDomain)),
            Lookup::Cname(_) | Lookup::Dname(_) => unreachable!("put follows aliases itself"),
        }
    }

    fn put_rrset(&mut self, section: Section, found: &FoundRrset<'_>, owner: Name<'_>) -> Result<Rcode, MessageFull> {
        self.reply.put_compressed(section, found, owner, &mut self.known)?;
        self.reply.put_compressed_additional(section, found, owner, &mut self.known)?;
        Ok(Rcode::NoError)
    }

    /// Writes a CNAME record of the zone. Returns its target.
    fn put_cname(&mut self, found: &FoundRrset<'_>, name: Name<'_>) -> Result<NameBuf, MessageFull> {
        self.reply.put_compressed(Section::Answer, found, name, &mut self.known)?;
        Ok(found.alias_target().1)
    }

    /// Writes the DNAME, unless it `is_written` already, and the CNAME synthesized for `name` (RFC 6672 §3.1). Returns
    /// the target of the CNAME; `None` when it would be too long.
    fn put_dname(
        &mut self,
        found: &FoundRrset<'_>,
        name: Name<'_>,
        is_written: bool,
    ) -> Result<Option<NameBuf>, MessageFull> {
        if !is_written {
            self.reply.put_compressed(Section::Answer, found, found.owner, &mut self.known)?;
        }
        let (record, substitute) = found.alias_target();
        let kept_count = name.labels().count() - found.owner.labels().count();
        let mut labels = [&[][..]; LABEL_COUNT_MAX];
        for (label, kept) in labels.iter_mut().zip(name.labels().take(kept_count)) {
            *label = kept;
        }
        let Ok(target) = NameBuf::joined(&labels[..kept_count], substitute.as_name()) else { return Ok(None) };
        self.reply.put_synthesized_cname(name, record.ttl(), target.as_name(), &mut self.known)?;
        Ok(Some(target))
    }

    /// [`put_negative`] after an alias.
    fn put_negative(&mut self, zone: &Zone, rcode: Rcode) -> Rcode {
        let soa = zone.negative_soa();
        if self.reply.put_compressed(Section::Authority, &soa, soa.owner, &mut self.known).is_err() {
            self.reply.truncate();
        }
        rcode
    }
}
