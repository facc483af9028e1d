//! Lines in an object store. Their manifests go into a temporary directory of this process, and to verify a line, so
//! does all of it.

use anyhow::{Context, Result};
use checkpoint_files::remote::{Access, Jobs, jobs};
use checkpoint_store::{Store, objects};
use redrt_wire::checkpoint::Generation;
use redrt_wire::object::ObjectEntry;
use std::path::Path;
use tempfile::TempDir;

/// An object store with lines; see the module.
pub struct Remote {
    jobs: Jobs,
    here: TempDir,
}

impl Remote {
    /// The object store that the user has named, if one is named.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn find(which: Option<&Path>, directory: &Path) -> Result<Option<Self>> {
        if which.is_some_and(Path::is_dir) {
            return Ok(None);
        }
        let Some(jobs) = jobs(which, directory)? else { return Ok(None) };
        let here = tempfile::tempdir().context("Failed to make a directory")?;
        Ok(Some(Self { jobs, here }))
    }

    /// The stores of all jobs, with the manifests of their lines.
    ///
    /// # Errors
    /// When the manifests cannot be got.
    pub fn stores(&self) -> Result<Vec<Store>> {
        let store = |name: &String| {
            let store = Store::of_job(self.here.path(), u64::from_str_radix(name, 16)?);
            self.jobs.mirror(&store)?;
            Ok(store)
        };
        self.jobs.names.iter().map(store).collect()
    }

    /// The place of this store's job.
    #[must_use]
    pub fn of_job(&self, store: &Store) -> Access {
        let name = store.directory().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.jobs.access.below(name)
    }

    /// Gets all files of a line.
    ///
    /// # Errors
    /// When a file is missing, or is not as it was put.
    pub fn get(&self, store: &Store, generation: Generation) -> Result<()> {
        let kept = store.open(generation)?;
        let entry = |stored: &redrt_wire::object::Stored| ObjectEntry {
            key: objects::key(generation, &stored.key),
            path: kept.directory.join(&stored.key),
            facts: Some(stored.facts.clone()),
        };
        let entries: Vec<_> = kept.manifest.objects.iter().map(entry).collect();
        self.of_job(store).get(&entries, &mut |_| Ok(()))
    }
}
