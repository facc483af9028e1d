//! Messages of processes, each passed to the part of the coordinator that is concerned.

use super::determinism::Apart;
use super::stall::{self, Finding, Stall};
use super::{Coordinator, EndReason, KILL_GRACE, LineWatch, Phase, Recovery, Report, RetireReason, SIBLINGS_BELIEVED};
use redrt_types::ReplicaId;
use redrt_wire::control::{FromAgent, Passive};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::event::{Action, Event};
use std::time::Duration;

/// More functions than MPI has that a job can lack. The bound keeps a corrupt process from filling memory.
const UNSUPPORTED_MAX: usize = 64;

impl Coordinator {
    pub(super) fn hear(&mut self, now: Duration, replica: ReplicaId, message: FromAgent) {
        if let Err(what) = self.check(replica, &message) {
            return self.refuse(now, replica, what);
        }
        match message {
            FromAgent::Hello => self.greeted(now, replica),
            FromAgent::Ready(card) if self.copy_ready(now, replica, &card) => {}
            FromAgent::Pinned(newcomers) => self.pinned(now, replica, &newcomers),
            FromAgent::InStep => self.in_step(now, replica),
            FromAgent::Quiet => self.quiet(now, replica),
            FromAgent::Hindered => self.hindered(now, replica),
            FromAgent::Ready(card) => {
                let process = self.process(replica);
                process.card = Some(card);
                process.phase = Phase::Ready;
                self.check_barriers(now);
            }
            FromAgent::Finalizing { view, statistics, coverage, profile } => {
                let process = self.process(replica);
                process.profile = profile;
                process.coverage = coverage;
                process.statistics = Some(statistics);
                process.phase = Phase::Finalizing(view);
                // A process in `MPI_Finalize` begins no more collectives, at which memory is compared.
                self.end_scrub();
                self.check_barriers(now);
            }
            FromAgent::Abort { code, message } => {
                if let Some(check) = self.check.as_mut().filter(|_| !message.is_empty()) {
                    check.other(replica, Apart::GaveUp { message: message.clone() });
                }
                let reason = RetireReason::Abort { code, message: message.clone() };
                if self.retire(replica, reason, SIBLINGS_BELIEVED) {
                    return;
                }
                self.end(EndReason::Aborted { replica, code, message }, Some(code), now + KILL_GRACE);
            }
            FromAgent::Shares(ranks) => self.shares(now, replica, ranks),
            FromAgent::Unable(lack) => self.unable(now, replica, lack),
            FromAgent::Event(Event::Mismatch(mismatch)) if mismatch.action == Action::Disputed => {
                self.have_differed = true;
                self.dispute(now, mismatch.sender, mismatch.receiver);
                self.report(Report::Disputed(mismatch));
            }
            FromAgent::Event(Event::Path(path)) => self.paths_parted(now, replica, *path),
            FromAgent::Event(Event::PathStack(stack)) => self.path_located(stack),
            FromAgent::Event(event @ Event::Unsupported { .. }) => self.tell_unsupported(event),
            FromAgent::Event(mut event) => {
                let (evidence, doubted) = match &mut event {
                    Event::Mismatch(mismatch) => (self.excerpts.compare(mismatch), self.doubt(mismatch)),
                    _ => (None, None),
                };
                let aborts = matches!(&event, Event::Mismatch(mismatch) if mismatch.action == Action::Aborted);
                self.have_differed |= matches!(event, Event::Mismatch(_) | Event::Divergence { .. });
                self.report(Report::Event(event.clone()));
                if let (Event::Divergence { replica, parting }, Some(check)) = (&event, &mut self.check) {
                    check.other(*replica, Apart::Diverged(parting.clone()));
                }
                if let (Event::ReadingAlone(alone), Some(check)) = (&event, &mut self.check) {
                    check.reading_alone(alone);
                }
                if let Event::Mismatch(mismatch) = &event {
                    self.check_message(mismatch);
                }
                if let Some(evidence) = evidence {
                    self.check_evidence(&evidence);
                    self.report(Report::Event(Event::Evidence(Box::new(evidence))));
                }
                if let Event::Mismatch(mismatch) = &event {
                    self.heal(now, mismatch);
                    self.part(doubted);
                    self.judged(now, mismatch);
                }
                if aborts {
                    self.end(EndReason::Corrupted, Some(1), now + KILL_GRACE);
                }
            }
            FromAgent::Pace { calls } => self.pace.heard(now, replica, calls),
            FromAgent::Answer { wave, passive, waits, statistics } => {
                self.process(replica).latest = statistics;
                self.pace.waits(now, replica, waits);
                // A process that is awake in its call does not say for what it waits, so it tells nothing about its
                // host.
                if passive.is_some() || !waits {
                    self.slowness.looked(replica, passive.as_ref().is_none_or(|passive| passive.awaits_leader));
                }
                self.judge_hosts(now);
                self.answered(now, replica, wave, passive);
            }
            FromAgent::Scrubbed { round, answer } => self.scrubbed(now, replica, round, answer),
            FromAgent::Trace(sending, trace) => self.check_trace(replica, sending, trace),
            // Handled by `redrun` around the coordinator: no decision of the job depends on it.
            FromAgent::Dynamic(..) => {}
            // Handled by the daemon, which reports when the bit has flipped.
            FromAgent::AwaitsFlip { .. } => {}
            FromAgent::Suspect { peer, host_is_silent } => self.suspected(now, peer, replica, host_is_silent),
            FromAgent::Refused { peer, what } => self.refused(now, replica, peer, what),
        }
    }

    /// Begins a wave: asks all processes whether they are at work, and for their counters.
    pub(super) fn ask(&mut self, now: Duration, wave: u64) {
        let live = self.paced_replicas();
        self.pace.asked(now, &live);
        self.send(ToDaemon::Ask { wave });
    }

    pub(super) fn answered(&mut self, now: Duration, replica: ReplicaId, wave: u64, passive: Option<Passive>) {
        if !self.is_under_way() {
            return;
        }
        let is_stopping = self.line.as_ref().is_some_and(LineWatch::is_stopping);
        let is_cutting = self.recovery.as_ref().is_some_and(Recovery::is_cutting);
        if !self.broken_links.is_empty() || is_stopping || is_cutting {
            // A waiter may wait for messages that were lost on a broken link, which is judged at its own time, or for a
            // copy that is about to run. Neither is a stall.
            return self.stall.reset(now);
        }
        let (view, world, processes) = (&self.view, &self.settings.world, &self.processes);
        let live = world
            .replicas()
            .filter(|other| view.is_live(*other) && processes[world.process(*other).0 as usize].exit.is_none());
        match self.stall.answered(now, replica, (wave, passive), view, live) {
            Finding::Open => {}
            Finding::Ask(wave) => self.ask(now, wave),
            Finding::Stalled(stall) => self.stalled(now, stall),
        }
    }

    /// No process can go on. A replica that left the path of two or more siblings may be the cause, and is ended first.
    pub(super) fn stalled(&mut self, now: Duration, stall: Stall) {
        let mut retired = false;
        for stray in stall::strays(&stall, &self.view) {
            retired |= self.retire(stray, RetireReason::Strayed, SIBLINGS_BELIEVED);
        }
        if !retired && !self.give_up_cases(now, |_| true) {
            let reason = EndReason::Stalled { stall, have_differed: self.have_differed };
            self.end(reason, Some(1), now + KILL_GRACE);
        }
    }
    /// Reports each unsupported function once, though all ranks call it.
    fn tell_unsupported(&mut self, event: Event) {
        let Event::Unsupported { function, .. } = &event else { return };
        if self.unsupported.len() < UNSUPPORTED_MAX && self.unsupported.insert(function.clone()) {
            self.report(Report::Event(event));
        }
    }
}
