//! Turns a map and a number of threads into the cost of one look-up, measured in short slices.

use crate::candidate::{Candidate, File};
use crate::key::{Key, Look};
use rustix::time::{ClockId, clock_gettime};
use std::borrow::Borrow;
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Instant;

const LOOKS_PER_TURN: usize = 64;
/// Of all threads together: so many that threads on two processors really meet.
const LOOKS_PER_SLICE: usize = 1 << 18;
/// Keys that a thread looks up again and again, so that the list of them does not fill its cache.
const PICK_COUNT: usize = 1 << 14;
const LOOKS_PER_REPLACEMENT: usize = 8_192;

#[derive(Clone, Copy)]
pub struct Setting {
    pub thread_count: usize,
    pub replaces: bool,
}

#[derive(Clone, Copy)]
struct Cost {
    cpu_ns: f64,
    million_looks_per_s: f64,
}

/// A map on the stand, whatever its type.
pub trait Stand {
    fn name(&self) -> &'static str;
    fn can(&self, setting: Setting) -> bool;
    /// What one look-up costs in one slice.
    fn cost(&self, paths: &[Key], setting: Setting, seed: u64) -> (f64, f64);
}

struct Of<C> {
    map: C,
    alive: &'static AtomicU64,
}

pub fn stand<C: Candidate + 'static>(paths: &[Key], alive: &'static AtomicU64) -> Box<dyn Stand> {
    Box::new(Of { map: C::new(paths, alive), alive })
}

impl<C: Candidate> Stand for Of<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn can(&self, setting: Setting) -> bool {
        C::REPLACES || !setting.replaces
    }

    fn cost(&self, paths: &[Key], setting: Setting, seed: u64) -> (f64, f64) {
        let barrier = Barrier::new(setting.thread_count);
        let spans: Vec<(u64, Instant, Instant)> = thread::scope(|scope| {
            let spawn = |number| {
                scope.spawn({
                    let barrier = &barrier;
                    move || self.work(paths, setting, barrier, number, seed)
                })
            };
            let threads: Vec<_> = (0..setting.thread_count).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().expect("no candidate panics")).collect()
        });
        let cpu_ns: u64 = spans.iter().map(|span| span.0).sum();
        let begin = spans.iter().map(|span| span.1).min().expect("there is a thread");
        let end = spans.iter().map(|span| span.2).max().expect("there is a thread");
        let wall_us = (end - begin).as_secs_f64() * 1e6;
        (cpu_ns as f64 / LOOKS_PER_SLICE as f64, LOOKS_PER_SLICE as f64 / wall_us)
    }
}

impl<C: Candidate> Of<C> {
    /// One thread's share of a slice: its CPU time, begin and end.
    fn work(
        &self,
        paths: &[Key],
        setting: Setting,
        barrier: &Barrier,
        number: usize,
        seed: u64,
    ) -> (u64, Instant, Instant) {
        let mut random = seed.wrapping_mul(2 * number as u64 + 1) | 1;
        let turn_count = LOOKS_PER_SLICE / setting.thread_count / LOOKS_PER_TURN;
        let picks: Vec<&Look> =
            (0..PICK_COUNT).map(|_| paths[next(&mut random) as usize % paths.len()].borrow()).collect();
        let mut worker = self.map.worker();
        // Warm: the caches, the leases, the predictors. Each path once, so that a lease is there for each.
        let each: Vec<&Look> = paths.iter().map(<Key as Borrow<Look>>::borrow).collect();
        let mut sum = C::turn(&mut worker, &each);
        let turns_per_replacement = (LOOKS_PER_REPLACEMENT / LOOKS_PER_TURN / setting.thread_count).max(1);
        barrier.wait();
        let begin = Instant::now();
        let cpu_before = thread_cpu_ns();
        for (turn, picks) in picks.chunks(LOOKS_PER_TURN).cycle().take(turn_count).enumerate() {
            sum = sum.wrapping_add(C::turn(&mut worker, picks));
            if setting.replaces && number == 0 && turn % turns_per_replacement == turns_per_replacement - 1 {
                self.map.replace(picks[0], File::new(sum, self.alive));
            }
        }
        let cpu_ns = thread_cpu_ns() - cpu_before;
        let end = Instant::now();
        std::hint::black_box(sum);
        (cpu_ns, begin, end)
    }
}

/// Runs every stand in every setting, once a round and each round in another order, and prints a row for each stand.
pub fn compare(stands: &[Box<dyn Stand>], paths: &[Key], settings: &[Setting], rounds: usize) {
    let mut order: Vec<(usize, usize)> =
        (0..stands.len()).flat_map(|stand| (0..settings.len()).map(move |setting| (stand, setting))).collect();
    order.retain(|&(stand, setting)| stands[stand].can(settings[setting]));
    let mut costs = vec![vec![Vec::new(); settings.len()]; stands.len()];
    let mut random = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..rounds {
        for last in (1..order.len()).rev() {
            order.swap(last, next(&mut random) as usize % (last + 1));
        }
        for &(stand, setting) in &order {
            let (cpu_ns, million_looks_per_s) = stands[stand].cost(paths, settings[setting], next(&mut random));
            costs[stand][setting].push(Cost { cpu_ns, million_looks_per_s });
        }
    }
    print!("{:36}", "");
    settings.iter().for_each(|setting| print!("{:>14} thread(s)", setting.thread_count));
    println!();
    for (stand, costs) in stands.iter().zip(&costs) {
        print!("{:36}", stand.name());
        for costs in costs {
            print!("{:>24}", if costs.is_empty() { String::from("-") } else { row(costs) });
        }
        println!();
    }
}

fn row(costs: &[Cost]) -> String {
    let cpu: Vec<f64> = costs.iter().map(|cost| cost.cpu_ns).collect();
    let wall: Vec<f64> = costs.iter().map(|cost| cost.million_looks_per_s).collect();
    format!("{:.1} ({:.1}) [{:.0}]", quantile(&cpu, 50), quantile(&cpu, 10), quantile(&wall, 50))
}

fn quantile(values: &[f64], per_cent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * per_cent / 100]
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Marsaglia's xorshift with 64 bits.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 16
}
