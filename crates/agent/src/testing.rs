//! DNS servers in a test's process.

use crate::blocking;
use sanderling_config::DomainName;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{Answer, DnsTransport, HashSeed, RequestInfo, answer};
use sanderling_dns::{ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap};
use sanderling_zone_files::wire_name;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Once};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::LocalSet;

const SEED: HashSeed = HashSeed(1);

/// Runs a test that starts local tasks.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("built");
    LocalSet::new().block_on(&runtime, test);
}

/// Starts the threads that work waits for, once for all tests.
pub(crate) fn start_threads() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| blocking::start(1).expect("started"));
}

/// The zone at `apex` with the records of `text`, and no other zone.
pub(crate) fn zone_map(apex: &DomainName, text: &str) -> ZoneMap {
    let apex = wire_name(apex);
    let mut parser = Parser::new("zone".to_owned(), text.into(), apex.as_name(), ParserLimits::default());
    let mut builder = ZoneBuilder::new(apex.as_name(), SEED, ZoneLimits::default());
    while let Some(Ok(entry)) = parser.next() {
        if let Entry::Record(record) = entry {
            builder.add(&record);
        }
    }
    let zone = builder.finish(Position { file_index: 0, line: 1, column: 1 }).zone.expect("a zone");
    ZoneMap::new(SEED, [ZoneEntry::Served(Arc::new(zone))])
}

/// A server that answers with the content of the cell.
pub(crate) async fn serve(address: [u8; 4], zone: Rc<RefCell<ZoneMap>>) -> SocketAddr {
    let socket = UdpSocket::bind(SocketAddr::from((address, 0))).await.expect("bound");
    let bound = socket.local_addr().expect("bound");
    tokio::task::spawn_local(async move {
        let (mut query, mut out) = ([0; 512], [0; 1232]);
        while let Ok((length_bytes, client)) = socket.recv_from(&mut query).await {
            let transport = DnsTransport::Udp { reply_bytes_max: 1232 };
            let info = RequestInfo { client, transport, now_unix_s: 0 };
            let sent = answer(&zone.borrow(), &info, &query[..length_bytes], &mut out);
            let Answer::Reply(length_bytes) = sent else { continue };
            let _ = socket.send_to(&out[..length_bytes], client).await;
        }
    });
    bound
}

/// Serves the zone over TCP. Over UDP, all replies are empty and truncated.
pub(crate) async fn serve_over_tcp(address: [u8; 4], zone: Rc<RefCell<ZoneMap>>) -> SocketAddr {
    let (udp, tcp) = loop {
        let tcp = TcpListener::bind(SocketAddr::from((address, 0))).await.expect("bound");
        // Another socket may have the port.
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().expect("bound")).await {
            break (udp, tcp);
        }
    };
    let bound = tcp.local_addr().expect("bound");
    tokio::task::spawn_local(async move {
        const RESPONSE_AUTHORITATIVE_TRUNCATED: u8 = 0x86;
        let mut message = [0; 512];
        while let Ok((length_bytes, client)) = udp.recv_from(&mut message).await {
            message[2] |= RESPONSE_AUTHORITATIVE_TRUNCATED;
            let _ = udp.send_to(&message[..length_bytes], client).await;
        }
    });
    tokio::task::spawn_local(async move {
        while let Ok((mut stream, client)) = tcp.accept().await {
            while let Ok(reply) = answer_over_tcp(&mut stream, client, &zone).await {
                let _ = stream.write_all(&reply).await;
            }
        }
    });
    bound
}

async fn answer_over_tcp(
    stream: &mut TcpStream,
    client: SocketAddr,
    zone: &RefCell<ZoneMap>,
) -> std::io::Result<Vec<u8>> {
    let mut query = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut query).await?;
    let mut out = vec![0; usize::from(u16::MAX)];
    let info = RequestInfo { client, transport: DnsTransport::Tcp, now_unix_s: 0 };
    let Answer::Reply(length_bytes) = answer(&zone.borrow(), &info, &query, &mut out) else {
        return Err(std::io::ErrorKind::InvalidData.into());
    };
    Ok([&(length_bytes as u16).to_be_bytes(), &out[..length_bytes]].concat())
}
