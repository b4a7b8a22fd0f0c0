//! What a report looks like on a terminal.

use super::*;
use crate::sample;

fn shown() -> String {
    let mut out = String::new();
    write(&mut out, &sample::report()).expect("a text takes everything");
    out
}

#[test]
fn no_line_is_longer_than_a_terminal_is_wide() {
    for line in shown().lines() {
        assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn a_group_is_a_table_with_its_choice_below() {
    let shown = shown();
    let expected = "
Close-on-exec, set on an open descriptor [cloexec]
                        CPU    p10   wall  ratio  claim   n  err
* fcntl               126.0  125.0  138.6   1.00         31    0
  ioctl(FIOCLEX)      128.5  127.5  141.4   1.02   0.97  31    0
  close_range of one  cannot run here: Function not implemented (os error 38)
  used: fcntl (default); no other way is better by 3 %
  a note that goes on for long enough to need more than one of the lines that a
  terminal has
";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn what_has_two_sides_shows_both_and_who_was_busiest() {
    let shown = shown();
    let expected = "
Accepting connections with several workers, over loopback [listeners]
                          CPU    p10  per s   peer  most  ratio  claim   n   err
  shared, wakes all, 2  17700  12300  28.6k  23456  75 %   1.00         11  1000
  siblings, 2           17700  12300  33.3k  23456  51 %   0.86   0.68  11  1000
";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn what_is_missing_is_told_with_its_error() {
    let shown = shown();
    assert!(shown.contains("features       1 of 2 are there, tested in 0.21 ms\n"), "{shown}");
    assert!(shown.contains("missing: newfstatat(fd, NULL) (Bad address (os error 14))\n"), "{shown}");
}

#[test]
fn every_claim_is_answered_and_the_last_line_says_what_it_means() {
    let shown = shown();
    for number in ["  1. ", " 2a. ", " 2b. ", "  3. ", "  4. ", "  5. "] {
        assert!(shown.contains(&format!("\n{number}")), "{number} in {shown}");
    }
    assert!(shown.contains("\n     NOT MEASURABLE HERE: not measured in this run: --only udp-receive\n"), "{shown}");
    let (_, last) = shown.rsplit_once("\n\n").expect("paragraphs");
    assert!(last.starts_with("On this machine: ") && last.ends_with(".\n"), "{last}");
}

#[test]
fn words_are_wrapped_and_never_cut() {
    let mut out = String::new();
    write_wrapped(&mut out, "begin ", "  ", &["word"; 30].join(" ")).expect("a text takes everything");
    assert_eq!(out.matches("word").count(), 30);
    assert!(out.lines().skip(1).all(|line| line.starts_with("  word")), "{out}");
    let long = "x".repeat(100);
    let mut out = String::new();
    write_wrapped(&mut out, "", "  ", &long).expect("a text takes everything");
    assert_eq!(out, format!("{long}\n"));
}
