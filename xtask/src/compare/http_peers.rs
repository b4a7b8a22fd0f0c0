//! The HTTP servers of the comparison, each with settings as fair as we know how.
//!
//! Fair: one worker, no log of requests, connections kept alive for ever, the file cache on where there is one and as
//! large as the descriptors allow, accepts deferred where that is a choice, and of two ways to send a file the one that is
//! cheaper for its size.

use std::path::{Path, PathBuf};

use super::launch::{CONTROL, DESCRIPTOR_COUNT_MAX, Launch, Place};
use super::site::{LARGE_FOLDER, SMALL_FOLDER};

/// Connections that each server lets be open at once.
const CONNECTION_COUNT_MAX: usize = 12_000;
/// Descriptors that stay free for everything but connections and cached files.
const DESCRIPTORS_LEFT: usize = 500;

/// A server of the comparison by its name in the tables.
#[derive(Clone, Copy)]
pub(super) struct HttpPeer {
    pub(super) name: &'static str,
    pub(super) launch: fn(root: &Path, place: &Place) -> Launch,
}

/// Debian's servers, in the order of the tables.
pub(super) const PEERS: &[HttpPeer] = &[
    HttpPeer { name: "nginx", launch: nginx },
    HttpPeer { name: "h2o", launch: h2o },
    HttpPeer { name: "lighttpd", launch: lighttpd },
    HttpPeer { name: "caddy", launch: caddy },
];

/// Ours, the program being `program`.
pub(super) fn sanderling(program: &Path, root: &Path, place: &Place) -> Launch {
    let (address, workers, root) = (place.address, place.workers, root.display());
    let config = format!(
        "workers = {workers}

[http]
listen = [\"{address}\"]

[limits]
http_connections_max = {CONNECTION_COUNT_MAX}
http_requests_per_connection_max = 1000000000
http_header_deadline_ms = 600000
http_idle_timeout_ms = 3600000
http_send_timeout_ms = 3600000
open_files_max = 262144
watched_file_fresh_ms = 600000

[domain.\"example.com\"]
site = \"{root}\"
"
    );
    Launch {
        name: "sanderling",
        program: program.to_owned(),
        arguments: ["serve", "--config", "sanderling.toml", "--control", CONTROL].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        files: vec![("sanderling.toml", config)],
    }
}

/// The floor: what it answers stands in its arguments.
pub(super) fn floor(program: &Path, place: &Place, answer: &[&str]) -> Launch {
    let address = place.address.to_string();
    let arguments = ["http", &address].iter().chain(answer).map(|word| (*word).to_owned()).collect();
    Launch { name: "floor", program: program.to_owned(), arguments, environment: Vec::new(), files: Vec::new() }
}

fn nginx(root: &Path, place: &Place) -> Launch {
    let (address, workers, root) = (place.address, place.workers, root.display());
    // A cached file holds a descriptor, as a connection does.
    let cached_count_max = DESCRIPTOR_COUNT_MAX - CONNECTION_COUNT_MAX - DESCRIPTORS_LEFT;
    let config = format!(
        "daemon off;
user root;
worker_processes {workers};
pid nginx.pid;
error_log stderr crit;
events {{
    worker_connections {CONNECTION_COUNT_MAX};
}}
http {{
    types {{ text/html html; }}
    default_type application/octet-stream;
    access_log off;
    log_not_found off;
    client_header_timeout 3600s;
    send_timeout 3600s;
    keepalive_timeout 3600s;
    keepalive_requests 1000000000;
    open_file_cache max={cached_count_max} inactive=1h;
    open_file_cache_valid 1h;
    open_file_cache_min_uses 1;
    open_file_cache_errors on;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen {address} backlog=4096 deferred{reuseport};
        root {root};
        location /{SMALL_FOLDER}/ {{ sendfile off; }}
        location /{LARGE_FOLDER}/ {{ sendfile on; }}
    }}
}}
",
        reuseport = if workers > 1 { " reuseport" } else { "" },
    );
    let folder = place.folder.display();
    Launch {
        name: "nginx",
        program: PathBuf::from("nginx"),
        arguments: vec![
            "-p".into(),
            format!("{folder}/"),
            "-e".into(),
            "stderr".into(),
            "-c".into(),
            "nginx.conf".into(),
        ],
        environment: Vec::new(),
        files: vec![("nginx.conf", config)],
    }
}

fn h2o(root: &Path, place: &Place) -> Launch {
    let (port, workers, root) = (place.address.port(), place.workers, root.display());
    let config = format!(
        "user: root
num-threads: {workers}
num-name-resolution-threads: 1
max-connections: {CONNECTION_COUNT_MAX}
http1-request-timeout: 3600
http2-idle-timeout: 3600
listen:
  host: 127.0.0.1
  port: {port}
hosts:
  default:
    paths:
      /:
        file.dir: {root}
"
    );
    Launch {
        name: "h2o",
        program: PathBuf::from("h2o"),
        arguments: vec!["-c".into(), "h2o.conf".into()],
        environment: Vec::new(),
        files: vec![("h2o.conf", config)],
    }
}

fn lighttpd(root: &Path, place: &Place) -> Launch {
    // Of several processes the first one only watches the others; one process serves by itself.
    let processes = if place.workers > 1 { place.workers } else { 0 };
    let (port, root) = (place.address.port(), root.display());
    let config = format!(
        "server.bind = \"127.0.0.1\"
server.port = {port}
server.document-root = \"{root}\"
server.max-worker = {processes}
server.max-connections = {CONNECTION_COUNT_MAX}
server.max-fds = {DESCRIPTOR_COUNT_MAX}
server.listen-backlog = 4096
server.defer-accept = 1
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 3600
server.max-read-idle = 3600
server.max-write-idle = 3600
server.stat-cache-engine = \"simple\"
mimetype.assign = ( \".html\" => \"text/html\", \"\" => \"application/octet-stream\" )
"
    );
    Launch {
        name: "lighttpd",
        program: PathBuf::from("lighttpd"),
        arguments: vec!["-D".into(), "-f".into(), "lighttpd.conf".into()],
        environment: Vec::new(),
        files: vec![("lighttpd.conf", config)],
    }
}

fn caddy(root: &Path, place: &Place) -> Launch {
    let (address, folder, root) = (place.address, place.folder.display(), root.display());
    let config = format!(
        "{{
    admin off
    auto_https off
    log {{
        level ERROR
    }}
}}
http://{address} {{
    root * {root}
    file_server
}}
"
    );
    Launch {
        name: "caddy",
        program: PathBuf::from("caddy"),
        arguments: ["run", "--config", "Caddyfile", "--adapter", "caddyfile"].map(str::to_owned).to_vec(),
        environment: vec![
            ("GOMAXPROCS", place.workers.to_string()),
            ("HOME", folder.to_string()),
            ("XDG_DATA_HOME", folder.to_string()),
            ("XDG_CONFIG_HOME", folder.to_string()),
        ],
        files: vec![("Caddyfile", config)],
    }
}
