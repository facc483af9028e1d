//! Creation of windows: collective; members exchange descriptions of the memory that they expose.

use super::apply::Reach;
use super::direct::{Control, Direct, Part};
use super::epoch::Latest;
use super::kept;
use super::mapping::Mapping;
use super::memory::{Block, Memory, Shared};
use super::origin::Origin;
use super::pages::{self, Pages};
use super::server::{Served, serve};
use super::{Exposed, Facts, REMOVED, WINDOWS, Window};
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::WinHandle;
use redrt_abi::{
    MPI_ERR_COMM, MPI_ERR_NO_MEM, MPI_ERR_RMA_SHARED, MPI_ERR_UNSUPPORTED_OPERATION, MPI_WIN_FLAVOR_ALLOCATE,
    MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_FLAVOR_SHARED, MPI_WIN_SEPARATE, MPI_WIN_UNIFIED,
};
use redrt_comm::coll;
use redrt_comm::comm::cards::{self, exchange};
use redrt_comm::comm::{self, Comm, comm_board};
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::info::Info;
use redrt_engine as engine;
use redrt_process::lock;
use redrt_runtime::{self as runtime, Job, progress};
use redrt_transport::board::Member;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

/// Memory that this member exposes.
#[derive(Clone, Copy, Debug)]
pub enum Memories {
    /// Memory of the program: address, bytes, unit.
    Create(usize, u64, c_int),
    /// Memory that the library allocates: bytes, unit.
    Allocate(u64, c_int),
    /// Memory that all members reach by loads and stores: bytes, unit, and true if each part begins on a page.
    Share(u64, c_int, bool),
    /// Memory that the program will attach.
    Dynamic,
}

/// Makes a window over `parent`, and starts its server unless it is direct. Fails at all members if one of them has no
/// memory.
pub fn create(parent: &Arc<Comm>, memories: Memories, info: Option<Arc<Info>>) -> Result<Arc<Window>> {
    if parent.remote.is_some() {
        return Err(Error::new(MPI_ERR_COMM, format!("{} is an intercommunicator", parent.label())));
    }
    check_verification(parent)?;
    let attached = Arc::new(Attached::new());
    parent.reclaim()?;
    let comm = parent.duplicate(attached.clone());
    *lock(&comm.name) = format!("a window over {}", parent.label());
    let made = furnish(&comm, memories);
    if made.is_err() {
        let _ = comm::remove(comm.handle());
    }
    let Furnished { memory, start, size, unit, flavor, members, direct } = made?;
    let is_replicated = runtime::job().is_some_and(|job| job.welcome.world.is_replicated());
    let model = if is_replicated { MPI_WIN_SEPARATE } else { MPI_WIN_UNIFIED };
    let reach = match flavor {
        MPI_WIN_FLAVOR_DYNAMIC => Reach::Attached(Vec::new()),
        _ => Reach::Fixed { start: start as u64, size, unit: unit as u64 },
    };
    let count = members.len();
    let is_served = direct.is_none();
    let window = Arc::new(Window {
        handle: OnceLock::new(),
        comm,
        flavor,
        facts: Facts { base: start, size: size as isize, unit, flavor, model },
        members,
        attached,
        name: Mutex::default(),
        info: Mutex::new(Arc::new(info.map_or_else(Info::default, |info| info.duplicate()))),
        direct: direct.map(Arc::new),
        latest: Latest::default(),
        origin: Mutex::new(Origin::new(count)),
        served: Mutex::new(Served::new(reach, count)),
        issuing: Mutex::default(),
        thread: runtime::threads::number(),
        _memory: memory,
        _helped: if is_served && count > 1 { progress::help() } else { None },
    });
    let _ = window.handle.set(WinHandle(WINDOWS.insert(window.clone())));
    if is_served {
        let server = coll::start(serve(window.clone()));
        engine::cell().lock().requests.detach(server);
    }
    Ok(window)
}

fn check_verification(comm: &Comm) -> Result {
    if runtime::job().is_some_and(Job::refuses_windows) && comm.size() > 1 {
        let message = "windows of replicas are possible with redrun --verify strict only, which is the default";
        return Err(Error::unsupported(MPI_ERR_UNSUPPORTED_OPERATION, message));
    }
    Ok(())
}

/// Takes a window out of the table. All its operations are complete, at all members.
pub fn remove(window: &Window) {
    WINDOWS.remove(window.handle().0);
    REMOVED.fetch_add(1, Ordering::Relaxed);
    if let Some(direct) = &window.direct {
        let is_lent = window.flavor == MPI_WIN_FLAVOR_CREATE;
        direct.retire(if is_lent { 0 } else { window.facts.size as usize });
    }
    let _ = comm::remove(window.comm.handle());
}

/// Card that a member sends: facts of its part, and in the last word ([`KEPT`]) the memory kept of an earlier window.
type Card = cards::Card<5>;

struct Furnished {
    memory: Memory,
    start: usize,
    size: u64,
    unit: c_int,
    flavor: c_int,
    members: Vec<Exposed>,
    direct: Option<Direct>,
}

impl Furnished {
    /// A window with a server, over memory in this process.
    fn served(memory: Memory, start: usize, size: u64, unit: c_int, flavor: c_int, members: Vec<Exposed>) -> Self {
        Self { memory, start, size, unit, flavor, members, direct: None }
    }
}

fn furnish(comm: &Comm, memories: Memories) -> Result<Furnished> {
    match memories {
        Memories::Create(start, size, unit) => expose(comm, start, size, unit),
        Memories::Dynamic => {
            let members = exchange_sizes(comm, 0, 1, true)?;
            Ok(Furnished::served(Memory::Lent, 0, 0, 1, MPI_WIN_FLAVOR_DYNAMIC, members))
        }
        Memories::Allocate(size, unit) => match allocate_together(comm, size, unit)? {
            Some(furnished) => Ok(furnished),
            None => allocate(comm, size, unit),
        },
        Memories::Share(size, unit, apart) => share(comm, size, unit, apart),
    }
}

fn allocate(comm: &Comm, size: u64, unit: c_int) -> Result<Furnished> {
    let block = usize::try_from(size).ok().and_then(Block::new);
    let members = exchange_sizes(comm, size, unit, block.is_some())?;
    let block = block.ok_or_else(|| no_memory(size))?;
    let start = block.start();
    Ok(Furnished::served(Memory::Own(block), start, size, unit, MPI_WIN_FLAVOR_ALLOCATE, members))
}

fn no_memory(size: u64) -> Error {
    Error::new(MPI_ERR_NO_MEM, format!("there is no memory for a window of {size} bytes"))
}

/// Exchanges the sizes and units of the members' memory. Fails at all members if one of them has no memory.
fn exchange_sizes(comm: &Comm, size: u64, unit: c_int, has_memory: bool) -> Result<Vec<Exposed>> {
    let cards = exchange(comm, [size, unit as u64, u64::from(has_memory), 0, 0])?;
    if let Some(rank) = cards.iter().position(|card| card[2] == 0) {
        let message = format!("rank {rank} of {} has no memory for its part of the window", comm.label());
        return Err(Error::new(MPI_ERR_NO_MEM, message));
    }
    Ok(exposed(&cards, |_| None))
}

/// The members' memory by their cards, which begin with size and unit. `start` returns its address in this process.
fn exposed(cards: &[Card], start: impl Fn(usize) -> Option<usize>) -> Vec<Exposed> {
    let exposed = |(rank, card): (usize, &Card)| Exposed { size: card[0], unit: card[1], start: start(rank) };
    cards.iter().enumerate().map(exposed).collect()
}

/// Returns true if members may reach each other's memory; the same at all of them. Not in a job that is saved, where
/// each process is in a process-id namespace of its own.
fn may_reach(comm: &Comm) -> bool {
    comm_board::may_share(comm) && runtime::job().is_some_and(runtime::Job::may_share_memory)
}

/// A window over memory of the program. If the kernel can copy between the members, they share the window's control
/// words and the window is direct.
fn expose(comm: &Comm, start: usize, size: u64, unit: c_int) -> Result<Furnished> {
    let near = if may_reach(comm) { comm_board::sharing(comm) } else { None };
    let probe = if near.is_some() { comm_board::probe() } else { 0 };
    let kept = if near.is_some() { kept::take(&comm.members, true) } else { None };
    let cards = exchange(comm, [size, unit as u64, start as u64, probe, number_of(&kept)])?;
    let served = || {
        let members = exposed(&cards, |_| None);
        Furnished::served(Memory::Lent, start, size, unit, MPI_WIN_FLAVOR_CREATE, members)
    };
    let Some((segment, processes)) = near.filter(|_| cards.iter().all(|card| card[3] != 0)) else {
        return Ok(served());
    };
    let reads_all = processes.iter().zip(&cards).all(|(member, card)| comm_board::can_read(member, card[3]));
    let head = Control::bytes(cards.len()) as u64;
    let Ok(memory) = memory_of_all(comm, kept, &cards, head, Some(reads_all)) else { return Ok(served()) };
    let part = |(rank, (member, card)): (usize, (&Member, &Card))| match rank == comm.rank as usize {
        true => Part::Mapped(start),
        false => Part::Elsewhere(member.pid, card[2]),
    };
    let parts = processes.iter().zip(&cards).enumerate().map(part).collect();
    let direct = Direct::new(segment, processes, comm.rank, parts, memory);
    Ok(Furnished { direct: Some(direct), ..served() })
}

const PAGE_BYTES: u64 = 4096;

/// Offsets of the members' parts in memory that begins with `head` other bytes, and the end of the last part. A part
/// that `is_apart` takes whole pages.
fn offsets(cards: &[Card], head: u64, is_apart: impl Fn(&Card) -> bool) -> Result<(Vec<u64>, u64)> {
    let mut offsets = Vec::with_capacity(cards.len());
    let mut total = head;
    for card in cards {
        offsets.push(total);
        let part = if is_apart(card) { card[0].checked_next_multiple_of(PAGE_BYTES) } else { Some(card[0]) };
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| no_memory(card[0]))?;
    }
    Ok((offsets, total))
}

/// A direct window in memory that all members map; `None` at all members if one of them cannot map it.
fn allocate_together(comm: &Comm, size: u64, unit: c_int) -> Result<Option<Furnished>> {
    if !may_reach(comm) {
        return Ok(None);
    }
    let (near, kept) = (comm_board::sharing(comm), kept::take(&comm.members, false));
    let cards = exchange(comm, [size, unit as u64, u64::from(near.is_some()), 0, number_of(&kept)])?;
    let Some((segment, processes)) = near.filter(|_| cards.iter().all(|card| card[2] != 0)) else { return Ok(None) };
    let (offsets, total) = offsets(&cards, Control::bytes(cards.len()) as u64, |_| true)?;
    let Ok(memory) = memory_of_all(comm, kept, &cards, total, None) else { return Ok(None) };
    let place = |rank: usize| memory.start() + offsets[rank] as usize;
    let members = exposed(&cards, |rank| Some(place(rank)));
    let start = place(comm.rank as usize);
    let parts = (0..cards.len()).map(|rank| Part::Mapped(place(rank))).collect();
    let direct = Some(Direct::new(segment, processes, comm.rank, parts, memory));
    let flavor = MPI_WIN_FLAVOR_ALLOCATE;
    Ok(Some(Furnished { memory: Memory::Lent, start, size, unit, flavor, members, direct }))
}

/// A window in memory that all members reach with loads and stores.
fn share(comm: &Comm, size: u64, unit: c_int, apart: bool) -> Result<Furnished> {
    match runtime::job() {
        Some(job) if !job.may_share_memory() && comm.size() > 1 => share_given(comm, job, size, unit, apart),
        _ => share_own(comm, size, unit, apart),
    }
}

/// A shared window in a job whose processes are saved or replicated: in the memory that the daemon has given them.
fn share_given(comm: &Comm, job: &Job, size: u64, unit: c_int, apart: bool) -> Result<Furnished> {
    if job.welcome.windows.is_none() {
        let message = "the limit of files' sizes (ulimit -f) leaves no room for memory that ranks share with redrun -r \
                       2, --checkpoint or --spares: raise it on all hosts";
        return Err(Error::unsupported(MPI_ERR_RMA_SHARED, message));
    }
    let neighborhood = pages::neighborhood(job);
    let cards = exchange(comm, [size, unit as u64, neighborhood, u64::from(apart), 0])?;
    if cards.iter().any(|card| card[2] != cards[0][2]) {
        let message = "ranks share memory whose processes are on one host, with replicas those of each index, and of \
                       which no copy has taken the place of one that was lost or moved. Make windows over the \
                       communicators that MPI_Comm_split_type makes for MPI_COMM_TYPE_SHARED, or start replicas so \
                       (redrun --report-placement shows where they are)";
        return Err(Error::unsupported(MPI_ERR_RMA_SHARED, message));
    }
    let (offsets, total) = offsets(&cards, 0, |card| card[3] & IS_APART != 0)?;
    let own = comm.rank as usize;
    let end = offsets.get(own + 1).copied().unwrap_or(total);
    let memory = Pages::new(comm, total, offsets[own]..end)?;
    let start = memory.start();
    Ok(laid_out(&cards, &offsets, start, own, Memory::Pages(memory), unit))
}

/// A shared window with a server, over memory that begins at `start`.
fn laid_out(cards: &[Card], offsets: &[u64], start: usize, own: usize, memory: Memory, unit: c_int) -> Furnished {
    let place = |rank: usize| place_of(&cards[rank], start, offsets[rank]);
    let members = exposed(cards, |rank| Some(place(rank)));
    Furnished::served(memory, place(own), cards[own][0], unit, MPI_WIN_FLAVOR_SHARED, members)
}

/// Address of a part. A part without bytes is at 0 if it is apart, else between its neighbours.
fn place_of(card: &Card, start: usize, offset: u64) -> usize {
    if card[0] == 0 && card[3] & IS_APART != 0 { 0 } else { start + offset as usize }
}

/// A shared window in memory that the members open from each other.
fn share_own(comm: &Comm, size: u64, unit: c_int, apart: bool) -> Result<Furnished> {
    let host = runtime::job().map_or(0, |job| job.welcome.host_number);
    let near = if may_reach(comm) { comm_board::sharing(comm) } else { None };
    let kept = if near.is_some() { kept::take(&comm.members, false) } else { None };
    let abilities = u64::from(apart) + u64::from(near.is_some()) * IS_NEAR;
    let cards = exchange(comm, [size, unit as u64, u64::from(host), abilities, number_of(&kept)])?;
    if let Some(rank) = cards.iter().position(|card| card[2] != cards[0][2]) {
        let message = format!("rank {rank} of {} is on another host than rank 0", comm.label());
        return Err(Error::new(MPI_ERR_RMA_SHARED, message));
    }
    let near = near.filter(|_| cards.iter().all(|card| card[3] & IS_NEAR != 0));
    let head = if near.is_some() { Control::bytes(cards.len()) as u64 } else { 0 };
    let (offsets, total) = offsets(&cards, head, |card| card[3] & IS_APART != 0)?;
    let memory = memory_of_all(comm, kept, &cards, total, None)?;
    let (start, own) = (memory.start(), comm.rank as usize);
    let Some((segment, processes)) = near else {
        return Ok(laid_out(&cards, &offsets, start, own, Memory::Shared(memory), unit));
    };
    let parts = (0..cards.len()).map(|rank| Part::Mapped(place_of(&cards[rank], start, offsets[rank]))).collect();
    let direct = Some(Direct::new(segment, processes, comm.rank, parts, memory));
    Ok(Furnished { direct, ..laid_out(&cards, &offsets, start, own, Memory::Lent, unit) })
}

/// Word of a card with the number of the memory that the member has kept of an earlier window; 0 for none.
const KEPT: usize = 4;

fn number_of(kept: &Option<Shared>) -> u64 {
    kept.as_ref().map_or(0, Shared::number)
}

/// Memory of `total` zero bytes that all members map: kept memory, if all members have the same and it is long enough,
/// else new memory. `reads_all` is passed for memory of members that copy from and to each other, and is true if this
/// member can.
fn memory_of_all(
    comm: &Comm,
    kept: Option<Shared>,
    cards: &[Card],
    total: u64,
    reads_all: Option<bool>,
) -> Result<Shared> {
    let is_everybodys = |kept: &Shared| cards.iter().all(|card| card[KEPT] == kept.number());
    if let Some(kept) = kept.filter(|kept| kept.length() as u64 >= total && is_everybodys(kept)) {
        return Ok(kept);
    }
    let mapping = map_shared(comm, total, reads_all.unwrap_or(true))?;
    Ok(Shared::new(mapping, comm.members.clone(), comm.context, reads_all.is_some()))
}

/// Flag in the card of a member of a shared window: its part begins on a page.
const IS_APART: u64 = 1;
/// Flag in the same card: the member shares the host's memory with all members.
const IS_NEAR: u64 = 2;

/// Maps new shared memory. Rank 0 makes it, and the others open it by rank 0's descriptor in `/proc`. Fails at all
/// members if one of them cannot map it or has no use for it.
fn map_shared(comm: &Comm, total: u64, has_use: bool) -> Result<Mapping> {
    let length = usize::try_from(total).map_err(|_| no_memory(total))?;
    let created = (comm.rank == 0).then(|| Mapping::create(length));
    let fd = match &created {
        Some(Ok(file)) => std::os::fd::AsRawFd::as_raw_fd(file) as u64,
        _ => u64::MAX,
    };
    let cards = exchange(comm, [u64::from(std::process::id()), fd])?;
    let file = match created {
        Some(created) => created,
        None if cards[0][1] == u64::MAX => Err(std::io::ErrorKind::OutOfMemory.into()),
        None => Mapping::of_process(cards[0][0] as i32, cards[0][1] as i32),
    };
    let mapped = file.and_then(|file| Ok((Mapping::map(&file, length)?, file)));
    // The file stays open until all members have mapped it.
    let cards = exchange(comm, [u64::from(mapped.is_ok() && has_use)])?;
    let failed = cards.iter().position(|card| card[0] == 0);
    match (mapped, failed) {
        (Err(error), _) => Err(Error::new(MPI_ERR_NO_MEM, format!("memory cannot be shared: {error}"))),
        (Ok(_), Some(rank)) => {
            let message = format!("rank {rank} of {} cannot map the shared memory", comm.label());
            Err(Error::new(MPI_ERR_NO_MEM, message))
        }
        (Ok((mapping, _)), None) => Ok(mapping),
    }
}
