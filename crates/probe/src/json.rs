//! Turns a report into JSON (RFC 8259), for programs and for comparing machines.

use super::report::{Answer, Basis, Choice, Group, Outcome, Report, Row, Why};
use crate::json_values::{array, number, object, optional, text};

/// The form of what is written; a change that readers must know of raises it.
const FORM: u32 = 1;

/// The whole report, on one line.
pub(crate) fn report(report: &Report) -> String {
    let machine = &report.machine;
    object(&[
        ("form", number(f64::from(FORM))),
        ("program", text(concat!("sanderling ", env!("CARGO_PKG_VERSION")))),
        ("kernel", text(&machine.kernel)),
        ("processor", text(&machine.processor)),
        ("processor_count", number(machine.processor_count as f64)),
        (
            "mitigations",
            object(&machine.mitigations.iter().map(|(name, value)| (*name, text(value))).collect::<Vec<_>>()),
        ),
        ("surroundings", array(machine.surroundings.iter().map(|name| text(name)))),
        ("load_average", text(&machine.load_average)),
        (
            "features",
            array(report.features.iter().map(|feature| {
                object(&[("name", text(&feature.name)), ("missing", optional(feature.missing.as_deref().map(text)))])
            })),
        ),
        ("features_cpu_us", number(report.features_cpu_us)),
        ("quick", report.is_quick.to_string()),
        // As text, since many readers keep numbers in 53 bits.
        ("seed", text(&report.seed.to_string())),
        ("took_s", number(report.took_s)),
        ("groups", array(report.groups.iter().map(group))),
        ("claims", array(report.answers.iter().map(answer))),
        ("summary", text(&super::claims::summary(&report.groups, &report.answers))),
    ])
}

fn group(group: &Group) -> String {
    object(&[
        ("job", text(group.job)),
        ("title", text(&group.title)),
        ("unit", text(group.unit)),
        ("ratio_of", text(if group.basis == Basis::Cpu { "cpu_ns" } else { "both_cpu_ns" })),
        ("rows", array(group.rows.iter().map(|one| row(group, one)))),
        ("choice", optional(group.choice.as_ref().map(choice))),
        ("notes", array(group.notes.iter().map(|note| text(note)))),
    ])
}

fn row(group: &Group, row: &Row) -> String {
    let mut fields = vec![
        ("name", text(&row.name)),
        ("threads", number(row.thread_count as f64)),
        ("way", optional(row.way.map(text))),
        ("used", row.is_used.to_string()),
        ("compared_with", optional(group.rows.get(row.baseline).map(|baseline| text(&baseline.name)))),
        ("claimed_ratio", optional(row.claimed_ratio.map(number))),
    ];
    match &row.outcome {
        Outcome::CannotRun(why) => fields.push(("cannot_run", text(why))),
        Outcome::Measured(measured) => fields.extend([
            ("cpu_ns", number(measured.cpu_ns.median)),
            ("cpu_ns_p10", number(measured.cpu_ns.p10)),
            ("wall_ns", number(measured.wall_ns.median)),
            ("wall_ns_p10", number(measured.wall_ns.p10)),
            ("both_cpu_ns", number(measured.both_cpu_ns.median)),
            ("peer_cpu_ns", optional(measured.peer_cpu_ns.map(number))),
            ("busiest_share", optional(measured.busiest_share.map(number))),
            ("ratio", optional(group.ratio(row).map(|ratio| number(ratio.median)))),
            ("ratio_p10", optional(group.ratio(row).map(|ratio| number(ratio.p10)))),
            ("samples", number(measured.sample_count as f64)),
            ("errors", number(measured.error_count as f64)),
        ]),
    }
    object(&fields)
}

fn choice(choice: &Choice) -> String {
    let why = match choice.why {
        Why::Default => "default",
        Why::FirstThere => "first there",
        Why::OnlyOne => "only one there",
        Why::Forced => "forced",
    };
    object(&[
        ("used", text(choice.used)),
        ("why", text(why)),
        ("better", optional(choice.better.map(|(way, _)| text(way)))),
        ("better_by", optional(choice.better.map(|(_, share)| number(share)))),
    ])
}

fn answer(answer: &Answer) -> String {
    object(&[
        ("idea", text(answer.idea)),
        ("claim", text(answer.claim)),
        ("verdict", text(answer.verdict.words())),
        ("finding", text(&answer.finding)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use serde_json::Value;

    #[test]
    fn a_report_is_valid_and_has_everything() {
        let json = report(&sample::report());
        let json: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error} in {json}"));
        assert_eq!(json["form"], 1);
        assert_eq!(json["features"][1]["missing"], "Bad address (os error 14)");
        let rows = &json["groups"][0]["rows"];
        assert_eq!(rows[0]["cpu_ns"], 126.0);
        assert_eq!((&rows[0]["used"], &rows[1]["used"]), (&Value::Bool(true), &Value::Bool(false)));
        assert_eq!(rows[1]["ratio"], 1.02);
        assert_eq!(rows[1]["compared_with"], "fcntl");
        assert_eq!(rows[1]["claimed_ratio"], 0.97);
        assert_eq!(rows[2]["cannot_run"], "Function not implemented (os error 38)");
        assert_eq!(json["groups"][0]["choice"]["used"], "fcntl");
        assert_eq!(json["groups"][1]["rows"][1]["busiest_share"], 0.51);
        assert_eq!(json["claims"].as_array().map(Vec::len), Some(6));
        assert!(json["summary"].as_str().is_some_and(|summary| summary.starts_with("On this machine: ")));
    }
}
