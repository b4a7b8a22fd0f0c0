//! The certificates that the agent requests, in words: `sanderling certificates`.

use super::agent::no_request_reason;
use super::{Requester, Supervisor};
use sanderling_config::duration_text;
use sanderling_ipc::Text;
use sanderling_ipc::agent::{AgentReport, CertificateReport, FailingNameReport, ScheduledTask};
use sanderling_os::clock::unix_seconds;

impl Supervisor {
    /// Answers with the state of all certificates, or of one domain's certificate.
    pub(super) fn reply_with_certificates(&mut self, requester: Requester, name: Option<&str>, is_json: bool) {
        let Some(report) = &self.agent.report else {
            let reason = match (self.active.config.requests_certificates(), self.agent.problem()) {
                (true, Some(problem)) => format!("the agent does not run: {problem}"),
                (true, None) => "the agent has not reported yet; try again, and see the log".to_owned(),
                (false, _) => {
                    let reason = no_request_reason(&self.active.config);
                    format!("{reason}; `sanderling status` shows certificates from files")
                }
            };
            return self.reply(requester, Err(&reason));
        };
        let is_asked = |one: &CertificateReport| {
            name.is_none_or(|name| one.name == name || one.names.iter().any(|other| other == name))
        };
        let certificates: Vec<CertificateReport> =
            report.certificates.iter().filter(|one| is_asked(one)).cloned().collect();
        if let (Some(name), true) = (name, certificates.is_empty()) {
            return self.reply(requester, Err(&format!("no certificate is requested for {name}")));
        }
        let tasks = report.schedule.clone();
        let report = AgentReport { certificates, zones: Vec::new(), schedule: tasks };
        let text = if is_json {
            serde_json::to_string(&report).expect("a report has no map") + "\n"
        } else {
            let old = "the agent is being restarted; this is its last report\n";
            let first = self.agent.is_report_old().then(|| old.to_owned());
            let texts = report.certificates.iter().map(|one| text_of(one, &report.schedule, unix_seconds()));
            first.into_iter().chain(texts).collect()
        };
        // A text of the supervisor may be longer than a packet.
        let parts: Vec<Text> = Text::parts(&text).collect();
        parts.iter().for_each(|part| self.send_stdout(requester, part));
        self.reply(requester, Ok(""));
    }
}

/// Several lines about a certificate.
fn text_of(certificate: &CertificateReport, schedule: &[ScheduledTask], now_unix_s: u64) -> String {
    let CertificateReport {
        name,
        names,
        authority,
        is_in_progress,
        progress,
        issued,
        failure_count,
        last_error,
        failing_names,
    } = certificate;
    let mut text = format!("{name}\n  names: {}\n", names.join(" "));
    text += &match issued {
        None => "  not issued yet\n".to_owned(),
        Some(issued) if issued.not_after_unix_s < now_unix_s => {
            format!(
                "  issued by {} for {}, EXPIRED {} ago\n",
                issued.issuer,
                issued.names.join(" "),
                duration_text(now_unix_s.saturating_sub(issued.not_after_unix_s))
            )
        }
        Some(issued) => {
            format!(
                "  issued by {} for {}, {} left\n",
                issued.issuer,
                issued.names.join(" "),
                duration_text(issued.not_after_unix_s.saturating_sub(now_unix_s))
            )
        }
    };
    let next = schedule.iter().find(|task| task.is_order_of(name));
    match (is_in_progress, next) {
        (true, _) => {
            let step = progress.as_ref().map_or(String::new(), |progress| format!("; it waits until {progress}"));
            text += &format!("  an order at {authority} is in progress{step}\n");
        }
        (false, Some(task)) => text += &format!("  next order {}: {}\n", when(task.at_unix_s, now_unix_s), task.why),
        (false, None) => {}
    }
    if let Some(error) = last_error {
        let plural = if *failure_count == 1 { "" } else { "s" };
        text += &format!("  last error, after {failure_count} failure{plural}: {error}\n");
    }
    for FailingNameReport { name, failure_count, last_error, next_attempt_unix_s } in failing_names {
        let plural = if *failure_count == 1 { "" } else { "s" };
        let next = when(*next_attempt_unix_s, now_unix_s);
        text += &format!(
            "  requested without {name}, which is retried {next}, after {failure_count} failure{plural}: {last_error}\n"
        );
    }
    text
}

/// `in 12 d`, or `now`.
pub(super) fn when(at_unix_s: u64, now_unix_s: u64) -> String {
    match at_unix_s.saturating_sub(now_unix_s) {
        0 => "now".to_owned(),
        wait_s => format!("in {}", duration_text(wait_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_ipc::agent::IssuedReport;

    const NOW: u64 = 1_800_000_000;
    const DAY_S: u64 = 86_400;

    #[test]
    fn text_says_what_is_issued_what_comes_next_and_what_has_failed() {
        let issued = IssuedReport {
            names: vec!["example.com".to_owned()],
            issuer: "CA 1".to_owned(),
            not_before_unix_s: NOW,
            not_after_unix_s: NOW + 60 * DAY_S,
        };
        let certificate = CertificateReport {
            name: "example.com".to_owned(),
            names: vec!["example.com".to_owned(), "*.example.com".to_owned()],
            authority: "ca".to_owned(),
            is_in_progress: false,
            progress: None,
            issued: Some(issued),
            failure_count: 1,
            last_error: Some("refused; do this".to_owned()),
            failing_names: Vec::new(),
        };
        let task = |what: &str, at_unix_s| ScheduledTask { at_unix_s, what: what.to_owned(), why: "why".to_owned() };
        let schedule = [
            task("ask when to renew the certificate of example.com", NOW),
            task("renew the certificate of example.com", NOW + 30 * DAY_S),
        ];
        assert_eq!(
            text_of(&certificate, &schedule, NOW),
            "example.com\n  names: example.com *.example.com\n  issued by CA 1 for example.com, 60 days left\n  next order in 30 days: why\n  \
             last error, after 1 failure: refused; do this\n"
        );
        let text = text_of(&certificate, &[], NOW + 61 * DAY_S);
        assert!(text.contains("  issued by CA 1 for example.com, EXPIRED 24 h ago\n"), "{text}");
        let failing_names = vec![FailingNameReport {
            name: "gone.test".to_owned(),
            failure_count: 2,
            last_error: "not this; remove it".to_owned(),
            next_attempt_unix_s: NOW + 600,
        }];
        let text = text_of(&CertificateReport { failing_names, ..certificate.clone() }, &schedule, NOW);
        let expected =
            "  requested without gone.test, which is retried in 10 min, after 2 failures: not this; remove it\n";
        assert!(text.ends_with(expected), "{text}");
        let first = CertificateReport { is_in_progress: true, issued: None, last_error: None, ..certificate };
        let text = text_of(&first, &schedule, NOW);
        assert!(text.ends_with("  not issued yet\n  an order at ca is in progress\n"), "{text}");
        let text = text_of(&CertificateReport { progress: Some("it is done".to_owned()), ..first }, &schedule, NOW);
        assert!(text.ends_with("  an order at ca is in progress; it waits until it is done\n"), "{text}");
    }
}
