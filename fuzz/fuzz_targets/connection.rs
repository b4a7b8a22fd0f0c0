//! Any bytes in any pieces, taken in any pieces, over connections in memory: the answers do not depend on the pieces,
//! no connection panics, and all of them close in time.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_server::simulation::{Simulation, simulate};
use sanderling_server::{
    BuiltinFile, Counter, DefaultSite, Options, Protocol, Root, Site, SiteOptions, Sites, Snapshot,
};
use std::time::Duration;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    is_dns: bool,
    messages: Vec<Message<'a>>,
    steps: Vec<Step>,
}

/// A piece of what the clients send.
#[derive(Arbitrary, Debug)]
enum Message<'a> {
    Get,
    Head,
    Large,
    Conditional,
    Range,
    Close,
    Content(u8),
    Chunked,
    Missing,
    Bytes(&'a [u8]),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Connect { window: u16 },
    Client(u8, ClientStep),
    Wait { ms: u16 },
    Drain,
    Iterate,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum ClientStep {
    Send { count: u8 },
    Take { count: u16 },
    CloseSending,
    Break,
}

const FILES: &[BuiltinFile] = &[
    BuiltinFile { path: "index.html", bytes: b"<p>a page</p>" },
    BuiltinFile { path: "large", bytes: &[b'x'; 100_000] },
];
const QUERY: &[u8] = b"\0\x19\0\x07\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";
const CONNECTIONS_MAX: usize = 4;
const ITERATIONS_MAX: usize = 10_000;
const HOUR: Duration = Duration::from_secs(3600);

impl Message<'_> {
    fn append(&self, is_dns: bool, out: &mut Vec<u8>) {
        let text = match self {
            Message::Bytes(bytes) => return out.extend_from_slice(bytes),
            _ if is_dns => return out.extend_from_slice(QUERY),
            Message::Get => "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            Message::Head => "HEAD /large HTTP/1.1\r\nHost: a\r\n\r\n",
            Message::Large => "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
            Message::Conditional => "GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n",
            Message::Range => "GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=5-70000\r\n\r\n",
            Message::Close => "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            Message::Chunked => {
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\n12345\r\n0\r\nT: r\r\n\r\n"
            }
            Message::Missing => "GET /missing HTTP/1.1\r\nHost: a\r\n\r\n",
            Message::Content(length) => {
                let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
                out.extend_from_slice(head.as_bytes());
                return out.resize(out.len() + usize::from(*length), b'c');
            }
        };
        out.extend_from_slice(text.as_bytes());
    }
}

fn snapshot() -> Snapshot {
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Builtin(FILES), options: SiteOptions::default() };
    Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []))
}

fn options() -> Options {
    let mut options = Options::default();
    options.http.connections_max = CONNECTIONS_MAX;
    options.http.requests_per_connection_max = 20;
    options.dns.tcp_connections_max = CONNECTIONS_MAX;
    options
}

/// All of `bytes` at once, to a client that takes everything.
fn whole_answer(kind: Protocol, bytes: &[u8]) -> Vec<u8> {
    simulate(snapshot(), options(), |simulation| {
        let client = simulation.connect(kind, bytes, usize::MAX).expect("the first connection");
        simulation.run(ITERATIONS_MAX);
        simulation.take_received(client)
    })
}

/// A client: how much it has sent, what it has received, and whether time or an end may have cut that short.
struct Client {
    index: usize,
    sent: usize,
    received: Vec<u8>,
}

fn run(simulation: &mut Simulation<'_>, kind: Protocol, bytes: &[u8], steps: &[Step]) -> Vec<Client> {
    let mut clients: Vec<Client> = Vec::new();
    for step in steps {
        match *step {
            Step::Connect { window } => {
                if let Some(index) = simulation.connect(kind, b"", usize::from(window)) {
                    clients.push(Client { index, sent: 0, received: Vec::new() });
                }
            }
            Step::Wait { ms } => simulation.advance(Duration::from_millis(u64::from(ms))),
            Step::Iterate => simulation.run(ITERATIONS_MAX),
            Step::Drain => simulation.drain(Duration::from_millis(100)),
            Step::Client(number, step) => {
                let chosen = usize::from(number) % clients.len().max(1);
                let Some(Client { index, sent, .. }) = clients.get_mut(chosen) else { continue };
                match step {
                    ClientStep::Send { count } => {
                        let end = bytes.len().min(*sent + usize::from(count));
                        simulation.send(*index, &bytes[*sent..end]);
                        *sent = end;
                    }
                    ClientStep::Take { count } => simulation.open_window(*index, usize::from(count)),
                    ClientStep::CloseSending => simulation.close(*index),
                    ClientStep::Break => simulation.break_off(*index),
                }
            }
        }
        for client in &mut clients {
            client.received.append(&mut simulation.take_received(client.index));
        }
    }
    clients
}

fuzz_target!(|input: Input<'_>| {
    let kind = if input.is_dns { Protocol::Dns } else { Protocol::Http };
    let mut bytes = Vec::new();
    input.messages.iter().for_each(|message| message.append(input.is_dns, &mut bytes));
    let has_drained = input.steps.iter().any(|step| matches!(step, Step::Drain));
    let has_waited = input.steps.iter().any(|step| matches!(step, Step::Wait { .. }));
    simulate(snapshot(), options(), |simulation| {
        let mut clients = run(simulation, kind, &bytes, &input.steps);
        if !has_drained && !has_waited && !clients.is_empty() {
            let whole = whole_answer(kind, &bytes);
            for client in &mut clients {
                simulation.open_window(client.index, usize::MAX);
                simulation.run(ITERATIONS_MAX);
                client.received.append(&mut simulation.take_received(client.index));
                assert!(whole.starts_with(&client.received), "the pieces change the answer");
            }
        }
        // However the clients behave, no connection outlives all timeouts.
        for _ in 0..4 {
            simulation.advance(HOUR);
            simulation.run(ITERATIONS_MAX);
        }
        assert!(clients.iter().all(|client| !simulation.is_open(client.index)), "a connection is left open");
        assert_eq!(simulation.count(Counter::Panics), 0);
        assert_eq!(simulation.count(Counter::HttpConnections), simulation.count(Counter::HttpClosed));
        assert_eq!(simulation.count(Counter::DnsStreams), simulation.count(Counter::DnsStreamsClosed));
    });
});
