//! Detailed counts of connections in memory: times of responses, and open connections by state.

use super::*;
use crate::options::{HttpOptions, StatisticsOptions};
use crate::site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, Sites};
use crate::statistics::{DURATION_BOUNDS_MS, Series, Statistics};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::directory::Directory;

const GET: &str = "GET /file HTTP/1.1\r\nHost: example.com\r\n\r\n";
const UNLIMITED: usize = usize::MAX;
const ITERATIONS_MAX: usize = 1_000;

fn simulate_root(root: Root, act: impl FnOnce(&mut Simulation<'_>)) {
    let site = Site { id: 0, hosts: vec!["example.com".to_owned()], root, options: SiteOptions::default() };
    let snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::None), ZoneMap::new(HashSeed(1), []));
    let options = Options {
        http: HttpOptions { send_rate_min: 0, receive_rate_min: 0, ..HttpOptions::default() },
        statistics: Some(StatisticsOptions { sites_max: 1, zones_max: 1 }),
        ..Options::default()
    };
    simulate(snapshot, options, act);
}

fn simulate_file(act: impl FnOnce(&mut Simulation<'_>)) {
    const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: b"content" }];
    simulate_root(Root::Builtin(FILES), act);
}

fn statistics(simulation: &Simulation<'_>) -> Statistics {
    simulation.shared.statistics().expect("the options ask for them")
}

/// The number of responses over HTTP/1.1, and the sum of their times in milliseconds.
fn times(simulation: &Simulation<'_>) -> (u64, u64) {
    let statistics = statistics(simulation);
    let count = (0..=DURATION_BOUNDS_MS.len()).map(|bucket| statistics.get(Series::Durations(1, bucket))).sum();
    (count, statistics.get(Series::DurationSum(1)))
}

#[test]
fn time_of_a_request_begins_with_its_first_bytes() {
    simulate_file(|simulation| {
        let client = simulation.connect(Protocol::Http, b"", UNLIMITED).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        // A connection without a request costs no time.
        simulation.advance(Duration::from_millis(500));
        let (first, rest) = GET.split_at(10);
        simulation.send(client, first.as_bytes());
        simulation.run(ITERATIONS_MAX);
        simulation.advance(Duration::from_millis(40));
        simulation.send(client, rest.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(times(simulation), (1, 40));
        simulation.advance(Duration::from_millis(500));
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(times(simulation), (2, 40), "the next request has its own time");
        assert_eq!(statistics(simulation).get(Series::Durations(1, 0)), 1);
        assert_eq!(statistics(simulation).get(Series::Durations(1, 6)), 1, "40 ms is above 32 and up to 64");
    });
}

#[test]
fn time_of_a_response_ends_with_its_last_byte() {
    const FILE_BYTES: usize = 300_000;
    let directory = tempfile::tempdir().expect("created");
    std::fs::write(directory.path().join("file"), vec![b'x'; FILE_BYTES]).expect("written");
    let root = Root::Directory(Arc::new(Directory::open(directory.path()).expect("created")));
    simulate_root(root, |simulation| {
        let client = simulation.connect(Protocol::Http, GET.as_bytes(), 1_000).expect("accepted");
        // The file has just changed and is read later.
        while simulation.take_received(client).is_empty() {
            simulation.run(ITERATIONS_MAX);
        }
        assert_eq!(times(simulation), (0, 0), "it is being sent");
        simulation.advance(Duration::from_millis(700));
        simulation.open_window(client, UNLIMITED);
        simulation.run(ITERATIONS_MAX);
        assert_eq!(times(simulation), (1, 700));
        let statistics = statistics(simulation);
        assert_eq!(statistics.get(Series::SiteBytes(2)), FILE_BYTES as u64);
        assert_eq!(statistics.get(Series::SiteResponses(2, 1)), 1);
    });
}

#[test]
fn open_connections_are_counted_by_state() {
    simulate_file(|simulation| {
        let counts = |simulation: &mut Simulation<'_>| {
            simulation.run(ITERATIONS_MAX);
            let statistics = statistics(simulation);
            let [_, receiving, idle] = [0, 1, 2].map(|state| statistics.get(Series::InState(state)));
            (statistics.get(Series::Open(0, false)), receiving, idle)
        };
        let first = simulation.connect(Protocol::Http, GET.as_bytes(), UNLIMITED).expect("accepted");
        assert_eq!(counts(simulation), (1, 0, 1));
        let second = simulation.connect(Protocol::Http, &GET.as_bytes()[..5], UNLIMITED).expect("accepted");
        assert_eq!(counts(simulation), (2, 1, 1));
        simulation.break_off(second);
        assert_eq!(counts(simulation), (1, 0, 1));
        simulation.break_off(first);
        assert_eq!(counts(simulation), (0, 0, 0));
    });
}
