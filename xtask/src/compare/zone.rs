//! The zones that every DNS server answers for, and the files of queries by which they are asked.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::random::Random;

/// The zone of all workloads but the growth of zones.
pub(super) const APEX: &str = "example.com";
/// One delegation for so many names.
const NAMES_PER_DELEGATION: usize = 100;
/// Names with a wildcard below.
const WILDCARD_COUNT: usize = 16;
/// Queries of one file; names beyond are sampled.
const QUERY_COUNT_MAX: usize = 1_000_000;
/// Queries of a file about names that are not there one by one.
const OTHER_QUERY_COUNT: usize = 100_000;
/// Letters and digits of a label, without those that look alike.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Characters of a random label.
const LABEL_CHARACTERS: usize = 8;

/// The number of the name whose address is another one in the changed zone; and that address.
pub(super) const CHANGED_NUMBER: usize = 0;
pub(super) const CHANGED_ADDRESS: [u8; 4] = [192, 0, 2, 7];
/// How the SOA record starts up to its serial, in the zone and in the changed one.
const SERIAL: &str = "@ SOA ns1 hostmaster 1 ";
const SERIAL_CHANGED: &str = "@ SOA ns1 hostmaster 2 ";

/// What a workload asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Names that have an address, each with the type that it has.
    Names,
    /// Names that are not there.
    Errors,
    /// Names below delegations.
    Referrals,
    /// Names that a wildcard answers for.
    Wildcards,
}

impl Asked {
    pub(super) fn file_name(self) -> &'static str {
        match self {
            Asked::Names => "names.queries",
            Asked::Errors => "errors.queries",
            Asked::Referrals => "referrals.queries",
            Asked::Wildcards => "wildcards.queries",
        }
    }
}

/// A zone file with `name_count` names of one address each, and as many delegations and wildcards as it needs.
pub(super) struct Zone {
    pub(super) file: PathBuf,
    pub(super) name_count: usize,
}

impl Zone {
    /// Writes the zone file below `folder`.
    pub(super) fn create(folder: &Path, name_count: usize) -> Result<Zone, String> {
        let file = folder.join(format!("{name_count}.zone"));
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let mut out = BufWriter::new(fs::File::create(&file).map_err(failed)?);
        let mut line = zone_start();
        for number in 0..name_count {
            write_name(&mut line, number);
            if number % NAMES_PER_DELEGATION == 0 {
                write_delegation(&mut line, number / NAMES_PER_DELEGATION);
            }
            out.write_all(line.as_bytes()).map_err(failed)?;
            line.clear();
        }
        for number in 0..WILDCARD_COUNT {
            writeln!(out, "*.w{number} A 192.0.2.1").map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        Ok(Zone { file, name_count })
    }

    /// Records of the zone file.
    pub(super) fn record_count(&self) -> usize {
        let delegations = self.name_count.div_ceil(NAMES_PER_DELEGATION);
        let start = zone_start().lines().filter(|line| !line.starts_with('$')).count();
        start + self.name_count + 2 * delegations + WILDCARD_COUNT
    }

    /// Writes the same zone with its serial raised and one address changed, beside its file.
    pub(super) fn write_changed(&self) -> Result<PathBuf, String> {
        let file = self.file.with_extension("changed");
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let text = fs::read_to_string(&self.file).map_err(failed)?;
        fs::write(&file, changed(&text)).map_err(failed)?;
        Ok(file)
    }

    /// Writes the queries `asked` below `folder`.
    pub(super) fn write_queries(&self, folder: &Path, asked: Asked, random: &mut Random) -> Result<PathBuf, String> {
        let file = folder.join(asked.file_name());
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let mut out = BufWriter::new(fs::File::create(&file).map_err(failed)?);
        let count = if asked == Asked::Names { self.name_count.min(QUERY_COUNT_MAX) } else { OTHER_QUERY_COUNT };
        for number in 0..count {
            writeln!(out, "{}", self.query(asked, number, random)).map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        Ok(file)
    }

    /// One query: a name and a type. Names are asked once each where there is room for all.
    pub(super) fn query(&self, asked: Asked, number: usize, random: &mut Random) -> String {
        match asked {
            Asked::Names if self.name_count <= QUERY_COUNT_MAX => name_query(number),
            Asked::Names => name_query(random.below(self.name_count)),
            // A dash is no letter of the labels that are there.
            Asked::Errors => format!("{}-{}.{APEX} A", label(random.below(usize::MAX >> 32)), number % 10),
            Asked::Referrals => {
                let delegation = random.below(self.name_count.div_ceil(NAMES_PER_DELEGATION));
                format!("www.d{delegation}.{APEX} A")
            }
            Asked::Wildcards => {
                let place = random.below(WILDCARD_COUNT);
                format!("{}.w{place}.{APEX} A", label(random.below(usize::MAX >> 32)))
            }
        }
    }
}

fn zone_start() -> String {
    format!(
        "$ORIGIN {APEX}.\n$TTL 3600\n{SERIAL}7200 3600 1209600 3600\n@ NS ns1\n@ NS ns2\n\
         ns1 A 192.0.2.53\nns2 A 198.51.100.53\n"
    )
}

/// The text of a zone with its serial raised and the address of the name [`CHANGED_NUMBER`] changed.
fn changed(text: &str) -> String {
    let mut before = String::new();
    write_name(&mut before, CHANGED_NUMBER);
    let [a, b, c, d] = CHANGED_ADDRESS;
    let after = format!("{} A {a}.{b}.{c}.{d}\n", label(CHANGED_NUMBER));
    text.replacen(SERIAL, SERIAL_CHANGED, 1).replacen(&before, &after, 1)
}

/// Every fourth name has an IPv6 address, the others an IPv4 one.
fn write_name(text: &mut String, number: usize) {
    let (high, middle, low) = (number >> 16 & 0xff, number >> 8 & 0xff, number & 0xff);
    let label = label(number);
    let written = if number % 4 == 3 {
        writeln!(text, "{label} AAAA 2001:db8::{high:x}:{middle:x}:{low:x}")
    } else {
        writeln!(text, "{label} A 10.{high}.{middle}.{low}")
    };
    written.expect("a string takes whatever is written");
}

fn write_delegation(text: &mut String, number: usize) {
    let (middle, low) = (number >> 8 & 0xff, number & 0xff);
    let written = writeln!(text, "d{number} NS ns.d{number}\nns.d{number} A 10.255.{middle}.{low}");
    written.expect("a string takes whatever is written");
}

fn name_query(number: usize) -> String {
    let type_word = if number % 4 == 3 { "AAAA" } else { "A" };
    format!("{}.{APEX} {type_word}", label(number))
}

/// A label that looks random and belongs to `number` alone, as long as that is below 2^40: multiplying by an odd
/// number loses nothing.
pub(super) fn label(number: usize) -> String {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << (5 * LABEL_CHARACTERS));
    (0..LABEL_CHARACTERS).map(|at| char::from(ALPHABET[(mixed >> (5 * at)) as usize % ALPHABET.len()])).collect()
}

/// Many small zones from one file, each with an address at `www`.
pub(super) fn write_small_zone(folder: &Path) -> Result<PathBuf, String> {
    let file = folder.join("small.zone");
    let text =
        "$TTL 3600\n@ SOA ns1 hostmaster 1 7200 3600 1209600 3600\n@ NS ns1\nns1 A 192.0.2.53\nwww A 192.0.2.80\n";
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(&file, text).map_err(failed)?;
    Ok(file)
}

/// The apex of the small zone `number`.
pub(super) fn small_apex(number: usize) -> String {
    format!("{}.test", label(number))
}

/// Writes a query for the address in each of `zone_count` small zones.
pub(super) fn write_small_queries(folder: &Path, zone_count: usize) -> Result<PathBuf, String> {
    let file = folder.join("zones.queries");
    let text: String = (0..zone_count).map(|number| format!("www.{} A\n", small_apex(number))).collect();
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn labels_are_all_different() {
        let labels: HashSet<String> = (0..100_000).map(label).collect();
        assert_eq!(labels.len(), 100_000);
        assert!(labels.iter().all(|label| label.len() == LABEL_CHARACTERS));
    }

    #[test]
    fn the_file_holds_as_many_records_as_are_told() {
        let folder = std::env::temp_dir().join(format!("xtask-zone-{}", std::process::id()));
        let zone = Zone::create(&folder, 250).unwrap();
        let text = fs::read_to_string(&zone.file).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let count = text.lines().filter(|line| !line.starts_with('$')).count();
        assert_eq!(zone.record_count(), count);
        let asked = zone.query(Asked::Names, 3, &mut Random::new(1));
        let (name, type_word) = asked.split_once(' ').unwrap();
        let label = name.split('.').next().unwrap();
        assert!(text.contains(&format!("\n{label} {type_word} ")), "{asked} is not in the zone");
    }

    #[test]
    fn the_changed_zone_differs_in_its_serial_and_one_address() {
        let mut text = zone_start();
        (0..9).for_each(|number| write_name(&mut text, number));
        let changed = changed(&text);
        let differing: Vec<_> = text.lines().zip(changed.lines()).filter(|(old, new)| old != new).collect();
        let expected = [
            ("@ SOA ns1 hostmaster 1 7200 3600 1209600 3600", "@ SOA ns1 hostmaster 2 7200 3600 1209600 3600"),
            ("aaaaaaaa A 10.0.0.0", "aaaaaaaa A 192.0.2.7"),
        ];
        assert_eq!(differing, expected);
        assert_eq!(text.lines().count(), changed.lines().count());
    }

    #[test]
    fn other_queries_stay_inside_the_zone() {
        let zone = Zone { file: PathBuf::new(), name_count: 250 };
        let mut random = Random::new(1);
        for asked in [Asked::Errors, Asked::Referrals, Asked::Wildcards] {
            let query = zone.query(asked, 4, &mut random);
            assert!(query.ends_with(".example.com A"), "{query}");
        }
        assert!(zone.query(Asked::Errors, 4, &mut random).contains("-4.example.com"));
    }
}
