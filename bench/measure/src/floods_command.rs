//! `cargo xtask floods`: floods of HTTP/2 by the crate `soak`, and their effect as a table.

use crate::{page, system};
use clap::Args;
use soak::floods::{FLOODS, Server};
use std::path::PathBuf;
use std::time::Duration;

/// Resident memory that may be added while all floods run, in KiB.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

/// Waiting times that are no effect of a flood: the processors have other things to do, such as to run the client that
/// floods.
const NOISE: Duration = Duration::from_millis(1);

/// Flood the server with frames of HTTP/2 over TLS, 100,000 of each kind on a connection
///
/// For each kind: the frames that a connection accepts before it ends, the waiting times (99th percentile) of another
/// client: alone, during one flood per 200 ms on a connection, during single requests on new connections, and during
/// floods on new connections; and the memory of the server. One flood may not double the waiting time alone, unless it
/// stays below 1 ms. Floods on new connections must not double the waiting time measured during requests, most of which
/// is due to handshakes.
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds that each of the four waiting times is measured
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// A server program to use instead of the one built from the sources
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let program = system::server_program(options.program.as_deref())?;
    println!("{}\n", system::description().join("\n"));
    let server = Server::start(&program)?;
    let (mut rows, mut is_success, mut first_kib) = (Vec::new(), true, None);
    for flood in FLOODS {
        let (frame_count, code) = flood.run_once(&server)?;
        let waiting = flood.measure(&server, Duration::from_secs_f64(options.seconds))?;
        let resident_kib = server.resident_kib();
        // After the first flood all buffers exist.
        let growth_kib = resident_kib.saturating_sub(*first_kib.get_or_insert(resident_kib));
        let is_slow_once = waiting.beside_one_flood > NOISE.max(2 * waiting.alone);
        let is_slow = waiting.beside_flood > 2 * waiting.beside_requests.max(waiting.alone);
        is_success &= frame_count <= flood.frames_max && !is_slow_once && !is_slow && growth_kib <= GROWTH_KIB_MAX;
        let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
        rows.push(vec![
            flood.name.to_owned(),
            frame_count.to_string(),
            flood.frames_max.to_string(),
            code.map_or("none".to_owned(), |code| code.to_string()),
            format!("{:.0}", waiting.floods_per_s),
            ms(waiting.alone),
            ms(waiting.beside_one_flood) + if is_slow_once { " SLOW" } else { "" },
            ms(waiting.beside_requests),
            ms(waiting.beside_flood) + if is_slow { " SLOW" } else { "" },
            format!("{:.1}", resident_kib as f64 / 1024.0),
        ]);
    }
    let head =
        ["flood", "frames", "limit", "code", "floods/s", "alone ms", "one flood ms", "requests ms", "floods ms", "MiB"];
    println!("{}", page::table(&head, &rows));
    Ok(is_success)
}
