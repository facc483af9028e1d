//! Properties that must hold where memory is corrupted at rest, and corrupt replicas are copied.

use super::{Broken, FalseReport, Process, Simulation, agreement, ended, has_open, is_read, payloads};
use crate::frame::{Finding, MessageId, MismatchReport};
use redrt_types::{ReplicaId, ReplicaIndex, ReplicaSet, VirtualRank};

/// No sound replica is ever named. Sound replicas decide where a rank has two lineages. No wrong data is taken without
/// a report.
pub(super) fn end(simulation: &Simulation) -> Result<(), Broken> {
    for process in &simulation.processes {
        for report in &process.reports {
            let (by, message) = (process.me(), report.message);
            is_true(simulation, report).map_err(|why| Broken::FalseReport { by, message, why })?;
        }
    }
    if has_open(simulation) || is_torn(simulation) {
        return Ok(());
    }
    let mut live = simulation.processes.iter().filter(|process| simulation.view.is_live(process.me()));
    live.try_for_each(|process| ended(process, &strays(simulation, process)))?;
    for rank in (0..simulation.world.rank_count()).map(VirtualRank) {
        agreement(simulation, rank)?;
    }
    payloads(simulation)
}

/// Messages that a process's program has not received, and that no sound replica has sent.
pub(in crate::sim) fn strays(simulation: &Simulation, process: &Process) -> Vec<MessageId> {
    let is_sent = |message: &MessageId| {
        let key = (process.me().rank, message.context, message.sequence.0);
        let mut sound = simulation.survivors(message.sender).filter(|sender| !sender.is_tainted);
        sound.any(|sender| sender.sent.iter().any(|(to, context, number, _)| (*to, *context, *number) == key))
    };
    let unread = process.incoming.iter().filter(|incoming| !is_read(incoming)).map(|incoming| incoming.message);
    unread.filter(|message| !is_sent(message)).collect()
}

/// Returns true if one side of a rank with two lineages has left the path of the other. The job ends for that reason.
fn is_torn(simulation: &Simulation) -> bool {
    let is_torn = |rank| {
        let live = simulation.view.live_set(rank);
        let tainted = |index: &ReplicaIndex| simulation.process(ReplicaId { rank, index: *index }).is_tainted;
        let sound: ReplicaSet = live.iter().filter(|index| !tainted(index)).collect();
        sound != live && simulation.view.kinship(rank).weight(sound, live) < 2
    };
    (0..simulation.world.rank_count()).map(VirtualRank).any(is_torn)
}

fn is_true(simulation: &Simulation, report: &MismatchReport) -> Result<(), FalseReport> {
    let sender = report.message.sender;
    let was_tainted = |index| simulation.was_tainted(ReplicaId { rank: sender, index }, report.view);
    match report.finding {
        Finding::ReplicaCorrupt => {
            let culprit = report.culprit.ok_or(FalseReport::NobodyNamed)?;
            // Where two sides of a message were taken, later majorities may be wrong, so nobody is blamed.
            let is_blamed = !simulation.is_open(sender);
            (was_tainted(culprit.index) || !is_blamed).then_some(()).ok_or(FalseReport::SoundNamed)
        }
        Finding::TransportCorrupt => Err(FalseReport::TransportBlamed),
        Finding::Undecidable => {
            let voters: ReplicaSet = report.votes.iter().map(|vote| vote.replica).collect();
            let sound: ReplicaSet = voters.iter().filter(|index| !was_tainted(*index)).collect();
            let kinship = simulation.kinship_in(report.view, sender);
            let is_decidable = sound != voters && kinship.weight(sound, voters) > 1;
            (!is_decidable).then_some(()).ok_or(FalseReport::LeftOpen)
        }
    }
}
