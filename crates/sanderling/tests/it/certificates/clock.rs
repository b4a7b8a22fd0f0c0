//! The whole program with a clock that is ahead, and is corrected while it runs.
//!
//! The processes of the program inherit no `LD_PRELOAD`, so the library with the clock is in an `/etc/ld.so.preload`
//! that only they see.

use super::{BOTH, Setup};
use sanderling_testkit::{
    DEADLINE, TestDirectory, TestServer, free_address, run_program, run_to_end, sanderling, wait_until,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

const AHEAD_S: i64 = (90 * 24 + 1) * 3600;

/// A clock for the programs that it starts.
struct Clock {
    /// The file with the number of seconds that the clock is ahead.
    ahead: File,
}

impl Clock {
    /// A clock that is right.
    fn new(directory: &TestDirectory) -> Clock {
        let ahead = directory.argument("ahead");
        directory.write("ahead", &0i64.to_ne_bytes());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/certificates/clock.c");
        let (define, library) = (format!("-DAHEAD_FILE=\"{ahead}\""), directory.argument("clock.so"));
        let compiled = run_program("cc", "gcc", &["-shared", "-fPIC", &define, "-o", &library, source, "-ldl"]);
        assert!(compiled.status.success(), "{compiled}");
        directory.write("etc/ld.so.preload", library.as_bytes());
        Clock { ahead: File::options().write(true).open(ahead).unwrap() }
    }

    fn set_ahead(&self, seconds: i64) {
        self.ahead.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    fn start_server(&self, setup: &Setup) -> TestServer {
        let serve = setup.directory.serve_command();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("{} && exec \"$@\"", mount(&setup.directory)), "sh"]);
        command.arg(serve.get_program()).args(serve.get_args());
        TestServer::start_command(command, BOTH)
    }
}

/// The command that adds `ld.so.preload` to `/etc`.
fn mount(directory: &TestDirectory) -> String {
    format!("mount -t overlay overlay -o lowerdir={}:/etc /etc", directory.argument("etc"))
}

#[test]
fn clock_90_days_ahead_is_named_and_its_correction_needs_no_restart() {
    let mut setup = Setup::new("zone = \"example.com.zone\"\nderive = [\"tlsa\"]\n[limits]\nderived_record_ttl_s = 1");
    let port = free_address().port();
    setup
        .replace_in_config("[https]\nlisten = [\"127.0.0.1:0\"]", &format!("[https]\nlisten = [\"127.0.0.1:{port}\"]"));
    let clock = Clock::new(&setup.directory);
    if !run_program("unshare", "util-linux", &["--mount", "sh", "-c", &mount(&setup.directory)]).status.success() {
        println!("not run: this process may not mount");
        return;
    }
    setup.start_pebble();
    setup.fetch_root();
    let mut server = clock.start_server(&setup);
    setup.wait_for_page(server.encrypted("https"), "example.com");
    let chain = setup.chain();
    let check_served = |server: &mut TestServer| {
        let page = setup.page(server.encrypted("https"), "example.com");
        assert_eq!((page.as_deref(), setup.chain()), (Some("hi\n"), chain.clone()));
    };
    drop(server);

    // The server starts with a clock that is ahead: by this clock, the certificates of the site and of the authority
    // have expired.
    fs::remove_dir_all(setup.directory.path().join("state/rotations")).unwrap();
    clock.set_ahead(AHEAD_S);
    let mut server = clock.start_server(&setup);
    server.wait_for_error("check the system clock");
    let shown = || setup.directory.control("certificates").text();
    wait_until("the clock is named", || shown().contains("check the system clock"));
    assert!(shown().contains(", EXPIRED "), "{}", shown());
    check_served(&mut server);
    // The next key was published at a time that comes in 90 days.
    let rotation = setup.directory.path().join("state/rotations/example.com.json");
    wait_until("all name servers answer", || fs::read_to_string(&rotation).is_ok_and(|text| text.contains("caching")));
    let agent = setup.agent().expect("it runs");

    clock.set_ahead(0);
    server.wait_for_error("the clock was set back: rescheduling everything");
    wait_until("all is well", || {
        shown().contains(", 89 days left\n  next order in ") && !shown().contains("last error")
    });
    check_served(&mut server);
    wait_until("the next key has been in all caches", || setup.renew().code() == Some(0));
    setup.wait_for_page(server.encrypted("https"), "example.com");

    // The clock is ahead again, while the server runs.
    let chain = setup.chain();
    clock.set_ahead(AHEAD_S);
    wait_until("the clock is named", || setup.renew().errors.contains("check the system clock"));
    assert!(setup.page(server.encrypted("https"), "example.com").is_some());
    assert_eq!(setup.chain(), chain);
    clock.set_ahead(0);
    wait_until("the certificate is renewed", || setup.renew().code() == Some(0));
    assert_eq!(setup.agent().as_ref(), Some(&agent), "{}", server.errors());
}

#[test]
fn doctor_compares_the_clock_with_that_of_the_authority() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    let clock = Clock::new(&setup.directory);
    setup.start_pebble();
    let finding = |ahead_s: i64| {
        clock.set_ahead(ahead_s);
        let mut command = sanderling();
        command.env("LD_PRELOAD", setup.directory.argument("clock.so"));
        command.args(["doctor", "--json", "--config", &setup.directory.argument("sanderling.toml")]);
        let ended = run_to_end(command, DEADLINE);
        let report: serde_json::Value = serde_json::from_slice(&ended.output).expect("JSON");
        let findings = report["findings"].as_array().expect("a list").iter();
        let of_clock = findings.clone().find(|finding| finding["check"] == "clock").expect("a finding");
        ["verdict", "text", "remedy"].map(|key| of_clock[key].as_str().unwrap_or_default().to_owned()).join(": ")
    };
    let right = finding(0);
    assert!(right.starts_with("good: it agrees with https://127.0.0.1:"), "{right}");
    for (ahead_s, expected) in [(3_600, " s ahead of that of"), (-3_600, " s behind that of")] {
        let wrong = finding(ahead_s);
        assert!(wrong.starts_with("wrong: the clock is 3") && wrong.contains(expected), "{wrong}");
        assert!(wrong.ends_with("timedatectl set-ntp true`"), "{wrong}");
    }
}
