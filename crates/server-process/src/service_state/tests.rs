//! For each way in which a zone, a certificate, a site or a process can fail, every view says so.

use super::*;
use crate::certificate_state::InService;
use crate::metrics::{MetricsWriter, TextFormat, put_content};
use crate::status::zone_text;
use crate::zone_answers::{JudgedZone, state_text};
use sanderling_config::ZoneOrigin;
use sanderling_ipc::KeeperSupervision;
use sanderling_ipc::agent::{CertificateReport, SigningReport, TransferReport, ZoneReport};
use sanderling_os::clock::unix_seconds;
use std::sync::Arc;

const DAY_S: u64 = 24 * 3600;

/// A served zone of the operator.
fn zone() -> ZoneState {
    ZoneState {
        name: "example.com".to_owned(),
        file: "example.com.zone".into(),
        origin: ZoneOrigin::Operator,
        serial: Some(7),
        record_count: 9,
        loaded_at: Some(SystemTime::now()),
        signatures_expire_at: None,
        problem: None,
        added: Arc::default(),
        updates: None,
    }
}

fn signed_for(days: i64) -> Option<SystemTime> {
    let seconds = Duration::from_secs(days.unsigned_abs() * DAY_S);
    Some(if days < 0 { SystemTime::now() - seconds } else { SystemTime::now() + seconds })
}

fn signing(problem: &str) -> AgentReport {
    let signing = Some(SigningReport { problem: Some(problem.to_owned()), ..SigningReport::default() });
    report_of_zone(ZoneReport { signing, ..ZoneReport::default() })
}

fn transfer(problem: &str) -> AgentReport {
    let transfer = Some(TransferReport { problem: Some(problem.to_owned()), ..TransferReport::default() });
    report_of_zone(ZoneReport { transfer, ..ZoneReport::default() })
}

fn report_of_zone(zone: ZoneReport) -> AgentReport {
    AgentReport { zones: vec![ZoneReport { name: "example.com".to_owned(), ..zone }], ..AgentReport::default() }
}

fn running(is_running: bool) -> ProcessSupervision {
    ProcessSupervision { is_needed: true, is_running, restarts: 0 }
}

fn supervision(agent: bool, keeper: bool) -> Supervision {
    let keeper = KeeperSupervision { process: running(keeper), ..KeeperSupervision::default() };
    Supervision { agent: running(agent), keeper, ..Supervision::default() }
}

fn state<'s>(problems: &'s AgentProblems, supervision: &'s Supervision, signed: &[&'s str]) -> ServiceState<'s> {
    ServiceState {
        problems,
        signed_zones: signed.iter().copied().collect(),
        supervision,
        has_supervisor: true,
        backend_servers: Vec::new(),
        now: SystemTime::now(),
    }
}

fn metrics(load_status: &LoadStatus, certificates: &[CertificateState], state: &ServiceState<'_>) -> String {
    let mut out = MetricsWriter::new(TextFormat::OpenMetrics);
    put_content(load_status, certificates, state, 10, &mut out);
    out.finish()
}

/// The zone is in the condition `expected` in every view, and each says `reason`, if there is one.
#[track_caller]
fn check_zone(zone: ZoneState, is_signed: bool, report: &AgentReport, expected: ZoneCondition, reason: &str) {
    let problems = AgentProblems::of(report.problems());
    let supervision = supervision(true, true);
    let state = state(&problems, &supervision, if is_signed { &["example.com"] } else { &[] });
    assert_eq!(state.zone(&zone), expected);
    let zone = Arc::new(zone);
    let load_status = LoadStatus { zones: vec![Arc::clone(&zone)], ..LoadStatus::default() };
    let judged = JudgedZone::new(&zone, &state);
    assert!(judged.list_line(20).contains(&format!("  {:11}  ", expected.name())), "{}", judged.list_line(20));
    let metrics = metrics(&load_status, &[], &state);
    for condition in ZoneCondition::ALL {
        let count = u8::from(*condition == expected);
        let line = format!("sanderling_zones{{state=\"{}\"}} {count}\n", condition.name());
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    let is_good = expected.is_good();
    let line = format!("sanderling_zone_problem{{zone=\"example.com\"}} {}\n", u8::from(!is_good));
    assert!(metrics.contains(&line), "{line}{metrics}");
    // The exit status of `status`.
    let problems = state.problems(&load_status, &[], &[], &[]);
    let expected_problems = if is_good { vec![] } else { vec![format!("1 zone {}", expected.name())] };
    assert_eq!(problems, expected_problems);
    let expected_readiness = match expected {
        ZoneCondition::Served => Ok("ready\n".to_owned()),
        ZoneCondition::Unavailable => Err("1 zone unavailable\n".to_owned()),
        _ => Ok(format!("ready, with problems:\n1 zone {}\n", expected.name())),
    };
    assert_eq!(state.readiness(&load_status, &[], &[], &[]), expected_readiness);
    let (of_status, of_zone_status) = (zone_text(&zone, &state), state_text(&judged, true));
    let says =
        |word: &str| assert!(of_status.contains(word) && of_zone_status.contains(word), "{of_status}{of_zone_status}");
    match expected {
        ZoneCondition::Served => {}
        ZoneCondition::Kept => {
            assert!(of_status.contains("serving serial 7 of "), "{of_status}");
            assert!(of_zone_status.contains(" is served, because "), "{of_zone_status}");
        }
        ZoneCondition::Expiring => says("expire"),
        ZoneCondition::Unsigned => says("WITHOUT SIGNATURES"),
        ZoneCondition::Bogus => {
            assert!(of_status.contains("have expired") && of_zone_status.contains("EXPIRED SIGNATURES"));
        }
        ZoneCondition::Unavailable => says("SERVFAIL"),
    }
    assert!(of_status.contains(reason), "{reason}: {of_status}");
}

#[test]
fn each_failure_of_a_zone_is_in_every_view() {
    use ZoneCondition::{Bogus, Expiring, Kept, Served, Unavailable, Unsigned};
    let none = AgentReport::default;
    let of = |origin, serial| ZoneState { origin, serial, loaded_at: serial.map(|_| SystemTime::now()), ..zone() };
    let broken = |zone: ZoneState| ZoneState { problem: Some("example.com.zone:3: what is this".to_owned()), ..zone };
    let signed = |days| ZoneState { signatures_expire_at: signed_for(days), ..of(ZoneOrigin::Signer, Some(7)) };
    // As it should be.
    check_zone(zone(), false, &none(), Served, "loaded 0 s ago");
    check_zone(signed(10), true, &none(), Served, "signed until");
    check_zone(of(ZoneOrigin::Primaries, Some(7)), false, &none(), Served, "");
    // A secondary that was never transferred, or has expired; without and with a reason.
    check_zone(of(ZoneOrigin::Primaries, None), false, &none(), Unavailable, "not transferred yet, or expired");
    check_zone(of(ZoneOrigin::Primaries, None), false, &transfer("timed out"), Unavailable, "timed out");
    // A catalog or a member of one that is being transferred.
    check_zone(of(ZoneOrigin::Catalog, None), false, &none(), Unavailable, "not transferred yet, or expired");
    // A catalog of this server that is not written, or lists what is gone.
    let catalog_problem = Some("it still lists six.test".to_owned());
    let held_back = report_of_zone(ZoneReport { catalog_problem, ..ZoneReport::default() });
    check_zone(of(ZoneOrigin::ProducedCatalog, None), false, &none(), Unavailable, "not written yet");
    check_zone(
        of(ZoneOrigin::ProducedCatalog, Some(7)),
        false,
        &held_back,
        Kept,
        "up to date: it still lists six.test",
    );
    // The primary does not answer any more, or the server process refuses the version.
    check_zone(of(ZoneOrigin::Primaries, Some(7)), false, &transfer("timed out"), Kept, "timed out");
    // Dynamic updates cannot be stored.
    let updates_problem = Some("no space left".to_owned());
    let refusing = report_of_zone(ZoneReport { updates_problem, ..ZoneReport::default() });
    check_zone(zone(), false, &refusing, Kept, "no space left");
    // The file is broken, with and without a last good version.
    check_zone(broken(zone()), false, &none(), Kept, "example.com.zone:3: what is this");
    check_zone(broken(of(ZoneOrigin::Operator, None)), false, &none(), Unavailable, "example.com.zone:3");
    // Not signed: the first time, with a key that is lost, without an agent that says why.
    check_zone(of(ZoneOrigin::Signer, None), true, &none(), Unavailable, "not signed yet");
    check_zone(zone(), true, &none(), Unsigned, "");
    check_zone(zone(), true, &signing("a DS record without a key"), Unsigned, "a DS record without a key");
    // The key is lost, or the server process refuses the signed version, while the one before is in service.
    check_zone(signed(10), true, &signing("the key is lost"), Kept, "the key is lost");
    check_zone(signed(2), true, &signing("the key is lost"), Expiring, "the key is lost");
    check_zone(signed(-1), true, &signing("the key is lost"), Bogus, "the key is lost");
    // A file that was signed elsewhere.
    check_zone(ZoneState { signatures_expire_at: signed_for(-1), ..zone() }, false, &none(), Bogus, "; sign it again");
    let not_signed_again = "; not re-signed; see `sanderling dnssec status`";
    check_zone(signed(2), true, &none(), Expiring, not_signed_again);
    check_zone(signed(-1), true, &none(), Bogus, not_signed_again);
}

/// A certificate of `example.com` for 90 days, of which so many are left.
fn certificate(days_left: i64) -> CertificateState {
    let not_after_unix_s = unix_seconds().strict_add_signed(days_left * DAY_S.cast_signed() + 60);
    CertificateState {
        names: vec!["example.com".to_owned()],
        file: "chain.pem".into(),
        in_service: Some(InService::of_time(not_after_unix_s - 90 * DAY_S, not_after_unix_s)),
        problem: None,
        warnings: Vec::new(),
        missing_names: Vec::new(),
        is_refused: false,
    }
}

#[track_caller]
fn check_certificate(certificate: CertificateState, report: &AgentReport, expected: CertificateCondition) {
    let problems = AgentProblems::of(report.problems());
    let supervision = supervision(true, true);
    let state = state(&problems, &supervision, &[]);
    assert_eq!(state.certificate(&certificate), expected);
    let certificates = [certificate];
    let metrics = metrics(&LoadStatus::default(), &certificates, &state);
    let is_good = expected.is_good();
    for line in [
        format!("sanderling_certificates{{state=\"{}\"}} 1\n", expected.name()),
        format!("sanderling_certificate_problem{{domain=\"example.com\",file=\"chain.pem\"}} {}\n", u8::from(!is_good)),
    ] {
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    let expected_problems = if is_good { vec![] } else { vec![format!("1 certificate {}", expected.name())] };
    assert_eq!(state.problems(&LoadStatus::default(), &certificates, &[], &[]), expected_problems);
}

#[test]
fn each_failure_of_a_certificate_is_in_every_view() {
    use CertificateCondition::{Due, Incomplete, Invalid, Kept, Served, Unavailable};
    let none = AgentReport::default;
    let failed = || {
        let error = Some("the authority refuses it".to_owned());
        let certificate =
            CertificateReport { name: "example.com".to_owned(), last_error: error, ..CertificateReport::default() };
        AgentReport { certificates: vec![certificate], ..AgentReport::default() }
    };
    let broken = |one: CertificateState| CertificateState { problem: Some("chain.pem is cut".to_owned()), ..one };
    check_certificate(certificate(60), &none(), Served);
    check_certificate(certificate(60), &failed(), Due);
    // Another program renews it a month before it expires.
    check_certificate(certificate(29), &none(), Served);
    check_certificate(certificate(9), &none(), Due);
    check_certificate(certificate(-1), &none(), Invalid);
    check_certificate(certificate(-1), &failed(), Invalid);
    check_certificate(certificate(95), &none(), Invalid);
    let (issuer, subject) = (|| "Private Root".to_owned(), "example.com".to_owned());
    for (problem, expected) in [
        // A leaf certificate of a private root, which its clients trust.
        (CertificateProblem::ChainIncomplete { number: 1, issuer: issuer() }, Served),
        (CertificateProblem::ChainOutOfOrder { number: 1 }, Served),
        (CertificateProblem::MustStaple, Served),
        (CertificateProblem::WeakSignature { number: 1, hash: "SHA-1" }, Served),
        (CertificateProblem::NotForServers, Invalid),
        (CertificateProblem::NoAlternativeName { subject }, Invalid),
    ] {
        let (is_refused, warnings) = (problem.is_of_all_clients(), vec![problem.to_string()]);
        check_certificate(CertificateState { is_refused, warnings, ..certificate(60) }, &none(), expected);
    }
    let of_two = CertificateState {
        names: ["example.com", "www.example.com"].map(str::to_owned).to_vec(),
        missing_names: vec!["www.example.com".to_owned()],
        ..certificate(60)
    };
    check_certificate(of_two, &none(), Incomplete);
    let of_other = CertificateState { missing_names: vec!["example.com".to_owned()], ..certificate(60) };
    check_certificate(of_other, &none(), Invalid);
    check_certificate(broken(certificate(60)), &none(), Kept);
    check_certificate(broken(certificate(-1)), &none(), Invalid);
    check_certificate(CertificateState { in_service: None, ..certificate(0) }, &none(), Unavailable);
    check_certificate(CertificateState { in_service: None, ..broken(certificate(0)) }, &failed(), Unavailable);
}

#[test]
fn each_failure_of_a_site_is_in_every_view() {
    use SiteCondition::{Incomplete, Kept, Served, Unavailable, Unreadable};
    let problem = || Some("cannot be opened".to_owned());
    for (service, problem, expected) in [
        (SiteService::Current, None, Served),
        (SiteService::Current, problem(), Incomplete),
        (SiteService::Kept("old".into()), problem(), Kept),
        (SiteService::Unreadable, problem(), Unreadable),
        (SiteService::Unavailable, problem(), Unavailable),
    ] {
        let site = SiteState { hosts: vec![], document_root: Some("public".into()), release: None, service, problem };
        let (problems, supervision) = (AgentProblems::default(), supervision(true, true));
        let state = state(&problems, &supervision, &[]);
        assert_eq!(state.site(&site), expected);
        let load_status = LoadStatus { sites: vec![site], ..LoadStatus::default() };
        let metrics = metrics(&load_status, &[], &state);
        assert!(metrics.contains(&format!("sanderling_sites{{state=\"{}\"}} 1\n", expected.name())), "{metrics}");
        assert_eq!(state.problems(&load_status, &[], &[], &[]).is_empty(), expected.is_good());
    }
}

#[test]
fn each_failure_of_a_tsig_key_is_a_problem() {
    use TsigKeyCondition::{Kept, Served, Unavailable};
    let problem = || "transfer.key: No such file or directory".to_owned();
    for (secret, expected) in [
        (SecretInService::Current, Served),
        (SecretInService::LastGood { problem: problem() }, Kept),
        (SecretInService::None { problem: problem() }, Unavailable),
    ] {
        let (problems, supervision) = (AgentProblems::default(), supervision(true, true));
        let state = state(&problems, &supervision, &[]);
        let key = TsigKeyState { name: "transfer".to_owned(), secret };
        assert_eq!(state.tsig_key(&key), expected);
        assert_eq!(key.text().contains(&problem()), !expected.is_good());
        let problems = if expected.is_good() { vec![] } else { vec![format!("1 TSIG key {}", expected.name())] };
        assert_eq!(state.problems(&LoadStatus::default(), &[], &[key], &[]), problems);
    }
}

#[test]
fn processes_that_are_needed_and_do_not_run_are_problems() {
    let problems = AgentProblems::default();
    let check = |supervision: Supervision, has_supervisor, expected: &[&str]| {
        let state = ServiceState { has_supervisor, ..state(&problems, &supervision, &[]) };
        let stopped: Vec<String> = state.problems(&LoadStatus::default(), &[], &[], &[LogKind::Access]);
        let expected: Vec<String> = expected.iter().map(|process| format!("the {process} does not run")).collect();
        assert_eq!(stopped, [&expected[..], &["the access log is not written".to_owned()]].concat());
    };
    check(Supervision::default(), true, &[]);
    check(supervision(true, true), true, &[]);
    check(supervision(false, true), true, &["agent"]);
    check(supervision(true, false), true, &["keeper"]);
    check(supervision(true, true), false, &["supervisor", "agent", "keeper"]);
    check(Supervision::default(), false, &["supervisor"]);
}

#[test]
fn server_of_an_application_that_is_down_is_a_problem_and_the_process_stays_ready() {
    let (problems, supervision) = (AgentProblems::default(), supervision(true, true));
    let server = |down: Option<&str>| BackendServerStatus {
        address: "192.0.2.1:3000".to_owned(),
        down: down.map(str::to_owned),
        requests: 0,
        errors: 0,
        connections: 0,
        responses: 0,
        response_ms: 0,
    };
    let backend_servers = vec![server(None), server(Some("refuses connections")), server(Some("answers 503"))];
    let state = ServiceState { backend_servers, ..state(&problems, &supervision, &[]) };
    assert_eq!(state.problems(&LoadStatus::default(), &[], &[], &[]), ["2 backend servers down"]);
    let readiness = state.readiness(&LoadStatus::default(), &[], &[], &[]);
    assert_eq!(readiness, Ok("ready, with problems:\n2 backend servers down\n".to_owned()));
}

/// Each state but `served`, of each noun, and each process that does not run.
#[test]
fn alerts_fire_in_every_condition_that_is_not_good() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/sanderling.rules.yml");
    let rules = std::fs::read_to_string(rules).expect("the file exists");
    let expressions: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    let fires = |family: &str, state: &str| {
        let selectors = expressions.iter().filter_map(|it| it.strip_prefix(family)?.strip_prefix("{state"));
        let mut matched = selectors.filter_map(|it| {
            let (operator, rest) = it.split_once('"')?;
            let (states, rest) = rest.split_once('"')?;
            let is_listed = states.split('|').any(|listed| listed == state);
            (rest == "} > 0").then_some(match operator {
                "=~" | "=" => is_listed,
                "!~" | "!=" => !is_listed,
                other => panic!("{other}"),
            })
        });
        matched.any(|is_matched| is_matched)
    };
    fn check<C: Condition>(family: &str, fires: impl Fn(&str, &str) -> bool) {
        for condition in C::ALL {
            assert_eq!(fires(family, condition.name()), !condition.is_good(), "{family} {}", condition.name());
        }
    }
    check::<SiteCondition>("sanderling_sites", fires);
    check::<ZoneCondition>("sanderling_zones", fires);
    check::<CertificateCondition>("sanderling_certificates", fires);
    check::<TsigKeyCondition>("sanderling_tsig_keys", fires);
    check::<BackendCondition>("sanderling_backend_servers", fires);
    assert!(expressions.contains(&"sanderling_process_running == 0"), "{expressions:?}");
}
