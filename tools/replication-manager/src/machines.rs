//! The machines of a replication manager, and what concerns several of them.

use super::checkpoint::CheckpointWatch;
use super::effect::Effects;
use super::ending::Course;
use super::facts::Facts;
use super::health::Differences;
use super::injection::Injector;
use super::link::Links;
use super::messages::Settings;
use super::pace::PaceWatch;
use super::proofs::{ProofMode, Proofs, SMALL_BYTES_MAX};
use super::recovery::{Clones, Copies, Part};
use super::refusal::Refusals;
use super::scrub::{ROUND_BYTES_MAX, ScrubWatch};
use super::signals::Signals;
use super::slowness::SlownessWatch;
use super::stall::StallWatch;
use super::stragglers::Stragglers;
use super::strikes::Strikes;
use redrt_types::ReplicaId;
use redrt_wire::checkpoint::Generation;
use serde::{Deserialize, Serialize};

/// The machines that decide, each with its own state. They know of the rest of the job what [`Facts`] has.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Machines {
    pub signals: Signals,
    pub injector: Injector,
    pub refusals: Refusals,
    pub links: Links,
    pub differences: Differences,
    pub strikes: Strikes,
    pub stall: StallWatch,
    pub pace: PaceWatch,
    pub slowness: SlownessWatch,
    pub stragglers: Stragglers,
    /// None where memory is not compared.
    pub scrub: Option<ScrubWatch>,
    /// None where no checkpoints are taken.
    pub checkpoint: Option<CheckpointWatch>,
    /// None where no checkpoint is proven.
    pub proofs: Option<Proofs>,
    /// None where lost replicas are not replaced.
    pub recovery: Option<Copies>,
}

impl Machines {
    pub fn new(settings: &Settings) -> Self {
        let world = &settings.world;
        let proven = settings.checkpoint.as_ref().map(|checkpoint| (checkpoint.proofs, checkpoint.proven));
        let proven = proven.filter(|(mode, _)| *mode != ProofMode::Off && world.is_replicated());
        let is_small =
            settings.scrub_interval.is_none() && proven.is_some_and(|(mode, _)| mode == ProofMode::WhereSmall);
        let bytes_max = if is_small { SMALL_BYTES_MAX } else { ROUND_BYTES_MAX };
        let is_compared = settings.scrub_interval.is_some() || proven.is_some();
        let scrub = || ScrubWatch::new(settings.scrub_interval, bytes_max, world.rank_count());
        Self {
            signals: Signals::default(),
            injector: Injector::new(settings.timed_kills.clone(), settings.random_kills),
            refusals: Refusals::default(),
            links: Links::default(),
            differences: Differences::default(),
            strikes: Strikes::default(),
            stall: StallWatch::new(world.process_count(), settings.look_interval, world.is_replicated()),
            pace: PaceWatch::new(settings.stall_time),
            slowness: SlownessWatch::default(),
            stragglers: Stragglers::default(),
            scrub: is_compared.then(scrub),
            checkpoint: settings.checkpoint.as_ref().map(CheckpointWatch::new),
            proofs: proven.map(|(mode, newest)| Proofs::new(mode, newest)),
            recovery: None,
        }
    }

    /// The checkpoint whose processes are being loaded.
    pub fn checkpoint_being_loaded(&self, course: &Course) -> Option<Generation> {
        self.checkpoint.as_ref()?.being_loaded(course)
    }

    /// Gives up the current checkpoint if the loss of these replicas makes it void.
    pub fn void_checkpoint(&mut self, facts: Facts<'_>, replicas: &[ReplicaId], hosts_too: bool, out: &mut Effects) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.void(facts, replicas, hosts_too, out);
        }
    }

    /// Gives up copies and the checkpoint that are being made, because no process needs them any more.
    pub fn end(&mut self, facts: Facts<'_>, out: &mut Effects) {
        if let Some(copies) = &mut self.recovery {
            copies.end(facts, out);
        }
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.end(facts.now, out);
        }
        self.proofs.iter_mut().for_each(Proofs::end);
    }

    /// Does a part of what is due for the replacement of replicas.
    pub fn pass_recovery_time(&mut self, facts: Facts<'_>, part: Part, out: &mut Effects) {
        // A new member would make a checkpoint void.
        let may_begin = !self.checkpoint.as_ref().is_some_and(CheckpointWatch::needs_membership);
        if let Some(copies) = &mut self.recovery {
            copies.pass_time(facts, self.scrub.as_ref(), part, may_begin, out);
        }
    }

    /// Begins and gives up checkpoints.
    pub fn pass_checkpoint_time(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let clones = self.recovery.as_ref().map(Copies::clones);
        let is_quiet = self.links.are_whole() && clones.is_none_or(Clones::is_idle);
        let is_distrusted = |source| clones.is_some_and(|clones| clones.is_distrusted(facts, source));
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.pass_time(facts, is_quiet, is_distrusted, out);
        }
    }
}
