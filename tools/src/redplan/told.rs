//! What is told of a program, on the command line or by runs that were measured, and what is assumed of it else.

use super::quantity::{bytes, seconds, share};
use super::store::Store;
use crate::cli::UsageError;
use anyhow::{Context, Result, bail};
use clap::Args;
use planner::advise::SaveCost;
use planner::profile::{Learned, Profile};
use std::path::{Path, PathBuf};

/// The most that a profile file may have; a matrix of a thousand ranks with each other is below it.
const PROFILE_BYTES_MAX: u64 = 64 << 20;

/// Options about a program and what protects it. What is given counts more than what was measured.
#[derive(Args, Clone, Default, Debug)]
pub(crate) struct Told {
    /// The program as redplan known names it, whose runs were learned; with --ranks
    #[arg(long, value_name = "NAME", requires = "ranks", conflicts_with = "profiles")]
    pub(crate) program: Option<String>,

    /// A profile of the program, or several of one program and number of ranks; what is given below counts more
    #[arg(long = "profile", value_name = "FILE")]
    pub(crate) profiles: Vec<PathBuf>,

    /// Time of the job with one replica of each rank, without failures
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) work: Option<f64>,

    /// Ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks: Option<u32>,

    /// Share of the time that each replica more adds [default: of the profiles, else 0.05]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) beta: Option<f64>,

    /// From the loss of all replicas of a rank until the job runs again [default: of the profiles, else 60s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) restart: Option<f64>,

    /// From the loss of a replica until its place is filled [default: of the profiles, else 30s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) window: Option<f64>,

    /// The job stands still for this when a replica is copied [default: of the profiles, else 100ms]
    #[arg(long = "clone-stop", value_name = "TIME", value_parser = seconds)]
    pub(crate) clone_stop: Option<f64>,

    /// Share of its speed that the job loses while one is copied
    #[arg(long = "clone-slowdown", value_name = "SHARE", value_parser = share, default_value = "0.1")]
    pub(crate) clone_slowdown: f64,

    /// The program makes checkpoints itself, each of which takes this [default: of the profiles, else it makes none]
    #[arg(long = "own-checkpoint", value_name = "TIME", value_parser = seconds)]
    pub(crate) own_checkpoint: Option<f64>,

    /// Until a checkpoint (redrun --checkpoint) of one replica of each rank is on the disk [default: of the profiles,
    /// else 60s]
    #[arg(long = "save-time", value_name = "TIME", value_parser = seconds)]
    pub(crate) save_time: Option<f64>,

    /// The job stands still for this for one [default: of the profiles, else 100ms]
    #[arg(long = "save-stop", value_name = "TIME", value_parser = seconds)]
    pub(crate) save_stop: Option<f64>,

    /// Share of its speed that the job loses while one is written [default: of the profiles, else 0.1]
    #[arg(long = "save-slowdown", value_name = "SHARE", value_parser = share)]
    pub(crate) save_slowdown: Option<f64>,

    /// Memory of a process [default: of the profiles]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) image: Option<f64>,
}

/// All of it in figures.
pub(crate) struct Known {
    pub(crate) work_s: f64,
    pub(crate) ranks: u32,
    pub(crate) beta: f64,
    pub(crate) restart_s: f64,
    pub(crate) window_s: f64,
    pub(crate) clone_stop_s: f64,
    pub(crate) clone_slowdown: f64,
    pub(crate) own_checkpoint_s: Option<f64>,
    pub(crate) save: SaveCost,
    pub(crate) image_bytes: Option<f64>,
    /// What nobody has told, as options that tell it.
    pub(crate) assumed: Vec<&'static str>,
}

impl Told {
    /// Whether runs that were learned are needed.
    pub(crate) fn needs_store(&self) -> bool {
        self.program.is_some()
    }

    /// Looks up what was measured, and assumes the rest.
    pub(crate) fn known(&self, store: Option<&Store>) -> Result<Known> {
        let learned = match (store, &self.program, self.ranks) {
            (Some(store), Some(program), Some(ranks)) => Some(learned_before(store, program, ranks)?),
            _ => learned_now(&self.profiles)?,
        };
        Ok(self.known_of(learned.as_ref())?)
    }

    /// What is told, then what was `learned`, then what is assumed.
    pub(crate) fn known_of(&self, learned: Option<&Learned>) -> Result<Known, UsageError> {
        let missing = |what: &str| match learned {
            None => UsageError(format!("{what} is needed, or --profile or --program to take it from")),
            Some(Learned { program, .. }) => UsageError(format!(
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
        let known = Known {
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
        Ok(Known { assumed, ..known })
    }
}

impl Known {
    /// The line that says what was assumed.
    pub(crate) fn assumed_note(&self) -> Option<String> {
        let assumed = self.assumed.join(", ");
        (!assumed.is_empty()).then(|| format!("Assumed, for nothing was measured: {assumed}"))
    }
}

/// Reads a profile and checks it.
pub(crate) fn read_profile(path: &Path) -> Result<Profile> {
    let failed = || format!("Failed to read the profile {}", path.display());
    let profile: Profile = serde_json::from_slice(&read_limited(path).with_context(failed)?).with_context(failed)?;
    profile.check().with_context(failed)?;
    Ok(profile)
}

/// The bytes of a file that is not unreasonably large.
pub(crate) fn read_limited(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(PROFILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PROFILE_BYTES_MAX {
        bail!("it has more than {PROFILE_BYTES_MAX} bytes");
    }
    Ok(bytes)
}

fn learned_now(paths: &[PathBuf]) -> Result<Option<Learned>> {
    let profiles = paths.iter().map(|path| read_profile(path)).collect::<Result<Vec<_>>>()?;
    if let Some(other) =
        profiles.iter().find(|one| (&one.program, one.ranks) != (&profiles[0].program, profiles[0].ranks))
    {
        let Profile { program, ranks, .. } = &profiles[0];
        bail!(
            "--profile: one is of {program} with {ranks} ranks, another of {} with {}; they must be of one program \
             and number of ranks",
            other.program,
            other.ranks
        );
    }
    Ok(Learned::new(&profiles))
}

/// What was learned of the program that is named.
fn learned_before(store: &Store, program: &str, ranks: u32) -> Result<Learned> {
    let known = store.programs()?.into_iter().find(|known| known.program == program && known.ranks == ranks);
    let unknown =
        || UsageError(format!("--program: no run of {program} with {ranks} ranks was learned; see redplan known"));
    Ok(known.ok_or_else(unknown)?)
}
