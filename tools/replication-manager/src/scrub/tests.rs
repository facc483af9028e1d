use super::*;
use redrt_types::{CutNumber, Kinship, ReplicaIndex, ReplicaSet};

const SECOND: Duration = Duration::from_secs(1);

/// Rounds of one rank with `degree` replicas, whose answers the test gives.
struct Rig {
    watch: ScrubWatch,
    live: BTreeSet<ReplicaId>,
    now: Duration,
    kinship: Kinship,
    cuts: u64,
}

impl Rig {
    fn new(degree: u16) -> Self {
        let live = (0..degree).map(|index| ReplicaId::new(0, index)).collect();
        Self {
            watch: ScrubWatch::new(Some(SECOND), ROUND_BYTES_MAX, 1),
            live,
            now: Duration::ZERO,
            kinship: Kinship::default(),
            cuts: 0,
        }
    }

    fn answer(&mut self, index: u16, answer: Answer) -> Vec<Finding> {
        let round = self.watch.round;
        self.watch.answered(ReplicaId::new(0, index), round, answer, &self.live, &self.kinship)
    }

    /// Begins a round in which the replicas are at these collectives. Returns the order of the rank.
    fn order(&mut self, positions: &[u64]) -> Order {
        self.now += SECOND;
        assert!(matches!(
            self.watch.pass_time(self.now, CutNumber(self.cuts)).last(),
            Some(Finding::Send(Scrub::Where { .. }))
        ));
        let mut told = Vec::new();
        for (index, position) in positions.iter().enumerate() {
            told = self.answer(index as u16, Answer::Position(*position));
        }
        let [Finding::Send(Scrub::Orders { orders, .. })] = &told[..] else { panic!("{told:?}") };
        orders[0]
    }

    /// Runs a round in which each replica has these digests of its pages, from page 1 on.
    fn round(&mut self, memories: &[&[u64]]) -> Vec<Finding> {
        let order = self.order(&vec![5; memories.len()]);
        let mut found = Vec::new();
        for (index, digests) in memories.iter().enumerate() {
            found = self.answer(index as u16, pages(order.collective, digests));
        }
        found
    }
}

fn pages(collective: u64, digests: &[u64]) -> Answer {
    let stretches = vec![Stretch { start: 4096, digests: digests.to_vec(), plain: Vec::new() }];
    Answer::Pages { collective, stretches, next: 0 }
}

/// The numbers of the pages that differ, and the indexes of outvoted replicas.
fn differences(findings: &[Finding]) -> Vec<(Vec<u64>, Vec<u16>)> {
    let one = |finding: &Finding| match finding {
        Finding::Differs(difference) => {
            let pages = difference.pages.iter().map(|page| page / 4096).collect();
            Some((pages, difference.outvoted.iter().map(|replica| replica.index.0).collect()))
        }
        _ => None,
    };
    findings.iter().filter_map(one).collect()
}

#[test]
fn a_page_that_was_equal_and_is_not_any_more_is_named_once() {
    let mut rig = Rig::new(3);
    assert_eq!(differences(&rig.round(&[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3]])), []);
    // All change alike, then one alone.
    assert_eq!(differences(&rig.round(&[&[1, 7, 3], &[1, 7, 3], &[1, 7, 3]])), []);
    assert_eq!(differences(&rig.round(&[&[1, 7, 3], &[1, 8, 3], &[1, 7, 3]])), [(vec![2], vec![1])]);
    assert_eq!(differences(&rig.round(&[&[1, 7, 3], &[1, 8, 3], &[1, 7, 3]])), []);
    let Coverage { comparisons, pages_compared, pages_watched, pages_excluded, .. } = rig.watch.coverage();
    assert_eq!((comparisons, pages_compared, pages_watched, pages_excluded), (4, 11, 3, 1));
}

#[test]
fn what_differs_from_the_first_is_left_out() {
    let mut rig = Rig::new(2);
    assert_eq!(differences(&rig.round(&[&[1, 2], &[1, 3]])), []);
    assert_eq!(differences(&rig.round(&[&[1, 4], &[1, 5]])), []);
    // Two replicas have no majority.
    assert_eq!(differences(&rig.round(&[&[6, 4], &[1, 5]])), [(vec![1], vec![])]);
}

#[test]
fn what_only_some_have_is_not_compared_and_counted() {
    let mut rig = Rig::new(2);
    assert_eq!(differences(&rig.round(&[&[1, 2], &[1]])), []);
    assert_eq!(rig.watch.coverage().pages_unmatched, 1);
    assert_eq!(differences(&rig.round(&[&[1, 2], &[1, 2]])), []);
    assert_eq!(rig.watch.coverage().pages_unmatched, 0);
}

#[test]
fn a_place_that_somebody_has_passed_is_farther_ahead_next_time() {
    let mut rig = Rig::new(2);
    assert_eq!(rig.order(&[3, 9]).collective, 10);
    rig.answer(0, pages(10, &[1]));
    assert_eq!(rig.answer(1, Answer::Late), [Finding::Over(Coverage::default())]);
    assert_eq!(rig.order(&[20, 19]).collective, 24);
    // The next round waits for the interval. Its place is nearer, since no replica came to the last one.
    assert_eq!(rig.watch.pass_time(rig.now, CutNumber(0)), []);
    assert_eq!(rig.order(&[21, 21]).collective, 23);
}

#[test]
fn pages_of_different_places_are_not_compared() {
    let mut rig = Rig::new(2);
    rig.round(&[&[1], &[1]]);
    let order = rig.order(&[5, 5]);
    rig.answer(0, pages(order.collective, &[1]));
    assert_eq!(differences(&rig.answer(1, pages(order.collective + 1, &[2]))), []);
    assert_eq!(rig.watch.coverage().comparisons, 1);
}

#[test]
fn answers_of_another_round_and_of_the_lost_do_not_count() {
    let mut rig = Rig::new(3);
    rig.round(&[&[1], &[1], &[1]]);
    let order = rig.order(&[5, 5, 5]);
    let old = rig.watch.round - 1;
    assert_eq!(
        rig.watch.answered(ReplicaId::new(0, 0), old, pages(order.collective, &[2]), &rig.live, &rig.kinship),
        []
    );
    rig.live.remove(&ReplicaId::new(0, 2));
    assert_eq!(rig.answer(2, pages(order.collective, &[2])), []);
    rig.answer(0, pages(order.collective, &[1]));
    assert_eq!(differences(&rig.answer(1, pages(order.collective, &[1]))), []);
    assert_eq!(rig.watch.coverage().comparisons, 2);
    rig.watch.reset(|_| ReplicaSet::EMPTY);
    assert_eq!(rig.answer(0, pages(order.collective, &[3])), []);
}

#[test]
fn a_rank_that_cannot_be_compared_is_left_alone_and_said_once() {
    let mut rig = Rig::new(2);
    let order = rig.order(&[5, 5]);
    rig.answer(0, Answer::Unfit("has 3 threads".into()));
    let found = rig.answer(1, pages(order.collective, &[1]));
    assert_eq!(found[0], Finding::Unfit(ReplicaId::new(0, 0), "has 3 threads".into()));
    assert_eq!(rig.order(&[6, 6]).collective, NONE);
}

#[test]
fn more_memory_than_a_round_looks_at_is_not_believed() {
    let of = |count: usize| Answer::Pages {
        collective: 1,
        stretches: vec![Stretch { start: 0, digests: vec![0; count], plain: Vec::new() }],
        next: 0,
    };
    assert!(is_plausible(&of(1 << 18)) && !is_plausible(&of((1 << 18) + 1)));
}

#[test]
fn memory_too_large_for_a_round_goes_on_in_the_next() {
    let mut rig = Rig::new(2);
    let order = rig.order(&[5, 5]);
    for index in [0, 1] {
        let stretches = vec![Stretch { start: 4096, digests: vec![1], plain: Vec::new() }];
        rig.answer(index, Answer::Pages { collective: order.collective, stretches, next: 8192 });
    }
    assert_eq!(rig.order(&[6, 6]).from, 8192);
}

/// The complete passes: replicas, last cut before, and groups with the same contents.
fn passes(findings: &[Finding]) -> Vec<(Vec<u16>, u64, Vec<Vec<u16>>)> {
    let numbers = |set: &ReplicaSet| set.iter().map(|index| index.0).collect::<Vec<_>>();
    let one = |finding: &Finding| match finding {
        Finding::Compared(_, pass) => {
            Some((numbers(&pass.compared), pass.since.0, pass.sides.iter().map(numbers).collect()))
        }
        _ => None,
    };
    findings.iter().filter_map(one).collect()
}

#[test]
fn kin_do_not_outvote_the_page_of_another_lineage() {
    let mut rig = Rig::new(3);
    assert_eq!(differences(&rig.round(&[&[1, 2], &[1, 2], &[1, 2]])), []);
    rig.kinship.join(ReplicaIndex(2), ReplicaIndex(1), CutNumber(1));
    assert_eq!(differences(&rig.round(&[&[1, 2], &[1, 7], &[1, 7]])), [(vec![2], vec![])]);
    // A difference that only the copy has arose after the cut.
    assert_eq!(differences(&rig.round(&[&[1, 2], &[8, 7], &[1, 7]])), [(vec![1], vec![1])]);
}

#[test]
fn a_pass_says_who_was_alike_where_not_all_were() {
    let mut rig = Rig::new(3);
    rig.cuts = 4;
    assert_eq!(passes(&rig.round(&[&[1, 2], &[1, 2], &[1, 2]])), [(vec![0, 1, 2], 4, vec![])]);
    let split = rig.round(&[&[1, 2], &[1, 3], &[1, 3]]);
    assert_eq!(passes(&split), [(vec![0, 1, 2], 4, vec![vec![0], vec![1, 2]])]);
    // A page that one replica lacks is not compared.
    assert_eq!(passes(&rig.round(&[&[1, 2], &[1, 2], &[1]])), [(vec![0, 1, 2], 4, vec![vec![0, 1], vec![2]])]);
}

#[test]
fn a_pass_that_the_membership_interrupts_proves_nothing() {
    let mut rig = Rig::new(3);
    let order = rig.order(&[5, 5, 5]);
    let next = Answer::Pages { collective: order.collective, stretches: Vec::new(), next: 1 << 20 };
    let found: Vec<_> = (0..3).flat_map(|index| rig.answer(index, next.clone())).collect();
    assert_eq!(passes(&found), []);
    rig.watch.reset(|_| ReplicaSet::EMPTY);
    // The pass begins with the first page again.
    let order = rig.order(&[5, 5, 5]);
    assert_eq!(order.from, 0);
}

/// In each replica other words look like those that differ in each process.
#[test]
fn words_that_differ_in_each_process_do_not_count() {
    let page = |digest, plain| Page { address: 0, digest, plain };
    let of = |pages: [Page; 3]| {
        let found: Vec<_> = (0..).map(ReplicaIndex).zip(pages).collect();
        digests_of(&found).into_iter().map(|(_, digest)| digest).collect::<Vec<_>>()
    };
    assert_eq!(of([page(1, 1), page(1, 5), page(1, 6)]), [1, 1, 1]);
    assert_eq!(of([page(1, 9), page(2, 9), page(3, 9)]), [1, 1, 1]);
    assert_eq!(of([page(1, 5), page(2, 2), page(1, 6)]), [1, 2, 1]);
    assert_eq!(of([page(1, 9), page(2, 8), page(3, 9)]), [1, 2, 1]);
}
