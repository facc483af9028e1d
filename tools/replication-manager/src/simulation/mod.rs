//! Simulators of whole jobs around a replication manager.

mod checkpoints;
mod paces;
mod proofs;

pub use crate::pace::simulation::PaceSimulator;
pub use checkpoints::CheckpointsSimulator;
pub use paces::PacesSimulator;
pub use proofs::ProofsSimulator;

use super::{LOOK_INTERVAL_USUAL, OnStall, Settings};
use redrt_types::{ProcessIndex, View, World};
use redrt_wire::card::Card;
use redrt_wire::control::OnSdc;
use std::time::Duration;

/// Settings of a job whose ranks have these degrees.
pub(crate) fn settings(degrees: &[u16]) -> Settings {
    Settings {
        world: World::new(degrees.to_vec()),
        view: View::initial(&World::new(degrees.to_vec())),
        timeout: None,
        death_time_max: Duration::from_secs(2),
        on_sdc: OnSdc::Heal,
        strikes_max: 3,
        on_stall: OnStall::Majority,
        stall_time: None,
        look_interval: LOOK_INTERVAL_USUAL,
        scrub_interval: None,
        checkpoint: None,
        timed_kills: Vec::new(),
        send_kills: Vec::new(),
        random_kills: None,
    }
}

/// The card of a process.
pub(crate) fn card(process: ProcessIndex) -> Card {
    Card { process, host_number: 0, host: "h".into(), pid: 1, endpoints: Vec::new(), early_threads: Vec::new() }
}
