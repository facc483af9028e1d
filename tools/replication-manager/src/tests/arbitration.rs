//! Copies that stand ready, and disputes between two replicas.

use super::health::mismatch;
use super::*;
use redrt_wire::event::{Course, Finding, OutcomeId, PathMismatch};

/// Rank 0 with two replicas on hosts a and b, rank 1 with one. Host c has `place_count` places. Copies are renewed
/// every 100 s.
fn arbitrating(place_count: u32) -> StepTable {
    let world = World::new(vec![5, 2]);
    let view = View::with_degrees(&world, &[2, 1]);
    let mut table = StepTable::with(Settings { world: world.clone(), view: view.clone(), ..settings(&[2, 1]) });
    table.hosts = ["a", "b", "c"].map(str::to_owned).to_vec();
    if place_count > 0 {
        table.places.add("c", place_count, Duration::ZERO);
    }
    let host_of = world.replicas().map(|replica| u32::from(replica.index.0 % 2)).collect();
    let recovery = Recovery::new(table.hosts.clone(), vec![2, 1], host_of, 4);
    table.manager.recover_with(recovery.arbitrating(Duration::from_secs(100)));
    for replica in world.replicas().filter(|replica| view.is_live(*replica)) {
        table.step(&format!("{replica} ready"));
    }
    table
}

impl StepTable {
    /// Takes the first clone under way through its steps.
    fn make_copy(&mut self, newcomer: &str, source: u32) -> String {
        for step in ["listening 2", &format!("ready {source}")] {
            self.step(&format!("first {step}"));
        }
        for replica in ["0.0", "0.1", "1.0"] {
            self.step(&format!("{replica} pinned"));
        }
        self.step(&format!("first stopped {source}"));
        self.step(&format!("{newcomer} card"));
        self.step("first running 2")
    }

    fn disputed(&mut self, receiver: &str) -> String {
        self.manager.handle(self.now, mismatch(receiver, "0.0", Finding::Undecidable, Action::Disputed));
        self.said().join(", ")
    }
}

fn held() -> StepTable {
    let mut table = arbitrating(3);
    assert_eq!(table.make_copy("0.2", 0), "pins none ready 0.2, 0.2 of 0.0 is held");
    assert_eq!(table.make_copy("0.3", 1), "pins none ready 0.2+0.3, 0.3 of 0.1 is held");
    table
}

#[test]
fn copies_of_both_replicas_stand_ready_and_nobody_counts_them() {
    let mut table = held();
    assert_eq!(table.manager.view().number, ViewNumber(0));
    assert_eq!(table.manager.held().map(|(_, source)| source.to_string()).collect::<Vec<_>>(), ["0.0", "0.1"]);
    for step in ["0.0 finalizing 0", "0.1 finalizing 0"] {
        assert_eq!(table.step(step), "");
    }
    let end = table.step("1.0 finalizing 0");
    assert!(end.contains("host 2: abandon") && end.ends_with("release"), "{end}");
}

/// The copy that stays is not one of the remaining replica.
#[test]
fn arbiters_join_together_and_one_replaces_the_named_replica() {
    let mut table = held();
    assert_eq!(
        table.disputed("1.0"),
        "host 2: meet 5, stream 0.2 from 0.0 at 7, host 2: meet 5, stream 0.3 from 0.1 at 7, pins none ready 0.2+0.3, \
         2 cards, view 1, pins 0.2+0.3"
    );
    assert_eq!(table.disputed("1.0"), "", "they have been asked");
    assert_eq!(table.found("1.0", "0.0", Action::Refetched), "", "nobody can take its part yet");
    assert_eq!(table.step("0.2 in-step"), "pins 0.3");
    assert_eq!(table.step("0.3 in-step"), "pins none, kill 0.0, strike 1 of 3 for 0.0, 0.0 is wrong, kill 0.3");
    assert_eq!(table.step("0.0 signal 9"), "stream 0.0 lost, lost 0.0, view 2");
    let again = table.step("0.3 signal 9");
    assert!(again.starts_with("stream 0.3 lost, 0.3 has left, view 3"), "{again}");
    assert!(again.contains("host 2: receive 0.0 from 0.1"), "copies are made anew: {again}");
}

#[test]
fn where_it_stays_open_the_copies_leave() {
    let mut table = held();
    table.disputed("1.0");
    table.step("0.2 in-step");
    table.step("0.3 in-step");
    table.manager.handle(table.now, mismatch("1.0", "0.0", Finding::Undecidable, Action::Delivered));
    assert_eq!(table.said().join(", "), "rank 0 is open, kill 0.2");
    assert_eq!(table.step("0.2 signal 9"), "stream 0.2 lost, 0.2 has left, view 2, kill 0.3");
    let after = table.step("0.3 signal 9");
    assert!(!after.contains("receive"), "copies of what differs would repeat what that says: {after}");
    let lost = table.step("0.1 signal 9");
    assert!(lost.contains("host 2: receive 0.1 from 0.0"), "{lost}");
}

#[test]
fn a_case_ends_after_any_loss_meanwhile() {
    for (victim, rest) in [("0.0", "0.1 0.2"), ("0.1", "0.0 0.3"), ("0.2", "0.0 0.1"), ("0.3", "0.0 0.1")] {
        let mut table = held();
        table.disputed("1.0");
        table.step(&format!("{victim} signal 9"));
        for arbiter in ["0.2", "0.3"].into_iter().filter(|arbiter| *arbiter != victim) {
            table.step(&format!("{arbiter} in-step"));
        }
        table.manager.handle(table.now, mismatch("1.0", "0.0", Finding::Undecidable, Action::Delivered));
        table.said();
        for arbiter in ["0.2", "0.3"].into_iter().filter(|arbiter| *arbiter != victim && !rest.contains(arbiter)) {
            table.step(&format!("{arbiter} signal 9"));
        }
        let live: Vec<_> = table.manager.view().live(VirtualRank(0)).map(|replica| replica.to_string()).collect();
        assert_eq!(live.join(" "), rest, "{victim}");
    }
}

#[test]
fn arbiters_that_do_not_come_to_it_are_ended_and_it_stays_open() {
    let mut table = held();
    table.disputed("1.0");
    let words = table.step("wait 461");
    assert!(words.contains("kill 0.2, kill 0.3, rank 0 is open"), "{words}");
}

#[test]
fn a_copy_whose_source_is_lost_is_no_use() {
    let mut table = held();
    let words = table.step("0.1 signal 9");
    assert!(words.contains("pins none ready 0.2, host 1: abandon, host 2: abandon"), "{words}");
    let words = table.disputed("1.0");
    assert!(words.contains("view 2, pins 0.2"), "the other one is: {words}");
}

#[test]
fn they_are_made_anew_one_after_the_other() {
    let mut table = held();
    let words = table.step("wait 101");
    assert!(words.contains("pins none ready 0.3, host 0: abandon, host 2: abandon"), "{words}");
    assert!(words.contains("host 2: receive 0.2 from 0.0"), "{words}");
    let words = table.make_copy("0.2", 0);
    assert!(words.starts_with("pins none ready 0.3+0.2, 0.2 of 0.0 is held, pins none ready 0.2"), "{words}");
}

#[test]
fn who_is_in_the_way_is_dropped_for_a_while() {
    let mut table = held();
    table.manager.handle(table.now, Input::Agent("0.1".parse().unwrap(), FromAgent::Hindered));
    let words = table.said().join(", ");
    assert!(words.contains("pins none, host 1: abandon") && words.ends_with("nothing held of 0"), "{words}");
    assert_eq!(table.manager.held().count(), 0);
    assert!(!table.step("wait 0").contains("receive"));
    assert!(table.step("wait 2").contains("host 2: receive 0.2 from 0.0"));
}

#[test]
fn a_replica_that_was_lost_needs_the_place_more() {
    let mut table = arbitrating(2);
    table.make_copy("0.2", 0);
    table.make_copy("0.3", 1);
    let words = table.step("0.1 signal 9");
    assert!(words.contains("host 2: receive 0.1 from 0.0"), "{words}");
}

#[test]
fn without_places_nothing_is_held_and_that_is_said_once() {
    let mut table = arbitrating(0);
    assert_eq!(table.manager.held().count(), 0);
    assert!(!table.step("wait 5").contains("nothing held"));
    assert_eq!(table.disputed("1.0"), "");
}

/// The report of `by` about the paths of 0.0 and 0.1.
fn parted(by: &str, culprit: Option<&str>, action: Action, view: u64) -> Input {
    let named: Vec<ReplicaId> = culprit.iter().map(|culprit| culprit.parse().unwrap()).collect();
    let others = if action == Action::Delivered { vec!["0.1".parse().unwrap()] } else { named.clone() };
    let path = PathMismatch {
        outcome: OutcomeId { rank: VirtualRank(0), course: Course::Thread(0), index: 7 },
        steps: Vec::new(),
        finding: if named.is_empty() { Finding::Undecidable } else { Finding::ReplicaCorrupt },
        culprits: named,
        parted: others,
        action,
        view: ViewNumber(view),
    };
    Input::Agent(by.parse().unwrap(), FromAgent::Event(Event::Path(Box::new(path))))
}

impl StepTable {
    fn parted(&mut self, by: &str, culprit: Option<&str>, action: Action, view: u64) -> String {
        self.manager.handle(self.now, parted(by, culprit, action, view));
        self.said().join(", ")
    }
}

/// The named replica goes.
#[test]
fn copies_judge_two_that_parted_under_any_policy() {
    for (on_sdc, strike) in [(OnSdc::Heal, "strike 1 of 3 for 0.0, "), (OnSdc::Report, "strike 1 of 3 for 0.0, ")] {
        let mut table = held();
        table.manager.settings.on_sdc = on_sdc;
        let words = table.parted("0.1", None, Action::Disputed, 0);
        assert!(words.contains("2 cards, view 1, pins 0.2+0.3"), "{words}");
        let again = table.parted("0.0", None, Action::Disputed, 0);
        assert!(!again.contains("view"), "they have been asked: {again}");
        let early = table.parted("0.1", Some("0.0"), Action::Outvoted, 1);
        assert!(!early.contains("kill"), "nobody can take its part yet: {early}");
        table.step("0.2 in-step");
        let words = table.step("0.3 in-step");
        assert!(words.contains(&format!("kill 0.0, {strike}0.0 is wrong, kill 0.3")), "{words}");
    }
}

#[test]
fn who_has_not_heard_of_copies_that_stand_ready_ends_nobody() {
    let mut table = held();
    let words = table.parted("0.0", None, Action::Delivered, 0);
    assert!(words.contains("view 1") && !words.contains("kill"), "{words}");
    let words = table.parted("0.0", None, Action::Delivered, 0);
    assert!(!words.contains("kill"), "they have been asked: {words}");
    table.step("0.2 in-step");
    table.step("0.3 in-step");
    let words = table.parted("0.0", None, Action::Delivered, 1);
    assert!(words.contains("kill 0.1") && words.contains("rank 0 is open"), "they cannot say: {words}");
}
