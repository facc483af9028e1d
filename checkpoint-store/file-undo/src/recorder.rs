//! Recording of pre-images before changes, by one process.

use crate::files::{FileKind, Files, Seen, Subject};
use crate::record::{Copy, FileKey, Held, Record, Was};
use crate::recorded_changes::{BLOCK_BYTES, KnownFile, NameKey, RecordedChanges, Saved};
use std::collections::{HashSet, hash_map};
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Attempts to record a name that other processes change at the same time.
const ATTEMPTS_MAX: usize = 100;

/// A change that is about to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// Bytes are written: offset and length. Those past the end are appended.
    Write(Subject<'a>, u64, u64),
    /// The file is set to this size.
    Resize(Subject<'a>, u64),
    /// Permissions, owner or times are set.
    Describe(Subject<'a>),
    /// The extended attribute of this name is set or removed.
    Attribute(Subject<'a>, &'a [u8]),
    /// A name is created or removed.
    Name(&'a Path),
    /// The first path is renamed to the second.
    Rename(&'a Path, &'a Path),
    /// Two names are exchanged.
    Exchange(&'a Path, &'a Path),
}

/// Records pre-images of changes, each once since a cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorder {
    known: RecordedChanges,
    block_bytes: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new(BLOCK_BYTES)
    }
}

impl Recorder {
    /// Makes a recorder that saves blocks of this size. With 1 it saves exactly the changed bytes, which is required if
    /// processes with another log change other bytes of the same block.
    #[must_use]
    pub fn new(block_bytes: u64) -> Self {
        Self { known: RecordedChanges::default(), block_bytes }
    }

    /// Records the pre-image of a change. A change that must fail because its subject does not exist needs none.
    ///
    /// # Errors
    /// If the pre-image was not recorded; the change would then lose it.
    pub fn before(&mut self, files: &mut impl Files, change: Change<'_>) -> io::Result<()> {
        match change {
            Change::Write(subject, offset, length) => {
                self.file(files, subject, Some(offset..offset.saturating_add(length)))
            }
            Change::Resize(subject, size) => self.file(files, subject, Some(size..u64::MAX)),
            Change::Describe(subject) => self.file(files, subject, None),
            Change::Attribute(subject, name) => self.attribute(files, subject, name),
            Change::Name(path) => self.name(files, path),
            Change::Rename(from, to) => self.rename(files, from, to),
            Change::Exchange(one, other) => {
                for path in [one, other] {
                    if let Some(Seen { kind: FileKind::Directory, .. }) = files.inspect(Subject::Named(path))? {
                        return Err(io::Error::other("directories that are exchanged are not put back"));
                    }
                    self.name(files, path)?;
                }
                Ok(())
            }
        }
    }

    /// Notes that a file was created after its name was recorded. Does nothing if another process holds it by a link:
    /// then it is another file that came there in between.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn record_made(&mut self, files: &impl Files, key: FileKey) -> io::Result<()> {
        if !files.is_held(key)? {
            self.known.made.insert(key);
        }
        Ok(())
    }

    fn file(&mut self, files: &mut impl Files, subject: Subject<'_>, range: Option<Range<u64>>) -> io::Result<()> {
        let Some(seen) = files.inspect(subject)? else { return Ok(()) };
        let is_file = seen.kind == FileKind::File;
        let is_new = self.known.made.contains(&seen.key);
        let is_described = range.is_none() && matches!(seen.kind, FileKind::Directory | FileKind::Link(_));
        if is_new || !(is_file || is_described) {
            return Ok(());
        }
        let known = match self.known.files.entry(seen.key) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(place) => {
                let link = if is_file { files.hold(subject, seen.key)? } else { None };
                let held = Held { key: is_file.then_some(seen.key), link, path: files.name_of(subject) };
                files.add(&Record::First(held.clone(), seen.about))?;
                let (saved, attributes) = (Saved::default(), HashSet::new());
                place.insert(KnownFile { held, size: seen.about.size, saved, attributes })
            }
        };
        let Some(range) = range else { return Ok(()) };
        for missing in known.needs(range, self.block_bytes) {
            let data = files.save(subject, seen.key, missing.start, missing.end - missing.start)?;
            // Bytes that no longer exist were saved by the process that truncated the file.
            if data.length > 0 {
                files.add(&Record::Bytes(known.held.clone(), missing.start, data))?;
            }
            known.saved.add(missing);
        }
        Ok(())
    }

    fn attribute(&mut self, files: &mut impl Files, subject: Subject<'_>, name: &[u8]) -> io::Result<()> {
        self.file(files, subject, None)?;
        let Some(seen) = files.inspect(subject)? else { return Ok(()) };
        // A file created since the cut has no pre-image.
        let Some(known) = self.known.files.get_mut(&seen.key) else { return Ok(()) };
        if !known.attributes.contains(name) {
            // The directory may have been renamed since its first change.
            let held = Held { path: files.name_of(subject), ..known.held.clone() };
            files.add(&Record::Attribute(held, files.attribute(subject, name)?))?;
            known.attributes.insert(name.to_vec());
        }
        Ok(())
    }

    /// The name, with the identity of its directory. `None` if the directory does not exist.
    fn entry(files: &impl Files, path: &Path) -> io::Result<Option<NameKey>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let parent = files.inspect(Subject::Named(parent))?;
        Ok(parent.map(|parent| (parent.key, name.as_bytes().to_vec())))
    }

    fn name(&mut self, files: &mut impl Files, path: &Path) -> io::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            match self.name_as_seen(files, path) {
                // Another process has given the name to another file in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => return done,
            }
        }
        Err(io::Error::other("its name is given to one file after the other"))
    }

    fn name_as_seen(&mut self, files: &mut impl Files, path: &Path) -> io::Result<()> {
        // Another process may create the directory at this moment.
        let entry = Self::entry(files, path)?;
        let seen = files.inspect(Subject::Named(path))?;
        let is_directory = seen.as_ref().is_some_and(|seen| seen.kind == FileKind::Directory);
        let is_known = entry.as_ref().is_some_and(|entry| self.known.names.contains(entry));
        // A directory at a known name may have been moved there by another process; undo must move it back.
        if !is_known || is_directory {
            let was = match seen {
                None => Some(Was::Absent),
                // The process that gave it this name has recorded its previous meaning.
                Some(seen) if self.known.made.contains(&seen.key) => None,
                Some(seen) => Some(Self::what_was(files, path, seen)?),
            };
            if let Some(was) = was {
                files.add(&Record::Name(path.as_os_str().as_bytes().to_vec(), was))?;
            }
            self.known.names.extend(entry);
        }
        if is_directory {
            self.known.names.clear();
        }
        Ok(())
    }

    fn what_was(files: &mut impl Files, path: &Path, seen: Seen) -> io::Result<Was> {
        Ok(match seen.kind {
            FileKind::File => {
                let subject = Subject::Named(path);
                let link = files.hold(subject, seen.key)?;
                let copy = match link {
                    Some(_) => None,
                    None => Some(Copy {
                        data: files.save(subject, seen.key, 0, seen.about.size)?,
                        about: seen.about,
                        attributes: files.attributes(subject)?,
                    }),
                };
                Was::File(Held { key: Some(seen.key), link, path: path.as_os_str().as_bytes().to_vec() }, copy)
            }
            FileKind::Directory => Was::Directory(seen.about, files.attributes(Subject::Named(path))?),
            FileKind::Link(target) => Was::Link(target),
            FileKind::Other => Was::Other,
        })
    }

    fn rename(&mut self, files: &mut impl Files, from: &Path, to: &Path) -> io::Result<()> {
        let moved = files.inspect(Subject::Named(from))?.filter(|seen| seen.kind == FileKind::Directory);
        let Some(seen) = moved else {
            self.name(files, from)?;
            return self.name(files, to);
        };
        // `rename` may replace an empty directory.
        self.name(files, to)?;
        let [from, to] = [from, to].map(|path| OsStr::as_bytes(path.as_os_str()).to_vec());
        files.add(&Record::Moved { from, to, directory: seen.key })?;
        self.known.names.clear();
        Ok(())
    }
}
