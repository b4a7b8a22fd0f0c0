//! Turns work into the processor time and the wall-clock time that it took, less what reading the clocks takes.

use super::numbers::Spread;
use sanderling_os::candidates::clock::thread_cpu_ns;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Adds up the spans of one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch {
    cpu_ns: u64,
    wall: Duration,
    span_count: u32,
}

/// What an empty span seems to take.
#[derive(Clone, Copy, Debug)]
struct ClockCost {
    cpu_ns: f64,
    wall_ns: f64,
}

const EMPTY_SPAN_COUNT: usize = 201;

impl Stopwatch {
    /// Adds the time that `work` takes.
    #[inline]
    pub(crate) fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let wall_before = Instant::now();
        let cpu_before = thread_cpu_ns();
        let result = work();
        self.cpu_ns += thread_cpu_ns() - cpu_before;
        self.wall += wall_before.elapsed();
        self.span_count += 1;
        result
    }

    /// Nanoseconds of this thread's processor time.
    pub(crate) fn cpu_ns(&self) -> f64 {
        let clocks_ns = clock_cost().cpu_ns * f64::from(self.span_count);
        (self.cpu_ns as f64 - clocks_ns).max(0.0)
    }

    /// Nanoseconds of the clock on the wall.
    pub(crate) fn wall_ns(&self) -> f64 {
        let clocks_ns = clock_cost().wall_ns * f64::from(self.span_count);
        (self.wall.as_nanos() as f64 - clocks_ns).max(0.0)
    }
}

/// Measured once: a slice of a hundred calls would look 1 or 2 % longer by it.
fn clock_cost() -> ClockCost {
    static COST: OnceLock<ClockCost> = OnceLock::new();
    *COST.get_or_init(|| {
        let spans: Vec<Stopwatch> = (0..EMPTY_SPAN_COUNT)
            .map(|_| {
                let mut stopwatch = Stopwatch::default();
                stopwatch.time(|| ());
                stopwatch
            })
            .collect();
        let cpu = Spread::of(spans.iter().map(|span| span.cpu_ns as f64));
        let wall = Spread::of(spans.iter().map(|span| span.wall.as_nanos() as f64));
        ClockCost { cpu_ns: cpu.median, wall_ns: wall.median }
    })
}
