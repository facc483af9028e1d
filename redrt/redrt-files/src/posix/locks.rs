//! Locks of files: `fcntl`, `lockf`, `flock`, and those of open files (`F_OFD_SETLK`).
//!
//! ```text
//!   leader    tries, again and again, without blocking others ────── has it ──▶ decision: the lock, and a token
//!   follower  waits for the decision                                               └──▶ keeps the leader's descriptor
//! ```
//! The leader has the lock in the kernel. No other replica asks the kernel for it: siblings would lock each other out.
//! The list of the program's locks is memory of the process: the same in all replicas, in copies, and in processes that
//! go on from a checkpoint.
//!
//! In the kernel all locks belong to open files. Locks of `flock` and of `F_OFD_…` belong to the program's own open
//! file. Locks of `fcntl` and `lockf` belong to the process, for any descriptor; in the kernel they belong to an open
//! file of the library, one for each file. Siblings on the same host have a descriptor of it (`lend`), so the locks
//! outlive the leader. Without a descriptor, a process that becomes the leader takes the program's locks again, and
//! does not access the program's files before it has them ([`are_in_place`]).

use super::agree::{self, Found, observe, outcome};
use super::identity::Identity;
use super::lend::{self, Loan, Token};
use super::ranges::{END, Range, Ranges, resolve};
use super::table::{self, Shared, find};
use super::{Done, Outcome, is_silent, reopen};
use redrt_comm::objects::host;
use redrt_process::lock;
use redrt_runtime::call::Call;
use redrt_runtime::decide;
use redrt_runtime::undo;
use redrt_transport::descriptors;
use std::cell::Cell;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

#[cfg(test)]
mod tests;

/// Owner of a lock, for the program.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Key {
    /// The process, for a file.
    Process(Identity),
    /// An open file, by the address of its description.
    Description(usize),
}

/// An owner of locks on a file, with its locks.
struct Owner {
    key: Key,
    path: PathBuf,
    identity: Identity,
    /// Flags with which the file can be opened again.
    access: c_int,
    ranges: Ranges,
    /// The lock of `flock`: true if it is exclusive; `None` if none exists.
    whole: Option<bool>,
    /// Descriptor to which the locks belong in the kernel.
    locker: Locker,
}

/// Descriptor to which an owner's locks belong in the kernel.
enum Locker {
    /// None in this process.
    None,
    /// A descriptor that siblings have too, by its token.
    Lent(Token),
    /// A descriptor of this process.
    Own(Loan),
    /// The locks are lost, which was reported.
    Lost,
}

process_local! {
    static OWNERS: Mutex<Vec<Owner>> = const { Mutex::new(Vec::new()) };
    /// Number of owners: programs without locks do not search the list.
    static COUNT: AtomicUsize = const { AtomicUsize::new(0) };
}

/// Change of an owner's locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Lock(Range),
    Unlock(i64, i64),
    /// A change by `flock`: true for an exclusive lock, false for a shared one, `None` for none.
    Whole(Option<bool>),
}

impl Change {
    /// Digest of the change, which replicas compare.
    fn digest(self) -> u64 {
        decide::digest(match self {
            Self::Lock(Range { start, end, is_exclusive }) => (start, end, Some(is_exclusive)),
            Self::Unlock(start, end) => (start, end, None),
            Self::Whole(kind) => (0, END, kind),
        })
    }

    fn locks(self) -> bool {
        matches!(self, Self::Lock(_) | Self::Whole(Some(_)))
    }

    /// Makes the change in the kernel, without waiting.
    fn make(self, fd: RawFd) -> Found {
        let set = |kind: c_int, start: i64, end: i64| {
            let length = Range { start, end, is_exclusive: false }.length();
            let range = record(kind, start, length);
            // SAFETY: - range is valid for reads: a local variable.
            outcome(unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const range) }.into())
        };
        match self {
            Self::Lock(Range { start, end, is_exclusive }) => {
                set(if is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK }, start, end)
            }
            Self::Unlock(start, end) => set(libc::F_UNLCK, start, end),
            Self::Whole(kind) => {
                let operation = kind.map_or(libc::LOCK_UN, |alone| if alone { libc::LOCK_EX } else { libc::LOCK_SH });
                // SAFETY: - touches no memory: flock takes numbers.
                outcome(unsafe { libc::flock(fd, operation | libc::LOCK_NB) }.into())
            }
        }
    }
}

fn record(kind: c_int, start: i64, length: i64) -> libc::flock {
    let (l_type, l_whence) = (kind as i16, libc::SEEK_SET as i16);
    libc::flock { l_type, l_whence, l_start: start, l_len: length, l_pid: 0 }
}

impl Owner {
    fn is_idle(&self) -> bool {
        self.ranges.is_empty() && self.whole.is_none()
    }

    /// The descriptor to which the locks belong in the kernel; `None` without one, or in a later life of the process.
    fn fd(&self) -> Option<RawFd> {
        match &self.locker {
            Locker::Lent(token) => lend::find(*token),
            Locker::Own(loan) => loan.fd(),
            Locker::None | Locker::Lost => None,
        }
    }

    fn record(&mut self, change: Change) {
        match change {
            Change::Lock(range) => self.ranges.lock(range),
            Change::Unlock(start, end) => self.ranges.unlock(start, end),
            Change::Whole(kind) => self.whole = kind,
        }
    }

    fn put(&mut self, locker: Locker) {
        if let Locker::Lent(token) = std::mem::replace(&mut self.locker, locker) {
            lend::forget(token);
        }
    }

    /// Records the token of the descriptor by which the leader has locked; it may be empty.
    fn follow(&mut self, token: &[u8]) {
        let token = Token::try_from(token).ok();
        if !matches!(self.locker, Locker::Lent(known) if token == Some(known)) {
            self.put(token.map_or(Locker::None, Locker::Lent));
        }
        // Takes the sent descriptor out of the queue, which has little room.
        token.map(lend::find);
    }

    /// All locks of the owner, as changes.
    fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        let whole = self.whole.map(|alone| Change::Whole(Some(alone)));
        self.ranges.iter().map(Change::Lock).chain(whole)
    }

    /// Takes all locks again, in a process that has none of them in the kernel. Returns false if another process has a
    /// conflicting lock: then this process has none of them. Locks that cannot be taken for another reason are lost.
    fn lock_again(&mut self) -> bool {
        let opened = reopen::open_by_name(&self.path, self.access).and_then(|file| {
            let is_it = Identity::of(file.as_raw_fd()) == Ok(self.identity);
            let loan = is_it.then(|| Loan::of(file.as_raw_fd()));
            loan.ok_or(libc::ESTALE)?.ok_or(libc::EMFILE)
        });
        let locked = opened.and_then(|loan| {
            let fd = loan.fd().ok_or(libc::EBADF)?;
            self.changes().try_for_each(|change| change.make(fd).map(drop)).map(|()| loan)
        });
        match locked {
            Ok(loan) => self.put(Locker::Own(loan)),
            Err(libc::EAGAIN | libc::EACCES | libc::EINTR) => return false,
            Err(error) => {
                redrt_process::say(format_args!(
                    "{}: the program's lock on {} is lost, as the file cannot be locked again here: {}",
                    host::get().identity(),
                    self.path.display(),
                    std::io::Error::from_raw_os_error(error)
                ));
                self.put(Locker::Lost);
            }
        }
        true
    }
}

/// Locks the list of owners. No image is taken meanwhile: in a copy the list would stay locked.
fn with_owners<T>(act: impl FnOnce(&mut Vec<Owner>) -> T) -> T {
    let _passage = undo::inside();
    let mut owners = lock(&OWNERS);
    let done = act(&mut owners);
    COUNT.store(owners.len(), Ordering::Release);
    done
}

/// Returns true if all locks of the program are in the kernel, so that this process may access its files as the leader.
/// Missing locks are taken again, if no other process has a conflicting one.
pub fn are_in_place() -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return true;
    }
    let is_missing = |owner: &Owner| !owner.is_idle() && !matches!(owner.locker, Locker::Lost) && owner.fd().is_none();
    with_owners(|owners| owners.iter_mut().filter(|owner| is_missing(owner)).all(|owner| owner.lock_again()))
}

/// Records the new path of a renamed file.
pub fn renamed(identity: Identity, path: &Path) {
    if COUNT.load(Ordering::Acquire) > 0 {
        let is_it = |owner: &&mut Owner| owner.identity == identity;
        with_owners(|owners| owners.iter_mut().filter(is_it).for_each(|owner| path.clone_into(&mut owner.path)));
    }
}

/// An open file of the program, in a call about its locks.
struct Subject<'a> {
    shared: &'a Shared,
    fd: RawFd,
    key: Key,
    path: PathBuf,
    identity: Identity,
    flags: c_int,
}

impl<'a> Subject<'a> {
    fn new(shared: &'a Shared, fd: RawFd, is_of_process: bool) -> Self {
        let description = lock(shared);
        let identity = description.identity;
        let key = if is_of_process { Key::Process(identity) } else { Key::Description(Arc::as_ptr(shared) as usize) };
        Self { shared, fd, key, path: description.path.clone(), identity, flags: description.flags }
    }

    fn owner<'o>(&self, owners: &'o mut Vec<Owner>) -> &'o mut Owner {
        let at = owners.iter().position(|owner| owner.key == self.key);
        let at = at.unwrap_or_else(|| {
            owners.push(Owner {
                key: self.key,
                path: self.path.clone(),
                identity: self.identity,
                access: self.flags,
                ranges: Ranges::default(),
                whole: None,
                locker: Locker::None,
            });
            owners.len() - 1
        });
        &mut owners[at]
    }

    /// Makes the descriptor to which the locks will belong in the kernel. `None` while another thread uses the file.
    fn make_locker(&self) -> Option<Result<Loan, c_int>> {
        let mut description = match self.shared.try_lock() {
            Ok(description) => description,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let made = description.file(self.shared, self.fd).and_then(|fd| {
            let apart = match self.key {
                Key::Process(_) => reopen::open_apart(fd, self.flags),
                Key::Description(_) => None,
            };
            Loan::of(apart.as_ref().map_or(fd, AsRawFd::as_raw_fd)).ok_or(libc::EMFILE)
        });
        Some(made)
    }

    /// The leader's part: makes the change in the kernel, and records it. `None` if it has to be repeated.
    fn attempt(&self, change: Change, waits: bool) -> Option<Found> {
        with_owners(|owners| {
            let owner = self.owner(owners);
            if owner.fd().is_none() && change.locks() {
                match self.make_locker()? {
                    Ok(loan) => owner.put(Locker::Own(loan)),
                    Err(error) => return Some(Err(error)),
                }
            }
            let Some(fd) = owner.fd() else {
                // The owner has no lock in the kernel.
                owner.record(change);
                return Some(Ok((0, Vec::new())));
            };
            match change.make(fd) {
                Err(libc::EINTR) => return None,
                Err(libc::EAGAIN | libc::EACCES) => {
                    if matches!(change, Change::Whole(_)) {
                        // flock(2): a conversion first removes the old lock, and may then fail to get the new one.
                        owner.record(Change::Whole(None));
                    }
                    return (!waits).then_some(Err(libc::EAGAIN));
                }
                Err(error) => return Some(Err(error)),
                // Recorded at once, so that the next image has the same locks as the kernel.
                Ok(_) => owner.record(change),
            }
            if !change.locks() {
                return Some(Ok((0, Vec::new())));
            }
            owner.locker = match std::mem::replace(&mut owner.locker, Locker::None) {
                Locker::Own(loan) => match lend::lend(loan) {
                    Ok(token) => Locker::Lent(token),
                    Err(refusal) => {
                        owner.locker = Locker::Own(refusal.loan);
                        if refusal.is_full {
                            return None;
                        }
                        return Some(Ok((0, Vec::new())));
                    }
                },
                locker => locker,
            };
            let token = if let Locker::Lent(token) = owner.locker { token.to_vec() } else { Vec::new() };
            Some(Ok((0, token)))
        })
    }

    fn set(&self, change: Change, waits: bool) -> Outcome {
        if is_silent() {
            return Ok(Done::Answered(0));
        }
        // The process that made the change in the kernel has recorded it. A copy that is made meanwhile has not made
        // it.
        let locked_by = Cell::new(None);
        let found = agree::perform_once_possible(change.digest(), || {
            let found = self.attempt(change, waits)?;
            locked_by.set(Some(descriptors::copy_number()));
            Some(found)
        });
        if locked_by.get() == Some(descriptors::copy_number()) {
            return found.map(|(result, _)| Done::Answered(result));
        }
        with_owners(|owners| {
            let owner = self.owner(owners);
            match &found {
                Ok((_, token)) => {
                    owner.record(change);
                    if change.locks() {
                        owner.follow(token);
                    }
                }
                Err(libc::EAGAIN) if matches!(change, Change::Whole(_)) => owner.record(Change::Whole(None)),
                Err(_) => {}
            }
        });
        found.map(|(result, _)| Done::Answered(result))
    }
}

/// `flock`.
pub fn lock_whole(call: &Call) -> Outcome {
    let Some(shared) = find(call.fd) else { return Ok(Done::Left) };
    let kind = match call.flags & !libc::LOCK_NB {
        libc::LOCK_SH => Some(false),
        libc::LOCK_EX => Some(true),
        libc::LOCK_UN => None,
        _ => return Err(libc::EINVAL),
    };
    let waits = call.flags & libc::LOCK_NB == 0;
    Subject::new(&shared, call.fd, false).set(Change::Whole(kind), waits)
}

/// Argument of `fcntl`: a range and a kind of lock.
struct Question {
    start: i64,
    end: i64,
    kind: c_int,
}

impl Question {
    fn of(asked: &libc::flock, shared: &Shared, fd: RawFd) -> Result<Self, c_int> {
        let base = match c_int::from(asked.l_whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => lock(shared).position.cast_signed(),
            libc::SEEK_END => table::size(shared, fd)?,
            _ => return Err(libc::EINVAL),
        };
        let (start, end) = resolve(base, asked.l_start, asked.l_len)?;
        Ok(Self { start, end, kind: asked.l_type.into() })
    }

    fn change(&self, flags: c_int) -> Result<Change, c_int> {
        let range = |is_exclusive| Change::Lock(Range { start: self.start, end: self.end, is_exclusive });
        match (self.kind, flags & libc::O_ACCMODE) {
            (libc::F_RDLCK, libc::O_WRONLY) | (libc::F_WRLCK, libc::O_RDONLY) => Err(libc::EBADF),
            (libc::F_RDLCK, _) => Ok(range(false)),
            (libc::F_WRLCK, _) => Ok(range(true)),
            (libc::F_UNLCK, _) => Ok(Change::Unlock(self.start, self.end)),
            _ => Err(libc::EINVAL),
        }
    }
}

/// `fcntl` with `F_SETLK`, `F_SETLKW`, `F_GETLK`, and the same of open files.
pub fn control(call: &Call) -> Outcome {
    let Some(shared) = find(call.fd) else { return Ok(Done::Left) };
    let asked = call.buffer.cast::<libc::flock>();
    if asked.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: - valid for reads and aligned: not null, and the contract of the program's call.
    let asked_for = unsafe { asked.read() };
    let is_of_process = matches!(call.flags, libc::F_SETLK | libc::F_SETLKW | libc::F_GETLK);
    if !is_of_process && asked_for.l_pid != 0 {
        return Err(libc::EINVAL);
    }
    let question = Question::of(&asked_for, &shared, call.fd)?;
    let subject = Subject::new(&shared, call.fd, is_of_process);
    if matches!(call.flags, libc::F_GETLK | libc::F_OFD_GETLK) {
        let answer = subject.ask(&question)?;
        // SAFETY: - valid for writes and aligned: not null, and the contract of the program's call.
        unsafe { asked.write(answer.unwrap_or(libc::flock { l_type: libc::F_UNLCK as i16, ..asked_for })) };
        return Ok(Done::Answered(0));
    }
    let waits = matches!(call.flags, libc::F_SETLKW | libc::F_OFD_SETLKW);
    subject.set(question.change(subject.flags)?, waits)
}

impl Subject<'_> {
    /// Another owner's lock that conflicts with this one; `None` if there is none.
    fn ask(&self, question: &Question) -> Result<Option<libc::flock>, c_int> {
        let description = std::cell::RefCell::new(lock(self.shared));
        let look = || {
            let own = with_owners(|owners| owners.iter().find(|owner| owner.key == self.key).and_then(Owner::fd));
            let fd = own.map_or_else(|| description.borrow_mut().file(self.shared, self.fd), Ok)?;
            let length = Range { start: question.start, end: question.end, is_exclusive: false }.length();
            let mut range = record(question.kind, question.start, length);
            // SAFETY: - range is valid for reads and writes: a local variable.
            outcome(unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut range) }.into())?;
            let words = [range.l_start, range.l_len, range.l_pid.into()];
            Ok((range.l_type.into(), words.map(i64::to_le_bytes).concat()))
        };
        let (kind, words) = observe(look).0?;
        let (words, _) = words.as_chunks();
        let [start, length, pid] = words else { return Err(libc::EIO) };
        let [start, length, pid] = [start, length, pid].map(|word| i64::from_le_bytes(*word));
        let found = libc::flock { l_pid: pid as i32, ..record(kind as c_int, start, length) };
        Ok((kind != i64::from(libc::F_UNLCK)).then_some(found))
    }
}

/// Releases locks when the program closes a descriptor: all locks of its process on the file and, with the last
/// descriptor of an open file, that file's own locks.
pub fn closed(shared: &Shared, is_last: bool) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let identity = lock(shared).identity;
    let description = Key::Description(Arc::as_ptr(shared) as usize);
    let ends = |owner: &Owner| owner.key == Key::Process(identity) || (is_last && owner.key == description);
    let unlock = || {
        with_owners(|owners| {
            for fd in owners.iter().filter(|owner| ends(owner)).filter_map(Owner::fd) {
                for change in [Change::Unlock(0, END), Change::Whole(None)] {
                    let _ = change.make(fd);
                }
            }
        });
        Ok((0, Vec::new()))
    };
    if with_owners(|owners| owners.iter().any(|owner| ends(owner) && !owner.is_idle())) {
        // If this fails, the kernel releases the locks once all siblings have closed their descriptors.
        let _ = agree::perform(|| Ok((0, Vec::new())), unlock);
    }
    with_owners(|owners| {
        owners.iter_mut().filter(|owner| ends(owner)).for_each(|owner| owner.put(Locker::None));
        owners.retain(|owner| !ends(owner));
    });
}

/// Drops all locks of this replica: another replica goes on alone.
pub fn end() {
    with_owners(|owners| owners.clear());
    lend::end();
}
