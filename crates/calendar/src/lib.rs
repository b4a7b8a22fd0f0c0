//! Dates and times of the Gregorian calendar in UTC, and the seconds since 1970 that they stand for.
#![no_std]
#![forbid(unsafe_code)]

/// Seconds per day.
pub const DAY_S: u64 = 86_400;

// Both directions count days from 1 March of the year 0, so that a leap day is the last day of its year, in eras of 400
// years, the period of the calendar.
const DAYS_PER_ERA: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: u64 = 719_468;

/// A second of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    /// 1970 or later.
    pub year: u64,
    /// 1 to 12.
    pub month: u64,
    /// 1 to 31.
    pub day: u64,
    /// 0 to 23.
    pub hour: u64,
    /// 0 to 59.
    pub minute: u64,
    /// 0 to 59, or 60 in a leap second.
    pub second: u64,
}

impl DateTime {
    /// The date and time that is `unix_s` seconds after 1970-01-01 00:00:00.
    pub fn from_unix_s(unix_s: u64) -> DateTime {
        let (days, second) = (unix_s / DAY_S + DAYS_TO_1970, unix_s % DAY_S);
        let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
        // Without leap days each year has 365 days.
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Five months from March have 153 days, as have the next five.
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        DateTime {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// Seconds since 1970-01-01 00:00:00; a leap second is the first second of the next minute. `None` if there is no
    /// such date or time, or if it is before 1970.
    pub fn unix_s(&self) -> Option<u64> {
        let &DateTime { year, month, day, hour, minute, second } = self;
        let is_leap_year = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let day_count = match month {
            2 => 28 + u64::from(is_leap_year),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let is_valid = year >= 1970 && (1..=day_count).contains(&day) && hour < 24 && minute < 60 && second <= 60;
        is_valid.then(|| self.days() * DAY_S + hour * 3600 + minute * 60 + second)
    }

    /// Days since 1970-01-01.
    fn days(&self) -> u64 {
        // January and February belong to the year before.
        let year = self.year - u64::from(self.month <= 2);
        let (era, year_of_era) = (year / 400, year % 400);
        // The lengths of the months before this one, from March on: 31 30 31 30 31, 31 30 31 30 31, 31.
        let day_of_year = (153 * ((self.month + 9) % 12) + 2) / 5 + self.day - 1;
        era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - DAYS_TO_1970
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_until_2400_follows_the_previous_day() {
        let midnight = |year, month, day| DateTime { year, month, day, hour: 0, minute: 0, second: 0 };
        let mut expected = midnight(1970, 1, 1);
        for day in 0..157_420 {
            assert_eq!(DateTime::from_unix_s(day * DAY_S), expected);
            assert_eq!(expected.unix_s(), Some(day * DAY_S));
            let DateTime { year, month, day, .. } = expected;
            let candidates = [midnight(year, month, day + 1), midnight(year, month + 1, 1), midnight(year + 1, 1, 1)];
            expected = candidates.into_iter().find(|date| date.unix_s().is_some()).expect("a next day");
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        // As `date -u -d @N` prints them.
        for (unix_s, (year, month, day), (hour, minute, second)) in [
            (951_782_399, (2000, 2, 28), (23, 59, 59)),
            (951_782_400, (2000, 2, 29), (0, 0, 0)),
            (1_795_399_465, (2026, 11, 23), (2, 4, 25)),
            (4_107_542_399, (2100, 2, 28), (23, 59, 59)),
            (4_107_542_400, (2100, 3, 1), (0, 0, 0)),
            (253_402_300_799, (9999, 12, 31), (23, 59, 59)),
        ] {
            let time = DateTime { year, month, day, hour, minute, second };
            assert_eq!(DateTime::from_unix_s(unix_s), time);
            assert_eq!(time.unix_s(), Some(unix_s));
        }
    }

    #[test]
    fn leap_second_is_the_next_second() {
        let of = |second| DateTime { year: 2016, month: 12, day: 31, hour: 23, minute: 59, second }.unix_s();
        assert_eq!(of(60), of(59).map(|last| last + 1));
    }

    #[test]
    fn what_no_calendar_and_no_clock_shows_is_none() {
        let time = DateTime::from_unix_s(0);
        for wrong in [
            DateTime { year: 1969, ..time },
            DateTime { month: 0, ..time },
            DateTime { month: 13, ..time },
            DateTime { day: 0, ..time },
            DateTime { month: 4, day: 31, ..time },
            DateTime { year: 2100, month: 2, day: 29, ..time },
            DateTime { hour: 24, ..time },
            DateTime { minute: 60, ..time },
            DateTime { second: 61, ..time },
        ] {
            assert_eq!(wrong.unix_s(), None, "{wrong:?}");
        }
    }
}
