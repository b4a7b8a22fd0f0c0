//! What the supervisor tells of itself, around what the serving process tells.

use super::process::{Process, Stage};
use super::{Asker, Curious, Supervisor};
use sanderling_config::ConfigSource;
use sanderling_ipc::channel::Order;
use sanderling_ipc::control::Key;
use sanderling_ipc::control_message::Request;
use sanderling_ipc::json::{array, number, object, optional, text};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

impl Supervisor {
    /// Tells how the supervisor stands, and asks the process that serves to go on.
    pub(super) fn begin_status(&mut self, key: Key, request: Request) {
        let head = if request == Request::Status { self.to_text() } else { self.to_json() };
        if let Some(control) = &mut self.control {
            control.out(key, &head);
        }
        let order = if request == Request::Status { Order::Tell } else { Order::TellJson };
        match self.serving() {
            Some(process) => {
                process.order(order, None);
                let generation = process.generation;
                self.curious.push_back(Curious { key, request, generation });
            }
            None if request == Request::Status => self.tell_asker(Asker::Client(key), Ok("  nobody serves now\n")),
            None => self.tell_asker(Asker::Client(key), Ok("null}\n")),
        }
    }

    /// The process that serves has told all.
    pub(super) fn end_status(&mut self, key: Key, request: Request) {
        let tail = if request == Request::Status { "" } else { "}\n" };
        self.tell_asker(Asker::Client(key), Ok(tail));
    }

    fn to_text(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut out = format!("sanderling {version}, supervisor {}, for {}\n", std::process::id(), words(self.since));
        let source = match &self.source {
            ConfigSource::File(path) => path.display().to_string(),
            ConfigSource::Flags(_) => "the command line".to_owned(),
        };
        out += &format!("configuration {source}, taken up {} ago\n", words(self.taken_up_at));
        for address in self.listeners.addresses() {
            let count = address.sibling_count();
            let siblings = if count == 1 { "1 socket".to_owned() } else { format!("{count} siblings") };
            out += &format!("{} {}, {siblings}\n", address.role.service.name(), address.bound);
        }
        out += &format!("server processes that have died: {}\n", self.restarts.count);
        for process in self.processes.iter().filter(|process| process.stage != Stage::Serving) {
            out += &format!("process {} (generation {}), {}\n", process.id(), process.generation, stage(process));
        }
        if let Some(process) = self.processes.iter().find(|process| process.stage == Stage::Serving) {
            let (id, generation) = (process.id(), process.generation);
            out += &format!("process {id} (generation {generation}), serving for {}\n", words(process.ready_at));
        }
        out
    }

    /// An object that ends where that of the process is to follow.
    fn to_json(&self) -> String {
        let whole = |value: u64| number(value as f64);
        let addresses = self.listeners.addresses().iter().map(|address| {
            object(&[
                ("service", text(address.role.service.name())),
                ("address", text(&address.bound.to_string())),
                ("siblings", whole(address.sibling_count() as u64)),
            ])
        });
        let processes = self.processes.iter().map(|process| {
            object(&[
                ("pid", whole(process.id().unsigned_abs().into())),
                ("generation", whole(process.generation)),
                ("stage", text(stage(process))),
                ("ready_at_unix_s", whole(unix_s(process.ready_at))),
            ])
        });
        let source = match &self.source {
            ConfigSource::File(path) => Some(path.display().to_string()),
            ConfigSource::Flags(_) => None,
        };
        let supervisor = object(&[
            ("version", text(env!("CARGO_PKG_VERSION"))),
            ("pid", whole(u64::from(std::process::id()))),
            ("since_unix_s", whole(unix_s(self.since))),
            ("configuration", optional(source.as_deref().map(text))),
            ("taken_up_unix_s", whole(unix_s(self.taken_up_at))),
            ("deaths", whole(self.restarts.count)),
            ("listeners", array(addresses)),
            ("processes", array(processes)),
        ]);
        format!("{{\"supervisor\":{supervisor},\"process\":")
    }
}

fn stage(process: &Process) -> &'static str {
    match process.stage {
        Stage::Starting => "starting",
        Stage::Serving => "serving",
        Stage::Draining => "draining",
    }
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How long ago `time` was.
fn words(time: SystemTime) -> String {
    duration_words(time.elapsed().unwrap_or_default())
}

fn duration_words(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_their_two_largest_units() {
        let check = |s: u64, expected: &str| assert_eq!(duration_words(Duration::from_secs(s)), expected);
        check(0, "0 s");
        check(59, "59 s");
        check(61, "1 min 1 s");
        check(3_600 + 720, "1 h 12 min");
        check(86_400 * 3 + 3_600 * 5 + 59, "3 d 5 h");
    }
}
