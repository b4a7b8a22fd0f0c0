//! Does one kind of request so many times and next to nothing else, so that an instrument can tell what one takes.
//!
//! `counted KIND COUNT` repeats a kind; `counted` alone lists the kinds, one a line. `cargo xtask guard` runs it under
//! callgrind with COUNT and with twice as many: half of what the second run has more belongs to the requests, for what
//! starts and ends the program is the same in both. So that it is the same in every run, too, nothing of the work depends
//! on the time or on chance: the seed of the zones, the date and the file are fixed, and no entry of the cache ages.
#![forbid(unsafe_code)]

// The order is that of imports: a module uses those below it.
mod server;
mod http;
mod dns;

use std::process::ExitCode;

/// Exit status of a command line that names no kind.
const EXIT_USAGE: u8 = 2;

/// Something that can be repeated: its name, and what repeats it.
type Kind = (&'static str, fn(usize));

const KINDS: &[Kind] = &[
    ("http-512", http::repeat_hit),
    ("http-304", http::repeat_not_modified),
    ("http-404", http::repeat_missing),
    ("dns-hit", |count| dns::repeat(dns::HIT, count)),
    ("dns-hit-two-zones", |count| dns::repeat_out_of_two(dns::HIT, count)),
    ("dns-name-error", |count| dns::repeat(dns::NAME_ERROR, count)),
    ("dns-referral", |count| dns::repeat(dns::REFERRAL, count)),
    ("dns-wildcard", |count| dns::repeat(dns::WILDCARD, count)),
    ("dns-unknown-zone", |count| dns::repeat(dns::UNKNOWN_ZONE, count)),
    ("server-http-512", server::repeat_http),
    ("server-dns-hit", server::repeat_dns),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => KINDS.iter().for_each(|(name, _)| println!("{name}")),
        [server::ASK, transport, address, count] => server::ask(transport, address, number(count)),
        [name, count] => match KINDS.iter().find(|kind| kind.0 == name) {
            Some((_, repeat)) => repeat(number(count)),
            None => return usage(&format!("there is no kind `{name}`")),
        },
        _ => return usage("a kind and a count are wanted"),
    }
    ExitCode::SUCCESS
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|error| panic!("`{text}` is no count: {error}"))
}

fn usage(problem: &str) -> ExitCode {
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.0).collect();
    eprintln!("counted: {problem}\nusage: counted KIND COUNT, where KIND is one of {}", names.join(", "));
    ExitCode::from(EXIT_USAGE)
}
