//! A file of names and types, as the messages that ask for them.

use std::fs;

/// Octets before the question (RFC 1035 §4.1.1).
pub const HEADER_BYTES: usize = 12;
/// Queries that a file may hold; what is beyond is a mistake.
const QUERY_COUNT_MAX: usize = 10_000_000;
/// Octets of the longest label (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// Every query in wire form, one behind the other.
pub struct Queries {
    bytes: Vec<u8>,
    /// Where each starts; the last number is the end of the last.
    starts: Vec<u32>,
}

impl Queries {
    /// # Errors
    /// The file, with its line where one is wrong.
    pub fn read(path: &str) -> Result<Queries, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let mut queries = Queries { bytes: Vec::new(), starts: vec![0] };
        for (index, line) in text.lines().enumerate() {
            queries.push(line).ok_or_else(|| format!("{path}:{}: `{line}` is no name and type", index + 1))?;
        }
        match queries.count() {
            0 => Err(format!("{path}: no queries")),
            _ => Ok(queries),
        }
    }

    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The query `index`, its ID zero.
    pub fn query(&self, index: usize) -> &[u8] {
        &self.bytes[self.starts[index] as usize..self.starts[index + 1] as usize]
    }

    fn push(&mut self, line: &str) -> Option<()> {
        let (name, type_word) = line.split_once(' ')?;
        if self.count() == QUERY_COUNT_MAX {
            return None;
        }
        // One question, nothing else wanted.
        self.bytes.extend([0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        for label in name.trim_end_matches('.').split('.').filter(|label| !label.is_empty()) {
            if label.len() > LABEL_BYTES_MAX {
                return None;
            }
            self.bytes.push(label.len() as u8);
            self.bytes.extend(label.as_bytes());
        }
        self.bytes.push(0);
        self.bytes.extend(type_number(type_word)?.to_be_bytes());
        self.bytes.extend([0, 1]);
        self.starts.push(u32::try_from(self.bytes.len()).ok()?);
        Some(())
    }
}

fn type_number(word: &str) -> Option<u16> {
    Some(match word {
        "A" => 1,
        "NS" => 2,
        "SOA" => 6,
        "MX" => 15,
        "TXT" => 16,
        "AAAA" => 28,
        _ => word.strip_prefix("TYPE")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_message() {
        let mut queries = Queries { bytes: Vec::new(), starts: vec![0] };
        queries.push("a.example. AAAA").unwrap();
        queries.push(". TYPE257").unwrap();
        assert_eq!(queries.query(0), b"\0\0\0\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x1c\0\x01");
        assert_eq!(queries.query(1)[HEADER_BYTES..], *b"\0\x01\x01\0\x01");
        assert_eq!(queries.push("no-type"), None);
    }
}
