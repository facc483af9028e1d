//! `--profile`: what a run was seen to do, as `redplan` reads it.
//!
//! Replicas of a rank send the same, so the report of one stands for the rank: the others may be dead. A copy has the
//! counts of its source. If no replica of some rank reported, as when a job fails, calls and traffic are left out.

use super::super::run::Run;
use super::{CheckpointCost, Tally};
use anyhow::{Result, bail};
use job_report::bytes_text;
use planner::profile::{Calls, FILE_END, Profile};
use redrt_wire::clone::Cost;
use redrt_wire::profile::{CallKind, ProcessProfile};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Path of the profile: `path` itself, or a file of the job's own if it is a directory.
pub(in super::super) fn path_in(path: &Path, job: u64) -> PathBuf {
    if path.is_dir() { path.join(format!("redrt-{job:016x}{FILE_END}")) } else { path.to_owned() }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

/// Means over ranks; for each rank, the mean over the replicas that reported.
fn calls(by_rank: &BTreeMap<u32, Vec<&ProcessProfile>>) -> Calls {
    let seconds = |kind: CallKind| {
        let of_one = |one: &&ProcessProfile| one.calls[kind as usize].time_ns as f64 / 1e9;
        mean(by_rank.values().map(|told| mean(told.iter().map(of_one)).unwrap_or(0.0))).unwrap_or(0.0)
    };
    let mut calls = Calls {
        mpi_s: 0.0,
        send_s: seconds(CallKind::Send),
        isend_s: seconds(CallKind::Isend),
        recv_s: seconds(CallKind::Recv),
        irecv_s: seconds(CallKind::Irecv),
        wait_s: seconds(CallKind::Wait),
        collective_s: seconds(CallKind::Collective),
    };
    let Calls { send_s, isend_s, recv_s, irecv_s, wait_s, collective_s, .. } = calls;
    calls.mpi_s = send_s + isend_s + recv_s + irecv_s + wait_s + collective_s + seconds(CallKind::Other);
    calls
}

fn traffic(by_rank: &BTreeMap<u32, Vec<&ProcessProfile>>) -> Vec<(u32, u32, f64)> {
    let of_rank = |(rank, told): (&u32, &Vec<&ProcessProfile>)| -> Vec<_> {
        // A process that ended early has sent less. The process that came furthest stands for the rank.
        let sum = |one: &&&ProcessProfile| one.sent.iter().map(|to| to.messages).sum::<u64>();
        let furthest = told.iter().max_by_key(sum);
        furthest.iter().flat_map(|one| &one.sent).map(|to| (*rank, to.rank, to.bytes as f64)).collect()
    };
    by_rank.iter().flat_map(of_rank).collect()
}

/// The profile of the run, and for the user a list of missing parts.
pub(in super::super) fn profile(run: &Run<'_>, tally: &Tally, code: i32) -> (Profile, Option<String>) {
    let manager = run.coordinator.manager();
    let ranks = manager.world().rank_count();
    let degrees = manager.members().first_degrees();
    let mut by_rank = BTreeMap::<u32, Vec<&ProcessProfile>>::new();
    for (replica, told) in manager.members().profiles() {
        by_rank.entry(replica.rank.0).or_default().push(told);
    }
    let silent: Vec<_> = (0..ranks).filter(|rank| !by_rank.contains_key(rank)).collect();
    let is_complete = silent.is_empty();
    let missing = silent.first().map(|first| {
        format!("the profile has no calls and no traffic: {} of {ranks} ranks, rank {first} first, did not reach MPI_Finalize", silent.len())
    });
    let present: Vec<_> = manager.members().statistics().collect();
    let statistics = |replica, told: Option<_>| told.unwrap_or_else(|| manager.members().latest(replica));
    let most = |figure: fn(&redrt_wire::event::Statistics) -> u64| {
        let all = present.iter().map(|(replica, told)| figure(&statistics(*replica, *told)));
        all.max().filter(|most| *most > 0).map(|most| most as f64)
    };
    let hosts: BTreeSet<_> = present.iter().map(|(replica, _)| run.host_name(*replica)).collect();
    let costs = &tally.costs;
    let seconds = |figure: fn(&Cost) -> u64| mean(costs.iter().map(|cost| figure(cost) as f64 / 1e9));
    let programs = run.job.applications.iter().map(|application| application.program.display().to_string());
    let checkpoints = &tally.checkpoints;
    let of_checkpoints = |figure: fn(&CheckpointCost) -> f64| mean(checkpoints.iter().map(figure));
    let program = programs.collect::<Vec<_>>().join(" : ");
    let profile = Profile {
        hosts: u32::try_from(hosts.len()).ok(),
        degree: degrees.iter().copied().map(f64::from).sum::<f64>() / f64::from(ranks),
        calls: is_complete.then(|| calls(&by_rank)),
        traffic: if is_complete { traffic(&by_rank) } else { Vec::new() },
        image_bytes: most(|one| one.resident_bytes),
        window_s: mean(tally.windows.iter().map(Duration::as_secs_f64)),
        checkpoints: u32::try_from(checkpoints.len()).unwrap_or(u32::MAX),
        save_s: of_checkpoints(|checkpoint| checkpoint.elapsed.as_secs_f64()),
        save_stop_s: of_checkpoints(|checkpoint| checkpoint.stopped.as_secs_f64()),
        saved_bytes: of_checkpoints(|checkpoint| checkpoint.bytes as f64),
        returns: run.coordinator.return_count(),
        restart_s: mean(tally.restarts.iter().map(Duration::as_secs_f64)),
        copy_s: seconds(|cost| cost.total_ns),
        stop_s: seconds(|cost| cost.stopped_ns),
        retained_bytes: most(|one| one.retention_bytes_max),
        exit_code: code,
        losses: u32::try_from(tally.losses.len()).unwrap_or(u32::MAX),
        copies: u32::try_from(tally.copies).unwrap_or(u32::MAX),
        injected: tally.injected,
        ..Profile::new(program, ranks, run.now().as_secs_f64())
    };
    (profile, missing)
}

/// Checkpoints for the user.
pub(super) fn text_lines(profile: &Profile, path: &Path) -> Vec<String> {
    let mut text = String::new();
    if let Some(calls) = &profile.calls {
        let share = |seconds: f64| format!("{:.0} %", 100.0 * seconds / profile.elapsed_s);
        let sending = calls.send_s + calls.isend_s;
        let receiving = calls.recv_s + calls.irecv_s + calls.wait_s;
        text = format!(
            "{} of the time in MPI (sends {}, receives and waits {}, collectives {}), ",
            share(calls.mpi_s),
            share(sending),
            share(receiving),
            share(calls.collective_s)
        );
        let sum: f64 = profile.traffic.iter().map(|(_, _, bytes)| bytes).sum();
        text += &format!("{} between ranks, ", bytes_text(sum as u64));
    }
    vec![format!("  {text}profile {}", path.display())]
}

/// The profile as JSON.
///
/// # Errors
/// When a figure is impossible, which would be a bug.
pub(in super::super) fn text(profile: &Profile) -> Result<String> {
    if let Err(error) = profile.check() {
        bail!("Failed to make the profile: {error}");
    }
    Ok(serde_json::to_string(profile)? + "\n")
}
