//! Turns of the helpers that save a process. An agent serves one helper at a time, so a checkpoint waits until the
//! helper of the one before has ended: that helper may have been killed, or have sent its last message, and still live.
//! A process that was just loaded may take part in a checkpoint before its loader has reported its process number: the
//! checkpoint waits for that too.
//!
//! ```text
//!  (nobody) ──begin──▶ Awaited ──done, abandoned──▶ Done ──ended──▶ (nobody), or the next checkpoint
//! ```

use redrt_wire::checkpoint::Generation;
use std::collections::BTreeMap;

struct Turn<T> {
    generation: Generation,
    /// True once the helper's words and its end have no meaning any more.
    is_done: bool,
    /// The next checkpoint's task for the same process, for when this helper has ended.
    next: Option<(Generation, T)>,
}

/// Turns of all processes, by child number: see the module. `T` is a helper's task.
pub struct Turns<T>(BTreeMap<usize, Turn<T>>);

/// Consequence of a helper's end.
#[derive(PartialEq, Eq, Debug)]
pub struct Ended<T> {
    /// Checkpoint that still waited for this process: the helper has failed it.
    pub awaited: Option<Generation>,
    /// Task to begin now.
    pub next: Option<(Generation, T)>,
}

impl<T> Turns<T> {
    pub fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Checkpoint that waits for this process's helper.
    pub fn awaited(&self, number: usize) -> Option<Generation> {
        self.0.get(&number).filter(|turn| !turn.is_done).map(|turn| turn.generation)
    }

    /// Processes whose helpers work for this checkpoint.
    pub fn at_work(&self, generation: Generation) -> impl Iterator<Item = usize> + '_ {
        self.0.keys().copied().filter(move |number| self.awaited(*number) == Some(generation))
    }

    /// Begins the save of a process. Returns the task if its helper is to be started now.
    pub fn begin(&mut self, number: usize, generation: Generation, task: T) -> Option<T> {
        match self.0.get_mut(&number) {
            Some(turn) => {
                turn.next = Some((generation, task));
                None
            }
            None => {
                self.0.insert(number, Turn { generation, is_done: false, next: None });
                Some(task)
            }
        }
    }

    /// Queues the save of a process that is not known yet. Its turn comes with [`Self::ended`].
    pub fn begin_later(&mut self, number: usize, generation: Generation, task: T) {
        let turn = self.0.entry(number).or_insert(Turn { generation, is_done: true, next: None });
        turn.next = Some((generation, task));
    }

    /// Notes the helper's last message.
    pub fn done(&mut self, number: usize) {
        if let Some(turn) = self.0.get_mut(&number) {
            turn.is_done = true;
        }
    }

    /// Abandons a checkpoint. Returns the processes whose helpers must be ended.
    pub fn abandon(&mut self, generation: Generation) -> Vec<usize> {
        for turn in self.0.values_mut() {
            turn.next.take_if(|(of_checkpoint, _)| *of_checkpoint == generation);
        }
        let numbers: Vec<_> = self.at_work(generation).collect();
        for number in &numbers {
            self.done(*number);
        }
        numbers
    }

    /// Notes that a process's helper has ended, or could not be started.
    pub fn ended(&mut self, number: usize) -> Ended<T> {
        let awaited = self.awaited(number);
        let next = self.0.remove(&number).and_then(|turn| turn.next);
        Ended { awaited, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_checkpoint_waits_for_the_killed_helper_of_another() {
        let mut turns = Turns::new();
        let (first, second, third) = (Generation(1), Generation(2), Generation(3));
        assert_eq!(turns.begin(0, first, "first"), Some("first"));
        assert_eq!(turns.abandon(first), [0]);
        assert_eq!((turns.begin(0, second, "second"), turns.awaited(0)), (None, None));
        // A checkpoint may be abandoned before its turn.
        assert!(turns.abandon(second).is_empty());
        assert_eq!(turns.begin(0, third, "third"), None);
        assert_eq!(turns.ended(0), Ended { awaited: None, next: Some((third, "third")) });
        assert_eq!(turns.begin(0, third, "third"), Some("third"));
        assert_eq!(turns.at_work(third).collect::<Vec<_>>(), [0]);
        assert_eq!(turns.ended(0), Ended { awaited: Some(third), next: None });
    }

    #[test]
    fn a_helper_after_its_last_message_is_awaited_silently() {
        let mut turns = Turns::new();
        assert_eq!(turns.begin(4, Generation(1), ()), Some(()));
        turns.done(4);
        assert_eq!(turns.begin(4, Generation(2), ()), None);
        assert!(turns.abandon(Generation(1)).is_empty());
        assert_eq!(turns.ended(4), Ended { awaited: None, next: Some((Generation(2), ())) });
    }

    #[test]
    fn a_checkpoint_waits_for_a_process_that_is_not_known_yet() {
        let mut turns = Turns::new();
        assert_eq!(turns.ended(0), Ended { awaited: None, next: None }, "known before it is to be saved");
        turns.begin_later(0, Generation(1), "first");
        assert_eq!((turns.awaited(0), turns.at_work(Generation(1)).count()), (None, 0));
        assert!(turns.abandon(Generation(1)).is_empty());
        turns.begin_later(0, Generation(2), "second");
        assert_eq!(turns.ended(0), Ended { awaited: None, next: Some((Generation(2), "second")) });
        assert_eq!(turns.begin(0, Generation(2), "second"), Some("second"));
    }

    proptest! {
        /// The replication manager begins a checkpoint when the one before was kept or given up; helpers end at any
        /// time.
        #[test]
        fn each_process_has_one_helper_and_checkpoints_learn_of_all(
            steps in prop::collection::vec((0..4_u8, 0..3_usize), 1..80),
        ) {
            let mut turns = Turns::new();
            // By process: the checkpoint of its living helper. Then: processes that the present checkpoint awaits.
            let mut living: BTreeMap<usize, Generation> = BTreeMap::new();
            let mut unheard: BTreeSet<usize> = BTreeSet::new();
            let mut checkpoint = Generation(0);
            for (step, number) in steps {
                match step {
                    0 if unheard.is_empty() => {
                        checkpoint = Generation(checkpoint.0 + 1);
                        for number in 0..3 {
                            unheard.insert(number);
                            if let Some(of_checkpoint) = turns.begin(number, checkpoint, checkpoint) {
                                prop_assert_eq!(of_checkpoint, checkpoint);
                                prop_assert!(living.insert(number, checkpoint).is_none(), "a process has two helpers");
                            }
                        }
                    }
                    1 if living.get(&number) == Some(&checkpoint) && turns.awaited(number).is_some() => {
                        turns.done(number);
                        unheard.remove(&number);
                    }
                    2 => {
                        for number in turns.abandon(checkpoint) {
                            prop_assert_eq!(living.get(&number), Some(&checkpoint));
                        }
                        unheard.clear();
                    }
                    3 if living.remove(&number).is_some() => {
                        let Ended { awaited, next } = turns.ended(number);
                        if let Some(of_checkpoint) = awaited {
                            prop_assert!(of_checkpoint == checkpoint && unheard.remove(&number), "an older checkpoint is told of");
                        }
                        if let Some((of_checkpoint, task)) = next {
                            prop_assert!(of_checkpoint == checkpoint && task == checkpoint && unheard.contains(&number));
                            prop_assert_eq!(turns.begin(number, of_checkpoint, task), Some(checkpoint));
                            living.insert(number, checkpoint);
                        }
                    }
                    _ => {}
                }
                // Each awaited process has a living helper that will report it: its own, or the one it waits for.
                prop_assert!(unheard.iter().all(|number| living.contains_key(number)));
            }
        }
    }
}
