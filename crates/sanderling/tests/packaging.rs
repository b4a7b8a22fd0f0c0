//! What systemd makes of the files in `packaging/`: it understands each of them, and finds the service little exposed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// On the scale of `systemd-analyze security`, from 0 to 10.
const EXPOSURE_MAX: f64 = 1.6;

/// The words of the unit files that name the installed program.
const INSTALLED: &str = "/usr/bin/sanderling";

#[test]
fn the_service_is_little_exposed() {
    let unit = packaging("sanderling.service");
    let arguments = ["security", "--no-pager", "--offline=true", unit.to_str().expect("plain")];
    let Some(text) = run("systemd-analyze", &arguments) else { return };
    let line = text.lines().find(|line| line.contains("Overall exposure level")).expect("it ends with a sum");
    let exposure = line.split_whitespace().find_map(|word| word.parse::<f64>().ok()).expect("it names a number");
    println!("exposure of the service: {exposure}");
    assert!(exposure <= EXPOSURE_MAX, "{line}; what weighs:\n{}", weighing(&text));
}

/// The lines of settings that leave something open.
fn weighing(text: &str) -> String {
    text.lines().filter(|line| line.starts_with('✗')).collect::<Vec<_>>().join("\n")
}

#[test]
fn systemd_understands_every_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut units = Vec::new();
    for name in ["sanderling.service", "sanderling-http.socket", "sanderling-dns.socket"] {
        let text = fs::read_to_string(packaging(name)).expect("it is there");
        // The program is not installed here; the one under test stands for it.
        let text = text.replace(INSTALLED, env!("CARGO_BIN_EXE_sanderling"));
        let unit = folder.path().join(name);
        fs::write(&unit, text).expect("written");
        units.push(unit.to_str().expect("plain").to_owned());
    }
    for unit in &units {
        // It ends well in spite of lines that it ignores, and tells these.
        let Some(text) = run("systemd-analyze", &["--man=no", "verify", unit]) else { return };
        assert_eq!(text, "", "{unit}");
    }
}

#[test]
fn the_user_and_the_folder_are_made() {
    let root = tempfile::tempdir().expect("a folder");
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

/// What the user that the service runs as is called is told in two files.
#[test]
fn the_service_runs_as_the_user_that_is_made() {
    let unit = fs::read_to_string(packaging("sanderling.service")).expect("it is there");
    let users = fs::read_to_string(packaging("sanderling.sysusers")).expect("it is there");
    let user = unit.lines().find_map(|line| line.strip_prefix("User=")).expect("the service has a user");
    assert!(users.lines().any(|line| line.starts_with(&format!("u {user} "))), "{user} is not in\n{users}");
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Both outputs of a program, which ends well; `None` where it is not installed.
#[track_caller]
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("NOT TESTED: {program} cannot be run ({error}); it comes with the package systemd");
            return None;
        }
    };
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}", output.status);
    Some(text)
}
