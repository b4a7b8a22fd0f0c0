//! Numbers as people read them: at most three digits before the unit.

/// A number per second.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        less if less < 9.95 => format!("{less:.1}"),
        more => count(more),
    }
}

/// A number: `950`, `1.2k`, `34M`.
pub(crate) fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T"])
}

/// A number of bytes: `12 KiB`.
pub(crate) fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let (mut rest, mut unit) = (number, 0);
    while rest >= 999.5 && unit + 1 < units.len() {
        rest /= step;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && rest < 9.95);
    format!("{rest:.digits$}{}", units[unit])
}

/// `part` of `whole` in per cent; `-` of nothing.
pub(crate) fn share(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1}%", part * 100.0 / whole) } else { "-".to_owned() }
}

/// Seconds in their two largest units: `3 h 5 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

/// A time within which responses were sent: `<= 16 ms`.
pub(crate) fn at_most(seconds: f64) -> String {
    match seconds {
        // A request that is answered in one iteration of the event loop counts as 0 s.
        short if short <= 0.001 => "<1 ms".to_owned(),
        short if short < 0.9995 => format!("{:.0} ms", short * 1000.0),
        long if long.is_finite() => format!("{long:.1} s"),
        _ => ">65 s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        for (number, expected) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (9.96, "10"),
            (950.0, "950"),
            (999.9, "1.0k"),
            (12_345.0, "12k"),
            (9_940_000.0, "9.9M"),
        ] {
            assert_eq!(rate(number), expected, "{number}");
        }
        for (number, expected) in
            [(0.0, "0 B"), (1_000.0, "1.0 KiB"), (1_048_576.0, "1.0 MiB"), (52_428_800.0, "50 MiB")]
        {
            assert_eq!(bytes(number), expected, "{number}");
        }
        assert_eq!((share(1.0, 8.0).as_str(), share(0.0, 0.0).as_str()), ("12.5%", "-"));
        assert_eq!([0.001, 0.016, 2.048, f64::INFINITY].map(at_most), ["<1 ms", "16 ms", "2.0 s", ">65 s"]);
        assert_eq!([59.0, 61.0, 7_300.0, 200_000.0].map(duration), ["59 s", "1 min 1 s", "2 h 1 min", "2 d 7 h"]);
    }
}
