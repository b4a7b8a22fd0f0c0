//! Dynamic updates (RFC 2136): reads the message, checks its prerequisites against a version of a zone, and makes the
//! next version.
//!
//! ```text
//! query → UpdateMessage → verify → ZoneUpdate::apply, message by message → ZoneUpdate::finish → Zone
//! ```
//!
//! Section numbers without an RFC refer to RFC 2136. Nothing is changed by a message that is not carried out
//! as a whole.

use crate::messages::message::Rcode;
use crate::messages::question::{Header, MessageRecord, read_name};
use crate::messages::tsig::{ReplySigner, Tsig, TsigError, TsigKey, append_unsigned};
use crate::text::name::{Name, NameBuf};
use crate::text::rdata::{SOA_NUMBERS_BYTES, put_canonical_rdata, serial_of};
use crate::text::rtype::{RecordSource, Rtype};
use crate::text::zonefile::{Position, Record};
use crate::transfers::client::put_rdata;
use crate::transfers::transfer_in::RecordRole;
use crate::zones::journal::{is_in_zones, is_later, raised_serial};
use crate::zones::packed_rrset::{CLASS_IN, HEADER_BYTES, OPT_BYTES, QUESTION_TAIL_BYTES};
use crate::zones::zone::Zone;
use crate::zones::zone_builder::{BuildOutcome, ZoneLimits};
use crate::zones::zone_edit::ZoneEdit;
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

const OPCODE_UPDATE: u8 = 5;
/// QR, next to the opcode.
const FLAGS: u8 = 0x80 | OPCODE_UPDATE << 3;
pub(crate) const CLASS_NONE: u16 = 254;
const CLASS_ANY: u16 = 255;
/// The fudge that RFC 8945 §10 recommends, and that clients use.
const FUDGE_S_MAX: u16 = 300;
/// The longest TTL (RFC 2181 §8).
const TTL_S_MAX: u32 = i32::MAX.cast_unsigned();

/// The answer to an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// NOERROR: it was carried out.
    Done,
    /// A prerequisite does not hold, or the message cannot be carried out, with this RCODE.
    Refused(UpdateRefusal),
    /// The signature is not accepted.
    Tsig(TsigError),
    /// BADVERS: the version of EDNS is not 0 (RFC 6891 §6.1.3).
    BadVersion,
}

/// The reason why an update is not carried out (§2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateRefusal {
    /// FORMERR: a record does not have the form of its section.
    Malformed,
    /// SERVFAIL: the next version cannot be made, or not be stored.
    Failed,
    /// NXDOMAIN: a name that must be in use is not.
    NameNotInUse,
    /// REFUSED: no rule allows it.
    NotAllowed,
    /// YXDOMAIN: a name that must not be in use is.
    NameInUse,
    /// YXRRSET: an RRset that must not exist does.
    RrsetExists,
    /// NXRRSET: an RRset that must exist does not.
    NoRrset,
    /// NOTAUTH: the server is not the zone's primary.
    NotAuthoritative,
    /// NOTZONE: a name is outside the zone.
    NotInZone,
}

impl UpdateRefusal {
    fn rcode(self) -> Rcode {
        match self {
            UpdateRefusal::Malformed => Rcode::FormErr,
            UpdateRefusal::Failed => Rcode::ServFail,
            UpdateRefusal::NameNotInUse => Rcode::NxDomain,
            UpdateRefusal::NotAllowed => Rcode::Refused,
            UpdateRefusal::NameInUse => Rcode::YxDomain,
            UpdateRefusal::RrsetExists => Rcode::YxRrset,
            UpdateRefusal::NoRrset => Rcode::NxRrset,
            UpdateRefusal::NotAuthoritative => Rcode::NotAuth,
            UpdateRefusal::NotInZone => Rcode::NotZone,
        }
    }
}

/// Whether `message` is an UPDATE, malformed or not.
pub fn is_update(message: &[u8]) -> bool {
    Header::parse(message).is_some_and(|header| header.opcode() == OPCODE_UPDATE && !header.is_response())
}

/// Writes the reply to an UPDATE that is malformed, FORMERR, to `out`; its length, or `None` if it does not fit.
pub fn reply_to_malformed(message: &[u8], out: &mut [u8]) -> Option<usize> {
    let header = message.get(..HEADER_BYTES)?;
    out.get_mut(..HEADER_BYTES)?.copy_from_slice(header);
    (out[2], out[3]) = (FLAGS, Rcode::FormErr as u8);
    out[4..HEADER_BYTES].fill(0);
    Some(HEADER_BYTES)
}

/// An UPDATE message, all of whose records can be read.
#[derive(Debug)]
pub struct UpdateMessage<'q> {
    message: Cow<'q, [u8]>,
    apex: NameBuf,
    class: u16,
    /// The offset after the zone section.
    zone_end: usize,
    /// Offsets of the sections of prerequisites and of updates, with the numbers of their records.
    sections: [(usize, u16); 2],
    edns_version: Option<u8>,
    tsig_offset: Option<usize>,
    signer: Option<ReplySigner>,
    signature: Option<UpdateSignature>,
}

impl<'q> UpdateMessage<'q> {
    /// `message` as an update; `None` if it is not an update, or malformed.
    pub fn parse(message: &'q [u8]) -> Option<UpdateMessage<'q>> {
        let header = Header::parse(message).filter(|_| is_update(message))?;
        // §3.1.1: one zone, of the type SOA.
        if header.record_count(0) != 1 {
            return None;
        }
        let (apex, at) = read_name(message, HEADER_BYTES).ok()?;
        let zone_end = at + QUESTION_TAIL_BYTES;
        let &[type_high, type_low, class_high, class_low] = message.get(at..zone_end)?.first_chunk()?;
        if u16::from_be_bytes([type_high, type_low]) != Rtype::SOA.0 {
            return None;
        }
        let mut update = UpdateMessage {
            message: Cow::Borrowed(message),
            apex,
            class: u16::from_be_bytes([class_high, class_low]),
            zone_end,
            sections: [(0, 0); 2],
            edns_version: None,
            tsig_offset: None,
            signer: None,
            signature: None,
        };
        let mut at = zone_end;
        for section in 1..=3 {
            let count = header.record_count(section);
            if let Some(place) = update.sections.get_mut(section - 1) {
                *place = (at, count);
            }
            for _ in 0..count {
                let record = MessageRecord::parse(message, at).ok()?;
                // RFC 8945 §5.1: the TSIG record is the last one.
                if update.tsig_offset.is_some() {
                    return None;
                }
                match record.rtype() {
                    // RFC 6891 §6.1.1: there is one.
                    Rtype::OPT if section == 3 && update.edns_version.is_some() => return None,
                    Rtype::OPT if section == 3 => update.edns_version = Some(record.edns().ok()?.version),
                    Rtype::TSIG if section == 3 => update.tsig_offset = Some(at),
                    _ => {}
                }
                at = record.end;
            }
        }
        Some(update)
    }

    /// The message with a copy of its bytes.
    pub fn into_owned(self) -> UpdateMessage<'static> {
        let UpdateMessage { message, apex, class, zone_end, sections, edns_version, tsig_offset, signer, signature } =
            self;
        let message = Cow::Owned(message.into_owned());
        UpdateMessage { message, apex, class, zone_end, sections, edns_version, tsig_offset, signer, signature }
    }

    /// The zone's name.
    pub fn apex(&self) -> Name<'_> {
        self.apex.as_name()
    }

    /// Whether the zone has the class IN.
    pub fn is_of_internet(&self) -> bool {
        self.class == CLASS_IN
    }

    /// Whether the EDNS version is supported.
    pub fn has_known_edns(&self) -> bool {
        self.edns_version.is_none_or(|version| version == 0)
    }

    /// Checks the signature, if there is one. After this, the reply is signed.
    ///
    /// # Errors
    /// Returns an error if the signature is not accepted.
    pub fn verify(&mut self, keys: &[TsigKey], now_unix_s: u64) -> Result<(), TsigError> {
        let Some(offset) = self.tsig_offset else { return Ok(()) };
        let Some(tsig) = self.tsig() else { return Err(TsigError::Malformed) };
        let (result, signer) = tsig.verify(&self.message, offset, keys, now_unix_s);
        let signature = tsig.mac_start().copied().map(|mac| UpdateSignature {
            mac,
            expires_at_unix_s: tsig.expires_at_unix_s(),
            fudge_s: tsig.fudge_s(),
        });
        (self.signer, self.signature) = (signer, signature.filter(|_| result.is_ok()));
        result
    }

    /// The name of the key of an accepted signature, in lower case.
    pub fn key(&self) -> Option<Name<'_>> {
        self.signer.as_ref().map(|signer| signer.key().name())
    }

    /// The signature, if it was accepted.
    pub fn signature(&self) -> Option<UpdateSignature> {
        self.signature
    }

    fn tsig(&self) -> Option<Tsig<'_>> {
        MessageRecord::parse(&self.message, self.tsig_offset?).ok()?.tsig()
    }

    /// Writes the reply to `out`; its length, or `None` if it does not fit.
    pub fn reply(mut self, result: UpdateResult, now_unix_s: u64, out: &mut [u8]) -> Option<usize> {
        let rcode = match result {
            UpdateResult::Done => Rcode::NoError as u16,
            UpdateResult::Refused(refusal) => refusal.rcode() as u16,
            UpdateResult::Tsig(TsigError::Malformed) => Rcode::FormErr as u16,
            UpdateResult::Tsig(_) => Rcode::NotAuth as u16,
            UpdateResult::BadVersion => Rcode::BadVers as u16,
        };
        let mut end = self.zone_end;
        out.get_mut(..end)?.copy_from_slice(&self.message[..end]);
        (out[2], out[3]) = (FLAGS, rcode as u8 & 0xf);
        out[6..12].fill(0);
        if self.edns_version.is_some() {
            // RFC 6891 §6.1.1. The payload size is the smallest one, since no answer is longer.
            let opt = [0, 0, Rtype::OPT.0 as u8, 2, 0, (rcode >> 4) as u8, 0, 0, 0, 0, 0];
            out.get_mut(end..end + OPT_BYTES)?.copy_from_slice(&opt);
            (end, out[11]) = (end + OPT_BYTES, 1);
        }
        match (&mut self.signer, result) {
            (Some(signer), _) => signer.sign(out, end, now_unix_s),
            (None, UpdateResult::Tsig(error @ (TsigError::BadKey | TsigError::BadSig))) => {
                let tsig = self.tsig()?;
                Some(append_unsigned(out, end, &tsig, error))
            }
            _ => Some(end),
        }
    }

    fn records(&self, (start, count): (usize, u16)) -> impl Iterator<Item = MessageRecord<'_>> {
        let mut at = start;
        (0..count).map_while(move |_| {
            let record = MessageRecord::parse(&self.message, at).ok()?;
            at = record.end;
            Some(record)
        })
    }

    fn prerequisites(&self) -> impl Iterator<Item = MessageRecord<'_>> {
        self.records(self.sections[0])
    }

    fn updates(&self) -> impl Iterator<Item = MessageRecord<'_>> {
        self.records(self.sections[1])
    }
}

/// The identity of a signed message, and its validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateSignature {
    /// The first bytes of the MAC, which is not truncated.
    pub mac: [u8; UpdateSignature::MAC_BYTES],
    /// The last second at which the signature is accepted.
    pub expires_at_unix_s: u64,
    /// The allowed difference between the clocks of client and server, and so the time for which the signature is
    /// accepted.
    pub fudge_s: u16,
}

impl UpdateSignature {
    /// Bytes of the MAC: two different messages have the same bytes with a probability of 2^-128.
    pub const MAC_BYTES: usize = 16;

    /// Whether the signature is accepted for longer than RFC 8945 §10 recommends, and than it is remembered.
    pub fn is_long(&self) -> bool {
        self.fudge_s > FUDGE_S_MAX
    }
}

/// A record of an RRset that may change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnRecord {
    ttl_s: u32,
    rdata: Vec<u8>,
}

/// An RRset that may change. The list is not empty between two changes.
#[derive(Debug, Default)]
struct OwnRrset {
    /// The records, by their RDATA in canonical form, which is compared.
    records: BTreeMap<Vec<u8>, OwnRecord>,
    /// The TTL of all records, if one was added (RFC 2181 §5.2): so that an update need not change them all.
    ttl_s: Option<u32>,
}

impl OwnRrset {
    fn ttl_of(&self, record: &OwnRecord) -> u32 {
        self.ttl_s.unwrap_or(record.ttl_s)
    }

    /// Adds a record, or gives the existing one its TTL; whether anything has changed.
    fn add(&mut self, rtype: Rtype, record: OwnRecord) -> bool {
        let ttl_s = record.ttl_s;
        let has_other_ttl = match self.ttl_s {
            Some(own) => own != ttl_s,
            None => self.records.values().any(|other| other.ttl_s != ttl_s),
        };
        self.ttl_s = Some(ttl_s);
        let key = canonical_rdata(rtype, &record.rdata);
        let is_new = !self.records.contains_key(&key);
        if is_new {
            self.records.retain(|_, other| !replaces(rtype, &record.rdata, &other.rdata));
            self.records.insert(key, record);
        }
        is_new || has_other_ttl
    }
}

/// Whether a record that is added takes the place of `other` of the same name and type (§1.1.5). For a SOA, the serial
/// decides.
fn replaces(rtype: Rtype, added: &[u8], other: &[u8]) -> bool {
    /// Bytes of address and protocol of WKS.
    const WKS_KEY_BYTES: usize = 5;
    match rtype {
        // A name has at most one such record. DNAME: RFC 6672 §5.2; NSEC: RFC 4034 §4.
        Rtype::CNAME | Rtype::DNAME | Rtype::NSEC => true,
        Rtype::WKS => added.get(..WKS_KEY_BYTES) == other.get(..WKS_KEY_BYTES),
        // The hash, iterations and salt identify a chain (RFC 5155 §4.1); the flags are the second byte.
        Rtype::NSEC3PARAM => added.first() == other.first() && added.get(2..) == other.get(2..),
        _ => false,
    }
}

fn canonical_rdata(rtype: Rtype, rdata: &[u8]) -> Vec<u8> {
    let mut canonical = Vec::with_capacity(rdata.len());
    put_canonical_rdata(rtype, rdata, &mut canonical);
    canonical
}

/// The RRsets of a name, by type.
type Rrsets = BTreeMap<u16, OwnRrset>;

/// The RRsets of names that messages are about, by the wire form of the names in lower case.
type Names = BTreeMap<Vec<u8>, Rrsets>;

/// The updates of a zone version, which lead to the next version.
#[derive(Debug)]
pub struct ZoneUpdate<'z> {
    zone: &'z Zone,
    /// Whether another process adds the signatures to the result of the updates.
    is_signed_elsewhere: bool,
    /// Whether updates may change the keys of other signers.
    has_other_signers: bool,
    names: Names,
    is_changed: bool,
}

impl<'z> ZoneUpdate<'z> {
    /// No updates of `zone` yet.
    pub fn new(zone: &'z Zone) -> ZoneUpdate<'z> {
        ZoneUpdate {
            zone,
            is_signed_elsewhere: false,
            has_other_signers: false,
            names: Names::new(),
            is_changed: false,
        }
    }

    /// Begins without updates of the unsigned records of `zone`: updates do not see the records that come with
    /// signatures and keys, and must not change them. With other signers (RFC 8901), DNSKEY, CDS and CDNSKEY records
    /// can be updated: the signing process leaves out its own.
    pub fn of_unsigned(zone: &'z Zone, has_other_signers: bool) -> ZoneUpdate<'z> {
        ZoneUpdate { is_signed_elsewhere: true, has_other_signers, ..ZoneUpdate::new(zone) }
    }

    /// Carries out `message`, whose sender may change the RRsets of those names and types for which `allows` returns
    /// true.
    ///
    /// # Errors
    /// Returns the reason why the update is not carried out; nothing has changed then.
    pub fn apply(
        &mut self,
        message: &UpdateMessage<'_>,
        allows: impl Fn(Name<'_>, Rtype) -> bool,
    ) -> Result<(), UpdateRefusal> {
        self.check_prerequisites(message)?;
        let changes = self.read_changes(message)?;
        // §3.3: the permissions come after the prerequisites. Deleting all RRsets of a name needs the permissions for
        // each RRset.
        for change in &changes {
            let owner = change.owner.as_name();
            if self.is_of_signer(owner, change.rtype) {
                return Err(UpdateRefusal::NotAllowed);
            }
            let is_allowed = match change.action {
                Action::DeleteName => self
                    .rrsets(owner)
                    .keys()
                    .copied()
                    .collect::<Vec<_>>()
                    .into_iter()
                    .all(|rtype| allows(owner, Rtype(rtype))),
                Action::Add(_) | Action::DeleteRrset | Action::DeleteRecord(_) => allows(owner, change.rtype),
            };
            if !is_allowed {
                return Err(UpdateRefusal::NotAllowed);
            }
        }
        let serial_before = self.serial();
        let mut is_changed = false;
        for change in changes {
            is_changed |= self.carry_out(change);
        }
        if is_changed && self.serial() == serial_before {
            self.raise_serial();
        }
        self.is_changed |= is_changed;
        Ok(())
    }

    /// The next version; `None` if nothing has changed.
    pub fn finish(self, limits: ZoneLimits) -> Option<BuildOutcome> {
        if !self.is_changed {
            return None;
        }
        let position = Position { file_index: 0, line: 0, column: 1 };
        let mut edit = ZoneEdit::new(self.zone);
        if self.is_signed_elsewhere {
            self.each_change(|role, record| match role {
                RecordRole::Removed => drop(edit.remove(record)),
                RecordRole::Added | RecordRole::OfZone => edit.add(record),
            });
            return Some(edit.finish(limits));
        }
        for (owner, rrsets) in &self.names {
            let owner = Name::parse(owner).expect("of a record");
            edit.clear(owner);
            for (&rtype, rrset) in rrsets {
                for record in rrset.records.values() {
                    let (rtype, ttl_s) = (Rtype(rtype), rrset.ttl_of(record));
                    edit.add(&Record { position, owner, rtype, ttl_s, rdata: &record.rdata });
                }
            }
        }
        Some(edit.finish(limits))
    }

    /// Calls `change` with each record that the next version removes, and with each that it adds. A record with another
    /// TTL is removed and added.
    pub fn each_change(&self, mut change: impl FnMut(RecordRole, &Record<'_>)) {
        let position = Position { file_index: 0, line: 0, column: 1 };
        for (name, after) in &self.names {
            let owner = Name::parse(name).expect("of a record");
            let before = self.stored_rrsets(owner);
            for (role, rrsets, others) in [(RecordRole::Removed, &before, after), (RecordRole::Added, after, &before)] {
                for (&rtype, rrset) in rrsets {
                    let other = others.get(&rtype);
                    for (key, record) in &rrset.records {
                        let ttl_s = rrset.ttl_of(record);
                        let same = other.and_then(|other| Some(other.ttl_of(other.records.get(key)?)));
                        if same != Some(ttl_s) {
                            let rtype = Rtype(rtype);
                            change(role, &Record { position, owner, rtype, ttl_s, rdata: &record.rdata });
                        }
                    }
                }
            }
        }
    }

    /// The RRsets of a name at or below the apex.
    fn rrsets(&mut self, owner: Name<'_>) -> &mut Rrsets {
        let owner = owner.to_lowercase();
        let key = owner.as_name().as_bytes().to_vec();
        if !self.names.contains_key(&key) {
            let stored = self.stored_rrsets(owner.as_name());
            self.names.insert(key.clone(), stored);
        }
        self.names.get_mut(&key).expect("it is there")
    }

    fn is_apex(&self, owner: Name<'_>) -> bool {
        owner.eq_ignore_case(self.zone.apex())
    }

    /// Whether the process that signs the zone makes the records of this type.
    fn is_of_signer(&self, owner: Name<'_>, rtype: Rtype) -> bool {
        self.is_signed_elsewhere
            && match RecordSource::of(rtype, self.is_apex(owner)) {
                RecordSource::Version => true,
                RecordSource::Keys => !self.has_other_signers,
                RecordSource::Zone => false,
            }
    }

    /// The RRsets of the previous version at `owner`, which is in lower case.
    fn stored_rrsets(&self, owner: Name<'_>) -> Rrsets {
        let mut rrsets = stored_rrsets(self.zone, owner);
        rrsets.retain(|&rtype, _| !self.is_of_signer(owner, Rtype(rtype)));
        rrsets
    }

    /// §3.2.
    fn check_prerequisites(&mut self, message: &UpdateMessage<'_>) -> Result<(), UpdateRefusal> {
        const MALFORMED: UpdateRefusal = UpdateRefusal::Malformed;
        // §3.2.3: the RRsets that must be the same, by name and type.
        let mut expected: BTreeMap<(Vec<u8>, u16), BTreeSet<Vec<u8>>> = BTreeMap::new();
        for record in message.prerequisites() {
            let (owner, rtype) = (record.owner.as_name(), record.rtype());
            if record.ttl_s() != 0 {
                return Err(MALFORMED);
            }
            if !owner.is_at_or_below(self.zone.apex()) {
                return Err(UpdateRefusal::NotInZone);
            }
            let is_any = rtype == Rtype::ANY;
            match record.class() {
                CLASS_ANY | CLASS_NONE if !record.rdata.is_empty() || !is_any && !is_in_zones(rtype) => {
                    return Err(MALFORMED);
                }
                CLASS_ANY if is_any && self.rrsets(owner).is_empty() => return Err(UpdateRefusal::NameNotInUse),
                CLASS_ANY if !is_any && !self.rrsets(owner).contains_key(&rtype.0) => {
                    return Err(UpdateRefusal::NoRrset);
                }
                CLASS_NONE if is_any && !self.rrsets(owner).is_empty() => return Err(UpdateRefusal::NameInUse),
                CLASS_NONE if !is_any && self.rrsets(owner).contains_key(&rtype.0) => {
                    return Err(UpdateRefusal::RrsetExists);
                }
                CLASS_ANY | CLASS_NONE => {}
                CLASS_IN if is_in_zones(rtype) => {
                    let own = own_record(&message.message, &record)?;
                    let key = (owner.to_lowercase().as_name().as_bytes().to_vec(), rtype.0);
                    expected.entry(key).or_default().insert(canonical_rdata(rtype, &own.rdata));
                }
                _ => return Err(MALFORMED),
            }
        }
        for ((owner, rtype), records) in expected {
            let rrsets = self.rrsets(Name::parse(&owner).expect("of a record"));
            if !rrsets.get(&rtype).is_some_and(|rrset| rrset.records.keys().eq(&records)) {
                return Err(UpdateRefusal::NoRrset);
            }
        }
        Ok(())
    }

    /// §3.4.1: all updates have the form of one.
    fn read_changes(&self, message: &UpdateMessage<'_>) -> Result<Vec<Change>, UpdateRefusal> {
        let change = |record: MessageRecord<'_>| {
            let rtype = record.rtype();
            if !record.owner.as_name().is_at_or_below(self.zone.apex()) {
                return Err(UpdateRefusal::NotInZone);
            }
            let is_any = rtype == Rtype::ANY;
            let is_empty = record.ttl_s() == 0 && record.rdata.is_empty();
            let action = match record.class() {
                CLASS_IN if is_in_zones(rtype) => Action::Add(own_record(&message.message, &record)?),
                CLASS_ANY if is_empty && is_any => Action::DeleteName,
                CLASS_ANY if is_empty && is_in_zones(rtype) => Action::DeleteRrset,
                CLASS_NONE if record.ttl_s() == 0 && is_in_zones(rtype) => {
                    Action::DeleteRecord(own_record(&message.message, &record)?)
                }
                _ => return Err(UpdateRefusal::Malformed),
            };
            Ok(Change { owner: record.owner, rtype, action })
        };
        message.updates().map(change).collect()
    }

    /// §3.4.2: carries out one update; whether anything has changed.
    fn carry_out(&mut self, change: Change) -> bool {
        let Change { owner, rtype, action } = change;
        let is_apex = owner.as_name().eq_ignore_case(self.zone.apex());
        let rrsets = self.rrsets(owner.as_name());
        match action {
            Action::Add(record) => add(rrsets, rtype, record),
            // §3.4.2.3: SOA and NS of the zone stay.
            Action::DeleteName => {
                let before = rrsets.len();
                rrsets.retain(|&rtype, _| is_apex && matches!(Rtype(rtype), Rtype::SOA | Rtype::NS));
                rrsets.len() != before
            }
            Action::DeleteRrset if is_apex && matches!(rtype, Rtype::SOA | Rtype::NS) => false,
            Action::DeleteRrset => rrsets.remove(&rtype.0).is_some(),
            // §3.4.2.4: the SOA stays, and the last NS of the zone.
            Action::DeleteRecord(_) if rtype == Rtype::SOA => false,
            Action::DeleteRecord(record) => {
                let Some(rrset) = rrsets.get_mut(&rtype.0) else { return false };
                let key = canonical_rdata(rtype, &record.rdata);
                if rrset.records.len() > 1 {
                    return rrset.records.remove(&key).is_some();
                }
                let is_last = rrset.records.contains_key(&key);
                is_last && !(is_apex && rtype == Rtype::NS) && rrsets.remove(&rtype.0).is_some()
            }
        }
    }

    fn soa(&mut self) -> &OwnRecord {
        let apex = self.zone.apex();
        let soa = self.rrsets(apex).get(&Rtype::SOA.0).and_then(|rrset| rrset.records.values().next());
        soa.expect("a zone has a SOA, which no update removes")
    }

    fn serial(&mut self) -> u32 {
        serial_of(&self.soa().rdata).expect("a SOA has a serial")
    }

    /// §3.6: the version has another serial.
    fn raise_serial(&mut self) {
        let mut soa = self.soa().clone();
        let at = soa.rdata.len() - SOA_NUMBERS_BYTES;
        soa.rdata[at..at + 4].copy_from_slice(&raised_serial(self.serial(), 1).to_be_bytes());
        let apex = self.zone.apex();
        self.rrsets(apex).insert(Rtype::SOA.0, rrset_of(soa));
    }
}

/// The RRset of a SOA.
fn rrset_of(soa: OwnRecord) -> OwnRrset {
    let key = canonical_rdata(Rtype::SOA, &soa.rdata);
    OwnRrset { records: BTreeMap::from([(key, soa)]), ttl_s: None }
}

/// The RRsets that `zone` has at `owner`, which is in lower case.
fn stored_rrsets(zone: &Zone, owner: Name<'_>) -> Rrsets {
    let mut rrsets = Rrsets::new();
    let Some(node) = zone.node_named(owner) else { return rrsets };
    for rtype in node.types() {
        let rrset = node.rrset(rtype).expect("listed");
        let mut at = 0;
        while let Some(record) = rrset.answer_record(at) {
            let mut rdata = Vec::new();
            rrset.put_rdata(node.name(), &record, &mut rdata);
            let ttl_s = u32::from_be_bytes(record.ttl());
            let records = &mut rrsets.entry(rtype.0).or_default().records;
            records.insert(canonical_rdata(rtype, &rdata), OwnRecord { ttl_s, rdata });
            at = record.end;
        }
    }
    rrsets
}

/// An update of one RRset, or of all of a name.
struct Change {
    owner: NameBuf,
    rtype: Rtype,
    action: Action,
}

/// The kinds of changes in an update (§2.5).
enum Action {
    Add(OwnRecord),
    DeleteName,
    DeleteRrset,
    DeleteRecord(OwnRecord),
}

/// §3.4.2.2: adds a record, unless it cannot coexist with others; whether anything has changed.
fn add(rrsets: &mut Rrsets, rtype: Rtype, record: OwnRecord) -> bool {
    let beside_alias = |rtype: u16| Rtype(rtype).may_be_beside_cname();
    let has_alias = rrsets.contains_key(&Rtype::CNAME.0);
    let is_beside = match rtype {
        Rtype::CNAME => rrsets.keys().any(|&rtype| !beside_alias(rtype)),
        _ => has_alias && !beside_alias(rtype.0),
    };
    if is_beside {
        return false;
    }
    if rtype == Rtype::SOA {
        // A SOA belongs to the zone, and an earlier one is ignored.
        let Some(soa) = rrsets.get(&Rtype::SOA.0).and_then(|rrset| rrset.records.values().next()) else { return false };
        let is_earlier = match (serial_of(&record.rdata), serial_of(&soa.rdata)) {
            (Some(new), Some(old)) => new != old && !is_later(new, old),
            _ => true,
        };
        let is_changed = !is_earlier && *soa != record;
        if is_changed {
            rrsets.insert(Rtype::SOA.0, rrset_of(record));
        }
        return is_changed;
    }
    rrsets.entry(rtype.0).or_default().add(rtype, record)
}

fn own_record(message: &[u8], record: &MessageRecord<'_>) -> Result<OwnRecord, UpdateRefusal> {
    let mut rdata = Vec::new();
    put_rdata(message, record, &mut rdata).map_err(|_| UpdateRefusal::Malformed)?;
    let ttl_s = if record.ttl_s() > TTL_S_MAX { 0 } else { record.ttl_s() };
    Ok(OwnRecord { ttl_s, rdata })
}
