//! The signatures of the received updates, until they expire: a message that its client or an attacker sends again is
//! not carried out again. Other processes do not know them.

use sanderling_dns::update::{UpdateRefusal, UpdateResult, UpdateSignature};
use std::collections::{BTreeSet, HashMap};

/// The received updates.
#[derive(Debug)]
pub(crate) struct ReceivedUpdates {
    by_mac: HashMap<MacStart, State>,
    by_expiry: BTreeSet<(u64, MacStart)>,
    count_max: usize,
}

/// The first bytes of a whole MAC.
type MacStart = [u8; UpdateSignature::MAC_BYTES];

/// The state of a received update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is being carried out, and is answered then.
    Pending,
    /// It was answered so.
    Answered(UpdateResult),
}

impl ReceivedUpdates {
    /// Beyond `count_max`, those that expire first are forgotten.
    pub(crate) fn new(count_max: usize) -> ReceivedUpdates {
        ReceivedUpdates { by_mac: HashMap::new(), by_expiry: BTreeSet::new(), count_max }
    }

    /// Notes an update to carry out. Returns its state if it was received before.
    pub(crate) fn receive(&mut self, signature: &UpdateSignature, now_unix_s: u64) -> Option<State> {
        while let Some(&(expires_at, mac)) = self.by_expiry.first()
            && (expires_at < now_unix_s || self.by_mac.len() > self.count_max)
        {
            self.by_expiry.pop_first();
            self.by_mac.remove(&mac);
        }
        if let Some(state) = self.by_mac.get(&signature.mac) {
            return Some(*state);
        }
        self.by_mac.insert(signature.mac, State::Pending);
        self.by_expiry.insert((signature.expires_at_unix_s, signature.mac));
        None
    }

    /// Notes how an update is answered. One that was not carried out may be sent again.
    pub(crate) fn answer(&mut self, signature: &UpdateSignature, result: UpdateResult) {
        if result == UpdateResult::Refused(UpdateRefusal::Failed) {
            self.by_mac.remove(&signature.mac);
            self.by_expiry.remove(&(signature.expires_at_unix_s, signature.mac));
        } else if let Some(state) = self.by_mac.get_mut(&signature.mac) {
            *state = State::Answered(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(number: u8, expires_at_unix_s: u64) -> UpdateSignature {
        UpdateSignature { mac: [number; UpdateSignature::MAC_BYTES], expires_at_unix_s, fudge_s: 300 }
    }

    #[test]
    fn update_is_known_until_its_signature_expires() {
        let mut received = ReceivedUpdates::new(10);
        let one = signature(1, 300);
        assert_eq!(received.receive(&one, 0), None);
        assert_eq!(received.receive(&one, 0), Some(State::Pending));
        received.answer(&one, UpdateResult::Done);
        assert_eq!(received.receive(&one, 300), Some(State::Answered(UpdateResult::Done)));
        assert_eq!(received.receive(&signature(2, 900), 300), None);
        // Its signature is refused from now on.
        assert_eq!((received.receive(&signature(2, 900), 301), received.by_mac.len()), (Some(State::Pending), 1));
        // A prerequisite that does not hold now may hold later.
        let refused = UpdateResult::Refused(UpdateRefusal::NoRrset);
        received.answer(&signature(2, 900), refused);
        assert_eq!(received.receive(&signature(2, 900), 302), Some(State::Answered(refused)));
    }

    #[test]
    fn update_that_could_not_be_carried_out_may_be_sent_again() {
        let mut received = ReceivedUpdates::new(10);
        assert_eq!(received.receive(&signature(1, 300), 0), None);
        received.answer(&signature(1, 300), UpdateResult::Refused(UpdateRefusal::Failed));
        assert_eq!((received.by_mac.len(), received.by_expiry.len()), (0, 0));
        assert_eq!(received.receive(&signature(1, 300), 0), None);
    }

    #[test]
    fn number_of_updates_is_bounded() {
        let mut received = ReceivedUpdates::new(10);
        for number in 0..100 {
            assert_eq!(received.receive(&signature(number, 1_000 + u64::from(number)), 0), None);
            assert!(received.by_mac.len() <= 11 && received.by_mac.len() == received.by_expiry.len());
        }
        assert_eq!(received.receive(&signature(99, 1_099), 0), Some(State::Pending));
        assert_eq!(received.receive(&signature(0, 1_000), 0), None);
    }
}
