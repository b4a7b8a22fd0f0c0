//! A large site, copied by `wget --mirror`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, wget_mirror};

#[test]
fn mirror_of_a_site_equals_it() {
    let directory = TestDirectory::new();
    let mut tree = Tree { root: directory.path().join("tree"), paths: Vec::new() };
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
    ]
    .map(|(path, length)| (path.to_owned(), length))
    .into_iter()
    .chain((0..300).map(|number| (format!("many/{}/{number}.txt", number % 7), 1_000 + number * 100)))
    {
        let content = sanderling_testkit::random_bytes(&mut random, length);
        tree.put(&path, &content);
    }
    tree.put_index();

    let arguments = ["serve", tree.root.to_str().unwrap(), "--http", "127.0.0.1:0", "--workers", "2"];
    let server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 0 });
    let mirror = directory.path().join("mirror");
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
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("readable") {
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
