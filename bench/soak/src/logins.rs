//! Clients that guess more passwords than the server can check: measures how many other users can log in meanwhile, and
//! how long that takes.

use crate::running::Running;
use anyhow::Context;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The work factor of the hashes, the usual one of `htpasswd -B -C 10` and of most programs.
const BCRYPT_COST: u32 = 10;
const PASSWORD: &str = "right";
/// Number of users, each of which logs in at most once: a correct password is remembered.
const USER_COUNT: usize = 2_000;
/// The networks of users.
const USER_NETWORKS: usize = 40;
/// Time in which a login has to succeed.
const LOGIN_TIME: Duration = Duration::from_secs(2);
/// Time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(12);
/// The time between two logins of users.
const LOGIN_INTERVAL: Duration = Duration::from_millis(250);
/// Time after which a client that guesses closes its connection, without an answer if there is none.
const GUESS_TIME: Duration = Duration::from_secs(3);

/// The networks from which guesses come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Networks {
    /// 160 networks (/64) in one IPv6 /48.
    OneSite,
    /// 2,000 networks (/24) all over IPv4.
    Botnet,
}

/// An attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Guesses in each second.
    pub guesses_per_s: u32,
    /// The networks from which the guesses come.
    pub networks: Networks,
    /// The number of guessed names.
    pub name_count: usize,
    /// The users have logged in from their networks before.
    pub is_known: bool,
}

/// The results of users' logins.
#[derive(Clone, Debug)]
pub struct Logins {
    /// Times until the page arrived, in ascending order.
    pub took: Vec<Duration>,
    /// Logins that had no success.
    pub failed_count: usize,
}

impl Logins {
    /// The share that had success within two seconds.
    pub fn served_share(&self) -> f64 {
        let in_time = self.took.iter().filter(|took| **took <= LOGIN_TIME).count();
        in_time as f64 / (self.took.len() + self.failed_count).max(1) as f64
    }

    /// The time within which this share of all logins had success; `None` if fewer had.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let index = ((self.took.len() + self.failed_count) as f64 * share).ceil() as usize;
        self.took.get(index.max(1) - 1).copied()
    }
}

impl Attack {
    /// Runs the attack for `before`, and then for `measured`, in which users log in.
    pub fn run(&self, program: &Path, before: Duration, measured: Duration) -> anyhow::Result<Logins> {
        let folder = TempDir::with_prefix("logins-")?;
        let hash = bcrypt::hash(PASSWORD, BCRYPT_COST)?;
        let mut users = String::new();
        for number in 0..USER_COUNT {
            writeln!(users, "user{number}:{hash}")?;
        }
        fs::create_dir(folder.path().join("site"))?;
        fs::write(folder.path().join("site/index.html"), "content")?;
        fs::write(folder.path().join("users"), users)?;
        fs::write(
            folder.path().join("sanderling.toml"),
            "[http]\nlisten = [\"127.0.0.1:0\"]\ntrusted_proxies = [\"127.0.0.1\"]\nclient_from = \"x-forwarded-for\"\n\
             [domain.\"localhost\"]\nsite = \"site\"\n[domain.\"localhost\".auth]\n\"/*\" = { users_file = \"users\" }\n",
        )?;
        let arguments = ["--config", "sanderling.toml", "--control", "control"];
        let (_server, [http]) = Running::start(program, folder, &arguments, ["http "])?;
        if self.is_known {
            for number in 0..USER_NETWORKS {
                let took = log_in(http, USER_COUNT - 1 - number, number)?;
                took.context("a login without an attack failed")?;
            }
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let guesses = scope.spawn(|| self.guess(http, &is_over));
            thread::sleep(before);
            let mut logins = Vec::new();
            let start = Instant::now();
            for number in 0..(measured.as_secs_f64() / LOGIN_INTERVAL.as_secs_f64()) as usize {
                let due = start + LOGIN_INTERVAL * number as u32;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let network = if self.is_known { number % USER_NETWORKS } else { number };
                logins.push(scope.spawn(move || log_in(http, number, network)));
            }
            let results = logins.into_iter().map(|login| login.join().expect("no panic")).collect::<Vec<_>>();
            is_over.store(true, Ordering::Relaxed);
            guesses.join().expect("no panic")?;
            let mut took = results.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
            let failed_count = took.iter().filter(|took| took.is_none()).count();
            took.sort_unstable();
            Ok(Logins { took: took.into_iter().flatten().collect(), failed_count })
        })
    }

    fn guess(&self, http: SocketAddr, is_over: &AtomicBool) -> anyhow::Result<()> {
        let interval = Duration::from_secs(1) / self.guesses_per_s;
        let mut random = fastrand::Rng::with_seed(1);
        let mut open: VecDeque<(Instant, TcpStream)> = VecDeque::new();
        let mut due = Instant::now();
        for number in 0_u64.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due += interval;
            let client = match self.networks {
                Networks::OneSite => format!("2001:db8:1:{:x}::1", random.u16(..160)),
                Networks::Botnet => {
                    let network = random.u16(..2_000);
                    format!("{}.{}.{}.7", 20 + network / 20, network % 20 * 10, network % 250)
                }
            };
            let user = USER_COUNT / 2 + random.usize(..self.name_count);
            let request = request(&format!("user{user}"), &format!("wrong{number}"), &client);
            let mut stream = TcpStream::connect(http)?;
            stream.write_all(request.as_bytes())?;
            open.push_back((Instant::now(), stream));
            while open.front().is_some_and(|(since, _)| since.elapsed() > GUESS_TIME) {
                open.pop_front();
            }
        }
        Ok(())
    }
}

/// A login of this user from a network; how long it took, or `None` if it had no success.
fn log_in(http: SocketAddr, user: usize, network: usize) -> anyhow::Result<Option<Duration>> {
    let client = format!("150.{}.{}.9", network / 200, network % 200);
    let start = Instant::now();
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request(&format!("user{user}"), PASSWORD, &client).as_bytes())?;
    let mut response = Vec::new();
    // A client whose patience has ended has no success.
    let _ = stream.read_to_end(&mut response);
    Ok(response.starts_with(b"HTTP/1.1 200 ").then(|| start.elapsed()))
}

fn request(user: &str, password: &str, client: &str) -> String {
    let credentials = base64(format!("{user}:{password}").as_bytes());
    format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Forwarded-For: {client}\r\n\
         Authorization: Basic {credentials}\r\n\r\n"
    )
}

/// RFC 4648 §4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for digit in 0..4 {
            let is_padding = digit > group.len();
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if is_padding { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded() {
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    #[test]
    fn quantiles_count_failed_logins() {
        let took = (1..=9).map(Duration::from_secs).collect();
        let logins = Logins { took, failed_count: 1 };
        assert_eq!(logins.quantile(0.5), Some(Duration::from_secs(5)));
        assert_eq!(logins.quantile(0.9), Some(Duration::from_secs(9)));
        assert_eq!(logins.quantile(0.99), None);
        assert!((logins.served_share() - 0.2).abs() < 1e-9);
    }
}
