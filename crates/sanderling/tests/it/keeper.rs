//! The keeper, which holds the private keys: handshakes of the whole program, exits of its processes, and a client that
//! lies to the keeper.

mod lies;
mod memory;

use sanderling_testkit::{
    ListenerCounts, RawConnection, TestDirectory, TestServer, children_of, curl, run_program, send_signal, server_pids,
    wait_until,
};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const HTTP: ListenerCounts = ListenerCounts { http: 1, dns: 0 };
const CONFIG: &str = "workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\nlisten = [\"127.0.0.1:0\"]\n\
    [domain.\"example.com\"]\nsite = \"public\"\ncertificate = { chain = \"chain.pem\", key = \"key.pem\" }\n";

/// Handshakes have time also on a busy machine.
const PATIENT: &str = "[limits]\ntls_handshake_timeout_ms = 60000\n";

/// A directory with a site and a certificate whose key has this type, as arguments of `openssl req`.
fn domain(config: &str, key_type: &str) -> TestDirectory {
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n"), ("sanderling.toml", config.as_bytes())]);
    issue(&directory, key_type);
    directory
}

const P256: &str = "ec -pkeyopt ec_paramgen_curve:P-256";

fn issue(directory: &TestDirectory, key_type: &str) {
    let [chain, key] = ["new-chain.pem", "new-key.pem"].map(|name| directory.argument(name));
    let arguments =
        format!("req -x509 -newkey {key_type} -nodes -days 30 -subj /CN=test -addext subjectAltName=DNS:example.com");
    let arguments: Vec<&str> = arguments.split(' ').chain(["-keyout", &key, "-out", &chain]).collect();
    let ended = run_program("openssl", "openssl", &arguments);
    assert!(ended.status.success(), "{ended}");
    for name in ["chain.pem", "key.pem"] {
        fs::rename(directory.argument(&format!("new-{name}")), directory.argument(name)).expect("renamed");
    }
}

fn start(directory: &TestDirectory) -> (TestServer, SocketAddr) {
    let mut server = TestServer::start_command(directory.serve_command(), HTTP);
    let https = server.encrypted("https");
    (server, https)
}

/// Whether a new connection gets the page, with the certificate that the directory has now.
fn is_served(directory: &TestDirectory, https: SocketAddr, options: &[&str]) -> bool {
    let (certificate, connect_to) = (directory.argument("chain.pem"), format!("::{https}"));
    let common = ["-sS", "-m", "60", "--cacert", &certificate, "--connect-to", &connect_to, "https://example.com/"];
    curl(&[&common[..], options].concat()).text() == "hi\n"
}

/// A supervisor's running keepers.
fn keepers(supervisor: u32) -> Vec<u32> {
    let is_keeper = |pid: &u32| {
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command_line.split(|byte| *byte == 0).any(|word| word == b"internal-keeper")
    };
    children_of(supervisor).unwrap_or_default().into_iter().filter(is_keeper).collect()
}

fn keeper(server: &TestServer) -> u32 {
    wait_until("one keeper", || keepers(server.process_id()).len() == 1);
    keepers(server.process_id())[0]
}

/// A number of the line of `sanderling status` about the keeper.
fn count(directory: &TestDirectory, name: &str) -> u64 {
    let status = directory.control("status").text();
    let line = status.lines().find(|line| line.starts_with("keeper ")).unwrap_or_else(|| panic!("{status}"));
    let found = line.split("; ").find_map(|part| part.strip_prefix(name)?.strip_prefix(": "));
    found.map_or(0, |number| number.parse().expect("a number"))
}

#[test]
fn keys_of_each_type_sign_handshakes_of_both_versions() {
    let directory = domain(CONFIG, P256);
    let (_server, https) = start(&directory);
    let mut handshake_count = 0;
    for key_type in [P256, "ec -pkeyopt ec_paramgen_curve:P-384", "rsa:2048", "rsa:4096", "ed25519"] {
        issue(&directory, key_type);
        let reloaded = directory.control("reload");
        assert!(reloaded.status.success() && reloaded.text().contains("no connection was closed"), "{reloaded}");
        for version in ["--tlsv1.3", "--tls-max=1.2"] {
            let version: Vec<&str> = version.split('=').collect();
            assert!(is_served(&directory, https, &version), "{key_type} {version:?}");
            handshake_count += 1;
        }
    }
    for curve in ["X25519", "P-256", "P-384"] {
        assert!(is_served(&directory, https, &["--tls-max", "1.2", "--curves", curve]), "{curve}");
        handshake_count += 1;
    }
    wait_until("the signatures are counted", || count(&directory, "signatures") == handshake_count);
    let metrics = directory.control_with("status", &["--metrics"]).text();
    assert!(metrics.contains(&format!("sanderling_keeper_signatures_total {handshake_count}\n")), "{metrics}");
    assert!(metrics.contains("sanderling_keeper_refused_total{reason=\"unknown_key\"} 0\n"), "{metrics}");
}

/// An open connection.
struct OpenConnection(Child);

impl OpenConnection {
    fn open(https: SocketAddr) -> OpenConnection {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-quiet", "-servername", "example.com", "-connect", &https.to_string()]);
        let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut connection = OpenConnection(client.spawn().expect("openssl is installed"));
        connection.get();
        connection
    }

    /// Requests the page.
    fn get(&mut self) {
        let request = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
        self.0.stdin.as_mut().expect("a pipe").write_all(request).expect("connected");
        let mut lines = BufReader::new(self.0.stdout.as_mut().expect("a pipe")).lines();
        assert!(lines.any(|line| line.expect("text") == "hi"), "the connection was closed");
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn replaced_process_finishes_handshakes_with_its_certificate() {
    /// TLS 1.2 with one suite (ECDHE, ECDSA), one group (P-256) and one signature scheme.
    const HELLO: [&[u8]; 4] = [
        &[22, 3, 1, 0, 63, 1, 0, 0, 59, 3, 3],
        &[7; 32],
        &[0, 0, 2, 0xc0, 0x2b, 1, 0],
        &[0, 16, 0, 13, 0, 4, 0, 2, 4, 3, 0, 10, 0, 4, 0, 2, 0, 23],
    ];
    let directory = domain(CONFIG, P256);
    let (_server, https) = start(&directory);
    let hello = HELLO.concat();
    let mut client = RawConnection::open(https);
    client.send(&hello[..9]);
    // With another number of workers there is a new process. The next but one has nothing of the first one.
    for workers in ["workers = 1", "workers = 2", "workers = 1"] {
        issue(&directory, P256);
        directory.replace("sanderling.toml", CONFIG.replace("workers = 2", workers).as_bytes());
        let reloaded = directory.control("reload");
        assert!(reloaded.status.success() && !reloaded.text().contains("no connection was closed"), "{reloaded}");
        assert!(is_served(&directory, https, &[]));
    }
    client.send(&hello[9..]);
    // A handshake message, not an alert (RFC 5246 §6.2.1).
    assert_eq!(client.read_bytes(1), [22]);
}

#[test]
fn killed_keeper_is_replaced_and_no_handshake_fails() {
    let directory = domain(&format!("{CONFIG}{PATIENT}"), P256);
    let (server, https) = start(&directory);
    let server_process = server.server_process_id();
    let kill_count: u32 = sanderling_testkit::number_or("SANDERLING_KILLS", 5);
    let mut connection = OpenConnection::open(https);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut counts = [0_u32; 2];
                while !is_done.load(Ordering::Relaxed) {
                    counts[usize::from(is_served(&directory, https, &[]))] += 1;
                }
                counts
            })
        });
        let mut longest = Duration::ZERO;
        for _ in 0..kill_count {
            let pid = keeper(&server);
            assert!(send_signal("KILL", &pid.to_string()));
            let start = Instant::now();
            connection.get();
            wait_until("another keeper signs", || {
                keepers(server.process_id()).iter().any(|other| *other != pid) && is_served(&directory, https, &[])
            });
            longest = longest.max(start.elapsed());
        }
        is_done.store(true, Ordering::Relaxed);
        let counts = clients.map(|client| client.join().expect("no panic"));
        println!("at most {longest:?} until another keeper has signed; failed and successful clients: {counts:?}");
        assert!(counts.iter().all(|[failed_count, _]| *failed_count == 0), "{counts:?}");
    });
    assert_eq!(server.server_process_id(), server_process);
    // On a slow machine, a keeper that has answered nothing for `hang_timeout` may have been replaced as well.
    assert!(count(&directory, "restarts") >= u64::from(kill_count), "{}", server.errors());
    assert!(server.errors().contains("was killed by signal 9; restarting"), "{}", server.errors());
}

#[test]
fn handshakes_wait_for_a_keeper_that_hangs_until_it_goes_on_or_is_replaced() {
    let directory = domain(&format!("{CONFIG}{PATIENT}hang_timeout_ms = 5000\n"), P256);
    let (server, https) = start(&directory);
    let mut connection = OpenConnection::open(https);
    let pid = keeper(&server);
    thread::scope(|scope| {
        assert!(send_signal("STOP", &pid.to_string()));
        let clients = [(); 3].map(|()| scope.spawn(|| is_served(&directory, https, &[])));
        // Such handshakes do not delay others.
        connection.get();
        assert!(send_signal("CONT", &pid.to_string()));
        assert!(clients.into_iter().all(|client| client.join().expect("no panic")));
        assert!(send_signal("STOP", &pid.to_string()));
        let clients = [(); 3].map(|()| scope.spawn(|| is_served(&directory, https, &[])));
        connection.get();
        assert!(clients.into_iter().all(|client| client.join().expect("no panic")));
    });
    server.wait_for_error(&format!("keeper {pid} hung (`hang_timeout`)"));
    assert_ne!(keeper(&server), pid);
}

#[test]
fn key_is_used_after_a_crash_an_upgrade_and_a_renewal() {
    let directory = domain(CONFIG, P256);
    let (server, https) = start(&directory);
    let first = keeper(&server);
    let server_process = server.server_process_id();
    assert!(send_signal("KILL", &server_process.to_string()));
    wait_until("another server process", || server_pids(server.process_id()).iter().any(|pid| *pid != server_process));
    wait_until("it serves", || is_served(&directory, https, &[]));
    assert_eq!(keeper(&server), first);
    // The key of files that can be used no more is still there in another keeper, and after the upgrade.
    let good = fs::read(directory.argument("chain.pem")).expect("read");
    directory.write("good.pem", &good);
    directory.replace("key.pem", b"nonsense");
    let is_served_as_before = || {
        let (certificate, connect_to) = (directory.argument("good.pem"), format!("::{https}"));
        let arguments = ["-sS", "--cacert", &certificate, "--connect-to", &connect_to, "https://example.com/"];
        curl(&arguments).text() == "hi\n"
    };
    server.wait_for_error("the key file has no private key: it is not PEM");
    assert!(send_signal("KILL", &first.to_string()));
    wait_until("another keeper", || keepers(server.process_id()).iter().any(|pid| *pid != first));
    wait_until("the last good key signs", is_served_as_before);
    let second = keeper(&server);
    let upgraded = directory.control("upgrade");
    assert!(upgraded.status.success(), "{upgraded}");
    wait_until("the next keeper", || keepers(server.process_id()).iter().any(|pid| *pid != second));
    assert!(is_served_as_before());
    wait_until("the keeper before ends", || !keepers(server.process_id()).contains(&second));
    issue(&directory, "rsa:2048");
    wait_until("the new key signs", || is_served(&directory, https, &[]));
}

#[test]
fn keeper_outlives_the_supervisor_and_not_the_server_process() {
    let directory = domain(CONFIG, P256);
    let (server, https) = start(&directory);
    let (pid, supervisor) = (keeper(&server), server.process_id());
    assert!(send_signal("KILL", &supervisor.to_string()));
    server.wait_for_error("lost the supervisor; still serving");
    assert!(is_served(&directory, https, &[]));
    let adopting = TestServer::start_command(directory.serve_command(), HTTP);
    wait_until("the new keeper signs", || is_served(&directory, https, &[]));
    assert_ne!(keeper(&adopting), pid);
    let exists = || fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    wait_until("the keeper before ends", || !exists());
    adopting.stop();
    server.end();
}

/// The keys of good versions end with their supervisor. Without its key, a version would get handshakes that fail, and
/// refusals that look like an attack.
#[test]
fn supervisor_that_adopts_a_server_process_uses_no_version_without_its_key() {
    let directory = domain(CONFIG, P256);
    for name in ["chain.pem", "key.pem"] {
        fs::copy(directory.argument(name), directory.argument(&format!("ecdsa-{name}"))).expect("copied");
    }
    issue(&directory, "rsa:2048");
    let both = CONFIG.replace("{ chain", "[{ chain = \"ecdsa-chain.pem\", key = \"ecdsa-key.pem\" }, { chain");
    directory.replace("sanderling.toml", both.replace("key.pem\" }\n", "key.pem\" }]\n").as_bytes());
    let (server, _) = start(&directory);
    directory.replace("ecdsa-chain.pem", b"nonsense");
    server.wait_for_error("the chain has no certificate: it is not PEM");
    assert!(send_signal("KILL", &server.process_id().to_string()));
    server.wait_for_error("lost the supervisor; still serving");
    let (adopting, https) = start(&directory);
    wait_until("the certificate with a key is served", || is_served(&directory, https, &[]));
    let status = directory.control("status").text();
    assert!(status.contains("certificate   example.com: UNAVAILABLE; ERROR"), "{status}");
    assert_eq!(count(&directory, "refused, unknown key"), 0);
    adopting.stop();
    server.end();
}

#[test]
fn keys_are_in_the_server_process_if_the_configuration_says_so() {
    let directory = domain(&format!("keys = \"in-process\"\n{CONFIG}"), P256);
    let (server, https) = start(&directory);
    assert!(is_served(&directory, https, &[]));
    assert!(keepers(server.process_id()).is_empty());
    assert!(!directory.control("status").text().contains("keeper"));
    for (keys, keeper_count) in [("keeper", 1), ("in-process", 0)] {
        directory.replace("sanderling.toml", format!("keys = \"{keys}\"\n{CONFIG}").as_bytes());
        let reloaded = directory.control("reload");
        assert!(reloaded.text().contains("because `keys` has changed"), "{reloaded}");
        assert!(is_served(&directory, https, &[]));
        wait_until("the keepers", || keepers(server.process_id()).len() == keeper_count);
    }
}

#[test]
fn keeper_has_no_rights_and_no_files() {
    let directory = domain(CONFIG, P256);
    let (server, https) = start(&directory);
    assert!(is_served(&directory, https, &[]));
    let pid = keeper(&server);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name}: {status}")).trim()
    };
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(name), "0000000000000000", "{name}");
    }
    assert_eq!([field("NoNewPrivs"), field("Seccomp")], ["1", "2"]);
    if sanderling_os::process::effective_uid() == 0 {
        assert!(field("Uid").split_whitespace().all(|id| id != "0"), "{status}");
        // Three standard streams, the supervisor, and sockets to the workers.
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("readable by root") {
            let entry = entry.expect("listed");
            let number: u32 = entry.file_name().to_string_lossy().parse().expect("a number");
            let target = fs::read_link(entry.path()).expect("a link");
            assert!(number < 3 || target.to_string_lossy().starts_with("socket:"), "{number}: {}", target.display());
        }
    }
}
