//! The HTTP workloads: every server asked for the same files in the same ways.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client;
use super::http_peers::{self, PEERS};
use super::launch::{Launch, Place};
use super::load::{Dialect, Expected, Load, SECONDS};
use super::programs::Programs;
use super::rounds::{Contestant, Counting, Outcome, Rounds};
use super::server::Server;
use super::site::{self, Site};

/// Files in rotation.
const ROTATION_COUNT: usize = 1000;
/// Connections that are open at once where nothing else is said.
const CONNECTION_COUNT: usize = 64;
/// Requests that are sent at once where they are.
const PIPELINE_DEPTH: usize = 16;

/// What is asked, and in which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    /// With the entity tag that the server gave.
    Unmodified,
    /// For a file that is not there.
    Missing,
    /// On a new connection each.
    NewConnection,
    Pipelined,
    Rotation,
    /// By h2load: a second opinion on wrk.
    H2load,
}

struct Workload {
    title: &'static str,
    way: Way,
    path: &'static str,
    connection_count: usize,
    content_bytes: usize,
    /// Whether a quick run has it.
    is_quick: bool,
}

const fn plain(title: &'static str, path: &'static str, content_bytes: usize) -> Workload {
    Workload { title, way: Way::Plain, path, connection_count: CONNECTION_COUNT, content_bytes, is_quick: false }
}

const SMALL: &str = "/small/512";
const WORKLOADS: &[Workload] = &[
    Workload { is_quick: true, ..plain("512 B", SMALL, 512) },
    Workload { is_quick: true, ..plain("100 KiB", "/large/102400", 100 * 1024) },
    plain("4 KiB", "/small/4096", 4096),
    plain("16 KiB", "/large/16384", 16 * 1024),
    plain("1 MiB", "/large/1048576", 1024 * 1024),
    Workload { way: Way::Rotation, ..plain("1,000 files in rotation", SMALL, 512) },
    Workload { way: Way::Unmodified, ..plain("Not modified (304)", SMALL, 512) },
    Workload { way: Way::Missing, ..plain("Not found (404)", "/small/missing", 100) },
    Workload { way: Way::NewConnection, ..plain("A new connection for each request", SMALL, 512) },
    Workload { way: Way::Pipelined, ..plain("16 requests pipelined", SMALL, 512) },
    Workload { connection_count: 1000, ..plain("1,000 connections", SMALL, 512) },
    Workload { way: Way::H2load, ..plain("512 B, asked by h2load", SMALL, 512) },
];

/// What the part leaves behind: its outcomes, and the settings of every server.
pub(super) struct Compared {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) launches: Vec<Launch>,
}

/// Runs every workload, or those of a quick run.
///
/// # Errors
/// The files cannot be made, or our own server does not start.
pub(super) fn run(rounds: &mut Rounds, programs: &Programs, is_quick: bool) -> Result<Compared, String> {
    let folder = programs.folder.join("http");
    let site = Site::create(&folder.join("site"), ROTATION_COUNT)?;
    let (servers, launches) = start_servers(programs, &folder, &site, 1, &rounds.server_processors)?;
    site.wait_until_settled();
    let counting = if is_quick { Counting::CallsFromCold } else { Counting::Calls };
    let mut outcomes = Vec::new();
    for workload in WORKLOADS.iter().filter(|workload| !is_quick || workload.is_quick) {
        let floor = start_floor(programs, &folder, &floor_answer(workload), &rounds.server_processors)?;
        let mut contestants = Vec::new();
        for server in std::iter::once(&floor).chain(&servers) {
            let asked = load(workload, server, &folder, rounds.length).and_then(|load| {
                check(workload, server)?;
                Ok(Contestant { server, load })
            });
            match asked {
                Ok(contestant) => contestants.push(contestant),
                Err(problem) => println!("{}: left out: {} {problem}", workload.title, server.name),
            }
        }
        let description = describe(workload);
        outcomes.push(rounds.compare(workload.title, &description, &contestants, counting));
    }
    Ok(Compared { outcomes, launches })
}

/// Starts ours and every peer on one site. A peer that does not start is left out.
pub(super) fn start_servers(
    programs: &Programs,
    folder: &Path,
    site: &Site,
    workers: usize,
    processors: &str,
) -> Result<(Vec<Server>, Vec<Launch>), String> {
    let place = Place::new(folder, "sanderling", workers)?;
    let launch = http_peers::sanderling(&programs.sanderling, &site.root, &place);
    let mut servers = vec![Server::start(&launch, &place, processors, client::answers_http)?];
    let mut launches = vec![launch];
    for peer in PEERS {
        let place = Place::new(folder, peer.name, workers)?;
        let launch = (peer.launch)(&site.root, &place);
        match Server::start(&launch, &place, processors, client::answers_http) {
            Ok(server) => {
                servers.push(server);
                launches.push(launch);
            }
            Err(problem) => println!("left out: {problem}"),
        }
    }
    Ok((servers, launches))
}

/// Starts the floor with the answer that its arguments describe.
pub(super) fn start_floor(
    programs: &Programs,
    folder: &Path,
    answer: &[String],
    processors: &str,
) -> Result<Server, String> {
    let place = Place::new(folder, "floor", 1)?;
    let words: Vec<&str> = answer.iter().map(String::as_str).collect();
    let launch = http_peers::floor(&programs.floor, &place, &words);
    Server::start(&launch, &place, processors, |address| client::fetch(address, "/", "").is_ok())
}

fn floor_answer(workload: &Workload) -> Vec<String> {
    let bytes = workload.content_bytes.to_string();
    match workload.way {
        Way::Unmodified => vec!["0".into(), "304".into()],
        Way::Missing => vec![bytes, "404".into()],
        Way::NewConnection => vec![bytes, "close".into()],
        _ => vec![bytes],
    }
}

/// Sees that the server answers as the workload expects.
fn check(workload: &Workload, server: &Server) -> Result<(), String> {
    let fields = match workload.way {
        Way::Unmodified => tag_field(server.address, workload.path)?,
        _ => String::new(),
    };
    let response = client::fetch(server.address, workload.path, &fields)?;
    let expected = match workload.way {
        Way::Unmodified => (304, 0),
        // How much a server says about what is not there is its own affair.
        Way::Missing => (404, response.content_bytes),
        _ => (200, workload.content_bytes),
    };
    let given = (response.status, response.content_bytes);
    if given == expected { Ok(()) } else { Err(format!("answers {given:?} instead of {expected:?}")) }
}

fn tag_field(server: SocketAddr, path: &str) -> Result<String, String> {
    // The floor has no tag and needs none.
    let tag = client::fetch(server, path, "")?.entity_tag.unwrap_or_else(|| "\"none\"".into());
    Ok(format!("If-None-Match: {tag}\r\n"))
}

/// wrk with `connection_count` connections that ask `server` for `path`.
pub(super) fn wrk(server: &Server, path: &str, connection_count: usize, more: &[String], length: Duration) -> Load {
    let mut arguments: Vec<String> = vec!["-t1".into(), format!("-c{connection_count}"), format!("-d{SECONDS}s")];
    // A load stands still in the turns of the others, which is nobody's delay.
    arguments.extend(["--timeout".into(), "60s".into()]);
    arguments.extend_from_slice(more);
    arguments.push(format!("http://{}{path}", server.address));
    Load { program: "wrk".into(), arguments, dialect: Dialect::Wrk, expected: Expected::Success, length }
}

fn load(workload: &Workload, server: &Server, folder: &Path, length: Duration) -> Result<Load, String> {
    let field = |field: &str| vec!["-H".to_owned(), field.trim_end().to_owned()];
    let script = |name: &str, text: String| write_script(folder, name, &text).map(|path| script_arguments(&path));
    let more = match workload.way {
        Way::H2load => return Ok(h2load(workload, server, length)),
        Way::Plain | Way::Missing => Vec::new(),
        Way::Unmodified => field(&tag_field(server.address, workload.path)?),
        Way::NewConnection => field("Connection: close"),
        Way::Pipelined => script("pipeline.lua", site::pipeline_script(workload.path, PIPELINE_DEPTH))?,
        Way::Rotation => script("rotation.lua", site::rotation_script(ROTATION_COUNT, 1))?,
    };
    let expected = if workload.way == Way::Missing { Expected::Refusal } else { Expected::Success };
    Ok(Load { expected, ..wrk(server, workload.path, workload.connection_count, &more, length) })
}

fn h2load(workload: &Workload, server: &Server, length: Duration) -> Load {
    let clients = format!("-c{}", workload.connection_count);
    let url = format!("http://{}{}", server.address, workload.path);
    let arguments = vec!["--h1".into(), "-t1".into(), clients, "-D".into(), SECONDS.into(), url];
    Load { program: "h2load".into(), arguments, dialect: Dialect::H2load, expected: Expected::Success, length }
}

/// Writes a script for wrk.
pub(super) fn write_script(folder: &Path, name: &str, text: &str) -> Result<PathBuf, String> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// What makes wrk run a script.
pub(super) fn script_arguments(path: &Path) -> Vec<String> {
    vec!["-s".into(), path.display().to_string()]
}

fn describe(workload: &Workload) -> String {
    let connections = workload.connection_count;
    match workload.way {
        Way::H2load => format!("h2load --h1, {connections} connections, kept alive."),
        Way::NewConnection => format!("wrk, {connections} at a time, `Connection: close`."),
        Way::Pipelined => format!("wrk, {connections} connections, {PIPELINE_DEPTH} requests in one send."),
        Way::Rotation => format!("wrk, {connections} connections, {ROTATION_COUNT} files of 512 B in random order."),
        Way::Unmodified => format!("wrk, {connections} connections, `If-None-Match` with the server's own tag."),
        Way::Plain | Way::Missing => format!("wrk, {connections} connections, kept alive."),
    }
}
