//! The serial of a signed version.

use super::SerialPolicy;
use sanderling_calendar::DateTime;
use sanderling_dns::{is_later, raised_serial};

/// The serial of a version. `unsigned` is the unsigned records' serial, `previous` the previous signed version's.
pub(super) fn next(
    policy: SerialPolicy,
    unsigned: u32,
    previous: Option<u32>,
    is_changed: bool,
    now_unix_s: u64,
) -> u32 {
    let proposed = match policy {
        SerialPolicy::Keep => return unsigned,
        SerialPolicy::Increment => unsigned,
        SerialPolicy::Date => date_serial(now_unix_s),
        SerialPolicy::UnixTime => (now_unix_s as u32).max(1),
    };
    let is_raised = policy == SerialPolicy::Increment && previous.is_none_or(|previous| is_later(unsigned, previous));
    match previous {
        Some(previous) if !is_changed && !is_raised => previous,
        // Secondaries may have the unsigned records with this serial.
        _ => {
            let before = previous.unwrap_or(unsigned);
            if is_later(proposed, before) { proposed } else { raised_serial(before, 1) }
        }
    }
}

/// `YYYYMMDD00` in UTC. The serial fits into 32 bits until the year 4294.
fn date_serial(unix_s: u64) -> u32 {
    let DateTime { year, month, day, .. } = DateTime::from_unix_s(unix_s);
    (((year * 100 + month) * 100 + day) * 100) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23 16:00:00 UTC
    const NOW: u64 = 1_795_449_600;

    #[test]
    fn each_change_has_a_later_serial_by_its_policy() {
        let check = |policy, unsigned, previous, is_changed, expected| {
            let found = next(policy, unsigned, previous, is_changed, NOW);
            assert_eq!(found, expected, "{policy:?} {unsigned} {previous:?} {is_changed}");
        };
        check(SerialPolicy::Keep, 5, Some(7), true, 5);
        check(SerialPolicy::Increment, 5, None, true, 6);
        check(SerialPolicy::Increment, 5, Some(6), false, 6);
        check(SerialPolicy::Increment, 5, Some(6), true, 7);
        check(SerialPolicy::Increment, 7, Some(6), false, 7);
        check(SerialPolicy::Increment, 6, Some(6), true, 7);
        check(SerialPolicy::Increment, 1, Some(u32::MAX), true, 1);
        check(SerialPolicy::Increment, 0, Some(u32::MAX - 1), false, 0);
        check(SerialPolicy::Increment, u32::MAX, Some(u32::MAX), true, 1);
        check(SerialPolicy::Increment, u32::MAX, None, true, 1);
        check(SerialPolicy::Date, 5, None, true, 2_026_112_300);
        check(SerialPolicy::Date, 5, Some(2_026_112_300), true, 2_026_112_301);
        check(SerialPolicy::Date, 9, Some(2_026_112_299), true, 2_026_112_300);
        check(SerialPolicy::Date, 9, Some(2_026_112_299), false, 2_026_112_299);
        check(SerialPolicy::Date, 2_026_999_900, None, true, 2_026_999_901);
        check(SerialPolicy::UnixTime, 5, Some(6), true, NOW as u32);
        check(SerialPolicy::UnixTime, 5, Some(NOW as u32), true, NOW as u32 + 1);
    }
}
