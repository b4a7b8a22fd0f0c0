//! The number of events in a scenario, and the load during them.

use loadgen::{IdleClose, Load, Running};
use std::time::{Duration, Instant};

/// No scenario takes longer than this.
const LENGTH_MAX: Duration = Duration::from_secs(600);
/// Maximum time that a busy machine may take for a few answers in a test.
const TEST_DEADLINE: Duration = Duration::from_secs(30);
/// Answers between two events of a test.
const TEST_ANSWER_COUNT: u64 = 150;
/// The load runs this long before the first event and after the last.
const MARGIN: Duration = Duration::from_millis(700);

/// The number of events, the rates, and whether times are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A few events at low rates, for a machine that may be busy: times are not judged.
    Test,
    /// A few events at full rates.
    Short,
    /// Many events at full rates.
    Full,
}

impl Extent {
    pub(crate) fn pick<T>(self, test: T, short: T, full: T) -> T {
        match self {
            Extent::Test => test,
            Extent::Short => short,
            Extent::Full => full,
        }
    }

    /// A load without targets. The clients are distant and as patient as people and resolvers.
    pub(crate) fn load(self) -> Load {
        let mut load = Load::new(LENGTH_MAX, 5);
        // In a test, few enough to wait in the socket's buffer until a busy machine runs the server.
        let full = [2_000, 2_000, 5_000, 500, 500, 50, 200, 500];
        load.rates = self.pick([200, 200, 100, 50, 50, 20, 50, 50], full, full);
        if self == Extent::Test {
            (load.connection_count, load.udp_port_count) = (8, 16);
            (load.tcp_deadline, load.udp_deadline) = (TEST_DEADLINE, TEST_DEADLINE);
        }
        load
    }

    /// Calls `event` `count` times under load, each time `every` after the previous call or later.
    pub(crate) fn repeat(
        self,
        load: &Running,
        count: usize,
        every: Duration,
        mut event: impl FnMut(usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.wait(load, MARGIN)?;
        for index in 0..count {
            let next = Instant::now() + every;
            event(index)?;
            self.wait(load, next.saturating_duration_since(Instant::now()))?;
        }
        self.wait(load, MARGIN)
    }

    /// Waits for some time, in a test until the load has more answers.
    fn wait(self, load: &Running, time: Duration) -> anyhow::Result<()> {
        if self != Extent::Test {
            std::thread::sleep(time);
            return Ok(());
        }
        let wanted_count = load.ok_count() + TEST_ANSWER_COUNT;
        let has_answers = becomes_true(TEST_DEADLINE, || load.ok_count() >= wanted_count);
        anyhow::ensure!(has_answers, "no more correct responses");
        Ok(())
    }
}

/// Clients that notice the end of an idle connection immediately, for scenarios that kill processes.
pub(crate) fn near(mut load: Load) -> Load {
    load.http.iter_mut().chain(&mut load.https).for_each(|http| http.idle_close = IdleClose::Immediately);
    load
}

/// Polls `condition` until it is true, at most for `limit`; returns whether it became true.
pub(crate) fn becomes_true(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
