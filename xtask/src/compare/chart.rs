//! Numbers as pictures: bars for one workload beside another, lines for what grows.

use std::fmt::Write as _;

use super::spread::{Spread, digits};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 20.0;
const TOP: f64 = 44.0;
const HEIGHT_OF_LINES: f64 = 380.0;
const BOTTOM: f64 = 52.0;
const LEFT_OF_LINES: f64 = 64.0;
const RIGHT_OF_LINES: f64 = 120.0;
/// The first is the floor's, the second ours; told apart without seeing red from green (Okabe and Ito).
const COLOURS: [&str; 7] = ["#999999", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A group of bars: one workload.
pub(super) struct Group {
    pub(super) title: String,
    /// Names and values with their spread.
    pub(super) bars: Vec<(String, Spread)>,
}

/// Bars from zero, with a whisker from the least to the most; each group has its own scale, since a request for 1 MiB
/// is no measure for one of 512 B.
pub(super) fn bars(title: &str, groups: &[Group]) -> String {
    let mut body = String::new();
    let mut y = TOP;
    for group in groups {
        text(&mut body, 12.0, y + 14.0, "start", "bold", &group.title);
        y += ROW + 2.0;
        let most = group.bars.iter().map(|(_, spread)| spread.most).fold(f64::MIN_POSITIVE, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / most;
        for (index, (name, spread)) in group.bars.iter().enumerate() {
            let middle = y + ROW / 2.0;
            text(&mut body, LEFT - 8.0, middle + 4.0, "end", "normal", name);
            put(
                &mut body,
                &format!(
                    "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>\n",
                    y + 3.0,
                    spread.median * scale,
                    ROW - 6.0,
                    COLOURS[index % COLOURS.len()]
                ),
            );
            let (from, to) = (LEFT + spread.least * scale, LEFT + spread.most * scale);
            line(&mut body, (from, middle), (to, middle), "#000000");
            let value = format!("{:.*}", digits(spread.median), spread.median);
            text(&mut body, to + 6.0, middle + 4.0, "start", "normal", &value);
            y += ROW;
        }
        y += 10.0;
    }
    picture(title, y + 6.0, &body)
}

/// One server's values against what grows.
pub(super) struct Series {
    pub(super) name: String,
    /// In the order of what grows; the first numbers are positive.
    pub(super) points: Vec<(f64, Spread)>,
}

/// Lines over a logarithmic axis, with whiskers.
pub(super) fn lines(title: &str, axis: &str, unit: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let least = points().map(|(x, _)| x.log10()).fold(f64::INFINITY, f64::min);
    let most = points().map(|(x, _)| x.log10()).fold(f64::NEG_INFINITY, f64::max);
    let highest = points().map(|(_, spread)| spread.most).fold(f64::MIN_POSITIVE, f64::max);
    let (width, height) = (WIDTH - LEFT_OF_LINES - RIGHT_OF_LINES, HEIGHT_OF_LINES - TOP - BOTTOM);
    let x_of = |x: f64| LEFT_OF_LINES + (x.log10() - least) / (most - least).max(0.1) * width;
    let y_of = |y: f64| TOP + height - y / highest * height;

    let mut body = String::new();
    let base = TOP + height;
    line(&mut body, (LEFT_OF_LINES, base), (LEFT_OF_LINES + width, base), "#000000");
    line(&mut body, (LEFT_OF_LINES, TOP), (LEFT_OF_LINES, base), "#000000");
    let mut ticks: Vec<u64> = points().map(|(x, _)| *x as u64).collect();
    ticks.sort_unstable();
    ticks.dedup();
    for tick in ticks {
        text(&mut body, x_of(tick as f64), base + 18.0, "middle", "normal", &grouped(tick));
    }
    text(&mut body, LEFT_OF_LINES + width / 2.0, base + 40.0, "middle", "normal", axis);
    for quarter in 0..=4 {
        let value = highest * f64::from(quarter) / 4.0;
        let label = format!("{value:.*}", digits(highest));
        text(&mut body, LEFT_OF_LINES - 6.0, y_of(value) + 4.0, "end", "normal", &label);
    }
    text(&mut body, 12.0, TOP - 8.0, "start", "normal", unit);
    let mut ends = Vec::new();
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let path: Vec<String> =
            series.points.iter().map(|(x, spread)| format!("{:.1},{:.1}", x_of(*x), y_of(spread.median))).collect();
        put(
            &mut body,
            &format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
                path.join(" ")
            ),
        );
        for (x, spread) in &series.points {
            line(&mut body, (x_of(*x), y_of(spread.least)), (x_of(*x), y_of(spread.most)), colour);
        }
        if let Some((x, spread)) = series.points.last() {
            ends.push((y_of(spread.median), x_of(*x), colour, series.name.as_str()));
        }
    }
    label_ends(&mut body, ends);
    picture(title, HEIGHT_OF_LINES, &body)
}

/// Names at the right ends of their lines, moved apart where lines end close together.
fn label_ends(body: &mut String, mut ends: Vec<(f64, f64, &str, &str)>) {
    const APART: f64 = 15.0;
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut above = f64::NEG_INFINITY;
    for (y, x, colour, name) in ends {
        let y = y.max(above + APART);
        above = y;
        put(
            body,
            &format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\" font-weight=\"bold\">{}</text>\n",
                x + 8.0,
                y + 4.0,
                escaped(name)
            ),
        );
    }
}

fn picture(title: &str, height: f64, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{title}</text>\n{body}</svg>\n"
    )
}

fn text(body: &mut String, x: f64, y: f64, anchor: &str, weight: &str, words: &str) {
    let words = escaped(words);
    put(
        body,
        &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-weight=\"{weight}\">{words}</text>\n"),
    );
}

fn line(body: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    put(body, &format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>\n"));
}

fn put(body: &mut String, element: &str) {
    body.write_str(element).expect("a string takes whatever is written");
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `1000000` as `1,000,000`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Spread {
        Spread { median, least: median * 0.9, most: median * 1.1 }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([7, 1000, 10_000, 1_234_567].map(grouped), ["7", "1,000", "10,000", "1,234,567"]);
    }

    #[test]
    fn bars_have_a_place_each_and_names_are_escaped() {
        let bars_of = |names: [&str; 2]| names.map(|name| (name.to_owned(), spread(4.0))).to_vec();
        let groups = [Group { title: "512 B & more".into(), bars: bars_of(["floor", "<ours>"]) }];
        let svg = bars("Cost", &groups);
        assert_eq!(svg.matches("<rect x=").count(), 2);
        assert!(svg.contains("512 B &amp; more") && svg.contains("&lt;ours&gt;"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn lines_stay_inside_the_picture() {
        let points = |times: f64| [10.0, 1000.0].map(|x| (x, spread(times * x))).to_vec();
        let series = [
            Series { name: "floor".into(), points: points(1.0) },
            Series { name: "one point".into(), points: points(2.0)[..1].to_vec() },
        ];
        let svg = lines("Growth", "names", "µs", &series);
        for attribute in svg.split("points=\"").skip(1) {
            for point in attribute.split('"').next().unwrap().split(' ') {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT_OF_LINES).contains(&y), "{point}");
            }
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        lines("Nothing", "names", "µs", &[]);
    }
}
