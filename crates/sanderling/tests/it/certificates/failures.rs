//! Failures while certificates are requested: authorities that fail in different ways, a full disk, an expired
//! certificate, and processes that are killed at random moments. The certificate in service stays, and nothing must be
//! restarted.
//!
//! `SANDERLING_KILLS` is the number of kills, for long runs; `SANDERLING_DOMAINS` is the number of domains that get
//! certificates at once.

use super::{DEADLINE, ISSUED_WITHIN, Setup};
use sanderling_testkit::dns::{TXT, data};
use sanderling_testkit::{
    Ended, TestServer, curl, number_or, run_program, sanderling, seed, send_signal, wait_until, wait_within,
};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

impl Setup {
    pub(super) fn renew(&self) -> Ended {
        self.directory.control_with("renew", &["example.com"])
    }

    /// The number of orders that the authority has got.
    pub(super) fn order_count(&self) -> usize {
        self.pebble_log().matches("Added order ").count()
    }

    /// The record for the authority, if the server answers with it.
    fn challenge(&self) -> Option<String> {
        data((Ipv4Addr::LOCALHOST, self.dns_port).into(), "_acme-challenge.example.com", TXT)
    }

    /// Listens in place of the authority, whose port a child that another test starts may have for a moment.
    pub(super) fn listen_as_authority(&self) -> TcpListener {
        let mut listener = None;
        wait_until("the port of the authority is free", || {
            listener = TcpListener::bind(("127.0.0.1", self.acme_port)).ok();
            listener.is_some()
        });
        listener.unwrap()
    }

    pub(super) fn chain(&self) -> Vec<u8> {
        fs::read(self.directory.path().join("state/certificates/example.com/fullchain.pem")).unwrap_or_default()
    }
}

/// A server in place of the authority, which sends the same answer to each request for the directory.
struct Answering(Child);

impl Answering {
    fn start(setup: &Setup, answer: &str) -> Answering {
        setup.directory.write("answers/dir", answer.as_bytes());
        Answering::spawn(setup, "pebble", &["-HTTP"])
    }

    /// An authority that is silent after the handshake.
    fn without_answers(setup: &Setup) -> Answering {
        Answering::spawn(setup, "pebble", &[])
    }

    /// With the certificate of this name. Returns when it listens.
    fn spawn(setup: &Setup, name: &str, arguments: &[&str]) -> Answering {
        let [certificate, key] = ["pem", "key"].map(|end| setup.directory.argument(&format!("{name}.{end}")));
        setup.directory.write("answers/empty", b"");
        let mut answering = None;
        // Pebble exits without a message if another test has the port at this moment.
        wait_until("it listens", || {
            let mut child = Command::new("openssl")
                .args(["s_server", "-accept", &setup.acme_port.to_string(), "-cert", &certificate, "-key", &key])
                .args(arguments)
                .current_dir(setup.directory.path().join("answers"))
                // The program ends when its input ends.
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("openssl is installed");
            let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            let is_listening = output.any(|line| line == "ACCEPT");
            answering = Some(Answering(child));
            thread::spawn(move || output.for_each(drop));
            is_listening
        });
        answering.unwrap()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn failing_authority_is_described_and_the_certificate_stays_in_service() {
    let mut setup = Setup::new("zone = \"example.com.zone\"\n[limits]\nauthority_timeout = \"2s\"");
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    let chain = setup.chain();
    setup.kill_pebble();
    let check = |cause: &str| {
        let renewed = setup.renew();
        assert!(renewed.code() == Some(1) && renewed.errors.contains(cause), "{cause}: {renewed}");
        assert_eq!(setup.page(https, "example.com").as_deref(), Some("hi\n"));
        assert_eq!(setup.chain(), chain);
        let shown = || setup.directory.control("certificates").text();
        wait_until("the error is shown", || shown().contains(", 89 days left") && shown().contains(cause));
    };
    check("Connection refused");
    for (answer, cause) in [
        ("HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\n<h1>Error</h1>", "responded with status 500"),
        (
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 4000\r\nConnection: close\r\n\r\nslow down",
            "responded with status 429",
        ),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<h1>Welcome</h1>", "sent an invalid ACME response"),
        ("garbage", "the authority's response is not HTTP"),
    ] {
        let _answering = Answering::start(&setup, answer);
        check(cause);
    }
    // An authority that accepts connections and closes them.
    let listener = setup.listen_as_authority();
    listener.set_nonblocking(true).unwrap();
    thread::scope(|scope| {
        let (stop, is_stopped) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            while is_stopped.recv_timeout(Duration::from_millis(5)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                if let Ok((mut stream, _)) = listener.accept() {
                    let _ = stream.read(&mut [0; 1]);
                }
            }
        });
        check("no TLS connection to 127.0.0.1");
        drop(stop);
    });
    // An authority whose connections stay in the kernel's queue, and one that is silent after the handshake.
    let silent = setup.listen_as_authority();
    check("the authority did not answer within 2 s");
    drop(silent);
    let silent = Answering::without_answers(&setup);
    check("the authority did not answer within 2 s");
    drop(silent);
    // The authority runs again, and has forgotten everything.
    setup.start_pebble();
    setup.fetch_root();
    assert_eq!(setup.renew().code(), Some(0));
    setup.wait_for_page(https, "example.com");
}

#[test]
fn full_disk_is_described_and_the_certificate_stays_in_service() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    let state = setup.directory.path().join("state");
    fs::create_dir(&state).unwrap();
    let mounted = run_program(
        "mount",
        "mount",
        &["-t", "tmpfs", "-o", "size=128k,mode=700", "state", &setup.directory.argument("state")],
    );
    if !mounted.status.success() {
        println!("not run: this process may not mount");
        return;
    }
    let _unmount = Unmount(setup.directory.argument("state"));
    if sanderling_os::process::effective_uid() == 0 {
        let owned = run_program("chown", "coreutils", &["sanderling", &setup.directory.argument("state")]);
        assert!(owned.status.success(), "{owned}");
    }
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    let chain = setup.chain();
    // The remaining files.
    let filler = state.join("filler");
    let _ = fs::write(&filler, vec![0; 1 << 20]);
    let renewed = setup.renew();
    let expected = "free some space; serving continues, and the change will be retried";
    assert!(renewed.code() == Some(1) && renewed.errors.contains(expected), "{renewed}");
    assert_eq!((setup.page(https, "example.com").as_deref(), setup.chain()), (Some("hi\n"), chain.clone()));
    fs::remove_file(&filler).unwrap();
    let renewed = setup.renew();
    assert!(renewed.code() == Some(0), "{renewed}");
    assert_ne!(setup.chain(), chain);
    setup.wait_for_page(https, "example.com");
}

/// Unmounts a directory when it is dropped.
struct Unmount(String);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

#[test]
fn renewal_comes_when_the_authority_suggests_it() {
    let mut setup = Setup::new("zone = \"example.com.zone\"\n[limits]\nrenewal_interval = \"1s\"");
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    setup.wait_for_page(server.encrypted("https"), "example.com");
    let (chain, agent) = (setup.chain(), setup.agent().expect("it runs"));
    let shown = || setup.directory.control("certificates").text();
    wait_until("the suggestion", || shown().contains("the authority suggests this time (ARI)"));
    // The window of the suggestion is over: as after a revocation by the authority.
    let pem = String::from_utf8(chain.clone())
        .unwrap()
        .split_inclusive("-----END CERTIFICATE-----\n")
        .next()
        .unwrap()
        .replace('\n', "\\n");
    let window = "{\\\"suggestedWindow\\\":{\\\"start\\\":\\\"2020-01-01T00:00:00Z\\\",\\\"end\\\":\\\"2020-01-02T00:00:00Z\\\"}}";
    let body = format!("{{\"certificate\":\"{pem}\",\"ariResponse\":\"{window}\"}}");
    setup.directory.write("suggestion", body.as_bytes());
    let url = format!("https://127.0.0.1:{}/set-renewal-info/", setup.management_port);
    let body = format!("@{}", setup.directory.argument("suggestion"));
    let set = curl(&["-sSk", "-w", "%{http_code}", "-d", &body, &url]);
    assert!(set.text().ends_with("200"), "{set}");
    // The agent asks again in hours, unless the state folder does not say so when it starts.
    let path = "state/renewals/example.com.json";
    let record = fs::read_to_string(setup.directory.path().join(path)).unwrap();
    let forgotten = record.replace("\"ask_again_at_unix_s\": 1", "\"ask_again_at_unix_s\": 0, \"before\": 1");
    assert_ne!(record, forgotten);
    setup.directory.write(path, forgotten.as_bytes());
    assert!(send_signal("KILL", &agent));
    wait_until("the certificate is renewed", || setup.chain() != chain);
    setup.wait_for_page(server.encrypted("https"), "example.com");
    assert_eq!(setup.order_count(), 2);
    // Another authority at the same place does not know the certificate that the next one replaces.
    // The output may come from the agent that was killed.
    wait_until("the next suggestion", || {
        let record = fs::read(setup.directory.path().join("state/renewals/example.com.json")).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
        let year_2021 = 1_609_459_200;
        record["is_suggested"] == true && record["renew_at_unix_s"].as_u64().is_some_and(|at| at > year_2021)
    });
    setup.kill_pebble();
    setup.start_pebble();
    setup.fetch_root();
    fs::remove_dir_all(setup.directory.path().join("state/acme")).unwrap();
    let agent = setup.agent().expect("it runs");
    assert!(send_signal("KILL", &agent));
    wait_until("another agent runs", || setup.agent().is_some_and(|other| other != agent));
    let renewed = setup.renew();
    assert!(renewed.code() == Some(0), "{renewed}");
    assert!(
        server.errors().contains("no known issuer") && server.errors().contains("ordering a new certificate instead")
    );
    setup.wait_for_page(server.encrypted("https"), "example.com");
}

#[test]
fn certificate_that_has_expired_is_served_until_there_is_another_one() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    // The clock jumps as if the machine had slept for months.
    let folder = "state/generations/example.com-1";
    fs::create_dir_all(setup.directory.path().join(folder)).unwrap();
    let links = setup.directory.path().join("state/certificates");
    fs::create_dir(&links).unwrap();
    std::os::unix::fs::symlink("../generations/example.com-1", links.join("example.com")).unwrap();
    crate::https::issue_at("20200101000000Z 20200301000000Z", &setup.directory, "old");
    for (from, to) in [("old.pem", "fullchain.pem"), ("old.key", "privkey.pem")] {
        setup.directory.write(&format!("{folder}/{to}"), &fs::read(setup.directory.argument(from)).unwrap());
    }
    let chmod = "chmod -R go= state && chown -R sanderling state";
    run_program("sh", "dash", &["-c", &format!("cd {} && {chmod}", setup.directory.path().display())]);
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    let connect_to = format!("::{https}");
    let insecure = || curl(&["-sSk", "--connect-to", &connect_to, "https://example.com/"]).text();
    wait_until("the old one is served", || insecure() == "hi\n");
    let shown = || setup.directory.control("certificates").text();
    wait_until("the error is shown", || shown().contains("EXPIRED") && shown().contains("Connection refused"));
    setup.start_pebble();
    setup.fetch_root();
    let renewed = setup.renew();
    assert!(renewed.code() == Some(0), "{renewed}");
    setup.wait_for_page(https, "example.com");
}

#[test]
fn authority_that_asks_for_a_pause_gets_it() {
    let setup = Setup::new("zone = \"example.com.zone\"");
    let answer = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 4000\r\nConnection: close\r\n\r\nslow down";
    let _answering = Answering::start(&setup, answer);
    let _server = setup.start_server();
    let shown = || setup.directory.control("certificates").text();
    // The delay is up to a tenth longer than requested.
    let is_paused = |shown: &str| (66..=74).any(|minutes| shown.contains(&format!("  next order in {minutes} min: ")));
    wait_until("the error is shown", || shown().contains("responded with status 429"));
    assert!(is_paused(&shown()), "{}", shown());
}

#[test]
fn many_domains_get_certificates_from_an_empty_state_folder() {
    let count = number_or("SANDERLING_DOMAINS", 10);
    let domains: String =
        (0..count).map(|number| format!("[domain.\"d{number}.example.com\"]\nsite = \"public\"\n")).collect();
    let mut setup = Setup::new(&format!("zone = \"example.com.zone\"\n{domains}"));
    setup.start_pebble();
    setup.fetch_root();
    let start = Instant::now();
    let mut server: TestServer = setup.start_server();
    let https = server.encrypted("https");
    let issued = || setup.directory.control("certificates").text().matches("  issued by ").count();
    wait_within(DEADLINE * 4, "all certificates", || issued() > count);
    setup.wait_for_page(https, &format!("d{}.example.com", count - 1));
    let elapsed = start.elapsed();
    println!("{} certificates after {:.2} s", count + 1, elapsed.as_secs_f64());
    // Programs without optimization take twice as long for a hundred.
    assert!(elapsed < if cfg!(debug_assertions) { ISSUED_WITHIN * 4 } else { ISSUED_WITHIN }, "{elapsed:?}");
    assert_eq!(setup.order_count(), count + 1);
}

#[test]
fn processes_that_are_killed_at_random_moments_only_delay_certificates() {
    let kills = number_or("SANDERLING_KILLS", 4);
    let mut random = fastrand::Rng::with_seed(seed());
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    setup.start_pebble();
    let server = setup.start_server();
    wait_until("the first certificate", || !setup.chain().is_empty());
    let mut killed = [0; 2];
    for _ in 0..kills {
        let (before, orders_before) = (setup.chain(), setup.order_count());
        let after = Duration::from_micros(random.u64(0..400_000));
        let kills_authority = random.bool();
        killed[usize::from(kills_authority)] += 1;
        let agent = setup.agent();
        let mut renew = sanderling();
        renew.args(["renew", "example.com", "--control", &setup.directory.argument("control")]);
        let mut child = renew.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Only the moment is random.
        thread::sleep(after);
        match (kills_authority, &agent) {
            (true, _) => {
                setup.kill_pebble();
                setup.start_pebble();
            }
            (false, Some(agent)) => assert!(send_signal("KILL", agent)),
            (false, None) => {}
        }
        let _ = child.wait();
        wait_until("the certificate is renewed", || {
            let is_renewed = setup.chain() != before;
            if !is_renewed {
                setup.renew();
            }
            is_renewed
        });
        // The order of the kill, the order of the renewal afterwards, and an order that the agent could not record.
        assert!(setup.order_count() - orders_before <= 3, "{}", setup.pebble_log());
        wait_until("the record is removed", || setup.challenge().is_some_and(|text| text.is_empty()));
    }
    println!("killed: agent {} times, authority {} times", killed[0], killed[1]);
    let orders = setup.directory.path().join("state/orders");
    let left = fs::read_dir(orders).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no order is left");
    drop(server);
}
