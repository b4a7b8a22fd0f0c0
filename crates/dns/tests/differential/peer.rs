//! NSD, Knot and BIND as child processes that serve given zones.

use crate::support::question::Question;
use crate::support::reply::Reply;
use crate::support::zone_text::{name_bytes, texts_of_zones};
use sanderling_dns::{Name, Rtype};
use sanderling_testkit::free_address;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The time to wait for replies.
const REPLY_TIMEOUT: Duration = Duration::from_millis(100);
/// Rounds of questions until a program serves its zones.
const START_ROUND_COUNT_MAX: usize = 300;
/// Questions that wait for replies at the same time: their replies fit into a receive buffer.
const WINDOW: usize = 64;
/// Rounds in which the questions of a window are asked again.
const ASK_ROUND_COUNT_MAX: usize = 50;

/// A program that serves zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Nsd,
    Knot,
    Bind,
}

/// A zone file of a program.
struct ZoneFile {
    apex: String,
    path: PathBuf,
}

impl Program {
    fn command(self, config: &Path) -> Command {
        let (path, arguments): (_, &[&str]) = match self {
            Program::Nsd => ("/usr/sbin/nsd", &["-d", "-c"]),
            Program::Knot => ("/usr/sbin/knotd", &["-c"]),
            Program::Bind => ("/usr/sbin/named", &["-g", "-n", "1", "-c"]),
        };
        let mut command = Command::new(path);
        command.args(arguments).arg(config);
        command
    }

    fn config(self, address: SocketAddr, home: &Path, zones: &[ZoneFile]) -> String {
        let (ip, port, home) = (address.ip(), address.port(), home.display());
        let mut text = match self {
            Program::Nsd => format!(
                "server:\n ip-address: {ip}@{port}\n username: \"\"\n zonesdir: \"{home}\"\n database: \"\"\n \
                 zonelistfile: \"{home}/zone.list\"\n xfrdfile: \"{home}/xfrd.state\"\n xfrdir: \"{home}\"\n \
                 pidfile: \"{home}/pid\"\n server-count: 1\n minimal-responses: yes\n rrl-ratelimit: 0\n\
                 remote-control:\n control-enable: no\n"
            ),
            Program::Knot => format!(
                "server:\n  rundir: {home}\n  listen: {ip}@{port}\n  udp-workers: 1\n  tcp-workers: 1\n\
                 database:\n  storage: {home}\n\
                 template:\n  - id: default\n    zonefile-sync: -1\n    journal-content: none\nzone:\n"
            ),
            // no-auth: with the additional section, without the NS records of the zone.
            Program::Bind => format!(
                "options {{ directory \"{home}\"; listen-on port {port} {{ {ip}; }}; listen-on-v6 {{ none; }}; \
                 recursion no; pid-file \"{home}/pid\"; session-keyfile \"{home}/key\"; minimal-responses no-auth; \
                 minimal-any yes; empty-zones-enable no; check-names primary ignore; zero-no-soa-ttl no; \
                 max-udp-size 1232; edns-udp-size 1232; rrset-order {{ order fixed; }}; dnssec-validation no; }};\n\
                 controls {{ }};\n"
            ),
        };
        for ZoneFile { apex, path } in zones {
            let path = path.display();
            let line = match self {
                Program::Nsd => format!("zone:\n name: {apex}\n zonefile: \"{path}\"\n"),
                Program::Knot => format!("  - domain: {apex}\n    file: {path}\n"),
                Program::Bind => {
                    format!("zone \"{apex}\" {{ type primary; file \"{path}\"; check-integrity no; }};\n")
                }
            };
            text.push_str(&line);
        }
        text
    }
}

/// A running program. Dropping this terminates it.
pub(crate) struct Peer {
    pub(crate) program: Program,
    child: Child,
    /// The program's directory. The directory is kept with the log when a test fails.
    home: PathBuf,
    address: SocketAddr,
    socket: UdpSocket,
    /// The apexes of the zones that the program refuses to load.
    pub(crate) refused: Vec<Vec<u8>>,
}

impl Peer {
    /// Starts `program` with the zones of `text`, in a directory of its own.
    pub(crate) fn start(program: Program, text: &str) -> Peer {
        let address = free_address();
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peers-{}-{program:?}", address.port()));
        std::fs::create_dir_all(&home).expect("the directory for tests can be written to");
        let write_zone = |(index, (apex, text)): (usize, (Vec<u8>, &str))| {
            let path = home.join(format!("{index}.zone"));
            std::fs::write(&path, text).expect("the directory can be written to");
            ZoneFile { apex: Name::parse(&apex).expect("an apex").to_string(), path }
        };
        let zones: Vec<ZoneFile> = texts_of_zones(text).into_iter().enumerate().map(write_zone).collect();
        let config = home.join("config");
        std::fs::write(&config, program.config(address, &home, &zones)).expect("the directory can be written to");
        let log = std::fs::File::create(home.join("log")).expect("the directory can be written to");
        let output = log.try_clone().expect("a file can be shared");
        let child = program.command(&config).stdout(output).stderr(log).stdin(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{program:?} must be installed: {error}"));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        socket.set_read_timeout(Some(REPLY_TIMEOUT)).expect("the timeout is above zero");
        let mut peer = Peer { program, child, home, address, socket, refused: vec![] };
        peer.wait_for(&zones);
        peer
    }

    /// Asks until the program serves its last zone, and then for all of them.
    fn wait_for(&mut self, zones: &[ZoneFile]) {
        let soas: Vec<Question> = zones.iter().map(|zone| Question::new(name_bytes(&zone.apex), Rtype::SOA)).collect();
        let mut served_count = 0;
        for _ in 0..START_ROUND_COUNT_MAX {
            if self.child.try_wait().expect("it is our child").is_some() {
                break;
            }
            let Some(replies) = self.try_ask_all(&soas, 1) else { continue };
            let is_refused = |(_, reply): &(&Question, &Reply)| reply.rcode != 0 || reply.sections[0].is_empty();
            let refused: Vec<_> =
                soas.iter().zip(&replies).filter(is_refused).map(|(soa, _)| soa.name.clone()).collect();
            // Zones are loaded one after the other: the program is ready when their number stays.
            let is_ready = refused.is_empty() || served_count > 0 && served_count == soas.len() - refused.len();
            served_count = soas.len() - refused.len();
            if is_ready {
                self.refused = refused;
                return;
            }
            std::thread::park_timeout(5 * REPLY_TIMEOUT);
        }
        let log = std::fs::read_to_string(self.home.join("log")).expect("the log is there");
        panic!("{:?} does not serve its zones:\n{log}", self.program);
    }

    /// Whether a zone that is refused takes part in the reply `ours` to `question`.
    pub(crate) fn lacks_zone_of(&self, question: &Question, ours: &Reply) -> bool {
        let records = ours.sections.iter().flatten();
        let targets = records.clone().filter(|record| record.rtype == Rtype::CNAME).map(|record| &record.rdata);
        let mut names = [&question.name].into_iter().chain(records.map(|record| &record.owner)).chain(targets);
        let name = |bytes| Name::parse(bytes).expect("a name");
        names.any(|bytes| self.refused.iter().any(|apex| name(bytes).is_at_or_below(name(apex))))
    }

    /// The replies to `questions`, in their order.
    pub(crate) fn ask_all(&self, questions: &[Question]) -> Vec<Reply> {
        let replies = self.try_ask_all(questions, ASK_ROUND_COUNT_MAX);
        replies.unwrap_or_else(|| panic!("{:?} does not answer", self.program))
    }

    fn try_ask_all(&self, questions: &[Question], round_count_max: usize) -> Option<Vec<Reply>> {
        let mut replies = vec![];
        for window in questions.chunks(WINDOW) {
            let mut found: Vec<Option<Reply>> = vec![None; window.len()];
            for _ in 0..round_count_max {
                for (id, question) in window.iter().enumerate().filter(|(id, _)| found[*id].is_none()) {
                    let mut message = question.message();
                    message[..2].copy_from_slice(&(id as u16).to_be_bytes());
                    self.socket.send_to(&message, self.address).expect("loopback takes a datagram");
                }
                self.receive(window, &mut found);
                if found.iter().all(Option::is_some) {
                    break;
                }
            }
            for reply in found {
                replies.push(reply?);
            }
        }
        Some(replies)
    }

    /// Takes replies until all questions of the window have one, or none arrives in time.
    fn receive(&self, window: &[Question], found: &mut [Option<Reply>]) {
        let mut bytes = [0; 65_535];
        while found.iter().any(Option::is_none) {
            let Ok(length) = self.socket.recv(&mut bytes) else { return };
            let reply = Reply::parse(&bytes[..length]).unwrap_or_else(|fault| panic!("{:?}: {fault}", self.program));
            let index = usize::from(reply.id);
            // Ignores a late reply to an earlier question.
            let is_ours = |(name, rtype, _): &(Vec<u8>, Rtype, u16)| {
                window.get(index).is_some_and(|question| *name == question.name && *rtype == question.rtype)
            };
            if reply.question.as_ref().is_some_and(is_ours) {
                found[index] = Some(reply);
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGTERM, so that the program terminates its child processes.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.home);
        }
    }
}
