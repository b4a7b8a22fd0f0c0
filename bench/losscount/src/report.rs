//! The counts of a load turned into a table for people and JSON for programs.

use crate::outcome::{Cause, Kind, Note};
use crate::tally::Counts;
use std::fmt::{self, Write};
use std::time::Duration;

/// Losses in words that the table shows of each kind; JSON has all that were kept.
const LOSSES_SHOWN_MAX: usize = 4;

/// What became of a load.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed that draws the same questions and ids again.
    pub seed: u64,
    /// From the first request that was due until the last had ended.
    pub length: Duration,
    pub(crate) kinds: Vec<(Kind, Counts)>,
}

impl Report {
    /// The counts of a kind; `None` when it had no rate.
    pub fn counts(&self, kind: Kind) -> Option<&Counts> {
        self.kinds.iter().find(|(found, _)| *found == kind).map(|(_, counts)| counts)
    }

    /// Requests lost, of all kinds and for all causes.
    pub fn lost_count(&self) -> u64 {
        self.kinds.iter().map(|(_, counts)| counts.lost_count()).sum()
    }

    /// Kept connections that the server ended without a loss, of all kinds.
    pub fn closed_by_server_count(&self) -> u64 {
        self.kinds.iter().map(|(_, counts)| counts.closed_by_server_count()).sum()
    }

    /// Requests sent, of all kinds.
    pub fn sent_count(&self) -> u64 {
        self.kinds.iter().map(|(_, counts)| counts.sent_count).sum()
    }

    /// Processor time of the load itself, without that of the kernel on its behalf in interrupts.
    pub fn own_cpu(&self) -> Duration {
        self.kinds.iter().map(|(_, counts)| counts.own_cpu).sum()
    }

    /// One object in one line. Times are in milliseconds.
    pub fn to_json(&self) -> String {
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, counts)| kind_json(*kind, counts)).collect();
        format!(
            "{{\"seed\":{},\"length_ms\":{},\"own_cpu_ms\":{},\"sent\":{},\"lost\":{},\"kinds\":{{{}}}}}",
            self.seed,
            ms_text(self.length),
            ms_text(self.own_cpu()),
            self.sent_count(),
            self.lost_count(),
            kinds.join(",")
        )
    }
}

fn kind_json(kind: Kind, counts: &Counts) -> String {
    let list = |pairs: Vec<(&str, u64)>| {
        pairs.iter().map(|(name, count)| format!("\"{name}\":{count}")).collect::<Vec<_>>().join(",")
    };
    let lost = list(Cause::ALL.iter().map(|cause| (cause.name(), counts.lost(*cause))).collect());
    let notes = list(Note::ALL.iter().map(|note| (note.name(), counts.noted(*note))).collect());
    let losses: Vec<String> = counts
        .first_losses
        .iter()
        .map(|loss| {
            format!(
                "{{\"number\":{},\"due_after_ms\":{},\"lost_after_ms\":{},\"cause\":\"{}\",\"detail\":{}}}",
                loss.number,
                ms_text(loss.due_after),
                ms_text(loss.lost_after),
                loss.cause.name(),
                json_text(&loss.detail)
            )
        })
        .collect();
    format!(
        "\"{}\":{{\"sent\":{},\"ok\":{},\"lost\":{},\"lost_by_cause\":{{{lost}}},\"closed_by_server\":{},\
         \"notes\":{{{notes}}},\
         \"latency_ms\":{{\"p50\":{},\"p99\":{},\"max\":{}}},\"silence_max_ms\":{},\"late_max_ms\":{},\
         \"own_cpu_ms\":{},\"first_losses\":[{}]}}",
        kind.name(),
        counts.sent_count,
        counts.ok_count,
        counts.lost_count(),
        counts.closed_by_server_count(),
        ms_text(counts.latency.quantile(0.5)),
        ms_text(counts.latency.quantile(0.99)),
        ms_text(counts.latency.max()),
        ms_text(counts.silence_max),
        ms_text(counts.late_max),
        ms_text(counts.own_cpu),
        losses.join(",")
    )
}

/// RFC 8259 §7.
fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\x1f' => write!(out, "\\u{:04x}", u32::from(character)).expect("a string takes all"),
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

fn ms_text(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1e3)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<13} {:>9} {:>9} {:>7}   {:>8} {:>8} {:>9}   {:>10} {:>8}",
            "kind", "sent", "ok", "lost", "p50 ms", "p99 ms", "max ms", "silence ms", "late ms"
        )?;
        for (kind, counts) in &self.kinds {
            writeln!(
                f,
                "{:<13} {:>9} {:>9} {:>7}   {:>8} {:>8} {:>9}   {:>10} {:>8}",
                kind.name(),
                counts.sent_count,
                counts.ok_count,
                counts.lost_count(),
                ms_text(counts.latency.quantile(0.5)),
                ms_text(counts.latency.quantile(0.99)),
                ms_text(counts.latency.max()),
                ms_text(counts.silence_max),
                ms_text(counts.late_max),
            )?;
        }
        for (kind, counts) in &self.kinds {
            fmt_kind(f, *kind, counts)?;
        }
        let share = self.own_cpu().as_secs_f64() / self.length.as_secs_f64().max(1e-9) * 100.0;
        write!(
            f,
            "{} lost of {} in {:.1} s; seed {}; this load itself took {share:.0} % of one processor",
            self.lost_count(),
            self.sent_count(),
            self.length.as_secs_f64(),
            self.seed
        )
    }
}

/// The causes, the notes and the first losses of a kind, where there are any.
fn fmt_kind(f: &mut fmt::Formatter<'_>, kind: Kind, counts: &Counts) -> fmt::Result {
    let lost = Cause::ALL.iter().map(|cause| (cause.to_string(), counts.lost(*cause)));
    let noted = Note::ALL.iter().map(|note| (note.to_string(), counts.noted(*note)));
    fmt_list(f, kind, "lost:", lost)?;
    fmt_list(f, kind, "noted:", noted)?;
    for loss in counts.first_losses.iter().take(LOSSES_SHOWN_MAX) {
        writeln!(
            f,
            "{:<13} #{} due at {:.3} s, {} at {:.3} s: {}",
            kind.name(),
            loss.number,
            loss.due_after.as_secs_f64(),
            loss.cause,
            loss.lost_after.as_secs_f64(),
            loss.detail
        )?;
    }
    Ok(())
}

fn fmt_list(
    f: &mut fmt::Formatter<'_>,
    kind: Kind,
    title: &str,
    pairs: impl Iterator<Item = (String, u64)>,
) -> fmt::Result {
    let parts: Vec<String> =
        pairs.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    if parts.is_empty() {
        return Ok(());
    }
    writeln!(f, "{:<13} {title} {}", kind.name(), parts.join(", "))
}
