//! The calendar date of a time, in UTC.

const DAY_S: u64 = 24 * 3600;

/// Year, month and day of a time in seconds since 1970.
pub fn date(unix_s: u64) -> (u64, u64, u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, expected) in [
            (0, (1970, 1, 1)),
            (951_782_399, (2000, 2, 28)),
            (951_782_400, (2000, 2, 29)),
            (951_868_800, (2000, 3, 1)),
            (1_795_449_601, (2026, 11, 23)),
        ] {
            assert_eq!(date(unix_s), expected, "{unix_s}");
        }
    }
}
