//! A running program at an address of its own.

use super::files::write_files;
use sanderling_config::{AgentConfig, Config, ConfigSource, KeeperConfig};
use sanderling_testkit::{Ended, ListenerCounts, TestDirectory, TestServer, children_with, free_address, run_program};
use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The ports in the configurations at which the program listens. Each placeholder stands for a free port.
pub(super) const PORTS: &[u16] = &[10_080, 10_443, 10_053, 10_853, 10_090, 20_080, 20_443, 20_053, 20_853, 20_090];
/// The ports of other servers: a primary server, and an unused port.
pub(super) const PRIMARY: u16 = 10_054;
pub(super) const NOBODY: [u16; 4] = [10_055, 10_056, 10_998, 10_999];

pub(super) const PROCESSES: [&str; 3] = ["internal-server-process", "internal-agent", "internal-keeper"];

/// The free ports by those in the configurations.
pub(super) fn free_ports() -> Arc<HashMap<u16, u16>> {
    let all = PORTS.iter().copied().chain([PRIMARY]).chain(NOBODY);
    Arc::new(all.map(|placeholder| (placeholder, free_address().port())).collect())
}

pub(super) struct Instance {
    // Before the directory: the program ends first.
    pub(super) server: TestServer,
    pub(super) place: Place,
    config: Config,
}

/// The place where a program runs.
pub(super) struct Place {
    pub(super) directory: TestDirectory,
    pub(super) address: Ipv4Addr,
    ports: Arc<HashMap<u16, u16>>,
}

impl Place {
    pub(super) fn port(&self, placeholder: u16) -> u16 {
        self.ports[&placeholder]
    }
}

/// The expected effect of a reload on each of `PROCESSES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    Unchanged,
    Replaced,
    Started,
    Ended,
}

impl Instance {
    /// The program with files of its own.
    pub(super) fn start(address: Ipv4Addr, ports: &Arc<HashMap<u16, u16>>, text: &str) -> Instance {
        let directory = TestDirectory::new();
        write_files(&directory);
        Instance::start_in(directory, address, ports, text)
    }

    /// Another program at `address` with the files and the state of this one.
    pub(super) fn fresh(&self, address: Ipv4Addr, text: &str) -> Instance {
        let directory = TestDirectory::new();
        let (from, to) = (self.place.directory.argument("."), directory.argument("."));
        // The agent may replace a file that is being copied.
        let script =
            "until cp -a \"$1/.\" \"$2\"; do :; done; cd \"$2\" && rm -rf control* other.sock logs/* && chmod 755 .";
        let copied = run_program("sh", "dash", &["-c", script, "sh", &from, &to]);
        assert!(copied.status.success(), "{copied}");
        Instance::start_in(directory, address, &self.place.ports, text)
    }

    fn start_in(directory: TestDirectory, address: Ipv4Addr, ports: &Arc<HashMap<u16, u16>>, text: &str) -> Instance {
        directory.write("sanderling.toml", at(address, ports, text).as_bytes());
        let config = read_config(&directory);
        let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 1 });
        Instance { server, place: Place { directory, address, ports: Arc::clone(ports) }, config }
    }

    /// Stops the program, and starts it with `text`.
    pub(super) fn restarted(self, text: &str) -> Instance {
        let Place { directory, address, ports } = self.place;
        self.server.stop();
        Instance::start_in(directory, address, &ports, text)
    }

    /// Reloads `text`. The logs begin anew.
    pub(super) fn reload(&mut self, text: &str) -> (Ended, [Effect; 3]) {
        self.place.directory.replace("sanderling.toml", at(self.place.address, &self.place.ports, text).as_bytes());
        let mut ended = self.place.directory.control("reload");
        // The zone guard treats lost signatures like lost records.
        if let Some(zone) = ended.errors.split("--force-zone ").nth(1).and_then(|rest| rest.split('`').next()) {
            ended = self.place.directory.control_with("reload", &["--force-zone", zone]);
        }
        let (next, before) = (read_config(&self.place.directory), &self.config);
        let is_by_sandbox = ended.text().contains("its sandbox does not allow");
        let effects = [
            effect(true, true, next.needs_new_process(before).is_some() || is_by_sandbox),
            effect(before.needs_agent(), next.needs_agent(), AgentConfig::from(before) != AgentConfig::from(&next)),
            effect(before.has_keeper(), next.has_keeper(), KeeperConfig::from(before) != KeeperConfig::from(&next)),
        ];
        self.config = next;
        for entry in fs::read_dir(self.place.directory.path().join("logs")).expect("listed") {
            fs::remove_file(entry.expect("an entry").path()).expect("ours");
        }
        self.place.directory.control("reopen");
        (ended, effects)
    }

    /// The process of each kind that was started last.
    pub(super) fn processes(&self) -> [Option<u32>; 3] {
        PROCESSES.map(|command| children_with(self.server.process_id(), command).last().copied())
    }
}

fn effect(is_needed_before: bool, is_needed: bool, differs: bool) -> Effect {
    match (is_needed_before, is_needed) {
        (true, true) if differs => Effect::Replaced,
        (false, true) => Effect::Started,
        (true, false) => Effect::Ended,
        _ => Effect::Unchanged,
    }
}

/// The effect on a process.
pub(super) fn effect_between(before: Option<u32>, after: Option<u32>) -> Effect {
    match (before, after) {
        (None, Some(_)) => Effect::Started,
        (Some(_), None) => Effect::Ended,
        (before, after) if before == after => Effect::Unchanged,
        _ => Effect::Replaced,
    }
}

fn read_config(directory: &TestDirectory) -> Config {
    let source = ConfigSource::File(directory.path().join("sanderling.toml"));
    let read = source.read().and_then(|text| source.parse(&text));
    read.unwrap_or_else(|problems| panic!("{:?}", problems.iter().map(ToString::to_string).collect::<Vec<_>>()))
}

/// The configuration of a program at `address`.
fn at(address: Ipv4Addr, ports: &HashMap<u16, u16>, text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let placeholder: u16 = part.get(..5).and_then(|port| port.parse().ok()).expect("a port of five digits");
        let host = if PORTS.contains(&placeholder) { address } else { Ipv4Addr::LOCALHOST };
        result += &format!("{host}:{}{}", ports[&placeholder], &part[5..]);
    }
    result
}
