//! Questions and findings of `--check-determinism`.

use super::*;
use redrt_types::{ContextId, Digest, SeqNum};
use redrt_wire::event::{Finding, Mismatch, Vote};
use redrt_wire::trace::{Frame, Sending, Trace};
use sdc_detect::Element;

fn told(receiver: &str, sequence: u64, finding: Finding) -> Input {
    let receiver: ReplicaId = receiver.parse().unwrap();
    let vote = |index| Vote { replica: ReplicaId::new(1, index), digest: Digest(index.into()), core: None };
    let mismatch = Mismatch {
        receiver,
        sender: VirtualRank(1),
        supplier: ReplicaId { rank: VirtualRank(1), ..receiver },
        communicator: "c".into(),
        context: ContextId(1),
        tag: 5,
        sequence: SeqNum(sequence),
        length_bytes: 8,
        payload: Digest(0),
        votes: vec![vote(0), vote(1)],
        finding,
        culprit: None,
        element: Element::Unknown,
        excerpt: None,
        action: Action::Delivered,
        view: ViewNumber(0),
    };
    Input::Agent(receiver, FromAgent::Event(Event::Mismatch(Box::new(mismatch))))
}

fn sending(sequence: u64) -> Sending {
    Sending { to: VirtualRank(0), context: ContextId(1), sequence: SeqNum(sequence) }
}

impl StepTable {
    /// The replicas that are asked for the stack of a send, with the message.
    fn asked(&mut self, input: Input) -> Vec<(ReplicaId, Sending)> {
        self.coordinator.handle(self.now, input);
        let mut asked = Vec::new();
        while let Some(output) = self.coordinator.poll_output() {
            if let Output::Send(ToDaemon::Trace(replica, sending)) = output {
                asked.push((replica, sending));
            }
        }
        asked
    }

    fn answer(&mut self, replica: &str, sequence: u64, time_ns: u64) {
        let trace = Trace { time_ns, frames: vec![Frame { file: "f".into(), offset: 1 }] };
        let answer = FromAgent::Trace(sending(sequence), Some(trace));
        self.coordinator.handle(self.now, Input::Agent(replica.parse().unwrap(), answer));
    }
}

#[test]
fn both_senders_of_a_message_are_asked_once_and_in_order() {
    let mut table = StepTable::new(&[2, 2]);
    table.coordinator.check_determinism();
    let both = |number| vec![(ReplicaId::new(1, 0), sending(number)), (ReplicaId::new(1, 1), sending(number))];
    assert_eq!(table.asked(told("0.0", 7, Finding::Undecidable)), both(7));
    assert_eq!(table.asked(told("0.1", 7, Finding::Undecidable)), [], "it is the same message");
    assert_eq!(table.asked(told("0.1", 3, Finding::TransportCorrupt)), [], "that is not the program's doing");
    assert_eq!(table.asked(told("0.1", 4, Finding::Undecidable)), both(4));
    for (replica, sequence, time_ns) in [("1.0", 4, 20), ("1.1", 4, 40), ("1.1", 7, 30), ("1.0", 9, 1)] {
        table.answer(replica, sequence, time_ns);
    }
    let check = table.coordinator.determinism().expect("it is being checked");
    let found: Vec<_> = check.messages().iter().map(|one| (one.sending.sequence.0, one.traces.len())).collect();
    assert_eq!(found, [(4, 2), (7, 1)]);
    assert!(!check.is_clean() && check.untold_count == 0);
}

#[test]
fn more_than_anybody_reads_is_only_counted() {
    let mut table = StepTable::new(&[2, 2]);
    table.coordinator.check_determinism();
    let asked: usize = (0..300).map(|number| table.asked(told("0.0", number, Finding::Undecidable)).len()).sum();
    let check = table.coordinator.determinism().expect("it is being checked");
    assert_eq!((asked, check.messages().len(), check.untold_count), (512, 256, 44));
}

#[test]
fn nobody_is_asked_otherwise() {
    let mut table = StepTable::new(&[2, 2]);
    assert_eq!(table.asked(told("0.0", 7, Finding::Undecidable)), []);
    table.answer("1.0", 7, 1);
    assert!(table.coordinator.determinism().is_none());
}
