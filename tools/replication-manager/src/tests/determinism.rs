//! Questions and findings of `--check-determinism`.

use super::*;
use redrt_types::{ContextId, Digest, SeqNum};
use redrt_wire::event::Parting;
use redrt_wire::event::{Finding, Mismatch, Vote};
use redrt_wire::trace::{Frame, Sending, Trace, TracePoint};
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
    /// The replicas that are asked for a position.
    fn asked_for(&mut self, input: Input) -> Vec<(ReplicaId, TracePoint)> {
        self.manager.handle(self.now, input);
        let mut asked = Vec::new();
        while let Some(output) = self.manager.poll_output() {
            if let Output::Send(ToDaemon::Trace(replica, point)) = output {
                asked.push((replica, point));
            }
        }
        asked
    }

    /// The replicas that are asked for the stack of a send, with the message.
    fn asked(&mut self, input: Input) -> Vec<(ReplicaId, Sending)> {
        let sending = |(replica, point)| match point {
            TracePoint::Send(sending) => (replica, sending),
            TracePoint::Thread(_) => panic!("nobody has parted"),
        };
        self.asked_for(input).into_iter().map(sending).collect()
    }

    fn answer(&mut self, replica: &str, sequence: u64, time_ns: u64) {
        let trace = Trace { time_ns, frames: vec![Frame { file: "f".into(), offset: 1 }], ..Trace::default() };
        let answer = FromAgent::Trace(TracePoint::Send(sending(sequence)), Some(trace));
        self.manager.handle(self.now, Input::Agent(replica.parse().unwrap(), answer));
    }
}

#[test]
fn both_senders_of_a_message_are_asked_once_and_in_order() {
    let mut table = StepTable::new(&[2, 2]);
    table.manager.check_determinism();
    let both = |number| vec![(ReplicaId::new(1, 0), sending(number)), (ReplicaId::new(1, 1), sending(number))];
    assert_eq!(table.asked(told("0.0", 7, Finding::Undecidable)), both(7));
    assert_eq!(table.asked(told("0.1", 7, Finding::Undecidable)), [], "it is the same message");
    assert_eq!(table.asked(told("0.1", 3, Finding::TransportCorrupt)), [], "that is not the program's doing");
    assert_eq!(table.asked(told("0.1", 4, Finding::Undecidable)), both(4));
    for (replica, sequence, time_ns) in [("1.0", 4, 20), ("1.1", 4, 40), ("1.1", 7, 30), ("1.0", 9, 1)] {
        table.answer(replica, sequence, time_ns);
    }
    let check = table.manager.determinism().expect("it is being checked");
    let found: Vec<_> = check.messages().iter().map(|one| (one.sending.sequence.0, one.traces.len())).collect();
    assert_eq!(found, [(4, 2), (7, 1)]);
    assert!(!check.is_clean() && check.untold_count == 0);
}

#[test]
fn siblings_tell_where_the_thread_was_that_parted() {
    let mut table = StepTable::new(&[2, 2]);
    table.manager.check_determinism();
    let [one, other] = [0, 1].map(|index| ReplicaId::new(1, index));
    let point = TracePoint::Thread(9);
    let told = |replica, time_ns| {
        let trace = Trace { time_ns, thread: 9, ..Trace::default() };
        Input::Agent(replica, FromAgent::Trace(point, Some(trace)))
    };
    assert_eq!(table.asked_for(told(other, 2)), [(one, point)]);
    let parted = Event::Divergence { replica: other, parting: Parting::Locks };
    assert_eq!(table.asked_for(Input::Agent(other, FromAgent::Event(parted))), []);
    assert_eq!(table.asked_for(told(one, 1)), [], "all have told");
    let check = table.manager.determinism().expect("it is being checked");
    let times: Vec<_> = check.standing[&(VirtualRank(1), 9)].iter().map(|(at, trace)| (*at, trace.time_ns)).collect();
    assert_eq!((times, check.parted[&other]), (vec![(one, 1), (other, 2)], 9));
}

#[test]
fn more_than_anybody_reads_is_only_counted() {
    let mut table = StepTable::new(&[2, 2]);
    table.manager.check_determinism();
    let asked: usize = (0..300).map(|number| table.asked(told("0.0", number, Finding::Undecidable)).len()).sum();
    let check = table.manager.determinism().expect("it is being checked");
    assert_eq!((asked, check.messages().len(), check.untold_count), (512, 256, 44));
}

#[test]
fn nobody_is_asked_otherwise() {
    let mut table = StepTable::new(&[2, 2]);
    assert_eq!(table.asked(told("0.0", 7, Finding::Undecidable)), []);
    table.answer("1.0", 7, 1);
    assert!(table.manager.determinism().is_none());
}
