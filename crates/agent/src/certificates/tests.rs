//! Schedules of certificates, and the effects of failures.

use super::*;
use sanderling_config::DomainName;

const START: u64 = 1_800_000_000;

fn issued(lifetime_s: u64) -> Issued {
    issued_at(START, lifetime_s)
}

fn issued_at(not_before_unix_s: u64, lifetime_s: u64) -> Issued {
    let report = IssuedReport {
        names: vec!["example.com".to_owned()],
        issuer: "CA".to_owned(),
        not_before_unix_s,
        not_after_unix_s: not_before_unix_s + lifetime_s,
    };
    Issued { report, lacking: Vec::new(), certificate: None, identifier: None }
}

fn managed(issued: Option<Issued>) -> ManagedCertificate {
    ManagedCertificate {
        name: "example.com".to_owned(),
        names: vec!["example.com".to_owned()],
        issued,
        record: Record::default(),
        is_in_progress: false,
        waiting: Vec::new(),
        waiting_for_revocation: Vec::new(),
        interval_s: 3_600,
        basis: "basis".to_owned(),
    }
}

fn folder() -> (tempfile::TempDir, StateFolder) {
    let directory = tempfile::tempdir().expect("created");
    let state = StateFolder::open(directory.path()).expect("opened");
    (directory, state)
}

/// An order of all names has failed.
fn fail(certificate: &mut ManagedCertificate, failure: &Failure, authority_count: usize, state: &StateFolder) {
    let names = certificate.names.clone();
    assert_eq!(certificate.on_failure(failure, &names, authority_count, state), AfterFailure::Later);
}

#[test]
fn renewal_is_at_two_thirds_of_the_lifetime_or_half_of_a_short_one() {
    for (days, from, to) in [(90, 90 * 2 / 3 - 5, 60), (6, 2, 3), (45, 27, 30)] {
        let at = issued(days * DAY_S).default_renewal();
        assert!((START + from * DAY_S..=START + to * DAY_S).contains(&at), "{days}: {}", (at - START) / DAY_S);
    }
    assert_eq!(issued(0).default_renewal(), START);
}

#[test]
fn suggested_time_stays_while_it_is_in_the_window() {
    let (_directory, state) = folder();
    let mut certificate = managed(Some(issued(90 * DAY_S)));
    certificate.on_suggestion(START + 10, START + 20, &state);
    let (chosen, why) = certificate.next_order();
    assert!((START + 10..=START + 20).contains(&chosen) && why.contains("(ARI)"), "{chosen} {why}");
    certificate.on_suggestion(START + 5, START + 100, &state);
    assert_eq!(certificate.next_order().0, chosen);
    certificate.on_suggestion(START - 9, START - 9, &state);
    assert_eq!(certificate.next_order().0, START - 9);
}

#[test]
fn authority_is_not_asked_again_at_once_after_a_restart() {
    let (_directory, state) = folder();
    let mut certificate = managed(Some(issued(90 * DAY_S)));
    assert_eq!(certificate.next_question(DAY_S), 0);
    certificate.on_asked(3_600, &state);
    let text = state.read("renewals/example.com.json").expect("read").expect("stored");
    certificate.record = serde_json::from_slice(&text).expect("a record");
    let in_s = |certificate: &ManagedCertificate, wait_s_max| certificate.next_question(wait_s_max) - unix_s();
    assert!((3_590..=3_600).contains(&in_s(&certificate, DAY_S)));
    assert!(in_s(&certificate, 60) <= 60, "the clock was set back");
    certificate.on_new("https://ca.example/dir", &state);
    assert_eq!(certificate.next_question(DAY_S), 0);
}

#[test]
fn no_suggestion_leads_to_endless_orders_or_to_none() {
    let (_directory, state) = folder();
    let now = unix_s();
    let mut certificate = managed(Some(issued_at(now, 90 * DAY_S)));
    certificate.on_new("https://ca.example/dir", &state);
    certificate.on_suggestion(now - DAY_S, now - 1, &state);
    let (at, why) = certificate.next_order();
    assert!((now + 3_600..=unix_s() + 3_600).contains(&at) && why == "the certificate is new", "{at} {why}");
    // After it has expired.
    certificate.on_suggestion(now + 900 * DAY_S, now + 901 * DAY_S, &state);
    assert_eq!(certificate.next_order().0, now + 75 * DAY_S);
    // Another name needs another certificate at once.
    certificate.issued.as_mut().expect("one").lacking = vec!["www.example.com".to_owned()];
    assert_eq!(certificate.next_order().0, 0);
}

#[test]
fn delays_count_failures_of_the_same_kind() {
    let (_directory, state) = folder();
    let mut certificate = managed(None);
    let failure = |kind| Failure::new(kind, "", "");
    (0..4).for_each(|_| fail(&mut certificate, &failure(Kind::Unreachable), 1, &state));
    fail(&mut certificate, &failure(Kind::Refused), 1, &state);
    let delay_s = certificate.next_order().0 - unix_s();
    assert!((59..=66).contains(&delay_s), "{delay_s}");
    // A full disk is no fault of the authority.
    let mut certificate = managed(None);
    (0..9).for_each(|_| fail(&mut certificate, &failure(Kind::State), 2, &state));
    assert_eq!(certificate.authority_index(2), 0);
}

#[test]
fn authorities_that_limit_are_not_asked_in_turns() {
    let (_directory, state) = folder();
    let limited = Failure::new(Kind::RateLimited, "too many", "wait").with_retry_after(Some(7_200));
    let mut certificate = managed(None);
    for (authority, wait_s) in [(1, 60), (0, 7_200), (1, 7_200)] {
        fail(&mut certificate, &limited, 2, &state);
        let delay_s = certificate.next_order().0 - unix_s();
        let is_expected = (wait_s - 2..=wait_s + wait_s / 10).contains(&delay_s);
        assert!(certificate.authority_index(2) == authority && is_expected, "{authority}: {delay_s}");
    }
}

#[test]
fn revocation_is_not_forgotten_and_not_of_another_certificate() {
    let (_directory, state) = folder();
    let with = |der: u8| {
        let mut issued = issued(90 * DAY_S);
        issued.certificate = Some(CertificateDer::from(vec![der]));
        managed(Some(issued))
    };
    assert!(managed(None).begin_revocation(false, &state).is_err_and(|problem| problem == "none is issued"));
    let mut certificate = with(1);
    (0..2).for_each(|_| certificate.begin_revocation(true, &state).expect("stored"));
    let (at, why) = certificate.next_order();
    assert_eq!((at, why.as_str()), (0, "the certificate will be revoked"));
    // The next certificate, and another agent.
    let read = || read_json::<Record>(&state, "renewals/example.com.json").expect("read").expect("stored");
    let mut certificate = with(2);
    certificate.record = read();
    certificate.on_new("https://ca.example/dir", &state);
    assert!(!certificate.is_to_be_revoked() && certificate.next_order().0 > unix_s() + 3_000);
    let pending = read().revocations;
    let revoked = Revocation { certificate: vec![1], is_key_compromised: true, issued_by: None };
    assert_eq!(pending, std::slice::from_ref(&revoked));
    certificate.on_revoked(&revoked, &state);
    assert_eq!(read().revocations, []);
}

#[test]
fn failures_delay_the_next_attempt_and_lead_to_the_next_authority() {
    let (_directory, state) = folder();
    let mut certificate = managed(None);
    assert_eq!(certificate.next_order(), (0, "there is no certificate yet".to_owned()));
    let failure = Failure::new(Kind::Refused, "the authority refuses", "ask");
    let authorities: Vec<usize> = (0..7)
        .map(|_| {
            fail(&mut certificate, &failure, 2, &state);
            certificate.authority_index(2)
        })
        .collect();
    assert_eq!(authorities, [0, 0, 1, 1, 1, 0, 0]);
    let (at, why) = certificate.next_order();
    assert!(at >= unix_s() + DAY_S && why.starts_with("attempt 8 after failures; `sanderling renew"), "{at} {why}");
    // The record survives a restart.
    let text = state.read("renewals/example.com.json").expect("read").expect("stored");
    let record: Record = serde_json::from_slice(&text).expect("a record");
    assert_eq!((record.failure_count, record.last_error.as_deref()), (7, Some("the authority refuses; ask")));
}

fn with_aliases(issued: Option<Issued>) -> ManagedCertificate {
    let names = ["example.com", "www.example.com", "gone.test"].map(str::to_owned).to_vec();
    ManagedCertificate { names, ..managed(issued) }
}

fn refusal_of(names: &[&str]) -> Failure {
    let refused = |name: &&str| ((*name).to_owned(), Failure::new(Kind::Refused, format!("{name} is refused"), ""));
    Failure::of_names(names.iter().map(refused).collect())
}

#[test]
fn names_that_have_failed_do_not_delay_the_others() {
    let (_directory, state) = folder();
    let mut certificate = with_aliases(None);
    let names = certificate.names_to_order(false);
    let after = certificate.on_failure(&refusal_of(&["gone.test"]), &names, 1, &state);
    assert_eq!((after, certificate.record.failure_count), (AfterFailure::WithoutFailed, 0));
    assert_eq!(certificate.next_order(), (0, "there is no certificate yet".to_owned()));
    assert_eq!(certificate.names_to_order(false), ["example.com", "www.example.com"]);
    assert_eq!(certificate.names_to_order(true), names);
    assert!(certificate.prefers_http("gone.test") && !certificate.prefers_http("example.com"));
    // After a restart of the agent, with the others issued: the name is retried alone, with its failures.
    let text = state.read("renewals/example.com.json").expect("read").expect("stored");
    certificate.record = serde_json::from_slice(&text).expect("a record");
    let mut of_two = issued_at(unix_s(), 90 * DAY_S);
    of_two.lacking = vec!["gone.test".to_owned()];
    certificate.issued = Some(of_two);
    certificate.on_new("https://ca.example/dir", &state);
    let (at, why) = certificate.next_order();
    assert!(at <= unix_s() + 66 && why == "attempt 2 for gone.test, which failed", "{at} {why}");
    let expected = ", but not for gone.test: gone.test is refused";
    assert_eq!(
        (certificate.lacking_text().as_str(), certificate.report("ca", None).failing_names.len()),
        (expected, 1)
    );
    for attempt in 2..=3 {
        let after = certificate.on_failure(&refusal_of(&["gone.test"]), &names, 2, &state);
        assert_eq!(after, AfterFailure::WithoutFailed, "{attempt}");
    }
    assert!(certificate.next_order().0 > unix_s() + 5_900);
    // Another authority may issue for it.
    assert_eq!([certificate.authority_index_for(&names, 2), certificate.authority_index_for(&names[..2], 2)], [1, 0]);
    certificate.issued.as_mut().expect("one").lacking.clear();
    certificate.on_new("https://ca.example/dir", &state);
    assert_eq!(certificate.lacking_text(), "");
}

#[test]
fn failure_of_all_names_or_of_none_delays_the_certificate() {
    let (_directory, state) = folder();
    let mut certificate = with_aliases(None);
    for failure in [refusal_of(&["example.com", "www.example.com", "gone.test"]), Failure::new(Kind::Refused, "", "")] {
        fail(&mut certificate, &failure, 1, &state);
        assert!(certificate.next_order().0 > unix_s() + 50);
    }
}

#[test]
fn name_that_the_authority_does_not_tell_is_found() {
    let (_directory, state) = folder();
    let mut failure = Failure::new(Kind::Refused, "cannot issue", "");
    failure.is_about_names = true;
    let mut certificate = with_aliases(None);
    let names = certificate.names.clone();
    assert_eq!(certificate.on_failure(&failure, &names, 1, &state), AfterFailure::WithoutFailed);
    assert_eq!(certificate.names_to_order(false), ["example.com"]);
    // With a certificate for the others, this name is the new one.
    let mut of_two = issued_at(unix_s(), 90 * DAY_S);
    of_two.lacking = vec!["gone.test".to_owned()];
    let mut certificate = with_aliases(Some(of_two));
    assert_eq!(certificate.on_failure(&failure, &names, 1, &state), AfterFailure::WithoutFailed);
    assert_eq!(certificate.names_to_order(false), names[..2]);
    // None is new: all are retried.
    let mut certificate = with_aliases(Some(issued_at(unix_s(), 90 * DAY_S)));
    fail(&mut certificate, &failure, 1, &state);
}

#[test]
fn name_is_given_up_only_when_the_certificate_in_service_is_about_to_expire() {
    let (_directory, state) = folder();
    let days = |days| unix_s() - days * DAY_S;
    let names = with_aliases(None).names;
    let failure = refusal_of(&["gone.test"]);
    // After 61 days, and after 76.
    let mut certificate = with_aliases(Some(issued_at(days(61), 90 * DAY_S)));
    fail(&mut certificate, &failure, 1, &state);
    let mut certificate = with_aliases(Some(issued_at(days(76), 90 * DAY_S)));
    assert_eq!(certificate.on_failure(&failure, &names, 1, &state), AfterFailure::WithoutFailed);
    assert!(certificate.next_order().0 <= unix_s() && certificate.names_to_order(false) == names[..2]);
    // The delay does not go beyond that moment.
    let mut certificate = with_aliases(Some(issued_at(unix_s() - 4 * DAY_S, 6 * DAY_S)));
    (0..5).for_each(|_| fail(&mut certificate, &failure, 1, &state));
    let latest = certificate.issued.as_ref().expect("one").latest_renewal();
    assert!(certificate.next_order().0 <= latest, "{}", certificate.next_order().0);
    // A new name does not wait for a lapsed name.
    let mut with_new = issued_at(days(1), 90 * DAY_S);
    with_new.lacking = vec!["www.example.com".to_owned()];
    let mut certificate = with_aliases(Some(with_new));
    assert_eq!(certificate.on_failure(&failure, &names, 1, &state), AfterFailure::WithoutFailed);
}

#[test]
fn failures_are_forgotten_if_what_they_depended_on_was_corrected() {
    let (_directory, state) = folder();
    let configured = CertificateFiles {
        names: vec![DomainName::parse("example.com").expect("a name")],
        is_automatic: true,
        chain: std::path::PathBuf::new(),
        key: std::path::PathBuf::new(),
        on_renew: Vec::new(),
        location: sanderling_config::diagnostic::Location::Argument("test".to_owned()).into(),
    };
    let load = |basis: &str| ManagedCertificate::load(&configured, 3_600, basis.to_owned(), &state);
    let mut certificate = load("wrong");
    let failure = Failure::new(Kind::Refused, "the authority refuses", "ask");
    (0..4).for_each(|_| fail(&mut certificate, &failure, 2, &state));
    let again = load("wrong");
    assert!(again.next_order().0 > unix_s() + 3_600 && again.authority_index(2) == 1, "{:?}", again.record);
    let corrected = load("right");
    assert_eq!(corrected.next_order(), (0, "there is no certificate yet".to_owned()));
    assert_eq!((corrected.authority_index(2), corrected.record.last_error), (0, None));
}

#[test]
fn delay_from_before_the_clock_was_set_back_is_the_same_from_now_on() {
    let (_directory, state) = folder();
    let mut certificate = managed(None);
    let failure = Failure::new(Kind::Refused, "the authority refuses", "ask");
    fail(&mut certificate, &failure, 1, &state);
    let delayed = certificate.next_order().0;
    assert!(delayed >= unix_s() + 55, "{delayed}");
    certificate.record.not_before_unix_s += 90 * DAY_S;
    assert!((unix_s()..=unix_s() + 70).contains(&certificate.next_order().0));
}

#[test]
fn new_certificate_that_looks_old_is_not_renewed_at_once() {
    let (_directory, state) = folder();
    let days_ago = |days| unix_s() - days * DAY_S;
    // The clock is 90 days ahead of the authority's clock, or not at all.
    for (days, is_delayed) in [(90, true), (0, false)] {
        let mut certificate = managed(Some(issued_at(days_ago(days), 80 * DAY_S)));
        certificate.on_new("https://ca.example/dir", &state);
        certificate.on_suggestion(days_ago(days) + 60 * DAY_S, days_ago(days) + 61 * DAY_S, &state);
        let (at, why) = certificate.next_order();
        assert!(at > unix_s() + 3_500, "{days}: {at} {why}");
        assert_eq!(why == CLOCK_AHEAD, is_delayed, "{why}");
    }
}

#[test]
fn limit_of_an_authority_leads_to_the_next_one_at_once() {
    let (_directory, state) = folder();
    let limited = Failure::new(Kind::RateLimited, "too many", "wait");
    for (authority_count, authority, wait_s) in [(1, 0, 3 * 3_600), (2, 1, 60)] {
        let mut certificate = managed(None);
        fail(&mut certificate, &limited, authority_count, &state);
        assert_eq!(certificate.authority_index(authority_count), authority);
        let delay_s = certificate.next_order().0 - unix_s();
        assert!((wait_s - 1..=wait_s + wait_s / 10).contains(&delay_s), "{delay_s}");
    }
    // The authority is not to blame for a problem of this server.
    let mut certificate = managed(None);
    (0..5).for_each(|_| fail(&mut certificate, &Failure::new(Kind::NotReady, "", ""), 2, &state));
    fail(&mut certificate, &Failure::new(Kind::Refused, "", ""), 2, &state);
    assert_eq!(certificate.authority_index(2), 0);
}

#[test]
fn certificate_of_another_authority_is_not_replaced_by_its_name() {
    let (_directory, state) = folder();
    let mut certificate = managed(Some(issued(90 * DAY_S)));
    certificate.on_issued("https://a.example", &state);
    assert_eq!((certificate.issued_by(), certificate.replaced("https://a.example")), (Some("https://a.example"), None));
}

#[test]
fn names_that_a_wildcard_is_for_are_left_out() {
    let check = |names: &[&str], expected: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(without_redundant(&names), expected);
    };
    check(&["example.com", "www.example.com", "*.example.com"], &["example.com", "*.example.com"]);
    check(&["example.com", "a.b.example.com", "*.example.com"], &["example.com", "a.b.example.com", "*.example.com"]);
}
