//! The report as a bar chart (SVG).

use crate::report::{Group, Report};
use crate::text::{nanoseconds, ratio_text};
use std::fmt::Write;

const WIDTH: u32 = 760;
const MARGIN: u32 = 20;
/// Where the bars begin, after the names.
const BAR_X: u32 = 240;
const BAR_WIDTH: f64 = 380.0;
const ROW_HEIGHT: u32 = 18;
const USED: &str = "#0b7285";
const OTHER: &str = "#b6c2c9";

/// The chart.
pub(crate) fn svg(report: &Report) -> String {
    let mut body = String::new();
    let mut y = MARGIN + 16;
    let machine = &report.machine;
    text(&mut body, MARGIN, y, "font-size=\"16\"", "Cost of each variant on this machine; dark: used by the server");
    y += ROW_HEIGHT;
    text(&mut body, MARGIN, y, "", &format!("Linux {}, {}", machine.kernel, machine.processor));
    for group in &report.groups {
        y = write_group(&mut body, y + 2 * ROW_HEIGHT, group);
    }
    let height = y + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// Writes a group with its title at `y`, and returns where it ends.
fn write_group(out: &mut String, y: u32, group: &Group) -> u32 {
    text(out, MARGIN, y, "font-weight=\"bold\"", &format!("{} (ns per {})", group.title, group.unit));
    let longest =
        (0..group.rows.len()).filter_map(|index| group.cost(index)).map(|cost| cost.median).fold(1.0, f64::max);
    let mut y = y;
    for (index, row) in group.rows.iter().enumerate() {
        y += ROW_HEIGHT;
        text(out, BAR_X - 8, y, "text-anchor=\"end\"", &row.name);
        let Some(cost) = group.cost(index) else {
            text(out, BAR_X, y, "font-style=\"italic\"", row.error.as_deref().unwrap_or_default());
            continue;
        };
        let (width, top) = ((cost.median / longest * BAR_WIDTH).max(1.0), y - 10);
        let fill = if row.used { USED } else { OTHER };
        let _ = writeln!(out, "<rect x=\"{BAR_X}\" y=\"{top}\" width=\"{width:.1}\" height=\"12\" fill=\"{fill}\"/>");
        let ratio = row.ratio.map(|ratio| format!(" ({})", ratio_text(ratio.median))).unwrap_or_default();
        text(out, BAR_X + width as u32 + 6, y, "", &format!("{}{ratio}", nanoseconds(cost.median)));
    }
    y
}

fn text(out: &mut String, x: u32, y: u32, attributes: &str, text: &str) {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" {attributes}>{escaped}</text>");
}
