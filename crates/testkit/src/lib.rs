//! For tests of several crates: the program under test, clients, temporary folders, random bytes.
//!
//! A test that fails prints the output of the program. No helper waits longer than [`DEADLINE`].
#![forbid(unsafe_code)]

mod server;
mod folder;
mod clients;
mod command;
mod processes;

pub use clients::{
    RawConnection, UdpClient, curl, dig, framed, kdig, run_program, tcp_exchange, tcp_reply, udp_reply, wget,
    wget_mirror,
};
pub use command::{Ended, copy_program_to, run, run_to_end, sanderling};
pub use folder::Folder;
pub use processes::{children_of, send_signal, server_pids};
pub use server::{ListenerCounts, TestServer};

use std::time::Duration;

/// Time in which a program must start, answer or end. It is for machines under load: no test that passes waits for it.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Random bytes. A test that uses random numbers prints its seed.
pub fn random_bytes(random: &mut fastrand::Rng, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    random.fill(&mut bytes);
    bytes
}
