//! nginx next to this program, for comparisons.

use sanderling_testkit::{DEADLINE, TestDirectory, wait_until};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// nginx with a server on a socket in its directory; stopped when it is dropped.
pub(crate) struct Nginx {
    child: Child,
    socket: PathBuf,
}

impl Nginx {
    /// With these directives of `http`, which may have other servers, and of the server on the socket.
    pub(crate) fn start(directory: &TestDirectory, http: &str, server: &str) -> Nginx {
        let socket = directory.path().join("nginx.sock");
        let temporary =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path t;\n"));
        let config = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr crit;\nevents {{}}\nhttp {{\n{}\
             access_log off;\nabsolute_redirect off;\n{http}\nserver {{\nlisten unix:{};\n{server}\n}}\n}}\n",
            temporary.concat(),
            socket.display(),
        );
        directory.write("nginx.conf", config.as_bytes());
        let mut command = Command::new("nginx");
        command.arg("-p").arg(directory.path()).args(["-e", "stderr", "-c", "nginx.conf"]).stdin(Stdio::null());
        let child = command.spawn().expect("nginx is installed: cargo xtask setup");
        let nginx = Nginx { child, socket };
        // All of its sockets listen then.
        wait_until("nginx accepts connections", || UnixStream::connect(&nginx.socket).is_ok());
        nginx
    }

    /// What the server on the socket sends for these bytes, until it closes the connection.
    pub(crate) fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = UnixStream::connect(&self.socket).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        // A server that has refused the request may have closed already.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(Shutdown::Write);
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        received
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
