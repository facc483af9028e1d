//! Directories of the program: opened by each replica, read by one.
//!
//! A follower may come to the call after its leader has removed or replaced the directory. It then gets another
//! directory under the number, in which nothing can be changed. Calls with the descriptor use the agreed path.

use super::agree::{Found, errno, observe};
use super::identity::Identity;
use super::listing::{DirectoryEntry, Listing, Record};
use super::open::{close_here, open_here, own_prefix};
use super::table::{self, Description, Shared, find};
use super::{Done, Outcome};
use redrt_process::lock;
use redrt_runtime::call::Call;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// Stand-in for a directory that no longer exists.
const STAND_IN: &CStr = c"/proc";

const READ_BYTES: usize = 1 << 16;

/// Opens a path that is a directory, by an earlier decision.
pub fn open(name: &CStr, path: PathBuf, flags: c_int) -> Outcome {
    let made = Cell::new(None);
    let act = || {
        let fd = open_here(name, flags, 0)?;
        made.set(Some(fd));
        Identity::of(fd).map(|identity| (0, identity.encode()))
    };
    let identity = Identity::decode(&observe(act).0?.1).ok_or(libc::EIO)?;
    let own = made.get().or_else(|| open_the_same(name, flags, identity));
    let fd = own.map_or_else(|| open_here(STAND_IN, flags & libc::O_CLOEXEC | libc::O_DIRECTORY, 0), Ok)?;
    let description = Description { is_here: own.is_some(), ..Description::new(path, flags, identity) };
    let description = Description { listing: Some(Listing::default()), ..description };
    table::insert(fd, Arc::new(Mutex::new(description)));
    Ok(Done::Answered(fd.into()))
}

fn open_the_same(name: &CStr, flags: c_int, identity: Identity) -> Option<RawFd> {
    let fd = open_here(name, flags, 0).ok()?;
    if Identity::of(fd) == Ok(identity) {
        return Some(fd);
    }
    close_here(fd);
    None
}

/// Path of a directory that the program has open; `None` if the descriptor is not of an agreed directory.
pub fn path_of(fd: RawFd) -> Option<PathBuf> {
    let shared = find(fd)?;
    let description = lock(&shared);
    description.listing.is_some().then(|| description.path.clone())
}

/// `readdir`: the address of the entry, 0 at the end.
pub fn next_entry(call: &Call) -> Outcome {
    with_listing(call.fd, |known| {
        let record = known.peek()?;
        if record.is_some() {
            known.listing(Listing::advance);
        }
        Ok(Done::Answered(record.map_or(0, |record| record.address as i64)))
    })
}

/// `getdents64`: as many entries as there is room for.
pub fn next_entries(call: &Call) -> Outcome {
    let room = call.length.max(0) as usize;
    with_listing(call.fd, |known| {
        let mut done = 0;
        while let Some(record) = known.peek()? {
            if record.length > room - done {
                if done == 0 {
                    return Err(libc::EINVAL);
                }
                break;
            }
            let into = call.buffer.cast::<u8>().wrapping_add(done);
            // SAFETY: - record.address is valid for reads of its length: a record of the listing, which is locked.
            //         - into is valid for writes of as many bytes: room for them is left in the program's buffer.
            unsafe { std::ptr::copy_nonoverlapping(record.address, into, record.length) };
            done += record.length;
            known.listing(Listing::advance);
        }
        Ok(Done::Answered(done as i64))
    })
}

/// `lseek`, `telldir`, `seekdir`, `rewinddir`. Leaves the call if the descriptor is not of a directory.
pub fn seek(call: &Call) -> Outcome {
    with_listing(call.fd, |known| {
        let base = match call.flags {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => known.listing(|listing| listing.position()) as i64,
            _ => return Err(libc::EINVAL),
        };
        let position = base.checked_add(call.offset).and_then(|position| usize::try_from(position).ok());
        let position = position.ok_or(libc::EINVAL)?;
        if call.flags == libc::SEEK_SET || call.offset != 0 {
            known.listing(|listing| listing.seek(position));
        }
        Ok(Done::Answered(position as i64))
    })
}

/// Removes the descriptor, which `closedir` is about to close.
pub fn forget(call: &Call) -> Outcome {
    table::remove(call.fd);
    Ok(Done::Left)
}

/// An open directory with a listing, its description locked.
struct LockedDirectory<'a> {
    shared: &'a Shared,
    fd: RawFd,
    description: RefCell<MutexGuard<'a, Description>>,
}

fn with_listing(fd: RawFd, act: impl FnOnce(&LockedDirectory<'_>) -> Outcome) -> Outcome {
    let Some(shared) = find(fd) else { return Ok(Done::Left) };
    let description = lock(&shared);
    if description.listing.is_none() {
        return Ok(Done::Left);
    }
    act(&LockedDirectory { shared: &shared, fd, description: RefCell::new(description) })
}

impl LockedDirectory<'_> {
    fn listing<T>(&self, act: impl FnOnce(&mut Listing) -> T) -> T {
        act(self.description.borrow_mut().listing.get_or_insert_default())
    }

    /// The next record; `None` at the end. If it needs a further piece, replicas agree on that now.
    fn peek(&self) -> Result<Option<Record>, c_int> {
        loop {
            let (record, is_over) = self.listing(|listing| (listing.peek(), listing.is_over()));
            if record.is_some() || is_over {
                return Ok(record);
            }
            let (is_last, records) = observe(|| self.read_piece()).0?;
            if !self.listing(|listing| listing.take(is_last != 0, &records)) {
                return Err(libc::EIO);
            }
        }
    }

    fn read_piece(&self) -> Found {
        let mut description = self.description.borrow_mut();
        let fd = match description.file(self.shared, self.fd) {
            Ok(fd) => fd,
            // The directory was removed, and has no entries any more.
            Err(libc::ENOENT | libc::ENOTDIR | libc::ESTALE) => return Ok((1, Vec::new())),
            Err(error) => return Err(error),
        };
        let (is_last, records) = description.listing.get_or_insert_default().make_piece(|| read(fd))?;
        Ok((is_last.into(), records))
    }
}

/// All entries of a directory, except files of redrt's own.
fn read(fd: RawFd) -> Result<Vec<DirectoryEntry>, c_int> {
    let mut buffer = vec![0_u8; READ_BYTES];
    let mut entries = Vec::new();
    let hidden = own_prefix();
    // SAFETY: - touches no memory: lseek takes numbers.
    if unsafe { libc::lseek(fd, 0, libc::SEEK_SET) } < 0 {
        return Err(errno());
    }
    loop {
        // SAFETY: - buffer is valid for writes of its length.
        let count = unsafe { libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()) };
        match count {
            0 => return Ok(entries),
            // The directory was removed.
            _ if count < 0 && errno() == libc::ENOENT => return Ok(entries),
            _ if count < 0 => return Err(errno()),
            _ => {}
        }
        let found = DirectoryEntry::decode_all(&buffer[..count as usize]).ok_or(libc::EIO)?;
        entries.extend(found.into_iter().filter(|entry| !entry.name.starts_with(hidden.as_bytes())));
    }
}
