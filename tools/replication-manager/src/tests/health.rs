//! Replicas that are wrong, and hosts that cause it.

use super::*;
use redrt_types::{ContextId, Digest, SeqNum};
use redrt_wire::event::{Finding, Mismatch};
use sdc_detect::Element;

/// A report of `receiver` that `culprit` is wrong.
pub(super) fn mismatch(receiver: &str, culprit: &str, finding: Finding, action: Action) -> Input {
    let (receiver, culprit): (ReplicaId, ReplicaId) = (receiver.parse().unwrap(), culprit.parse().unwrap());
    let mismatch = Mismatch {
        receiver,
        sender: culprit.rank,
        supplier: ReplicaId { rank: culprit.rank, ..receiver },
        communicator: String::new(),
        context: ContextId(1),
        tag: 0,
        sequence: SeqNum(0),
        length_bytes: 8,
        payload: Digest(0),
        votes: Vec::new(),
        finding,
        culprit: (finding == Finding::ReplicaCorrupt).then_some(culprit),
        element: Element::Unknown,
        excerpt: None,
        action,
        view: ViewNumber(0),
    };
    Input::Agent(receiver, FromAgent::Event(Event::Mismatch(Box::new(mismatch))))
}

impl StepTable {
    pub(super) fn found(&mut self, receiver: &str, culprit: &str, action: Action) -> String {
        self.manager.handle(self.now, mismatch(receiver, culprit, Finding::ReplicaCorrupt, action));
        self.said().join(", ")
    }
}

fn recovering_with(degrees: &[u16], on_sdc: OnSdc, strikes_max: u32) -> StepTable {
    let mut table = recovering(degrees);
    table.manager.settings.on_sdc = on_sdc;
    table.manager.settings.strikes_max = strikes_max;
    table
}

#[test]
fn only_heal_and_abort_end_what_is_wrong() {
    for (on_sdc, expected) in [
        (OnSdc::Report, ""),
        (OnSdc::Correct, ""),
        (OnSdc::Heal, "kill 0.1, strike 1 of 3 for 0.1"),
        (OnSdc::Abort, "kill 0.1, strike 1 of 3 for 0.1"),
    ] {
        let mut table = recovering_with(&[3, 3], on_sdc, 3);
        assert_eq!(table.found("1.0", "0.1", Action::Outvoted), expected, "{on_sdc:?}");
        // All receivers report the one corruption.
        assert_eq!(table.found("1.2", "0.1", Action::Outvoted), "", "{on_sdc:?}");
    }
}

#[test]
fn a_copy_of_a_sound_sibling_replaces_a_wrong_replica() {
    let mut table = recovering_with(&[3, 1], OnSdc::Heal, 3);
    table.found("1.0", "0.1", Action::Outvoted);
    assert_eq!(table.step("0.1 signal 9"), "stream 0.1 lost, lost 0.1, view 1, host 2: receive 0.1 from 0.2");
}

#[test]
fn nobody_goes_for_what_changed_on_its_way_or_cannot_be_decided() {
    for finding in [Finding::TransportCorrupt, Finding::Undecidable] {
        let mut table = recovering(&[3, 3]);
        table.manager.handle(table.now, mismatch("1.0", "0.1", finding, Action::Delivered));
        assert_eq!(table.said().join(", "), "", "{finding:?}");
    }
    let mut table = recovering(&[2, 2]);
    assert_eq!(table.found("1.0", "0.1", Action::Outvoted), "", "one sibling is not enough to be believed");
}

#[test]
fn a_receiver_of_a_wrong_payload_goes_without_a_strike() {
    let mut table = recovering(&[3, 2]);
    assert_eq!(table.found("1.1", "0.1", Action::Delivered), "kill 0.1, strike 1 of 3 for 0.1, kill 1.1");
    // The last replica of a rank must stay.
    assert_eq!(table.found("1.0", "0.1", Action::Delivered), "");
}

#[test]
fn a_receiver_without_the_right_message_goes_beside_a_sibling() {
    let mut table = recovering(&[1, 2]);
    let withheld = |receiver| mismatch(receiver, "0.0", Finding::TransportCorrupt, Action::Withheld);
    table.manager.handle(table.now, withheld("1.1"));
    assert_eq!(table.said().join(", "), "kill 1.1");
    table.manager.handle(table.now, withheld("1.0"));
    assert_eq!(table.said().join(", "), "", "it is the only one");
}

#[test]
fn a_host_with_too_many_strikes_is_drained_replica_by_replica() {
    let mut table = recovering_with(&[3, 3], OnSdc::Heal, 2);
    assert_eq!(table.found("1.0", "0.1", Action::Outvoted), "kill 0.1, strike 1 of 2 for 0.1");
    // 1.1 is on the same host, and is ended for its own fault. Nothing else is there.
    let words = table.found("0.0", "1.1", Action::Outvoted);
    assert_eq!(words, "kill 1.1, strike 2 of 2 for 1.1, the host of 1.1 is bad and drained");
    // The other host has more replicas, in a job where one strike is enough.
    let mut table = recovering_with(&[3, 2], OnSdc::Heal, 1);
    let words = table.found("1.1", "0.0", Action::Outvoted);
    assert!(words.starts_with("kill 0.0, strike 1 of 1 for 0.0, the host of 0.0 is bad and drained"), "{words}");
    assert!(words.contains("receive 1.2 from 1.1"), "1.0 moves away: {words}");
    assert!(!words.contains("kill 1.0"), "not before its copy is in step: {words}");
}

#[test]
fn a_host_that_is_the_only_one_is_said_to_be_bad_and_stays() {
    let mut table = recovering_with(&[3, 3], OnSdc::Heal, 1);
    table.manager.dismiss_host(0);
    table.manager.dismiss_host(2);
    let words = table.found("1.0", "0.1", Action::Outvoted);
    assert_eq!(words, "kill 0.1, strike 1 of 1 for 0.1, the host of 0.1 is bad and stays");
}

/// Host b, with replicas 1, takes three times as long. It is reported and gets a strike, with copies or without.
#[test]
fn a_host_that_is_slower_than_its_peers_gets_a_strike() {
    let mut without = StepTable::new(&[2, 2]);
    without.manager.launched_on(vec![0, 1, 0, 1]);
    for mut table in [recovering(&[2, 2]), without] {
        let mut said = Vec::new();
        for look in 0..120 {
            for replica in ["0.0", "0.1", "1.0", "1.1"] {
                let works = look % 10 < if replica.ends_with('1') { 9 } else { 3 };
                said.push(table.step(&format!("{replica} {} 0", if works { "busy" } else { "passive" })));
            }
        }
        said.retain(|words| !words.is_empty());
        assert_eq!(said, ["the host of 0.1 is 3.0 times slower, strike 1 of 3 for 0.1"]);
    }
}

#[test]
fn a_line_of_output_counts_as_a_message() {
    use replica_output::mismatch::{Finding as OutputFinding, OutputMismatch};
    let printed = |culprit: Option<u16>| {
        let culprit = culprit.map(redrt_types::ReplicaIndex);
        let mismatch = OutputMismatch { line: 1, column: 1, culprit, sides: Vec::new(), given_up: Vec::new() };
        Input::Output { rank: VirtualRank(0), finding: OutputFinding::Mismatch(mismatch) }
    };
    for (on_sdc, outvoted) in [
        (OnSdc::Report, ""),
        (OnSdc::Correct, ""),
        (OnSdc::Heal, "kill 0.1, strike 1 of 3 for 0.1"),
        (OnSdc::Abort, "kill 0.1, strike 1 of 3 for 0.1"),
    ] {
        let mut table = recovering_with(&[3, 3], on_sdc, 3);
        table.manager.handle(table.now, printed(Some(1)));
        assert_eq!(table.said().join(", "), outvoted, "{on_sdc:?}");
        assert_eq!(table.found("1.0", "0.1", Action::Outvoted), "", "{on_sdc:?}: it is one corruption");
        let mut table = recovering_with(&[2, 2], on_sdc, 3);
        table.manager.handle(table.now, printed(None));
        let ends = table.manager.course().phase() == "ending";
        assert_eq!(ends, on_sdc == OnSdc::Abort, "{on_sdc:?}");
    }
}

/// After a message that no vote could decide, replicas of a rank may have parted. A majority then does not prove which
/// of them are right.
#[test]
fn an_outvoted_replica_goes_without_blame_after_an_open_vote() {
    let mut table = recovering_with(&[3, 3], OnSdc::Heal, 3);
    table.manager.handle(table.now, mismatch("1.0", "0.1", Finding::Undecidable, Action::Refetched));
    assert_eq!(table.said().join(", "), "");
    assert_eq!(table.found("0.0", "1.2", Action::Outvoted), "kill 1.2");
    assert_eq!(table.step("1.2 signal 9"), "stream 1.2 lost, lost 1.2, view 1, host 2: receive 1.2 from 1.1");
    // The other rank has delivered no such message.
    assert_eq!(table.found("1.0", "0.1", Action::Outvoted), "kill 0.1, strike 1 of 3 for 0.1");
}
