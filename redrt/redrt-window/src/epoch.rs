//! The open epochs of a process on a window, and the calls that are allowed in them (MPI-5.0 §12.5).

use redrt_abi::MPI_ERR_RMA_SYNC;
use redrt_abi::error::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// An access epoch: the targets that this process may reach.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Access {
    /// No target: there is no access epoch.
    #[default]
    Closed,
    /// All targets, until the next fence.
    Fence,
    /// The targets that were passed to `MPI_Win_start`.
    Started(Vec<u32>),
    /// The targets that the process has locked.
    Locked,
    /// All targets, with shared locks; a lock is requested when its target is first reached.
    LockedAll {
        /// True if no other process holds a conflicting lock (`MPI_MODE_NOCHECK`): locks need not be requested.
        unchecked: bool,
    },
}

/// A lock of an access epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// True if no other process holds a conflicting lock (`MPI_MODE_NOCHECK`): the lock was not requested.
    pub unchecked: bool,
    /// True if no other process may have the lock.
    pub exclusive: bool,
}

/// Cache of the latest target that the access epoch covers, so that the next operation on it is not checked again.
#[derive(Debug)]
pub struct Latest(AtomicU64);

/// Flag beside a rank: the target may be flushed in this epoch.
const MAY_FLUSH: u64 = 1 << 32;
const NOBODY: u64 = u64::MAX;

impl Default for Latest {
    fn default() -> Self {
        Self(AtomicU64::new(NOBODY))
    }
}

impl Latest {
    /// Returns true if `target` is the latest one.
    #[inline]
    pub fn is(&self, target: u32) -> bool {
        self.0.load(Ordering::Relaxed) & !MAY_FLUSH == u64::from(target)
    }

    /// Returns true if `target` is the latest one and may be flushed.
    #[inline]
    pub fn may_flush(&self, target: u32) -> bool {
        self.0.load(Ordering::Relaxed) == u64::from(target) | MAY_FLUSH
    }

    /// Makes `target` the latest one.
    pub fn record(&self, target: u32, may_flush: bool) {
        self.0.store(u64::from(target) | if may_flush { MAY_FLUSH } else { 0 }, Ordering::Relaxed);
    }

    /// Empties the cache. Called when epochs begin or end.
    pub fn forget(&self) {
        self.0.store(NOBODY, Ordering::Relaxed);
    }
}

/// The epochs of one process on one window.
#[derive(Clone, Default, Debug)]
pub struct Epochs {
    access: Access,
    /// Locked targets, in the order of ranks. The vector keeps its memory for the next epoch.
    locks: Vec<(u32, Held)>,
    exposed_to: Option<Vec<u32>>,
}

fn wrong<T>(what: &'static str) -> Result<T> {
    Err(Error::new(MPI_ERR_RMA_SYNC, what))
}

fn not_exposed<T>() -> Result<T> {
    wrong("MPI_Win_wait or MPI_Win_test without MPI_Win_post")
}

impl Epochs {
    /// Targets that this process may reach now.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Fails unless an operation on `target` is allowed now.
    pub fn check_access(&self, target: u32) -> Result {
        match &self.access {
            Access::Fence | Access::LockedAll { .. } => Ok(()),
            Access::Started(targets) if targets.contains(&target) => Ok(()),
            Access::Locked if self.place(target).is_ok() => Ok(()),
            Access::Started(_) => wrong("the target is not in the group that MPI_Win_start was given"),
            Access::Locked => wrong("the target is not locked"),
            Access::Closed => {
                wrong("no access epoch is open: call MPI_Win_fence, MPI_Win_start or MPI_Win_lock before")
            }
        }
    }

    /// Fails unless a fence is allowed now.
    pub fn check_fence(&self) -> Result {
        match (&self.access, &self.exposed_to) {
            (Access::Closed | Access::Fence, None) => Ok(()),
            _ => wrong("MPI_Win_fence within another epoch"),
        }
    }

    /// Ends the fence epoch, and begins the next one if operations may follow (`goes_on`).
    pub fn fence(&mut self, goes_on: bool) {
        self.access = if goes_on { Access::Fence } else { Access::Closed };
    }

    fn may_begin(&self) -> bool {
        // A fence opens an epoch only if operations follow, so another kind may follow it instead.
        matches!(self.access, Access::Closed | Access::Fence)
    }

    /// Fails unless `MPI_Win_start` is allowed now.
    pub fn check_start(&self) -> Result {
        if self.may_begin() { Ok(()) } else { wrong("MPI_Win_start within another access epoch") }
    }

    /// Begins an access epoch to these targets.
    pub fn start(&mut self, targets: Vec<u32>) -> Result {
        self.check_start()?;
        self.access = Access::Started(targets);
        Ok(())
    }

    /// Index of a target's lock among those held, or the index at which to insert it.
    fn place(&self, target: u32) -> std::result::Result<usize, usize> {
        self.locks.binary_search_by_key(&target, |(locked, _)| *locked)
    }

    /// The targets of the epoch that `MPI_Win_complete` is about to end.
    pub fn started(&self) -> Result<Vec<u32>> {
        match &self.access {
            Access::Started(targets) => Ok(targets.clone()),
            _ => wrong("MPI_Win_complete without MPI_Win_start"),
        }
    }

    /// Ends the access epoch that `MPI_Win_start` began, and returns its targets.
    pub fn complete(&mut self) -> Result<Vec<u32>> {
        match std::mem::take(&mut self.access) {
            Access::Started(targets) => Ok(targets),
            other => {
                self.access = other;
                self.started()
            }
        }
    }

    /// Ends the access epoch.
    pub fn close(&mut self) {
        self.access = Access::Closed;
    }

    /// Begins a lock epoch at one target (`MPI_Win_lock`).
    pub fn lock(&mut self, target: u32, held: Held) -> Result {
        if self.may_begin() {
            self.access = Access::Locked;
        }
        if self.access != Access::Locked {
            return wrong("MPI_Win_lock within another access epoch");
        }
        match self.place(target) {
            Ok(_) => wrong("the target is locked already"),
            Err(place) => {
                self.locks.insert(place, (target, held));
                Ok(())
            }
        }
    }

    /// The lock that `MPI_Win_unlock` is about to release.
    pub fn locked(&self, target: u32) -> Result<Held> {
        match self.access {
            Access::Locked => match self.place(target) {
                Ok(place) => Ok(self.locks[place].1),
                Err(_) => wrong("the target is not locked"),
            },
            _ => wrong("MPI_Win_unlock without MPI_Win_lock"),
        }
    }

    /// Releases the lock of one target, and returns it.
    pub fn unlock(&mut self, target: u32) -> Result<Held> {
        let held = self.locked(target)?;
        self.locks.retain(|(locked, _)| *locked != target);
        if self.locks.is_empty() {
            self.access = Access::Closed;
        }
        Ok(held)
    }

    /// Begins a lock epoch at all targets (`MPI_Win_lock_all`).
    pub fn lock_all(&mut self, unchecked: bool) -> Result {
        if !self.may_begin() {
            return wrong("MPI_Win_lock_all within another access epoch");
        }
        self.access = Access::LockedAll { unchecked };
        Ok(())
    }

    /// Returns true if the locks that `MPI_Win_unlock_all` is about to release were not requested (`MPI_MODE_NOCHECK`).
    pub fn locked_all(&self) -> Result<bool> {
        match self.access {
            Access::LockedAll { unchecked } => Ok(unchecked),
            _ => wrong("MPI_Win_unlock_all without MPI_Win_lock_all"),
        }
    }

    /// Fails unless a flush of `target` (of all, for `None`) is allowed now.
    pub fn check_flush(&self, target: Option<u32>) -> Result {
        match (&self.access, target) {
            (Access::LockedAll { .. }, _) | (Access::Locked, None) => Ok(()),
            (Access::Locked, Some(target)) if self.place(target).is_ok() => Ok(()),
            _ => wrong("a flush where the target is not locked"),
        }
    }

    /// Fails unless `MPI_Win_post` is allowed now.
    pub fn check_post(&self) -> Result {
        if self.exposed_to.is_none() { Ok(()) } else { wrong("MPI_Win_post within an exposure epoch") }
    }

    /// Begins an exposure epoch for these origins.
    pub fn post(&mut self, origins: Vec<u32>) -> Result {
        self.check_post()?;
        if self.access == Access::Fence {
            self.access = Access::Closed;
        }
        self.exposed_to = Some(origins);
        Ok(())
    }

    /// The origins of the exposure epoch.
    pub fn exposed(&self) -> Result<Vec<u32>> {
        self.exposed_to.clone().map_or_else(not_exposed, Ok)
    }

    /// Ends the exposure epoch, and returns its origins.
    pub fn end_exposure(&mut self) -> Result<Vec<u32>> {
        self.exposed_to.take().map_or_else(not_exposed, Ok)
    }

    /// Fails unless the window may be freed now.
    pub fn check_free(&self) -> Result {
        match (&self.access, &self.exposed_to) {
            (Access::Closed | Access::Fence, None) => Ok(()),
            _ => wrong("MPI_Win_free within an epoch"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Held = Held { unchecked: false, exclusive: false };

    #[test]
    fn operations_need_an_epoch_that_reaches_their_target() {
        let mut epochs = Epochs::default();
        assert_eq!(epochs.check_access(0).unwrap_err().code(), MPI_ERR_RMA_SYNC);
        epochs.fence(true);
        epochs.check_access(3).unwrap();
        epochs.fence(false);
        assert!(epochs.check_access(3).is_err());
        epochs.lock(1, HELD).unwrap();
        epochs.check_access(1).unwrap();
        assert!(epochs.check_access(2).is_err() && epochs.lock(1, HELD).is_err());
        epochs.lock(2, HELD).unwrap();
        epochs.unlock(1).unwrap();
        assert!(epochs.check_access(1).is_err() && epochs.check_flush(Some(1)).is_err());
        epochs.check_flush(Some(2)).unwrap();
        assert!(epochs.unlock(1).is_err());
        epochs.unlock(2).unwrap();
        epochs.start(vec![4]).unwrap();
        epochs.check_access(4).unwrap();
        assert!(epochs.check_access(1).is_err() && epochs.lock_all(false).is_err());
    }

    #[test]
    fn the_latest_target_is_nobody_else() {
        let latest = Latest::default();
        assert!(!latest.is(0) && !latest.is(u32::MAX) && !latest.may_flush(u32::MAX));
        latest.record(3, false);
        assert!(latest.is(3) && !latest.is(2) && !latest.may_flush(3));
        latest.record(2, true);
        assert!(latest.is(2) && latest.may_flush(2) && !latest.may_flush(3));
        latest.forget();
        assert!(!latest.is(2) && !latest.may_flush(2));
    }

    #[test]
    fn calls_that_end_an_epoch_need_its_beginning() {
        let mut epochs = Epochs::default();
        assert!(epochs.started().is_err() && epochs.locked(0).is_err() && epochs.locked_all().is_err());
        assert!(epochs.exposed().is_err() && epochs.check_flush(None).is_err());
        epochs.post(vec![1]).unwrap();
        assert!(epochs.post(vec![1]).is_err() && epochs.check_fence().is_err() && epochs.check_free().is_err());
        epochs.start(vec![0]).unwrap();
        assert_eq!(epochs.complete().unwrap(), [0]);
        assert!(epochs.complete().is_err());
        assert_eq!(epochs.end_exposure().unwrap(), [1]);
        assert!(epochs.end_exposure().is_err());
        epochs.check_free().unwrap();
        epochs.lock_all(true).unwrap();
        assert!(epochs.locked_all().unwrap() && epochs.check_free().is_err() && epochs.check_fence().is_err());
    }
}
