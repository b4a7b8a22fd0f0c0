//! `cargo xtask logins`: attacks on passwords by the crate `soak`, and whether users can log in meanwhile, as a table.

use crate::{page, system};
use clap::Args;
use soak::logins::{Attack, Networks};
use std::path::PathBuf;
use std::time::Duration;

/// The least share of logins that has to succeed within two seconds.
const SERVED_SHARE_MIN: f64 = 0.95;

/// Guess passwords, more than the server can check, and log in meanwhile
///
/// For each attack: the share of logins with a correct password that succeeded within two seconds, and the times within
/// which 50 % and 99 % succeeded. At least 95 % must succeed, even from networks without earlier logins.
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds in which users log in, during each attack
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Seconds before
    #[arg(long, default_value_t = 5.0)]
    before: f64,
    /// A server program to use instead of the one built from the sources
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let program = system::server_program(options.program.as_deref())?;
    println!("{}\n", system::description().join("\n"));
    let (mut rows, mut is_success) = (Vec::new(), true);
    for guesses_per_s in [42, 600] {
        for networks in [Networks::OneSite, Networks::Botnet] {
            for name_count in [1, 500] {
                for is_known in [false, true] {
                    let attack = Attack { guesses_per_s, networks, name_count, is_known };
                    let [before, measured] = [options.before, options.seconds].map(Duration::from_secs_f64);
                    let logins = attack.run(&program, before, measured)?;
                    is_success &= logins.served_share() >= SERVED_SHARE_MIN;
                    let ms = |share| {
                        let took = logins.quantile(share);
                        took.map_or("none".to_owned(), |took| format!("{:.0}", took.as_secs_f64() * 1e3))
                    };
                    rows.push(vec![
                        guesses_per_s.to_string(),
                        match networks {
                            Networks::OneSite => "160 /64 of one /48",
                            Networks::Botnet => "2,000 /24",
                        }
                        .to_owned(),
                        name_count.to_string(),
                        if is_known { "known" } else { "new" }.to_owned(),
                        (logins.took.len() + logins.failed_count).to_string(),
                        format!("{:.0} %", logins.served_share() * 100.0),
                        ms(0.5),
                        ms(0.99),
                    ]);
                }
            }
        }
    }
    let head = ["guesses/s", "from", "names", "network of the user", "logins", "within 2 s", "p50 ms", "p99 ms"];
    println!("{}", page::table(&head, &rows));
    Ok(is_success)
}
