//! All windows kept full until the time is up.

use crate::calls::wait_readable;
use crate::channel::Channel;
use crate::datagrams::Datagrams;
use crate::queries::Queries;
use crate::random::Random;
use crate::stream::Stream;
use crate::tally::Tally;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Sockets, each with a window of its own.
const CHANNEL_COUNT: usize = 8;
/// How long replies are waited for before everything outstanding counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub enum Transport {
    Udp,
    Tcp,
}

/// Asks for `length`, then waits for what is outstanding.
pub fn run(
    transport: Transport,
    server: SocketAddr,
    queries: &Queries,
    length: Duration,
    seed: u64,
) -> io::Result<Tally> {
    let mut random = Random::new(seed);
    match transport {
        Transport::Udp => run_over(&mut channels(|| Datagrams::connect(server))?, queries, length, &mut random),
        Transport::Tcp => run_over(&mut channels(|| Stream::connect(server))?, queries, length, &mut random),
    }
}

fn channels<C>(connect: impl Fn() -> io::Result<C>) -> io::Result<Vec<C>> {
    (0..CHANNEL_COUNT).map(|_| connect()).collect()
}

fn run_over<C: Channel>(
    channels: &mut [C],
    queries: &Queries,
    length: Duration,
    random: &mut Random,
) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let end = Instant::now() + length;
    for channel in channels.iter_mut() {
        channel.send(queries, random, &mut tally)?;
    }
    while Instant::now() < end {
        let mut moved = false;
        for channel in channels.iter_mut() {
            if channel.receive(queries, &mut tally)? {
                moved = true;
                channel.send(queries, random, &mut tally)?;
            }
        }
        if !moved && !wait(channels, PATIENCE)? {
            for channel in channels.iter_mut() {
                channel.window().lose_all(&mut tally);
                channel.send(queries, random, &mut tally)?;
            }
        }
    }
    finish(channels, queries, &mut tally)?;
    Ok(tally)
}

/// Whether a socket can be read before `limit` is over.
fn wait<C: Channel>(channels: &[C], limit: Duration) -> io::Result<bool> {
    let descriptors: Vec<RawFd> = channels.iter().map(Channel::descriptor).collect();
    // Asked of the kernel and not of the clock: who was stopped meanwhile still finds what has come.
    wait_readable(&descriptors, limit)
}

fn finish<C: Channel>(channels: &mut [C], queries: &Queries, tally: &mut Tally) -> io::Result<()> {
    loop {
        let mut moved = false;
        for channel in channels.iter_mut() {
            moved |= channel.receive(queries, tally)?;
        }
        let outstanding: usize = channels.iter_mut().map(|channel| channel.window().outstanding_count()).sum();
        if outstanding == 0 {
            return Ok(());
        }
        if !moved && !wait(channels, PATIENCE)? {
            for channel in channels.iter_mut() {
                channel.window().lose_all(tally);
            }
            return Ok(());
        }
    }
}
