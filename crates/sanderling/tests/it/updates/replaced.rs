//! Updates while the processes that carry them out are replaced.

use super::*;
use sanderling_testkit::children_with;

/// The replies to the updates that a client makes, with how many there were of each, and the last number that was
/// acknowledged.
type Replies = (BTreeMap<String, usize>, usize);

/// Has a client update one name repeatedly.
fn update_until(server: SocketAddr, directory: &TestDirectory, client: usize, ends: &AtomicBool) -> Replies {
    const SENDS_PER_RUN: usize = 10;
    let (mut replies, mut last, mut number) = (BTreeMap::new(), 0, 0);
    while !ends.load(Ordering::Relaxed) {
        let send = |number| {
            let name = format!("n.c{client}");
            format!("update delete {name} TXT\nupdate add {name} TXT {number}\nshow\nsend\nanswer\n")
        };
        let sends: String = (number..number + SENDS_PER_RUN).map(send).collect();
        let transport = if client.is_multiple_of(2) { "" } else { ";tcp\n" };
        let file = format!("nsupdate-{client}.txt");
        let ended = nsupdate_with(server, directory, &file, Some("transfer"), &(transport.to_owned() + &sends));
        let text = ended.text();
        for answer in text.split("Outgoing update query:").skip(1) {
            let status = answer.split_once("Answer:").and_then(|(_, answer)| answer.split_once("status: "));
            let status = status.map_or("none", |(_, status)| status.split(',').next().unwrap_or_default());
            if status == "NOERROR" {
                last = number;
            }
            *replies.entry(status.to_owned()).or_insert(0) += 1;
            number += 1;
        }
    }
    (replies, last)
}

/// Has clients update while `replace` is called several times. The replies, with how many there were of each. The last
/// acknowledged update is in effect afterwards.
fn update_during(server: &TestServer, directory: &TestDirectory, replace: impl Fn(usize)) -> BTreeMap<String, usize> {
    const CLIENTS: usize = 4;
    let rounds = sanderling_testkit::number_or("SANDERLING_REPLACEMENTS", 3);
    let ends = AtomicBool::new(false);
    let mut all = BTreeMap::new();
    thread::scope(|scope| {
        let (address, ends) = (server.dns(), &ends);
        let end = SetOnDrop(ends);
        let update = |client| scope.spawn(move || update_until(address, directory, client, ends));
        let clients: Vec<_> = (0..CLIENTS).map(update).collect();
        for round in 0..rounds {
            replace(round);
        }
        drop(end);
        for (client, replies) in clients.into_iter().enumerate() {
            let (replies, last) = replies.join().expect("a client");
            let found = data(server, &format!("n.c{client}"), "TXT");
            let number = found.trim_matches('"').parse::<usize>();
            assert!(number.is_ok_and(|number| number >= last), "{found}, not {last}: {replies:?}: {}", server.errors());
            for (status, count) in replies {
                *all.entry(status).or_insert(0) += count;
            }
        }
    });
    all
}

fn start_with(of_domain: &str) -> (TestDirectory, TestServer) {
    let directory = configure(of_domain, "dns_tcp_idle_timeout = \"10s\"");
    let server = start(&directory);
    if !of_domain.is_empty() {
        wait_until("the zone is signed", || is_signed(server.dns(), "example.com"));
    }
    // Until then the agent may not be there.
    update(&server, &directory, "add first TXT first");
    (directory, server)
}

/// Reloads so that another server process is needed.
fn reload_with_new_process(directory: &TestDirectory, round: usize) {
    let file = directory.path().join("sanderling.toml");
    let config = std::fs::read_to_string(file).expect("read");
    let next = format!("dns_tcp_idle_timeout = \"{}s\"", 10 + (round + 1) % 2);
    let lines: Vec<&str> = config.lines().filter(|line| !line.starts_with("dns_tcp_idle_timeout")).collect();
    directory.replace("sanderling.toml", format!("{}\n{next}\n", lines.join("\n")).as_bytes());
    let reload = directory.control("reload");
    assert!(reload.to_string().contains("has replaced the old one"), "{reload}");
}

#[test]
fn no_update_fails_because_processes_are_replaced() {
    for of_domain in ["", "dnssec = true\n"] {
        let (directory, server) = start_with(of_domain);
        let reloads = update_during(&server, &directory, |round| reload_with_new_process(&directory, round));
        assert_eq!(reloads.keys().collect::<Vec<_>>(), ["NOERROR"], "{reloads:?}\n{}", server.errors());
        let upgrades = update_during(&server, &directory, |_| {
            let upgrade = directory.control("upgrade");
            assert!(upgrade.status.success(), "{upgrade}");
        });
        assert_eq!(upgrades.keys().collect::<Vec<_>>(), ["NOERROR"], "{upgrades:?}\n{}", server.errors());
        // Each start comes later than the one before it.
        let kills = update_during(&server, &directory, |round| {
            if round < 3 {
                kill(&server, "internal-server-process");
            }
        });
        // Over TCP a client sees the end of the process.
        assert!(kills.keys().all(|status| ["NOERROR", "none"].contains(&status.as_str())), "{kills:?}");
        println!("reloads {reloads:?}, upgrades {upgrades:?}, kills {kills:?}");
        wait_until("the processes that were replaced have ended", || {
            children_with(server.process_id(), "internal-server-process").len() == 1
        });
    }
}

#[test]
fn log_has_one_line_a_minute_of_the_updates_of_a_zone() {
    let (directory, server) = start_with("dnssec = true\n");
    let count = || server.errors().lines().filter(|line| line.contains("zone example.com: serial")).count();
    let before = count();
    for number in 0..10 {
        update(&server, &directory, &format!("add n{number} TXT {number}"));
    }
    assert!(count() <= before + 1, "{}", server.errors());
    // The next agent hands the same version over.
    kill(&server, "internal-agent");
    update(&server, &directory, "add last TXT last");
    for text in ["the serial has not changed", "is not signed"] {
        assert!(!server.errors().contains(text), "{}", server.errors());
    }
}
