//! The bounds that an operator may move: one table of keys, defaults and ranges, which reading and docs follow.

/// One row of the table.
pub(super) struct Limit {
    /// The key in `[limits]`.
    pub(super) key: &'static str,
    /// The value if the key isn't there.
    pub(super) default: u64,
    /// The smallest value that is taken.
    pub(super) min: u64,
    /// The largest value that is taken.
    pub(super) max: u64,
    /// What is bounded and what happens at the bound, as one sentence.
    meaning: &'static str,
    put: fn(&mut Limits, u64),
}

impl Limit {
    /// Puts `value` into its field of `limits`; the caller has checked the range.
    pub(super) fn put(&self, limits: &mut Limits, value: u64) {
        debug_assert!((self.min..=self.max).contains(&value), "{}: {value} is outside the limit's range", self.key);
        (self.put)(limits, value);
    }

    /// The row of a configuration file that changes nothing: `drain_timeout_ms = 30000`.
    fn assignment(&self) -> String {
        format!("{} = {}", self.key, self.default)
    }
}

/// Makes the table and the struct from the same lines, so that neither can have a row that the other lacks.
macro_rules! limits {
    ($($key:ident: $type:ty = $default:literal in $min:literal ..= $max:literal, $meaning:literal;)*) => {
        /// The value of every limit. Units stand in the names; docs/configuration.md has the ranges.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits {
            $(#[doc = $meaning] pub $key: $type,)*
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($key: $default,)* }
            }
        }

        /// Every limit, in the order of the docs.
        pub(super) const LIMITS: &[Limit] = &[
            $(Limit {
                key: stringify!($key),
                default: $default,
                min: $min,
                max: $max,
                meaning: $meaning,
                // No range reaches beyond its field's type: a test tries both ends of each.
                put: |limits, value| limits.$key = value as $type,
            },)*
        ];
    };
}

limits! {
    http_connections_max: usize = 10_000 in 1..=1_000_000,
        "HTTP connections open at once; more wait in the listener's queue until one closes.";
    http_requests_per_connection_max: u64 = 10_000 in 1..=1_000_000_000,
        "Requests answered on one connection before it is closed, so that no peer stays for ever.";
    http_head_bytes_max: usize = 16_384 in 1_024..=1_048_576,
        "A request's head: request line and fields together; a longer one is answered 431.";
    http_field_count_max: usize = 100 in 8..=1_000,
        "Fields in a request's head; more are answered 431.";
    http_target_bytes_max: usize = 8_192 in 256..=524_288,
        "The target of a request line; a longer one is answered 414.";
    http_request_content_bytes_max: u64 = 65_536 in 0..=1_073_741_824,
        "Content that a request may bring, which is read and dropped; more is answered 413.";
    http_header_deadline_ms: u64 = 10_000 in 100..=600_000,
        "From the first octet of a head, or from accept, to the last one; then the connection is closed.";
    http_idle_timeout_ms: u64 = 60_000 in 100..=3_600_000,
        "Between two requests of a connection; then it is closed.";
    http_send_timeout_ms: u64 = 30_000 in 100..=3_600_000,
        "While the peer takes no octet of a response; then the connection is closed.";
    open_files_max: usize = 32_768 in 1..=262_144,
        "Files kept open, or in memory, to be served again; beyond, those unused for longest go.";
    open_file_descriptors_max: usize = 4_096 in 1..=262_144,
        "Descriptors of files that may be served again, beside those being sent; beyond, some are closed.";
    open_file_content_bytes_max: u64 = 67_108_864 in 0..=1_099_511_627_776,
        "Content of small files that is kept in memory; beyond, those unused for longest are dropped.";
    small_file_bytes_max: u64 = 32_768 in 0..=1_048_576,
        "The largest file kept in memory, to leave with its head by one call; others stay open.";
    missing_files_max: usize = 1_024 in 1..=262_144,
        "Paths that are known to lead nowhere; beyond, some are forgotten and looked for anew.";
    watched_folders_max: usize = 8_192 in 0..=1_000_000,
        "Folders whose changes the kernel tells; files elsewhere are checked after `open_file_fresh_ms`.";
    open_file_fresh_ms: u64 = 1_000 in 0..=60_000,
        "An unwatched file, or a missing path, is believed so long; then the file system is asked.";
    watched_file_fresh_ms: u64 = 5_000 in 0..=600_000,
        "A watched file is believed so long; changes through another name or a mapping are not told.";
    open_file_idle_timeout_ms: u64 = 60_000 in 0..=3_600_000,
        "A file that nobody asks for; then it is closed, and not before it would be checked again.";
    dns_udp_answer_bytes_max: u16 = 1_232 in 512..=4_096,
        "A reply over UDP, whatever the client offers; a longer one is truncated.";
    dns_tcp_connections_max: usize = 1_024 in 1..=1_000_000,
        "DNS connections over TCP open at once; at the bound the one idle for longest is closed.";
    dns_tcp_idle_timeout_ms: u64 = 5_000 in 100..=600_000,
        "Between two queries of a TCP connection; then it is closed.";
    dns_tcp_queries_in_flight_max: usize = 64 in 1..=4_096,
        "Queries of one TCP connection whose replies have not left; further ones are not read.";
    dns_cname_chain_max: usize = 16 in 1..=64,
        "CNAME records that one answer follows; the chain ends there.";
    zone_file_bytes_max: u64 = 1_073_741_824 in 1_024..=1_099_511_627_776,
        "A zone file with the files that it includes; a larger one is refused.";
    zone_include_depth_max: usize = 8 in 0..=64,
        "Files that include each other by $INCLUDE; 0 forbids it.";
    zone_records_per_rrset_max: usize = 1_000 in 1..=4_000,
        "Records of one name and type; a zone with more is refused.";
    listen_backlog_max: u16 = 4_096 in 1..=65_535,
        "Connections that wait in one listener to be accepted; `net.core.somaxconn` bounds it too.";
    dns_udp_waiting_bytes_max: usize = 1_048_576 in 4_096..=134_217_728,
        "Queries that wait in one UDP socket to be read; `net.core.rmem_max` bounds it too.";
    drain_timeout_ms: u64 = 30_000 in 0..=3_600_000,
        "For what still runs when a server process stops or is replaced; then it is cut off.";
    drain_grace_ms: u64 = 2_000 in 0..=600_000,
        "An idle connection lives on so long when its server process is replaced; 200 ms if it stops.";
    start_timeout_ms: u64 = 30_000 in 100..=3_600_000,
        "Until a new server process is ready; then it is given up, and the old one goes on.";
    hang_timeout_ms: u64 = 5_000 in 1_000..=600_000,
        "One turn of a thread that serves; then its server process is ended and replaced.";
}

/// The table as plain text for `--help`: each row as it could stand in a file, below what it means.
pub fn help_text() -> String {
    LIMITS.iter().map(|limit| format!("  # {}\n  {}\n", limit.meaning, limit.assignment())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that shows the table, and the lines around it there.
    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    const BEGIN: &str = "<!-- The table of limits: made from crates/config/src/limits.rs. -->\n";
    const END: &str = "<!-- End of the table. -->\n";

    /// The table as it stands in the docs.
    fn markdown() -> String {
        let mut text = String::from("| key | default | least | most | what it bounds |\n|---|--:|--:|--:|---|\n");
        for Limit { key, default, min, max, meaning, .. } in LIMITS {
            text.push_str(&format!("| `{key}` | {default} | {min} | {max} | {meaning} |\n"));
        }
        text
    }

    #[test]
    fn the_docs_show_the_table_as_it_is() {
        let docs = std::fs::read_to_string(DOCS).unwrap();
        let (before, rest) = docs.split_once(BEGIN).expect("the docs have the line before the table");
        let (shown, after) = rest.split_once(END).expect("the docs have the line behind the table");
        let made = format!("\n{}\n", markdown());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(DOCS, format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
            return;
        }
        assert!(shown == made, "docs/configuration.md is not true any more: run this test with UPDATE_DOCS=1 once");
    }

    #[test]
    fn every_default_is_within_its_range_and_every_range_within_its_type() {
        for limit in LIMITS {
            assert!((limit.min..=limit.max).contains(&limit.default), "{}", limit.key);
            for value in [limit.min, limit.max] {
                let mut limits = Limits::default();
                limit.put(&mut limits, value);
                let shown = format!("{limits:?}");
                assert!(shown.contains(&format!(" {}: {value}", limit.key)), "{shown}");
            }
        }
    }

    #[test]
    fn meanings_are_sentences_that_fit_into_a_table() {
        for limit in LIMITS {
            assert!(limit.meaning.ends_with('.') && !limit.meaning.contains('|'), "{}", limit.key);
            // As a comment of the help it must not be broken: what follows would be no comment any more.
            assert!(limit.meaning.len() <= 96, "{}", limit.key);
        }
    }
}
