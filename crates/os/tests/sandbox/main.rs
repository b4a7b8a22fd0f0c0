//! A sandboxed process, seen from inside and from outside.
//!
//! Each test starts this program again as that process. The program has its own test harness, since the standard
//! library's runs tests in threads, and a process must have one thread to enter the sandbox.

mod connections;
mod inside;
mod other_processes;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The child's environment variable: its directory, user and task, separated by colons.
const CHILD_VARIABLE: &str = "SANDERLING_SANDBOXED";

macro_rules! tests {
    ($($name:ident),* $(,)?) => { const TESTS: &[(&str, fn())] = &[$((stringify!($name), $name)),*]; };
}

tests! {
    sandboxed_process_reads_the_given_files_and_nothing_else,
    process_status_shows_the_sandbox_from_outside,
    memory_of_a_process_without_core_dumps_belongs_to_root,
    every_variant_of_every_feature_works_inside,
    call_of_an_attacker_kills_the_process,
    each_layer_works_alone,
    process_with_applications_connects_to_their_ports_and_no_others,
    unprivileged_user_can_enter_the_sandbox,
    agent_writes_its_folder_and_connects_and_does_nothing_else,
    keeper_answers_requests_and_does_nothing_else,
}

fn main() {
    if let Ok(order) = std::env::var(CHILD_VARIABLE) {
        let mut words = order.split(':');
        let mut word = || words.next().expect("three words");
        let (directory, user, task) = (word(), word(), word());
        return inside::run(Path::new(directory), (user != SAME_USER).then_some(user), task);
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    println!("\nrunning {} tests", TESTS.iter().filter(|(name, _)| is_wanted(name)).count());
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| is_wanted(name)) {
        let result = std::panic::catch_unwind(test);
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        *(if result.is_ok() { &mut passed } else { &mut failed }) += 1;
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured\n");
    std::process::exit(if failed == 0 { 0 } else { 101 });
}

/// Keeps the user that the test runs as.
const SAME_USER: &str = "";

/// The user that the child switches to: nobody, if this is root.
fn user() -> &'static str {
    if rustix::process::geteuid().is_root() {
        return "nobody";
    }
    eprintln!("NOT TESTED: the switch of the user, which needs root");
    SAME_USER
}

fn sandboxed_process_reads_the_given_files_and_nothing_else() {
    let tree = Tree::new();
    let child = Sandboxed::start(&tree, user(), "report", "");
    check_report(&child.lines);
    child.end();
    assert_eq!(std::fs::read(tree.path().join("root/page")).expect("there"), PAGE.as_bytes(), "nothing has changed");
}

/// Checks the report except for its first line, which has versions.
fn check_report(lines: &[String]) {
    if !lines.iter().any(|line| line == "Landlock enforced: true") {
        return eprintln!("NOT TESTED: this kernel does not have Landlock: {}", lines[0]);
    }
    assert_eq!(lines[1..], REPORT.lines().collect::<Vec<_>>());
}

const PAGE: &str = "a page";

const REPORT: &str = r#"Landlock enforced: true
a page beneath the open root: "a page"
a zone by its path: "a zone"
the list of a readable directory: 1
a watch of the root: "set"
the path of the root: "root"
/etc/passwd: EACCES
a file that is not readable: EACCES
a link out of the root: EXDEV
/proc/self/environ: EACCES
overwriting a page: EACCES
creating a file: EACCES
removing a page: EPERM
renaming a page: EPERM
opening for writing by openat2: EACCES
a TCP socket: EPERM
a Unix socket: EPERM
switching to root: EPERM
signalling the parent: EPERM
creating a process: EPERM
executable memory by mmap: EPERM
executable memory by mprotect: EPERM
typing into a terminal: EPERM
loading a program into the kernel: EPERM
a descriptor of the process at the other end: EPERM
overwriting a log: EPERM
having the other owners of a listener wait for a client: EPERM
another thread: 42
a panic: "caught"
a poller with a waker: Ok(())
received from a connection: true
a file sent to a connection: 6
an option of a connection: ()
datagrams received: 1
datagrams lost: 0
the answer: true"#;

fn process_status_shows_the_sandbox_from_outside() {
    let tree = Tree::new();
    let child = Sandboxed::start(&tree, user(), "report", "");
    let process = check_status(&child);
    if user() != SAME_USER {
        // The files in /proc of a process that is not dumpable belong to root (proc(5)).
        let nobody = sanderling_os::user::User::lookup("nobody", None).expect("every system has it");
        assert_eq!(process.join("maps").metadata().expect("there").uid(), nobody.uid, "the process is not dumpable");
    }
    child.end();
}

/// Checks what the kernel shows of a process's rights; its folder.
fn check_status(child: &Sandboxed) -> PathBuf {
    let process = PathBuf::from(format!("/proc/{}", child.process.id()));
    let status = std::fs::read_to_string(process.join("status")).expect("it runs until it is stopped");
    let check = |field: &str, expected: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        assert_eq!(line.map(str::trim), Some(expected), "{field} in\n{status}");
    };
    for field in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        check(field, "0000000000000000");
    }
    check("NoNewPrivs", "1");
    check("Seccomp", "2");
    check("Seccomp_filters", "3");
    check("Threads", "1");
    if user() != SAME_USER {
        let nobody = sanderling_os::user::User::lookup("nobody", None).expect("every system has it");
        check("CapBnd", "0000000000000000");
        check("Uid", &[nobody.uid; 4].map(|id| id.to_string()).join("\t"));
        check("Gid", &[nobody.gid; 4].map(|id| id.to_string()).join("\t"));
        check("Groups", &nobody.gids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    }
    process
}

fn memory_of_a_process_without_core_dumps_belongs_to_root() {
    let tree = Tree::new();
    let child = Sandboxed::start(&tree, user(), "without-core-dumps", "");
    let maps = PathBuf::from(format!("/proc/{}/maps", child.process.id()));
    assert_eq!(maps.metadata().expect("there").uid(), 0);
    child.end();
}

fn every_variant_of_every_feature_works_inside() {
    let tree = Tree::new();
    let variant_count_max =
        sanderling_os::features::FEATURES.iter().map(|feature| feature.variants().len()).max().unwrap_or(0);
    for index in 1..variant_count_max {
        let variant = |feature: &&sanderling_os::fallback::Feature| {
            format!("{}={}", feature.name(), feature.variants()[index.min(feature.variants().len() - 1)].name)
        };
        let forced = sanderling_os::features::FEATURES.iter().map(variant).collect::<Vec<_>>().join(",");
        println!("with {forced}");
        let child = Sandboxed::start(&tree, user(), "report", &forced);
        check_report(&child.lines);
        child.end();
    }
}

fn call_of_an_attacker_kills_the_process() {
    let tree = Tree::new();
    let check = |task: &str, signal: i32| {
        let mut command = command(&tree, user(), task, "");
        let output = command.stdin(Stdio::null()).output().expect("started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(signal), "{task}: {}\n{errors}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{task}");
    };
    for task in ["execve", "ptrace", "unshare", "io_uring", "bpf", "mount"] {
        check(task, libc::SIGSYS);
    }
    // The supervisor ends a hung server by SIGABRT.
    check("abort", libc::SIGABRT);
}

fn each_layer_works_alone() {
    let tree = Tree::new();
    // File permissions must not deny it, so that the layers do.
    std::fs::set_permissions(tree.path().join("root"), PermissionsExt::from_mode(0o777)).expect("set");
    let check = |task: &str, first: &str, others: [&str; 6]| {
        let child = Sandboxed::start(&tree, user(), task, "");
        let version = child.lines[0].split("version ").nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
        if version.is_some_and(|version: u32| version < 6) || child.lines[0].contains("unavailable") {
            eprintln!("NOT TESTED: a layer that this kernel does not have, or in an older version: {}", child.lines[0]);
            return child.end();
        }
        assert!(child.lines[0].contains(first), "{}", child.lines[0]);
        assert_eq!(child.lines[1..], others);
        child.end();
    };
    check(
        "without-landlock",
        "no capabilities; no new privileges; Landlock disabled; seccomp enforced",
        [
            "/etc/passwd: ()",
            // Seccomp does not distinguish opening for writing from opening for reading.
            "creating a file: ()",
            "connecting: EPERM",
            "binding: EPERM",
            "signalling the parent: EPERM",
            "a page beneath the open root: ()",
        ],
    );
    check(
        "without-seccomp",
        "seccomp disabled",
        [
            "/etc/passwd: EACCES",
            "creating a file: EACCES",
            "connecting: EACCES",
            "binding: EACCES",
            "signalling the parent: EPERM",
            "a page beneath the open root: ()",
        ],
    );
}

fn process_with_applications_connects_to_their_ports_and_no_others() {
    check_other_process("connections", connections::REPORT);
}

fn unprivileged_user_can_enter_the_sandbox() {
    let tree = Tree::new();
    let child = Sandboxed::start(&tree, user(), "report-unprivileged", "");
    check_report(&child.lines);
    child.end();
}

fn agent_writes_its_folder_and_connects_and_does_nothing_else() {
    check_other_process("agent", other_processes::AGENT_REPORT);
}

fn keeper_answers_requests_and_does_nothing_else() {
    check_other_process("keeper", other_processes::KEEPER_REPORT);
}

fn check_other_process(task: &str, expected: &str) {
    let tree = Tree::new();
    let child = Sandboxed::start(&tree, user(), task, "");
    if !child.lines[0].contains("Landlock enforced") || !child.lines[0].contains("seccomp enforced") {
        eprintln!("NOT TESTED: this kernel does not have all layers: {}", child.lines[0]);
    } else {
        assert_eq!(child.lines[1..], expected.lines().collect::<Vec<_>>());
        check_status(&child);
    }
    child.end();
}

/// A directory with readable and other files.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = tempfile::tempdir().expect("created");
        let path = tree.path();
        for directory in ["root", "zones", "state"] {
            std::fs::create_dir_all(path.join(directory)).expect("created");
        }
        for (file, content) in
            [("root/page", PAGE), ("zones/zone", "a zone"), ("secret", "a secret"), ("log", "a line\n")]
        {
            std::fs::write(path.join(file), content).expect("written");
        }
        // Another user must be able to read it, whatever the umask.
        let readable = [(".", 0o755), ("root", 0o755), ("zones", 0o755), ("root/page", 0o644), ("zones/zone", 0o644)];
        for (name, mode) in readable.into_iter().chain([("state", 0o777)]) {
            std::fs::set_permissions(path.join(name), PermissionsExt::from_mode(mode)).expect("set");
        }
        std::os::unix::fs::symlink("../secret", path.join("root/out")).expect("linked");
        Tree(tree)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn command(tree: &Tree, user: &str, task: &str, forced: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(CHILD_VARIABLE, format!("{}:{user}:{task}", tree.path().display()));
    if !forced.is_empty() {
        command.env(sanderling_os::fallback::FORCE_VARIABLE, forced);
    }
    command
}

/// A sandboxed process that has printed its report and runs until [`Sandboxed::end`].
struct Sandboxed {
    process: Child,
    lines: Vec<String>,
}

impl Sandboxed {
    fn start(tree: &Tree, user: &str, task: &str, forced: &str) -> Sandboxed {
        let mut command = command(tree, user, task, forced);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let lines: Vec<String> = output.lines().map_while(Result::ok).take_while(|line| line != "end").collect();
        assert!(!lines.is_empty(), "the process printed nothing: {:?}", process.wait());
        println!("{}", lines[0]);
        Sandboxed { process, lines }
    }

    fn end(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("a child");
        assert!(status.success(), "{status}");
    }
}
