//! The standard output of one virtual rank, made from the outputs of its replicas.
//!
//! Enters: what each replica prints, as it arrives; which replica was lost, which one ended, which one is a copy of
//! which. Leaves: the bytes to show, each once, and what was found on the way. How it is made is chosen by `--stdout`:
//! see `voted.rs` and `leader.rs`.

use super::leader::LeaderStream;
use super::mismatch::Finding;
use super::restored::Restored;
use super::voted::VotedStream;
use redrt_types::{Kinship, ReplicaIndex};
use serde::{Deserialize, Serialize};

/// How outputs of replicas become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Release {
    /// What more than half of them have printed.
    #[default]
    Voted,
    /// The same. Where they differ and there is no majority, nothing more is shown: the job is ended.
    VotedOrNothing,
    /// What the leader prints, as it comes.
    Leader,
}

/// The stream of one sphere.
#[derive(Debug, Serialize, Deserialize)]
pub struct SphereStream(Mode);

#[derive(Debug, Serialize, Deserialize)]
enum Mode {
    Voted(VotedStream),
    Leader(LeaderStream),
}

macro_rules! either {
    ($self:ident, $stream:ident => $do:expr) => {
        match &mut $self.0 {
            Mode::Voted($stream) => $do,
            Mode::Leader($stream) => $do,
        }
    };
}

impl SphereStream {
    /// A sphere of these replicas, in order of leadership.
    pub fn new(release: Release, replicas: impl IntoIterator<Item = ReplicaIndex>) -> Self {
        Self(match release {
            Release::Voted => Mode::Voted(VotedStream::new(replicas, false)),
            Release::VotedOrNothing => Mode::Voted(VotedStream::new(replicas, true)),
            Release::Leader => Mode::Leader(LeaderStream::new(replicas)),
        })
    }

    /// All replicas go on from images, and print again what they have printed since. The longest-serving comes first.
    /// What was shown is not shown again, nor compared with.
    pub fn go_back(&mut self, replicas: &[Restored], out: &mut Vec<u8>) {
        either!(self, stream => stream.go_back(replicas, out));
    }

    /// A stream of which `shown` bytes were shown before.
    pub fn with_shown(mut self, shown: u64) -> Self {
        either!(self, stream => stream.set_shown(shown));
        self
    }

    /// Bytes that were shown.
    #[must_use]
    pub fn shown_bytes(&self) -> u64 {
        match &self.0 {
            Mode::Voted(stream) => stream.shown_bytes(),
            Mode::Leader(stream) => stream.shown_bytes(),
        }
    }

    /// What a replica has printed that could not be shown yet.
    #[must_use]
    pub fn pending(&self, replica: ReplicaIndex) -> Vec<u8> {
        match &self.0 {
            Mode::Voted(stream) => stream.pending(replica),
            Mode::Leader(stream) => stream.pending(replica),
        }
    }

    /// How far `replica` is ahead of what could be shown, in bytes.
    #[must_use]
    pub fn ahead_bytes(&self, replica: ReplicaIndex) -> usize {
        match &self.0 {
            Mode::Voted(stream) => stream.ahead_bytes(replica),
            Mode::Leader(stream) => stream.ahead_bytes(replica),
        }
    }

    /// A replica printed `bytes`. What may be shown is appended to `out`.
    pub fn push(&mut self, replica: ReplicaIndex, bytes: &[u8], out: &mut Vec<u8>) {
        either!(self, stream => stream.push(replica, bytes, out));
    }

    /// A replica was lost: it is waited for no more. The last one that counts is kept, so that what it printed before
    /// its death is shown.
    pub fn lose(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        either!(self, stream => stream.lose(replica, out));
    }

    /// Who descends from one unproven image from now on.
    pub fn set_kinship(&mut self, kinship: &Kinship, out: &mut Vec<u8>) {
        match &mut self.0 {
            Mode::Voted(stream) => stream.set_kinship(kinship, out),
            // What the leader prints is not compared.
            Mode::Leader(_) => {}
        }
    }

    /// A copy of `source` prints from now on. It was made when its source had printed `printed_bytes`.
    pub fn join(&mut self, replica: ReplicaIndex, source: ReplicaIndex, printed_bytes: u64, out: &mut Vec<u8>) {
        either!(self, stream => stream.join(replica, source, printed_bytes, out));
    }

    /// A replica will print no more, and was not lost.
    pub fn end(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        match &mut self.0 {
            Mode::Voted(stream) => stream.end(replica, out),
            // A replica that prints after the leader has ended has printed something else.
            Mode::Leader(_) => {}
        }
    }

    /// A replica will print no more, and its siblings may: what it has printed is compared, and nothing behind that.
    pub fn stop(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        match &mut self.0 {
            Mode::Voted(stream) => stream.stop(replica, out),
            Mode::Leader(stream) => stream.lose(replica, out),
        }
    }

    /// What was found and not told yet.
    pub fn poll_finding(&mut self) -> Option<Finding> {
        match &mut self.0 {
            Mode::Voted(stream) => stream.poll_finding(),
            Mode::Leader(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints `text` in pieces by both replicas, with a line taken and gone back to in between; what is shown.
    fn shown(release: Release, cut: [usize; 2], lost: [usize; 2], text: &[u8]) -> Vec<u8> {
        let indices = [ReplicaIndex(0), ReplicaIndex(1)];
        let mut stream = SphereStream::new(release, indices);
        let mut out = Vec::new();
        for (index, end) in indices.into_iter().zip(cut) {
            stream.push(index, &text[..end], &mut out);
        }
        let base = out.len() as u64;
        let restored = |(index, cut): (ReplicaIndex, usize)| Restored {
            index,
            printed_bytes: cut as u64,
            unshown: stream.pending(index),
            shown_bytes: base,
        };
        let line: Vec<_> = indices.into_iter().zip(cut).map(restored).collect();
        for (index, (from, to)) in indices.into_iter().zip(cut.into_iter().zip(lost)) {
            stream.push(index, &text[from..to.max(from)], &mut out);
        }
        stream.go_back(&line, &mut out);
        for (index, cut) in indices.into_iter().zip(cut) {
            stream.push(index, &text[cut..], &mut out);
        }
        assert!(stream.poll_finding().is_none(), "{cut:?} {lost:?}");
        out
    }

    #[test]
    fn what_is_printed_again_after_a_line_is_shown_once() {
        let text = b"one\ntwo\nthree\nfour\n";
        for release in [Release::Voted, Release::Leader] {
            for at in 0..text.len().pow(2) {
                let cut = [at / text.len(), at % text.len()];
                for ahead in [0, 1, 5, 40] {
                    let lost = [cut[0] + ahead, cut[1] + ahead / 2].map(|end| end.min(text.len()));
                    assert_eq!(shown(release, cut, lost, text), text, "{release:?} {cut:?} {lost:?}");
                }
            }
        }
    }
}
