//! Making windows. All members call, and learn what the others expose.

use super::apply::Reach;
use super::memory::{Block, Mapping, Memory};
use super::origin::Origin;
use super::server::{Served, serve};
use super::{Exposed, Facts, WINDOWS, Window};
use crate::abi::{
    MPI_ERR_COMM, MPI_ERR_NO_MEM, MPI_ERR_RMA_SHARED, MPI_ERR_UNSUPPORTED_OPERATION, MPI_WIN_FLAVOR_ALLOCATE,
    MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_FLAVOR_SHARED, MPI_WIN_SEPARATE, MPI_WIN_UNIFIED,
};
use crate::coll;
use crate::comm::cards::{Card, exchange};
use crate::comm::{self, Comm};
use crate::error::{Error, Result};
use crate::handle::WinHandle;
use crate::objects::attached::Attached;
use crate::objects::info::Info;
use crate::runtime::{self, progress};
use redrt_engine as engine;
use redrt_process::lock;
use redrt_wire::control::Verification;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock};

/// What this member exposes.
#[derive(Clone, Copy, Debug)]
pub enum Memories {
    /// Memory of the program: address, bytes, unit.
    Create(usize, u64, c_int),
    /// Memory that the window gets: bytes, unit.
    Allocate(u64, c_int),
    /// Memory that all members reach with loads and stores: bytes, unit, and whether each part begins on a page.
    Share(u64, c_int, bool),
    /// What will be attached.
    Dynamic,
}

/// Makes a window over `parent`, and begins to serve it.
pub fn create(parent: &Arc<Comm>, memories: Memories, info: Option<Arc<Info>>) -> Result<Arc<Window>> {
    if parent.remote.is_some() {
        return Err(Error::new(MPI_ERR_COMM, format!("{} is an intercommunicator", parent.label())));
    }
    check_verification(parent)?;
    let attached = Arc::new(Attached::new());
    let comm = parent.duplicate(attached.clone());
    *lock(&comm.name) = format!("a window over {}", parent.label());
    let made = furnish(&comm, memories);
    if made.is_err() {
        let _ = comm::remove(comm.handle());
    }
    let Furnished { memory, start, size, unit, flavor, members } = made?;
    let is_replicated = runtime::job().is_some_and(|job| job.welcome.world.is_replicated());
    let model = if is_replicated { MPI_WIN_SEPARATE } else { MPI_WIN_UNIFIED };
    let reach = match flavor {
        MPI_WIN_FLAVOR_DYNAMIC => Reach::Attached(Vec::new()),
        _ => Reach::Fixed { start: start as u64, size, unit: unit as u64 },
    };
    let count = members.len();
    let window = Arc::new(Window {
        handle: OnceLock::new(),
        comm,
        flavor,
        facts: Facts { base: start, size: size as isize, unit, flavor, model },
        members,
        attached,
        name: Mutex::default(),
        info: Mutex::new(Arc::new(info.map_or_else(Info::default, |info| info.duplicate()))),
        origin: Mutex::new(Origin::new(count)),
        served: Mutex::new(Served::new(reach, count)),
        issuing: Mutex::default(),
        thread: runtime::threads::number(),
        _memory: memory,
        _helped: if count > 1 { progress::help() } else { None },
    });
    let _ = window.handle.set(WinHandle(WINDOWS.insert(window.clone())));
    let server = coll::start(serve(window.clone()));
    engine::cell().lock().requests.detach(server);
    Ok(window)
}

/// Deferred verification lets ranks go on with what one replica has sent, while the leader of its rank may be behind.
fn check_verification(comm: &Comm) -> Result {
    let is_deferred = runtime::job().is_some_and(|job| {
        job.welcome.world.is_replicated() && job.welcome.options.verification == Verification::Deferred
    });
    if is_deferred && comm.size() > 1 {
        let message = "replicated windows need --verify strict";
        return Err(Error::new(MPI_ERR_UNSUPPORTED_OPERATION, message));
    }
    Ok(())
}

/// Takes a window out of the table, when nothing is under way any more.
pub fn remove(window: &Window) {
    WINDOWS.remove(window.handle().0);
    let _ = comm::remove(window.comm.handle());
}

struct Furnished {
    memory: Memory,
    start: usize,
    size: u64,
    unit: c_int,
    flavor: c_int,
    members: Vec<Exposed>,
}

fn furnish(comm: &Comm, memories: Memories) -> Result<Furnished> {
    match memories {
        Memories::Create(start, size, unit) => {
            let members = tell(comm, size, unit, true)?;
            Ok(Furnished { memory: Memory::Lent, start, size, unit, flavor: MPI_WIN_FLAVOR_CREATE, members })
        }
        Memories::Dynamic => {
            let members = tell(comm, 0, 1, true)?;
            Ok(Furnished { memory: Memory::Lent, start: 0, size: 0, unit: 1, flavor: MPI_WIN_FLAVOR_DYNAMIC, members })
        }
        Memories::Allocate(size, unit) => {
            let block = usize::try_from(size).ok().and_then(Block::new);
            let members = tell(comm, size, unit, block.is_some())?;
            let block = block.ok_or_else(|| no_memory(size))?;
            let start = block.start();
            let memory = Memory::Own(block);
            Ok(Furnished { memory, start, size, unit, flavor: MPI_WIN_FLAVOR_ALLOCATE, members })
        }
        Memories::Share(size, unit, apart) => share(comm, size, unit, apart),
    }
}

fn no_memory(size: u64) -> Error {
    Error::new(MPI_ERR_NO_MEM, format!("there is no memory for a window of {size} bytes"))
}

/// What all members expose. If one has failed, all do.
fn tell(comm: &Comm, size: u64, unit: c_int, has_memory: bool) -> Result<Vec<Exposed>> {
    let cards = exchange(comm, [size, unit as u64, u64::from(has_memory), 0])?;
    if let Some(rank) = cards.iter().position(|card| card[2] == 0) {
        let message = format!("rank {rank} of {} has no memory for its part of the window", comm.label());
        return Err(Error::new(MPI_ERR_NO_MEM, message));
    }
    Ok(cards.iter().map(|card| Exposed { size: card[0], unit: card[1], start: None }).collect())
}

const PAGE_BYTES: u64 = 4096;

fn share(comm: &Comm, size: u64, unit: c_int, apart: bool) -> Result<Furnished> {
    let is_replicated = runtime::job().is_some_and(|job| job.welcome.world.is_replicated());
    if is_replicated && comm.size() > 1 {
        let message = "ranks that are replicated share no memory: their replicas are on different hosts \
                       (MPI_Comm_split_type puts each rank by itself)";
        return Err(Error::new(MPI_ERR_RMA_SHARED, message));
    }
    let host = runtime::job().map_or(0, |job| job.welcome.host_number);
    let cards = exchange(comm, [size, unit as u64, u64::from(host), u64::from(apart)])?;
    if let Some(rank) = cards.iter().position(|card| card[2] != cards[0][2]) {
        let message = format!("rank {rank} of {} is on another host than rank 0", comm.label());
        return Err(Error::new(MPI_ERR_RMA_SHARED, message));
    }
    let mut offsets = Vec::with_capacity(cards.len());
    let mut total: u64 = 0;
    for card in &cards {
        offsets.push(total);
        let part = if card[3] == 0 { Some(card[0]) } else { card[0].checked_next_multiple_of(PAGE_BYTES) };
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| no_memory(card[0]))?;
    }
    let mapping = map_shared(comm, total)?;
    let exposed = |(card, offset): (&Card, &u64)| Exposed {
        size: card[0],
        unit: card[1],
        start: Some(mapping.start() + *offset as usize),
    };
    let members: Vec<_> = cards.iter().zip(&offsets).map(exposed).collect();
    let start = members[comm.rank as usize].start.unwrap_or_default();
    let memory = Memory::Shared(mapping);
    Ok(Furnished { memory, start, size, unit, flavor: MPI_WIN_FLAVOR_SHARED, members })
}

/// Rank 0 makes the memory, the others open it through what the kernel shows of rank 0. All map it or none.
fn map_shared(comm: &Comm, total: u64) -> Result<Mapping> {
    let length = usize::try_from(total).map_err(|_| no_memory(total))?;
    let created = (comm.rank == 0).then(|| Mapping::create(length));
    let fd = match &created {
        Some(Ok(file)) => std::os::fd::AsRawFd::as_raw_fd(file) as u64,
        _ => u64::MAX,
    };
    let cards = exchange(comm, [u64::from(std::process::id()), fd, 0, 0])?;
    let file = match created {
        Some(created) => created,
        None if cards[0][1] == u64::MAX => Err(std::io::ErrorKind::OutOfMemory.into()),
        None => Mapping::of_process(cards[0][0] as i32, cards[0][1] as i32),
    };
    let mapped = file.and_then(|file| Ok((Mapping::map(&file, length)?, file)));
    // The file stays open until all have it.
    let cards = exchange(comm, [u64::from(mapped.is_ok()), 0, 0, 0])?;
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
