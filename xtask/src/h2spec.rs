//! Runs h2spec against the release program, and counts its HTTP/2 tests that pass over TLS and without encryption.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::program::{Log, Outcome, Program, is_installed, target_folder};

const INSTALL: &str = "GOFLAGS=-mod=mod go install github.com/summerwind/h2spec/cmd/h2spec@latest";
const CONFIG: &str = "workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\nhttp2 = true\n[https]\nlisten = [\"127.0.0.1:0\"]\n\
    [domain.\"localhost\"]\nsite = \"public\"\nhttps_redirect = false\n\
    certificate = { chain = \"chain.pem\", key = \"key.pem\" }\n";
const CERTIFICATE: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1";
/// Content that some tests divide by small windows.
const PAGE_BYTES: usize = 1024;

pub(crate) fn run(log: &mut Log) -> Outcome {
    if !is_installed("h2spec") {
        return Outcome::Skipped(format!("h2spec is not installed; install Go and run {INSTALL}"));
    }
    let build = Program::cargo().args("build --quiet --locked --release --package sanderling");
    build.run(log).and_then(|| match Server::start() {
        Ok(server) => server.test(log),
        Err(error) => Outcome::Failed(error),
    })
}

/// A server in a temporary folder, both of which end when it is dropped.
struct Server {
    supervisor: Child,
    folder: PathBuf,
    /// The ports of HTTP and HTTPS.
    ports: [String; 2],
}

impl Server {
    fn start() -> Result<Server, String> {
        let program =
            fs::canonicalize(target_folder().join("release/sanderling")).map_err(|error| error.to_string())?;
        let made = Program::new("mktemp").args("--directory --tmpdir h2spec-XXXXXX").output();
        let folder = PathBuf::from(made.ok_or("mktemp failed")?.trim());
        let written = fs::create_dir(folder.join("public"))
            .and_then(|()| fs::write(folder.join("public/index.html"), [b'x'; PAGE_BYTES]))
            .and_then(|()| fs::write(folder.join("sanderling.toml"), CONFIG));
        written.map_err(|error| format!("{}: {error}", folder.display()))?;
        run_in(&folder, "openssl", &format!("{CERTIFICATE} -keyout key.pem -out chain.pem"))?;
        // Root serves as another user, which must reach the folder.
        run_in(&folder, "chmod", "a+rX .")?;
        let mut command = Command::new(program);
        command.args(["serve", "--config", "sanderling.toml", "--control", "control"]).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut supervisor = command.spawn().map_err(|error| error.to_string())?;
        let output = supervisor.stdout.take().ok_or("no output")?;
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let mut port = || Some(lines.next()?.rsplit_once(':')?.1.to_owned());
        let ports = [port(), port()].map(Option::unwrap_or_default);
        Ok(Server { supervisor, folder, ports })
    }

    fn test(&self, log: &mut Log) -> Outcome {
        let [http, https] = &self.ports;
        let mut outcome = Outcome::Passed;
        for (name, arguments) in [("TLS", format!("-t -k -p {https}")), ("no encryption", format!("-p {http}"))] {
            let mut h2spec = Command::new("h2spec");
            h2spec.args(["-h", "127.0.0.1"]).args(arguments.split_whitespace());
            let output = match h2spec.output() {
                Ok(output) => output,
                Err(error) => return Outcome::Failed(format!("h2spec: {error}")),
            };
            let text = String::from_utf8_lossy(&output.stdout);
            if let Some((_, failures)) = text.split_once("Failures:") {
                log.line(failures.trim());
            }
            let score = text.lines().last().unwrap_or_default();
            log.line(&format!("{name}: {score}"));
            if !output.status.success() || !score.contains(" 0 failed") {
                outcome = Outcome::Failed(format!("{name}: {score}"));
            }
        }
        outcome
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM, so that the server process ends too.
        let _ = Command::new("kill").arg(self.supervisor.id().to_string()).status();
        let _ = self.supervisor.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn run_in(folder: &Path, program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program).args(arguments.split_whitespace()).current_dir(folder).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
