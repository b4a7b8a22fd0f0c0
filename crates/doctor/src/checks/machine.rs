//! The checks of this machine: configuration and files, the server, ports, limits, the clock.

use super::{Judgement, Verdict};
use crate::facts::{CheckProblem, Facts, Holder, PortFacts, ServerFacts, Transport};
use sanderling_config::remedy_of_stub_resolver;

/// Problems of `sanderling check` that are shown.
const PROBLEMS_SHOWN_MAX: usize = 20;
/// Seconds that the clock may differ: the time of an answer has whole seconds, and answers take time.
const CLOCK_TOLERANCE_S: u64 = 30;

/// The configuration, and the files, keys and users that it names.
pub(super) fn configuration(facts: &Facts) -> Vec<Judgement> {
    let file = || facts.config_file.clone();
    let report = match &facts.check {
        Ok(report) => report,
        Err(why) => return vec![(file(), Verdict::unknown(why))],
    };
    let problems: Vec<&CheckProblem> = report.problems.iter().filter(|problem| problem.severity != "note").collect();
    if problems.is_empty() {
        return vec![(file(), Verdict::good("it has no errors, nor have its files, keys and zones"))];
    }
    let shown = problems.iter().take(PROBLEMS_SHOWN_MAX);
    let mut judgements: Vec<Judgement> =
        shown.map(|problem| (place(problem), Verdict::wrong(&problem.problem, &problem.remedy))).collect();
    if let Some(more) = problems.len().checked_sub(PROBLEMS_SHOWN_MAX).filter(|more| *more > 0) {
        judgements.push((file(), Verdict::wrong(format!("{more} more problems"), "run `sanderling check`")));
    }
    judgements
}

fn place(problem: &CheckProblem) -> String {
    match problem.line {
        Some(line) => format!("{}:{line}", problem.place),
        None => problem.place.clone(),
    }
}

/// The running server, and how it deviates from its configuration.
pub(super) fn server(facts: &Facts) -> Vec<Judgement> {
    let judgement = |verdict| ("sanderling".to_owned(), verdict);
    match &facts.server {
        ServerFacts::Running(running) if running.problems.is_empty() => {
            let text = format!("it runs (pid {}), and serves everything as configured", running.pid);
            vec![judgement(Verdict::good(text))]
        }
        ServerFacts::Running(running) => {
            // The messages of the server have their remedy at the end. Another program may have its control socket.
            let wrong = |problem: &String| match problem.split_once("; ") {
                Some((what, remedy)) => judgement(Verdict::wrong(what, format!("the server says: {remedy}"))),
                None => judgement(Verdict::wrong(problem, "`sanderling status` shows more")),
            };
            running.problems.iter().map(wrong).collect()
        }
        ServerFacts::Absent(socket) => vec![judgement(Verdict::wrong(
            format!("it does not run: no server answers at {socket}"),
            "start it with `sudo sanderling serve` or `systemctl start sanderling`; if it has another control socket, \
             name that with --control PATH",
        ))],
        ServerFacts::Unknown(why) => vec![judgement(Verdict::unknown(why))],
    }
}

/// The addresses at which the server should listen.
pub(super) fn ports(facts: &Facts) -> Vec<Judgement> {
    let has_server = !matches!(facts.server, ServerFacts::Absent(_));
    let judge = |port: &PortFacts| {
        let PortFacts { service, address, transport, holder, is_local, needs_root } = port;
        let transport = match transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        };
        let verdict = match holder {
            Holder::Own => Verdict::good("the server listens"),
            Holder::None if !is_local => Verdict::wrong(
                "this machine does not have the address",
                format!("correct {}; `ip address` shows the addresses of this machine", service.listen_key()),
            ),
            Holder::None if facts.is_running() => Verdict::wrong(
                "the running server does not listen there",
                "run `sanderling reload`, or restart the server",
            ),
            Holder::None if *needs_root => Verdict::unknown(
                "no other program has it, but only root or a service with CAP_NET_BIND_SERVICE can bind the port",
            ),
            Holder::None => Verdict::good("no other program has it"),
            Holder::Other { name, pid, address: bound } => Verdict::wrong(
                format!("the program {name} (pid {pid}) has {bound}"),
                remedy_of_taken_port((name, *pid), address.ip().is_unspecified(), bound.ip().is_loopback(), *service),
            ),
            Holder::Hidden { .. } if has_server => {
                Verdict::unknown("a program of another user has it; run this command as root to see which one")
            }
            Holder::Hidden { address: bound } => Verdict::wrong(
                format!("a program of another user has {bound}"),
                "run this command as root to see which one, and stop it",
            ),
        };
        (format!("{service} at {address}, {transport}"), verdict)
    };
    facts.ports.iter().map(judge).collect()
}

fn remedy_of_taken_port(
    (name, pid): (&str, u32),
    wants_all_addresses: bool,
    is_at_loopback: bool,
    service: sanderling_config::Service,
) -> String {
    let key = service.listen_key();
    match (name, wants_all_addresses && is_at_loopback) {
        // The kernel cuts names to 15 bytes.
        ("sanderling", _) => {
            "it is another server of this kind, or one without this control socket: stop it".to_owned()
        }
        (name, _) if name.starts_with("systemd-resolve") => remedy_of_stub_resolver(key),
        (_, true) => format!(
            "set {key} to the addresses of this machine instead of all of them: that program stays at its own address"
        ),
        (name, false) if is_unit_name(name) => format!(
            "stop it (`kill {pid}`; if it is a service, `systemctl disable --now {name}`), or set {key} to \
             another address"
        ),
        (_, false) => format!("stop it (`kill {pid}`), or set {key} to another address"),
    }
}

/// Whether a command can have the name of a program, which any user can choose.
fn is_unit_name(name: &str) -> bool {
    let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.bytes().all(is_byte)
}

/// The limit of open files.
pub(super) fn open_files(facts: &Facts) -> Vec<Judgement> {
    let limits = &facts.open_files;
    let subject = if limits.is_of_server { "the server" } else { "this shell" };
    let verdict = match limits.problem.as_deref().map(|problem| problem.rsplit_once("; ").unwrap_or((problem, ""))) {
        Some((problem, remedy)) => Verdict::wrong(problem, remedy),
        None => Verdict::good(format!("the limit of {} is enough", limits.limit)),
    };
    vec![(subject.to_owned(), verdict)]
}

/// The clock, next to that of a certificate authority.
pub(super) fn clock(facts: &Facts) -> Vec<Judgement> {
    let Some(seen) = facts.seen() else { return Vec::new() };
    let (subject, verdict) = match &seen.clock {
        None => {
            let why = "no certificate authority is configured, whose clock it could be compared with";
            ("this machine".to_owned(), Verdict::unknown(why))
        }
        Some(Err(problem)) => ("this machine".to_owned(), Verdict::unknown(format!("not compared: {problem}"))),
        Some(Ok(clock)) => {
            let difference_s = clock.own_unix_s.abs_diff(clock.unix_s);
            let direction = if clock.own_unix_s > clock.unix_s { "ahead of" } else { "behind" };
            let verdict = match difference_s {
                0..=CLOCK_TOLERANCE_S => Verdict::good(format!("it agrees with {}", clock.server)),
                _ => Verdict::wrong(
                    format!("the clock is {difference_s} s {direction} that of {}", clock.server),
                    "set it, and let it follow a time server: `timedatectl set-ntp true`",
                ),
            };
            ("this machine".to_owned(), verdict)
        }
    };
    vec![(subject, verdict)]
}
