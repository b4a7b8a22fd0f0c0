//! Why a certificate was not issued, what the operator can do, and when the next attempt is.

use crate::clock::random_between;
use crate::https_client::AnswerError;
use hyper::StatusCode;
use instant_acme::{Error, Problem};
use sanderling_state::StateError;
use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

const MINUTE_S: u64 = 60;
const DAY_S: u64 = 24 * 3600;
/// Characters of the longest cause: much of it is text of an authority, which has no limit of its own.
const CAUSE_CHARS_MAX: usize = 500;
/// The first delay after a failure that costs the authority nothing; it doubles up to the last one.
const UNREACHABLE_DELAY_S_MIN: u64 = 5;
const UNREACHABLE_DELAY_S_MAX: u64 = 3600;
/// Authorities count refusals over hours.
const RATE_LIMITED_DELAY_S: u64 = 3 * 3600;
/// The longest delay that an authority may ask for without a limit of its own.
const OUTAGE_S_MAX: u64 = DAY_S;
/// Delays after refusals, as Let's Encrypt recommends (its integration guide); then daily.
const REFUSED_DELAYS_S: [u64; 3] = [MINUTE_S, 10 * MINUTE_S, 100 * MINUTE_S];

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The authority did not answer, or had an error of its own.
    Unreachable,
    /// It has refused.
    Refused,
    /// It has refused because of too many requests.
    RateLimited,
    /// Something is not as the authority needs it, which was not asked to look: another name server, or a CAA record.
    NotReady,
    /// The same succeeds at once: its nonce was not valid any more (RFC 8555 §6.5).
    Again,
    /// The order, or the account, does not exist any more.
    Gone,
    /// The state folder cannot be written.
    State,
}

/// Why a certificate was not issued.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    cause: String,
    remedy: Cow<'static, str>,
    /// When the authority lets the server ask again, if it says so.
    retry_after_s: Option<u64>,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.cause)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(out, "; {}", self.remedy) }
    }
}

impl Failure {
    /// A failure of this kind. `cause` may have text of others.
    pub(crate) fn new(kind: Kind, cause: impl AsRef<str>, remedy: impl Into<Cow<'static, str>>) -> Failure {
        Failure { kind, cause: printable(cause.as_ref()), remedy: remedy.into(), retry_after_s: None }
    }

    /// The same, when the authority lets the server ask again after so many seconds.
    pub(crate) fn with_retry_after(self, retry_after_s: Option<u64>) -> Failure {
        Failure { retry_after_s, ..self }
    }

    /// The same with another remedy, if the authority has refused.
    pub(crate) fn with_remedy_of_refusal(self, remedy: &'static str) -> Failure {
        if self.kind == Kind::Refused { Failure { remedy: remedy.into(), ..self } } else { self }
    }

    /// A refusal by the authority.
    pub(crate) fn of_problem(problem: &Problem) -> Failure {
        let name = problem.r#type.as_deref().and_then(|name| name.strip_prefix("urn:ietf:params:acme:error:"));
        let mut cause = format!("the authority refuses: {}", problem.detail.as_deref().unwrap_or("without a reason"));
        for subproblem in problem.subproblems.iter().filter_map(|one| one.detail.as_deref()) {
            cause += &format!("; {subproblem}");
        }
        let (kind, remedy) = match name {
            Some("badNonce") => (Kind::Again, ""),
            Some("accountDoesNotExist") => (Kind::Gone, ""),
            Some("rateLimited") => (Kind::RateLimited, "wait; the server tries again later"),
            Some("caa") => {
                (Kind::Refused, "add the name of the authority to the CAA record of the domain, or remove the record")
            }
            Some("connection") => {
                (Kind::Refused, "let port 80 of this name lead to this server, or serve the zone of the name here")
            }
            Some("dns") => {
                (Kind::Refused, "check that the name leads to this server, and that its zone is delegated to it")
            }
            Some("unauthorized" | "incorrectResponse") => (
                Kind::Refused,
                "check that the addresses of the name, and the name servers of its zone, are this server",
            ),
            Some("rejectedIdentifier") => (Kind::Refused, "write certificate = \"none\" for this domain"),
            Some("userActionRequired") => (Kind::Refused, "read the new terms of the authority and agree to them"),
            Some("serverInternal") => (Kind::Unreachable, ""),
            None if problem.status.is_some_and(|status| status >= 500) => (Kind::Unreachable, ""),
            _ => (Kind::Refused, ""),
        };
        Failure::new(kind, cause, remedy)
    }

    /// An answer that the library for ACME does not see.
    fn of_answer(error: &AnswerError) -> Failure {
        let failure = match &error.problem {
            Some(problem) if problem.r#type.is_some() => Failure::of_problem(problem),
            _ => Failure::new(Kind::Unreachable, error.to_string(), "the server tries again"),
        };
        let kind = match (error.status, failure.kind) {
            (StatusCode::TOO_MANY_REQUESTS, _) => Kind::RateLimited,
            (status, Kind::Refused) if status.is_server_error() => Kind::Unreachable,
            (_, kind) => kind,
        };
        Failure { kind, ..failure }.with_retry_after(error.retry_after_s)
    }

    /// Seconds until the next attempt after `failure_count` failures, this one included.
    pub(crate) fn delay_s(&self, failure_count: u32) -> u64 {
        let before = failure_count.saturating_sub(1);
        let delay_s = match self.kind {
            Kind::Unreachable | Kind::NotReady | Kind::Again | Kind::State => {
                UNREACHABLE_DELAY_S_MIN.saturating_mul(1 << before.min(32)).min(UNREACHABLE_DELAY_S_MAX)
            }
            Kind::RateLimited => self.retry_after_s.map_or(RATE_LIMITED_DELAY_S, |seconds| seconds.max(MINUTE_S)),
            Kind::Refused | Kind::Gone => *REFUSED_DELAYS_S.get(before as usize).unwrap_or(&DAY_S),
        };
        let delay_s = match (self.kind, self.retry_after_s) {
            (Kind::RateLimited, _) | (_, None) => delay_s,
            (_, Some(seconds)) => delay_s.max(seconds.min(OUTAGE_S_MAX)),
        };
        // Not at the same time as others that have failed because of the same authority.
        random_between(delay_s, delay_s + delay_s / 10)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        if let Error::Other(other) = &error
            && let Some(error) = other.downcast_ref()
        {
            return Failure::of_answer(error);
        }
        match error {
            Error::Api(problem) => Failure::of_problem(&problem),
            Error::Timeout(next) => {
                let time = next.map(|at| at.saturating_duration_since(Instant::now()));
                Failure::new(
                    Kind::Unreachable,
                    "the authority has not finished the order in time",
                    "the server tries again",
                )
                .with_retry_after(time.map(|time| time.as_secs()))
            }
            Error::Json(_) => Failure::new(Kind::Unreachable, "the authority answers something else than ACME", ""),
            other => Failure::new(Kind::Unreachable, other.to_string(), "the server tries again"),
        }
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Failure {
        Failure::new(Kind::State, error.to_string(), "")
    }
}

/// The beginning of `text` for the log and for terminals: no line ends in it, and no character controls anything.
fn printable(text: &str) -> String {
    let mut escaped = text.chars().flat_map(|character| {
        let (plain, escaped) = match character {
            '"' | '\'' => (Some(character), None),
            _ => (None, Some(character.escape_debug())),
        };
        plain.into_iter().chain(escaped.into_iter().flatten())
    });
    let mut printable: String = escaped.by_ref().take(CAUSE_CHARS_MAX).collect();
    if escaped.next().is_some() {
        printable += "...";
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str) -> Problem {
        let text = format!("{{\"type\":\"urn:ietf:params:acme:error:{name}\",\"detail\":\"no\"}}");
        serde_json::from_str(&text).expect("a problem")
    }

    #[test]
    fn refusals_have_a_remedy() {
        let check = |name: &str, kind: Kind, remedy: &str| {
            let failure = Failure::of_problem(&problem(name));
            assert_eq!(failure.kind, kind, "{name}");
            assert!(failure.to_string().contains(remedy), "{failure}");
        };
        check("caa", Kind::Refused, "the authority refuses: no; add the name of the authority to the CAA record");
        check("connection", Kind::Refused, "; let port 80 of this name lead to this server");
        check("rateLimited", Kind::RateLimited, "; wait");
        check("badNonce", Kind::Again, "no");
        check("serverInternal", Kind::Unreachable, "no");
    }

    #[test]
    fn text_of_an_authority_is_short_and_has_no_control_characters() {
        let hostile = format!("no \"name\"\nsanderling: stopped\x1b[2J\u{9b}\u{202e}{}", "x".repeat(1 << 20));
        let detail = serde_json::to_string(&hostile).expect("text");
        let subproblem = format!("{{\"type\":\"urn:ietf:params:acme:error:caa\",\"detail\":{detail}}}");
        let text = format!("{{\"type\":\"x\",\"detail\":{detail},\"subproblems\":[{subproblem}]}}");
        let problem: Problem = serde_json::from_str(&text).expect("a problem");
        for failure in [Failure::of_problem(&problem), Failure::from(Error::Other(hostile.into()))] {
            let shown = failure.to_string();
            let start = "no \"name\"\\nsanderling: stopped\\u{1b}[2J\\u{9b}\\u{202e}xxx";
            assert!(shown.contains(start) && shown.chars().count() < CAUSE_CHARS_MAX + 50, "{shown}");
        }
        let long = "x".repeat(CAUSE_CHARS_MAX);
        assert_eq!(Failure::new(Kind::Refused, &long, "").to_string(), long);
    }

    #[test]
    fn delays_grow_and_spare_an_authority_that_refuses() {
        let delay = |kind, count| Failure::new(kind, "", "").delay_s(count);
        for (count, expected_s) in [(1, 60), (2, 600), (3, 6_000), (4, DAY_S), (100, DAY_S)] {
            let delay_s = delay(Kind::Refused, count);
            assert!((expected_s..=expected_s + expected_s / 10).contains(&delay_s), "{count}: {delay_s}");
        }
        for (count, expected_s) in [(1, 5), (2, 10), (3, 20), (20, 3600), (u32::MAX, 3600)] {
            let delay_s = delay(Kind::Unreachable, count);
            assert!((expected_s..=expected_s + expected_s / 10).contains(&delay_s), "{count}: {delay_s}");
        }
        assert!(delay(Kind::RateLimited, 1) >= 3_600);
        let limited = |seconds| Failure::new(Kind::RateLimited, "", "").with_retry_after(Some(seconds));
        let outage = |seconds| Failure::new(Kind::Unreachable, "", "").with_retry_after(Some(seconds));
        for (failure, expected_s) in [
            (limited(0), 60),
            (limited(7_200), 7_200),
            (limited(7 * DAY_S), 7 * DAY_S),
            (outage(0), 5),
            (outage(600), 600),
            (outage(7 * DAY_S), DAY_S),
        ] {
            let delay_s = failure.delay_s(1);
            assert!((expected_s..=expected_s + expected_s / 10).contains(&delay_s), "{failure:?}: {delay_s}");
        }
    }

    #[test]
    fn delay_is_that_of_the_answer_with_the_error() {
        let limited = || Some(problem("rateLimited"));
        for (status, problem, retry_after_s, kind) in [
            (429, limited(), Some(4_000), Kind::RateLimited),
            (429, None, None, Kind::RateLimited),
            (403, limited(), Some(60), Kind::RateLimited),
            (403, Some(problem("unauthorized")), Some(60), Kind::Refused),
            (503, None, Some(60), Kind::Unreachable),
            (500, Some(problem("malformed")), None, Kind::Unreachable),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let error = AnswerError { status, problem, retry_after_s };
            let failure = Failure::from(Error::Other(Box::new(error)));
            assert_eq!((failure.kind, failure.retry_after_s), (kind, retry_after_s), "{status}: {failure}");
        }
        let later = Instant::now() + std::time::Duration::from_secs(100);
        assert!(
            Failure::from(Error::Timeout(Some(later)))
                .retry_after_s
                .is_some_and(|seconds| (90..=100).contains(&seconds))
        );
        assert_eq!(Failure::from(Error::Timeout(None)).retry_after_s, None);
    }
}
