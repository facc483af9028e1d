//! Manifests of checkpoints whose parts are on hosts: each host of the job has them.
//!
//! Two hosts need not have the same ones. A host that was lost, and comes back, has those of its time, perhaps of
//! checkpoints that the job has gone back beyond.

use super::{Doing, Error, Store, create};
use crate::manifest::Manifest;
use crate::names::{MANIFEST, Name};
use redrt_wire::checkpoint::Generation;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

impl Store {
    /// Keeps the manifest of a checkpoint that was committed on another host, and those of the checkpoints `beside` it.
    /// Others were passed over, or are not needed. Does nothing if this host has a later one: it is the one that
    /// commits, or sees its directory, or orders have overtaken each other.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn keep_copy(&self, manifest: Manifest, beside: &[Generation]) -> Result<(), Error> {
        if self.take_proof(&manifest)? {
            return Ok(());
        }
        let is_later = |of: &Generation| self.manifest(*of).is_ok_and(|of| of.taken_at_ns >= manifest.taken_at_ns);
        if self.generations()?.iter().any(is_later) {
            return Ok(());
        }
        self.mirror(&[beside, &manifest.pinned].concat())?;
        // The job had one of this number before it went back to an older one, while this host was not part of it.
        let name = Name::whole(manifest.generation);
        if self.path(name).exists() {
            self.remove(name)?;
        }
        self.begin(manifest.generation)?;
        self.commit(manifest).map(drop)
    }

    /// Adds the proof of a checkpoint that this host has. Returns false if it does not have it.
    fn take_proof(&self, manifest: &Manifest) -> Result<bool, Error> {
        let own = self.manifest(manifest.generation).ok().filter(|own| own.taken_at_ns == manifest.taken_at_ns);
        let Some(own) = own else { return Ok(false) };
        if manifest.proof.is_some() && own.proof != manifest.proof {
            self.prove(&Manifest { proof: manifest.proof, ..own }, |_| Ok(()))?;
        }
        Ok(true)
    }

    /// Manifests of the complete checkpoints as they are on the disk, newest first. For [`Self::take_in`].
    ///
    /// # Errors
    /// If the directory exists and cannot be listed.
    pub fn manifests(&self) -> Result<Vec<(Generation, Vec<u8>)>, Error> {
        let read = |generation| Some((generation, fs::read(self.path(Name::whole(generation)).join(MANIFEST)).ok()?));
        Ok(self.generations()?.into_iter().filter_map(read).collect())
    }

    /// Takes in the manifests that other hosts have. Of two checkpoints with one number the one that was taken later
    /// counts, and of two that are the same the one with a proof. A checkpoint is void if a later one has a smaller
    /// number: the job had gone back beyond it.
    ///
    /// # Errors
    /// If the disk refuses, or no manifest at all can be read: then the reason for one of them.
    pub fn take_in(&self, mut found: Vec<(Generation, Vec<u8>)>) -> Result<(), Error> {
        self.make()?;
        // Without a key the manifests of all hosts are alike, and each one is written to be read.
        found.sort_unstable();
        found.dedup();
        // Time of each checkpoint, whether it has a proof, and its manifest if another host has it.
        let mut known = BTreeMap::<Generation, (u64, bool, Option<Vec<u8>>)>::new();
        for generation in self.generations()? {
            // One that cannot be read is replaced.
            if let Ok(manifest) = self.manifest(generation) {
                known.insert(generation, (manifest.taken_at_ns, manifest.proof.is_some(), None));
            }
        }
        let mut first_error = None;
        for (generation, bytes) in found {
            let is_later = |manifest: &Manifest| {
                let found = (manifest.taken_at_ns, manifest.proof.is_some());
                known.get(&generation).is_none_or(|own| (own.0, own.1) < found)
            };
            match self.written_apart(generation, &bytes) {
                Ok(manifest) if manifest.generation == generation && is_later(&manifest) => {
                    known.insert(generation, (manifest.taken_at_ns, manifest.proof.is_some(), Some(bytes)));
                }
                Ok(_) => {}
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        if let (true, Some(error)) = (known.is_empty(), first_error) {
            return Err(error);
        }
        let mut latest_ns = 0;
        for (generation, (taken_at_ns, _, found)) in known {
            let whole = self.path(Name::whole(generation));
            if taken_at_ns < latest_ns {
                if whole.exists() {
                    self.remove(Name::whole(generation))?;
                }
                continue;
            }
            latest_ns = taken_at_ns;
            let Some(bytes) = found else { continue };
            if self.take_proof(&self.written_apart(generation, &bytes)?)? {
                self.drop_partial(generation)?;
                continue;
            }
            if whole.exists() {
                fs::remove_dir_all(&whole).doing("remove", &whole)?;
            }
            let apart = self.path(Name::partial(generation));
            fs::rename(&apart, &whole).doing("rename", &apart)?;
        }
        self.collect(None)
    }

    /// Writes a manifest where it does not count yet, and reads it.
    fn written_apart(&self, generation: Generation, bytes: &[u8]) -> Result<Manifest, Error> {
        let path = self.begin(generation)?.join(MANIFEST);
        let written = create(&path).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
        written.doing("write", &path)?;
        self.manifest_at(&path)
    }
}
