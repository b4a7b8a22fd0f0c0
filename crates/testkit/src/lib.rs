//! For tests of several crates: the program under test, clients, temporary directories, random bytes.
//!
//! A test that fails prints the program's output. No helper waits longer than [`DEADLINE`] by itself.
#![forbid(unsafe_code)]

pub mod dns;
pub mod http;

mod server;
mod directory;
mod stalled_disk;
mod clients;
mod command;
mod manual;
mod processes;
mod free_address;
mod key_changes;

pub use clients::{
    RawConnection, UdpClient, curl, dig, dig_udp, framed, kdig, run_program, tcp_exchange, tcp_reply, try_tcp_reply,
    udp_reply, wget, wget_mirror,
};
pub use command::{Ended, copy_program_to, run, run_to_end, sanderling};
pub use directory::TestDirectory;
pub use free_address::{free_address, free_address_at};
pub use key_changes::{KeyChange, key_changes};
pub use manual::{check_manual_table, check_promised};
pub use processes::{
    allow_descriptors, children_of, children_with, descriptor_of, inherited_by, resident_bytes, send_as, send_signal,
    server_pids,
};
pub use server::{ListenerCounts, TestServer};
pub use stalled_disk::{ANSWERED, CONTENT, FILE_BYTES, NOT_FOUND_YET, STALLED, StalledDisk};

use std::fmt::Debug;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

/// Time in which a program must start, answer or end. The time allows for machines under load: no test that passes
/// waits for it.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Pauses between two looks at what is waited for: short at first, since most of it comes soon, and twice as long each
/// time, since a look may start a program, which takes the processor from what is waited for.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Pauses {
    const LONGEST: Duration = Duration::from_millis(50);

    /// The next pause.
    pub fn wait(&mut self) {
        thread::sleep(self.0);
        self.0 = (2 * self.0).min(Pauses::LONGEST);
    }
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(Duration::from_millis(1))
    }
}

/// Waits for something; how long it took.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) -> Duration {
    wait_within(DEADLINE, what, is_so)
}

/// Waits for an event that takes longer than [`DEADLINE`] in a test that passes.
#[track_caller]
pub fn wait_within(deadline: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let (start, mut pauses) = (Instant::now(), Pauses::default());
    while !is_so() {
        assert!(start.elapsed() < deadline, "{what}: not within {deadline:?}");
        pauses.wait();
    }
    start.elapsed()
}

/// The number in a variable of the environment, which makes a test longer.
pub fn number_or<N: FromStr<Err: Debug>>(variable: &str, default: N) -> N {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error:?}")))
}

/// A seed for random numbers: from the variable `SANDERLING_SEED`, or different in each run. The seed is printed.
pub fn seed() -> u64 {
    let seed = number_or("SANDERLING_SEED", fastrand::u64(..));
    println!("SANDERLING_SEED={seed}");
    seed
}

/// Random bytes.
pub fn random_bytes(random: &mut fastrand::Rng, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    random.fill(&mut bytes);
    bytes
}
