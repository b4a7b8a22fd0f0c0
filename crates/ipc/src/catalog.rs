//! The zones of catalogs, in a file of the state folder: the agent writes it, and the server process serves the listed
//! zones.

use serde::{Deserialize, Serialize};
use std::io;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberList {
    /// The zones, each once, in the order of their names.
    pub members: Vec<ListedMember>,
    /// Removed zones, whose files may still exist.
    pub removed: Vec<String>,
}

/// A zone that a catalog has brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedMember {
    /// The zone's name.
    pub zone: String,
    /// The catalog that the zone belongs to.
    pub catalog: String,
    /// The label of its node there, in lower case and with escapes.
    pub label: String,
    /// The member's groups.
    pub groups: Vec<String>,
}

impl MemberList {
    /// Encodes the list.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a list has no map")
    }

    /// Reads the output of [`MemberList::encode`].
    ///
    /// # Errors
    /// Returns an error if the content is malformed.
    pub fn decode(content: &[u8]) -> io::Result<MemberList> {
        Ok(serde_json::from_slice(content)?)
    }
}
