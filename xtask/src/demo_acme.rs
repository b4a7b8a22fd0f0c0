//! `cargo xtask demo-acme`: a server that requests its certificate from Pebble, a certificate authority for tests, on
//! this machine.

use crate::program::{Log, Outcome, Program};
use std::env;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const ACME: &str = "127.0.0.1:14000";
const MANAGEMENT: &str = "127.0.0.1:15000";
const HTTP_PORT: u16 = 8080;
const HTTPS: &str = "127.0.0.1:8443";
const DNS: &str = "127.0.0.1:5353";
/// Time in which Pebble must listen.
const START_TIME: Duration = Duration::from_secs(10);
const ZONE: &str = "@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 127.0.0.1\n@ 60 A 127.0.0.1\n";

/// Runs until Ctrl-C, which ends this program too.
pub(crate) fn run(log: &mut Log) -> Outcome {
    let folder = env::temp_dir().join(format!("sanderling-demo-acme-{}", std::process::id()));
    let outcome = prepare(&folder).and_then(|()| serve(&folder, log));
    let _ = fs::remove_dir_all(&folder);
    outcome.unwrap_or_else(|error| Outcome::Failed(error.to_string()))
}

/// Writes a site, a zone, and the configurations of both servers.
fn prepare(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join("public"))?;
    fs::write(folder.join("public/index.html"), "<h1>A site with a certificate</h1>\n")?;
    fs::write(folder.join("example.com.zone"), ZONE)?;
    let config = format!(
        "state = \"state\"\n[http]\nlisten = [\"127.0.0.1:{HTTP_PORT}\"]\n[https]\nlisten = [\"{HTTPS}\"]\n[dns]\nlisten = \
         [\"{DNS}\"]\n[certificates]\nagree_to_terms = true\nauthorities = [{{ directory = \"https://{ACME}/dir\", \
         root = \"pebble.pem\" }}]\n[domain.\"example.com\"]\nsite = \"public\"\nzone = \"example.com.zone\"\n"
    );
    fs::write(folder.join("sanderling.toml"), config)?;
    let pebble = format!(
        "{{\"pebble\":{{\"listenAddress\":\"{ACME}\",\"managementListenAddress\":\"{MANAGEMENT}\",\"certificate\":\
         \"pebble.pem\",\"privateKey\":\"pebble.key\",\"httpPort\":{HTTP_PORT},\"tlsPort\":1,\"ocspResponderURL\":\"\",\
         \"externalAccountBindingRequired\":false}}}}"
    );
    fs::write(folder.join("pebble.json"), pebble)?;
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=pebble -addext \
                     basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1 -keyout pebble.key -out pebble.pem";
    let made = Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output()?;
    if made.status.success() { Ok(()) } else { Err(io::Error::other("openssl cannot make a certificate")) }
}

fn serve(folder: &Path, log: &mut Log) -> io::Result<Outcome> {
    let pebble = Pebble::start(folder)?;
    println!("When a certificate is issued, within seconds, in another terminal:\n");
    println!("  curl -sk https://{MANAGEMENT}/roots/0 >root.pem");
    println!("  curl --cacert root.pem --connect-to ::{HTTPS} https://example.com/");
    println!("  cargo run -- certificates --control {}\n", folder.join("control").display());
    println!("Ctrl-C ends both servers. Their files stay in {}.\n", folder.display());
    let [config, control] = ["sanderling.toml", "control"].map(|name| folder.join(name).display().to_string());
    let arguments = ["--config", &config, "--control", &control].map(str::to_owned);
    let outcome = Program::cargo().args("run --quiet --package sanderling -- serve").args_of(&arguments).run(log);
    drop(pebble);
    Ok(outcome)
}

/// A running Pebble, which ends when this is dropped.
struct Pebble(Child);

impl Pebble {
    fn start(folder: &Path) -> io::Result<Pebble> {
        let in_home = env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin/pebble"));
        let program = in_home.filter(|path| path.is_file()).unwrap_or_else(|| "pebble".into());
        let child = Command::new(&program)
            .args(["-config", "pebble.json", "-dnsserver", DNS])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let missing =
            |error| io::Error::other(format!("{}: {error}; `cargo xtask setup` installs it", program.display()));
        let mut pebble = Pebble(child.map_err(missing)?);
        let start = Instant::now();
        while TcpStream::connect(MANAGEMENT).is_err() || TcpStream::connect(ACME).is_err() {
            if pebble.0.try_wait()?.is_some() || start.elapsed() > START_TIME {
                return Err(io::Error::other(format!("Pebble cannot listen at {ACME} and {MANAGEMENT}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(pebble)
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
