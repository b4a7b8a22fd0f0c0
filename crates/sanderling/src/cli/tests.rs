//! Command lines and what is made of them, as text.

use super::*;
use sanderling_config::Limits;
use sanderling_ipc::control_message::Request;

/// What the words of `line` become where no configuration file is found.
fn parse(line: &str) -> Result<Invocation, clap::Error> {
    parse_in(line, &SearchPaths::new(None, vec!["./none.toml".into(), "/none/none.toml".into()]))
}

fn parse_in(line: &str, places: &SearchPaths) -> Result<Invocation, clap::Error> {
    Invocation::parse(line.split_whitespace(), places, &Surroundings::default())
}

#[track_caller]
fn command(line: &str) -> Command {
    parse(line).unwrap_or_else(|error| panic!("{line}\n{error}")).command
}

#[track_caller]
fn flags(line: &str) -> Flags {
    match command(line) {
        Command::Serve { source: ConfigSource::Flags(flags), .. } | Command::Check(ConfigSource::Flags(flags)) => flags,
        other => panic!("{line} became {other:?}"),
    }
}

/// `line` is refused with status 2 and a message that has `expected` in it.
#[track_caller]
fn check_refused(line: &str, expected: &str) {
    let error = parse(line).expect_err(line);
    let message = error.to_string();
    assert_eq!(error.exit_code(), 2, "{line}\n{message}");
    assert!(message.contains(expected), "{line}: {expected:?} is not in\n{message}");
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn the_grammar_holds_together() {
    Line::command().debug_assert();
}

#[test]
fn demo_has_default_addresses() {
    let expected = Command::Demo { http: address("127.0.0.1:8080"), dns: address("127.0.0.1:5353") };
    assert_eq!(command("sanderling demo"), expected);
    let expected = Command::Demo { http: address("[::1]:0"), dns: address("127.0.0.1:0") };
    assert_eq!(command("sanderling demo --http [::1]:0 --dns 127.0.0.1:0"), expected);
}

#[test]
fn serve_takes_a_folder() {
    let expected = Flags { folder: Some("public".into()), ..Flags::default() };
    assert_eq!(flags("sanderling serve public"), expected);
}

#[test]
fn serve_takes_everything_more_than_once() {
    let flags = flags(
        "sanderling serve public --http 127.0.0.1:0 --http [::1]:8080 --zone A.example=a.zone --zone b.example=x=y \
         --dns 127.0.0.1:5300 --dns 127.0.0.1:5301 --workers 3",
    );
    assert_eq!(flags.http_listen, [address("127.0.0.1:0"), address("[::1]:8080")]);
    assert_eq!(flags.dns_listen, [address("127.0.0.1:5300"), address("127.0.0.1:5301")]);
    let zones: Vec<_> = flags.zones.iter().map(|zone| (zone.apex.as_str(), zone.file.to_str().unwrap())).collect();
    assert_eq!(zones, [("a.example", "a.zone"), ("b.example", "x=y")]);
    assert_eq!(flags.worker_count, Some(3));
}

#[test]
fn serve_takes_zones_without_a_folder() {
    assert_eq!(flags("sanderling serve --zone a.example=a.zone --dns 127.0.0.1:0").folder, None);
}

#[test]
fn a_named_file_need_not_exist_to_be_asked_for() {
    let source = || ConfigSource::File("x.toml".into());
    assert_eq!(command("sanderling serve --config x.toml"), Command::Serve { source: source(), control: None });
    assert_eq!(command("sanderling check --config x.toml"), Command::Check(source()));
}

#[test]
fn without_arguments_the_environment_comes_before_the_usual_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, "").unwrap();
        path
    };
    let usual = vec![folder.path().join("none.toml"), file("second.toml"), file("third.toml")];
    let found = |named| match parse_in("sanderling serve", &SearchPaths::new(named, usual.clone())) {
        Ok(Invocation { command: Command::Serve { source: ConfigSource::File(path), .. }, .. }) => path,
        other => panic!("{other:?}"),
    };
    assert_eq!(found(None), usual[1]);
    assert_eq!(found(Some("/named.toml".into())), PathBuf::from("/named.toml"));
}

#[test]
fn arguments_come_before_every_file() {
    let places = SearchPaths::new(Some("/named.toml".into()), vec![]);
    let invocation = parse_in("sanderling serve public", &places).unwrap();
    assert!(matches!(invocation.command, Command::Serve { source: ConfigSource::Flags(_), .. }), "{invocation:?}");
}

#[test]
fn probe_measures_everything_unless_told_otherwise() {
    assert_eq!(command("sanderling probe"), Command::Probe(probe::Options::default()));
    let expected = probe::Options {
        json: true,
        plot: Some("x.svg".into()),
        is_quick: true,
        only: vec!["stat".to_owned(), "floor".to_owned()],
    };
    let line = "sanderling probe --only stat --only floor --json --plot x.svg --quick";
    assert_eq!(command(line), Command::Probe(expected));
    check_refused("sanderling probe --only juggling", "[possible values: floor, cloexec, ");
}

/// What `line` asks, where, and for how many seconds.
#[track_caller]
fn question(line: &str) -> (Request, String, u64) {
    match command(line) {
        Command::Ask(Question { request, socket, timeout }) => {
            (request, socket.to_str().expect("text").to_owned(), timeout.as_secs())
        }
        other => panic!("{line} became {other:?}"),
    }
}

#[test]
fn a_running_server_is_asked_through_its_socket() {
    let stop_s = Limits::default().drain_timeout_ms / 1000 + 5;
    for (line, request, timeout_s) in [
        ("sanderling status --control s", Request::Status, 5),
        ("sanderling status --control s --json", Request::StatusJson, 5),
        ("sanderling reload --control s", Request::Reload, 60),
        ("sanderling upgrade --control s", Request::Upgrade, 60),
        ("sanderling stop --control s", Request::Stop, stop_s),
        ("sanderling stop --control s --timeout 600", Request::Stop, 600),
    ] {
        assert_eq!(question(line), (request, "s".to_owned(), timeout_s), "{line}");
    }
    check_refused("sanderling stop --control s --timeout 0", "0 is not in 1..=86400");
    check_refused(
        "sanderling reload --control s --config x",
        "'--control <PATH>' cannot be used with '--config <FILE>'",
    );
    check_refused("sanderling reload --control s --json", "unexpected argument '--json'");
}

#[test]
fn the_socket_is_found_by_the_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("x.toml"), folder.path().join("my.sock"));
    std::fs::write(&file, "control = \"my.sock\"\n").unwrap();
    let named = question(&format!("sanderling status --config {}", file.display()));
    assert_eq!(named.1, socket.to_str().unwrap());
    let places = SearchPaths::new(None, vec![file]);
    let found = parse_in("sanderling status", &places).unwrap().command;
    assert!(matches!(&found, Command::Ask(question) if question.socket == socket), "{found:?}");
}

#[test]
fn a_server_that_cannot_be_found_is_to_be_named() {
    for line in ["sanderling status", "sanderling reload", "sanderling upgrade", "sanderling stop"] {
        check_refused(line, "name the socket with --control PATH");
    }
    check_refused("sanderling status --config /nonexistent/x.toml", "/nonexistent/x.toml");
}

#[test]
fn serve_has_a_control_socket_beside_a_file_and_beside_arguments() {
    let control = |line: &str| match command(line) {
        Command::Serve { control, .. } => control,
        other => panic!("{other:?}"),
    };
    assert_eq!(control("sanderling serve --config x.toml --control s"), Some("s".into()));
    assert_eq!(control("sanderling serve public --control s"), Some("s".into()));
    assert_eq!(control("sanderling serve public"), None);
    check_refused("sanderling serve --control s", "no configuration file was found");
}

#[test]
fn nothing_to_serve_shows_what_to_type() {
    for line in ["sanderling serve", "sanderling check"] {
        check_refused(line, "no configuration file was found");
        check_refused(line, "  ./none.toml\n  /none/none.toml\n");
        check_refused(line, " --zone NAME=FILE ");
        check_refused(line, " --config FILE ");
    }
    check_refused("sanderling serve", "  sanderling serve FOLDER ");
}

#[test]
fn arguments_and_a_file_do_not_mix() {
    check_refused("sanderling serve public --config x.toml", "'[FOLDER]' cannot be used with '--config <FILE>'");
    for other in ["--http 127.0.0.1:80", "--dns 127.0.0.1:53", "--zone a=b", "--workers 2"] {
        check_refused(&format!("sanderling serve --config x.toml {other}"), "cannot be used with");
    }
    check_refused("sanderling check --config x.toml --zone a=b", "cannot be used with");
}

#[test]
fn an_argument_without_its_object_is_refused() {
    check_refused("sanderling serve --http 127.0.0.1:80", "there is no FOLDER to serve");
    check_refused("sanderling serve --http 127.0.0.1:80 --zone a=b", "there is no FOLDER to serve");
    check_refused("sanderling serve public --dns 127.0.0.1:53", "there is no zone to answer for");
    check_refused("sanderling serve --workers 2", "in a configuration file it is the key `workers`");
}

#[test]
fn wrong_values_say_what_would_do() {
    check_refused("sanderling serve x --http :80", "write 127.0.0.1:80 for this machine only");
    check_refused(
        "sanderling serve x --http 8080",
        "invalid address `8080`, expected ADDR:PORT; write 127.0.0.1:8080 for",
    );
    check_refused("sanderling serve x --http ::1:80", "write an IPv6 address in brackets, for example [::1]:8080");
    check_refused("sanderling demo --dns localhost:53", "write the address: 127.0.0.1:53 or [::1]:53");
    check_refused("sanderling serve --zone a.example", "`a.example` has no `=`; expected NAME=FILE");
    check_refused("sanderling serve --zone =a.zone", "the name of the zone is missing");
    check_refused("sanderling serve --zone a.example=", "the zone file is missing");
    check_refused("sanderling serve --zone a..b=c", "it has an empty label");
    check_refused("sanderling serve x --workers 0", "0 is not in 1..=1024");
    check_refused("sanderling serve x --workers 1025", "1025 is not in 1..=1024");
    check_refused("sanderling sreve", "a similar subcommand exists: 'serve'");
}

#[test]
fn ways_are_forced_before_or_behind_the_command() {
    let forced = |line: &str| parse(line).unwrap().forced;
    assert_eq!(
        forced("sanderling --force open=walk --force udp-receive=poll-recvmsg demo"),
        ["open=walk", "udp-receive=poll-recvmsg"]
    );
    assert_eq!(
        forced("sanderling demo --force open=walk --force udp-receive=poll-recvmsg"),
        ["open=walk", "udp-receive=poll-recvmsg"]
    );
    assert!(forced("sanderling demo").is_empty());
}

#[test]
fn help_is_no_error_and_every_page_tells_of_the_exit_status() {
    for line in [
        "sanderling --help",
        "sanderling help serve",
        "sanderling help check",
        "sanderling help probe",
        "sanderling help status",
        "sanderling help reload",
        "sanderling help upgrade",
        "sanderling help stop",
        "sanderling help generate",
    ] {
        let page = parse(line).expect_err(line);
        assert_eq!(page.exit_code(), 0, "{line}");
        let page = page.to_string();
        assert!(page.contains("Exit status"), "{page}");
        // No page is wider than a terminal is.
        for row in page.lines().filter(|row| !row.contains("Usage:") && !row.contains("  #")) {
            assert!(row.chars().count() <= 100, "{line} has the row {row:?}");
        }
    }
}

#[test]
fn the_limits_are_in_the_help_of_check() {
    let page = parse("sanderling help check").unwrap_err().to_string();
    assert!(page.contains("  dns_udp_answer_bytes_max = 1232\n"), "{page}");
}
