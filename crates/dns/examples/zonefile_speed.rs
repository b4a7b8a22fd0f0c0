//! Measures the zone-file parser: makes a zone of common records, reads it, and prints records a second of CPU time.
//!
//! `cargo run --release -p sanderling-dns --example zonefile_speed [RECORDS]`

use sanderling_dns::Name;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use std::fmt::Write;

const RECORD_COUNT: usize = 1_000_000;
/// The best of these is the figure: what else runs on the machine can only add to it.
const RUN_COUNT: usize = 7;

fn main() {
    let record_count =
        std::env::args().nth(1).map_or(RECORD_COUNT, |count| count.parse().expect("a number of records"));
    let text = zone_text(record_count);
    let mut best_ns = u64::MAX;
    for _ in 0..RUN_COUNT {
        let text = text.clone().into_bytes();
        let start_ns = cpu_time_ns();
        let (count, octets) = read(text);
        best_ns = best_ns.min(cpu_time_ns() - start_ns);
        assert!(count >= record_count && octets > 0, "every record is read");
    }
    let seconds = best_ns as f64 / 1e9;
    println!(
        "{record_count} records, {:.1} MB: {seconds:.3} s of CPU time, {:.2} million records/s, {:.0} MB/s",
        text.len() as f64 / 1e6,
        record_count as f64 / seconds / 1e6,
        text.len() as f64 / seconds / 1e6,
    );
}

/// Time that this thread has run, in nanoseconds: the first number of Linux's `schedstat`.
fn cpu_time_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has schedstat");
    text.split(' ').next().and_then(|time| time.parse().ok()).expect("schedstat starts with a number")
}

/// Counts records and octets of RDATA.
fn read(text: Vec<u8>) -> (usize, usize) {
    let apex = Name::parse(b"\x07example\0").expect("a name");
    let mut parser = Parser::new("speed.zone".into(), text, apex, ParserLimits::default());
    let (mut count, mut octets) = (0, 0);
    while let Some(event) = parser.next() {
        match event {
            Ok(Entry::Record(record)) => {
                count += 1;
                octets += record.rdata.len();
            }
            Ok(Entry::Include { path, .. }) => panic!("there is no $INCLUDE, but one of {path}"),
            Err(error) => panic!("{}:{}: {}", error.position.line, error.position.column, error.problem),
        }
    }
    (count, octets)
}

fn zone_text(record_count: usize) -> String {
    let mut text = String::from("$TTL 3600\n@ IN SOA ns1 hostmaster 1 7200 3600 1209600 300\n@ IN NS ns1\n");
    for index in 0..record_count {
        let (high, low) = (index >> 8 & 0xff, index & 0xff);
        match index % 8 {
            0..=2 => writeln!(text, "host{index}\tIN A 192.0.{high}.{low}"),
            3 => writeln!(text, "host{index}\t300 IN AAAA 2001:db8:{high:x}::{low:x}"),
            4 => writeln!(text, "mail{index}\tIN MX 10 mail{low}"),
            5 => writeln!(text, "text{index}\tIN TXT \"v=spf1 ip4:192.0.2.{low} -all\""),
            6 => writeln!(text, "zone{index}\tIN NS ns{low}.example.net."),
            _ => writeln!(text, "www{index}\tIN CNAME host{low}"),
        }
        .expect("a string takes what is written");
    }
    text
}
