//! Measures the time of an answer, time and memory of a zone, and the time of a change.
//!
//! `cargo run --release -p sanderling-dns --example answer_cost [answers | load | edits [RUNS [KIND]]]`, where KIND is
//! a part of a kind's name. `valgrind --tool=callgrind --toggle-collect='*time_answers*'` counts the instructions of
//! one kind.

use fastrand::Rng;
use sanderling_dns::zone_edit::ZoneEdit;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position, Record};
use sanderling_dns::{
    Answer, DnsTransport, HashSeed, Name, ParsedQuery, RequestInfo, Rtype, Zone, ZoneBuilder, ZoneEntry, ZoneLimits,
    ZoneMap, answer, answer_parsed,
};
use std::fmt::Write;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Hosts of the answering zone: more than the second-level cache holds.
const HOST_COUNT: usize = 100_000;
/// Delegations to one name server.
const DELEGATION_COUNT: usize = 100_000;
/// Delegations to two name servers, aliases and mail domains, of each.
const OTHER_COUNT: usize = 1_000;
/// Records of the zone whose loading and changes are measured.
const LOAD_RECORD_COUNT: usize = 1_000_000;
/// Changes, one after another.
const EDIT_COUNT: usize = 20_000;
/// Changes before answers are measured.
const EDIT_COUNT_OF_ANSWERS: usize = 2_000;
/// Bytes of the journal of the changed zone.
const JOURNAL_BYTES_MAX: usize = 1 << 20;
/// Queries of one kind.
const QUERY_COUNT: usize = 1 << 16;
/// Queries of a batch.
const BATCH_COUNT: usize = 32;
/// Number of runs, of which the fastest counts: other load only adds to the time.
const RUN_COUNT: usize = 15;
const SEED: HashSeed = HashSeed(0x5eed);
const INFO: RequestInfo = RequestInfo {
    client: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1024),
    transport: DnsTransport::Udp { reply_bytes_max: 1232 },
    now_unix_s: 0,
};
const APEX: &[u8] = b"\x07example\0";

/// A kind of question: description, type, and the name below `example.` for a random number.
type Kind = (&'static str, Rtype, fn(usize) -> String);

const KINDS: [Kind; 10] = [
    ("an A record, always the same", Rtype::A, |_| "host7".into()),
    ("an A record, one of 100,000", Rtype::A, |random| format!("host{}", random % HOST_COUNT)),
    ("NODATA", Rtype::TXT, |random| format!("host{}", random % HOST_COUNT)),
    ("NXDOMAIN", Rtype::A, |random| format!("no{}", random % 1_000_000)),
    ("NXDOMAIN with five labels", Rtype::A, |random| format!("a.b.c.no{}", random % 1_000_000)),
    ("a wildcard", Rtype::A, |random| format!("x{}.wild", random % 1_000_000)),
    ("a referral to two servers", Rtype::A, |random| format!("www.zone{}", random % OTHER_COUNT)),
    ("a referral, one of 100,000", Rtype::A, |random| format!("www.child{}", random % DELEGATION_COUNT)),
    ("an alias and its A record", Rtype::A, |random| format!("alias{}", random % OTHER_COUNT)),
    ("an MX record with an address", Rtype::MX, |random| format!("mail{}", random % OTHER_COUNT)),
];

fn main() {
    let part = std::env::args().nth(1);
    let run_count = std::env::args().nth(2).map_or(RUN_COUNT, |count| count.parse().expect("a number of runs"));
    let wanted = std::env::args().nth(3).unwrap_or_default();
    let is_wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if is_wanted("answers") {
        measure_answers(run_count, &wanted);
    }
    if is_wanted("load") {
        measure_load(run_count);
    }
    if is_wanted("edits") {
        measure_edits();
    }
}

fn measure_answers(run_count: usize, wanted: &str) {
    let zone = load(answer_text());
    println!("{} names, {} bytes a record", zone.name_count(), zone.memory_bytes() / zone.record_count());
    let zone = Arc::new(zone);
    let edited = (0..EDIT_COUNT_OF_ANSWERS).fold(Arc::clone(&zone), |zone, index| {
        Arc::new(edited(&zone, index, |index| format!("host{}", index * 31 % HOST_COUNT)))
    });
    let [zones, edited] = [zone, edited].map(|zone| ZoneMap::new(SEED, [ZoneEntry::Served(zone)]));
    println!("after {EDIT_COUNT_OF_ANSWERS} changes in parentheses");
    for (kind, rtype, name) in KINDS.into_iter().filter(|(kind, ..)| kind.contains(wanted)) {
        let mut random = Rng::with_seed(1);
        let queries: Vec<Vec<u8>> = (0..QUERY_COUNT).map(|_| query(&name(random.usize(..)), rtype)).collect();
        let (alone, together) = (time_answers(&zones, &queries, run_count), time_batches(&zones, &queries, run_count));
        let (later, later_together) =
            (time_later_answers(&edited, &queries, run_count), time_batches(&edited, &queries, run_count));
        println!(
            "{kind:>30}: {alone:6.1} ({later:6.1}) ns alone, {together:6.1} ({later_together:6.1}) ns in batches of \
             {BATCH_COUNT}"
        );
    }
}

/// Nanoseconds for each of `queries`, answered one by one.
#[inline(never)]
fn time_answers(zones: &ZoneMap, queries: &[Vec<u8>], run_count: usize) -> f64 {
    let mut out = vec![0; 1232];
    fastest_ns(queries, run_count, || {
        for query in queries {
            let reply = answer(zones, &INFO, query, &mut out);
            assert!(matches!(black_box(reply), Answer::Reply(_)));
        }
    })
}

/// [`time_answers`] alone, so that instructions after changes can be counted separately.
#[inline(never)]
fn time_later_answers(zones: &ZoneMap, queries: &[Vec<u8>], run_count: usize) -> f64 {
    black_box(time_answers(zones, queries, run_count))
}

/// Nanoseconds for each of `queries`, answered in batches.
#[inline(never)]
fn time_batches(zones: &ZoneMap, queries: &[Vec<u8>], run_count: usize) -> f64 {
    let mut out = vec![0; 1232];
    fastest_ns(queries, run_count, || {
        for batch in queries.chunks(BATCH_COUNT) {
            let mut parsed = [ParsedQuery::EMPTY; BATCH_COUNT];
            let parsed = &mut parsed[..batch.len()];
            for (parsed, query) in parsed.iter_mut().zip(batch) {
                *parsed = ParsedQuery::parse(zones, query);
            }
            parsed.iter_mut().for_each(ParsedQuery::prefetch_slot);
            parsed.iter().for_each(ParsedQuery::prefetch_records);
            for query in parsed {
                let reply = answer_parsed(query, &INFO, &mut out);
                assert!(matches!(black_box(reply), Answer::Reply(_)));
            }
        }
    })
}

/// Nanoseconds for each of `queries` in the fastest run of `answer_all`.
fn fastest_ns(queries: &[Vec<u8>], run_count: usize, mut answer_all: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        answer_all();
        start.elapsed()
    };
    let fastest = (0..run_count).map(time).min().expect("at least one run");
    fastest.as_secs_f64() * 1e9 / queries.len() as f64
}

fn measure_load(run_count: usize) {
    let text = load_text(LOAD_RECORD_COUNT);
    let mut best = [Duration::MAX; 3];
    let mut last = None;
    for _ in 0..run_count {
        drop(last.take());
        let text = text.clone();
        let parts = {
            let start = Instant::now();
            let (builder, end) = parse(text);
            let parsed = start.elapsed();
            let built = builder.finish(end);
            let whole = start.elapsed();
            last = Some(built.zone.expect("the zone has no errors"));
            [parsed, whole - parsed, whole]
        };
        for (best, part) in best.iter_mut().zip(parts) {
            *best = (*best).min(part);
        }
    }
    let zone = last.expect("loaded at least once");
    let [parsed, built, whole] = best.map(|best| best.as_secs_f64());
    println!("{} records, {} names, {} MB of text", zone.record_count(), zone.name_count(), text.len() / 1_000_000);
    println!("read and collected {parsed:.3} s, built {built:.3} s, together {whole:.3} s");
    println!("{:.1} bytes a record", zone.memory_bytes() as f64 / zone.record_count() as f64);
}

/// Changes the address of one host after another.
fn measure_edits() {
    let mut zone = load(load_text(LOAD_RECORD_COUNT));
    let bytes = zone.memory_bytes();
    let start = Instant::now();
    zone.prepare_edits();
    println!(
        "prepared in {:.3} s, {} of {bytes} bytes more",
        start.elapsed().as_secs_f64(),
        zone.memory_bytes() - bytes
    );
    let (mut quick, mut whole) = (Vec::new(), Vec::new());
    let mut random = Rng::with_seed(1);
    for index in 0..EDIT_COUNT {
        let start = Instant::now();
        let next =
            edited(&zone, index, |_| format!("host{}-{}", random.u8(..7), random.usize(..LOAD_RECORD_COUNT / 25)));
        let times = if next.delta_name_count() == 0 { &mut whole } else { &mut quick };
        times.push(start.elapsed().as_secs_f64());
        zone = next;
    }
    quick.sort_by(f64::total_cmp);
    let ms = |part: usize| quick[(quick.len() - 1) * part / 1_000] * 1e3;
    println!("changes: median {:.3} ms, 99 % {:.3} ms, longest {:.3} ms", ms(500), ms(990), ms(1_000));
    println!("built as a whole after {} changes: {whole:.3?} s", EDIT_COUNT / (whole.len() + 1));
}

/// `zone` with another address of a host, a later serial, and the journal of both changes.
fn edited(zone: &Zone, index: usize, host: impl FnOnce(usize) -> String) -> Zone {
    let serial = index as u32 + 2;
    let record = |owner: &[u8], rtype, rdata: &[u8]| (owner.to_vec(), rtype, rdata.to_vec());
    let host = [&wire(&host(index))[..], APEX].concat();
    let mut soa = b"\x03ns1\x07example\0\x0ahostmaster\x07example\0".to_vec();
    [serial, 7200, 900, 1_209_600, 300].iter().for_each(|number| soa.extend(number.to_be_bytes()));
    let mut edit = ZoneEdit::new(zone);
    for (owner, rtype, rdata) in [record(APEX, Rtype::SOA, &soa), record(&host, Rtype::A, &serial.to_be_bytes())] {
        let owner = Name::parse(&owner).expect("a name");
        edit.clear_rrset(owner, rtype);
        let position = Position { file_index: 0, line: 1, column: 1 };
        edit.add(&Record { position, owner, rtype, ttl_s: 3600, rdata: &rdata });
    }
    let mut next = edit.finish(ZoneLimits::default()).zone.expect("the zone has no errors");
    next.continue_journal(zone, JOURNAL_BYTES_MAX);
    next
}

fn load(text: Vec<u8>) -> Zone {
    let (builder, end) = parse(text);
    builder.finish(end).zone.expect("the zone has no errors")
}

/// A builder with the records of `text`, and the end of the text.
fn parse(text: Vec<u8>) -> (ZoneBuilder, Position) {
    let apex = Name::parse(APEX).expect("an apex");
    let mut builder = ZoneBuilder::new(apex, SEED, ZoneLimits::default());
    let mut parser = Parser::new("cost.zone".into(), text, apex, ParserLimits::default());
    while let Some(entry) = parser.next() {
        match entry {
            Ok(Entry::Record(record)) => builder.add(&record),
            other => panic!("{other:?}"),
        }
    }
    (builder, Position { file_index: 0, line: 1, column: 1 })
}

fn query(name: &str, rtype: Rtype) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    query.extend(wire(name));
    query.extend(APEX);
    query.extend(rtype.0.to_be_bytes());
    query.extend([0, 1, 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    query
}

/// The labels of a name, without the root.
fn wire(name: &str) -> Vec<u8> {
    let label = |label: &str| [&[u8::try_from(label.len()).expect("a label is short")], label.as_bytes()].concat();
    name.split('.').flat_map(label).collect()
}

fn answer_text() -> Vec<u8> {
    let mut text = Text::start();
    for index in 0..HOST_COUNT {
        text.line(format_args!("host{index} A 192.0.{}.{}", index >> 8 & 0xff, index & 0xff));
    }
    for index in 0..DELEGATION_COUNT {
        text.line(format_args!("child{index} NS ns.child{index}\nns.child{index} A 192.0.2.1"));
    }
    text.line(format_args!("*.wild A 192.0.2.1"));
    for index in 0..OTHER_COUNT {
        text.line(format_args!("zone{index} NS ns1.zone{index}\nzone{index} NS ns2.zone{index}"));
        text.line(format_args!("ns1.zone{index} A 192.0.2.1\nns2.zone{index} A 192.0.2.2"));
        text.line(format_args!("alias{index} CNAME host{index}\nmail{index} MX 10 host{index}"));
    }
    text.0.into_bytes()
}

/// A zone of common records: 18 owners for 25 records.
fn load_text(record_count: usize) -> Vec<u8> {
    let mut text = Text::start();
    for index in 0..record_count / 25 {
        let (high, low) = (index >> 8 & 0xff, index & 0xff);
        for host in 0..7 {
            text.line(format_args!("host{host}-{index} A 10.{host}.{high}.{low}"));
        }
        for host in 0..3 {
            text.line(format_args!("host{host}-{index} AAAA 2001:db8:{host}:{high:x}::{low:x}"));
        }
        for alias in 0..4 {
            text.line(format_args!("www{alias}-{index} CNAME host{alias}-{index}"));
        }
        for mail in 0..2 {
            text.line(format_args!("mail{mail}-{index} MX 10 host{mail}-{index}"));
            text.line(format_args!("mail{mail}-{index} TXT \"v=spf1 ip4:10.{mail}.{high}.{low} -all\""));
        }
        text.line(format_args!("text-{index} TXT \"token={index:032x}\""));
        for child in 0..2 {
            text.line(format_args!("zone{child}-{index} NS ns.zone{child}-{index}"));
            text.line(format_args!("zone{child}-{index} NS ns.elsewhere.test."));
            text.line(format_args!("ns.zone{child}-{index} A 10.{child}.{high}.{low}"));
        }
    }
    text.0.into_bytes()
}

struct Text(String);

impl Text {
    fn start() -> Text {
        Text("$TTL 3600\n@ SOA ns1 hostmaster 1 7200 900 1209600 300\n@ NS ns1\nns1 A 192.0.2.53\n".into())
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes what is written");
    }
}
