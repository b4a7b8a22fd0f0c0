//! One server replaces another on the same sockets, repeatedly, while clients that never retry send requests: none is
//! lost. `SANDERLING_CHANGES=100` makes it long.

use crate::support::{QUERY, bind, builtin, unlimited_errors};
use sanderling_server::{DrainMode, Options, Server, SocketSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);
const GET: &[u8] = b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
const PIPELINED_COUNT: usize = 20;
/// Answers of each kind before the next change.
const ANSWERS_PER_CHANGE: u64 = 30;

/// Of one kind of client.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    lost: AtomicU64,
}

/// Sends requests until the flag is set or the server closes the connection in order.
type Client = fn(&Sockets, &Counts, &AtomicBool) -> io::Result<()>;

struct Sockets {
    sets: Vec<SocketSet>,
    http: SocketAddr,
    dns: SocketAddr,
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads a response; whether the connection persists.
fn response(stream: &mut TcpStream) -> io::Result<bool> {
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(b"\r\n\r\ncontent") {
        stream.read_exact(&mut byte)?;
        received.push(byte[0]);
    }
    Ok(!received.windows(17).any(|window| window == b"Connection: close"))
}

fn connection_for_each_request(sockets: &Sockets, counts: &Counts, _: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(sockets.http)?;
    stream.write_all(GET)?;
    response(&mut stream)?;
    counts.answered.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn keep_alive(sockets: &Sockets, counts: &Counts, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(sockets.http)?;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(GET)?;
        let persists = response(&mut stream)?;
        counts.answered.fetch_add(1, Ordering::Relaxed);
        if !persists {
            break;
        }
    }
    Ok(())
}

/// All requests that were sent together are answered.
fn pipelining(sockets: &Sockets, counts: &Counts, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(sockets.http)?;
    let mut persists = true;
    while persists && !stop.load(Ordering::Relaxed) {
        stream.write_all(&GET.repeat(PIPELINED_COUNT))?;
        for _ in 0..PIPELINED_COUNT {
            persists = response(&mut stream)?;
            counts.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The client looks for the FIN of the server before each query.
fn dns_over_tcp(sockets: &Sockets, counts: &Counts, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(sockets.dns)?;
    let query = [&(QUERY.len() as u16).to_be_bytes(), QUERY].concat();
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&query)?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes(length))])?;
        counts.answered.fetch_add(1, Ordering::Relaxed);
        stream.set_nonblocking(true)?;
        let is_closed = matches!(stream.peek(&mut [0]), Ok(0));
        stream.set_nonblocking(false)?;
        if is_closed {
            break;
        }
    }
    Ok(())
}

fn dns_over_udp(sockets: &Sockets, counts: &Counts, _: &AtomicBool) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send_to(QUERY, sockets.dns)?;
    socket.recv(&mut [0; 512])?;
    counts.answered.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

const KINDS: [(&str, Client); 5] = [
    ("a connection for each request", connection_for_each_request),
    ("keep-alive", keep_alive),
    ("pipelined", pipelining),
    ("DNS over TCP", dns_over_tcp),
    ("DNS over UDP", dns_over_udp),
];

/// Serves until `stop` is closed.
fn serve(sockets: &Sockets, worker_count: usize, ready: &mpsc::Sender<()>, stop: &mpsc::Receiver<()>) {
    let options = Options { drain_grace: Duration::from_millis(500), ..unlimited_errors() };
    let server = Server::new(builtin(), options, DEADLINE);
    let served = server.run(&sockets.sets, worker_count, |server| {
        ready.send(()).expect("received");
        // The error of a closed channel.
        let _ = stop.recv();
        server.drain(DrainMode::Replaced);
    });
    served.expect("served");
}

#[test]
fn no_request_is_lost_when_a_server_replaces_another() {
    let change_count = sanderling_testkit::number_or("SANDERLING_CHANGES", 8);
    let (sets, http, dns) = bind(2);
    let sockets = Sockets { sets, http, dns };
    let counts: [Counts; KINDS.len()] = Default::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let start = |worker_count: usize| {
            let (running, stopped) = mpsc::channel::<()>();
            let (ready, sockets) = (ready.clone(), &sockets);
            scope.spawn(move || serve(sockets, worker_count, &ready, &stopped));
            is_ready.recv_timeout(DEADLINE).expect("the server is ready");
            running
        };
        let mut running = start(2);
        let run_client = |(name, client): (&str, Client), counts: &Counts| {
            while !stop.load(Ordering::Relaxed) {
                if let Err(error) = client(&sockets, counts, &stop) {
                    println!("{name}: {error}");
                    counts.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let spawn = |(kind, counts)| scope.spawn(move || run_client(kind, counts));
        let clients: Vec<_> = KINDS.into_iter().zip(&counts).map(spawn).collect();
        for change in 0..change_count {
            wait_for_answers(&counts);
            // Fewer workers than sockets, as many, and more.
            let next = start([1, 3, 4, 2][change % 4]);
            drop(std::mem::replace(&mut running, next));
        }
        wait_for_answers(&counts);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no panic");
        }
        drop(running);
    });
    for ((name, _), counts) in KINDS.iter().zip(&counts) {
        let (answered, lost) = (counts.answered.load(Ordering::Relaxed), counts.lost.load(Ordering::Relaxed));
        println!("{name}: {answered} answered, {lost} lost in {change_count} changes");
    }
    assert!(counts.iter().all(|counts| counts.lost.load(Ordering::Relaxed) == 0));
}

/// Waits until each kind of client has received further answers.
fn wait_for_answers(counts: &[Counts]) {
    let start = Instant::now();
    let before: Vec<u64> = counts.iter().map(|counts| counts.answered.load(Ordering::Relaxed)).collect();
    let is_enough =
        |(counts, before): (&Counts, &u64)| counts.answered.load(Ordering::Relaxed) >= before + ANSWERS_PER_CHANGE;
    while !counts.iter().zip(&before).all(is_enough) {
        assert!(start.elapsed() < DEADLINE, "a client receives no answers");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
