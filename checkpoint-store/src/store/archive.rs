//! Checkpoints that go to the archive besides, a store of their own: markers in the directory of each.
//!
//! ```text
//!   commit ─▶ archiving ──all parts and the manifest are in the archive──▶ archived
//!                 └────given up──▶ no marker
//! ```
//! A checkpoint with a marker stays on hosts after newer ones were kept: its parts while they are being copied, and
//! later its files' state, to which a return from the archive takes files back. Of archived ones only the newest stays.

use super::{Doing, Error, Store, StoredCheckpoint, create, sync, writer};
use crate::level::Level;
use crate::manifest::Manifest;
use crate::names::{MANIFEST, Name};
use redrt_wire::checkpoint::Generation;
use redrt_wire::object::Stored;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// File name of the marker of a checkpoint that is to be in the archive, and is not yet.
const ARCHIVING: &str = "archiving";
/// File name of the manifest that is in the archive.
const ARCHIVED: &str = "archived.json";

/// True for the names of these files.
pub(super) fn is_marker(name: &str) -> bool {
    [ARCHIVING, ARCHIVED].contains(&name)
}

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
        is_to_archive: false,
        ..manifest.clone()
    }
}

impl Store {
    /// Marks a checkpoint that is about to be committed, in this directory.
    pub(super) fn pin(&self, partial: &Path) -> Result<(), Error> {
        let path = partial.join(ARCHIVING);
        create(&path).map(drop).doing("write", &path)
    }

    /// Checkpoints that stay because of the archive: the newest that is there, and those on their way.
    pub(super) fn pinned(&self, names: &[Name]) -> Vec<Generation> {
        let whole = || names.iter().filter(|name| name.is_whole).map(|name| name.generation);
        let newest = whole().filter(|generation| self.is_archived(*generation)).max();
        whole().filter(|generation| self.is_on_its_way(*generation)).chain(newest).collect()
    }

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
        let directory = self.path(Name::whole(manifest.generation));
        let (path, unfinished) = (directory.join(ARCHIVED), directory.join(format!("{ARCHIVED}.partial")));
        let bytes = manifest.to_bytes().map_err(|cause| Error::Manifest { path: path.clone(), cause })?;
        // The cipher knows the name that the file has in the archive.
        let name = directory.join(MANIFEST);
        let written = create(&unfinished).and_then(|file| {
            let mut writer = writer(file.try_clone()?, &name, self.key.as_ref())?;
            writer.write_all(&bytes)?;
            writer.flush()?;
            file.sync_all()
        });
        written.doing("write", &unfinished)?;
        publish(&unfinished).map_err(Error::Unpublished)?;
        fs::rename(&unfinished, &path).doing("rename", &unfinished)?;
        self.unpin(manifest.generation);
        sync(&directory)?;
        // A failed deletion does not invalidate the copy.
        let _ = self.collect_whole();
        Ok(StoredCheckpoint { directory, manifest })
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

    /// True of a complete checkpoint that is on its way to the archive.
    #[must_use]
    pub fn is_on_its_way(&self, generation: Generation) -> bool {
        self.marker(generation).exists()
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

    fn unpin(&self, generation: Generation) {
        // A marker that stays keeps a checkpoint longer, and nothing else.
        let _ = fs::remove_file(self.marker(generation));
    }

    /// Removes the markers of all checkpoints but this one: nobody sends them to the archive any more.
    pub fn unpin_others(&self, on_its_way: Option<Generation>) {
        let others = self.generations().unwrap_or_default().into_iter().filter(|other| Some(*other) != on_its_way);
        others.for_each(|generation| self.unpin(generation));
    }

    fn marker(&self, generation: Generation) -> PathBuf {
        self.path(Name::whole(generation)).join(ARCHIVING)
    }

    /// Deletes complete checkpoints that are not needed. An incomplete one may be being written.
    fn collect_whole(&self) -> Result<(), Error> {
        let partial = self.names()?.into_iter().filter(|name| !name.is_whole).map(|name| name.generation).max();
        self.collect(partial)
    }
}
