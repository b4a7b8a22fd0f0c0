//! Zone transfers over simulated connections: bounded memory, back-pressure, versions, limits.

use super::*;
use crate::dns::transfers::{OutgoingTransfers, TransferPolicy, TransferRule};
use crate::limits::rate_limit_policy::IpNetwork;
use crate::options::DnsOptions;
use crate::site::sites::{DefaultSite, Sites};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{HashSeed, Name, Zone, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap};

const APEX: &[u8] = b"\x01z\0";
/// Records of the zone, besides SOA and NS.
const HOST_COUNT: usize = 40_000;
/// What a client that takes all of it has room for.
const ALL: usize = usize::MAX / 2;
const ITERATIONS_MAX: usize = 10_000;

fn zone(serial: u32) -> Arc<Zone> {
    let apex = Name::parse(APEX).expect("a name");
    let mut text = format!("$TTL 60\n@ SOA ns host {serial} 1 1 1 1\n@ NS ns.other.\n");
    (0..HOST_COUNT).for_each(|index| text += &format!("host-{index} A 192.0.2.1\n"));
    let mut parser = Parser::new("test.zone".into(), text.into_bytes(), apex, ParserLimits::default());
    let mut builder = ZoneBuilder::new(apex, HashSeed(1), ZoneLimits::default());
    while let Some(Ok(Entry::Record(record))) = parser.next() {
        builder.add(&record);
    }
    let built = builder.finish(Position { file_index: 0, line: 1, column: 1 });
    Arc::new(built.zone.expect("a zone"))
}

fn zone_map(serial: u32) -> ZoneMap {
    ZoneMap::new(HashSeed(1), [ZoneEntry::Served(zone(serial))])
}

/// A snapshot whose zone any client at 192.0.2.0/24 may transfer, `count_max` at once.
fn snapshot(count_max: usize) -> Snapshot {
    let network = IpNetwork::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 24);
    let rule = TransferRule { network: Some(network), key: None };
    let policy = TransferPolicy::new(vec![rule], [], Arc::new(OutgoingTransfers::new(count_max)));
    let sites = Sites::new(Vec::new(), DefaultSite::None);
    Snapshot { transfers: Arc::new(policy), ..Snapshot::new(sites, zone_map(1)) }
}

fn query(rtype: u8) -> Vec<u8> {
    let header = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let message = [&header[..], APEX, &[0, rtype, 0, 1]].concat();
    [&(message.len() as u16).to_be_bytes()[..], &message].concat()
}

const AXFR: u8 = 252;
const SOA: u8 = 6;

/// The messages in what a client has received, and their RCODEs and numbers of answers.
fn messages(bytes: &[u8]) -> Vec<(Vec<u8>, u8, usize)> {
    let mut rest = bytes;
    let mut messages = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (message, after) = after.split_at(usize::from(u16::from_be_bytes(*length)));
        let answers = usize::from(u16::from_be_bytes([message[6], message[7]]));
        messages.push((message.to_vec(), message[3] & 0xf, answers));
        rest = after;
    }
    messages
}

/// The serial of the SOA that ends at `end` of the message.
fn serial_at(message: &[u8], end: usize) -> u32 {
    u32::from_be_bytes(message[end - 20..end - 16].try_into().expect("four bytes"))
}

#[test]
fn transfer_is_written_as_the_client_takes_it() {
    simulate(snapshot(1), Options::default(), |simulation| {
        let client = simulation.connect(Protocol::Dns, &query(AXFR), 1_000).expect("a permit");
        simulation.run(ITERATIONS_MAX);
        // What a few messages take, although the zone has a megabyte.
        assert!(simulation.held_bytes() < 300_000, "{}", simulation.held_bytes());
        let mut received = simulation.take_received(client);
        assert_eq!(received.len(), 1_000);
        // The zone is replaced meanwhile; the transfer is of the version with which it has begun.
        simulation.update_snapshot(|snapshot| snapshot.zones = Arc::new(zone_map(2)));
        for _ in 0..20 {
            simulation.open_window(client, 10_000);
            simulation.run(ITERATIONS_MAX);
            assert!(simulation.held_bytes() < 300_000, "{}", simulation.held_bytes());
        }
        simulation.open_window(client, ALL);
        simulation.run(ITERATIONS_MAX);
        received.extend(simulation.take_received(client));
        let messages = messages(&received);
        assert!(messages.len() > 5 && messages.iter().all(|(_, rcode, _)| *rcode == 0));
        let count: usize = messages.iter().map(|(.., answers)| answers).sum();
        assert_eq!(count, HOST_COUNT + 3, "each record, and the SOA twice");
        let (last, ..) = messages.last().expect("there are some");
        assert_eq!(serial_at(last, last.len()), 1);
        // The connection goes on, with the new version.
        simulation.send(client, &query(SOA));
        simulation.run(ITERATIONS_MAX);
        let received = simulation.take_received(client);
        assert_eq!(self::messages(&received).len(), 1);
        assert_eq!(simulation.count(Counter::DnsTransfersDone), 1);
        assert!(simulation.is_open(client));
    });
}

#[test]
fn one_iteration_writes_a_bounded_part_and_others_are_served_meanwhile() {
    simulate(snapshot(1), Options::default(), |simulation| {
        let transferring = simulation.connect(Protocol::Dns, &query(AXFR), ALL).expect("a permit");
        let other = simulation.connect(Protocol::Dns, &query(SOA), ALL).expect("a permit");
        simulation.run_once();
        assert_eq!(messages(&simulation.take_received(other)).len(), 1);
        let mut received = simulation.take_received(transferring).len();
        assert!((1..700_000).contains(&received), "{received}");
        let mut iterations = 0;
        while simulation.count(Counter::DnsTransfersDone) == 0 {
            simulation.send(other, &query(SOA));
            simulation.run_once();
            assert_eq!(messages(&simulation.take_received(other)).len(), 1, "iteration {iterations}");
            let part = simulation.take_received(transferring).len();
            assert!(part <= 700_000, "{part} bytes in one iteration");
            received += part;
            iterations += 1;
        }
        assert!(iterations > 0 && received > 900_000, "{iterations} iterations, {received} bytes");
    });
}

#[test]
fn transfers_at_once_are_limited() {
    simulate(snapshot(2), Options::default(), |simulation| {
        let connect = |simulation: &mut Simulation<'_>| {
            let client = simulation.connect(Protocol::Dns, &query(AXFR), 100).expect("a permit");
            simulation.run(ITERATIONS_MAX);
            client
        };
        let rcode = |simulation: &mut Simulation<'_>, client| simulation.take_received(client)[5] & 0xf;
        let clients: Vec<usize> = (0..3).map(|_| connect(simulation)).collect();
        let rcodes: Vec<u8> = clients.iter().map(|&client| rcode(simulation, client)).collect();
        assert_eq!(rcodes, [0, 0, 2]);
        assert_eq!(simulation.count(Counter::DnsTransfersOverLimit), 1);
        // A connection that breaks returns what it has taken.
        simulation.break_off(clients[0]);
        simulation.run(ITERATIONS_MAX);
        let next = connect(simulation);
        assert_eq!(rcode(simulation, next), 0);
    });
}

#[test]
fn client_that_takes_nothing_is_closed_after_its_timeout() {
    let timeout = Duration::from_secs(9);
    let dns = DnsOptions { transfer_send_timeout: timeout, ..DnsOptions::default() };
    simulate(snapshot(1), Options { dns, ..Options::default() }, |simulation| {
        let client = simulation.connect(Protocol::Dns, &query(AXFR), 100).expect("a permit");
        simulation.run(ITERATIONS_MAX);
        simulation.advance(timeout - Duration::from_secs(1));
        assert!(simulation.is_open(client));
        simulation.advance(Duration::from_secs(2));
        assert!(!simulation.is_open(client));
    });
}

#[test]
fn transfer_is_not_closed_for_a_new_connection() {
    let dns = DnsOptions { tcp_connections_max: 2, ..DnsOptions::default() };
    simulate(snapshot(1), Options { dns, ..Options::default() }, |simulation| {
        let transferring = simulation.connect(Protocol::Dns, &query(AXFR), 100).expect("a permit");
        simulation.run(ITERATIONS_MAX);
        let idle = simulation.connect(Protocol::Dns, &query(SOA), ALL).expect("a permit");
        simulation.run(ITERATIONS_MAX);
        let third = simulation.connect(Protocol::Dns, &query(SOA), ALL).expect("that of the idle one");
        assert!(simulation.is_open(transferring) && !simulation.is_open(idle) && simulation.is_open(third));
    });
}

#[test]
fn draining_server_finishes_a_transfer() {
    simulate(snapshot(1), Options::default(), |simulation| {
        let client = simulation.connect(Protocol::Dns, &query(AXFR), 100).expect("a permit");
        simulation.run(ITERATIONS_MAX);
        simulation.drain(Duration::ZERO);
        simulation.open_window(client, ALL);
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.count(Counter::DnsTransfersDone), 1);
        let count: usize = messages(&simulation.take_received(client)).iter().map(|(.., answers)| answers).sum();
        assert_eq!(count, HOST_COUNT + 3);
    });
}

#[test]
fn client_of_another_network_is_refused() {
    simulate(snapshot(1), Options::default(), |simulation| {
        let address = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
        let client = simulation.connect_from(address, Protocol::Dns, &query(AXFR), ALL).expect("a permit");
        simulation.run(ITERATIONS_MAX);
        let messages = messages(&simulation.take_received(client));
        assert_eq!(messages.iter().map(|(_, rcode, answers)| (*rcode, *answers)).collect::<Vec<_>>(), [(5, 0)]);
        assert_eq!(simulation.count(Counter::DnsTransfersRefused), 1);
        assert!(simulation.is_open(client));
    });
}
