//! Outcomes that depend on timing: which request completed, what a probe found, whether a receive was cancelled.
//!
//! In an unreplicated world they are simply looked up. In a replicated one the leader of the sphere decides. A follower
//! takes the same outcome at the same point of the same thread, once the outcome has come true there too (design:
//! output commit; `quiesce::decision`). A [`Question`] goes with each outcome: the kind of call, its arguments and its
//! place in the program. An outcome of another question is not taken (`quiesce::path`).

mod readings;

pub use readings::{counted, reading, time_of_call};

use crate::faults::{self, Shown};
use crate::locks;
use crate::mutation::{self, Mutation};
use crate::{job, threads};
use quiesce::{Call, Outcome, Question, StreamId};
use redrt_engine::asked::{Ahead, Asked};
use redrt_engine::request::{Operation, RequestId};
use redrt_engine::{self as engine, Cell, Engine};
use redrt_process::clock::monotonic_ns;
use redrt_types::Tag;
use redrt_wire::control::Files;
use rustc_hash::FxHasher;
use std::cell::Cell as ThreadCell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of readings of clocks, or of questions to the outside, after which progress is made once.
const READINGS_PER_POLL: u32 = 64;

/// Limit on a leader's lead over its followers, in decisions, while it only asks outside: the answers may be large.
const AHEAD_OUTSIDE_MAX: u64 = 16;

/// Shortest and longest pause between attempts at something outside that is not possible yet. The pause doubles.
const ATTEMPT_PAUSE_NS_MIN: u64 = 100_000;
const ATTEMPT_PAUSE_NS_MAX: u64 = 4_000_000;

/// A question without its place: the kind of call, and digests of its arguments and of the bytes that it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    call: Call,
    arguments: u64,
    data: u64,
}

impl Ask {
    /// A question of this kind. `arguments` tell it apart from others of the kind.
    pub fn new(call: Call, arguments: impl Hash) -> Self {
        Self { call, arguments: digest(arguments), data: 0 }
    }

    /// Adds the digest of the bytes that the call writes.
    pub fn writing(self, data: u64) -> Self {
        Self { data, ..self }
    }

    /// Adds the calling thread's place in the program.
    fn question(self, engine: &mut Engine, stream: StreamId) -> Question {
        engine.agree(|sphere| sphere.question(stream, self.call, self.arguments, self.data))
    }
}

/// A digest of arguments, the same in all replicas.
pub fn digest(arguments: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    arguments.hash(&mut hasher);
    hasher.finish()
}

/// The message that a probe found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probed {
    /// Rank of the sender in the communicator.
    pub source: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Payload length in bytes.
    pub length: u64,
    /// Number of the message in the engine.
    pub message: usize,
}

/// Returns true if the request has completed. A persistent request has if it is inactive, or if its round is complete.
pub fn is_complete(engine: &mut Engine, id: RequestId) -> bool {
    match engine.requests.get(id).operation {
        Operation::Persistent { round: Some(round), .. } => engine.requests.is_complete(round),
        Operation::Persistent { round: None, .. } => true,
        _ => engine.requests.is_complete(id),
    }
}

/// Runs one decision. `find` looks for an outcome, which is the leader's part; `follow` returns the result of a decided
/// outcome once it has come true here. With `wait`, the leader looks until there is an outcome.
fn decide<T>(
    cell: &Cell,
    ask: Ask,
    wait: bool,
    find: &impl Fn(&mut Engine) -> Option<(Outcome, T)>,
    follow: &impl Fn(&mut Engine, &Outcome) -> Option<T>,
) -> Option<T> {
    let stream = threads::stream();
    let mut engine = cell.lock();
    let question = ask.question(&mut engine, stream);
    let mut decided: Option<Outcome> = None;
    if wait {
        drop(engine);
    } else {
        let ahead = engine.agree(|sphere| sphere.ask_ahead(stream, question));
        drop(engine);
        match ahead {
            Ahead::Nothing => return None,
            Ahead::Decided(outcome) => decided = Some(outcome),
            // A test must make progress itself: a program may consist of tests only.
            Ahead::Unknown => {}
        }
        cell.poll_once();
    }
    let found = cell.wait_for(|engine| {
        if let Some(outcome) = &decided {
            return follow(engine, outcome).map(Some);
        }
        match engine.agree(|sphere| sphere.ask(stream, question)) {
            Asked::Decided(Outcome::NotReady) => Some(None),
            Asked::Decided(outcome) => {
                let done = follow(engine, &outcome);
                decided = Some(outcome);
                done.map(Some)
            }
            Asked::Wait => None,
            Asked::Decide => match find(engine) {
                Some((outcome, found)) => {
                    engine.agree(|sphere| sphere.answer(stream, question, outcome));
                    Some(Some(found))
                }
                None if wait || engine.agree(|sphere| sphere.is_far_ahead(stream)) => None,
                None => {
                    engine.agree(|sphere| sphere.answer(stream, question, Outcome::NotReady));
                    Some(None)
                }
            },
        }
    });
    if found.is_none() {
        cell.idle_poll();
    } else if !wait && faults::is_falsified(Shown::Found) {
        return None;
    }
    found
}

/// Panics: the outcome is of another kind than the question. Cannot happen, since such an outcome is refused on
/// arrival.
fn mistaken(asked: Ask, outcome: &Outcome) -> ! {
    unreachable!("{outcome:?} was decided for {asked:?}")
}

fn needs_decisions(polling: bool) -> bool {
    engine::cell().lock().needs_decisions(polling)
}

/// Looks without a decision. With `wait` it looks until `find` succeeds; otherwise once before progress and once after
/// it.
fn simply<T>(wait: bool, mut find: impl FnMut(&mut Engine) -> Option<T>) -> Option<T> {
    let cell = engine::cell();
    if wait {
        return Some(cell.wait_for(find));
    }
    if let Some(found) = find(&mut cell.lock()) {
        return Some(found);
    }
    cell.poll_once();
    let found = find(&mut cell.lock());
    if found.is_none() {
        cell.idle_poll();
    }
    found
}

/// Index of one complete request, which `first` picks; `None` if there is none and `wait` is not set.
pub fn one(ids: Vec<RequestId>, wait: bool, first: impl Fn(&mut Engine) -> Option<usize>) -> Option<usize> {
    let by_itself = mutation::is_planted(Mutation::FirstByItself);
    if (wait && ids.len() == 1) || !needs_decisions(!wait) || by_itself {
        return simply(wait, first);
    }
    let ask = Ask::new(if wait { Call::WaitAny } else { Call::TestAny }, ids.len());
    decide(
        engine::cell(),
        ask,
        wait,
        &|engine| first(engine).map(|index| (Outcome::Index(index as u32), index)),
        &|engine, outcome| match outcome {
            Outcome::Index(index) => {
                let index = *index as usize;
                // An index without a request never completes.
                is_complete(engine, *ids.get(index)?).then_some(index)
            }
            other => mistaken(ask, other),
        },
    )
}

/// Indices of all complete requests; at least one if `wait`.
pub fn some(ids: Vec<RequestId>, wait: bool) -> Vec<usize> {
    let find = |engine: &mut Engine| {
        let done: Vec<_> = (0..ids.len()).filter(|index| is_complete(engine, ids[*index])).collect();
        (!done.is_empty()).then_some(done)
    };
    let found = if (wait && ids.len() == 1) || !needs_decisions(!wait) {
        simply(wait, find)
    } else {
        let ask = Ask::new(if wait { Call::WaitSome } else { Call::TestSome }, ids.len());
        let encode = |done: &Vec<usize>| Outcome::Indices(done.iter().map(|index| *index as u32).collect());
        decide(
            engine::cell(),
            ask,
            wait,
            &|engine| find(engine).map(|done| (encode(&done), done)),
            &|engine, outcome| match outcome {
                Outcome::Indices(done) => {
                    let done: Vec<_> = done.iter().map(|index| *index as usize).collect();
                    let is_done = |index: &usize| ids.get(*index).is_some_and(|id| is_complete(engine, *id));
                    done.iter().all(is_done).then_some(done)
                }
                other => mistaken(ask, other),
            },
        )
    };
    found.unwrap_or_default()
}

/// Returns true if all requests are complete.
pub fn all(ids: &[RequestId]) -> bool {
    condition(ids.len(), |engine| ids.iter().all(|id| is_complete(engine, *id)))
}

/// Returns true if a condition holds. Once true, the condition must stay true until this thread acts on it. `arguments`
/// distinguish it from other conditions.
pub fn condition(arguments: impl Hash, holds: impl Fn(&mut Engine) -> bool) -> bool {
    let find = |engine: &mut Engine| holds(engine).then_some(());
    if !needs_decisions(true) || mutation::is_planted(Mutation::TestByItself) {
        return simply(false, find).is_some();
    }
    let ask = Ask::new(Call::Test, arguments);
    let follow = |engine: &mut Engine, outcome: &Outcome| match outcome {
        Outcome::Flag(true) => find(engine),
        other => mistaken(ask, other),
    };
    decide(engine::cell(), ask, false, &|engine| find(engine).map(|()| (Outcome::Flag(true), ())), &follow).is_some()
}

/// The oldest message that a receive with this pattern would take; `None` if there is none and `wait` is not set. With
/// `take` it leaves the unexpected queue.
pub fn probe(context: u64, source: Option<u32>, tag: Option<i32>, take: bool, wait: bool) -> Option<Probed> {
    // Without decisions replicas find messages at different moments, and threads need not agree on earlier findings.
    let takes_turn = take || needs_decisions(true);
    let look = |engine: &mut Engine, source, tag| {
        let found = engine.arrivals.probe(context, source, tag)?;
        if takes_turn && !locks::takes_turn(engine, context) {
            return None;
        }
        let found = if take { engine.arrivals.take(context, source, tag)? } else { found };
        let (source, tag, length, message) = found;
        Some(Probed { source, tag, length, message })
    };
    let _waiting = locks::Waiting::begin();
    // A probe with a named source is decided by the order of the channel.
    let by_itself = mutation::is_planted(Mutation::ProbeByItself);
    if (wait && source.is_some()) || !needs_decisions(!wait) || by_itself {
        if !by_itself && !wait && source.is_none() && needs_decisions(false) {
            return probe_any(context, tag, look);
        }
        return simply(wait, |engine| look(engine, source, tag));
    }
    let ask = Ask::new(if wait { Call::Probe } else { Call::TestMessage }, (context, source, tag, take));
    let found = decide(
        engine::cell(),
        ask,
        wait,
        &|engine| {
            let probed = look(engine, source, tag)?;
            Some((Outcome::Message { source: probed.source, tag: Tag(probed.tag) }, probed))
        },
        &|engine, outcome| match outcome {
            Outcome::Message { source, tag } => look(engine, Some(*source), Some(tag.0)),
            other => mistaken(ask, other),
        },
    );
    if found.is_none() && !wait && !take && faults::is_falsified(Shown::NothingProbed) {
        return Some(Probed { source: source.unwrap_or(0), tag: tag.unwrap_or(0), length: 0, message: 0 });
    }
    found
}

/// A probe for any source that does not wait, where the outcomes of tests are not agreed on (`--determinism=sends`). A
/// message that is found decides what the program receives, so replicas agree on it; they do not agree on a probe
/// without a finding. A follower without the leader's outcome finds nothing, and its program asks again.
fn probe_any(
    context: u64,
    tag: Option<i32>,
    look: impl Fn(&mut Engine, Option<u32>, Option<i32>) -> Option<Probed>,
) -> Option<Probed> {
    let stream = threads::stream();
    let ask = Ask::new(Call::TestMessage, (context, tag));
    let found = simply(false, |engine| match engine.agree(|sphere| sphere.peek_outcome(stream)) {
        Some(Outcome::Message { source, tag: found }) if tag.is_none_or(|tag| tag == found.0) => {
            let probed = look(engine, Some(source), Some(found.0))?;
            engine.agree(|sphere| sphere.pass_outcome(stream));
            Some(probed)
        }
        // The outcome is of another probe, or of a later call of this thread.
        Some(_) => None,
        None if !engine.agree(|sphere| sphere.is_deciding()) => None,
        None => {
            let probed = look(engine, None, tag)?;
            let question = ask.question(engine, stream);
            let outcome = Outcome::Message { source: probed.source, tag: Tag(probed.tag) };
            engine.agree(|sphere| sphere.answer(stream, question, outcome));
            engine.flush();
            Some(probed)
        }
    });
    if found.is_none() {
        engine::cell().idle_follow();
    }
    found
}

/// The leader's value of a number that differs between replicas.
pub fn value(find: impl Fn(&mut Engine) -> u64) -> u64 {
    let found = match needs_decisions(false) {
        true => number(engine::cell(), |engine| Some(find(engine))),
        false => Some(find(&mut engine::cell().lock())),
    };
    found.expect("a number is there at once")
}

/// Decides a number: waits until the leader finds it.
fn number(cell: &Cell, find: impl Fn(&mut Engine) -> Option<u64>) -> Option<u64> {
    let ask = Ask::new(Call::Number, ());
    decide(cell, ask, true, &|engine| find(engine).map(|value| (Outcome::Value(value), value)), &|_, outcome| {
        match outcome {
            Outcome::Value(value) => Some(*value),
            other => mistaken(ask, other),
        }
    })
}

/// The leader's value of a number that becomes available later. The leader calls `find` until it returns the number,
/// and is woken for that ([`Cell::notify_waiting`]). A replica that becomes the leader meanwhile does the same.
pub fn awaited(find: impl Fn() -> Option<u64>) -> u64 {
    let cell = engine::cell();
    if !needs_decisions(false) || mutation::is_planted(Mutation::CheckpointByItself) {
        return cell.wait_for(|_| find());
    }
    let found = number(cell, |_| find());
    // Followers wait for this outcome.
    cell.lock().flush();
    found.expect("it was waited for")
}

/// The answer of something outside, which only the leader asks: files are read by one replica.
///
/// `act` runs with the engine locked, so no copy of this process is made meanwhile. If the leader dies before its
/// siblings hold the answer, its successor acts again; no consequence of the first answer has left (output commit). So
/// `act` has to be short, repeatable, and invisible to others.
pub fn outside(arguments: u64, act: impl Fn() -> Vec<u8>) -> Vec<u8> {
    outside_once_possible(arguments, || Some(act()))
}

/// The answer of something outside that may not be able to answer yet. The leader asks again at intervals, and makes
/// progress meanwhile.
pub fn outside_once_possible(arguments: u64, act: impl Fn() -> Option<Vec<u8>>) -> Vec<u8> {
    let ask = Ask { call: Call::Observe, arguments, data: 0 };
    ask_outside(ask, |engine| engine.agree(|sphere| sphere.unstable_count()) <= AHEAD_OUTSIDE_MAX, act)
}

/// Changes something outside, in the leader: files are written by one replica.
///
/// A change is an output, as a message is, and is committed as one: `act` runs when all siblings hold every earlier
/// decision. If the leader dies during `act`, its successor comes here with the same decisions behind it, and acts
/// again. So `act` has to be idempotent.
///
/// In a rank of three replicas or more, `act` runs once a majority asks for the same change, unless the job has
/// `--files=leader`. `arguments` is a digest of the change, `data` a digest of the written bytes.
pub fn effect(arguments: u64, data: u64, act: impl Fn() -> Vec<u8>) -> Vec<u8> {
    effect_once_possible(arguments, data, || Some(act()))
}

/// Makes a change, as [`effect`] does, that may not be possible yet, such as a lock that another process has.
pub fn effect_once_possible(arguments: u64, data: u64, act: impl Fn() -> Option<Vec<u8>>) -> Vec<u8> {
    let change = || {
        let answer = act()?;
        faults::after_change();
        Some(answer)
    };
    let cell = engine::cell();
    threads::announce_to_siblings();
    if cell.lock().is_replicated() {
        // With several threads there are no votes. The trap: of two threads that use one file, one may have it here and
        // the other in a sibling. Each would wait for the vote of a thread that waits for the file.
        let votes = threads::is_one() && job().is_some_and(|job| job.welcome.options.files != Files::Leader);
        cell.lock().agree(|sphere| sphere.vote_on_changes(votes));
    }
    let stream = threads::stream();
    let ask = Ask { call: Call::Change, arguments, data };
    let waits_since = ThreadCell::new(None);
    let may_act = |engine: &mut Engine| {
        if engine.agree(|sphere| sphere.unstable_count()) > 0 {
            return false;
        }
        if !engine.agree(|sphere| sphere.is_backed(stream)) {
            waits_since.set(waits_since.get().or(Some(monotonic_ns())));
            return false;
        }
        if let Some(since_ns) = waits_since.take() {
            engine.agree(|sphere| sphere.record_change_waited(monotonic_ns() - since_ns));
        }
        true
    };
    ask_outside(ask, may_act, change)
}

/// Time of the next attempt at something outside.
#[derive(Default)]
struct Attempts {
    next_ns: ThreadCell<u64>,
    pause_ns: ThreadCell<u64>,
}

impl Attempts {
    /// Calls `act` if the pause is over. Without a result it sets the alarm that wakes the waiting thread for the next
    /// attempt.
    fn attempt<T>(&self, engine: &mut Engine, act: impl FnOnce() -> Option<T>) -> Option<T> {
        let now = monotonic_ns();
        if now >= self.next_ns.get() {
            if let Some(found) = act() {
                return Some(found);
            }
            self.pause_ns.set((2 * self.pause_ns.get()).clamp(ATTEMPT_PAUSE_NS_MIN, ATTEMPT_PAUSE_NS_MAX));
            self.next_ns.set(now + self.pause_ns.get());
        }
        engine::cell().set_alarm(engine, self.next_ns.get());
        None
    }
}

fn ask_outside(ask: Ask, may_act: impl Fn(&mut Engine) -> bool, act: impl Fn() -> Option<Vec<u8>>) -> Vec<u8> {
    let (cell, attempts) = (engine::cell(), Attempts::default());
    if !cell.lock().is_replicated() {
        return std::iter::from_fn(|| Some(act())).flatten().next().expect("it has an answer in the end");
    }
    // Locked during `act`, so that no copy is made meanwhile.
    if !needs_decisions(false) {
        return cell.wait_for(|engine| attempts.attempt(engine, &act));
    }
    // A program may consist of such questions only: without progress its followers' acknowledgements would fill its
    // inbox.
    process_local! {
        static COUNT: AtomicU32 = AtomicU32::new(0);
    }
    if COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(READINGS_PER_POLL) {
        cell.poll_once();
    }
    let found = decide(
        cell,
        ask,
        true,
        &|engine| {
            if !may_act(engine) {
                engine.flush();
                return None;
            }
            let answer = attempts.attempt(engine, &act)?;
            Some((Outcome::Bytes(answer.clone()), answer))
        },
        &|_, outcome| match outcome {
            Outcome::Bytes(answer) => Some(answer.clone()),
            other => mistaken(ask, other),
        },
    );
    // The leader may now compute for long, and its followers wait for this outcome.
    cell.lock().flush();
    found.expect("an answer is there at once")
}

/// Returns true if `holds` returns true in all replicas. Waits until all replicas have come here.
pub fn unanimously(holds: impl FnOnce() -> bool) -> bool {
    let holds = holds();
    let stream = threads::stream();
    let cell = engine::cell();
    let mut has_voted = false;
    let all = cell.wait_for(|engine| {
        // First skips readings of the leader that this replica did not make: otherwise the ballot would be for another
        // outcome.
        engine.agree(|sphere| sphere.skip_readings(stream));
        let ask = Ask::new(Call::Agreement, ());
        let question = ask.question(engine, stream);
        if !std::mem::replace(&mut has_voted, true) {
            engine.agree(|sphere| sphere.cast_ballot(stream, question, holds.into()));
        }
        match engine.agree(|sphere| sphere.ask(stream, question)) {
            Asked::Decided(Outcome::Flag(all)) => Some(all),
            Asked::Decided(other) => mistaken(ask, &other),
            Asked::Wait => None,
            Asked::Decide => {
                let all = holds && engine.agree(|sphere| sphere.count_ballots(stream, question))?;
                engine.agree(|sphere| sphere.answer(stream, question, Outcome::Flag(all)));
                Some(all)
            }
        }
    });
    cell.lock().flush();
    all
}

/// Cancels a receive if it is not matched.
pub fn cancel(id: RequestId) {
    let mut engine = engine::cell().lock();
    if !engine.is_replicated() || mutation::is_planted(Mutation::CancelByItself) {
        engine.cancel(id);
        return;
    }
    drop(engine);
    engine::cancel::agree(id, threads::stream());
}
