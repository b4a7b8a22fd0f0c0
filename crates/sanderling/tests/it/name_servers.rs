//! NSD, Knot and BIND as primary and as secondary servers of `example.com`.

use sanderling_testkit::dns::{self};
use sanderling_testkit::{Ended, TestDirectory, dig, send_signal, wait_until};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The secret of the key `transfer`.
pub(crate) const SECRET: &str = "c2VjcmV0IG9mIHRoZSB0cmFuc2ZlciB0ZXN0cyAxMjM=";
/// The key for `dig -y`.
pub(crate) const TSIG: &str = "hmac-sha256:transfer:c2VjcmV0IG9mIHRoZSB0cmFuc2ZlciB0ZXN0cyAxMjM=";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Nsd,
    Knot,
    Bind,
    /// Over TLS (RFC 9103).
    BindTls,
}

/// The zone's other server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// The program is a secondary of it.
    Primary(SocketAddr),
    /// The program is the primary, and sends NOTIFY to it.
    Secondary(SocketAddr),
}

impl Program {
    /// Starts the program at `address`; `zone` is the text of the zone, if it is the primary.
    pub(crate) fn start(self, address: SocketAddr, peer: Peer, zone: &str) -> NameServer {
        let home = TestDirectory::new();
        let config = match self {
            Program::Nsd => nsd_config(address, peer, home.path()),
            Program::Knot => knot_config(address, peer, home.path()),
            Program::Bind | Program::BindTls => bind_config(self, address, peer, home.path()),
        };
        home.write("config", config.as_bytes());
        if let Peer::Secondary(_) = peer {
            home.write("zone", zone.as_bytes());
        }
        let child = self.spawn(&home);
        NameServer { program: self, child, address, home }
    }

    /// Starts the program with the configuration that `config` makes of its folder.
    pub(crate) fn start_with(self, address: SocketAddr, config: impl FnOnce(&str) -> String) -> NameServer {
        let home = TestDirectory::new();
        home.write("config", config(&home.path().display().to_string()).as_bytes());
        let child = self.spawn(&home);
        NameServer { program: self, child, address, home }
    }

    fn spawn(self, home: &TestDirectory) -> Child {
        let (path, arguments): (_, &[&str]) = match self {
            Program::Nsd => ("/usr/sbin/nsd", &["-d", "-c"]),
            Program::Knot => ("/usr/sbin/knotd", &["-c"]),
            Program::Bind | Program::BindTls => ("/usr/sbin/named", &["-g", "-n", "1", "-c"]),
        };
        let log = std::fs::OpenOptions::new().create(true).append(true).open(home.path().join("log")).unwrap();
        let output = log.try_clone().unwrap();
        let mut command = Command::new(path);
        command.args(arguments).arg(home.argument("config")).stdin(Stdio::null()).stdout(output).stderr(log);
        command.spawn().unwrap_or_else(|error| panic!("{path}: {error}; `cargo xtask setup` installs it"))
    }
}

fn nsd_config(address: SocketAddr, peer: Peer, home: &Path) -> String {
    let (port, home) = (address.port(), home.display());
    let transfers = match peer {
        Peer::Primary(primary) => format!(
            "request-xfr: 127.0.0.1@{} transfer\n allow-notify: 127.0.0.1 transfer\n min-refresh-time: 1\n \
             min-retry-time: 1\n",
            primary.port()
        ),
        Peer::Secondary(secondary) => {
            format!(
                "notify: 127.0.0.1@{} transfer\n provide-xfr: 127.0.0.1 transfer\n store-ixfr: yes\n create-ixfr: yes\n",
                secondary.port()
            )
        }
    };
    format!(
        "server:\n ip-address: 127.0.0.1@{port}\n username: \"\"\n zonesdir: \"{home}\"\n database: \"\"\n \
         zonelistfile: \"{home}/zone.list\"\n xfrdfile: \"{home}/xfrd.state\"\n xfrdir: \"{home}\"\n \
         pidfile: \"{home}/pid\"\n server-count: 1\n\
         remote-control:\n control-enable: no\n\
         key:\n name: transfer\n algorithm: hmac-sha256\n secret: \"{SECRET}\"\n\
         zone:\n name: example.com\n zonefile: \"{home}/zone\"\n provide-xfr: 127.0.0.1 NOKEY\n {transfers}"
    )
}

fn knot_config(address: SocketAddr, peer: Peer, home: &Path) -> String {
    let (port, home) = (address.port(), home.display());
    let (other, role) = match peer {
        Peer::Primary(primary) => (primary, "master: other\n    refresh-min-interval: 2\n"),
        Peer::Secondary(secondary) => (secondary, "notify: other\n    zonefile-load: difference\n"),
    };
    format!(
        "server:\n  rundir: {home}\n  listen: 127.0.0.1@{port}\n  udp-workers: 1\n  tcp-workers: 1\n\
         key:\n  - id: transfer\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
         remote:\n  - id: other\n    address: 127.0.0.1@{}\n    key: transfer\n\
         acl:\n  - id: all\n    address: 127.0.0.1\n    action: transfer\n\
         \x20 - id: signed\n    key: transfer\n    action: [transfer, notify]\n\
         database:\n  storage: {home}\n\
         zone:\n  - domain: example.com\n    storage: {home}\n    file: zone\n    acl: [all, signed]\n    {role}",
        other.port()
    )
}

fn bind_config(program: Program, address: SocketAddr, peer: Peer, home: &Path) -> String {
    let (port, home) = (address.port(), home.display());
    let tls = if program == Program::BindTls { " tls xot" } else { "" };
    let role = match peer {
        Peer::Primary(primary) => format!(
            "type secondary; notify no; primaries {{ 127.0.0.1 port {} key transfer{tls}; }}; \
             allow-notify {{ key transfer; }};",
            primary.port()
        ),
        Peer::Secondary(secondary) => format!(
            "type primary; ixfr-from-differences yes; notify explicit; notify-delay 0; also-notify {{ 127.0.0.1 port {} key transfer; }};",
            secondary.port()
        ),
    };
    format!(
        "key \"transfer\" {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n\
         tls xot {{ protocols {{ TLSv1.3; }}; }};\n\
         options {{ directory \"{home}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
         recursion no; pid-file \"{home}/pid\"; session-keyfile \"{home}/key\"; empty-zones-enable no; \
         dnssec-validation no; allow-transfer {{ any; }}; min-refresh-time 1; min-retry-time 1; }};\ncontrols {{ }};\n\
         zone \"example.com\" {{ file \"{home}/zone\"; {role} }};\n"
    )
}

/// A running program.
pub(crate) struct NameServer {
    program: Program,
    child: Child,
    address: SocketAddr,
    home: TestDirectory,
}

impl NameServer {
    /// The records that it serves.
    pub(crate) fn records(&self) -> Vec<String> {
        records(&dig(self.address, &["example.com", "AXFR"]))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The path of a file in its folder.
    pub(crate) fn file(&self, name: &str) -> String {
        self.home.argument(name)
    }

    /// Replaces the configuration, which the program loads.
    pub(crate) fn replace_config(&self, config: &str) {
        self.home.replace("config", config.as_bytes());
        assert!(send_signal("HUP", &self.child.id().to_string()));
    }

    /// Replaces a primary's zone, which loads it.
    pub(crate) fn replace_zone(&self, zone: &str) {
        self.home.replace("zone", zone.as_bytes());
        assert!(send_signal("HUP", &self.child.id().to_string()));
    }

    /// Kills the program.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a primary with another zone, after [`NameServer::kill`].
    pub(crate) fn restart_with(&mut self, zone: &str) {
        self.home.replace("zone", zone.as_bytes());
        // BIND refuses a zone that is not the one at the end of its journal.
        let _ = std::fs::remove_file(self.home.path().join("zone.jnl"));
        self.restart();
    }

    /// Starts it again, after [`NameServer::kill`].
    pub(crate) fn restart(&mut self) {
        self.child = self.program.spawn(&self.home);
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            send_signal("TERM", &self.child.id().to_string());
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("{:?}:\n{}", self.program, lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

/// unbound, as the resolver of other zones.
pub(crate) struct Unbound {
    child: Child,
    address: SocketAddr,
    home: TestDirectory,
}

impl Drop for Unbound {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Unbound {
    /// Starts it at `address`, with `options` for its section `server`. The resolver queries the servers in `zones` for
    /// names in these zones; several servers of a zone follow each other.
    pub(crate) fn start(address: SocketAddr, options: &str, zones: &[(&str, SocketAddr)]) -> Unbound {
        let home = TestDirectory::new();
        let (folder, port) = (home.path().display(), address.port());
        let stub = |servers: &[(&str, SocketAddr)]| {
            let address = |(_, server): &(_, SocketAddr)| format!(" stub-addr: {}@{}\n", server.ip(), server.port());
            format!("stub-zone:\n name: {}\n{}", servers[0].0, servers.iter().map(address).collect::<String>())
        };
        let config = format!(
            "server:\n interface: 127.0.0.1@{port}\n username: \"\"\n chroot: \"\"\n directory: \"{folder}\"\n pidfile: \"{folder}/pid\"\n \
             do-daemonize: no\n use-syslog: no\n do-not-query-localhost: no\n local-zone: \"test.\" nodefault\n {options}\n\
             remote-control:\n control-enable: no\n{}",
            zones.chunk_by(|one, other| one.0 == other.0).map(stub).collect::<String>()
        );
        home.write("config", config.as_bytes());
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let mut command = Command::new("/usr/sbin/unbound");
        command.args(["-d", "-c", &home.argument("config")]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("unbound: {error}; `cargo xtask setup` installs it"));
        let unbound = Unbound { child, address, home };
        let (zone, _) = zones.first().expect("there is a zone");
        wait_until("unbound answers", || dns::serial(address, zone).is_some());
        unbound
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap()
    }
}

/// A transfer's records, without comments and signatures, in any order.
pub(crate) fn records(ended: &Ended) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().map(str::to_ascii_lowercase).collect::<Vec<_>>().join(" ");
    let text = ended.text();
    let lines = text.lines().filter(|line| !line.starts_with(';') && !line.trim().is_empty() && !line.contains("TSIG"));
    let mut records: Vec<String> = lines.map(words).collect();
    records.sort();
    records
}
