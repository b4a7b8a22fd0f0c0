//! The records that a transfer has brought so far, in their order: the last ones in memory, those before in a file of
//! the state folder, so that a server that sends without end takes space of a disk, up to the transfer's limit. Only
//! [`crate::zone_transfer`] uses it.

use crate::blocking::DISK;
use sanderling_config::TRANSFERRED_ZONES;
use sanderling_dns::zonefile::{Position, Record};
use sanderling_dns::{Name, Rtype};
use sanderling_state::{StateError, StateFolder, UnfinishedFile};
use std::io::{self, BufReader, Read};
use std::sync::Arc;

/// Bytes of records that are in memory. A message may add as many bytes again.
const MEMORY_BYTES: usize = 64 * 1024;
/// Bytes before the owner and the data of a record: length of the owner, type, TTL, length of the data.
const HEAD_BYTES: usize = 9;

pub(crate) struct TransferStage {
    state: Arc<StateFolder>,
    /// The last records.
    in_memory: Vec<u8>,
    /// The previous ones; `None` if there are none.
    file: Option<UnfinishedFile>,
    /// Bytes of all records.
    length_bytes: u64,
}

impl TransferStage {
    pub(crate) fn new(state: &Arc<StateFolder>) -> TransferStage {
        TransferStage { state: Arc::clone(state), in_memory: Vec::new(), file: None, length_bytes: 0 }
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Adds a record, in memory.
    pub(crate) fn add(&mut self, record: &Record<'_>) {
        let owner = record.owner.as_bytes();
        self.in_memory.push(owner.len() as u8);
        self.in_memory.extend_from_slice(&record.rtype.0.to_be_bytes());
        self.in_memory.extend_from_slice(&record.ttl_s.to_be_bytes());
        self.in_memory.extend_from_slice(&(record.rdata.len() as u16).to_be_bytes());
        self.in_memory.extend_from_slice(owner);
        self.in_memory.extend_from_slice(record.rdata);
        self.length_bytes += (HEAD_BYTES + owner.len() + record.rdata.len()) as u64;
    }

    /// Writes the records to the file if many are in memory. A disk may take some time, in which other zones are not to
    /// wait.
    pub(crate) async fn write_many(&mut self) -> Result<(), StateError> {
        if self.in_memory.len() < MEMORY_BYTES {
            return Ok(());
        }
        let (records, file, state) = (std::mem::take(&mut self.in_memory), self.file.take(), Arc::clone(&self.state));
        let write = move || {
            let mut file = file.map_or_else(|| state.begin_file(TRANSFERRED_ZONES), Ok)?;
            file.append(&records).map(|()| (file, records))
        };
        let (file, mut records) = DISK.run(write).await?;
        records.clear();
        // A long message must not occupy that much memory until the end.
        records.shrink_to(2 * MEMORY_BYTES);
        (self.file, self.in_memory) = (Some(file), records);
        Ok(())
    }

    /// Calls `visit` with each record. A record's position is its number, like a line number.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(crate) fn each_record(mut self, visit: impl FnMut(&Record<'_>)) -> io::Result<()> {
        let in_memory = &self.in_memory[..];
        match &mut self.file {
            Some(file) => {
                file.rewind().map_err(io::Error::other)?;
                read_records(BufReader::with_capacity(MEMORY_BYTES, file).chain(in_memory), self.length_bytes, visit)
            }
            None => read_records(in_memory, self.length_bytes, visit),
        }
    }
}

fn read_records(mut source: impl Read, length_bytes: u64, mut visit: impl FnMut(&Record<'_>)) -> io::Result<()> {
    let (mut record, mut left_bytes, mut number) = (Vec::new(), length_bytes, 0);
    while left_bytes > 0 {
        let mut head = [0; HEAD_BYTES];
        source.read_exact(&mut head)?;
        let [owner_length, type_high, type_low, ttl @ .., length_high, length_low] = head;
        let owner_length = usize::from(owner_length);
        record.resize(owner_length + usize::from(u16::from_be_bytes([length_high, length_low])), 0);
        source.read_exact(&mut record)?;
        left_bytes = left_bytes.saturating_sub((HEAD_BYTES + record.len()) as u64);
        number += 1;
        let (owner, rdata) = record.split_at(owner_length);
        visit(&Record {
            position: Position { file_index: 0, line: number, column: 1 },
            owner: Name::parse(owner)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{error:?}")))?,
            rtype: Rtype(u16::from_be_bytes([type_high, type_low])),
            ttl_s: u32::from_be_bytes(ttl),
            rdata,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Adds this many records to a stage in `state`, and returns it with the current content of the zone folder.
    async fn stage_of(state: &Arc<StateFolder>, count: u32) -> (TransferStage, Vec<u64>) {
        let mut stage = TransferStage::new(state);
        for index in 0..count {
            let owner = [b"\x04", &index.to_be_bytes()[..], b"\x04test\0"].concat();
            let position = Position { file_index: 0, line: 0, column: 1 };
            let (owner, rdata) = (Name::parse(&owner).expect("a name"), index.to_be_bytes());
            stage.add(&Record { position, owner, rtype: Rtype::A, ttl_s: index, rdata: &rdata });
            stage.write_many().await.expect("written");
        }
        let files = fs::read_dir(state.path().join(TRANSFERRED_ZONES)).expect("it exists");
        (stage, files.map(|file| file.expect("read").metadata().expect("there").len()).collect())
    }

    #[test]
    fn records_come_back_in_their_order_and_few_are_in_memory() {
        crate::testing::start_threads();
        let folder = tempfile::tempdir().expect("created");
        let state = Arc::new(StateFolder::open(folder.path()).expect("opened"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("built");
        for (count, file_count) in [(0, 0), (100, 0), (100_000, 1)] {
            let (stage, files) = runtime.block_on(stage_of(&state, count));
            let bytes = u64::from(count) * (HEAD_BYTES + 11 + 4) as u64;
            assert_eq!((stage.length_bytes(), files.len()), (bytes, file_count), "{count}");
            let in_memory = bytes - files.iter().sum::<u64>();
            assert!(in_memory < MEMORY_BYTES as u64 && stage.in_memory.capacity() <= 4 * MEMORY_BYTES, "{in_memory}");
            let mut next = 0;
            let visited = stage.each_record(|record| {
                assert_eq!((record.ttl_s, record.position.line, record.rtype), (next, next + 1, Rtype::A));
                assert_eq!(
                    (&record.owner.as_bytes()[1..5], record.rdata),
                    (&next.to_be_bytes()[..], &next.to_be_bytes()[..])
                );
                next += 1;
            });
            visited.expect("read");
            assert_eq!(next, count);
            let left = fs::read_dir(folder.path().join(TRANSFERRED_ZONES)).expect("it exists").count();
            assert_eq!(left, 0, "the file is removed");
        }
    }
}
