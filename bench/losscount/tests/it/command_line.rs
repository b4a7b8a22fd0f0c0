//! The program as people and scripts use it: options, exit status, table and JSON.

use crate::answers::{CONTENT, http};
use crate::fake_streams::{Deed, FakeStreams, Framing, refusing_port};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn losscount(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_losscount")).args(arguments).output().expect("the program is built")
}

/// A file of the tests' own folder; each test writes its own.
fn file(name: &str, content: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("the folder may be written");
    path.into_os_string().into_string().expect("the path is UTF-8")
}

#[test]
fn nothing_lost_is_status_0_and_a_table() {
    let server = FakeStreams::start(Framing::Http, |_, _| Deed::Send(http(CONTENT)));
    let (address, page) = (server.address.to_string(), file("right", CONTENT));
    let rates = ["--new-per-s", "0", "--kept-per-s", "100", "--seconds", "0.2"];
    let output = losscount(&[&["--http", &address, "--path", "/", "--expect", &page], rates.as_slice()].concat());
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains("http-kept            20        20       0"), "{table}");
    assert!(table.contains("0 lost of 20"), "{table}");
}

#[test]
fn a_loss_is_status_1_and_is_in_the_json() {
    let (_reserved, address) = refusing_port();
    let (address, page) = (address.to_string(), file("lost", CONTENT));
    let rates = ["--new-per-s", "50", "--kept-per-s", "50", "--seconds", "0.2", "--seed", "9", "--json"];
    let output = losscount(&[&["--http", &address, "--path", "/", "--expect", &page], rates.as_slice()].concat());
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&json["lost"], &json["seed"]), (&20.into(), &9.into()), "{json}");
    let kept = &json["kinds"]["http-kept"];
    assert_eq!((&kept["sent"], &kept["ok"], &kept["lost_by_cause"]["refused"]), (&10.into(), &0.into(), &10.into()));
    assert_eq!(kept["first_losses"].as_array().map(Vec::len), Some(10));
    assert_eq!(kept["first_losses"][0]["cause"], "refused");
}

#[test]
fn the_end_of_standard_input_ends_a_load_that_follows_it() {
    let server = FakeStreams::start(Framing::Http, |_, _| Deed::Send(http(CONTENT)));
    let (address, page) = (server.address.to_string(), file("followed", CONTENT));
    let mut command = Command::new(env!("CARGO_BIN_EXE_losscount"));
    command.args(["--http", &address, "--path", "/", "--expect", &page, "--new-per-s", "0", "--kept-per-s", "100"]);
    // It would run for an hour, were its input not empty.
    command.args(["--seconds", "3600", "--until-input-ends", "--json"]).stdin(Stdio::null());
    let output = command.output().expect("the program is built");
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert!(json["sent"].as_u64().is_some_and(|sent_count| sent_count < 360_000), "{json}");
}

#[test]
fn what_is_missing_or_wrong_is_status_2_and_a_remedy() {
    #[track_caller]
    fn check(arguments: &[&str], remedy: &str) {
        let output = losscount(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(error.contains(remedy), "{error}");
    }
    let names = file("names", b"www.example.com A\nwww.example.com\n");
    let page = file("page", CONTENT);
    check(&[], "--seconds 10");
    check(&["--seconds", "1"], "--http ADDR:PORT");
    check(&["--seconds", "-1"], "--seconds -1");
    check(&["--seconds"], "wants a value");
    check(&["--loud", "1"], "--loud is no option");
    check(&["--seconds", "1", "--http", "127.0.0.1:9"], "--path");
    check(&["--seconds", "1", "--http", "127.0.0.1:9", "--path", "/"], "--expect FILE");
    check(&["--seconds", "1", "--http", "127.0.0.1:9", "--path", "/", "--expect", "/nowhere"], "read /nowhere");
    check(&["--seconds", "1", "--http", "127.0.0.1:9", "--path", "x", "--expect", &page], "begins with /");
    check(&["--seconds", "1", "--dns", "127.0.0.1:9"], "--names FILE");
    check(&["--seconds", "1", "--dns", "127.0.0.1:9", "--names", &names], "names: line 2:");
    check(&["--dns-content", "some"], "as-before or any");
    check(&["--dns-idle-notice", "never"], "at-once or at-next-request");
    let (_reserved, refusing) = refusing_port();
    let names = file("right-names", b"www.example.com A\n");
    check(&["--seconds", "1", "--dns", &refusing.to_string(), "--names", &names], "is the server up");
}
