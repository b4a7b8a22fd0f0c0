//! Writes a time in UTC, as logs have it.

use std::io::Write;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS_PER_ERA: u64 = 146_097;
/// From 1 March of the year 0, with which an era of 400 years begins, to 1 January 1970.
const DAYS_BEFORE_1970: u64 = 719_468;

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
        let (days, second) = (unix_s / 86_400, unix_s % 86_400);
        let (year, month, day) = date_of(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
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

/// Year, month and day of a day since 1970, in the Gregorian calendar. A year begins with March here, so that the leap day is
/// its last one.
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let leap_days = day_of_era / 1_460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Five months from March have 153 days, as have the next five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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

    #[test]
    fn each_day_follows_the_one_before() {
        let mut previous = date_of(0);
        for days in 1..200_000 {
            let date = date_of(days);
            let (year, month, day) = previous;
            let next = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)];
            assert!(next.contains(&date), "{previous:?} {date:?}");
            assert!((1..=31).contains(&date.2) && (1..=12).contains(&date.1));
            previous = date;
        }
    }
}
