//! Checkpoints on a disk.

use crate::chain::{self, Link};
use crate::manifest::{Manifest, ManifestError};
use crate::memory_budget::Growing;
use crate::names::{self, MANIFEST, Name};
use crate::objects;
use crate::place::{self, DIRECTORY_MODE};
use crate::sealed::{self, SealError, SealedReader, SealedWriter};
use redrt_wire::checkpoint::Generation;
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

mod archive;
mod sharing;

pub use archive::archived_manifest;

const FILE_MODE: u32 = 0o600;
/// Bytes read at a time, less than a frame of up to a MiB.
const BUFFER_BYTES: usize = 1 << 18;
/// File name of the record of shown output, in the directory of the job.
const SHOWN: &str = "shown";

/// Creates an empty file of a checkpoint, or truncates an existing one. Only the owner may read it, because it holds
/// memory of the program.
///
/// # Errors
/// If the file cannot be opened.
pub fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)
}

/// Writer for `file`, which is at `path`. Encrypts if there is a key. All data is in the file after a flush.
///
/// # Errors
/// If the file cannot be prepared, or its header cannot be written.
pub fn writer(file: File, path: &Path, key: Option<&Secret>) -> io::Result<Box<dyn Write + Send>> {
    Ok(match key {
        None => Box::new(Growing::new(file)?),
        Some(key) => Box::new(SealedWriter::new(Growing::new(file)?, key, &name_in_checkpoint(path))?),
    })
}

/// Returns true if only this user or the superuser can have written a file, or a directory's entries.
///
/// Memory of programs and files are restored from checkpoints, so anything that other users could write is rejected.
#[must_use]
pub fn is_own(facts: &Metadata) -> bool {
    let is_of_user = [nix::unistd::geteuid().as_raw(), 0].contains(&facts.uid());
    is_of_user && facts.mode() & 0o022 == 0
}

/// Reader for a file of a checkpoint, decrypting if necessary.
///
/// # Errors
/// If the file cannot be read, may be written by others, or needs a key that is missing or another one.
pub fn reader(path: &Path, key: Option<&Secret>) -> Result<Box<dyn Read + Send>, Error> {
    opened(path, path, key)
}

/// Reader for a file that was written under another `name`, which the cipher knows.
fn opened(path: &Path, name: &Path, key: Option<&Secret>) -> Result<Box<dyn Read + Send>, Error> {
    let file = File::open(path).doing("open", path)?;
    if !is_own(&file.metadata().doing("look at", path)?) {
        return Err(Error::Foreign(path.to_owned()));
    }
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut first = Vec::new();
    Read::by_ref(&mut file).take(sealed::MAGIC.len() as u64).read_to_end(&mut first).doing("read", path)?;
    if first != sealed::MAGIC {
        return Ok(Box::new(io::Cursor::new(first).chain(file)));
    }
    let key = key.ok_or_else(|| Error::Sealed(path.to_owned()))?;
    match SealedReader::new(file, key, &name_in_checkpoint(name)) {
        Ok(opened) => Ok(Box::new(opened)),
        Err(cause) => Err(refused(cause, path)),
    }
}

/// Name of a file for the cipher: checkpoint number and file name. The directory may change.
fn name_in_checkpoint(path: &Path) -> String {
    let checkpoint = path.parent().and_then(Path::file_name).and_then(|name| Name::parse(name.to_str()?));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    checkpoint.map_or_else(|| name.clone().into_owned(), |checkpoint| format!("{}/{name}", checkpoint.generation))
}

fn refused(cause: io::Error, path: &Path) -> Error {
    match cause.downcast::<SealError>() {
        Ok(SealError::OtherKey) => Error::OtherKey(path.to_owned()),
        Ok(why) => Error::Disk { what: "read", path: path.to_owned(), cause: why.into() },
        Err(cause) => Error::Disk { what: "read", path: path.to_owned(), cause },
    }
}

/// Failed operation on a checkpoint or its store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file system operation failed.
    #[error("Failed to {what} {path}: {cause}")]
    Disk {
        /// The operation, worded to follow "Failed to".
        what: &'static str,
        /// File or directory of the operation.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// A manifest is not valid.
    #[error("{path}: {cause}")]
    Manifest {
        /// Path of the manifest.
        path: PathBuf,
        /// Reason why it is not valid.
        cause: ManifestError,
    },
    /// Another user may have written the file.
    #[error("{0} belongs to another user, or others may write to it, and is not used (chown, chmod go-w)")]
    Foreign(PathBuf),
    /// The file is encrypted, and no key was given.
    #[error("{0} is encrypted: name the file that has its key (redrun --checkpoint-encrypt, redctl --key)")]
    Sealed(PathBuf),
    /// The file is encrypted with another key than the given one.
    #[error("{0} is encrypted with another key than the one that was named")]
    OtherKey(PathBuf),
    /// A file of a checkpoint does not have its recorded length.
    #[error("{path} has {found_bytes} bytes, and had {bytes}")]
    Torn {
        /// Path of the file.
        path: PathBuf,
        /// Length that the manifest records.
        bytes: u64,
        /// Length of the file now.
        found_bytes: u64,
    },
    /// A checkpoint requires another one that is not usable.
    #[error("checkpoint {generation} is built on checkpoint {link}: {cause}")]
    Broken {
        /// The checkpoint that requires it.
        generation: Generation,
        /// The checkpoint that is not usable.
        link: Generation,
        /// Reason why it is not usable.
        cause: Box<Self>,
    },
    /// A checkpoint that others are built on cannot be deleted.
    #[error("checkpoint {needed_by} is built on checkpoint {generation}: remove that one first")]
    Needed {
        /// The checkpoint to be deleted.
        generation: Generation,
        /// The newest checkpoint that requires it.
        needed_by: Generation,
    },
    /// The manifest could not be put into the object store.
    #[error("{0}")]
    Unpublished(io::Error),
    /// The directory has no checkpoint.
    #[error("{0} has no checkpoint")]
    Empty(PathBuf),
    /// Another process holds the lock: the job of these checkpoints runs.
    #[error("the job of {0} runs already: end it first, or wait until it has ended")]
    Busy(PathBuf),
    /// The directory has checkpoints of several jobs.
    #[error(
        "{directory} has checkpoints of several jobs: name one of them: {}",
        jobs.iter().map(|job| job.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Several {
        /// Directory that was searched.
        directory: PathBuf,
        /// Directories of the jobs.
        jobs: Vec<PathBuf>,
    },
}

trait Doing<T> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|cause| Error::Disk { what, path: path.to_owned(), cause })
    }
}

/// A complete checkpoint in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// Directory of its manifest; at [`Level::Shared`](crate::Level::Shared) also of its images.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// Contents of its manifest.
    pub manifest: Manifest,
}

/// All checkpoints of one job in a directory.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
    key: Option<Secret>,
}

impl Store {
    /// The store of a job below `parent`. Creates nothing.
    #[must_use]
    pub fn of_job(parent: &Path, job: u64) -> Self {
        Self { directory: parent.join(format!("{job:016x}")), key: None }
    }

    /// Sets the key with which checkpoints are encrypted. Unencrypted ones can still be read.
    #[must_use]
    pub fn with_key(self, key: Option<Secret>) -> Self {
        Self { key, ..self }
    }

    /// Finds the store that the user means: `path` itself, or that of the only job below it.
    ///
    /// # Errors
    /// If there are no checkpoints, or those of several jobs.
    pub fn find(path: &Path) -> Result<Self, Error> {
        let own = Self { directory: path.to_owned(), key: None };
        if names::newest(&own.names()?).is_some() {
            return Ok(own);
        }
        let mut jobs = Self::below(path)?;
        match (jobs.pop(), jobs.is_empty()) {
            (Some(only), true) => Ok(only),
            (None, _) => Err(Error::Empty(path.to_owned())),
            (Some(last), false) => {
                jobs.push(last);
                let jobs = jobs.into_iter().map(|job| job.directory).collect();
                Err(Error::Several { directory: path.to_owned(), jobs })
            }
        }
    }

    /// Lists the stores of all jobs below a directory that have a complete checkpoint. Empty if the directory does not
    /// exist.
    ///
    /// # Errors
    /// If the directory exists and cannot be listed.
    pub fn below(path: &Path) -> Result<Vec<Self>, Error> {
        let mut jobs = Vec::new();
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(jobs),
            entries => entries.doing("list", path)?,
        };
        for entry in entries.flatten() {
            let is_job = entry.file_name().to_str().is_some_and(objects::is_job);
            let store = Self { directory: entry.path(), key: None };
            if is_job && names::newest(&store.names()?).is_some() {
                jobs.push(store);
            }
        }
        jobs.sort_by(|one, other| one.directory.cmp(&other.directory));
        Ok(jobs)
    }

    /// Directory of the job.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, name: Name) -> PathBuf {
        self.directory.join(name.to_string())
    }

    fn names(&self) -> Result<Vec<Name>, Error> {
        match fs::read_dir(&self.directory) {
            Ok(entries) => Ok(entries.flatten().filter_map(|entry| Name::parse(entry.file_name().to_str()?)).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(cause) => Err(cause).doing("list", &self.directory),
        }
    }

    /// Locks the job, so that nobody else resumes it, until the file is closed or the process ends. `None` if the file
    /// system does not support locks on directories.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process holds the lock; if the directory does not exist.
    pub fn lock(&self) -> Result<Option<File>, Error> {
        let directory = File::open(&self.directory).doing("open", &self.directory)?;
        match directory.try_lock() {
            Ok(()) => Ok(Some(directory)),
            Err(TryLockError::WouldBlock) => Err(Error::Busy(self.directory.clone())),
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    /// Creates the directory of the job, unless it exists.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn make(&self) -> Result<(), Error> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE).create(&self.directory).doing("make", &self.directory)
    }

    /// For checkpoints that count elsewhere: deletes local ones that are not in `whole`, and returns where to put the
    /// manifest of each that is.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn mirror(&self, whole: &[Generation]) -> Result<Vec<(Generation, PathBuf)>, Error> {
        self.make()?;
        for name in self.names()?.into_iter().filter(|name| name.is_whole && !whole.contains(&name.generation)) {
            self.remove(name)?;
        }
        let manifest = |generation: &Generation| (*generation, self.path(Name::whole(*generation)).join(MANIFEST));
        Ok(whole.iter().map(manifest).collect())
    }

    /// Number for the next checkpoint.
    ///
    /// # Errors
    /// If the directory exists and cannot be listed.
    pub fn next(&self) -> Result<Generation, Error> {
        Ok(names::next(&self.names()?))
    }

    /// Complete checkpoints, newest first.
    ///
    /// # Errors
    /// If the directory exists and cannot be listed.
    pub fn generations(&self) -> Result<Vec<Generation>, Error> {
        let mut whole: Vec<_> =
            self.names()?.into_iter().filter(|name| name.is_whole).map(|name| name.generation).collect();
        whole.sort_unstable_by(|one, other| other.cmp(one));
        Ok(whole)
    }

    /// Creates an empty directory for the images of a checkpoint, which counts once it is committed.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn begin(&self, generation: Generation) -> Result<PathBuf, Error> {
        let path = self.path(Name::partial(generation));
        self.make()?;
        if path.exists() {
            fs::remove_dir_all(&path).doing("remove", &path)?;
        }
        DirBuilder::new().mode(DIRECTORY_MODE).create(&path).doing("make", &path)?;
        Ok(path)
    }

    /// Commits a checkpoint, all of whose images are on the disk, and deletes older ones that are not needed.
    ///
    /// A checkpoint that is committed already is left alone: its job may have been killed before it learned of that.
    ///
    /// # Errors
    /// If the disk refuses. Then the checkpoint does not count, and older ones are kept.
    pub fn commit(&self, manifest: Manifest) -> Result<StoredCheckpoint, Error> {
        self.commit_published(manifest, |_| Ok(()))
    }

    /// Like [`Self::commit`], for a checkpoint that counts once its manifest is elsewhere. `publish` gets the
    /// manifest's file, and puts it there.
    ///
    /// # Errors
    /// As for [`Self::commit`], and if `publish` fails.
    pub fn commit_published(
        &self,
        mut manifest: Manifest,
        publish: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<StoredCheckpoint, Error> {
        let generation = manifest.generation;
        if self.path(Name::whole(generation)).exists() {
            return self.open(generation);
        }
        self.check_chain(&manifest)?;
        let partial = self.path(Name::partial(generation));
        manifest.files = files(&partial)?;
        let path = partial.join(MANIFEST);
        self.write_manifest(&manifest, &path, &path)?;
        sync(&partial)?;
        publish(&path).map_err(Error::Unpublished)?;
        let directory = self.path(Name::whole(generation));
        fs::rename(&partial, &directory).doing("rename", &partial)?;
        // The rename is recorded in the directory above, whose own name is in the one above that.
        sync(&self.directory)?;
        if let Some(above) = self.directory.parent() {
            sync(above)?;
        }
        // A failed deletion does not invalidate the new checkpoint.
        let _ = self.collect(None);
        Ok(StoredCheckpoint { directory, manifest })
    }

    /// Writes a manifest to the disk, at `path`. `name`: the path that the cipher knows.
    fn write_manifest(&self, manifest: &Manifest, path: &Path, name: &Path) -> Result<(), Error> {
        let bytes = manifest.to_bytes().map_err(|cause| Error::Manifest { path: path.to_owned(), cause })?;
        let written = create(path).and_then(|file| {
            let mut writer = writer(file.try_clone()?, name, self.key.as_ref())?;
            writer.write_all(&bytes)?;
            writer.flush()?;
            file.sync_all()
        });
        written.doing("write", path)
    }

    /// Deletes incomplete checkpoints, except `current`, and complete ones that are not needed.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn collect(&self, current: Option<Generation>) -> Result<(), Error> {
        let chain_of = |generation| self.manifest(generation).ok().map(|manifest| manifest.chain);
        let names = self.names()?;
        let newest = names::newest(&names).and_then(|newest| self.manifest(newest).ok());
        let pinned = newest.map(|newest| newest.pinned).unwrap_or_default();
        for name in names::garbage(&names, current, &pinned, &chain_of) {
            self.remove(name)?;
        }
        Ok(())
    }

    /// Manifest of `newest` if a new checkpoint may be built on it. `None` if its chain is long enough, or a part of it
    /// is missing.
    #[must_use]
    pub fn basis(&self, newest: Generation, length_max: u32) -> Option<Manifest> {
        let newest = self.open(newest).ok()?.manifest;
        let older = newest.chain.iter().map(|link| self.manifest(*link)).collect::<Result<Vec<_>, _>>().ok()?;
        let link = |manifest: &Manifest| Link { generation: manifest.generation, bytes: manifest.image_bytes };
        let links: Vec<_> = std::iter::once(&newest).chain(&older).map(link).collect();
        chain::takes_another(&links, length_max).then_some(newest)
    }

    /// Deletes a checkpoint. A complete one is first renamed as incomplete, so that a partly deleted one never counts.
    fn remove(&self, name: Name) -> Result<(), Error> {
        let path = self.path(name);
        let torn = self.path(Name::partial(name.generation));
        if name.is_whole {
            fs::rename(&path, &torn).doing("rename", &path)?;
        }
        fs::remove_dir_all(&torn).doing("remove", &torn)
    }

    /// Abandons checkpoints newer than `generation`, from which the job restarts. They no longer count, because files
    /// cannot be rolled forward to them. They are renamed as incomplete, and deleted as such later. Returns true if
    /// there were any.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn abandon_newer(&self, generation: Generation) -> Result<bool, Error> {
        let newer = |name: &Name| name.is_whole && name.generation > generation;
        let newer: Vec<_> = self.names()?.into_iter().filter(newer).collect();
        for name in &newer {
            let path = self.path(*name);
            fs::rename(&path, self.path(Name::partial(name.generation))).doing("rename", &path)?;
        }
        if !newer.is_empty() {
            sync(&self.directory)?;
        }
        Ok(!newer.is_empty())
    }

    /// Records the output that the job has shown, for its next life. Replaces an older record.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write_shown(&self, bytes: &[u8]) -> Result<(), Error> {
        let path = self.directory.join(SHOWN);
        let write = || {
            let mut file = writer(create(&path)?, &path, self.key.as_ref())?;
            file.write_all(&XxHash3_64::oneshot(bytes).to_le_bytes())?;
            file.write_all(bytes)?;
            file.flush()
        };
        write().doing("write", &path)
    }

    /// Output recorded by the last life with [`Self::write_shown`]. `None` if it was killed before, or the record is
    /// damaged.
    #[must_use]
    pub fn shown(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        reader(&self.directory.join(SHOWN), self.key.as_ref()).ok()?.read_to_end(&mut bytes).ok()?;
        let (digest, bytes) = bytes.split_first_chunk()?;
        (XxHash3_64::oneshot(bytes) == u64::from_le_bytes(*digest)).then(|| bytes.to_vec())
    }

    /// Deletes the record of shown output, because the job is about to show more.
    pub fn forget_shown(&self) {
        // A file that cannot be removed was never written.
        let _ = fs::remove_file(self.directory.join(SHOWN));
    }

    /// Deletes everything of this job that this host can see, and the directory above if it is empty then.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn remove_all(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).doing("remove", &self.directory);
            }
            Ok(()) | Err(_) => {}
        }
        let _ = self.directory.parent().map(fs::remove_dir);
        Ok(())
    }

    /// Deletes the remains of a checkpoint that was not completed.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn drop_partial(&self, generation: Generation) -> Result<(), Error> {
        let name = Name::partial(generation);
        if self.path(name).exists() { self.remove(name) } else { Ok(()) }
    }

    /// Deletes a complete checkpoint. Parts on the disks of other hosts are not deleted.
    ///
    /// # Errors
    /// If there is none of this number, a newer one requires it or may require it, or the disk refuses.
    pub fn delete(&self, generation: Generation) -> Result<(), Error> {
        self.check_unneeded(generation)?;
        self.remove(Name::whole(generation))?;
        for place in place::seen(&self.directory, generation).doing("list", &self.directory)? {
            fs::remove_dir_all(&place).doing("remove", &place)?;
            // The directory is empty now, unless it has other checkpoints.
            let _ = place.parent().map(fs::remove_dir);
        }
        Ok(())
    }

    /// Checks that no other checkpoint is built on this one.
    ///
    /// # Errors
    /// If a newer one is built on it, or is encrypted so that this cannot be seen.
    pub fn check_unneeded(&self, generation: Generation) -> Result<(), Error> {
        for newer in self.generations()?.into_iter().filter(|newer| *newer > generation) {
            match self.manifest(newer) {
                Ok(manifest) if manifest.chain.contains(&generation) => {
                    return Err(Error::Needed { generation, needed_by: newer });
                }
                Err(error @ (Error::Sealed(_) | Error::OtherKey(_))) => return Err(error),
                // A damaged checkpoint is of no use, so it requires nothing.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Opens a complete checkpoint. All its files must have their recorded lengths, and so must its chain.
    ///
    /// # Errors
    /// If something is missing or cannot be read.
    pub fn open(&self, generation: Generation) -> Result<StoredCheckpoint, Error> {
        let kept = self.open_alone(generation)?;
        self.check_chain(&kept.manifest)?;
        Ok(kept)
    }

    fn check_chain(&self, manifest: &Manifest) -> Result<(), Error> {
        let generation = manifest.generation;
        for link in &manifest.chain {
            let broken = |cause| Error::Broken { generation, link: *link, cause: Box::new(cause) };
            self.open_alone(*link).map_err(broken)?;
        }
        Ok(())
    }

    fn manifest(&self, generation: Generation) -> Result<Manifest, Error> {
        self.manifest_at(&self.path(Name::whole(generation)).join(MANIFEST))
    }

    fn manifest_at(&self, path: &Path) -> Result<Manifest, Error> {
        let mut bytes = Vec::new();
        let read = reader(path, self.key.as_ref())?.read_to_end(&mut bytes);
        read.map_err(|cause| refused(cause, path))?;
        Manifest::from_bytes(&bytes).map_err(|cause| Error::Manifest { path: path.to_owned(), cause })
    }

    fn open_alone(&self, generation: Generation) -> Result<StoredCheckpoint, Error> {
        let (directory, manifest) = (self.path(Name::whole(generation)), self.manifest(generation)?);
        for (name, len) in &manifest.files {
            let path = directory.join(name);
            let found = fs::metadata(&path).doing("look at", &path)?.len();
            if found != *len {
                return Err(Error::Torn { path, bytes: *len, found_bytes: found });
            }
        }
        Ok(StoredCheckpoint { directory, manifest })
    }

    /// Opens the newest usable checkpoint, before `bound` if given. Also returns why newer ones are not usable.
    ///
    /// # Errors
    /// If none exists: the reason for the newest.
    pub fn newest(&self, bound: Option<Generation>) -> Result<(StoredCheckpoint, Vec<Error>), Error> {
        let mut unfit = Vec::new();
        let is_meant = |generation: &Generation| bound.is_none_or(|bound| *generation < bound);
        for generation in self.generations()?.into_iter().filter(is_meant) {
            match self.open(generation) {
                Ok(kept) => return Ok((kept, unfit)),
                Err(error) => unfit.push(error),
            }
        }
        Err(unfit.into_iter().next().unwrap_or_else(|| Error::Empty(self.directory.clone())))
    }
}

/// Files of a checkpoint and their sizes in bytes, sorted by name.
fn files(directory: &Path) -> Result<Vec<(String, u64)>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).doing("list", directory)? {
        let entry = entry.doing("list", directory)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != MANIFEST {
            files.push((name, entry.metadata().doing("look at", &entry.path())?.len()));
        }
    }
    files.sort();
    Ok(files)
}

fn sync(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|directory| directory.sync_all()).doing("write to the disk", directory)
}

#[cfg(test)]
mod tests;
