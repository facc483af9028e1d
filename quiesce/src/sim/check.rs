//! Properties that must hold at the end of a run.

pub(super) mod rest;

use super::broken::{Broken, FalseReport};
use super::process::{Incoming, Process};
use super::world::Simulation;
use crate::frame::{Action, Finding, MessageId, MismatchReport};
use redrt_types::{ReplicaId, VirtualRank};
use std::collections::BTreeMap;

/// Returns true if the run has served its purpose: two replicas that differ for good have been reported. Their later
/// actions differ too.
pub(super) fn is_decided(simulation: &Simulation) -> bool {
    simulation.corrupt.is_some() && simulation.rest.is_none() && has_open(simulation)
}

/// Returns true if a receiver has delivered a message that no vote could decide.
pub(super) fn has_open(simulation: &Simulation) -> bool {
    let mut ranks = (0..simulation.world.rank_count()).map(VirtualRank);
    simulation.processes.iter().any(is_open) || ranks.any(|rank| simulation.is_open(rank))
}

/// Returns true if this process has delivered a message that no vote could decide.
pub(super) fn is_open(process: &Process) -> bool {
    let is_open = |report: &MismatchReport| {
        report.finding == Finding::Undecidable && matches!(report.action, Action::Delivered | Action::Refetched)
    };
    process.reports.iter().any(is_open)
}

/// Returns true if a corrupt replica was the only one of its rank while its message was in flight. A receiver that
/// believed it takes a path of its own.
pub(super) fn is_believed(simulation: &Simulation) -> bool {
    let has_sent = |corrupt: ReplicaId| simulation.process(corrupt).corrupted.is_some();
    let has_lost = |corrupt: ReplicaId| simulation.arbitration.as_ref().is_some_and(|it| it.has_lost(corrupt.rank));
    simulation.corrupt.is_some_and(|corrupt| has_sent(corrupt) && has_lost(corrupt))
}

/// Checks the end of a run, when no event is possible.
pub(super) fn end(simulation: &Simulation) -> Result<(), Broken> {
    if simulation.rest.is_some() {
        return rest::end(simulation);
    }
    if simulation.paths.is_some() {
        return simulation.check_paths();
    }
    reports(simulation)?;
    if is_decided(simulation) || is_believed(simulation) {
        return Ok(());
    }
    for process in simulation.processes.iter().filter(|process| simulation.view.is_live(process.me())) {
        finished(process)?;
    }
    for rank in (0..simulation.world.rank_count()).map(VirtualRank) {
        agreement(simulation, rank)?;
    }
    payloads(simulation)?;
    flips(simulation)
}

/// The process has ended, with nothing left over.
pub(super) fn finished(process: &Process) -> Result<(), Broken> {
    ended(process, &[])?;
    match process.replica.unsettled_count() {
        0 => Ok(()),
        _ => Err(Broken::Unsettled(process.me())),
    }
}

/// The process has ended, with nothing left over except these messages.
pub(super) fn ended(process: &Process, strays: &[MessageId]) -> Result<(), Broken> {
    let me = process.me();
    let replica = &process.replica;
    if !process.app.is_finished() {
        return Err(Broken::Hangs(me));
    }
    let unread = |incoming: &&Incoming| !is_read(incoming) && !strays.contains(&incoming.message);
    if let Some(incoming) = process.incoming.iter().find(unread) {
        return Err(Broken::Unreceived { by: me, message: incoming.message });
    }
    if replica.retained_count() + replica.held_count() > 0 {
        return Err(Broken::LogKept(me));
    }
    if replica.counters().retained_bytes > 0 {
        return Err(Broken::BytesKept { by: me, bytes: replica.counters().retained_bytes });
    }
    Ok(())
}

pub(super) fn is_read(incoming: &Incoming) -> bool {
    incoming.payload.is_some() && incoming.verified
}

/// All replicas of a rank have taken the same path. The dead have taken part of it.
fn agreement(simulation: &Simulation, rank: VirtualRank) -> Result<(), Broken> {
    let sound = || simulation.survivors(rank).filter(|process| !process.is_tainted);
    let first = sound().next().ok_or(Broken::SphereLost(rank))?;
    // A leader may die with decisions that no other replica has seen. It may have taken another path by then,
    // unnoticed.
    for process in sound() {
        if process.app.history != first.app.history {
            return Err(Broken::Parted(process.me(), first.me()));
        }
    }
    Ok(())
}

/// Delivered payloads are those that were sent.
fn payloads(simulation: &Simulation) -> Result<(), Broken> {
    for sender in (0..simulation.world.rank_count()).map(VirtualRank) {
        let sane = |process: &&Process| process.corrupted.is_none() && !process.is_tainted;
        let Some(witness) = simulation.survivors(sender).find(sane) else { continue };
        let sent: BTreeMap<_, _> = witness
            .sent
            .iter()
            .map(|(to, context, sequence, payload)| ((*to, *context, *sequence), *payload))
            .collect();
        let live = |process: &&Process| simulation.view.is_live(process.me()) && !process.is_tainted;
        for process in simulation.processes.iter().filter(live) {
            let delivered = process.incoming.iter().filter(|incoming| is_read(incoming));
            for incoming in delivered.filter(|incoming| incoming.message.sender == sender) {
                let message = incoming.message;
                let key = (process.me().rank, message.context, message.sequence.0);
                if sent.get(&key) != incoming.payload.as_ref() && !had_no_choice(simulation, process, message) {
                    return Err(Broken::Altered { by: process.me(), message });
                }
            }
        }
    }
    Ok(())
}

/// Returns true if a message was corrupt in every log and reported as such, and its receiver is the only replica of its
/// rank.
fn had_no_choice(simulation: &Simulation, process: &Process, message: MessageId) -> bool {
    let is_reported = |report: &MismatchReport| {
        report.message == message
            && report.finding == Finding::TransportCorrupt
            && report.action == Action::Delivered
            && simulation.process(report.supplier).log_corrupted.is_some()
    };
    simulation.view.live(process.me().rank).count() == 1 && process.reports.iter().any(is_reported)
}

/// All reports are true, and only entitled replicas vote.
fn reports(simulation: &Simulation) -> Result<(), Broken> {
    for process in &simulation.processes {
        for report in &process.reports {
            let entitled =
                |replica: ReplicaId| replica == report.supplier || process.replica.view().number >= report.view;
            let votes = report.votes.iter().map(|vote| ReplicaId { rank: report.message.sender, index: vote.replica });
            if report.votes.is_empty() || !votes.into_iter().all(entitled) {
                return Err(Broken::Vote { by: process.me(), message: report.message });
            }
            if !is_true(simulation, process, report) {
                let (by, message, why) = (process.me(), report.message, FalseReport::NoFault);
                return Err(Broken::FalseReport { by, message, why });
            }
        }
    }
    Ok(())
}

fn is_true(simulation: &Simulation, process: &Process, report: &MismatchReport) -> bool {
    match report.finding {
        Finding::TransportCorrupt => {
            let is_kept = |kept: MessageId| {
                let sequence = (kept.context, kept.sequence) == (report.message.context, report.message.sequence);
                sequence && kept.sender == process.me().rank
            };
            let is_flipped = simulation.flipped.is_some_and(|flip| {
                flip.to == process.me() && flip.from == report.supplier && flip.message == report.message
            });
            is_flipped || simulation.process(report.supplier).log_corrupted.is_some_and(is_kept)
        }
        Finding::ReplicaCorrupt => {
            // A copy of the corrupt replica may be corrupt as well.
            (report.culprit == simulation.corrupt || simulation.arbitration.is_some())
                && report.culprit.is_some_and(|it| is_corrupted(simulation, it, process, report))
        }
        Finding::Undecidable => simulation.corrupt.is_some_and(|it| is_corrupted(simulation, it, process, report)),
    }
}

fn is_corrupted(simulation: &Simulation, corrupt: ReplicaId, receiver: &Process, report: &MismatchReport) -> bool {
    let message = simulation.process(corrupt).corrupted;
    message.is_some_and(|message| {
        let sequence = (message.context, message.sequence) == (report.message.context, report.message.sequence);
        sequence && message.sender == receiver.me().rank && report.message.sender == corrupt.rank
    })
}

/// Every flip was reported once by every receiver concerned.
fn flips(simulation: &Simulation) -> Result<(), Broken> {
    if let Some(flip) = simulation.flipped {
        let receiver = simulation.process(flip.to);
        let expected = usize::from(simulation.view.is_live(flip.to));
        let count = receiver.reports.len();
        let lost_meanwhile = !simulation.view.is_live(flip.from);
        if count != expected && !lost_meanwhile && expected > 0 {
            return Err(Broken::Flips { by: flip.to, count, expected });
        }
    }
    let Some(corrupt) = simulation.corrupt else { return Ok(()) };
    let Some(message) = simulation.process(corrupt).corrupted else { return Ok(()) };
    for receiver in simulation.survivors(message.sender) {
        let named = receiver.reports.iter().filter(|report| report.culprit == Some(corrupt)).count();
        let alone = simulation.world.degree(corrupt.rank) == 1;
        // Of two replicas, the one that another receiver has named may be gone before this receiver has its vote.
        let is_right = named == usize::from(!alone) || named == 0 && simulation.arbitration.is_some();
        if !is_right {
            return Err(Broken::Named { by: receiver.me(), culprit: corrupt, count: named });
        }
        let delivered = receiver.reports.iter().any(|report| report.action == Action::Delivered);
        if delivered {
            return Err(Broken::CorruptDelivered(receiver.me()));
        }
    }
    Ok(())
}
