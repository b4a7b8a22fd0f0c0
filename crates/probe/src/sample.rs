//! A made-up report, on which the ways to show one are tried out.

use super::claims;
use super::features::Feature;
use super::machine::Machine;
use super::numbers::Spread;
use super::report::{Basis, Choice, Group, Measured, Outcome, Report, Row, Why};

pub(crate) fn report() -> Report {
    let groups = vec![close_on_exec(), listeners()];
    let answers = claims::answer_all(&groups, 2);
    Report {
        machine: Machine {
            kernel: "6.18.0".to_owned(),
            processor: "Processor <of> \"a\" & long name with a GHz figure @ 2.10GHz".to_owned(),
            processor_count: 2,
            mitigations: vec![("meltdown", "Not affected".to_owned())],
            load_average: "1.00 2.00 3.00".to_owned(),
            surroundings: vec!["virtual machine", "seccomp filter"],
        },
        features: vec![
            Feature { name: "cloexec=fcntl".to_owned(), missing: None },
            Feature { name: "newfstatat(fd, NULL)".to_owned(), missing: Some("Bad address (os error 14)".to_owned()) },
        ],
        features_cpu_us: 210.0,
        is_quick: true,
        seed: u64::MAX,
        groups,
        answers,
        took_s: 4.2,
    }
}

fn row(name: &str, ns: f64) -> Row {
    let cost = Spread { median: ns, p10: ns - 1.0 };
    let wall_ns = Spread { median: 1.1 * ns, p10: ns };
    let measured = Measured { cpu_ns: cost, wall_ns, sample_count: 31, ..Measured::default() };
    Row {
        name: name.to_owned(),
        thread_count: 1,
        way: None,
        is_used: false,
        baseline: 0,
        claimed_ratio: None,
        outcome: Outcome::Measured(measured),
    }
}

fn close_on_exec() -> Group {
    let choice = Choice { job: "cloexec", used: "fcntl", why: Why::Default, better: None };
    Group {
        job: "cloexec",
        title: "Close-on-exec, set on an open descriptor".to_owned(),
        unit: "call",
        basis: Basis::Cpu,
        rows: vec![
            Row { way: Some("fcntl"), is_used: true, ..row("fcntl", 126.0) },
            Row { way: Some("fioclex"), claimed_ratio: Some(0.97), ..row("ioctl(FIOCLEX)", 128.52) },
            Row {
                outcome: Outcome::CannotRun("Function not implemented (os error 38)".to_owned()),
                ..row("close_range of one", 0.0)
            },
        ],
        choice: Some(choice),
        notes: vec![
            "a note that goes on for long enough to need more than one of the lines that a terminal has".to_owned(),
        ],
    }
}

fn listeners() -> Group {
    let shared = |name: &str, wall_us: f64, busiest_share: f64| {
        let wall_ns = Spread { median: wall_us * 1e3, p10: wall_us * 9e2 };
        let both_cpu_ns = Spread { median: 1.2 * wall_us * 1e3, p10: wall_us * 1e3 };
        let measured = Measured {
            cpu_ns: Spread { median: 17_700.0, p10: 12_300.0 },
            wall_ns,
            peer_cpu_ns: Some(23_456.0),
            both_cpu_ns,
            busiest_share: Some(busiest_share),
            sample_count: 11,
            error_count: 1_000,
        };
        Row { thread_count: 2, outcome: Outcome::Measured(measured), ..row(name, 0.0) }
    };
    Group {
        job: "listeners",
        title: "Accepting connections with several workers, over loopback".to_owned(),
        unit: "connection",
        basis: Basis::BothSides,
        rows: vec![
            shared("shared, wakes all, 2", 35.0, 0.75),
            Row { claimed_ratio: Some(0.68), ..shared("siblings, 2", 30.0, 0.51) },
        ],
        choice: None,
        notes: Vec::new(),
    }
}
