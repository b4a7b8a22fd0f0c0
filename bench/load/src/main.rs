//! Asks a DNS server as fast as it answers, and counts what came back.
//!
//! A closed loop: so many queries are outstanding, and each reply makes room for the next query. Sends and receives
//! go in batches, so that one processor of load is enough to keep one processor of server busy.

mod run;
mod datagrams;
mod stream;
mod channel;
mod window;
mod tally;
mod queries;
mod random;
mod calls;

use std::env;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: load udp|tcp ADDR:PORT QUERIES SECONDS [SEED]

  QUERIES   a file with a name and a type a line; they are asked in random order, again and again
  SECONDS   how long, such as 2 or 0.5

Prints one `KEY VALUE` a line: replies, lost, wrong, truncated, reply_bytes, reconnects, and a count for each RCODE.
";

/// What the command line asks for.
struct Order {
    transport: run::Transport,
    server: SocketAddr,
    queries: String,
    length: Duration,
    seed: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(order) = order(&words) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match execute(&order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("load: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn order(words: &[&str]) -> Option<Order> {
    let (&[transport, server, queries, seconds], rest) = words.split_first_chunk()?;
    let transport = match transport {
        "udp" => run::Transport::Udp,
        "tcp" => run::Transport::Tcp,
        _ => return None,
    };
    let seed = match rest {
        [] => 1,
        [seed] => seed.parse().ok()?,
        _ => return None,
    };
    let length = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
    Some(Order { transport, server: server.parse().ok()?, queries: queries.to_owned(), length, seed })
}

fn execute(order: &Order) -> Result<(), String> {
    let queries = queries::Queries::read(&order.queries)?;
    let tally = run::run(order.transport, order.server, &queries, order.length, order.seed)
        .map_err(|error| format!("{}: {error}", order.server))?;
    print!("{tally}");
    Ok(())
}
