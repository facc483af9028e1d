//! Epochs: fences, posts and starts, locks, flushes (MPI-5.0 §12.5).

use super::epoch::{Epochs, Held};
use super::order::Order;
use super::{Purpose, Window};
use redrt_abi::error::{Error, Result};
use redrt_comm::coll::reduce::{Combine, reduce_scatter};
use redrt_engine::payload::{Payload, Target};
use redrt_engine::tasks::block_on;
use redrt_engine::{self as engine};
use redrt_process::lock;
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::{Region, Scratch};

/// Addition of 64-bit counts.
struct Sum;

impl Combine for Sum {
    fn combine(&self, left: Region, right: Region) -> std::result::Result<(), Error> {
        left.with_bytes(|left| {
            right.with_bytes_mut(|right| {
                for (left, right) in left.chunks_exact(WORD_BYTES).zip(right.chunks_exact_mut(WORD_BYTES)) {
                    right.copy_from_slice(&(word(left) + word(right)).to_ne_bytes());
                }
            });
        });
        Ok(())
    }

    fn element_bytes(&self) -> usize {
        WORD_BYTES
    }

    fn commutes(&self) -> bool {
        true
    }

    fn is_fast(&self) -> bool {
        true
    }
}

const WORD_BYTES: usize = size_of::<u64>();

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
}

impl Window {
    fn all(&self) -> Vec<u32> {
        (0..self.members.len() as u32).collect()
    }

    fn me(&self) -> [u32; 1] {
        [self.rank()]
    }

    /// `MPI_Win_fence`. With `goes_on` the next epoch begins.
    pub fn fence(&self, goes_on: bool) -> Result {
        lock(&self.origin).epochs.check_fence()?;
        let outcome = match &self.direct {
            Some(direct) => {
                let outcome = self.carry_out(direct, None);
                direct.fence();
                outcome
            }
            None => self.served_fence(),
        };
        self.change_epochs(|epochs| epochs.fence(goes_on));
        outcome
    }

    fn served_fence(&self) -> Result {
        // In a dynamic window only the target knows the reachable memory: errors come with its answer.
        let touched = lock(&self.origin).touched();
        let outcome = if self.is_dynamic() { self.settle(&touched, flush) } else { Ok(()) };
        self.complete_here(&touched);
        let (number, counts) = {
            let mut origin = lock(&self.origin);
            origin.settled(&touched);
            (origin.fence, origin.take_fence_counts())
        };
        let expected = self.sum_of_counts(&counts)?;
        // When this wait ends, all members have come to the fence, and their operations of this epoch are done here.
        engine::cell().wait_for(|_| {
            let mut served = lock(&self.served);
            let is_done = served.by_fence.get(&number).copied().unwrap_or(0) == expected
                || mutation::is_planted(Mutation::FenceUncounted);
            is_done.then(|| served.by_fence.remove(&number))
        });
        lock(&self.origin).fence += 1;
        outcome
    }

    /// Number of operations of all members on this one in the epoch. `counts` are this member's operations, by target.
    fn sum_of_counts(&self, counts: &[u64]) -> Result<u64> {
        let mut scratch = Scratch::new(WORD_BYTES * counts.len());
        let all = scratch.region();
        all.with_bytes_mut(|bytes| {
            for (place, count) in bytes.chunks_exact_mut(WORD_BYTES).zip(counts) {
                place.copy_from_slice(&count.to_ne_bytes());
            }
        });
        let mut own = Scratch::new(WORD_BYTES);
        let mine = own.region();
        let bounds = (0..=counts.len()).map(|number| number * WORD_BYTES).collect();
        block_on(reduce_scatter(self.comm.blocking_peers()?, all, bounds, mine, &Sum))?;
        Ok(mine.with_bytes(word))
    }

    /// Begins an exposure epoch. With `tell` its origins get a message; without it they need none (`MPI_MODE_NOCHECK`).
    pub fn post(&self, origins: Vec<u32>, tell: bool) -> Result {
        if let Some(direct) = &self.direct {
            lock(&self.origin).epochs.check_post()?;
            if tell {
                direct.post(&origins);
            }
            return self.change_epochs(|epochs| epochs.post(origins));
        }
        self.change_epochs(|epochs| epochs.post(origins.clone()))?;
        for origin in origins.into_iter().filter(|_| tell) {
            self.send(Purpose::Posts, origin, 0, Payload::Owned(Box::default()));
        }
        Ok(())
    }

    /// Begins an access epoch. With `wait`, waits until its targets have posted.
    pub fn start(&self, targets: Vec<u32>, wait: bool) -> Result {
        if let Some(direct) = &self.direct {
            lock(&self.origin).epochs.check_start()?;
            if wait {
                direct.start(&targets);
            }
            let first = targets.first().copied();
            self.change_epochs(|epochs| epochs.start(targets))?;
            first.into_iter().for_each(|target| self.latest.record(target, false));
            return Ok(());
        }
        self.change_epochs(|epochs| epochs.start(targets.clone()))?;
        let wait = wait && !mutation::is_planted(Mutation::PostIgnored);
        for target in targets.into_iter().filter(|_| wait) {
            let context = self.context(Purpose::Posts);
            let posted = engine::cell().lock().post(context, Some(target), Some(0), Target::nowhere());
            engine::cell().finish(posted);
        }
        Ok(())
    }

    /// Ends the access epoch.
    pub fn complete(&self) -> Result {
        if let Some(direct) = &self.direct {
            let targets = self.change_epochs(Epochs::complete)?;
            let outcome = self.carry_out(direct, None);
            direct.complete(&targets);
            return outcome;
        }
        let targets = lock(&self.origin).epochs.started()?;
        let outcome = if self.is_dynamic() { self.settle(&targets, flush) } else { Ok(()) };
        for target in &targets {
            let _issuing = lock(&self.issuing);
            self.request(*target, Order::Complete, None, &[]);
        }
        self.complete_here(&targets);
        lock(&self.origin).settled(&targets);
        self.change_epochs(Epochs::close);
        outcome
    }

    /// Ends the exposure epoch when all its origins have ended their access epochs.
    pub fn wait(&self) -> Result {
        if let Some(direct) = &self.direct {
            let origins = self.change_epochs(Epochs::end_exposure)?;
            direct.end_exposure(&origins);
            return Ok(());
        }
        let origins = lock(&self.origin).epochs.exposed()?;
        engine::cell().wait_for(|_| self.have_completed(&origins).then_some(()));
        self.end_exposure(&origins)
    }

    /// Ends the exposure epoch if all its origins have ended their access epochs. Returns true if it has ended.
    pub fn test(&self) -> Result<bool> {
        let origins = lock(&self.origin).epochs.exposed()?;
        let have_completed = redrt_runtime::decide::condition(origins.len(), |_| self.have_completed(&origins));
        if have_completed {
            self.end_exposure(&origins)?;
        }
        Ok(have_completed)
    }

    fn have_completed(&self, origins: &[u32]) -> bool {
        if let Some(direct) = &self.direct {
            return direct.have_completed(origins);
        }
        let served = lock(&self.served);
        origins.iter().all(|origin| served.completes[*origin as usize] > 0)
    }

    fn end_exposure(&self, origins: &[u32]) -> Result {
        if let Some(direct) = &self.direct {
            direct.end_exposure(origins);
        } else {
            let mut served = lock(&self.served);
            for origin in origins {
                served.completes[*origin as usize] -= 1;
            }
        }
        self.change_epochs(Epochs::end_exposure).map(drop)
    }

    /// Returns true if the program may reach the target's memory with loads and stores once it has the lock.
    fn loads_from(&self, target: u32) -> bool {
        self.is_shared() || target == self.rank()
    }

    /// Locks one target. With `unchecked` (`MPI_MODE_NOCHECK`) the lock is not requested.
    pub fn lock(&self, target: u32, exclusive: bool, unchecked: bool) -> Result {
        self.change_epochs(|epochs| epochs.lock(target, Held { unchecked, exclusive }))?;
        if let Some(direct) = &self.direct {
            if !unchecked {
                direct.lock(target, exclusive);
            }
            self.latest.record(target, true);
        } else if !unchecked {
            let _issuing = lock(&self.issuing);
            self.ask_lock(target, exclusive, self.loads_from(target));
        }
        Ok(())
    }

    /// Releases the lock of one target, after all operations on it are done.
    pub fn unlock(&self, target: u32) -> Result {
        let Some(direct) = &self.direct else {
            let held = lock(&self.origin).epochs.locked(target)?;
            let outcome = self.settle(&[target], if held.unchecked { flush } else { unlock });
            self.change_epochs(|epochs| epochs.unlock(target))?;
            return outcome;
        };
        let held = self.change_epochs(|epochs| epochs.unlock(target))?;
        let outcome = self.carry_out(direct, Some(target));
        if held.unchecked {
            direct.flush();
        } else {
            direct.unlock(target, held.exclusive);
        }
        outcome
    }

    /// Locks all targets. With `unchecked` (`MPI_MODE_NOCHECK`) no lock is requested.
    pub fn lock_all(&self, unchecked: bool) -> Result {
        self.change_epochs(|epochs| epochs.lock_all(unchecked))?;
        // This process's server comes last: it stands still from its answer until the program has taken note.
        let others_first = self.all().into_iter().filter(|target| *target != self.rank()).chain(self.me());
        for target in others_first.filter(|target| !unchecked && self.loads_from(*target)) {
            if let Some(direct) = &self.direct {
                self.record_lock(target);
                direct.lock(target, false);
                continue;
            }
            let _issuing = lock(&self.issuing);
            self.record_lock(target);
            self.ask_lock(target, false, true);
        }
        Ok(())
    }

    /// Releases all locks, after all operations are done at their targets.
    pub fn unlock_all(&self) -> Result {
        let unchecked = lock(&self.origin).epochs.locked_all()?;
        if let Some(direct) = &self.direct {
            let outcome = self.carry_out(direct, None);
            let asked = lock(&self.origin).take_asked_locks();
            asked.iter().for_each(|target| direct.unlock(*target, false));
            direct.flush();
            self.change_epochs(Epochs::close);
            return outcome;
        }
        let outcome = if unchecked {
            let touched = lock(&self.origin).touched();
            self.settle(&touched, flush)
        } else {
            let asked = lock(&self.origin).take_asked_locks();
            self.settle(&asked, unlock)
        };
        self.change_epochs(Epochs::close);
        outcome
    }

    /// Waits until operations on the target, or on all for `None`, are done at the target.
    pub fn flush(&self, target: Option<u32>) -> Result {
        if let Some(direct) = &self.direct {
            if !target.is_some_and(|target| self.latest.may_flush(target)) {
                lock(&self.origin).epochs.check_flush(target)?;
            }
            let outcome = self.carry_out(direct, target);
            direct.flush();
            return outcome;
        }
        lock(&self.origin).epochs.check_flush(target)?;
        match target {
            Some(target) => self.settle(&[target], flush),
            None => {
                let mut touched = lock(&self.origin).touched();
                if !touched.contains(&self.rank()) {
                    touched.push(self.rank());
                }
                self.settle(&touched, flush)
            }
        }
    }

    /// Waits until operations on the target, or on all for `None`, are complete at the origin.
    pub fn flush_local(&self, target: Option<u32>) -> Result {
        lock(&self.origin).epochs.check_flush(target)?;
        if let Some(direct) = &self.direct {
            direct.make_progress();
            return self.carry_out(direct, target);
        }
        self.complete_here(&target.map_or_else(|| self.all(), |target| vec![target]));
        Ok(())
    }

    /// `MPI_Win_sync`. Afterwards the memory of this process has all operations that were sent to it so far, the same
    /// ones in all replicas.
    pub fn sync(&self) -> Result {
        if let Some(direct) = &self.direct {
            direct.flush();
            return Ok(());
        }
        self.settle(&self.me(), flush)
    }

    /// Lets origins reach memory of this process, in a dynamic window.
    pub fn attach(&self, address: u64, size: u64) -> Result {
        self.settle(&self.me(), |tag| Order::Attach { address, size, tag })
    }

    /// Stops that for the memory that begins at `address`.
    pub fn detach(&self, address: u64) -> Result {
        self.settle(&self.me(), |tag| Order::Detach { address, tag })
    }

    /// Ends the window. Collective; no requests come afterwards.
    pub fn close(&self) -> Result {
        self.complete_here(&self.all());
        // Operations after the last fence are carried out too.
        let outcome = self.direct.as_ref().map_or(Ok(()), |direct| self.carry_out(direct, None));
        block_on(redrt_comm::coll::barrier::barrier(self.comm.blocking_peers()?))?;
        if self.direct.is_some() {
            return outcome;
        }
        self.request(self.rank(), Order::Close, None, &[]);
        engine::cell().wait_for(|_| lock(&self.served).is_closed.then_some(()));
        Ok(())
    }
}

fn flush(tag: i32) -> Order {
    Order::Flush { tag }
}

fn unlock(tag: i32) -> Order {
    Order::Unlock { tag }
}
