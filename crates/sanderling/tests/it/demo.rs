//! The built-in domain, tried by the very lines that the program prints for it.

use std::process::Command;

use sanderling_testkit::process::{DEADLINE, Listeners, Serving, run_to_end};

#[test]
fn the_lines_that_it_prints_work() {
    let arguments = ["demo", "--http", "127.0.0.1:0", "--dns", "127.0.0.1:0"];
    let mut serving = Serving::start(&arguments, Listeners { http: 1, dns: 1 });
    let (mut curl_count, mut dig_count) = (0, 0);
    loop {
        let line = serving.next_line();
        if line.starts_with("Ctrl-C") {
            break;
        }
        let Some(words) = line.strip_prefix("  ").map(|line| line.split(' ').collect::<Vec<_>>()) else { continue };
        match words[0] {
            "curl" => {
                curl_count += 1;
                let output = said_by(&words, &["--silent", "--show-error", "--fail", "--noproxy", "*"]);
                assert!(output.contains("User-agent"), "{line}: {output}");
            }
            "dig" => {
                dig_count += 1;
                let output = said_by(&words, &["+tries=1"]);
                assert!(output.contains("status: NOERROR") && !output.contains("ANSWER: 0"), "{line}: {output}");
            }
            url => {
                let output = said_by(&["curl", url], &["--silent", "--fail", "--noproxy", "*"]);
                assert!(output.contains("</html>"), "{line}: {output}");
            }
        }
    }
    assert!(curl_count >= 2 && dig_count >= 4, "{curl_count} lines of curl, {dig_count} of dig");
    let ended = serving.stop();
    assert_eq!((ended.code(), ended.errors.as_str()), (Some(0), ""), "{ended}");
}

/// What a line says when a person runs it, made quiet by further arguments.
#[track_caller]
fn said_by(words: &[&str], further: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(further).args(&words[1..]).env("LC_ALL", "C.UTF-8");
    let ended = run_to_end(command, DEADLINE);
    assert_eq!(ended.code(), Some(0), "{words:?}: {ended}");
    ended.text()
}
