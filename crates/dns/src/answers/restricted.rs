//! Queries for a restricted zone: only clients that may transfer it may see it, since they first query its SOA. The
//! caller decides which client may.

use crate::answers::answer::{Answer, RequestInfo, answer_with_options};
use crate::messages::query::ParsedQuery;
use crate::messages::reply_options::ReplyOptions;
use crate::messages::zone_map::{ZoneEntry, ZoneMap};
use crate::text::name::{Name, NameBuf};
use crate::zones::packed_rrset::CLASS_IN;
use crate::zones::zone::Zone;
use alloc::sync::Arc;

/// A query for a restricted zone, which is answered with REFUSED unless the caller allows it.
#[derive(Debug)]
pub struct RestrictedQuery<'z, 'q> {
    query: ParsedQuery<'z, 'q>,
    zone: &'z Arc<Zone>,
}

impl<'z, 'q> RestrictedQuery<'z, 'q> {
    /// `query`, if it is for a restricted zone in `zones`.
    #[cold]
    #[inline(never)]
    pub fn new(zones: &'z ZoneMap, query: &ParsedQuery<'z, 'q>) -> Option<RestrictedQuery<'z, 'q>> {
        let qname = query.qname().filter(|_| query.is_refused() && query.qclass() == Some(CLASS_IN))?;
        Some(RestrictedQuery { query: *query, zone: zones.restricted(qname)? })
    }

    /// The zone's name.
    pub fn apex(&self) -> Name<'z> {
        self.zone.apex()
    }

    /// The key that signs the query, if its signature is accepted.
    pub fn key(&self, options: &ReplyOptions, now_unix_s: u64) -> Option<NameBuf> {
        let (tsig, offset) = self.query.tsig()?;
        let (result, signer) = tsig.verify(self.query.message, offset, &options.tsig_keys, now_unix_s);
        signer.filter(|_| result.is_ok()).map(|signer| signer.key().name().to_owned())
    }

    /// Answers the query from the zone into `out`, as [`answer_with_options`] does from others.
    pub fn answer(&self, info: &RequestInfo, options: &ReplyOptions, out: &mut [u8]) -> Answer {
        let zones = ZoneMap::new(self.zone.seed, [ZoneEntry::Served(Arc::clone(self.zone))]);
        answer_with_options(&ParsedQuery::parse(&zones, self.query.message), info, options, out)
    }
}
