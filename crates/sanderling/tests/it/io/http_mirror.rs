//! A large site, copied by `wget --mirror`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use sanderling_testkit::{Folder, ListenerCounts, TestServer, wget_mirror};

/// Limits of the machine's own documents.
const FILE_COUNT_MAX: usize = 2_000;
const TREE_BYTES_MAX: u64 = 30_000_000;

#[test]
fn mirror_of_a_site_equals_it() {
    let folder = Folder::new();
    let mut tree = Tree { root: folder.path().join("tree"), paths: Vec::new() };
    tree.put_documents(Path::new("/usr/share/doc"));
    let mut random = Rng::with_seed(sanderling_testkit::seed());
    for (path, length) in [
        ("odd/with space.txt", 10),
        ("odd/100%.txt", 20),
        ("odd/ünï—日本.txt", 40),
        ("odd/a&b='c'(d)+e,f;g@h!~$.txt", 50),
        ("odd/quote\"and<angle>.txt", 60),
        ("odd/hash#mark.txt", 70),
        ("odd/deep/er/and/deeper/x", 80),
        ("sizes/0", 0),
        ("sizes/1", 1),
        ("sizes/8191", 8_191),
        ("sizes/8192", 8_192),
        ("sizes/8193", 8_193),
        ("sizes/65536", 65_536),
        ("sizes/5000003", 5_000_003),
    ] {
        let content = sanderling_testkit::random_bytes(&mut random, length);
        tree.put(path, &content);
    }
    tree.put_index();

    let arguments = ["serve", tree.root.to_str().unwrap(), "--http", "127.0.0.1:0", "--workers", "2"];
    let server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 0 });
    let mirror = folder.path().join("mirror");
    let ended = wget_mirror(&format!("http://{}/", server.http()), mirror.to_str().unwrap());
    assert_eq!(ended.code(), Some(0), "{ended}");

    let (served, fetched) = (files_of(&tree.root), files_of(&mirror));
    let missing: Vec<_> = served.keys().filter(|path| !fetched.contains_key(*path)).collect();
    let added: Vec<_> = fetched.keys().filter(|path| !served.contains_key(*path)).collect();
    assert!(missing.is_empty() && added.is_empty(), "missing {missing:?}, added {added:?}");
    for (path, content) in &served {
        assert!(fetched[path] == *content, "{} differs", path.display());
    }
    println!("{} files, {} bytes", served.len(), served.values().map(Vec::len).sum::<usize>());
}

/// A site, with the paths that its index links to.
struct Tree {
    root: PathBuf,
    paths: Vec<String>,
}

impl Tree {
    fn put(&mut self, path: &str, content: &[u8]) {
        let file = self.root.join(path);
        fs::create_dir_all(file.parent().expect("the path is below the root")).expect("created");
        fs::write(file, content).expect("written");
        self.paths.push(path.to_owned());
    }

    /// Copies files, in the order of their names, up to the limits; but neither hidden files nor those in which `wget` would
    /// follow links.
    fn put_documents(&mut self, from: &Path) {
        let mut left_bytes = TREE_BYTES_MAX;
        let mut directories = vec![from.to_owned()];
        while let Some(folder) = directories.pop() {
            let mut entries: Vec<PathBuf> =
                fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            entries.sort();
            for entry in entries {
                let metadata = fs::symlink_metadata(&entry).expect("just listed");
                let path = entry.strip_prefix(from).expect("found below").to_str().unwrap_or(".").to_owned();
                let is_public = !path.split('/').any(|segment| segment.starts_with('.'));
                let has_links = [".html", ".htm", ".xhtml", ".css"].iter().any(|end| path.ends_with(end));
                if metadata.is_dir() {
                    directories.push(entry);
                } else if metadata.is_file() && is_public && !has_links && metadata.len() <= left_bytes {
                    if self.paths.len() == FILE_COUNT_MAX {
                        return;
                    }
                    left_bytes -= metadata.len();
                    self.put(&format!("doc/{path}"), &fs::read(entry).expect("documents are readable"));
                }
            }
        }
    }

    /// Writes a page that links to every file.
    fn put_index(&mut self) {
        let links: String = self.paths.iter().map(|path| format!("<a href=\"{}\">x</a>\n", escaped(path))).collect();
        self.put("index.html", format!("<!doctype html><meta charset=utf-8>\n{links}").as_bytes());
    }
}

/// The path with percent-encoding (RFC 3986 §2.1).
fn escaped(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// All files below `root`, by their paths.
fn files_of(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(folder) = directories.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(root).expect("found below").to_owned();
                files.insert(name, fs::read(path).expect("readable"));
            }
        }
    }
    files
}
