//! A row for each message, and the lies that are made of it.

use super::Role;
use sanderling_ipc::{Command, Event};
use sanderling_os::memfd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::seqpacket::SeqpacketSocket;
use serde_json::{Value, json};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use Role::{Agent, Keeper, ServerProcess};

/// An event as JSON, the kinds of its descriptors, and the processes that send it to the supervisor.
pub(super) struct Row {
    json: &'static str,
    descriptors: &'static [(&'static str, Content)],
    pub(super) senders: &'static [Role],
}

/// The content of a descriptor's sealed memory.
#[derive(Clone, Copy)]
enum Content {
    Json(&'static str),
    Bytes(&'static [u8]),
    /// A segment of kept zones.
    Zones,
    /// A zone and what is stored of it, as journals are.
    Journals,
    /// An end of a socket pair.
    Socket,
}

/// The difference between an event and an honest event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// Not at all; but nobody has asked for it.
    Honest,
    /// All numbers are 0, and all names empty.
    Zero,
    /// All numbers are as large as 32 bits allow, and all names long.
    Maximum32,
    /// All numbers are as large as 64 bits allow.
    Maximum,
    /// All names are foreign ones, with characters that have an effect on a terminal.
    Foreign,
    /// There are no descriptors.
    WithoutDescriptors,
    /// The sender can still change the memory of the descriptors.
    Unsealed,
    /// The memory of the descriptors has something else.
    Junk,
}

impl Lie {
    pub(super) const ALL: &'static [Lie] = &[
        Lie::Honest,
        Lie::Zero,
        Lie::Maximum32,
        Lie::Maximum,
        Lie::Foreign,
        Lie::WithoutDescriptors,
        Lie::Unsealed,
        Lie::Junk,
    ];
}

const fn row(json: &'static str, senders: &'static [Role]) -> Row {
    Row { json, descriptors: &[], senders }
}

const fn with(json: &'static str, descriptors: &'static [(&'static str, Content)], senders: &'static [Role]) -> Row {
    Row { json, descriptors, senders }
}

const REPORT: &str = r#"{"certificates":[{"name":"example.com","names":["example.com"],"authority":"ca","is_in_progress":true,
"progress":null,"issued":{"names":[],"issuer":"CA","not_before_unix_s":1,"not_after_unix_s":2},"failure_count":1,"last_error":"why"}],
"zones":[{"name":"example.com","transfer":{"serial":1,"from":null,"transferred_at_unix_s":1,"checked_at_unix_s":1,"expires_at_unix_s":1,
"next_at_unix_s":1,"failure_count":1,"problem":"why"},"secondaries":[]}],"schedule":[{"at_unix_s":1,"what":"renew","why":"due"}]}"#;
const SERVED: &str = r#"{"zones":[{"name":"example.com","serial":9,"is_of_operator":true,"has_error":false,"alias_targets":[]}],
"is_complete":true}"#;
const ID: &str = r#"{"UpdatesMade":{"zone":"example.com","id":{"pid":1,"number":1},"replaces":null}}"#;
const OUTCOME: &str =
    r#"{"UpdatesStored":{"zone":"example.com","id":{"pid":1,"number":1},"result":"Stored","serial":1}}"#;

/// The rows are in the order of the enum.
pub(super) const EVENTS: &[Row] = &[
    row(r#"{"Stdout":"text"}"#, &[ServerProcess]),
    row(r#"{"Stderr":"text"}"#, &[ServerProcess]),
    row(r#"{"Done":{"is_success":true}}"#, &[ServerProcess]),
    row(r#"{"Ready":{"problem_count":1}}"#, &[ServerProcess]),
    row(r#""Heartbeat""#, &[ServerProcess, Agent]),
    row(r#"{"ThreadHung":"worker 0"}"#, &[ServerProcess]),
    row(r#"{"Reloaded":{"changes":"text","problem_count":1}}"#, &[ServerProcess]),
    row(r#""ReloadRefused""#, &[ServerProcess]),
    row(r#"{"ReleaseSwitched":{"name":"example.com"}}"#, &[ServerProcess]),
    row(r#"{"NewProcessNeeded":"text"}"#, &[ServerProcess]),
    with(r#"{"ZonesKept":{"replaces_all":true}}"#, &[("\"Zones\"", Content::Zones)], &[ServerProcess]),
    with(r#""CertificatesKept""#, &[("\"KeptCertificates\"", Content::Bytes(&[3]))], &[ServerProcess]),
    with(
        r#"{"ChallengesChanged":{"number":9}}"#,
        &[("\"Challenges\"", Content::Json(r#"[{"Dns":{"name":"_acme-challenge.example.com","text":"x"}}]"#))],
        &[Agent],
    ),
    with(
        r#""BackendAddressesChanged""#,
        &[("\"BackendAddresses\"", Content::Json(r#"{"app.internal":["192.0.2.1"]}"#))],
        &[Agent],
    ),
    row(r#"{"ChallengesServed":{"number":1}}"#, &[ServerProcess]),
    with(r#""ZonesServed""#, &[("\"ServedZones\"", Content::Json(SERVED))], &[ServerProcess]),
    row(
        r#"{"ZoneServed":{"name":"example.com","serial":9,"is_of_operator":true,"has_error":true,"alias_targets":["a.test"]}}"#,
        &[ServerProcess],
    ),
    with(r#""JournalsChanged""#, &[("\"Journals\"", Content::Journals)], &[ServerProcess]),
    with(ID, &[("\"Updates\"", Content::Bytes(b"what no updates are"))], &[ServerProcess]),
    row(OUTCOME, &[Agent]),
    with(
        r#""CertificatesServed""#,
        &[(
            "\"ServedCertificates\"",
            Content::Json(r#"[{"domain":"example.com","names":["example.com"],"key":"00"}]"#),
        )],
        &[ServerProcess],
    ),
    row(r#"{"BackendWanted":{"request":1,"path":"/run/app.sock"}}"#, &[ServerProcess]),
    row(r#"{"ZoneNotified":{"name":"example.com","serial":1,"from":"127.0.0.1"}}"#, &[ServerProcess]),
    with(
        r#"{"ZoneStored":{"zone":"example.com","is_forced":true}}"#,
        &[("\"Requester\"", Content::Socket), ("\"ZoneChanges\"", Content::Bytes(b"changes"))],
        &[Agent],
    ),
    row(r#"{"CertificateStored":{"name":"example.com"}}"#, &[Agent]),
    row(r#""DerivedStored""#, &[Agent]),
    row(r#""KeeperLost""#, &[Agent]),
    with(r#""AgentReport""#, &[("\"AgentReport\"", Content::Json(REPORT))], &[Agent]),
    row(r#"{"AgentFailed":"text"}"#, &[Agent]),
    with(r#"{"KeysHeld":{"number":1}}"#, &[("\"Certificates\"", Content::Bytes(b""))], &[Keeper]),
    with(r#""KeysKept""#, &[("\"HeldKeys\"", Content::Bytes(b""))], &[Keeper]),
    row(r#"{"KeeperReport":{"signatures":1,"zone_signatures":1,"refused":[1,1,1,1]}}"#, &[Keeper]),
    row(r#"{"LogFailed":"Queries"}"#, &[ServerProcess]),
    row(r#""Failed""#, &[ServerProcess]),
    row(r#""AcceptStopped""#, &[ServerProcess]),
    row(r#""AcceptLeft""#, &[ServerProcess]),
    row(r#"{"Drained":{"cut_off_count":1}}"#, &[ServerProcess]),
];

/// The rows are in the order of the enum. No process sends one to the supervisor, but a client of the control socket.
pub(super) const COMMANDS: &[&str] = &[
    r#""UpdateSecrets""#,
    r#""UpdateLogs""#,
    r#""Reopen""#,
    r#"{"UpdateChallenges":{"number":1}}"#,
    r#"{"ChallengesServed":{"number":1}}"#,
    r#""UpdateBackendAddresses""#,
    r#"{"HoldKeys":{"number":1}}"#,
    r#""RetainKeys""#,
    r#""ServeKeys""#,
    r#""ServeZoneKeys""#,
    r#"{"ReadZones":{"zones":[],"forced_zones":[],"is_success":true}}"#,
    r#"{"Dnssec":{"Status":{"zone":"signed.test"}}}"#,
    r#""UseKeeper""#,
    r#"{"Certificates":{"name":null,"is_json":true}}"#,
    r#"{"RenewCertificate":{"name":"example.com"}}"#,
    r#"{"RevokeCertificate":{"name":"example.com","is_key_compromised":true}}"#,
    r#""ReportZones""#,
    r#""ZonesServed""#,
    r#"{"ZoneServed":{"name":"example.com","serial":9}}"#,
    r#""StoreJournals""#,
    r#"{"StoreUpdates":{"zone":"example.com","id":{"pid":1,"number":1},"replaces":null}}"#,
    r#"{"UpdatesStored":{"zone":"example.com","id":{"pid":1,"number":1},"result":"Stored"}}"#,
    r#""CertificatesServed""#,
    r#"{"BackendConnected":{"request":1,"errno":13}}"#,
    r#"{"ZoneNotified":{"name":"example.com","serial":1,"from":"127.0.0.1"}}"#,
    r#"{"Status":"Json"}"#,
    r#"{"Supervision":{"started_at_unix_s":1,"loaded_at_unix_s":1,"processes":[1,1,1],"restarts":1,"reloads":[1,1,1],"cut_off":1}}"#,
    r#"{"Reload":{"forced_zones":["example.com"]}}"#,
    r#"{"ReloadSite":{"name":"example.com"}}"#,
    r#"{"Zone":{"Export":{"zone":"example.com"}}}"#,
    r#""Upgrade""#,
    r#""Stop""#,
    r#""Drain""#,
    r#""HandOver""#,
];

/// The names of the variants of an enum, as serde lists them in an error.
fn variants(unknown: &serde_json::Error) -> Vec<String> {
    unknown.to_string().split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

pub(super) fn events() -> Vec<String> {
    variants(&serde_json::from_str::<Event>("\"NoVariant\"").expect_err("unknown"))
}

pub(super) fn commands() -> Vec<String> {
    variants(&serde_json::from_str::<Command>("\"NoVariant\"").expect_err("unknown"))
}

/// The name of the variant in JSON.
pub(super) fn name_of(json: &str) -> &str {
    json.split('"').nth(1).expect("a name")
}

/// The packet of a message of this `kind`, without descriptors.
pub(super) fn packet_of(kind: &str, json: &str) -> Packet {
    let is_known = match kind {
        "Command" => serde_json::from_str::<Command>(json).is_ok(),
        _ => serde_json::from_str::<Event>(json).is_ok(),
    };
    assert!(is_known, "{json}");
    let message: Value = serde_json::from_str(json).expect("JSON");
    Packet::new(written(kind, &message, &[]))
}

fn written(kind: &str, message: &Value, kinds: &[Value]) -> Vec<u8> {
    let body = json!([{ kind: message }, kinds]).to_string();
    [b"SDLG\x02\0\0\0", body.as_bytes()].concat()
}

/// `value` as a process writes it that lies.
fn lying(value: &Value, lie: Lie) -> Value {
    // Names of enums, addresses and the like are left: otherwise the message would be malformed, and nothing more.
    const LEFT: &[&str] = &["127.0.0.1", "Stored", "Queries"];
    match (value, lie) {
        (Value::Number(_), Lie::Zero) => json!(0),
        (Value::Number(_), Lie::Maximum32) => json!(u32::MAX),
        (Value::Number(_), Lie::Maximum) => json!(u64::MAX),
        (Value::String(text), _) if LEFT.contains(&text.as_str()) => value.clone(),
        (Value::String(_), Lie::Zero) => json!(""),
        (Value::String(_), Lie::Maximum32) => json!("y".repeat(1_200)),
        (Value::String(_), Lie::Foreign) => json!("\u{1b}]0;owned\u{7}../../evil.test\n"),
        (Value::Array(values), _) => values.iter().map(|value| lying(value, lie)).collect(),
        (Value::Object(fields), _) => fields
            .iter()
            .map(|(name, value)| (name.clone(), lying(value, lie)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        _ => value.clone(),
    }
}

impl Row {
    pub(super) fn name(&self) -> &'static str {
        name_of(self.json)
    }

    /// Whether the next process gets what comes with it, or the supervisor computes with it when there is a next one.
    pub(super) fn outlives_its_sender(&self) -> bool {
        matches!(self.name(), "ZonesKept" | "CertificatesKept" | "KeysKept" | "KeeperReport")
    }

    /// The packet with this lie.
    pub(super) fn packet(&self, lie: Lie) -> Packet {
        assert!(serde_json::from_str::<Event>(self.json).is_ok(), "{}", self.json);
        let event: Value = serde_json::from_str(self.json).expect("JSON");
        let event = match &event {
            // An event without fields.
            Value::String(_) => event,
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), lying(value, lie)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => panic!("{other}"),
        };
        let descriptors = if lie == Lie::WithoutDescriptors { &[] } else { self.descriptors };
        let kinds: Vec<Value> = descriptors.iter().map(|(kind, _)| serde_json::from_str(kind).expect("JSON")).collect();
        let descriptors = descriptors.iter().map(|(_, content)| content.descriptor(lie)).collect();
        Packet { bytes: written("Event", &event, &kinds), descriptors }
    }
}

impl Content {
    fn descriptor(self, lie: Lie) -> OwnedFd {
        let bytes = match (self, lie) {
            (Content::Socket, _) => return std::os::unix::net::UnixStream::pair().expect("a pair").0.into(),
            (_, Lie::Junk) => b"\xff\xff\xff\xff\xff\xff\xff\xff junk".to_vec(),
            (Content::Json(text), _) => lying(&serde_json::from_str(text).expect("JSON"), lie).to_string().into_bytes(),
            (Content::Bytes(bytes), _) => bytes.to_vec(),
            (Content::Zones, _) => zones(lie),
            (Content::Journals, _) => {
                let part = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
                [part(if lie == Lie::Foreign { b"evil.test" } else { b"example.com" }), part(&[7; 2_000])].concat()
            }
        };
        if lie != Lie::Unsealed {
            return memfd::create("test", &bytes).expect("created");
        }
        let mut file = tempfile::tempfile().expect("created");
        file.write_all(&bytes).expect("written");
        file.into()
    }
}

/// A segment of kept zones that would serve another address, as if the file had lost most of its records.
fn zones(lie: Lie) -> Vec<u8> {
    let hosts = (0..60).map(|number| format!("f{number} A 192.0.2.66\n"));
    let text = "$TTL 300\n@ SOA ns1 h 4000 1 1 1 1\n@ NS ns1\nns1 A 192.0.2.66\nwww A 192.0.2.66\n".to_owned()
        + &hosts.collect::<String>();
    let info = json!({ "serial": 4000, "record_count": 64, "loaded_at_unix_s": 5, "ends_with_newline": true });
    let mut info = lying(&info, lie);
    if lie == Lie::Maximum {
        info["serial"] = json!(u32::MAX);
    }
    let zone = if lie == Lie::Foreign { "evil.test" } else { "example.com" };
    let entry = json!({ "zone": zone, "info": info, "hash": 1, "offset": 0, "files": [["a.zone", text.len()]] });
    let index = json!({ "entries": [entry], "removed": [] }).to_string();
    [text.as_bytes(), index.as_bytes(), &(index.len() as u64).to_le_bytes()].concat()
}

/// A packet with its descriptors.
pub(super) struct Packet {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// Whether a packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// The supervisor does not listen to the process any more.
    Closed,
}

impl Packet {
    pub(super) fn new(bytes: Vec<u8>) -> Packet {
        Packet { bytes, descriptors: Vec::new() }
    }

    /// Sends the packet, as soon as the supervisor has room for it.
    pub(super) fn send(&self, socket: &SeqpacketSocket) -> Sent {
        // A process whose messages are no longer read is about to be terminated.
        let deadline = Instant::now() + Duration::from_secs(5);
        let descriptors: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(AsFd::as_fd).collect();
        loop {
            match socket.send(&self.bytes, &descriptors) {
                Ok(true) => return Sent::Yes,
                Ok(false) if Instant::now() < deadline => {
                    PollSet::for_writing([socket.as_fd()]).wait(Some(Duration::from_millis(10))).expect("waited");
                }
                Ok(false) | Err(_) => return Sent::Closed,
            }
        }
    }
}
