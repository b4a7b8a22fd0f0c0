//! Suggestions for a mistaken key or name.

/// The entry of `known` that is most similar to `text`, if at most a third of its letters differ.
pub fn most_similar<'k>(text: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    /// Bytes of the longest text that is compared; the time grows with their square.
    const TEXT_BYTES_MAX: usize = 64;
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let text = text.to_ascii_lowercase();
    let comparable = known.filter(|known| known.len() <= 2 * TEXT_BYTES_MAX);
    let (distance, similar) = comparable
        .map(|known| (strsim::damerau_levenshtein(&text, known), known))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= similar.len().max(3) / 3).then_some(similar)
}
