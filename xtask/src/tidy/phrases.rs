//! Phrases that read as a translation: each has a plain form, which pages, comments and messages use.

use super::{Finding, Tree, error};

/// The phrases in lower case, and their replacement.
const PHRASES: &[(&str, &str)] = &[
    ("again and again", "repeatedly"),
    ("also when", "even when, or when ... too"),
    ("anew", "again"),
    ("at a start", "at startup"),
    ("as well as it can", "as far as possible"),
    ("became of", "the result"),
    ("become of", "the result"),
    ("becomes of", "the result"),
    ("beside", "next to, or together with"),
    ("besides", "in addition to, or other than"),
    ("but for", "except"),
    ("for ever", "forever, or always"),
    ("for the sake of", "for, or because of"),
    ("for want of", "for lack of"),
    ("had better", "should"),
    ("hence", "therefore"),
    ("in the place of", "in place of"),
    ("in vain", "without success"),
    ("is to be", "must be, or should be"),
    ("are to be", "must be, or should be"),
    ("keeper of private keys", "keeper"),
    ("likewise", "in the same way, or also"),
    ("of its own", "its own, or separate"),
    ("of our own", "our own"),
    ("of their own", "their own, or separate"),
    ("of your own", "your own"),
    ("one after the other", "one after another, or in turn"),
    ("other ones", "others"),
    ("outside of", "outside"),
    ("renewed each second", "refreshed every second"),
    ("so-called", "nothing"),
    ("somebody", "someone, or the process or client"),
    ("the one before", "the previous one"),
    ("the ones before", "the previous ones"),
    ("the process that serves", "the server process"),
    ("the version before", "the previous version"),
    ("thereby", "so"),
    ("tried again", "retried"),
    ("what has become", "the result"),
    ("whom", "a named subject"),
];
/// Phrases that are correct although they contain one of these.
const ALLOWED: &[&str] = &["on a line of its own"];
/// The first word of a doc comment that describes a thing by a clause instead of a noun.
const HEADLESS: &str = "what";
/// Marks that end a clause.
const MARKS: [char; 5] = [',', '.', ';', ':', ')'];
/// Text that only developers read, or that quotes others.
const EXEMPT: &[&str] = &["/tests/", "tests.rs", "_tests", "simulation", "/examples/", "testkit/", "bench/", "fuzz/"];
/// This list itself.
const OWN_PATH: &str = "xtask/src/tidy/phrases.rs";

/// A word of prose with the number of its line; an empty one separates texts.
type Word<'t> = (usize, &'t str);

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_end(".md") {
        report(path, &words_of_page(text), &mut found);
    }
    for (path, text) in tree.with_end(".rs").filter(|(path, _)| *path != OWN_PATH) {
        if EXEMPT.iter().any(|part| path.contains(part)) {
            continue;
        }
        let text = text.split_once("\n#[cfg(test)]\nmod tests {").map_or(text, |(product, _)| product);
        report(path, &words_of_code(text), &mut found);
        found.extend(headless(path, text));
    }
    found
}

/// Doc comments that begin with a relative clause.
fn headless(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (index, line) in text.lines().enumerate() {
        let doc = line.trim_start().strip_prefix("/// ").or(line.strip_prefix("//! "));
        let first = doc.filter(|_| !is_inside).and_then(|doc| doc.split(' ').next());
        // A question and a whole sentence may begin so, as in the help of a command.
        let is_help = doc.is_some_and(|doc| doc.ends_with('?') || doc.contains(" is given by "));
        if first.is_some_and(|word| word.eq_ignore_ascii_case(HEADLESS)) && !is_help {
            found.push(error(path, index + 1, "the comment begins with a clause; begin with a noun"));
        }
        is_inside = line.trim_start().starts_with("//");
    }
    found
}

fn report(path: &str, words: &[Word<'_>], found: &mut Vec<Finding>) {
    let plain: Vec<String> = words.iter().map(|word| without_marks(word.1)).collect();
    for (at, (line, _)) in words.iter().enumerate() {
        for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| is_at(&plain, at, phrase)) {
            let last = at + phrase.split(' ').count() - 1;
            // `records of its own keys` is plain; `keys of its own` is not.
            let next = words.get(last + 1).map_or("", |word| word.1);
            let ends_clause = next.is_empty() || words[last].1.ends_with(MARKS);
            let is_plain = phrase.ends_with(" own") && !ends_clause;
            let is_divided = words[at..last].iter().any(|word| word.1.ends_with(MARKS));
            if !is_plain && !is_divided && !is_allowed(&plain, at, phrase) {
                found.push(error(path, *line, format!("`{phrase}`; write {instead}")));
            }
        }
    }
}

/// The word in lower case, without punctuation; backticks are kept, because a name is not a word.
fn without_marks(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric() && c != '`').to_lowercase()
}

fn is_at(words: &[String], at: usize, phrase: &str) -> bool {
    let mut found = words[at..].iter();
    phrase.split(' ').all(|word| found.next().is_some_and(|found| found == word))
}

/// Whether the phrase at `at` is a part of a longer one that is correct.
fn is_allowed(words: &[String], at: usize, phrase: &str) -> bool {
    ALLOWED.iter().any(|allowed| {
        let before = allowed.find(phrase).map(|start| allowed[..start].split_whitespace().count());
        before.and_then(|before| at.checked_sub(before)).is_some_and(|start| is_at(words, start, allowed))
    })
}

/// The words of a Markdown page, without its code blocks.
fn words_of_page(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            words.extend(line.split_whitespace().map(|word| (index + 1, word)));
        }
    }
    words
}

/// The words of the comments and the string literals.
fn words_of_code(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut is_string = false;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if !is_string && let Some(comment) = line.trim_start().strip_prefix("//") {
            words.extend(comment.trim_start_matches(['/', '!']).split_whitespace().map(|word| (number, word)));
            continue;
        }
        let (mut start, mut previous, mut is_escaped) = (0, ' ', false);
        for (at, c) in line.char_indices() {
            let is_quote = c == '"' && !is_escaped && (is_string || previous != '\'');
            if is_quote && is_string {
                words.extend(line[start..at].split_whitespace().map(|word| (number, word)));
            }
            if is_quote {
                words.push((number, ""));
                is_string = !is_string;
                start = at + 1;
            }
            if !is_string && c == '/' && previous == '/' {
                words.extend(line[at + 1..].split_whitespace().map(|word| (number, word)));
                break;
            }
            is_escaped = is_string && c == '\\' && !is_escaped;
            previous = c;
        }
        if is_string {
            let rest = line[start..].trim_end_matches('\\');
            words.extend(rest.split_whitespace().map(|word| (number, word)));
        } else {
            words.push((number, ""));
        }
    }
    words
}
