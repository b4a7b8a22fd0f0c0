//! A large zone that is loaded again with one record changed, as what that costs the queries of that time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::client;
use super::dns_peers::{self, ZoneSource};
use super::launch::{CONTROL, Launch, Place};
use super::pace::{self, Exchange, Pace, Waits};
use super::process_tree;
use super::programs::Programs;
use super::random::Random;
use super::rounds::Rounds;
use super::server::Server;
use super::spread::Spread;
use super::zone::{self, APEX, Asked, Zone};
use crate::program::{Program, signal};

/// Reloads of each server, each of a server that was just started.
const REPETITION_COUNT: usize = 3;
/// How long queries are sent before the reload, and after the new data was seen.
const MARGIN: Duration = Duration::from_secs(1);
/// How long a server may take until it answers from the new data.
const NEW_DATA_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at the memory.
const MEMORY_LOOK_EVERY: Duration = Duration::from_millis(20);
/// Names that are asked for; as many queries more are for the record that changes.
const NAME_COUNT: usize = 8192;
/// Types of those names (RFC 1035 §3.2.2, RFC 3596 §2.1).
const A: u16 = 1;
const AAAA: u16 = 28;
/// The file that the server reads, in its folder.
const SERVED: &str = "served.zone";

// The queries must go on for as long as the new data is waited for.
const _: () = assert!(NEW_DATA_LIMIT.as_secs() + 2 * MARGIN.as_secs() < pace::LENGTH_MAX.as_secs());

/// One reload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reload {
    /// Queries before the reload: what the machine does to them without it.
    pub(super) before: Waits,
    /// Queries from the command on until a second after the new data.
    pub(super) during: Waits,
    /// From the command to the first reply with the new data.
    pub(super) new_data: Duration,
    pub(super) memory: Memory,
}

/// PSS of the process tree in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) before_kib: u64,
    pub(super) peak_kib: u64,
    pub(super) after_kib: u64,
}

/// All reloads of one server.
#[derive(Debug)]
pub(super) struct Reloads {
    pub(super) name: &'static str,
    all: Vec<Reload>,
    pub(super) trouble: Option<String>,
}

impl Reloads {
    /// One figure of each reload.
    pub(super) fn spread(&self, figure: impl Fn(&Reload) -> f64) -> Option<Spread> {
        Spread::of(self.all.iter().map(figure))
    }

    /// Queries that were lost from the command on, in all reloads together.
    pub(super) fn lost_count(&self) -> usize {
        self.all.iter().map(|reload| reload.during.lost_count).sum()
    }
}

/// How a server is told that its zone has changed.
#[derive(Clone, Debug)]
enum Teller {
    /// By this program of ours, at the control socket.
    Control(PathBuf),
    /// By SIGHUP, after which each of the peers looks for zone files that have changed.
    Signal,
}

/// Reloads `zone` in each server, in turns.
///
/// # Errors
/// The zone cannot be written.
pub(super) fn run(
    rounds: &mut Rounds,
    programs: &Programs,
    folder: &Path,
    zone: &Zone,
) -> Result<Vec<Reloads>, String> {
    println!("DNS: reload of a large zone");
    let changed = zone.write_changed()?;
    let names = ["sanderling"].into_iter().chain(dns_peers::PEERS.iter().map(|peer| peer.name));
    let mut all: Vec<Reloads> = names.map(|name| Reloads { name, all: Vec::new(), trouble: None }).collect();
    for round in 1..=REPETITION_COUNT {
        let mut told = String::new();
        for index in rounds.random.order(all.len()) {
            let place = Place::new(folder, &format!("reload-{round}-{index}"), 1)?;
            let source = link(&place, &zone.file)?;
            let (launch, teller) = launch(index, &programs.sanderling, source, &place);
            let queries = queries(zone, &mut rounds.random);
            match measure(rounds, &launch, &place, queries, &changed, &teller) {
                Ok(reload) => {
                    told += &format!("  {} {:.1} ms", launch.name, ms(reload.during.longest));
                    all[index].all.push(reload);
                }
                Err(problem) => {
                    println!("  {}: {problem}", launch.name);
                    all[index].trouble = Some(problem);
                }
            }
        }
        println!("  round {round}:{told}");
    }
    Ok(all)
}

/// Milliseconds.
pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Gives the server a file of its own, in whose place another one can be put.
fn link(place: &Place, file: &Path) -> Result<ZoneSource, String> {
    let served = place.folder.join(SERVED);
    fs::hard_link(file, &served).map_err(|error| format!("{}: {error}", served.display()))?;
    Ok(ZoneSource { apex: APEX.into(), file: served })
}

/// Ours is the first, and the peers follow.
fn launch(index: usize, ours: &Path, source: ZoneSource, place: &Place) -> (Launch, Teller) {
    match index.checked_sub(1) {
        None => (dns_peers::sanderling(ours, &[source], place), Teller::Control(ours.to_owned())),
        Some(peer_index) => ((dns_peers::PEERS[peer_index].launch)(&[source], place), Teller::Signal),
    }
}

/// Every second query is for the record that changes, the others are for names from all over the zone.
fn queries(zone: &Zone, random: &mut Random) -> Vec<Vec<u8>> {
    let pairs = (0..NAME_COUNT).flat_map(|_| [random.below(zone.name_count), zone::CHANGED_NUMBER]);
    let numbers: Vec<usize> = pairs.collect();
    let asked = numbers.into_iter().map(|number| zone.query(Asked::Names, number, random));
    let message = |asked: String| {
        let (name, type_word) = asked.split_once(' ').expect("a query of a zone is a name and a type");
        client::query(name, if type_word == "AAAA" { AAAA } else { A })
    };
    asked.map(message).collect()
}

fn measure(
    rounds: &Rounds,
    launch: &Launch,
    place: &Place,
    queries: Vec<Vec<u8>>,
    changed: &Path,
    teller: &Teller,
) -> Result<Reload, String> {
    let answers = |address| client::answers_dns(address, APEX);
    let server = Server::start(launch, place, &rounds.server_processors, answers)?;
    let target = Target { root_pid: server.root_pid(), folder: &place.folder, changed, teller };
    let pace = Pace::new(place.address, queries)?;
    // Threads and programs inherit the processors of the thread that starts them. The server is not started by that
    // one, since it ends when the thread that has started it does.
    let measured = thread::scope(|scope| {
        let act = || pin(&rounds.load_processors).and_then(|()| target.reload(pace));
        scope.spawn(act).join()
    });
    let measured = measured.map_err(|_| "the thread that measures has panicked: report this".to_owned())?;
    measured.map_err(|problem| server.ending().unwrap_or(problem))
}

/// Keeps this thread on the processors `processors` (as for `taskset -c`).
fn pin(processors: &str) -> Result<(), String> {
    run_on_own_thread("taskset", &format!("-c -p {processors}"))
}

/// Lets this thread run only while no other one wants its processor.
fn give_way() -> Result<(), String> {
    run_on_own_thread("chrt", "--idle -p 0")
}

/// Runs a program whose last argument is the number of this thread.
fn run_on_own_thread(program: &str, words: &str) -> Result<(), String> {
    let own = fs::read_link("/proc/thread-self").map_err(|error| format!("/proc/thread-self: {error}"))?;
    let thread = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let command = Program::new(program).args(words).args(&thread);
    command.output().map(|_| ()).ok_or_else(|| format!("`{program} {words}` fails for a thread of our own"))
}

/// A server that runs, and the zone that it is to take up.
struct Target<'a> {
    root_pid: u32,
    folder: &'a Path,
    changed: &'a Path,
    teller: &'a Teller,
}

/// What happened when.
#[derive(Clone, Copy, Debug)]
struct Moments {
    start: Instant,
    told: Instant,
    new_data: Instant,
    end: Instant,
}

impl Target<'_> {
    fn reload(&self, pace: Pace) -> Result<Reload, String> {
        let (sender, seen) = mpsc::channel();
        let mut is_seen = false;
        let look = move |message: &[u8], at: Instant| {
            // Without EDNS and with minimal responses nothing stands behind the address.
            if !is_seen && message.ends_with(&zone::CHANGED_ADDRESS) {
                is_seen = true;
                // It fails when nobody waits any longer.
                let _ = sender.send(at);
            }
        };
        let act = || {
            let start = Instant::now();
            thread::sleep(MARGIN);
            let before_kib = self.memory_kib();
            let ((told, new_data), peak_kib) = self.peak_kib_while(|| self.tell_and_wait(&seen))?;
            let memory = Memory { before_kib, peak_kib: peak_kib.max(before_kib), after_kib: self.memory_kib() };
            Ok((Moments { start, told, new_data, end: Instant::now() }, memory))
        };
        let (exchange, (moments, memory)) = pace.during(look, act)?;
        Ok(Reload::of(&exchange, moments, memory))
    }

    /// Tells the server of the changed zone, and waits until a second after the first reply from it: the moments of the
    /// two.
    fn tell_and_wait(&self, seen: &mpsc::Receiver<Instant>) -> Result<(Instant, Instant), String> {
        self.put_in_place()?;
        let told = Instant::now();
        self.teller.tell(self.root_pid, self.folder)?;
        let limit_s = NEW_DATA_LIMIT.as_secs();
        let new_data = seen.recv_timeout(NEW_DATA_LIMIT.saturating_sub(told.elapsed()));
        let new_data = new_data.map_err(|_| format!("has not answered from the new data within {limit_s} s"))?;
        thread::sleep(MARGIN);
        Ok((told, new_data))
    }

    /// Puts the changed zone in the place of the one that was read, as an editor would.
    fn put_in_place(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.changed.display());
        let file = fs::File::options().append(true).open(self.changed).map_err(failed)?;
        // A file that is older than the last loading is not loaded again by everybody.
        file.set_modified(SystemTime::now()).map_err(failed)?;
        let aside = self.folder.join("aside.zone");
        fs::hard_link(self.changed, &aside).map_err(failed)?;
        fs::rename(&aside, self.folder.join(SERVED)).map_err(failed)
    }

    /// The memory now; a reload may replace processes.
    fn memory_kib(&self) -> u64 {
        process_tree::memory_kib(&process_tree::pids(self.root_pid))
    }

    /// The most memory that was seen while `act` ran.
    fn peak_kib_while<T>(&self, act: impl FnOnce() -> Result<T, String>) -> Result<(T, u64), String> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                // Or the queries would wait for it.
                give_way()?;
                let mut peak_kib = 0;
                while !is_over.load(Ordering::Relaxed) {
                    peak_kib = peak_kib.max(self.memory_kib());
                    thread::sleep(MEMORY_LOOK_EVERY);
                }
                Ok(peak_kib)
            });
            let acted = act();
            is_over.store(true, Ordering::Relaxed);
            let peak_kib: Result<u64, String> = sampler.join().expect("reading from /proc does not panic");
            Ok((acted?, peak_kib?))
        })
    }
}

impl Teller {
    fn tell(&self, root_pid: u32, folder: &Path) -> Result<(), String> {
        match self {
            Teller::Signal if signal(root_pid, "HUP") => Ok(()),
            Teller::Signal => Err("cannot be sent a signal: has it ended?".into()),
            Teller::Control(program) => {
                let mut command = Command::new(program);
                command.args(["reload", "--control", CONTROL]).current_dir(folder).stdin(Stdio::null());
                let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
                let said = String::from_utf8_lossy(&output.stderr);
                output.status.success().then_some(()).ok_or_else(|| format!("does not reload: {}", said.trim()))
            }
        }
    }
}

impl Reload {
    fn of(exchange: &Exchange, moments: Moments, memory: Memory) -> Reload {
        let Moments { start, told, new_data, end } = moments;
        Reload {
            before: exchange.waits(start, told),
            during: exchange.waits(told, end),
            new_data: new_data.saturating_duration_since(told),
            memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::pace::{Received, Sent};

    fn reload(longest_ms: u64, lost_count: usize) -> Reload {
        let during = Waits { longest: Duration::from_millis(longest_ms), lost_count, delay: Duration::ZERO };
        let memory = Memory { before_kib: 100, peak_kib: 200, after_kib: 100 };
        Reload { before: Waits::default(), during, new_data: Duration::from_millis(700), memory }
    }

    #[test]
    fn waits_before_the_command_are_told_apart() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let exchange = Exchange {
            sent: [0, 10, 20].map(|ms| Sent { at: at(ms), delay: Duration::ZERO }).to_vec(),
            received: vec![Received { number: 0, at: at(1) }, Received { number: 2, at: at(25) }],
        };
        let moments = Moments { start, told: at(10), new_data: at(25), end: at(40) };
        let reload = Reload::of(&exchange, moments, Memory { before_kib: 1, peak_kib: 2, after_kib: 1 });
        assert_eq!((ms(reload.before.longest), reload.before.lost_count), (1.0, 0));
        assert_eq!((ms(reload.during.longest), reload.during.lost_count), (5.0, 1));
        assert_eq!(ms(reload.new_data), 15.0);
    }

    #[test]
    fn reloads_are_told_by_their_median_and_losses_by_their_sum() {
        let reloads = Reloads { name: "nsd", all: vec![reload(9, 1), reload(2, 0), reload(4, 2)], trouble: None };
        let longest = reloads.spread(|reload| ms(reload.during.longest)).unwrap();
        assert_eq!((longest.least, longest.median, longest.most), (2.0, 4.0, 9.0));
        assert_eq!(reloads.lost_count(), 3);
    }

    #[test]
    fn the_changed_record_is_asked_for_again_and_again() {
        let zone = Zone { file: PathBuf::new(), name_count: 4000 };
        let queries = queries(&zone, &mut Random::new(1));
        let changed = client::query(&format!("{}.{APEX}", zone::label(zone::CHANGED_NUMBER)), A);
        assert!(queries.iter().skip(1).step_by(2).all(|query| *query == changed));
        assert!(queries.iter().any(|query| query.ends_with(&[0, AAAA as u8, 0, 1])));
    }
}
