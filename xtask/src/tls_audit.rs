//! `cargo xtask tls-audit`: testssl.sh and sslyze against the default configuration, with a certificate of a private
//! certificate authority.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::program::{Log, Outcome, Program, target_folder};
use crate::setup;

const NEEDED: &[setup::Needed] =
    &[("testssl", "testssl.sh"), ("openssl", "openssl"), ("python3", "python3"), ("pip3", "python3-venv python3-pip")];

/// Findings of testssl.sh that are no defects, with the reason.
const EXPECTED: &[(&str, &str)] = &[
    ("cert_revocation", "the private authority offers neither CRL nor OCSP"),
    ("cert_trust", "the authority is private"),
    ("cert_chain_of_trust", "the authority is private"),
];

/// The private authority, and its certificate for `localhost`.
const CERTIFICATES: &str = "set -e
cd \"$1\"
new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
$new -x509 -days 365 -subj '/CN=Private authority' -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.pem
$new -subj /CN=localhost -keyout key.pem -out request.pem
printf '%s\\n' subjectAltName=DNS:localhost extendedKeyUsage=serverAuth keyUsage=critical,digitalSignature \\
    basicConstraints=critical,CA:FALSE > extensions
openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 90 -extfile extensions -out chain.pem
mkdir -p site
echo audit > site/index.html";

pub(crate) fn run(log: &mut Log) -> Outcome {
    let target = target_folder();
    // Another user serves from it, and may have no access to the sources.
    let folder = env::temp_dir().join(format!("tls-audit-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&folder) {
        return Outcome::Failed(format!("{}: {error}", folder.display()));
    }
    let outcome = run_in(&folder, &target, log);
    // Findings can be seen in the output.
    let _ = fs::remove_dir_all(folder);
    outcome
}

fn run_in(folder: &Path, target: &Path, log: &mut Log) -> Outcome {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let of_venv = |name: &str| target.join("sslyze").join(name).to_string_lossy().into_owned();
    let sslyze = of_venv("bin/sslyze");
    let has_sslyze = Path::new(&sslyze).is_file();
    let venv = format!("-m venv {}", of_venv(""));
    setup::install(NEEDED, log)
        .and_then(|| if has_sslyze { Outcome::Passed } else { Program::new("python3").args(&venv).run(log) })
        .and_then(|| {
            let pip = Program::new(&of_venv("bin/pip")).args("install --quiet sslyze");
            if has_sslyze { Outcome::Passed } else { pip.run(log) }
        })
        .and_then(|| {
            let words = ["-c", CERTIFICATES, "sh", &path("")].map(str::to_owned);
            Program::new("sh").args_of(&words).run(log)
        })
        .and_then(|| Program::cargo().args("build --quiet --release --package sanderling").run(log))
        .and_then(|| match Server::start(&target.join("release/sanderling"), folder) {
            Ok(server) => audit(&server, folder, &sslyze, log),
            Err(error) => Outcome::Failed(format!("the server does not start: {error}")),
        })
}

/// Runs both programs. sslyze compares with the configuration "intermediate" of Mozilla, and fails if it differs.
fn audit(server: &Server, folder: &Path, sslyze: &str, log: &mut Log) -> Outcome {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let findings = path("findings.csv");
    // testssl.sh does not overwrite it.
    let _ = fs::remove_file(&findings);
    let Server { port, .. } = server;
    let words = format!("--quiet --color 0 --warnings off --csvfile {findings} https://localhost:{port}");
    let testssl = Program::new("testssl").args(&words).env("ADDITIONAL_CA_FILES", &path("ca.pem"));
    let by_sslyze = format!("--certinfo_ca_file {} --mozilla_config intermediate localhost:{port}", path("ca.pem"));
    let outcome = Program::new(sslyze).args(&by_sslyze).run(log);
    // The exit status of testssl is the number of findings and errors, so the file is judged instead.
    let _ = testssl.run(log);
    let text = match fs::read_to_string(&findings) {
        Ok(text) if text.contains("\"TLS1_3\"") => text,
        _ => return Outcome::Failed("testssl.sh has written no findings".to_owned()),
    };
    let defects = defects(&text);
    outcome.and_then(|| if defects.is_empty() { Outcome::Passed } else { Outcome::Failed(defects.join("\n")) })
}

/// The findings above LOW that are not expected. Lines are `"id","host","port","severity","finding","cve","cwe"`.
fn defects(csv: &str) -> Vec<String> {
    let fields = csv.lines().map(|line| line.trim_matches('"').split("\",\"").collect::<Vec<_>>());
    let is_defect = |fields: &Vec<&str>| {
        fields.len() > 4
            && ["MEDIUM", "HIGH", "CRITICAL", "FATAL"].contains(&fields[3])
            && !EXPECTED.iter().any(|(id, _)| fields[0].split(' ').next() == Some(*id))
    };
    fields.filter(is_defect).map(|fields| format!("{} {}: {}", fields[3], fields[0], fields[4])).collect()
}

/// A server with the default configuration. The server is stopped when it is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(program: &Path, folder: &Path) -> std::io::Result<Server> {
        let program = program.canonicalize()?;
        let mut command = Command::new(program);
        command.args(["serve", "site", "--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]);
        command.args(["--certificate", "chain.pem", "--key", "key.pem"]).current_dir(folder);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut server = Server { child, port: 0 };
        let output = server.child.stdout.take().expect("a pipe");
        for line in BufReader::new(output).lines() {
            if let Some(port) = line?.strip_prefix("https 127.0.0.1:").and_then(|port| port.parse().ok()) {
                server.port = port;
                return Ok(server);
            }
        }
        Err(std::io::Error::other("it prints no address for HTTPS"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The supervisor stops its server process.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_above_low_is_a_defect_unless_it_is_expected() {
        let line = |id: &str, severity: &str| {
            format!("\"{id}\",\"localhost/127.0.0.1\",\"443\",\"{severity}\",\"a, b\",\"\",\"\"\n")
        };
        let text = [
            "\"id\",\"fqdn/ip\",\"port\",\"severity\",\"finding\",\"cve\",\"cwe\"\n".to_owned(),
            line("HSTS", "LOW"),
            line("TLS1_3", "OK"),
            line("cert_revocation <cert#1>", "HIGH"),
            line("cert_trust", "HIGH"),
            line("heartbleed", "CRITICAL"),
        ];
        assert_eq!(defects(&text.concat()), ["CRITICAL heartbleed: a, b"]);
    }
}
