//! Whether the memory of a process has the private key.

use super::{CONFIG, P256, domain, is_served, keeper, start};
use sanderling_testkit::run_program;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// The bytes of the private key, as big-endian and as little-endian number, and as the text of the file.
fn forms_of_key(path: &str) -> Vec<Vec<u8>> {
    let shown = run_program("openssl", "openssl", &["pkey", "-in", path, "-noout", "-text"]).text();
    let lines = shown.lines().skip_while(|line| !line.starts_with("priv:")).skip(1);
    let digits: String = lines.take_while(|line| line.starts_with(' ')).collect();
    let bytes = digits.trim().split(':').map(|digits| u8::from_str_radix(digits.trim(), 16).expect("two digits"));
    let number: Vec<u8> = bytes.collect();
    assert_eq!(number.len(), 32, "{shown}");
    let text = fs::read_to_string(path).expect("readable");
    let line = text.lines().nth(1).expect("base64").as_bytes().to_vec();
    vec![number.iter().rev().copied().collect(), number, line]
}

/// Whether the memory of a process has one of `forms`.
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
    if sanderling_os::process::effective_uid() != 0 {
        println!("skipped: only root can read the memory of other processes");
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
