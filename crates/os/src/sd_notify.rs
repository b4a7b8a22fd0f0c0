//! Tells the service manager how this process stands, by the protocol of systemd (sd_notify(3)): one datagram of
//! assignments to the socket that the environment names.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Names the manager's socket: a path, or a name in the abstract name space behind an `@`.
pub const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// Tells after how many microseconds without a word the manager ends the service.
pub const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// Tells which process is to give the word.
pub const WATCHDOG_PID_VARIABLE: &str = "WATCHDOG_PID";

/// How long a manager that does not read is waited for: it must not hold up whoever tells.
const TELLING_TIMEOUT: Duration = Duration::from_secs(1);
/// Octets of a status line. systemd reads 4,096 of a datagram, and shows a line.
const STATUS_BYTES_MAX: usize = 1024;

/// How the service stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'t> {
    /// It serves, for the first time or again after a reload.
    Ready,
    /// It takes up another configuration; `Ready` tells the end of that, whether it was taken up or not.
    Reloading,
    /// It is about to end.
    Stopping,
    /// A line for people; what follows a line's end is told in the same line.
    Status(&'t str),
    /// This process is the one that stands for the service.
    MainPid(u32),
    /// It is alive.
    Watchdog,
}

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    manager: Option<Manager>,
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct Manager {
    name: String,
    address: SocketAddr,
    socket: UnixDatagram,
}

impl Notifier {
    /// The manager that the environment names. A child that told something would be taken for this process: so
    /// [`crate::process::spawn`] tells none of it.
    ///
    /// # Errors
    /// The environment names something that no datagram can be sent to.
    pub fn from_environment() -> io::Result<Notifier> {
        let socket = std::env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty());
        let socket = socket.map(|name| name.to_string_lossy().into_owned());
        let watchdog = watchdog(|name| std::env::var(name).ok());
        Ok(Notifier { manager: socket.map(Manager::at).transpose()?, watchdog })
    }

    /// Whether anybody listens.
    pub fn has_manager(&self) -> bool {
        self.manager.is_some()
    }

    /// Tells `states`, all at once; nothing without a manager.
    ///
    /// # Errors
    /// The manager is gone, or has not read for a second. That is no reason to stop serving.
    pub fn notify(&self, states: &[State<'_>]) -> io::Result<()> {
        let Some(manager) = &self.manager else { return Ok(()) };
        let text = assignments(states, monotonic_us());
        count(Syscall::Sendto);
        manager
            .socket
            .send_to_addr(text.as_bytes(), &manager.address)
            .map(drop)
            .map_err(|error| with_context("sendto", &manager.name, &error))
    }

    /// How often [`State::Watchdog`] is to be told, if it is: twice in the time after which the manager acts
    /// (sd_watchdog_enabled(3)).
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }
}

impl Manager {
    fn at(name: String) -> io::Result<Manager> {
        let address = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
            [b'/', ..] => SocketAddr::from_pathname(&name),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor an abstract name behind @")),
        };
        let address = address.map_err(|error| {
            io::Error::new(error.kind(), format!("{SOCKET_VARIABLE}=\"{name}\" cannot be used: {error}"))
        })?;
        count(Syscall::Socket);
        let socket = UnixDatagram::unbound().map_err(|error| with_context("socket", &name, &error))?;
        count(Syscall::Setsockopt);
        socket.set_write_timeout(Some(TELLING_TIMEOUT))?;
        Ok(Manager { name, address, socket })
    }
}

/// The time limit that `variable` tells, if it is this process's.
fn watchdog(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let is_ours = variable(WATCHDOG_PID_VARIABLE).is_none_or(|pid| pid == std::process::id().to_string());
    let limit_us = variable(WATCHDOG_VARIABLE).filter(|_| is_ours)?.parse().ok()?;
    (limit_us > 0).then_some(Duration::from_micros(limit_us))
}

/// `states` as the manager reads them, a line each; `now_us` is the monotonic clock.
fn assignments(states: &[State<'_>], now_us: u64) -> String {
    let mut text = String::new();
    for state in states {
        let written = match state {
            State::Ready => writeln!(text, "READY=1"),
            // systemd must know which reload this is the beginning of: the time proves that it is after its signal.
            State::Reloading => writeln!(text, "RELOADING=1\nMONOTONIC_USEC={now_us}"),
            State::Stopping => writeln!(text, "STOPPING=1"),
            State::Status(line) => {
                let end = line.floor_char_boundary(STATUS_BYTES_MAX);
                // Another line would be another assignment.
                writeln!(text, "STATUS={}", line[..end].replace(char::is_control, " "))
            }
            State::MainPid(pid) => writeln!(text, "MAINPID={pid}"),
            State::Watchdog => writeln!(text, "WATCHDOG=1"),
        };
        written.expect("a string takes everything");
    }
    text
}

fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_become_assignments() {
        let check = |states: &[State<'_>], expected: &str| assert_eq!(assignments(states, 1_234_567), expected);
        check(&[State::Ready], "READY=1\n");
        check(&[State::Reloading], "RELOADING=1\nMONOTONIC_USEC=1234567\n");
        check(&[State::Stopping, State::Status("draining")], "STOPPING=1\nSTATUS=draining\n");
        check(&[State::MainPid(42), State::Watchdog], "MAINPID=42\nWATCHDOG=1\n");
        check(&[State::Status("a\nMAINPID=1\r\n\0b")], "STATUS=a MAINPID=1   b\n");
        let long = "é".repeat(STATUS_BYTES_MAX);
        check(&[State::Status(&long)], &format!("STATUS={}\n", &long[..STATUS_BYTES_MAX]));
        let odd = format!("x{long}");
        check(&[State::Status(&odd)], &format!("STATUS={}\n", &odd[..STATUS_BYTES_MAX - 1]));
        check(&[], "");
    }

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let check = |limit: Option<&str>, pid: Option<String>, expected: Option<Duration>| {
            let variable = |name: &str| match name {
                WATCHDOG_VARIABLE => limit.map(str::to_owned),
                _ => pid.clone(),
            };
            assert_eq!(watchdog(variable), expected, "{limit:?} {pid:?}");
        };
        let ours = std::process::id();
        check(Some("30000000"), None, Some(Duration::from_secs(30)));
        check(Some("30000000"), Some(ours.to_string()), Some(Duration::from_secs(30)));
        check(Some("30000000"), Some((ours + 1).to_string()), None);
        check(Some("0"), None, None);
        check(Some("soon"), None, None);
        check(None, Some(ours.to_string()), None);
    }

    /// What a manager with a socket at `name` is told by a notifier that finds it under the same name.
    #[track_caller]
    fn check_told(name: &str, listener: &UnixDatagram) {
        let limit = Some(Duration::from_secs(30));
        let notifier = Notifier { manager: Some(Manager::at(name.to_owned()).expect("a socket")), watchdog: limit };
        assert_eq!(notifier.watchdog_interval(), Some(Duration::from_secs(15)));
        notifier.notify(&[State::Ready, State::Status("2 sites")]).expect("told");
        let mut room = [0; 256];
        let length = listener.recv(&mut room).expect("received");
        assert_eq!(&room[..length], b"READY=1\nSTATUS=2 sites\n");
    }

    #[test]
    fn a_manager_at_a_path_is_told() {
        let path = std::env::temp_dir().join(format!("sanderling-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixDatagram::bind(&path).expect("bound");
        let name = path.to_str().expect("a temporary folder has a plain name");
        check_told(name, &listener);
        drop(listener);
        let gone = Notifier { manager: Some(Manager::at(name.to_owned()).expect("a socket")), watchdog: None };
        let error = gone.notify(&[State::Ready]).expect_err("nobody listens").to_string();
        assert!(error.starts_with(&format!("sendto(\"{name}\") failed: Connection refused")), "{error}");
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn a_manager_with_an_abstract_name_is_told() {
        let name = format!("sanderling-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("short enough");
        let listener = UnixDatagram::bind_addr(&address).expect("bound");
        check_told(&format!("@{name}"), &listener);
    }

    #[test]
    fn without_a_manager_nothing_is_told() {
        let alone = Notifier::default();
        assert!(!alone.has_manager());
        alone.notify(&[State::Ready]).expect("told nobody");
        assert_eq!(alone.watchdog_interval(), None);
        let error = Manager::at("vsock:2:1".to_owned()).expect_err("no Unix socket");
        let expected = "NOTIFY_SOCKET=\"vsock:2:1\" cannot be used: neither a path nor an abstract name behind @";
        assert_eq!(error.to_string(), expected);
    }
}
