//! The state of a TSIG key, for `status` and metrics.

use serde::Serialize;

/// A key's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TsigKeyState {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) secret: SecretInService,
}

/// The secret that a TSIG key signs with, and the reason if it differs from the secret in its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum SecretInService {
    /// The key in its file.
    Current,
    /// The last good one.
    LastGood { problem: String },
    /// None: messages signed with the key are refused.
    None { problem: String },
}

impl TsigKeyState {
    /// Why the secret in its file is not in service.
    pub(crate) fn problem(&self) -> Option<&str> {
        match &self.secret {
            SecretInService::Current => None,
            SecretInService::LastGood { problem } | SecretInService::None { problem } => Some(problem),
        }
    }

    /// The line of `status` without the key's name.
    pub(crate) fn text(&self) -> String {
        match &self.secret {
            SecretInService::Current => "in service".to_owned(),
            SecretInService::LastGood { problem } => format!("the last good secret is in service; ERROR: {problem}"),
            SecretInService::None { problem } => {
                format!("UNAVAILABLE, messages signed with it are refused; ERROR: {problem}")
            }
        }
    }
}
