//! The two processes as the system sees them: which descriptors they have, who they are, what they tell a service manager,
//! and that a manager's sockets serve.

use crate::http_answers::HttpConnection;
use sanderling_testkit::process::{DEADLINE, Folder, Listeners, Serving, copy_program_to};
use sanderling_testkit::process_ids::send_signal;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const ZONE: &[u8] = b"@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n";

/// A folder with a site, a zone, and a configuration that begins with `top`.
fn domain(top: &str, http: &str, dns: &str) -> Folder {
    let folder = Folder::with(&[("public/index.html", b"hi\n"), ("example.com.zone", ZONE)]);
    write_config(&folder, top, http, dns);
    folder
}

fn write_config(folder: &Folder, top: &str, http: &str, dns: &str) {
    let text = format!(
        "{top}\n[http]\nlisten = [\"{http}\"]\n[dns]\nlisten = [\"{dns}\"]\n\
         [domain.\"example.com\"]\nsite = \"public\"\nzone = \"example.com.zone\"\n"
    );
    folder.write("sanderling.toml", text.as_bytes());
}

const ANY: &str = "127.0.0.1:0";
const BOTH: Listeners = Listeners { http: 1, dns: 1 };

/// How many descriptors of each kind a process has. Sockets and pipes are told by their kind, files by their path.
fn descriptors(pid: u32) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs") {
        // One that is closed meanwhile was a look-up that has ended.
        let Ok(target) = fs::read_link(entry.expect("listed").path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let kind = match target.split_once(":[") {
            Some((kind, _)) => kind.to_owned(),
            None => target,
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

#[test]
fn a_server_process_sees_only_what_is_meant_for_it() {
    let folder = domain("workers = 1\nlisteners = 2", ANY, ANY);
    // The supervisor has inherited one more, as from a careless shell.
    let serve = folder.serve();
    let mut command = Command::new("sh");
    command.args(["-c", "exec 9</etc/hostname; exec \"$@\"", "sh"]).arg(serve.get_program()).args(serve.get_args());
    let serving = Serving::start_command(command, BOTH);
    HttpConnection::open(serving.http()).get("/");

    let of_supervisor = descriptors(serving.process_id());
    assert_eq!(of_supervisor.get("/etc/hostname"), Some(&1), "{of_supervisor:?}");
    let mut of_server = descriptors(serving.server_process_id());
    // Siblings of three kinds, the door of the control socket, the channel, and both ends of how signals are told.
    let sockets = of_server.remove("socket").unwrap_or(0);
    assert!((2 * 3 + 2..=2 * 3 + 2 + 12).contains(&sockets), "{sockets} sockets");
    let root = fs::canonicalize(folder.path().join("public")).expect("it is there").to_string_lossy().into_owned();
    let known = |kind: &str| {
        ["pipe", "/dev/null", "anon_inode", "anon_inode:inotify", "anon_inode:[eventpoll]", "anon_inode:[eventfd]"]
            .contains(&kind)
            || kind.starts_with("anon_inode:")
            || kind.starts_with("/memfd:configuration")
            || kind.starts_with("/proc/") && kind.ends_with("/status")
            || kind.starts_with(&root)
    };
    of_server.retain(|kind, _| !known(kind));
    assert!(of_server.is_empty(), "not meant for it: {of_server:?}");
}

#[test]
fn reloads_and_upgrades_keep_no_descriptor() {
    let folder = domain("workers = 1", ANY, ANY);
    let serving = Serving::start_command(folder.serve(), BOTH);
    let look = || {
        // By now nothing drains any more.
        serving.server_process_id();
        HttpConnection::open(serving.http()).get("/");
        descriptors(serving.process_id())
    };
    let mut first: Option<BTreeMap<String, usize>> = None;
    // The first look may still find what belongs to a process that has just been buried; the rounds are more than that.
    for _ in 0..4 {
        for verb in ["reload", "upgrade"] {
            let ended = folder.tell(verb);
            assert_eq!(ended.code(), Some(0), "{verb}: {ended}");
        }
        let first = first.get_or_insert_with(look);
        // What belongs to a process that has just been buried goes a moment later.
        let deadline = Instant::now() + DEADLINE;
        loop {
            let found = look();
            if found.iter().all(|(kind, count)| first.get(kind).is_some_and(|at_first| count <= at_first)) {
                break;
            }
            assert!(Instant::now() < deadline, "{found:#?}, at first {first:#?}");
        }
    }
}

/// A line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_server_process_has_given_its_privileges_up() {
    let folder = domain("workers = 1\nuser = \"nobody\"", ANY, ANY);
    if !Path::new("/proc/self/status").exists() || status(std::process::id(), "Uid") != "0 0 0 0" {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let open_to_all = |path: &Path| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).expect("a folder of our own");
    };
    open_to_all(folder.path());
    let serving = Serving::start_command(folder.serve(), BOTH);
    assert_eq!(HttpConnection::open(serving.http()).get("/").status, 200);
    let check = || {
        let server = serving.server_process_id();
        let nobody = status(server, "Uid").split(' ').next().expect("four numbers").to_owned();
        assert_ne!(nobody, "0");
        assert_eq!(status(server, "Uid"), [nobody.as_str(); 4].join(" "));
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(server, set), "0000000000000000", "{set}");
        }
        assert_eq!((status(server, "NoNewPrivs"), status(server, "Seccomp")), ("1".to_owned(), "2".to_owned()));
        assert_eq!(status(serving.process_id(), "Uid"), "0 0 0 0");
    };
    check();
    let ended = folder.tell("reload");
    assert_eq!((ended.code(), ended.text().as_str()), (Some(0), "reloaded; no connection was closed\n"), "{ended}");
    // Who cannot be had is told, and who serves goes on.
    write_config(&folder, "workers = 1\nuser = \"no-such-user\"", ANY, ANY);
    let ended = folder.tell("reload");
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.errors.contains("no-such-user"), "{ended}");
    check();
}

#[test]
fn the_sockets_of_a_service_manager_serve() {
    let http = TcpListener::bind(ANY).expect("bound");
    let (socket, stream) =
        sanderling_os::udp::Socket::bind_with_listener(ANY.parse().expect("an address")).expect("bound");
    let (http_address, dns_address) = (http.local_addr().expect("bound"), socket.local_address().expect("bound"));
    let folder = domain("workers = 2", &http_address.to_string(), &dns_address.to_string());
    let serve = folder.serve();
    let given: [(&str, BorrowedFd<'_>); 3] = [("http", http.as_fd()), ("dns", socket.as_fd()), ("dns", stream.as_fd())];
    let output = folder.path().join("output");
    let script = format!("exec \"$0\" \"$@\" >{} 2>&1", output.display());
    let mut arguments = vec!["-c".into(), script.into(), serve.get_program().to_owned()];
    arguments.extend(serve.get_args().map(ToOwned::to_owned));
    let given = given.map(|(name, descriptor)| (name.to_owned(), descriptor));
    let child = sanderling_os::process::spawn(Path::new("/bin/sh"), &arguments, &given).expect("started");
    drop((http, socket, stream));
    let deadline = Instant::now() + DEADLINE;
    while !fs::read_to_string(&output).is_ok_and(|text| text.lines().count() >= 2) {
        assert!(Instant::now() < deadline, "{:?}", fs::read_to_string(&output));
        thread::yield_now();
    }
    let announced = fs::read_to_string(&output).expect("written");
    assert_eq!(announced, format!("http {http_address}\ndns {dns_address}\n"));
    HttpConnection::open(http_address).get("/");
    // One socket of each kind, which both workers share.
    let told = folder.tell("status").text();
    assert!(told.contains(&format!("http {http_address}, 1 socket")), "{told}");
    let ended = folder.tell("stop");
    assert_eq!(ended.code(), Some(0), "{ended}");
    sanderling_os::poll_set::PollSet::new([child.as_fd()]).wait(Some(DEADLINE)).expect("waited");
    assert_eq!(child.try_wait().expect("asked"), Some(sanderling_os::process::ExitStatus::Exited(0)));
}

#[test]
fn a_service_manager_is_told() {
    let folder = domain("workers = 1", ANY, ANY);
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(DEADLINE)).expect("set");
    let told = |expected: &str| {
        let mut room = [0; 512];
        let length = manager.recv(&mut room).expect("told");
        let text = String::from_utf8_lossy(&room[..length]).into_owned();
        assert!(text.starts_with(expected), "{text:?}, not {expected:?}");
    };
    let mut command = folder.serve();
    command.env("NOTIFY_SOCKET", &path);
    let serving = Serving::start_command(command, BOTH);
    told("READY=1");
    serving.signal("HUP");
    told("RELOADING=1");
    told("READY=1");
    assert_eq!(folder.tell("upgrade").code(), Some(0));
    told("READY=1");
    told("READY=1");
    drop(serving);
    told("STOPPING=1");
}

#[test]
fn a_new_address_is_announced_and_an_old_one_is_let_go() {
    let folder = domain("workers = 1", ANY, ANY);
    let mut serving = Serving::start_command(folder.serve(), BOTH);
    let old = serving.http();
    let new = loop {
        let free = TcpListener::bind(ANY).expect("bound").local_addr().expect("bound");
        if free != old {
            break free;
        }
    };
    write_config(&folder, "workers = 1", &new.to_string(), ANY);
    let ended = folder.tell("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.text().contains("`listen` in [http] has changed"), "{ended}");
    serving.wait_for(Listeners { http: 2, dns: 1 });
    assert_eq!(serving.http_all(), [old, new]);
    HttpConnection::open(new).get("/");
    // Whoever comes to the old address is refused when the process that served there has gone.
    serving.server_process_id();
    let deadline = Instant::now() + DEADLINE;
    while std::net::TcpStream::connect_timeout(&old, Duration::from_secs(1)).is_ok() {
        assert!(Instant::now() < deadline, "still listened on");
        thread::yield_now();
    }
}

#[test]
fn a_process_that_is_never_ready_is_given_up_and_the_old_one_serves() {
    let folder = domain("workers = 1", ANY, ANY);
    let program = folder.argument("program");
    copy_program_to(Path::new(&program));
    let mut config = fs::read_to_string(folder.path().join("sanderling.toml")).expect("ours");
    config += "[limits]\nstart_timeout_ms = 300\n";
    folder.write("sanderling.toml", config.as_bytes());
    let serve = folder.serve();
    let mut command = Command::new(&program);
    command.args(serve.get_args()).env_clear();
    let serving = Serving::start_command(command, BOTH);
    let old = serving.server_process_id();
    fs::remove_file(&program).expect("ours");
    folder.write("program", b"#!/bin/sh\nexec tail -f /dev/null\n");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let ended = folder.tell("upgrade");
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.errors.contains("upgrade failed, keeping the running program"), "{ended}");
    assert_eq!(serving.server_process_id(), old);
    HttpConnection::open(serving.http()).get("/");
}

#[test]
fn what_was_mended_is_taken_up_also_when_nobody_can_start() {
    let folder = domain("workers = 1", ANY, ANY);
    let serving = Serving::start_command(folder.serve(), BOTH);
    let zone = folder.path().join("example.com.zone");
    fs::write(&zone, "broken\n").expect("ours");
    // The process dies, and none can be started, whatever the pause between two tries.
    let old = serving.server_process_id();
    assert!(send_signal("KILL", &old.to_string()));
    serving.wait_for_error("example.com.zone:1:7");
    let ended = folder.tell("reload");
    assert_eq!(ended.code(), Some(1), "{ended}");
    fs::write(&zone, ZONE).expect("ours");
    folder.write("other.zone", ZONE);
    let config = fs::read_to_string(folder.path().join("sanderling.toml")).expect("ours");
    folder.write("sanderling.toml", config.replace("example.com.zone", "other.zone").as_bytes());
    assert_eq!(folder.tell("reload").code(), Some(0));
    HttpConnection::open(serving.http()).get("/");
}

#[test]
fn siblings_that_were_made_for_a_broken_configuration_are_served_all_the_same() {
    let folder = domain("workers = 1\nlisteners = 1", ANY, ANY);
    let serving = Serving::start_command(folder.serve(), BOTH);
    fs::write(folder.path().join("example.com.zone"), "broken\n").expect("ours");
    write_config(&folder, "workers = 1\nlisteners = 4", ANY, ANY);
    assert_eq!(folder.tell("reload").code(), Some(1), "the zone is broken");
    // The old configuration cannot be started either, as long as that is so: it is tried again and again.
    let tries = || serving.errors().matches("1 error").count();
    let deadline = Instant::now() + DEADLINE;
    while tries() < 4 {
        assert!(Instant::now() < deadline, "{}", serving.errors());
        thread::yield_now();
    }
    fs::write(folder.path().join("example.com.zone"), ZONE).expect("ours");
    // Until a process with the old configuration serves on all four, some of them wait.
    for _ in 0..64 {
        HttpConnection::open(serving.http()).get("/");
    }
    let told = folder.tell("status").text();
    assert!(told.contains(", 4 sockets"), "{told}");
}

#[test]
fn a_stop_ends_a_start_that_is_under_way() {
    let folder = domain("workers = 1", ANY, ANY);
    // So many records that the stop comes while they are read.
    let mut zone = ZONE.to_vec();
    for number in 0..200_000 {
        zone.extend_from_slice(format!("n{number} IN A 192.0.2.1\n").as_bytes());
    }
    folder.write("example.com.zone", &zone);
    let mut child = folder.serve().spawn().expect("started");
    let start = Instant::now();
    // A socket that is there and does not listen yet answers as one that is not there.
    loop {
        let ended = folder.tell("stop");
        if ended.code() == Some(0) {
            break;
        }
        assert!(ended.errors.contains("no server answers") && start.elapsed() < DEADLINE, "{ended}");
    }
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

#[test]
fn a_stop_leaves_the_sockets_of_a_service_manager_listening() {
    let http = TcpListener::bind(ANY).expect("bound");
    let address = http.local_addr().expect("bound");
    let folder = Folder::with(&[("public/index.html", b"hi\n")]);
    let site = "[domain.\"example.com\"]\nsite = \"public\"\n";
    folder.write("sanderling.toml", format!("workers = 1\n[http]\nlisten = [\"{address}\"]\n{site}").as_bytes());
    for _ in 0..2 {
        let serve = folder.serve();
        let mut arguments = vec!["-c".into(), "exec \"$0\" \"$@\" >/dev/null".into(), serve.get_program().to_owned()];
        arguments.extend(serve.get_args().map(ToOwned::to_owned));
        let given = [("http".to_owned(), http.as_fd())];
        let child = sanderling_os::process::spawn(Path::new("/bin/sh"), &arguments, &given).expect("started");
        // Who comes before anybody serves waits.
        HttpConnection::open(address).get("/");
        let ended = folder.tell("stop");
        assert_eq!(ended.code(), Some(0), "{ended}");
        sanderling_os::poll_set::PollSet::new([child.as_fd()]).wait(Some(DEADLINE)).expect("waited");
        assert_eq!(child.try_wait().expect("asked"), Some(sanderling_os::process::ExitStatus::Exited(0)));
    }
    std::net::TcpStream::connect(address).expect("the manager's socket still listens");
}

/// The process that was replaced may still answer whoever came to it before it gave way.
#[track_caller]
fn wait_for_page(serving: &Serving, content: &[u8]) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let answer = HttpConnection::open(serving.http()).get("/");
        assert_eq!(answer.status, 200);
        if answer.content == content {
            return;
        }
        assert!(Instant::now() < deadline, "{}", answer.text());
    }
}

/// A process that is confined to the folders of its sites can open another one, and read nothing in it.
#[test]
fn a_folder_that_is_new_in_the_configuration_is_served() {
    let folder = domain("workers = 1", ANY, ANY);
    let serving = Serving::start_command(folder.serve(), BOTH);
    assert_eq!(HttpConnection::open(serving.http()).get("/").content, b"hi\n");
    folder.write("other/index.html", b"new\n");
    let config = fs::read_to_string(folder.path().join("sanderling.toml")).expect("ours");
    folder.write("sanderling.toml", config.replace("\"public\"", "\"other\"").as_bytes());
    let ended = folder.tell("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    wait_for_page(&serving, b"new\n");
    // The same path, and another folder.
    fs::rename(folder.path().join("other"), folder.path().join("old")).expect("ours");
    folder.write("other/index.html", b"newer\n");
    let ended = folder.tell("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    wait_for_page(&serving, b"newer\n");
}
