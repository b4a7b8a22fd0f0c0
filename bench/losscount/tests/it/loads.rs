//! A kind of request turned into a short load of that kind alone, and its counts.

use crate::answers::{CONTENT, NAMES};
use losscount::{Cause, Counts, DnsContent, DnsLoad, HttpLoad, Kind, Load, parse_questions};
use std::net::SocketAddr;
use std::time::Duration;

/// Requests of one load.
pub(crate) const COUNT: u64 = 60;
const PER_S: u32 = 200;
const LENGTH: Duration = Duration::from_millis(300);
const SEED: u64 = 7;

/// [`COUNT`] requests of this kind. Another content or deadline is the test's to set.
pub(crate) fn load(kind: Kind, peer: SocketAddr) -> Load {
    println!("seed {SEED}");
    let mut load = Load::new(LENGTH, SEED);
    let mut http = HttpLoad::new(peer, "/page", CONTENT.to_vec());
    let mut dns = DnsLoad::new(peer, parse_questions(NAMES).expect("the names are right"));
    dns.content = DnsContent::Any;
    match kind {
        Kind::HttpNew => http.new_per_s = PER_S,
        Kind::HttpKept => http.kept_per_s = PER_S,
        Kind::DnsUdp => dns.udp_per_s = PER_S,
        Kind::DnsTcpNew => dns.tcp_new_per_s = PER_S,
        Kind::DnsTcpKept => dns.tcp_kept_per_s = PER_S,
    }
    match kind {
        Kind::HttpNew | Kind::HttpKept => load.http = Some(http),
        Kind::DnsUdp | Kind::DnsTcpNew | Kind::DnsTcpKept => load.dns = Some(dns),
    }
    load
}

/// The counts of a load of one kind.
#[track_caller]
pub(crate) fn run(load: &Load, kind: Kind) -> Counts {
    let report = load.start().expect("the load is complete").finish().expect("this machine has what it takes");
    println!("{report}");
    let counts = report.counts(kind).expect("it had a rate").clone();
    assert_eq!(counts.sent_count, counts.ok_count + counts.lost_count(), "every request has one end");
    counts
}

/// All were sent; so many are lost, all for this cause.
#[track_caller]
pub(crate) fn check_lost(counts: &Counts, cause: Cause, lost_count: u64) {
    assert_eq!(counts.sent_count, COUNT, "an open loop sends whatever the server does");
    let lost: Vec<_> = Cause::ALL.iter().filter(|cause| counts.lost(**cause) > 0).collect();
    assert_eq!((counts.lost(cause), counts.lost_count()), (lost_count, lost_count), "lost for {lost:?}");
    assert!(counts.first_losses.iter().all(|loss| loss.cause == cause));
}
