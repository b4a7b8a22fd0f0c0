//! Measures the processor time in which a zone is signed: `cargo run --release -p sanderling-dnssec --example sign_speed -- [NAMES]`.
//!
//! The zone has an address for each name. It is signed with signatures that cost nothing and with ECDSA P-256; then one record changes.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use sanderling_dns::{Name, NameBuf, Rtype};
use sanderling_dnssec::sign::{KeyInUse, KeysInUse, SigningInput, SigningJob};
use sanderling_dnssec::{
    Algorithm, Denial, KeyRole, PublicKey, Record, Records, RecordsBuilder, SigningParameters, ZoneSigner, sign,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAME_COUNT: u32 = 1_000_000;
const TTL_S: u32 = 3600;

/// Signs, or returns bytes of the same length.
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

/// Names in a random order, as far as the zone file is concerned.
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
    for denial in [Denial::Nsec, Denial::Nsec3] {
        let first = run("signatures without cost", &records, None, denial, &mut Signer(None));
        run("one change", &changed, Some(&first), denial, &mut Signer(None));
    }
    run("ECDSA P-256", &records, None, Denial::Nsec, &mut Signer(Some(key)));
}
