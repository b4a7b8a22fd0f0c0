//! Accepting a connection with its flags at once, or with a call for each flag behind it.

use super::{Bench, Heading};
use crate::rounds::{Candidate, Slice};
use crate::stopwatch::Stopwatch;
use sanderling_os::candidates::stream::Client;
use sanderling_os::tcp::Listener;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

pub(crate) const JOB: &str = "accept";
/// Connections of a slice.
const CONNECTION_COUNT: usize = 16;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let rows = [("accept4", "accept4"), ("accept, two flags", "accept")]
        .map(|(name, way)| Candidate::new(name, || slice(&listener)).by_way(JOB, way));
    bench.calls(Heading::new(JOB, "Accepting a connection that waits", "connection"), rows.into());
    Ok(())
}

fn slice(listener: &Listener) -> io::Result<Slice> {
    let address = listener.local_address()?;
    let clients: Vec<Client> = (0..CONNECTION_COUNT).map(|_| Client::connect(address)).collect::<io::Result<_>>()?;
    let mut streams = Vec::with_capacity(CONNECTION_COUNT);
    let mut stopwatch = Stopwatch::default();
    stopwatch.time(|| {
        while let Ok(Some((stream, _))) = listener.accept() {
            streams.push(stream);
        }
    });
    let accepted_count = streams.len() as u64;
    for client in clients {
        client.reset()?;
    }
    Ok(Slice::of_one_thread(&stopwatch, accepted_count, CONNECTION_COUNT as u64 - accepted_count))
}
