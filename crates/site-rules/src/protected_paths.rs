//! The paths that rules protect, in every form in which a client can ask for them: without `.html`, with the name of an
//! index, of a compressed form.
//!
//! A rule may be written for one of these forms, and a request or file may have another, so each pattern is compared
//! with all forms of a path. An index leaves few patterns to compare: it has them by a key that all forms of a path
//! share.

use crate::index::{Candidates, Index};
use crate::options::FileOptions;
use crate::pattern::{Pattern, RequestPath};

const CODING_EXTENSIONS: [&[u8]; 3] = [b".br", b".zst", b".gz"];
const PAGE_EXTENSION: &[u8] = b".html";

/// The patterns of some rules, in their order, for a site that finds files in a certain way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectedPaths {
    patterns: Vec<Pattern>,
    index: Index,
    forms: Forms,
}

/// The settings by which several paths lead to the same file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Forms {
    /// The names of the files that answer for their directory.
    index_names: Vec<Box<[u8]>>,
    /// The index names without extensions.
    index_stems: Vec<Box<[u8]>>,
    /// Pages answer for their path without `.html`.
    clean_urls: bool,
}

/// The facts about a path whose rules are looked up.
#[derive(Clone, Copy)]
enum Subject {
    /// The path of a file, or of a request whose file is not looked up yet.
    File,
    /// The path of a request without a file; the path of a directory, if it ends with a slash.
    Missing { ends_with_slash: bool },
}

impl ProtectedPaths {
    /// `patterns`: patterns of rules; a pattern with a host or with conditions on the query matches nothing.
    pub fn new(patterns: Vec<Pattern>, files: &FileOptions) -> ProtectedPaths {
        let forms = Forms::new(files);
        let index = Index::with_keys(patterns.iter(), |path| forms.key(path));
        ProtectedPaths { patterns, index, forms }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The position of the first rule that protects the file at `path`. The path has no slash at either end.
    pub fn find_for_file(&self, path: &[u8]) -> Option<usize> {
        self.find(path, Subject::File)
    }

    /// The position of the first rule that would protect a file to which a request for `path` might lead, if the file
    /// existed.
    pub fn find_for_missing(&self, path: &[u8], ends_with_slash: bool) -> Option<usize> {
        self.find(path, Subject::Missing { ends_with_slash })
    }

    fn find(&self, path: &[u8], subject: Subject) -> Option<usize> {
        let mut room = Vec::new();
        self.candidates(path).find(|&position| {
            let pattern = &self.patterns[position];
            let is_match = |path: &[u8]| {
                pattern.is_match(&RequestPath {
                    is_https: false,
                    host: None,
                    path,
                    ends_with_slash: false,
                    query: None,
                })
            };
            self.forms.any_form(path, subject, &mut room, is_match)
        })
    }

    fn candidates(&self, path: &[u8]) -> Candidates<'_> {
        let first = &path[..memchr::memchr(b'/', path).unwrap_or(path.len())];
        self.index.candidates_by(self.forms.key(path), self.forms.key(first))
    }
}

impl Forms {
    fn new(files: &FileOptions) -> Forms {
        let index_names: Vec<Box<[u8]>> = files.index.iter().map(|name| name.as_bytes().into()).collect();
        let mut index_stems = index_names.clone();
        let mut position = 0;
        while let Some(name) = index_stems.get(position) {
            let shorter = without_coding(name).or_else(|| without_page_extension(name)).map(Box::from);
            index_stems.extend(shorter);
            position += 1;
        }
        Forms { index_names, index_stems, clean_urls: files.clean_urls }
    }

    /// The common part of all forms of a path: the path without extensions and index names. Other paths may have it
    /// too.
    fn key<'p>(&self, mut path: &'p [u8]) -> &'p [u8] {
        loop {
            let shorter = without_coding(path)
                .or_else(|| without_page_extension(path))
                .or_else(|| without_name(path, &self.index_stems));
            match shorter {
                Some(shorter) => path = shorter,
                None => return path,
            }
        }
    }

    /// Whether `is_match` is true of any form of the path. `room` is for paths that are longer.
    fn any_form(&self, path: &[u8], subject: Subject, room: &mut Vec<u8>, is_match: impl Fn(&[u8]) -> bool) -> bool {
        if self.any_form_of_file(path, &is_match) {
            return true;
        }
        let Subject::Missing { ends_with_slash } = subject else { return false };
        // Other files that it may lead to: a page without its extension, and the index of a directory.
        let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
        let page = (self.clean_urls && !path.is_empty()).then_some([&b""[..], PAGE_EXTENSION]);
        let index_names = if ends_with_slash { &self.index_names[..] } else { &[] };
        let mut endings = page.into_iter().chain(index_names.iter().map(|name| [separator, name]));
        room.clear();
        room.extend_from_slice(path);
        endings.any(|ending| {
            room.truncate(path.len());
            ending.into_iter().for_each(|part| room.extend_from_slice(part));
            self.any_form_of_file(room, &is_match)
        })
    }

    fn any_form_of_file(&self, file: &[u8], is_match: impl Fn(&[u8]) -> bool) -> bool {
        // A compressed form is protected as its file is.
        let files = [Some(file), without_coding(file)];
        files.into_iter().flatten().any(|file| {
            let shorter = [without_page_extension(file), without_name(file, &self.index_names)];
            is_match(file) || shorter.into_iter().flatten().any(&is_match)
        })
    }
}

fn without_coding(path: &[u8]) -> Option<&[u8]> {
    CODING_EXTENSIONS.into_iter().find_map(|extension| without_extension(path, extension))
}

fn without_page_extension(path: &[u8]) -> Option<&[u8]> {
    without_extension(path, PAGE_EXTENSION)
}

fn without_extension<'p>(path: &'p [u8], extension: &[u8]) -> Option<&'p [u8]> {
    path.strip_suffix(extension).filter(|rest| !rest.is_empty() && !rest.ends_with(b"/"))
}

/// The directory of a file with one of these names.
fn without_name<'p>(path: &'p [u8], names: &[Box<[u8]>]) -> Option<&'p [u8]> {
    let at = memchr::memrchr(b'/', path);
    let name = &path[at.map_or(0, |at| at + 1)..];
    // The root has no name.
    let is_named = !name.is_empty() && names.iter().any(|other| **other == *name);
    is_named.then(|| &path[..at.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(patterns: &[&str], index: &[&str], clean_urls: bool) -> ProtectedPaths {
        let patterns = patterns.iter().map(|text| Pattern::parse(text, &[]).expect("a pattern")).collect();
        let index = index.iter().map(|&name| name.to_owned()).collect();
        ProtectedPaths::new(patterns, &FileOptions { index, clean_urls, ..FileOptions::default() })
    }

    #[track_caller]
    fn check(pattern: &str, index: &[&str], protected: &[&str], others: &[&str]) {
        let paths = paths(&[pattern], index, true);
        for path in protected {
            assert_eq!(paths.find_for_missing(path.as_bytes(), true), Some(0), "{pattern} does not protect {path}");
        }
        for path in others {
            assert_eq!(paths.find_for_missing(path.as_bytes(), true), None, "{pattern} protects {path}");
        }
    }

    #[test]
    fn rule_protects_all_paths_that_lead_to_the_same_file() {
        let indexes = &["home.html", "index.html"];
        let of_directory = ["deep", "deep.html", "deep/index.html", "deep/home.html", "deep/index", "deep/home"];
        check("/deep", indexes, &of_directory, &["", "deep/other", "deeper", "deep/default.html", "dee"]);
        check("/deep/", indexes, &["deep/index", "deep/index.html.br"], &["deep/a/index"]);
        check("/deep/index", indexes, &["deep", "deep/index", "deep/index.html", "deep/index.html.gz"], &["deep/home"]);
        check("/deep/index.html", indexes, &["deep", "deep/index"], &["deep/home.html", "deep/x"]);
        check("/", indexes, &["", "index", "home", "index.html", "home.html.zst"], &["a", "a/index"]);
        check("/index", indexes, &["", "index", "index.html"], &["home", "index/a"]);
        check(
            "/*.pdf",
            indexes,
            &["a.pdf", "a.pdf.br", "a.pdf/index", "a.pdf/home.html", "x/a.pdf/index.html"],
            &["a"],
        );
        check("/a.html", &[], &["a", "a.html", "a.html.br"], &["a/index.html", "a.br.html"]);
        check("/a", &["x.htm"], &["a/x.htm", "a/x.htm.gz"], &["a/x", "a/index.html"]);
        check("/private/*", indexes, &["private", "private/a", "private.html", "private/a/index"], &["privates"]);
        check("/*", indexes, &["", "a", "a/b.html"], &[]);
    }

    #[test]
    fn file_has_fewer_forms_than_what_is_missing() {
        let paths = paths(&["/a.html", "/deep"], &["index.html"], true);
        let of_file = |path: &str| paths.find_for_file(path.as_bytes());
        assert_eq!(of_file("a.html"), Some(0));
        assert_eq!(of_file("a.html.br"), Some(0));
        assert_eq!(of_file("a/index.html"), None);
        assert_eq!(of_file("deep/index.html"), Some(1));
        assert_eq!(of_file("deep.html"), Some(1));
        assert_eq!(of_file("deep/a.html"), None);
        assert_eq!(of_file("a"), None);
        assert_eq!(paths.find_for_missing(b"a", false), Some(0));
    }

    #[test]
    fn only_a_directory_leads_to_its_index() {
        let paths = paths(&["/*/index.html"], &["index.html"], true);
        assert_eq!(paths.find_for_missing(b"favicon.ico", false), None);
        assert_eq!(paths.find_for_missing(b"a", true), Some(0));
    }

    #[test]
    fn path_without_extension_leads_to_a_page_only_with_clean_urls() {
        for clean_urls in [false, true] {
            let paths = paths(&["/*.html"], &[], clean_urls);
            assert_eq!(paths.find_for_missing(b"a.js", false).is_some(), clean_urls);
            assert_eq!(paths.find_for_file(b"a.js"), None);
        }
    }

    #[test]
    fn first_rule_that_matches_is_found() {
        let paths = paths(&["/a/b", "/a/*", "/*.pdf", "/*", "/a/c"], &["index.html"], true);
        for (path, expected) in [("a/b", 0), ("a/b.html", 0), ("a/c", 1), ("a/x.pdf", 1), ("b/x.pdf", 2), ("b", 3)] {
            assert_eq!(paths.find_for_missing(path.as_bytes(), true), Some(expected), "{path}");
        }
    }

    /// The index leaves out no pattern that a form of the path matches.
    #[test]
    fn index_finds_what_a_comparison_with_all_patterns_finds() {
        const SEGMENTS: [&str; 12] = [
            "a",
            "b",
            "index",
            "index.html",
            "home.htm",
            "a.html",
            "a.html.html",
            "a.br",
            "a.pdf",
            "x.gz.br",
            "index.html.gz",
            "home",
        ];
        const ENDS: [&str; 6] = ["", ".html", ".gz", ".br.html", "/index.html", "/x.gz"];
        let seed = sanderling_testkit::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let path = |random: &mut fastrand::Rng| {
            let count = random.usize(..4);
            let segments: Vec<&str> = (0..count).map(|_| *random.choice(&SEGMENTS).expect("one")).collect();
            if count == 0 { String::new() } else { segments.join("/") + random.choice(&ENDS).expect("one") }
        };
        let mut found_count = 0;
        for _ in 0..3_000 {
            let indexes: &[&str] =
                random.choice(&[&["index.html"][..], &["home.htm", "index.html"], &["x.gz.br"], &[]]).expect("one");
            let patterns: Vec<String> = (0..8)
                .map(|_| match random.usize(..5) {
                    0 => format!("/{}/*", path(&mut random)).replace("//", "/"),
                    1 => format!("/*{}", random.choice(&[".pdf", ".gz", ".html", "/a"]).expect("one")),
                    2 => format!("/:x/{}", path(&mut random)),
                    _ => format!("/{}", path(&mut random)),
                })
                .collect();
            let paths = paths(&patterns.iter().map(String::as_str).collect::<Vec<_>>(), indexes, random.bool());
            for _ in 0..20 {
                let path = path(&mut random);
                for subject in [Subject::Missing { ends_with_slash: random.bool() }, Subject::File] {
                    let is_protecting = |pattern: &&Pattern| {
                        paths.forms.any_form(path.as_bytes(), subject, &mut Vec::new(), |path| {
                            let ends_with_slash = false;
                            pattern.is_match(&RequestPath {
                                is_https: false,
                                host: None,
                                path,
                                ends_with_slash,
                                query: None,
                            })
                        })
                    };
                    let expected = paths.patterns.iter().position(|pattern| is_protecting(&pattern));
                    assert_eq!(
                        paths.find(path.as_bytes(), subject),
                        expected,
                        "seed {seed}: {patterns:?} {indexes:?} {path}"
                    );
                    found_count += usize::from(expected.is_some());
                }
            }
        }
        assert!(found_count > 10_000, "{found_count}");
    }
}
