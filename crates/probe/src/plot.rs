//! Turns a report into a picture (SVG): the founding claims with their answers, and a bar for each candidate's cost.
//!
//! Written by hand: rectangles and lines of text need no crate for charts.

use super::report::{Answer, Group, Outcome, Report, Row, Verdict};
use std::fmt::{self, Write};

const WIDTH: u32 = 1180;
const MARGIN: u32 = 24;
const COLUMN_COUNT: u32 = 2;
const GAP: u32 = 28;
const COLUMN_WIDTH: u32 = (WIDTH - 2 * MARGIN - GAP) / COLUMN_COUNT;
/// The part of a column that names stand in.
const NAME_WIDTH: u32 = 186;
/// The part that values stand in, behind the bars.
const VALUE_WIDTH: u32 = 118;
const BAR_WIDTH: u32 = COLUMN_WIDTH - NAME_WIDTH - VALUE_WIDTH;
/// What a value takes of that at least.
const VALUE_CHARS_WIDTH: f64 = 84.0;
const ROW_HEIGHT: u32 = 20;
const BAR_HEIGHT: u32 = 13;
/// Between rows that are compared with different rows.
const PART_GAP: u32 = 8;
/// Above the rows of a group: its title.
const TITLE_HEIGHT: u32 = 30;
const ANSWER_HEIGHT: u32 = 44;
/// Characters of a finding that fit into its line.
const FINDING_CHARS_MAX: usize = 150;

const USED: &str = "#0b7285";
const OTHER: &str = "#b6c2c9";
const CLAIM: &str = "#e8590c";
const INK: &str = "#1f2a30";
const PALE_INK: &str = "#5c6b73";

/// The picture.
pub(crate) fn svg(report: &Report) -> String {
    let mut body = String::new();
    let height = write_body(&mut body, report).expect("a text takes everything");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// Writes everything, and returns how high it is.
fn write_body(out: &mut String, report: &Report) -> Result<u32, fmt::Error> {
    let mut y = MARGIN + 14;
    write_text(out, MARGIN, y, "font-size=\"20\" font-weight=\"600\"", "What each way costs on this machine")?;
    let machine = &report.machine;
    let about = format!(
        "sanderling probe · {} processors of {} · Linux {} · shorter is better",
        machine.processor_count, machine.processor, machine.kernel
    );
    y += 22;
    write_text(out, MARGIN, y, &format!("fill=\"{PALE_INK}\""), &about)?;
    y += 22;
    for answer in &report.answers {
        write_answer(out, y, answer)?;
        y += ANSWER_HEIGHT;
    }
    y += 8;
    write_legend(out, y)?;
    y += 14;
    let mut bottoms = [y; COLUMN_COUNT as usize];
    for group in &report.groups {
        let column = if bottoms[0] <= bottoms[1] { 0 } else { 1 };
        let x = MARGIN + column as u32 * (COLUMN_WIDTH + GAP);
        bottoms[column] = write_group(out, x, bottoms[column], group)?;
    }
    Ok(bottoms[0].max(bottoms[1]) + MARGIN)
}

fn write_answer(out: &mut String, y: u32, answer: &Answer) -> fmt::Result {
    let (fill, mark) = match answer.verdict {
        Verdict::Holds => ("#2b8a3e", "HOLDS"),
        Verdict::HoldsLess => ("#b08900", "HOLDS, BUT LESS"),
        Verdict::NoLongerHolds => ("#c92a2a", "NO LONGER HOLDS"),
        Verdict::NotMeasurable => ("#868e96", "NOT MEASURABLE"),
    };
    writeln!(out, "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"132\" height=\"22\" rx=\"4\" fill=\"{fill}\"/>")?;
    let style = "fill=\"#ffffff\" font-size=\"11\" font-weight=\"600\" text-anchor=\"middle\"";
    write_text(out, MARGIN + 66, y + 15, style, mark)?;
    let x = MARGIN + 146;
    write_text(out, x, y + 11, "font-weight=\"600\"", &format!("{}. {}", answer.idea, answer.claim))?;
    write_text(out, x, y + 28, &format!("fill=\"{PALE_INK}\""), &shortened(&answer.finding))
}

fn write_legend(out: &mut String, y: u32) -> fmt::Result {
    let baseline = y + 10;
    writeln!(out, "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"26\" height=\"{BAR_HEIGHT}\" fill=\"{USED}\"/>")?;
    write_text(out, MARGIN + 34, baseline, "", "used by the server")?;
    let x = MARGIN + 170;
    writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"26\" height=\"{BAR_HEIGHT}\" fill=\"{OTHER}\"/>")?;
    write_text(out, x + 34, baseline, "", "another way")?;
    write_claim(out, f64::from(MARGIN + 305), y)?;
    write_text(out, MARGIN + 318, baseline, "", "where the founding document put it")?;
    let x = MARGIN + 560;
    write_text(
        out,
        x,
        baseline,
        &format!("fill=\"{PALE_INK}\""),
        "numbers: time for one, and its ratio to the first bar of the part",
    )
}

/// Writes a group at this place, and returns where it ends.
fn write_group(out: &mut String, x: u32, y: u32, group: &Group) -> Result<u32, fmt::Error> {
    let mut y = y + TITLE_HEIGHT;
    write_text(out, x, y - 8, "font-size=\"13\" font-weight=\"600\"", &group.title)?;
    let cost = |row: &Row| group.cost(row).map(|cost| cost.median);
    let claimed = |row: &Row| Some(row.claimed_ratio? * cost(group.rows.get(row.baseline)?)?);
    let longest = group.rows.iter().flat_map(|row| [cost(row), claimed(row)]).flatten().fold(0.0, f64::max);
    let length = |ns: f64| if longest > 0.0 { ns / longest * f64::from(BAR_WIDTH) } else { 0.0 };
    let mut part = group.rows.first().map_or(0, |row| row.baseline);
    let bar_x = x + NAME_WIDTH;
    for row in &group.rows {
        // Rows go on being compared with the first one after others had a part of their own.
        if row.baseline > part {
            y += PART_GAP;
            part = row.baseline;
        }
        let weight = if row.is_used { "text-anchor=\"end\" font-weight=\"600\"" } else { "text-anchor=\"end\"" };
        write_text(out, bar_x - 8, y + 11, weight, &row.name)?;
        match (&row.outcome, cost(row)) {
            (Outcome::CannotRun(why), _) => {
                let why = format!("cannot run here: {why}");
                write_text(out, bar_x, y + 11, &format!("fill=\"{PALE_INK}\" font-style=\"italic\""), &why)?;
            }
            (Outcome::Measured(_), None) => {}
            (Outcome::Measured(_), Some(ns)) => {
                let fill = if row.is_used { USED } else { OTHER };
                let width = length(ns).max(1.0);
                writeln!(
                    out,
                    "<rect x=\"{bar_x}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{fill}\"/>"
                )?;
                // Behind the bar, or behind the mark where that is in the way.
                let mark = claimed(row).map(length).filter(|&mark| mark < width + VALUE_CHARS_WIDTH);
                let end = mark.map_or(width, |mark| width.max(mark + 5.0)) as u32;
                let ratio = group
                    .ratio(row)
                    .map(|ratio| format!(" · {:.*}", if ratio.median < 0.095 { 3 } else { 2 }, ratio.median))
                    .unwrap_or_default();
                write_text(out, bar_x + end + 6, y + 11, "font-size=\"11\"", &format!("{}{ratio}", time(ns)))?;
            }
        }
        if let Some(claimed) = claimed(row) {
            write_claim(out, f64::from(bar_x) + length(claimed), y)?;
        }
        y += ROW_HEIGHT;
    }
    Ok(y + 6)
}

/// An upright line with a point on it.
fn write_claim(out: &mut String, x: f64, y: u32) -> fmt::Result {
    let (top, bottom, middle) =
        (f64::from(y) - 3.0, f64::from(y + BAR_HEIGHT) + 3.0, f64::from(y) + f64::from(BAR_HEIGHT) / 2.0);
    writeln!(
        out,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"{CLAIM}\" stroke-width=\"2\"/>"
    )?;
    writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{middle}\" r=\"3.5\" fill=\"{CLAIM}\"/>")
}

fn write_text(out: &mut String, x: u32, y: u32, style: &str, text: &str) -> fmt::Result {
    writeln!(out, "<text x=\"{x}\" y=\"{y}\" {style}>{}</text>", escaped(text))
}

fn time(ns: f64) -> String {
    if ns < 1_000.0 { format!("{ns:.0} ns") } else { format!("{:.1} µs", ns / 1e3) }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= FINDING_CHARS_MAX {
        return text.to_owned();
    }
    let cut: String = text.chars().take(FINDING_CHARS_MAX).collect();
    let whole_words = cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words);
    format!("{whole_words} …")
}

/// XML 1.0, section 2.4: these stand for themselves nowhere; control characters stand nowhere at all.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            control if control.is_control() => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// Every element that is opened is closed, in order, and there is one root: enough of XML for what is written here.
    #[track_caller]
    fn check_well_formed(xml: &str) {
        let mut open: Vec<&str> = Vec::new();
        for (index, part) in xml.split('<').enumerate() {
            let Some((tag, text)) = part.split_once('>') else {
                assert!(index == 0 && part.is_empty(), "stray text {part:?}");
                continue;
            };
            let name = tag.split([' ', '/']).find(|word| !word.is_empty()).expect("a tag has a name");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{tag}");
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            assert!(!open.is_empty() || text.trim().is_empty(), "text behind the root: {text:?}");
            for reference in text.split('&').skip(1) {
                let name = reference.split(';').next().unwrap_or_default();
                assert!(matches!(name, "amp" | "lt" | "gt" | "quot"), "&{reference}");
            }
        }
        assert!(open.is_empty(), "not closed: {open:?}");
    }

    #[test]
    fn the_picture_is_well_formed_whatever_the_machine_is_called() {
        let svg = svg(&sample::report());
        check_well_formed(&svg);
        assert!(svg.contains("Processor &lt;of&gt; &quot;a&quot; &amp; long name"), "{svg}");
    }

    #[test]
    fn every_row_has_its_bar_and_every_claim_its_mark() {
        let report = sample::report();
        let svg = svg(&report);
        for row in report.groups.iter().flat_map(|group| &group.rows) {
            assert!(svg.contains(&format!(">{}</text>", escaped(&row.name))), "{}", row.name);
        }
        let claims = report.groups.iter().flat_map(|group| &group.rows).filter(|row| row.claimed_ratio.is_some());
        // And the one of the legend.
        assert_eq!(svg.matches("<circle").count(), claims.count() + 1);
        // The row in use, and the legend.
        assert_eq!(svg.matches(USED).count(), 2);
    }

    #[test]
    fn long_findings_end_at_a_word() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&["word"; 60].join(" "));
        assert!(long.ends_with("word …") && long.chars().count() <= FINDING_CHARS_MAX + 2, "{long}");
    }
}
