//! Turns nothing but time into a table of nanoseconds: what a look-up costs by each map, alone and among threads.
//!
//! `cargo run --release [rounds]` from `bench/table`; the default of 7 rounds takes half a minute to a minute. Each round
//! runs the maps in another order, in slices of a few milliseconds, so that load from outside meets them all alike.
//! `--features numbers` looks up numbers instead of paths.

mod deferred;
mod candidates;
mod slice;
mod candidate;
mod key;

use key::Key;
use slice::{Setting, Stand};
use std::sync::atomic::AtomicU64;

const ROUNDS_DEFAULT: usize = 7;
const THREAD_COUNTS: [usize; 4] = [1, 2, 4, 16];
const PATH_COUNT: usize = 10_000;

static ALIVE: AtomicU64 = AtomicU64::new(0);

fn main() {
    let rounds = std::env::args().nth(1).map_or(ROUNDS_DEFAULT, |text| text.parse().expect("a number of rounds"));
    deferred::show();
    for path_count in [1, PATH_COUNT] {
        let paths: Vec<Key> = (0..path_count).map(key::key).collect();
        let stands = stands(&paths);
        for replaces in [false, true] {
            println!(
                "\n{path_count} key(s), {}: CPU ns a look-up, median (p10) [wall million look-ups a second]",
                if replaces { "an entry replaced every 8,192 look-ups" } else { "nothing replaced" }
            );
            let settings = THREAD_COUNTS.map(|thread_count| Setting { thread_count, replaces });
            slice::compare(&stands, &paths, &settings, rounds);
        }
    }
}

fn stands(paths: &[Key]) -> Vec<Box<dyn Stand>> {
    use candidates::*;
    vec![
        slice::stand::<Private>(paths, &ALIVE),
        slice::stand::<OneLock>(paths, &ALIVE),
        slice::stand::<ReadLock>(paths, &ALIVE),
        slice::stand::<Sharded>(paths, &ALIVE),
        slice::stand::<Papaya<EachLook>>(paths, &ALIVE),
        slice::stand::<Papaya<EachLookAndArc>>(paths, &ALIVE),
        slice::stand::<Papaya<EachTurn>>(paths, &ALIVE),
        slice::stand::<Slab>(paths, &ALIVE),
        slice::stand::<Swapped>(paths, &ALIVE),
        slice::stand::<SwappedCached>(paths, &ALIVE),
        slice::stand::<Counted>(paths, &ALIVE),
        slice::stand::<Leased>(paths, &ALIVE),
    ]
}
