//! Accepting a connection, with its flags or with a call for each flag after it.

use super::{Bench, Heading};
use crate::clients::{Client, any_address};
use crate::compare::{Candidate, Slice};
use crate::stopwatch::Stopwatch;
use sanderling_os::tcp::Listener;
use std::io;

pub(crate) const NAME: &str = "accept";
/// Connections per slice.
const CONNECTION_COUNT: usize = 16;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let listener = Listener::bind(any_address())?;
    let rows = [("accept4", "accept4"), ("accept, two flags", "accept")]
        .map(|(name, variant)| Candidate::new(name, || slice(&listener)).variant(NAME, variant));
    bench.calls(Heading::new(NAME, "Accepting a waiting connection", "connection"), rows.into());
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
