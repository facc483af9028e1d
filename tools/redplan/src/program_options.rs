//! Facts about a program, from the command line or from measured runs, and assumptions in place of the missing ones.

use anyhow::{Result, bail};
use clap::Args;
use command_line::UsageError;
use learned::given::{Given, PlanningFigures};
use learned::store::Store;
use planner::profile::{Learned, Profile};
use std::path::{Path, PathBuf};

/// Limit for a profile file. The matrix of a thousand ranks with each other is below it.
const PROFILE_BYTES_MAX: u64 = 64 << 20;

/// Options about a program and what protects it. What is given counts more than what was measured.
#[derive(Args, Clone, Default, Debug)]
pub(super) struct ProgramOptions {
    /// The program as redplan known names it, whose runs were learned; with --ranks
    #[arg(long, value_name = "NAME", requires = "ranks", conflicts_with = "profiles")]
    pub(super) program: Option<String>,

    /// A profile of the program, or several of one program and number of ranks; what is given below counts more
    #[arg(long = "profile", value_name = "FILE")]
    pub(super) profiles: Vec<PathBuf>,

    #[command(flatten)]
    pub(super) given: Given,
}

impl ProgramOptions {
    /// True if the answer needs the store of learned runs.
    pub(super) fn needs_store(&self) -> bool {
        self.program.is_some()
    }

    /// Looks up what was measured, and assumes the rest.
    pub(super) fn known(&self, store: Option<&Store>) -> Result<PlanningFigures> {
        let learned = match (store, &self.program, self.given.ranks) {
            (Some(store), Some(program), Some(ranks)) => Some(learned_before(store, program, ranks)?),
            _ => learned_now(&self.profiles)?,
        };
        Ok(self.given.known(learned.as_ref())?)
    }
}

/// Reads a profile and checks it.
///
/// # Errors
/// When the file holds no profile: the user has named the wrong file.
pub(super) fn read_profile(path: &Path) -> Result<Profile, UsageError> {
    let profile = || -> Result<Profile> {
        let profile: Profile = serde_json::from_slice(&read_limited(path)?)?;
        profile.check()?;
        Ok(profile)
    };
    profile().map_err(|error| UsageError(format!("Failed to read the profile {}: {error:#}", path.display())))
}

/// Reads a file of at most [`PROFILE_BYTES_MAX`] bytes.
pub(super) fn read_limited(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(PROFILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PROFILE_BYTES_MAX {
        bail!("it has more than {PROFILE_BYTES_MAX} bytes");
    }
    Ok(bytes)
}

fn learned_now(paths: &[PathBuf]) -> Result<Option<Learned>> {
    let profiles = paths.iter().map(|path| read_profile(path)).collect::<Result<Vec<_>, _>>()?;
    if let Some(other) =
        profiles.iter().find(|one| (&one.program, one.ranks) != (&profiles[0].program, profiles[0].ranks))
    {
        let Profile { program, ranks, .. } = &profiles[0];
        let why = format!(
            "--profile: one is of {program} with {ranks} ranks, another of {} with {}; they must be of one program \
             and number of ranks",
            other.program, other.ranks
        );
        return Err(UsageError(why).into());
    }
    Ok(Learned::new(&profiles))
}

/// The measurements of the named program with this number of ranks.
fn learned_before(store: &Store, program: &str, ranks: u32) -> Result<Learned> {
    // The store knows a program by the path that was started; the user may name it from here.
    let path = std::path::absolute(program).unwrap_or_else(|_| program.into());
    let is_it =
        |known: &Learned| known.program == program || Path::new(&known.program).components().eq(path.components());
    let known = store.programs()?.into_iter().find(|known| known.ranks == ranks && is_it(known));
    let unknown =
        || UsageError(format!("--program: no run of {program} with {ranks} ranks was learned; see redplan known"));
    Ok(known.ok_or_else(unknown)?)
}
