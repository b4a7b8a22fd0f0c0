//! Variables of the environment in the configuration file. Only the supervisor and the commands have them.

use sanderling_testkit::dns::{TXT, data, is_signed};
use sanderling_testkit::http::{HttpClient, Response};
use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, TestDirectory, TestServer, run_to_end, sanderling, wait_until,
};
use std::process::Command;

const MAIN: &str = "workers = 1\ninclude = [\"${SITES}/*.toml\"]\ncontrol = \"${FOLDER}/control\"\n\
                    state = \"${FOLDER}/state\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n\
                    [dns]\nresolvers = []\nlisten = [\"127.0.0.1:0\"]\n";
const DOMAIN: &str = "[domain.\"a.test\"]\nsite = \"${FOLDER}/public\"\nzone = \"${FOLDER}/a.zone\"\ndnssec = true\n\
                      headers = { \"/*\" = { \"X-Token\" = \"${TOKEN}\", \"X-Text\" = \"$${TOKEN}\" } }\n";
const ZONE: &str = "$TTL 300\n@ SOA ns1 host 1 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.1\n@ TXT \"first\"\n";

struct Instance(TestDirectory);

impl Instance {
    fn new() -> Instance {
        Instance(TestDirectory::with(&[
            ("sanderling.toml", MAIN.as_bytes()),
            ("sites/a.toml", DOMAIN.as_bytes()),
            ("public/index.html", b"hi\n"),
            ("a.zone", ZONE.as_bytes()),
        ]))
    }

    /// A command for this configuration, in an environment with the variables.
    fn command(&self, name: &str) -> Command {
        let mut command = sanderling();
        command.args([name, "--config", &self.0.argument("sanderling.toml")]);
        command.env("SITES", "sites").env("FOLDER", self.0.path()).env("TOKEN", "t = \"1\"");
        command
    }

    fn run(&self, name: &str) -> Ended {
        run_to_end(self.command(name), DEADLINE)
    }

    fn get(&self, server: &TestServer, host: &str) -> Response {
        let mut client = HttpClient::connect(server.http());
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response()
    }
}

#[test]
fn all_processes_have_the_values_of_the_supervisor() {
    let instance = Instance::new();
    assert_eq!(instance.run("check").code(), Some(0), "{}", instance.run("check"));
    let listed = instance.run("config");
    assert!(listed.text().contains("$${TOKEN}") && listed.text().contains("t = \\\"1\\\""), "{listed}");
    let server = TestServer::start_command(instance.command("serve"), ListenerCounts { http: 1, dns: 1 });
    let check_serves = || {
        let response = instance.get(&server, "a.test");
        assert_eq!((response.status, response.text()), (200, "hi\n".to_owned()), "{}", server.errors());
        assert_eq!((response.field("X-Token"), response.field("X-Text")), (Some("t = \"1\""), Some("${TOKEN}")));
    };
    check_serves();
    wait_until("agent and keeper sign the zone", || is_signed(server.dns(), "a.test"));
    // The configuration of the running processes is kept, and its zone is read again.
    instance.0.replace("a.zone", ZONE.replace("first", "second").replace("host 1 ", "host 2 ").as_bytes());
    assert_eq!(instance.run("reload").code(), Some(0), "{}", server.errors());
    let is_second = || data(server.dns(), "a.test", TXT).is_some_and(|text| text.contains("second"));
    wait_until("the zone has changed", is_second);
    check_serves();
    // A changed file may use other variables of the supervisor.
    instance.0.write("sites/b.toml", b"[domain.\"b.test\"]\nsite = \"${FOLDER}/${SITES}\"\nindex = [\"b.toml\"]\n");
    assert_eq!(instance.run("reload").code(), Some(0), "{}", server.errors());
    assert!(instance.get(&server, "b.test").text().contains("[\"b.toml\"]"), "{}", server.errors());
    assert_eq!(instance.run("upgrade").code(), Some(0), "{}", server.errors());
    check_serves();
    assert_eq!(instance.run("reload").code(), Some(0), "{}", server.errors());
}

#[test]
fn variable_that_is_not_set_is_reported_at_its_place() {
    let instance = Instance::new();
    for (variable, place) in [
        ("SITES", "sanderling.toml:2:12: the environment variable `SITES` is not set; "),
        ("TOKEN", "sites/a.toml:5:34: the environment variable `TOKEN` is not set; "),
    ] {
        for name in ["check", "serve"] {
            let mut command = instance.command(name);
            command.env_remove(variable);
            let ended = run_to_end(command, DEADLINE);
            assert!(ended.code() != Some(0) && ended.to_string().contains(place), "{ended}");
        }
    }
}
