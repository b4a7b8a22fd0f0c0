//! Draws the page. The page fits into 80 columns and 24 lines; a smaller terminal does not show its end.

use crate::quantities::{at_most, bytes, count, duration, rate, share};
use crate::view::{View, ZoneRow};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// Lines above the tables.
const SUMMARY_LINES: u16 = 8;
/// Lines of certificates.
const CERTIFICATE_LINES: u16 = 5;
/// Lines of servers of applications.
const BACKEND_LINES: u16 = 5;
/// Seconds before the end of a certificate from which it is a problem.
const SOON_S: f64 = 14.0 * 86_400.0;

/// The parts of the terminal around the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controls {
    pub(crate) is_paused: bool,
    pub(crate) has_colour: bool,
    /// The reason why the last fetch has failed.
    pub(crate) problem: Option<String>,
}

/// The lines that `view` needs without controls.
pub(crate) fn lines_of(view: &View) -> u16 {
    // The table headings, and the line above the tables.
    const MORE_LINES: usize = 2;
    let rows = view.sites.len().max(view.zones.len());
    let lines = usize::from(SUMMARY_LINES)
        + MORE_LINES
        + rows
        + usize::from(certificate_lines(view))
        + usize::from(backend_lines(view));
    u16::try_from(lines).unwrap_or(u16::MAX)
}

fn certificate_lines(view: &View) -> u16 {
    lines_with_heading(view.certificates.len(), CERTIFICATE_LINES)
}

fn backend_lines(view: &View) -> u16 {
    lines_with_heading(view.backend_servers.len(), BACKEND_LINES)
}

/// The lines of so many rows and their heading, at most `lines_max`; none without rows.
fn lines_with_heading(row_count: usize, lines_max: u16) -> u16 {
    match u16::try_from(row_count) {
        Ok(0) => 0,
        count => count.unwrap_or(u16::MAX).saturating_add(1).min(lines_max),
    }
}

/// Draws `view`; without `controls` as plain text.
pub(crate) fn draw(view: &View, controls: Option<&Controls>, frame: &mut Frame<'_>) {
    let styles = Styles { has_colour: controls.is_some_and(|controls| controls.has_colour) };
    let footer_lines = u16::from(controls.is_some());
    let areas = Layout::vertical([
        Constraint::Length(SUMMARY_LINES),
        Constraint::Min(0),
        Constraint::Length(backend_lines(view)),
        Constraint::Length(certificate_lines(view)),
        Constraint::Length(footer_lines),
    ]);
    let [summary, tables, backends, certificates, footer] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(summary_lines(view, styles)), summary);
    draw_tables(view, styles, tables, frame);
    frame.render_widget(Paragraph::new(backend_lines_of(view, styles)), backends);
    frame.render_widget(Paragraph::new(certificate_lines_of(view, styles)), certificates);
    if let Some(controls) = controls {
        frame.render_widget(Paragraph::new(footer_line(view, controls, styles)), footer);
    }
}

/// The styles of the page's parts. The text repeats the meaning of each colour.
#[derive(Clone, Copy, Debug)]
struct Styles {
    has_colour: bool,
}

impl Styles {
    fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn problem(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.has_colour { style.fg(Color::Red) } else { style }
    }

    fn problem_if(self, is_problem: bool) -> Style {
        if is_problem { self.problem() } else { Style::new() }
    }
}

fn line<'l>(name: &str, parts: Vec<Span<'l>>) -> Line<'l> {
    let mut spans = vec![Span::raw(format!("{name:<13}"))];
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            spans.push(Span::raw("  "));
        }
        spans.push(part);
    }
    Line::from(spans)
}

fn summary_lines(view: &View, styles: Styles) -> Vec<Line<'static>> {
    let [starting, serving, draining] = view.processes;
    let mut title = vec![
        Span::styled(format!("sanderling {}", view.version), styles.heading()),
        Span::raw(format!("  up {}", duration(view.uptime_s))),
        Span::raw(format!("  processes: {serving} serving")),
    ];
    for (number, state) in [(starting, "starting"), (draining, "draining")] {
        if number > 0.0 {
            title.push(Span::raw(format!(", {number} {state}")));
        }
    }
    let troubles = [
        (view.restarts, ["restart", "restarts"]),
        (view.failed_reloads, ["failed reload", "failed reloads"]),
        (view.panics, ["panic", "panics"]),
        (view.dropped_log_lines, ["log line dropped", "log lines dropped"]),
    ];
    let of_content = view.problems.iter().map(|(names, number)| (*number, names.each_ref().map(String::as_str)));
    let counted = of_content.chain(troubles).filter(|(number, _)| *number > 0.0);
    let counted = counted.map(|(number, [one, several])| {
        let name = if number == 1.0 { one } else { several };
        format!("{} {name}", count(number))
    });
    let stopped = view.stopped_processes.iter().map(|process| format!("the {process} does not run"));
    let troubles: Vec<Span<'_>> = stopped.chain(counted).map(|text| Span::styled(text, styles.problem())).collect();
    let troubles = if troubles.is_empty() { vec![Span::raw("none")] } else { troubles };
    vec![
        Line::from(title),
        line("problems", troubles),
        http_line(view, styles),
        time_line(view),
        dns_line(view, styles),
    ]
    .into_iter()
    .chain([connection_line(view), tls_line(view), limit_line(view, styles)])
    .collect()
}

fn http_line(view: &View, styles: Styles) -> Line<'static> {
    let mut parts = vec![Span::raw(format!("{}/s", rate(view.requests)))];
    if view.is_detailed {
        let [_, _, _, client_errors, server_errors] = view.by_class;
        let all: f64 = view.by_class.iter().sum();
        parts.push(Span::raw(format!("4xx {}", share(client_errors, all))));
        parts.push(Span::styled(format!("5xx {}", share(server_errors, all)), styles.problem_if(server_errors > 0.0)));
        parts.push(Span::raw(format!("content {}/s", bytes(view.content_bytes))));
    }
    line("requests", parts)
}

fn time_line(view: &View) -> Line<'static> {
    let text = |percentile: Option<f64>| percentile.map_or("-".to_owned(), at_most);
    let [half, p95, p99] = view.percentiles.map(text);
    let mut parts = Vec::new();
    if view.is_detailed {
        parts.push(Span::raw(format!("p50 {half}  p95 {p95}  p99 {p99}")));
        parts.push(Span::raw(format!("cache hits {}", share(view.cache_hits, view.cache_lookups))));
    }
    parts.push(Span::raw(format!("{} files, {}", count(view.cached_files), bytes(view.cached_bytes))));
    line(if view.is_detailed { "time" } else { "cache" }, parts)
}

fn dns_line(view: &View, styles: Styles) -> Line<'static> {
    let mut parts = vec![Span::raw(format!("{}/s", rate(view.queries)))];
    if view.is_detailed {
        let [udp, tcp, dot, doh] = view.by_transport.map(rate);
        parts.push(Span::raw(format!("udp {udp} tcp {tcp} dot {dot} doh {doh}")));
        parts.push(Span::raw(format!("NXDOMAIN {}", share(view.name_errors, view.replies))));
        let text = format!("SERVFAIL {}", share(view.server_failures, view.replies));
        parts.push(Span::styled(text, styles.problem_if(view.server_failures > 0.0)));
    }
    if view.dropped_messages > 0.0 {
        parts.push(Span::raw(format!("dropped {}/s", rate(view.dropped_messages))));
    }
    line("queries", parts)
}

fn connection_line(view: &View) -> Line<'static> {
    let mut parts = vec![Span::raw(format!("{} HTTP", count(view.http_connections)))];
    if view.is_detailed {
        let [handshaking, receiving, idle, active] = view.by_state.map(count);
        parts.push(Span::raw(format!(
            "({active} active, {idle} idle, {receiving} receiving, {handshaking} handshaking)"
        )));
    }
    parts.push(Span::raw(format!("{} DNS", count(view.dns_connections))));
    line("connections", parts)
}

fn tls_line(view: &View) -> Line<'static> {
    let text = format!(
        "{}/s handshakes, {} resumed, {}/s failed",
        rate(view.handshakes),
        share(view.resumed, view.handshakes),
        rate(view.failed_handshakes)
    );
    let open = view.is_detailed.then(|| Span::raw(format!("{} connections", count(view.encrypted_connections))));
    line("TLS", open.into_iter().chain([Span::raw(text)]).collect())
}

fn limit_line(view: &View, styles: Styles) -> Line<'static> {
    let limit = |(name, number): &(String, f64)| Span::styled(format!("{name} {}/s", rate(*number)), styles.problem());
    let parts: Vec<Span<'_>> = view.limits.iter().map(limit).collect();
    line("limits", if parts.is_empty() { vec![Span::raw("none reached")] } else { parts })
}

fn draw_tables(view: &View, styles: Styles, area: Rect, frame: &mut Frame<'_>) {
    let [gap, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    if !view.is_detailed {
        let hint = "For sites, zones and times add [metrics] to the configuration, and reload.";
        frame.render_widget(Paragraph::new(hint), gap);
    }
    let [left, _, right] =
        Layout::horizontal([Constraint::Fill(3), Constraint::Length(2), Constraint::Fill(2)]).areas(area);
    if !view.sites.is_empty() {
        let rows = view.sites.iter().map(|site| {
            let errors = Cell::from(Line::from(rate(site.errors)).right_aligned());
            Row::new([
                Cell::from(site.name.clone()),
                right_aligned(rate(site.requests)),
                errors.style(styles.problem_if(site.errors > 0.0)),
                right_aligned(bytes(site.bytes)),
            ])
        });
        let widths = [Constraint::Fill(1), Constraint::Length(6), Constraint::Length(8), Constraint::Length(9)];
        let heading = ["SITE", "REQ/S", "ERRORS/S", "BYTES/S"];
        frame.render_widget(table(rows.collect(), &widths, heading, styles), left);
    }
    if !view.zones.is_empty() {
        let rows = view.zones.iter().map(|zone| {
            let ZoneRow { name, queries, serial, has_failed } = zone;
            let serial = serial.map_or(String::new(), |serial| format!("{serial}"));
            let serial = if *has_failed { format!("{serial}!") } else { serial };
            Row::new([
                Cell::from(name.clone()),
                right_aligned(rate(*queries)),
                right_aligned(serial).style(styles.problem_if(*has_failed)),
            ])
        });
        let widths = [Constraint::Fill(1), Constraint::Length(6), Constraint::Length(11)];
        frame.render_widget(table(rows.collect(), &widths, ["ZONE", "QRY/S", "SERIAL"], styles), right);
    }
}

fn right_aligned(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn table<'t, const N: usize>(
    rows: Vec<Row<'t>>,
    widths: &[Constraint; N],
    heading: [&'static str; N],
    styles: Styles,
) -> Table<'t> {
    let cells = heading.iter().enumerate().map(|(index, text)| match index {
        0 => Cell::from(*text),
        _ => right_aligned((*text).to_owned()),
    });
    Table::new(rows, *widths).header(Row::new(cells.collect::<Vec<_>>()).style(styles.heading())).column_spacing(1)
}

fn backend_lines_of(view: &View, styles: Styles) -> Vec<Line<'static>> {
    let heading =
        format!("{:<34} {:>6} {:>8} {:>11} {:>9}", "BACKEND SERVER", "REQ/S", "ERRORS/S", "CONNECTIONS", "TIME");
    let mut lines = vec![Line::styled(heading, styles.heading())];
    for server in &view.backend_servers {
        let mean = server.mean_s.map_or("-".to_owned(), |mean_s| format!("{:.1} ms", mean_s * 1_000.0));
        let numbers = format!(
            "{:<34} {:>6} {:>8} {:>11} {mean:>9}",
            server.address,
            rate(server.requests),
            rate(server.errors),
            count(server.connections)
        );
        let down = if server.is_down { "  DOWN" } else { "" };
        lines.push(Line::from(vec![Span::raw(numbers), Span::styled(down, styles.problem())]));
    }
    lines
}

fn certificate_lines_of(view: &View, styles: Styles) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("CERTIFICATES", styles.heading())];
    for certificate in &view.certificates {
        let left = match certificate.left_s {
            over if over <= 0.0 => "EXPIRED".to_owned(),
            left => format!("expires in {}", duration(left)),
        };
        let failed = if certificate.has_failed { "; its files have errors" } else { "" };
        let is_problem = certificate.has_failed || certificate.left_s < SOON_S;
        lines.push(Line::from(vec![
            Span::raw(format!("{:<40} ", certificate.domain)),
            Span::styled(format!("{left}{failed}"), styles.problem_if(is_problem)),
        ]));
    }
    lines
}

fn footer_line(view: &View, controls: &Controls, styles: Styles) -> Line<'static> {
    if let Some(problem) = &controls.problem {
        return Line::styled(problem.lines().next().unwrap_or_default().to_owned(), styles.problem());
    }
    let sort = view.sort.map_or("", |sort| sort.name());
    let paused = if controls.is_paused { "  PAUSED" } else { "" };
    Line::styled(
        format!("q quit  p pause  s sort by: {sort}{paused}"),
        if controls.is_paused { styles.heading() } else { Style::new() },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain_text;
    use crate::view::tests::view;
    use crate::view::{CertificateRow, SiteRow, Sort, state_names};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn full() -> View {
        let site = |name: &str, requests: f64| SiteRow { name: name.to_owned(), requests, errors: 0.5, bytes: 1e6 };
        let zone = |name: &str, has_failed| ZoneRow {
            name: name.to_owned(),
            queries: 12_345.0,
            serial: Some(7.0),
            has_failed,
        };
        View {
            sort: Some(Sort::Rate),
            version: "0.1.0".to_owned(),
            uptime_s: 3_725.0,
            processes: [0.0, 1.0, 2.0],
            restarts: 1.0,
            is_detailed: true,
            requests: 1_234.0,
            by_class: [0.0, 990.0, 0.0, 8.0, 2.0],
            content_bytes: 12e6,
            percentiles: [Some(0.001), Some(0.016), None],
            cache_hits: 99.0,
            cache_lookups: 100.0,
            cached_files: 120.0,
            cached_bytes: 5e6,
            queries: 45_678.0,
            by_transport: [45_000.0, 600.0, 50.0, 28.0],
            replies: 100.0,
            name_errors: 12.0,
            http_connections: 120.0,
            dns_connections: 3.0,
            encrypted_connections: 100.0,
            by_state: [1.0, 3.0, 100.0, 16.0],
            handshakes: 12.0,
            resumed: 6.0,
            limits: vec![("http_connections_max: delayed".to_owned(), 3.0)],
            sites: vec![site("example.com", 1_000.0), site("a-name-that-is-longer-than-its-column.example.org", 0.0)],
            zones: vec![zone("example.com", false), zone("example.net", true)],
            certificates: vec![
                CertificateRow { domain: "example.com".to_owned(), left_s: 86_400.0, has_failed: false },
                CertificateRow { domain: "old.example".to_owned(), left_s: -5.0, has_failed: true },
            ],
            problems: [("unavailable", 0.0), ("kept", 1.0), ("bogus", 2.0)]
                .map(|(state, number)| (state_names("zone", state), number))
                .to_vec(),
            stopped_processes: vec!["agent".to_owned()],
            ..View::default()
        }
    }

    #[test]
    fn page_fits_into_80_columns_and_24_lines() {
        let expected = "\
sanderling 0.1.0  up 1 h 2 min  processes: 1 serving, 2 draining
problems     the agent does not run  1 zone kept  2 zones bogus  1 restart
requests     1.2k/s  4xx 0.8%  5xx 0.2%  content 11 MiB/s
time         p50 <1 ms  p95 16 ms  p99 -  cache hits 99.0%  120 files, 4.8 MiB
queries      46k/s  udp 45k tcp 600 dot 50 doh 28  NXDOMAIN 12.0%  SERVFAIL 0.0%
connections  120 HTTP  (16 active, 100 idle, 3 receiving, 1 handshaking)  3 DNS
TLS          100 connections  12/s handshakes, 50.0% resumed, 0/s failed
limits       http_connections_max: delayed 3.0/s

SITE                   REQ/S ERRORS/S   BYTES/S  ZONE          QRY/S      SERIAL
example.com             1.0k      0.5   977 KiB  example.com     12k           7
a-name-that-is-longer      0      0.5   977 KiB  example.net     12k          7!









CERTIFICATES
example.com                              expires in 1 d 0 h
old.example                              EXPIRED; its files have errors
";
        let found = plain_text(&full(), 80, 24);
        assert_eq!(found, expected, "\n{found}");
    }

    #[test]
    fn plain_page_is_as_long_as_its_content() {
        let expected = plain_text(&full(), 80, 24).lines().filter(|line| !line.is_empty()).count();
        let found = plain_text(&full(), 80, lines_of(&full()));
        // An empty line is above the tables.
        assert_eq!(found.lines().count(), expected + 1, "{found}");
    }

    #[test]
    fn any_size_is_drawn() {
        for columns in [1, 7, 40, 79, 300] {
            for lines in [1, 2, 9, 15, 100] {
                plain_text(&full(), columns, lines);
                plain_text(&View::default(), columns, lines);
            }
        }
    }

    #[test]
    fn server_without_detailed_metrics_is_shown_with_a_hint() {
        let found = plain_text(&view("", "sanderling_http_requests_total 5\n", Sort::Rate), 80, 24);
        assert!(found.contains("requests     5.0/s\n"), "{found}");
        assert!(found.contains("add [metrics] to the configuration"), "{found}");
        assert!(!found.contains("SITE"), "{found}");
    }

    #[test]
    fn colours_are_used_only_if_they_are_wanted() {
        let colours = |has_colour: bool| {
            let controls = Controls { has_colour, ..Controls::default() };
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("memory");
            terminal.draw(|frame| draw(&full(), Some(&controls), frame)).expect("memory");
            let cells = terminal.backend().buffer().content().iter();
            cells.filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
        };
        assert!(colours(true) > 0);
        assert_eq!(colours(false), 0);
    }

    #[test]
    fn last_line_has_the_keys_or_the_problem() {
        let last = |controls: &Controls| {
            let mut terminal = Terminal::new(TestBackend::new(60, 24)).expect("memory");
            terminal.draw(|frame| draw(&full(), Some(controls), frame)).expect("memory");
            let buffer = terminal.backend().buffer();
            (0..60).map(|column| buffer[(column, 23)].symbol()).collect::<String>().trim_end().to_owned()
        };
        assert_eq!(last(&Controls::default()), "q quit  p pause  s sort by: rate");
        assert_eq!(
            last(&Controls { is_paused: true, ..Controls::default() }),
            "q quit  p pause  s sort by: rate  PAUSED"
        );
        let problem = Some("no server answers\nmore".to_owned());
        assert_eq!(last(&Controls { problem, ..Controls::default() }), "no server answers");
    }
}
