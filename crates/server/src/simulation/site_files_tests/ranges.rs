//! Random sets of ranges of files in memory and on disk: what arrives are the bytes of the file.

use super::{Answer, browse};
use sanderling_site_rules::FileOptions;
use std::ops::Range;

const LENGTHS: [usize; 3] = [90, 9_000, 300_000];
const REQUESTS: usize = 900;

/// A range as a client writes it, and the bytes of a file of this length that it stands for. Its form is one of the
/// first ones.
fn random_range(random: &mut fastrand::Rng, length: usize, form_count: usize) -> (String, Range<usize>) {
    let start = random.usize(..length + length / 10);
    match random.usize(..form_count) {
        6 => (format!("{start}-"), start..length),
        7 => (format!("-{start}"), length.saturating_sub(start)..length),
        form => {
            let count = random.usize(1..[3, 3, 3, 100, 100, length][form]);
            (format!("{start}-{}", start + count - 1), start..(start + count).min(length))
        }
    }
}

/// The parts of a response with 206: where each begins, and its bytes.
fn parts(answer: &Answer) -> Vec<(usize, String)> {
    let start_in = |head: &str| {
        let (_, range) = head.split_once("Content-Range: bytes ").expect("a range");
        range.split('-').next().and_then(|start| start.parse().ok()).expect("a number")
    };
    let Some((_, boundary)) = answer.field("Content-Type").expect("a type").split_once("boundary=") else {
        return vec![(start_in(&answer.head), answer.text().to_owned())];
    };
    let delimiter = format!("\r\n--{boundary}");
    let parts = answer.text().strip_suffix(&format!("{delimiter}--\r\n")).expect("the last delimiter");
    let (before, parts) = parts.split_once(&delimiter).expect("a part");
    assert_eq!(before, "");
    let parts = parts.split(&delimiter).map(|part| part.split_once("\r\n\r\n").expect("an empty line"));
    parts.map(|(head, content)| (start_in(head), content.to_owned())).collect()
}

#[test]
fn every_set_of_ranges_is_answered_with_the_bytes_of_the_file() {
    let contents =
        LENGTHS.map(|length| (0..).flat_map(|index| format!("{index} ").into_bytes()).take(length).collect());
    let contents: [String; 3] = contents.map(|content| String::from_utf8(content).expect("ASCII"));
    let names = ["short.bin", "small.bin", "large.bin"];
    let files: Vec<(&str, &str)> = names.into_iter().zip(contents.iter().map(String::as_str)).collect();
    let mut random = fastrand::Rng::with_seed(sanderling_testkit::seed());
    let mut counts = [0; 4];
    browse(&files, FileOptions::default(), |browser| {
        for _ in 0..REQUESTS {
            let (name, content) = files[random.usize(..files.len())];
            let (count, form_count) = ([1, 4, 40][random.usize(..3)], [3, 5, 8][random.usize(..3)]);
            let ranges: Vec<_> = (0..count).map(|_| random_range(&mut random, content.len(), form_count)).collect();
            let list = ranges.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(",");
            let answer = browser.get(&format!("/{name}"), &format!("Range: bytes={list}\r\n"));
            let mut is_requested = vec![false; content.len()];
            ranges
                .iter()
                .filter(|(_, range)| !range.is_empty())
                .for_each(|(_, range)| is_requested[range.clone()].fill(true));
            let received = match answer.status() {
                "206" => parts(&answer),
                "200" => vec![(0, answer.text().to_owned())],
                status => {
                    assert_eq!((status, is_requested.contains(&true)), ("416", false), "{list}");
                    counts[0] += 1;
                    continue;
                }
            };
            assert!(answer.content.len() <= content.len(), "{list}: longer than the file");
            for (start, part) in &received {
                assert!(content[*start..].starts_with(part), "{list}: other bytes from {start} on");
                is_requested[*start..start + part.len()].fill(false);
            }
            assert!(!is_requested.contains(&true), "{list}: not all was sent");
            counts[if answer.status() == "200" { 1 } else { received.len().min(2) + 1 }] += 1;
        }
    });
    assert!(counts.iter().all(|count| *count > 0), "416, 200, one part, several: {counts:?}");
}
