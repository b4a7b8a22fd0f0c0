//! Files and functions stay short enough to be read at once.

use super::complaint::Complaint;
use super::source::{Source, closing_brace, line_of, words};
use super::tree::Tree;

/// Lines of a file above which it is time to split it.
const FILE_LINES_ADVISED: usize = 600;
/// Lines of a file above which it must be split.
const FILE_LINES_MAX: usize = 900;
/// Lines of a function above which it is time to split it.
const FUNCTION_LINES_ADVISED: usize = 70;
/// Lines of a function above which it must be split.
const FUNCTION_LINES_MAX: usize = 100;

pub(super) fn look(tree: &Tree, found: &mut Vec<Complaint>) {
    for file in tree.ending(".rs") {
        let count = file.text.lines().count();
        complain(&file.path, 0, "the file", count, FILE_LINES_ADVISED, FILE_LINES_MAX, found);
        // A list of cases is no worse for being long.
        if file.path.contains("/tests/") || file.path.ends_with("/tests.rs") {
            continue;
        }
        let code = Source::of(&file.text).without_tests();
        for function in functions(&code) {
            let name = format!("the function `{}`", function.name);
            let Function { line, line_count, .. } = function;
            complain(&file.path, line, &name, line_count, FUNCTION_LINES_ADVISED, FUNCTION_LINES_MAX, found);
        }
    }
}

fn complain(path: &str, line: usize, what: &str, count: usize, advised: usize, max: usize, found: &mut Vec<Complaint>) {
    if count > max {
        found.push(Complaint::error(path, line, format!("{what} has {count} lines, {max} is the limit; split it")));
    } else if count > advised {
        found.push(Complaint::warning(
            path,
            line,
            format!("{what} has {count} lines; above {advised}, think of a split"),
        ));
    }
}

/// A function with a body.
struct Function<'a> {
    name: &'a str,
    /// From 1.
    line: usize,
    line_count: usize,
}

fn functions(code: &str) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    for at in words(code, "fn") {
        let signature = code[at + "fn".len()..].trim_start();
        let Some(name_bytes) = signature.find(['(', '<']).filter(|&bytes| bytes > 0) else { continue };
        let name = &signature[..name_bytes];
        let from = code.len() - signature.len() + name_bytes;
        if let Some(open) = body_brace(code, from) {
            let line = line_of(code, at);
            let end = closing_brace(code, open);
            functions.push(Function { name, line, line_count: line_of(code, end - 1) - line + 1 });
        }
    }
    functions
}

/// Where the body opens of the function whose parameters stand at `from`; `None` when it has no body.
fn body_brace(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}
