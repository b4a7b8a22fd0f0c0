//! Turns how a server process stands into words for people, and into JSON for programs.

use super::confinement::Confinement;
use sanderling_ipc::json::{array, number, object, optional, text};
use sanderling_os::features::FEATURES;
use sanderling_server::{Counter, DrainMode, State, Status, ThreadStatus};
use std::time::{SystemTime, UNIX_EPOCH};

/// What there is to tell.
pub(super) struct Report<'r> {
    pub(super) standing: Status,
    pub(super) confinement: &'r Confinement,
    pub(super) since: SystemTime,
    pub(super) worker_count: usize,
}

impl Report<'_> {
    /// For people: a table of the threads, and a line for everything else.
    pub(super) fn to_text(&self) -> String {
        let standing = &self.standing;
        let mut out = String::new();
        let mut line = |name: &str, value: String| out += &format!("  {name:<13} {value}\n");
        line("stage", stage(standing.state).to_owned());
        line("configuration", format!("replaced in place {} times", standing.snapshot_version));
        line("user", self.confinement.user.clone().unwrap_or_else(|| "unchanged".to_owned()));
        line("sandbox", self.confinement.confined.to_string());
        line(
            "ways",
            FEATURES.iter().map(|job| format!("{}={}", job.name(), job.selected_name())).collect::<Vec<_>>().join(" "),
        );
        let files = &standing.cache;
        line(
            "open files",
            format!(
                "{} files in {} descriptors and {} octets, {} paths that lead nowhere, {} folders watched, {} evicted",
                files.file_count,
                files.descriptor_count,
                files.content_bytes,
                files.negative_count,
                files.watched_dir_count,
                files.evicted_count
            ),
        );
        let counted = Counter::ALL.iter().map(|&counter| (counter, standing.sum(counter))).filter(|(_, sum)| *sum > 0);
        line(
            "counted",
            counted.map(|(counter, sum)| format!("{} {sum}", counter.name())).collect::<Vec<_>>().join(", "),
        );
        for thread in &standing.threads {
            line(&thread.name, thread_words(thread));
        }
        out
    }

    /// For programs: one object.
    pub(super) fn to_json(&self) -> String {
        let standing = &self.standing;
        let whole = |value: u64| number(value as f64);
        let files = &standing.cache;
        let since_unix_s = self.since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        object(&[
            ("pid", whole(u64::from(std::process::id()))),
            ("since_unix_s", whole(since_unix_s)),
            ("stage", text(stage(standing.state))),
            ("configurations_taken_up", whole(standing.snapshot_version)),
            ("user", optional(self.confinement.user.as_deref().map(text))),
            ("sandbox", text(&self.confinement.confined.to_string())),
            ("ways", object(&FEATURES.iter().map(|job| (job.name(), text(job.selected_name()))).collect::<Vec<_>>())),
            (
                "open_files",
                object(&[
                    ("files", whole(files.file_count as u64)),
                    ("descriptors", whole(files.descriptor_count)),
                    ("content_bytes", whole(files.content_bytes)),
                    ("missing", whole(files.negative_count as u64)),
                    ("folders_watched", whole(files.watched_dir_count as u64)),
                    ("evicted", whole(files.evicted_count)),
                ]),
            ),
            ("counters", counters(|counter| standing.sum(counter))),
            ("worker_count", whole(self.worker_count as u64)),
            ("threads", array(standing.threads.iter().map(thread_object))),
        ])
    }
}

fn stage(stage: State) -> &'static str {
    match stage {
        State::Serving => "serving",
        State::Draining(DrainMode::Replaced) => "draining, while another process serves",
        State::Draining(DrainMode::Stopping) => "draining",
        State::Ended => "ended",
    }
}

fn thread_words(thread: &ThreadStatus) -> String {
    let calls: Vec<String> = thread.calls().map(|(call, count)| format!("{} {count}", call.name())).collect();
    let siblings: Vec<String> = thread.socket_sets.iter().map(ToString::to_string).collect();
    format!(
        "siblings {}, accepted {}, open {} HTTP and {} DNS, turns {}; calls: {}",
        siblings.join(" "),
        thread.accepted_count(),
        thread.http_open_count(),
        thread.dns_open_count(),
        thread.iteration_count,
        calls.join(" ")
    )
}

fn thread_object(thread: &ThreadStatus) -> String {
    let whole = |value: u64| number(value as f64);
    object(&[
        ("name", text(&thread.name)),
        ("siblings", array(thread.socket_sets.iter().map(|&index| whole(index as u64)))),
        ("accepted", whole(thread.accepted_count())),
        ("http_open", whole(thread.http_open_count())),
        ("dns_open", whole(thread.dns_open_count())),
        ("turns", whole(thread.iteration_count)),
        ("counters", counters(|counter| thread.count(counter))),
        ("calls", object(&thread.calls().map(|(call, count)| (call.name(), whole(count))).collect::<Vec<_>>())),
    ])
}

fn counters(value: impl Fn(Counter) -> u64) -> String {
    object(&Counter::ALL.iter().map(|&counter| (counter.name(), number(value(counter) as f64))).collect::<Vec<_>>())
}
