//! A response is one version of a file: files are changed in every way while many clients read them, and no response
//! that is whole may be a mixture, or carry the entity tag of another version.
//!
//! `SANDERLING_RESPONSES=1000000 cargo test --release -p sanderling-server --test versions -- --nocapture` runs it at
//! length; the default is short. The seed is printed, and `SANDERLING_SEED` sets it.

use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::tcp::Listener;
use sanderling_server::{Counter, DefaultSite, Options, Root, Server, Site, Sites, Snapshot, SocketSet};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WORKER_COUNT: usize = 4;
const CLIENT_COUNT: usize = 4;
const FILE_COUNT: usize = 24;
const DEADLINE: Duration = Duration::from_secs(20);
/// By when a worker has looked again at a file that is asked for, when nobody tells of changes: the second for which it
/// is used unseen, and some for the look.
const LOOKED_AGAIN_MAX: Duration = Duration::from_millis(1_100);
/// The kernel chooses the worker of a connection: so many reach each of four, but for one time in 10^24.
const CONNECTION_COUNT_MAX: usize = 200;
/// Bytes that hold a version's number: a file is nothing but these, again and again.
const WORD_BYTES: usize = 8;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A generator that any seed repeats (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// Files of three sizes: in memory, sent in one piece, sent in many.
fn word_count(index: usize, random: &mut Random) -> usize {
    match index % 3 {
        0 => 1 + random.below(900) as usize,
        1 => 2_000 + random.below(20_000) as usize,
        _ => 50_000 + random.below(100_000) as usize,
    }
}

fn content(version: u64, word_count: usize) -> Vec<u8> {
    version.to_le_bytes().repeat(word_count)
}

/// Changes files one after another until told to stop.
struct Changer<'t> {
    tree: &'t Path,
    random: Random,
    version: u64,
    change_count: u64,
}

impl Changer<'_> {
    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let index = self.random.below(FILE_COUNT as u64) as usize;
            self.change(index);
            self.change_count += 1;
            std::thread::park_timeout(Duration::from_micros(300 + self.random.below(2_000)));
        }
    }

    fn change(&mut self, index: usize) {
        let path = self.tree.join(index.to_string());
        self.version += 1;
        let words = word_count(index, &mut self.random);
        let new = content(self.version, words);
        let in_place = || fs::OpenOptions::new().write(true).open(&path);
        match self.random.below(6) {
            // Rewritten in place, by one write, at the same length.
            0 => {
                if let Ok(file) = in_place() {
                    let length = file.metadata().expect("facts").len() as usize;
                    file.write_all_at(&content(self.version, length / WORD_BYTES), 0).expect("written");
                }
            }
            // Grown or cut, and rewritten.
            1 => {
                if let Ok(file) = in_place() {
                    file.set_len(0).expect("cut");
                    file.write_all_at(&new, 0).expect("written");
                }
            }
            // Cut.
            2 => {
                if let Ok(file) = in_place() {
                    let length = file.metadata().expect("facts").len();
                    file.set_len(length / 2 / WORD_BYTES as u64 * WORD_BYTES as u64).expect("cut");
                }
            }
            3 => {
                let _ = fs::remove_file(&path);
                fs::write(&path, new).expect("written");
            }
            _ => {
                let aside = self.tree.join(format!("aside-{index}"));
                fs::write(&aside, new).expect("written");
                fs::rename(aside, &path).expect("renamed");
            }
        }
    }
}

/// What all clients have seen.
#[derive(Default)]
struct Seen {
    response_count: AtomicU64,
    whole_count: AtomicU64,
    aborted_count: AtomicU64,
    other_count: AtomicU64,
    /// The version that each entity tag stands for, and the length of the content.
    tags: Mutex<HashMap<String, (u64, usize)>>,
    torn: Mutex<Vec<String>>,
}

struct Client<'s> {
    address: SocketAddr,
    seen: &'s Seen,
    stream: Option<TcpStream>,
}

impl Client<'_> {
    /// Asks for a file and checks what comes. A connection that is cut off is what a torn response must become.
    fn ask(&mut self, index: usize) {
        let mut stream = self.stream.take().unwrap_or_else(|| connect(self.address));
        let request = format!("GET /{index} HTTP/1.1\r\nHost: example\r\n\r\n");
        self.seen.response_count.fetch_add(1, Ordering::Relaxed);
        match stream.write_all(request.as_bytes()).and_then(|()| read_response(&mut stream)) {
            Err(error) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no answer in {DEADLINE:?}");
                self.seen.aborted_count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(response) => {
                self.check(index, &response);
                self.stream = Some(stream);
            }
        }
    }

    fn check(&self, index: usize, response: &Response) {
        if !response.head.starts_with("HTTP/1.1 200 ") {
            self.seen.other_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.seen.whole_count.fetch_add(1, Ordering::Relaxed);
        let body = &response.body;
        let version = body.first_chunk::<WORD_BYTES>().map_or(0, |word| u64::from_le_bytes(*word));
        let is_mixed = body.chunks(WORD_BYTES).any(|word| word != version.to_le_bytes());
        let complain = |what: String| {
            self.seen.torn.lock().expect("no panic").push(format!("file {index}: {what}"));
        };
        if is_mixed {
            let second = body.chunks(WORD_BYTES).position(|word| word != version.to_le_bytes()).unwrap_or(0);
            complain(format!("{} bytes, version {version} up to word {second}, then another", body.len()));
        }
        let tag = response.head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("a tag").to_owned();
        let known = *self.seen.tags.lock().expect("no panic").entry(tag).or_insert((version, body.len()));
        if known != (version, body.len()) {
            complain(format!("one tag for {known:?} and {:?}", (version, body.len())));
        }
    }
}

struct Response {
    head: String,
    body: Vec<u8>,
}

fn read_response(stream: &mut TcpStream) -> std::io::Result<Response> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 65_536];
    loop {
        let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = head_end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
            let length: usize = length.parse().expect("a number");
            let mut body = bytes.split_off(end + 4);
            let received = body.len();
            body.resize(length, 0);
            stream.read_exact(&mut body[received..])?;
            return Ok(Response { head, body });
        }
        match stream.read(&mut chunk)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Some of the files are in memory, and the larger ones behind descriptors.
fn options() -> Options {
    let mut options = Options::default();
    options.open_files.small_file_bytes_max = 8 * 1024;
    options
}

/// Serves a tree of files with four workers while `act` is its client.
fn with_server(name: &str, options: Options, act: impl FnOnce(&Path, SocketAddr, &Server)) {
    let tree = Tree(std::env::temp_dir().join(format!("sanderling-{name}-{}", std::process::id())));
    let _ = fs::remove_dir_all(&tree.0);
    fs::create_dir_all(&tree.0).expect("made");
    let mut address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut sockets = Vec::new();
    for index in 0..WORKER_COUNT {
        let bind = if index == 0 { Listener::bind } else { Listener::bind_reuseport };
        let listener = bind(address).expect("bound");
        address = listener.local_address().expect("bound");
        sockets.push(SocketSet { http: vec![listener], ..SocketSet::default() });
    }
    let root = sanderling_os::directory::Directory::open(&tree.0).expect("opened");
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Folder(std::sync::Arc::new(root)) };
    let zones = ZoneMap::new(HashSeed(1), []);
    let snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), zones);
    let server = Server::new(snapshot, options, Duration::ZERO);
    server.run(&sockets, WORKER_COUNT, |server| act(&tree.0, address, server)).expect("served");
}

#[test]
fn no_response_is_a_mixture() {
    let seed = setting("SANDERLING_SEED", 1);
    let wanted_count = setting("SANDERLING_RESPONSES", 4_000);
    println!("seed {seed}, {wanted_count} responses");
    with_server("versions", options(), |tree, address, server| {
        let mut changer = Changer { tree, random: Random(seed | 1), version: 0, change_count: 0 };
        for index in 0..FILE_COUNT {
            changer.version += 1;
            let words = word_count(index, &mut changer.random);
            fs::write(tree.join(index.to_string()), content(changer.version, words)).expect("written");
        }
        let (seen, stop) = (Seen::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| {
                changer.run(&stop);
                changer.change_count
            });
            let clients: Vec<_> = (0..CLIENT_COUNT as u64)
                .map(|number| {
                    let mut client = Client { address, seen: &seen, stream: None };
                    let mut random = Random(seed.wrapping_mul(7).wrapping_add(number) | 1);
                    let seen = &seen;
                    scope.spawn(move || {
                        while seen.response_count.load(Ordering::Relaxed) < wanted_count {
                            client.ask(random.below(FILE_COUNT as u64) as usize);
                            if random.below(50) == 0 {
                                // Another connection, and so perhaps another worker.
                                client.stream = None;
                            }
                        }
                    })
                })
                .collect();
            for client in clients {
                client.join().expect("no panic");
            }
            stop.store(true, Ordering::Relaxed);
            let change_count = changer.join().expect("no panic");
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            println!(
                "{} responses: {} whole, {} cut off, {} without a file; {change_count} changes",
                count(&seen.response_count),
                count(&seen.whole_count),
                count(&seen.aborted_count),
                count(&seen.other_count),
            );
        });
        let torn = seen.torn.lock().expect("no panic");
        assert!(torn.is_empty(), "{} torn responses, among them {:?}", torn.len(), &torn[..torn.len().min(5)]);
        assert!(seen.whole_count.load(Ordering::Relaxed) > wanted_count / 2, "most responses are whole");
        assert!(server.cache_stats().descriptor_count <= FILE_COUNT as u64);
    });
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream
}

/// Asks for the file `0`: its version, if there is one.
fn read_version(stream: &mut TcpStream) -> Option<u64> {
    stream.write_all(b"GET /0 HTTP/1.1\r\nHost: example\r\n\r\n").expect("sent");
    let response = read_response(stream).expect("answered");
    let is_found = response.head.starts_with("HTTP/1.1 200 ");
    response.body.first_chunk().filter(|_| is_found).map(|word| u64::from_le_bytes(*word))
}

/// Waits until `is_so`, at most `deadline`; how long it took.
fn within(deadline: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < deadline, "{what}: not within {deadline:?}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    start.elapsed()
}

#[test]
fn every_worker_sees_new_content_and_nobody_keeps_what_was_deleted() {
    with_server("freshness", options(), |tree, address, server| {
        let path = tree.join("0");
        fs::write(&path, content(1, 4_000)).expect("written");
        let mut streams: Vec<TcpStream> = (0..4 * WORKER_COUNT).map(|_| connect(address)).collect();
        for stream in &mut streams {
            assert_eq!(read_version(stream), Some(1));
        }
        for version in 2..8 {
            fs::write(tree.join("aside"), content(version, 4_000)).expect("written");
            fs::rename(tree.join("aside"), &path).expect("renamed");
            let took = within(DEADLINE, "new content on every connection", || {
                streams.iter_mut().all(|stream| read_version(stream) == Some(version))
            });
            println!("version {version} on all workers after {took:?}");
        }
        fs::remove_file(&path).expect("removed");
        within(DEADLINE, "a deleted file is gone", || streams.iter_mut().all(|stream| read_version(stream).is_none()));
        let took = within(DEADLINE, "no descriptor of a deleted file", || server.cache_stats().descriptor_count == 0);
        println!("its descriptors were closed after {took:?}");
        fs::write(&path, content(9, 10)).expect("written");
        let took = within(DEADLINE, "a new file after a 404", || {
            streams.iter_mut().all(|stream| read_version(stream) == Some(9))
        });
        println!("a new file was found after {took:?}");
    });
}

/// Connections until each worker has one, every one of which has been answered with the version `version`.
fn connect_to_all_workers(address: SocketAddr, server: &Server, version: u64) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    let is_everybody_connected = || {
        let threads = server.status().threads;
        threads.iter().filter(|thread| thread.count(Counter::HttpConnections) > 0).count() == WORKER_COUNT
    };
    while !is_everybody_connected() {
        assert!(streams.len() < CONNECTION_COUNT_MAX, "{CONNECTION_COUNT_MAX} connections do not reach every worker");
        let mut stream = connect(address);
        assert_eq!(read_version(&mut stream), Some(version));
        streams.push(stream);
    }
    streams
}

#[test]
fn without_watches_every_worker_looks_again_within_a_second_of_use() {
    let mut options = options();
    options.open_files.watched_dirs_max = 0;
    with_server("unwatched", options, |tree, address, server| {
        let (path, aside) = (tree.join("0"), tree.join("aside"));
        // What has no name any more is also found without being asked for: each version has a second one.
        let put = |version: u64| {
            fs::write(&aside, content(version, 4_000)).expect("written");
            fs::hard_link(&aside, tree.join(format!("kept-{version}"))).expect("linked");
            fs::rename(&aside, &path).expect("renamed");
        };
        put(1);
        let mut streams = connect_to_all_workers(address, server, 1);
        let mut see_everywhere = |version, descriptor_count| {
            let took = within(LOOKED_AGAIN_MAX, "every worker looks again, and keeps nothing else open", || {
                streams.iter_mut().all(|stream| read_version(stream) == version)
                    && server.cache_stats().descriptor_count == descriptor_count
            });
            assert!(took <= LOOKED_AGAIN_MAX, "{version:?} after {took:?}");
            println!("{version:?} on {} connections to {WORKER_COUNT} workers after {took:?}", streams.len());
        };
        put(2);
        see_everywhere(Some(2), 1);
        fs::remove_file(&path).expect("removed");
        see_everywhere(None, 0);
        assert_eq!(server.cache_stats().watched_dir_count, 0);
    });
}

#[test]
fn what_leads_nowhere_drives_out_no_file() {
    let mut options = Options::default();
    options.open_files.negative_entries_max = 64;
    // Whoever is told to leave asks once in vain, and all answers are counted.
    options.http.requests_per_connection_max = u64::MAX;
    with_server("missing", options, |tree, address, server| {
        let seen = Seen::default();
        for index in 0..FILE_COUNT {
            fs::write(tree.join(index.to_string()), content(1, 10)).expect("written");
        }
        let mut client = Client { address, seen: &seen, stream: None };
        (0..FILE_COUNT).for_each(|index| client.ask(index));
        let before = server.cache_stats();
        assert_eq!(before.file_count, FILE_COUNT);
        let negative_count = setting("SANDERLING_MISSING", 2_000) as usize;
        (0..negative_count).for_each(|index| client.ask(1_000_000 + index));
        let after = server.cache_stats();
        assert_eq!((after.file_count, after.evicted_count), (before.file_count, 0));
        assert!(after.negative_count <= 64, "{after:?}");
        assert_eq!(seen.other_count.load(Ordering::Relaxed) as usize, negative_count);
    });
}
