//! Given numbers, and what is said of them.

use super::*;
use crate::jobs::lookup::row_name;
use crate::report::{Basis, Measured, Outcome, Row};

/// A group of rows with the same cost in median and p10, in CPU time and on the wall.
fn group(job: &'static str, costs: &[(&str, f64)]) -> Group {
    let rows = costs.iter().map(|&(name, ns)| {
        let cost = Spread { median: ns, p10: ns };
        let measured = Measured { cpu_ns: cost, wall_ns: cost, busiest_share: Some(0.5), ..Measured::default() };
        Row {
            name: name.to_owned(),
            thread_count: 1,
            way: None,
            is_used: false,
            baseline: 0,
            claimed_ratio: None,
            outcome: Outcome::Measured(measured),
        }
    });
    let (title, unit, basis) = (String::new(), "call", Basis::Cpu);
    Group { job, title, unit, basis, rows: rows.collect(), choice: None, notes: Vec::new() }
}

#[track_caller]
fn check(answer: &Answer, verdict: Verdict, finding: &str) {
    assert_eq!((answer.verdict, answer.finding.as_str()), (verdict, finding));
}

#[test]
fn half_of_the_claimed_gain_decides() {
    let measured = |median, p10| verdict(Spread { median, p10 }, 0.8);
    assert_eq!(measured(0.7, 0.7), Verdict::Holds);
    assert_eq!(measured(0.88, 0.88), Verdict::Holds);
    assert_eq!(measured(0.91, 0.8), Verdict::HoldsLess);
    assert_eq!(measured(0.8, 0.96), Verdict::HoldsLess);
    assert_eq!(measured(0.5, 0.99), Verdict::NoLongerHolds);
    assert_eq!(measured(1.2, 0.7), Verdict::NoLongerHolds);
    // A small claim is met by small gains.
    let measured = |ratio| verdict(Spread { median: ratio, p10: ratio }, 0.967);
    assert_eq!(measured(0.98), Verdict::Holds);
    assert_eq!(measured(0.99), Verdict::HoldsLess);
    assert_eq!(measured(0.995), Verdict::NoLongerHolds);
}

#[test]
fn close_on_exec_is_judged_through_the_c_library() {
    use close_on_exec::{BARE_FIOCLEX, FCNTL, FIOCLEX, JOB, LIBRARY_FCNTL, LIBRARY_FIOCLEX};
    let rows = |library| {
        let rest = [(FCNTL, 100.0), (FIOCLEX, 103.0), (BARE_FIOCLEX, 102.0), (LIBRARY_FCNTL, 110.0)];
        [group(JOB, &[&rest[..], &[(LIBRARY_FIOCLEX, library)]].concat())]
    };
    let finding = |ratio: &str| {
        format!(
            "{ratio} through the C library, as then ({ratio} undisturbed); against the server's fcntl, which goes past \
             it: 1.03 with its ioctl, 1.02 with a bare one. Asked for at creation it costs next to nothing"
        )
    };
    check(&close_on_exec_answer(&rows(106.7)), Verdict::Holds, &finding("0.97"));
    check(&close_on_exec_answer(&rows(110.0)), Verdict::NoLongerHolds, &finding("1.00"));
}

#[test]
fn newfstatat_is_judged_by_what_fstat_saves() {
    use facts::{FSTAT, JOB, NEWFSTATAT, STANDARD_LIBRARY};
    let answer = |ns| facts_answer(&[group(JOB, &[(FSTAT, 100.0), (NEWFSTATAT, ns), (STANDARD_LIBRARY, 121.0)])]);
    let rest = "(Linux 6.6 shortened the way); Rust's metadata() 1.21 times. The server calls fstat";
    check(&answer(190.0), Verdict::Holds, &format!("1.90 times {rest}"));
    check(&answer(111.0), Verdict::HoldsLess, &format!("1.11 times {rest}"));
    check(&answer(100.0), Verdict::NoLongerHolds, &format!("1.00 times {rest}"));
}

#[test]
fn one_processor_cannot_tell_what_threads_do_to_each_other() {
    let rows = [("lock", 60.0), ("counted, no lock", 20.0), ("lease", 5.0)].map(|(name, ns)| (row_name(name, 16), ns));
    let rows: Vec<(&str, f64)> = rows.iter().map(|(name, ns)| (name.as_str(), *ns)).collect();
    let groups = [group(lookup::JOB, &rows)];
    check(
        &lookup_answer(&groups, 8),
        Verdict::Holds,
        "with 16 threads on 8 processors 3.0 times as good counted, 12.0 times by lease, which the server uses",
    );
    assert_eq!(lookup_answer(&groups, 1).verdict, Verdict::NotMeasurable);
}

#[test]
fn siblings_are_judged_by_the_better_number_of_workers() {
    let rows = [
        ("shared, wakes all, 2", 114.0),
        ("siblings, 2", 100.0),
        ("shared, wakes all, 4", 144.0),
        ("siblings, 4", 100.0),
    ];
    check(
        &siblings_answer(&[group(listeners::JOB, &rows)], 2),
        Verdict::Holds,
        "for the same processor time +14 % with 2 workers (the busiest has 50 %), +44 % with 4 workers (the busiest \
         has 50 %), on 2 processors; the claim is of a machine with two sockets",
    );
}

#[test]
fn what_was_not_measured_says_how_to_measure_it() {
    for answer in answer_all(&[], 2) {
        assert_eq!(answer.verdict, Verdict::NotMeasurable);
        assert!(answer.finding.starts_with("not measured in this run: --only "), "{answer:?}");
    }
    let half = [group(datagrams::JOB, &[(datagrams::SELECT_ONE, 2_000.0)])];
    check(&datagrams_answer(&half), Verdict::NotMeasurable, "a candidate of the job udp-receive cannot run here");
}

#[test]
fn the_summary_says_what_it_means_and_what_to_do() {
    let mut groups = vec![
        group(floor::JOB, &[(floor::SYSTEM_CALL, 105.0)]),
        group(serving::JOB, &[(serving::OPENED, 1_000.0), (serving::KEPT, 170.0), (serving::MEMORY, 17.0)]),
        group(listeners::JOB, &[("shared, wakes all, 2", 100.0), ("siblings, 2", 110.0)]),
    ];
    let answers = answer_all(&groups, 2);
    assert_eq!(
        summary(&groups, &answers),
        "On this machine: a system call costs 105 ns, keeping files open saves 83 %, siblings cost 10 %; 1 of 1 \
         founding claims measured hold, at least in part; nothing measured speaks against the server's choices."
    );
    groups[0].choice = Some(crate::report::Choice {
        job: "stat",
        used: "fstat",
        why: crate::report::Why::Default,
        better: Some(("statx", 0.05)),
    });
    assert!(summary(&groups, &answers).ends_with("; worth a try: --force stat=statx."));
}

#[test]
fn every_name_of_a_gain_is_that_of_a_row() {
    assert_eq!(GAINS[1].2, row_name(lookup::LEASE, 2));
    assert_eq!(GAINS[1].3, row_name(lookup::LOCK, 2));
    assert_eq!(GAINS[3].2, listeners::row_name(listeners::SIBLINGS, 2));
    assert_eq!(GAINS[3].3, listeners::row_name(listeners::SHARED, 2));
}
