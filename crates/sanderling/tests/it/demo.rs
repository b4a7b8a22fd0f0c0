//! The command `demo`, with the very commands that it prints.

use std::process::Command;

use sanderling_testkit::{DEADLINE, ListenerCounts, TestDirectory, TestServer, run, run_to_end};

const ON_FREE_PORTS: [&str; 7] = ["demo", "--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--dns", "127.0.0.1:0"];

#[test]
fn printed_commands_work() {
    check_printed_commands(&ON_FREE_PORTS, "User-agent");
}

#[test]
fn directory_takes_the_place_of_the_built_in_site() {
    let page = b"<!doctype html><html><title>own</title></html>\n";
    let directory = TestDirectory::with(&[("public/index.html", page), ("public/a.txt", b"a\n")]);
    let folder = directory.argument("public");
    check_printed_commands(&[&ON_FREE_PORTS[..], &["--site", &folder]].concat(), "<title>own</title>");
    let missing = run(&[&ON_FREE_PORTS[..], &["--site", &directory.argument("none")]].concat());
    assert!(missing.code() == Some(1) && missing.errors.contains("cannot open the site `"), "{missing}");
}

/// Runs all commands that the demo prints, of which those of `curl` print a file with `content`.
#[track_caller]
fn check_printed_commands(arguments: &[&str], content: &str) {
    let mut server = TestServer::start(arguments, ListenerCounts { http: 1, dns: 1 });
    let (mut curl_count, mut dig_count) = (0, 0);
    loop {
        let line = server.next_line();
        if line.starts_with("Press Ctrl-C") {
            break;
        }
        let Some(words) = line.strip_prefix("  ").map(|line| line.split(' ').collect::<Vec<_>>()) else { continue };
        match words[0] {
            "curl" => {
                curl_count += 1;
                let output = output_of_line(&words, &["--silent", "--show-error", "--fail", "--noproxy", "*"]);
                assert!(output.contains(content), "{line}: {output}");
            }
            "dig" => {
                dig_count += 1;
                let output = output_of_line(&words, &["+tries=1"]);
                assert!(output.contains("status: NOERROR") && !output.contains("ANSWER: 0"), "{line}: {output}");
            }
            url => {
                let output = output_of_line(&["curl", url], &["--silent", "--fail", "--noproxy", "*"]);
                assert!(output.contains("</html>"), "{line}: {output}");
            }
        }
    }
    assert!(curl_count >= 3 && dig_count >= 4, "{curl_count} lines of curl, {dig_count} of dig");
    let ended = server.stop();
    assert_eq!((ended.code(), ended.errors.as_str()), (Some(0), ""), "{ended}");
}

/// The output of a printed command, with further arguments that make it quiet.
#[track_caller]
fn output_of_line(words: &[&str], further: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(further).args(&words[1..]).env("LC_ALL", "C.UTF-8");
    let ended = run_to_end(command, DEADLINE);
    assert_eq!(ended.code(), Some(0), "{words:?}: {ended}");
    ended.text()
}
