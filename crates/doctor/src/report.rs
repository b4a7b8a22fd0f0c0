//! The report: text for people, JSON for programs.

use crate::checks::{Finding, Verdict};
use serde::Serialize;

/// Columns of a line, except for commands.
const WIDTH: usize = 100;
/// The width of the first column.
const MARK_WIDTH: usize = 8;

/// The text: what is wrong with its remedy, what is not known, what is right, and what to ask from elsewhere.
pub(crate) fn text(findings: &[Finding], elsewhere: &[String]) -> String {
    let mut out = String::new();
    let mut previous = "";
    for Finding { check, subject, verdict } in findings {
        if *check != previous {
            out += &format!("{check}\n");
            previous = check;
        }
        match verdict {
            Verdict::Good(text) => put(&mut out, "ok", &format!("{subject}: {text}")),
            Verdict::Unknown { why } => put(&mut out, "?", &format!("{subject}: {why}")),
            Verdict::Wrong { what, remedy } => {
                put(&mut out, "WRONG", &format!("{subject}: {what}"));
                if !remedy.is_empty() {
                    put(&mut out, "", &format!("-> {remedy}"));
                }
            }
        }
    }
    if !elsewhere.is_empty() {
        out +=
            "\nFrom this machine, firewalls and routers in front of it cannot be seen. On a machine elsewhere, run:\n";
        elsewhere.iter().for_each(|command| out += &format!("  {command}\n"));
    }
    let [good, wrong, unknown] = counts(findings);
    out + &format!("\n{wrong} wrong, {unknown} not known, {good} right\n")
}

/// Appends a line with `mark`, wrapped between words.
fn put(out: &mut String, mark: &str, text: &str) {
    let mut line = format!("  {mark:<0$}", MARK_WIDTH - 2);
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            *out += &format!("{}\n", line.trim_end());
            line = " ".repeat(MARK_WIDTH + 2);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    *out += &format!("{}\n", line.trim_end());
}

/// Those that are right, wrong, and not known.
fn counts(findings: &[Finding]) -> [usize; 3] {
    let count =
        |is_counted: fn(&Verdict) -> bool| findings.iter().filter(|finding| is_counted(&finding.verdict)).count();
    [
        count(|verdict| matches!(verdict, Verdict::Good(_))),
        count(Verdict::is_wrong),
        count(|verdict| matches!(verdict, Verdict::Unknown { .. })),
    ]
}

#[derive(Serialize)]
struct Report<'f> {
    good: usize,
    wrong: usize,
    unknown: usize,
    findings: Vec<ReportedFinding<'f>>,
    /// Commands for a machine elsewhere.
    elsewhere: &'f [String],
}

#[derive(Serialize)]
struct ReportedFinding<'f> {
    check: &'static str,
    subject: &'f str,
    verdict: &'static str,
    text: &'f str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'f str>,
}

impl ReportedFinding<'_> {
    fn of(finding: &Finding) -> ReportedFinding<'_> {
        let (verdict, text, remedy) = match &finding.verdict {
            Verdict::Good(text) => ("good", text, None),
            Verdict::Wrong { what, remedy } => ("wrong", what, Some(remedy.as_str())),
            Verdict::Unknown { why } => ("unknown", why, None),
        };
        ReportedFinding { check: finding.check, subject: &finding.subject, verdict, text, remedy }
    }
}

/// The report of `--json`.
pub(crate) fn json(findings: &[Finding], elsewhere: &[String]) -> String {
    let [good, wrong, unknown] = counts(findings);
    let findings = findings.iter().map(ReportedFinding::of).collect();
    let report = Report { good, wrong, unknown, findings, elsewhere };
    serde_json::to_string(&report).expect("a report has no map") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        let finding = |check, verdict| Finding { check, subject: "a.test".to_owned(), verdict };
        let (what, remedy) = ("word ".repeat(40), "step ".repeat(40));
        vec![
            finding("one", Verdict::Good("right".to_owned())),
            finding("two", Verdict::Wrong { what: what.trim().to_owned(), remedy: remedy.trim().to_owned() }),
            finding("two", Verdict::Unknown { why: "x".repeat(WIDTH + 9) }),
        ]
    }

    #[test]
    fn long_lines_are_wrapped_between_words() {
        let text = text(&findings(), &["dig a.test".to_owned()]);
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > WIDTH && line.contains(' ')).collect();
        // A word has no place to be wrapped.
        assert!(long.iter().all(|line| line.contains("xxx") || line.contains("elsewhere")), "{text}");
        assert!(text.starts_with("one\n  ok    a.test: right\ntwo\n  WRONG a.test: word word"), "{text}");
        assert!(text.contains("\n        -> step step") && text.contains("\n          step step"), "{text}");
        assert!(text.ends_with("run:\n  dig a.test\n\n1 wrong, 1 not known, 1 right\n"), "{text}");
        assert_eq!((text.matches("word").count(), text.matches("step").count()), (40, 40));
    }

    #[test]
    fn json_has_the_counts_and_remedies_of_what_is_wrong() {
        let json: serde_json::Value = serde_json::from_str(&json(&findings(), &[])).expect("JSON");
        assert_eq!((&json["good"], &json["wrong"], &json["unknown"]), (&1.into(), &1.into(), &1.into()));
        let verdicts: Vec<_> = json["findings"].as_array().expect("a list").iter().map(|one| &one["verdict"]).collect();
        assert_eq!(verdicts, ["good", "wrong", "unknown"]);
        assert!(json["findings"][1]["remedy"].is_string() && json["findings"][0].get("remedy").is_none(), "{json}");
    }
}
