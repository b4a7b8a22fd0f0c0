//! Notifies the service manager of this process's state, by the protocol of systemd (sd_notify(3)): one datagram of
//! assignments to the socket named in the environment.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The environment variable with the manager's socket: a path, or `@` and a name in the abstract namespace.
pub const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// The environment variable with the watchdog timeout in microseconds.
pub const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// The environment variable with the process that the watchdog is for.
pub const WATCHDOG_PID_VARIABLE: &str = "WATCHDOG_PID";

/// A manager that does not read must not block this process for longer.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a status line; systemd reads 4,096 bytes of a datagram.
const STATUS_BYTES_MAX: usize = 1024;

/// The state of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'t> {
    /// Start or reload has finished.
    Ready,
    /// A reload has begun; `Ready` ends it, whether it succeeded or failed.
    Reloading,
    /// Shutdown has begun.
    Stopping,
    /// A line for the operator; control characters become spaces.
    Status(&'t str),
    /// The main process of the service.
    MainPid(u32),
    /// The service is alive.
    Watchdog,
}

/// The connection to the service manager, if there is one.
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
    /// Connects to the manager named in the environment. [`crate::process::spawn`] removes it from the environment of
    /// children, whose notifications would otherwise count as this process's.
    ///
    /// # Errors
    /// Returns an error if the variable is not the address of a Unix socket.
    pub fn from_environment() -> io::Result<Notifier> {
        let socket = std::env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty());
        let socket = socket.map(|name| name.to_string_lossy().into_owned());
        let watchdog = watchdog(|name| std::env::var(name).ok());
        Ok(Notifier { manager: socket.map(Manager::at).transpose()?, watchdog })
    }

    /// Sends `states` in one datagram; does nothing without a manager.
    ///
    /// # Errors
    /// Returns an error if the manager has exited, or has not read for a second. The service can continue.
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

    /// The interval at which to send [`State::Watchdog`], if at all: half the timeout (sd_watchdog_enabled(3)).
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }
}

impl Manager {
    fn at(name: String) -> io::Result<Manager> {
        let address = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
            [b'/', ..] => SocketAddr::from_pathname(&name),
            _ => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "expected an absolute path, or @ and an abstract name"))
            }
        };
        let address = address.map_err(|error| {
            io::Error::new(error.kind(), format!("{SOCKET_VARIABLE}=\"{name}\" is invalid: {error}"))
        })?;
        count(Syscall::Socket);
        let socket = UnixDatagram::unbound().map_err(|error| with_context("socket", &name, &error))?;
        count(Syscall::Setsockopt);
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Manager { name, address, socket })
    }
}

/// The watchdog timeout in the environment, if it is for this process.
fn watchdog(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let is_for_us = variable(WATCHDOG_PID_VARIABLE).is_none_or(|pid| pid == std::process::id().to_string());
    let limit_us = variable(WATCHDOG_VARIABLE).filter(|_| is_for_us)?.parse().ok()?;
    (limit_us > 0).then_some(Duration::from_micros(limit_us))
}

/// `states` as lines of the protocol; `now_us` is the monotonic clock.
fn assignments(states: &[State<'_>], now_us: u64) -> String {
    let mut text = String::new();
    for state in states {
        let written = match state {
            State::Ready => writeln!(text, "READY=1"),
            // The time tells systemd that this reload follows its signal, and is not an earlier one.
            State::Reloading => writeln!(text, "RELOADING=1\nMONOTONIC_USEC={now_us}"),
            State::Stopping => writeln!(text, "STOPPING=1"),
            State::Status(line) => {
                let end = line.floor_char_boundary(STATUS_BYTES_MAX);
                // A line break would begin another assignment.
                writeln!(text, "STATUS={}", line[..end].replace(char::is_control, " "))
            }
            State::MainPid(pid) => writeln!(text, "MAINPID={pid}"),
            State::Watchdog => writeln!(text, "WATCHDOG=1"),
        };
        written.expect("writing to a string cannot fail");
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
    fn watchdog_applies_only_to_the_process_it_names() {
        let ours = std::process::id();
        for (limit, pid, expected) in [
            (Some("30000000"), None, Some(Duration::from_secs(30))),
            (Some("30000000"), Some(ours), Some(Duration::from_secs(30))),
            (Some("30000000"), Some(ours + 1), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, Some(ours), None),
        ] {
            let variable = |name: &str| match name {
                WATCHDOG_VARIABLE => limit.map(str::to_owned),
                _ => pid.map(|pid| pid.to_string()),
            };
            assert_eq!(watchdog(variable), expected, "{limit:?} {pid:?}");
        }
    }

    #[test]
    fn manager_at_a_path_or_an_abstract_name_receives_notifications() {
        let directory = tempfile::tempdir().expect("created");
        let path = directory.path().join("socket").display().to_string();
        let abstract_name = format!("sanderling-notify-{}", std::process::id());
        let at_name = SocketAddr::from_abstract_name(&abstract_name).expect("short enough");
        for (name, address) in [
            (path.clone(), SocketAddr::from_pathname(path).expect("short enough")),
            (format!("@{abstract_name}"), at_name),
        ] {
            let listener = UnixDatagram::bind_addr(&address).expect("bound");
            let limit = Some(Duration::from_secs(30));
            let notifier = Notifier { manager: Some(Manager::at(name.clone()).expect("a socket")), watchdog: limit };
            assert_eq!(notifier.watchdog_interval(), Some(Duration::from_secs(15)));
            notifier.notify(&[State::Ready, State::Status("2 sites")]).expect("sent");
            let mut room = [0; 256];
            let length = listener.recv(&mut room).expect("received");
            assert_eq!(&room[..length], b"READY=1\nSTATUS=2 sites\n");
        }
        // Not the names from above: a process that another test has forked may still hold a listener.
        let file = directory.path().join("file");
        std::fs::write(&file, "").expect("written");
        for name in [file.display().to_string(), format!("@{abstract_name}-missing")] {
            let notifier = Notifier { manager: Some(Manager::at(name.clone()).expect("a name")), watchdog: None };
            let error = notifier.notify(&[State::Ready]).expect_err("no listener").to_string();
            assert!(error.starts_with(&format!("sendto(\"{name}\") failed: Connection refused")), "{error}");
        }
        let error = Manager::at("vsock:2:1".to_owned()).expect_err("not a Unix socket");
        let expected = "NOTIFY_SOCKET=\"vsock:2:1\" is invalid: expected an absolute path, or @ and an abstract name";
        assert_eq!(error.to_string(), expected);
    }
}
