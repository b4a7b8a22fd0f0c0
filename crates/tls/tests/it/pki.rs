//! Certificates of a test authority, made by OpenSSL.

use sanderling_testkit::{TestDirectory, run_program};
use std::fs;
use std::sync::OnceLock;

/// Files of one folder. Certificates: `root`, `intermediate`, and of servers `ecdsa`, `rsa`, `other`.
pub(crate) struct Pki(TestDirectory);

/// The certificates of this process.
pub(crate) fn pki() -> &'static Pki {
    static PKI: OnceLock<Pki> = OnceLock::new();
    PKI.get_or_init(Pki::new)
}

impl Pki {
    fn new() -> Pki {
        let pki = Pki(TestDirectory::with(&[("config", b"[req]\ndistinguished_name = dn\n[dn]\n")]));
        pki.openssl("ecparam -genkey -name prime256v1 -out root.key");
        pki.openssl("ecparam -genkey -name prime256v1 -out intermediate.key");
        // SEC1 with parameters before it, PKCS#1 and PKCS#8.
        pki.openssl("ecparam -genkey -name prime256v1 -out ecdsa.key");
        pki.openssl("genrsa -traditional -out rsa.key 2048");
        pki.openssl("genpkey -algorithm ed25519 -out ed25519.key");
        pki.openssl("pkcs8 -topk8 -nocrypt -in ecdsa.key -out other.key");
        for name in ["unnamed", "unusable", "partly-unusable", "for-clients", "for-any", "must-staple", "sha1"] {
            pki.openssl(&format!("pkcs8 -topk8 -nocrypt -in ecdsa.key -out {name}.key"));
        }
        pki.openssl("pkcs8 -topk8 -in ecdsa.key -passout pass:secret -out encrypted.key");
        pki.openssl("ec -in ecdsa.key -aes128 -passout pass:secret -out encrypted-sec1.key");
        pki.openssl("ecparam -genkey -name secp521r1 -out p521.key");
        pki.openssl("genrsa -traditional -out short.key 1024");
        pki.openssl("pkey -in ecdsa.key -outform der -out der.key");
        pki.openssl("ecparam -genkey -name secp256k1 -out secp256k1.key");
        pki.openssl("pkcs8 -topk8 -nocrypt -in secp256k1.key -out secp256k1-pkcs8.key");
        pki.openssl("pkcs8 -topk8 -nocrypt -in short.key -out short-pkcs8.key");
        pki.openssl("pkey -in ecdsa.key -pubout -out public.key");
        let names = "example.com,DNS:*.example.com,DNS:example.org";
        pki.certificate("root", None, "basicConstraints=critical,CA:TRUE");
        pki.certificate("intermediate", Some("root"), "basicConstraints=critical,CA:TRUE");
        pki.certificate("ecdsa", Some("intermediate"), &format!("subjectAltName=DNS:{names}"));
        pki.certificate("rsa", Some("intermediate"), &format!("subjectAltName=DNS:{names}"));
        pki.certificate("ed25519", Some("intermediate"), &format!("subjectAltName=DNS:{names}"));
        pki.certificate("other", Some("intermediate"), "subjectAltName=DNS:other.example.com,IP:192.0.2.1");
        pki.certificate("p521", Some("intermediate"), &format!("subjectAltName=DNS:{names}"));
        pki.certificate("unnamed", Some("intermediate"), "keyUsage=digitalSignature");
        let unusable = "DNS:*.test,DNS:Ex.test.,email:a@example.com,URI:https://example.com/";
        pki.certificate("unusable", Some("intermediate"), &format!("subjectAltName={unusable}"));
        pki.certificate("partly-unusable", Some("intermediate"), "subjectAltName=DNS:example.com,DNS:example.org.");
        let with_name = |extension: &str| format!("subjectAltName=DNS:{names} {extension}");
        let clients = with_name("-addext extendedKeyUsage=clientAuth,emailProtection");
        pki.certificate("for-clients", Some("intermediate"), &clients);
        let any = with_name("-addext extendedKeyUsage=clientAuth,anyExtendedKeyUsage");
        pki.certificate("for-any", Some("intermediate"), &any);
        pki.certificate("must-staple", Some("intermediate"), &with_name("-addext tlsfeature=status_request"));
        pki.certificate("sha1", Some("intermediate"), &with_name("-sha1"));
        let config = pki.0.argument("config");
        pki.openssl(&format!("req -new -config {config} -subj /CN=request -key ecdsa.key -out request.pem"));
        pki.openssl("x509 -in ecdsa.pem -outform der -out der.pem");
        pki.openssl("x509 -in other.pem -outform der -out other-der.pem");
        pki.openssl("pkcs12 -export -in ecdsa.pem -inkey ecdsa.key -passout pass:secret -out pkcs12.pem");
        pki.openssl("crl2pkcs7 -nocrl -certfile ecdsa.pem -out pkcs7.pem");
        pki
    }

    fn openssl(&self, arguments: &str) {
        let in_folder = |word: &str| match word.rsplit_once('.') {
            Some((_, "key" | "pem")) => self.0.argument(word),
            _ => word.to_owned(),
        };
        let arguments: Vec<String> = arguments.split(' ').map(in_folder).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = run_program("openssl", "openssl", &arguments);
        assert!(ended.status.success(), "openssl {arguments:?}: {ended}");
    }

    fn certificate(&self, name: &str, issuer: Option<&str>, extension: &str) {
        let config = self.0.argument("config");
        let by = issuer.map_or(String::new(), |issuer| format!(" -CA {issuer}.pem -CAkey {issuer}.key"));
        self.openssl(&format!(
            "req -x509 -config {config} -subj /CN=Test-{name} -days 10 -addext {extension} -key {name}.key{by} \
             -out {name}.pem"
        ));
    }

    pub(crate) fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).unwrap()
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.0.argument(file)
    }

    /// These certificates one after another.
    pub(crate) fn chain(&self, names: &[&str]) -> Vec<u8> {
        names.iter().flat_map(|name| self.read(&format!("{name}.pem"))).collect()
    }
}
