//! Protected paths of random sites: whatever returns bytes of a protected file is denied, whichever way leads to it,
//! and nothing else is.

use super::*;
use crate::site::protection::{AccessRule, AuthRule, ProtectionRules};
use crate::site::sites::SiteRules;
use crate::site::users::Users;
use sanderling_site_rules::{Pattern, RequestPath, RuleLimits, RuleSet, parse_redirects_file};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

/// Sites, unless `SANDERLING_PROTECTED_SITES` says otherwise.
const SITE_COUNT: usize = 4;
/// Requests over one connection of HTTP/2.
const STREAMS: usize = 20;
const DIRECTORIES: [&str; 7] = ["", "a", "deep", "index", "x.pdf", "deep/a", "a/index"];
const NAMES: [&str; 14] = [
    "index.html",
    "home.html",
    "default.htm",
    "a.html",
    "deep.html",
    "x.pdf",
    "data.csv",
    "app.3f2a9c1b.js",
    "404.html",
    "a",
    "index",
    "home",
    "x.pdf.html",
    "app.html",
];
const PATTERNS: [&str; 12] = [
    "/",
    "/index",
    "/deep",
    "/deep/index",
    "/*.pdf",
    "/*.gz",
    "/*.html",
    "/deep/*",
    "/:any/index.html",
    "/404",
    "/*.csv.gz",
    "/a/*",
];
/// Fields of requests that choose among the forms of a response.
const FIELDS: [&str; 8] = [
    "",
    "",
    "Accept-Encoding: gzip\r\n",
    "Accept-Encoding: zstd\r\n",
    "Accept-Encoding: br\r\n",
    "Range: bytes=0-\r\n",
    NAVIGATION,
    "Accept: application/json\r\n",
];

/// A site with files that have unique contents.
struct Tree {
    root: tempfile::TempDir,
    earlier: tempfile::TempDir,
    /// The path of each content, by its number.
    files: Vec<String>,
}

/// How a site is served.
#[derive(Debug)]
struct Setup {
    files: FileOptions,
    /// Patterns, each with whether they need a password; other ones no client may request.
    protected: Vec<(String, bool)>,
    patterns: Vec<Pattern>,
    redirects: String,
}

fn token(number: usize) -> String {
    format!("<{number:05}>")
}

fn compressed(content: &[u8], coding: &str) -> Vec<u8> {
    match coding {
        ".zst" => zstd::encode_all(content, 3).expect("compressed"),
        _ => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(content).expect("compressed");
            encoder.finish().expect("compressed")
        }
    }
}

/// The numbers of the contents that bytes of a response are, compressed or not.
fn contents_of(bytes: &[u8]) -> BTreeSet<usize> {
    let mut forms = vec![bytes.to_vec()];
    let mut add = |mut reader: Box<dyn Read + '_>| {
        let mut decoded = Vec::new();
        let _ = reader.read_to_end(&mut decoded);
        forms.push(decoded);
    };
    add(Box::new(flate2::read::GzDecoder::new(bytes)));
    add(Box::new(brotli::Decompressor::new(bytes, 4_096)));
    if let Ok(reader) = zstd::Decoder::new(bytes) {
        add(Box::new(reader));
    }
    let number = |token: &[u8]| str::from_utf8(token).ok()?.strip_suffix('>')?.parse().ok();
    let tokens = forms.iter().flat_map(|form| memchr::memchr_iter(b'<', form).map(|at| form.get(at + 1..at + 7)));
    tokens.flatten().filter_map(number).collect()
}

impl Tree {
    fn random(random: &mut fastrand::Rng) -> Tree {
        let (root, earlier) = (tempfile::tempdir().expect("created"), tempfile::tempdir().expect("created"));
        let mut tree = Tree { root, earlier, files: Vec::new() };
        for directory in DIRECTORIES {
            for name in NAMES {
                if random.u8(..3) > 0 {
                    continue;
                }
                let path = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
                let is_earlier = name.contains("3f2a") && random.bool();
                // Some compressed files have no uncompressed one.
                let coding = *random.choice(&["", "", "", ".gz", ".zst", "!.gz", "!.zst"]).expect("one");
                if !coding.starts_with('!') {
                    tree.add(is_earlier, &path, random.choice(&[40, 400]).copied().expect("one"), "");
                }
                if !coding.is_empty() {
                    let coding = coding.trim_start_matches('!');
                    tree.add(is_earlier, &format!("{path}{coding}"), 40, coding);
                }
            }
        }
        tree
    }

    /// Adds a file, unless the path is one of a directory.
    fn add(&mut self, is_earlier: bool, path: &str, count: usize, coding: &str) {
        let root = if is_earlier { self.earlier.path() } else { self.root.path() };
        let is_possible = DIRECTORIES.iter().all(|directory| *directory != path);
        let parent = root.join(path).parent().map(Path::to_owned).expect("a directory");
        if !is_possible || std::fs::create_dir_all(parent).is_err() {
            return;
        }
        let content = token(self.files.len()).repeat(count);
        let content = if coding.is_empty() { content.into_bytes() } else { compressed(content.as_bytes(), coding) };
        std::fs::write(root.join(path), content).expect("written");
        self.files.push(path.to_owned());
    }
}

/// `path` without the name of an index, and the others.
fn parent_of<'p>(path: &'p str, index: &[String]) -> Option<&'p str> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    index.iter().any(|other| other == name).then_some(directory)
}

impl Setup {
    fn random(random: &mut fastrand::Rng, tree: &Tree) -> Setup {
        let index: &[&str] = random
            .choice(&[
                &["index.html"][..],
                &["home.html", "index.html"],
                &["index.html", "default.htm", "home.html"],
                &["a.html"],
                &[],
            ])
            .expect("one");
        let mut files = with_index(index);
        files.clean_urls = random.u8(..3) > 0;
        files.listing = random.bool();
        files.fallback = random
            .choice(&[None, Some("index.html"), Some("app.html"), Some("deep/index.html")])
            .expect("one")
            .map(str::to_owned);
        let protected = (0..random.usize(1..4)).map(|_| {
            let of_file = |random: &mut fastrand::Rng| {
                let file = random.choice(&tree.files).map_or("a", String::as_str);
                let forms = [
                    Some(file),
                    file.strip_suffix(".html"),
                    parent_of(file, &files.index),
                    file.rsplit_once('.').map(|it| it.0),
                ];
                format!("/{}", random.choice(&forms).copied().flatten().unwrap_or(file))
            };
            let pattern = match random.u8(..5) {
                0 | 1 => (*random.choice(&PATTERNS).expect("one")).to_owned(),
                _ => of_file(random),
            };
            (pattern, random.bool())
        });
        let protected = protected.collect();
        let force = random.choice(&["", "!"]).expect("one");
        let redirects = format!("/alias/* /:splat 200{force}\n/gone/* /:splat 404\n/page/:name /:name/index 200\n");
        Setup::new(files, protected, redirects)
    }

    fn new(files: FileOptions, protected: Vec<(String, bool)>, redirects: String) -> Setup {
        let patterns = protected.iter().map(|(text, _)| Pattern::parse(text, &[]).expect("a pattern")).collect();
        Setup { files, protected, patterns, redirects }
    }

    fn site(&self, tree: &Tree) -> Site {
        let limits = &mut RuleLimits { rules_max: 100, patterns_max: 100 };
        let (redirects, problems) = parse_redirects_file(self.redirects.as_bytes(), limits);
        assert!(problems.is_empty(), "{problems:?}");
        let (mut access, mut auth) = (Vec::new(), Vec::new());
        for (pattern, (_, needs_password)) in self.patterns.iter().cloned().zip(&self.protected) {
            match needs_password {
                false => access.push((pattern, AccessRule { allow: Some(Vec::new()), deny: Vec::new() })),
                true => {
                    let users = Arc::new(Users::parse("users".as_ref(), b"").0);
                    auth.push((pattern, AuthRule { realm: "private".to_owned(), users }));
                }
            }
        }
        let protection = ProtectionRules::new(access, auth, &self.files);
        let own_rules = Arc::new(RuleSet::new(redirects, Vec::new()));
        let rules = SiteRules { own_rules, protection, ..SiteRules::default() };
        let open = |root: &Path| Arc::new(Directory::open(root).expect("opened"));
        let options = SiteOptions {
            files: self.files.clone(),
            previous_roots: vec![open(tree.earlier.path())],
            rules: Some(Box::new(rules)),
            ..SiteOptions::default()
        };
        Site { id: 0, hosts: Vec::new(), root: Root::Directory(open(tree.root.path())), options }
    }

    fn matches(&self, path: &str) -> bool {
        self.patterns.iter().any(|pattern| {
            let path = path.as_bytes();
            pattern.is_match(&RequestPath { is_https: false, host: None, path, ends_with_slash: false, query: None })
        })
    }

    /// Whether a rule names the file: by its path, that without `.html`, or that of the directory whose index it is.
    fn is_protected(&self, file: &str) -> bool {
        let base = [".gz", ".zst", ".br"].iter().find_map(|coding| file.strip_suffix(coding)).unwrap_or(file);
        [file, base].into_iter().any(|file| {
            let forms = [Some(file), file.strip_suffix(".html"), parent_of(file, &self.files.index)];
            forms.into_iter().flatten().any(|form| self.matches(form))
        })
    }

    /// Whether a rule may have denied a request for `path`: one of the paths that can have to do with it matches.
    fn may_be_denied(&self, path: &str) -> bool {
        let without =
            |prefix: &str| format!("{path}/").strip_prefix(prefix).map(|rest| rest.trim_end_matches('/').to_owned());
        let page = path.strip_prefix("page/").filter(|name| !name.contains('/')).map(|name| format!("{name}/index"));
        // A path grows by the names of indexes, each of which could have one again.
        let bytes_max = path.len() + 20;
        let fallback = self.files.fallback.clone();
        let starts = [Some(path.to_owned()), without("alias/"), without("gone/"), page, fallback];
        let mut known: BTreeSet<String> = BTreeSet::new();
        let mut new: Vec<String> = starts.into_iter().flatten().collect();
        while let Some(path) = new.pop() {
            if path.len() > bytes_max || !known.insert(path.clone()) {
                continue;
            }
            for extension in [".gz", ".zst", ".br", ".html"] {
                new.extend(path.strip_suffix(extension).map(str::to_owned));
            }
            if self.files.clean_urls {
                new.push(format!("{path}.html"));
            }
            for name in &self.files.index {
                new.push(if path.is_empty() { name.clone() } else { format!("{path}/{name}") });
            }
            new.extend(parent_of(&path, &self.files.index).map(str::to_owned));
        }
        known.iter().any(|path| self.matches(path))
    }
}

/// All paths that a client may try in order to get the files.
fn targets(tree: &Tree, random: &mut fastrand::Rng) -> Vec<String> {
    let mut paths: BTreeSet<String> = DIRECTORIES.iter().map(|&path| path.to_owned()).collect();
    paths.extend(tree.files.iter().cloned());
    for path in paths.clone() {
        for extension in [".html", ".gz", ".zst", ".br", ".htm", "/index.html", "/home.html"] {
            paths.extend(path.strip_suffix(extension).map(str::to_owned));
        }
        let name = random.choice(&["index", "index.html", "home", "home.html", "a", "none", "404"]).expect("one");
        paths.insert(format!("{path}/{name}").trim_start_matches('/').to_owned());
        paths.insert(path + random.choice(&[".html", ".gz", ".br", ".html.gz"]).expect("one"));
    }
    let mut targets = Vec::new();
    for path in paths {
        targets.push(format!("/{path}"));
        let path = path.as_str();
        targets.push(match random.u8(..9) {
            0 => format!("/alias/{path}"),
            1 => format!("/alias/{path}/"),
            2 => format!("/gone/{path}"),
            3 => format!("/page/{path}"),
            4 => format!("//{path}"),
            5 => format!("/./{path}/"),
            6 => format!("/{}", path.replace('a', "%61").replace('/', "%2F")),
            7 => format!("/alias/{}", path.replace("index", "%69ndex")),
            _ => format!("/{path}/"),
        });
    }
    targets
}

/// The requests that were made of all sites.
#[derive(Debug, Default)]
struct Counts {
    sites: usize,
    paths: usize,
    requests: usize,
    denied: usize,
    /// Responses with the content of a file.
    with_content: usize,
    leaks: BTreeMap<String, usize>,
}

struct Prober<'p, 'b, 's> {
    browser: &'p mut Browser<'b, 's>,
    tree: &'p Tree,
    setup: &'p Setup,
    seed: u64,
    counts: &'p mut Counts,
}

impl Prober<'_, '_, '_> {
    fn check(&mut self, how: &str, target: &str, status: Option<&str>, content: &[u8]) {
        self.counts.requests += 1;
        let Prober { setup, tree, seed, .. } = *self;
        let contents = contents_of(content);
        self.counts.with_content += usize::from(!contents.is_empty());
        for number in contents {
            let file = &tree.files[number];
            if setup.is_protected(file) {
                println!("seed {seed}: {how} {target:?} returns {file} of {setup:?}");
                *self.counts.leaks.entry(how.to_owned()).or_default() += 1;
            }
        }
        let listed = str::from_utf8(content).ok().filter(|text| text.starts_with("{\"path\":"));
        for file in listed.into_iter().flat_map(|_| &tree.files).filter(|file| setup.is_protected(file)) {
            let path = SitePath::parse(target.as_bytes()).expect("a path");
            let directory =
                str::from_utf8(path.as_bytes()).expect("text").trim_start_matches("alias").trim_start_matches('/');
            let (parent, name) = file.rsplit_once('/').unwrap_or(("", file));
            let is_named =
                parent == directory && listed.is_some_and(|text| text.contains(&format!("\"name\":\"{name}\"")));
            assert!(
                !is_named || setup.matches(directory),
                "seed {seed}: the listing {target} names {file} of {setup:?}"
            );
        }
        if matches!(status, Some("401" | "403")) {
            self.counts.denied += 1;
            let path = SitePath::parse(target.as_bytes()).expect("a path");
            let path = str::from_utf8(path.as_bytes()).expect("text");
            assert!(setup.may_be_denied(path), "seed {seed}: {how} {target} is denied by {setup:?}");
        }
    }

    fn probe(&mut self, targets: &[String], random: &mut fastrand::Rng) {
        self.counts.paths += targets.len();
        for target in targets {
            let target = target.as_str();
            for fields in [FIELDS[0], random.choice(&FIELDS).expect("one"), random.choice(&FIELDS).expect("one")] {
                let answer = self.browser.get(target, fields);
                let (status, content) = (answer.status().to_owned(), answer.content);
                self.check(fields.trim(), target, Some(&status), &content);
                let head = self.browser.ask("HEAD", target, fields);
                let is_denied = |status: &str| matches!(status, "401" | "403");
                let (of_head, of_get) = (is_denied(head.status()), is_denied(&status));
                assert_eq!(of_head, of_get, "seed {}: HEAD {target} {fields}, {:?}", self.seed, self.setup);
                self.check("HEAD", target, Some(head.status()), &head.content);
            }
        }
        for targets in targets.chunks(STREAMS) {
            let fields = random.choice(&FIELDS).expect("one");
            for (target, content) in targets.iter().zip(self.browser.get_by_http2(targets, fields)) {
                self.check(&format!("HTTP/2 {}", fields.trim()), target, None, &content);
            }
        }
    }
}

impl Browser<'_, '_> {
    /// The contents of the responses to these targets over one connection of HTTP/2.
    fn get_by_http2(&mut self, targets: &[String], fields: &str) -> Vec<Vec<u8>> {
        let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
            let length = (payload.len() as u32).to_be_bytes();
            [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
        };
        let text = |text: &str| {
            assert!(text.len() < 127, "{text}");
            [&[text.len() as u8][..], text.as_bytes()].concat()
        };
        let mut sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, &[])[..]].concat();
        sent.extend(frame(8, 0, 0, &1_000_000_u32.to_be_bytes()));
        for (index, target) in targets.iter().enumerate() {
            let mut block = [b"\x82\x86\x41\x01a\x04", &text(target)[..]].concat();
            for line in fields.lines() {
                let (name, value) = line.split_once(": ").expect("a field");
                block.extend([&[0][..], &text(&name.to_ascii_lowercase()), &text(value)].concat());
            }
            sent.extend(frame(1, 5, index as u32 * 2 + 1, &block));
        }
        let client = self.simulation.connect(Protocol::Http, &sent, usize::MAX).expect("accepted");
        let mut received = Vec::new();
        let mut contents = vec![Vec::new(); targets.len()];
        let mut ended_count = 0;
        wait_until("responses over HTTP/2", || {
            self.simulation.run(ITERATIONS_MAX);
            received.extend(self.simulation.take_received(client));
            let mut rest = &received[..];
            while let Some((header, after)) = rest.split_at_checked(9) {
                let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
                let Some((payload, after)) = after.split_at_checked(length) else { break };
                let stream = u32::from_be_bytes(header[5..].try_into().expect("four bytes")) as usize;
                if header[3] == 0 {
                    contents[stream / 2].extend_from_slice(payload);
                }
                ended_count += usize::from(matches!(header[3], 0 | 1) && header[4] & 1 != 0);
                rest = after;
            }
            let rest = rest.len();
            received.drain(..received.len() - rest);
            ended_count == targets.len()
        });
        self.simulation.close(client);
        contents
    }
}

fn site_count() -> usize {
    sanderling_testkit::number_or("SANDERLING_PROTECTED_SITES", SITE_COUNT)
}

#[test]
fn whatever_returns_bytes_of_a_protected_file_is_denied_and_nothing_else() {
    let seed = sanderling_testkit::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut counts = Counts::default();
    for _ in 0..site_count() {
        let tree = Tree::random(&mut random);
        let setup = Setup::random(&mut random, &tree);
        let site = setup.site(&tree);
        let targets = targets(&tree, &mut random);
        counts.sites += 1;
        browse_site(tree.root.path(), site, Options::default(), |browser| {
            Prober { browser, tree: &tree, setup: &setup, seed, counts: &mut counts }.probe(&targets, &mut random);
        });
    }
    println!("{counts:?}");
    assert_eq!(counts.leaks, BTreeMap::new(), "seed {seed}");
    assert!(counts.requests > 300 * counts.sites, "{counts:?}");
    assert!(counts.denied > counts.requests / 200 && counts.with_content > counts.requests / 50, "{counts:?}");
}

/// A site with these files, one of which is `secret`, protected by a rule.
#[track_caller]
fn check_denied(files: &[(&str, &str)], options: FileOptions, pattern: &str, requests: &[(&str, &str)]) {
    let tree = Tree {
        root: tempfile::tempdir().expect("created"),
        earlier: tempfile::tempdir().expect("created"),
        files: Vec::new(),
    };
    for (path, content) in files {
        let coding = if path.ends_with(".gz") { ".gz" } else { "" };
        let content =
            if coding.is_empty() { content.as_bytes().to_vec() } else { compressed(content.as_bytes(), coding) };
        write(tree.root.path(), path, &content);
    }
    let redirects = "/alias/* /:splat 200\n".to_owned();
    let setup = Setup::new(options, vec![(pattern.to_owned(), true)], redirects);
    browse_site(tree.root.path(), setup.site(&tree), Options::default(), |browser| {
        for (target, expected) in requests {
            let (target, fields) = match target.strip_suffix(" as a page") {
                Some(target) => (target, NAVIGATION),
                None => (*target, ""),
            };
            let answer = browser.get(target, fields);
            let status = answer.status().to_owned();
            let content = String::from_utf8_lossy(&answer.content);
            assert_eq!(status, *expected, "{pattern}: {target} {content}");
            assert!(!content.contains("secret"), "{pattern}: {target} {content}");
            assert_eq!(answer.field("WWW-Authenticate").is_some(), status == "401", "{target}");
        }
    });
}

#[test]
fn protected_file_is_denied_whichever_way_leads_to_it() {
    let clean = |index: &[&str]| FileOptions { clean_urls: true, ..with_index(index) };
    let deep: &[(&str, &str)] = &[("deep/index.html", "secret"), ("open.html", "open")];
    let two = &["home.html", "index.html"];
    let ways =
        [("/deep", "401"), ("/deep/", "401"), ("/deep/index", "401"), ("/alias/deep/index", "401"), ("/open", "200")];
    check_denied(deep, clean(two), "/deep", &ways);
    check_denied(deep, clean(&["index.html"]), "/deep", &ways);
    let ways =
        [("/deep", "301"), ("/deep/", "401"), ("/deep/index", "401"), ("/alias/deep/index", "401"), ("/open", "200")];
    check_denied(deep, clean(&["index.html"]), "/deep/index", &ways);
    let root: &[(&str, &str)] = &[("index.html", "secret"), ("open.html", "open")];
    let ways = [
        ("/", "401"),
        ("/index", "401"),
        ("/alias/", "401"),
        ("/alias/index", "401"),
        ("/index.html", "401"),
        ("/open", "200"),
    ];
    check_denied(root, clean(two), "/", &ways);
    check_denied(root, clean(two), "/index", &ways);
    let pdf: &[(&str, &str)] = &[("xx.pdf/index.html", "secret")];
    check_denied(pdf, clean(&["index.html"]), "/*.pdf", &[("/alias/xx.pdf/index", "401"), ("/xx.pdf/index", "401")]);
    // A page that answers for other paths.
    let app: &[(&str, &str)] = &[("index.html", "secret"), ("404.html", "not found"), ("app.js", "open")];
    let fallback = FileOptions { fallback: Some("index.html".to_owned()), ..FileOptions::default() };
    check_denied(app, fallback.clone(), "/", &[("/users/7 as a page", "401"), ("/users/7", "404"), ("/app.js", "200")]);
    check_denied(app, fallback, "/index.html", &[("/users/7 as a page", "401"), ("/", "401")]);
    let page: &[(&str, &str)] = &[("404.html", "secret"), ("a.js", "open")];
    check_denied(page, FileOptions::default(), "/*.html", &[("/none", "404"), ("/none.html", "401"), ("/a.js", "200")]);
    // With clean URLs, nothing must show that there is no page at this path.
    let clean_page = clean(&["index.html"]);
    check_denied(page, clean_page, "/*.html", &[("/none", "401"), ("/alias/none", "401"), ("/a.js", "200")]);
    // A file of which there is only a compressed form.
    let dump: &[(&str, &str)] = &[
        ("dump.json.gz", "secret"),
        ("dump.js", "open, and not short\nopen, and not short\n"),
        ("dump.js.gz", "secret"),
    ];
    check_denied(
        dump,
        FileOptions::default(),
        "/*.gz",
        &[("/dump.json", "404"), ("/dump.json.gz", "401"), ("/dump.js", "200")],
    );
}

#[test]
fn listing_names_no_file_that_other_rules_protect() {
    let check = |pattern: &str, expected: &[&str], hidden: &[&str]| {
        let files = [("a.txt", "1"), ("b.html", "2"), ("private/c.txt", "3")];
        let tree = Tree {
            root: tempfile::tempdir().expect("created"),
            earlier: tempfile::tempdir().expect("created"),
            files: Vec::new(),
        };
        files.iter().for_each(|(path, content)| write(tree.root.path(), path, content.as_bytes()));
        let options = FileOptions { listing: true, ..FileOptions::default() };
        let setup = Setup::new(options, vec![(pattern.to_owned(), true)], String::new());
        browse_site(tree.root.path(), setup.site(&tree), Options::default(), |browser| {
            for fields in ["", "Accept: application/json\r\n"] {
                let answer = browser.get("/", fields);
                let has = |name: &&str| answer.text().contains(&format!("{name}\""));
                assert!(expected.iter().all(has) && !hidden.iter().any(has), "{pattern}: {answer:?}");
            }
        });
    };
    check("/other", &["a.txt", "b.html", "private/"], &[]);
    check("/private/*", &["a.txt", "b.html"], &["private/"]);
    check("/b", &["a.txt", "private/"], &["b.html"]);
    check("/*.txt", &["b.html", "private/"], &["a.txt"]);
}
