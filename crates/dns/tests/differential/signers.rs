//! Signs generated zones with the programs of BIND, ldns and Knot.

use crate::support::zone_text::texts_of_zones;
use sanderling_dns::Name;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a zone is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signing {
    program: Signer,
    chain: Chain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signer {
    Bind,
    Ldns,
    Knot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    Nsec,
    Nsec3,
    OptOut,
}

/// Each zone in `text`, signed by one of the programs after another. A zone that its program refuses is left out.
pub(crate) fn signed(text: &str) -> String {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("signers-{}", std::process::id()));
    let mut signed = String::new();
    let (mut signed_count, mut refused_count) = (0, 0);
    for (index, (apex, text)) in texts_of_zones(text).into_iter().enumerate() {
        let program = [Signer::Bind, Signer::Ldns, Signer::Knot][index % 3];
        let chain = [Chain::Nsec, Chain::Nsec3, Chain::OptOut][index / 3 % 3];
        let apex = Name::parse(&apex).expect("an apex").to_string();
        match (Signing { program, chain }).sign(&apex, text, &home.join(index.to_string())) {
            Some(text) => {
                signed += &format!("$ORIGIN {apex}\n$TTL 300\n{text}");
                signed_count += 1;
            }
            None => refused_count += 1,
        }
    }
    println!("{signed_count} signed zones, {refused_count} refused by their signer");
    let _ = std::fs::remove_dir_all(&home);
    signed
}

impl Signing {
    /// The text of a zone with signatures; `None` if the program refuses it.
    fn sign(self, apex: &str, text: &str, home: &Path) -> Option<String> {
        std::fs::create_dir_all(home.join("out")).expect("the directory for tests can be written to");
        std::fs::write(home.join("zone"), text).expect("the directory can be written to");
        let signed = match self.program {
            Signer::Bind => self.sign_with_bind(apex, home),
            Signer::Ldns => self.sign_with_ldns(apex, home),
            Signer::Knot => self.sign_with_knot(apex, home),
        }?;
        let text = std::fs::read_to_string(signed).expect("the program has written it");
        Some(text.lines().filter(|line| !line.starts_with(';')).map(|line| format!("{line}\n")).collect())
    }

    fn sign_with_bind(self, apex: &str, home: &Path) -> Option<PathBuf> {
        let key = run(home, "dnssec-keygen", &["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", apex])?;
        let key = key.trim();
        let with_key = format!("{}\n$INCLUDE {key}.key\n", read(home, "zone"));
        std::fs::write(home.join("zone"), with_key).expect("the directory can be written to");
        let mut arguments = vec!["-q", "-P", "-z", "-O", "full", "-o", apex, "-f", "signed"];
        arguments.extend(match self.chain {
            Chain::Nsec => &[][..],
            Chain::Nsec3 => &["-3", "-", "-H", "0"],
            Chain::OptOut => &["-3", "-", "-H", "0", "-A"],
        });
        run(home, "dnssec-signzone", &[&arguments[..], &["zone", key]].concat())?;
        Some(home.join("signed"))
    }

    fn sign_with_ldns(self, apex: &str, home: &Path) -> Option<PathBuf> {
        let key = run(home, "ldns-keygen", &["-a", "ECDSAP256SHA256", "-k", apex.trim_end_matches('.')])?;
        let mut arguments = vec!["-o", apex, "-f", "signed"];
        arguments.extend(match self.chain {
            Chain::Nsec => &[][..],
            Chain::Nsec3 => &["-n", "-t", "0"],
            Chain::OptOut => &["-n", "-t", "0", "-p"],
        });
        run(home, "ldns-signzone", &[&arguments[..], &["zone", key.trim()]].concat())?;
        Some(home.join("signed"))
    }

    fn sign_with_knot(self, apex: &str, home: &Path) -> Option<PathBuf> {
        let on = |is_on| if is_on { "on" } else { "off" };
        let config = format!(
            "server:\n  rundir: {home}\ndatabase:\n  storage: {home}\npolicy:\n  - id: p\n    \
             algorithm: ECDSAP256SHA256\n    single-type-signing: on\n    nsec3: {}\n    nsec3-opt-out: {}\n    \
             nsec3-salt-length: 0\n    nsec3-iterations: 0\n\
             zone:\n  - domain: {apex}\n    file: {home}/zone\n    dnssec-signing: on\n    dnssec-policy: p\n",
            on(self.chain != Chain::Nsec),
            on(self.chain == Chain::OptOut),
            home = home.display(),
        );
        std::fs::write(home.join("config"), config).expect("the directory can be written to");
        run(home, "kzonesign", &["-c", "config", "-o", "out", apex])?;
        Some(home.join("out/zone"))
    }
}

fn read(home: &Path, name: &str) -> String {
    std::fs::read_to_string(home.join(name)).expect("it was written before")
}

/// The output of a command, if it succeeds.
fn run(home: &Path, program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(home).output();
    let output = output.unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    output.status.success().then(|| String::from_utf8(output.stdout).expect("text"))
}
