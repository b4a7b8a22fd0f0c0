//! Writes metrics as text, in the OpenMetrics 1.0 format or the older Prometheus 0.0.4 format.

use super::families::{Family, Kind};
use std::fmt::{Display, Write};

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The older format of Prometheus.
    Prometheus,
}

impl TextFormat {
    /// The media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TextFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The format for a client with these values of Accept: OpenMetrics, unless only the Prometheus format is listed.
    pub(crate) fn of_accept(values: &[u8]) -> TextFormat {
        let lists = |media_type: &[u8]| {
            values.split(|byte| *byte == b',').any(|range| {
                let name = range.split(|byte| *byte == b';').next().unwrap_or_default();
                name.trim_ascii().eq_ignore_ascii_case(media_type)
            })
        };
        match lists(b"text/plain") && !lists(b"application/openmetrics-text") {
            true => TextFormat::Prometheus,
            false => TextFormat::OpenMetrics,
        }
    }
}

/// The text of metrics, family after family.
pub(crate) struct MetricsWriter {
    format: TextFormat,
    out: String,
    /// The families that have begun.
    #[cfg(debug_assertions)]
    begun: Vec<&'static str>,
}

/// The samples of one family.
pub(crate) struct Samples<'w> {
    family: &'static Family,
    writer: &'w mut MetricsWriter,
}

/// A number of milliseconds, written as seconds.
pub(crate) struct Seconds(pub(crate) u64);

impl Display for Seconds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

impl MetricsWriter {
    pub(crate) fn new(format: TextFormat) -> MetricsWriter {
        MetricsWriter {
            format,
            out: String::with_capacity(16 * 1024),
            #[cfg(debug_assertions)]
            begun: Vec::new(),
        }
    }

    /// Begins the family with this name, which has a row in the table.
    ///
    /// # Panics
    /// Panics if the text has no such family.
    pub(crate) fn family(&mut self, name: &str) -> Samples<'_> {
        let family = Family::named(name).unwrap_or_else(|| panic!("{name} has no row in the table of families"));
        #[cfg(debug_assertions)]
        {
            // OpenMetrics 1.0: the samples of a family follow each other.
            assert!(!self.begun.contains(&family.name), "{name} begins twice");
            self.begun.push(family.name);
        }
        let Family { name, kind, unit, help, .. } = family;
        let (name, kind) = match self.format {
            TextFormat::OpenMetrics => ((*name).to_owned(), kind.name()),
            TextFormat::Prometheus => match kind {
                Kind::Counter => (format!("{name}_total"), "counter"),
                Kind::Info => (format!("{name}_info"), "gauge"),
                Kind::Gauge | Kind::Histogram => ((*name).to_owned(), kind.name()),
            },
        };
        self.line(format_args!("# TYPE {name} {kind}"));
        if let (TextFormat::OpenMetrics, false) = (self.format, unit.is_empty()) {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
        self.line(format_args!("# HELP {name} {help}"));
        Samples { family, writer: self }
    }

    /// The text with its end.
    pub(crate) fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
        self.out.push('\n');
    }
}

impl Samples<'_> {
    /// The sample of the labels with these values, in the order of the table.
    pub(crate) fn sample(&mut self, labels: &[&str], value: impl Display) -> &mut Self {
        let suffix = match self.family.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge => "",
            Kind::Histogram => unreachable!("a histogram has other samples"),
        };
        self.put(suffix, labels, None, value);
        self
    }

    /// The samples of a histogram: the counts up to each of `bounds`, which are written as they are, and the count
    /// above all; and the sum.
    pub(crate) fn histogram(
        &mut self,
        labels: &[&str],
        bounds: &[impl Display],
        count_of: impl Fn(usize) -> u64,
        sum: impl Display,
    ) {
        let mut count = 0;
        for (index, bound) in bounds.iter().enumerate() {
            count += count_of(index);
            self.put("_bucket", labels, Some(&bound.to_string()), count);
        }
        count += count_of(bounds.len());
        self.put("_bucket", labels, Some("+Inf"), count);
        self.put("_count", labels, None, count);
        self.put("_sum", labels, None, sum);
    }

    fn put(&mut self, suffix: &str, values: &[&str], bound: Option<&str>, value: impl Display) {
        let Family { name, labels, .. } = self.family;
        assert_eq!(labels.len(), values.len(), "{name} has other labels");
        let out = &mut self.writer.out;
        let _ = write!(out, "{name}{suffix}");
        let pairs = labels.iter().copied().zip(values.iter().copied()).chain(bound.map(|bound| ("le", bound)));
        let mut separator = '{';
        for (label, value) in pairs {
            let _ = write!(out, "{separator}{label}=\"");
            put_escaped(value, out);
            out.push('"');
            separator = ',';
        }
        if separator == ',' {
            out.push('}');
        }
        let _ = writeln!(out, " {value}");
    }
}

/// The value of a label, escaped.
fn put_escaped(value: &str, out: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_selects_the_format() {
        let check = |values: &str, expected: TextFormat| {
            assert_eq!(TextFormat::of_accept(values.as_bytes()), expected, "{values}");
        };
        // Prometheus 2 and 3.
        check(
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            TextFormat::OpenMetrics,
        );
        check("text/plain; version=0.0.4", TextFormat::Prometheus);
        check("text/html, Text/Plain;q=0.5, */*", TextFormat::Prometheus);
        check("*/*", TextFormat::OpenMetrics);
        check("", TextFormat::OpenMetrics);
        check("text/plainer", TextFormat::OpenMetrics);
    }

    #[test]
    fn each_kind_of_family_has_its_form() {
        let write = |format| {
            let mut writer = MetricsWriter::new(format);
            writer.family("sanderling_build").sample(&["a\"b\\c\nd"], 1);
            writer.family("sanderling_restarts").sample(&[], 7);
            writer.family("process_start_time_seconds").sample(&[], 1_700_000_000);
            let counts = [2, 0, 1];
            let mut samples = writer.family("sanderling_http_response_duration_seconds");
            samples.histogram(&["2"], &["0.5", "1.0"], |index| counts[index], Seconds(3_021));
            writer.finish()
        };
        let open_metrics = "# TYPE sanderling_build info
# HELP sanderling_build HELP
sanderling_build_info{version=\"a\\\"b\\\\c\\nd\"} 1
# TYPE sanderling_restarts counter
# HELP sanderling_restarts HELP
sanderling_restarts_total 7
# TYPE process_start_time_seconds gauge
# UNIT process_start_time_seconds seconds
# HELP process_start_time_seconds HELP
process_start_time_seconds 1700000000
# TYPE sanderling_http_response_duration_seconds histogram
# UNIT sanderling_http_response_duration_seconds seconds
# HELP sanderling_http_response_duration_seconds HELP
sanderling_http_response_duration_seconds_bucket{version=\"2\",le=\"0.5\"} 2
sanderling_http_response_duration_seconds_bucket{version=\"2\",le=\"1.0\"} 2
sanderling_http_response_duration_seconds_bucket{version=\"2\",le=\"+Inf\"} 3
sanderling_http_response_duration_seconds_count{version=\"2\"} 3
sanderling_http_response_duration_seconds_sum{version=\"2\"} 3.021
# EOF
";
        let without_help = |text: &str| {
            let line = |line: &str| match line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
                Some((name, _)) => format!("# HELP {name} HELP\n"),
                None => format!("{line}\n"),
            };
            text.lines().map(line).collect::<String>()
        };
        assert_eq!(without_help(&write(TextFormat::OpenMetrics)), open_metrics);
        let prometheus = open_metrics
            .replace("# TYPE sanderling_build info", "# TYPE sanderling_build_info gauge")
            .replace("# HELP sanderling_build ", "# HELP sanderling_build_info ")
            .replace("# TYPE sanderling_restarts ", "# TYPE sanderling_restarts_total ")
            .replace("# HELP sanderling_restarts ", "# HELP sanderling_restarts_total ")
            .replace("# UNIT process_start_time_seconds seconds\n", "")
            .replace("# UNIT sanderling_http_response_duration_seconds seconds\n", "")
            .replace("# EOF\n", "");
        assert_eq!(without_help(&write(TextFormat::Prometheus)), prometheus);
    }
}
