//! One server takes over from another, on the same sockets, again and again, while clients that never ask twice ask:
//! nothing is lost. `SANDERLING_CHANGES=100 cargo test --release -p sanderling-server --test generations -- --nocapture`
//! runs it at length.

use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_server::{BuiltinFile, DefaultSite, DrainMode, Options, Root, Server, Site, Sites, Snapshot, SocketSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(20);
const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: b"content" }];
const GET: &[u8] = b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
const QUERY: &[u8] = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";
/// Requests that are sent together.
const PIPELINED: usize = 20;
/// Answers of each kind that are waited for before the next change.
const ANSWERS_PER_CHANGE: u64 = 30;

/// What one kind of client has seen.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    lost: AtomicU64,
}

/// One kind of client: its name, and what it does until it is told to stop or its connection ends as it should. It tells
/// how many were answered, or what was lost.
type Ask = fn(&Sockets, &Seen, &AtomicBool) -> io::Result<()>;

struct Sockets {
    sockets: Vec<SocketSet>,
    http: SocketAddr,
    dns: SocketAddr,
}

fn bind() -> Sockets {
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(any).expect("bound");
    let (socket, streams) = Socket::bind_with_listener(any).expect("bound");
    let (http, dns) = (listener.local_address().expect("bound"), socket.local_address().expect("bound"));
    let first = SocketSet { http: vec![listener], dns_streams: vec![streams], dns_datagrams: vec![socket] };
    let second = SocketSet {
        http: vec![Listener::bind_reuseport(http).expect("bound")],
        dns_streams: vec![Listener::bind_reuseport(dns).expect("bound")],
        dns_datagrams: vec![Socket::bind_reuseport(dns).expect("bound")],
    };
    Sockets { sockets: vec![first, second], http, dns }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads one response; whether the connection goes on.
fn response(stream: &mut TcpStream) -> io::Result<bool> {
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(b"\r\n\r\ncontent") {
        stream.read_exact(&mut byte)?;
        received.push(byte[0]);
    }
    Ok(!received.windows(17).any(|window| window == b"Connection: close"))
}

/// A connection for each request.
fn ask_once(sockets: &Sockets, seen: &Seen, _: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(sockets.http)?;
    stream.write_all(GET)?;
    response(&mut stream)?;
    seen.answered.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// One request after another, until the server says that it was the last.
fn ask_on_and_on(sockets: &Sockets, seen: &Seen, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(sockets.http)?;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(GET)?;
        let goes_on = response(&mut stream)?;
        seen.answered.fetch_add(1, Ordering::Relaxed);
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Many requests together, all of which are to be answered.
fn ask_many(sockets: &Sockets, seen: &Seen, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(sockets.http)?;
    let mut goes_on = true;
    while goes_on && !stop.load(Ordering::Relaxed) {
        stream.write_all(&GET.repeat(PIPELINED))?;
        for _ in 0..PIPELINED {
            goes_on = response(&mut stream)?;
            seen.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// One query after another on a stream, until its end shows before the next is sent.
fn ask_on_a_stream(sockets: &Sockets, seen: &Seen, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(sockets.dns)?;
    let query = [&(QUERY.len() as u16).to_be_bytes(), QUERY].concat();
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&query)?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes(length))])?;
        seen.answered.fetch_add(1, Ordering::Relaxed);
        stream.set_nonblocking(true)?;
        let has_ended = matches!(stream.peek(&mut [0]), Ok(0));
        stream.set_nonblocking(false)?;
        if has_ended {
            break;
        }
    }
    Ok(())
}

/// A datagram from a socket of its own.
fn ask_by_datagram(sockets: &Sockets, seen: &Seen, _: &AtomicBool) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send_to(QUERY, sockets.dns)?;
    socket.recv(&mut [0; 512])?;
    seen.answered.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

const KINDS: [(&str, Ask); 5] = [
    ("a connection for each request", ask_once),
    ("keep-alive", ask_on_and_on),
    ("pipelined", ask_many),
    ("DNS streams", ask_on_a_stream),
    ("datagrams", ask_by_datagram),
];

/// A server that serves until `stop` is closed, and tells by `ready` that it does.
fn serve(sockets: &Sockets, worker_count: usize, ready: &mpsc::Sender<()>, stop: &mpsc::Receiver<()>) {
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Builtin(FILES) };
    let zones = ZoneMap::new(HashSeed(1), []);
    let snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), zones);
    let options = Options { drain_grace: Duration::from_millis(500), ..Options::default() };
    let server = Server::new(snapshot, options, DEADLINE);
    let served = server.run(&sockets.sockets, worker_count, |server| {
        ready.send(()).expect("waited for");
        // An error is the end of the sender: the signal to stop.
        let _ = stop.recv();
        server.drain(DrainMode::Replaced);
    });
    served.expect("served");
}

#[test]
fn nothing_is_lost_when_a_server_takes_over_from_another() {
    let change_count = std::env::var("SANDERLING_CHANGES").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let sockets = bind();
    let seen: [Seen; KINDS.len()] = Default::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ready, readied) = mpsc::channel();
        let start = |worker_count: usize| {
            let (running, stopped) = mpsc::channel::<()>();
            let (ready, sockets) = (ready.clone(), &sockets);
            scope.spawn(move || serve(sockets, worker_count, &ready, &stopped));
            readied.recv_timeout(DEADLINE).expect("it serves");
            running
        };
        let mut running = start(2);
        let ask_until_stopped = |(name, ask): (&str, Ask), seen: &Seen| {
            while !stop.load(Ordering::Relaxed) {
                if let Err(error) = ask(&sockets, seen, &stop) {
                    println!("{name}: {error}");
                    seen.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let spawn = |(kind, seen)| scope.spawn(move || ask_until_stopped(kind, seen));
        let clients: Vec<_> = KINDS.into_iter().zip(&seen).map(spawn).collect();
        for change in 0..change_count {
            wait_for_answers(&seen);
            // Fewer workers than sockets, as many, and more.
            let next = start([1, 3, 4, 2][change % 4]);
            drop(std::mem::replace(&mut running, next));
        }
        wait_for_answers(&seen);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no panic");
        }
        drop(running);
    });
    for ((name, _), seen) in KINDS.iter().zip(&seen) {
        let (answered, lost) = (seen.answered.load(Ordering::Relaxed), seen.lost.load(Ordering::Relaxed));
        println!("{name}: {answered} answered, {lost} lost in {change_count} changes");
    }
    assert!(seen.iter().all(|seen| seen.lost.load(Ordering::Relaxed) == 0));
}

/// Until each kind of client has been answered often since the last change.
fn wait_for_answers(seen: &[Seen]) {
    let start = std::time::Instant::now();
    let before: Vec<u64> = seen.iter().map(|seen| seen.answered.load(Ordering::Relaxed)).collect();
    let is_enough =
        |(seen, before): (&Seen, &u64)| seen.answered.load(Ordering::Relaxed) >= before + ANSWERS_PER_CHANGE;
    while !seen.iter().zip(&before).all(is_enough) {
        assert!(start.elapsed() < DEADLINE, "somebody is not answered any more");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
