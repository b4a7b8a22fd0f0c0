//! DNS cookies (RFC 7873) in the form that servers share (RFC 9018).

use core::hash::Hasher;
use core::net::IpAddr;
use siphasher::sip::SipHasher24;

/// Bytes of a client cookie (RFC 7873 §4).
pub(crate) const CLIENT_COOKIE_BYTES: usize = 8;
/// Bytes of a client cookie and a server cookie (RFC 9018 §4).
pub(crate) const COOKIE_BYTES: usize = CLIENT_COOKIE_BYTES + 16;
/// Bytes of a server cookie of any server (RFC 7873 §4).
pub(crate) const SERVER_COOKIE_BYTES: core::ops::RangeInclusive<usize> = 8..=32;
/// The version of the form, and reserved bytes (RFC 9018 §4.1, §4.2).
const VERSION_1: [u8; 4] = [1, 0, 0, 0];
/// The age above which a server cookie is replaced by a new one (RFC 9018 §4.3).
const RENEWED_AFTER_S: u32 = 30 * 60;
/// The age above which a server cookie is invalid (RFC 9018 §4.3).
const VALID_FOR_S: u32 = 60 * 60;
/// Maximum time in seconds that the clock of the server that made a cookie may be ahead (RFC 9018 §4.3).
const AHEAD_S: u32 = 5 * 60;

/// The secrets of server cookies. Servers with the same secrets accept each other's cookies.
#[derive(Clone)]
pub struct CookieSecrets {
    /// Makes new cookies.
    pub current: [u8; 16],
    /// The previous secret, whose cookies are still accepted.
    pub previous: Option<[u8; 16]>,
}

impl core::fmt::Debug for CookieSecrets {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The secrets do not get into logs.
        out.write_str("CookieSecrets")
    }
}

impl CookieSecrets {
    /// The cookie for the reply to a query with `cookie`, a client cookie with or without a server cookie: the same, if
    /// it is valid and not old, else a new one.
    pub(crate) fn reply_cookie(
        &self,
        client_cookie: &[u8; CLIENT_COOKIE_BYTES],
        cookie: &[u8],
        client: IpAddr,
        now_s: u32,
    ) -> [u8; COOKIE_BYTES] {
        match <[u8; COOKIE_BYTES]>::try_from(cookie) {
            Ok(cookie) if self.age_s(&cookie, client, now_s).is_some_and(|age_s| age_s < RENEWED_AFTER_S) => cookie,
            _ => make(&self.current, client_cookie, client, now_s),
        }
    }

    /// Whether `cookie`, a client cookie with or without a server cookie, was made for `client`.
    pub(crate) fn is_valid(&self, cookie: &[u8], client: IpAddr, now_s: u32) -> bool {
        cookie.try_into().is_ok_and(|cookie| self.age_s(&cookie, client, now_s).is_some())
    }

    /// The age of a valid cookie, 0 if its server's clock is ahead.
    fn age_s(&self, cookie: &[u8; COOKIE_BYTES], client: IpAddr, now_s: u32) -> Option<u32> {
        let (client_cookie, rest) = cookie.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        let time_s = u32::from_be_bytes(*rest.first_chunk()?);
        // RFC 9018 §4.3: serial number arithmetic.
        let age_s = now_s.wrapping_sub(time_s);
        let is_in_time = age_s < VALID_FOR_S || age_s.wrapping_neg() <= AHEAD_S;
        let is_made_with = |secret| is_same(&make(secret, client_cookie, client, time_s), cookie);
        let is_valid = *version == VERSION_1
            && is_in_time
            && [Some(&self.current), self.previous.as_ref()].into_iter().flatten().any(is_made_with);
        is_valid.then_some(if age_s < VALID_FOR_S { age_s } else { 0 })
    }
}

/// The client cookie and the server cookie for it (RFC 9018 §4).
fn make(
    secret: &[u8; 16],
    client_cookie: &[u8; CLIENT_COOKIE_BYTES],
    client: IpAddr,
    time_s: u32,
) -> [u8; COOKIE_BYTES] {
    let mut cookie = [0; COOKIE_BYTES];
    cookie[..8].copy_from_slice(client_cookie);
    cookie[8..12].copy_from_slice(&VERSION_1);
    cookie[12..16].copy_from_slice(&time_s.to_be_bytes());
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(&cookie[..16]);
    match client {
        IpAddr::V4(address) => hasher.write(&address.to_bits().to_be_bytes()),
        IpAddr::V6(address) => hasher.write(&address.to_bits().to_be_bytes()),
    }
    cookie[16..].copy_from_slice(&hasher.finish().to_le_bytes());
    cookie
}

/// Compares in a time that does not depend on the bytes, so that a client cannot find a cookie byte by byte.
fn is_same(left: &[u8; COOKIE_BYTES], right: &[u8; COOKIE_BYTES]) -> bool {
    left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 16] = 0xe5e9_73e5_a6b2_a43f_48e7_dc84_9e37_bfcf_u128.to_be_bytes();
    const CLIENT_COOKIE: [u8; 8] = 0x2464_c4ab_cf10_c957_u64.to_be_bytes();
    const TIME_S: u32 = 1_559_731_985;

    fn client() -> IpAddr {
        [198, 51, 100, 100].into()
    }

    fn secrets(current: [u8; 16], previous: Option<[u8; 16]>) -> CookieSecrets {
        CookieSecrets { current, previous }
    }

    #[test]
    fn new_cookie_is_that_of_rfc_9018_appendix_a_1() {
        let cookie = secrets(SECRET, None).reply_cookie(&CLIENT_COOKIE, &CLIENT_COOKIE, client(), TIME_S);
        let server_cookie = 0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9480_u128.to_be_bytes();
        assert_eq!(cookie, [&CLIENT_COOKIE[..], &server_cookie].concat()[..]);
    }

    #[test]
    fn cookie_over_ipv6_after_a_rollover_is_that_of_rfc_9018_appendix_a_4() {
        let old = 0xdd3b_df93_44b6_78b1_85a6_f5cb_60fc_a715_u128.to_be_bytes();
        let new = 0x4455_36bc_d251_3298_075a_5d37_9663_c962_u128.to_be_bytes();
        let client_cookie = 0x2268_1ab9_7d52_c298_u64.to_be_bytes();
        let client: core::net::IpAddr = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().expect("an address");
        let sent = 0x0100_0000_5cf7_c579_2655_6bd0_934c_72f8_u128.to_be_bytes();
        let sent = [&client_cookie[..], &sent].concat();
        let after_the_rollover = secrets(new, Some(old));
        let is_valid = after_the_rollover.age_s(&sent.as_slice().try_into().expect("24 bytes"), client, 1_559_741_961);
        assert_eq!(is_valid, Some(1_559_741_961 - 0x5cf7_c579));
        let renewed = make(&new, &client_cookie, client, 0x5cf7_c609);
        let expected = 0x0100_0000_5cf7_c609_a6bb_79d1_6625_507a_u128.to_be_bytes();
        assert_eq!(renewed, [&client_cookie[..], &expected].concat()[..]);
    }

    #[test]
    fn valid_cookie_is_kept_for_half_an_hour() {
        let secrets = secrets(SECRET, None);
        let cookie = make(&SECRET, &CLIENT_COOKIE, client(), TIME_S);
        let reply = |now_s| secrets.reply_cookie(&CLIENT_COOKIE, &cookie, client(), now_s);
        for now_s in [TIME_S, TIME_S + RENEWED_AFTER_S - 1, TIME_S - AHEAD_S] {
            assert_eq!(reply(now_s), cookie, "{now_s}");
        }
        for now_s in [TIME_S + RENEWED_AFTER_S, TIME_S - AHEAD_S - 1, TIME_S + VALID_FOR_S] {
            assert_eq!(reply(now_s), make(&SECRET, &CLIENT_COOKIE, client(), now_s), "{now_s}");
        }
    }

    #[test]
    fn cookie_of_another_client_or_secret_is_invalid() {
        let cookie = make(&SECRET, &CLIENT_COOKIE, client(), TIME_S);
        let age_s = |secrets: &CookieSecrets, client: IpAddr, cookie: &[u8; COOKIE_BYTES]| {
            secrets.age_s(cookie, client, TIME_S + 7)
        };
        assert_eq!(age_s(&secrets(SECRET, None), client(), &cookie), Some(7));
        assert_eq!(age_s(&secrets([1; 16], Some(SECRET)), client(), &cookie), Some(7));
        assert_eq!(age_s(&secrets([1; 16], None), client(), &cookie), None);
        assert_eq!(age_s(&secrets(SECRET, None), [198, 51, 100, 101].into(), &cookie), None);
        for at in 0..COOKIE_BYTES {
            let mut other = cookie;
            other[at] ^= 1;
            assert_eq!(age_s(&secrets(SECRET, None), client(), &other), None, "byte {at}");
        }
    }
}
