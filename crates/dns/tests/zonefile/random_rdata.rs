//! Random well-formed RDATA of any type, from a seed and the table of fields.

use sanderling_dns::Rtype;
use sanderling_dns::rdata::{self, FieldKind};

/// Well-formed RDATA of `rtype`.
pub(super) fn random_rdata(rtype: Rtype, seed: u64) -> Vec<u8> {
    let mut random = Random(fastrand::Rng::with_seed(seed));
    let mut rdata = vec![];
    match rdata::fields(rtype) {
        Some(fields) => fields.iter().for_each(|field| random.field(field.kind, &mut rdata)),
        None => random.bytes(seed as usize % 300, &mut rdata),
    }
    rdata
}

struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    fn bytes(&mut self, count: usize, out: &mut Vec<u8>) {
        out.extend((0..count).map(|_| self.byte()));
    }

    /// Appends one to `count_max` times `unit_bytes` bytes.
    fn some_bytes(&mut self, unit_bytes: usize, count_max: usize, out: &mut Vec<u8>) {
        let count = 1 + self.below(count_max);
        self.bytes(unit_bytes * count, out);
    }

    fn string(&mut self, length_max: usize, out: &mut Vec<u8>) {
        let length = self.below(length_max + 1);
        out.push(length as u8);
        self.bytes(length, out);
    }

    fn name(&mut self, out: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let length = 1 + self.below(63);
            out.push(length as u8);
            self.bytes(length, out);
        }
        out.push(0);
    }

    fn bitmap(&mut self, out: &mut Vec<u8>) {
        let mut window = self.below(3);
        while window < 256 {
            let length = 1 + self.below(32);
            out.extend([window as u8, length as u8]);
            self.bytes(length - 1, out);
            out.push(1 + self.below(255) as u8);
            window += 1 + self.below(200);
        }
    }

    fn prefixes(&mut self, out: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let (family, length_max, bits_max) = if self.below(2) == 0 { (1, 4, 32) } else { (2, 16, 128) };
            let length = self.below(length_max + 1);
            let negation = self.below(2) << 7;
            out.extend([0, family, self.below(bits_max + 1) as u8, (negation | length) as u8]);
            if length > 0 {
                self.bytes(length - 1, out);
                out.push(1 + self.below(255) as u8);
            }
        }
    }

    fn params(&mut self, out: &mut Vec<u8>) {
        let mut values: Vec<(u16, Vec<u8>)> = vec![];
        for key in [1, 2, 3, 4, 5, 6, 7, 8, 9, 667, 65_534] {
            if self.below(2) == 0 {
                continue;
            }
            let mut value = vec![];
            match key {
                1 => (0..=self.below(3)).for_each(|_| {
                    let length = 1 + self.below(20);
                    value.push(length as u8);
                    self.bytes(length, &mut value);
                }),
                2 if !values.iter().any(|(other, _)| *other == 1) => continue,
                2 | 8 => {}
                3 => self.bytes(2, &mut value),
                4 => self.some_bytes(4, 3, &mut value),
                5 => self.some_bytes(1, 40, &mut value),
                6 => self.some_bytes(16, 3, &mut value),
                7 => value.extend("/ü\"{?dns}".bytes()),
                _ if self.below(3) == 0 => {}
                _ => self.some_bytes(1, 30, &mut value),
            }
            values.push((key, value));
        }
        if !values.is_empty() && self.below(2) == 0 {
            values.insert(0, (0, values.iter().flat_map(|(key, _)| key.to_be_bytes()).collect()));
        }
        for (key, value) in values {
            out.extend(key.to_be_bytes());
            out.extend((value.len() as u16).to_be_bytes());
            out.extend(value);
        }
    }

    /// What a gateway or a relay of `host_type` is.
    fn host(&mut self, host_type: usize, out: &mut Vec<u8>) {
        match host_type {
            0 => {}
            1 => self.bytes(4, out),
            2 => self.bytes(16, out),
            _ => self.name(out),
        }
    }

    fn location(&mut self, out: &mut Vec<u8>) {
        out.push(0);
        for _ in 0..3 {
            out.push(if self.below(5) == 0 { 0 } else { (1 + self.below(9)) as u8 * 16 + self.below(10) as u8 });
        }
        for degrees in [90, 180] {
            let angle = self.below(2 * degrees * 3_600_000 + 1) as u32;
            out.extend((angle + (1 << 31) - degrees as u32 * 3_600_000).to_be_bytes());
        }
        self.bytes(4, out);
    }

    /// A right field of `kind`, behind what `out` has already.
    fn field(&mut self, kind: FieldKind, out: &mut Vec<u8>) {
        let digest_bytes = |known: &[usize], out: &[u8]| match out.last() {
            Some(&number) if (1..=known.len()).contains(&usize::from(number)) => known[usize::from(number) - 1],
            _ => 20,
        };
        match kind {
            FieldKind::U8 | FieldKind::DigestType => out.push(self.below(8) as u8),
            FieldKind::Algorithm | FieldKind::Scheme => out.push(self.byte()),
            FieldKind::U16 | FieldKind::Rtype | FieldKind::CertificateType => self.bytes(2, out),
            FieldKind::U32 | FieldKind::Duration | FieldKind::Timestamp | FieldKind::Ipv4 => self.bytes(4, out),
            FieldKind::U64 | FieldKind::Locator | FieldKind::Eui64 => self.bytes(8, out),
            FieldKind::Eui48 => self.bytes(6, out),
            FieldKind::Ipv6 => self.bytes(16, out),
            FieldKind::Name => self.name(out),
            FieldKind::String | FieldKind::Salt => self.string(255, out),
            FieldKind::Digits => out.extend(b"\x0a0123456789"),
            FieldKind::Coordinate => out.extend(b"\x06-12.34"),
            FieldKind::Tag => out.extend(b"\x05issue"),
            FieldKind::OptionalString if self.below(2) == 0 => {}
            FieldKind::OptionalString => self.string(255, out),
            FieldKind::Strings => (0..=self.below(4)).for_each(|_| self.string(255, out)),
            FieldKind::RestAsString | FieldKind::OptionalBase64 | FieldKind::DashBase64 if self.below(4) == 0 => {}
            FieldKind::RestAsString | FieldKind::OptionalBase64 | FieldKind::DashBase64 => self.some_bytes(1, 70, out),
            FieldKind::Hex | FieldKind::Base64 | FieldKind::Nsap => self.some_bytes(1, 70, out),
            FieldKind::DsDigest => self.bytes(digest_bytes(&[20, 32, 32, 48], out), out),
            FieldKind::Fingerprint => self.bytes(digest_bytes(&[20, 32], out), out),
            FieldKind::ZoneDigest => self.bytes(digest_bytes(&[48, 64], out), out),
            FieldKind::HashedName => {
                let length = 1 + self.below(255);
                out.push(length as u8);
                self.bytes(length, out);
            }
            FieldKind::Bitmap => self.bitmap(out),
            FieldKind::Services => {
                self.some_bytes(1, 40, out);
                out.push(1);
            }
            FieldKind::Location => self.location(out),
            FieldKind::Prefixes => self.prefixes(out),
            FieldKind::Gateway => {
                let host_type = self.below(4);
                out.extend([host_type as u8, self.byte()]);
                self.host(host_type, out);
            }
            FieldKind::Relay => {
                let host_type = self.below(4);
                out.push((host_type + (self.below(2) << 7)) as u8);
                self.host(host_type, out);
            }
            FieldKind::HostIdentity => {
                let (tag, key) = (1 + self.below(255), 1 + self.below(300));
                out.extend([tag as u8, self.byte(), (key >> 8) as u8, key as u8]);
                self.bytes(tag + key, out);
            }
            FieldKind::Names => (0..self.below(4)).for_each(|_| self.name(out)),
            FieldKind::SvcParams => self.params(out),
        }
    }
}
