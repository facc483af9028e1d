//! Two ranks, each with an owner of its own in the kernel for the locks of its program.

use super::*;
use crate::posix::table::Description;
use redrt_process::Process;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

/// A rank that has a file open.
struct Rank {
    process: Process,
    file: File,
    shared: Shared,
}

impl Rank {
    fn new(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let identity = Identity::of(file.as_raw_fd()).unwrap();
        let description = Description::new(path.to_owned(), libc::O_RDWR, identity);
        let shared = Arc::new(Mutex::new(Description { is_here: true, ..description }));
        Self { process: Process::default(), file, shared }
    }

    fn enter<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: - no reference to process-local state is used later: results of the tests have none.
        unsafe { self.process.enter(act) }
    }

    /// Makes a change as the leader.
    fn set(&self, is_of_process: bool, change: Change, waits: bool) -> Option<Result<(), c_int>> {
        self.enter(|| {
            let subject = Subject::new(&self.shared, self.file.as_raw_fd(), is_of_process);
            Some(subject.attempt(change, waits)?.map(drop))
        })
    }

    /// Continues as a process that goes on from an image taken now, after the end of this one.
    fn go_on_from_image(&self) {
        self.forget_kernel();
        assert!(self.is_in_place());
    }

    /// Continues as another process that becomes this rank's leader, after the end of the first.
    fn forget_kernel(&self) {
        self.enter(|| {
            with_owners(|owners| {
                for owner in owners.iter_mut() {
                    let Some(fd) = owner.fd() else { continue };
                    for change in [Change::Unlock(0, END), Change::Whole(None)] {
                        change.make(fd).unwrap();
                    }
                    owner.put(Locker::None);
                }
            });
        });
    }

    fn is_in_place(&self) -> bool {
        self.enter(are_in_place)
    }
}

const fn range(start: i64, end: i64, is_exclusive: bool) -> Change {
    Change::Lock(Range { start, end, is_exclusive })
}

/// Conflicting changes of two ranks: true for locks of the process, the lock, and its release.
const CONFLICTS: [(bool, Change, Change); 4] = [
    (true, range(0, END, true), Change::Unlock(0, END)),
    (true, range(3, 9, true), Change::Unlock(2, 10)),
    (false, range(3, 9, true), Change::Unlock(0, END)),
    (false, Change::Whole(Some(true)), Change::Whole(None)),
];

fn ranks() -> (tempfile::TempDir, [Rank; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "bytes").unwrap();
    let ranks = [Rank::new(&path), Rank::new(&path)];
    (directory, ranks)
}

#[test]
fn a_lock_of_another_rank_is_tried_until_it_is_given_back() {
    let (_directory, [one, other]) = ranks();
    for (is_of_process, lock, unlock) in CONFLICTS {
        assert_eq!(one.set(is_of_process, lock, true), Some(Ok(())));
        assert_eq!(one.set(is_of_process, lock, false), Some(Ok(())));
        assert_eq!(other.set(is_of_process, lock, true), None);
        assert_eq!(other.set(is_of_process, lock, false), Some(Err(libc::EAGAIN)));
        assert_eq!(one.set(is_of_process, unlock, false), Some(Ok(())));
        assert_eq!(other.set(is_of_process, lock, true), Some(Ok(())));
        assert_eq!(other.set(is_of_process, unlock, false), Some(Ok(())));
    }
}

/// Once no other rank has them.
#[test]
fn locks_return_in_a_leader_that_had_none_in_the_kernel() {
    let (_directory, [one, other]) = ranks();
    for (is_of_process, lock, unlock) in CONFLICTS {
        assert_eq!(one.set(is_of_process, lock, true), Some(Ok(())));
        one.forget_kernel();
        assert_eq!(other.set(is_of_process, lock, true), Some(Ok(())));
        assert!(!one.is_in_place());
        assert_eq!(other.set(is_of_process, unlock, false), Some(Ok(())));
        assert!(one.is_in_place());
        assert_eq!(other.set(is_of_process, lock, false), Some(Err(libc::EAGAIN)));
        assert_eq!(one.set(is_of_process, unlock, false), Some(Ok(())));
        assert!(one.is_in_place() && one.enter(|| with_owners(|owners| owners.iter().all(Owner::is_idle))));
    }
}

#[test]
fn descriptors_share_locks_of_the_process_not_of_open_files() {
    let (_directory, [one, other]) = ranks();
    let [first, second] = [true, false].map(|is_of_process| {
        one.set(is_of_process, range(0, 10, true), true).unwrap().unwrap();
        let fd = other.file.as_raw_fd();
        // The other open file, of the same process.
        let found = one.enter(|| {
            let subject = Subject::new(&other.shared, fd, is_of_process);
            subject.attempt(range(5, 6, true), false)
        });
        one.set(is_of_process, Change::Unlock(0, END), true).unwrap().unwrap();
        found.map(|found| found.map(drop))
    });
    assert_eq!((first, second), (Some(Ok(())), Some(Err(libc::EAGAIN))));
}

/// While the program's calls have not returned yet. The image may be taken at any moment after a call.
#[test]
fn a_process_from_an_image_has_the_locks_that_the_kernel_had() {
    let (_directory, [one, other]) = ranks();
    for (is_of_process, lock, unlock) in CONFLICTS {
        assert_eq!(one.set(is_of_process, lock, true), Some(Ok(())));
        one.go_on_from_image();
        assert_eq!(other.set(is_of_process, lock, false), Some(Err(libc::EAGAIN)));
        assert_eq!(one.set(is_of_process, unlock, true), Some(Ok(())));
        one.go_on_from_image();
        assert_eq!(other.set(is_of_process, lock, false), Some(Ok(())));
        assert_eq!(other.set(is_of_process, unlock, false), Some(Ok(())));
    }
    let (shared, alone) = (Change::Whole(Some(false)), Change::Whole(Some(true)));
    assert_eq!([&one, &other].map(|rank| rank.set(false, shared, true)), [Some(Ok(())); 2]);
    // The old lock was released for the one that it waits for.
    assert_eq!(one.set(false, alone, true), None);
    one.go_on_from_image();
    assert_eq!(other.set(false, alone, false), Some(Ok(())));
}
