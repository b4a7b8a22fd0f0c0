//! A certificate's state, for the log, `check` and `status`.

use sanderling_config::LATEST_RENEWAL_PART;
use sanderling_os::clock::unix_seconds;
use sanderling_tls::{Certificate, CertificateProblem, time_problem};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Names that a line shows.
pub(crate) const SHOWN_NAMES_MAX: usize = 5;
/// The last part of the lifetime in which the files of an operator should have been replaced: 10 of 90 days. Programs
/// such as certbot renew with a third or less of the lifetime left, and retry for days.
const DUE_PART_OF_FILES: u64 = 9;

/// A certificate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CertificateState {
    /// The names that the certificate is used for.
    pub(crate) names: Vec<String>,
    /// The names for which no certificate in service of the domain is valid.
    pub(crate) missing_names: Vec<String>,
    pub(crate) file: PathBuf,
    /// The facts about the version in service; `None` if there is none, and handshakes for the names fail.
    pub(crate) in_service: Option<InService>,
    /// The reason why the current files are not used.
    pub(crate) problem: Option<String>,
    /// Warnings that clients may refuse the certificate, or that it is not used.
    pub(crate) warnings: Vec<String>,
    /// Whether a warning says that all clients refuse the certificate, for a reason other than its validity and names.
    #[serde(skip)]
    pub(crate) is_refused: bool,
}

/// The contents of a certificate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InService {
    /// The file that the certificate was read from: an earlier file of the domain if the current file cannot be used.
    pub(crate) file: PathBuf,
    /// The names and addresses in the certificate, which may differ from the names that it is used for.
    names: Vec<String>,
    issuer: String,
    key_type: &'static str,
    not_before_unix_s: u64,
    pub(crate) not_after_unix_s: u64,
    /// Whether the server requests it.
    #[serde(skip)]
    is_automatic: bool,
}

impl CertificateState {
    /// Whether the certificate is valid for none of its names.
    pub(crate) fn lacks_all_names(&self) -> bool {
        !self.names.is_empty() && self.missing_names.len() == self.names.len()
    }

    /// The domain; empty if the certificate is for every host.
    pub(crate) fn domain(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// `a.test`, or `every host`.
    pub(crate) fn domain_text(&self) -> &str {
        self.names.first().map_or("every host", String::as_str)
    }

    /// The effect of the problem, as a line of the output; empty without one.
    pub(crate) fn problem_text(&self) -> String {
        let domain = self.domain_text();
        match (&self.problem, &self.in_service) {
            (None, _) => String::new(),
            (Some(_), Some(version)) => format!(
                "certificate {domain}: not reloaded, keeping the version read from {}: {}\n",
                version.file.display(),
                version.text()
            ),
            (Some(_), None) => format!("certificate {domain}: unavailable until it is corrected\n"),
        }
    }
}

impl InService {
    pub(crate) fn of(certificate: &Certificate, file: &Path, is_automatic: bool) -> InService {
        InService {
            file: file.to_owned(),
            names: certificate.names().collect(),
            issuer: certificate.issuer().to_owned(),
            key_type: certificate.key_type(),
            not_before_unix_s: certificate.not_before_unix_s(),
            not_after_unix_s: certificate.not_after_unix_s(),
            is_automatic,
        }
    }

    /// A version of a test, with only a time.
    #[cfg(test)]
    pub(crate) fn of_time(not_before_unix_s: u64, not_after_unix_s: u64) -> InService {
        InService {
            file: PathBuf::new(),
            names: Vec::new(),
            issuer: String::new(),
            key_type: "ECDSA",
            not_before_unix_s,
            not_after_unix_s,
            is_automatic: false,
        }
    }

    /// `for example.com www.example.com`.
    fn names_text(&self) -> String {
        let shown: Vec<&str> = self.names.iter().take(SHOWN_NAMES_MAX).map(String::as_str).collect();
        match self.names.len() - shown.len() {
            _ if shown.is_empty() => "for no name".to_owned(),
            0 => format!("for {}", shown.join(" ")),
            more => format!("for {} and {more} more", shown.join(" ")),
        }
    }

    /// The current problem with its validity.
    pub(crate) fn time_problem(&self) -> Option<CertificateProblem> {
        let problem = time_problem(self.not_before_unix_s, self.not_after_unix_s, unix_seconds());
        let lifetime_s = self.not_after_unix_s.saturating_sub(self.not_before_unix_s);
        problem.filter(|problem| !is_renewed_in_time(problem, lifetime_s, self.is_automatic))
    }

    /// `ECDSA, issued by R11, 71 days left, for example.com www.example.com`.
    pub(crate) fn text(&self) -> String {
        let days = |seconds: u64| match seconds / 86_400 {
            1 => "1 day".to_owned(),
            days => format!("{days} days"),
        };
        let time = match self.time_problem() {
            Some(CertificateProblem::Expired { since_s: ..86_400 }) => "EXPIRED today".to_owned(),
            Some(CertificateProblem::Expired { since_s }) => format!("EXPIRED {} ago", days(since_s)),
            Some(CertificateProblem::NotYetValid { in_s: ..86_400 }) => "NOT YET VALID: in less than a day".to_owned(),
            Some(CertificateProblem::NotYetValid { in_s }) => format!("NOT YET VALID: in {}", days(in_s)),
            Some(_) => format!("{} left, RENEWAL IS DUE", days(self.not_after_unix_s.saturating_sub(unix_seconds()))),
            None => format!("{} left", days(self.not_after_unix_s.saturating_sub(unix_seconds()))),
        };
        format!("{}, issued by {}, {time}, {}", self.key_type, self.issuer, self.names_text())
    }
}

/// Whether there is still time to renew a certificate of this lifetime. The server renews automatic certificates
/// (`is_automatic`) when the authority suggests it, which may be late; another program renews the operator's
/// certificates.
pub fn is_renewed_in_time(problem: &CertificateProblem, lifetime_s: u64, is_automatic: bool) -> bool {
    let due_part = if is_automatic { LATEST_RENEWAL_PART } else { DUE_PART_OF_FILES };
    matches!(problem, CertificateProblem::ExpiresSoon { in_s } if *in_s >= lifetime_s / due_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_due_when_it_was_not_renewed_in_time() {
        let check = |lifetime_s: u64, left_s: u64, is_automatic: bool, expected: bool| {
            let not_after_unix_s = unix_seconds() + left_s;
            let version = InService {
                file: PathBuf::new(),
                names: Vec::new(),
                issuer: String::new(),
                key_type: "ECDSA",
                not_before_unix_s: not_after_unix_s - lifetime_s,
                not_after_unix_s,
                is_automatic,
            };
            assert_eq!(version.time_problem().is_some(), expected, "{lifetime_s} {left_s} {is_automatic}");
        };
        for unit_s in [10, 86_400] {
            check(90 * unit_s, 16 * unit_s, true, false);
            check(90 * unit_s, 14 * unit_s, true, true);
            // Another program renews the certificate.
            check(90 * unit_s, 29 * unit_s, false, false);
            check(90 * unit_s, 11 * unit_s, false, false);
            check(90 * unit_s, 9 * unit_s, false, true);
        }
    }

    #[test]
    fn text_has_the_days_until_the_certificate_expires_or_since_it_has() {
        const DAY_S: i64 = 86_400;
        let check = |left_s: i64, expected: &str| {
            let not_after_unix_s = unix_seconds().strict_add_signed(left_s);
            let not_before_unix_s = not_after_unix_s.strict_add_signed(-90 * DAY_S);
            let version = InService {
                file: PathBuf::new(),
                names: vec!["a.test".to_owned()],
                issuer: "R11".to_owned(),
                key_type: "ECDSA",
                not_before_unix_s,
                not_after_unix_s,
                is_automatic: false,
            };
            assert_eq!(version.text(), format!("ECDSA, issued by R11, {expected}, for a.test"), "{left_s} s");
        };
        let names_text = |count: usize| {
            let names = (0..count).map(|number| format!("{number}.test")).collect();
            let version = InService {
                file: PathBuf::new(),
                names,
                issuer: String::new(),
                key_type: "RSA",
                not_before_unix_s: 0,
                not_after_unix_s: 0,
                is_automatic: false,
            };
            version.names_text()
        };
        assert_eq!(names_text(0), "for no name");
        assert_eq!(names_text(2), "for 0.test 1.test");
        assert_eq!(names_text(7), "for 0.test 1.test 2.test 3.test 4.test and 2 more");
        // The clock continues in the meantime.
        check(92 * DAY_S + 1_000, "NOT YET VALID: in 2 days");
        check(90 * DAY_S + 1_000, "NOT YET VALID: in less than a day");
        check(31 * DAY_S + 1_000, "31 days left");
        check(2 * DAY_S + 1_000, "2 days left, RENEWAL IS DUE");
        check(DAY_S + 1_000, "1 day left, RENEWAL IS DUE");
        check(1_000, "0 days left, RENEWAL IS DUE");
        check(-1_000, "EXPIRED today");
        check(-DAY_S - 1_000, "EXPIRED 1 day ago");
        check(-2 * DAY_S - 1_000, "EXPIRED 2 days ago");
    }
}
