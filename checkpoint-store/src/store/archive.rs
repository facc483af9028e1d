//! Checkpoints that are in an archive besides, a store of their own.
//!
//! The directory of each has the manifest that is there, as a marker. The newest of them, and one that is on its way,
//! stay on hosts after newer ones were kept (*pinned*): their parts while they are being copied, and the state of files
//! to which a return takes changes back. The newest manifest names them, so all hosts know.

use super::{Doing, Error, Store, StoredCheckpoint, opened, sync};
use crate::level::Level;
use crate::manifest::Manifest;
use crate::names::{MANIFEST, Name};
use redrt_wire::checkpoint::Generation;
use redrt_wire::object::Stored;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// File name of the manifest that is in the archive.
const ARCHIVED: &str = "archived.json";

/// The manifest of a checkpoint as it is in the archive: any host can fetch all parts. `objects`: the files of all
/// hosts.
#[must_use]
pub fn archived_manifest(manifest: &Manifest, objects: Vec<Stored>) -> Manifest {
    Manifest {
        level: Level::Object,
        copies: vec![None; manifest.hosts.len()],
        pieces: Vec::new(),
        files: Vec::new(),
        objects,
        pinned: Vec::new(),
        ..manifest.clone()
    }
}

impl Store {
    /// Completes the archive's copy of a checkpoint, all of whose parts are there. `publish` gets the file of
    /// [`archived_manifest`], and puts it there. Returns the checkpoint as it can be loaded from the archive.
    ///
    /// # Errors
    /// If the disk refuses, or `publish` fails. Then the copy does not count.
    pub fn archive(
        &self,
        manifest: Manifest,
        publish: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<StoredCheckpoint, Error> {
        let directory = self.put_manifest(&manifest, ARCHIVED, publish)?;
        Ok(StoredCheckpoint { directory, manifest })
    }

    /// Writes a manifest to this file in the directory of its checkpoint, which is there. `publish`: as for
    /// [`Self::archive`]. Returns the directory.
    fn put_manifest(
        &self,
        manifest: &Manifest,
        file: &str,
        publish: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<PathBuf, Error> {
        let directory = self.path(Name::whole(manifest.generation));
        let (path, unfinished) = (directory.join(file), directory.join(format!("{file}.partial")));
        // The cipher knows the name that the file has in the archive, and in each store.
        self.write_manifest(manifest, &unfinished, &directory.join(MANIFEST))?;
        publish(&unfinished).map_err(Error::Unpublished)?;
        fs::rename(&unfinished, &path).doing("rename", &unfinished)?;
        sync(&directory)?;
        Ok(directory)
    }

    /// Records with a kept checkpoint who vouches for its memory. `publish` gets the new manifest's file, and puts it
    /// where it counts.
    ///
    /// # Errors
    /// If the disk refuses, or `publish` fails. Then the checkpoint is not proven.
    pub fn prove(&self, manifest: &Manifest, publish: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Error> {
        self.put_manifest(manifest, MANIFEST, publish).map(drop)
    }

    /// The newest usable checkpoint whose memory others vouch for.
    #[must_use]
    pub fn proven(&self) -> Option<StoredCheckpoint> {
        let all = self.generations().ok()?;
        let is_proven = |kept: &StoredCheckpoint| kept.manifest.proof.is_some();
        all.into_iter().filter_map(|generation| self.open(generation).ok()).find(is_proven)
    }

    /// Marks a checkpoint as archived whose manifest came from the archive.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn mark_archived(&self, generation: Generation) -> Result<(), Error> {
        let directory = self.path(Name::whole(generation));
        let path = directory.join(ARCHIVED);
        fs::copy(directory.join(MANIFEST), &path).map(drop).doing("write", &path)
    }

    /// True of a complete checkpoint that the archive has.
    #[must_use]
    pub fn is_archived(&self, generation: Generation) -> bool {
        self.path(Name::whole(generation)).join(ARCHIVED).exists()
    }

    /// The newest checkpoint that the archive has.
    ///
    /// # Errors
    /// If the directory exists and cannot be listed.
    pub fn newest_archived(&self) -> Result<Option<Generation>, Error> {
        Ok(self.generations()?.into_iter().find(|generation| self.is_archived(*generation)))
    }

    /// The newest checkpoint that the archive has, as it is loaded from there. None if the marker cannot be read.
    #[must_use]
    pub fn archived(&self) -> Option<StoredCheckpoint> {
        let directory = self.path(Name::whole(self.newest_archived().ok()??));
        let mut bytes = Vec::new();
        let file = opened(&directory.join(ARCHIVED), &directory.join(MANIFEST), self.key.as_ref());
        file.ok()?.read_to_end(&mut bytes).ok()?;
        Some(StoredCheckpoint { manifest: Manifest::from_bytes(&bytes).ok()?, directory })
    }
}
