//! A complete response is one version of its file, with the entity tag of that version, however files change meanwhile.
//! `SANDERLING_RESPONSES=1000000` makes it long.

use crate::support::{bind, serve, snapshot};
use fastrand::Rng;
use sanderling_os::directory::Directory;
use sanderling_server::{Counter, Options, Root, Server};
use sanderling_testkit::{DEADLINE, wait_until};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const WORKER_COUNT: usize = 4;
const CLIENT_COUNT: usize = 4;
const FILE_COUNT: usize = 24;
/// Until a changed file in an unwatched directory is served: the second for which it is not checked, and time to check
/// it.
const CHECKED_AGAIN_MAX: Duration = Duration::from_secs(4);
/// The kernel selects the worker of a connection: so many reach all of four, except one time in 10^24.
const CONNECTION_COUNT_MAX: usize = 200;
/// A file is its version number, repeated.
const WORD_BYTES: usize = 8;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Files of three sizes: in memory, sent in one piece, sent in many.
fn word_count(index: usize, random: &mut Rng) -> usize {
    match index % 3 {
        0 => 1 + random.usize(..900),
        1 => 2_000 + random.usize(..20_000),
        _ => 50_000 + random.usize(..100_000),
    }
}

fn content(version: u64, word_count: usize) -> Vec<u8> {
    version.to_le_bytes().repeat(word_count)
}

/// Changes files.
struct Changer<'t> {
    tree: &'t Path,
    random: Rng,
    version: u64,
    change_count: u64,
}

impl Changer<'_> {
    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let index = self.random.usize(..FILE_COUNT);
            self.change(index);
            self.change_count += 1;
            thread::sleep(Duration::from_micros(300 + self.random.u64(..2_000)));
        }
    }

    fn change(&mut self, index: usize) {
        let path = self.tree.join(index.to_string());
        self.version += 1;
        let words = word_count(index, &mut self.random);
        let new = content(self.version, words);
        let in_place = || fs::OpenOptions::new().write(true).open(&path);
        match self.random.u8(..6) {
            // Overwritten by one write.
            0 => {
                if let Ok(file) = in_place() {
                    let length = file.metadata().expect("metadata").len() as usize;
                    file.write_all_at(&content(self.version, length / WORD_BYTES), 0).expect("written");
                }
            }
            // Truncated and written.
            1 => {
                if let Ok(file) = in_place() {
                    file.set_len(0).expect("truncated");
                    file.write_all_at(&new, 0).expect("written");
                }
            }
            // Truncated.
            2 => {
                if let Ok(file) = in_place() {
                    let length = file.metadata().expect("metadata").len();
                    file.set_len(length / 2 / WORD_BYTES as u64 * WORD_BYTES as u64).expect("truncated");
                }
            }
            3 => {
                let _ = fs::remove_file(&path);
                fs::write(&path, new).expect("written");
            }
            _ => {
                let replacement = self.tree.join(format!("replacement-{index}"));
                fs::write(&replacement, new).expect("written");
                fs::rename(replacement, &path).expect("renamed");
            }
        }
    }
}

/// The results of all clients.
#[derive(Default)]
struct Results {
    response_count: AtomicU64,
    whole_count: AtomicU64,
    aborted_count: AtomicU64,
    other_count: AtomicU64,
    /// The version and the length for each entity tag.
    tags: Mutex<HashMap<String, (u64, usize)>>,
    torn: Mutex<Vec<String>>,
}

struct Client<'s> {
    address: SocketAddr,
    results: &'s Results,
    stream: Option<TcpStream>,
}

impl Client<'_> {
    /// Requests a file and checks the response. The server aborts the response if the file changes.
    fn request(&mut self, index: usize) {
        let mut stream = self.stream.take().unwrap_or_else(|| connect(self.address));
        let request = format!("GET /{index} HTTP/1.1\r\nHost: example\r\n\r\n");
        self.results.response_count.fetch_add(1, Ordering::Relaxed);
        match stream.write_all(request.as_bytes()).and_then(|()| read_response(&mut stream)) {
            Err(error) => {
                assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "no response within {DEADLINE:?}");
                self.results.aborted_count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(response) => {
                self.check(index, &response);
                self.stream = Some(stream);
            }
        }
    }

    fn check(&self, index: usize, response: &Response) {
        if !response.head.starts_with("HTTP/1.1 200 ") {
            self.results.other_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.results.whole_count.fetch_add(1, Ordering::Relaxed);
        let body = &response.body;
        let version = body.first_chunk::<WORD_BYTES>().map_or(0, |word| u64::from_le_bytes(*word));
        let is_mixed = body.chunks(WORD_BYTES).any(|word| word != version.to_le_bytes());
        let add_torn = |what: String| {
            self.results.torn.lock().expect("no panic").push(format!("file {index}: {what}"));
        };
        if is_mixed {
            let second = body.chunks(WORD_BYTES).position(|word| word != version.to_le_bytes()).unwrap_or(0);
            add_torn(format!("{} bytes, version {version} up to word {second}, then another", body.len()));
        }
        let tag = response.head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("a tag").to_owned();
        let known = *self.results.tags.lock().expect("no panic").entry(tag).or_insert((version, body.len()));
        if known != (version, body.len()) {
            add_torn(format!("one tag for {known:?} and {:?}", (version, body.len())));
        }
    }
}

struct Response {
    head: String,
    body: Vec<u8>,
}

fn read_response(stream: &mut TcpStream) -> io::Result<Response> {
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
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Only small files are kept in memory.
fn options() -> Options {
    let mut options = Options::default();
    options.open_files.small_file_bytes_max = 8 * 1024;
    options
}

/// Serves a directory with four workers while `act` is the client.
fn with_server(options: Options, act: impl FnOnce(&Path, SocketAddr, &Server)) {
    let directory = tempfile::tempdir().expect("created");
    let (sockets, http, _) = bind(WORKER_COUNT);
    let root = Root::Directory(Arc::new(Directory::open(directory.path()).expect("opened")));
    serve(snapshot(root), options, &sockets, WORKER_COUNT, |server| act(directory.path(), http, server));
}

#[test]
fn no_response_mixes_versions_of_a_file() {
    let seed = sanderling_testkit::seed();
    let wanted_count = setting("SANDERLING_RESPONSES", 4_000);
    with_server(options(), |tree, address, server| {
        let mut changer = Changer { tree, random: Rng::with_seed(seed), version: 0, change_count: 0 };
        for index in 0..FILE_COUNT {
            changer.version += 1;
            let words = word_count(index, &mut changer.random);
            fs::write(tree.join(index.to_string()), content(changer.version, words)).expect("written");
        }
        let (results, stop) = (Results::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            let changer = scope.spawn(|| {
                changer.run(&stop);
                changer.change_count
            });
            let clients: Vec<_> = (0..CLIENT_COUNT as u64)
                .map(|number| {
                    let mut client = Client { address, results: &results, stream: None };
                    let mut random = Rng::with_seed(seed.wrapping_add(1 + number));
                    let results = &results;
                    scope.spawn(move || {
                        while results.response_count.load(Ordering::Relaxed) < wanted_count {
                            client.request(random.usize(..FILE_COUNT));
                            if random.u8(..50) == 0 {
                                // Another connection may reach another worker.
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
                "{} responses: {} whole, {} aborted, {} without a file; {change_count} changes",
                count(&results.response_count),
                count(&results.whole_count),
                count(&results.aborted_count),
                count(&results.other_count),
            );
        });
        let torn = results.torn.lock().expect("no panic");
        assert!(torn.is_empty(), "{} torn responses, such as {:?}", torn.len(), &torn[..torn.len().min(5)]);
        assert!(results.whole_count.load(Ordering::Relaxed) > wanted_count / 2, "most responses are complete");
        assert!(server.status().cache.descriptor_count <= FILE_COUNT as u64);
    });
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream
}

/// Requests the file `0`; its version, if it exists.
fn read_version(stream: &mut TcpStream) -> Option<u64> {
    stream.write_all(b"GET /0 HTTP/1.1\r\nHost: example\r\n\r\n").expect("sent");
    let response = read_response(stream).expect("answered");
    let is_ok = response.head.starts_with("HTTP/1.1 200 ");
    response.body.first_chunk().filter(|_| is_ok).map(|word| u64::from_le_bytes(*word))
}

#[test]
fn all_workers_notice_changed_and_deleted_files() {
    with_server(options(), |tree, address, server| {
        let path = tree.join("0");
        fs::write(&path, content(1, 4_000)).expect("written");
        let mut streams: Vec<TcpStream> = (0..4 * WORKER_COUNT).map(|_| connect(address)).collect();
        for stream in &mut streams {
            assert_eq!(read_version(stream), Some(1));
        }
        for version in 2..8 {
            fs::write(tree.join("aside"), content(version, 4_000)).expect("written");
            fs::rename(tree.join("aside"), &path).expect("renamed");
            let took = wait_until("new content on every connection", || {
                streams.iter_mut().all(|stream| read_version(stream) == Some(version))
            });
            println!("version {version} on all workers after {took:?}");
        }
        fs::remove_file(&path).expect("removed");
        wait_until("a deleted file is gone", || streams.iter_mut().all(|stream| read_version(stream).is_none()));
        let took = wait_until("no descriptor of a deleted file", || server.status().cache.descriptor_count == 0);
        println!("its descriptors were closed after {took:?}");
        fs::write(&path, content(9, 10)).expect("written");
        let took =
            wait_until("a new file after a 404", || streams.iter_mut().all(|stream| read_version(stream) == Some(9)));
        println!("a new file was found after {took:?}");
    });
}

/// Opens connections until each worker has one, and reads `version` on each.
fn connect_to_all_workers(address: SocketAddr, server: &Server, version: u64) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    let all_workers_are_reached = || {
        let threads = server.status().threads;
        threads.iter().filter(|thread| thread.count(Counter::HttpConnections) > 0).count() == WORKER_COUNT
    };
    while !all_workers_are_reached() {
        assert!(streams.len() < CONNECTION_COUNT_MAX, "{CONNECTION_COUNT_MAX} connections do not reach every worker");
        let mut stream = connect(address);
        assert_eq!(read_version(&mut stream), Some(version));
        streams.push(stream);
    }
    streams
}

#[test]
fn all_workers_check_unwatched_files_again_after_a_second() {
    let mut options = options();
    options.open_files.watched_directories_max = 0;
    with_server(options, |tree, address, server| {
        let (path, aside) = (tree.join("0"), tree.join("aside"));
        // Deleted files are noticed without a request, so each version has a second name.
        let put = |version: u64| {
            fs::write(&aside, content(version, 4_000)).expect("written");
            fs::hard_link(&aside, tree.join(format!("kept-{version}"))).expect("linked");
            fs::rename(&aside, &path).expect("renamed");
        };
        put(1);
        let mut streams = connect_to_all_workers(address, server, 1);
        let mut check_all = |version, descriptor_count| {
            let took = wait_until("the version on all workers", || {
                streams.iter_mut().all(|stream| read_version(stream) == version)
                    && server.status().cache.descriptor_count == descriptor_count
            });
            assert!(took <= CHECKED_AGAIN_MAX, "{version:?} after {took:?}");
            println!("{version:?} on {} connections to {WORKER_COUNT} workers after {took:?}", streams.len());
        };
        put(2);
        check_all(Some(2), 1);
        fs::remove_file(&path).expect("removed");
        check_all(None, 0);
        assert_eq!(server.status().cache.watched_directory_count, 0);
    });
}

#[test]
fn negative_entries_evict_no_file() {
    let mut options = Options::default();
    options.open_files.negative_entries_max = 64;
    // A request on a closed connection would not be counted.
    options.http.requests_per_connection_max = u64::MAX;
    with_server(options, |tree, address, server| {
        let results = Results::default();
        for index in 0..FILE_COUNT {
            fs::write(tree.join(index.to_string()), content(1, 10)).expect("written");
        }
        let mut client = Client { address, results: &results, stream: None };
        (0..FILE_COUNT).for_each(|index| client.request(index));
        let before = server.status().cache;
        assert_eq!(before.file_count, FILE_COUNT);
        let negative_count = setting("SANDERLING_MISSING", 2_000) as usize;
        (0..negative_count).for_each(|index| client.request(1_000_000 + index));
        let after = server.status().cache;
        assert_eq!((after.file_count, after.evicted_count), (before.file_count, 0));
        assert!(after.negative_count <= 64, "{after:?}");
        assert_eq!(results.other_count.load(Ordering::Relaxed) as usize, negative_count);
    });
}
