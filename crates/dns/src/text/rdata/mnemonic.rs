//! Mnemonics for numbers in the text of RDATA.

/// Names and their numbers. A number may have several names.
pub(crate) type Mnemonics = &'static [(&'static str, u16)];

/// The number of the name `text`, ignoring case.
pub(crate) fn number_of(mnemonics: Mnemonics, text: &[u8]) -> Option<u16> {
    mnemonics.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(text)).map(|&(_, number)| number)
}

/// Names with their numbers.
macro_rules! table {
    ($($name:literal $number:literal),* $(,)?) => { &[$(($name, $number)),*] };
}

/// DNSSEC algorithms (the IANA registry, and older names of BIND).
pub(crate) const ALGORITHMS: Mnemonics = table![
    "RSAMD5" 1, "DH" 2, "DSA" 3, "ECC" 4, "RSASHA1" 5, "DSA-NSEC3-SHA1" 6, "NSEC3DSA" 6, "RSASHA1-NSEC3-SHA1" 7,
    "NSEC3RSASHA1" 7, "RSASHA256" 8, "RSASHA512" 10, "ECC-GOST" 12, "ECCGOST" 12, "ECDSAP256SHA256" 13, "ECDSA256" 13,
    "ECDSAP384SHA384" 14, "ECDSA384" 14, "ED25519" 15, "ED448" 16, "INDIRECT" 252, "PRIVATEDNS" 253, "PRIVATEOID" 254,
];

/// Digest algorithms of DS records.
pub(crate) const DIGEST_TYPES: Mnemonics = table![
    "SHA-1" 1, "SHA1" 1, "SHA-256" 2, "SHA256" 2, "GOST" 3, "SHA-384" 4, "SHA384" 4,
];

/// Certificate types (RFC 4398 §2.1).
pub(crate) const CERTIFICATE_TYPES: Mnemonics = table![
    "PKIX" 1, "SPKI" 2, "PGP" 3, "IPKIX" 4, "ISPKI" 5, "IPGP" 6, "ACPKIX" 7, "IACPKIX" 8, "URI" 253, "OID" 254,
];

/// Schemes of DSYNC (RFC 9859 §2.1).
pub(crate) const DSYNC_SCHEMES: Mnemonics = table!["NOTIFY" 1];

/// DnsTransport protocols of WKS.
pub(crate) const PROTOCOLS: Mnemonics = table!["TCP" 6, "UDP" 17];

/// Common services of WKS (RFC 1035 §3.4.2, RFC 1010). Others are written as numbers.
pub(crate) const SERVICES: Mnemonics = table![
    "ECHO" 7, "DISCARD" 9, "SYSTAT" 11, "DAYTIME" 13, "NETSTAT" 15, "QOTD" 17, "CHARGEN" 19, "FTP-DATA" 20, "FTP" 21,
    "SSH" 22, "TELNET" 23, "SMTP" 25, "TIME" 37, "RLP" 39, "NAMESERVER" 42, "NICNAME" 43, "WHOIS" 43, "DOMAIN" 53,
    "BOOTPS" 67, "BOOTPC" 68, "TFTP" 69, "GOPHER" 70, "FINGER" 79, "HTTP" 80, "KERBEROS" 88, "HOSTNAMES" 101,
    "POP2" 109, "POP3" 110, "SUNRPC" 111, "AUTH" 113, "SFTP" 115, "UUCP-PATH" 117, "NNTP" 119, "NTP" 123, "IMAP" 143,
    "IMAP2" 143, "SNMP" 161, "LDAP" 389, "HTTPS" 443,
];
