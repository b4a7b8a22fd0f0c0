//! Turns the text of a Rust file into its code alone: comments and literals are blanked, lines stay where they are.

/// The code of a file, byte for byte at the places of the text.
///
/// This is no parser: it knows what a comment, a string and a character are, so that a rule that looks for a word or
/// a brace finds those of the code.
pub(super) struct Source {
    code: String,
}

impl Source {
    pub(super) fn of(text: &str) -> Source {
        let mut code = Vec::with_capacity(text.len());
        let mut rest = text;
        let mut before = ' ';
        while let Some(first) = rest.chars().next() {
            let literal_bytes = comment_bytes(rest).or_else(|| literal_bytes(rest, before));
            let taken = literal_bytes.unwrap_or(first.len_utf8());
            let (piece, behind) = rest.split_at(taken);
            match literal_bytes {
                Some(_) => code.extend(piece.bytes().map(|byte| if byte == b'\n' { b'\n' } else { b' ' })),
                None => code.extend_from_slice(piece.as_bytes()),
            }
            before = if literal_bytes.is_some() { ' ' } else { first };
            rest = behind;
        }
        Source { code: String::from_utf8(code).expect("whole characters are copied or blanked") }
    }

    /// The code without what stands in `mod … { … }` under an attribute such as `#[cfg(test)]`.
    pub(super) fn without_tests(&self) -> String {
        const ATTRIBUTE: &str = "#[cfg(";
        let mut code = self.code.clone();
        let mut from = 0;
        while let Some(found) = code[from..].find(ATTRIBUTE) {
            let start = from + found;
            let behind = start + code[start..].find(']').map_or(ATTRIBUTE.len(), |end| end + 1);
            from = behind;
            if is_for_tests(&code[start..behind])
                && let Some(open) = module_brace(&code, behind)
            {
                let end = closing_brace(&code, open);
                let blank = code[start..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' });
                let blank = blank.collect::<String>();
                code.replace_range(start..end, &blank);
            }
        }
        code
    }

    pub(super) fn code(&self) -> &str {
        &self.code
    }
}

/// Where `word` stands in `code` as a word of its own.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !code[..at].ends_with(is_word_character) && !code[at + word.len()..].starts_with(is_word_character)
    })
}

/// Whether a `#[cfg(…)]` asks for `test`, alone or with other conditions.
pub(super) fn is_for_tests(attribute: &str) -> bool {
    attribute.contains("cfg(") && words(attribute, "test").any(|at| !attribute[..at].ends_with("not("))
}

/// Letters, digits and `_`: what an identifier is made of.
pub(super) fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The line in which the byte `at` stands, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].bytes().filter(|&byte| byte == b'\n').count()
}

/// The end of the block whose brace stands at `open`: the place behind its closing brace, or the end of the code.
pub(super) fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// `item` without `pub`, `pub(crate)` and the like before it.
pub(super) fn strip_visibility(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else { return item };
    if let Some(restricted) = rest.strip_prefix('(') {
        return restricted.split_once(')').map_or(item, |(_, behind)| behind.trim_start());
    }
    if rest.starts_with(is_word_character) { item } else { rest.trim_start() }
}

/// Where the brace opens of the module that stands behind `at`; `None` when another item or `mod name;` does.
fn module_brace(code: &str, at: usize) -> Option<usize> {
    let item = code[at..].trim_start();
    let open = item.find('{')?;
    let head = strip_visibility(&item[..open]);
    (head.starts_with("mod ") && !head.contains(';')).then(|| code.len() - item.len() + open)
}

/// Bytes of the comment that `rest` starts with; block comments nest.
fn comment_bytes(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let bytes = rest.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    Some(rest.len())
}

/// Bytes of the string or character that `rest` starts with. `before` tells the `r` of `r"…"` from one that ends a name.
fn literal_bytes(rest: &str, before: char) -> Option<usize> {
    if rest.starts_with('\'') {
        return character_bytes(rest);
    }
    if rest.starts_with('"') {
        return Some(string_bytes(rest));
    }
    if is_word_character(before) {
        return None;
    }
    let prefix = rest.len() - rest.trim_start_matches(['b', 'c', 'r']).len();
    let body = &rest[prefix..];
    let hashes = body.len() - body.trim_start_matches('#').len();
    match (prefix, &body[hashes..]) {
        (1..=2, quoted) if quoted.starts_with('"') && rest[..prefix].ends_with('r') => {
            let end = format!("\"{}", &body[..hashes]);
            let length = quoted[1..].find(&end).map_or(quoted.len(), |at| 1 + at + end.len());
            Some(prefix + hashes + length)
        }
        (1, quoted) if hashes == 0 && quoted.starts_with('"') => Some(prefix + string_bytes(quoted)),
        _ => None,
    }
}

/// Bytes of the string whose opening quote starts `quoted`.
fn string_bytes(quoted: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in quoted.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    quoted.len()
}

/// Bytes of the character that `quoted` starts with; `None` for a lifetime.
fn character_bytes(quoted: &str) -> Option<usize> {
    let mut characters = quoted.char_indices().skip(1);
    let (_, first) = characters.next()?;
    if first != '\\' {
        let (at, second) = characters.next()?;
        return (second == '\'').then_some(at + 1);
    }
    // The escaped character may be a quote itself: the closing quote stands behind it.
    let (at, _) = characters.next()?;
    quoted[at + 1..].find('\'').map(|end| at + 1 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let source = Source::of(text);
        assert_eq!(source.code().len(), text.len(), "places move in {text:?}");
        assert_eq!(source.code().split_whitespace().collect::<Vec<_>>().join(" "), expected, "of {text:?}");
    }

    #[test]
    fn comments_are_no_code() {
        check("a // unsafe\nb", "a b");
        check("a /* unsafe /* nested */ still */ b", "a b");
        check("/// doc\nfn f() {} //", "fn f() {}");
        check("a /* never closed", "a");
    }

    #[test]
    fn strings_are_no_code() {
        check(r#"f("unsafe { \" }") g"#, "f( ) g");
        check(r##"f(r#"un"safe"#) g"##, "f( ) g");
        check(r#"f(b"unsafe", br"x\", c"y") g"#, "f( , , ) g");
        check("for \"a\" in bar\"b\"", "for in bar");
        check("\"// no comment\" a", "a");
        check("\"never closed", "");
    }

    #[test]
    fn characters_are_no_code_and_lifetimes_are() {
        check(r"f('{', '\'', '\\', b'}', '\u{7d}', 'ä')", "f( , , , b , , )");
        check("impl<'a> X<'a> for &'static str {}", "impl<'a> X<'a> for &'static str {}");
    }

    #[test]
    fn raw_names_are_code() {
        check("r#type + br + c", "r#type + br + c");
    }

    #[test]
    fn inline_tests_can_be_left_out() {
        let text = "mod a;\n#[cfg(test)]\nmod far;\n#[cfg(test)]\nmod tests {\n    mod deep {}\n}\nmod b;\n";
        let code = Source::of(text).without_tests();
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), "mod a; #[cfg(test)] mod far; mod b;");
        assert_eq!(line_of(&code, code.find("mod b").expect("stays")), 8);
        for (text, stays) in [
            ("#[cfg(all(test, not(loom)))]\nmod tests { q }", false),
            ("#[cfg(not(test))]\nmod real { q }", true),
            ("#[cfg(tested)]\nmod real { q }", true),
            ("#[cfg(test)]\nfn real() { q }", true),
        ] {
            assert_eq!(Source::of(text).without_tests().contains('q'), stays, "{text}");
        }
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(words("unsafe_code unsafe nounsafe unsafe{", "unsafe").collect::<Vec<_>>(), [12, 28]);
    }

    #[test]
    fn visibility_is_taken_off() {
        for item in ["mod a", "pub mod a", "pub(crate) mod a", "pub(in crate::x) mod a"] {
            assert_eq!(strip_visibility(item), "mod a");
        }
        assert_eq!(strip_visibility("public"), "public");
    }
}
