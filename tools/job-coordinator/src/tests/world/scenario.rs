//! The shape of a simulated job, and the faults in it.

use super::{HOSTS, JOB};
use crate::{CheckpointSettings, LaunchSettings, Life, Settings};
use checkpoint_store::Level;
use checkpoint_store::pieces::Code;
use placement::plan::{HostPlan, PlannedHost};
use redrt_types::{View, World};
use redrt_wire::checkpoint::{Compression, Generation};
use redrt_wire::control::OnSdc;
use redrt_wire::daemon::HostName;
use replica_output::sphere_stream::Release;
use replication_manager::{CheckpointWatchSettings, LOOK_INTERVAL_USUAL, OnStall, ProofMode, RandomKills, Schedule};
use spare_pool::{JobId, Request};
use std::time::Duration;

/// A planted mistake of the surroundings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A coordinator that comes back does not repeat its unanswered orders.
    OrdersForgotten,
    /// The store says that a checkpoint is dropped before it has carried out earlier orders: it may commit between a
    /// loss and a return.
    DroppedAtOnce,
    /// The store answers an order by the number of a newer one.
    NewestAnswered,
    /// A coordinator that comes back is given input again that the journal has.
    InputRepeated,
}

/// The shape of a simulated job, and the faults in it.
pub struct Scenario {
    pub random: fastrand::Rng,
    pub degrees: Vec<u16>,
    pub is_cloneable: bool,
    pub release: Release,
    pub kills: bool,
    pub checkpoint_interval: Duration,
    /// True if the site has a pool of spares.
    pub has_site: bool,
    /// True if some process prints far ahead of its siblings.
    pub floods: bool,
    /// True if the coordinator's process is killed again and again, and another goes on from the saved state.
    pub loses_coordinators: bool,
    pub mistake: Option<Mistake>,
    pub level: Level,
    /// Interval between checkpoints that go to an archive besides.
    pub archive_interval: Option<Duration>,
    /// The checkpoints that are proven. If any, bits flip in processes, and a job whose replicas differ goes back.
    pub proofs: ProofMode,
    /// True if a store that does not answer may never do so.
    pub is_silent: bool,
    /// True if faults are so rare that checkpoints are mostly taken.
    pub is_calm: bool,
    /// True if processes spawn other jobs, and publish names.
    pub has_jobs: bool,
    /// True if nobody reads standard output any more.
    pub loses_output: bool,
}

/// A host: a spare one if copies fit there.
fn planned((name, count): (&str, u32)) -> PlannedHost {
    let name = Some(HostName { user: None, name: name.into() });
    PlannedHost { name, slot_count: (count > 0).then_some(count), spare: count > 0, local: false }
}

fn in_pieces() -> Level {
    Level::Erasure(Code::new(2, 1).expect("both are given"))
}

impl Scenario {
    pub fn of_seed(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let ranks = random.usize(1..4);
        Self {
            degrees: (0..ranks).map(|_| random.u16(1..4)).collect(),
            is_cloneable: random.u8(0..4) > 0,
            release: [Release::Voted, Release::VotedOrNothing, Release::Leader][random.usize(0..3)],
            kills: random.bool(),
            checkpoint_interval: Duration::from_secs(20),
            has_site: random.bool(),
            floods: seed.is_multiple_of(20),
            loses_coordinators: false,
            mistake: None,
            level: [Level::Shared, Level::Local, Level::Partner, Level::Memory, Level::Object, in_pieces()]
                [random.usize(0..6)],
            archive_interval: None,
            proofs: ProofMode::Off,
            is_silent: random.u8(0..20) == 0,
            is_calm: false,
            has_jobs: false,
            loses_output: false,
            random,
        }
    }

    /// The same job without replicas. It takes checkpoints often, and goes back as often.
    pub fn without_replicas(self) -> Self {
        let degrees = vec![1; self.degrees.len()];
        Self { degrees, ..self }.saving_often()
    }

    /// The same job, which takes checkpoints often.
    pub fn saving_often(self) -> Self {
        Self { checkpoint_interval: Duration::from_secs(2), ..self }
    }

    /// The same job with few faults. It takes many checkpoints, in which a fault may be at any place.
    pub fn calm(self) -> Self {
        Self { is_calm: true, kills: false, ..self }.saving_often()
    }

    /// The same job, with a coordinator that is killed between any two inputs.
    pub fn losing_coordinators(self) -> Self {
        Self { loses_coordinators: true, ..self }
    }

    /// The same job, with a store that answers in the end.
    pub fn answering(self) -> Self {
        Self { is_silent: false, ..self }
    }

    /// The same job, with a level at which hosts copy their parts to partners.
    pub fn copying(self) -> Self {
        Self { level: Level::Partner, ..self }
    }

    /// The same job, with a level at which hosts cut their parts into pieces.
    pub fn cutting(self) -> Self {
        Self { level: in_pieces(), ..self }
    }

    /// The same job, with an archive besides the parts on hosts.
    pub fn archiving(mut self) -> Self {
        let level = [Level::Local, Level::Partner, in_pieces()][self.random.usize(0..3)];
        Self { level, archive_interval: Some(Duration::from_secs(5)), ..self }
    }

    /// The same job with two replicas of each rank, which vouch for checkpoints.
    pub fn proving(self) -> Self {
        let degrees = vec![2; self.degrees.len()];
        Self { degrees, proofs: ProofMode::Always, release: Release::VotedOrNothing, ..self }
    }

    /// The same job, whose processes spawn others.
    pub fn spawning(self) -> Self {
        Self { has_jobs: true, ..self }
    }

    /// The same job, with a planted mistake.
    pub fn mistaking(self, mistake: Mistake) -> Self {
        Self { mistake: Some(mistake), ..self }
    }

    pub fn settings(&self) -> Settings {
        let world = World::new(self.degrees.iter().map(|degree| degree + 1).collect());
        let view = View::with_degrees(&world, &self.degrees);
        Settings {
            release: self.release,
            shown: None,
            is_cloneable: self.is_cloneable,
            checks_determinism: false,
            job: JOB,
            is_spawned: false,
            site: self.has_site.then(|| Request::new(JobId(JOB))),
            life: Life {
                manager: self.manager(world, view, 0, None, None),
                restored: Vec::new(),
                input_bytes: 0,
                from: None,
            },
            checkpoints: Some(CheckpointSettings {
                level: self.level,
                directory: "lines".into(),
                compression: Compression::None,
                are_chained: true,
                has_host_memory: false,
                archive_interval: self.archive_interval,
                archived: None,
                proven: None,
                racks: vec![("a".into(), 0), ("b".into(), 0)],
            }),
            launch: LaunchSettings {
                plan: HostPlan { hosts: HOSTS.map(planned).to_vec(), ..HostPlan::here() },
                clone_count_max: 4,
                arbitration_interval: None,
            },
            host_wait: None,
        }
    }

    /// Settings of a life that goes on from this checkpoint, for the given time.
    pub fn manager(
        &self,
        world: World,
        view: View,
        restart_count: u32,
        restored: Option<Generation>,
        proven: Option<Generation>,
    ) -> replication_manager::Settings {
        let checkpoint = CheckpointWatchSettings {
            schedule: Schedule::Every(self.checkpoint_interval),
            first: None,
            // Leaves a gap for checkpoints that were begun since and not kept.
            next: restored.map_or(Generation(1), |restored| Generation(restored.0 + 100)),
            restored,
            restart_count,
            has_archive: self.archive_interval.is_some(),
            proofs: self.proofs,
            proven,
        };
        replication_manager::Settings {
            world,
            view,
            timeout: None,
            death_time_max: Duration::from_secs(2),
            on_sdc: if self.proofs == ProofMode::Off { OnSdc::Heal } else { OnSdc::Return },
            strikes_max: 3,
            on_stall: OnStall::Majority,
            stall_time: None,
            look_interval: LOOK_INTERVAL_USUAL,
            scrub_interval: None,
            checkpoint: Some(checkpoint),
            timed_kills: Vec::new(),
            send_kills: Vec::new(),
            random_kills: self.kills.then_some(RandomKills {
                mean_time: Duration::from_secs(30),
                seed: 7,
                count: Some(2),
            }),
        }
    }
}
