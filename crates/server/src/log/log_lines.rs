//! The lines of one thread for a log of requests, or its dnstap messages, until they are passed on.

use crate::log::log_queue::{LogQueue, LogSlot};
use sanderling_log_format::{Format, HttpRecord, HttpVariable, LineWriter, Variable};
use std::sync::Arc;

/// Which requests are logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLog<V> {
    /// The format of the lines.
    pub format: Arc<Format<V>>,
    /// Of how many requests one is logged; 1 for all of them.
    pub one_of: u32,
}

/// The lines of one thread for a log that were not passed on yet.
#[derive(Debug)]
pub(crate) struct Unsent {
    queue: Arc<LogQueue>,
    slot: Arc<LogSlot>,
    pub(crate) bytes: Vec<u8>,
}

impl Unsent {
    pub(crate) fn new(queue: &Arc<LogQueue>) -> Unsent {
        Unsent { queue: Arc::clone(queue), slot: queue.add_slot(), bytes: Vec::new() }
    }

    /// Passes it on to the thread that writes it.
    pub(crate) fn pass_on(&mut self) {
        if !self.bytes.is_empty() {
            self.queue.pass_on(&self.slot, &mut self.bytes);
        }
    }
}

/// The last lines are passed on, also those of responses that end after the log.
impl Drop for Unsent {
    fn drop(&mut self) {
        self.pass_on();
    }
}

/// The lines of one thread.
#[derive(Debug)]
pub(crate) struct LogLines<V> {
    unsent: Unsent,
    writer: LineWriter<V>,
    one_of: u32,
    /// Requests since the last one that was logged.
    skipped_count: u32,
}

impl<V: Variable> LogLines<V> {
    /// From now on writes lines as `log` says.
    pub(crate) fn set(&mut self, log: &RequestLog<V>) {
        self.writer = LineWriter::new(Arc::clone(&log.format));
        self.one_of = log.one_of;
    }

    pub(crate) fn new(log: &RequestLog<V>, queue: &Arc<LogQueue>) -> Self {
        LogLines {
            unsent: Unsent::new(queue),
            writer: LineWriter::new(Arc::clone(&log.format)),
            one_of: log.one_of,
            skipped_count: 0,
        }
    }

    /// Whether the next request is logged.
    pub(crate) fn takes_next(&mut self) -> bool {
        self.skipped_count += 1;
        let takes = self.skipped_count >= self.one_of;
        if takes {
            self.skipped_count = 0;
        }
        takes
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, record: &V::Record<'_>) {
        self.writer.write(record, &mut self.unsent.bytes);
    }
}

impl<V> LogLines<V> {
    /// Passes the lines on to the thread that writes them.
    pub(crate) fn pass_on(&mut self) {
        self.unsent.pass_on();
    }
}

impl LogLines<HttpVariable> {
    /// The parts of the fields of `record` that must be kept until its line is written.
    pub(crate) fn needed_fields(&self, record: &HttpRecord<'_>) -> Vec<u8> {
        self.writer.needed_fields(record)
    }
}
