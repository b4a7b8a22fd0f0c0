//! The process that serves: takes the sockets and the configuration that its supervisor hands over, gives its privileges
//! up, serves, and does what it is told. It goes on without a supervisor.
#![forbid(unsafe_code)]

mod check;
mod attendant;
mod standing;
mod confinement;
mod loading;
mod zones;
mod sockets;
mod demo;

pub use check::check;

use crate::loading::{Loader, bound_by_descriptors, hash_seed, options_of};
use attendant::{Attendant, Outfit};
use confinement::Confinement;
use sanderling_config::diagnostic::Diagnostic;
use sanderling_config::log::{print, report, warn};
use sanderling_config::{Config, ConfigSource, DefaultSite, Limits, ListenerCount};
use sanderling_config::{ListenerRole, Service};
use sanderling_dns::{ZoneEntry, ZoneMap};
use sanderling_ipc::Exit;
use sanderling_ipc::channel::{Channel, Word};
use sanderling_ipc::control::Control;
use sanderling_ipc::{CHANNEL, CONFIGURATION, CONFIGURATION_BYTES_MAX, CONTROL};
use sanderling_listeners::Listeners;
use sanderling_os::signals::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, Signals};
use sanderling_os::{listen_fds, memfd};
use sanderling_server::{DrainMode, Root, Server, Site, Sites, Snapshot, SocketSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Serves what a supervisor hands over.
pub fn serve(source: &ConfigSource, control_path: Option<PathBuf>) -> Exit {
    let given = match Given::take(control_path) {
        Ok(given) => given,
        Err(error) => return fail(&error),
    };
    match given.prepare(source) {
        Ok(prepared) => prepared.serve(source.clone()),
        Err(Unprepared::Refused(diagnostics)) => {
            report(&diagnostics);
            Exit::BadConfiguration
        }
        Err(Unprepared::Failed(error)) => fail(&error),
    }
}

/// What a supervisor has handed over.
struct Given {
    channel: Channel,
    configuration: OwnedFd,
    control: Option<Control>,
    siblings: Vec<SocketSet>,
}

/// Why nothing can be served.
enum Unprepared {
    Refused(Vec<Diagnostic>),
    Failed(io::Error),
}

impl From<io::Error> for Unprepared {
    fn from(error: io::Error) -> Unprepared {
        Unprepared::Failed(error)
    }
}

/// All that it takes to serve.
struct Prepared {
    given: Given,
    running: Config,
    loader: Loader,
    snapshot: Snapshot,
    confinement: Confinement,
    own: OwnedFd,
    signals: Signals,
}

impl Given {
    fn take(control_path: Option<PathBuf>) -> io::Result<Given> {
        let (mut channel, mut configuration, mut control, mut sockets) = (None, None, None, Vec::new());
        for (name, descriptor) in listen_fds::take()? {
            match name.as_str() {
                CHANNEL => channel = Some(Channel::adopt(descriptor)?),
                CONFIGURATION => configuration = Some(descriptor),
                CONTROL => control = Some(descriptor),
                name => match Service::from_name(name) {
                    Some(service) => sockets.push((ListenerRole::own(service), descriptor)),
                    None => return Err(io::Error::other(format!("a descriptor named `{name}` was handed over"))),
                },
            }
        }
        let missing = || io::Error::other("this command is for a supervisor; `sanderling serve` starts one");
        let control = match (control_path, control) {
            (Some(path), Some(door)) => Some(Control::adopt(path, door)?),
            _ => None,
        };
        Ok(Given {
            channel: channel.ok_or_else(missing)?,
            configuration: configuration.ok_or_else(missing)?,
            control,
            siblings: sockets::sets_of(Listeners::adopt(sockets)?),
        })
    }

    /// Loads what is to be served, and gives up what serving does not need.
    fn prepare(self, source: &ConfigSource) -> Result<Prepared, Unprepared> {
        // Signals are for the supervisor, who shares the terminal with this process; without one they are for us.
        let signals = Signals::register(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
        // The supervisor has held them back until somebody would catch them.
        signals::unblock_all()?;
        let text = memfd::read(&self.configuration, CONFIGURATION_BYTES_MAX)?;
        let mut loader = Loader::default();
        let loaded = source.parse(&text).and_then(|config| Ok((loader.load(&config)?, config)));
        let (loaded, config) = loaded.map_err(|diagnostics| self.refuse(diagnostics))?;
        report(&loaded.warnings);
        sanderling_os::features::select_all();
        let own = sanderling_os::process::own_pidfd()?;
        let identity = confinement::lookup_user(&config).map_err(|diagnostics| self.refuse(diagnostics))?;
        let confinement = Confinement::of(&config, identity).map_err(|error| self.fail(error))?;
        if confinement.keeps_to_folders() {
            loader.end_reading_others();
        }
        Ok(Prepared { given: self, running: config, loader, snapshot: loaded.snapshot, confinement, own, signals })
    }

    /// Tells the supervisor what is wrong with the configuration, for whoever has asked it for a reload.
    fn refuse(&self, diagnostics: Vec<Diagnostic>) -> Unprepared {
        for diagnostic in &diagnostics {
            // A supervisor that does not listen learns it from how this process ends.
            let _ = self.channel.say(&Word::Err(format!("{diagnostic}\n")));
        }
        let _ = self.channel.say(&Word::Refused);
        Unprepared::Refused(diagnostics)
    }

    /// Tells the supervisor what has failed.
    fn fail(&self, error: io::Error) -> Unprepared {
        let _ = self.channel.say(&Word::Err(format!("{error}\n")));
        Unprepared::Failed(error)
    }
}

impl Prepared {
    fn serve(self, source: ConfigSource) -> Exit {
        let Prepared { given, running, loader, snapshot, confinement, own, signals } = self;
        let Given { channel, configuration, control, siblings } = given;
        let limits = &running.limits;
        let mut options = options_of(limits);
        match bound_by_descriptors(&mut options) {
            Ok(None) => {}
            Ok(Some(remark)) => warn(&remark),
            Err(error) => warn(&error.to_string()),
        }
        let worker_count = running.worker_count;
        let server = Server::new(snapshot, options, Duration::from_millis(limits.drain_timeout_ms));
        let outfit = Outfit { source, running, configuration, loader, channel, control, confinement, own };
        let result = server.run(&siblings, worker_count, |server| {
            Attendant::new(server, &siblings, outfit).and_then(|attendant| attendant.run(&signals))
        });
        match result {
            Ok(Ok(())) => Exit::Success,
            Ok(Err(error)) | Err(error) => fail(&error),
        }
    }
}

/// Serves the built-in domain, out of the program itself, without a supervisor.
pub fn serve_demo(http: SocketAddr, dns: SocketAddr) -> Exit {
    let config = Config {
        worker_count: 1,
        listeners: ListenerCount::Exactly(1),
        account: None,
        sandbox: false,
        control: None,
        http_listen: vec![http],
        dns_listen: vec![dns],
        sites: Vec::new(),
        default_site: DefaultSite::EveryHost(0),
        zones: Vec::new(),
        limits: Limits::default(),
    };
    let seed = hash_seed();
    let apex = sanderling_config::DomainName::parse(demo::APEX).expect("the demo's name is one");
    let zone = zones::parse(&apex, "demo.zone", demo::ZONE, &config.limits, seed).expect("the demo's zone is tested");
    let zones = ZoneMap::new(seed, [ZoneEntry::Served(Arc::new(zone))]);
    let site = Site { id: 0, hosts: vec![demo::APEX.to_owned()], root: Root::Builtin(demo::SITE) };
    let snapshot = Snapshot::new(Sites::new(vec![site], sanderling_server::DefaultSite::EveryHost(0)), zones);
    let served = Signals::register(&[SIGTERM, SIGINT, SIGQUIT]).and_then(|signals| {
        let listeners = Listeners::bind(&config, &Listeners::default())?;
        let announcement = listeners.announcement();
        let bound: Vec<SocketAddr> = listeners.addresses().iter().map(|address| address.bound).collect();
        let siblings = sockets::sets_of(listeners);
        let drain_timeout = Duration::from_millis(config.limits.drain_timeout_ms);
        let server = Server::new(snapshot, options_of(&config.limits), drain_timeout);
        server.run(&siblings, 1, |server| {
            print(&format!("{announcement}\n{}", demo::greeting(bound[0], bound[1])));
            let ended = wait_for_end(server, &signals);
            server.drain(DrainMode::Stopping);
            // Who comes now is refused, rather than left waiting for nobody.
            ended.and(siblings.iter().try_for_each(SocketSet::shut_down))
        })?
    });
    match served {
        Ok(()) => Exit::Success,
        Err(error) => fail(&error),
    }
}

/// How often the supervising thread looks whether the server has ended by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

fn wait_for_end(server: &Server, signals: &Signals) -> io::Result<()> {
    while !server.is_draining() {
        if signals.wait(Some(LOOK_INTERVAL))?.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

fn fail(error: &io::Error) -> Exit {
    warn(&error.to_string());
    Exit::Failure
}
