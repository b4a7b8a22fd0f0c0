//! `$INCLUDE`: origins, owners and TTLs across files, and limits.

use super::{apex, error_line, record_line};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};

/// Reads `files[0]` and the files that it includes. Returns a line for each entry; an error's line starts with the
/// file's name.
fn lines(files: &[(&str, &str)], limits: ParserLimits) -> Vec<String> {
    let text_of = |name: &str| files.iter().find(|(known, _)| *known == name).map(|(_, text)| text.as_bytes().to_vec());
    let (first, text) = files[0];
    let mut parser = Parser::new(first.into(), text.into(), apex(), limits);
    let mut lines = vec![];
    while let Some(entry) = parser.next() {
        match entry {
            Ok(Entry::Record(record)) => lines.push(record_line(&record)),
            Ok(Entry::Alias(alias)) => lines.push(format!("{} ALIAS {}", alias.owner, alias.target)),
            Ok(Entry::Include { path, position }) => match text_of(&path) {
                Some(text) => parser.include(path, text),
                None => lines.push(format!("{}:{}: no file {path}", position.line, position.column)),
            },
            Err(error) => {
                let file_name = &parser.file_names()[error.position.file_index as usize];
                lines.push(format!("{file_name}:{}", error_line(&error)));
            }
        }
    }
    lines
}

#[track_caller]
fn check(files: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(lines(files, ParserLimits::default()), expected, "{files:?}");
}

#[test]
fn origin_and_owner_are_restored_after_an_included_file() {
    check(
        &[("a", "$TTL 5\nx NS .\n$INCLUDE b sub\n NS .\n$INCLUDE b\ny NS ."), ("b", "$ORIGIN deep\n@ NS .\nz NS .")],
        &[
            "x.example. 5 NS .",
            "deep.sub.example. 5 NS .",
            "z.deep.sub.example. 5 NS .",
            "x.example. 5 NS .",
            "deep.example. 5 NS .",
            "z.deep.example. 5 NS .",
            "y.example. 5 NS .",
        ],
    );
}

#[test]
fn default_ttl_of_an_included_file_stays() {
    check(&[("a", "$TTL 5\n$INCLUDE b\nx NS ."), ("b", "$TTL 6\ny NS .")], &["y.example. 6 NS .", "x.example. 6 NS ."]);
}

#[test]
fn included_file_starts_without_an_owner() {
    let line = "b:1:2: error: the record has no owner, and there is no record before it; \
                start the line with an owner; @ is the origin";
    check(
        &[("a", "$TTL 5\nx NS .\n$INCLUDE b\n NS ."), ("b", " NS .")],
        &["x.example. 5 NS .", line, "x.example. 5 NS ."],
    );
}

#[test]
fn file_names_may_have_quotes_and_escapes() {
    check(
        &[("a", "$TTL 5\n$INCLUDE \"b c\"\n$INCLUDE b\\032c"), ("b c", "x NS .")],
        &["x.example. 5 NS .", "x.example. 5 NS ."],
    );
}

#[test]
fn parser_continues_without_an_included_file() {
    check(&[("a", "$TTL 5\n$INCLUDE  b\nx NS .")], &["2:11: no file b", "x.example. 5 NS ."]);
}

#[test]
fn errors_have_the_index_of_their_file() {
    let expected = [
        "b:2:6: error: the host \"..\" has an empty label; write one dot between two labels, and none before the first",
    ];
    check(&[("a", "$TTL 5\n$INCLUDE b"), ("b", "\nx NS ..")], &expected);
}

#[test]
fn depth_and_count_of_included_files_are_limited() {
    let limits = ParserLimits { include_depth_max: 2, ..ParserLimits::default() };
    let expected = "a:1:10: error: $INCLUDE is nested more than 2 deep; check for a file that includes itself";
    assert_eq!(lines(&[("a", "$INCLUDE a")], limits), [expected]);
    let limits = ParserLimits { include_count_max: 3, ..ParserLimits::default() };
    let expected = "a:4:10: error: the zone includes more than 3 files; check for files that include each other";
    let text = "$INCLUDE b\n$INCLUDE b\n$INCLUDE b\n$INCLUDE b\n";
    assert_eq!(lines(&[("a", text), ("b", "")], limits), [expected]);
    // Two includes in each of eight levels end too.
    assert!(!lines(&[("a", "$INCLUDE a\n$INCLUDE a")], ParserLimits::default()).is_empty());
}

#[test]
fn position_of_a_record_is_that_of_its_type() {
    let mut parser = Parser::new("a".into(), b"x 5\n (IN (\n NS) .)".to_vec(), apex(), ParserLimits::default());
    // The entry ends with its first line, before the type.
    assert!(matches!(parser.next(), Some(Err(_))));
    let mut parser = Parser::new("a".into(), b"x 5 (IN (\n NS) .)".to_vec(), apex(), ParserLimits::default());
    match parser.next() {
        Some(Ok(Entry::Record(record))) => assert_eq!(record.position, Position { file_index: 0, line: 2, column: 2 }),
        other => panic!("{other:?} is not a record"),
    }
}
