//! Replicas that share memory with others of their index.

use super::*;

/// Ranks 0 to 2, of which all but the last share memory with the first.
fn sharing(mut table: StepTable) -> StepTable {
    for replica in ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"] {
        table.step(&format!("{replica} ready"));
    }
    for replica in ["0.0", "0.1", "1.0", "1.1"] {
        assert_eq!(table.step(&format!("{replica} shares-with-0")), "");
    }
    table
}

#[test]
fn a_plane_is_lost_as_a_whole_and_in_one_view() {
    let steps = [
        ("2.1 signal 9", "stream 2.1 lost, lost 2.1, view 1"),
        ("1.0 signal 9", "1 go with 1.0, kill 0.0, stream 1.0 lost, lost 1.0, stream 0.0 lost, lost 0.0, view 2"),
        ("0.0 signal 9", ""),
    ];
    check_table(sharing(StepTable::new(&[2, 2, 2])), &steps);
}

#[test]
fn who_shares_with_one_that_shares_with_a_lost_one_goes_too() {
    let mut table = StepTable::new(&[2, 2, 2]);
    for replica in ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"] {
        table.step(&format!("{replica} ready"));
    }
    // Only one of the two has reported that it shares memory.
    table.step("1.1 shares-with-0");
    table.step("2.1 shares-with-0");
    let said = table.step("1.1 signal 9");
    assert!(said.starts_with("2 go with 1.1, kill 0.1, kill 2.1, ") && said.ends_with("view 1"), "{said}");
    assert_eq!(table.step("1.0 signal 9"), "stream 1.0 lost, ending");
}

#[test]
fn planes_that_both_lose_one_are_a_rank_without_replicas() {
    let steps = [
        ("1.0 signal 9", "1 go with 1.0, kill 0.0, stream 1.0 lost, lost 1.0, stream 0.0 lost, lost 0.0, view 1"),
        ("0.1 signal 9", "1 go with 0.1, kill 1.1, stream 0.1 lost, stream 1.1 lost, ending"),
    ];
    check_table(sharing(StepTable::new(&[2, 2, 2])), &steps);
    // The same holds for a replica that is to be ended because it is wrong, while a plane is about to go.
    let mut table = sharing(StepTable::new(&[2, 2, 2]));
    assert!(table.manager.retire("1.0".parse().unwrap(), RetireReason::Outvoted, 1));
    assert!(!table.manager.retire("0.1".parse().unwrap(), RetireReason::Outvoted, 1));
}

#[test]
fn who_shares_with_one_that_is_gone_is_ended() {
    let mut table = StepTable::new(&[2, 2]);
    for replica in ["0.0", "0.1", "1.0", "1.1"] {
        table.step(&format!("{replica} ready"));
    }
    table.step("0.1 signal 9");
    assert_eq!(table.step("1.1 shares-with-0"), "kill 1.1");
    assert_eq!(table.step("1.0 shares-with-0"), "");
}

#[test]
fn ranks_that_share_memory_are_copied_when_they_do_so_no_more() {
    let mut table = recovering(&[2, 2]);
    for replica in ["0.0", "0.1", "1.0", "1.1"] {
        table.step(&format!("{replica} shares-with-0"));
    }
    let requests = [
        ChangeRequest::Migrate { replica: "1.0".parse().unwrap(), to: Some(2) },
        ChangeRequest::Drain { host: 0 },
        ChangeRequest::Degree { degree: 1, ranks: vec![VirtualRank(0), VirtualRank(1)] },
    ];
    for request in requests {
        let answer = table.request(request.clone(), None);
        assert!(answer.contains("shares memory with other ranks"), "{request:?}: {answer}");
    }
    let said = table.step("1.0 signal 9");
    assert!(said.starts_with("1 go with 1.0, kill 0.0, ") && said.ends_with(", 0.0 stays empty"), "{said}");
    assert_eq!(table.step("wait 100"), "ask", "it is said once");
    assert_eq!(table.step("0.0 signal 9"), "");
    assert_eq!(table.step("1.1 shares"), "host 2: receive 1.0 from 1.1");
    assert_eq!(table.step("0.1 shares"), "host 2: receive 0.0 from 0.1");
}
