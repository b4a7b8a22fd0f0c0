//! A process that confines itself, told from inside and looked at from outside.
//!
//! Each test starts this program again as that process: the harness of the standard library runs tests in threads, and a
//! process is confined while it has one. So this file is its own harness, which ends like the usual one.

mod inside;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tells the child which folder it may read, as whom, and what it is to do; parted by colons.
const CHILD_VARIABLE: &str = "SANDERLING_CONFINED";

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_server_reads_what_it_was_given_and_nothing_else", a_server_reads_what_it_was_given_and_nothing_else),
    ("the_kernel_says_the_same_from_outside", the_kernel_says_the_same_from_outside),
    ("every_way_of_every_job_works_inside", every_way_of_every_job_works_inside),
    ("what_only_an_intruder_does_ends_the_process", what_only_an_intruder_does_ends_the_process),
    ("each_layer_holds_by_itself", each_layer_holds_by_itself),
    ("a_user_without_privileges_is_confined_as_well", a_user_without_privileges_is_confined_as_well),
];

fn main() {
    if let Ok(order) = std::env::var(CHILD_VARIABLE) {
        let mut words = order.split(':');
        let mut word = || words.next().expect("three words");
        let (folder, user, deed) = (word(), word(), word());
        return inside::run(Path::new(folder), (user != SAME_USER).then_some(user), deed);
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

/// Stands for the user that the test runs as.
const SAME_USER: &str = "";

/// Whom the child is to become: nobody, where that can be.
fn user() -> &'static str {
    if rustix::process::geteuid().is_root() {
        return "nobody";
    }
    eprintln!("NOT TESTED: the change of the user, which only root can make");
    SAME_USER
}

fn a_server_reads_what_it_was_given_and_nothing_else() {
    let tree = Tree::new("reads");
    let child = Confined::start(&tree, user(), "report", "");
    check_report(&child.lines);
    child.end();
    assert_eq!(std::fs::read(tree.0.join("root/page")).expect("there"), PAGE.as_bytes(), "nothing was changed");
}

/// The whole report but for its first line, which names versions.
fn check_report(lines: &[String]) {
    let expected = REPORT.replace("BOUNDING", if rustix::process::geteuid().is_root() { "Empty" } else { "Unchanged" });
    // Without Landlock the permissions of the files are all that is left, and the folder is its owner's to write.
    let has_landlock = lines.iter().any(|line| line == "landlock is there: true");
    let told: Vec<&str> = lines[1..].iter().map(String::as_str).collect();
    if has_landlock {
        assert_eq!(told, expected.lines().collect::<Vec<_>>());
        return;
    }
    eprintln!("NOT TESTED: what Landlock keeps out of reach, since this kernel has none: {}", lines[0]);
    let by_landlock = |line: &&str| {
        ["EACCES", "landlock is there", "/etc/passwd", "a file beside", "/proc/self/environ", "opening for writing"]
            .iter()
            .any(|mark| line.contains(mark))
    };
    let told: Vec<&str> = told.into_iter().filter(|line| !by_landlock(line)).collect();
    let subjects_left: Vec<&str> = expected.lines().filter(|line| !by_landlock(line)).collect();
    for line in subjects_left {
        assert!(told.contains(&line), "{line:?} is not in {told:#?}");
    }
}

const PAGE: &str = "a page";

const REPORT: &str = r#"landlock is there: true
bounding set: BOUNDING
filters: 3, threads: 1
a page beneath the kept root: "a page"
a zone by its path: "a zone"
the list of a readable folder: 1
a watch of the root: "set"
where the root is: "root"
/etc/passwd: EACCES
a file beside the readable ones: EACCES
a link out of the root: EXDEV
/proc/self/environ: EACCES
writing over a page: EACCES
making a file: EACCES
removing a page: EPERM
renaming a page: EPERM
opening for writing by openat2: EACCES
a TCP socket: EPERM
a Unix socket: EPERM
becoming root: EPERM
signalling the parent: EPERM
making a process: EPERM
executable memory by mmap: EPERM
executable memory by mprotect: EPERM
pushing a key into a terminal: EPERM
a program for the kernel: EPERM
another thread: 42
a panic: "caught"
a poller with a waker: Ok(())
received from a connection: true
a file sent to a connection: 6
an option of a connection: ()
datagrams received: 1
datagrams sent: 1
the answer: true"#;

fn the_kernel_says_the_same_from_outside() {
    let tree = Tree::new("outside");
    let child = Confined::start(&tree, user(), "report", "");
    let process = PathBuf::from(format!("/proc/{}", child.process.id()));
    let status = std::fs::read_to_string(process.join("status")).expect("it waits for its end");
    let check = |field: &str, expected: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        assert_eq!(line.map(str::trim), Some(expected), "{field} in\n{status}");
    };
    for field in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        check(field, "0000000000000000");
    }
    check("NoNewPrivs", "1");
    check("Seccomp", "2");
    check("Threads", "1");
    if user() != SAME_USER {
        let nobody = sanderling_os::user::User::lookup("nobody", None).expect("every system has it");
        check("CapBnd", "0000000000000000");
        check("Uid", &[nobody.uid; 4].map(|id| id.to_string()).join("\t"));
        check("Gid", &[nobody.gid; 4].map(|id| id.to_string()).join("\t"));
        check("Groups", &nobody.gids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
        // Of a process whose memory is not to be dumped, the kernel gives this to root (proc(5)).
        assert_eq!(process.join("maps").metadata().expect("there").uid(), nobody.uid, "no core would be dumped");
    }
    child.end();
}

fn every_way_of_every_job_works_inside() {
    let tree = Tree::new("variants");
    let most_ways = sanderling_os::features::FEATURES.iter().map(|feature| feature.variants().len()).max().unwrap_or(0);
    for index in 1..most_ways {
        let variant = |feature: &&sanderling_os::fallback::Feature| {
            format!("{}={}", feature.name(), feature.variants()[index.min(feature.variants().len() - 1)].name)
        };
        let forced = sanderling_os::features::FEATURES.iter().map(variant).collect::<Vec<_>>().join(",");
        println!("with {forced}");
        let child = Confined::start(&tree, user(), "report", &forced);
        check_report(&child.lines);
        child.end();
    }
}

fn what_only_an_intruder_does_ends_the_process() {
    let tree = Tree::new("ends");
    let check = |deed: &str, signal: i32| {
        let mut command = command(&tree, user(), deed, "");
        let output = command.stdin(Stdio::null()).output().expect("started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(signal), "{deed}: {}\n{errors}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{deed}");
    };
    for deed in ["execve", "ptrace", "unshare", "io_uring", "bpf", "mount"] {
        check(deed, libc::SIGSYS);
    }
    // A hung server is ended so: it must work.
    check("abort", libc::SIGABRT);
}

fn each_layer_holds_by_itself() {
    let tree = Tree::new("layers");
    // So that only the layers keep anybody from making a file.
    std::fs::set_permissions(tree.0.join("root"), PermissionsExt::from_mode(0o777)).expect("set");
    let check = |deed: &str, expected: [&str; 7]| {
        let child = Confined::start(&tree, user(), deed, "");
        assert_eq!(child.lines, expected);
        child.end();
    };
    let none = "no capabilities; no new privileges";
    check(
        "without-landlock",
        [
            &format!("{none}; Landlock off, as configured; seccomp in force"),
            "/etc/passwd: ()",
            // Seccomp does not tell opening for writing from opening for reading.
            "making a file: ()",
            "connecting: EPERM",
            "binding: EPERM",
            "signalling the parent: EPERM",
            "a page beneath the kept root: ()",
        ],
    );
    let landlock = Confined::start(&tree, user(), "without-seccomp", "");
    let (first, others) = landlock.lines.split_first().expect("told");
    let version = first.split("version ").nth(1).and_then(|rest| rest.split(';').next()?.parse::<u32>().ok());
    if version.is_none_or(|version| version < 6) {
        eprintln!("NOT TESTED: all that Landlock can do, since this kernel has less of it: {first}");
        return landlock.end();
    }
    assert!(first.ends_with("seccomp off, as configured"), "{first}");
    let expected = [
        "/etc/passwd: EACCES",
        "making a file: EACCES",
        "connecting: EACCES",
        "binding: EACCES",
        "signalling the parent: EPERM",
        "a page beneath the kept root: ()",
    ];
    assert_eq!(others, expected);
    landlock.end();
}

fn a_user_without_privileges_is_confined_as_well() {
    let tree = Tree::new("unprivileged");
    let child = Confined::start(&tree, user(), "report-unprivileged", "");
    let expected = REPORT.replace("BOUNDING", "Unchanged");
    let told: Vec<&str> = child.lines[1..].iter().map(String::as_str).collect();
    if told.first() == Some(&"landlock is there: true") {
        assert_eq!(told, expected.lines().collect::<Vec<_>>());
    }
    child.end();
}

/// A folder with what may be read and what may not.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let path = std::env::temp_dir().join(format!("sanderling-confined-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        for folder in ["root", "zones"] {
            std::fs::create_dir_all(path.join(folder)).expect("made");
        }
        for (file, content) in [("root/page", PAGE), ("zones/zone", "a zone"), ("secret", "a secret")] {
            std::fs::write(path.join(file), content).expect("written");
        }
        // Others are to read it, whatever the mask of whoever runs the test.
        for (name, mode) in
            [(".", 0o755), ("root", 0o755), ("zones", 0o755), ("root/page", 0o644), ("zones/zone", 0o644)]
        {
            std::fs::set_permissions(path.join(name), PermissionsExt::from_mode(mode)).expect("set");
        }
        std::os::unix::fs::symlink("../secret", path.join("root/out")).expect("linked");
        Tree(path)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(tree: &Tree, user: &str, deed: &str, forced: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(CHILD_VARIABLE, format!("{}:{user}:{deed}", tree.0.display()));
    if !forced.is_empty() {
        command.env(sanderling_os::fallback::FORCE_VARIABLE, forced);
    }
    command
}

/// A confined process that has told its report, and lives on until it is let go.
struct Confined {
    process: Child,
    lines: Vec<String>,
}

impl Confined {
    fn start(tree: &Tree, user: &str, deed: &str, forced: &str) -> Confined {
        let mut command = command(tree, user, deed, forced);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let output = BufReader::new(process.stdout.take().expect("asked for"));
        let lines: Vec<String> = output.lines().map_while(Result::ok).take_while(|line| line != "end").collect();
        assert!(!lines.is_empty(), "the process told nothing: {:?}", process.wait());
        println!("{}", lines[0]);
        Confined { process, lines }
    }

    fn end(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("a child");
        assert!(status.success(), "{status}");
    }
}
