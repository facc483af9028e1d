//! Checkpoints in an object store, which only has names: which are complete, and which objects to delete.
//!
//! ```text
//!  URL/JOB/line-7/0.image 1.image … host-0.memory    put by hosts
//!                 manifest.json                      put last: its existence makes the checkpoint count
//! ```
//! Objects are deleted in the opposite order, so a checkpoint without a manifest is incomplete at any time.
//!
//! Each resumption of a job has a *life*: an empty object `URL/JOB/life-2` that can be created only once. Of several
//! resumptions at the same time one creates it. A job with an older life stores no more checkpoints.

use crate::names::{MANIFEST, Name};
use redrt_wire::checkpoint::Generation;
use std::collections::{BTreeMap, BTreeSet};

/// Object name of a checkpoint's file, below the name of its job.
#[must_use]
pub fn key(generation: Generation, file: &str) -> String {
    format!("{}/{file}", Name::whole(generation))
}

/// Object name of the manifest, whose existence makes a checkpoint complete.
#[must_use]
pub fn manifest_key(generation: Generation) -> String {
    key(generation, MANIFEST)
}

const LIFE: &str = "life-";

/// Object name of a life, below the name of its job.
#[must_use]
pub fn life_key(life: u64) -> String {
    format!("{LIFE}{life}")
}

/// Objects of one job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Objects {
    checkpoints: BTreeMap<Generation, BTreeSet<String>>,
    lives: BTreeSet<u64>,
}

impl Objects {
    /// Sorts object names, given below the name of the job. Unknown names are ignored: they are not redrt's.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = Self::default();
        keys.into_iter().for_each(|key| found.add(key));
        found
    }

    fn add(&mut self, key: &str) {
        let parts = key.split_once('/').and_then(|(checkpoint, file)| Some((Name::parse(checkpoint)?, file)));
        if let Some((checkpoint, file)) = parts.filter(|(checkpoint, _)| checkpoint.is_whole) {
            self.checkpoints.entry(checkpoint.generation).or_default().insert(file.to_owned());
        }
        self.lives.extend(key.strip_prefix(LIFE).and_then(|life| life.parse::<u64>().ok()));
    }

    /// Number of the newest life; 0 for a job that was never resumed.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.lives.last().copied().unwrap_or_default()
    }

    /// Complete checkpoints, by ascending number.
    pub fn whole(&self) -> impl Iterator<Item = Generation> + '_ {
        self.checkpoints.iter().filter(|(_, files)| files.contains(MANIFEST)).map(|(generation, _)| *generation)
    }

    /// All checkpoints with at least one object, by ascending number.
    pub fn generations(&self) -> impl DoubleEndedIterator<Item = Generation> + '_ {
        self.checkpoints.keys().copied()
    }

    /// Names to delete so that only the checkpoints of `kept` remain: first manifests, and once those are gone, the
    /// rest. The newest life is kept as long as there are checkpoints.
    #[must_use]
    pub fn surplus(&self, kept: &[Generation]) -> [Vec<String>; 2] {
        let old = self.lives.iter().filter(|life| kept.is_empty() || **life < self.life());
        let old = old.map(|life| (false, life_key(*life)));
        let gone = self.checkpoints.iter().filter(|(generation, _)| !kept.contains(generation));
        let keys =
            gone.flat_map(|(generation, files)| files.iter().map(|file| (file == MANIFEST, key(*generation, file))));
        let (manifests, others): (Vec<_>, Vec<_>) = keys.chain(old).partition(|(is_manifest, _)| *is_manifest);
        [manifests, others].map(|keys| keys.into_iter().map(|(_, key)| key).collect())
    }
}

/// Sorts object names, given below the URL, by job.
#[must_use]
pub fn by_job<'a>(keys: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, Objects> {
    let mut jobs: BTreeMap<String, Objects> = BTreeMap::new();
    for (job, rest) in keys.into_iter().filter_map(|key| key.split_once('/')).filter(|(job, _)| is_job(job)) {
        jobs.entry(job.to_owned()).or_default().add(rest);
    }
    jobs
}

/// Returns true if `name` is that of a job's directory: 16 lower-case hexadecimal digits.
#[must_use]
pub fn is_job(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "00000000000000ab";

    #[test]
    fn a_checkpoint_counts_when_its_manifest_is_there() {
        let keys =
            ["line-1/0.image", "line-2/0.image", "line-2/manifest.json", "line-3/manifest.json", "line-4/1.image"];
        let found = Objects::of(keys.into_iter().chain(["other/0.image", "line-5.partial/x", "line-6"]));
        assert_eq!(found.whole().collect::<Vec<_>>(), [2, 3].map(Generation));
        assert_eq!(found.generations().next_back(), Some(Generation(4)));
        let [manifests, others] = found.surplus(&[Generation(3)]);
        assert_eq!((manifests, others), (vec![keys[2].into()], vec![keys[0].into(), keys[1].into(), keys[4].into()]));
        assert!(found.surplus(&[1, 2, 3, 4].map(Generation)).iter().all(Vec::is_empty));
        assert_eq!(manifest_key(Generation(2)), keys[2]);
    }

    #[test]
    fn the_newest_life_stays_as_long_as_there_are_checkpoints() {
        let found = Objects::of(["line-2/manifest.json", "life-9", "life-10", "life-x", "life-11/x"]);
        assert_eq!((found.life(), Objects::default().life()), (10, 0));
        assert_eq!(found.surplus(&[Generation(2)]), [vec![], vec![life_key(9)]]);
        assert_eq!(found.surplus(&[])[1], [9, 10].map(life_key));
        assert_eq!(found.generations().count(), 1);
    }

    #[test]
    fn what_is_no_job_s_is_not_looked_at() {
        let keys =
            [format!("{JOB}/line-1/manifest.json"), "x/line-1/manifest.json".into(), format!("{JOB}.old/line-2/a")];
        let found = by_job(keys.iter().map(String::as_str));
        assert_eq!(found.keys().collect::<Vec<_>>(), [JOB]);
        assert_eq!(found[JOB].whole().count(), 1);
    }
}
