//! Certificates for other programs, and copies: `on_renew`, `export`, `backup`, and `revoke`.

use super::{BOTH, DEADLINE, Setup};
use sanderling_testkit::{Ended, TestServer, curl, run_program, run_to_end, sanderling, wait_until};
use std::fs;
use std::os::unix::fs::MetadataExt;

impl Setup {
    /// Runs a command that needs no server.
    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = sanderling();
        command.args(arguments).args(["--config", &self.directory.argument("sanderling.toml")]);
        run_to_end(command, DEADLINE)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.directory.path().join(file)).unwrap_or_default()
    }
}

#[test]
fn command_of_a_domain_runs_after_each_certificate_without_descriptors_of_the_server() {
    let script = "echo of $SANDERLING_DOMAIN; echo wrong >&2; ls /proc/self/fd | xargs > $0/fds; env > $0/env; \
                  cp $SANDERLING_CHAIN $0/chain; test ! -e $0/fail || exit 3; test ! -e $0/hang || sleep 1000";
    let setup = Setup::new("zone = \"example.com.zone\"");
    let folder = setup.directory.path().join("output");
    fs::create_dir(&folder).unwrap();
    let command = format!("on_renew = [\"/bin/sh\", \"-c\", \"{script}\", \"{}\"]\n", folder.display());
    let config = setup
        .read("sanderling.toml")
        .replace("zone = \"example.com.zone\"\n", &format!("zone = \"example.com.zone\"\n{command}"));
    setup.directory.write(
        "sanderling.toml",
        format!("{config}[limits]\non_renew_timeout = \"1s\"\non_renew_interval = \"1s\"\n").as_bytes(),
    );
    let mut setup = setup;
    setup.start_pebble();
    let server = setup.start_server();
    server.wait_for_error("`on_renew` of example.com succeeded");
    let errors = server.errors();
    assert!(errors.contains("`on_renew` of example.com: of example.com\n"), "{errors}");
    assert!(errors.contains("`on_renew` of example.com: wrong\n"), "{errors}");
    // The fourth is the directory that `ls` reads.
    assert_eq!(setup.read("output/fds").trim(), "0 1 2 3");
    let environment = setup.read("output/env");
    assert!(environment.contains("SANDERLING_KEY=/") && !environment.contains("LISTEN_FDS"), "{environment}");
    assert_eq!(setup.read("output/chain"), setup.read("state/certificates/example.com/fullchain.pem"));
    fs::write(folder.join("fail"), "").unwrap();
    assert_eq!(setup.directory.control_with("renew", &["example.com"]).code(), Some(0));
    server.wait_for_error("`on_renew` of example.com failed: exit status: 3; run it by hand");
    fs::rename(folder.join("fail"), folder.join("hang")).unwrap();
    assert_eq!(setup.directory.control_with("renew", &["example.com"]).code(), Some(0));
    server.wait_for_error("`on_renew` of example.com did not end within 1 s; killed");
    wait_until("the status is logged", || server.errors().contains("failed: signal: 9"));
}

#[test]
fn certificates_are_exported_copied_and_revoked() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    let target = setup.directory.path().join("target");
    fs::create_dir(&target).unwrap();
    let exported = setup.run(&["export", "example.com", &setup.directory.argument("target")]);
    assert!(exported.code() == Some(0), "{exported}");
    let [chain, key] =
        ["fullchain.pem", "privkey.pem"].map(|file| setup.read(&format!("state/certificates/example.com/{file}")));
    assert!(key.contains("PRIVATE KEY") && chain.contains("CERTIFICATE"));
    assert_eq!(setup.read("target/combined.pem"), format!("{key}{chain}"));
    assert_eq!(fs::metadata(target.join("combined.pem")).unwrap().mode() & 0o777, 0o600);
    let missing = setup.run(&["export", "other.example", &setup.directory.argument("target")]);
    assert!(missing.code() == Some(1) && missing.errors.contains("has no certificate of other.example"), "{missing}");
    let copied = setup.run(&["backup", &setup.directory.argument("copy")]);
    assert!(copied.code() == Some(0), "{copied}");
    assert_eq!(setup.read("copy/certificates/example.com/fullchain.pem"), chain);
    let again = setup.run(&["backup", &setup.directory.argument("copy")]);
    assert!(again.code() == Some(1) && again.errors.contains("specify a folder that does not exist"), "{again}");
    // A server with the copy has the certificate, and requests none; so does a server that gets the folder from the
    // service manager.
    drop(server);
    if sanderling_os::process::effective_uid() == 0 {
        let owned = run_program("chown", "coreutils", &["-R", "sanderling", &setup.directory.argument("copy")]);
        assert!(owned.status.success(), "{owned}");
    }
    let mut with_copy = setup.directory.serve_command();
    with_copy.args(["--state", &setup.directory.argument("copy")]);
    let mut server = TestServer::start_command(with_copy, BOTH);
    setup.wait_for_page(server.encrypted("https"), "example.com");
    drop(server);
    setup.replace_in_config("state = \"state\"\n", "");
    let mut as_service = setup.directory.serve_command();
    as_service.env("STATE_DIRECTORY", setup.directory.argument("state"));
    let mut server = TestServer::start_command(as_service, BOTH);
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    assert_eq!(setup.order_count(), 1);
    // The revoked certificate has a successor.
    let revoked = setup.directory.control_with("revoke", &["example.com", "--key-compromised"]);
    assert!(revoked.code() == Some(0) && revoked.text().contains("revoked the previous certificate"), "{revoked}");
    let old = setup.directory.argument("copy/certificates/example.com/fullchain.pem");
    let serial = run_program("openssl", "openssl", &["x509", "-noout", "-serial", "-in", &old]);
    let serial = serial.text().trim().replace("serial=", "").to_lowercase();
    let url = format!("https://127.0.0.1:{}/cert-status-by-serial/{serial}", setup.management_port);
    let status = curl(&["-sSk", &url]).text();
    assert!(status.contains("\"Status\": \"Revoked\"") && status.contains("\"Reason\": 1"), "{status}");
    assert_ne!(setup.read("state/certificates/example.com/privkey.pem"), key);
    setup.wait_for_page(https, "example.com");
}
