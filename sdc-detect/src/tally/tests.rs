use super::*;

#[test]
fn set_iterates_its_members_by_index() {
    let set: ReplicaSet = [5, 0, 63, 5].map(ReplicaIndex).into_iter().collect();
    assert!(set.iter().eq([0, 5, 63].map(ReplicaIndex)));
    assert_eq!(set.len(), 3);
    assert!(!set.contains(ReplicaIndex(64)));
}

#[test]
fn first_final_vote_stands() {
    for index in [1, 7] {
        let mut tally = Tally::default();
        let replica = ReplicaIndex(index);
        tally.record(replica, Digest(1), false);
        tally.record(replica, Digest(2), false);
        assert_eq!(tally.claim(replica), Some(Digest(2)), "an open vote is replaced");
        tally.confirm(replica);
        tally.record(replica, Digest(3), true);
        assert_eq!(tally.claim(replica), Some(Digest(2)));
    }
}
