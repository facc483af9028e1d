//! Manifests of checkpoints whose parts hosts have. Each host of a job keeps them: the job can be resumed on any.

use anyhow::{Context, Result};
use checkpoint_store::{Manifest, Store, place};
use redrt_wire::checkpoint::Generation;
use redrt_wire::secret::Secret;
use std::path::{Path, PathBuf};

/// Keeps the manifest of a checkpoint, `beside` those of others, and removes the whole files of checkpoints that pieces
/// have `replaced`. `job`: the directory of the job, and the number of this host.
///
/// # Errors
/// If the disk refuses, or the manifest is of no use.
pub fn settle(
    (job, host): (&Path, u32),
    (beside, replaced): (&[Generation], &[Generation]),
    manifest: &[u8],
    key: Option<&Secret>,
) -> Result<()> {
    for checkpoint in replaced {
        let Ok(entries) = std::fs::read_dir(place::of_host(job, host, *checkpoint)) else { continue };
        let paths = entries.flatten().map(|entry| entry.path());
        let is_whole = |path: &PathBuf| {
            path.extension().is_some_and(|kind| ["image", "memory"].iter().any(|whole| kind == *whole))
        };
        paths.filter(is_whole).try_for_each(|path| std::fs::remove_file(&path))?;
    }
    let manifest = Manifest::from_bytes(manifest)?;
    let parent = job.parent().context("the directory of a job is in another")?;
    let store = Store::of_job(parent, manifest.job).with_key(key.cloned());
    store.keep_copy(manifest, beside)?;
    Ok(())
}
