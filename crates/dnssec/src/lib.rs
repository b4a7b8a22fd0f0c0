//! Signs zones (RFC 4034, RFC 4035, RFC 5155), and decides when their keys are introduced and removed (RFC 7583).
//!
//! The crate does no I/O, reads no clock, and never has a private key: a [`ZoneSigner`] makes the signatures.
//!
//! ```text
//! RecordsBuilder → Records        the unsigned records, and the previous signed version; Records → ZoneVersion
//! Records + KeysInUse + SigningParameters + ZoneSigner → sign → SignedZone
//! ZoneVersion + RecordChanges + KeysInUse + SigningParameters + ZoneSigner → sign_change → SignedChange, and the next ZoneVersion
//! ZoneKeys + what name servers and parent answer → ZoneKeys::advance → keys to make and to erase, ZoneKeys::keys_in_use
//! ```
#![forbid(unsafe_code)]

// Modules are in import order: a module uses only modules below it.
pub mod signing_state;
pub mod zone_keys;
pub mod sign;
pub mod zonemd;
pub mod signing_input;
mod zone_version;
pub mod records;
mod denial;
mod canonical;
pub mod key;
#[cfg(test)]
mod testing;

pub use key::{Algorithm, Ds, KeyId, KeyRole, PublicKey};
pub use records::{Record, Records, RecordsBuilder};
pub use sign::{Denial, SerialPolicy, SignError, SignedZone, SigningParameters, ZoneSigner, sign, sign_change};
pub use signing_state::SigningState;
pub use zone_keys::{KeyLayout, KeyPolicy, ZoneKeys};
pub use zone_version::ZoneVersion;
