//! The calendar date of a time, in UTC.

const DAY_S: u64 = 24 * 3600;

/// Year, month and day.
pub(crate) fn date(unix_s: u64) -> (u64, u64, u64) {
    // Years are counted from March 0000, so that the leap day is the last of its year. An era has 400 years.
    let days = unix_s / DAY_S + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// `2026-11-23 16:00:00 UTC`
pub(crate) fn utc(unix_s: u64) -> String {
    let (year, month, day) = date(unix_s);
    let (hour, minute, second) = (unix_s % DAY_S / 3600, unix_s / 60 % 60, unix_s % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(utc(1_795_449_601), "2026-11-23 16:00:01 UTC");
    }
}
