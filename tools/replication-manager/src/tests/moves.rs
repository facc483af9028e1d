//! Replicas are moved, hosts become free, degrees change.

use super::*;
use crate::recovery::Copies;

fn migrate(replica: &str, to: Option<u32>) -> ChangeRequest {
    ChangeRequest::Migrate { replica: replica.parse().unwrap(), to }
}

/// Makes the copy 0.2 of 0.1 on host c, in a job of ranks with two replicas.
const COPIED: [(&str, &str); 11] = [
    ("clone listening 2", "host 1: send"),
    ("clone ready 1", "pins 0.2"),
    ("0.0 pinned", ""),
    ("0.1 pinned", ""),
    ("1.0 pinned", ""),
    ("1.1 pinned", "host 1: cut"),
    ("clone stopped 1", ""),
    ("0.2 card", ""),
    ("clone running 2", "host 2: meet 5, stream 0.2 from 0.1 at 7, 1 cards, view 1, pins 0.2"),
    ("clone sent 1", ""),
    ("0.2 in-step", "pins none, recovered 0.2, kill 0.0"),
];

fn run(table: &mut StepTable, steps: &[(&str, &str)]) {
    for (step, expected) in steps {
        assert_eq!(table.step(step), *expected, "{step}");
    }
}

fn leaving(table: &StepTable) -> usize {
    table.manager.machines.recovery.iter().flat_map(Copies::leaving).count()
}

#[test]
fn a_replica_leaves_when_its_copy_is_in_step() {
    let mut table = recovering(&[2, 2]);
    assert_eq!(table.request(migrate("0.0", Some(2)), Some(2)), "host 2: receive 0.2 from 0.1");
    run(&mut table, &COPIED);
    assert_eq!(table.step("0.0 signal 9"), "stream 0.0 lost, 0.0 has left, view 2");
    let states: Vec<_> = table.manager.members().states().collect();
    assert_eq!(states, ["free", "running", "running", "running", "running", "free"]);
    // The copy takes part in everything, and the replica that has left in nothing.
    for step in ["0.1 finalizing 2", "0.2 finalizing 2", "1.0 finalizing 2"] {
        assert_eq!(table.step(step), "");
    }
    assert_eq!(table.step("1.1 finalizing 2"), "release");
    for step in ["0.1 exit 0", "0.2 exit 0", "1.0 exit 0"] {
        assert_eq!(table.step(step), "");
    }
    assert_eq!(table.step("1.1 exit 0"), "finish 0");
}

#[test]
fn the_only_replica_of_a_rank_can_be_moved() {
    let mut table = recovering(&[1]);
    assert_eq!(table.request(migrate("0.0", None), None), "host 2: receive 0.1 from 0.0");
    run(
        &mut table,
        &[
            ("clone listening 2", "host 0: send"),
            ("clone ready 0", "pins 0.1"),
            ("0.0 pinned", "host 0: cut"),
            ("clone stopped 0", ""),
            ("0.1 card", ""),
            ("clone running 2", "host 2: meet 2, stream 0.1 from 0.0 at 7, 1 cards, view 1, pins 0.1"),
            ("clone sent 0", ""),
            ("0.1 in-step", "pins none, recovered 0.1, kill 0.0"),
            ("0.0 signal 9", "stream 0.0 lost, 0.0 has left, view 2"),
            ("0.1 finalizing 2", "release"),
            ("0.1 exit 0", "finish 0"),
        ],
    );
}

#[test]
fn what_cannot_be_moved_is_refused_in_one_checkpoint() {
    let mut table = recovering(&[2, 2]);
    for (request, room, says) in [
        (migrate("0.2", None), None, "no live replica 0.2"),
        (migrate("7.0", None), None, "no live replica 7.0"),
        (migrate("0.1", Some(1)), Some(1), "on b already"),
        (migrate("0.1", Some(2)), Some(0), "no place free on c"),
        (migrate("0.1", None), Some(0), "1 places are needed and 0 are free"),
        (ChangeRequest::Drain { host: 0 }, Some(1), "2 places are needed and 1 are free"),
        (ChangeRequest::Degree { degree: 4, ranks: vec![VirtualRank(1)] }, None, "rank 1 has places for 3"),
        (ChangeRequest::Degree { degree: 0, ranks: vec![VirtualRank(1)] }, None, "one replica at least"),
        (
            ChangeRequest::Degree { degree: 3, ranks: vec![VirtualRank(0), VirtualRank(1)] },
            Some(1),
            "2 places are needed",
        ),
    ] {
        let said = table.request(request.clone(), room);
        assert!(said.contains(says) && !said.contains('\n'), "{request:?}: {said}");
    }
    assert_eq!(table.request(migrate("0.1", None), None), "host 2: receive 0.2 from 0.1");
    assert!(table.request(migrate("0.1", None), None).contains("on its way"));
    assert!(table.request(migrate("0.0", None), None).contains("no place for another"));
    // Without spares nothing can be copied.
    let mut table = StepTable::new(&[2]);
    assert!(table.request(migrate("0.1", None), None).contains("--spares"));
}

#[test]
fn a_drained_host_is_free_when_all_have_left() {
    let mut table = recovering(&[2, 2]);
    let said = table.request(ChangeRequest::Drain { host: 1 }, Some(2));
    assert_eq!(said, "host 2: receive 0.2 from 0.1, host 2: receive 1.2 from 1.1");
    run(
        &mut table,
        &[
            ("first listening 2", "host 1: send"),
            ("clone listening 2", "host 1: send"),
            ("clone ready 1", "pins 1.2"),
            // Only one source is cut at a time.
            ("first ready 1", ""),
        ],
    );
    let pin_all = |table: &mut StepTable, newcomer: ReplicaId| {
        let live: Vec<_> = [0, 1].into_iter().flat_map(|rank| table.manager.view().live(VirtualRank(rank))).collect();
        for replica in live {
            table.manager.handle(table.now, Input::Agent(replica, FromAgent::Pinned(vec![newcomer])));
        }
        table.said().join(", ")
    };
    assert_eq!(pin_all(&mut table, ReplicaId::new(1, 2)), "host 1: cut");
    run(
        &mut table,
        &[
            ("clone stopped 1", ""),
            ("1.2 card", ""),
            ("clone running 2", "host 2: meet 5, stream 1.2 from 1.1 at 7, 1 cards, view 1, pins 1.2, pins 0.2+1.2"),
            ("clone sent 1", ""),
            ("1.2 in-step", "pins 0.2, recovered 1.2, kill 1.1"),
            ("1.1 signal 9", "stream 1.1 lost, 1.1 has left, view 2"),
        ],
    );
    assert_eq!(pin_all(&mut table, ReplicaId::new(0, 2)), "host 1: cut");
    run(
        &mut table,
        &[
            ("clone stopped 1", ""),
            ("0.2 card", ""),
            ("clone running 2", "host 2: meet 5, stream 0.2 from 0.1 at 7, 1 cards, view 3, pins 0.2"),
            ("clone sent 1", ""),
            ("0.2 in-step", "pins none, recovered 0.2, kill 0.1"),
            ("0.1 signal 9", "stream 0.1 lost, 0.1 has left, view 4, b is free"),
        ],
    );
    // The host gets no more replicas.
    assert!(table.request(migrate("0.0", Some(1)), Some(1)).contains("is to become free"));
}

#[test]
fn a_mover_that_dies_is_replaced_by_its_copy() {
    let mut table = recovering(&[2, 2]);
    table.request(migrate("0.0", None), None);
    table.step("clone listening 2");
    assert_eq!(table.step("0.0 signal 9"), "stream 0.0 lost, lost 0.0, view 1");
    let steps = [("clone ready 1", "pins 0.2"), ("0.1 pinned", ""), ("1.0 pinned", ""), ("1.1 pinned", "host 1: cut")];
    run(&mut table, &steps);
    for step in ["clone stopped 1", "0.2 card", "clone running 2", "clone sent 1"] {
        table.step(step);
    }
    assert_eq!(table.step("0.2 in-step"), "pins none, recovered 0.2");
    assert_eq!(leaving(&table), 0);
}

#[test]
fn nobody_leaves_while_a_sibling_is_missing() {
    let mut table = recovering(&[2, 2]);
    table.request(migrate("0.0", None), None);
    for (step, _) in &COPIED[..10] {
        table.step(step);
    }
    // The sibling dies at the last moment. Two replicas are left, which is the degree.
    let said = table.step("0.1 signal 9");
    assert!(said.starts_with("stream 0.1 lost, lost 0.1, view 2") && !said.contains("kill"), "{said}");
    let said = table.step("0.2 in-step");
    assert!(said.starts_with("pins none, recovered 0.2") && !said.contains("kill"), "{said}");
    assert_eq!(leaving(&table), 1);
}

#[test]
fn a_host_that_cannot_be_used_is_tried_three_times() {
    let mut table = recovering(&[2, 2]);
    table.request(migrate("0.0", Some(2)), Some(2));
    for time in 1..=3 {
        let said = table.step("clone failed 1");
        assert_eq!(said.contains("0.0 stays"), time == 3, "{said}");
        table.step("wait 5");
    }
    assert_eq!((leaving(&table), table.manager.attempts().count()), (0, 0));
}

#[test]
fn degrees_are_raised_and_lowered() {
    let mut table = recovering(&[2, 2]);
    let degree = |degree| ChangeRequest::Degree { degree, ranks: vec![VirtualRank(0)] };
    assert_eq!(table.request(degree(3), Some(2)), "host 2: receive 0.2 from 0.1");
    for (step, _) in &COPIED[..10] {
        table.step(step);
    }
    assert_eq!(table.step("0.2 in-step"), "pins none, recovered 0.2");
    // The youngest replica that is not the leader leaves.
    assert_eq!(table.request(degree(2), None), "kill 0.2");
    assert_eq!(table.step("0.2 signal 9"), "stream 0.2 lost, 0.2 has left, view 2");
    assert_eq!(table.request(degree(1), None), "kill 0.1");
    assert_eq!(table.step("0.1 signal 9"), "stream 0.1 lost, 0.1 has left, view 3");
    // A clone that is not wanted any more is given up.
    assert_eq!(table.request(degree(2), None), "host 1: receive 0.1 from 0.0");
    assert_eq!(table.request(degree(1), None), "host 0: abandon, host 1: abandon");
    assert_eq!(table.manager.members().degree(VirtualRank(0)), 1);
}

#[test]
fn replicas_that_share_a_host_go_first() {
    // 0.0 and 0.2 are on a.
    let mut table = recovering(&[3]);
    assert_eq!(table.request(ChangeRequest::Degree { degree: 2, ranks: vec![VirtualRank(0)] }, None), "kill 0.2");
}

#[test]
fn a_spare_that_appears_is_taken_at_once() {
    let mut table = recovering(&[2]);
    table.places.remove("c", Duration::ZERO);
    let said = table.step("host b 1");
    assert!(said.ends_with("no spare for 0.1"), "{said}");
    table.hosts.push("d".into());
    table.manager.open_host(3, "d".into());
    table.places.add("d", 1, table.now);
    assert_eq!(table.said().join(", "), "host 3: receive 0.1 from 0.0");
}
