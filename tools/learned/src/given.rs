//! Data about a program and its protection: given on the command line, measured in runs, or assumed.

use super::Unknown;
use clap::Args;
use command_line::quantity::{bytes, seconds, share};
use planner::advise::{HostBounds, Objective, Question, SaveCost};
use planner::policy::Replacement;
use planner::profile::Learned;

/// Default of `--clone-slowdown`.
pub const CLONE_SLOWDOWN_USUAL: f64 = 0.1;

/// Options about a program and what protects it. What is given counts more than what was measured.
#[derive(Args, Clone, Default, Debug)]
pub struct Given {
    /// Time of the job with one replica of each rank, without failures
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub work: Option<f64>,

    /// Ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,

    /// Share of the time that each replica more adds [default: of the profiles, else 0.05]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub beta: Option<f64>,

    /// From the loss of all replicas of a rank until the job runs again [default: of the profiles, else 60s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub restart: Option<f64>,

    /// From the loss of a replica until its place is filled [default: of the profiles, else 30s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub window: Option<f64>,

    /// The job stands still for this when a replica is copied [default: of the profiles, else 100ms]
    #[arg(long = "clone-stop", value_name = "TIME", value_parser = seconds)]
    pub clone_stop: Option<f64>,

    /// Share of its speed that the job loses while one is copied
    #[arg(long = "clone-slowdown", value_name = "SHARE", value_parser = share, default_value_t = CLONE_SLOWDOWN_USUAL)]
    pub clone_slowdown: f64,

    /// The program makes checkpoints itself, each of which takes this [default: of the profiles, else it makes none]
    #[arg(long = "own-checkpoint", value_name = "TIME", value_parser = seconds)]
    pub own_checkpoint: Option<f64>,

    /// Until a checkpoint (redrun --checkpoint) of one replica of each rank is on the disk [default: of the profiles,
    /// else 60s]
    #[arg(long = "save-time", value_name = "TIME", value_parser = seconds)]
    pub save_time: Option<f64>,

    /// The job stands still for this for one [default: of the profiles, else 100ms]
    #[arg(long = "save-stop", value_name = "TIME", value_parser = seconds)]
    pub save_stop: Option<f64>,

    /// Share of its speed that the job loses while one is written [default: of the profiles, else 0.1]
    #[arg(long = "save-slowdown", value_name = "SHARE", value_parser = share)]
    pub save_slowdown: Option<f64>,

    /// Memory of a process [default: of the profiles]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub image: Option<f64>,
}

/// All data in figures.
pub struct PlanningFigures {
    /// Time of the job with one replica of each rank, without failures.
    pub work_s: f64,
    /// Number of ranks.
    pub ranks: u32,
    /// Fraction of the time that each further replica adds.
    pub beta: f64,
    /// Seconds from the loss of a rank's last replica until the job runs again.
    pub restart_s: f64,
    /// Seconds from the loss of a replica until its place is filled.
    pub window_s: f64,
    /// Seconds for which the job stands still when a replica is copied.
    pub clone_stop_s: f64,
    /// Fraction of its speed that the job loses during a copy.
    pub clone_slowdown: f64,
    /// Seconds of a checkpoint that the program makes itself. `None` if it makes none.
    pub own_checkpoint_s: Option<f64>,
    /// Cost of a checkpoint of the runtime.
    pub save: SaveCost,
    /// Memory of a process. `None` if unknown.
    pub image_bytes: Option<f64>,
    /// Options whose values were assumed.
    pub assumed: Vec<&'static str>,
}

impl PlanningFigures {
    /// Replacement of lost replicas, with spares for all losses.
    pub fn replacement(&self) -> Replacement {
        Replacement {
            window: self.window_s,
            stop: self.clone_stop_s,
            slowdown: self.clone_slowdown,
            spares: None,
            repair: None,
        }
    }
}

impl Given {
    /// Combines given values, then `learned` ones, then assumptions.
    pub fn known(&self, learned: Option<&Learned>) -> Result<PlanningFigures, Unknown> {
        let missing = |what: &str| match learned {
            None => Unknown(format!("{what} is needed, or --profile or --program to take it from")),
            Some(Learned { program, .. }) => Unknown(format!(
                "{what} is needed, for no run of {program} was left alone: exit code 0, no checkpoint, nothing lost, \
                 copied or injected"
            )),
        };
        let of = |figure: fn(&Learned) -> Option<f64>| learned.and_then(figure);
        let mut assumed = Vec::new();
        let mut or_assumed = |given: Option<f64>, value: f64, what: &'static str| {
            given.unwrap_or_else(|| {
                assumed.push(what);
                value
            })
        };
        let known = PlanningFigures {
            work_s: self.work.or(of(Learned::work_s)).ok_or_else(|| missing("--work"))?,
            ranks: self.ranks.or(learned.map(|known| known.ranks)).ok_or_else(|| missing("--ranks"))?,
            beta: or_assumed(self.beta.or(of(|known| known.beta)), 0.05, "--beta 0.05"),
            restart_s: or_assumed(self.restart.or(of(|known| known.restart_s)), 60.0, "--restart 60s"),
            window_s: or_assumed(self.window.or(of(|known| known.window_s)), 30.0, "--window 30s"),
            clone_stop_s: or_assumed(self.clone_stop.or(of(|known| known.stop_s)), 0.1, "--clone-stop 100ms"),
            clone_slowdown: self.clone_slowdown,
            own_checkpoint_s: self.own_checkpoint.or(of(|known| known.checkpoint_s)),
            save: SaveCost {
                time_s: or_assumed(self.save_time.or(of(|known| known.save_s)), 60.0, "--save-time 60s"),
                stop_s: or_assumed(self.save_stop.or(of(|known| known.save_stop_s)), 0.1, "--save-stop 100ms"),
                slowdown: or_assumed(
                    self.save_slowdown.or(of(|known| known.save_slowdown)),
                    0.1,
                    "--save-slowdown 0.1",
                ),
            },
            image_bytes: self.image.or(of(|known| known.image_bytes)),
            assumed: Vec::new(),
        };
        Ok(PlanningFigures { assumed, ..known })
    }
}

impl PlanningFigures {
    /// The line that lists assumptions. `None` if there are none.
    pub fn assumed_note(&self) -> Option<String> {
        let assumed = self.assumed.join(", ");
        (!assumed.is_empty()).then(|| format!("Assumed, for nothing was measured: {assumed}"))
    }

    /// A question about this program, with default values for all else.
    pub fn question(&self, per_host: u32, mttf_s: f64) -> Question {
        Question {
            work_s: self.work_s,
            beta: self.beta,
            ranks: self.ranks,
            per_host,
            mttf_s,
            hosts: None,
            repair_s: None,
            restart_s: self.restart_s,
            window_s: self.window_s,
            clone_stop_s: self.clone_stop_s,
            clone_slowdown: self.clone_slowdown,
            checkpoint_s: self.own_checkpoint_s,
            save: Some(self.save),
            bounds: HostBounds::default(),
            image_bytes: self.image_bytes,
            watts: None,
            deadline_s: None,
            risk: 0.01,
            objective: Objective::Cost,
            seed: 1,
        }
    }
}
