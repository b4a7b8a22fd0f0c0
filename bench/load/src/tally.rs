//! What came back, counted.

use std::fmt;

/// The lower four bits of the flags (RFC 1035 §4.1.1).
const RCODE_COUNT: usize = 16;
const RCODE_NAMES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];

#[derive(Default)]
pub struct Tally {
    /// Replies that belong to a query that was outstanding.
    pub reply_count: u64,
    /// Queries without a reply.
    pub lost_count: u64,
    /// Messages that are no reply to anything that was asked: too short, another ID, another question.
    pub wrong_count: u64,
    pub truncated_count: u64,
    pub reply_bytes: u64,
    /// TCP connections that the server closed.
    pub reconnect_count: u64,
    pub rcode_counts: [u64; RCODE_COUNT],
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "replies {}", self.reply_count)?;
        writeln!(out, "lost {}", self.lost_count)?;
        writeln!(out, "wrong {}", self.wrong_count)?;
        writeln!(out, "truncated {}", self.truncated_count)?;
        writeln!(out, "reply_bytes {}", self.reply_bytes)?;
        writeln!(out, "reconnects {}", self.reconnect_count)?;
        for (rcode, count) in self.rcode_counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            match RCODE_NAMES.get(rcode) {
                Some(name) => writeln!(out, "{name} {count}")?,
                None => writeln!(out, "RCODE{rcode} {count}")?,
            }
        }
        Ok(())
    }
}
