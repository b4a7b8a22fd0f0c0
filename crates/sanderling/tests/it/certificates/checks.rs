//! The output of `check` about automatic certificates, before the server would request them.

use super::Setup;
use sanderling_testkit::{TestDirectory, run, wait_until};

const ZONE: &[u8] = b"@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 127.0.0.1\n@ 60 A 127.0.0.1\n";

/// The lines of `check` about a configuration with this in `[certificates]` and `[domain."example.com"]`, and whether
/// it fails.
fn checked(directory: &TestDirectory, authorities: &str, domain: &str) -> (Vec<String>, bool) {
    let text = format!(
        "state = \"state\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\nlisten = [\"127.0.0.1:8443\"]\n\
         [certificates]\nagree_to_terms = true\n{authorities}\n[domain.\"example.com\"]\nsite = \"public\"\n{domain}\n"
    );
    directory.write("sanderling.toml", text.as_bytes());
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    let lines = ended.errors.lines().map(|line| line.replace(&directory.argument(""), "")).collect();
    (lines, ended.code() != Some(0))
}

#[test]
fn what_no_authority_would_issue_is_an_error_of_the_check() {
    let directory = TestDirectory::with(&[("public/index.html", b"<!doctype html>"), ("example.com.zone", ZONE)]);
    directory.write("empty.pem", b"no certificate\n");
    let check = |authorities: &str, domain: &str, expected: Option<&str>| {
        let (lines, has_failed) = checked(&directory, authorities, domain);
        assert_eq!(has_failed, expected.is_some(), "{lines:?}");
        assert!(
            expected.is_none_or(|expected| lines.iter().any(|line| line.contains(expected))),
            "{expected:?} {lines:?}"
        );
    };
    let wildcard = "aliases = [\"*.example.com\"]";
    check("", "", None);
    check("", &format!("zone = \"example.com.zone\"\n{wildcard}"), None);
    let no_zone = "*.example.com can only be validated with a record in its zone, but no domain here has that zone; \
                   add a domain with `zone`";
    check("", wildcard, Some(no_zone));
    let with_root =
        |file: &str| format!("authorities = [{{ directory = \"https://ca.example/dir\", root = \"{file}\" }}]");
    check(&with_root("none.pem"), "", Some("sanderling.toml:8:30: the root certificate `none.pem` does not exist"));
    check(&with_root("empty.pem"), "", Some("the root `empty.pem` of the authority ca.example has no certificate"));
    check(
        "",
        "on_renew = [\"/usr/bin/no-such-program\"]",
        Some("the program `/usr/bin/no-such-program` does not exist"),
    );
    check("", "on_renew = [\"/etc/passwd\"]", Some("`/etc/passwd` is not a program; specify an executable file"));
    check("", "on_renew = [\"/bin/sh\"]", None);
}

#[test]
fn derived_records_without_effect_get_a_warning_of_the_check() {
    let directory = TestDirectory::with(&[("public/index.html", b"<!doctype html>"), ("example.com.zone", ZONE)]);
    let warnings =
        |domain: &str| checked(&directory, "", &format!("zone = \"example.com.zone\"\n{domain}")).0.join("\n");
    let unsigned =
        "warning: the zone example.com is unsigned: clients ignore TLSA records without DNSSEC; write dnssec = true";
    assert!(warnings("derive = [\"tlsa\"]").contains(unsigned), "{}", warnings("derive = [\"tlsa\"]"));
    let signed = warnings("derive = [\"tlsa\"]\ndnssec = true");
    assert!(!signed.contains("not signed"), "{signed}");
    let no_mx = "warning: cannot derive a policy for mail servers for example.com, which has no MX record; add one";
    assert!(warnings("derive = [\"mta-sts\"]").contains(no_mx), "{}", warnings("derive = [\"mta-sts\"]"));
    directory.write("example.com.zone", &[ZONE, b"@ 60 MX 10 mail\nmail 60 A 127.0.0.1\n"].concat());
    let with_mx = warnings("derive = [\"mta-sts\"]");
    assert!(!with_mx.contains("no MX record"), "{with_mx}");
}

#[test]
fn check_shows_a_certificate_that_was_issued() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    let summary = || run(&["check", "--config", &setup.directory.argument("sanderling.toml")]).text();
    assert!(
        summary().contains("certificate of example.com: automatic; see `sanderling certificates`\n"),
        "{}",
        summary()
    );
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    let summary = || run(&["check", "--config", &setup.directory.argument("sanderling.toml")]).text();
    wait_until("the certificate is shown", || summary().contains(" of example.com: ECDSA, issued by Pebble"));
}
