//! The JSON of a load turned into what became of its requests, kind by kind.

use super::json::Value;

/// Causes of a loss that say that a process had the request and ended without answering: reset or closed.
const CUT_OFF: &[&str] = &["reset_before", "reset_within", "closed_before", "short"];

/// What became of the requests of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// As the load calls it.
    pub(super) kind: String,
    pub(super) sent_count: u64,
    pub(super) lost_count: u64,
    /// Causes by the load's names, those alone that there were.
    pub(super) lost_by_cause: Vec<(String, u64)>,
    /// Kept connections that the server ended without a loss.
    pub(super) closed_by_server_count: u64,
    pub(super) latency_p50_ms: f64,
    pub(super) latency_p99_ms: f64,
    pub(super) latency_max_ms: f64,
    /// The longest time without a right answer.
    pub(super) silence_max_ms: f64,
    /// The longest delay of the load's own sending.
    pub(super) late_max_ms: f64,
    /// The first loss in words.
    pub(super) first_loss: Option<String>,
}

impl Counts {
    /// Requests that a process had taken and ended without answering.
    pub(super) fn cut_off_count(&self) -> u64 {
        CUT_OFF.iter().map(|cause| self.lost_for(cause)).sum()
    }

    /// Requests lost for a cause by the load's name.
    pub(super) fn lost_for(&self, cause: &str) -> u64 {
        self.lost_by_cause.iter().find(|(name, _)| name == cause).map_or(0, |(_, count)| *count)
    }

    /// Each cause with its count, for people.
    pub(super) fn causes(&self) -> String {
        let causes: Vec<String> = self.lost_by_cause.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
        causes.join(", ")
    }
}

/// The longest delay of the load's own sending, of all kinds: how busy the machine was with something else.
pub(super) fn late_max_ms(counts: &[Counts]) -> f64 {
    counts.iter().map(|kind| kind.late_max_ms).fold(0.0, f64::max)
}

/// The counts of all kinds in the order of the load.
///
/// # Errors
/// The text is no report of a load.
pub(super) fn parse_report(text: &str) -> Result<Vec<Counts>, String> {
    let report = Value::parse(text)?;
    let kinds = report.at("kinds").ok_or("the load's report has no kinds")?.members();
    kinds
        .iter()
        .map(|(kind, value)| counts_of(kind, value).ok_or_else(|| format!("the load tells no {kind}")))
        .collect()
}

fn counts_of(kind: &str, value: &Value) -> Option<Counts> {
    let causes = value.at("lost_by_cause")?.members();
    let lost_by_cause = causes.iter().filter_map(|(cause, _)| {
        let count = value.count_at(&format!("lost_by_cause.{cause}")).filter(|count| *count > 0)?;
        Some((cause.clone(), count))
    });
    let first_loss = value.at("first_losses")?.items().first().map(|loss| {
        let text = |path: &str| loss.text_at(path).unwrap_or_default();
        let due_ms = loss.number_at("due_after_ms").unwrap_or_default();
        format!("{} of what was due at {due_ms:.0} ms: {}", text("cause"), text("detail"))
    });
    Some(Counts {
        kind: kind.to_owned(),
        sent_count: value.count_at("sent")?,
        lost_count: value.count_at("lost")?,
        lost_by_cause: lost_by_cause.collect(),
        closed_by_server_count: value.count_at("closed_by_server")?,
        latency_p50_ms: value.number_at("latency_ms.p50")?,
        latency_p99_ms: value.number_at("latency_ms.p99")?,
        latency_max_ms: value.number_at("latency_ms.max")?,
        silence_max_ms: value.number_at("silence_max_ms")?,
        late_max_ms: value.number_at("late_max_ms")?,
        first_loss,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_kind_by_kind() {
        let kind = |lost: &str| {
            format!(
                "{{\"sent\":20,\"ok\":18,\"lost\":2,\"lost_by_cause\":{lost},\"closed_by_server\":3,\
                 \"notes\":{{\"opened\":16}},\"latency_ms\":{{\"p50\":0.1,\"p99\":0.5,\"max\":4.000}},\
                 \"silence_max_ms\":12.5,\"late_max_ms\":1.0,\"own_cpu_ms\":7.0,\"first_losses\":[{{\"number\":1,\
                 \"due_after_ms\":51.2,\"lost_after_ms\":51.3,\"cause\":\"short\",\"detail\":\"the end\"}}]}}"
            )
        };
        let (new, kept) = (kind("{\"refused\":0,\"short\":1,\"timeout\":1}"), kind("{}"));
        let text =
            format!("{{\"seed\":1,\"sent\":40,\"lost\":4,\"kinds\":{{\"http-new\":{new},\"http-kept\":{kept}}}}}");
        let counts = parse_report(&text).expect("it is a report");
        assert_eq!((counts.len(), counts[0].kind.as_str(), counts[0].sent_count), (2, "http-new", 20));
        assert_eq!((counts[0].causes().as_str(), counts[0].cut_off_count()), ("1 short, 1 timeout", 1));
        assert_eq!(late_max_ms(&counts), 1.0);
        assert_eq!((counts[1].closed_by_server_count, counts[1].silence_max_ms), (3, 12.5));
        assert_eq!(counts[0].first_loss.as_deref(), Some("short of what was due at 51 ms: the end"));
        assert!(parse_report("{}").is_err());
    }
}
