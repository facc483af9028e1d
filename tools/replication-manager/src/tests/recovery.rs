//! Lost replicas are replaced.

use super::*;

const CLONED: [(&str, &str); 11] = [
    ("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 1, host 2: receive 0.1 from 0.0"),
    ("clone listening 2", "host 0: send"),
    ("clone ready 0", "pins 0.1"),
    ("0.0 pinned", ""),
    ("1.0 pinned", ""),
    ("1.1 pinned", "host 0: cut"),
    ("clone stopped 0", ""),
    ("0.1 card", ""),
    ("clone running 2", "host 2: meet 4, stream 0.1 from 0.0 at 7, 1 cards, view 2, pins 0.1"),
    ("clone sent 0", ""),
    ("0.1 in-step", "pins none, recovered 0.1"),
];

#[test]
fn the_copy_of_a_lost_replica_finalizes_with_the_others() {
    let rest = [
        ("0.0 finalizing 2", ""),
        ("0.1 finalizing 2", ""),
        ("1.0 finalizing 2", ""),
        ("1.1 finalizing 2", "release"),
        ("0.0 exit 0", ""),
        ("0.1 exit 0", ""),
        ("1.0 exit 0", ""),
        ("1.1 exit 0", "finish 0"),
    ];
    check_table(recovering(&[2, 2]), &[&CLONED[..], &rest[..]].concat());
}

#[test]
fn a_copy_that_is_lost_is_replaced_like_any_other() {
    let again = [("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 3, host 1: receive 0.1 from 0.0")];
    check_table(recovering(&[2, 2]), &[&CLONED[..], &again[..]].concat());
}

/// Replicas of a rank are copied from the rarest lineage. When only one lineage is left, the user is told.
#[test]
fn a_rank_that_descends_from_one_copy_is_told_of() {
    let mut table = recovering(&[3]);
    let mut said = Vec::new();
    let mut copy = |lost: &str, from: u32, to: u32| {
        let words = table.step(&format!("{lost} signal 9"));
        said.push(words.split(", ").last().unwrap_or_default().to_owned());
        let joins = ["clone listening TO", "clone ready FROM", "P pinned", "Q pinned", "clone stopped FROM", "C card"];
        let siblings: Vec<_> = ["0.0", "0.1", "0.2"].into_iter().filter(|one| *one != lost).collect();
        for step in joins {
            let step = step.replace("TO", &to.to_string()).replace("FROM", &from.to_string());
            table.step(&step.replace('P', siblings[0]).replace('Q', siblings[1]).replace('C', lost));
        }
        let words = table.step(&format!("clone running {to}"));
        said.push(words.split(", ").find(|one| one.contains("lineage")).unwrap_or_default().to_owned());
        table.step(&format!("clone sent {from}"));
        table.step(&format!("{lost} in-step"));
    };
    copy("0.1", 0, 2);
    copy("0.0", 2, 1);
    assert_eq!(said, ["host 2: receive 0.1 from 0.2", "", "host 1: receive 0.0 from 0.1", "rank 0 is of one lineage"]);
}

#[test]
fn a_copy_is_told_of_when_its_cost_is_known_or_never_will_be() {
    let told = [("sent", "recovered 0.1"), ("failed", "recovered 0.1 at unknown cost")];
    for (last, words) in told {
        let mut table = recovering(&[2, 2]);
        let steps = CLONED.iter().map(|(step, _)| *step).filter(|step| *step != "clone sent 0");
        let mut steps: Vec<_> = steps.collect();
        steps.pop();
        steps.into_iter().for_each(|step| drop(table.step(step)));
        let late = table.clone_step(false, last, 0);
        assert_eq!(table.step("0.1 in-step"), "pins none");
        late.into_iter().for_each(|input| table.manager.handle(table.now, input));
        assert_eq!(table.said(), [words]);
    }
    for (last, words) in [("0.0 finalizing 2", ""), ("1.1 finalizing 2", "recovered 0.1 at unknown cost, release")] {
        let mut table = recovering(&[2, 2]);
        let before = ["0.1 finalizing 2", "1.0 finalizing 2", "0.0 finalizing 2"];
        let steps = CLONED.iter().map(|(step, _)| *step).filter(|step| *step != "clone sent 0");
        let steps: Vec<_> = steps.chain(before.into_iter().filter(|step| *step != last)).collect();
        steps.into_iter().for_each(|step| drop(table.step(step)));
        assert_eq!(table.step(last), words);
    }
}

#[test]
fn a_clone_whose_source_is_lost_is_given_up() {
    let mut table = recovering(&[3, 1]);
    for step in ["0.1 signal 9", "clone listening 2", "clone ready 0"] {
        table.step(step);
    }
    let words = table.step("0.2 signal 9");
    assert_eq!(
        words,
        "stream 0.2 lost, lost 0.2, view 2, pins none, \
         host 0: abandon, host 2: abandon, host 1: receive 0.2 from 0.0"
    );
}

#[test]
fn a_failed_clone_is_tried_again_after_a_rest() {
    let mut table = recovering(&[2, 1]);
    table.step("0.1 signal 9");
    assert_eq!(table.step("clone failed 2"), "host 0: abandon, host 2: abandon");
    assert_eq!(table.step("wait 0"), "");
    assert_eq!(table.step("wait 5"), "ask, host 1: receive 0.1 from 0.0");
}

/// A replica that the kernel killed for want of memory is not copied to a host where the next one would be killed.
#[test]
fn a_copy_waits_for_memory_and_that_is_reported_once() {
    let mut table = recovering(&[2, 1]);
    // All other hosts are gone, so that the copy can only go where memory ran out.
    table.places.remove("c", table.now);
    let steps = [
        ("0.0 resident 800", ""),
        ("0.1 resident 720", ""),
        // An eighth more than the replica has, since its memory grows.
        (
            "0.1 out-of-memory",
            "stream 0.1 lost, lost 0.1, view 1, no spare for 0.1, host 1: receive 0.1 from 0.0 with 900",
        ),
        ("clone short 1", "host 0: abandon, host 1: abandon, 0.1 waits for memory"),
        ("wait 0", ""),
        ("wait 5", "ask, host 1: receive 0.1 from 0.0 with 900"),
        ("clone short 1", "host 0: abandon, host 1: abandon"),
        ("wait 5", "host 1: receive 0.1 from 0.0 with 900"),
        ("clone listening 1", "host 0: send"),
        // The copy did not fit. The kernel killed it and not its source, since a copy offers itself as the victim.
        ("clone killed 1", "host 0: abandon, host 1: abandon"),
        ("wait 5", "ask, host 1: receive 0.1 from 0.0 with 900"),
        ("clone listening 1", "host 0: send"),
        ("clone ready 0", "pins 0.1"),
    ];
    check_table(table, &steps);
}

#[test]
fn a_copy_goes_rather_where_memory_has_not_run_out() {
    let steps = [
        ("0.0 resident 800", ""),
        ("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 1, host 2: receive 0.1 from 0.0 with 800"),
        ("clone short 2", "host 0: abandon, host 2: abandon, 0.1 waits for memory"),
        ("wait 5", "ask, host 1: receive 0.1 from 0.0 with 800"),
    ];
    check_table(recovering(&[2, 1]), &steps);
}

#[test]
fn a_replica_that_can_never_be_copied_is_not_tried_again() {
    let mut table = recovering(&[2, 1]);
    table.step("0.1 signal 9");
    table.step("clone listening 2");
    table.step("clone refused 0");
    for wait in ["wait 5", "wait 500"] {
        let words = table.step(wait);
        assert!(!words.contains("receive"), "{words}");
    }
    // Another replica of its rank is copied.
    let mut table = recovering(&[3, 1]);
    let words = table.step("0.2 signal 9");
    let source = words.split(" from ").nth(1).expect("one is copied").to_owned();
    table.step("clone refused 0");
    table.step("clone refused 1");
    let words = table.step("wait 5");
    assert!(words.contains("receive 0.2 from") && !words.ends_with(&source), "{source}: {words}");
}

#[test]
fn a_partner_that_dies_is_not_waited_for() {
    let mut table = recovering(&[2, 2]);
    for step in ["0.1 signal 9", "clone listening 2", "clone ready 0", "0.0 pinned", "1.0 pinned"] {
        table.step(step);
    }
    let words = table.step("1.1 signal 9");
    assert!(words.starts_with("stream 1.1 lost, lost 1.1, view 2, host 0: cut"), "{words}");
}

#[test]
fn without_a_spare_the_job_goes_on() {
    let mut table = recovering(&[2]);
    table.places.remove("c", Duration::ZERO);
    assert_eq!(table.step("host b 1"), "stream 0.1 lost, lost 0.1, view 1, no spare for 0.1");
    assert_eq!(table.step("0.0 finalizing 1"), "release");
    assert_eq!(table.step("0.0 exit 0"), "finish 0");
}

#[test]
fn a_rank_is_short_from_the_loss_until_its_copy_is_in_step() {
    let mut table = recovering(&[2, 2]);
    table.step("wait 10");
    for (step, _) in CLONED {
        table.step(step);
        if step == "0.1 signal 9" || step == "clone running 2" {
            table.now += Duration::from_secs(3);
        }
    }
    table.now += Duration::from_secs(10);
    for step in ["0.0 finalizing 2", "0.1 finalizing 2", "1.0 finalizing 2", "1.1 finalizing 2"] {
        table.step(step);
    }
    table.now += Duration::from_secs(100);
    let total = table.manager.redundancy().total(table.now);
    assert_eq!((total.short(), total.single, total.missing_count), (Duration::from_secs(6), Duration::from_secs(6), 0));
    assert_eq!(total.required, Duration::from_secs(52));
}

#[test]
fn a_replica_that_nobody_replaced_is_missing_at_the_end() {
    let mut table = recovering(&[2]);
    table.places.remove("c", Duration::ZERO);
    table.step("host b 1");
    table.now += Duration::from_secs(5);
    for step in ["0.0 finalizing 1", "0.0 exit 0"] {
        table.step(step);
    }
    let total = table.manager.redundancy().total(table.now);
    assert_eq!(
        (total.required, total.single, total.missing_count),
        (Duration::from_secs(5), Duration::from_secs(5), 1)
    );
}

#[test]
fn clones_under_way_are_given_up_when_all_finalize() {
    let mut table = recovering(&[2]);
    for step in ["0.1 signal 9", "clone listening 2"] {
        table.step(step);
    }
    assert_eq!(table.step("0.0 finalizing 1"), "host 0: abandon, host 2: abandon, release");
    assert_eq!(table.step("0.0 exit 0"), "finish 0");
}

#[test]
fn a_connection_broken_with_the_dead_does_not_blame_the_copy() {
    let suspect = |table: &mut StepTable, by: &str, replica: &str| {
        let input = Input::Agent(
            by.parse().unwrap(),
            FromAgent::Suspect { peer: replica.parse().unwrap(), host_is_silent: false },
        );
        table.manager.handle(table.now, input);
    };
    let mut table = recovering(&[2, 2]);
    suspect(&mut table, "1.0", "0.1");
    for (step, expected) in CLONED {
        assert_eq!(table.step(step), expected);
        if step == "clone listening 2" {
            suspect(&mut table, "1.1", "0.1");
        }
    }
    assert_eq!(table.step("wait 5"), "ask");
}
