//! The conditions of authorities before they issue: all name servers answer, CAA records permit the authority, and the
//! operator has an account.

use super::{DEADLINE, Setup};
use sanderling_testkit::dns::{TXT, data, serial};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, free_address_at, wait_until};
use std::fs;
use std::net::Ipv4Addr;
use std::time::Instant;

impl Setup {
    /// Replaces `from` in the configuration by `to`.
    fn edit_config(&self, from: &str, to: &str) {
        let config = fs::read_to_string(self.directory.path().join("sanderling.toml")).unwrap();
        assert!(config.contains(from), "{config}");
        self.directory.write("sanderling.toml", config.replace(from, to).as_bytes());
    }

    /// Adds `lines` to the zone.
    fn add_to_zone(&self, lines: &str) {
        let zone = fs::read_to_string(self.directory.path().join("example.com.zone")).unwrap();
        self.directory.write("example.com.zone", format!("{zone}{lines}").as_bytes());
    }

    /// Requests the certificate until it is issued; it may have failed before.
    fn renew_until_issued(&self) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let renewed = self.directory.control_with("renew", &["example.com"]);
            if renewed.code() == Some(0) {
                return;
            }
            assert!(Instant::now() < deadline, "{renewed}");
        }
    }
}

/// A server of the zone `text` at an address of its own.
fn other_name_server(directory: &TestDirectory, text: &str) -> TestServer {
    directory.write("a.zone", text.as_bytes());
    let config = "workers = 1\n[dns]\nlisten = [\"127.0.0.2:0\"]\n[domain.\"example.com\"]\nzone = \"a.zone\"\n";
    directory.write("sanderling.toml", config.as_bytes());
    TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
}

#[test]
fn name_server_without_the_record_is_named_and_the_authority_is_not_asked_before_it_has_it() {
    let (directory, zone) =
        (TestDirectory::new(), "@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\n@ 60 NS ns2\nns 60 A 127.0.0.1\n");
    let other = other_name_server(&directory, zone);
    let address = other.dns();
    let secondaries = format!("secondaries = [{{ address = \"{address}\" }}]");
    // A wildcard is not validated over HTTP.
    let domain = format!("zone = \"example.com.zone\"\n{secondaries}\naliases = [\"*.example.com\"]\n");
    let mut setup = Setup::new(&format!("{domain}[limits]\nname_servers_timeout = \"4s\""));
    setup.add_to_zone("@ 60 NS ns2\nns2 60 A 127.0.0.2\n");
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let expected = format!(
        "certificate example.com: the name server ns2.example.com ({address}) does not serve the new TXT record at \
         _acme-challenge.example.com: it answers NXDOMAIN; delegate this name to this server alone, or wait"
    );
    let progress = "in progress; it waits until all name servers of the zone answer the challenges";
    let shown = || setup.directory.control("certificates").text();
    wait_until("the wait is shown", || shown().contains(progress));
    server.wait_for_error(&expected);
    wait_until("the error is shown", || shown().contains("does not serve the new TXT record"));
    assert!(!setup.pebble_log().contains("Starting validation"), "{}", setup.pebble_log());
    // The other server delegates the name to this server, as the message demands.
    directory.write("a.zone", format!("{zone}_acme-challenge 60 NS ns\n").as_bytes());
    let reloaded = directory.control("reload");
    assert!(reloaded.code() == Some(0), "{reloaded}");
    setup.renew_until_issued();
    setup.wait_for_page(server.encrypted("https"), "any.example.com");
    drop(other);
}

#[test]
fn caa_records_that_forbid_it_are_named_before_the_authority_is_asked() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    setup.edit_config("root = \"pebble.pem\"", "root = \"pebble.pem\", caa = \"ca.example\"");
    setup.add_to_zone("@ 60 CAA 0 issue \"other.example\"\n");
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    server.wait_for_error(
        "may not issue: the CAA records at example.com forbid it for example.com: there is no 0 issue \"ca.example\"; \
         add it to the zone, or remove the others",
    );
    assert!(!setup.pebble_log().contains("new-order"), "{}", setup.pebble_log());
    let reload_with = |record: &str| {
        setup.add_to_zone(&format!("@ 60 CAA 0 issue \"ca.example{record}\"\n"));
        let reloaded = setup.directory.control("reload");
        assert!(reloaded.code() == Some(0), "{reloaded}");
    };
    reload_with("; accounturi=https://ca.example/acct/1");
    let expected = "allow ca.example to issue only for another account: `accounturi` is not https://127.0.0.1:";
    wait_until("the account is compared", || setup.renew().errors.contains(expected));
    assert!(!setup.pebble_log().contains("new-order"), "{}", setup.pebble_log());
    reload_with("");
    setup.renew_until_issued();
    setup.wait_for_page(server.encrypted("https"), "example.com");
}

#[test]
fn name_that_leads_elsewhere_is_reported_with_what_to_do() {
    let mut setup = Setup::new("");
    // The agent does not take a folder's zone for the domain's zone.
    setup.edit_config("[dns]\n", "[dns]\nzones = \"zones/*.zone\"\n");
    let zone = fs::read_to_string(setup.directory.path().join("example.com.zone")).unwrap();
    let elsewhere = zone.replace("@ 60 A 127.0.0.1", "@ 60 A 127.0.0.9");
    assert_ne!(zone, elsewhere);
    setup.directory.write("zones/example.com.zone", elsewhere.as_bytes());
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    server.wait_for_error("make port 80 of this name reach this server, or serve the zone of the name here");
    setup.directory.replace("zones/example.com.zone", zone.as_bytes());
    let reloaded = setup.directory.control("reload");
    assert!(reloaded.code() == Some(0), "{reloaded}");
    setup.renew_until_issued();
    setup.wait_for_page(server.encrypted("https"), "example.com");
}

#[test]
fn account_of_the_operator_is_proven_and_the_next_authority_is_asked_after_failures() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    let pebble = fs::read_to_string(setup.directory.path().join("pebble.json")).unwrap();
    let key = "c2VjcmV0IG9mIHRoZSBhY2NvdW50OiB0aGlydHktdHdv";
    let required = format!("\"externalAccountBindingRequired\":true,\"externalAccountMACKeys\":{{\"id-1\":\"{key}\"}}");
    let pebble = pebble.replace("\"externalAccountBindingRequired\":false", &required);
    setup.directory.write("pebble.json", pebble.as_bytes());
    // Nobody listens at the address of the first one.
    setup.edit_config(
        "authorities = [",
        "authorities = [{ directory = \"https://127.0.0.1:9/dir\", root = \"pebble.pem\" }, ",
    );
    let account = "external_account = { id = \"id-1\", key_file = \"account.key\" }";
    let root = "root = \"pebble.pem\" }]";
    setup.edit_config(root, &root.replace(" }]", &format!(", {account} }}]")));
    setup.directory.write("account.key", b"not the key!\n");
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let renew = || setup.directory.control_with("renew", &["example.com"]).to_string();
    wait_until("the next authority is asked", || renew().contains("does not have a key of an external account"));
    assert!(server.errors().contains("requesting it from 127.0.0.1:9\n"), "{}", server.errors());
    setup.directory.write("account.key", b"bm90IHRoZSBrZXkgb2YgdGhlIGFjY291bnQgYXQgYWxs\n");
    let reloaded = setup.directory.control("reload");
    assert!(reloaded.code() == Some(0), "{reloaded}");
    wait_until("the authority refuses the key", || {
        renew().contains("; check `contact` and `external_account` in [certificates]")
    });
    setup.directory.write("account.key", format!("{key}\n").as_bytes());
    let reloaded = setup.directory.control("reload");
    assert!(reloaded.code() == Some(0), "{reloaded}");
    setup.renew_until_issued();
    setup.wait_for_page(server.encrypted("https"), "example.com");
}

#[test]
fn profile_of_the_authority_determines_the_certificate() {
    let mut setup = Setup::new("zone = \"example.com.zone\"");
    let pebble = fs::read_to_string(setup.directory.path().join("pebble.json")).unwrap();
    let profile = |days: u64| format!("{{\"description\":\"\",\"validityPeriod\":{}}}", days * 86_400);
    let profiles = format!("\"profiles\":{{\"default\":{},\"shortlived\":{}}},", profile(90), profile(6));
    let pebble = pebble.replace("\"ocspResponderURL\"", &format!("{profiles}\"ocspResponderURL\""));
    setup.directory.write("pebble.json", pebble.as_bytes());
    setup.edit_config("root = \"pebble.pem\"", "root = \"pebble.pem\", profile = \"short\"");
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    server.wait_for_error(
        "the authority has no profile \"short\"; it offers default, shortlived; correct `profile` of this authority",
    );
    assert!(server.errors().contains("; `sanderling renew example.com` retries now"), "{}", server.errors());
    setup.edit_config("\"short\"", "\"shortlived\"");
    let reloaded = setup.directory.control("reload");
    assert!(reloaded.code() == Some(0), "{reloaded}");
    // Earlier failures with the profile are forgotten: the agent does not wait for a minute.
    setup.wait_for_page(server.encrypted("https"), "example.com");
    let shown = setup.directory.control("certificates").text();
    assert!(shown.contains(", 5 days left"), "{shown}");
}

#[test]
fn name_that_is_delegated_elsewhere_is_reported_before_the_authority_is_asked() {
    let mut setup = Setup::new("zone = \"example.com.zone\"\naliases = [\"www.sub.example.com\"]");
    setup.add_to_zone("sub 60 NS ns.other.test.\n");
    setup.start_pebble();
    let server = setup.start_server();
    server.wait_for_error(
        "the zone example.com delegates www.sub.example.com to other name servers, so this server cannot validate it; \
                           ",
    );
    assert!(!setup.pebble_log().contains("new-order"), "{}", setup.pebble_log());
}

#[test]
fn secondary_servers_get_the_record_by_a_transfer_before_the_authority_is_asked() {
    let directory = TestDirectory::new();
    let other = free_address_at(Ipv4Addr::new(127, 0, 0, 2));
    let domain = format!(
        "zone = \"example.com.zone\"\nsecondaries = [{{ address = \"{other}\" }}]\n\
         transfer_allow = [{{ network = \"127.0.0.0/8\" }}]\naliases = [\"*.example.com\"]\n"
    );
    let mut setup = Setup::new(&domain);
    setup.add_to_zone("@ 60 NS ns2\nns2 60 A 127.0.0.2\n");
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"{other}\"]\n[domain.\"example.com\"]\n\
         primaries = [{{ address = \"127.0.0.1:{}\" }}]\n",
        setup.dns_port
    );
    directory.write("sanderling.toml", config.as_bytes());
    let secondary = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    setup.wait_for_page(server.encrypted("https"), "any.example.com");
    assert!(!server.errors().contains("certificate example.com: the name server"), "{}", server.errors());
    // The record is removed there as well.
    let challenge = || data(other, "_acme-challenge.example.com", TXT);
    wait_until("the record is removed", || challenge().is_some_and(|text| text.is_empty()));
    wait_until("the secondary is up to date", || serial(other, "example.com") == serial(server.dns(), "example.com"));
    assert!(serial(other, "example.com") > Some(1));
    drop(secondary);
}
