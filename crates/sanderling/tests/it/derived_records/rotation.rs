//! Keys that TLSA records pin, seen by a client with caches that compares them with handshakes.
//!
//! `SANDERLING_RENEWALS` is the number of renewals, for long runs.

use super::setup;
use crate::certificates::Setup;
use crate::name_servers::{NameServer, Program};
use sanderling_testkit::dns::{Question, Record, Reply, is_served};
use sanderling_testkit::{UdpClient, free_address_at, send_signal, wait_until, wait_within};
use sanderling_tls::Certificate;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TLSA: u16 = 52;
const HTTPS: u16 = 65;
/// The TTL of the records in caches.
const TTL: Duration = Duration::from_secs(1);
/// Between two handshakes.
const PAUSE: Duration = Duration::from_millis(10);
/// The deadline of a renewal, which waits for other name servers and caches, on a busy machine.
const RENEWAL_DEADLINE: Duration = Duration::from_secs(180);
/// The fields of the data of a record before the digest: 3 1 1.
const TLSA_FIELDS_BYTES: usize = 3;

#[test]
fn key_in_service_is_pinned_in_every_cache_through_renewals() {
    let setup = setup_with_tlsa("");
    check_renewals(setup, 3, |_| Vec::new());
}

#[test]
fn key_in_service_is_pinned_by_name_servers_that_lag() {
    let [nsd, knot] = [2, 3].map(|host| free_address_at(Ipv4Addr::new(127, 0, 0, host)));
    let secondaries = format!(
        "secondaries = [{{ address = \"{nsd}\" }}, {{ address = \"{knot}\" }}]\ntransfer_allow = [{{ network = \"127.0.0.0/8\" }}]\n"
    );
    let (setup, port) = setup_with_tlsa(&secondaries);
    // Secondaries look every two seconds for a later version.
    let zone = "@ 60 SOA ns host 1 2 1 3600 1\n@ 60 NS ns\n@ 60 NS ns2\n@ 60 NS ns3\nns 60 A 127.0.0.1\nns2 60 A 127.0.0.2\n\
                ns3 60 A 127.0.0.3\n@ 60 A 127.0.0.1\n";
    setup.directory.replace("example.com.zone", zone.as_bytes());
    check_renewals((setup, port), 2, |primary| {
        // NSD is not told of changes, so it lags until it looks.
        let nsd_config = |home: &str| {
            format!(
                "server:\n ip-address: {}@{}\n username: \"\"\n zonesdir: \"{home}\"\n database: \"\"\n \
                 zonelistfile: \"{home}/zone.list\"\n xfrdfile: \"{home}/xfrd.state\"\n xfrdir: \"{home}\"\n \
                 pidfile: \"{home}/pid\"\n server-count: 1\nremote-control:\n control-enable: no\n\
                 zone:\n name: example.com\n zonefile: \"{home}/zone\"\n request-xfr: {}@{} NOKEY\n \
                 min-refresh-time: 1\n min-retry-time: 1\n",
                nsd.ip(),
                nsd.port(),
                primary.ip(),
                primary.port()
            )
        };
        let knot_config = |home: &str| {
            format!(
                "server:\n  rundir: {home}\n  listen: {}@{}\n  udp-workers: 1\n  tcp-workers: 1\n\
                 remote:\n  - id: primary\n    address: {}@{}\nacl:\n  - id: primary\n    address: 127.0.0.0/8\n    \
                 action: notify\ndatabase:\n  storage: {home}\nzone:\n  - domain: example.com\n    storage: {home}\n    \
                 file: zone\n    acl: primary\n    master: primary\n    refresh-min-interval: 2\n",
                knot.ip(),
                knot.port(),
                primary.ip(),
                primary.port()
            )
        };
        vec![Program::Nsd.start_with(nsd, nsd_config), Program::Knot.start_with(knot, knot_config)]
    });
}

/// A server whose keys are pinned, with further keys of its domain.
fn setup_with_tlsa(domain: &str) -> (Setup, u16) {
    let (setup, port) = setup(&format!("derive = [\"https\", \"caa\", \"tlsa\"]\n{domain}"));
    setup.replace_in_config("workers = 1\n", "workers = 2\n");
    let limits =
        format!("[limits]\nderived_record_ttl_s = {}\ntls_handshake_timeout = \"2s\"\n[domain.", TTL.as_secs());
    setup.replace_in_config("[domain.", &limits);
    (setup, port)
}

/// Renews the certificate, and compares handshakes with what caches of each name server have.
fn check_renewals(
    (mut setup, port): (Setup, u16),
    default_count: usize,
    start: impl FnOnce(SocketAddr) -> Vec<NameServer>,
) {
    let renewal_count = sanderling_testkit::number_or("SANDERLING_RENEWALS", default_count);
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    let secondaries = start(server.dns());
    let mut addresses = vec![server.dns()];
    addresses.extend(secondaries.iter().map(NameServer::address));
    setup.wait_for_page(https, "example.com");
    let names = Names { tlsa: format!("_{port}._tcp.example.com"), https: format!("_{port}._https.example.com") };
    for address in &addresses {
        wait_until("it serves the zone", || is_served(*address, "example.com"));
        wait_until("two keys are pinned", || names.look_up(*address).pinned.len() == 2);
    }
    let is_stopped = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let checker = scope.spawn(|| compare(&is_stopped, https, &addresses, &names));
        let stop = StopOnDrop(&is_stopped);
        let mut key = wait_for_key(https, |_| true);
        for renewal in 0..renewal_count {
            // The renewal is refused until the next key has been in all caches.
            wait_within(RENEWAL_DEADLINE, "the renewal begins", || {
                setup.directory.control_with("renew", &["example.com"]).code() == Some(0)
            });
            key = wait_for_key(https, |other| *other != key);
            if renewal == 1 {
                // The next agent continues.
                let agent = setup.agent().expect("it runs");
                assert!(send_signal("KILL", &agent));
            }
        }
        drop(stop);
        checker.join().expect("no panic")
    });
    println!("{seen:?}");
    assert!(seen.mismatches.is_empty(), "{:#?}\n{}", seen.mismatches, server.errors());
    // The client may end before a handshake with the last key.
    assert!(seen.handshakes > 10 && seen.keys >= renewal_count, "{seen:?}");
    assert!(seen.comparisons > 10 && seen.failed_handshakes <= seen.handshakes / 100, "{seen:?}");
}

/// Ends the comparison even if the test fails meanwhile.
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The client's observations.
#[derive(Debug, Default)]
struct Seen {
    handshakes: usize,
    /// Handshakes that were compared with what a cache had.
    comparisons: usize,
    failed_handshakes: usize,
    keys: usize,
    mismatches: Vec<String>,
}

/// The records' names.
struct Names {
    tlsa: String,
    https: String,
}

/// The content of a cache.
struct Cached {
    since: Instant,
    pinned: Vec<Vec<u8>>,
    has_https: bool,
}

impl Names {
    fn look_up(&self, server: SocketAddr) -> Cached {
        let since = Instant::now();
        let answer = |name: &str, rtype| ask(server, &Question::new(name, rtype));
        let of_type = |rtype| move |record: &Record| record.rtype == rtype;
        let pinned = answer(&self.tlsa, TLSA).into_iter().filter(of_type(TLSA));
        let mut https = answer(&self.https, HTTPS).into_iter().filter(of_type(HTTPS));
        Cached {
            since,
            pinned: pinned.map(|record| record.rdata[TLSA_FIELDS_BYTES..].to_vec()).collect(),
            has_https: https.any(|record| record.rdata.windows(3).any(|part| part == b"\x02h2")),
        }
    }
}

/// A server's answer, which is asked again as resolvers do: one that loads another version of a zone may lose a query.
fn ask(server: SocketAddr, question: &Question<'_>) -> Vec<Record> {
    let client = UdpClient::new(server);
    let mut reply = None;
    wait_until("the server answers", || {
        client.send(&question.message());
        reply = client.receive_within(Duration::from_millis(500));
        reply.is_some()
    });
    Reply::parse(&reply.expect("it has answered")).answer
}

/// Compares a handshake every 10 ms with what a cache of each name server has, which looks up again what is too old.
fn compare(is_stopped: &AtomicBool, https: SocketAddr, servers: &[SocketAddr], names: &Names) -> Seen {
    let mut seen = Seen::default();
    let mut caches: Vec<Cached> = servers.iter().map(|server| names.look_up(*server)).collect();
    let mut last_key = None;
    while !is_stopped.load(Ordering::Relaxed) {
        let start = Instant::now();
        for (cached, server) in caches.iter_mut().zip(servers) {
            if cached.since.elapsed() >= TTL {
                *cached = names.look_up(*server);
            }
        }
        match served_key(https) {
            None => seen.failed_handshakes += 1,
            Some(key) => {
                seen.handshakes += 1;
                seen.keys += usize::from(last_key.as_ref() != Some(&key));
                // Caches drop records that are too old.
                for (cached, server) in caches.iter().zip(servers).filter(|(cached, _)| cached.since.elapsed() < TTL) {
                    seen.comparisons += 1;
                    if !cached.pinned.contains(&key) || !cached.has_https {
                        seen.mismatches.push(format!(
                            "{key:02x?} is served, {:02x?} are pinned at {server}, HTTPS: {}",
                            cached.pinned, cached.has_https
                        ));
                    }
                }
                last_key = Some(key);
            }
        }
        thread::sleep(PAUSE.saturating_sub(start.elapsed()));
    }
    seen
}

fn wait_for_key(https: SocketAddr, is_wanted: impl Fn(&Vec<u8>) -> bool) -> Vec<u8> {
    let mut found = None;
    wait_until("another key is in service", || {
        found = served_key(https).filter(&is_wanted);
        found.is_some()
    });
    found.expect("it was found")
}

/// The SHA-256 of the public key of the certificate that a handshake gets; `None` if it fails.
fn served_key(https: SocketAddr) -> Option<Vec<u8>> {
    let certificate = loadgen::client::certificate(https, "example.com").ok()?;
    let key = Certificate::key_id_of(&certificate).expect("a certificate");
    Some(key.0.to_vec())
}
