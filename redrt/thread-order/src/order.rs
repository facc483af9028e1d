//! The machine.

use crate::counts::Counts;
#[cfg(test)]
use crate::sim::Mistake;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// One operation on a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// The thread's number, the same in all replicas.
    pub thread: u64,
    /// The how many-th of this thread, from 1 on.
    pub number: u64,
}

/// What there is to say of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Its number.
    pub number: u64,
    /// Operations of other threads that came before it: those that had the lock last.
    pub after: Vec<Operation>,
    /// The thread has the lock now.
    pub takes: bool,
    /// What the call returned: 0 or an error number.
    pub result: i32,
}

/// What a thread has done since the batch before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// The thread's number.
    pub thread: u64,
    /// The last operation that it has made.
    pub until: u64,
    /// In the order of their numbers. Operations of which nothing is said take their lock and return 0.
    pub events: Vec<Event>,
}

/// What all threads have done since the batch before.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Batch(pub Vec<Progress>);

/// What a thread may do for its next operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Not yet: it asks again when a batch was learned or another thread has made an operation.
    Wait,
    /// As it comes: it says afterwards what that was, by [`Order::record`].
    Free,
    /// What the leader did: it takes the lock, or does not, and says so by [`Order::follow`].
    Decided {
        /// It waits for the lock and takes it.
        takes: bool,
        /// What the call is to return.
        result: i32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Follows,
    /// The leader was lost, and this process makes what that has told before it goes on by itself.
    TakesOver,
    Leads,
}

#[derive(Debug)]
struct Thread {
    counts: Arc<Counts>,
    /// The last operation that a batch has told of.
    told: u64,
    /// Of operations that are told and not made; where this process leads, of those that are made and not told.
    events: VecDeque<Event>,
    /// It makes no more operations.
    has_left: bool,
}

impl Thread {
    fn new(leads: bool) -> Self {
        Self { counts: Arc::new(Counts::new(leads)), told: 0, events: VecDeque::new(), has_left: false }
    }

    /// What the leader said of the next operation.
    fn next_event(&self) -> Option<&Event> {
        self.events.front().filter(|event| event.number == self.counts.made() + 1)
    }

    /// It may make what was told, up to what there is to say of.
    fn allow(&self) {
        self.counts.allow(self.events.front().map_or(self.told, |event| self.told.min(event.number - 1)));
    }
}

impl Clone for Thread {
    /// That of a process of its own.
    fn clone(&self) -> Self {
        let counts = Arc::new(Counts::clone(&self.counts));
        Self { counts, told: self.told, events: self.events.clone(), has_left: self.has_left }
    }
}

/// The order of one process.
#[derive(Clone, Debug)]
pub struct Order {
    role: Role,
    threads: BTreeMap<u64, Thread>,
    /// Threads that have left, and of which all is made and told.
    gone: BTreeSet<u64>,
    /// Who was the last one on each channel.
    channels: BTreeMap<u64, Operation>,
    #[cfg(test)]
    pub(crate) mistake: Option<Mistake>,
}

impl Order {
    /// That of a process which leads, or follows another.
    #[must_use]
    pub fn new(leads: bool) -> Self {
        let role = if leads { Role::Leads } else { Role::Follows };
        Self {
            role,
            threads: BTreeMap::new(),
            gone: BTreeSet::new(),
            channels: BTreeMap::new(),
            #[cfg(test)]
            mistake: None,
        }
    }

    fn thread(&mut self, number: u64) -> &mut Thread {
        let leads = self.leads();
        self.threads.entry(number).or_insert_with(|| Thread::new(leads))
    }

    /// The counts of a thread, for itself: what it may do without asking.
    #[must_use]
    pub fn counts(&mut self, thread: u64) -> Arc<Counts> {
        Arc::clone(&self.thread(thread).counts)
    }

    /// A thread has ended: it makes no more operations, and its counts are not used any more.
    pub fn leave(&mut self, thread: u64) {
        self.thread(thread).has_left = true;
        self.forget(thread);
    }

    /// Forgets a thread that has left, if there is nothing to be said of it.
    fn forget(&mut self, thread: u64) {
        let is_done = |of: &Thread| of.has_left && of.counts.made() == of.told && of.events.is_empty();
        if self.threads.get(&thread).is_some_and(is_done) {
            self.threads.remove(&thread);
            self.gone.insert(thread);
        }
    }

    /// This process leads from now on. It has learned all batches that one of its siblings holds.
    pub fn lead(&mut self) {
        if self.role == Role::Follows {
            self.role = Role::TakesOver;
        }
    }

    /// Threads go on as they come from now on, and nothing is told of them.
    pub fn end(&mut self) {
        self.threads.values().for_each(|thread| thread.counts.end());
    }

    /// Whether its threads go on by themselves.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.role == Role::Leads
    }

    /// This process is a copy of the one whose order this was, and follows. A leader is copied after a cut: what it has
    /// not told is of no use to its copy if it is lost before it tells.
    pub fn join(&mut self) {
        for thread in self.threads.values_mut() {
            if self.role == Role::Leads {
                thread.events.clear();
            }
            thread.allow();
        }
        self.role = Role::Follows;
    }

    /// What a thread may do for its next operation.
    #[must_use]
    pub fn next(&mut self, thread: u64) -> Step {
        self.thread(thread);
        if self.role == Role::Leads {
            return Step::Free;
        }
        let of = &self.threads[&thread];
        if of.counts.made() < of.told {
            let Some(Event { after, takes, result, .. }) = of.next_event() else {
                return Step::Decided { takes: true, result: 0 };
            };
            let decided = Step::Decided { takes: *takes, result: *result };
            return if after.iter().all(|before| self.has_made(*before)) { decided } else { Step::Wait };
        }
        if self.role == Role::TakesOver && self.has_caught_up() {
            self.role = Role::Leads;
            self.threads.values().for_each(|thread| thread.counts.lead());
            return Step::Free;
        }
        Step::Wait
    }

    /// The same by batches that this process holds. It takes one when the thread has nothing to do without it: what is
    /// left shows how far this process is behind its leader, which waits for it.
    #[must_use]
    pub fn next_by(&mut self, thread: u64, mut held: impl FnMut() -> Option<Batch>) -> Step {
        loop {
            let step = self.next(thread);
            if step != Step::Wait {
                return step;
            }
            let Some(batch) = held() else { return step };
            self.learn(batch);
        }
    }

    /// Another thread of this process that this one waits for: it has yet to make what the next operation of this one
    /// comes after, or anything that was told, before threads go on by themselves. `None`: the leader is to tell more.
    #[must_use]
    pub fn awaited_by(&self, thread: u64) -> Option<u64> {
        let of = self.threads.get(&thread)?;
        if let Some(event) = of.next_event() {
            return event.after.iter().find(|before| !self.has_made(**before)).map(|before| before.thread);
        }
        let mut behind = self.threads.iter().filter(|(_, thread)| thread.counts.made() < thread.told);
        behind.find(|_| self.role == Role::TakesOver).map(|(number, _)| *number)
    }

    fn has_made(&self, operation: Operation) -> bool {
        let is_gone = self.gone.contains(&operation.thread);
        #[cfg(test)]
        if is_gone && self.mistake == Some(Mistake::GoneUnknown) {
            return false;
        }
        is_gone || self.threads.get(&operation.thread).is_some_and(|thread| thread.counts.made() >= operation.number)
    }

    /// Whether all that was told is made.
    fn has_caught_up(&self) -> bool {
        #[cfg(test)]
        if self.mistake == Some(Mistake::LeadsAtOnce) {
            return true;
        }
        self.threads.values().all(|thread| thread.counts.made() >= thread.told)
    }

    /// A thread has made its next operation as the leader did.
    pub fn follow(&mut self, thread: u64) -> Operation {
        let of = self.thread(thread);
        if of.next_event().is_some() {
            of.events.pop_front();
        }
        let number = of.counts.go();
        of.allow();
        Operation { thread, number }
    }

    /// A thread of the leader has made its next operation. `after`: the latest operations of other threads that had the
    /// lock, if it takes it.
    pub fn record(&mut self, thread: u64, after: Vec<Operation>, takes: bool, result: i32) -> Operation {
        let of = self.thread(thread);
        // What there is to say of it stands there before it counts: a cut may be made at any moment.
        if !after.is_empty() || !takes || result != 0 {
            of.events.push_back(Event { number: of.counts.made() + 1, after, takes, result });
        }
        Operation { thread, number: of.counts.go() }
    }

    /// A thread of the leader is the next one on a channel, which others use too: it posts something there. What it
    /// posts may leave when this is told.
    pub fn record_on(&mut self, channel: u64, thread: u64) -> Operation {
        let last = self.channels.get(&channel).filter(|last| last.thread != thread);
        let after = last.copied().into_iter().collect();
        let operation = self.record(thread, after, true, 0);
        self.channels.insert(channel, operation);
        operation
    }

    /// A thread is the next one on a channel, as it was in the leader.
    pub fn follow_on(&mut self, channel: u64, thread: u64) -> Operation {
        let operation = self.follow(thread);
        self.channels.insert(channel, operation);
        operation
    }

    /// What has been made since the last cut, if anything.
    ///
    /// Threads may make operations meanwhile of which there is nothing to say. What an operation comes after is counted
    /// before that is recorded, so the cut has it too.
    pub fn cut(&mut self) -> Option<Batch> {
        if self.role != Role::Leads {
            return None;
        }
        let mut progress = Vec::new();
        for (number, thread) in &mut self.threads {
            let made = thread.counts.made();
            if made > thread.told {
                #[cfg(test)]
                if self.mistake == Some(Mistake::TornCut) && number % 2 == 1 && made > thread.told + 1 {
                    thread.told += 1;
                    let is_told = |event: &Event| event.number <= thread.told;
                    let events = std::mem::take(&mut thread.events);
                    let (told, rest) = events.into_iter().partition::<VecDeque<_>, _>(is_told);
                    thread.events = rest;
                    progress.push(Progress { thread: *number, until: thread.told, events: told.into() });
                    continue;
                }
                thread.told = made;
                let events = std::mem::take(&mut thread.events).into();
                progress.push(Progress { thread: *number, until: made, events });
            }
        }
        progress.iter().for_each(|of| self.forget(of.thread));
        (!progress.is_empty()).then_some(Batch(progress))
    }

    /// The leader's next batch. A copy of it may have made some of that. An empty one, which is no cut, says that the
    /// leader orders its threads no more.
    pub fn learn(&mut self, batch: Batch) {
        #[cfg(test)]
        let goes_past_events = self.mistake == Some(Mistake::GoesPastEvents);
        // Nobody says any more what comes next: what was told is made, and then threads go on by themselves.
        if batch.0.is_empty() {
            self.lead();
        }
        for Progress { thread, until, events } in batch.0 {
            if self.gone.contains(&thread) {
                continue;
            }
            let of = self.thread(thread);
            of.told = of.told.max(until);
            let made = of.counts.made();
            of.events.extend(events.into_iter().filter(|event| event.number > made));
            of.allow();
            #[cfg(test)]
            if goes_past_events {
                of.counts.allow(of.told);
            }
            self.forget(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_waits_for_the_thread_that_has_yet_to_make_what_was_told() {
        let mut order = Order::new(false);
        let told = |thread| Progress { thread, until: 1, events: Vec::new() };
        order.learn(Batch(vec![told(1), told(2)]));
        order.follow(1);
        assert_eq!((order.next(1), order.awaited_by(1)), (Step::Wait, None));
        order.lead();
        assert_eq!((order.next(1), order.awaited_by(1)), (Step::Wait, Some(2)));
        order.follow(2);
        assert_eq!(order.next(1), Step::Free);
    }
}
