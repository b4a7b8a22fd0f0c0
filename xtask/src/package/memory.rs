//! The memory that the program needs after its start, with one site and one zone.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{emptied, put, read};
use crate::program::{Log, Program};

const CONFIGURATION: &str = "\
control = \"control.sock\"
http.listen = [\"127.0.0.1:0\"]
dns.listen = [\"127.0.0.1:0\"]
[domain.\"example.com\"]
site = \"site\"
zone = \"example.com.zone\"
";
const ZONE: &str = "$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A 192.0.2.1\n";
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the program, and prints the memory of each of its processes.
pub(super) fn measure(program: &Path, log: &mut Log) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("sanderling-memory-{}", std::process::id()));
    emptied(&folder.join("site"))?;
    put(&folder.join("sanderling.toml"), CONFIGURATION)?;
    put(&folder.join("example.com.zone"), ZONE)?;
    put(&folder.join("site/index.html"), "<!doctype html>\n")?;
    let measured = measure_in(program, &folder, log);
    let removed = fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()));
    measured.and(removed)
}

fn measure_in(program: &Path, folder: &Path, log: &mut Log) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg("serve").current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
    let printed = wait_until_served(program, folder, &mut server).and_then(|()| print(&server, log));
    let stopped = Program::new("kill").args_of(&[server.id().to_string()]).run_silently(log);
    let status = server.wait().map_err(|error| error.to_string())?;
    printed.and(stopped)?;
    if status.success() { Ok(()) } else { Err(format!("the program ends with {status}")) }
}

fn wait_until_served(program: &Path, folder: &Path, server: &mut Child) -> Result<(), String> {
    let start = Instant::now();
    while start.elapsed() < START_TIMEOUT {
        let status = Program::new(&program.to_string_lossy()).args("status").current_dir(folder).output();
        if status.is_some() {
            return Ok(());
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("the program ends with {status}"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err(format!("the program does not serve within {} s", START_TIMEOUT.as_secs()))
}

fn print(server: &Child, log: &mut Log) -> Result<(), String> {
    let children = format!("/proc/{0}/task/{0}/children", server.id());
    let mut sum_kib = 0;
    for (name, pid) in [("supervisor".to_owned(), server.id().to_string())]
        .into_iter()
        .chain(read(Path::new(&children))?.split_whitespace().map(|pid| ("child".to_owned(), pid.to_owned())))
    {
        let status = read(&Path::new("/proc").join(&pid).join("status"))?;
        let kib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
        };
        log.line(&format!(
            "memory of the {name:<30} {:>10} KiB resident, {} KiB private",
            kib("VmRSS"),
            kib("RssAnon")
        ));
        sum_kib += kib("RssAnon");
    }
    log.line(&format!("{:<44} {sum_kib:>10} KiB", "memory of all processes without the program"));
    Ok(())
}
