//! The engine against an oracle that scans vectors, and followers against their leader.

use super::*;
use proptest::prelude::*;

/// MPI-5.0 §3.5 as written: two lists in order.
#[derive(Default)]
struct Oracle {
    posted: Vec<(Pattern, u32, Option<u64>)>,
    unexpected: Vec<(u32, Tag, u32)>,
    wildcard_count: u64,
}

impl Oracle {
    fn post(&mut self, pattern: Pattern, receive: u32) -> Posted<u32> {
        let index = pattern.source.is_none().then_some(self.wildcard_count);
        self.wildcard_count += u64::from(index.is_some());
        match self.take(pattern) {
            Some(taken) => Posted::Matched(Taken { decided: index, ..taken }),
            None => {
                self.posted.push((pattern, receive, index));
                Posted::Queued
            }
        }
    }

    fn arrive(&mut self, source: u32, tag: Tag, message: u32) -> Arrived<u32> {
        match self.posted.iter().position(|(pattern, ..)| pattern.accepts(source, tag)) {
            Some(place) => {
                let (_, receive, decided) = self.posted.remove(place);
                Arrived::Matched { receive, decided }
            }
            None => {
                self.unexpected.push((source, tag, message));
                Arrived::Queued
            }
        }
    }

    fn cancel(&mut self, receive: u32) -> bool {
        let before = self.posted.len();
        self.posted.retain(|(_, token, _)| *token != receive);
        self.posted.len() < before
    }

    /// The message keeps its place unless a receive takes it now.
    fn refile(&mut self, message: u32, source: u32, tag: Tag) -> Option<(u32, u32)> {
        let place = self.unexpected.iter().position(|(.., token)| *token == message)?;
        self.unexpected[place] = (source, tag, message);
        let receive = self.posted.iter().position(|(pattern, ..)| pattern.accepts(source, tag))?;
        self.unexpected.remove(place);
        Some((self.posted.remove(receive).1, message))
    }

    fn probe(&self, pattern: Pattern) -> Option<(u32, Tag, u32)> {
        self.unexpected.iter().copied().find(|(source, tag, _)| pattern.accepts(*source, *tag))
    }

    fn take(&mut self, pattern: Pattern) -> Option<Taken<u32>> {
        let place = self.unexpected.iter().position(|(source, tag, _)| pattern.accepts(*source, *tag))?;
        let (source, tag, message) = self.unexpected.remove(place);
        Some(Taken { message, source, tag, decided: None })
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Post(Pattern),
    Arrive(u32, Tag),
    Cancel(u32),
    Refile(u32, u32, Tag),
    Probe(Pattern),
    Take(Pattern),
}

fn tag() -> impl Strategy<Value = Tag> {
    (0..3).prop_map(Tag)
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (prop::option::weighted(0.7, 0..4_u32), prop::option::weighted(0.7, tag()))
        .prop_map(|(source, tag)| Pattern { source, tag })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => pattern().prop_map(Operation::Post),
        8 => (0..4_u32, tag()).prop_map(|(source, tag)| Operation::Arrive(source, tag)),
        1 => (0..300_u32).prop_map(Operation::Cancel),
        1 => (0..300_u32, 0..4_u32, tag()).prop_map(|(token, source, tag)| Operation::Refile(token, source, tag)),
        1 => pattern().prop_map(Operation::Probe),
        1 => pattern().prop_map(Operation::Take),
    ]
}

/// One direction first makes deep queues, so that the bins are exercised too.
fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let arrivals = prop::collection::vec((0..4_u32, tag()).prop_map(|(s, t)| Operation::Arrive(s, t)), 0..60);
    let posts = prop::collection::vec(pattern().prop_map(Operation::Post), 0..60);
    let mixed = || prop::collection::vec(operation(), 0..200);
    prop_oneof![
        mixed(),
        (arrivals, mixed()).prop_map(|(first, then)| [first, then].concat()),
        (posts, mixed()).prop_map(|(first, then)| [first, then].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn deciding_queues_equal_the_oracle(operations in operations()) {
        let mut queues = MatchQueues::new(Order::Deciding);
        let mut oracle = Oracle::default();
        for (token, operation) in (0..).zip(operations) {
            match operation {
                Operation::Post(pattern) => prop_assert_eq!(queues.post(pattern, token), oracle.post(pattern, token)),
                Operation::Arrive(source, tag) => {
                    prop_assert_eq!(queues.arrive(source, tag, token), oracle.arrive(source, tag, token));
                }
                Operation::Cancel(receive) => {
                    prop_assert_eq!(queues.cancel(receive, &mut Vec::new()), oracle.cancel(receive));
                }
                Operation::Refile(message, source, tag) => {
                    let mut matched = Vec::new();
                    queues.refile(message, source, tag, &mut matched);
                    let pairs = matched.iter().map(|it: &Match<u32, u32>| (it.receive, it.taken.message));
                    prop_assert!(pairs.eq(oracle.refile(message, source, tag)));
                }
                Operation::Probe(pattern) => prop_assert_eq!(queues.probe(pattern), oracle.probe(pattern)),
                Operation::Take(pattern) => prop_assert_eq!(queues.take(pattern), oracle.take(pattern)),
            }
            prop_assert_eq!(queues.posted_depth(), oracle.posted.len());
            prop_assert_eq!(queues.unexpected_depth(), oracle.unexpected.len());
            prop_assert!(queues.posted().map(|(_, token)| token).eq(oracle.posted.iter().map(|entry| entry.1)));
            prop_assert!(queues.unexpected().eq(oracle.unexpected.iter().copied()));
        }
    }
}

/// The work of one sphere: the receives in program order, and the tags of each source's messages.
#[derive(Clone, Debug)]
struct Script {
    patterns: Vec<Pattern>,
    tags: Vec<Vec<Tag>>,
}

/// A logical message: its source and its position among that source's.
type Logical = (u32, usize);

/// One replica working through the script; `pairs[i]` is what the i-th receive got.
struct Walk<'a> {
    script: &'a Script,
    queues: MatchQueues<usize, Logical>,
    posted: usize,
    arrived: Vec<usize>,
    pairs: Vec<Option<Logical>>,
    decisions: Vec<(u64, u32)>,
}

impl<'a> Walk<'a> {
    fn new(script: &'a Script, order: Order) -> Self {
        Self {
            script,
            queues: MatchQueues::new(order),
            posted: 0,
            arrived: vec![0; script.tags.len()],
            pairs: vec![None; script.patterns.len()],
            decisions: Vec::new(),
        }
    }

    fn pair(&mut self, receive: usize, message: Logical, decided: Option<u64>) {
        assert_eq!(self.pairs[receive].replace(message), None, "receive {receive} matched twice");
        self.decisions.extend(decided.map(|index| (index, message.0)));
    }

    fn pair_all(&mut self, matched: Vec<Match<usize, Logical>>) {
        for Match { receive, taken } in matched {
            self.pair(receive, taken.message, taken.decided);
        }
    }

    /// `choice` picks a source to arrive from, or the next post; `false` when that one is exhausted.
    fn step(&mut self, choice: usize) -> bool {
        let sources = self.script.tags.len();
        let choice = choice % (sources + 2);
        if choice >= sources {
            let Some(pattern) = self.script.patterns.get(self.posted) else { return false };
            let receive = self.posted;
            self.posted += 1;
            if let Posted::Matched(taken) = self.queues.post(*pattern, receive) {
                assert!(pattern.accepts(taken.source, taken.tag));
                self.pair(receive, taken.message, taken.decided);
            }
            return true;
        }
        let position = self.arrived[choice];
        let Some(tag) = self.script.tags[choice].get(position) else { return false };
        self.arrived[choice] += 1;
        let message = (choice as u32, position);
        if let Arrived::Matched { receive, decided } = self.queues.arrive(choice as u32, *tag, message) {
            self.pair(receive, message, decided);
        }
        true
    }

    fn finish(&mut self) {
        for choice in 0..self.script.tags.len() + 2 {
            while self.step(choice) {}
        }
    }

    fn apply(&mut self, (index, source): (u64, u32)) {
        let mut matched = Vec::new();
        self.queues.apply_decision(index, source, &mut matched);
        self.pair_all(matched);
    }
}

fn script() -> impl Strategy<Value = Script> {
    let tags = prop::collection::vec(prop::collection::vec(tag(), 0..25), 1..4);
    let patterns = prop::collection::vec(pattern(), 0..60);
    (patterns, tags).prop_map(|(patterns, tags)| Script { patterns, tags })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn follower_gives_each_receive_the_leaders_message(
        script in script(),
        leader_choices in prop::collection::vec(0..8_usize, 0..150),
        follower_choices in prop::collection::vec(0..12_usize, 0..250),
        shuffle in prop::collection::vec(any::<prop::sample::Index>(), 60),
    ) {
        let mut leader = Walk::new(&script, Order::Deciding);
        for choice in leader_choices {
            leader.step(choice);
        }
        leader.finish();
        let mut decisions = leader.decisions.clone();
        let mut follower = Walk::new(&script, Order::Following);
        for (choice, pick) in follower_choices.into_iter().zip(shuffle.iter().cycle()) {
            if choice >= 8 && !decisions.is_empty() {
                let decision = decisions.remove(pick.index(decisions.len()));
                follower.apply(decision);
            } else {
                follower.step(choice);
            }
            // Every pair that it makes with incomplete knowledge is already right.
            for (mine, theirs) in follower.pairs.iter().zip(&leader.pairs) {
                prop_assert!(mine.is_none() || mine == theirs);
            }
        }
        follower.finish();
        for decision in decisions {
            follower.apply(decision);
        }
        prop_assert_eq!(follower.pairs, leader.pairs);
    }

    #[test]
    fn new_leader_keeps_old_decisions_and_leaves_no_possible_pair(
        script in script(),
        leader_choices in prop::collection::vec(0..8_usize, 0..150),
        follower_choices in prop::collection::vec(0..12_usize, 0..150),
        known in 0..40_usize,
    ) {
        let mut leader = Walk::new(&script, Order::Deciding);
        for choice in leader_choices {
            leader.step(choice);
        }
        let mut follower = Walk::new(&script, Order::Following);
        for choice in follower_choices {
            follower.step(choice);
        }
        let known: Vec<_> = leader.decisions.iter().copied().take(known).collect();
        for decision in &known {
            follower.apply(*decision);
        }
        let mut matched = Vec::new();
        follower.queues.set_order(Order::Deciding, &mut matched);
        follower.pair_all(matched);
        follower.finish();
        for (pattern, receive) in follower.queues.posted() {
            let possible = follower.queues.unexpected().any(|(source, tag, _)| pattern.accepts(source, tag));
            prop_assert!(!possible, "receive {} could be served", receive);
        }
        let wildcards: Vec<usize> =
            (0..script.patterns.len()).filter(|receive| script.patterns[*receive].source.is_none()).collect();
        for (index, source) in known {
            if let Some((got, _)) = follower.pairs[wildcards[index as usize]] {
                prop_assert_eq!(got, source);
            }
        }
    }
}

const ANY: Pattern = Pattern { source: None, tag: None };

#[test]
fn undecided_wildcard_holds_what_it_accepts_and_nothing_else() {
    let mut queues = MatchQueues::new(Order::Following);
    let wildcard = Pattern { source: None, tag: Some(Tag(1)) };
    assert_eq!(queues.post(wildcard, 'w'), Posted::Queued);
    assert_eq!(queues.post(Pattern { source: Some(0), tag: None }, 'n'), Posted::Queued);
    assert_eq!(queues.post(Pattern::exact(1, Tag(2)), 'x'), Posted::Queued);
    assert_eq!(queues.arrive(0, Tag(1), 10), Arrived::Queued, "it may be the wildcard's");
    assert_eq!(queues.arrive(0, Tag(2), 11), Arrived::Queued, "n would prefer message 10");
    assert_eq!(queues.arrive(1, Tag(2), 12), Arrived::Matched { receive: 'x', decided: None });
    assert_eq!(queues.probe(Pattern::exact(0, Tag(1))), None, "a probe must not see a held message");
    let mut matched = Vec::new();
    queues.apply_decision(0, 1, &mut matched);
    let taken = Taken { message: 10, source: 0, tag: Tag(1), decided: None };
    assert_eq!(matched, [Match { receive: 'n', taken }]);
    assert_eq!(queues.arrive(1, Tag(1), 13), Arrived::Matched { receive: 'w', decided: None });
}

#[test]
fn cancelled_wildcard_frees_what_it_held() {
    let mut queues = MatchQueues::new(Order::Following);
    assert_eq!(queues.post(ANY, 'w'), Posted::Queued);
    assert_eq!(queues.post(Pattern::exact(0, Tag(0)), 'n'), Posted::Queued);
    assert_eq!(queues.arrive(0, Tag(0), 7), Arrived::Queued);
    let mut matched = Vec::new();
    assert!(queues.cancel('w', &mut matched));
    assert_eq!(matched.len(), 1);
    assert!(!queues.cancel('w', &mut matched));
}

#[test]
fn decision_may_precede_its_receive_also_in_a_new_leader() {
    let mut queues = MatchQueues::new(Order::Following);
    let mut matched = Vec::new();
    queues.apply_decision(0, 3, &mut matched);
    queues.set_order(Order::Deciding, &mut matched);
    assert_eq!(queues.arrive(2, Tag(0), 'a'), Arrived::Queued);
    assert_eq!(queues.post(ANY, 1), Posted::Queued, "bound to source 3");
    assert_eq!(queues.arrive(3, Tag(0), 'b'), Arrived::Matched { receive: 1, decided: None });
    let taken = Taken { message: 'a', source: 2, tag: Tag(0), decided: Some(1) };
    assert_eq!(queues.post(ANY, 2), Posted::Matched(taken));
}
