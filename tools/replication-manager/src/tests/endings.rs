//! From the start of a job to its end.

use super::*;

#[test]
fn a_good_job_meets_twice_and_finishes() {
    check(
        &[2],
        &[
            ("0.0 ready", ""),
            ("0.1 ready", "2 cards"),
            ("0.0 finalizing 0", ""),
            ("0.1 finalizing 0", "release"),
            ("0.1 exit 0", ""),
            ("0.0 exit 0", "finish 0"),
        ],
    );
}

#[test]
fn a_loss_makes_a_view_and_takes_back_finalizing() {
    check(
        &[2, 1],
        &[
            ("0.0 ready", ""),
            ("1.0 ready", ""),
            ("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 1, 2 cards"),
            ("0.0 finalizing 0", ""),
            ("1.0 finalizing 0", ""),
            ("1.0 finalizing 1", ""),
            ("0.0 finalizing 1", "release"),
            ("0.0 exit 0", ""),
            ("1.0 exit 0", "finish 0"),
        ],
    );
}

#[test]
fn a_loss_after_finalizing_ends_the_barrier_in_the_new_view() {
    check(
        &[2],
        &[
            ("0.0 ready", ""),
            ("0.1 ready", "2 cards"),
            ("0.0 finalizing 0", ""),
            ("0.1 signal 11", "stream 0.1 lost, lost 0.1, view 1"),
            ("0.0 finalizing 1", "release"),
        ],
    );
}

#[test]
fn exit_before_finalize_ends_the_job_with_that_status() {
    check(
        &[2, 2],
        &[
            ("0.0 ready", ""),
            ("0.1 ready", ""),
            ("0.0 exit 3", "stream 0.0 lost, lost 0.0, view 1"),
            ("0.1 exit 3", "stream 0.1 lost, ending"),
            ("wait 1", "kill all"),
            ("1.0 signal 9", ""),
            ("1.1 signal 9", "finish 3"),
        ],
    );
}

#[test]
fn leaving_silently_before_finalize_is_no_success() {
    check(
        &[1, 1],
        &[
            ("0.0 ready", ""),
            ("0.0 exit 0", "stream 0.0 lost, ending"),
            ("wait 1", "kill all"),
            ("1.0 signal 9", "finish 1"),
        ],
    );
}

#[test]
fn programs_without_mpi_just_exit() {
    check(&[2, 1], &[("0.0 exit 0", ""), ("1.0 exit 0", ""), ("0.1 exit 0", "finish 0")]);
    check(&[1, 1], &[("1.0 exit 4", "stream 1.0 lost, ending"), ("0.0 exit 7", "finish 7")]);
    check(
        &[1, 1],
        &[("1.0 signal 11", "stream 1.0 lost, ending"), ("wait 1", "kill all"), ("0.0 signal 9", "finish 139")],
    );
}

#[test]
fn a_rank_that_misses_init_does_not_hang_the_others() {
    check(
        &[1, 1],
        &[("0.0 exit 0", ""), ("1.0 hello", "ending"), ("wait 1", "kill all"), ("1.0 signal 9", "finish 1")],
    );
    check(
        &[1, 1],
        &[("1.0 hello", ""), ("0.0 exit 0", "ending"), ("wait 1", "kill all"), ("1.0 signal 9", "finish 1")],
    );
}

#[test]
fn a_job_in_which_nobody_can_go_on_is_ended() {
    check(
        &[1, 1],
        &[
            ("0.0 ready", ""),
            ("1.0 ready", "2 cards"),
            ("wait 1", ""),
            ("wait 1", "ask"),
            ("0.0 busy 1", ""),
            ("1.0 passive 1", ""),
            ("wait 2", "ask"),
            ("0.0 passive 2", ""),
            ("1.0 passive 2", "ask"),
            ("0.0 passive 3", ""),
            ("1.0 passive 3", "ending"),
            ("wait 1", "kill all"),
            ("0.0 signal 9", ""),
            ("1.0 signal 9", "finish 1"),
        ],
    );
}

#[test]
fn a_stray_is_retired_where_two_siblings_agree() {
    check(
        &[3],
        &[
            ("0.0 ready", ""),
            ("0.1 ready", ""),
            ("0.2 ready", "3 cards"),
            ("wait 2", "ask"),
            ("0.0 passive 1", ""),
            ("0.1 stray 1", ""),
            ("0.2 passive 1", "ask"),
            ("0.0 passive 2", ""),
            ("0.1 stray 2", ""),
            ("0.2 passive 2", "kill 0.1"),
            ("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 1"),
        ],
    );
}

#[test]
fn a_second_init_does_not_hang() {
    check(
        &[1],
        &[
            ("0.0 ready", "1 cards"),
            ("0.0 finalizing 0", "release"),
            ("0.0 hello", "ending"),
            ("wait 1", "kill all"),
            ("0.0 signal 9", "finish 1"),
        ],
    );
}

#[test]
fn abort_signals_and_timeout_decide_the_exit_code() {
    check(&[1, 1], &[("0.0 abort 7", "ending"), ("1.0 signal 9", ""), ("0.0 exit 0", "finish 7")]);
    // The system passes on only the low eight bits, and here they are those of success.
    check(&[1, 1], &[("0.0 abort 8192", "ending"), ("1.0 signal 9", ""), ("0.0 exit 0", "finish 1")]);
    check(&[1], &[("interrupt 2", "ending, signal 15"), ("0.0 exit 0", "finish 130")]);
    check(
        &[1],
        &[
            ("interrupt 15", "ending, signal 15"),
            ("wait 4", ""),
            ("wait 2", "kill all"),
            ("0.0 signal 9", "finish 143"),
        ],
    );
    check(&[1], &[("interrupt 2", "ending, signal 15"), ("interrupt 2", "kill all"), ("0.0 signal 9", "finish 130")]);
    let mut table = StepTable::new(&[1]);
    table.manager.settings.timeout = Some(Duration::from_secs(3));
    assert_eq!(table.step("wait 2"), "");
    assert_eq!(table.step("wait 1"), "ending, signal 15");
    assert_eq!(table.step("0.0 signal 15"), "finish 124");
}

#[test]
fn processes_that_cannot_be_killed_do_not_keep_the_job() {
    check(&[1], &[("0.0 abort 7", "ending"), ("wait 1", "kill all"), ("wait 1", ""), ("wait 2", "finish 7")]);
}

#[test]
fn status_after_finalize_counts() {
    check(
        &[1, 1],
        &[
            ("0.0 ready", ""),
            ("1.0 ready", "2 cards"),
            ("0.0 finalizing 0", ""),
            ("1.0 finalizing 0", "release"),
            ("1.0 exit 5", ""),
            ("0.0 exit 0", "finish 5"),
        ],
    );
}

#[test]
fn a_kill_after_release_is_made_good_by_a_sibling() {
    let together =
        [("0.0 ready", ""), ("0.1 ready", "2 cards"), ("0.0 finalizing 0", ""), ("0.1 finalizing 0", "release")];
    let killed = [("0.1 signal 9", "stream 0.1 lost, lost 0.1"), ("0.0 exit 0", "finish 0")];
    check(&[2], &[&together[..], &killed[..]].concat());
    let crashed = [("0.1 signal 11", "stream 0.1 lost, lost 0.1"), ("0.0 signal 11", "finish 139")];
    check(&[2], &[&together[..], &crashed[..]].concat());
}

#[test]
fn who_goes_on_when_two_siblings_have_ended_is_ended() {
    let together = [
        ("0.0 ready", ""),
        ("0.1 ready", ""),
        ("0.2 ready", "3 cards"),
        ("0.0 finalizing 0", ""),
        ("0.1 finalizing 0", ""),
        ("0.2 finalizing 0", "release"),
        ("0.1 exit 0", ""),
        ("wait 60", ""),
        ("0.2 exit 0", ""),
    ];
    let lost = [("wait 400", "kill 0.0"), ("0.0 signal 9", "stream 0.0 lost, lost 0.0, finish 0")];
    check(&[3], &[&together[..], &lost[..]].concat());
}

#[test]
fn a_lost_daemon_loses_its_spheres() {
    let mut table = StepTable::new(&[2]);
    table.step("0.0 ready");
    let replicas = vec![ReplicaId::new(0, 0), ReplicaId::new(0, 1)];
    table.manager.handle(table.now, Input::DaemonLost { why: "it does not answer".into(), host: "h".into(), replicas });
    let outputs: Vec<_> = std::iter::from_fn(|| table.manager.poll_output()).collect();
    assert!(outputs.iter().any(|output| matches!(output, Output::Finish(code) if *code != 0)), "{outputs:?}");
}

#[test]
fn signals_for_the_program_wait_until_replicas_know_each_other() {
    check(
        &[2],
        &[
            ("user 10", ""),
            ("user 12", ""),
            ("user 10", ""),
            ("0.0 ready", ""),
            ("0.1 ready", "2 cards, deliver 10, deliver 12"),
            ("user 10", "deliver 10"),
            ("stand still", "suspend"),
            ("go on", "go on"),
            ("interrupt 2", "ending, signal 15"),
            ("user 10", ""),
        ],
    );
}

#[test]
fn signals_come_at_once_where_there_are_no_replicas() {
    let mut table = StepTable::new(&[1, 1]);
    assert_eq!(table.step("user 10"), "");
    table.manager.launched_on(vec![0, 0]);
    assert_eq!(table.step("user 12"), "deliver 12");
    assert_eq!(table.step("0.0 ready"), "");
    assert_eq!(table.step("1.0 ready"), "2 cards, deliver 10");
}
