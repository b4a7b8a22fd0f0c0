//! Replies that another thread than that of their query sends, since something was waited for: how they are counted and
//! logged.

use crate::log::query_log::ThreadQueryLog;
use crate::statistics::{Slots, ThreadStatistics};
use sanderling_dns::{ParsedQuery, RequestInfo};
use sanderling_os::clock::unix_ms;

/// The records of late replies. Only the thread that sends them uses it.
#[derive(Debug, Default)]
pub(crate) struct LateReplies {
    pub(crate) log: Option<ThreadQueryLog>,
    /// The version of the snapshot that `log` follows; `None` at the beginning.
    pub(crate) snapshot_version: Option<u64>,
    pub(crate) statistics: Option<Box<ThreadStatistics>>,
}

impl LateReplies {
    /// Counts and logs a `reply`. The query has been logged; only its opcode tells its kind.
    pub(crate) fn record(&self, info: &RequestInfo, reply: &[u8], slots: &Slots) {
        let query = ParsedQuery::EMPTY;
        if let Some(statistics) = &self.statistics {
            statistics.count_reply(info.transport, &query, reply, slots);
        }
        if let Some(log) = &self.log {
            log.log_late_reply(info, &query, reply, unix_ms());
            log.pass_on();
        }
    }
}
