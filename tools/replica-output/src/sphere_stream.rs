//! Standard output of one virtual rank, made from the outputs of its replicas.
//!
//! Output of each replica, and news of losses, ends and copies enter; bytes to show, each once, and findings leave.
//! `--stdout` chooses the rule: see `voted.rs` and `leader.rs`. Output that is repeated after a return to a checkpoint
//! is compared with the shown text: see `shown.rs`.

use super::leader::LeaderStream;
use super::mismatch::Finding;
use super::restored::Restored;
use super::shown::{Departure, ShownText};
use super::voted::VotedStream;
use redrt_types::{Kinship, ReplicaIndex};
use redrt_wire::checkpoint::SavedText;
use serde::{Deserialize, Serialize};

/// Rule by which outputs of replicas become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Release {
    /// Output that more than half of the replicas agree on.
    #[default]
    Voted,
    /// Like `Voted`. A difference without a majority stops the output: the job is ended.
    VotedOrNothing,
    /// Output of the leader, as it comes.
    Leader,
}

/// The stream of one sphere.
#[derive(Debug, Serialize, Deserialize)]
pub struct SphereStream {
    mode: Mode,
    shown: ShownText,
    departure: Option<Departure>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Mode {
    Voted(VotedStream),
    Leader(LeaderStream),
}

macro_rules! either {
    ($self:ident, $stream:ident => $do:expr) => {
        match &$self.mode {
            Mode::Voted($stream) => $do,
            Mode::Leader($stream) => $do,
        }
    };
}

impl SphereStream {
    /// A sphere of these replicas, in order of leadership, of which `shown` was shown before.
    pub fn new(release: Release, replicas: impl IntoIterator<Item = ReplicaIndex>, shown: ShownText) -> Self {
        let mode = match release {
            Release::Voted => Mode::Voted(VotedStream::new(replicas, false)),
            Release::VotedOrNothing => Mode::Voted(VotedStream::new(replicas, true)),
            Release::Leader => Mode::Leader(LeaderStream::new(replicas)),
        };
        Self { mode, shown, departure: None }
    }

    /// Compares newly agreed output with the text that was shown before.
    fn agree(&mut self, out: &mut Vec<u8>, act: impl FnOnce(&mut Mode, &mut Vec<u8>)) {
        let mut agreed = Vec::new();
        act(&mut self.mode, &mut agreed);
        self.departure = self.shown.push(&agreed, out).or(self.departure);
    }

    /// Lets all replicas continue from one image, and repeat their output since. The longest-serving comes first.
    /// Repeated text is shown only from the first differing line on.
    pub fn go_back(&mut self, replicas: &[Restored], out: &mut Vec<u8>) {
        if let Some(first) = replicas.first() {
            self.shown.go_back(first.output.units);
        }
        self.agree(out, |mode, out| match mode {
            Mode::Voted(stream) => stream.go_back(replicas, out),
            Mode::Leader(stream) => stream.go_back(replicas, out),
        });
    }

    /// State for an image of a stopped replica, all of whose output is here. `None` for an unknown replica. The job may
    /// go back to it.
    pub fn saved(&mut self, replica: ReplicaIndex) -> Option<SavedText> {
        let saved = either!(self, stream => stream.saved(replica))?;
        Some(self.shown.save(saved, either!(self, stream => stream.shown_bytes())))
    }

    /// Digests of the shown text, for a job that continues in another process.
    #[must_use]
    pub fn shown(&self) -> &ShownText {
        &self.shown
    }

    /// Bytes by which `replica` is ahead of the shown text.
    #[must_use]
    pub fn ahead_bytes(&self, replica: ReplicaIndex) -> usize {
        either!(self, stream => stream.ahead_bytes(replica))
    }

    /// Takes output of a replica. Text to show is appended to `out`.
    pub fn push(&mut self, replica: ReplicaIndex, bytes: &[u8], out: &mut Vec<u8>) {
        self.agree(out, |mode, out| match mode {
            Mode::Voted(stream) => stream.push(replica, bytes, out),
            Mode::Leader(stream) => stream.push(replica, bytes, out),
        });
    }

    /// Removes a lost replica: the others do not wait for it. The last counting one is kept, so that its output before
    /// its death is shown.
    pub fn lose(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        self.agree(out, |mode, out| match mode {
            Mode::Voted(stream) => stream.lose(replica, out),
            Mode::Leader(stream) => stream.lose(replica, out),
        });
    }

    /// Sets which replicas descend from one unproven image.
    pub fn set_kinship(&mut self, kinship: &Kinship, out: &mut Vec<u8>) {
        self.agree(out, |mode, out| match mode {
            Mode::Voted(stream) => stream.set_kinship(kinship, out),
            // The leader's output is not compared.
            Mode::Leader(_) => {}
        });
    }

    /// Adds a copy of `source`, made when that had printed `printed_bytes`.
    pub fn join(&mut self, replica: ReplicaIndex, source: ReplicaIndex, printed_bytes: u64, out: &mut Vec<u8>) {
        self.agree(out, |mode, out| match mode {
            Mode::Voted(stream) => stream.join(replica, source, printed_bytes, out),
            Mode::Leader(stream) => stream.join(replica, source, printed_bytes, out),
        });
    }

    /// Ends the output of a replica that was not lost.
    pub fn end(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        self.agree(out, |mode, out| match mode {
            Mode::Voted(stream) => stream.end(replica, out),
            // Output of another replica beyond the leader's end is not shown: it differs.
            Mode::Leader(_) => {}
        });
    }

    /// Ends the output of a replica whose siblings may print on: it is compared up to here, and not beyond.
    pub fn stop(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        self.agree(out, |mode, out| match mode {
            Mode::Voted(stream) => stream.stop(replica, out),
            Mode::Leader(stream) => stream.lose(replica, out),
        });
    }

    /// Ends the output of all replicas of a job that does not go back.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.departure = self.shown.finish(out).or(self.departure);
    }

    /// Next finding, once.
    pub fn poll_finding(&mut self) -> Option<Finding> {
        match &mut self.mode {
            Mode::Voted(stream) => stream.poll_finding(),
            Mode::Leader(_) => None,
        }
    }

    /// The last departure from a text that was shown before, once.
    pub fn poll_departure(&mut self) -> Option<Departure> {
        self.departure.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INDICES: [ReplicaIndex; 2] = [ReplicaIndex(0), ReplicaIndex(1)];

    /// Two replicas print the first bytes of `old`; the first is saved, and they print more. Then all continue from the
    /// image, and print `new` from there on. Returns the shown part of both texts.
    fn shown(release: Release, cut: [usize; 2], lost: [usize; 2], old: &[u8], new: &[u8]) -> [Vec<u8>; 2] {
        let mut stream = SphereStream::new(release, INDICES, ShownText::kept(1));
        let mut out = Vec::new();
        for (index, end) in INDICES.into_iter().zip(cut) {
            stream.push(index, &old[..end], &mut out);
        }
        let output = stream.saved(INDICES[0]).unwrap();
        for (index, (from, to)) in INDICES.into_iter().zip(cut.into_iter().zip(lost)) {
            stream.push(index, &old[from..to.max(from)], &mut out);
        }
        let restored = |index| Restored {
            index,
            printed_bytes: cut[0] as u64,
            output: output.clone(),
            error: SavedText::default(),
        };
        let before = std::mem::take(&mut out);
        stream.go_back(&INDICES.map(restored), &mut out);
        for index in INDICES {
            stream.push(index, &new[cut[0]..], &mut out);
        }
        stream.finish(&mut out);
        assert!(stream.poll_finding().is_none(), "{cut:?} {lost:?}");
        assert_eq!(stream.poll_departure().is_some(), !new.starts_with(&before), "{cut:?} {lost:?}");
        [before, out]
    }

    #[test]
    fn what_is_printed_again_after_a_line_is_shown_once() {
        let text = b"one\ntwo\nthree\nfour\n";
        for release in [Release::Voted, Release::Leader] {
            for at in 0..text.len().pow(2) {
                let cut = [at / text.len(), at % text.len()];
                for ahead in [0, 1, 5, 40] {
                    let lost = [cut[0] + ahead, cut[1] + ahead / 2].map(|end| end.min(text.len()));
                    let shown = shown(release, cut, lost, text, text);
                    assert_eq!(shown.concat(), text, "{release:?} {cut:?} {lost:?}");
                }
            }
        }
    }

    proptest! {
        /// A clock shows another time after a return. Everything from the first differing line on is shown, in whole
        /// lines.
        #[test]
        fn a_text_that_differs_after_a_return_is_shown_from_its_line(
            old in proptest::collection::vec(prop_oneof![3 => b'a'..b'c', 1 => Just(b'\n')], 1..60),
            rest in proptest::collection::vec(prop_oneof![3 => b'a'..b'c', 1 => Just(b'\n')], 0..60),
            cut in 0usize..60, ahead in 0usize..10, lost in 0usize..60, same in 0usize..60, is_voted in any::<bool>(),
        ) {
            let cut = [cut.min(old.len()), (cut + ahead).min(old.len())];
            let same = same.clamp(cut[0], old.len());
            let mut new = [&old[..same], &rest, b"\n"].concat();
            new.extend_from_slice(b"a long line that no other text has\n");
            let lost = [lost.min(old.len()); 2];
            let release = if is_voted { Release::Voted } else { Release::Leader };
            let [before, after] = shown(release, cut, lost, &old, &new);
            prop_assert!(old.starts_with(&before));
            let common = before.iter().zip(&new).take_while(|(one, other)| one == other).count();
            let line_begin = new[..common].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let from = if common == before.len() { common } else { line_begin };
            prop_assert_eq!(after, &new[from..]);
        }
    }

    #[test]
    fn an_image_has_output_from_the_first_line_not_shown_whole() {
        let mut stream = SphereStream::new(Release::Voted, INDICES, ShownText::kept(1));
        let mut out = Vec::new();
        stream.push(INDICES[0], b"one\ntwo\nthr", &mut out);
        stream.push(INDICES[1], b"one\nt", &mut out);
        let saved = stream.saved(INDICES[0]).unwrap();
        assert_eq!((saved.units, saved.text.as_slice()), (1, &b"two\nthr"[..]));
        let saved = stream.saved(INDICES[1]).unwrap();
        assert_eq!((saved.units, saved.text.as_slice()), (1, &b"t"[..]));
    }
}
