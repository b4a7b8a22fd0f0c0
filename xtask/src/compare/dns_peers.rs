//! The DNS servers of the comparison, each with settings as fair as we know how.
//!
//! Fair: one worker, no rate limit, no log of queries, minimal responses where that is a choice, no transfers, no
//! control socket, zones from the same files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::launch::{CONTROL, Launch, Place};

/// A zone that is to be answered for.
#[derive(Clone, Debug)]
pub(super) struct ZoneSource {
    /// Without the dot at its end.
    pub(super) apex: String,
    pub(super) file: PathBuf,
}

/// A server of the comparison by its name in the tables.
#[derive(Clone, Copy)]
pub(super) struct DnsPeer {
    pub(super) name: &'static str,
    pub(super) launch: fn(zones: &[ZoneSource], place: &Place) -> Launch,
}

/// Debian's servers, in the order of the tables.
pub(super) const PEERS: &[DnsPeer] = &[
    DnsPeer { name: "nsd", launch: nsd },
    DnsPeer { name: "knot", launch: knot },
    DnsPeer { name: "bind", launch: bind },
];

/// Ours, the program being `program`.
pub(super) fn sanderling(program: &Path, zones: &[ZoneSource], place: &Place) -> Launch {
    let start = format!(
        "workers = {workers}

[dns]
listen = [\"{address}\"]
",
        workers = place.workers,
        address = place.address,
    );
    let config =
        with_zones(start, zones, |zone| format!("\n[domain.\"{}\"]\nzone = \"{}\"\n", zone.apex, zone.file.display()));
    Launch {
        name: "sanderling",
        program: program.to_owned(),
        arguments: ["serve", "--config", "sanderling.toml", "--control", CONTROL].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        files: vec![("sanderling.toml", config)],
    }
}

/// The floor, which knows no zone.
pub(super) fn floor(program: &Path, place: &Place) -> Launch {
    Launch {
        name: "floor",
        program: program.to_owned(),
        arguments: vec!["dns".into(), place.address.to_string()],
        environment: Vec::new(),
        files: Vec::new(),
    }
}

fn nsd(zones: &[ZoneSource], place: &Place) -> Launch {
    let start = format!(
        "server:
  ip-address: {ip}@{port}
  server-count: {workers}
  reuseport: {reuseport}
  username: \"\"
  chroot: \"\"
  zonesdir: \"{folder}\"
  database: \"\"
  pidfile: \"\"
  xfrdfile: \"\"
  xfrdir: \"{folder}\"
  zonelistfile: \"{folder}/zone.list\"
  logfile: \"{folder}/log\"
  verbosity: 0
  rrl-ratelimit: 0
  minimal-responses: yes
  tcp-count: 1000
  tcp-query-count: 0
  round-robin: no
remote-control:
  control-enable: no
",
        ip = place.address.ip(),
        port = place.address.port(),
        workers = place.workers,
        reuseport = if place.workers > 1 { "yes" } else { "no" },
        folder = place.folder.display(),
    );
    let config = with_zones(start, zones, |zone| {
        format!("zone:\n  name: \"{}\"\n  zonefile: \"{}\"\n", zone.apex, zone.file.display())
    });
    Launch {
        name: "nsd",
        program: PathBuf::from("nsd"),
        arguments: vec!["-d".into(), "-c".into(), "nsd.conf".into()],
        environment: Vec::new(),
        files: vec![("nsd.conf", config)],
    }
}

fn knot(zones: &[ZoneSource], place: &Place) -> Launch {
    let start = format!(
        "server:
  rundir: \"{folder}\"
  listen: {ip}@{port}
  udp-workers: {workers}
  tcp-workers: {workers}
  background-workers: 1
  tcp-reuseport: {reuseport}
database:
  storage: \"{folder}\"
log:
- target: stderr
  any: error
template:
- id: default
  storage: \"{folder}\"
  zonefile-sync: -1
  zonefile-load: whole
  journal-content: none
  semantic-checks: off
zone:
",
        ip = place.address.ip(),
        port = place.address.port(),
        workers = place.workers,
        reuseport = if place.workers > 1 { "on" } else { "off" },
        folder = place.folder.display(),
    );
    let config =
        with_zones(start, zones, |zone| format!("- domain: \"{}.\"\n  file: \"{}\"\n", zone.apex, zone.file.display()));
    Launch {
        name: "knot",
        program: PathBuf::from("knotd"),
        arguments: vec!["-c".into(), "knot.conf".into()],
        environment: Vec::new(),
        files: vec![("knot.conf", config)],
    }
}

fn bind(zones: &[ZoneSource], place: &Place) -> Launch {
    let start = format!(
        "options {{
  directory \"{folder}\";
  listen-on port {port} {{ {ip}; }};
  listen-on-v6 {{ none; }};
  pid-file none;
  session-keyfile none;
  recursion no;
  allow-query {{ any; }};
  allow-transfer {{ none; }};
  notify no;
  querylog no;
  minimal-responses yes;
  empty-zones-enable no;
  zone-statistics none;
  tcp-clients 1000;
}};
controls {{ }};
logging {{ category default {{ null; }}; }};
",
        ip = place.address.ip(),
        port = place.address.port(),
        folder = place.folder.display(),
    );
    let config = with_zones(start, zones, |zone| {
        format!("zone \"{}\" {{ type primary; file \"{}\"; }};\n", zone.apex, zone.file.display())
    });
    let workers = place.workers.to_string();
    Launch {
        name: "bind",
        program: PathBuf::from("named"),
        arguments: ["-f", "-n", &workers, "-c", "named.conf"].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        files: vec![("named.conf", config)],
    }
}

fn with_zones(mut config: String, zones: &[ZoneSource], section: impl Fn(&ZoneSource) -> String) -> String {
    for zone in zones {
        write!(config, "{}", section(zone)).expect("a string takes whatever is written");
    }
    config
}
