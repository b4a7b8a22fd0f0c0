//! Command lines as text, and the commands that they are parsed into.

use super::*;
use crate::folder_zone::FolderAction;
use sanderling_config::Limits;

/// The result of parsing `line` where there is no configuration file.
fn parse(line: &str) -> Result<Invocation, clap::Error> {
    parse_in(line, &SearchPaths::new(None, vec!["./none.toml".into(), "/none/none.toml".into()]))
}

fn parse_in(line: &str, places: &SearchPaths) -> Result<Invocation, clap::Error> {
    Invocation::parse(line.split_whitespace(), places, &RuntimeEnv::default())
}

#[track_caller]
fn command(line: &str) -> Command {
    parse(line).unwrap_or_else(|error| panic!("{line}\n{error}")).command
}

#[track_caller]
fn parsed_flags(line: &str) -> Flags {
    match command(line) {
        Command::Serve { source: ConfigSource::Flags(flags), .. } | Command::Check(ConfigSource::Flags(flags), _) => {
            flags
        }
        other => panic!("{line}: {other:?}"),
    }
}

/// `line` is refused with status 2 and a message that contains `expected`.
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
fn definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn release_is_a_folder_or_the_one_before() {
    let publication = |line| match command(line) {
        Command::Publish(publication) => publication,
        other => panic!("{line}: {other:?}"),
    };
    let published = publication("sanderling publish Example.com dist --config x.toml --control s");
    assert_eq!((published.name.as_str(), published.release), ("example.com", Release::Folder("dist".into())));
    assert_eq!((published.source, published.socket), (ConfigSource::File("x.toml".into()), Ok("s".into())));
    let rolled_back = publication("sanderling rollback example.com --config x.toml --control s --timeout 5");
    assert_eq!((rolled_back.release, rolled_back.timeout.as_secs()), (Release::Previous, 5));
    check_refused("sanderling publish example.com", "<FOLDER>");
}

#[test]
fn demo_has_default_addresses() {
    let expected = |http, https, dns, site: Option<&str>| Command::Demo {
        http: address(http),
        https: address(https),
        dns: address(dns),
        site: site.map(PathBuf::from),
    };
    assert_eq!(command("sanderling demo"), expected("127.0.0.1:8080", "127.0.0.1:8443", "127.0.0.1:5353", None));
    let given = command("sanderling demo --http [::1]:0 --https [::1]:1 --dns 127.0.0.1:0 --site public");
    assert_eq!(given, expected("[::1]:0", "[::1]:1", "127.0.0.1:0", Some("public")));
}

#[test]
fn serve_accepts_several_addresses_and_zones() {
    let flags = parsed_flags(
        "sanderling serve public --http 127.0.0.1:0 --http [::1]:8080 --zone A.example=a.zone --zone b.example=x=y \
         --dns 127.0.0.1:5300 --dns 127.0.0.1:5301 --workers 3",
    );
    assert_eq!(flags.http_listen, [address("127.0.0.1:0"), address("[::1]:8080")]);
    assert_eq!(flags.dns_listen, [address("127.0.0.1:5300"), address("127.0.0.1:5301")]);
    let zones: Vec<_> = flags.zones.iter().map(|zone| (zone.apex.as_str(), zone.file.to_str().unwrap())).collect();
    assert_eq!(zones, [("a.example", "a.zone"), ("b.example", "x=y")]);
    assert_eq!(flags.worker_count, Some(3));
    let expected = Flags { directory: Some("public".into()), ..Flags::default() };
    assert_eq!(parsed_flags("sanderling serve public"), expected);
    assert_eq!(parsed_flags("sanderling serve --zone a.example=a.zone --dns 127.0.0.1:0").directory, None);
}

#[test]
fn serve_accepts_applications_with_and_without_a_directory() {
    let flags = parsed_flags("sanderling serve public --proxy /api/=127.0.0.1:3000 --proxy unix:/run/app.sock");
    let names: Vec<&str> = flags.proxies.iter().map(|proxy| proxy.route.name.as_str()).collect();
    assert_eq!((flags.directory, names), (Some("public".into()), vec!["/api/", "/"]));
    let alone = parsed_flags("sanderling serve --proxy 127.0.0.1:3000 --http 127.0.0.1:0 --workers 1");
    assert_eq!((alone.directory, alone.proxies.len()), (None, 1));
    check_refused("sanderling serve --proxy app:x", "is not the address of an application");
    check_refused("sanderling serve --proxy 127.0.0.1:3000 --config x.toml", "cannot be used with");
}

#[test]
fn named_configuration_file_need_not_exist() {
    let source = || ConfigSource::File("x.toml".into());
    assert_eq!(
        command("sanderling serve --config x.toml"),
        Command::Serve { source: source(), control: None, state: None }
    );
    let check = |is_strict, is_json| Command::Check(source(), CheckOptions { is_strict, is_json });
    assert_eq!(command("sanderling check --config x.toml"), check(false, false));
    assert_eq!(command("sanderling check --config x.toml --strict"), check(true, false));
    assert_eq!(command("sanderling check --config x.toml --json"), check(false, true));
}

#[test]
fn environment_takes_precedence_over_default_files() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, "").unwrap();
        path
    };
    let usual = vec![directory.path().join("none.toml"), file("second.toml"), file("third.toml")];
    let found = |named| match parse_in("sanderling serve", &SearchPaths::new(named, usual.clone())) {
        Ok(Invocation { command: Command::Serve { source: ConfigSource::File(path), .. }, .. }) => path,
        other => panic!("{other:?}"),
    };
    assert_eq!(found(None), usual[1]);
    assert_eq!(found(Some("/named.toml".into())), PathBuf::from("/named.toml"));
    let with_arguments = parse_in("sanderling serve public", &SearchPaths::new(Some("/named.toml".into()), vec![]));
    let Command::Serve { source, .. } = with_arguments.unwrap().command else { panic!("another command") };
    assert!(matches!(source, ConfigSource::Flags(_)), "arguments come first: {source:?}");
}

#[test]
fn probe_measures_everything_by_default() {
    assert_eq!(command("sanderling probe"), Command::Probe(probe::Options::default()));
    let expected = probe::Options { json: true, is_quick: true, only: vec!["stat".to_owned(), "floor".to_owned()] };
    let line = "sanderling probe --only stat --only floor --json --quick";
    assert_eq!(command(line), Command::Probe(expected));
    check_refused("sanderling probe --only juggling", "[possible values: floor, cloexec, ");
}

/// The command of `line`, its socket and its timeout in seconds.
#[track_caller]
fn control_request(line: &str) -> (Request, String, u64) {
    match command(line) {
        Command::Control(ControlRequest { command, socket, timeout }) => {
            (command, socket.to_str().expect("text").to_owned(), timeout.as_secs())
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn control_commands_have_a_socket_and_a_timeout() {
    let stop_s = Limits::default().drain_timeout_ms / 1000 + 5;
    for (line, request, timeout_s) in [
        ("sanderling status --control s", Request::Status(StatusFormat::Text), 5),
        ("sanderling status --control s --json", Request::Status(StatusFormat::Json), 5),
        ("sanderling reload --control s", Request::Reload { forced_zones: Vec::new() }, 60),
        ("sanderling upgrade --control s", Request::Upgrade, 60),
        ("sanderling stop --control s", Request::Stop, stop_s),
        ("sanderling stop --control s --timeout 600", Request::Stop, 600),
    ] {
        assert_eq!(control_request(line), (request, "s".to_owned(), timeout_s), "{line}");
    }
    check_refused("sanderling stop --control s --timeout 0", "write an integer from 1 to 604800");
    check_refused(
        "sanderling reload --control s --config x",
        "'--control <PATH>' cannot be used with '--config <FILE>'",
    );
    check_refused("sanderling reload --control s --json", "unexpected argument '--json'");
}

#[test]
fn configuration_file_names_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let (file, socket) = (directory.path().join("x.toml"), directory.path().join("my.sock"));
    std::fs::write(&file, "control = \"my.sock\"\n").unwrap();
    let named = control_request(&format!("sanderling status --config {}", file.display()));
    assert_eq!(named.1, socket.to_str().unwrap());
    let places = SearchPaths::new(None, vec![file]);
    let found = parse_in("sanderling status", &places).unwrap().command;
    assert!(matches!(&found, Command::Control(request) if request.socket == socket), "{found:?}");
}

#[test]
fn commands_about_zones_name_the_zone() {
    let of_zone = |line: &str| match command(&format!("sanderling {line} --control s")) {
        Command::Control(ControlRequest { command: Request::Zone(command), .. }) => command,
        other => panic!("{other:?}"),
    };
    let zone = || "a.example".to_owned();
    assert_eq!(of_zone("reload A.Example"), ZoneCommand::Reload { zone: zone(), is_forced: false });
    let forced = "reload a.example --force-zone a.example";
    assert_eq!(of_zone(forced), ZoneCommand::Reload { zone: zone(), is_forced: true });
    assert_eq!(of_zone("zone list --json"), ZoneCommand::List { is_json: true });
    assert_eq!(of_zone("zone status a.example."), ZoneCommand::Status { zone: zone() });
    let rrtype = Some("MX".to_owned());
    assert_eq!(of_zone("zone export a.example"), ZoneCommand::Export { zone: zone() });
    assert_eq!(of_zone("zone show a.example --rrtype MX"), ZoneCommand::Show { zone: zone(), rrtype });
}

#[test]
fn zones_are_added_to_the_folder_of_a_configuration() {
    let change = |line: &str| match command(line) {
        Command::FolderZone(change) => change,
        other => panic!("{other:?}"),
    };
    let added = change("sanderling zone add A.Example new.zone --config x.toml --control s");
    assert_eq!((added.zone.as_str(), added.action), ("a.example", FolderAction::Add("new.zone".into())));
    assert_eq!((added.source, added.socket), (ConfigSource::File("x.toml".into()), Ok("s".into())));
    assert_eq!(change("sanderling zone remove a.example --config x.toml").action, FolderAction::Remove);
    check_refused("sanderling zone add a.example --config x.toml", "<FILE>");
    check_refused("sanderling zone remove a.example", "no configuration file was found; specify it with --config FILE");
}

#[test]
fn unknown_socket_is_an_error() {
    for line in
        ["sanderling status", "sanderling reload", "sanderling zone list", "sanderling upgrade", "sanderling stop"]
    {
        check_refused(line, "specify the socket with --control PATH");
    }
    check_refused("sanderling status --config /nonexistent/x.toml", "/nonexistent/x.toml");
}

#[test]
fn serve_accepts_a_control_socket() {
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
fn nothing_to_serve_lists_the_possibilities() {
    for line in ["sanderling serve", "sanderling check"] {
        check_refused(line, "no configuration file was found");
        check_refused(line, "  ./none.toml\n  /none/none.toml\n");
        check_refused(line, " --zone NAME=FILE ");
        check_refused(line, " --config FILE ");
    }
    check_refused("sanderling serve", "  sanderling serve FOLDER ");
}

#[test]
fn wrong_arguments_have_a_remedy() {
    for (line, expected) in [
        ("serve x --http :80", "write 127.0.0.1:80 for this machine only"),
        ("serve x --http 8080", "invalid address `8080`, expected ADDR:PORT; write 127.0.0.1:8080 for"),
        ("serve x --http ::1:80", "write an IPv6 address in brackets, for example [::1]:8080"),
        ("demo --dns localhost:53", "write the address: 127.0.0.1:53 or [::1]:53"),
        ("serve --zone a.example", "`a.example` has no `=`; expected NAME=FILE"),
        ("serve --zone =a.zone", "the zone name is missing"),
        ("serve --zone a.example=", "the zone file is missing"),
        ("serve --zone a..b=c", "it has an empty label"),
        ("serve --zone a\\.b=c", "invalid domain name `a\\.b`: the character `\\` is not allowed"),
        ("serve x --workers 0", "write an integer from 1 to 1024"),
        ("serve x --workers 1025", "write an integer from 1 to 1024"),
        ("serv", "a similar subcommand exists: 'serve'"),
        ("serve --http 127.0.0.1:80", "`--http` needs a FOLDER to serve"),
        ("serve --http 127.0.0.1:80 --zone a=b", "`--http` needs a FOLDER to serve"),
        ("serve public --dns 127.0.0.1:53", "`--dns` needs a zone to serve"),
        ("serve --workers 2", "in a configuration file it is the key `workers`"),
        ("serve public --port 80", "use --http ADDR:PORT, for example --http 127.0.0.1:80"),
        ("serve public -p 80", "use --http ADDR:PORT, for example --http 127.0.0.1:80"),
        ("serve public --config x.toml", "'[FOLDER]' cannot be used with '--config <FILE>'"),
        ("serve --config x.toml --http 127.0.0.1:80", "cannot be used with"),
        ("serve --config x.toml --dns 127.0.0.1:53", "cannot be used with"),
        ("serve --config x.toml --zone a=b", "cannot be used with"),
        ("serve --config x.toml --workers 2", "cannot be used with"),
        ("check --config x.toml --zone a=b", "cannot be used with"),
        ("reload a.example --force-zone b.example", "only the zone a.example is reloaded"),
        ("zone show", "<NAME>"),
        ("zone status a..b", "it has an empty label"),
    ] {
        check_refused(&format!("sanderling {line}"), expected);
    }
}

#[test]
fn variants_are_forced_before_or_after_the_command() {
    let forced = |line: &str| parse(line).unwrap().forced;
    let expected = ["open=walk", "udp-io=poll-recvmsg"];
    assert_eq!(forced("sanderling --force open=walk --force udp-io=poll-recvmsg demo"), expected);
    assert_eq!(forced("sanderling demo --force open=walk --force udp-io=poll-recvmsg"), expected);
    assert!(forced("sanderling demo").is_empty());
}

#[test]
fn every_help_page_has_the_exit_status() {
    for command in
        ["", "serve", "check", "probe", "status", "reload", "upgrade", "reopen", "stop", "generate", "zone show"]
    {
        let line = &format!("sanderling help {command}");
        let page = parse(line).expect_err(line);
        assert_eq!(page.exit_code(), 0, "{line}");
        let page = page.to_string();
        assert!(page.contains("Exit status"), "{page}");
        // No page is wider than 100 columns.
        for row in page.lines().filter(|row| !row.contains("Usage:") && !row.contains("  #")) {
            assert!(row.chars().count() <= 100, "{line} has the row {row:?}");
        }
    }
}

#[test]
fn help_of_check_has_all_keys_and_limits() {
    let page = parse("sanderling help check").unwrap_err().to_string();
    assert!(page.contains("  dns_udp_answer_max = \"1232B\"\n"), "{page}");
    // The example must be valid, except that its files do not exist. A test in the module of the keys checks that the
    // example has every key.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sanderling.toml");
    std::fs::create_dir(directory.path().join("public")).unwrap();
    std::fs::create_dir(directory.path().join("sites")).unwrap();
    std::fs::write(directory.path().join("example.com.zone"), "").unwrap();
    std::fs::write(&file, EXAMPLE).unwrap();
    let config = ConfigSource::File(file).load().unwrap();
    assert_eq!((config.worker_count, config.sites.len(), config.zones.len()), (4, 1, 1));
    for line in EXAMPLE.lines().filter(|line| !line.is_empty()) {
        assert!(page.contains(&format!("  {line}\n")), "{line}");
    }
}

/// `command`, and what it takes, each on a line: `zone add <NAME>`, `status --json`.
fn lines_of(command: &clap::Command, prefix: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        lines.push(match argument.get_long() {
            Some(long) => format!("{prefix} --{long}"),
            None => format!("{prefix} <{}>", argument.get_id()),
        });
    }
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        let name = format!("{prefix} {}", child.get_name());
        lines.push(name.clone());
        lines.extend(lines_of(child, &name));
    }
    lines
}

#[test]
fn commands_of_the_stability_page_exist() {
    sanderling_testkit::check_promised("commands", lines_of(&Cli::command(), "sanderling"));
}
