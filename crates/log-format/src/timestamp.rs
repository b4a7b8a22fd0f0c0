//! Writes a time in UTC, in the format of logs.

use std::io::Write;

use sanderling_calendar::DateTime;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A second in UTC, in the two forms that logs have.
#[derive(Debug, Default)]
pub(crate) struct Timestamp {
    unix_s: u64,
    /// As in the Common Log Format: `23/Nov/2026:02:04:25 +0000`. Empty before the first use.
    common: Vec<u8>,
    /// RFC 3339: `2026-11-23T02:04:25`, without the fraction and the zone.
    iso: Vec<u8>,
}

impl Timestamp {
    /// Changes the time; within a second nothing is computed.
    #[inline]
    pub(crate) fn set(&mut self, unix_s: u64) {
        if self.unix_s != unix_s || self.common.is_empty() {
            self.write(unix_s);
        }
    }

    #[cold]
    fn write(&mut self, unix_s: u64) {
        self.unix_s = unix_s;
        let DateTime { year, month, day, hour, minute, second } = DateTime::from_unix_s(unix_s);
        self.common.clear();
        self.iso.clear();
        let name = MONTHS[month as usize - 1];
        // Writing to a vector does not fail.
        let _ = write!(self.common, "{day:02}/{name}/{year}:{hour:02}:{minute:02}:{second:02} +0000");
        let _ = write!(self.iso, "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    }

    pub(crate) fn common(&self) -> &[u8] {
        &self.common
    }

    pub(crate) fn iso(&self) -> &[u8] {
        &self.iso
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_both_forms() {
        // As `date -u -d @N` prints them.
        for (unix_s, common, iso) in [
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00"),
            (951_782_399, "28/Feb/2000:23:59:59 +0000", "2000-02-28T23:59:59"),
            (951_782_400, "29/Feb/2000:00:00:00 +0000", "2000-02-29T00:00:00"),
            (1_795_399_465, "23/Nov/2026:02:04:25 +0000", "2026-11-23T02:04:25"),
            (4_107_542_400, "01/Mar/2100:00:00:00 +0000", "2100-03-01T00:00:00"),
            (4_107_542_399, "28/Feb/2100:23:59:59 +0000", "2100-02-28T23:59:59"),
        ] {
            let mut timestamp = Timestamp::default();
            timestamp.set(unix_s);
            assert_eq!(str::from_utf8(timestamp.common()), Ok(common));
            assert_eq!(str::from_utf8(timestamp.iso()), Ok(iso));
        }
    }
}
