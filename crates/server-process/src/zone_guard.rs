//! Refuses a new version of a zone that is probably an accident. The operator can force it.
// Numbers come from other processes, which may lie.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::kept_zones::VersionInfo;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::{Limits, Zone, ZoneOrigin};

/// The reason why `new` must not replace `old`, which is served; `None` if it may.
pub(crate) fn refusal(zone: &Zone, old: &VersionInfo, new: &VersionInfo, limits: &Limits) -> Option<Diagnostic> {
    let message = problem(old, new, limits)?;
    let what = if zone.origin == ZoneOrigin::Signer { "the zone file" } else { "it" };
    let remedy = format!("correct {what}, or accept it with `sanderling reload --force-zone {}`", zone.apex);
    Some(Diagnostic::error(Location::File(zone.file.clone()), Problem::new(message, remedy)))
}

/// A warning about `new`, which is served despite these differences from `old`: only an earlier process has loaded
/// `old`, and that process may be compromised.
pub(crate) fn warning(zone: &Zone, old: &VersionInfo, new: &VersionInfo, limits: &Limits) -> Option<Diagnostic> {
    let message = format!(
        "{}; it is served anyway, because this process has not loaded another version",
        problem(old, new, limits)?
    );
    Some(Diagnostic::warning(
        Location::File(zone.file.clone()),
        Problem::new(message, "correct it if it is wrong, and reload"),
    ))
}

fn problem(old: &VersionInfo, new: &VersionInfo, limits: &Limits) -> Option<String> {
    let (old_count, new_count) = (old.record_count, new.record_count);
    let lost_count = old_count.saturating_sub(new_count);
    if lost_count > 0 && old.ends_with_newline && !new.ends_with_newline {
        return Some(format!(
            "the zone seems to be truncated: {lost_count} of {old_count} records are missing, and the file ends \
                without a newline"
        ));
    }
    let percent_max = limits.zone_lost_records_percent_max;
    if old_count > limits.zone_guarded_records_min
        && lost_count.saturating_mul(100) > old_count.saturating_mul(percent_max)
    {
        return Some(format!(
            "{lost_count} of {old_count} records are missing, more than `zone_lost_records_percent_max` ({percent_max} %)"
        ));
    }
    // RFC 1982 section 3.2; the order of serials that are 2^31 apart is undefined.
    if new.serial.wrapping_sub(old.serial) > i32::MAX.cast_unsigned() {
        return Some(format!(
            "the serial went back from {} to {} (RFC 1982), and secondaries would not transfer it",
            old.serial, new.serial
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: VersionInfo =
        VersionInfo { serial: 10, record_count: 1_000, loaded_at_unix_s: 0, ends_with_newline: true };

    #[track_caller]
    fn check(old: VersionInfo, new: VersionInfo, expected: Option<&str>) {
        let found = problem(&old, &new, &Limits::default());
        match (&found, expected) {
            (Some(text), Some(part)) => assert!(text.contains(part), "{text}"),
            _ => assert_eq!(found.as_deref(), expected),
        }
    }

    #[test]
    fn zone_may_lose_half_of_its_records() {
        check(OLD, VersionInfo { record_count: 500, ..OLD }, None);
        check(OLD, VersionInfo { record_count: 499, ..OLD }, Some("501 of 1000 records are missing"));
        check(OLD, VersionInfo { record_count: 5_000, ..OLD }, None);
        let small = VersionInfo { record_count: Limits::default().zone_guarded_records_min, ..OLD };
        check(small, VersionInfo { record_count: 2, ..OLD }, None);
    }

    #[test]
    fn any_number_of_records_can_be_compared() {
        let most = VersionInfo { record_count: u64::MAX, ..OLD };
        check(OLD, most, None);
        check(most, most, None);
        check(most, OLD, None);
        // The percentages of this many records would overflow an integer.
        let many = VersionInfo { record_count: u64::MAX / 60, ..OLD };
        check(many, OLD, Some("records are missing, more than `zone_lost_records_percent_max` (50 %)"));
        let cut = VersionInfo { ends_with_newline: false, ..OLD };
        check(most, cut, Some("the zone seems to be truncated: 18446744073709550615 of 18446744073709551615 records"));
    }

    #[test]
    fn zone_that_lost_its_last_line_end_with_records_is_cut_off() {
        let cut = VersionInfo { ends_with_newline: false, ..OLD };
        check(OLD, VersionInfo { record_count: 999, ..cut }, Some("the zone seems to be truncated: 1 of 1000 records"));
        check(OLD, cut, None);
        check(cut, VersionInfo { record_count: 999, ..cut }, None);
    }

    #[test]
    fn serial_must_not_go_back() {
        for (old, new, is_refused) in [
            (10, 10, false),
            (10, 11, false),
            (10, 9, true),
            (u32::MAX, 0, false),
            (0, u32::MAX, true),
            (10, 10 + i32::MAX.cast_unsigned(), false),
            (10, 11 + i32::MAX.cast_unsigned(), true),
        ] {
            let expected = is_refused.then_some("the serial went back from ");
            check(VersionInfo { serial: old, ..OLD }, VersionInfo { serial: new, ..OLD }, expected);
        }
    }
}
