//! Detailed counts: responses by site, status and time, replies of DNS by type, RCODE, size and zone. A server has them
//! only if its options ask for them.
//!
//! Each thread counts for itself in one array, in which a [`Series`] has its place; the arrays are added up on request.
//! Sites and zones have slots, which they keep as long as the process lives; those beyond the limit share one.

use crate::clock::Milliseconds;
use crate::options::StatisticsOptions;
use sanderling_dns::{DnsTransport, Name, ParsedQuery, Rtype};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The versions of HTTP.
pub const HTTP_VERSIONS: [&str; 3] = ["1.0", "1.1", "2"];
/// The classes of status codes.
pub const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// The upper bounds of the times of responses, in milliseconds.
pub const DURATION_BOUNDS_MS: [u64; 17] =
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536];
/// The results of looking for a file.
pub const LOOKUP_RESULTS: [&str; 3] = ["hit", "miss", "none"];
/// The protocols of connections.
pub const PROTOCOLS: [&str; 2] = ["http", "dns"];
/// The states of connections that are counted by themselves.
pub const CONNECTION_STATES: [&str; 3] = ["handshaking", "receiving", "idle"];
/// The transports of DNS.
pub const DNS_TRANSPORTS: [&str; 4] = ["udp", "tcp", "dot", "doh"];
/// The types of queries that are counted by themselves, and two for the others.
pub const QUERY_TYPES: [&str; 24] = [
    "A", "NS", "CNAME", "SOA", "PTR", "MX", "TXT", "AAAA", "LOC", "SRV", "NAPTR", "DNAME", "DS", "SSHFP", "DNSKEY",
    "TLSA", "CDS", "SVCB", "HTTPS", "ANY", "AXFR", "CAA", "other", "none",
];
/// Their numbers; `other` and `none` follow.
const QUERY_TYPE_NUMBERS: [Rtype; 22] = [
    Rtype::A,
    Rtype::NS,
    Rtype::CNAME,
    Rtype::SOA,
    Rtype::PTR,
    Rtype::MX,
    Rtype::TXT,
    Rtype::AAAA,
    Rtype::LOC,
    Rtype::SRV,
    Rtype::NAPTR,
    Rtype::DNAME,
    Rtype::DS,
    Rtype::SSHFP,
    Rtype::DNSKEY,
    Rtype::TLSA,
    Rtype::CDS,
    Rtype::SVCB,
    Rtype::HTTPS,
    Rtype::ANY,
    Rtype::AXFR,
    Rtype::CAA,
];
/// The RCODEs of replies.
pub const RCODES: [&str; 10] =
    ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "NOTAUTH", "BADVERS", "other"];
/// Their numbers; `other` follows.
const RCODE_NUMBERS: [u16; 9] = [0, 1, 2, 3, 4, 5, 6, 9, 16];
/// The upper bounds of the sizes of replies, in bytes.
pub const SIZE_BOUNDS_BYTES: [u64; 11] = [64, 128, 256, 512, 1_024, 1_232, 2_048, 4_096, 8_192, 16_384, 65_535];

/// The slot for requests and queries outside all sites and zones.
const SLOT_NONE: u16 = 0;
/// The slot of the sites or zones beyond the limit.
const SLOT_OTHER: u16 = 1;
/// Their names, which no host and no zone of the configuration has.
const SLOT_NAMES: [&str; 2] = ["_none", "_other"];

/// Something that is counted. A number is an index into the names above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// Responses.
    Responses {
        /// Of [`HTTP_VERSIONS`].
        version: usize,
        /// Whether the connection is encrypted.
        is_encrypted: bool,
        /// Of [`STATUS_CLASSES`].
        class: usize,
    },
    /// Responses of a version by their time: those up to a bound of [`DURATION_BOUNDS_MS`] and above the previous one;
    /// at the end those above all bounds.
    Durations(usize, usize),
    /// The sum of the times, in milliseconds.
    DurationSum(usize),
    /// Look-ups of files by their result.
    Lookups(usize),
    /// Open connections of a protocol, without and with encryption.
    Open(usize, bool),
    /// Open connections of HTTP in a state.
    InState(usize),
    /// Queries that were answered, by transport and type.
    Queries(usize, usize),
    /// Replies by transport and RCODE.
    Replies(usize, usize),
    /// Replies with the flag TC.
    Truncated(usize),
    /// Replies of a transport by their size, as the times of responses.
    Sizes(usize, usize),
    /// The sum of their sizes.
    SizeSum(usize),
    /// Responses of a site by class of their status.
    SiteResponses(usize, usize),
    /// Bytes of content that were sent for a site.
    SiteBytes(usize),
    /// Queries for names in a zone.
    ZoneQueries(usize),
}

/// The counters of each, one after another. Those at the start and the end share no cache line with other values.
const PADDING: usize = 16;
const RESPONSES: usize = PADDING;
const DURATIONS: usize = RESPONSES + HTTP_VERSIONS.len() * 2 * STATUS_CLASSES.len();
const DURATION_COUNT: usize = DURATION_BOUNDS_MS.len() + 2;
const LOOKUPS: usize = DURATIONS + HTTP_VERSIONS.len() * DURATION_COUNT;
const OPEN: usize = LOOKUPS + LOOKUP_RESULTS.len();
const IN_STATE: usize = OPEN + PROTOCOLS.len() * 2;
const QUERIES: usize = IN_STATE + CONNECTION_STATES.len();
const REPLIES: usize = QUERIES + DNS_TRANSPORTS.len() * QUERY_TYPES.len();
const TRUNCATED: usize = REPLIES + DNS_TRANSPORTS.len() * RCODES.len();
const SIZES: usize = TRUNCATED + DNS_TRANSPORTS.len();
const SIZE_COUNT: usize = SIZE_BOUNDS_BYTES.len() + 2;
const SITES: usize = SIZES + DNS_TRANSPORTS.len() * SIZE_COUNT;
const COUNTS_PER_SITE: usize = STATUS_CLASSES.len() + 1;

impl Series {
    #[inline]
    fn index(self, site_slots: usize) -> usize {
        match self {
            Series::Responses { version, is_encrypted, class } => {
                RESPONSES + (version * 2 + usize::from(is_encrypted)) * STATUS_CLASSES.len() + class
            }
            Series::Durations(version, bucket) => DURATIONS + version * DURATION_COUNT + bucket,
            Series::DurationSum(version) => DURATIONS + (version + 1) * DURATION_COUNT - 1,
            Series::Lookups(result) => LOOKUPS + result,
            Series::Open(protocol, is_encrypted) => OPEN + protocol * 2 + usize::from(is_encrypted),
            Series::InState(state) => IN_STATE + state,
            Series::Queries(transport, query_type) => QUERIES + transport * QUERY_TYPES.len() + query_type,
            Series::Replies(transport, rcode) => REPLIES + transport * RCODES.len() + rcode,
            Series::Truncated(transport) => TRUNCATED + transport,
            Series::Sizes(transport, bucket) => SIZES + transport * SIZE_COUNT + bucket,
            Series::SizeSum(transport) => SIZES + (transport + 1) * SIZE_COUNT - 1,
            Series::SiteResponses(slot, class) => SITES + slot * COUNTS_PER_SITE + class,
            Series::SiteBytes(slot) => SITES + (slot + 1) * COUNTS_PER_SITE - 1,
            Series::ZoneQueries(slot) => SITES + site_slots * COUNTS_PER_SITE + slot,
        }
    }
}

fn slot_count(names_max: usize) -> usize {
    SLOT_NAMES.len() + names_max
}

/// The counts of one thread.
#[derive(Debug)]
pub(crate) struct ThreadStatistics {
    site_slots: usize,
    counts: Box<[AtomicU64]>,
}

/// A response to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedResponse {
    /// Of [`HTTP_VERSIONS`].
    pub(crate) version: u8,
    pub(crate) is_encrypted: bool,
    pub(crate) status: u16,
    pub(crate) site_slot: u16,
    pub(crate) content_bytes: u64,
    pub(crate) duration_ms: Milliseconds,
}

impl ThreadStatistics {
    pub(crate) fn new(options: StatisticsOptions) -> ThreadStatistics {
        let site_slots = slot_count(options.sites_max);
        let count = SITES + site_slots * COUNTS_PER_SITE + slot_count(options.zones_max) + PADDING;
        ThreadStatistics { site_slots, counts: std::iter::repeat_with(AtomicU64::default).take(count).collect() }
    }

    /// Adds to a count. Only the thread that the counts belong to calls it, so a load and a store lose nothing.
    #[inline]
    pub(crate) fn add(&self, series: Series, count: u64) {
        let number = &self.counts[series.index(self.site_slots)];
        number.store(number.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets what may also become less.
    pub(crate) fn set(&self, series: Series, count: usize) {
        self.counts[series.index(self.site_slots)].store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_response(&self, response: &CountedResponse) {
        let &CountedResponse { version, is_encrypted, status, site_slot, content_bytes, duration_ms } = response;
        let (version, slot) = (usize::from(version), usize::from(site_slot));
        let class = usize::from(status / 100).clamp(1, STATUS_CLASSES.len()) - 1;
        self.add(Series::Responses { version, is_encrypted, class }, 1);
        self.add(Series::Durations(version, bucket_of(duration_ms, &DURATION_BOUNDS_MS)), 1);
        self.add(Series::DurationSum(version), duration_ms);
        self.add(Series::SiteResponses(slot, class), 1);
        self.add(Series::SiteBytes(slot), content_bytes);
    }

    /// Counts a reply to `query`.
    pub(crate) fn count_reply(
        &self,
        transport: DnsTransport,
        query: &ParsedQuery<'_, '_>,
        reply: &[u8],
        slots: &Slots,
    ) {
        let transport = index_of_transport(transport);
        let query_type = match query.qtype() {
            Some(qtype) => QUERY_TYPE_NUMBERS.iter().position(|&it| it == qtype).unwrap_or(QUERY_TYPE_NUMBERS.len()),
            None => QUERY_TYPE_NUMBERS.len() + 1,
        };
        let rcode = index_of_rcode(query.rcode_of(reply));
        self.add(Series::Queries(transport, query_type), 1);
        self.add(Series::Replies(transport, rcode), 1);
        self.add(Series::Sizes(transport, bucket_of(reply.len() as u64, &SIZE_BOUNDS_BYTES)), 1);
        self.add(Series::SizeSum(transport), reply.len() as u64);
        self.add(Series::ZoneQueries(usize::from(slots.of_zone(query.zone_index()))), 1);
        // The flag TC (RFC 1035 §4.1.1).
        if reply.get(2).is_some_and(|flags| flags & 2 != 0) {
            self.add(Series::Truncated(transport), 1);
        }
    }
}

/// The index in [`DNS_TRANSPORTS`].
pub(crate) fn index_of_transport(transport: DnsTransport) -> usize {
    match transport {
        DnsTransport::Udp { .. } => 0,
        DnsTransport::Tcp => 1,
        DnsTransport::Tls => 2,
        DnsTransport::Https => 3,
    }
}

/// The index in [`RCODES`].
pub(crate) fn index_of_rcode(rcode: u16) -> usize {
    RCODE_NUMBERS.iter().position(|&it| it == rcode).unwrap_or(RCODE_NUMBERS.len())
}

/// The index of the first of `bounds` that is not below `value`; their number, if all are.
#[inline]
fn bucket_of(value: u64, bounds: &[u64]) -> usize {
    bounds.iter().position(|&bound| value <= bound).unwrap_or(bounds.len())
}

/// Where the sites and zones of a snapshot are counted, in their order.
#[derive(Debug, Default)]
pub struct Slots {
    sites: Box<[u16]>,
    zones: Box<[u16]>,
}

impl Slots {
    /// The slot of the site at `index` of the snapshot.
    pub(crate) fn of_site(&self, index: Option<usize>) -> u16 {
        slot_at(&self.sites, index)
    }

    fn of_zone(&self, index: Option<usize>) -> u16 {
        slot_at(&self.zones, index)
    }
}

fn slot_at(slots: &[u16], index: Option<usize>) -> u16 {
    index.map_or(SLOT_NONE, |index| slots.get(index).copied().unwrap_or(SLOT_OTHER))
}

/// The names of all slots so far.
#[derive(Debug, Default)]
pub(crate) struct SlotNames {
    sites: Names,
    zones: Names,
}

#[derive(Debug, Default)]
struct Names {
    names: Vec<String>,
    slots: HashMap<String, u16>,
}

impl SlotNames {
    /// Gives each of `sites` and `zones` a slot, while there are free ones.
    pub(crate) fn assign<'n>(
        &mut self,
        sites: impl Iterator<Item = &'n str>,
        zones: impl Iterator<Item = Name<'n>>,
        options: StatisticsOptions,
    ) -> Arc<Slots> {
        Arc::new(Slots {
            sites: sites.map(|name| self.sites.slot_of(name, options.sites_max)).collect(),
            zones: zones.map(|apex| self.zones.slot_of(&zone_name(apex), options.zones_max)).collect(),
        })
    }

    /// The sums over `threads`.
    pub(crate) fn sum<'t>(&self, threads: impl Iterator<Item = &'t ThreadStatistics>) -> Option<Statistics> {
        let mut sums = Vec::new();
        let mut site_slots = None;
        for thread in threads {
            site_slots = Some(thread.site_slots);
            sums.resize(thread.counts.len(), 0_u64);
            for (sum, count) in sums.iter_mut().zip(&thread.counts) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        Some(Statistics { site_slots: site_slots?, sums, sites: self.sites.all(), zones: self.zones.all() })
    }
}

/// The apex without its final dot.
fn zone_name(apex: Name<'_>) -> String {
    let name = apex.to_string();
    match name.strip_suffix('.') {
        Some(short) if !short.is_empty() => short.to_owned(),
        _ => name,
    }
}

impl Names {
    fn slot_of(&mut self, name: &str, names_max: usize) -> u16 {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        let slot = u16::try_from(SLOT_NAMES.len() + self.names.len());
        let Some(slot) = slot.ok().filter(|_| self.names.len() < names_max) else { return SLOT_OTHER };
        self.names.push(name.to_owned());
        self.slots.insert(name.to_owned(), slot);
        slot
    }

    /// The names by slot.
    fn all(&self) -> Vec<String> {
        SLOT_NAMES.iter().map(|&name| name.to_owned()).chain(self.names.iter().cloned()).collect()
    }
}

/// The detailed counts of a server.
#[derive(Clone, Debug)]
pub struct Statistics {
    site_slots: usize,
    sums: Vec<u64>,
    /// The names of sites; the index is that of [`Series`].
    pub sites: Vec<String>,
    /// The same for the names of zones.
    pub zones: Vec<String>,
}

impl Statistics {
    /// The count of a series.
    pub fn get(&self, series: Series) -> u64 {
        self.sums[series.index(self.site_slots)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const OPTIONS: StatisticsOptions = StatisticsOptions { sites_max: 2, zones_max: 1 };

    fn all_series() -> Vec<Series> {
        let mut all = Vec::new();
        for version in 0..HTTP_VERSIONS.len() {
            for class in 0..STATUS_CLASSES.len() {
                all.extend([false, true].map(|is_encrypted| Series::Responses { version, is_encrypted, class }));
            }
            all.extend((0..=DURATION_BOUNDS_MS.len()).map(|bucket| Series::Durations(version, bucket)));
            all.push(Series::DurationSum(version));
        }
        all.extend((0..LOOKUP_RESULTS.len()).map(Series::Lookups));
        for protocol in 0..PROTOCOLS.len() {
            all.extend([false, true].map(|is_encrypted| Series::Open(protocol, is_encrypted)));
        }
        all.extend((0..CONNECTION_STATES.len()).map(Series::InState));
        for transport in 0..DNS_TRANSPORTS.len() {
            all.extend((0..QUERY_TYPES.len()).map(|it| Series::Queries(transport, it)));
            all.extend((0..RCODES.len()).map(|it| Series::Replies(transport, it)));
            all.extend((0..=SIZE_BOUNDS_BYTES.len()).map(|it| Series::Sizes(transport, it)));
            all.extend([Series::Truncated(transport), Series::SizeSum(transport)]);
        }
        for slot in 0..slot_count(OPTIONS.sites_max) {
            all.extend((0..STATUS_CLASSES.len()).map(|class| Series::SiteResponses(slot, class)));
            all.push(Series::SiteBytes(slot));
        }
        all.extend((0..slot_count(OPTIONS.zones_max)).map(Series::ZoneQueries));
        all
    }

    #[test]
    fn each_series_has_its_own_place() {
        let thread = ThreadStatistics::new(OPTIONS);
        let places: BTreeSet<usize> = all_series().iter().map(|series| series.index(thread.site_slots)).collect();
        assert_eq!(places.len(), all_series().len());
        assert_eq!(places.first(), Some(&PADDING));
        assert_eq!(places.last(), Some(&(thread.counts.len() - PADDING - 1)));
        assert_eq!(places.len(), thread.counts.len() - 2 * PADDING, "there are no gaps");
    }

    #[test]
    fn names_of_numbers_are_those_of_the_registry() {
        for (name, number) in QUERY_TYPES.iter().zip(QUERY_TYPE_NUMBERS) {
            assert_eq!(number.to_string(), *name);
        }
        assert_eq!(QUERY_TYPES.len(), QUERY_TYPE_NUMBERS.len() + 2);
        assert_eq!(RCODES.len(), RCODE_NUMBERS.len() + 1);
    }

    #[test]
    fn values_at_a_bound_belong_to_it() {
        for (value, expected) in [(0, 0), (1, 0), (2, 1), (3, 2), (65_536, 16), (65_537, 17)] {
            assert_eq!(bucket_of(value, &DURATION_BOUNDS_MS), expected, "{value}");
        }
    }

    #[test]
    fn names_beyond_the_limit_share_a_slot_and_names_keep_theirs() {
        let mut names = Names::default();
        let slots = ["a", "b", "c", "a", "d", "b"].map(|name| names.slot_of(name, 2));
        assert_eq!(slots, [2, 3, SLOT_OTHER, 2, SLOT_OTHER, 3]);
        assert_eq!(names.all(), ["_none", "_other", "a", "b"]);
    }

    #[test]
    fn counts_of_threads_are_added_up() {
        let threads = [ThreadStatistics::new(OPTIONS), ThreadStatistics::new(OPTIONS)];
        let response = CountedResponse {
            version: 1,
            is_encrypted: true,
            status: 404,
            site_slot: 2,
            content_bytes: 100,
            duration_ms: 5,
        };
        threads.iter().for_each(|thread| thread.count_response(&response));
        threads[1].set(Series::InState(2), 7);
        threads[1].set(Series::InState(2), 3);
        let sum = SlotNames::default().sum(threads.iter()).expect("threads");
        let nonzero: Vec<(Series, u64)> =
            all_series().into_iter().map(|series| (series, sum.get(series))).filter(|(_, count)| *count > 0).collect();
        let expected = [
            (Series::Responses { version: 1, is_encrypted: true, class: 3 }, 2),
            (Series::Durations(1, 3), 2),
            (Series::DurationSum(1), 10),
            (Series::InState(2), 3),
            (Series::SiteResponses(2, 3), 2),
            (Series::SiteBytes(2), 200),
        ];
        assert_eq!(nonzero, expected);
        assert!(SlotNames::default().sum(std::iter::empty()).is_none());
    }
}
