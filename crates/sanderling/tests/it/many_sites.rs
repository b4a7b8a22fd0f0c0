//! More sites than there are descriptors for.

use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{DEADLINE, ListenerCounts, TestDirectory, TestServer, run_to_end, sanderling};
use std::fmt::Write;
use std::process::Command;

const LIMIT: usize = 256;
/// More than the limit has descriptors.
const SITES: usize = 300;
/// Three quarters of what is not reserved.
const SERVED: usize = 96;

fn limited(command: &Command) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nofile={LIMIT}:{LIMIT}")).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}

fn config(extra: &str) -> String {
    let mut config = format!(
        "workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\n[dns]\nlisten = [\"127.0.0.1:0\"]\n\
         [domain.\"zone.example\"]\nzone = \"zone\"\n{extra}"
    );
    for number in 0..SITES {
        write!(config, "[domain.\"s{number}.example\"]\nsite = \"sites/{number}\"\n").unwrap();
    }
    config
}

#[test]
fn as_many_sites_as_there_are_descriptors_for_are_served() {
    let zone = b"@ 60 SOA ns hostmaster 1 60 60 60 60\n@ 60 NS ns\nns 60 A 192.0.2.1\n";
    let directory = TestDirectory::with(&[("sanderling.toml", config("").as_bytes()), ("zone", zone)]);
    for number in 0..SITES {
        directory.write(&format!("sites/{number}/index.html"), format!("site {number}").as_bytes());
    }
    let counts = ListenerCounts { http: 1, dns: 1 };
    let server = TestServer::start_command(limited(&directory.serve_command()), counts);
    let status = |number: usize| {
        let mut client = HttpClient::connect(server.http());
        client.send(format!("GET / HTTP/1.1\r\nHost: s{number}.example\r\n\r\n"));
        let response = client.response();
        assert!(response.status != 200 || response.text() == format!("site {number}"));
        response.status
    };
    let check = || {
        assert_eq!([0, 1, SERVED - 1, SERVED, SITES - 1].map(status), [200, 200, 200, 503, 503]);
        // There are descriptors for clients, and for their files.
        let clients: Vec<HttpClient> = (0..40)
            .map(|_| {
                let mut client = HttpClient::connect(server.http());
                client.send("GET / HTTP/1.1\r\nHost: s7.example\r\n\r\n");
                assert_eq!(client.response().status, 200);
                client
            })
            .collect();
        drop(clients);
    };
    check();
    let message = format!("the limit of {LIMIT} file descriptors allows only {SERVED} site directories");
    let remedy = "raise it to 528 or more with LimitNOFILE=";
    let errors = server.errors();
    assert_eq!((errors.matches(&message).count(), errors.matches(remedy).count()), (1, 1), "{errors}");
    assert!(errors.contains(&format!("requests for this site and {} more get status 503", SITES - SERVED - 1)));
    assert!(errors.lines().count() < 20, "{errors}");
    let shown = directory.control("status");
    assert!(shown.text().contains("there are not enough file descriptors"), "{shown}");
    // The directories have one descriptor each over reloads.
    for number in 0..3 {
        directory.replace("sanderling.toml", config(&format!("# {number}\n")).as_bytes());
        let ended = directory.control("reload");
        assert!(ended.errors.contains(&message) || ended.text().contains(&message), "{number}: {ended}");
        check();
    }
    let mut command = sanderling();
    command.args(["check", "--config", &directory.argument("sanderling.toml")]);
    let ended = run_to_end(limited(&command), DEADLINE);
    assert_eq!((ended.code(), ended.errors.matches(&message).count()), (Some(1), 1), "{ended}");
}
