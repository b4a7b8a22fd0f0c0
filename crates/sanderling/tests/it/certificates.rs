//! Certificates by ACME, from an empty state folder to a trusted answer over HTTPS, with Pebble as certificate
//! authority. Pebble resolves names with the DNS server under test.

mod authorities;
mod checks;
mod clock;
mod dns_clients;
mod failures;
mod misbehaving;
mod other_programs;

use sanderling_testkit::dns::{TXT, data};
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, curl, free_address, run, run_program, run_to_end, sanderling,
    send_signal, wait_until,
};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };

/// From the start with an empty state folder to a trusted answer.
const ISSUED_WITHIN: Duration = Duration::from_secs(10);

/// A certificate authority and the server that asks it, with their files.
pub(crate) struct Setup {
    pub(crate) directory: TestDirectory,
    acme_port: u16,
    management_port: u16,
    http_port: u16,
    dns_port: u16,
    variables: Vec<(&'static str, &'static str)>,
    pebble: Option<Child>,
}

impl Setup {
    /// `domain` is the section of example.com without its site.
    pub(crate) fn new(domain: &str) -> Setup {
        let directory = TestDirectory::with(&[("public/index.html", b"hi\n")]);
        let [acme_port, management_port, http_port, dns_port] = [(); 4].map(|()| free_address().port());
        let zone = "@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 127.0.0.1\n@ 60 A 127.0.0.1\n* 60 A 127.0.0.1\n";
        directory.write("example.com.zone", zone.as_bytes());
        directory.write("other.zone", zone.as_bytes());
        let config = format!(
            "workers = 1\nstate = \"state\"\n[http]\nlisten = [\"127.0.0.1:{http_port}\"]\n[https]\n\
             listen = [\"127.0.0.1:0\"]\n[dns]\nresolvers = []\nlisten = [\"127.0.0.1:{dns_port}\"]\n[certificates]\n\
             agree_to_terms = true\ncontact = \"mailto:hostmaster@example.com\"\n\
             authorities = [{{ directory = \"https://127.0.0.1:{acme_port}/dir\", root = \"pebble.pem\" }}]\n\
             [domain.\"example.com\"]\nsite = \"public\"\n{domain}\n"
        );
        directory.write("sanderling.toml", config.as_bytes());
        let pebble = format!(
            "{{\"pebble\":{{\"listenAddress\":\"127.0.0.1:{acme_port}\",\"managementListenAddress\":\
             \"127.0.0.1:{management_port}\",\"certificate\":\"{}\",\"privateKey\":\"{}\",\"httpPort\":{http_port},\
             \"tlsPort\":1,\"ocspResponderURL\":\"\",\"externalAccountBindingRequired\":false,\
             \"retryAfter\":{{\"authz\":1,\"order\":1}}}}}}",
            directory.argument("pebble.pem"),
            directory.argument("pebble.key")
        );
        directory.write("pebble.json", pebble.as_bytes());
        let (chain, key) = (directory.argument("pebble.pem"), directory.argument("pebble.key"));
        let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=pebble -addext \
                         basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1";
        let arguments: Vec<&str> = arguments.split_whitespace().chain(["-keyout", &key, "-out", &chain]).collect();
        assert!(run_program("openssl", "openssl", &arguments).status.success());
        let variables = vec![("PEBBLE_VA_NOSLEEP", "1")];
        Setup { directory, acme_port, management_port, http_port, dns_port, variables, pebble: None }
    }

    /// Changes the configuration.
    pub(crate) fn replace_in_config(&self, from: &str, to: &str) {
        let config = fs::read_to_string(self.directory.path().join("sanderling.toml")).unwrap();
        assert!(config.contains(from), "{config}");
        self.directory.write("sanderling.toml", config.replace(from, to).as_bytes());
    }

    pub(crate) fn start_pebble(&mut self) {
        let in_home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin/pebble"));
        let program = in_home.filter(|path| path.is_file()).unwrap_or_else(|| "pebble".into());
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.directory.path().join("pebble.log")).unwrap();
        let child = Command::new(&program)
            .args(["-config", &self.directory.argument("pebble.json")])
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.dns_port)])
            .envs(self.variables.iter().copied())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask setup` installs it", program.display()));
        self.pebble = Some(child);
        wait_until("Pebble listens", || TcpStream::connect(("127.0.0.1", self.acme_port)).is_ok());
        wait_until("Pebble listens", || TcpStream::connect(("127.0.0.1", self.management_port)).is_ok());
    }

    fn kill_pebble(&mut self) {
        if let Some(mut child) = self.pebble.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn start_server(&self) -> TestServer {
        TestServer::start_command(self.directory.serve_command(), BOTH)
    }

    /// Stores the root that issues the certificates.
    pub(crate) fn fetch_root(&self) {
        let url = format!("https://127.0.0.1:{}/roots/0", self.management_port);
        let root = curl(&["-sSk", &url]);
        self.directory.write("root.pem", root.text().as_bytes());
    }

    /// The site at `host`, if its certificate is trusted.
    pub(crate) fn page(&self, https: SocketAddr, host: &str) -> Option<String> {
        let (root, connect_to) = (self.directory.argument("root.pem"), format!("::{https}"));
        let ended = curl(&["-sS", "--cacert", &root, "--connect-to", &connect_to, &format!("https://{host}/")]);
        ended.status.success().then(|| ended.text())
    }

    pub(crate) fn wait_for_page(&self, https: SocketAddr, host: &str) {
        wait_until("the certificate is trusted", || self.page(https, host).is_some_and(|page| page == "hi\n"));
    }

    fn pebble_log(&self) -> String {
        fs::read_to_string(self.directory.path().join("pebble.log")).unwrap_or_default()
    }

    /// The agent's process ID.
    pub(crate) fn agent(&self) -> Option<String> {
        let status = self.directory.control("status").text();
        let line = status.lines().find_map(|line| line.strip_prefix("agent process "))?;
        line.split(';').next().map(str::to_owned)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.kill_pebble();
        if std::thread::panicking() {
            let log = self.pebble_log();
            eprintln!("the end of Pebble's log:\n{}", &log[log.len().saturating_sub(3_000)..]);
        }
    }
}

#[test]
fn certificate_is_issued_by_a_record_in_the_zone_from_an_empty_state_folder() {
    let mut setup = Setup::new("zone = \"example.com.zone\"\naliases = [\"www.example.com\", \"*.example.com\"]");
    setup.start_pebble();
    setup.fetch_root();
    let start = Instant::now();
    let mut server = setup.start_server();
    // Until there is a certificate, the site is served without encryption.
    let url = format!("http://127.0.0.1:{}/", setup.http_port);
    let plain = curl(&["-sS", "-H", "Host: example.com", &url]);
    assert!(plain.text() == "hi\n" || plain.text().contains("308"), "{plain}");
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    let elapsed = start.elapsed();
    println!("trusted answer after {:.2} s", elapsed.as_secs_f64());
    assert!(elapsed < ISSUED_WITHIN, "{elapsed:?}");
    setup.wait_for_page(https, "any.example.com");
    // The record is gone, and the zone file is as it was.
    let challenge = || data(server.dns(), "_acme-challenge.example.com", TXT);
    wait_until("the record is removed", || challenge().is_some_and(|text| text.is_empty()));
    // Other programs find the files.
    let state = setup.directory.path().join("state");
    let mode = |path: &str| fs::metadata(state.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(""), mode("certificates/example.com/privkey.pem")], [0o700, 0o600]);
    let text = setup.directory.control("certificates").text();
    assert!(
        text.contains("names: example.com *.example.com\n  issued by Pebble") && text.contains("next order in"),
        "{text}"
    );
    let status = setup.directory.control("status").text();
    assert!(status.contains("agent process ") && status.contains("renew the certificate of example.com"), "{status}");
}

#[test]
fn certificate_is_issued_over_http_where_the_zone_is_elsewhere() {
    let mut setup = Setup::new("[domain.\"com\"]\nzone = \"other.zone\"\ncertificate = \"none\"");
    // This server has the zone for the authority's look-ups, but the agent does not take it for the domain's zone.
    let config = fs::read_to_string(setup.directory.path().join("sanderling.toml")).unwrap();
    let config = config
        .replace("[domain.\"com\"]\nzone = \"other.zone\"\ncertificate = \"none\"", "")
        .replace("[dns]\n", "[dns]\nzones = \"zones/*.zone\"\n");
    let zone = fs::read(setup.directory.path().join("example.com.zone")).unwrap();
    setup.directory.write("zones/example.com.zone", &zone);
    setup.directory.write("sanderling.toml", config.as_bytes());
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    assert!(setup.pebble_log().contains("/.well-known/acme-challenge/"), "{}", setup.pebble_log());
    // Requests are redirected from now on.
    let url = format!("http://127.0.0.1:{}/", setup.http_port);
    let plain = curl(&["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: example.com", &url]);
    assert_eq!(plain.text(), "308");
}

#[test]
fn bad_nonces_and_reused_authorizations_do_no_harm() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    setup.variables.extend([("PEBBLE_WFE_NONCEREJECT", "60"), ("PEBBLE_AUTHZREUSE", "100")]);
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    for _ in 0..3 {
        let renewed = setup.directory.control_with("renew", &["example.com"]);
        assert!(renewed.code() == Some(0) && renewed.text() == "certificate example.com: issued\n", "{renewed}");
    }
    setup.wait_for_page(https, "example.com");
}

#[test]
fn killed_authority_and_killed_agent_only_delay_a_certificate() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    // The authority validates only after some seconds, so that both can be killed meanwhile.
    setup.variables = vec![("PEBBLE_VA_SLEEPTIME", "3")];
    setup.start_pebble();
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    let challenge = || data(server.dns(), "_acme-challenge.example.com", TXT);
    wait_until("an order is in progress", || challenge().is_some_and(|text| !text.is_empty()));
    let first = setup.agent().expect("it runs");
    assert!(send_signal("KILL", &first));
    // A killed agent's record is removed, and the next agent continues with the same order.
    wait_until("another agent runs", || setup.agent().is_some_and(|agent| agent != first));
    // The authority may have validated the name before it is killed.
    let chain = setup.directory.path().join("state/certificates/example.com/fullchain.pem");
    let is_issued = || chain.is_file();
    wait_until("an order is in progress, or has ended", || {
        challenge().is_some_and(|text| !text.is_empty()) || is_issued()
    });
    setup.kill_pebble();
    setup.variables = vec![("PEBBLE_VA_NOSLEEP", "1")];
    setup.start_pebble();
    setup.fetch_root();
    wait_until("the authority that has forgotten accounts and orders issues", || {
        setup.directory.control_with("renew", &["example.com"]);
        setup.page(https, "example.com").is_some()
    });
    wait_until("the record is removed", || challenge().is_some_and(|text| text.is_empty()));
    assert!(server.errors().contains("was killed by signal 9; restarting"), "{}", server.errors());
}

#[test]
fn agent_has_no_privileges_and_a_filter_of_system_calls() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    setup.start_pebble();
    let server = setup.start_server();
    wait_until("the agent runs", || setup.agent().is_some());
    let agent = setup.agent().expect("it runs");
    let status = || fs::read_to_string(format!("/proc/{agent}/status")).unwrap();
    wait_until("the agent has entered its sandbox", || status().contains("Seccomp:\t2"));
    let status = status();
    for field in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{field}:\t0000000000000000\n")), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    if sanderling_os::process::effective_uid() == 0 {
        assert!(!status.contains("Uid:\t0"), "{status}");
    }
    drop(server);
}

#[test]
fn unusable_state_folder_is_reported_and_the_site_is_served() {
    let setup = Setup::new("zone = \"example.com.zone\"");
    setup.directory.write("state", b"a file");
    let server = setup.start_server();
    server.wait_for_error("cannot start the agent: the state folder ");
    let problem = "state is not a folder; set `state` to a folder\n";
    let status = setup.directory.control("status").text();
    assert!(status.contains("agent does not run; ") && status.contains(problem), "{status}");
    for command in ["certificates", "renew"] {
        let arguments: &[&str] = if command == "renew" { &["example.com"] } else { &[] };
        let refused = setup.directory.control_with(command, arguments);
        assert!(refused.errors.contains("the agent does not run: the state folder "), "{refused}");
    }
    let checked = run(&["check", "--config", &setup.directory.argument("sanderling.toml")]);
    assert!(
        checked.code() == Some(1) && checked.errors.contains("state` is not a folder; set `state` to a folder"),
        "{checked}"
    );
    let url = format!("http://127.0.0.1:{}/", setup.http_port);
    assert_eq!(curl(&["-sS", "-H", "Host: example.com", &url]).text(), "hi\n");
    fs::remove_file(setup.directory.path().join("state")).unwrap();
    wait_until("the agent runs", || setup.agent().is_some());
    wait_until("it works", || !setup.directory.control("status").text().contains("failed: "));
}

#[test]
fn status_says_that_another_process_uses_the_state_folder() {
    let setup = Setup::new("zone = \"example.com.zone\"");
    let first = setup.start_server();
    wait_until("the agent has made the folder", || setup.directory.control("certificates").code() == Some(0));
    drop(first);
    let lock = fs::OpenOptions::new().write(true).open(setup.directory.path().join("state/lock")).unwrap();
    lock.lock().unwrap();
    let server = setup.start_server();
    let shown = || setup.directory.control("status").text();
    wait_until("the reason is shown", || shown().contains("failed: another process uses the state folder "));
    drop(lock);
    wait_until("the agent works", || !shown().contains("failed: "));
    drop(server);
}

#[test]
fn agent_that_hangs_is_restarted() {
    let setup = Setup::new("zone = \"example.com.zone\"\n[limits]\nagent_hang_timeout = \"1s\"");
    let server = setup.start_server();
    wait_until("it has reported", || setup.directory.control("certificates").code() == Some(0));
    let agent = setup.agent().expect("it runs");
    assert!(send_signal("STOP", &agent));
    server.wait_for_error(&format!("agent {agent}: it hung for 2 s (`agent_hang_timeout`); killed and restarted"));
    wait_until("another one runs", || setup.agent().is_some_and(|other| other != agent));
}

#[test]
fn last_report_of_an_agent_that_has_ended_is_shown_as_such() {
    let setup = Setup::new("zone = \"example.com.zone\"");
    let _server = setup.start_server();
    let shown = |command: &str| setup.directory.control(command).text();
    wait_until("it has reported", || shown("certificates").contains("Connection refused"));
    let agent = setup.agent().expect("it runs");
    // The next agent cannot start.
    fs::rename(setup.directory.path().join("state"), setup.directory.path().join("state-before")).unwrap();
    setup.directory.write("state", b"a file");
    assert!(send_signal("KILL", &agent));
    wait_until("it has ended", || shown("status").contains("agent does not run; "));
    assert!(shown("status").contains("; it is being restarted, and this is its last report:\n"), "{}", shown("status"));
    let text = shown("certificates");
    assert!(text.starts_with("the agent is being restarted; this is its last report\nexample.com\n"), "{text}");
    fs::remove_file(setup.directory.path().join("state")).unwrap();
    fs::rename(setup.directory.path().join("state-before"), setup.directory.path().join("state")).unwrap();
    wait_until("the next one has reported", || shown("certificates").starts_with("example.com\n"));
}

#[test]
fn check_warns_of_a_machine_without_roots() {
    let directory = TestDirectory::with(&[("public/index.html", b"<!doctype html>"), ("no-roots.pem", b"")]);
    let config = "state = \"state\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[certificates]\nagree_to_terms = true\n\
                  [domain.\"a.test\"]\nsite = \"public\"\ncertificate = \"auto\"\n";
    directory.write("sanderling.toml", config.as_bytes());
    let mut check = sanderling();
    check.args(["check", "--config", &directory.argument("sanderling.toml")]);
    check.env("SSL_CERT_FILE", directory.argument("no-roots.pem")).env_remove("SSL_CERT_DIR");
    let ended = run_to_end(check, DEADLINE);
    let expected = "warning: this machine has no trusted root certificates; install the package ca-certificates, and \
                    restart the server\n";
    assert!(ended.code() == Some(0) && ended.errors.contains(expected), "{ended}");
}
