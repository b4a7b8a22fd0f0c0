//! The reason why a certificate was not issued, the remedy, and the time of the next attempt.

use crate::clock::random_between;
use crate::https_client::AnswerError;
use hyper::{Method, StatusCode};
use instant_acme::{Error, Identifier, Problem};
use sanderling_state::StateError;
use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

const MINUTE_S: u64 = 60;
const DAY_S: u64 = 24 * 3600;
/// Characters of the longest cause: much of it is text of an authority, whose length is unlimited.
const CAUSE_CHARS_MAX: usize = 500;
/// The first delay after a failure that costs the authority nothing; it doubles up to the last one.
const UNREACHABLE_DELAY_S_MIN: u64 = 5;
const UNREACHABLE_DELAY_S_MAX: u64 = 3600;
/// Maximum time between two checks of an order in progress, whatever the authority says: most orders finish within
/// seconds, and clients may wait for the certificate (RFC 8555 §7.4).
const PROCESSING_DELAY_S_MAX: u64 = 5 * MINUTE_S;
/// Authorities count refusals over hours.
const RATE_LIMITED_DELAY_S: u64 = 3 * 3600;
/// The longest delay after too many requests that an authority can ask for: the limits of known authorities end within
/// a day or two, and one more request a day does no harm.
const RATE_LIMITED_DELAY_S_MAX: u64 = DAY_S;
/// Maximum delay that an authority may request because of an error, its own or the client's.
const ERROR_DELAY_S_MAX: u64 = 3600;
/// Delays after refusals, as Let's Encrypt recommends (its integration guide); then daily.
const REFUSED_DELAYS_S: [u64; 3] = [MINUTE_S, 10 * MINUTE_S, 100 * MINUTE_S];
/// The prefix of error types (RFC 8555 §6.7).
const ERROR_PREFIX: &str = "urn:ietf:params:acme:error:";

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The authority did not answer, or had an internal error.
    Unreachable,
    /// The authority has not finished the order yet.
    Processing,
    /// The authority has refused.
    Refused,
    /// The authority has refused the account, which may have been deactivated.
    AccountRefused,
    /// The authority has refused because of too many requests.
    RateLimited,
    /// Something is not as the authority needs it, which was not asked to look: another name server, or a CAA record.
    NotReady,
    /// A retry succeeds immediately: the nonce was no longer valid (RFC 8555 §6.5).
    Again,
    /// The order, or the account, no longer exists.
    Gone,
    /// The state folder cannot be written.
    State,
}

/// The request to an authority. An error has different meanings in answer to different requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    /// A request for the directory.
    Directory,
    /// The registration of an account, including the request for the directory.
    Account,
    /// A request for an order, or for a part of it.
    Order(OrderedNames<'a>),
    /// The validation of this name of an order.
    Validation(OrderedNames<'a>, &'a str),
    /// The revocation of a certificate.
    Revocation,
}

/// An order's names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderedNames<'a> {
    /// The domain, which has the other names as aliases.
    pub(crate) domain: &'a str,
    pub(crate) names: &'a [String],
}

/// The reason why a certificate was not issued.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    cause: String,
    remedy: Cow<'static, str>,
    /// The time when the authority permits the next request, if it says so.
    retry_after_s: Option<u64>,
    /// The names of the order that have failed, each with its own failure; none if it was not because of a name.
    pub(crate) of_names: Vec<(String, Failure)>,
    /// Whether the cause is a name, perhaps one that the authority does not identify.
    pub(crate) is_about_names: bool,
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
        let (of_names, is_about_names) = (Vec::new(), false);
        let (cause, remedy) = (printable(cause.as_ref()), remedy.into());
        Failure { kind, cause, remedy, retry_after_s: None, of_names, is_about_names }
    }

    /// Some names have failed: at least one.
    pub(crate) fn of_names(of_names: Vec<(String, Failure)>) -> Failure {
        let first = of_names.first().map(|(_, failure)| failure.clone());
        let mut whole = first.unwrap_or_else(|| Failure::new(Kind::Refused, "the validation of a name failed", ""));
        if of_names.len() > 1 {
            let mut texts: Vec<String> = of_names.iter().map(|(_, failure)| failure.to_string()).collect();
            texts.dedup();
            (whole.cause, whole.remedy) = (printable(&texts.join("; ")), Cow::Borrowed(""));
        }
        Failure { of_names, is_about_names: true, ..whole }
    }

    /// The failure that the authority refuses this name of an order.
    fn of_name(problem: &Problem, ordered: OrderedNames<'_>, name: &str) -> Failure {
        let error = problem.r#type.as_deref().and_then(|name| name.strip_prefix(ERROR_PREFIX)).unwrap_or_default();
        let (kind, remedy) = meaning(error, Asked::Validation(ordered, name));
        let detail = problem.detail.as_deref().unwrap_or("no detail given");
        let failure = Failure::new(kind, format!("the authority refuses {name}: {detail}"), remedy);
        Failure { is_about_names: true, ..failure }
    }

    /// This failure, with the number of seconds after which the authority lets the server retry.
    pub(crate) fn with_retry_after(self, retry_after_s: Option<u64>) -> Failure {
        let of_names = self.of_names.into_iter().map(|(name, failure)| (name, failure.with_retry_after(retry_after_s)));
        Failure { retry_after_s, of_names: of_names.collect(), ..self }
    }

    /// A failure without a remedy.
    pub(crate) fn cause(&self) -> &str {
        &self.cause
    }

    /// The error that the ACME library reports for this request.
    pub(crate) fn of(error: Error, asked: Asked<'_>) -> Failure {
        if let Error::Other(other) = &error
            && let Some(error) = other.downcast_ref()
        {
            return Failure::of_answer(error, asked);
        }
        match error {
            Error::Api(problem) => Failure::of_problem(&problem, asked),
            Error::Timeout(next) => {
                let time = next.map(|at| at.saturating_duration_since(Instant::now()));
                let cause = "the authority did not finish the order in time";
                Failure::new(Kind::Processing, cause, "the server will poll it again")
                    .with_retry_after(time.map(|time| time.as_secs()))
            }
            Error::Json(_) => {
                Failure::new(Kind::Unreachable, "the authority sent an invalid ACME response", directory_remedy(asked))
            }
            other => Failure::new(Kind::Unreachable, other.to_string(), "the server will retry"),
        }
    }

    /// A refusal by the authority.
    pub(crate) fn of_problem(problem: &Problem, asked: Asked<'_>) -> Failure {
        let name = problem.r#type.as_deref().and_then(|name| name.strip_prefix(ERROR_PREFIX));
        let detail = problem.detail.as_deref().unwrap_or("no detail given");
        let (kind, remedy) = match name {
            None if problem.status.is_some_and(|status| status >= 500) => (Kind::Unreachable, Cow::Borrowed("")),
            name => meaning(name.unwrap_or_default(), asked),
        };
        let mut cause = match asked {
            Asked::Validation(_, name) => format!("the authority cannot validate {name}: {detail}"),
            _ => format!("the authority refuses: {detail}"),
        };
        for subproblem in &problem.subproblems {
            let detail = subproblem.detail.as_deref().unwrap_or("no detail given");
            match &subproblem.identifier {
                Some(Identifier::Dns(name)) => cause += &format!("; {name}: {detail}"),
                _ => cause += &format!("; {detail}"),
            }
        }
        let is_about_names = is_about_names(name.unwrap_or_default(), asked);
        let failure = Failure { is_about_names, ..Failure::new(kind, cause, remedy) };
        match asked {
            Asked::Order(ordered) => Failure { of_names: failed_names(problem, ordered, is_about_names), ..failure },
            Asked::Validation(_, name) => Failure { of_names: vec![(name.to_owned(), failure.clone())], ..failure },
            Asked::Directory | Asked::Account | Asked::Revocation => failure,
        }
    }

    /// An answer that the library for ACME does not see.
    fn of_answer(error: &AnswerError, asked: Asked<'_>) -> Failure {
        let failure = match &error.problem {
            Some(problem) if problem.r#type.is_some() => Failure::of_problem(problem, asked),
            _ => {
                let remedy = match (&error.method, error.location.is_some(), error.status.is_server_error()) {
                    (&Method::GET, true, _) => "write that URL as `directory` of this authority in [certificates]",
                    (&Method::GET, false, false) if error.status != StatusCode::TOO_MANY_REQUESTS => {
                        directory_remedy(asked)
                    }
                    _ => "the server will retry",
                };
                // The authority does not have the requested object, such as an old order.
                let is_refusal = error.method == Method::POST && error.status.is_client_error();
                let kind = if is_refusal { Kind::Refused } else { Kind::Unreachable };
                Failure::new(kind, error.to_string(), remedy)
            }
        };
        let failure = match &error.instance {
            Some(page) => Failure { cause: printable(&format!("{} ({page})", failure.cause)), ..failure },
            None => failure,
        };
        let kind = match (error.status, failure.kind) {
            (StatusCode::TOO_MANY_REQUESTS, _) => Kind::RateLimited,
            (status, Kind::Refused | Kind::AccountRefused) if status.is_server_error() => Kind::Unreachable,
            (_, kind) => kind,
        };
        let of_names = failure.of_names.into_iter().map(|(name, failure)| (name, Failure { kind, ..failure }));
        Failure { kind, of_names: of_names.collect(), ..failure }.with_retry_after(error.retry_after_s)
    }

    /// Seconds until the next attempt after `failure_count` failures, this one included. The bound of the requested
    /// delay depends on the reason for the wait.
    pub(crate) fn delay_s(&self, failure_count: u32) -> u64 {
        let before = failure_count.saturating_sub(1);
        let doubled = UNREACHABLE_DELAY_S_MIN.saturating_mul(1 << before.min(32));
        let asked_s = self.retry_after_s.unwrap_or(0);
        let delay_s = match self.kind {
            Kind::Processing => doubled.max(asked_s).min(PROCESSING_DELAY_S_MAX),
            Kind::Unreachable | Kind::NotReady | Kind::Again | Kind::State => {
                doubled.min(UNREACHABLE_DELAY_S_MAX).max(asked_s.min(ERROR_DELAY_S_MAX))
            }
            Kind::RateLimited => self
                .retry_after_s
                .map_or(RATE_LIMITED_DELAY_S, |seconds| seconds.clamp(MINUTE_S, RATE_LIMITED_DELAY_S_MAX)),
            Kind::Refused | Kind::AccountRefused | Kind::Gone => {
                let own_s = *REFUSED_DELAYS_S.get(before as usize).unwrap_or(&DAY_S);
                own_s.max(asked_s.min(ERROR_DELAY_S_MAX))
            }
        };
        // Retries are spread, so that certificates that failed because of the same authority are not requested at once.
        random_between(delay_s, delay_s + delay_s / 10)
    }
}

/// The meaning of an error of this type for a request, and the remedy.
fn meaning(error: &str, asked: Asked<'_>) -> (Kind, Cow<'static, str>) {
    let refused = |remedy: &'static str| (Kind::Refused, Cow::Borrowed(remedy));
    match (error, asked) {
        ("badNonce", _) => (Kind::Again, "".into()),
        ("accountDoesNotExist", _) => (Kind::Gone, "".into()),
        ("rateLimited", _) => (Kind::RateLimited, "wait; the server will retry later".into()),
        ("serverInternal", _) => (Kind::Unreachable, "".into()),
        ("orderNotReady", _) => (Kind::Processing, "the server will poll it again".into()),
        ("userActionRequired", _) => refused(
            "the authority has new terms, or needs something else from the account owner: open the page that it \
                names, or its web site, and agree there; then run `sanderling renew`",
        ),
        ("externalAccountRequired", _) => refused("set `external_account` of this authority in [certificates]"),
        ("invalidContact" | "unsupportedContact", _) => refused("correct `contact` in [certificates]"),
        ("invalidProfile", _) => refused("correct `profile` of this authority in [certificates]"),
        (_, Asked::Account) => refused("check `contact` and `external_account` in [certificates]"),
        ("unauthorized", Asked::Revocation) => {
            refused("another account requested it: revoke it with an ACME client that signs with the certificate's key")
        }
        ("unauthorized", Asked::Order(_) | Asked::Directory) => {
            (Kind::AccountRefused, "the account is valid but not authorized: contact the authority".into())
        }
        ("caa", _) => refused("add the name of the authority to the CAA record of the domain, or remove the record"),
        ("rejectedIdentifier" | "unsupportedIdentifier", Asked::Order(ordered) | Asked::Validation(ordered, _)) => {
            let remedy = match asked {
                Asked::Validation(_, name) if name != ordered.domain => {
                    "remove the name from `aliases` of the domain, or ask another authority"
                }
                Asked::Order(OrderedNames { names: [_, _, ..], .. }) => {
                    "remove such a name from `aliases` of the domain, or ask another authority"
                }
                _ => "write certificate = \"none\" for this domain, or ask another authority",
            };
            refused(remedy)
        }
        ("connection" | "tls", _) => {
            refused("make port 80 of this name reach this server, or serve the zone of the name here")
        }
        ("dns", _) => refused("check that the name points to this server, and that its zone is delegated to it"),
        ("unauthorized" | "incorrectResponse", _) => {
            refused("check that the name's addresses, and its zone's name servers, belong to this server")
        }
        _ => refused(""),
    }
}

/// The remedy if the URL is not an ACME directory.
fn directory_remedy(asked: Asked<'_>) -> &'static str {
    match asked {
        Asked::Directory | Asked::Account => "check `directory` of this authority in [certificates]",
        Asked::Order(_) | Asked::Validation(..) | Asked::Revocation => "",
    }
}

/// Whether an error of this type is because of a name of the order.
fn is_about_names(error: &str, asked: Asked<'_>) -> bool {
    let is_of_order = matches!(asked, Asked::Order(_));
    let is_of_name = matches!(
        error,
        "rejectedIdentifier" | "unsupportedIdentifier" | "caa" | "dns" | "connection" | "tls" | "incorrectResponse"
    );
    matches!(asked, Asked::Validation(..)) || is_of_order && is_of_name
}

/// The names of the order that the problem is about: the names of its subproblems (RFC 8555 §6.7.1), else the names
/// that its text mentions, unless it mentions all.
fn failed_names(problem: &Problem, ordered: OrderedNames<'_>, is_about_names: bool) -> Vec<(String, Failure)> {
    let mut failed: Vec<(String, Failure)> = Vec::new();
    for subproblem in &problem.subproblems {
        let Some(Identifier::Dns(identifier)) = &subproblem.identifier else { continue };
        let name = ordered.names.iter().find(|name| name.eq_ignore_ascii_case(identifier));
        if let Some(name) = name.filter(|name| failed.iter().all(|(other, _)| other != *name)) {
            let of_name = Problem {
                r#type: subproblem.r#type.clone().or_else(|| problem.r#type.clone()),
                detail: subproblem.detail.clone().or_else(|| problem.detail.clone()),
                status: problem.status,
                subproblems: Vec::new(),
            };
            failed.push((name.clone(), Failure::of_name(&of_name, ordered, name)));
        }
    }
    if failed.is_empty() && is_about_names {
        let detail = problem.detail.as_deref().unwrap_or_default().to_ascii_lowercase();
        let is_of_name = |byte: char| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_' | '.' | '*');
        let words: Vec<&str> = detail.split(|byte| !is_of_name(byte)).map(|word| word.trim_matches('.')).collect();
        let found = ordered.names.iter().filter(|name| words.contains(&name.as_str()));
        failed = found.map(|name| (name.clone(), Failure::of_name(problem, ordered, name))).collect();
    }
    failed
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

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn ordered(names: &[String]) -> OrderedNames<'_> {
        OrderedNames { domain: &names[0], names }
    }

    fn problem(name: &str) -> Problem {
        let text = format!("{{\"type\":\"urn:ietf:params:acme:error:{name}\",\"detail\":\"no\"}}");
        serde_json::from_str(&text).expect("a problem")
    }

    #[test]
    fn refusals_have_a_remedy() {
        let check = |name: &str, kind: Kind, remedy: &str| {
            let names = names(&["example.com"]);
            let failure = Failure::of_problem(&problem(name), Asked::Validation(ordered(&names), "example.com"));
            assert_eq!(failure.kind, kind, "{name}");
            assert!(failure.to_string().contains(remedy), "{failure}");
        };
        check("caa", Kind::Refused, "cannot validate example.com: no; add the name of the authority to the CAA record");
        check("connection", Kind::Refused, "; make port 80 of this name reach this server");
        check("rateLimited", Kind::RateLimited, "; wait");
        check("badNonce", Kind::Again, "no");
        check("serverInternal", Kind::Unreachable, "no");
    }

    #[test]
    fn remedy_fits_what_was_asked() {
        let names = names(&["example.com", "www.example.com"]);
        let (order, validation) =
            (Asked::Order(ordered(&names)), Asked::Validation(ordered(&names), "www.example.com"));
        let check = |name: &str, asked: Asked<'_>, kind: Kind, remedy: &str| {
            let failure = Failure::of_problem(&problem(name), asked);
            assert_eq!(failure.kind, kind, "{name} {asked:?}");
            assert!(failure.to_string().contains(remedy), "{asked:?}: {failure}");
        };
        check("unauthorized", order, Kind::AccountRefused, "the account is valid but not authorized");
        check("unauthorized", Asked::Account, Kind::Refused, "check `contact` and `external_account`");
        check("unauthorized", validation, Kind::Refused, "belong to this server");
        check("unauthorized", Asked::Revocation, Kind::Refused, "signs with the certificate's key");
        check("externalAccountRequired", Asked::Account, Kind::Refused, "set `external_account`");
        check("userActionRequired", order, Kind::Refused, "agree there");
        check("rejectedIdentifier", validation, Kind::Refused, "remove the name from `aliases`");
        check("rejectedIdentifier", order, Kind::Refused, "remove such a name from `aliases`");
        let host = Asked::Validation(ordered(&names), "example.com");
        check("rejectedIdentifier", host, Kind::Refused, "write certificate = \"none\"");
        check("orderNotReady", order, Kind::Processing, "will poll it again");
        let failure = |asked| Failure::of(Error::Json(serde_json::from_str::<u8>("<").expect_err("malformed")), asked);
        assert!(failure(Asked::Account).to_string().contains("; check `directory`"));
        assert!(!failure(order).to_string().contains("`directory`"));
    }

    #[test]
    fn names_that_have_failed_are_those_that_the_authority_tells() {
        let names = names(&["example.com", "www.example.com", "*.gone.test"]);
        let check = |text: &str, expected: &[&str]| {
            let problem: Problem = serde_json::from_str(text).expect("a problem");
            let failure = Failure::of_problem(&problem, Asked::Order(ordered(&names)));
            let found: Vec<&str> = failure.of_names.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(found, expected, "{text}");
            failure
        };
        let rejected = |detail: &str, rest: &str| {
            format!("{{\"type\":\"urn:ietf:params:acme:error:rejectedIdentifier\",\"detail\":\"{detail}\"{rest}}}")
        };
        let subproblem = |name: &str| {
            format!(
                "{{\"type\":\"urn:ietf:params:acme:error:rejectedIdentifier\",\"detail\":\"not this\",\
                 \"identifier\":{{\"type\":\"dns\",\"value\":\"{name}\"}}}}"
            )
        };
        let two = format!(",\"subproblems\":[{},{}]", subproblem("WWW.example.com"), subproblem("*.gone.test"));
        let failure = check(&rejected("some", &two), &["www.example.com", "*.gone.test"]);
        assert!(
            failure.of_names[0].1.to_string().starts_with("the authority refuses www.example.com: not this; remove")
        );
        assert!(failure.to_string().contains("; WWW.example.com: not this"), "{failure}");
        // Names of others, or none.
        assert!(check(&rejected("no", &format!(",\"subproblems\":[{}]", subproblem("a.b"))), &[]).is_about_names);
        check(&rejected("no", ""), &[]);
        // The wording of some authorities.
        check(&rejected("Cannot issue for *.gone.test: policy.", ""), &["*.gone.test"]);
        check(&rejected("Cannot issue for \\\"www.example.com\\\"", ""), &["www.example.com"]);
        check(&rejected("xexample.com, example.com.test", ""), &[]);
        let limited = rejected("too many for example.com", "").replace("rejectedIdentifier", "rateLimited");
        assert!(!check(&limited, &[]).is_about_names);
    }

    #[test]
    fn text_of_an_authority_is_short_and_has_no_control_characters() {
        let hostile = format!("no \"name\"\nsanderling: stopped\x1b[2J\u{9b}\u{202e}{}", "x".repeat(1 << 20));
        let detail = serde_json::to_string(&hostile).expect("text");
        let subproblem = format!("{{\"type\":\"urn:ietf:params:acme:error:caa\",\"detail\":{detail}}}");
        let text = format!("{{\"type\":\"x\",\"detail\":{detail},\"subproblems\":[{subproblem}]}}");
        let problem: Problem = serde_json::from_str(&text).expect("a problem");
        for failure in [
            Failure::of_problem(&problem, Asked::Directory),
            Failure::of(Error::Other(hostile.into()), Asked::Directory),
        ] {
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
            // A pending order is polled more often.
            let (delay_s, expected_s) = (delay(Kind::Processing, count), expected_s.min(300));
            assert!((expected_s..=expected_s + expected_s / 10).contains(&delay_s), "{count}: {delay_s}");
        }
        assert!(delay(Kind::RateLimited, 1) >= 3_600);
        let limited = |seconds| Failure::new(Kind::RateLimited, "", "").with_retry_after(Some(seconds));
        let outage = |seconds| Failure::new(Kind::Unreachable, "", "").with_retry_after(Some(seconds));
        let asked = |kind| Failure::new(kind, "", "").with_retry_after(Some(DAY_S));
        for (failure, expected_s) in [
            (limited(0), 60),
            (limited(7_200), 7_200),
            (limited(7 * DAY_S), DAY_S),
            (outage(0), 5),
            (outage(600), 600),
            (outage(7 * DAY_S), 3_600),
            (asked(Kind::Processing), 300),
            (asked(Kind::Again), 3_600),
            (asked(Kind::Refused), 3_600),
        ] {
            let delay_s = failure.delay_s(1);
            assert!((expected_s..=expected_s + expected_s / 10).contains(&delay_s), "{failure:?}: {delay_s}");
        }
    }

    #[test]
    fn delay_is_that_of_the_answer_with_the_error() {
        let names = names(&["example.com"]);
        let validation = Asked::Validation(ordered(&names), "example.com");
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
            let error = AnswerError { problem, retry_after_s, ..answer(status) };
            let failure = Failure::of(Error::Other(Box::new(error)), validation);
            assert_eq!((failure.kind, failure.retry_after_s), (kind, retry_after_s), "{status}: {failure}");
        }
        let later = Instant::now() + std::time::Duration::from_secs(100);
        assert!(
            Failure::of(Error::Timeout(Some(later)), validation)
                .retry_after_s
                .is_some_and(|seconds| (90..=100).contains(&seconds))
        );
        assert_eq!(Failure::of(Error::Timeout(None), validation).retry_after_s, None);
    }

    fn answer(status: StatusCode) -> AnswerError {
        AnswerError { method: Method::GET, status, problem: None, retry_after_s: None, location: None, instance: None }
    }

    #[test]
    fn answer_that_is_not_acme_is_described_with_its_status() {
        let check = |error: AnswerError, expected: &str| {
            let failure = Failure::of(Error::Other(Box::new(error)), Asked::Account);
            assert_eq!((failure.kind, failure.to_string().as_str()), (Kind::Unreachable, expected));
        };
        let moved =
            AnswerError { location: Some("https://ca.example/d".to_owned()), ..answer(StatusCode::PERMANENT_REDIRECT) };
        check(
            moved,
            "the authority responded with status 308 Permanent Redirect, to https://ca.example/d; write that URL as \
             `directory` of this authority in [certificates]",
        );
        check(
            answer(StatusCode::NOT_FOUND),
            "the authority responded with status 404 Not Found; check `directory` of this authority in [certificates]",
        );
        check(
            answer(StatusCode::BAD_GATEWAY),
            "the authority responded with status 502 Bad Gateway; the server will retry",
        );
    }
}
