//! Parses the server's metrics, in the text format of OpenMetrics.

use std::collections::HashMap;
use std::time::Instant;

/// The samples of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) taken_at: Instant,
    by_name: HashMap<String, Vec<Sample>>,
}

/// A sample of a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl Sample {
    /// The value of a label; empty if there is none.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }
}

impl Samples {
    /// The samples in `text`. Lines that are none are skipped.
    pub(crate) fn parse(text: &str, taken_at: Instant) -> Samples {
        let mut by_name: HashMap<String, Vec<Sample>> = HashMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, sample)) = parse_line(line) {
                by_name.entry(name.to_owned()).or_default().push(sample);
            }
        }
        Samples { taken_at, by_name }
    }

    /// The samples with this name.
    pub(crate) fn all(&self, name: &str) -> &[Sample] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The value of the sample with these labels; `None` if there is none.
    pub(crate) fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has_all = |sample: &&Sample| labels.iter().all(|(label, value)| sample.label(label) == *value);
        self.all(name).iter().find(has_all).map(|sample| sample.value)
    }

    /// The sum of the samples with these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has_all = |sample: &&Sample| labels.iter().all(|(label, value)| sample.label(label) == *value);
        self.all(name).iter().filter(has_all).map(|sample| sample.value).sum()
    }
}

/// `name{label="value"} 1`.
fn parse_line(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while let Some((label, after)) = rest.split_once("=\"") {
            let (value, after) = parse_value(after)?;
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = after;
                    break;
                }
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some((name, Sample { labels, value }))
}

/// A value of a label up to its quotation mark, and the rest.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (index, '"') => return Some((value, &text[index + 1..])),
            (_, '\\') => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let text = "# HELP a text {x=\"y\"} 1\na 1\nb{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 2.5\nb{x=\"2\",y=\"\"} 3\n# EOF\n";
        let samples = Samples::parse(text, Instant::now());
        assert_eq!(samples.find("a", &[]), Some(1.0));
        assert_eq!(samples.find("b", &[("y", "a\"b\\c\nd")]), Some(2.5));
        assert_eq!(samples.find("b", &[("x", "3")]), None);
        assert_eq!(samples.find("c", &[]), None);
        assert_eq!(samples.sum("b", &[]), 5.5);
        assert_eq!(samples.sum("b", &[("x", "2")]), 3.0);
    }

    #[test]
    fn lines_that_are_no_samples_are_skipped() {
        let text = "a\na{x=\"1\na{x=\"1\"\na{x=\"1\"} z\n{ 1\n\na{x=\"\\";
        assert_eq!(Samples::parse(text, Instant::now()).all("a"), []);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_skipped(text in "[a-c{}=\",\\\\ \n0-9.+#-]{0,80}") {
            Samples::parse(&text, Instant::now());
        }

        #[test]
        fn label_values_are_read_as_they_were_escaped(value in "[a-z\"\\\\\n{},= \u{e4}]{0,20}", number in 0_u32..) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let text = format!("a{{x=\"{escaped}\",y=\"1\"}} {number}\n");
            let samples = Samples::parse(&text, Instant::now());
            prop_assert_eq!(samples.find("a", &[("x", &value), ("y", "1")]), Some(f64::from(number)));
        }
    }
}
