//! Rollovers of zones with signatures, as unbound sees them at the simulated time (libfaketime): several of them, each
//! with a cache of its own, ask servers of which some lag behind. Each answer is secure, and with a wait left out one
//! is bogus.
//!
//! `SANDERLING_ROLLOVERS` is the number of random courses of each rollover, for long runs.

use super::*;
use crate::records::Records;
use crate::sign::{SigningJob, SigningParameters, sign};
use crate::testing::records;
use sanderling_dns::rdata::PresentationFormat;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{
    Answer, DnsTransport, HashSeed, NameBuf, RequestInfo, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap, answer,
};
use sanderling_testkit::dns::{A, NOERROR, NXDOMAIN, Question, Reply, TXT};
use sanderling_testkit::{TestDirectory, free_address, udp_reply, wait_until};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

const PARENT: &str = "test.";
const CHILD: &str = "child.test.";
const RESOLVER_COUNT: usize = 3;
const QUESTIONS_PER_STEP: usize = 3;
/// Resolvers are asked so often while nothing happens.
const PAUSE_S_MAX: u64 = 900;
/// The AD flag.
const AUTHENTIC_DATA: u16 = 0x0020;
const DNSKEY: u16 = 48;
/// The questions to the child zone, with so many names of each kind that caches hold them with different ages.
const QUESTIONS: [(&str, u16, u16); 9] = [
    ("h1", A, NOERROR),
    ("h2", A, NOERROR),
    ("h3", A, NOERROR),
    ("h1", TXT, NOERROR),
    ("a.wild", TXT, NOERROR),
    ("b.wild", TXT, NOERROR),
    ("no", A, NXDOMAIN),
    ("z", A, NXDOMAIN),
    ("", DNSKEY, NOERROR),
];

/// A server for one zone over UDP, until it is dropped.
struct Server {
    address: SocketAddr,
    zones: Arc<Mutex<ZoneMap>>,
}

impl Server {
    fn start(zones: ZoneMap) -> Server {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let (address, zones) = (socket.local_addr().expect("it is bound"), Arc::new(Mutex::new(zones)));
        let served = Arc::clone(&zones);
        std::thread::spawn(move || {
            let (mut query, mut out) = ([0; 1500], [0; 4096]);
            loop {
                let (length, client) = socket.recv_from(&mut query).expect("a query");
                // The end.
                if length == 0 {
                    return;
                }
                let transport = DnsTransport::Udp { reply_bytes_max: out.len() as u16 };
                let info = RequestInfo { client, transport, now_unix_s: 0 };
                if let Answer::Reply(length) = answer(&served.lock().unwrap(), &info, &query[..length], &mut out) {
                    socket.send_to(&out[..length], client).expect("the client is on this machine");
                }
            }
        });
        Server { address, zones }
    }

    fn serve(&self, zones: &ZoneMap) {
        *self.zones.lock().unwrap() = zones.clone();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.send_to(&[], self.address).expect("the server is on this machine");
    }
}

/// Two unbound, whose clock is a file: one validates each answer again, and asks the other one, which keeps what it
/// hears without validating it. So a chain may have parts of any age.
struct Resolver {
    home: TestDirectory,
    /// Both programs.
    children: Vec<Child>,
    address: SocketAddr,
}

impl Drop for Resolver {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Resolver {
    fn start(now_unix_s: u64, anchor: &str, zones: &[(&str, &[Server])]) -> Resolver {
        let (cache, address) = (free_address(), free_address());
        let mut resolver = Resolver { home: TestDirectory::new(), children: Vec::new(), address };
        resolver.set_clock(now_unix_s);
        let mut options = "module-config: iterator\n".to_owned();
        for (zone, servers) in zones {
            options += &format!("stub-zone:\n name: {zone}\n");
            servers.iter().for_each(|it| options += &format!(" stub-addr: 127.0.0.1@{}\n", it.address.port()));
        }
        resolver.start_program("cache", cache, &options);
        // Each answer gets one attempt: with more, the resolver would bypass the cache.
        let options = format!(
            "module-config: \"validator iterator\"\n trust-anchor: \"{anchor}\"\n val-log-level: 2\n val-max-restart: 0\n \
             cache-max-ttl: 0\nforward-zone:\n name: .\n forward-addr: 127.0.0.1@{}\n",
            cache.port()
        );
        resolver.start_program("validator", address, &options);
        resolver
    }

    fn start_program(&mut self, name: &str, address: SocketAddr, options: &str) {
        let (home, port) = (&self.home, address.port());
        let folder = home.path().display();
        // The clock leaps between two events: a query does not wait for as long as it seems to.
        let config = format!(
            "server:\n interface: 127.0.0.1@{port}\n username: \"\"\n chroot: \"\"\n directory: \"{folder}\"\n \
             pidfile: \"{folder}/{name}.pid\"\n do-daemonize: no\n use-syslog: no\n do-not-query-localhost: no\n discard-timeout: 0\n \
             local-zone: \"test.\" nodefault\n {options}remote-control:\n control-enable: no\n",
        );
        home.write(name, config.as_bytes());
        let log = std::fs::File::create(home.path().join(format!("{name}.log"))).unwrap();
        let mut command = Command::new("/usr/sbin/unbound");
        command.args(["-d", "-c", &home.argument(name)]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // Without the library, all signatures are of the future. The loader of programs puts its folder in place of
        // `$LIB`.
        command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1").env("FAKETIME_FMT", "%s");
        command.env("FAKETIME_TIMESTAMP_FILE", home.argument("clock")).env("FAKETIME_NO_CACHE", "1");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DISABLE_SHM", "1");
        let child = command.spawn().unwrap_or_else(|error| panic!("unbound: {error}; `cargo xtask setup` installs it"));
        self.children.push(child);
        wait_until("unbound runs", || self.log(name).contains("start of service"));
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(format!("{name}.log"))).unwrap()
    }

    fn set_clock(&self, now_unix_s: u64) {
        self.home.replace("clock", format!("{now_unix_s}\n").as_bytes());
    }

    /// The error is an answer that is bogus or insecure.
    fn ask(&self, (label, rtype, rcode): (&str, u16, u16)) -> Result<(), String> {
        let name = format!("{label}.{CHILD}");
        let mut query = Question { edns: Some((1232, 0)), ..Question::new(&name, rtype) }.message();
        // Whether the answer is secure is asked for (RFC 6840 §5.7).
        query[3] |= AUTHENTIC_DATA as u8;
        let reply = Reply::parse(&udp_reply(self.address, &query));
        let is_secure = reply.flags & AUTHENTIC_DATA != 0;
        if reply.rcode == rcode && is_secure {
            return Ok(());
        }
        Err(format!("{name} {rtype}: {reply:?}\n{}", self.log("validator")))
    }
}

/// A world with signed zones, servers and resolvers.
struct Network {
    world: World,
    parent_keys: KeysInUse,
    parent_signer: TestSigner,
    /// The versions of the world, signed.
    zone: Vec<ZoneMap>,
    signed: Option<Records>,
    parent: Vec<ZoneMap>,
    zone_servers: Vec<Server>,
    parent_servers: Vec<Server>,
    resolvers: Vec<Resolver>,
    random: Rng,
}

impl Network {
    /// A world with a signed zone.
    fn new(policy: KeyPolicy, fault: Fault, seed: u64) -> Network {
        let mut world = World::new(policy, fault, seed);
        world.apex = apex(CHILD);
        world.signer = Some(TestSigner::new(world.apex.as_name()));
        let mut parent_signer = TestSigner::new(apex(PARENT).as_name());
        let mut network = Network {
            world,
            parent_keys: parent_signer.keys(Algorithm::EcdsaP256, &[KeyRole::Csk]),
            parent_signer,
            zone: Vec::new(),
            signed: None,
            parent: Vec::new(),
            zone_servers: Vec::new(),
            parent_servers: Vec::new(),
            resolvers: Vec::new(),
            random: Rng::with_seed(seed),
        };
        while !(network.world.is_settled() && network.world.is_everywhere()) {
            network.world.now = network.step();
        }
        network.world.now += ZONE_TTL_S + DS_TTL_S;
        let start = |versions: &[ZoneMap], current: &[usize]| -> Vec<Server> {
            current.iter().map(|&index| Server::start(versions[index].clone())).collect()
        };
        network.zone_servers = start(&network.zone, &network.world.zone.current);
        network.parent_servers = start(&network.parent, &network.world.parent.current);
        let rdata = network.parent_keys.keys[0].key.rdata();
        let anchor = format!("{PARENT} DNSKEY {}", PresentationFormat::new(Rtype::DNSKEY, &rdata));
        let zones = [(PARENT, &network.parent_servers[..]), (CHILD, &network.zone_servers)];
        let start = |_| Resolver::start(network.world.now, &anchor, &zones);
        network.resolvers = (0..RESOLVER_COUNT).map(start).collect();
        network
    }

    /// Advances the world, signs the published records, and makes the servers answer with their versions. Returns when
    /// something happens next.
    fn step(&mut self) -> u64 {
        let next = self.world.step();
        while self.zone.len() < self.world.zone.versions.len() {
            self.sign_zone();
        }
        while self.parent.len() < self.world.parent.versions.len() {
            self.sign_parent();
        }
        let serve = |servers: &[Server], versions: &[ZoneMap], current: &[usize]| {
            servers.iter().zip(current).for_each(|(server, &index)| server.serve(&versions[index]));
        };
        serve(&self.zone_servers, &self.zone, &self.world.zone.current);
        serve(&self.parent_servers, &self.parent, &self.world.parent.current);
        next
    }

    /// Signs the zone's next version. Each step of the world publishes one at most, after the first one without
    /// signatures.
    fn sign_zone(&mut self) {
        let world = &mut self.world;
        let apex = world.apex;
        let keys = match self.zone.len() {
            0 => KeysInUse::default(),
            _ => world.keys.keys_in_use(apex.as_name()),
        };
        let text = format!(
            "$TTL {ZONE_TTL_S}\n@ SOA ns host 1 3600 600 86400 {ZONE_TTL_S}\n@ NS ns\nns A 127.0.0.1\nh1 A 192.0.2.1\nh2 A 192.0.2.2\n\
             h3 A 192.0.2.3\n*.wild TXT wild\n"
        );
        let signer = world.signer.as_mut().expect("it already has keys");
        let zone = signed(&apex, &text, self.signed.as_ref(), &keys, signer, world.now);
        self.zone.push(zone_map(&apex, &zone));
        self.signed = Some(zone);
    }

    fn sign_parent(&mut self) {
        let mut text = format!(
            "$TTL {DS_TTL_S}\n@ SOA ns host 1 3600 600 86400 {DS_TTL_S}\n@ NS ns\nns A 127.0.0.1\nchild NS ns.child\nns.child A 127.0.0.1\n"
        );
        for ds in &self.world.parent.versions[self.parent.len()].content {
            text += &format!("child DS {}\n", PresentationFormat::new(Rtype::DS, &ds.rdata()));
        }
        let apex = apex(PARENT);
        let zone = signed(&apex, &text, None, &self.parent_keys, &mut self.parent_signer, self.world.now);
        self.parent.push(zone_map(&apex, &zone));
    }

    /// Has some resolvers ask, so that the records in their caches have different ages.
    fn ask(&mut self) -> Result<(), String> {
        for _ in 0..QUESTIONS_PER_STEP {
            let resolver = &self.resolvers[self.random.usize(0..RESOLVER_COUNT)];
            resolver.set_clock(self.world.now);
            resolver.ask(QUESTIONS[self.random.usize(0..QUESTIONS.len())])?;
        }
        Ok(())
    }

    /// Runs until `is_done`; the error is an answer that is bogus or insecure.
    fn run(&mut self, is_done: impl Fn(&World) -> bool) -> Result<(), String> {
        for _ in 0..STEP_COUNT_MAX {
            let next = self.step();
            self.ask()?;
            if is_done(&self.world) {
                return Ok(());
            }
            while self.world.now < next {
                self.world.now = next.min(self.world.now + self.random.u64(1..PAUSE_S_MAX));
                self.ask()?;
            }
        }
        panic!("it does not end: {:#?}", self.world.keys.status(self.world.apex.as_name()));
    }
}

fn signed(
    apex: &NameBuf,
    text: &str,
    previous: Option<&Records>,
    keys: &KeysInUse,
    signer: &mut TestSigner,
    now_unix_s: u64,
) -> Records {
    let parameters = SigningParameters { dnskey_ttl_s: DNSKEY_TTL_S as u32, ..SigningParameters::default() };
    let (apex, unsigned) = (apex.as_name(), records(apex.as_name(), text));
    let job = SigningJob { apex, unsigned: &unsigned, previous, keys, parameters: &parameters, now_unix_s };
    sign(&job, signer).expect("signed").records
}

fn zone_map(apex: &NameBuf, records: &Records) -> ZoneMap {
    const SEED: HashSeed = HashSeed(7);
    let (apex, mut text) = (apex.as_name(), String::new());
    records.write_text(&mut text);
    let mut builder = ZoneBuilder::new(apex, SEED, ZoneLimits::default());
    let mut parser = Parser::new("zone".into(), text.into_bytes(), apex, ParserLimits::default());
    while let Some(entry) = parser.next() {
        match entry.expect("it was written") {
            Entry::Record(record) => builder.add(&record),
            Entry::Include { .. } | Entry::Alias(_) => panic!("the zone has more than records"),
        }
    }
    let built = builder.finish(Position { file_index: 0, line: 1, column: 1 });
    let zone = built.zone.unwrap_or_else(|| panic!("{:?}", built.diagnostics));
    ZoneMap::new(SEED, [ZoneEntry::Served(Arc::new(zone))])
}

/// The error is an answer that is bogus or insecure.
fn roll((policy, scenario): (KeyPolicy, Scenario), fault: Fault, seed: u64) -> Result<(), String> {
    let mut network = Network::new(policy, fault, seed);
    let ids = |world: &World| world.keys.keys.iter().map(|key| key.public.id()).collect::<Vec<KeyId>>();
    let mut before = ids(&network.world);
    match scenario {
        Scenario::Command(keys) => {
            network.world.keys.start(Rollover { keys, ..ROUTINE }).expect("nothing is changing");
        }
        Scenario::Policy(policy) => network.world.policy = policy,
        Scenario::Compromised(keys) => {
            network.world.keys.start(ROUTINE).expect("nothing is changing");
            let steps = Cell::new(network.random.usize(1..100));
            network.run(|_| steps.replace(steps.get() - 1) == 1)?;
            before = ids(&network.world);
            network.world.keys.start(Rollover { keys, is_compromised: true }).expect("one is in use");
        }
        other => panic!("{other:?} does not replace keys"),
    }
    network.run(|world| world.is_settled() && world.keys.keys.iter().any(|key| !before.contains(&key.public.id())))?;
    // The content of caches at the end is used up.
    let end = network.world.now + ZONE_TTL_S;
    network.run(|world| world.now >= end)
}

const CSK_ROLLOVER: (KeyPolicy, Scenario) = (CSK, Scenario::Command(RolloverKeys::All));
const KSK_ROLLOVER: (KeyPolicy, Scenario) = (SPLIT, Scenario::Command(RolloverKeys::Ksk));
const ZSK_ROLLOVER: (KeyPolicy, Scenario) = (SPLIT, Scenario::Command(RolloverKeys::Zsk));

#[test]
fn unbound_finds_all_answers_secure_at_simulated_times_of_each_rollover() {
    let to_ed25519 = |policy| (policy, Scenario::Policy(KeyPolicy { algorithm: Algorithm::Ed25519, ..policy }));
    let seed = seed();
    let rounds = sanderling_testkit::number_or("SANDERLING_ROLLOVERS", 1);
    for round in 0..rounds {
        let compromised = (SPLIT, Scenario::Compromised(RolloverKeys::All));
        for rollover in [CSK_ROLLOVER, KSK_ROLLOVER, ZSK_ROLLOVER, to_ed25519(CSK), to_ed25519(SPLIT), compromised] {
            let result = roll(rollover, Fault::None, seed.wrapping_add(round));
            assert!(result.is_ok(), "seed {seed}, round {round}, {rollover:?}: {}", result.unwrap_err());
        }
    }
}

#[test]
fn unbound_finds_bogus_answers_if_a_wait_is_left_out() {
    let seed = seed();
    for (fault, rollover) in [
        (Fault::DnskeyTtl, CSK_ROLLOVER),
        (Fault::ZoneTtl, ZSK_ROLLOVER),
        (Fault::DsTtl, KSK_ROLLOVER),
        (Fault::NameServers, ZSK_ROLLOVER),
        (Fault::Parent, KSK_ROLLOVER),
    ] {
        let is_servfail = |error: String| error.contains("rcode: 2,");
        let is_found = |round| roll(rollover, fault, seed.wrapping_add(round)).is_err_and(is_servfail);
        assert!((0..20).any(is_found), "seed {seed}: unbound does not notice {fault:?} in {rollover:?}");
    }
}
