//! The RRSIG records of a version: signatures of the previous version that are still correct, and new signatures, made
//! in batches.

use super::{
    BATCH_COUNT_MAX, INCEPTION_OFFSET_S, KeyInUse, KeysInUse, SignError, SigningInput, SigningParameters, ZoneSigner,
};
use crate::key::KeyId;
use crate::records::{NameIndex, Node, RecordsBuilder};
use crate::signing_input::{RrsigHead, label_count, put_record};
use sanderling_dns::{Name, RecordSource, Rtype};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// Bytes of inputs after which a batch is signed.
const BATCH_BYTES_MIN: usize = 1 << 17;

/// Signs the RRsets of a version.
pub(super) struct Signatures<'j, 's, S> {
    apex: Name<'j>,
    parameters: &'j SigningParameters,
    now_unix_s: u64,
    signer: &'s mut S,
    keys: Vec<SigningKey>,
    /// The inputs that are not signed yet, one after another.
    inputs: Vec<u8>,
    pending: Vec<Pending>,
    pub(super) made_count: usize,
    pub(super) kept_count: usize,
    /// Seconds from now until the first signature ends.
    seconds_left: Option<u32>,
    /// The longest TTL of a signed RRset.
    pub(super) ttl_s_max: u32,
}

struct SigningKey {
    id: KeyId,
    algorithm: u8,
    tag: u16,
    signs_keys: bool,
    signs_zone: bool,
}

/// A signature to be made.
struct Pending {
    name: NameIndex,
    ttl_s: u32,
    key: KeyId,
    input: Range<usize>,
}

impl SigningKey {
    fn new(key: &KeyInUse) -> SigningKey {
        let KeyInUse { key, is_published: _, signs_keys, signs_zone } = key;
        let (signs_keys, signs_zone) = (*signs_keys, *signs_zone);
        SigningKey { id: key.id(), algorithm: key.algorithm.number(), tag: key.tag(), signs_keys, signs_zone }
    }

    fn signs(&self, source: RecordSource) -> bool {
        match source {
            RecordSource::Keys => self.signs_keys,
            RecordSource::Zone | RecordSource::Version => self.signs_zone,
        }
    }
}

impl<'j, 's, S: ZoneSigner> Signatures<'j, 's, S> {
    /// Of the zone at `apex`, which is in lower case.
    pub(super) fn new(
        apex: Name<'j>,
        keys: &KeysInUse,
        parameters: &'j SigningParameters,
        now_unix_s: u64,
        signer: &'s mut S,
    ) -> Signatures<'j, 's, S> {
        Signatures {
            apex,
            parameters,
            now_unix_s,
            signer,
            keys: keys.keys.iter().map(SigningKey::new).collect(),
            inputs: Vec::new(),
            pending: Vec::new(),
            made_count: 0,
            kept_count: 0,
            seconds_left: None,
            ttl_s_max: 0,
        }
    }

    /// Adds the signatures of an RRset to `out`, at once or with [`Signatures::flush`]. `previous` is its name in the
    /// previous version. The RDATA are in canonical order.
    pub(super) fn put<'r>(
        &mut self,
        name: NameIndex,
        (rtype, ttl_s): (Rtype, u32),
        rdatas: &(impl Iterator<Item = &'r [u8]> + Clone),
        previous: Option<Node<'_>>,
        out: &mut RecordsBuilder,
    ) -> Result<(), SignError> {
        self.ttl_s_max = self.ttl_s_max.max(ttl_s);
        let head = head(out.owner(name), rtype, ttl_s);
        let source = self.source(out.owner(name), rtype);
        let is_same = |node: &Node<'_>| {
            node.rrset(rtype).is_some_and(|before| before.ttl_s() == ttl_s && before.rdatas().eq(rdatas.clone()))
        };
        let previous = previous.filter(is_same);
        for index in 0..self.keys.len() {
            let key = &self.keys[index];
            if !key.signs(source) {
                continue;
            }
            let head = RrsigHead { algorithm: key.algorithm, key_tag: key.tag, ..head };
            if let Some((rdata, seconds_left)) = previous.and_then(|node| self.kept(node, head)) {
                out.put(name, Rtype::RRSIG, ttl_s, rdata);
                self.kept_count += 1;
                self.note(seconds_left);
                continue;
            }
            let owner = out.owner(name).to_lowercase();
            let head = self.with_validity(head, owner.as_name());
            let start = self.inputs.len();
            head.put(self.apex, &mut self.inputs);
            for rdata in rdatas.clone() {
                put_record(owner.as_name(), rtype, ttl_s, rdata, &mut self.inputs);
            }
            self.pending.push(Pending { name, ttl_s, key: self.keys[index].id, input: start..self.inputs.len() });
            self.note(head.expiration.wrapping_sub(self.now_unix_s as u32));
        }
        if self.pending.len() >= BATCH_COUNT_MAX || self.inputs.len() >= BATCH_BYTES_MIN {
            self.flush(out)?;
        }
        Ok(())
    }

    fn source(&self, owner: Name<'_>, rtype: Rtype) -> RecordSource {
        RecordSource::of(rtype, owner.eq_ignore_case(self.apex))
    }

    /// Whether the RRset of this type, if there is one, needs a new signature.
    pub(super) fn is_due(&self, previous: Node<'_>, rtype: Rtype) -> bool {
        let Some(rrset) = previous.rrset(rtype) else { return false };
        let head = head(previous.owner(), rtype, rrset.ttl_s());
        let source = self.source(previous.owner(), rtype);
        let mut heads = self.keys.iter().filter(|key| key.signs(source)).map(|key| RrsigHead {
            algorithm: key.algorithm,
            key_tag: key.tag,
            ..head
        });
        heads.any(|head| self.kept(previous, head).is_none())
    }

    /// The previous version's signature that can be used for the fields `head`, and its remaining validity.
    fn kept<'p>(&self, previous: Node<'p>, head: RrsigHead) -> Option<(&'p [u8], u32)> {
        let mut rdatas = previous.rrset(Rtype::RRSIG)?.rdatas();
        rdatas.find_map(|rdata| Some((rdata, self.seconds_left(rdata, head)?)))
    }

    /// The fields of a new signature. The owner is in lower case.
    fn with_validity(&self, head: RrsigHead, owner: Name<'_>) -> RrsigHead {
        let now = self.now_unix_s as u32;
        let parameters = self.parameters;
        // Spreads signatures that are made together; no secret depends on it.
        let mut hasher = DefaultHasher::new();
        (owner.as_bytes(), head.type_covered, now).hash(&mut hasher);
        let jitter_s = (hasher.finish() % (u64::from(parameters.jitter_s) + 1)) as u32;
        let expiration = now.wrapping_add(parameters.validity_s - jitter_s);
        RrsigHead { expiration, inception: now.wrapping_sub(INCEPTION_OFFSET_S), ..head }
    }

    /// The remaining validity of the signature in `rdata`, if it can replace a signature with the fields `head`.
    fn seconds_left(&self, rdata: &[u8], head: RrsigHead) -> Option<u32> {
        let (found, rest) = RrsigHead::read(rdata)?;
        let now = self.now_unix_s as u32;
        // RFC 4034 §3.1.5: serial number arithmetic.
        let seconds_left = u32::try_from(found.expiration.wrapping_sub(now).cast_signed()).ok()?;
        let is_valid_yet = now.wrapping_sub(found.inception).cast_signed() >= 0;
        let is_same = RrsigHead { expiration: head.expiration, inception: head.inception, ..found } == head
            && Name::parse(rest).is_ok_and(|signer| signer == self.apex);
        let is_kept = is_same && is_valid_yet && seconds_left > self.parameters.replaced_before_s();
        // Signatures that were made with a longer validity are replaced.
        (is_kept && seconds_left <= self.parameters.validity_s).then_some(seconds_left)
    }

    fn note(&mut self, seconds_left: u32) {
        self.seconds_left = Some(self.seconds_left.map_or(seconds_left, |least| least.min(seconds_left)));
    }

    /// Makes the signatures that were not made yet, and adds them to `out`.
    pub(super) fn flush(&mut self, out: &mut RecordsBuilder) -> Result<(), SignError> {
        for batch in self.pending.chunks(BATCH_COUNT_MAX) {
            let input = |it: &Pending| SigningInput { key: it.key, bytes: &self.inputs[it.input.clone()] };
            let inputs: Vec<SigningInput<'_>> = batch.iter().map(input).collect();
            let signatures = self.signer.sign(&inputs).map_err(SignError::Signer)?;
            if signatures.len() != inputs.len() {
                return Err(SignError::Signer("the signer did not make all signatures".into()));
            }
            for ((pending, input), signature) in batch.iter().zip(inputs).zip(signatures) {
                let (_, rest) = RrsigHead::read(input.bytes).expect("the input begins with these fields");
                let fields_bytes = input.bytes.len() - rest.len() + self.apex.length_bytes();
                let rdata = [&input.bytes[..fields_bytes], &signature[..]].concat();
                out.put(pending.name, Rtype::RRSIG, pending.ttl_s, &rdata);
            }
            self.made_count += batch.len();
        }
        self.pending.clear();
        self.inputs.clear();
        Ok(())
    }

    /// The time when the first signatures must be replaced.
    pub(super) fn sign_again_at_unix_s(&self) -> Option<u64> {
        let seconds_left = self.seconds_left?;
        Some(self.now_unix_s + u64::from(seconds_left.saturating_sub(self.parameters.refresh_s)))
    }
}

/// The fields of each signature of an RRset, except for the fields of the key and the validity.
fn head(owner: Name<'_>, rtype: Rtype, ttl_s: u32) -> RrsigHead {
    RrsigHead {
        type_covered: rtype,
        algorithm: 0,
        label_count: label_count(owner),
        original_ttl_s: ttl_s,
        expiration: 0,
        inception: 0,
        key_tag: 0,
    }
}
