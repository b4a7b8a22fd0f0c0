//! Turns what was measured into an answer to each founding claim, and into one line about this machine.
//!
//! A claim is that more gets done by one candidate than by another. It holds if at least half of that gain is there, in
//! the median as in the least disturbed tenth of the samples; it holds, but less, if there is a gain at all: beyond a
//! tie, or a quarter of the claimed gain where that is less.

use super::choices::TIE_RATIO;
use super::jobs::{close_on_exec, datagrams, facts, floor, listeners, lookup, serving};
use super::numbers::Spread;
use super::report::{Answer, Group, Verdict};

/// An answer to each claim that was measured in these groups; of the others, that they were not.
pub(crate) fn answer_all(groups: &[Group], processor_count: usize) -> Vec<Answer> {
    vec![
        close_on_exec_answer(groups),
        facts_answer(groups),
        kept_open_answer(groups),
        lookup_answer(groups, processor_count),
        datagrams_answer(groups),
        siblings_answer(groups, processor_count),
    ]
}

/// Whether a cost, `measured` as a share of its rival's, keeps what the share `claimed` promised, which is less than 1.
fn verdict(measured: Spread, claimed: f64) -> Verdict {
    // What more gets done in the same time.
    let gain_of = |ratio: f64| 1.0 / ratio - 1.0;
    let claimed_gain = gain_of(claimed);
    match gain_of(measured.worse()) {
        gain if gain >= claimed_gain / 2.0 => Verdict::Holds,
        gain if gain >= (claimed_gain / 4.0).min(gain_of(TIE_RATIO)) => Verdict::HoldsLess,
        _ => Verdict::NoLongerHolds,
    }
}

fn close_on_exec_answer(groups: &[Group]) -> Answer {
    use close_on_exec::{BARE_FIOCLEX, CLAIMED_RATIO, FCNTL, FIOCLEX, JOB, LIBRARY_FCNTL, LIBRARY_FIOCLEX};
    let claim = "ioctl(FIOCLEX) takes 0.97 of fcntl's time";
    let finding = find(groups, JOB, |group| {
        let library = group.ratio_between(LIBRARY_FIOCLEX, LIBRARY_FCNTL)?;
        let server = group.ratio_between(FIOCLEX, FCNTL)?;
        let bare = group.ratio_between(BARE_FIOCLEX, FCNTL)?;
        let finding = format!(
            "{:.2} through the C library, as then ({:.2} undisturbed); against the server's fcntl, which goes past it: \
             {:.2} with its ioctl, {:.2} with a bare one. Asked for at creation it costs next to nothing",
            library.median, library.p10, server.median, bare.median
        );
        Some((verdict(library, CLAIMED_RATIO), finding))
    });
    answer("1", claim, finding)
}

fn facts_answer(groups: &[Group]) -> Answer {
    use facts::{CLAIMED_RATIO, FSTAT, JOB, NEWFSTATAT, STANDARD_LIBRARY};
    let claim = "newfstatat with an empty path takes twice the time of fstat";
    let finding = find(groups, JOB, |group| {
        let rival = group.ratio_between(NEWFSTATAT, FSTAT)?;
        let standard = group.ratio_between(STANDARD_LIBRARY, FSTAT)?;
        let inverse = group.ratio_between(FSTAT, NEWFSTATAT)?;
        let finding = format!(
            "{:.2} times (Linux 6.6 shortened the way); Rust's metadata() {:.2} times. The server calls fstat",
            rival.median, standard.median
        );
        Some((verdict(inverse, 1.0 / CLAIMED_RATIO), finding))
    });
    answer("2a", claim, finding)
}

fn kept_open_answer(groups: &[Group]) -> Answer {
    use serving::{JOB, KEPT, MEMORY, OPENED};
    let claim = "a file's calls are its cost: kept open it is served as from memory";
    let finding = find(groups, JOB, |group| {
        let kept = group.ratio_between(KEPT, OPENED)?;
        let memory = group.ratio_between(MEMORY, OPENED)?;
        let finding = format!(
            "a kept descriptor needs {:.2} of the time of open, fstat, read and close, a copy in memory {:.3}",
            kept.median, memory.median
        );
        // The article's figure is of whole requests: half as many of them where the calls were dear.
        Some((verdict(kept, 0.5), finding))
    });
    answer("2b", claim, finding)
}

fn lookup_answer(groups: &[Group], processor_count: usize) -> Answer {
    use lookup::{CLAIMED_RATIO, CLAIMED_THREAD_COUNT, COUNTED, JOB, LEASE, LOCK, row_name};
    let claim = "looking up without a lock: up to 428 % better, 16 threads on 8 processors";
    let finding = find(groups, JOB, |group| {
        let ratio =
            |name| group.ratio_between(&row_name(name, CLAIMED_THREAD_COUNT), &row_name(LOCK, CLAIMED_THREAD_COUNT));
        let (counted, lease) = (ratio(COUNTED)?, ratio(LEASE)?);
        let times = |ratio: Spread| 1.0 / ratio.median;
        let finding = format!(
            "with {CLAIMED_THREAD_COUNT} threads on {processor_count} processor{} {:.1} times as good counted, {:.1} \
             times by lease, which the server uses",
            if processor_count == 1 { "" } else { "s" },
            times(counted),
            times(lease)
        );
        if processor_count == 1 {
            return Some((Verdict::NotMeasurable, format!("one processor, so that threads never meet; {finding}")));
        }
        Some((verdict(lease, CLAIMED_RATIO), finding))
    });
    answer("3", claim, finding)
}

fn datagrams_answer(groups: &[Group]) -> Answer {
    use datagrams::{BATCH, CLAIMED_RATIO, JOB, SELECT_DRAIN, SELECT_ONE};
    let claim = "draining the socket: 39,000 to 48,000 queries a second";
    let finding = find(groups, JOB, |group| {
        let drained = group.ratio_between(SELECT_DRAIN, SELECT_ONE)?;
        let batch = group.ratio_between(BATCH, SELECT_ONE)?;
        let finding = format!(
            "drained, a datagram costs {:.2} of what it costs with a select for each (claimed: {CLAIMED_RATIO:.2}); in \
             the server's batches {:.2}",
            drained.median, batch.median
        );
        Some((verdict(drained, CLAIMED_RATIO), finding))
    });
    answer("4", claim, finding)
}

fn siblings_answer(groups: &[Group], processor_count: usize) -> Answer {
    use listeners::{CLAIMED_RATIO, JOB, SHARED, SIBLINGS, WORKER_COUNTS, row_name};
    let claim = "siblings by SO_REUSEPORT: 46 % more connections than a shared listener";
    let finding = find(groups, JOB, |group| {
        let mut parts = Vec::new();
        let mut best = None;
        for worker_count in WORKER_COUNTS {
            let ratio = group.ratio_between(&row_name(SIBLINGS, worker_count), &row_name(SHARED, worker_count))?;
            let siblings = group.row(&row_name(SIBLINGS, worker_count))?.measured()?;
            parts.push(format!(
                "{:+.0} % with {worker_count} workers (the busiest has {:.0} %)",
                (1.0 / ratio.median - 1.0) * 100.0,
                siblings.busiest_share? * 100.0
            ));
            if best.is_none_or(|best: Spread| ratio.worse() < best.worse()) {
                best = Some(ratio);
            }
        }
        let plural = if processor_count == 1 { "" } else { "s" };
        let finding = format!(
            "for the same processor time {}, on {processor_count} processor{plural}; the claim is of a machine with \
             two sockets",
            parts.join(", ")
        );
        if processor_count == 1 {
            return Some((Verdict::NotMeasurable, format!("one processor, for which nobody competes: {finding}")));
        }
        Some((verdict(best?, CLAIMED_RATIO), finding))
    });
    answer("5", claim, finding)
}

/// What the first group of the job that tells something tells.
fn find(groups: &[Group], job: &str, tell: impl Fn(&Group) -> Option<(Verdict, String)>) -> (Verdict, String) {
    let mut of_job = groups.iter().filter(|group| group.job == job).peekable();
    if of_job.peek().is_none() {
        return (Verdict::NotMeasurable, format!("not measured in this run: --only {job}"));
    }
    of_job
        .find_map(tell)
        .unwrap_or_else(|| (Verdict::NotMeasurable, format!("a candidate of the job {job} cannot run here")))
}

fn answer(idea: &'static str, claim: &'static str, (verdict, finding): (Verdict, String)) -> Answer {
    Answer { idea, claim, verdict, finding }
}

/// What stands in the summary: what is saved, by whom, and instead of what.
const GAINS: &[(&str, &str, &str, &str)] = &[
    ("keeping files open", serving::JOB, serving::KEPT, serving::OPENED),
    ("leases instead of a lock", lookup::JOB, "lease, 2 threads", "lock, 2 threads"),
    ("batches of datagrams", datagrams::JOB, datagrams::BATCH, datagrams::SELECT_ONE),
    ("siblings", listeners::JOB, "siblings, 2", "shared, wakes all, 2"),
];

/// What all of it means for this machine, in words.
pub(crate) fn summary(groups: &[Group], answers: &[Answer]) -> String {
    let group = |job: &str| groups.iter().find(|group| group.job == job);
    let floor = group(floor::JOB).and_then(|group| group.row(floor::SYSTEM_CALL)?.measured());
    let floor = floor.map(|measured| format!("a system call costs {:.0} ns", measured.cpu_ns.median));
    let gains = GAINS.iter().filter_map(|(what, job, name, baseline)| {
        let ratio = group(job)?.ratio_between(name, baseline)?.median;
        let (verb, share) = if ratio <= 1.0 { ("save", 1.0 - ratio) } else { ("cost", ratio - 1.0) };
        let verb = if what.starts_with("keeping") { format!("{verb}s") } else { verb.to_owned() };
        Some(format!("{what} {verb} {:.0} %", share * 100.0))
    });
    let mut sentences: Vec<String> = Vec::new();
    let costs: Vec<String> = floor.into_iter().chain(gains).collect();
    if !costs.is_empty() {
        sentences.push(costs.join(", "));
    }
    let measured = || answers.iter().filter(|answer| answer.verdict != Verdict::NotMeasurable);
    if measured().count() != 0 {
        let holding = measured().filter(|answer| answer.verdict != Verdict::NoLongerHolds).count();
        sentences.push(format!("{holding} of {} founding claims measured hold, at least in part", measured().count()));
    }
    sentences.push(advice(groups));
    format!("On this machine: {}.", sentences.join("; "))
}

/// Whether to change anything.
fn advice(groups: &[Group]) -> String {
    let choices = groups.iter().filter_map(|group| group.choice.as_ref());
    let better: Vec<String> =
        choices.filter_map(|choice| choice.better.map(|(way, _)| format!("--force {}={way}", choice.job))).collect();
    if better.is_empty() {
        "nothing measured speaks against the server's choices".to_owned()
    } else {
        format!("worth a try: {}", better.join(" "))
    }
}

#[cfg(test)]
mod tests;
