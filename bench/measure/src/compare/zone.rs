//! Zone files with random names, and the queries for them.

use anyhow::{Context, ensure};
use fastrand::Rng;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The apex of the large zones.
pub(crate) const APEX: &str = "example.com";
/// The zone has one delegation per this many names.
const NAMES_PER_DELEGATION: usize = 100;
const WILDCARD_COUNT: usize = 1000;
/// Queries in a file.
const QUERIES_MAX: usize = 1 << 20;
const OTHER_QUERY_COUNT: usize = 100_000;
/// Letters and digits that are not easily confused.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const LABEL_BYTES: u32 = 8;
/// The name whose address changes, and its addresses before and after.
pub(crate) const CHANGED_NAME: &str = "changed.example.com";
const ADDRESS_BEFORE: &str = "192.0.2.6";
pub(crate) const ADDRESS_AFTER: [u8; 4] = [192, 0, 2, 7];

#[derive(Clone, Debug)]
pub(crate) struct ZoneFile {
    pub(crate) apex: String,
    pub(crate) file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Existing names, with the type of their address.
    Names,
    Missing,
    /// Names below delegations.
    Referrals,
    /// Names that a wildcard matches.
    Wildcards,
}

/// Writes a zone with `name_count` names with one address each, delegations and wildcards; returns the number of
/// records as well.
pub(crate) fn write_zone(folder: &Path, name_count: usize) -> anyhow::Result<(ZoneFile, usize)> {
    fs::create_dir_all(folder)?;
    let file = folder.join(format!("{name_count}.zone"));
    let mut out = BufWriter::new(File::create(&file)?);
    write!(out, "$ORIGIN {APEX}.\n$TTL 3600\n@ SOA ns1 hostmaster 1 7200 3600 1209600 3600\n@ NS ns1\n@ NS ns2\n")?;
    write!(out, "ns1 A 192.0.2.53\nns2 A 198.51.100.53\nchanged A {ADDRESS_BEFORE}\n")?;
    for number in 0..name_count {
        let [.., a, b, c] = number.to_be_bytes();
        match rtype(number) {
            "AAAA" => writeln!(out, "{} AAAA 2001:db8::{a:x}:{b:x}:{c:x}", label(number))?,
            _ => writeln!(out, "{} A 10.{a}.{b}.{c}", label(number))?,
        }
        if number % NAMES_PER_DELEGATION == 0 {
            let delegation = number / NAMES_PER_DELEGATION;
            writeln!(out, "d{delegation} NS ns.d{delegation}\nns.d{delegation} A 10.255.{b}.{c}")?;
        }
    }
    for number in 0..WILDCARD_COUNT {
        writeln!(out, "*.w{number} A 192.0.2.1")?;
    }
    out.flush()?;
    let record_count = 6 + name_count + 2 * name_count.div_ceil(NAMES_PER_DELEGATION) + WILDCARD_COUNT;
    Ok((ZoneFile { apex: APEX.to_owned(), file }, record_count))
}

/// The record type with which a signed zone denies existence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    Nsec,
    Nsec3,
}

/// Makes a key of the zone in `folder`, and returns its files' name.
pub(crate) fn make_key(folder: &Path) -> anyhow::Result<String> {
    let key = run(folder, "dnssec-keygen", &["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", APEX])?;
    Ok(key.trim().to_owned())
}

/// Signs a zone by ECDSA P-256 with one key.
pub(crate) fn sign_zone(zone: &ZoneFile, chain: Chain) -> anyhow::Result<ZoneFile> {
    let folder = zone.file.parent().context("a folder")?;
    let (key, file) = (make_key(folder)?, zone.file.display().to_string());
    let mut arguments = vec!["-o", APEX, "-f", "signed"];
    arguments.extend(if chain == Chain::Nsec3 { &["-n", "-t", "0"][..] } else { &[] });
    run(folder, "ldns-signzone", &[&arguments[..], &[&file, &key]].concat())?;
    Ok(ZoneFile { apex: APEX.to_owned(), file: folder.join("signed") })
}

/// Writes the configuration with which `kzonesign` signs the zone in the same way.
pub(crate) fn write_kzonesign_config(folder: &Path, zone: &ZoneFile) -> anyhow::Result<()> {
    let (home, file) = (folder.display(), zone.file.display());
    let config = format!(
        "server:\n  rundir: {home}\ndatabase:\n  storage: {home}\npolicy:\n  - id: p\n    algorithm: ECDSAP256SHA256\n    \
         single-type-signing: on\n    signing-threads: 1\nzone:\n  - domain: {APEX}\n    file: {file}\n    dnssec-signing: on\n    dnssec-policy: p\n"
    );
    fs::create_dir_all(folder.join("out.knot"))?;
    Ok(fs::write(folder.join("kzonesign.conf"), config)?)
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output().context(program.to_owned())?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Writes a copy of a zone with another serial and another address of [`CHANGED_NAME`].
pub(crate) fn write_changed(zone: &ZoneFile) -> anyhow::Result<PathBuf> {
    let [a, b, c, d] = ADDRESS_AFTER;
    let text = fs::read_to_string(&zone.file)?;
    let text = text.replacen("hostmaster 1 ", "hostmaster 2 ", 1);
    let text = text.replacen(&format!("changed A {ADDRESS_BEFORE}"), &format!("changed A {a}.{b}.{c}.{d}"), 1);
    let file = zone.file.with_extension("changed");
    fs::write(&file, text)?;
    Ok(file)
}

/// Writes queries for a zone of [`write_zone`], and returns the file and the first query.
pub(crate) fn write_queries(folder: &Path, asked: Asked, name_count: usize, seed: u64) -> anyhow::Result<Queries> {
    let mut random = Rng::with_seed(seed);
    let random_label = |random: &mut Rng| label(random.usize(..1 << 32));
    let mut query = |number: usize| match asked {
        // Each name once if there is room for all.
        Asked::Names => {
            let number = if name_count <= QUERIES_MAX { number } else { random.usize(..name_count) };
            format!("{}.{APEX} {}", label(number), rtype(number))
        }
        // No label of the zone has a hyphen.
        Asked::Missing => format!("{}-{}.{APEX} A", random_label(&mut random), number % 10),
        Asked::Referrals => {
            format!("www.d{}.{APEX} A", random.usize(..name_count.div_ceil(NAMES_PER_DELEGATION)))
        }
        Asked::Wildcards => format!("{}.w{}.{APEX} A", random_label(&mut random), random.usize(..WILDCARD_COUNT)),
    };
    let count = if asked == Asked::Names { name_count.min(QUERIES_MAX) } else { OTHER_QUERY_COUNT };
    Queries::write(folder.join(format!("{asked:?}.queries")), (0..count).map(&mut query))
}

#[derive(Clone, Debug)]
pub(crate) struct Queries {
    pub(crate) file: PathBuf,
    /// The first name and type.
    pub(crate) first: String,
}

impl Queries {
    fn write(file: PathBuf, queries: impl Iterator<Item = String>) -> anyhow::Result<Queries> {
        let mut out = BufWriter::new(File::create(&file)?);
        let mut first = String::new();
        for query in queries {
            writeln!(out, "{query}")?;
            if first.is_empty() {
                first = query;
            }
        }
        out.flush()?;
        Ok(Queries { file, first })
    }
}

/// Writes a zone of 4 records, which serves as `count` zones, and a query for each of them.
pub(crate) fn write_small_zones(folder: &Path, count: usize) -> anyhow::Result<(Vec<ZoneFile>, Queries)> {
    fs::create_dir_all(folder)?;
    let file = folder.join("small.zone");
    let soa = "$TTL 3600\n@ SOA ns1 hostmaster 1 7200 3600 1209600 3600\n";
    fs::write(&file, format!("{soa}@ NS ns1\nns1 A 192.0.2.53\nwww A 192.0.2.80\n"))?;
    let apex = |number| format!("{}.test", label(number));
    let zones = (0..count).map(|number| ZoneFile { apex: apex(number), file: file.clone() }).collect();
    let queries = (0..count).map(|number| format!("www.{} A", apex(number)));
    Ok((zones, Queries::write(folder.join("zones.queries"), queries)?))
}

/// Every fourth name has an IPv6 address.
fn rtype(number: usize) -> &'static str {
    if number % 4 == 3 { "AAAA" } else { "A" }
}

/// The name of a zone of [`write_zone`] that is the last one in canonical order.
pub(crate) fn last_name(name_count: usize) -> String {
    let last = (0..name_count).map(label).max().unwrap_or_default();
    format!("{last}.{APEX}")
}

/// A label that looks random, and differs for each number below 2^40, as multiplying by an odd number is reversible.
fn label(number: usize) -> String {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..LABEL_BYTES).map(|at| char::from(ALPHABET[(mixed >> (5 * at)) as usize % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_has_the_asked_names_and_one_change() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (zone, record_count) = write_zone(folder.path(), 250).expect("the zone is written");
        let text = fs::read_to_string(&zone.file).expect("the zone exists");
        assert_eq!(text.lines().filter(|line| !line.starts_with('$')).count(), record_count);
        let queries = write_queries(folder.path(), Asked::Names, 250, 1).expect("the queries are written");
        for query in fs::read_to_string(&queries.file).expect("the queries exist").lines() {
            let (name, rtype) = query.split_once(' ').expect("a name and a type");
            let label = name.split('.').next().unwrap_or_default();
            assert!(text.contains(&format!("\n{label} {rtype} ")), "{query}");
        }
        let changed = fs::read_to_string(write_changed(&zone).expect("the zone is written")).expect("the zone exists");
        assert_eq!(text.lines().zip(changed.lines()).filter(|(before, after)| before != after).count(), 2);
    }
}
