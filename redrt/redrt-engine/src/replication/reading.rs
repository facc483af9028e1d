//! Readings of clocks by MPI calls in a replicated world: all replicas take their leader's. Readings of the system's
//! clocks are in `replication::times`.
//!
//! They share the stream of the thread's other outcomes, so that a follower notices when its program has taken another
//! path than its leader's: then the next outcome was decided for another question.
//!
//! A reading is voted on like any other outcome (`quiesce`'s `path`) where a majority can tell which replica is wrong,
//! at three live replicas or more, and the program has no second thread that could be the reason. Otherwise a reading
//! by itself does no harm. A follower that reads a clock where its leader asked for something else takes a reading of
//! its own. Readings of the leader that a follower has not made are passed over at the follower's next outcome. Either
//! is a divergence, and reported.
//!
//! The trap: a leader may not read at all where its follower does, and then wait for a message that depends on that
//! follower. So a waiting follower asks for the progress of the leader's thread:
//!
//! ```text
//!   follower: thread t, in no MPI call, 7 calls and 12 outcomes so far, reads a clock
//!      ├── t? ──────────────────────────────► leader
//!      │ ◄──────────────── 8 calls, 12 outcomes   it is in its next call and has not read: the follower goes on alone
//!      │ ◄──────────────── 8 calls, 13 outcomes   it has read: the decision came before this answer
//!      │ ◄──────────────── 7 calls, 12 outcomes   it has not come so far: asked again after a while
//! ```
//! The leader answers whenever it is in an MPI call or reads a clock. A leader that computes does not answer, and is
//! waited for. It may also answer while the thread in question stands still outside of MPI for long. That thread may
//! never read: it may wait for a lock whose owner waits for a message that depends on this follower.
//!
//! A thread that has ended never reads: the follower goes on alone, which is no divergence. Threads that race may make
//! more readings in one replica before they see that they should end. The values read there are compared where they
//! matter, in messages.
//!
//! A leader that reads in a loop waits for a follower that is far behind, as flow control. There too the other thread
//! may never make these readings: the program's threads race, and it has left the loop. So the leader asks for that
//! thread's progress, and goes ahead when it has begun its next call or stands still.

use super::sphere::{Act, Sphere};
use crate::asked::Asked;
use crate::refusal::Fault;
use crate::traces;
use quiesce::{Call, DecisionKey, Outcome, Place, Question, StreamId};
use redrt_process::clock::monotonic_ns;
use redrt_transport::frame::Whereabouts;
use redrt_types::ReplicaId;
use redrt_wire::control::FromAgent;
use redrt_wire::event::{Event, Parting};
use redrt_wire::trace::TracePoint;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

/// Interval at which a waiting follower asks for its leader's progress.
const ASK_INTERVAL_NS: u64 = 100_000_000;
/// First pause where the leader may well not make the reading; later pauses double, up to that interval.
const FIRST_PAUSE_NS: u64 = 1_000_000;

/// Bound on the wait for a thread that the leader has never seen. Once the replica is known to have diverged, the
/// leader's next answer is enough.
const UNKNOWN_WAIT_NS: u64 = 10_000_000_000;

/// Bound on the wait for a thread of the leader that does not run, is in no MPI call and makes no progress, while other
/// threads of the leader are in MPI calls. It may wait for a lock whose owner waits for something that depends on this
/// follower.
const STANDING_NS: u64 = 10_000_000_000;
/// The same bound once the replica is known to have diverged.
const STANDING_AGAIN_NS: u64 = 1_000_000_000;

/// Allowance when processor times are compared: on another host the same work takes at most twice the time, and this.
const OUTRUN_NS: u64 = 10_000_000_000;

/// Time that a follower's thread has to stand still before a leader no longer waits for it.
const STANDING_BEHIND_NS: u64 = 300_000_000;

process_local! {
    /// True once this replica's divergence from its leader was reported.
    static HAS_DIVERGED: AtomicBool = AtomicBool::new(false);
}

/// Distance below which readings are a loop, and told to followers in batches.
const LOOP_DISTANCE_NS: u64 = 20_000;

/// Number of close readings that are told at once, before they count as a loop.
const PROMPT_COUNT: u32 = 16;

/// State of an engine's readings.
#[derive(Default)]
pub struct Readings {
    latest_ns: u64,
    told_ns: u64,
    close_count: u32,
    /// Threads whose readings differ from their leader's, for example Python's when they contend for its lock. They
    /// take the leader's readings where these are at hand, and wait for none.
    diverged: FxHashSet<StreamId>,
    /// Threads that have ended in the leader, and continue here.
    longer: FxHashSet<StreamId>,
    /// Answers of the leader, by thread; an entry without an answer is an open question.
    answers: FxHashMap<u64, Option<Whereabouts>>,
    /// Number of readings that no sibling makes, and that were reported.
    pub(super) told_alone: u32,
}

/// The answer to a question for a reading.
pub enum Reading {
    /// The clock shows this, in nanoseconds.
    Decided(u64),
    /// This process decides: read the clock, and answer.
    Decide,
    /// The leader asked for something else here.
    Missing,
    /// The leader has not decided yet.
    Wait,
    /// Followers are far behind: wait for them.
    Crowded,
}

/// Prospects of a reading that a follower waits for.
pub enum Awaited {
    /// The leader may still make it.
    Perhaps,
    /// From now on it is voted on like any outcome: ask for it anew.
    Voted,
    /// The leader's thread has taken another path.
    Never,
    /// The leader's thread has ended.
    Ended,
}

/// One replica's wait for one reading.
#[derive(Default)]
pub struct Patience {
    began_ns: u64,
    next_ns: u64,
    /// The leader's last answer, and the time since which it has been the same.
    stands: Option<(Whereabouts, u64)>,
    /// True once the reading is voted on: decided by a look after the reading had not come for a while.
    is_voted: bool,
    /// Processor time of the leader's thread, in nanoseconds, at the position that this process's thread has to reach.
    leader_ran_ns: Option<u64>,
    /// Pause before the first question; `None` for the usual interval.
    first_pause_ns: Option<u64>,
}

impl Patience {
    /// Patience for a reading that siblings may well not make: it asks soon.
    pub fn short() -> Self {
        Self { first_pause_ns: Some(FIRST_PAUSE_NS), ..Self::default() }
    }

    /// The prospects of this reading; asks the leader from time to time. To be called while the reading is awaited.
    pub fn awaited(&mut self, sphere: &mut Sphere<'_>, stream: StreamId) -> Awaited {
        let StreamId::Thread(thread) = stream else { return Awaited::Never };
        if self.is_voted {
            return Awaited::Perhaps;
        }
        let is_longer = sphere.readings().longer.contains(&stream);
        if is_longer || sphere.readings().diverged.contains(&stream) {
            return match self.check_vote(sphere, stream) {
                true => Awaited::Voted,
                false if is_longer => Awaited::Ended,
                false => Awaited::Never,
            };
        }
        let now = monotonic_ns();
        match self.heard(sphere, stream, thread, now) {
            Awaited::Perhaps => {}
            Awaited::Ended => {
                sphere.readings().longer.insert(stream);
                return Awaited::Ended;
            }
            gone => {
                sphere.readings().diverged.insert(stream);
                return gone;
            }
        }
        if self.is_time_to_ask(sphere, now) {
            // Not at once: the check lists the threads of this process, and most readings come soon.
            if self.check_vote(sphere, stream) {
                return Awaited::Voted;
            }
            sphere.ask_all_whereabouts(thread);
        }
        Awaited::Perhaps
    }

    /// The same for a reading past MPI, which is never voted on.
    pub fn awaited_time(&mut self, sphere: &mut Sphere<'_>, stream: StreamId) -> Awaited {
        let StreamId::Thread(thread) = stream else { return Awaited::Never };
        let now = monotonic_ns();
        let heard = self.heard(sphere, stream, thread, now);
        if matches!(heard, Awaited::Perhaps) && self.is_time_to_ask(sphere, now) {
            sphere.ask_all_whereabouts(thread);
        }
        heard
    }

    /// The prospects of a lock operation that this thread is about to make. To be called while no decision on it has
    /// come.
    pub fn awaited_operation(&mut self, sphere: &mut Sphere<'_>, thread: u64) -> Awaited {
        let now = monotonic_ns();
        if let Some(answer) = self.fresh_answer(sphere, thread, now) {
            // Operations before its call were told before it answered.
            let went_past = answer.calls > sphere.program.call_count();
            let stands_still = self.stood_ns(answer, now) > STANDING_NS;
            if answer.calls == Place::ENDED {
                return Awaited::Ended;
            }
            if went_past || stands_still {
                return Awaited::Never;
            }
        }
        if self.is_time_to_ask(sphere, now) {
            sphere.ask_all_whereabouts(thread);
        }
        Awaited::Perhaps
    }

    /// Returns true if this thread has run for so much longer than the leader's, without reaching the leader's
    /// position, that it will not reach it. It may poll in vain for an act of another thread, which waits for it.
    pub fn has_outrun(&mut self, sphere: &mut Sphere<'_>, thread: u64) -> bool {
        let now = monotonic_ns();
        if self.leader_ran_ns.is_none() {
            self.leader_ran_ns = self.fresh_answer(sphere, thread, now).map(|answer| answer.ran_ns);
            if self.leader_ran_ns.is_none() && self.is_time_to_ask(sphere, now) {
                sphere.ask_all_whereabouts(thread);
            }
        }
        let limit_ns = |ran_ns: u64| ran_ns.saturating_mul(2).saturating_add(OUTRUN_NS);
        self.leader_ran_ns.is_some_and(|ran_ns| sphere.program.ran_ns_of(thread) > limit_ns(ran_ns))
    }

    /// The leader's answer about its thread, if it is newer than the begin of this wait.
    fn fresh_answer(&mut self, sphere: &mut Sphere<'_>, thread: u64, now: u64) -> Option<Whereabouts> {
        if self.began_ns == 0 {
            self.began_ns = now;
            sphere.readings().answers.remove(&thread);
        }
        sphere.readings().take_answer(thread)
    }

    fn heard(&mut self, sphere: &mut Sphere<'_>, stream: StreamId, thread: u64, now: u64) -> Awaited {
        let Some(answer) = self.fresh_answer(sphere, thread, now) else { return Awaited::Perhaps };
        let is_unknown = (answer.calls, answer.outcomes) == (0, 0);
        let is_all = answer.outcomes <= sphere.passed(stream);
        if is_all && answer.calls == Place::ENDED {
            return Awaited::Ended;
        }
        let went_past = answer.calls > sphere.program.call_count() && is_all;
        let has_diverged = HAS_DIVERGED.load(Ordering::Relaxed);
        let has_waited = now - self.began_ns > UNKNOWN_WAIT_NS || has_diverged;
        let stands_still = self.stood_ns(answer, now) > if has_diverged { STANDING_AGAIN_NS } else { STANDING_NS };
        if went_past || (is_unknown && has_waited) || stands_still { Awaited::Never } else { Awaited::Perhaps }
    }

    fn check_vote(&mut self, sphere: &mut Sphere<'_>, stream: StreamId) -> bool {
        self.is_voted = sphere.votes_on_readings(stream);
        self.is_voted
    }

    /// Returns true if the leader may read on although a follower is far behind, which may never make these readings.
    /// To be called while it waits ([`Reading::Crowded`]).
    pub fn is_vain(&mut self, sphere: &mut Sphere<'_>, stream: StreamId) -> bool {
        let (StreamId::Thread(thread) | StreamId::Readings(thread)) = stream else { return false };
        self.is_vain_for(sphere, stream, thread, STANDING_BEHIND_NS)
    }

    /// The same for lock operations, which have a stream of their own. Replicas of a program without races make all of
    /// them, so this waits longer.
    pub fn is_order_vain(&mut self, sphere: &mut Sphere<'_>, stream: StreamId, thread: u64) -> bool {
        self.is_vain_for(sphere, stream, thread, STANDING_NS)
    }

    fn is_vain_for(&mut self, sphere: &mut Sphere<'_>, stream: StreamId, thread: u64, standing_ns: u64) -> bool {
        let Some(behind) = sphere.replica.sibling_behind(stream) else { return false };
        let now = monotonic_ns();
        if let Some(answer) = sphere.readings().take_answer(thread) {
            let went_past = answer.calls > sphere.program.call_count();
            if went_past || self.stood_ns(answer, now) > standing_ns {
                sphere.replica.go_ahead(behind, stream);
                return true;
            }
        }
        if self.is_time_to_ask(sphere, now) {
            sphere.ask_whereabouts(ReplicaId { rank: sphere.me().rank, index: behind }, thread);
        }
        false
    }

    /// Nanoseconds for which the answer has been this one.
    fn stood_ns(&mut self, answer: Whereabouts, now: u64) -> u64 {
        let (last, since_ns) = self.stands.filter(|(last, _)| *last == answer).unwrap_or((answer, now));
        self.stands = Some((last, since_ns));
        now - since_ns
    }

    /// Returns true if it is time to ask for the other thread's progress. Sets an alarm for that time.
    fn is_time_to_ask(&mut self, sphere: &mut Sphere<'_>, now: u64) -> bool {
        let is_time = self.next_ns != 0 && now >= self.next_ns;
        if self.next_ns == 0 || is_time {
            let pause = self.first_pause_ns.unwrap_or(ASK_INTERVAL_NS);
            self.first_pause_ns = Some(ASK_INTERVAL_NS.min(2 * pause));
            self.next_ns = now + pause;
        }
        sphere.ask_for(Act::Alarm(self.next_ns));
        is_time
    }
}

impl Readings {
    /// The answer about a thread, if one has come since it was asked for.
    fn take_answer(&mut self, thread: u64) -> Option<Whereabouts> {
        self.answers.get_mut(&thread).and_then(Option::take)
    }
}

impl Sphere<'_> {
    /// Returns true if readings of clocks are voted on like all other outcomes. Threads that contend for a lock read
    /// clocks at moments of their own, so one thread is a condition.
    ///
    /// A lost leader's decisions stay subject to the vote: one of two siblings may have reached them while three
    /// replicas lived, and the other reaches them now.
    fn votes_on_readings(&self, stream: StreamId) -> bool {
        (self.has_majority() || self.follows_lost_leader(stream)) && self.program.has_one_thread()
    }

    fn reading_of(&self, stream: StreamId, clock: i32) -> Question {
        self.question(stream, Call::Clock, u64::from(clock.cast_unsigned()), 0)
    }

    /// Asks for a reading of a clock. `patience`: that of the waiting thread.
    pub fn ask_reading(&mut self, stream: StreamId, clock: i32, patience: &Patience) -> Reading {
        let question = self.reading_of(stream, clock);
        let key = self.next(stream);
        match self.replica.fits(key, question) {
            Some(true) => {}
            Some(false) if self.votes_on_readings(stream) => {}
            Some(false) if self.has_reading(key, clock) => {
                let Some(Outcome::Clock { ns, .. }) = self.take(key) else { return Reading::Missing };
                return Reading::Decided(ns);
            }
            Some(false) => return Reading::Missing,
            None if self.is_deciding() && self.is_far_ahead(stream) => return Reading::Crowded,
            // A reading that the leader may never make is no fault of the leader, nor of this process.
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

    /// Returns true if the next outcome is a reading of this clock, wherever the leader made it.
    fn has_reading(&self, key: DecisionKey, clock: i32) -> bool {
        matches!(self.replica.peek(key), Some(Outcome::Clock { clock: decided, .. }) if *decided == clock)
    }

    /// Decides the reading that [`Sphere::ask_reading`] asked for. `now_ns` is this machine's monotonic clock.
    pub fn answer_reading(&mut self, stream: StreamId, clock: i32, ns: u64, now_ns: u64) {
        let question = self.reading_of(stream, clock);
        self.answer(stream, question, Outcome::Clock { clock, ns });
        self.send_reading(now_ns);
    }

    /// Sends a reading that was decided, at once or with others.
    pub(super) fn send_reading(&mut self, now_ns: u64) {
        let readings = self.readings();
        let is_close = now_ns.saturating_sub(readings.latest_ns) < LOOP_DISTANCE_NS;
        readings.close_count = if is_close { readings.close_count + 1 } else { 0 };
        readings.latest_ns = now_ns;
        // The leader may compute for long now, and its followers wait for this reading.
        if readings.close_count < PROMPT_COUNT || now_ns.saturating_sub(readings.told_ns) > LOOP_DISTANCE_NS {
            readings.told_ns = now_ns;
            self.flush();
        }
    }

    /// Passes over readings that only the leader made. Returns the key of the next outcome.
    pub fn skip_readings(&mut self, stream: StreamId) -> DecisionKey {
        loop {
            let key = self.next(stream);
            if !matches!(self.replica.peek(key), Some(Outcome::Clock { .. })) || self.votes_on_readings(stream) {
                return key;
            }
            self.pass_outcome(stream);
            self.readings().diverged.insert(stream);
            self.report_divergence(Parting::ClockOfLeader, None);
        }
    }

    /// Reports once that the replicas of this rank took different paths: by this thread, which has `ended`, or by the
    /// calling one.
    pub fn report_divergence(&mut self, parting: Parting, ended: Option<u64>) {
        if HAS_DIVERGED.swap(true, Ordering::Relaxed) {
            return;
        }
        warn!(target: "engine", %parting, "paths have parted");
        if self.outcomes.traces.is_some() {
            let (maps, thread) = (traces::maps(), ended.unwrap_or_else(|| self.program.place().thread));
            let trace = match ended {
                Some(_) => traces::latest_lock_event(thread, &maps),
                None => Some(traces::here(thread, &maps)),
            };
            self.ask_for(Act::Send(FromAgent::Trace(TracePoint::Thread(thread), trace)));
        }
        let event = Event::Divergence { replica: self.me(), parting };
        self.ask_for(Act::Send(FromAgent::Event(event)));
    }

    /// Reports that the threads of this process are not ordered any more, since they depend on other processes.
    pub fn report_unordered(&mut self) {
        let event = Event::Unordered { replica: self.me() };
        self.ask_for(Act::Send(FromAgent::Event(event)));
    }

    /// Asks for the progress of a thread of the program. All siblings are asked, and the leader answers.
    fn ask_all_whereabouts(&mut self, thread: u64) {
        let rank = self.me().rank;
        let siblings: Vec<_> = self.replica.view().live(rank).collect();
        for sibling in siblings {
            self.ask_whereabouts(sibling, thread);
        }
    }

    /// Asks a sibling for the progress of a thread of its program.
    fn ask_whereabouts(&mut self, sibling: ReplicaId, thread: u64) {
        if sibling != self.me() {
            self.readings().answers.insert(thread, None);
            self.ask_for(Act::Ask(sibling, thread));
        }
    }

    /// Handles a sibling's question for the progress of a thread, or its answer to one.
    pub(super) fn handle_whereabouts(&mut self, from: ReplicaId, thread: u64, body: &[u8]) -> Result<(), Fault> {
        if from.rank != self.me().rank {
            return Err(Fault::Thread);
        }
        if let Some(answer) = Whereabouts::from_bytes(body) {
            // An answer without an open question came late.
            if let Some(place) = self.readings().answers.get_mut(&thread) {
                *place = Some(answer);
                self.ask_for(Act::Stir);
            }
        } else if self.is_deciding() || self.replica.view().leader(from.rank) == Some(from) {
            // The order matters. If the thread had begun its next call before the count of calls is taken, its
            // decisions before that call are counted too.
            let calls = self.program.calls_of(thread);
            if let Some((stream, question, outcome)) = self.program.untold_order() {
                self.answer(stream, question, outcome);
            }
            let outcomes = self.passed(StreamId::Thread(thread));
            self.flush();
            let (pulse, ran_ns) = (self.program.pulse_of(thread), self.program.ran_ns_of(thread));
            self.ask_for(Act::Answer(from, thread, Whereabouts { calls, outcomes, pulse, ran_ns }));
        }
        Ok(())
    }
}
