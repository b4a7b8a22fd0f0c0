//! Whether a process's memory has the private key.

use super::{CONFIG, P256, domain, is_served, keeper, start};
use data_encoding::BASE64;
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, children_of, dig, run_program, run_to_end, sanderling,
    wait_until,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// The bytes of the private key, as big-endian and as little-endian number, and as the text of the file.
fn forms_of_key(path: &str) -> Vec<Vec<u8>> {
    let shown = run_program("openssl", "openssl", &["pkey", "-in", path, "-noout", "-text"]).text();
    let lines = shown.lines().skip_while(|line| !line.starts_with("priv:")).skip(1);
    let digits: String = lines.take_while(|line| line.starts_with(' ')).collect();
    let bytes = digits.trim().split(':').map(|digits| u8::from_str_radix(digits.trim(), 16).expect("two digits"));
    [forms_of_number(bytes.collect()), vec![text_of_key(path)]].concat()
}

/// Big-endian and little-endian.
fn forms_of_number(number: Vec<u8>) -> Vec<Vec<u8>> {
    assert_eq!(number.len(), 32);
    vec![number.iter().rev().copied().collect(), number]
}

/// A line of PEM.
fn text_of_key(path: &str) -> Vec<u8> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines().nth(1).expect("base64").as_bytes().to_vec()
}

/// The number of each private key of a zone, in the form of BIND.
fn numbers_of_zone_keys(directory: &TestDirectory, zone: &str) -> Vec<Vec<u8>> {
    let exported = directory.argument("exported");
    fs::create_dir(&exported).expect("created");
    let mut export = sanderling();
    export.args(["dnssec", "export", zone, &exported, "--config", &directory.argument("sanderling.toml")]);
    let ended = run_to_end(export, DEADLINE);
    assert!(ended.status.success(), "{ended}");
    let number = |path: &String| {
        let text = fs::read_to_string(path).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix("PrivateKey: "))?;
        Some(BASE64.decode(line.as_bytes()).expect("base64"))
    };
    paths_in(&exported).iter().filter_map(number).collect()
}

fn paths_in(folder: &str) -> Vec<String> {
    let files = fs::read_dir(folder).expect("the folder is there");
    files.map(|file| file.expect("readable").path().display().to_string()).collect()
}

fn may_read_memory() -> bool {
    let is_root = sanderling_os::process::effective_uid() == 0;
    if !is_root {
        println!("skipped: only root can read the memory of other processes");
    }
    is_root
}

/// Whether a process's memory has one of `forms`.
fn has_any(pid: u32, forms: &[Vec<u8>]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("readable by root");
    let mut read_bytes = 0;
    let found = maps.lines().any(|line| {
        let mut words = line.split(' ');
        let (range, rights) = (words.next().expect("a range"), words.next().expect("rights"));
        let (start, end) = range.split_once('-').expect("a range");
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).expect("an address"));
        let mut content = vec![0; (end - start) as usize];
        // Memory that cannot be read, such as vvar, has no key.
        if !rights.starts_with("rw") || memory.read_exact_at(&mut content, start).is_err() {
            return false;
        }
        read_bytes += content.len();
        forms.iter().any(|form| contains(&content, form))
    });
    assert!(found || read_bytes > 100_000, "only {read_bytes} bytes were read");
    found
}

fn contains(content: &[u8], form: &[u8]) -> bool {
    let first = form[0];
    let mut rest = content;
    while let Some(index) = rest.iter().position(|byte| *byte == first) {
        rest = &rest[index..];
        if rest.starts_with(form) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

#[test]
fn private_key_is_not_in_the_memory_of_the_server_process() {
    if !may_read_memory() {
        return;
    }
    for (keys, is_in_server_process) in [("keeper", false), ("in-process", true)] {
        let directory = domain(&format!("keys = \"{keys}\"\n{CONFIG}"), P256);
        let forms = forms_of_key(&directory.argument("key.pem"));
        let (server, https) = start(&directory);
        for version in ["1.2", "1.3"] {
            assert!(is_served(&directory, https, &["--tls-max", version]));
        }
        assert!(directory.control("reload").status.success());
        assert_eq!(has_any(server.server_process_id(), &forms), is_in_server_process, "{keys}");
        if !is_in_server_process {
            assert!(has_any(keeper(&server), &forms), "the key is found where it is");
        }
    }
}

#[test]
fn private_keys_of_zones_are_in_the_memory_of_the_keeper_alone() {
    if !may_read_memory() {
        return;
    }
    for algorithm in ["ecdsap256sha256", "ed25519"] {
        let directory = TestDirectory::new();
        let config = format!(
            "workers = 1\nstate = \"state\"\n[dns]\nresolvers = []\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\n\
             zone = \"example.com.zone\"\ndnssec = {{ algorithm = \"{algorithm}\", keys = \"ksk-zsk\" }}\n"
        );
        directory.write("sanderling.toml", config.as_bytes());
        let zone = |address| format!("$TTL 300\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.{address}\n");
        directory.write("example.com.zone", zone(1).as_bytes());
        let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
        let signed = || dig(server.dns(), &["+dnssec", "ns.example.com", "A"]).text();
        wait_until("the zone is signed", || signed().contains("RRSIG"));
        // A change is signed too.
        directory.replace("example.com.zone", zone(2).as_bytes());
        assert!(directory.control("reload").status.success());
        assert!(signed().contains("192.0.2.2"), "{}", signed());

        let keeper = keeper(&server);
        let mut others = children_of(server.process_id()).expect("it runs");
        others.retain(|pid| *pid != keeper);
        assert!(others.len() >= 2, "the agent and a server process: {others:?}");
        others.push(server.process_id());
        let numbers: Vec<_> =
            numbers_of_zone_keys(&directory, "example.com").into_iter().map(forms_of_number).collect();
        assert_eq!(numbers.len(), 2);
        assert!(numbers.iter().all(|forms| has_any(keeper, forms)), "{algorithm}: the keys are found where they are");
        let mut forms = numbers.concat();
        forms.extend(paths_in(&directory.argument("state/keys/example.com")).iter().map(|path| text_of_key(path)));
        for &pid in &others {
            let command_line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert!(!has_any(pid, &forms), "{algorithm}: {command_line} has it");
        }
    }
}
