//! The process that runs the command `on_renew` of a domain, when its certificate was renewed. The process separates
//! the supervisor from the command: the supervisor does not wait, does not read the command's output, and passes no
//! descriptor to it. The command gets copies of the certificate and its key that only its user can write, since it may
//! be root, and the agent can write the state folder.

use crate::stored_certificate::StoredCertificate;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{log, log_error};
use sanderling_config::{DomainName, Exit};
use sanderling_ipc::control_path::runtime_directory;
use sanderling_os::error::with_context;
use sanderling_os::poll_set::PollSet;
use sanderling_os::process::{ProcessHandle, kill_group};
use sanderling_os::signals;
use sanderling_state::{CHAIN_FILE, KEY_FILE};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The search path of the command.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of its output that are logged.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
/// Time after its exit in which the rest of its output is read: a process that it has started may keep it open.
const OUTPUT_TIME: Duration = Duration::from_secs(1);

/// The command to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenewalCommand {
    pub(crate) domain: DomainName,
    /// The state folder, which has the certificate and its key.
    pub(crate) state: PathBuf,
    /// After this time the command is killed.
    pub(crate) timeout: Duration,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
}

impl RenewalCommand {
    pub(crate) fn run(self) -> Exit {
        let domain = self.domain.clone();
        match self.try_run() {
            Ok(status) if status.success() => {
                log(&format!("`on_renew` of {domain} succeeded"));
                Exit::Success
            }
            Ok(status) => {
                log_error(&format!("`on_renew` of {domain} failed: {status}; run it by hand"));
                Exit::Failure
            }
            Err(error) => {
                log_error(&format!("`on_renew` of {domain}: {}", error_text(&error)));
                Exit::Failure
            }
        }
    }

    fn try_run(self) -> io::Result<ExitStatus> {
        // The supervisor blocks them while it starts a process.
        signals::unblock_all()?;
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let copies = Copies::new(&self.state, &self.domain)?;
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").env_clear().env("PATH", PATH).process_group(0);
        command.env("SANDERLING_DOMAIN", self.domain.as_str());
        command.env("SANDERLING_CHAIN", copies.folder.join(CHAIN_FILE));
        command.env("SANDERLING_KEY", copies.folder.join(KEY_FILE));
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        // The command value holds the writing ends too.
        drop(command);
        let (done, is_read) = mpsc::channel();
        let domain = self.domain.clone();
        thread::spawn(move || {
            log_lines(&domain, reader);
            let _ = done.send(());
        });
        let handle = ProcessHandle::open(child.id().cast_signed())?;
        let mut poll_set = PollSet::new([handle.as_fd()]);
        poll_set.wait(Some(self.timeout))?;
        if !poll_set.is_ready(0) {
            kill_group(handle.pid())?;
            log_error(&format!(
                "`on_renew` of {} did not end within {} s; killed",
                self.domain,
                self.timeout.as_secs()
            ));
        }
        let status = child.wait()?;
        let _ = is_read.recv_timeout(OUTPUT_TIME);
        drop(copies);
        Ok(status)
    }
}

/// The certificate and its key, in a separate folder that exists as long as the command.
struct Copies {
    folder: PathBuf,
}

impl Copies {
    fn new(state: &Path, domain: &DomainName) -> io::Result<Copies> {
        let stored = StoredCertificate::read(state, domain).map_err(io::Error::other)?;
        let stored = stored.ok_or_else(|| io::Error::other("its certificate no longer exists"))?;
        // Under systemd the runtime directory is in memory.
        let above = runtime_directory().unwrap_or_else(std::env::temp_dir);
        let folder = above.join(format!("sanderling-on-renew-{}", random_name()?));
        let failed = |error: io::Error| with_context("write", folder.display(), &error);
        // Creation fails if the path exists, since another user may have made it.
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let copies = Copies { folder: folder.clone() };
        for (file, content) in [(CHAIN_FILE, &stored.chain), (KEY_FILE, &stored.key)] {
            let path = folder.join(file);
            let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
            file.and_then(|mut file| file.write_all(content)).map_err(failed)?;
        }
        Ok(copies)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            log_error(&format!("cannot remove {}: {}", self.folder.display(), error_text(&error)));
        }
    }
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Logs the output of a command, up to a limit; the rest is read and discarded, so that the command does not wait.
fn log_lines(domain: &DomainName, output: PipeReader) {
    let mut reader = BufReader::new(output.take(OUTPUT_BYTES_MAX));
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&line);
        log(&format!("`on_renew` of {domain}: {}", text.trim_end().escape_debug()));
        line.clear();
    }
    let _ = io::copy(&mut reader.into_inner().into_inner(), &mut io::sink());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_certificate::tests::state_for;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn command_gets_copies_that_no_other_user_can_read_and_that_end_with_it() {
        let (state, output) = (state_for("example.com"), tempfile::tempdir().expect("created"));
        let script = "echo $SANDERLING_CHAIN $SANDERLING_KEY > $0/paths; cp -p $SANDERLING_KEY $0/key; \
                      stat -c %a $SANDERLING_KEY ${SANDERLING_KEY%/*} > $0/modes";
        let command = ["/bin/sh", "-c", script, output.path().to_str().expect("plain")].map(str::to_owned).to_vec();
        let renewal = RenewalCommand {
            domain: DomainName::parse("example.com").expect("a name"),
            state: state.path().to_owned(),
            timeout: Duration::from_secs(60),
            command,
        };
        assert!(renewal.try_run().expect("it runs").success());
        let read = |file: &str| fs::read_to_string(output.path().join(file)).expect("written");
        for path in read("paths").split_whitespace().map(Path::new) {
            assert!(!path.starts_with(state.path()) && !path.exists(), "{}", path.display());
        }
        assert_eq!(read("modes"), "600\n700\n");
        assert_eq!(
            fs::metadata(output.path().join("key")).expect("there").uid(),
            sanderling_os::process::effective_uid()
        );
        assert_eq!(
            read("key"),
            fs::read_to_string(state.path().join("certificates/example.com/privkey.pem")).expect("there")
        );
    }
}
