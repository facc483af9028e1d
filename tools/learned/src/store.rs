//! Learned data in an embedded database: profiles by program and ranks, and facts about hosts by job.

use super::Unknown;
use anyhow::{Context, Result, ensure};
use planner::profile::{Learned, Profile};
use planner::site::HostFacts;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Profiles by program, ranks and identity.
const PROFILES: TableDefinition<'_, (&str, u32, &str), &[u8]> = TableDefinition::new("profiles");
/// Facts by job and host.
const HOSTS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("hosts");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const FORMAT_KEY: &str = "format";
/// Variable that names the file.
pub const VARIABLE: &str = "REDRT_PLAN_STORE";
/// Version of the stored format.
const FORMAT: u64 = 1;

/// The database. One process at a time has it open; others wait until it is closed.
pub struct Store {
    database: Database,
    /// Dropped after the database: a process that gets the lock must find the database closed.
    _lock: File,
}

/// Data that one command adds.
#[derive(Default)]
pub struct Additions {
    /// Profiles with their identities: a profile replaces one with the same identity.
    pub profiles: Vec<(String, Profile)>,
    /// Facts about hosts, with their jobs.
    pub hosts: Vec<(String, HostFacts)>,
}

/// Default path: `$XDG_DATA_HOME/redrt/plan.redb`, or below `~/.local/share`.
pub fn default_path() -> Result<PathBuf, Unknown> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or(home);
    let missing = || Unknown("--store is needed, for there is neither HOME nor XDG_DATA_HOME".into());
    Ok(data.ok_or_else(missing)?.join("redrt/plan.redb"))
}

/// Path by `REDRT_PLAN_STORE`, or the default.
pub fn chosen_path() -> Result<PathBuf, Unknown> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map_or_else(default_path, |path| Ok(path.into()))
}

/// Adds one run.
pub fn learn_run(path: &Path, identity: String, profile: Profile) -> Result<()> {
    Store::open(path)?.add(&Additions { profiles: vec![(identity, profile)], hosts: Vec::new() })
}

impl Store {
    /// Opens the database. Creates it if it does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("Failed to make {}", directory.display()))?;
        }
        let lock_path = path.with_added_extension("lock");
        let lock = || {
            let file = File::options().create(true).append(true).open(&lock_path)?;
            file.lock()?;
            Ok::<_, std::io::Error>(file)
        };
        let lock = lock().with_context(|| format!("Failed to lock {}", lock_path.display()))?;
        let database = Database::create(path).with_context(|| format!("Failed to open what was learned, {shown}"))?;
        let writing = database.begin_write()?;
        {
            let mut numbers = writing.open_table(NUMBERS)?;
            let format = numbers.get(FORMAT_KEY)?.map(|format| format.value());
            match format {
                None => drop(numbers.insert(FORMAT_KEY, FORMAT)?),
                Some(format) => ensure!(format == FORMAT, "{shown} was written by another version of redrt"),
            }
            writing.open_table(PROFILES)?;
            writing.open_table(HOSTS)?;
        }
        writing.commit()?;
        Ok(Self { database, _lock: lock })
    }

    /// Adds everything, or nothing on an error.
    pub fn add(&self, additions: &Additions) -> Result<()> {
        let writing = self.database.begin_write()?;
        {
            let mut profiles = writing.open_table(PROFILES)?;
            for (identity, profile) in &additions.profiles {
                let key = (profile.program.as_str(), profile.ranks, identity.as_str());
                profiles.insert(key, serde_json::to_vec(profile)?.as_slice())?;
            }
            let mut hosts = writing.open_table(HOSTS)?;
            for (job, facts) in &additions.hosts {
                hosts.insert((job.as_str(), facts.host.as_str()), serde_json::to_vec(facts)?.as_slice())?;
            }
        }
        writing.commit()?;
        Ok(())
    }

    /// Data about each program and number of ranks.
    pub fn programs(&self) -> Result<Vec<Learned>> {
        let mut runs = BTreeMap::<(String, u32), Vec<Profile>>::new();
        for row in self.database.begin_read()?.open_table(PROFILES)?.iter()? {
            let (key, value) = row?;
            let (program, ranks, identity) = key.value();
            let profile = serde_json::from_slice(value.value());
            let profile = profile.with_context(|| format!("The profile {identity} of {program} is damaged"))?;
            runs.entry((program.to_owned(), ranks)).or_default().push(profile);
        }
        Ok(runs.values().filter_map(|runs| Learned::new(runs)).collect())
    }

    /// Facts about each host, summed over jobs.
    pub fn hosts(&self) -> Result<Vec<HostFacts>> {
        let mut hosts = BTreeMap::<String, HostFacts>::new();
        for row in self.database.begin_read()?.open_table(HOSTS)?.iter()? {
            let (key, value) = row?;
            let (job, host) = key.value();
            let facts: HostFacts = serde_json::from_slice(value.value())
                .with_context(|| format!("What is known of {host} in job {job} is damaged"))?;
            let sum = hosts.entry(facts.host.clone()).or_insert_with(|| HostFacts {
                host: facts.host.clone(),
                hours: 0.0,
                losses: 0,
                is_sick: false,
            });
            sum.hours += facts.hours;
            sum.losses += facts.losses;
            sum.is_sick |= facts.is_sick;
        }
        Ok(hosts.into_values().collect())
    }
}
