//! Entity tags: a tag changes with the content, and as long as that stays, it stays, in the next process as well.

use super::site_files_tests::{Browser, browse_directory, decoded, settle, text, write};
use super::*;
use sanderling_http::ContentCoding;
use sanderling_site_rules::FileOptions;
use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

/// What npm, buildpacks and `SOURCE_DATE_EPOCH` give to all files.
const SET_TIMES: [u64; 4] = [1, 315_532_801, 499_162_500, 1_690_000_000];

fn browse(directory: &Path, act: impl FnOnce(&mut Browser<'_, '_>)) {
    browse_directory(directory, FileOptions::default(), Options::default(), act);
}

fn set_time(path: &Path, unix_s: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s);
    File::options().append(true).open(path).and_then(|file| file.set_modified(time)).expect("set");
}

/// Another version of a file.
#[derive(Clone, Copy, Debug)]
enum Replacement {
    InPlace,
    ByRename,
}

fn replace(root: &Path, name: &str, content: &[u8], unix_s: u64, replacement: Replacement) {
    match replacement {
        Replacement::InPlace => {
            write(root, name, content);
            set_time(&root.join(name), unix_s);
        }
        Replacement::ByRename => {
            write(root, "new", content);
            set_time(&root.join("new"), unix_s);
            std::fs::rename(root.join("new"), root.join(name)).expect("renamed");
        }
    }
    settle(root);
}

#[test]
fn a_file_with_other_content_and_the_same_length_and_time_has_another_tag() {
    for (name, length) in [("a.txt", 1_000), ("a.txt", 100_000), ("a.bin", 100_000), ("a.bin", 5 << 20)] {
        for (unix_s, replacement) in SET_TIMES.into_iter().zip([Replacement::InPlace, Replacement::ByRename].repeat(2))
        {
            let directory = tempfile::tempdir().expect("created");
            let (old, new) = (vec![b'a'; length], vec![b'b'; length]);
            replace(directory.path(), name, &old, unix_s, Replacement::InPlace);
            browse(directory.path(), |browser| {
                let target = format!("/{name}");
                let etag = browser.get(&target, "").field("ETag").expect("of a file").to_owned();
                let kept = browser.get(&target, &format!("If-None-Match: {etag}\r\n"));
                assert_eq!(kept.status(), "304", "{target} {length} {unix_s}");
                replace(directory.path(), name, &new, unix_s, replacement);
                browser.wait_until_stale();
                let changed = browser.get(&target, &format!("If-None-Match: {etag}\r\n"));
                assert!(changed.status() == "200" && changed.content == new, "{target} {length} {unix_s}");
                let resumed = browser.get(&target, &format!("Range: bytes=10-12\r\nIf-Range: {etag}\r\n"));
                assert_eq!(resumed.status(), "200", "{target} {length} {unix_s} {replacement:?}");
            });
        }
    }
}

/// As two machines with the same build, and each unpack of an image of a container.
#[test]
fn a_file_with_a_set_time_has_the_same_tag_wherever_it_has_this_content() {
    let tag = |name: &str, length: usize| {
        let directory = tempfile::tempdir().expect("created");
        replace(directory.path(), name, &vec![b'a'; length], SET_TIMES[3], Replacement::InPlace);
        let mut etag = String::new();
        browse(directory.path(), |browser| {
            browser.get(&format!("/{name}"), "").field("ETag").expect("of a file").clone_into(&mut etag);
        });
        etag
    };
    for (name, length, is_same) in [
        ("a.txt", 1_000, true),
        ("a.txt", 100_000, true),
        ("a.bin", 100_000, true),
        ("a.bin", 4 << 20, true),
        ("a.bin", (4 << 20) + 1, false),
    ] {
        assert_eq!(tag(name, length) == tag(name, length), is_same, "{name} {length}");
    }
}

/// A restart, an upgrade, a new process after a reload; a deployment that sets new times; another machine.
#[test]
fn the_tag_of_a_compressed_file_is_known_before_it_is_compressed() {
    for bytes in [2_000, 100_000] {
        let content = text(bytes);
        let directory = tempfile::tempdir().expect("created");
        write(directory.path(), "a.js", content.as_bytes());
        let mut tags = Vec::new();
        browse(directory.path(), |browser| {
            for coding in ContentCoding::COMPRESSED {
                let fields = format!("Accept-Encoding: {}\r\n", coding.name());
                browser.get("/a.js", &fields);
                let answer = browser.get("/a.js", &fields);
                assert_eq!(answer.field("Content-Encoding"), Some(coding.name()));
                let etag = answer.field("ETag").expect("of a variant").to_owned();
                assert_eq!(browser.get("/a.js", &format!("{fields}If-None-Match: {etag}\r\n")).status(), "304");
                tags.push((fields, etag));
            }
        });
        let check = |root: &Path, state: &str| {
            browse(root, |browser| {
                for (fields, etag) in &tags {
                    let answer = browser.get("/a.js", &format!("{fields}If-None-Match: {etag}\r\n"));
                    assert_eq!((answer.status(), answer.field("ETag")), ("304", Some(etag.as_str())), "{state}");
                    assert_eq!(browser.simulation.compressed_bytes(), 0, "nothing was compressed for it");
                }
                for (fields, etag) in &tags {
                    // Now another client has it compressed.
                    browser.get("/a.js", fields);
                    let answer = browser.get("/a.js", fields);
                    assert_eq!((answer.field("ETag"), decoded(&answer)), (Some(etag.as_str()), content.clone().into()));
                }
                // Whatever else is made, each copy stays valid for a client that accepts its coding.
                let any = "Accept-Encoding: gzip, br, zstd\r\n";
                for (_, etag) in &tags {
                    let answer = browser.get("/a.js", &format!("{any}If-None-Match: {etag}\r\n"));
                    assert_eq!((answer.status(), answer.field("ETag")), ("304", Some(etag.as_str())), "{state}");
                }
            });
        };
        check(directory.path(), "another process");
        set_time(&directory.path().join("a.js"), SET_TIMES[3]);
        check(directory.path(), "other times");
        let other = tempfile::tempdir().expect("created");
        write(other.path(), "a.js", content.as_bytes());
        check(other.path(), "another machine");
    }
}
