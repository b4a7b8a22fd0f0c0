//! JSON, as the programs that we start write it, turned into values that are found by their path.

/// Values within values; our programs write no more than a few.
const DEPTH_MAX: usize = 32;

/// A value (RFC 8259 §3).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    /// # Errors
    /// Where the text is no JSON.
    pub(super) fn parse(text: &str) -> Result<Value, String> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.skip_blanks();
        if reader.at == text.len() { Ok(value) } else { Err(reader.error("the end")) }
    }

    /// What stands at a path such as `kinds.http-new`.
    pub(super) fn at(&self, path: &str) -> Option<&Value> {
        path.split('.')
            .try_fold(self, |value, key| value.members().iter().find(|(name, _)| name == key).map(|(_, v)| v))
    }

    /// The number at a path.
    pub(super) fn number_at(&self, path: &str) -> Option<f64> {
        match self.at(path)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The whole number at a path.
    pub(super) fn count_at(&self, path: &str) -> Option<u64> {
        self.number_at(path).filter(|number| *number >= 0.0 && number.fract() == 0.0).map(|number| number as u64)
    }

    /// The text at a path.
    pub(super) fn text_at(&self, path: &str) -> Option<&str> {
        match self.at(path)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The names and values of an object; none of anything else.
    pub(super) fn members(&self) -> &[(String, Value)] {
        match self {
            Value::Object(members) => members,
            _ => &[],
        }
    }

    /// The values of a list; none of anything else.
    pub(super) fn items(&self) -> &[Value] {
        match self {
            Value::List(items) => items,
            _ => &[],
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(self.error("fewer values within values"));
        }
        self.skip_blanks();
        match self.text.as_bytes().get(self.at) {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => Ok(Value::Text(self.string()?)),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        self.expect('{')?;
        let mut members = Vec::new();
        while !self.takes('}') {
            if !members.is_empty() {
                self.expect(',')?;
            }
            self.skip_blanks();
            let name = self.string()?;
            self.expect(':')?;
            members.push((name, self.value(depth + 1)?));
        }
        Ok(Value::Object(members))
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        self.expect('[')?;
        let mut items = Vec::new();
        while !self.takes(']') {
            if !items.is_empty() {
                self.expect(',')?;
            }
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::List(items))
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect('"')?;
        let mut string = String::new();
        loop {
            let character = self.character()?;
            match character {
                '"' => return Ok(string),
                '\\' => {
                    let escaped = self.escape()?;
                    string.push(escaped);
                }
                _ => string.push(character),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        Ok(match self.character()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits = self.text.get(self.at..self.at + 4).ok_or_else(|| self.error("four digits"))?;
                let number = u32::from_str_radix(digits, 16).map_err(|_| self.error("four digits"))?;
                self.at += 4;
                // Halves of a pair stand for one character beyond the first plane: nothing that is compared here.
                char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            character => character,
        })
    }

    fn word(&mut self) -> Result<Value, String> {
        let rest = &self.text[self.at..];
        let word = rest.split(|c: char| c.is_whitespace() || ",]}".contains(c)).next().unwrap_or_default();
        let value = match word {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => Value::Number(word.parse().map_err(|_| self.error("a value"))?),
        };
        self.at += word.len();
        Ok(value)
    }

    fn character(&mut self) -> Result<char, String> {
        let character = self.text[self.at..].chars().next().ok_or_else(|| self.error("more"))?;
        self.at += character.len_utf8();
        Ok(character)
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let is_there = self.text[self.at..].starts_with(wanted);
        self.at += if is_there { wanted.len_utf8() } else { 0 };
        is_there
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.takes(wanted) { Ok(()) } else { Err(self.error(&format!("`{wanted}`"))) }
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    fn error(&self, expected: &str) -> String {
        let shown: String = self.text[self.at..].chars().take(20).collect();
        format!("no JSON: {expected} was expected at octet {}, there is {shown:?}", self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_path() {
        let value = Value::parse(
            r#" {"lost": 3, "kinds": {"http-new": {"p50": 0.25, "name": "a\"\u0041\n"}}, "list": [1, [], {}, true, null]} "#,
        );
        let value = value.expect("it is JSON");
        assert_eq!(value.count_at("lost"), Some(3));
        assert_eq!((value.number_at("kinds.http-new.p50"), value.count_at("kinds.http-new.p50")), (Some(0.25), None));
        assert_eq!(value.text_at("kinds.http-new.name"), Some("a\"A\n"));
        assert_eq!(value.at("kinds.http-kept"), None);
        let list = value.at("list").expect("it is there").items();
        assert_eq!((list.len(), &list[3], &list[4]), (5, &Value::Bool(true), &Value::Null));
    }

    #[test]
    fn what_is_no_json_is_told_with_its_place() {
        let nested = "[".repeat(DEPTH_MAX + 2);
        for text in ["", "{", "{\"a\" 1}", "[1 2]", "\"open", "nul", "1 2", "\"\\u00\"", &nested] {
            assert!(Value::parse(text).is_err_and(|error| error.contains("was expected at octet")), "{text:?}");
        }
    }
}
