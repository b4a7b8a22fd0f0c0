//! `config`: the effective configuration, with the place of each value.

use sanderling_testkit::{TestDirectory, run};
use serde_json::Value;

#[test]
fn each_value_has_its_place_and_the_output_passes_the_check() {
    let text = "[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n";
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n"), ("sanderling.toml", text.as_bytes())]);
    let file = directory.argument("sanderling.toml");
    let listed = run(&["config", "--config", &file]);
    assert_eq!(listed.code(), Some(0), "{listed}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = listed.text().lines().map(words).collect();
    for expected in [
        &format!("listen = [\"127.0.0.1:0\"] # {file}:2"),
        "http2 = false # default",
        "[domain.\"example.com\"]",
        &format!("site = \"public\" # {file}:4"),
        "clean_urls = false # default",
        "drain_timeout = \"30s\" # default",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected} is not in {listed}");
    }
    directory.replace("effective.toml", &listed.output);
    let checked = run(&["check", "--config", &directory.argument("effective.toml")]);
    assert_eq!(checked.code(), Some(0), "{checked}");
    let json = run(&["config", "--json", "--config", &file]);
    let rows: Value = serde_json::from_slice(&json.output).expect("JSON");
    let site = rows.as_array().expect("a list").iter().find(|row| row["key"] == "site").expect("listed");
    assert_eq!((&site["section"], &site["line"]), (&Value::from("domain.\"example.com\""), &Value::from(4)));
    assert_eq!(site["value"], Value::from("\"public\""));
}

#[test]
fn wrong_configuration_is_reported_instead() {
    let directory = TestDirectory::with(&[("sanderling.toml", b"[http]\nlissten = 1\n")]);
    let listed = run(&["config", "--config", &directory.argument("sanderling.toml")]);
    assert!(listed.code() == Some(1) && listed.errors.contains("did you mean `listen`?"), "{listed}");
}
