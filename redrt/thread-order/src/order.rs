//! The machine.

#[cfg(test)]
use crate::sim::Mistake;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

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

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Thread {
    /// The last operation that it has made here.
    made: u64,
    /// The last operation that a batch has told of.
    told: u64,
    /// Of operations that are told and not made; where this process leads, of those that are made and not told.
    events: VecDeque<Event>,
}

impl Thread {
    /// What the leader said of the next operation.
    fn next_event(&self) -> Option<&Event> {
        self.events.front().filter(|event| event.number == self.made + 1)
    }
}

/// The order of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    role: Role,
    threads: BTreeMap<u64, Thread>,
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
            #[cfg(test)]
            mistake: None,
        }
    }

    /// This process leads from now on. It has learned all batches that one of its siblings holds.
    pub fn lead(&mut self) {
        if self.role == Role::Follows {
            self.role = Role::TakesOver;
        }
    }

    /// Whether its threads go on by themselves.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.role == Role::Leads
    }

    /// This process is a copy of the one whose order this was, and follows. A leader is copied after a cut: what it has
    /// not told is of no use to its copy if it is lost before it tells.
    pub fn join(&mut self) {
        if self.role == Role::Leads {
            self.threads.values_mut().for_each(|thread| thread.events.clear());
        }
        self.role = Role::Follows;
    }

    /// What a thread may do for its next operation.
    #[must_use]
    pub fn next(&mut self, thread: u64) -> Step {
        self.threads.entry(thread).or_default();
        if self.role == Role::Leads {
            return Step::Free;
        }
        let of = &self.threads[&thread];
        if of.made < of.told {
            let Some(Event { after, takes, result, .. }) = of.next_event() else {
                return Step::Decided { takes: true, result: 0 };
            };
            let decided = Step::Decided { takes: *takes, result: *result };
            return if after.iter().all(|before| self.has_made(*before)) { decided } else { Step::Wait };
        }
        if self.role == Role::TakesOver && self.has_caught_up() {
            self.role = Role::Leads;
            return Step::Free;
        }
        Step::Wait
    }

    /// The thread that has yet to make what the next operation of this one comes after.
    #[must_use]
    pub fn awaited_by(&self, thread: u64) -> Option<u64> {
        let event = self.threads.get(&thread)?.next_event()?;
        event.after.iter().find(|before| !self.has_made(**before)).map(|before| before.thread)
    }

    fn has_made(&self, operation: Operation) -> bool {
        self.threads.get(&operation.thread).is_some_and(|thread| thread.made >= operation.number)
    }

    /// Whether all that was told is made.
    fn has_caught_up(&self) -> bool {
        #[cfg(test)]
        if self.mistake == Some(Mistake::LeadsAtOnce) {
            return true;
        }
        self.threads.values().all(|thread| thread.made >= thread.told)
    }

    /// A thread has made its next operation as the leader did.
    pub fn follow(&mut self, thread: u64) -> Operation {
        let of = self.threads.entry(thread).or_default();
        if of.next_event().is_some() {
            of.events.pop_front();
        }
        of.made += 1;
        Operation { thread, number: of.made }
    }

    /// A thread of the leader has made its next operation. `after`: the latest operations of other threads that had the
    /// lock, if it takes it.
    pub fn record(&mut self, thread: u64, after: Vec<Operation>, takes: bool, result: i32) -> Operation {
        let of = self.threads.entry(thread).or_default();
        of.made += 1;
        if !after.is_empty() || !takes || result != 0 {
            of.events.push_back(Event { number: of.made, after, takes, result });
        }
        Operation { thread, number: of.made }
    }

    /// What has been made since the last cut, if anything.
    pub fn cut(&mut self) -> Option<Batch> {
        if self.role != Role::Leads {
            return None;
        }
        let mut progress = Vec::new();
        for (number, thread) in &mut self.threads {
            if thread.made > thread.told {
                #[cfg(test)]
                if self.mistake == Some(Mistake::TornCut) && number % 2 == 1 && thread.made > thread.told + 1 {
                    thread.told += 1;
                    let is_told = |event: &Event| event.number <= thread.told;
                    let events = std::mem::take(&mut thread.events);
                    let (told, rest) = events.into_iter().partition::<VecDeque<_>, _>(is_told);
                    thread.events = rest;
                    progress.push(Progress { thread: *number, until: thread.told, events: told.into() });
                    continue;
                }
                thread.told = thread.made;
                let events = std::mem::take(&mut thread.events).into();
                progress.push(Progress { thread: *number, until: thread.made, events });
            }
        }
        (!progress.is_empty()).then_some(Batch(progress))
    }

    /// The leader's next batch. A copy of it may have made some of that.
    pub fn learn(&mut self, batch: Batch) {
        for Progress { thread, until, events } in batch.0 {
            let of = self.threads.entry(thread).or_default();
            of.told = of.told.max(until);
            let made = of.made;
            of.events.extend(events.into_iter().filter(|event| event.number > made));
        }
    }
}
