//! Log of a peer: all entries since the last one that replaced everything before it. In memory only: a peer that
//! ends is never a peer again.

use super::{Id, Place, Proposal};
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError, util};
use redrt_wire::frame::{decode_body, encode_long};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Log {
    hard: HardState,
    conf: ConfState,
    /// Index of the last applied entry. `None` while an entry is being applied, when voters and places may not match.
    pub applied: Option<u64>,
    /// Places of all peers.
    pub places: BTreeMap<Id, Place>,
    /// Index and term of the entry before the first of `entries`.
    base: (u64, u64),
    /// Records up to that entry.
    records: Vec<ByteBuf>,
    entries: Vec<Entry>,
}

/// Data of a snapshot beyond Raft's own.
#[derive(Serialize, Deserialize)]
struct Given {
    places: BTreeMap<Id, Place>,
    records: Vec<ByteBuf>,
}

impl Log {
    /// Log of the first peer.
    pub fn founded(id: Id, place: Place) -> Self {
        let mut log = Self { base: (1, 1), applied: Some(1), places: BTreeMap::from([(id, place)]), ..Self::default() };
        log.conf.voters.push(id);
        (log.hard.term, log.hard.commit) = (1, 1);
        log
    }

    pub fn conf(&self) -> &ConfState {
        &self.conf
    }

    pub fn set_conf(&mut self, conf: ConfState) {
        self.conf = conf;
    }

    pub fn set_hard_state(&mut self, state: HardState) {
        self.hard = state;
    }

    pub fn set_commit(&mut self, commit: u64) {
        self.hard.commit = commit;
    }

    /// Position of an entry in `entries`.
    fn position(&self, index: u64) -> usize {
        (index - self.base.0 - 1) as usize
    }

    /// All records up to this entry.
    pub fn records_until(&self, index: u64) -> Vec<ByteBuf> {
        let mut records = self.records.clone();
        let entries = self.entries.iter().take_while(|entry| entry.index <= index);
        let proposals = entries.filter(|entry| entry.entry_type == EntryType::EntryNormal);
        // The first entry of a new leader is empty, and does not decode.
        for proposal in proposals.filter_map(|entry| decode_body::<Proposal>(&entry.data).ok()) {
            match proposal {
                Proposal::Append(more) => records.extend(more),
                Proposal::Replace(all) => records = all,
                Proposal::End(_) => {}
            }
        }
        records
    }

    /// Adds entries. They replace existing ones from their first index on.
    pub fn append(&mut self, entries: &[Entry]) {
        if let Some(first) = entries.first() {
            let position = self.position(first.index);
            self.entries.truncate(position);
            self.entries.extend_from_slice(entries);
        }
    }

    /// Replaces all entries up to this one, which must exist, by these records.
    pub fn compact(&mut self, index: u64, records: Vec<ByteBuf>) {
        let position = self.position(index);
        self.base = (index, self.entries[position].term);
        self.entries.drain(..=position);
        self.records = records;
    }

    /// Replaces the log by a snapshot of another peer.
    pub fn restore(&mut self, snapshot: &Snapshot) {
        let metadata = snapshot.get_metadata();
        let given = decode_body(&snapshot.data).unwrap_or(Given { places: BTreeMap::new(), records: Vec::new() });
        self.conf = metadata.get_conf_state().clone();
        self.base = (metadata.index, metadata.term);
        self.applied = Some(metadata.index);
        (self.hard.commit, self.hard.term) = (metadata.index, self.hard.term.max(metadata.term));
        (self.places, self.records) = (given.places, given.records);
        self.entries.clear();
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let mut entries = self.entries[self.position(low)..self.position(high)].to_vec();
        util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> Result<u64> {
        match index {
            _ if index == self.base.0 => Ok(self.base.1),
            _ if index < self.base.0 => Err(Error::Store(StorageError::Compacted)),
            _ => self
                .entries
                .get(self.position(index))
                .map(|entry| entry.term)
                .ok_or(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.base.0 + self.entries.len() as u64)
    }

    fn snapshot(&self, request_index: u64, _: u64) -> Result<Snapshot> {
        let Some(index) = self.applied.filter(|index| *index >= request_index) else {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        };
        let mut snapshot = Snapshot::default();
        let given = Given { places: self.places.clone(), records: self.records_until(index) };
        snapshot.data = encode_long(&given).into();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (index, self.term(index)?);
        metadata.set_conf_state(self.conf.clone());
        Ok(snapshot)
    }
}
