//! Clients that flood a server with HTTP/2 frames over TLS: measures the frames that a connection accepts before it
//! ends, and the waiting times of other clients meanwhile.

mod client;
mod frames;

use crate::running::Running;
use crate::service::{LIMIT, processes_in};
use anyhow::ensure;
use client::Client;
use frames::{frame, get, kind, post, reset, window_update};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Frames that a client sends at most on one connection.
const FRAMES_MAX: usize = 100_000;
/// Frames after which a client that counts waits for the server.
const BATCH_FRAMES: usize = 40;
/// Bytes of the file whose content fills the windows of clients.
const LARGE_BYTES: usize = 1 << 20;
/// Connections of the client whose waiting times are measured.
const CONNECTION_COUNT: usize = 8;
/// The time for which waiting times are measured before the next event: some hundred requests, so that a flood that
/// delays more than one in a hundred of them is seen.
const SPAN: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_micros(500);

/// A flood.
pub struct Flood {
    /// The flood's name in results.
    pub name: &'static str,
    /// The client's bytes after the preface and its settings.
    opening: fn() -> Vec<u8>,
    /// The bytes that the client then repeats, given the number of the repetition.
    item: fn(u32) -> Vec<u8>,
    item_frames: usize,
    /// Frames that a connection may accept, by the default limits.
    pub frames_max: usize,
    /// Other frames may stand between.
    allows_pings: bool,
}

const fn flood(
    name: &'static str,
    opening: fn() -> Vec<u8>,
    item: fn(u32) -> Vec<u8>,
    item_frames: usize,
    frames_max: usize,
) -> Flood {
    Flood { name, opening, item, item_frames, frames_max, allows_pings: true }
}

/// `http2_resets_max` and `http2_control_frames_max`, with the frame that exceeds them.
const RESETS: usize = 201;
const CONTROLS: usize = 1_001;

/// Vulnerabilities of servers, by their names and numbers.
pub const FLOODS: &[Flood] = &[
    // CVE-2023-44487.
    flood("rapid reset", closed_window, |index| [get(stream(index)), reset(stream(index))].concat(), 2, 2 * RESETS),
    // CVE-2025-8671: the client provokes the resets.
    flood(
        "window overflow",
        Vec::new,
        |index| [get(stream(index)), window_update(stream(index), 0x7fff_ffff)].concat(),
        2,
        2 * RESETS,
    ),
    flood("window update of 0", Vec::new, |index| [get(stream(index)), window_update(stream(index), 0)].concat(), 2, 2),
    flood(
        "content after the end",
        Vec::new,
        |index| [get(stream(index)), frame(kind::DATA, 0, stream(index), b"x")].concat(),
        2,
        2,
    ),
    flood("wrong length", Vec::new, |index| frames::empty_with_length(stream(index)), 1, RESETS),
    // CVE-2024-27316 and others; http2_continuations_max is 8.
    Flood {
        allows_pings: false,
        ..flood(
            "continuation",
            || frame(kind::HEADERS, 1, 1, b"\x82"),
            |_| frame(kind::CONTINUATION, 0, 1, b"\x82"),
            1,
            9,
        )
    },
    // CVE-2019-9512, 9515, 9518, 9511 and 9513.
    flood("ping", Vec::new, |_| frame(kind::PING, 0, 0, &[0; 8]), 1, CONTROLS),
    flood("settings", Vec::new, |_| frame(kind::SETTINGS, 0, 0, &[]), 1, CONTROLS),
    flood("empty data", || post(1), |_| frame(kind::DATA, 0, 1, &[]), 1, CONTROLS),
    flood(
        "empty headers",
        || [get(1), window_update(1, 0x7fff_ffff)].concat(),
        |_| frame(kind::HEADERS, 5, 1, &[]),
        1,
        CONTROLS,
    ),
    flood(
        "late headers",
        || [get(1), window_update(1, 0x7fff_ffff)].concat(),
        |_| frame(kind::HEADERS, 5, 1, &frames::references()),
        1,
        2,
    ),
    flood("window update of 1", Vec::new, |_| window_update(0, 1), 1, CONTROLS),
    flood("content in windows of 1", || [closed_window(), get(1)].concat(), |_| window_update(1, 1), 1, CONTROLS),
    flood("priority update", Vec::new, |_| frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"), 1, CONTROLS),
];

fn stream(index: u32) -> u32 {
    index * 2 + 1
}

/// Settings by which a response has no content at first, so that its stream stays open.
fn closed_window() -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
}

/// A server of a directory, over HTTP and HTTPS, with one worker. The server is stopped when it is dropped.
pub struct Server {
    http: SocketAddr,
    https: SocketAddr,
    running: Running,
}

impl Server {
    /// Starts `program`.
    pub fn start(program: &Path) -> anyhow::Result<Server> {
        let folder = TempDir::with_prefix("floods-")?;
        fs::write(folder.path().join("large"), vec![b'x'; LARGE_BYTES])?;
        fs::write(folder.path().join("small"), b"content")?;
        let arguments = [".", "--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--workers", "1"];
        let (running, [http, https]) = Running::start(program, folder, &arguments, ["http ", "https "])?;
        Ok(Server { http, https, running })
    }

    /// Resident memory of all processes of the server, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let of_process = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
        };
        processes_in(self.running.folder()).into_iter().map(of_process).sum()
    }
}

/// Waiting times of another client, as 99th percentiles.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The waiting times without other activity.
    pub alone: Duration,
    /// The waiting times in a `SPAN` in which a connection floods once.
    pub beside_one_flood: Duration,
    /// Beside a client that makes one request on each of its connections, as fast as it can.
    pub beside_requests: Duration,
    /// Beside floods on one connection after another.
    pub beside_flood: Duration,
    /// Connections of the flood per second.
    pub floods_per_s: f64,
}

impl Flood {
    /// The number of frames that one connection has accepted, to a multiple of a batch, and the error code that the
    /// client got at its end.
    pub fn run_once(&self, server: &Server) -> anyhow::Result<(usize, Option<u32>)> {
        let mut client = Client::connect(server.https)?;
        client.send(&(self.opening)())?;
        let (mut frame_count, mut index) = (0, 0);
        while frame_count < FRAMES_MAX {
            let mut batch = Vec::new();
            for _ in 0..BATCH_FRAMES / self.item_frames {
                batch.extend((self.item)(index));
                index += 1;
            }
            // If the server has closed the connection, there is something to read.
            let _ = client.send(&batch);
            if let Some(end) = client.end_or_pong(self.allows_pings)? {
                return Ok((frame_count, end));
            }
            frame_count += BATCH_FRAMES;
        }
        anyhow::bail!("{}: {FRAMES_MAX} frames were accepted", self.name)
    }

    /// Sends the flood while another client measures: once in each `SPAN`, then on one connection after another, for
    /// about four times `duration`.
    pub fn measure(&self, server: &Server, duration: Duration) -> anyhow::Result<Waiting> {
        let round_count = (duration.as_secs_f64() / SPAN.as_secs_f64()).ceil() as usize;
        let (phase, connection_count) = (AtomicUsize::new(ALONE), AtomicUsize::new(0));
        let (samples, flooded) = thread::scope(|scope| {
            let prober = scope.spawn(|| probe(server.http, &phase));
            let flooder = scope.spawn(|| self.send_repeatedly(server.https, &phase, &connection_count));
            for _ in 0..round_count {
                for next in 0..ENDED {
                    phase.store(next, Ordering::Relaxed);
                    thread::sleep(SPAN);
                }
            }
            phase.store(ENDED, Ordering::Relaxed);
            (prober.join().expect("no panic"), flooder.join().expect("no panic"))
        });
        flooded?;
        let mut samples = samples?;
        let [alone, beside_one_flood, beside_requests, beside_flood] =
            [ALONE, BESIDE_ONE_FLOOD, BESIDE_REQUESTS, BESIDE_FLOOD].map(|phase| percentile_99(&mut samples[phase]));
        let flood_s = round_count as f64 * SPAN.as_secs_f64();
        let floods_per_s = connection_count.load(Ordering::Relaxed) as f64 / flood_s;
        Ok(Waiting { alone, beside_one_flood, beside_requests, beside_flood, floods_per_s })
    }

    fn send_repeatedly(&self, https: SocketAddr, phase: &AtomicUsize, count: &AtomicUsize) -> anyhow::Result<()> {
        let items: Vec<u8> = (0..(FRAMES_MAX / self.item_frames) as u32).flat_map(|index| (self.item)(index)).collect();
        let flood_once = || -> anyhow::Result<()> {
            let mut client = Client::connect(https)?;
            client.send(&(self.opening)())?;
            // The flood runs until the server closes the connection.
            let _ = items.chunks(16 * 1024).try_for_each(|chunk| client.send(chunk));
            Ok(())
        };
        let mut before = ALONE;
        loop {
            let current = phase.load(Ordering::Relaxed);
            let is_first = std::mem::replace(&mut before, current) != current;
            match current {
                ENDED => return Ok(()),
                BESIDE_ONE_FLOOD if is_first => flood_once()?,
                ALONE | BESIDE_ONE_FLOOD => thread::sleep(PAUSE),
                BESIDE_REQUESTS => {
                    let mut client = Client::connect(https)?;
                    client.send(&get(1))?;
                    client.end_or_pong(true)?;
                }
                _ => {
                    flood_once()?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The activity during the measurement.
const ALONE: usize = 0;
const BESIDE_ONE_FLOOD: usize = 1;
const BESIDE_REQUESTS: usize = 2;
const BESIDE_FLOOD: usize = 3;
const ENDED: usize = 4;

/// Makes requests until the end; the waiting times in each phase.
fn probe(http: SocketAddr, phase: &AtomicUsize) -> anyhow::Result<[Vec<Duration>; ENDED]> {
    let connect = || -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(http)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(stream)
    };
    let mut connections = (0..CONNECTION_COUNT).map(|_| connect()).collect::<anyhow::Result<Vec<_>>>()?;
    let mut samples = [const { Vec::new() }; ENDED];
    let mut answered = 0;
    loop {
        let before = phase.load(Ordering::Relaxed);
        if before == ENDED {
            return Ok(samples);
        }
        // The flood has at most as many requests as a connection may have.
        let connection = &mut connections[answered % CONNECTION_COUNT];
        answered += 1;
        if answered % (CONNECTION_COUNT * 1_000) < CONNECTION_COUNT {
            *connection = connect()?;
        }
        let start = Instant::now();
        connection.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut response = Vec::new();
        while !response.ends_with(b"content") {
            let mut piece = [0; 1024];
            let count = connection.read(&mut piece)?;
            ensure!(count > 0, "the server has closed a connection of another client");
            response.extend_from_slice(&piece[..count]);
        }
        let took = start.elapsed();
        if phase.load(Ordering::Relaxed) == before {
            samples[before].push(took);
        }
        thread::sleep(PAUSE);
    }
}

fn percentile_99(samples: &mut [Duration]) -> Duration {
    samples.sort_unstable();
    samples.get(samples.len() * 99 / 100).copied().unwrap_or_default()
}
