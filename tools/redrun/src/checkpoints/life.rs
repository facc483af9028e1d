//! The coordinator's settings at the start of a job, and at a return to a checkpoint.

use super::CheckpointWork;
use anyhow::Result;
use checkpoint_store::StoredCheckpoint;
use job_coordinator::{HostWait, LaunchSettings, Life, Settings};
use job_options::{Fault, Job};
use placement::plan::HostPlan;
use redrt_types::{View, VirtualRank};
use redrt_wire::fault::ProcessFault;
use replication_manager::CheckpointWatchSettings;
use std::time::Duration;

/// Settings of a new job, perhaps resumed from a checkpoint of an earlier run.
///
/// # Errors
/// When facts about this host for the site's pool are missing.
pub(in super::super) fn settings(
    job: &Job,
    job_number: u64,
    plan: &HostPlan,
    checkpoints: Option<&CheckpointWork>,
) -> Result<Settings> {
    Ok(Settings {
        life: life(
            job,
            None,
            job.view.clone(),
            job.resume.clone().map(Box::new),
            checkpoints.map(|checkpoints| (checkpoints, 0)),
            |_| true,
        ),
        release: job.release,
        shown: job.resume.as_ref().and_then(|_| checkpoints?.shown_before()),
        is_cloneable: job.is_cloneable,
        checks_determinism: job.options.traces,
        job: job_number,
        is_spawned: job.origin.is_some(),
        site: super::super::spares::site_request(job, job_number)?,
        checkpoints: checkpoints.map(|checkpoints| checkpoints.constants(job)),
        launch: LaunchSettings {
            plan: plan.clone(),
            clone_count_max: job.clone_count_max,
            arbitration_interval: job.arbitration_interval,
        },
        // If the expected duration is unknown the job goes on.
        host_wait: job.host_wait.and_then(|host_wait| Some(HostWait { wait: host_wait.wait, work: host_wait.work? })),
    })
}

/// Settings of a life `from` a checkpoint: the first, or (`since`: job time) one after a return. `checkpoints` has the
/// number of starts from that checkpoint. `has_input`: as in [`CheckpointWork::settings`].
pub(in super::super) fn life(
    job: &Job,
    since: Option<Duration>,
    view: View,
    from: Option<Box<StoredCheckpoint>>,
    checkpoints: Option<(&CheckpointWork, u32)>,
    has_input: impl Fn(u64) -> bool,
) -> Life {
    let ranks = (0..job.world.rank_count()).map(VirtualRank);
    Life {
        restored: from.iter().flat_map(|kept| ranks.clone().map(|rank| super::restored(kept, &view, rank))).collect(),
        input_bytes: from.as_ref().map_or(0, |kept| kept.manifest.input_bytes),
        manager: manager_settings(
            job,
            since,
            view,
            checkpoints.map(|(checkpoints, count)| checkpoints.settings(from.as_deref(), count, has_input)),
        ),
        from,
    }
}

fn manager_settings(
    job: &Job,
    since: Option<Duration>,
    view: View,
    checkpoint: Option<CheckpointWatchSettings>,
) -> replication_manager::Settings {
    let (mut timed_kills, mut send_kills, mut random_kills) = (Vec::new(), Vec::new(), None);
    for fault in &job.faults {
        match fault {
            // A fault is injected once only.
            Fault::Timed(kill) if since.is_some_and(|since| kill.at <= since) => {}
            Fault::Timed(kill) => timed_kills.push(*kill),
            Fault::Random(kills) => random_kills = Some(*kills),
            Fault::Process(replica, ProcessFault::Kill { .. } | ProcessFault::KillAfterChange { .. }) => {
                send_kills.push(*replica)
            }
            Fault::Process(..) | Fault::Sick { .. } => {}
        }
    }
    replication_manager::Settings {
        world: job.world.clone(),
        view,
        timeout: job.timeout,
        death_time_max: 2 * job.hosts.detect_timeout,
        on_sdc: job.options.on_sdc,
        strikes_max: job.strikes_max,
        on_stall: job.on_stall,
        stall_time: job.stall_time,
        look_interval: job.look_interval,
        scrub_interval: job.scrub_interval,
        checkpoint,
        timed_kills,
        send_kills,
        random_kills,
    }
}
