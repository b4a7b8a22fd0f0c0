//! Repeats a request, so that the instructions of one can be counted.
//!
//! `counted KIND COUNT` repeats a kind; `counted` alone lists the kinds. `cargo xtask guard` runs it under callgrind
//! with COUNT and with twice as many: the difference belongs to the requests, since the start and the end of the
//! program are the same. Nothing depends on the time or on random numbers: the hash seed, the date and the file are
//! fixed, and no cache entry becomes stale.
#![forbid(unsafe_code)]

mod server;
mod http;
mod dns;

use std::process::ExitCode;

/// Exit status of a command line that names no kind.
const EXIT_USAGE: u8 = 2;

type Kind = (&'static str, fn(usize));

const KINDS: &[Kind] = &[
    ("http-512", http::repeat_hit),
    ("http-304", http::repeat_not_modified),
    ("http-404", http::repeat_missing),
    ("dns-hit", |count| dns::repeat(dns::HIT, count)),
    ("dns-hit-two-zones", |count| dns::repeat_with_two_zones(dns::HIT, count)),
    ("dns-name-error", |count| dns::repeat(dns::NAME_ERROR, count)),
    ("dns-referral", |count| dns::repeat(dns::REFERRAL, count)),
    ("dns-wildcard", |count| dns::repeat(dns::WILDCARD, count)),
    ("dns-unknown-zone", |count| dns::repeat(dns::UNKNOWN_ZONE, count)),
    ("dns-signed-hit", |count| dns::repeat_signed(dns::HIT, count)),
    ("dns-nsec-name-error", |count| dns::repeat_signed(dns::NAME_ERROR, count)),
    ("dns-signed-referral", |count| dns::repeat_signed(dns::REFERRAL, count)),
    ("dns-nsec3-name-error", |count| dns::repeat_nsec3(dns::NAME_ERROR, count)),
    ("server-http-512", server::repeat_http),
    ("server-http2-512", server::repeat_http2),
    ("server-dns-hit", server::repeat_dns),
    ("server-http-log", server::repeat_http_with_log),
    ("server-http-metrics", server::repeat_http_with_metrics),
    ("server-dns-metrics", server::repeat_dns_with_metrics),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => KINDS.iter().for_each(|(name, _)| println!("{name}")),
        [server::CLIENT, transport, address, count] => server::request(transport, address, number(count)),
        [name, count] => match KINDS.iter().find(|kind| kind.0 == name) {
            Some((_, repeat)) => repeat(number(count)),
            None => return usage(&format!("unknown kind `{name}`")),
        },
        _ => return usage("expected a kind and a count"),
    }
    ExitCode::SUCCESS
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|error| panic!("invalid count `{text}`: {error}"))
}

fn usage(problem: &str) -> ExitCode {
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.0).collect();
    eprintln!("counted: {problem}\nusage: counted KIND COUNT, where KIND is one of {}", names.join(", "));
    ExitCode::from(EXIT_USAGE)
}
