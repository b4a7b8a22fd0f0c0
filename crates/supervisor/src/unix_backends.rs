//! Connects a server process to the UNIX sockets of applications: its sandbox lets it create no such socket.
//!
//! It asks for a path, which must be one of its configuration. Whether the socket may be used is decided by the rights
//! of its user, as if it connected itself: the owner of the folder of a socket could otherwise put a link there to one
//! that only root may use.

use sanderling_config::{Config, lookup_user};
use sanderling_os::process::effective_uid;
use sanderling_os::socket::connect_to_path;
use sanderling_os::user::User;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connections of a process in each second; further ones fail. Kept connections need none.
const CONNECTIONS_PER_SECOND_MAX: u32 = 5_000;
const SECOND: Duration = Duration::from_secs(1);

/// The sockets that a server process may be connected to.
#[derive(Debug)]
pub(crate) struct UnixBackends {
    paths: BTreeSet<PathBuf>,
    /// The user with whose rights they are opened; `None` for that of this process.
    user: Option<User>,
    second: Instant,
    /// Connections since `second`.
    count: u32,
}

impl UnixBackends {
    /// Those of a process that runs with `config`.
    pub(crate) fn new(config: &Config) -> UnixBackends {
        let mut paths: BTreeSet<PathBuf> = config.backend_sockets().into_iter().map(Path::to_owned).collect();
        let user = if paths.is_empty() || effective_uid() != 0 { Ok(None) } else { lookup_user(config) };
        // Without its user, the rights would be those of root: no path is allowed.
        let user = user.unwrap_or_else(|_| {
            paths.clear();
            None
        });
        UnixBackends { paths, user, second: Instant::now(), count: 0 }
    }

    /// A connection to the socket at `path`.
    ///
    /// # Errors
    /// That of connect(2) for its user: `PermissionDenied` also for a path that is not one of its configuration,
    /// `WouldBlock` also for too many connections.
    pub(crate) fn connect(&mut self, path: &Path, now: Instant) -> io::Result<OwnedFd> {
        if !self.paths.contains(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if now.saturating_duration_since(self.second) >= SECOND {
            (self.second, self.count) = (now, 0);
        }
        if self.count >= CONNECTIONS_PER_SECOND_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.count = self.count.saturating_add(1);
        match &self.user {
            Some(user) => user.with_file_rights(|| connect_to_path(path)).and_then(|connected| connected),
            None => connect_to_path(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::ConfigSource;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    /// A folder that every user may enter, and the configuration with a socket in it.
    fn fixture() -> (tempfile::TempDir, PathBuf, Config) {
        fixture_of("nobody")
    }

    fn fixture_of(user: &str) -> (tempfile::TempDir, PathBuf, Config) {
        let folder = tempfile::tempdir().expect("a directory");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("set");
        let path = folder.path().join("app.sock");
        let text = format!("user = {user:?}\n[domain.\"a.test\".route.\"/\"]\nproxy = \"unix:{}\"\n", path.display());
        let config = ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes()).expect("a configuration");
        (folder, path, config)
    }

    #[test]
    fn only_the_sockets_of_the_configuration_are_connected() {
        let (folder, path, config) = fixture();
        let other = folder.path().join("other.sock");
        let [listener, other_listener] = [&path, &other].map(|path| UnixListener::bind(path).expect("bound"));
        for path in [&path, &other] {
            fs::set_permissions(path, Permissions::from_mode(0o777)).expect("set");
        }
        let mut backends = UnixBackends::new(&config);
        backends.connect(&path, Instant::now()).expect("connected");
        listener.accept().expect("connected");
        assert_eq!(
            backends.connect(&other, Instant::now()).expect_err("not configured").kind(),
            io::ErrorKind::PermissionDenied
        );
        drop((listener, other_listener));
        assert_eq!(
            backends.connect(&path, Instant::now()).expect_err("nobody listens").kind(),
            io::ErrorKind::ConnectionRefused
        );
        fs::remove_file(&path).expect("removed");
        assert_eq!(backends.connect(&path, Instant::now()).expect_err("removed").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn socket_that_the_user_may_not_use_is_not_connected_even_through_a_link() {
        if effective_uid() != 0 {
            return eprintln!("NOT TESTED: the rights of another user, which needs root");
        }
        let (folder, path, config) = fixture();
        let secret = folder.path().join("secret.sock");
        let _listener = UnixListener::bind(&secret).expect("bound");
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("set");
        symlink(&secret, &path).expect("linked");
        let mut backends = UnixBackends::new(&config);
        assert_eq!(
            backends.connect(&path, Instant::now()).expect_err("of root").kind(),
            io::ErrorKind::PermissionDenied
        );
        connect_to_path(&secret).expect("the rights of this process are as before");
        fs::set_permissions(&secret, Permissions::from_mode(0o666)).expect("set");
        backends.connect(&path, Instant::now()).expect("allowed");
    }

    #[test]
    fn nothing_is_connected_for_a_user_who_cannot_be_found() {
        if effective_uid() != 0 {
            return eprintln!("NOT TESTED: the rights of another user, which needs root");
        }
        let (_folder, path, config) = fixture_of("no-such-user-of-tests");
        let _listener = UnixListener::bind(&path).expect("bound");
        let error = UnixBackends::new(&config).connect(&path, Instant::now()).expect_err("no user");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn connections_of_one_second_are_limited() {
        let (_folder, path, config) = fixture();
        let mut backends = UnixBackends::new(&config);
        let start = Instant::now();
        for _ in 0..CONNECTIONS_PER_SECOND_MAX {
            assert_eq!(backends.connect(&path, start).expect_err("no socket").kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(backends.connect(&path, start).expect_err("too many").kind(), io::ErrorKind::WouldBlock);
        assert_eq!(backends.connect(&path, start + SECOND).expect_err("no socket").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn full_backlog_is_an_error_and_does_not_block() {
        let (_folder, path, config) = fixture();
        let listener = UnixListener::bind(&path).expect("bound");
        fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("set");
        sanderling_os::socket::set_backlog(&listener, 1).expect("set");
        let mut backends = UnixBackends::new(&config);
        let connect = |backends: &mut UnixBackends| backends.connect(&path, Instant::now());
        let mut connected = Vec::new();
        let error = loop {
            match connect(&mut backends) {
                Ok(connection) => connected.push(connection),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(connected.len() < 100, "{}", connected.len());
    }
}
