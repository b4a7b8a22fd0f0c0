//! Measures the processor time in which a zone is signed: `cargo run --release -p sanderling-dnssec --example
//! sign_speed -- [NAMES]`.
//!
//! The zone has an address for each name. The zone is signed with signatures that cost nothing and with ECDSA P-256.
//! Then one record changes, and the whole zone is signed; finally names are added and removed one by one, and only
//! these changes are signed.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use sanderling_dns::{Name, NameBuf, Rtype};
use sanderling_dnssec::sign::{
    ChangeJob, KeyInUse, KeysInUse, RecordChanges, SigningInput, SigningJob, due_signatures,
};
use sanderling_dnssec::{
    Algorithm, Denial, KeyRole, PublicKey, Record, Records, RecordsBuilder, SigningParameters, ZoneSigner, ZoneVersion,
    sign, sign_change,
};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NAME_COUNT: u32 = 1_000_000;
const TTL_S: u32 = 3600;
const CHANGE_COUNT: usize = 2000;

/// A signer, or a stand-in that returns bytes of the same length.
struct Signer(Option<EcdsaKeyPair>);

impl ZoneSigner for Signer {
    fn sign(&mut self, inputs: &[SigningInput<'_>]) -> Result<Vec<Vec<u8>>, String> {
        let random = SystemRandom::new();
        let sign = |input: &SigningInput<'_>| match &self.0 {
            Some(key) => key.sign(&random, input.bytes).expect("the key can sign").as_ref().to_vec(),
            None => vec![7; 64],
        };
        Ok(inputs.iter().map(sign).collect())
    }
}

/// Names in an order that is random for the zone file.
fn unsigned(apex: Name<'_>, count: u32, address: [u8; 4]) -> RecordsBuilder {
    let mut builder = RecordsBuilder::default();
    let soa = [b"\x02ns".as_slice(), apex.as_bytes(), b"\x05admin", apex.as_bytes(), &[0; 20]].concat();
    let ns = [b"\x02ns".as_slice(), apex.as_bytes()].concat();
    builder.push(Record { owner: apex, rtype: Rtype::SOA, ttl_s: TTL_S, rdata: &soa });
    builder.push(Record { owner: apex, rtype: Rtype::NS, ttl_s: TTL_S, rdata: &ns });
    for index in 0..count {
        let label = format!("h{:08x}", index.wrapping_mul(0x9e37_79b1));
        let owner = NameBuf::child(label.as_bytes(), apex).expect("a short name");
        let rdata = if index == count / 2 { address } else { [192, 0, 2, 1] };
        builder.push(Record { owner: owner.as_name(), rtype: Rtype::A, ttl_s: TTL_S, rdata: &rdata });
    }
    builder
}

/// The processor time of this thread, which is the only one.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("the kernel counts processor time");
    Duration::from_nanos(text.split(' ').next().and_then(|field| field.parse().ok()).expect("nanoseconds"))
}

fn main() {
    let count = std::env::args().nth(1).map_or(NAME_COUNT, |text| text.parse().expect("a number of names"));
    let apex = Name::parse(b"\x07example\0").expect("a name");
    let start = processor_time();
    let builder = unsigned(apex, count, [192, 0, 2, 1]);
    let collected = processor_time() - start;
    let records = builder.finish();
    println!("{count} names: collected in {collected:.2?}, sorted in {:.2?}", processor_time() - start - collected);
    let changed = unsigned(apex, count, [192, 0, 2, 2]).finish();
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let bytes = key.public_key().as_ref()[1..].to_vec();
    let key_in_use = KeyInUse {
        key: PublicKey { algorithm: Algorithm::EcdsaP256, role: KeyRole::Csk, bytes },
        is_published: true,
        signs_keys: true,
        signs_zone: true,
    };
    let keys = KeysInUse { keys: vec![key_in_use], cds: Vec::new(), cdnskey: Vec::new() };
    let now_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let run = |what: &str, unsigned: &Records, previous: Option<&Records>, denial: Denial, signer: &mut Signer| {
        let parameters = SigningParameters { denial, ..SigningParameters::default() };
        let job = SigningJob { apex, unsigned, previous, keys: &keys, parameters: &parameters, now_unix_s };
        let start = processor_time();
        let zone = sign(&job, signer).expect("it can be signed");
        println!(
            "{what}, {denial:?}: {:.2?}, {} signatures made, {} kept",
            (processor_time() - start),
            zone.made_count,
            zone.kept_count
        );
        zone.records
    };
    let mut signer = Signer(Some(key));
    for denial in [Denial::Nsec, Denial::Nsec3] {
        let first = run("signatures without cost", &records, None, denial, &mut Signer(None));
        run("one change, signed as a whole", &changed, Some(&first), denial, &mut Signer(None));
        run_changes(apex, first, &keys, denial, &mut signer);
    }
    run("ECDSA P-256", &records, None, Denial::Nsec, &mut signer);
}

/// Adds names and removes them again, each in a version of its own.
fn run_changes(apex: Name<'_>, records: Records, keys: &KeysInUse, denial: Denial, signer: &mut Signer) {
    let parameters = SigningParameters { denial, ..SigningParameters::default() };
    let now_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let mut version = ZoneVersion::from(records);
    let mut times = Vec::new();
    let mut made_count = 0;
    for index in 0..CHANGE_COUNT {
        let owner = NameBuf::child(format!("new{:x}", (index / 2).wrapping_mul(0x9e37_79b1)).as_bytes(), apex);
        let mut record = RecordsBuilder::default();
        let owner = owner.expect("a short name");
        record.push(Record { owner: owner.as_name(), rtype: Rtype::A, ttl_s: TTL_S, rdata: &[192, 0, 2, 1] });
        let mut changes = RecordChanges { removed: record.finish(), added: Records::default() };
        if index % 2 == 0 {
            std::mem::swap(&mut changes.removed, &mut changes.added);
        }
        let job = ChangeJob { apex, changes: &changes, renewed: &[], keys, parameters: &parameters, now_unix_s };
        let start = Instant::now();
        let change = sign_change(&mut version, &job, signer).expect("signed").expect("in part");
        times.push(start.elapsed());
        made_count += change.made_count;
    }
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 1000];
    println!(
        "one change with ECDSA P-256, signed in part, {denial:?}: median {:.2?}, 99 % below {:.2?}, longest {:.2?}, {:.1} signatures made",
        at(500),
        at(990),
        times[times.len() - 1],
        made_count as f64 / times.len() as f64
    );
    let start = processor_time();
    let whole = version.to_records();
    println!("the version in one piece, {denial:?}: {:.2?}", processor_time() - start);
    let start = processor_time();
    let due = due_signatures(&ZoneVersion::from(whole), &parameters, now_unix_s);
    println!(
        "search for signatures that end soon, {denial:?}: {:.2?}, {} names",
        processor_time() - start,
        due.names.len()
    );
}
