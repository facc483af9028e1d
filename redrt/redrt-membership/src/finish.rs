//! Leaving the job together, in `MPI_Finalize`.

use super::agent;
use redrt_engine as engine;
use redrt_runtime::mutation::{self, Mutation};
use redrt_runtime::{calls, job, leave::say_if_closed, threads};
use redrt_wire::control::FromAgent;
use redrt_wire::profile::ProcessProfile;

/// Waits until all messages that this process owes have arrived, and every process of the job is leaving too. Until
/// then another replica may need messages that only this process has.
pub fn end() {
    let Some(job) = job() else { return };
    let Some(control) = job.control else { return };
    let cell = engine::cell();
    if job.welcome.world.is_replicated() {
        cell.lock().agree(|sphere| sphere.end_stream(threads::stream()));
    }
    let mut said = None;
    cell.wait_for(|engine| {
        if agent::is_released() {
            return Some(());
        }
        if !engine.is_settled() {
            engine.flush();
        }
        let view = engine.view().map_or(job.welcome.view.number, |view| view.number);
        // After a return to a checkpoint the job's replication manager is a new one, without the reports of the
        // previous life.
        let life = if mutation::is_planted(Mutation::FinalizingOnce) { 0 } else { agent::life() };
        if engine.is_settled() && said != Some((view, life)) {
            engine.flush();
            said = Some((view, life));
            let statistics = engine.statistics();
            let coverage = if engine.is_replicated() { engine.agree(|sphere| sphere.coverage()) } else { Vec::new() };
            let sent = engine.traffic.as_ref().map(|traffic| traffic.sent());
            let profile = sent.map(|sent| Box::new(ProcessProfile { calls: calls::times(), sent }));
            if control.send(&FromAgent::Finalizing { view, statistics, coverage, profile }).is_err() {
                say_if_closed(control);
                std::process::abort();
            }
        }
        None
    });
}
