//! Session tickets: with the same keys, each process resumes sessions that another process has begun.

use crate::provider::library::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use crate::provider::library::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use std::fmt;

/// Bytes of a ticket key: its name, then the key of AES-256-GCM.
pub const TICKET_KEY_BYTES: usize = NAME_BYTES + 32;
/// The time in seconds for which a key is current, and after that previous: each key must be replaced after this time,
/// so that no ticket is valid for more than twice as long.
pub const TICKET_LIFETIME_S: u32 = 12 * 3600;
const NAME_BYTES: usize = 16;

/// The keys that encrypt the state of a session into a ticket, which the client keeps (RFC 5077 §4, RFC 8446 §4.6.1).
///
/// The keys are made elsewhere, from random bytes, and given to all processes. A rotation makes a new value, whose
/// previous key is this value's current key. With random nonces, a key may make 2^32 tickets (NIST SP 800-38D §8.3): a
/// hundred thousand per second while it is current.
pub struct TicketKeys {
    current: TicketKey,
    previous: Option<TicketKey>,
}

struct TicketKey {
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

impl TicketKeys {
    /// The key that makes tickets, and the previous key. The caller erases its own copy of the bytes.
    pub fn new(current: &[u8; TICKET_KEY_BYTES], previous: Option<&[u8; TICKET_KEY_BYTES]>) -> TicketKeys {
        TicketKeys { current: TicketKey::new(current), previous: previous.map(TicketKey::new) }
    }
}

impl TicketKey {
    fn new(bytes: &[u8; TICKET_KEY_BYTES]) -> TicketKey {
        let (name, key) = bytes.split_first_chunk().expect("the name is shorter");
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the rest has the length of a key");
        TicketKey { name: *name, key: LessSafeKey::new(key) }
    }

    /// The name, a nonce, the encrypted state and its tag.
    fn encrypt(&self, state: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME_BYTES + NONCE_LEN + state.len() + AES_256_GCM.tag_len());
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(state);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let in_place = &mut ticket[NAME_BYTES + NONCE_LEN..];
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(self.name), in_place).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    /// `None` if another key has made the ticket, or none.
    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let rest = ticket.strip_prefix(&self.name)?;
        let (nonce, encrypted) = rest.split_first_chunk()?;
        let mut state = encrypted.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, Aad::from(self.name), &mut state).ok()?.len();
        state.truncate(length);
        Some(state)
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_LIFETIME_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.current.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.current.decrypt(cipher).or_else(|| self.previous.as_ref()?.decrypt(cipher))
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; TICKET_KEY_BYTES] = [1; TICKET_KEY_BYTES];
    const B: [u8; TICKET_KEY_BYTES] = [2; TICKET_KEY_BYTES];
    const C: [u8; TICKET_KEY_BYTES] = [3; TICKET_KEY_BYTES];

    #[test]
    fn ticket_is_valid_under_the_current_and_the_previous_key() {
        let ticket = TicketKeys::new(&A, None).encrypt(b"state").expect("random numbers");
        let decrypted = |keys: TicketKeys| keys.decrypt(&ticket);
        assert_eq!(decrypted(TicketKeys::new(&A, None)).as_deref(), Some(&b"state"[..]));
        assert_eq!(decrypted(TicketKeys::new(&B, Some(&A))).as_deref(), Some(&b"state"[..]));
        assert_eq!(decrypted(TicketKeys::new(&C, Some(&B))), None);
    }

    #[test]
    fn changed_or_cut_ticket_is_invalid() {
        let keys = TicketKeys::new(&A, Some(&B));
        let ticket = keys.encrypt(b"state").expect("random numbers");
        for index in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[index] ^= 1;
            assert_eq!(keys.decrypt(&changed), None, "byte {index}");
            assert_eq!(keys.decrypt(&ticket[..index]), None, "{index} bytes");
        }
    }

    #[test]
    fn tickets_of_one_state_differ() {
        let keys = TicketKeys::new(&A, None);
        assert_ne!(keys.encrypt(b"state"), keys.encrypt(b"state"));
    }
}
