//! Files of the state folder whose content is JSON.

use sanderling_state::StateFolder;
use serde::de::DeserializeOwned;

/// The content of the file `name` in the state folder, if there is one.
///
/// # Errors
/// Returns an error if the file cannot be read or is malformed.
pub(crate) fn read_json<T: DeserializeOwned>(state: &StateFolder, name: &str) -> Result<Option<T>, String> {
    let text = state.read(name).map_err(|error| error.to_string())?;
    let parsed = text.map(|text| serde_json::from_slice(&text)).transpose();
    parsed.map_err(|error| format!("cannot read {name}: {error}"))
}
