//! Servers for tests, and tests in processes of their own.

use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_server::{
    BuiltinFile, DefaultSite, Options, Role, Root, Server, Site, SiteOptions, SiteRules, Sites, Snapshot, SocketSet,
};
use sanderling_site_rules::{
    Backend, BackendAddress, BackendProtocol, BackendRoute, BackendServer, Distribution, Pattern, Route, RouteAction,
    Routes,
};
use sanderling_testkit::{DEADLINE, wait_until};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The only file of [`builtin`].
pub(crate) const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: b"content" }];
/// For the address of `example`, which is in no zone.
pub(crate) const QUERY: &[u8] = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";

/// Reuseport sockets in `count` sets, with their addresses for HTTP and DNS.
pub(crate) fn bind(count: usize) -> (Vec<SocketSet>, SocketAddr, SocketAddr) {
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(any).expect("bound");
    let (socket, stream) = Socket::bind_with_listener(any).expect("bound");
    let (http, dns) = (listener.local_address().expect("bound"), socket.local_address().expect("bound"));
    let set = |listener, stream, socket| SocketSet {
        streams: vec![(Role::HTTP, Arc::new(listener)), (Role::DNS, Arc::new(stream))],
        datagrams: vec![(Role::DNS, Arc::new(socket))],
    };
    let another = |address| Listener::bind_reuseport(address).expect("bound");
    let mut sets = vec![set(listener, stream, socket)];
    sets.extend((1..count).map(|_| set(another(http), another(dns), Socket::bind_reuseport(dns).expect("bound"))));
    (sets, http, dns)
}

/// A site for every host, and no zone.
pub(crate) fn snapshot(root: Root) -> Snapshot {
    let site = Site { id: 0, hosts: Vec::new(), root, options: SiteOptions::default() };
    Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []))
}

/// All requests are passed on to a backend at `address`.
pub(crate) fn backend_snapshot(address: SocketAddr) -> Snapshot {
    let backend = Backend {
        servers: vec![BackendServer { address: BackendAddress::Tcp(address), weight: 1 }],
        protocol: BackendProtocol::Http1,
        tls: None,
        connect_timeout: DEADLINE,
        idle_timeout: DEADLINE,
        connections_max: 1,
        distribution: Distribution::default(),
    };
    let pass = RouteAction::Pass(Box::new(BackendRoute::new(Arc::new(backend), DEADLINE)));
    let route = Route::new("/*", Pattern::parse("/*", &[]).expect("a pattern"), pass);
    let rules = SiteRules { routes: Arc::new(Routes::new([route])), ..SiteRules::default() };
    let options = SiteOptions { rules: Some(Box::new(rules)), ..SiteOptions::default() };
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Builtin(&[]), options };
    Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []))
}

pub(crate) fn builtin() -> Snapshot {
    snapshot(Root::Builtin(FILES))
}

/// Waits until the file is older than files that may still be written.
pub(crate) fn wait_until_readable(path: &Path) {
    let age = || std::fs::metadata(path).and_then(|metadata| metadata.modified()).expect("a time").elapsed();
    wait_until("the file is read", || age().is_ok_and(|age| age > Duration::from_millis(30)));
}

/// The defaults, but for any number of DNS errors: [`QUERY`] asks for a name of no zone.
pub(crate) fn unlimited_errors() -> Options {
    let mut options = Options::default();
    options.dns.udp_errors_per_second_max = u32::MAX;
    options
}

/// Serves while `act` runs.
pub(crate) fn serve<R>(
    snapshot: Snapshot,
    options: Options,
    sockets: &[SocketSet],
    worker_count: usize,
    act: impl FnOnce(&Server) -> R,
) -> R {
    let server = Server::new(snapshot, options, Duration::ZERO);
    server.run(sockets, worker_count, act).expect("served")
}

/// The variable that is set in the process of [`command_alone`].
const ALONE: &str = "SANDERLING_TEST_ALONE";

/// Whether this is the process of [`command_alone`].
pub(crate) fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs a test in a process of its own, if it measures the process; `true` in that process.
#[track_caller]
pub(crate) fn run_alone(test: &str) -> bool {
    if is_alone() {
        return true;
    }
    let output = command_alone(Command::new(this_program()), test).output().expect("started");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    println!("{text}");
    assert!(output.status.success(), "{test}: {}", output.status);
    false
}

/// The command that runs a test alone, where `program` starts this program, perhaps by another one.
pub(crate) fn command_alone(mut program: Command, test: &str) -> Command {
    program.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
    program
}

pub(crate) fn this_program() -> PathBuf {
    std::env::current_exe().expect("the kernel names the running program")
}
