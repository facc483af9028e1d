//! A return to a checkpoint: which one, and on which hosts.
//!
//! ```text
//!   all processes are gone ─▶ the newest ─▶ hosts for its parts ─▶ Chosen: other daemons are started
//!          it cannot be loaded ▼      ▲ none                        │ a host cannot be had     │ all attached
//!                       Searching: the store has an older one       └─▶ hosts without it       └─▶ at rest
//! ```
//! A checkpoint whose parts are on lost hosts is loaded from the archive if it is there.
//!
//! Enters: the end of all processes; answers of the store; hosts that cannot be had. Leaves ([`Effect`]): an order to
//! the store, the return for `redrun` to carry out, or the end of the job. Facts of other machines come in with each
//! input ([`Seen`]).
//!
//! A return that was chosen is repeated by a coordinator that comes back, until processes are launched: daemons that
//! were started for it leave with the coordinator that has started them.

use super::mutation::{self, Mutation};
use super::waiting_for_hosts::HostWait;
use checkpoint_store::StoredCheckpoint;
use placement::homes::{self, NoHome};
use placement::plan::{HostPlan, PlannedHost};
use redrt_wire::checkpoint::Generation;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// A return to a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Return {
    /// The checkpoint.
    pub kept: Box<StoredCheckpoint>,
    /// The hosts of the life that begins, by number.
    pub hosts: Vec<PlannedHost>,
    /// Number of starts from the checkpoint because processes ended, this one included.
    pub count: u32,
    /// True if a newer one cannot be loaded.
    pub is_older: bool,
}

/// The view of other machines at an input.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    /// Number of the job.
    pub job: u64,
    pub plan: &'a HostPlan,
    /// True of a host that is part of the job.
    pub has_host: &'a dyn Fn(u32) -> bool,
    /// True if processes that have had so much standard input can be given all that was read since.
    pub has_input: &'a dyn Fn(u64) -> bool,
    /// The newest checkpoint in the archive, as it is loaded from there.
    pub archived: Option<&'a StoredCheckpoint>,
    /// The fewest CPUs of a host.
    pub cpus: u32,
}

/// A consequence of an input.
#[derive(Debug)]
pub(super) enum Effect {
    /// For the store: look for a checkpoint before this one.
    FindOlder(Generation),
    /// For `redrun`.
    GoBack(Box<Return>),
    /// A warning for the user.
    Note(String),
    /// An older checkpoint is loaded.
    Try(Generation),
    /// The job ends, to be resumed with more hosts.
    Wait(Generation, String),
    /// The job cannot go on.
    Fail(String),
}

#[derive(Debug, Default, Serialize, Deserialize)]
enum Stage {
    /// Processes run, or the job has not begun.
    #[default]
    Resting,
    /// The store looks for a checkpoint before this one, which cannot be loaded.
    Searching { below: Generation },
    /// Daemons are being started on these hosts.
    Chosen(Box<Return>),
}

/// Returns to a checkpoint: see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Returns {
    host_wait: Option<HostWait>,
    stage: Stage,
    /// Hosts of the life that begins which cannot be had. The trap: a number in that life may stand for a host that has
    /// another number, or several, in the life before.
    missing: BTreeSet<(u32, String)>,
    /// Always drained before the state is saved.
    #[serde(skip)]
    effects: VecDeque<Effect>,
}

impl Returns {
    /// A job that has not gone back.
    pub fn new(host_wait: Option<HostWait>) -> Self {
        Self { host_wait, stage: Stage::Resting, missing: BTreeSet::new(), effects: VecDeque::new() }
    }

    /// The return that was chosen, until processes are launched.
    pub fn chosen(&self) -> Option<&Return> {
        match &self.stage {
            Stage::Chosen(chosen) => Some(chosen),
            Stage::Resting | Stage::Searching { .. } => None,
        }
    }

    /// True while the store looks for an older checkpoint.
    pub fn is_searching(&self) -> bool {
        matches!(self.stage, Stage::Searching { .. })
    }

    /// All processes are gone. `count`: as in [`Return`], and None if the newest checkpoint cannot be loaded; `newest`:
    /// that checkpoint.
    pub fn begin(&mut self, newest: Box<StoredCheckpoint>, count: Option<u32>, seen: Seen<'_>) {
        match count {
            None => self.search(newest.manifest.generation),
            Some(count) => self.choose(newest, (count, false), seen),
        }
    }

    /// The store has an older checkpoint. `passed_over`: why newer ones are not usable.
    pub fn found(&mut self, kept: Option<Box<StoredCheckpoint>>, passed_over: Vec<String>, seen: Seen<'_>) {
        let Stage::Searching { below } = self.stage else { return };
        let notes = passed_over.into_iter().map(|why| Effect::Note(format!("a checkpoint is passed over: {why}")));
        self.effects.extend(notes);
        match kept {
            Some(kept) => {
                self.effects.push_back(Effect::Try(kept.manifest.generation));
                self.choose(kept, (0, true), seen);
            }
            None => match seen.archived.filter(|archived| archived.manifest.generation < below) {
                Some(archived) => {
                    self.effects.push_back(Effect::Try(archived.manifest.generation));
                    self.choose(Box::new(archived.clone()), (0, true), seen);
                }
                None => self.effects.push_back(Effect::Fail("there is no older checkpoint to go back to".into())),
            },
        }
    }

    /// A host cannot be had at the begin of a life. Returns false if no return is under way: nothing follows here.
    pub fn lack(&mut self, host: u32, seen: Seen<'_>) -> bool {
        if self.is_searching() {
            // The checkpoint that is found goes to hosts without it.
            self.missing.extend(name_of(&seen.plan.hosts, host).map(|name| (host, name)));
            return true;
        }
        let Some(chosen) = self.chosen().cloned() else { return false };
        if mutation::is(Mutation::MissingHostForgotten) {
            self.missing.clear();
        }
        self.missing.extend(name_of(&chosen.hosts, host).map(|name| (host, name)));
        let Return { kept, count, is_older, .. } = chosen;
        self.choose(kept, (count, is_older), seen);
        true
    }

    /// Begins the life that was chosen. Returns its hosts.
    pub fn begin_life(&mut self) -> Option<Vec<PlannedHost>> {
        self.missing.clear();
        self.chosen().map(|chosen| chosen.hosts.clone())
    }

    /// Processes are launched.
    pub fn launched(&mut self) {
        self.stage = Stage::Resting;
        self.missing.clear();
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn search(&mut self, below: Generation) {
        self.stage = Stage::Searching { below };
        self.effects.push_back(Effect::FindOlder(below));
    }

    /// Chooses hosts for a checkpoint. If none has a part of it, an older one is looked for.
    ///
    /// The trap: standard input is kept since the newest checkpoint only. A job that went back to an older one would go
    /// on without what lies between, and its result would be wrong.
    fn choose(&mut self, kept: Box<StoredCheckpoint>, (count, is_older): (u32, bool), seen: Seen<'_>) {
        let generation = kept.manifest.generation;
        if !(seen.has_input)(kept.manifest.input_bytes) && !mutation::is(Mutation::InputBetweenForgotten) {
            let why = format!("the job cannot go back to checkpoint {generation}: standard input since it is not kept");
            return self.effects.push_back(Effect::Fail(why));
        }
        let is_dead = |host: u32| {
            let name = name_of(&seen.plan.hosts, host);
            let is_it = |(number, missing): &(u32, String)| match mutation::is(Mutation::MissingHostByNumber) {
                true => *number == host,
                false => name.as_ref() == Some(missing),
            };
            let is_missing = || self.missing.iter().any(is_it);
            !mutation::is(Mutation::ReturnToLostHost) && (!(seen.has_host)(host) || is_missing())
        };
        let plan = match homes::after_loss(&kept.manifest, seen.plan, &is_dead) {
            Ok(plan) => plan,
            Err(why @ NoHome::NoHost) => return self.effects.push_back(Effect::Fail(why.to_string())),
            Err(why) => {
                self.effects.push_back(Effect::Note(format!("checkpoint {generation} cannot be loaded: {why}")));
                let is_other = |archived: &&StoredCheckpoint| {
                    archived.manifest.generation == generation && kept.manifest.level != archived.manifest.level
                };
                return match seen.archived.filter(is_other) {
                    Some(archived) => {
                        self.effects.push_back(Effect::Note(format!("checkpoint {generation} is in the archive")));
                        self.choose(Box::new(archived.clone()), (count, is_older), seen)
                    }
                    None => self.search(generation),
                };
            }
        };
        let wait = self.host_wait.and_then(|wait| wait.reason(seen.job, &kept.manifest, &plan.hosts, seen.cpus));
        if let Some(why) = wait {
            return self.effects.push_back(Effect::Wait(generation, why));
        }
        let chosen = Box::new(Return { kept, hosts: plan.hosts, count, is_older });
        self.stage = Stage::Chosen(chosen.clone());
        self.effects.push_back(Effect::GoBack(chosen));
    }
}

/// Name of the host with this number; none for that of `redrun`, where it is the only one.
fn name_of(hosts: &[PlannedHost], host: u32) -> Option<String> {
    hosts.get(host as usize)?.name.as_ref().map(|name| name.name.clone())
}
