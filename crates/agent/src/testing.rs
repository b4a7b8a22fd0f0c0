//! DNS servers in the process of a test.

use sanderling_config::DomainName;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{Answer, DnsTransport, HashSeed, RequestInfo, answer};
use sanderling_dns::{ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap};
use sanderling_zone_files::wire_name;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::task::LocalSet;

const SEED: HashSeed = HashSeed(1);

/// Runs a test that starts local tasks.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("built");
    LocalSet::new().block_on(&runtime, test);
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

/// A server that answers from what is in the cell.
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
