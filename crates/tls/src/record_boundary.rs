//! Finds the ends of records in received data, to know how much of a record is incomplete.

/// Bytes of the header of a record (RFC 8446 §5.1): type, version, and the length of the rest.
const HEADER_BYTES: usize = 5;

/// The position in the record that is arriving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordBoundary {
    /// Bytes of the record that have arrived; none after a whole one.
    arrived_bytes: usize,
    header: [u8; HEADER_BYTES],
}

impl RecordBoundary {
    /// These bytes have arrived.
    #[inline]
    pub(crate) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if let Some(room) = self.header.get_mut(self.arrived_bytes..)
                && !room.is_empty()
            {
                let taken = room.len().min(bytes.len());
                room[..taken].copy_from_slice(&bytes[..taken]);
                self.arrived_bytes += taken;
                bytes = &bytes[taken..];
            }
            if self.arrived_bytes >= HEADER_BYTES {
                let [.., high, low] = self.header;
                let record_bytes = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
                let taken = bytes.len().min(record_bytes - self.arrived_bytes);
                bytes = &bytes[taken..];
                self.arrived_bytes = (self.arrived_bytes + taken) % record_bytes;
            }
        }
    }

    /// Bytes of the last record, if it has not arrived whole.
    pub(crate) fn partial_bytes(&self) -> usize {
        self.arrived_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_their_headers_say_in_pieces_of_any_size() {
        let record = |length: usize| [&[23, 3, 3, (length >> 8) as u8, length as u8][..], &vec![1; length]].concat();
        let bytes = [record(0), record(300), record(1), record(0), record(7)].concat();
        for piece_bytes in 1..=bytes.len() {
            for end in 0..=bytes.len() {
                let mut boundary = RecordBoundary::default();
                bytes[..end].chunks(piece_bytes).for_each(|piece| boundary.advance(piece));
                let starts = [0, 5, 310, 316, 321, 333];
                let start = starts.into_iter().rfind(|start| *start <= end).expect("the first");
                assert_eq!(boundary.partial_bytes(), end - start, "{end} in pieces of {piece_bytes}");
            }
        }
    }
}
