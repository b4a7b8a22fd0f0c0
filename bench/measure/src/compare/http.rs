//! The HTTP workloads: all servers with the same files and the same requests.

use crate::compare::loads::{Load, h2load, wrk, wrk_missing};
use crate::compare::peers::{self, Content};
use crate::compare::rounds::{Contestant, Outcome, Rounds};
use crate::compare::server::{Bench, Server};
use fastrand::Rng;
use loadgen::client;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROTATION_COUNT: usize = 1000;
pub(crate) const CONNECTION_COUNT: usize = 64;
const PIPELINE_DEPTH: usize = 16;
/// The file of most workloads, and of the checks.
pub(crate) const SMALL: &str = "/small/512";
/// The path for HTTP/2.
pub(crate) const KIB: &str = "/small/1024";
/// Sanderling does not share the pages of a file that was written recently; the files are older when they count.
const SETTLED_AFTER: Duration = Duration::from_secs(11);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Plain,
    /// With the server's entity tag.
    NotModified,
    NotFound,
    NewConnection,
    Pipelined,
    Rotation,
    /// By h2load instead of wrk.
    H2load,
}

/// Requests for one path, in one of the variants of a comparison.
pub(crate) struct Workload<V> {
    pub(crate) title: &'static str,
    pub(crate) variant: V,
    pub(crate) path: &'static str,
    pub(crate) content_bytes: usize,
    pub(crate) connection_count: usize,
    pub(crate) is_quick: bool,
}

const fn plain(title: &'static str, path: &'static str, content_bytes: usize) -> Workload<Variant> {
    let (variant, connection_count) = (Variant::Plain, CONNECTION_COUNT);
    Workload { title, variant, path, content_bytes, connection_count, is_quick: false }
}

const WORKLOADS: &[Workload<Variant>] = &[
    Workload { is_quick: true, ..plain("512 B", SMALL, 512) },
    plain("4 KiB", "/small/4096", 4096),
    plain("16 KiB", "/large/16384", 16 * 1024),
    Workload { is_quick: true, ..plain("100 KiB", "/large/102400", 100 * 1024) },
    plain("1 MiB", "/large/1048576", 1024 * 1024),
    Workload { variant: Variant::Rotation, ..plain("1,000 files", SMALL, 512) },
    Workload { variant: Variant::NotModified, ..plain("304", SMALL, 512) },
    Workload { variant: Variant::NotFound, ..plain("404", "/small/missing", 100) },
    Workload { variant: Variant::NewConnection, ..plain("new connections", SMALL, 512) },
    Workload { variant: Variant::Pipelined, ..plain("16 pipelined", SMALL, 512) },
    Workload { connection_count: 1000, ..plain("1,000 connections", SMALL, 512) },
    Workload { variant: Variant::H2load, ..plain("512 B by h2load", SMALL, 512) },
];

pub(crate) fn run(rounds: &mut Rounds) -> anyhow::Result<Vec<Outcome>> {
    let site = Site::create(&rounds.bench.folder.join("site"), ROTATION_COUNT)?;
    let servers = start_servers(&rounds.bench, &site, "http", 1)?;
    let mut outcomes = Vec::new();
    let is_quick = rounds.is_quick;
    for workload in WORKLOADS.iter().filter(|workload| !is_quick || workload.is_quick) {
        let bytes = workload.content_bytes.to_string();
        let response = match workload.variant {
            Variant::NotModified => vec!["0".into(), "304".into()],
            Variant::NotFound => vec![bytes, "404".into()],
            Variant::NewConnection => vec![bytes, "close".into()],
            _ => vec![bytes],
        };
        let floor = start_floor(&rounds.bench, "http-floor", response)?;
        let mut contestants = Vec::new();
        for server in std::iter::once(&floor).chain(&servers) {
            match workload.load(server, &rounds.bench.folder, rounds.length) {
                Ok(load) => contestants.push(Contestant { server, load }),
                Err(error) => println!("{}: without {}: {error:#}", workload.title, server.name),
            }
        }
        outcomes.push(rounds.compare(workload.title, &contestants, true));
    }
    Ok(outcomes)
}

impl Workload<Variant> {
    fn load(&self, server: &Server, folder: &Path, length: Duration) -> anyhow::Result<Load> {
        let (address, path, count) = (server.address(), self.path, self.connection_count);
        let get = |fields: &str| get(address, path, &format!("{fields}Connection: close\r\n"));
        let mut field = String::new();
        if self.variant == Variant::NotModified {
            // The floor has no tag.
            let tag = get("")?.0.entity_tag.unwrap_or_default();
            field = format!("If-None-Match: {tag}");
        }
        let fields = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        let (response, _) = get(&fields)?;
        let expected = match self.variant {
            Variant::NotModified => (304, 0),
            // The content of an error is up to the server.
            Variant::NotFound => (404, response.content.len()),
            _ => (200, self.content_bytes),
        };
        let (status, content_bytes) = (response.status, response.content.len());
        anyhow::ensure!((status, content_bytes) == expected, "status {status} with {content_bytes} bytes");
        let script = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).map(|()| path.display().to_string())
        };
        Ok(match self.variant {
            Variant::H2load => h2load(address, path, count, &["--h1"], length),
            Variant::Plain => wrk(address, path, count, &[], length),
            Variant::NotFound => wrk_missing(address, path, count, length),
            Variant::NotModified => wrk(address, path, count, &["-H", &field], length),
            Variant::NewConnection => wrk(address, path, count, &["-H", "Connection: close"], length),
            Variant::Pipelined => {
                let file = script("pipeline.lua", pipeline_script(path))?;
                wrk(address, path, count, &["-s", &file], length)
            }
            Variant::Rotation => {
                let file = script("rotation.lua", rotation_script(ROTATION_COUNT))?;
                wrk(address, path, count, &["-s", &file], length)
            }
        })
    }
}

pub(crate) fn answers(server: SocketAddr) -> bool {
    get(server, SMALL, "Connection: close\r\n").is_ok_and(|(response, _)| response.status == 200)
}

/// A request with the address as host, which is the name of Caddy's site.
pub(crate) fn get(server: SocketAddr, path: &str, fields: &str) -> std::io::Result<(client::Response, TcpStream)> {
    client::get(server, &server.to_string(), path, fields)
}

/// Starts all servers except the floor on a site.
pub(crate) fn start_servers(bench: &Bench, site: &Site, name: &str, workers: usize) -> anyhow::Result<Vec<Server>> {
    let servers = bench.start_all(&peers::HTTP[1..], name, workers, &Content::Site(site.root.clone()), answers)?;
    std::thread::sleep(SETTLED_AFTER.saturating_sub(site.written.elapsed()));
    Ok(servers)
}

/// Starts the floor with a response: the length of its content, its status, and `close`.
pub(crate) fn start_floor(bench: &Bench, name: &str, response: Vec<String>) -> anyhow::Result<Server> {
    let answers = |address| get(address, "/", "Connection: close\r\n").is_ok();
    bench.start(&peers::HTTP[0], bench.place(name, 1)?, &Content::Response(response), answers)
}

pub(crate) struct Site {
    pub(crate) root: PathBuf,
    written: Instant,
}

impl Site {
    /// Writes the files of the workloads, and `rotation_count` small ones.
    pub(crate) fn create(root: &Path, rotation_count: usize) -> anyhow::Result<Site> {
        let write = |path: &str, bytes: usize| {
            let path = root.join(path.trim_start_matches('/'));
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, vec![b'x'; bytes])
        };
        for workload in WORKLOADS.iter().filter(|workload| workload.variant == Variant::Plain) {
            write(workload.path, workload.content_bytes)?;
        }
        write(KIB, 1024)?;
        for number in 0..rotation_count {
            write(&rotation_path(number), 512)?;
        }
        Ok(Site { root: root.to_owned(), written: Instant::now() })
    }
}

fn rotation_path(number: usize) -> String {
    format!("/small/{:03}/{number:06}.html", number / 1000)
}

/// A script of wrk that requests `count` files in random order.
pub(crate) fn rotation_script(count: usize) -> String {
    let mut numbers: Vec<usize> = (0..count).collect();
    Rng::with_seed(1).shuffle(&mut numbers);
    let paths: Vec<String> = numbers.into_iter().map(|number| format!("\"{}\"", rotation_path(number))).collect();
    let paths = paths.join(",\n");
    format!(
        "local paths = {{{paths}}}\nlocal requests, at = {{}}, 0\n\
         init = function(args)\n  for i, path in ipairs(paths) do requests[i] = wrk.format(nil, path) end\nend\n\
         request = function()\n  at = at % #requests + 1\n  return requests[at]\nend\n"
    )
}

/// A script of wrk that sends several requests at once.
fn pipeline_script(path: &str) -> String {
    format!(
        "local requests\ninit = function(args)\n  \
         requests = string.rep(wrk.format(nil, \"{path}\"), {PIPELINE_DEPTH})\nend\n\
         request = function() return requests end\n"
    )
}
