//! Text with `:splat` and `:name`, which are replaced by parts of a request.

use crate::error::RuleError;
use crate::escape::{Place, put_encoded, put_url_text};
use crate::pattern::{Captures, Pattern, placeholder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    Splat(Place),
    /// The placeholder with this index.
    Value(usize, Place),
}

impl Template {
    /// The text of a URL, or of its path and the rest.
    ///
    /// # Errors
    /// Returns an error if the pattern does not have a placeholder that the text has.
    pub(crate) fn parse_url(text: &str, pattern: &Pattern) -> Result<Template, RuleError> {
        let path_bytes = text.find(['?', '#']).unwrap_or(text.len());
        let (path, rest) = text.split_at(path_bytes);
        let mut template = Template { parts: Vec::new() };
        for (mut text, place) in [(path, Place::Path), (rest, Place::Query)] {
            while let Some((before, name, after)) = placeholder(text) {
                template.put_url_text(before);
                template.parts.push(Part::find(name, place, pattern).ok_or_else(|| {
                    let message = match name {
                        "splat" => "the pattern has no `*` for `:splat`".to_owned(),
                        name => format!("the pattern has no `:{name}`"),
                    };
                    let itself = format!("write %3A{name} for the text itself");
                    match pattern.name_in_other_case(name) {
                        Some(meant) => RuleError::new(message, format!("write :{meant}, or {itself}")),
                        None => RuleError::new(message, format!("add it to the pattern, or {itself}")),
                    }
                })?);
                text = after;
            }
            template.put_url_text(text);
        }
        Ok(template)
    }

    /// The value of a field: only names that the pattern has are placeholders.
    pub(crate) fn parse_field(value: &str, pattern: &Pattern) -> Template {
        let mut template = Template { parts: Vec::new() };
        let (mut text, mut start) = (value, 0);
        while let Some((before, name, after)) = placeholder(text) {
            if let Some(part) = Part::find(name, Place::Path, pattern) {
                let end = value.len() - text.len() + before.len();
                template.parts.push(Part::Text(value.as_bytes()[start..end].into()));
                template.parts.push(part);
                start = value.len() - after.len();
            }
            text = after;
        }
        template.parts.push(Part::Text(value.as_bytes()[start..].into()));
        template
    }

    fn put_url_text(&mut self, text: &str) {
        let mut bytes = Vec::with_capacity(text.len());
        put_url_text(text, &mut bytes);
        self.parts.push(Part::Text(bytes.into()));
    }

    /// This template after `start`, a scheme and a host, and the length of `start` in bytes.
    pub(crate) fn with_start(mut self, start: &str) -> (Template, usize) {
        let mut bytes = Vec::with_capacity(start.len());
        put_url_text(start, &mut bytes);
        let start_bytes = bytes.len();
        self.parts.insert(0, Part::Text(bytes.into()));
        (self, start_bytes)
    }

    /// Whether the template has a placeholder.
    pub(crate) fn has_placeholder(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Text(_)))
    }

    /// Appends the text with the parts of a request, which are encoded.
    pub(crate) fn put(&self, captures: &Captures<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Splat(place) => {
                    put_encoded(captures.splat, *place, out);
                    if captures.splat_has_slash && !captures.splat.is_empty() {
                        put_encoded(b"/", *place, out);
                    }
                }
                Part::Value(index, place) => put_encoded(captures.value(*index), *place, out),
            }
        }
    }
}

impl Part {
    fn find(name: &str, place: Place, pattern: &Pattern) -> Option<Part> {
        match name {
            "splat" => pattern.has_splat().then_some(Part::Splat(place)),
            name => {
                let place = if place == Place::Path { Place::Segment } else { place };
                pattern.name_index(name).map(|index| Part::Value(index, place))
            }
        }
    }
}
