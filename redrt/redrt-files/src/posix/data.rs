//! Reading and writing, by position.
//!
//! Appended bytes have no position until they are written, and several ranks may append to one file. So the size is
//! agreed on first. Then the leader writes at the end of the file, with other ranks locked out, and the position is the
//! outcome. A successor without this outcome searches from the agreed size on: a match of its bytes means that its
//! predecessor has appended them.

use super::agree::{Found, observe, outcome, perform, perform_writing};
use super::table::{Description, Shared, find};
use super::{Done, Outcome, alone, counted, directories, paths};
use crate::file::disk::{PIECE_BYTES, lock_range, read_at};
use crate::file::witness;
use file_undo::{Change, Subject};
use redrt_comm::objects::host;
use redrt_process::lock;
use redrt_runtime::call::{Call, Operation};
use redrt_runtime::undo;
use std::cell::RefCell;
use std::ffi::{OsStr, c_int};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::MutexGuard;

/// Position of the byte that is locked to append. No program writes there.
const APPENDING_AT: i64 = i64::MAX - 1;

/// The memory of a call, in parts.
fn memory_of(call: &Call) -> Vec<libc::iovec> {
    if call.vector.is_null() {
        return vec![libc::iovec { iov_base: call.buffer, iov_len: call.length.max(0) as usize }];
    }
    if call.count == 0 {
        return Vec::new();
    }
    // SAFETY: - valid for reads of count entries: the contract of the program's call.
    unsafe { std::slice::from_raw_parts(call.vector, call.count) }.to_vec()
}

/// Calls `each` for the parts of `length` bytes of the memory, from byte `from` on, with the part's address, its
/// length, and the number of bytes before it.
fn each_part(memory: &[libc::iovec], from: usize, length: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
    let (mut skip, mut done) = (from, 0);
    for part in memory {
        let here = (part.iov_len - skip.min(part.iov_len)).min(length - done);
        if here > 0 {
            each(part.iov_base.cast::<u8>().wrapping_add(skip), here, done);
            done += here;
        }
        skip -= skip.min(part.iov_len);
    }
}

fn gather(memory: &[libc::iovec], from: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    each_part(memory, from, length, |address, count, at| {
        // SAFETY: - valid for reads of count bytes: part of the program's buffer, by the contract of its call.
        bytes[at..at + count].copy_from_slice(unsafe { std::slice::from_raw_parts(address, count) });
    });
    bytes
}

fn scatter(memory: &[libc::iovec], from: usize, bytes: &[u8]) {
    each_part(memory, from, bytes.len(), |address, count, at| {
        // SAFETY: - address is valid for writes of count bytes: part of the program's buffer, by the contract of its
        //           call.
        unsafe { std::ptr::copy_nonoverlapping(bytes[at..].as_ptr(), address, count) };
    });
}

/// An open file during a call, with its description locked.
struct Open<'a> {
    shared: &'a Shared,
    fd: RawFd,
    description: RefCell<MutexGuard<'a, Description>>,
}

impl<'a> Open<'a> {
    fn new(shared: &'a Shared, fd: RawFd) -> Self {
        Self { shared, fd, description: RefCell::new(lock(shared)) }
    }

    /// The file itself, opened if necessary. For the leader only.
    fn file(&self) -> Result<ManuallyDrop<File>, c_int> {
        let fd = self.description.borrow_mut().file(self.shared, self.fd)?;
        // SAFETY: - stays open: the description is locked.
        //         - not owned: ManuallyDrop does not close it.
        Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
    }

    fn position(&self) -> u64 {
        self.description.borrow().position
    }

    fn set_position(&self, position: u64) {
        let mut description = self.description.borrow_mut();
        description.position = position;
        description.seek_kernel(self.fd);
    }
}

fn code(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Offset at which a call reads or writes; `None` for the file's position.
fn place(call: &Call) -> Result<Option<u64>, c_int> {
    match call.offset {
        -1 => Ok(None),
        offset => u64::try_from(offset).map(Some).map_err(|_| libc::EINVAL),
    }
}

/// Offsets and lengths of the pieces of a transfer. They are small, since the engine is locked meanwhile.
fn pieces(total: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..total.max(1)).step_by(PIECE_BYTES).map(move |from| (from, PIECE_BYTES.min(total - from)))
}

fn total_of(memory: &[libc::iovec]) -> usize {
    memory.iter().map(|part| part.iov_len).sum()
}

/// Reads `length` bytes at `at`; fewer at the end of the file.
fn read_piece(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let found = read_at(file, at, &mut bytes)?;
    bytes.truncate(found);
    Ok(bytes)
}

/// Opens the file itself for reading: the program's descriptors may be stand-ins, or for writing only. Never waits.
fn reader(path: &Path) -> io::Result<File> {
    let path = OsStr::from_bytes(paths::as_c(path).to_bytes()).to_owned();
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// `read` and its variants.
pub fn read(call: &Call) -> Outcome {
    let Some(shared) = find(call.fd) else { return Ok(Done::Left) };
    let open = Open::new(&shared, call.fd);
    let explicit = place(call)?;
    if open.description.borrow().flags & libc::O_ACCMODE == libc::O_WRONLY {
        return Err(libc::EBADF);
    }
    let memory = memory_of(call);
    if open.description.borrow().is_of_system {
        return read_of_system(&open, explicit, &memory);
    }
    let mut done = 0;
    for (from, length) in pieces(total_of(&memory)) {
        let look = || {
            let at = explicit.map_or_else(|| open.position(), |at| at + from as u64);
            let file = open.file()?;
            let bytes = witness::read(&file, || read_piece(&file, at, length)).map_err(|error| code(&error))?;
            Ok((at.cast_signed(), bytes))
        };
        let (found, author) = observe(look);
        let (at, bytes) = match found {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(found) => found,
        };
        let path = open.description.borrow().path.clone();
        let again = |file: &File| read_piece(file, at.cast_unsigned(), length);
        let mut bytes = witness::confirmed(bytes, author.is_another(), path.display(), || reader(&path), again);
        bytes.truncate(length);
        scatter(&memory, from, &bytes);
        done += bytes.len();
        if explicit.is_none() {
            open.set_position(at.cast_unsigned().wrapping_add(bytes.len() as u64));
        }
        if bytes.len() < length {
            break;
        }
    }
    Ok(Done::Answered(done as i64))
}

/// Reads a file with counts of the system, at most one piece in each call.
fn read_of_system(open: &Open<'_>, explicit: Option<u64>, memory: &[libc::iovec]) -> Outcome {
    let at = explicit.unwrap_or_else(|| open.position());
    let length = total_of(memory).min(PIECE_BYTES);
    let mut bytes = counted::read(|| read_piece(&*open.file()?, at, length).map_err(|error| code(&error)))?;
    bytes.truncate(length);
    scatter(memory, 0, &bytes);
    if explicit.is_none() {
        open.set_position(at + bytes.len() as u64);
    }
    Ok(Done::Answered(bytes.len() as i64))
}

/// Writes as many bytes as possible, and returns their number. Fails if an error comes before the first byte.
fn write_at(file: &File, bytes: &[u8], at: u64) -> Result<usize, c_int> {
    let _passage = undo::before(Change::Write(Subject::Open(file.as_raw_fd()), at, bytes.len() as u64));
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if done == 0 => return Err(code(&error)),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// `write` and its variants.
pub fn write(call: &Call) -> Outcome {
    let Some(shared) = find(call.fd) else { return Ok(Done::Left) };
    let open = Open::new(&shared, call.fd);
    let explicit = place(call)?;
    let (writes, appends) = {
        let description = open.description.borrow();
        (description.writes(), description.appends())
    };
    if !writes {
        return Err(libc::EBADF);
    }
    let memory = memory_of(call);
    let mut done = 0;
    for (from, length) in pieces(total_of(&memory)) {
        let bytes = gather(&memory, from, length);
        let digest = twox_hash::XxHash3_64::oneshot(&bytes);
        let written = if appends {
            append(&open, &bytes, digest)
        } else {
            let at = || explicit.map_or_else(|| open.position(), |at| at + from as u64);
            perform_writing(
                digest,
                || Ok(written(at(), length)),
                || Ok(written(at(), write_at(&*open.file()?, &bytes, at())?)),
            )
        };
        let (at, told) = match written {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(written) => written,
        };
        let count = told_by(&told).ok_or(libc::EIO)?.min(length);
        done += count;
        if explicit.is_none() {
            open.set_position(at.cast_unsigned().wrapping_add(count as u64));
        }
        if count < length {
            break;
        }
    }
    Ok(Done::Answered(done as i64))
}

/// The outcome of a write: position and number of bytes.
fn written(at: u64, count: usize) -> (i64, Vec<u8>) {
    (at.cast_signed(), (count as u64).to_le_bytes().to_vec())
}

fn told_by(bytes: &[u8]) -> Option<usize> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?) as usize)
}

fn append(open: &Open<'_>, bytes: &[u8], digest: u64) -> Found {
    let (bound, author) = observe(|| Ok((size_of(&*open.file()?)?.cast_signed(), Vec::new())));
    let bound = bound?.0.cast_unsigned();
    perform_writing(
        digest,
        || Ok(written(bound, bytes.len())),
        || {
            let file = open.file()?;
            let lock = AppendLock::new(&file);
            let end = size_of(&file)?;
            let at = if author.is_another() { trace_of(open, bytes, bound, end)? } else { None };
            let (at, count) = match at {
                None if lock.is_none() => write_at_end(&file, bytes, end)?,
                at => {
                    let at = at.unwrap_or(end);
                    (at, write_at(&file, bytes, at)?)
                }
            };
            Ok(written(at, count))
        },
    )
}

/// Position at which a predecessor began to append these bytes; `None` if none of them is there.
fn trace_of(open: &Open<'_>, bytes: &[u8], bound: u64, end: u64) -> Result<Option<u64>, c_int> {
    let reader = reader(&open.description.borrow().path).map_err(|error| code(&error))?;
    let mut tail = vec![0; end.saturating_sub(bound) as usize];
    let found = read_at(&reader, bound, &mut tail).map_err(|error| code(&error))?;
    tail.truncate(found);
    let whole = (0..tail.len()).find(|from| tail[*from..].starts_with(bytes));
    // A part of the bytes at the end of the file: the predecessor was killed while it wrote.
    let torn = (!tail.is_empty() && bytes.starts_with(&tail)).then_some(0);
    Ok(whole.or(torn).map(|from| bound + from as u64))
}

fn size_of(file: &File) -> Result<u64, c_int> {
    file.metadata().map(|about| about.len()).map_err(|error| code(&error))
}

/// Appends by the kernel's `RWF_APPEND`, while other ranks may append as well. Returns position and number of bytes.
fn write_at_end(file: &File, bytes: &[u8], end: u64) -> Result<(u64, usize), c_int> {
    let _passage = undo::before(Change::Write(Subject::Open(file.as_raw_fd()), end, bytes.len() as u64));
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // At offset -1 the kernel moves the position behind the bytes.
    // SAFETY: - part is valid for reads, and bytes too: both are borrowed during the call.
    let (count, _) =
        outcome(unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, -1, libc::RWF_APPEND) } as i64)?;
    // SAFETY: - touches no memory: lseek takes numbers.
    let (position, _) = outcome(unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR) })?;
    Ok(((position - count).cast_unsigned(), count as usize))
}

/// Guard: other ranks do not append while it exists.
struct AppendLock<'a>(&'a File);

impl<'a> AppendLock<'a> {
    /// Takes the lock. `None` if the file system has no such locks, or the program of a rank has locked the whole file:
    /// that program may wait for the bytes that are appended here.
    fn new(file: &'a File) -> Option<Self> {
        let mut range = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: APPENDING_AT,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: - range is valid for reads and writes: a local variable.
        outcome(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) }.into()).ok()?;
        let is_free = i32::from(range.l_type) == libc::F_UNLCK || (range.l_start, range.l_len) == (APPENDING_AT, 1);
        let locked = is_free.then(|| lock_range(file, libc::F_WRLCK, APPENDING_AT, 1));
        locked?.ok().map(|()| Self(file))
    }
}

impl Drop for AppendLock<'_> {
    fn drop(&mut self) {
        // If this fails, closing the file unlocks it.
        let _ = lock_range(self.0, libc::F_UNLCK, APPENDING_AT, 1);
    }
}

/// `lseek`.
pub fn seek(call: &Call) -> Outcome {
    if let Done::Answered(position) = directories::seek(call)? {
        return Ok(Done::Answered(position));
    }
    let Some(shared) = find(call.fd) else { return Ok(Done::Left) };
    let open = Open::new(&shared, call.fd);
    let base = match call.flags {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => open.position().cast_signed(),
        libc::SEEK_END if open.description.borrow().is_of_system => size_of(&*open.file()?)?.cast_signed(),
        libc::SEEK_END => observe(|| Ok((size_of(&*open.file()?)?.cast_signed(), Vec::new()))).0?.0,
        whence => {
            let found = || {
                let fd = open.description.borrow_mut().file(open.shared, open.fd)?;
                // SAFETY: - touches no memory: lseek takes numbers.
                outcome(unsafe { libc::lseek(fd, call.offset, whence) })
            };
            let position = observe(found).0?.0;
            open.set_position(position.cast_unsigned());
            return Ok(Done::Answered(position));
        }
    };
    let position = base.checked_add(call.offset).filter(|position| *position >= 0).ok_or(libc::EINVAL)?;
    open.set_position(position.cast_unsigned());
    Ok(Done::Answered(position))
}

/// `ftruncate`, `fallocate`, `posix_fallocate`, `fsync`, `fchmod`, `fchown`, `futimens`.
pub fn change(call: &Call) -> Outcome {
    let Some(shared) = find(call.fd) else { return Ok(Done::Left) };
    let open = Open::new(&shared, call.fd);
    let act = || {
        let fd = open.description.borrow_mut().file(open.shared, open.fd)?;
        let file = Subject::Open(fd);
        let _passage = match call.operation {
            Operation::Synchronize => None,
            Operation::TruncateDescriptor => Some(undo::before(Change::Resize(file, alone::size_of(call.length)))),
            Operation::Allocate => Some(undo::before(alone::allocation(&Call { fd, ..*call }))),
            _ => Some(undo::before(Change::Describe(file))),
        };
        // SAFETY: - touches no memory, except futimens: its times are valid for reads or null, by the contract of the
        //           program's call.
        let result = unsafe {
            match call.operation {
                Operation::ChangeMode => libc::fchmod(fd, call.mode),
                Operation::ChangeOwner => libc::fchown(fd, call.mode, call.length as u32),
                Operation::SetTimes => libc::futimens(fd, call.buffer.cast()),
                Operation::TruncateDescriptor => libc::ftruncate(fd, call.length),
                Operation::Synchronize => libc::fsync(fd),
                // posix_fallocate makes room even if the file system has no such operation. It returns the error.
                _ if call.mode == 0 => match libc::posix_fallocate(fd, call.offset, call.length) {
                    0 => 0,
                    error => return Err(error),
                },
                _ => libc::fallocate(fd, call.mode.cast_signed(), call.offset, call.length),
            }
        };
        outcome(result.into())
    };
    perform(|| Ok((0, Vec::new())), act)?;
    Ok(Done::Answered(0))
}

/// Prepares the mapping of a file: replaces the descriptor's stand-in by the file itself. Each replica maps the file
/// and writes to it.
pub fn map(call: &Call) -> Outcome {
    let Some(shared) = find(call.fd) else { return Ok(Done::Left) };
    let mut description = lock(&shared);
    description.file(&shared, call.fd)?;
    let writes = call.flags & libc::MAP_TYPE != libc::MAP_PRIVATE && call.mode.cast_signed() & libc::PROT_WRITE != 0;
    if writes && !std::mem::replace(&mut description.was_mapped, true) {
        redrt_process::say(format_args!(
            "{}: what is written to {} through mapped memory is written by every replica (see docs/files.md)",
            host::get().identity(),
            description.path.display()
        ));
    }
    Ok(Done::Left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_moved_between_stretches() {
        let mut parts = [vec![1_u8, 2, 3], vec![], vec![4, 5], vec![6, 7, 8, 9]];
        let memory: Vec<_> = parts
            .iter_mut()
            .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() })
            .collect();
        assert_eq!(total_of(&memory), 9);
        assert_eq!(gather(&memory, 0, 9), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(gather(&memory, 2, 4), [3, 4, 5, 6]);
        assert_eq!(gather(&memory, 5, 2), [6, 7]);
        scatter(&memory, 4, &[50, 60, 70]);
        assert_eq!(parts, [vec![1, 2, 3], vec![], vec![4, 50], vec![60, 70, 8, 9]]);
    }

    #[test]
    fn nothing_is_one_piece_and_much_is_many() {
        assert_eq!(pieces(0).collect::<Vec<_>>(), [(0, 0)]);
        assert_eq!(pieces(PIECE_BYTES + 1).collect::<Vec<_>>(), [(0, PIECE_BYTES), (PIECE_BYTES, 1)]);
    }
}
