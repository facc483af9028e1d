//! Messages between peers on the wire: those of crate `raft`, in this project's encoding.

use raft::eraftpb;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// A message of Raft, with the fields of its paper.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Message {
    kind: i32,
    to: u64,
    /// The sender.
    pub from: u64,
    term: u64,
    log_term: u64,
    index: u64,
    entries: Vec<LogEntry>,
    commit: u64,
    commit_term: u64,
    snapshot: Option<Box<Snapshot>>,
    request_snapshot: u64,
    reject: bool,
    reject_hint: u64,
    context: ByteBuf,
    priority: i64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct LogEntry {
    kind: i32,
    term: u64,
    index: u64,
    data: ByteBuf,
    context: ByteBuf,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Snapshot {
    data: ByteBuf,
    index: u64,
    term: u64,
    voters: Vec<u64>,
    learners: Vec<u64>,
    voters_outgoing: Vec<u64>,
    learners_next: Vec<u64>,
    auto_leave: bool,
}

impl From<eraftpb::Message> for Message {
    fn from(mut message: eraftpb::Message) -> Self {
        // Moved, not copied: a snapshot may be as long as a journal.
        let snapshot = message.snapshot.take().map(|mut snapshot| {
            let mut metadata = snapshot.take_metadata();
            let conf = metadata.take_conf_state();
            Box::new(Snapshot {
                data: ByteBuf::from(Vec::from(snapshot.data)),
                index: metadata.index,
                term: metadata.term,
                voters: conf.voters,
                learners: conf.learners,
                voters_outgoing: conf.voters_outgoing,
                learners_next: conf.learners_next,
                auto_leave: conf.auto_leave,
            })
        });
        let entries = message.entries.iter().map(|entry| LogEntry {
            kind: entry.entry_type as i32,
            term: entry.term,
            index: entry.index,
            data: ByteBuf::from(entry.data.to_vec()),
            context: ByteBuf::from(entry.context.to_vec()),
        });
        Self {
            kind: message.msg_type as i32,
            to: message.to,
            from: message.from,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            entries: entries.collect(),
            commit: message.commit,
            commit_term: message.commit_term,
            snapshot,
            request_snapshot: message.request_snapshot,
            reject: message.reject,
            reject_hint: message.reject_hint,
            context: ByteBuf::from(message.context.to_vec()),
            priority: message.priority,
        }
    }
}

impl From<Message> for eraftpb::Message {
    fn from(message: Message) -> Self {
        let mut made = Self::default();
        // A kind of another version becomes a heartbeat response, which Raft ignores if it is unasked.
        let kind = protobuf::ProtobufEnum::from_i32(message.kind);
        made.msg_type = kind.unwrap_or(eraftpb::MessageType::MsgHeartbeatResponse);
        (made.to, made.from, made.term) = (message.to, message.from, message.term);
        (made.log_term, made.index) = (message.log_term, message.index);
        (made.commit, made.commit_term) = (message.commit, message.commit_term);
        (made.reject, made.reject_hint) = (message.reject, message.reject_hint);
        (made.request_snapshot, made.priority) = (message.request_snapshot, message.priority);
        made.context = message.context.into_vec().into();
        let entries = message.entries.into_iter().map(|entry| {
            let mut made = eraftpb::Entry::default();
            made.set_entry_type(protobuf::ProtobufEnum::from_i32(entry.kind).unwrap_or_default());
            (made.term, made.index) = (entry.term, entry.index);
            (made.data, made.context) = (entry.data.into_vec().into(), entry.context.into_vec().into());
            made
        });
        made.entries = entries.collect::<Vec<_>>().into();
        if let Some(snapshot) = message.snapshot {
            let into = made.mut_snapshot();
            into.data = snapshot.data.into_vec().into();
            let metadata = into.mut_metadata();
            (metadata.index, metadata.term) = (snapshot.index, snapshot.term);
            let conf = metadata.mut_conf_state();
            (conf.voters, conf.learners) = (snapshot.voters, snapshot.learners);
            (conf.voters_outgoing, conf.learners_next) = (snapshot.voters_outgoing, snapshot.learners_next);
            conf.auto_leave = snapshot.auto_leave;
        }
        made
    }
}
