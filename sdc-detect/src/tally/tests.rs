use super::*;
use redrt_types::CutNumber;

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

#[test]
fn who_comes_in_the_place_of_one_that_was_lost_votes_anew() {
    for index in [1, 7] {
        let mut tally = Tally::default();
        let replica = ReplicaIndex(index);
        tally.record(ReplicaIndex(0), Digest(1), true);
        tally.record(replica, Digest(2), true);
        tally.forget(ReplicaSet::only(replica));
        assert_eq!((tally.claim(replica), tally.claimed().len()), (None, 1));
        tally.record(replica, Digest(1), true);
        let live = [ReplicaIndex(0), replica].into_iter().collect();
        assert_eq!(tally.verdict(Digest(1), ReplicaIndex(0), live, &Kinship::default()), Some(Verdict::Unanimous));
    }
}

/// One other replica of the sphere, next to the supplier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Voter {
    dead: bool,
    /// 0 is the supplier's claim; `None` has not voted.
    says: Option<u8>,
}

impl Voter {
    fn letter(self) -> char {
        match (self.says, self.dead) {
            (Some(says), false) => (b'A' + says) as char,
            (Some(says), true) => (b'a' + says) as char,
            (None, false) => '-',
            (None, true) => '.',
        }
    }
}

/// All ways `count` others can vote, up to their order and to the names of the digests.
fn others(count: usize) -> Vec<Vec<Voter>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let extend = |voters: Vec<Voter>| {
            let new = voters.iter().filter_map(|voter| voter.says).max().unwrap_or(0) + 1;
            let says = (0..=new).map(Some).chain([None]);
            let choices: Vec<Voter> =
                [false, true].into_iter().flat_map(|dead| says.clone().map(move |says| Voter { dead, says })).collect();
            let last = voters.last().copied();
            choices
                .into_iter()
                .filter(move |voter| last.is_none_or(|last| *voter >= last))
                .map(move |voter| [voters.clone(), vec![voter]].concat())
        };
        all = all.into_iter().flat_map(extend).collect();
    }
    all
}

fn verdict(supplier: Voter, others: &[Voter], places: &[usize], payload: Digest) -> Option<Verdict> {
    let mut tally = Tally::default();
    let mut live = ReplicaSet::EMPTY;
    for (voter, place) in [supplier].iter().chain(others).zip(places) {
        let replica = ReplicaIndex(*place as u16);
        if let Some(says) = voter.says {
            tally.record(replica, Digest(u128::from(says)), true);
        }
        if !voter.dead {
            live.insert(replica);
        }
    }
    tally.verdict(payload, ReplicaIndex(places[0] as u16), live, &Kinship::default())
}

fn text(verdict: Option<Verdict>, names: &[char]) -> String {
    match verdict {
        None => "wait".to_owned(),
        Some(Verdict::Unanimous) => "unanimous".to_owned(),
        Some(Verdict::TransportCorrupt) => "transport corrupt".to_owned(),
        Some(Verdict::Undecidable) => "undecidable".to_owned(),
        Some(Verdict::ReplicaCorrupt { culprits, agreed }) => {
            let places: Vec<_> = culprits.iter().map(|culprit| names[usize::from(culprit.0)]).collect();
            format!("corrupt {}, agreed {}", String::from_iter(places), (b'A' + agreed.0 as u8) as char)
        }
    }
}

/// The table of one degree. Column 1: the payload on arrival (`X` differs from the supplier's claim). Column 2: the
/// supplier's claim. Column 3: the claims of the others, `-` for none; small letters and `.` for the dead.
fn table(degree: usize) -> String {
    let places: Vec<usize> = (0..degree).collect();
    let names: Vec<char> = (b'0'..).map(char::from).take(degree).collect();
    let mut lines = String::from("# payload, supplier 0, others 1.. -> verdict\n");
    for others in others(degree - 1) {
        for supplier in [false, true].map(|dead| Voter { dead, says: Some(0) }) {
            for (payload, name) in [(Digest(0), 'A'), (Digest(99), 'X')] {
                let letters: String = others.iter().map(|voter| voter.letter()).collect();
                let verdict = text(verdict(supplier, &others, &places, payload), &names);
                lines += &format!("{name} {} {letters} -> {verdict}\n", supplier.letter());
            }
        }
    }
    lines
}

/// `REDRT_GOLDEN=write` rewrites the tables; review the difference before it is committed.
#[test]
fn verdicts_equal_the_golden_tables() {
    for degree in 2..=5 {
        let path = format!("{}/testdata/votes-r{degree}.txt", env!("CARGO_MANIFEST_DIR"));
        let table = table(degree);
        if std::env::var("REDRT_GOLDEN").as_deref() == Ok("write") {
            std::fs::write(&path, &table).expect("testdata can be written");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        for (ours, theirs) in table.lines().zip(golden.lines()) {
            assert_eq!(ours, theirs, "{path}");
        }
        assert_eq!(table.lines().count(), golden.lines().count(), "{path}");
    }
}

#[test]
fn verdict_does_not_depend_on_the_places_of_the_voters() {
    for degree in 2..=4_usize {
        let places: Vec<usize> = (0..degree).collect();
        for others in others(degree - 1) {
            for dead in [false, true] {
                let supplier = Voter { dead, says: Some(0) };
                let kind = |places: &[usize]| match verdict(supplier, &others, places, Digest(0)) {
                    Some(Verdict::ReplicaCorrupt { mut culprits, agreed }) => {
                        let place = |it: &ReplicaIndex| places.iter().position(|place| *place == usize::from(it.0));
                        culprits.sort_by_key(place);
                        let who = culprits.iter().map(place).collect();
                        (Some(Verdict::ReplicaCorrupt { culprits: Vec::new(), agreed }), who)
                    }
                    other => (other, Vec::new()),
                };
                let mut turned = places.clone();
                turned.rotate_left(1);
                let mut reversed = places.clone();
                reversed.reverse();
                assert_eq!(kind(&places), kind(&turned));
                assert_eq!(kind(&places), kind(&reversed));
            }
        }
    }
}

/// Checks the rules that hold for every line of the tables.
#[test]
fn majority_and_only_the_majority_names_culprits() {
    for degree in 2..=5_usize {
        let places: Vec<usize> = (0..degree).collect();
        for others in others(degree - 1) {
            let supplier = Voter { dead: false, says: Some(0) };
            let counting: Vec<u8> =
                [supplier].iter().chain(&others).filter(|voter| !voter.dead).filter_map(|voter| voter.says).collect();
            let is_complete = others.iter().all(|voter| voter.dead || voter.says.is_some());
            let count = |says: u8| counting.iter().filter(|other| **other == says).count();
            let majority = counting.iter().copied().find(|says| count(*says) * 2 > counting.len());
            let verdict = verdict(supplier, &others, &places, Digest(0));
            assert_eq!(verdict.is_some(), is_complete);
            match verdict {
                Some(Verdict::ReplicaCorrupt { culprits, agreed }) => {
                    let majority = majority.expect("there is a majority");
                    assert_eq!(agreed, Digest(u128::from(majority)));
                    assert_eq!(culprits.len(), counting.len() - count(majority));
                }
                Some(Verdict::Unanimous) => assert_eq!(count(0), counting.len()),
                Some(Verdict::Undecidable) => assert_eq!(majority, None),
                Some(Verdict::TransportCorrupt) => panic!("the payload is what the supplier claims"),
                None => {}
            }
        }
    }
}

/// Judges a dispute of two replicas that arbiters have joined: copies of the first (2) and of the second (3). `claims`
/// by index; a replica without a claim is not live.
fn arbitrated(claims: [Option<u128>; 4]) -> Option<Vec<u16>> {
    let mut tally = Tally::default();
    let places = || (0..4_u16).map(ReplicaIndex).zip(claims);
    for (replica, claim) in places() {
        claim.into_iter().for_each(|claim| tally.record(replica, Digest(claim), true));
    }
    let live = places().filter(|(_, claim)| claim.is_some()).map(|(replica, _)| replica).collect();
    let mut kinship = Kinship::default();
    kinship.join(ReplicaIndex(0), ReplicaIndex(2), CutNumber(1));
    kinship.join(ReplicaIndex(1), ReplicaIndex(3), CutNumber(2));
    let (supplier, claim) = places().find_map(|(replica, claim)| Some((replica, claim?))).unwrap();
    match tally.verdict(Digest(claim), supplier, live, &kinship).unwrap() {
        Verdict::ReplicaCorrupt { culprits, .. } => Some(culprits.into_iter().map(|culprit| culprit.0).collect()),
        Verdict::Undecidable => None,
        other => panic!("{other:?}"),
    }
}

/// The right payload is 7. A fault from before the copies were made is in original and copy.
#[test]
fn arbiters_name_only_replicas_that_went_wrong_after_the_cut() {
    let (good, bad) = (Some(7), Some(8));
    // The fault came after the copies were made.
    assert_eq!(arbitrated([bad, good, good, good]), Some(vec![0]));
    assert_eq!(arbitrated([good, bad, good, good]), Some(vec![1]));
    // With one arbiter only: a replica is named where the arbiter contradicts its own original.
    assert_eq!(arbitrated([bad, good, good, None]), Some(vec![0]));
    assert_eq!(arbitrated([bad, good, None, good]), None);
    assert_eq!(arbitrated([good, bad, good, None]), None);
    // The fault came before: the dispute stays open, also when one of the four has died meanwhile.
    assert_eq!(arbitrated([bad, good, bad, good]), None);
    assert_eq!(arbitrated([bad, good, bad, None]), None);
    assert_eq!(arbitrated([bad, None, bad, good]), None);
    assert_eq!(arbitrated([None, good, bad, good]), None);
    assert_eq!(arbitrated([good, bad, good, bad]), None);
    // An arbiter's own later fault accuses nobody else.
    assert_eq!(arbitrated([good, good, bad, good]), Some(vec![2]));
    assert_eq!(arbitrated([bad, good, Some(9), good]), None);
}

/// No side names a culprit by itself: every majority has votes of both.
#[test]
fn a_named_culprit_is_contradicted_by_both_sides() {
    for code in 0..4_usize.pow(4) {
        let claims = [0, 1, 2, 3].map(|place| [None, Some(1), Some(2), Some(3)][code / 4_usize.pow(place) % 4]);
        let Some(first) = claims.iter().flatten().next() else { continue };
        if claims.iter().flatten().all(|claim| claim == first) {
            continue;
        }
        let Some(culprits) = arbitrated(claims) else { continue };
        let agreed: Vec<_> =
            (0..4_u16).filter(|place| claims[usize::from(*place)].is_some() && !culprits.contains(place)).collect();
        assert!(
            agreed.iter().any(|place| place % 2 == 0) && agreed.iter().any(|place| place % 2 == 1),
            "{claims:?}: {culprits:?}"
        );
    }
}

/// The replicas named by the votes of 0, 1 and 2, of which 1 is a copy of 2; `None` when undecidable.
fn beside_a_copy(claims: [u128; 3]) -> Option<Vec<u16>> {
    let mut tally = Tally::default();
    let mut kinship = Kinship::default();
    kinship.join(ReplicaIndex(2), ReplicaIndex(1), CutNumber(1));
    let places: Vec<_> = (0..).map(ReplicaIndex).zip(claims).collect();
    places.iter().for_each(|(replica, claim)| tally.record(*replica, Digest(*claim), true));
    let live = places.iter().map(|(replica, _)| *replica).collect();
    match tally.verdict(Digest(claims[0]), ReplicaIndex(0), live, &kinship).unwrap() {
        Verdict::ReplicaCorrupt { culprits, .. } => Some(culprits.into_iter().map(|culprit| culprit.0).collect()),
        Verdict::Undecidable => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn kin_do_not_outvote_a_replica_of_another_lineage() {
    let (good, bad) = (7, 8);
    assert_eq!(beside_a_copy([good, bad, bad]), None, "the source was corrupt before it was copied");
    assert_eq!(beside_a_copy([bad, good, good]), None, "nothing tells that from the other");
    assert_eq!(beside_a_copy([good, good, bad]), Some(vec![2]));
    assert_eq!(beside_a_copy([good, bad, good]), Some(vec![1]));
}
