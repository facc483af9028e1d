//! Compares the payloads of one message that several receivers got and no vote could judge.
//!
//! Each report of such a message brings an excerpt of the payload that its receiver got. The first excerpt is kept
//! until one arrives from a receiver with another supplier.

use redrt_types::{ContextId, ReplicaId, SeqNum, VirtualRank};
use redrt_wire::event::{Evidence, Excerpt, Mismatch};
use sdc_detect::{Difference, Element, difference};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Maximum number of excerpts that are kept. The counterpart arrives soon or never, so the oldest is dropped.
const KEPT_MAX: usize = 64;

type Key = (VirtualRank, VirtualRank, ContextId, SeqNum);

#[derive(Debug, Serialize, Deserialize)]
struct UnmatchedExcerpt {
    key: Key,
    supplier: ReplicaId,
    element: Element,
    excerpt: Excerpt,
}

/// Excerpts without a counterpart, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Excerpts(VecDeque<UnmatchedExcerpt>);

impl Excerpts {
    /// Takes the excerpt out of a report, and compares it with the kept one of the same message and another supplier.
    pub(super) fn compare(&mut self, mismatch: &mut Mismatch) -> Option<Evidence> {
        let excerpt = mismatch.excerpt.take()?;
        let key = (mismatch.receiver.rank, mismatch.sender, mismatch.context, mismatch.sequence);
        let new = UnmatchedExcerpt { key, supplier: mismatch.supplier, element: mismatch.element, excerpt };
        let Some(at) = self.0.iter().position(|kept| kept.key == key && kept.supplier != new.supplier) else {
            if self.0.len() == KEPT_MAX {
                self.0.pop_front();
            }
            self.0.push_back(new);
            return None;
        };
        let kept = self.0.remove(at)?;
        let (one, other) = if kept.supplier < new.supplier { (kept, new) } else { (new, kept) };
        Some(Evidence {
            receiver: mismatch.receiver,
            sender: mismatch.sender,
            context: mismatch.context,
            tag: mismatch.tag,
            sequence: mismatch.sequence,
            suppliers: [one.supplier, other.supplier],
            is_decided: false,
            view: mismatch.view,
            difference: compared(&one, &other)?,
        })
    }
}

fn compared(one: &UnmatchedExcerpt, other: &UnmatchedExcerpt) -> Option<Difference> {
    let element = if one.element == other.element { one.element } else { Element::Unknown };
    match (&one.excerpt, &other.excerpt) {
        (Excerpt::Whole(one), Excerpt::Whole(other)) => difference(one, other, element),
        (Excerpt::Sketch(one), Excerpt::Sketch(other)) => one.difference(other, element),
        // The payloads differ in length. Each length is reported with its own mismatch.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::{Digest, ViewNumber};
    use redrt_wire::event::{Action, Finding};

    fn mismatch(supplier: u16, sequence: u64, payload: &[u8]) -> Mismatch {
        Mismatch {
            receiver: ReplicaId::new(0, supplier),
            sender: VirtualRank(1),
            supplier: ReplicaId::new(1, supplier),
            communicator: String::new(),
            context: ContextId(3),
            tag: 4,
            sequence: SeqNum(sequence),
            length_bytes: payload.len() as u64,
            payload: Digest(supplier.into()),
            votes: Vec::new(),
            finding: Finding::Undecidable,
            culprit: None,
            element: Element::I32,
            excerpt: Some(Excerpt::Whole(payload.to_vec())),
            action: Action::Delivered,
            view: ViewNumber(0),
        }
    }

    #[test]
    fn two_receivers_of_one_message_are_compared_in_either_order() {
        for order in [[0, 1], [1, 0]] {
            let mut excerpts = Excerpts::default();
            let payloads = [[5, 0, 0, 0], [7, 0, 0, 0]];
            let mut compare =
                |at: u16, sequence| excerpts.compare(&mut mismatch(at, sequence, &payloads[usize::from(at)]));
            assert_eq!(compare(order[0], 9), None);
            assert_eq!(compare(order[1], 8), None, "another message");
            let evidence = compare(order[1], 9).expect("both are there");
            assert_eq!(evidence.suppliers, [ReplicaId::new(1, 0), ReplicaId::new(1, 1)]);
            assert_eq!((evidence.difference.bit_count, evidence.difference.offset), (1, 0));
            assert_eq!(evidence.difference.values, Some(["5".to_owned(), "7".to_owned()]));
        }
    }

    #[test]
    fn what_nothing_else_comes_for_is_given_up() {
        let mut excerpts = Excerpts::default();
        for sequence in 0..=KEPT_MAX as u64 {
            assert_eq!(excerpts.compare(&mut mismatch(0, sequence, &[1])), None);
        }
        assert_eq!(excerpts.compare(&mut mismatch(1, 0, &[2])), None);
        assert!(excerpts.compare(&mut mismatch(1, 5, &[2])).is_some());
        assert!(excerpts.0.len() <= KEPT_MAX);
    }
}
