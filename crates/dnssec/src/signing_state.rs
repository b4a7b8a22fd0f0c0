//! The stored signing state of a zone, other than its signed version.

use crate::key::KeyId;
use crate::zone_keys::ZoneKeys;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The number of the stored form. A program reads no other format.
const FORM: u32 = 1;

/// The state of the signing of a zone. The state is stored after each change, before any action that follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SigningState {
    #[serde(deserialize_with = "read_form")]
    form: u32,
    /// The keys.
    pub keys: ZoneKeys,
    /// The serial of the last version. The state keeps the serial so that serials do not go back if that version is
    /// removed or lost.
    pub serial: Option<u32>,
    /// Keys whose private keys must be erased. Until then, they must not be mistaken for new keys.
    pub keys_to_erase: Vec<KeyId>,
}

impl Default for SigningState {
    fn default() -> SigningState {
        SigningState { form: FORM, keys: ZoneKeys::default(), serial: None, keys_to_erase: Vec::new() }
    }
}

fn read_form<'d, D: Deserializer<'d>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        FORM => Ok(FORM),
        other => Err(D::Error::custom(format!("this program reads format {FORM}, not {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Algorithm, KeyRole};
    use crate::zone_keys::KeyRequest;

    #[test]
    fn state_is_read_as_it_was_stored_and_another_form_is_refused() {
        let mut state =
            SigningState { serial: Some(7), keys_to_erase: vec![KeyId([3; 32])], ..SigningState::default() };
        let request = KeyRequest { algorithm: Algorithm::Ed25519, role: KeyRole::Csk };
        state.keys.add_key(request, vec![9; 32], 1_800_000_000).expect("no other key");
        let text = serde_json::to_string(&state).expect("written");
        assert_eq!(serde_json::from_str::<SigningState>(&text).expect("read"), state);
        let later = text.replace("\"form\":1", "\"form\":2");
        let error = serde_json::from_str::<SigningState>(&later).expect_err("another form");
        assert!(error.to_string().contains("this program reads format 1, not 2"), "{error}");
        serde_json::from_str::<SigningState>(&text.replace("0303", "03")).expect_err("a short ID");
    }
}
