//! The program measures the machine that it runs on, and says so in forms for people and for programs.

use serde_json::Value;

use sanderling_testkit::process::{Folder, run};

#[test]
fn one_job_is_measured_and_told_as_json() {
    let ended = run(&["probe", "--quick", "--only", "cloexec", "--json"]);
    assert_eq!((ended.code(), ended.errors.as_str()), (Some(0), ""), "{ended}");
    let report: Value = serde_json::from_str(&ended.text()).unwrap_or_else(|error| panic!("{error}: {ended}"));
    assert_eq!(report["quick"], true);
    let groups = report["groups"].as_array().expect("groups");
    assert!(groups.iter().all(|group| group["job"] == "cloexec"), "{report}");
    let rows = groups[0]["rows"].as_array().expect("rows");
    let fcntl = rows.iter().find(|row| row["way"] == "fcntl").expect("a way that is always there");
    assert!(fcntl["cpu_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{fcntl}");
    assert_eq!(fcntl["errors"], 0);
    let claims = report["claims"].as_array().expect("claims");
    let verdicts: Vec<&str> = claims.iter().filter_map(|claim| claim["verdict"].as_str()).collect();
    assert_ne!(verdicts[0], "not measurable here", "{report}");
    assert!(verdicts[1..].iter().all(|verdict| *verdict == "not measurable here"), "{report}");
}

#[test]
fn a_forced_way_is_the_one_that_is_told_to_be_used() {
    let ended = run(&["probe", "--quick", "--only", "stat", "--force", "stat=statx"]);
    assert_eq!((ended.code(), ended.errors.as_str()), (Some(0), ""), "{ended}");
    assert!(ended.text().contains("used: statx (forced)"), "{ended}");
    assert!(ended.text().contains("\n* statx "), "{ended}");
    assert!(ended.text().lines().all(|line| line.chars().count() <= 80), "{ended}");
}

#[test]
fn a_picture_is_drawn_beside_the_table() {
    let folder = Folder::new();
    let file = folder.argument("probe.svg");
    let ended = run(&["probe", "--quick", "--only", "floor", "--plot", &file]);
    assert_eq!((ended.code(), ended.errors.as_str()), (Some(0), ""), "{ended}");
    assert!(ended.text().contains("getppid"), "{ended}");
    let picture = std::fs::read_to_string(&file).expect("drawn");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
}

#[test]
fn a_picture_that_cannot_be_drawn_is_told_before_the_measuring() {
    let ended = run(&["probe", "--plot", "/nowhere/at/all/probe.svg"]);
    assert_eq!((ended.code(), ended.text().as_str()), (Some(1), ""), "{ended}");
    assert!(ended.errors.contains("/nowhere/at/all/probe.svg") && ended.errors.contains("another folder"), "{ended}");
}

#[test]
fn an_unknown_job_is_told_with_the_known_ones() {
    let ended = run(&["probe", "--only", "juggling"]);
    assert_eq!((ended.code(), ended.text().as_str()), (Some(2), ""), "{ended}");
    for job in ["cloexec", "cloexec-range", "stat", "open", "sendfile", "accept", "udp-receive", "listeners"] {
        assert!(ended.errors.contains(job), "{job}: {ended}");
    }
}
