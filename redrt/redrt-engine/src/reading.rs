//! Readings of clocks by calls of MPI in a replicated world: the leader's are everyone's. Those of the system's clocks
//! are in `replication::times`.
//!
//! They share the stream of the thread's other outcomes, so that a follower sees when its program has taken another
//! path than its leader's: then the next outcome was decided for another question.
//!
//! Where a majority can say who is wrong, three live replicas or more, and no second thread of the program can be why,
//! that is a vote as for any other outcome (`quiesce`'s `path`). Else a reading alone does no harm. A follower that
//! reads a clock where its leader asked for something else takes a reading of its own; readings of the leader that a
//! follower has not made are passed over at its next outcome. Either is a divergence, and said.
//!
//! The trap is a leader that does not read at all where its follower does, and then waits for a message that depends on
//! that follower. So a follower that waits asks how far the leader's thread has come:
//!
//! ```text
//!   follower: thread t, in no MPI call, 7 calls and 12 outcomes so far, reads a clock
//!      ├── t? ──────────────────────────────► leader
//!      │ ◄──────────────── 8 calls, 12 outcomes   it is in its next call and has not read: the follower goes on alone
//!      │ ◄──────────────── 8 calls, 13 outcomes   it has read: the decision came before this answer
//!      │ ◄──────────────── 7 calls, 12 outcomes   it has not come so far: asked again after a while
//! ```
//! The leader answers whenever it is in an MPI call or reads a clock. One that computes does not, and is waited for.
//! One that answers while the thread in question stands still outside of MPI for long may never read: that thread waits
//! for a lock, for one, whose owner waits for a message that depends on this follower.
//!
//! One that has ended never reads: the follower goes on alone, which is no divergence. Threads that race may make more
//! readings in one replica before they see that they should end, and what they read there is compared where it matters,
//! in messages.
//!
//! A leader that reads in a loop waits for a follower that is far behind, which is flow control. There too the other
//! thread may never make these readings: the program's threads race, and it has left the loop. So the leader asks where
//! that thread is, and goes ahead when it has begun its next call or stands still.

use super::Engine;
use super::asked::Asked;
use super::refusal::Fault;
use quiesce::{Call, DecisionKey, Outcome, Place, Question, StreamId};
use redrt_process::clock::monotonic_ns;
use redrt_transport::frame::{Header, Kind, Whereabouts};
use redrt_types::{ProcessIndex, ReplicaId};
use redrt_wire::control::FromAgent;
use redrt_wire::event::{Event, Parting};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

/// A follower that waits asks this often how far its leader has come.
const ASK_INTERVAL_NS: u64 = 100_000_000;
/// … and where the leader may well not make the reading after this first, and then ever less often.
const FIRST_PAUSE_NS: u64 = 1_000_000;

/// A thread that the leader has never seen is waited for no longer than this; once the replica is known to have
/// diverged, the leader's next answer is enough.
const UNKNOWN_WAIT_NS: u64 = 10_000_000_000;

/// So is a thread that the leader has but that does not run, is in no MPI call and makes no progress, while other
/// threads of the leader are in MPI calls: it may wait for a lock whose owner waits for what depends on this follower …
const STANDING_NS: u64 = 10_000_000_000;
/// … and so long once the replica is known to have diverged.
const STANDING_AGAIN_NS: u64 = 1_000_000_000;

/// The same work takes no more than twice the time on another host, and this.
const OUTRUN_NS: u64 = 10_000_000_000;

/// A leader that waits for a follower which is far behind goes ahead when that thread has stood still for so long.
const STANDING_BEHIND_NS: u64 = 300_000_000;

process_local! {
    /// This replica has taken another path than its leader, and that was reported.
    static HAS_DIVERGED: AtomicBool = AtomicBool::new(false);
}

/// Readings closer together than this are a loop, and told to the followers in batches.
const LOOP_DISTANCE_NS: u64 = 20_000;

/// Number of readings that are told at once before a loop is recognised as one.
const PROMPT_COUNT: u32 = 16;

/// What an engine remembers of readings.
#[derive(Default)]
pub struct Readings {
    latest_ns: u64,
    told_ns: u64,
    close_count: u32,
    /// Threads that do not read clocks as their leader's do: Python's, for one, when they contend for its lock. They
    /// take the leader's readings where these are at hand and wait for none.
    diverged: FxHashSet<StreamId>,
    /// Threads that have ended in the leader, and go on here.
    longer: FxHashSet<StreamId>,
    /// Answers of the leader, by thread, as far as it was asked.
    answers: FxHashMap<u64, Option<Whereabouts>>,
    /// How many readings of clocks that no sibling makes were told.
    pub(super) told_alone: u32,
}

/// The answer to a question for a reading.
pub enum Reading {
    /// The clock shows this.
    Decided(u64),
    /// Read it and answer.
    Decide,
    /// The leader has asked for something else here.
    Missing,
    /// The leader has not said yet.
    Wait,
    /// Followers are far behind: wait for them.
    Crowded,
}

/// What a follower knows of a reading that it waits for.
pub enum Awaited {
    /// The leader may make it yet.
    Perhaps,
    /// From now on it is awaited as every outcome that is voted on: it has to be asked for anew.
    Voted,
    /// The leader's thread has gone another way.
    Never,
    /// The leader's thread has ended.
    Ended,
}

/// How long a replica has waited for one reading.
#[derive(Default)]
pub struct Patience {
    began_ns: u64,
    next_ns: u64,
    /// The leader's last answer, and since when it has been the same.
    stands: Option<(Whereabouts, u64)>,
    /// The reading is voted on: it was looked at, after it had not come for a while.
    is_voted: bool,
    /// For how long the leader's thread had run, in nanoseconds, when it had been where this process's is to come.
    leader_ran_ns: Option<u64>,
    /// How long it waits for an answer before it asks the first time, if not as long as always.
    first_pause_ns: Option<u64>,
}

impl Patience {
    /// Of a reading that siblings may well not make: asks soon.
    pub fn short() -> Self {
        Self { first_pause_ns: Some(FIRST_PAUSE_NS), ..Self::default() }
    }

    /// Whether the leader is known not to make this reading; asks it now and then. Called while the reading is awaited.
    pub fn awaited(&mut self, engine: &mut Engine, stream: StreamId) -> Awaited {
        let StreamId::Thread(thread) = stream else { return Awaited::Never };
        if self.is_voted {
            return Awaited::Perhaps;
        }
        let is_longer = engine.readings.longer.contains(&stream);
        if is_longer || engine.readings.diverged.contains(&stream) {
            return match self.look_whether_voted(engine, stream) {
                true => Awaited::Voted,
                false if is_longer => Awaited::Ended,
                false => Awaited::Never,
            };
        }
        let now = monotonic_ns();
        match self.heard(engine, stream, thread, now) {
            Awaited::Perhaps => {}
            Awaited::Ended => {
                engine.readings.longer.insert(stream);
                return Awaited::Ended;
            }
            gone => {
                engine.readings.diverged.insert(stream);
                return gone;
            }
        }
        if self.is_time_to_ask(engine, now) {
            // Not at once: the threads of this process are listed for it, and most readings come soon.
            if self.look_whether_voted(engine, stream) {
                return Awaited::Voted;
            }
            engine.ask_all_whereabouts(thread);
        }
        Awaited::Perhaps
    }

    /// The same of a reading past MPI, which is never voted on.
    pub fn awaited_time(&mut self, engine: &mut Engine, stream: StreamId) -> Awaited {
        let StreamId::Thread(thread) = stream else { return Awaited::Never };
        let now = monotonic_ns();
        let heard = self.heard(engine, stream, thread, now);
        if matches!(heard, Awaited::Perhaps) && self.is_time_to_ask(engine, now) {
            engine.ask_all_whereabouts(thread);
        }
        heard
    }

    /// Whether the leader's thread may still make an operation on a lock that this thread is about to make. Called
    /// while nothing is told of it.
    pub fn awaited_operation(&mut self, engine: &mut Engine, thread: u64) -> Awaited {
        let now = monotonic_ns();
        if let Some(answer) = self.fresh_answer(engine, thread, now) {
            // What it had done before its call was told before it answered.
            let went_past = answer.calls > engine.runtime.call_count();
            let stands_still = self.stood_ns(answer, now) > STANDING_NS;
            if answer.calls == Place::ENDED || went_past || stands_still {
                return Awaited::Never;
            }
        }
        if self.is_time_to_ask(engine, now) {
            engine.ask_all_whereabouts(thread);
        }
        Awaited::Perhaps
    }

    /// Whether this thread of this process has run for so much longer than the leader's, without coming to where that
    /// has been, that it will not come there: it may look for what another one does, which waits for it.
    pub fn has_outrun(&mut self, engine: &mut Engine, thread: u64) -> bool {
        let now = monotonic_ns();
        if self.leader_ran_ns.is_none() {
            self.leader_ran_ns = self.fresh_answer(engine, thread, now).map(|answer| answer.ran_ns);
            if self.leader_ran_ns.is_none() && self.is_time_to_ask(engine, now) {
                engine.ask_all_whereabouts(thread);
            }
        }
        let limit_ns = |ran_ns: u64| ran_ns.saturating_mul(2).saturating_add(OUTRUN_NS);
        self.leader_ran_ns.is_some_and(|ran_ns| engine.runtime.ran_ns_of(thread) > limit_ns(ran_ns))
    }

    /// What the leader has said of its thread since this was asked first.
    fn fresh_answer(&mut self, engine: &mut Engine, thread: u64, now: u64) -> Option<Whereabouts> {
        if self.began_ns == 0 {
            self.began_ns = now;
            engine.readings.answers.remove(&thread);
        }
        engine.readings.take_answer(thread)
    }

    fn heard(&mut self, engine: &mut Engine, stream: StreamId, thread: u64, now: u64) -> Awaited {
        let Some(answer) = self.fresh_answer(engine, thread, now) else { return Awaited::Perhaps };
        let is_unknown = (answer.calls, answer.outcomes) == (0, 0);
        let is_all = answer.outcomes <= engine.replication().passed(stream);
        if is_all && answer.calls == Place::ENDED {
            return Awaited::Ended;
        }
        let went_past = answer.calls > engine.runtime.call_count() && is_all;
        let has_diverged = HAS_DIVERGED.load(Ordering::Relaxed);
        let has_waited = now - self.began_ns > UNKNOWN_WAIT_NS || has_diverged;
        let stands_still = self.stood_ns(answer, now) > if has_diverged { STANDING_AGAIN_NS } else { STANDING_NS };
        if went_past || (is_unknown && has_waited) || stands_still { Awaited::Never } else { Awaited::Perhaps }
    }

    fn look_whether_voted(&mut self, engine: &mut Engine, stream: StreamId) -> bool {
        self.is_voted = engine.votes_on_readings(stream);
        self.is_voted
    }

    /// Whether the leader may read on although a follower is far behind, since that may never make these readings.
    /// Called while it waits ([`Reading::Crowded`]).
    pub fn is_vain(&mut self, engine: &mut Engine, stream: StreamId) -> bool {
        let (StreamId::Thread(thread) | StreamId::Readings(thread)) = stream else { return false };
        self.is_vain_for(engine, stream, thread, STANDING_BEHIND_NS)
    }

    /// The same of operations on locks, which are told in a stream of their own: replicas of a program without races
    /// make all of them.
    pub fn is_order_vain(&mut self, engine: &mut Engine, stream: StreamId, thread: u64) -> bool {
        self.is_vain_for(engine, stream, thread, STANDING_NS)
    }

    fn is_vain_for(&mut self, engine: &mut Engine, stream: StreamId, thread: u64, standing_ns: u64) -> bool {
        let Some(behind) = engine.replication().sibling_behind(stream) else { return false };
        let now = monotonic_ns();
        if let Some(answer) = engine.readings.take_answer(thread) {
            let went_past = answer.calls > engine.runtime.call_count();
            if went_past || self.stood_ns(answer, now) > standing_ns {
                engine.replication().go_ahead(behind, stream);
                return true;
            }
        }
        if self.is_time_to_ask(engine, now) {
            engine.ask_whereabouts(ReplicaId { rank: engine.me.rank, index: behind }, thread);
        }
        false
    }

    /// Since when the answer has been this one, in ns.
    fn stood_ns(&mut self, answer: Whereabouts, now: u64) -> u64 {
        let (last, since_ns) = self.stands.filter(|(last, _)| *last == answer).unwrap_or((answer, now));
        self.stands = Some((last, since_ns));
        now - since_ns
    }

    /// Whether it is time to ask where the other thread is. The caller is woken when it is.
    fn is_time_to_ask(&mut self, engine: &mut Engine, now: u64) -> bool {
        let is_time = self.next_ns != 0 && now >= self.next_ns;
        if self.next_ns == 0 || is_time {
            let pause = self.first_pause_ns.unwrap_or(ASK_INTERVAL_NS);
            self.first_pause_ns = Some(ASK_INTERVAL_NS.min(2 * pause));
            self.next_ns = now + pause;
        }
        super::cell().set_alarm(engine, self.next_ns);
        is_time
    }
}

impl Readings {
    /// The answer about a thread, if one came since it was asked for.
    fn take_answer(&mut self, thread: u64) -> Option<Whereabouts> {
        self.answers.get_mut(&thread).and_then(Option::take)
    }
}

impl Engine {
    /// Whether readings of clocks are compared as all other outcomes are. Threads that contend for a lock read clocks
    /// at moments of their own.
    ///
    /// A lost leader's decisions stay in question: one of two siblings may have come to them while three replicas
    /// lived, and the other comes now.
    fn votes_on_readings(&mut self, stream: StreamId) -> bool {
        let replication = self.replication();
        (replication.has_majority() || replication.follows_lost_leader(stream)) && self.runtime.has_one_thread()
    }

    fn reading_of(&mut self, stream: StreamId, clock: i32) -> Question {
        self.question(stream, Call::Clock, u64::from(clock.cast_unsigned()), 0)
    }

    /// Asks for a reading of a clock. `patience`: of who waits for it.
    pub fn ask_reading(&mut self, stream: StreamId, clock: i32, patience: &Patience) -> Reading {
        let question = self.reading_of(stream, clock);
        let key = self.replication().next(stream);
        match self.replication().fits(key, question) {
            Some(true) => {}
            Some(false) if self.votes_on_readings(stream) => {}
            Some(false) if self.has_reading(key, clock) => {
                let Some(Outcome::Clock { ns, .. }) = self.replication().take(key) else { return Reading::Missing };
                self.carry_out();
                return Reading::Decided(ns);
            }
            Some(false) => return Reading::Missing,
            None if self.is_deciding() && self.is_far_ahead(stream) => return Reading::Crowded,
            // A reading that the leader may never make is not held against it, nor against this process.
            None if !self.is_deciding() && !patience.is_voted => return Reading::Wait,
            None => {}
        }
        match self.ask_any(key, question) {
            Asked::Decided(Outcome::Clock { ns, .. }) => Reading::Decided(ns),
            Asked::Decided(other) => unreachable!("{other:?} was decided for a clock"),
            Asked::Decide => Reading::Decide,
            Asked::Wait => Reading::Wait,
        }
    }

    /// Whether the next outcome is a reading of this clock, wherever the leader made it.
    fn has_reading(&mut self, key: DecisionKey, clock: i32) -> bool {
        matches!(self.replication().peek(key), Some(Outcome::Clock { clock: decided, .. }) if *decided == clock)
    }

    /// Decides the reading that [`Engine::ask_reading`] was asked for. `now_ns` is this machine's monotonic clock.
    pub fn answer_reading(&mut self, stream: StreamId, clock: i32, ns: u64, now_ns: u64) {
        let question = self.reading_of(stream, clock);
        self.answer(stream, question, Outcome::Clock { clock, ns });
        self.tell_reading(now_ns);
    }

    /// A reading was decided.
    pub(super) fn tell_reading(&mut self, now_ns: u64) {
        let readings = &mut self.readings;
        let is_close = now_ns.saturating_sub(readings.latest_ns) < LOOP_DISTANCE_NS;
        readings.close_count = if is_close { readings.close_count + 1 } else { 0 };
        readings.latest_ns = now_ns;
        // The leader may now compute for long, and its followers wait for this reading.
        if readings.close_count < PROMPT_COUNT || now_ns.saturating_sub(readings.told_ns) > LOOP_DISTANCE_NS {
            readings.told_ns = now_ns;
            self.flush();
        }
    }

    /// Passes over readings that the leader made and this process did not. Returns the next outcome.
    pub fn skip_readings(&mut self, stream: StreamId) -> DecisionKey {
        loop {
            let key = self.replication().next(stream);
            if !matches!(self.replication().peek(key), Some(Outcome::Clock { .. })) || self.votes_on_readings(stream) {
                return key;
            }
            self.pass_outcome(stream);
            self.readings.diverged.insert(stream);
            self.report_divergence(Parting::ClockOfLeader);
        }
    }

    /// Asks for the next outcome of a stream, of a clock or not.
    pub(super) fn ask_any(&mut self, key: DecisionKey, question: Question) -> Asked {
        let asked = self.replication().ask(key, question);
        match &asked {
            Asked::Decided(_) => self.traces.iter_mut().for_each(|traces| traces.note_outcome(key)),
            Asked::Wait => self.tell_stack_of_parting(),
            Asked::Decide => {}
        }
        self.carry_out();
        asked
    }

    /// Says once that the replicas of this rank took different paths.
    pub fn report_divergence(&mut self, parting: Parting) {
        if HAS_DIVERGED.swap(true, Ordering::Relaxed) {
            return;
        }
        warn!(target: "engine", %parting, "paths have parted");
        let event = Event::Divergence { replica: self.me, parting };
        self.runtime.tell(FromAgent::Event(event));
    }

    /// Asks how far a thread of the program has come. All siblings are asked, and the leader answers.
    fn ask_all_whereabouts(&mut self, thread: u64) {
        let rank = self.me.rank;
        let siblings: Vec<_> = self.replication().view().live(rank).collect();
        for sibling in siblings {
            self.ask_whereabouts(sibling, thread);
        }
    }

    /// Asks a sibling how far a thread of its program has come.
    fn ask_whereabouts(&mut self, sibling: ReplicaId, thread: u64) {
        if sibling != self.me {
            self.readings.answers.insert(thread, None);
            self.links.send(self.world.process(sibling), Header::new(Kind::Whereabouts, thread), None, &[]);
        }
    }

    pub(super) fn handle_whereabouts(&mut self, from: ProcessIndex, header: &Header, body: &[u8]) -> Result<(), Fault> {
        let thread = header.context;
        let asker = self.world.replica(from);
        if asker.rank != self.me.rank {
            return Err(Fault::Thread);
        }
        if let Some(answer) = Whereabouts::from_bytes(body) {
            // An answer to nobody's question is one that came late.
            if let Some(place) = self.readings.answers.get_mut(&thread) {
                *place = Some(answer);
                self.requests.completions += 1;
            }
        } else if self.replication().is_deciding() || self.replication().view().leader(asker.rank) == Some(asker) {
            // In this order: had the thread begun its next call before the count is taken, it has decided before that.
            let calls = self.runtime.calls_of(thread);
            if let Some((stream, question, outcome)) = self.runtime.untold_order() {
                self.answer(stream, question, outcome);
            }
            let outcomes = self.replication().passed(StreamId::Thread(thread));
            self.flush();
            let (pulse, ran_ns) = (self.runtime.pulse_of(thread), self.runtime.ran_ns_of(thread));
            let answer = Whereabouts { calls, outcomes, pulse, ran_ns };
            self.links.send(from, Header::new(Kind::Whereabouts, thread), None, &answer.to_bytes());
        }
        Ok(())
    }
}
