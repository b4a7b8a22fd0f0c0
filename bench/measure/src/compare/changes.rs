//! Transfers of a large zone, and the time from a change of one of its records to the answer.

use crate::compare::dns;
use crate::compare::peers::{self, Content, Peer, SECRET};
use crate::compare::rounds::{Rounds, Spread};
use crate::compare::server::{Bench, Server, pinned};
use crate::compare::starts::{SERVED, change_by_reload};
use crate::compare::zone::{APEX, CHANGED_NAME, ZoneFile, write_changed, write_zone};
use crate::page;
use anyhow::{Context, ensure};
use domain::base::iana::Rtype;
use loadgen::client;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const TRANSFER_COUNT: usize = 5;
/// Short ones, so that the time of one can be measured.
const INCREMENTAL_COUNT: usize = 200;
const CHANGE_COUNT: u8 = 40;
const CHANGE_LIMIT: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_micros(200);
/// The pause between two changes.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn run(rounds: &Rounds) -> anyhow::Result<String> {
    let name_count = if rounds.is_quick { 100_000 } else { 1_000_000 };
    let (zone, record_count) = write_zone(&rounds.bench.folder.join("changes"), name_count)?;
    let changed = write_changed(&zone)?;
    let bench = Bench { marks: &["changes"], ..rounds.bench.clone() };
    let mut rows = Vec::new();
    for peer in &peers::DNS[1..] {
        let server = start(&bench, peer, &zone, &format!("changes-{}", peer.name), |server| dns::answers(server, APEX));
        match server.and_then(|server| measure(&server, &bench, &changed)) {
            Ok(cells) => rows.push([vec![peer.name.to_owned()], cells].concat()),
            Err(error) => println!("  {}: {error:#}", peer.name),
        }
    }
    let head = ["server", "AXFR ms", "first change ms", "change ms", "IXFR µs"];
    Ok(format!(
        "Transfers of {record_count} records: processor time of the server for the whole zone, and for the changes of one record. \
         Changes: the time from the line of `nsupdate` to the answer; with NSD, which has no dynamic updates, from the signal to \
         reload the file.\n\n{}",
        page::table(&head, &rows)
    ))
}

/// Starts a server with a copy of the zone and the key of updates.
pub(crate) fn start(
    bench: &Bench,
    peer: &Peer,
    zone: &ZoneFile,
    name: &str,
    is_ready: impl Fn(SocketAddr) -> bool,
) -> anyhow::Result<Server> {
    let place = bench.place(name, 1)?;
    let key = place.folder.join("update.key");
    fs::write(&key, SECRET)?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    // Servers that give up root write beside the zone.
    fs::set_permissions(&place.folder, fs::Permissions::from_mode(0o777))?;
    let served = place.folder.join(SERVED);
    fs::copy(&zone.file, &served)?;
    let content = Content::Zones(vec![ZoneFile { apex: APEX.to_owned(), file: served }]);
    bench.start(peer, place, &content, is_ready)
}

fn measure(server: &Server, bench: &Bench, changed: &Path) -> anyhow::Result<Vec<String>> {
    let address = server.address();
    let transfer = |from_serial, count: usize| -> anyhow::Result<f64> {
        let before_ns = server.cpu_ns();
        for _ in 0..count {
            ensure!(client::transfer(address, APEX, from_serial)? > 1, "nothing is transferred");
        }
        Ok(server.cpu_ns().saturating_sub(before_ns) as f64 / count as f64)
    };
    println!("changes: {}", server.name);
    let whole: Vec<f64> = (0..TRANSFER_COUNT).map(|_| Ok(transfer(None, 1)? / 1e6)).collect::<anyhow::Result<_>>()?;
    let times_ms = match server.name {
        "nsd" => vec![change_by_reload(server, changed)?.as_secs_f64() * 1e3],
        _ => update(address, &bench.load_cpus)?,
    };
    // A server without a journal sends the whole zone.
    let incremental = match server.name {
        "nsd" => "–".to_owned(),
        _ => format!("{:.0}", transfer(Some(1), INCREMENTAL_COUNT)? / 1e3),
    };
    let (first, others) = times_ms.split_first().context("no change")?;
    let cell =
        |values: &[f64]| Spread::of(values.iter().copied()).map_or_else(|| "–".into(), |spread| spread.to_string());
    Ok(vec![cell(&whole), format!("{first:.1}"), cell(others), incremental])
}

/// The process of `nsupdate`, which ends with its input.
struct Nsupdate(Child);

impl Drop for Nsupdate {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Changes the address of one name repeatedly; the time in ms until it is answered.
pub(crate) fn update(server: SocketAddr, cpus: &str) -> anyhow::Result<Vec<f64>> {
    let mut command = pinned(OsStr::new("nsupdate"), cpus);
    command.args(["-y", &format!("hmac-sha256:update:{SECRET}")]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("nsupdate")?;
    let mut nsupdate = Nsupdate(child);
    let input = nsupdate.0.stdin.as_mut().context("no pipe")?;
    write!(input, "server {} {}\nzone {APEX}\nttl 60\n", server.ip(), server.port())?;
    let change = |number| {
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        let name = format!("{CHANGED_NAME}.");
        write!(input, "update delete {name} A\nupdate add {name} A 192.0.2.{number}\nsend\n")?;
        while start.elapsed() < CHANGE_LIMIT {
            let reply = client::query_udp(server, CHANGED_NAME, Rtype::A, CHANGE_LIMIT)?;
            if reply.as_slice().ends_with(&[192, 0, 2, number]) {
                return Ok(start.elapsed().as_secs_f64() * 1e3);
            }
            std::thread::sleep(POLL_EVERY);
        }
        anyhow::bail!("no new data within {CHANGE_LIMIT:?}")
    };
    (100..100 + CHANGE_COUNT).map(change).collect()
}
