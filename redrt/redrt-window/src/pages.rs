//! Memory that ranks share, in jobs whose processes are saved or replicated.
//!
//! Each such process is in a process-id namespace of its own, so they cannot open each other's memory. Instead, the
//! daemon gives all processes of a host one descriptor, of memory with a *region* for each process of the job. This
//! memory is much longer than the host's memory, and consists of holes. The root of a window, its rank 0, takes a
//! stretch of its region; the other members find it in the directory at the region's beginning.
//!
//! ```text
//!   region of 0.0            region of 0.1            region of 1.0 …
//!   │ directory │ window of {0.0 1.0 2.0} │ … │ directory │ window of {0.1 1.1 2.1} │ …
//! ```
//! So replicas of one index share memory, a *plane* of the window. No message has an offset, which would differ between
//! replicas. A process on another host than its root finds no window, and cannot go on.
//!
//! **Images.** Each page is in the image of one member: the one in whose part the page begins. In a process that goes
//! on from an image, its own pages are private memory at first. It copies them to the shared memory of its present
//! host, maps the window at its former address, and waits until all members have done so.
//!
//! The trap: an image of a single replica has its part of the window at a moment that other members have passed
//! already. Only images of all members of a plane, taken while none runs, fit each other: those of a checkpoint. So a
//! process with such a window is not copied.

mod directory;

use super::mapping::Mapping;
use cloner_agent::Exclusions;
use directory::{ALIGNMENT, ENTRIES, free_place, lookup, record, region};
use redrt_abi::MPI_ERR_NO_MEM;
use redrt_abi::error::{Error, Result};
use redrt_comm::comm::Comm;
use redrt_comm::comm::cards::exchange;
use redrt_engine as engine;
use redrt_process::lock;
use redrt_runtime::decide;
use redrt_runtime::{self as runtime, Job};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::control::{FromAgent, WINDOW_REGION_BYTES};
use redrt_wire::lack::Lack;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE_BYTES: u64 = 4096;
/// Addresses of windows, far from those that the kernel chooses. So they are free when processes go on elsewhere, where
/// windows are mapped at the same addresses.
const REMOTE: u64 = 0x5000_0000_0000;
const REMOTE_END: u64 = 0x5800_0000_0000;

/// A window that this process maps.
struct Mapped {
    /// Members of the window, the root first.
    members: Arc<[VirtualRank]>,
    /// Context of the window, by which members find it in the directory.
    context: u64,
    /// Offset from the beginning of the root's region.
    offset: u64,
    start: u64,
    length: u64,
    /// Pages that are in images of this process: offsets from `start`.
    own: Range<u64>,
}

/// A stretch of this process's region.
struct Taken {
    length: u64,
    /// Context of the window.
    context: u64,
    /// Index in the directory.
    entry: usize,
}

/// Shared windows of this process.
pub struct Table {
    /// Stretches of this process's region in use, by offset.
    taken: BTreeMap<u64, Taken>,
    mapped: Vec<Mapped>,
    /// The cloner's list of memory that is not in images; `None` in a process that cannot be cloned.
    exclusions: Option<Exclusions>,
}

process_local! {
    /// Held while an image is taken, so that no window is mapped or unmapped.
    static TABLE: Mutex<Table> = const { Mutex::new(Table::new()) };
    /// Held while neighbors are reported, so that reports are in the order of the states.
    static TELLING: Mutex<()> = const { Mutex::new(()) };
}

/// A window's memory, as this process maps it.
pub struct Pages {
    root: VirtualRank,
    offset: u64,
    start: u64,
}

impl Pages {
    /// Memory of `total` zero bytes that all members map. `own` is this member's part, in bytes from the beginning.
    /// Ends this process if it cannot map the memory, or if a member is lost.
    pub fn new(comm: &Comm, total: u64, own: Range<u64>) -> Result<Self> {
        let job = runtime::job().ok_or_else(|| no_room(total))?;
        let (root, context) = (comm.members[0], comm.context);
        let taken = if comm.rank == 0 { lock(&TABLE).take(job, context, total) } else { Some(0) };
        let cards = exchange(comm, [u64::from(taken.is_some())])?;
        if cards[0] == [0] {
            return Err(no_room(total));
        }
        // Failures from here on are this process's own: its siblings may succeed.
        let Ok(Some(offset)) = lookup(job, root, context) else {
            return runtime::unable(Lack::Neighbor { rank: root.0 });
        };
        let members = comm.members.clone();
        let mapped = lock(&TABLE).map(job, Mapped { members, context, offset, start: 0, length: total, own });
        let start = match mapped {
            Ok(start) => start,
            Err(error) => runtime::unable(Lack::SharedMemory { errno: error.raw_os_error().unwrap_or(0) }),
        };
        let pages = Self { root, offset, start };
        report_neighbors(job);
        // No member goes on before all members have mapped the memory and reported it.
        exchange(comm, [0])?;
        // From now on the loss of a member ends this process in the same view. A member that was lost before writes
        // nothing.
        let is_live = |rank: &&VirtualRank| {
            let engine = engine::cell().lock();
            engine.view().is_none_or(|view| view.is_live(ReplicaId { rank: **rank, ..job.welcome.me }))
        };
        if let Some(rank) = comm.members.iter().find(|rank| !is_live(rank)) {
            return runtime::unable(Lack::Neighbor { rank: rank.0 });
        }
        Ok(pages)
    }

    /// Address of the first byte in this process.
    pub fn start(&self) -> usize {
        self.start as usize
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let Some(job) = runtime::job() else { return };
        let mut table = lock(&TABLE);
        table.unmap(self.start);
        if job.welcome.me.rank == self.root {
            table.give_back(job, self.offset);
        }
        drop(table);
        report_neighbors(job);
    }
}

/// A number that is the same for ranks that can share memory: they were placed on one host, and have replicas of the
/// same indexes. All replicas of a rank get the leader's value. A rank in which a copy has taken a place has a number
/// of its own: no other rank may be on the copy's plane.
pub fn neighborhood(job: &Job) -> u64 {
    const BY_ITSELF: u64 = 1 << 63;
    let rank = job.welcome.me.rank;
    if !job.has_shared_windows() {
        return BY_ITSELF | u64::from(rank.0);
    }
    decide::value(|engine| {
        let Some(view) = engine.view() else { return u64::from(job.welcome.neighborhood.0) << 32 };
        let live = view.live(rank).map(|replica| {
            view.member(replica).filter(|member| member.joined <= job.welcome.placed)?;
            1_u32.checked_shl(u32::from(replica.index.0))
        });
        let indexes = live.into_iter().try_fold(0, |bits, bit| Some(bits | bit?));
        indexes
            .map_or(BY_ITSELF | u64::from(rank.0), |bits| u64::from(job.welcome.neighborhood.0) << 32 | u64::from(bits))
    })
}

/// Ranks of the processes with which this process shares memory, itself among them.
pub fn neighbors() -> Vec<VirtualRank> {
    let table = lock(&TABLE);
    let all: BTreeSet<_> = table.mapped.iter().flat_map(|mapped| mapped.members.iter().copied()).collect();
    all.into_iter().collect()
}

/// Reports the neighbors to the daemon. Must not be called with the table locked: sending waits while an image is
/// taken, and taking one needs the table.
fn report_neighbors(job: &Job) {
    let _telling = lock(&TELLING);
    if let Some(control) = job.control {
        // If the daemon is gone, so is the job.
        let _ = control.send(&FromAgent::Shares(neighbors()));
    }
}

fn no_room(total: u64) -> Error {
    Error::new(MPI_ERR_NO_MEM, format!("there is no memory for a window of {total} bytes"))
}

/// Pages that begin within a part, as offsets. The window begins on a page.
fn pages_of(part: &Range<u64>) -> Range<u64> {
    let up = |bytes: u64| bytes.next_multiple_of(PAGE_BYTES);
    up(part.start)..up(part.end)
}

impl Table {
    const fn new() -> Self {
        Self { taken: BTreeMap::new(), mapped: Vec::new(), exclusions: None }
    }

    /// Returns true if this process shares windows.
    pub fn has_any(&self) -> bool {
        !self.mapped.is_empty() || !self.taken.is_empty()
    }

    /// At the root: takes a stretch of its region for a window, and enters it in the directory. `None` without room.
    fn take(&mut self, job: &Job, context: u64, total: u64) -> Option<u64> {
        let length = total.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let ranges = self.taken.iter().map(|(offset, taken)| *offset..offset + taken.length);
        let offset = free_place(ranges, ALIGNMENT, WINDOW_REGION_BYTES, length)?;
        let entry = (0..ENTRIES).find(|entry| self.taken.values().all(|taken| taken.entry != *entry))?;
        record(job, entry, context, offset).ok()?;
        self.taken.insert(offset, Taken { length, context, entry });
        Some(offset)
    }

    /// At the root: gives back the stretch of a freed window, which no member reaches any more.
    fn give_back(&mut self, job: &Job, offset: u64) {
        let Some(taken) = self.taken.remove(&offset) else { return };
        let _ = record(job, taken.entry, 0, 0);
        if let (Some(fd), Some(region)) = (job.welcome.windows, region(job, job.welcome.me.rank)) {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // Otherwise the next window would have its contents. In a file in memory the call cannot fail.
            // SAFETY: - touches no memory in use: the window of these bytes was freed at all members.
            unsafe { libc::fallocate(fd, mode, (region + offset) as libc::off_t, taken.length as libc::off_t) };
        }
    }

    /// Maps a window at a free address, and keeps other members' pages out of images. Returns the address.
    fn map(&mut self, job: &Job, window: Mapped) -> io::Result<u64> {
        let (Some(fd), Some(region)) = (job.welcome.windows, region(job, window.root())) else {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        };
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let length = window.length.max(1).next_multiple_of(PAGE_BYTES);
        let own = pages_of(&window.own);
        let taken = self.mapped.iter().map(|mapped| mapped.start..mapped.start + mapped.length);
        let hint = free_place(taken, REMOTE, REMOTE_END, length).ok_or_else(no_memory)?;
        let mapping = Mapping::of_part(fd, region + window.offset, length as usize, hint as usize)?;
        let mapped = Mapped { start: mapping.start() as u64, length, own, ..window };
        if let Some(exclusions) = &mut self.exclusions
            && !mapped.leave_out(exclusions)
        {
            mapped.carry(exclusions);
            return Err(no_memory());
        }
        let start = mapped.start;
        std::mem::forget(mapping);
        self.mapped.push(mapped);
        self.mapped.sort_by_key(|mapped| mapped.start);
        Ok(start)
    }

    fn unmap(&mut self, start: u64) {
        let Some(at) = self.mapped.iter().position(|mapped| mapped.start == start) else { return };
        let mapped = self.mapped.remove(at);
        // Before the unmapping: other memory may be at these addresses afterwards.
        if let Some(exclusions) = &mut self.exclusions {
            mapped.carry(exclusions);
        }
        // SAFETY: - mapped by `map`, with this length, and unmapped only here.
        //         - no longer used: the window was freed.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start as usize), mapped.length as usize) };
    }
}

impl Mapped {
    /// The rank in whose region the window is.
    fn root(&self) -> VirtualRank {
        self.members[0]
    }

    /// Ranges of addresses that are in images of other members.
    fn others(&self) -> impl Iterator<Item = Range<u64>> {
        let (end, own) = (self.start + self.length, self.start + self.own.start..self.start + self.own.end);
        let parts = match own.is_empty() {
            true => [self.start..end, end..end],
            false => [self.start..own.start, own.end..end],
        };
        parts.into_iter().filter(|part| !part.is_empty())
    }

    /// Excludes other members' pages from this process's images. Returns false if the list has no room for them.
    fn leave_out(&self, exclusions: &mut Exclusions) -> bool {
        self.others().all(|part| exclusions.add_memory(part.start, part.end - part.start))
    }

    fn carry(&self, exclusions: &mut Exclusions) {
        self.others().for_each(|part| exclusions.remove_memory(part.start));
    }

    /// In a process that goes on from an image: copies its pages to the host's shared memory, and maps the window at
    /// its former address.
    fn restore(&self, job: &Job) -> io::Result<()> {
        let (Some(fd), Some(region)) = (job.welcome.windows, region(job, self.root())) else {
            return Err(io::Error::other("the job has no memory for windows here"));
        };
        let place = region + self.offset;
        if !self.own.is_empty() {
            let length = (self.own.end - self.own.start) as usize;
            let there = Mapping::of_part(fd, place + self.own.start, length, 0)?;
            copy_pages(self.start + self.own.start, there.start() as u64, length);
        }
        let at = std::ptr::without_provenance_mut(self.start as usize);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        let length = self.length as usize;
        // SAFETY: - replaces no other memory: the range is the window's, with its own pages, which are copied, or
        //           nothing.
        match unsafe { libc::mmap(at, length, protection, flags, fd, place as libc::off_t) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// Copies pages, except pages of zeros: in the target they are zeros already, and take no memory.
fn copy_pages(from: u64, to: u64, length: usize) {
    for at in (0..length).step_by(PAGE_BYTES as usize) {
        let from = std::ptr::with_exposed_provenance::<[u64; PAGE_BYTES as usize / 8]>(from as usize + at);
        let to = std::ptr::with_exposed_provenance_mut::<[u64; PAGE_BYTES as usize / 8]>(to as usize + at);
        // SAFETY: - valid for reads and writes of a page, and aligned: both are mapped, in whole pages.
        //         - not used meanwhile: no other thread runs.
        unsafe {
            if (*from).iter().any(|word| *word != 0) {
                to.copy_from_nonoverlapping(from, 1);
            }
        }
    }
}

/// Passes the cloner's list, to which other members' pages are added: at once those of existing windows, and later
/// those of new ones.
pub fn report_to(exclusions: Exclusions) {
    let mut table = lock(&TABLE);
    let Table { mapped, exclusions: place, .. } = &mut *table;
    let exclusions = place.insert(exclusions);
    for mapped in mapped {
        // The list has room for the windows made before the agent began.
        let _ = mapped.leave_out(exclusions);
    }
}

/// Locks the table: no thread maps or unmaps a window while the guard is held.
pub fn still() -> MutexGuard<'static, Table> {
    lock(&TABLE)
}

/// Returns true if this process shares memory with others.
pub fn are_there() -> bool {
    lock(&TABLE).has_any()
}

/// In a process that goes on from an image of a checkpoint: restores its parts of windows, and its entries in the
/// directory.
pub fn restore(job: &Job) -> io::Result<()> {
    let table = lock(&TABLE);
    table.taken.iter().try_for_each(|(offset, taken)| record(job, taken.entry, taken.context, *offset))?;
    table.mapped.iter().try_for_each(|mapped| mapped.restore(job))
}

/// Called after all processes have restored their parts. The root of a window that is not on this host, though this
/// process shares it; `None` if all are here.
pub fn parted(job: &Job) -> Option<VirtualRank> {
    let table = lock(&TABLE);
    let is_here =
        |mapped: &&Mapped| lookup(job, mapped.root(), mapped.context).is_ok_and(|found| found == Some(mapped.offset));
    table.mapped.iter().find(|mapped| !is_here(mapped)).map(Mapped::root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_of_a_window_is_in_the_image_of_one_member() {
        for sizes in [&[100, 5000, 0, 4096, 1][..], &[0, 0, 8192], &[4096, 4096], &[1, 1, 1]] {
            let mut next = 0;
            let mut begin = 0;
            for size in sizes {
                let pages = pages_of(&(begin..begin + size));
                assert_eq!(pages.start.max(next), next, "{sizes:?}: a page twice");
                assert!(pages.is_empty() || pages.start == next, "{sizes:?}: a page is nobody's");
                (next, begin) = (next.max(pages.end), begin + size);
            }
            assert_eq!(next, begin.next_multiple_of(PAGE_BYTES), "{sizes:?}");
        }
    }

    #[test]
    fn what_is_not_a_members_own_is_left_out() {
        let others = |own: Range<u64>| {
            let members = [VirtualRank(0)].into();
            let window = Mapped { members, context: 1, offset: 0, start: 0x10000, length: 0x5000, own };
            window.others().map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(others(0..0x5000), &[]);
        assert_eq!(others(0x2000..0x2000), [(0x10000, 0x15000)]);
        assert_eq!(others(0..0x1000), [(0x11000, 0x15000)]);
        assert_eq!(others(0x2000..0x3000), [(0x10000, 0x12000), (0x13000, 0x15000)]);
    }
}
