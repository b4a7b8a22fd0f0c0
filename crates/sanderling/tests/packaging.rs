//! The files in `packaging/`, checked by systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// On the scale of `systemd-analyze security`, from 0 to 10.
const EXPOSURE_MAX: f64 = 1.6;

/// The installed program in the unit files.
const INSTALLED: &str = "/usr/bin/sanderling";

#[test]
fn service_has_little_exposure() {
    let unit = packaging("sanderling.service");
    let arguments = ["security", "--no-pager", "--offline=true", unit.to_str().expect("plain")];
    let Some(text) = run("systemd-analyze", &arguments) else { return };
    let line = text.lines().find(|line| line.contains("Overall exposure level")).expect("a line with the sum");
    let exposure = line.split_whitespace().find_map(|word| word.parse::<f64>().ok()).expect("a number");
    println!("exposure of the service: {exposure}");
    assert!(exposure <= EXPOSURE_MAX, "{line}; open settings:\n{}", open_settings(&text));
}

/// The settings that leave something open.
fn open_settings(text: &str) -> String {
    text.lines().filter(|line| line.starts_with('✗')).collect::<Vec<_>>().join("\n")
}

#[test]
fn systemd_accepts_every_unit() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut units = Vec::new();
    for name in ["sanderling.service", "sanderling-http.socket", "sanderling-dns.socket"] {
        let text = fs::read_to_string(packaging(name)).expect("the file exists");
        // The program under test instead of the installed one.
        let text = text.replace(INSTALLED, env!("CARGO_BIN_EXE_sanderling"));
        let unit = directory.path().join(name);
        fs::write(&unit, text).expect("written");
        units.push(unit.to_str().expect("plain").to_owned());
    }
    for unit in &units {
        // systemd-analyze succeeds in spite of lines that it ignores, and prints them.
        let Some(text) = run("systemd-analyze", &["--man=no", "verify", unit]) else { return };
        assert_eq!(text, "", "{unit}");
    }
}

#[test]
fn user_and_directory_are_created() {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir(root.path().join("etc")).expect("made");
    let into_root = format!("--root={}", root.path().display());
    let sysusers = packaging("sanderling.sysusers");
    let Some(_) = run("systemd-sysusers", &[&into_root, sysusers.to_str().expect("plain")]) else { return };
    let users = fs::read_to_string(root.path().join("etc/passwd")).expect("written");
    let user = users.lines().find(|line| line.starts_with("sanderling:")).expect("it has the user");
    assert!(user.ends_with("/nologin"), "{user}");

    let tmpfiles = packaging("sanderling.tmpfiles");
    let arguments = [&into_root, "--create", tmpfiles.to_str().expect("plain")];
    let Some(_) = run("systemd-tmpfiles", &arguments) else { return };
    assert!(root.path().join("etc/sanderling").is_dir());
}

/// Two files have the user's name.
#[test]
fn service_runs_as_the_created_user() {
    let unit = fs::read_to_string(packaging("sanderling.service")).expect("the file exists");
    let users = fs::read_to_string(packaging("sanderling.sysusers")).expect("the file exists");
    let user = unit.lines().find_map(|line| line.strip_prefix("User=")).expect("a line with the user");
    assert!(users.lines().any(|line| line.starts_with(&format!("u {user} "))), "{user} is not in\n{users}");
}

/// The manual has logs in `/var/log/sanderling`, which the user of the service cannot create.
#[test]
fn service_has_a_directory_for_logs() {
    let unit = fs::read_to_string(packaging("sanderling.service")).expect("the file exists");
    assert!(unit.lines().any(|line| line == "LogsDirectory=sanderling"), "{unit}");
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Both outputs of a program that must succeed; `None` if it is not installed.
#[track_caller]
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("NOT TESTED: {program} cannot be run ({error}); the package systemd has it");
            return None;
        }
    };
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}", output.status);
    Some(text)
}
