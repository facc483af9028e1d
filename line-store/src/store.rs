//! Lines on a disk.

use crate::chain::{self, Link};
use crate::manifest::{Manifest, ManifestError};
use crate::names::{self, MANIFEST, Name};
use crate::objects;
use crate::place::{self, DIRECTORY_MODE};
use crate::room::Growing;
use crate::sealed::{self, SealError, SealedReader, SealedWriter};
use redrt_wire::line::Generation;
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

const FILE_MODE: u32 = 0o600;
/// Frames have up to a MiB.
const BUFFER_BYTES: usize = 1 << 18;
/// What a life of the job has shown, in the directory of the job.
const SHOWN: &str = "shown";

/// Makes an empty file for a line, in place of one that is there. It has all that the program has in memory, so nobody
/// but its owner may read it.
///
/// # Errors
/// When the disk refuses.
pub fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)
}

/// What is written to `file`, which is that at `path`, encrypted if there is a key. It is all there when it was
/// flushed.
///
/// # Errors
/// When the disk refuses.
pub fn writer(file: File, path: &Path, key: Option<&Secret>) -> io::Result<Box<dyn Write + Send>> {
    Ok(match key {
        None => Box::new(Growing::new(file)?),
        Some(key) => Box::new(SealedWriter::new(Growing::new(file)?, key, &name_in_line(path))?),
    })
}

/// Whether a file, or what is in a directory, can only be of this user or the superuser. Memory of programs is loaded
/// from it, and files are put back: what others have written into a directory that all may use is not.
#[must_use]
pub fn is_own(facts: &Metadata) -> bool {
    let is_of_user = [nix::unistd::geteuid().as_raw(), 0].contains(&facts.uid());
    is_of_user && facts.mode() & 0o022 == 0
}

/// What is in a file of a line, which may be encrypted.
///
/// # Errors
/// When it cannot be read, or its key is another one or was not named.
pub fn reader(path: &Path, key: Option<&Secret>) -> Result<Box<dyn Read + Send>, Error> {
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
    match SealedReader::new(file, key, &name_in_line(path)) {
        Ok(opened) => Ok(Box::new(opened)),
        Err(cause) => Err(refused(cause, path)),
    }
}

/// What a file is called to the cipher: its name, and the number of its line. Where the line is may change.
fn name_in_line(path: &Path) -> String {
    let line = path.parent().and_then(Path::file_name).and_then(|name| Name::parse(name.to_str()?));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    line.map_or_else(|| name.clone().into_owned(), |line| format!("{}/{name}", line.generation))
}

fn refused(cause: io::Error, path: &Path) -> Error {
    match cause.downcast::<SealError>() {
        Ok(SealError::OtherKey) => Error::OtherKey(path.to_owned()),
        Ok(why) => Error::Disk { what: "read", path: path.to_owned(), cause: why.into() },
        Err(cause) => Error::Disk { what: "read", path: path.to_owned(), cause },
    }
}

/// What could not be done, with what.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refuses.
    #[error("Failed to {what} {path}: {cause}")]
    Disk {
        /// To do what.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A manifest cannot be used.
    #[error("{path}: {cause}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: ManifestError,
    },
    /// Somebody else may have written it.
    #[error("{0} belongs to another user, or others may write to it, and is not used (chown, chmod go-w)")]
    Foreign(PathBuf),
    /// It is encrypted, and nobody has named the key.
    #[error("{0} is encrypted: name the file that has its key (redrun --checkpoint-encrypt, redctl --key)")]
    Sealed(PathBuf),
    /// It is encrypted with another key.
    #[error("{0} is encrypted with another key than the one that was named")]
    OtherKey(PathBuf),
    /// A file of a line is not as long as it was.
    #[error("{path} has {found_bytes} bytes, and had {bytes}")]
    Torn {
        /// The file.
        path: PathBuf,
        /// Its length when it was written.
        bytes: u64,
        /// Its length now.
        found_bytes: u64,
    },
    /// A line that another is built on cannot be used.
    #[error("checkpoint {generation} is built on checkpoint {link}: {cause}")]
    Broken {
        /// The one that is built on it.
        generation: Generation,
        /// The one that cannot be used.
        link: Generation,
        /// Why.
        cause: Box<Self>,
    },
    /// A line that others are built on is not removed.
    #[error("checkpoint {needed_by} is built on checkpoint {generation}: remove that one first")]
    Needed {
        /// Which.
        generation: Generation,
        /// The newest that needs it.
        needed_by: Generation,
    },
    /// The object store has not taken the manifest.
    #[error("{0}")]
    Unpublished(io::Error),
    /// There is no line of a job.
    #[error("{0} has no checkpoint")]
    Empty(PathBuf),
    /// The job of these lines runs.
    #[error("the job of {0} runs already: end it first, or wait until it has ended")]
    Busy(PathBuf),
    /// There are lines of several jobs.
    #[error(
        "{directory} has checkpoints of several jobs: name one of them: {}",
        jobs.iter().map(|job| job.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Several {
        /// Where.
        directory: PathBuf,
        /// Their directories.
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

/// A line that is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Where its images are.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// What it is of.
    pub manifest: Manifest,
}

/// The lines of one job.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
    key: Option<Secret>,
}

impl Store {
    /// The store of a job below `parent`; nothing is made yet.
    #[must_use]
    pub fn of_job(parent: &Path, job: u64) -> Self {
        Self { directory: parent.join(format!("{job:016x}")), key: None }
    }

    /// The same one, whose lines are encrypted with this key. Those that are not are read all the same.
    #[must_use]
    pub fn with_key(self, key: Option<Secret>) -> Self {
        Self { key, ..self }
    }

    /// The store that is meant: `path` itself, or that of the only job below it.
    ///
    /// # Errors
    /// When there are no lines, or those of several jobs.
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

    /// The stores of all jobs below a directory that have a whole line. None where there is no such directory.
    ///
    /// # Errors
    /// When the directory is there and cannot be listed.
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

    /// Where it is.
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

    /// Keeps others from resuming this job while it runs, until the file is closed or the process ends. `None` where
    /// the file system has no locks for directories.
    ///
    /// # Errors
    /// [`Error::Busy`] when somebody else has the lock; when there is no such directory.
    pub fn lock(&self) -> Result<Option<File>, Error> {
        let directory = File::open(&self.directory).doing("open", &self.directory)?;
        match directory.try_lock() {
            Ok(()) => Ok(Some(directory)),
            Err(TryLockError::WouldBlock) => Err(Error::Busy(self.directory.clone())),
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    /// Makes its directory, which may be there already.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn make(&self) -> Result<(), Error> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE).create(&self.directory).doing("make", &self.directory)
    }

    /// Has these whole lines and no others, where lines count elsewhere. Where the manifest of each is to be put.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn mirror(&self, whole: &[Generation]) -> Result<Vec<(Generation, PathBuf)>, Error> {
        self.make()?;
        for name in self.names()?.into_iter().filter(|name| name.is_whole && !whole.contains(&name.generation)) {
            self.remove(name)?;
        }
        let manifest = |generation: &Generation| (*generation, self.path(Name::whole(*generation)).join(MANIFEST));
        Ok(whole.iter().map(manifest).collect())
    }

    /// The number of the next line.
    ///
    /// # Errors
    /// When the directory is there and cannot be listed.
    pub fn next(&self) -> Result<Generation, Error> {
        Ok(names::next(&self.names()?))
    }

    /// The whole lines, the newest first.
    ///
    /// # Errors
    /// When the directory is there and cannot be listed.
    pub fn generations(&self) -> Result<Vec<Generation>, Error> {
        let mut whole: Vec<_> =
            self.names()?.into_iter().filter(|name| name.is_whole).map(|name| name.generation).collect();
        whole.sort_unstable_by(|one, other| other.cmp(one));
        Ok(whole)
    }

    /// Makes an empty place for the images of a line, which counts when it is committed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn begin(&self, generation: Generation) -> Result<PathBuf, Error> {
        let path = self.path(Name::partial(generation));
        self.make()?;
        if path.exists() {
            fs::remove_dir_all(&path).doing("remove", &path)?;
        }
        DirBuilder::new().mode(DIRECTORY_MODE).create(&path).doing("make", &path)?;
        Ok(path)
    }

    /// Keeps a line, all of whose images are on the disk, and removes what is older than need be. One that is kept
    /// already stays as it is: who had it kept was perhaps killed before that was known.
    ///
    /// # Errors
    /// When the disk refuses. Then the line does not count, and older ones stay.
    pub fn commit(&self, manifest: Manifest) -> Result<Kept, Error> {
        self.commit_published(manifest, |_| Ok(()))
    }

    /// The same, where a line counts from the moment on at which its manifest, which is given to `publish` as a file,
    /// is elsewhere.
    ///
    /// # Errors
    /// Also when it cannot be published.
    pub fn commit_published(
        &self,
        mut manifest: Manifest,
        publish: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<Kept, Error> {
        let generation = manifest.generation;
        if self.path(Name::whole(generation)).exists() {
            return self.open(generation);
        }
        self.check_chain(&manifest)?;
        let partial = self.path(Name::partial(generation));
        manifest.files = files(&partial)?;
        let path = partial.join(MANIFEST);
        let bytes = manifest.to_bytes().map_err(|cause| Error::Manifest { path: path.clone(), cause })?;
        let written = create(&path).and_then(|file| {
            let mut writer = writer(file.try_clone()?, &path, self.key.as_ref())?;
            writer.write_all(&bytes)?;
            writer.flush()?;
            file.sync_all()
        });
        written.doing("write", &path)?;
        sync(&partial)?;
        publish(&path).map_err(Error::Unpublished)?;
        let directory = self.path(Name::whole(generation));
        fs::rename(&partial, &directory).doing("rename", &partial)?;
        // The name is kept by the directory above, and that by the one above it.
        sync(&self.directory)?;
        if let Some(above) = self.directory.parent() {
            sync(above)?;
        }
        // What cannot be removed is no reason not to have the line.
        let _ = self.collect(None);
        Ok(Kept { directory, manifest })
    }

    /// Removes what is torn, but for the line that is being written, and what is older than need be.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn collect(&self, current: Option<Generation>) -> Result<(), Error> {
        let chain_of = |generation| self.manifest(generation).ok().map(|manifest| manifest.chain);
        for name in names::garbage(&self.names()?, current, &chain_of) {
            self.remove(name)?;
        }
        Ok(())
    }

    /// The newest line of a chain on which a new one may be built, and what that is built on: `newest`, unless the
    /// chain is long enough, or something of it is missing.
    #[must_use]
    pub fn basis(&self, newest: Generation, length_max: u32) -> Option<Manifest> {
        let newest = self.open(newest).ok()?.manifest;
        let older = newest.chain.iter().map(|link| self.manifest(*link)).collect::<Result<Vec<_>, _>>().ok()?;
        let link = |manifest: &Manifest| Link { generation: manifest.generation, bytes: manifest.image_bytes };
        let links: Vec<_> = std::iter::once(&newest).chain(&older).map(link).collect();
        chain::takes_another(&links, length_max).then_some(newest)
    }

    /// Removes a line. One that is whole becomes torn first, so that nobody finds a part of it.
    fn remove(&self, name: Name) -> Result<(), Error> {
        let path = self.path(name);
        let torn = self.path(Name::partial(name.generation));
        if name.is_whole {
            fs::rename(&path, &torn).doing("rename", &path)?;
        }
        fs::remove_dir_all(&torn).doing("remove", &torn)
    }

    /// The job goes on from this line, and what it had done after that is taken back: newer lines count no more, as
    /// nobody could put files back as they were at one of them. They are torn now, and removed as such. Whether there
    /// were any.
    ///
    /// # Errors
    /// When the disk refuses.
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

    /// Writes down what the job has shown, for its next life. In place of what is there.
    ///
    /// # Errors
    /// When the disk refuses.
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

    /// What its last life has written down so. None where that is not known: it was killed, or what it has written is
    /// damaged.
    #[must_use]
    pub fn shown(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        reader(&self.directory.join(SHOWN), self.key.as_ref()).ok()?.read_to_end(&mut bytes).ok()?;
        let (digest, bytes) = bytes.split_first_chunk()?;
        (XxHash3_64::oneshot(bytes) == u64::from_le_bytes(*digest)).then(|| bytes.to_vec())
    }

    /// The job shows more from now on.
    pub fn forget_shown(&self) {
        // Where it stays, it was never written.
        let _ = fs::remove_file(self.directory.join(SHOWN));
    }

    /// Removes all that can be seen from here of all lines of this job, and the directory of all jobs if nothing else
    /// is there.
    ///
    /// # Errors
    /// When the disk refuses.
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

    /// Removes what there is of a line that did not come to be.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn drop_partial(&self, generation: Generation) -> Result<(), Error> {
        let name = Name::partial(generation);
        if self.path(name).exists() { self.remove(name) } else { Ok(()) }
    }

    /// Removes a whole line.
    ///
    /// # Errors
    /// When there is none, a newer one is built on it or may be, or the disk refuses. Places on the disks of other
    /// hosts stay.
    pub fn delete(&self, generation: Generation) -> Result<(), Error> {
        self.check_unneeded(generation)?;
        self.remove(Name::whole(generation))?;
        for place in place::seen(&self.directory, generation).doing("list", &self.directory)? {
            fs::remove_dir_all(&place).doing("remove", &place)?;
            // Empty now, unless there are other lines.
            let _ = place.parent().map(fs::remove_dir);
        }
        Ok(())
    }

    /// Whether no other line is built on this one.
    ///
    /// # Errors
    /// When a newer one is, or may be.
    pub fn check_unneeded(&self, generation: Generation) -> Result<(), Error> {
        for newer in self.generations()?.into_iter().filter(|newer| *newer > generation) {
            match self.manifest(newer) {
                Ok(manifest) if manifest.chain.contains(&generation) => {
                    return Err(Error::Needed { generation, needed_by: newer });
                }
                Err(error @ (Error::Sealed(_) | Error::OtherKey(_))) => return Err(error),
                // One that is damaged needs nothing.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// A whole line, with all its files as long as they were, and all that it is built on.
    ///
    /// # Errors
    /// When something of it is missing or cannot be read.
    pub fn open(&self, generation: Generation) -> Result<Kept, Error> {
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
        let path = self.path(Name::whole(generation)).join(MANIFEST);
        let mut bytes = Vec::new();
        let read = reader(&path, self.key.as_ref())?.read_to_end(&mut bytes);
        read.map_err(|cause| refused(cause, &path))?;
        Manifest::from_bytes(&bytes).map_err(|cause| Error::Manifest { path, cause })
    }

    fn open_alone(&self, generation: Generation) -> Result<Kept, Error> {
        let (directory, manifest) = (self.path(Name::whole(generation)), self.manifest(generation)?);
        for (name, len) in &manifest.files {
            let path = directory.join(name);
            let found = fs::metadata(&path).doing("look at", &path)?.len();
            if found != *len {
                return Err(Error::Torn { path, bytes: *len, found_bytes: found });
            }
        }
        Ok(Kept { directory, manifest })
    }

    /// The newest line that can be opened, of those before `bound` if one is given, and why newer ones cannot.
    ///
    /// # Errors
    /// When there is none: why the newest cannot be opened.
    pub fn newest(&self, bound: Option<Generation>) -> Result<(Kept, Vec<Error>), Error> {
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

/// Files of a line and their sizes, by name.
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
