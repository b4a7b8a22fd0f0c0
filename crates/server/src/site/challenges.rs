//! Answers to certificate authorities, which ask the web site for a value that only its server can know (RFC 8555
//! §8.3).

use std::collections::HashMap;

/// The directory in which a certificate authority looks for a token, without encryption.
pub(crate) const ACME_CHALLENGES: &[u8] = b".well-known/acme-challenge";

/// The content for each token that an authority may ask for. It is not part of any site: the token cannot be guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenges {
    by_token: HashMap<Vec<u8>, Vec<u8>>,
}

impl Challenges {
    /// The content at the path `path`, which has no slash at its start.
    pub(crate) fn find(&self, path: &[u8]) -> Option<&[u8]> {
        let token = path.strip_prefix(ACME_CHALLENGES)?.strip_prefix(b"/")?;
        self.by_token.get(token).map(Vec::as_slice)
    }
}

impl FromIterator<(String, String)> for Challenges {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(tokens: I) -> Challenges {
        let by_token = tokens.into_iter().map(|(token, content)| (token.into_bytes(), content.into_bytes()));
        Challenges { by_token: by_token.collect() }
    }
}
