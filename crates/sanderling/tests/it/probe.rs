//! The command `probe`.

use serde_json::Value;

use sanderling_testkit::run;

#[test]
fn one_measurement_is_reported_as_json() {
    let ended = run(&["probe", "--quick", "--only", "cloexec", "--json"]);
    assert_eq!((ended.code(), ended.errors.as_str()), (Some(0), ""), "{ended}");
    let report: Value = serde_json::from_str(&ended.text()).unwrap_or_else(|error| panic!("{error}: {ended}"));
    assert_eq!((&report["form"], &report["quick"]), (&Value::from(3), &Value::Bool(true)));
    let groups = report["groups"].as_array().expect("groups");
    assert!(groups.iter().all(|group| group["job"] == "cloexec"), "{report}");
    let rows = groups[0]["rows"].as_array().expect("rows");
    let fcntl = rows.iter().find(|row| row["variant"] == "fcntl").expect("every kernel has it");
    let measured = &fcntl["measured"];
    assert!(measured["cpu_ns"]["median"].as_f64().is_some_and(|ns| ns > 0.0), "{fcntl}");
    assert_eq!(measured["errors"], 0);
    assert!(groups[0]["selection"]["used"].is_string(), "{report}");
}

#[test]
fn forced_variant_is_reported_as_used() {
    let ended = run(&["probe", "--quick", "--only", "stat", "--force", "stat=statx"]);
    assert_eq!((ended.code(), ended.errors.as_str()), (Some(0), ""), "{ended}");
    assert!(ended.text().contains("used: statx;"), "{ended}");
    assert!(ended.text().contains("\n* statx "), "{ended}");
}
