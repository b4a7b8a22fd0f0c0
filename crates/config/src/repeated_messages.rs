//! Repeated messages, which are logged once a minute.

use crate::log::{log_error, log_warning};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Minimum time between two messages about a subject.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Subjects that are remembered. Above this number, subjects are forgotten whose next message may be logged.
const SUBJECTS_MAX: usize = 1_024;

/// The time of the next logged message of a kind, and the number of messages left out since the last.
#[derive(Clone, Copy, Debug, Default)]
struct LogLimit {
    next_at: Option<Instant>,
    left_out_count: u64,
}

impl LogLimit {
    /// The number of messages left out before this one; `None` if this message should be suppressed too.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.next_at.is_some_and(|at| now < at) {
            self.left_out_count = self.left_out_count.saturating_add(1);
            return None;
        }
        self.next_at = Some(now + LOG_INTERVAL);
        Some(std::mem::take(&mut self.left_out_count))
    }

    /// The time to log a message about the suppressed ones, if any.
    fn due_at(&self) -> Option<Instant> {
        self.next_at.filter(|_| self.left_out_count > 0)
    }

    fn is_over(&self, now: Instant) -> bool {
        self.left_out_count == 0 && self.next_at.is_none_or(|at| at <= now)
    }
}

/// Errors and warnings that repeat: one a minute about each subject, such as a zone.
#[derive(Debug, Default)]
pub struct LimitedLog {
    by_subject: HashMap<String, LogLimit>,
}

impl LimitedLog {
    /// Logs an error about `subject`, unless something about it was logged within a minute.
    pub fn error(&mut self, subject: &str, message: &str) {
        self.admit(subject, message, Instant::now()).iter().for_each(|message| log_error(message));
    }

    /// Logs a warning in the same way.
    pub fn warning(&mut self, subject: &str, message: &str) {
        self.admit(subject, message, Instant::now()).iter().for_each(|message| log_warning(message));
    }

    fn admit(&mut self, subject: &str, message: &str, now: Instant) -> Option<String> {
        if self.by_subject.len() >= SUBJECTS_MAX {
            // Suppressed messages of these subjects are not reported: the subjects have been quiet since.
            self.by_subject.retain(|_, limit| limit.next_at.is_some_and(|at| now < at));
        }
        let left_out_count = self.by_subject.entry(subject.to_owned()).or_default().admit(now)?;
        Some(match left_out_count {
            0 => message.to_owned(),
            count => format!("{message}; {count} similar messages suppressed"),
        })
    }
}

/// A version of a zone that replaces another.
#[derive(Clone, Debug)]
pub struct VersionChange {
    /// The serial before.
    pub from: u32,
    /// The serial of the version.
    pub to: u32,
    /// The line about this version alone, after the zone's name.
    pub line: String,
    /// The text after the serials in a line about several versions, of which this is the last.
    pub of_several: String,
}

/// The versions of zones that follow each other: the log has one line a minute about each zone.
#[derive(Debug, Default)]
pub struct VersionLog {
    by_zone: HashMap<String, Versions>,
}

#[derive(Debug, Default)]
struct Versions {
    limit: LogLimit,
    /// The versions that were left out: the serial before the first one, and the last version.
    left_out: Option<(u32, VersionChange)>,
}

impl VersionLog {
    /// The line about `zone` to log now, if any.
    pub fn note(&mut self, zone: &str, change: VersionChange, now: Instant) -> Option<String> {
        if self.by_zone.len() >= SUBJECTS_MAX {
            self.by_zone.retain(|_, versions| !versions.limit.is_over(now));
        }
        let versions = self.by_zone.entry(zone.to_owned()).or_default();
        let from = versions.left_out.take().map_or(change.from, |(from, _)| from);
        match versions.limit.admit(now) {
            Some(0) => Some(format!("zone {zone}: {}", change.line)),
            Some(count) => Some(line_of_several(zone, count.saturating_add(1), from, &change)),
            None => {
                versions.left_out = Some((from, change));
                None
            }
        }
    }

    /// The lines about versions that were left out a minute ago.
    pub fn take_due(&mut self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        for (zone, versions) in &mut self.by_zone {
            if versions.limit.due_at().is_some_and(|at| at <= now)
                && let Some((from, change)) = versions.left_out.take()
                && let Some(count) = versions.limit.admit(now)
            {
                lines.push(line_of_several(zone, count, from, &change));
            }
        }
        lines
    }

    /// When [`VersionLog::take_due`] has something.
    pub fn due_at(&self) -> Option<Instant> {
        self.by_zone.values().filter_map(|versions| versions.limit.due_at()).min()
    }
}

fn line_of_several(zone: &str, count: u64, from: u32, change: &VersionChange) -> String {
    match count {
        1 => format!("zone {zone}: {}", change.line),
        count => format!("zone {zone}: serial {from} -> {}, {count} versions{}", change.to, change.of_several),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_a_subject_is_logged_once_a_minute_with_the_number_of_others() {
        let (mut log, start) = (LimitedLog::default(), Instant::now());
        let mut check = |after_s: u64, subject: &str, expected: Option<&str>| {
            let logged = log.admit(subject, "no space", start + Duration::from_secs(after_s));
            assert_eq!(logged.as_deref(), expected, "after {after_s} s");
        };
        check(0, "a", Some("no space"));
        check(1, "b", Some("no space"));
        check(30, "a", None);
        check(59, "a", None);
        check(60, "a", Some("no space; 2 similar messages suppressed"));
        check(61, "b", Some("no space"));
        check(119, "a", None);
        for number in 0..2 * SUBJECTS_MAX {
            log.admit(&number.to_string(), "x", start + Duration::from_secs(300 + number as u64));
        }
        assert!(log.by_subject.len() <= SUBJECTS_MAX, "{}", log.by_subject.len());
    }

    #[test]
    fn versions_of_a_minute_are_one_line() {
        let (mut log, start) = (VersionLog::default(), Instant::now());
        let at = |after_s: u64| start + Duration::from_secs(after_s);
        let change = |from: u32| VersionChange {
            from,
            to: from + 1,
            line: format!("serial {from} -> {}, 5 -> 6 records", from + 1),
            of_several: ", 6 records".to_owned(),
        };
        let mut note = |zone, from, after_s| log.note(zone, change(from), at(after_s));
        assert_eq!(note("a", 1, 0).as_deref(), Some("zone a: serial 1 -> 2, 5 -> 6 records"));
        assert_eq!(note("b", 1, 1).as_deref(), Some("zone b: serial 1 -> 2, 5 -> 6 records"));
        assert_eq!([note("a", 2, 2), note("a", 3, 3), note("a", 4, 59)], [None, None, None]);
        assert_eq!(note("a", 5, 60).as_deref(), Some("zone a: serial 2 -> 6, 4 versions, 6 records"));
        assert_eq!(note("a", 6, 61), None);
        // No message follows: the last versions are logged nevertheless.
        assert_eq!(log.due_at(), Some(at(120)));
        assert_eq!(log.take_due(at(119)), [""; 0]);
        assert_eq!(log.take_due(at(120)), ["zone a: serial 6 -> 7, 5 -> 6 records"]);
        assert_eq!((log.take_due(at(600)), log.due_at()), (Vec::new(), None));
        assert_eq!(log.note("a", change(7), at(600)).as_deref(), Some("zone a: serial 7 -> 8, 5 -> 6 records"));
    }
}
