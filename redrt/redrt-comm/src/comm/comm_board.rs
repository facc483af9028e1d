//! Boards of communicators: places on shared boards. Members agree on a place after a few collectives, and give it back
//! when the communicator is freed. Nonblocking collectives have a place of their own (`queue.rs`).
//!
//! A place serves one communicator after the other. The next one may have it when all members of the previous one have
//! left: no member reads there any more.

use super::cards::{self, Card};
use crate::coll::board::SharedBoard;
use crate::coll::{Outcome, Peers};
use crate::comm::Comm;
use redrt_abi::error::Result;
use redrt_engine as engine;
use redrt_engine::contact;
use redrt_engine::tasks::block_on;
use redrt_process::lock;
use redrt_runtime::job;
use redrt_transport::board::{Board, MEMBERS_MAX, Member, PLACES};
use redrt_transport::direct;
use redrt_transport::shm::Segment;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Number of the collective at which members agree on a place. Without one as the outcome, they agree again whenever
/// the number of collectives has doubled.
pub(super) const FIRST: u32 = 4;

/// A communicator's board, or its progress toward one.
#[derive(Default)]
pub struct CommBoard {
    collectives: AtomicU32,
    place: Place,
}

/// A place on boards, once members have agreed on it. Dropping it gives the place back.
#[derive(Default)]
pub(super) struct Place(OnceLock<Arc<SharedBoard>>);

impl Place {
    /// The board, if there is one.
    #[inline]
    pub fn table(&self) -> Option<&Arc<SharedBoard>> {
        self.0.get()
    }

    /// Takes the agreed place.
    pub fn take(&self, table: SharedBoard) -> &Arc<SharedBoard> {
        self.0.get_or_init(|| Arc::new(table))
    }
}

/// Kind of collectives that use a board.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Blocking,
    /// Nonblocking collectives get half of the places at most, so that blocking ones find a place.
    Nonblocking,
}

/// Places for nonblocking collectives, as bits.
const OF_NONBLOCKING: u32 = !0 << (PLACES / 2);

/// The places of this process.
struct Places {
    /// One bit for each place in use.
    taken: u32,
    /// True while a communicator agrees on a place: two must not agree on the same.
    is_agreeing: bool,
    /// Boards that this process has left and some others have not, each with the number that marks the leaving.
    left: Vec<(Arc<Board>, u64)>,
    /// The highest number that this process has posted in a place that it has left.
    highest: u64,
    /// Processes whose memory this one can read.
    readable: BTreeSet<i32>,
}

process_local! {
    static PLACES_TAKEN: Mutex<Places> =
        Mutex::new(Places { taken: 0, is_agreeing: false, left: Vec::new(), highest: 0, readable: BTreeSet::new() });
    /// Word that members try to read from each other's memory.
    static PROBE: AtomicU64 = AtomicU64::new(0x7265_6472_745f_3031);
}

impl Places {
    /// Begins an agreement, and returns the free places as bits; `None` while another communicator agrees.
    fn offer(&mut self) -> Option<u32> {
        if std::mem::replace(&mut self.is_agreeing, true) {
            return None;
        }
        let taken = &mut self.taken;
        self.left.retain(|(board, number)| {
            let is_left = board.is_left(*number);
            *taken &= !(u32::from(is_left) << board.place());
            !is_left
        });
        Some(!self.taken)
    }
}

impl CommBoard {
    /// The board of a communicator, for its next blocking collective. All members call this for each one.
    #[inline]
    pub fn table(&self, comm: &Comm) -> Result<Option<&Arc<SharedBoard>>> {
        if let Some(table) = self.place.table() {
            return Ok(Some(table));
        }
        self.come_closer(comm)
    }

    /// The board, if there is one already.
    #[inline(always)]
    pub fn taken(&self) -> Option<&Arc<SharedBoard>> {
        self.place.table()
    }

    fn come_closer(&self, comm: &Comm) -> Result<Option<&Arc<SharedBoard>>> {
        let count = self.collectives.load(Ordering::Relaxed).saturating_add(1);
        self.collectives.store(count, Ordering::Relaxed);
        if count < FIRST || !count.is_power_of_two() || !may_have(comm) {
            return Ok(None);
        }
        Ok(block_on(agree(comm, &comm.peers(), Use::Blocking))?.map(|table| self.place.take(table)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(table) = self.table() {
            let mut places = lock(&PLACES_TAKEN);
            let number = table.board.leave();
            places.highest = places.highest.max(number);
            places.left.push((table.board.clone(), number));
        }
    }
}

/// Returns true if members should agree on a place; the same at all of them.
pub fn may_have(comm: &Comm) -> bool {
    comm.size() > 1 && may_share(comm)
}

/// Returns true if members may use shared memory in place of messages; the same at all of them.
pub fn may_share(comm: &Comm) -> bool {
    let is_plain = comm.remote.is_none() && !comm.is_mixed;
    comm.size() <= MEMBERS_MAX && is_plain && job().is_some_and(|job| !job.welcome.world.is_replicated())
}

/// The segment, and the members as processes that share it with this one. `None` if a member does not share it, or if
/// faults or traces need messages.
pub fn sharing(comm: &Comm) -> Option<(Segment, Box<[Member]>)> {
    let engine = engine::cell().lock();
    if redrt_runtime::faults::are_injected() || engine.traces().is_some() {
        return None;
    }
    let segment = engine.links.segment()?;
    let member = |rank| {
        let process = contact::process_of(&engine.world, rank);
        Some(Member { process, pid: engine.links.local_pid(process)? })
    };
    Some((segment, comm.members.iter().map(|rank| member(*rank)).collect::<Option<_>>()?))
}

/// Agrees on a place, in messages among `peers`. Members offer their free places; `None` if all of them offer no common
/// one.
pub(super) async fn agree(comm: &Comm, peers: &Peers, purpose: Use) -> Outcome<Option<SharedBoard>> {
    let sharing = sharing(comm);
    let (offered, highest) = {
        let mut places = lock(&PLACES_TAKEN);
        (if sharing.is_some() { places.offer() } else { None }, places.highest)
    };
    let mask = if purpose == Use::Nonblocking { OF_NONBLOCKING } else { !0 };
    let agreed = agree_on(peers, sharing, offered.unwrap_or(0) & mask, highest).await;
    let blocks = purpose == Use::Blocking;
    let agreed = agreed.map(|agreed| {
        agreed.map(|(board, shares_core)| SharedBoard::new(Arc::new(board), comm.context, blocks, shares_core))
    });
    let mut places = lock(&PLACES_TAKEN);
    places.is_agreeing &= offered.is_none();
    let agreed = agreed?;
    places.taken |= agreed.as_ref().map_or(0, |table| 1 << table.board.place());
    Ok(agreed)
}

/// Agrees on the board, and on whether a member shares its core. Both decide between copying and reading in place,
/// which must be the same at all members.
async fn agree_on(
    peers: &Peers,
    sharing: Option<(Segment, Box<[Member]>)>,
    offered: u32,
    highest: u64,
) -> Outcome<Option<(Board, bool)>> {
    let shares_core = engine::cell().lock().shares_core();
    let card = [u64::from(offered), highest, probe(), u64::from(shares_core)];
    let all = cards::exchange_among(peers.clone(), card).await?;
    let some_share = all.iter().any(|card| card[3] != 0);
    let free = all.iter().fold(!0, |free, card: &Card| free & card[0] as u32);
    let base = all.iter().map(|card| card[1]).max().unwrap_or_default();
    let reads_all = sharing
        .as_ref()
        .is_some_and(|(_, members)| members.iter().zip(&all).all(|(member, card)| can_read(member, card[2])));
    // Exchanged without a place too: otherwise members without one would leave the others waiting.
    let all = cards::exchange_among(peers.clone(), [u64::from(reads_all), 0, 0, 0]).await?;
    let direct = all.iter().all(|card| card[0] == 1);
    let Some((segment, members)) = sharing.filter(|_| free != 0) else { return Ok(None) };
    let board = || Board::new(segment, free.trailing_zeros(), members, peers.rank, direct, base);
    Ok(job().map(|_| (board(), some_share)))
}

/// Address that other processes try to read in this process's memory.
pub fn probe() -> u64 {
    PROBE.as_ptr() as u64
}

/// Returns true if this process can read the memory of a member, at this probe address.
pub fn can_read(member: &Member, probe: u64) -> bool {
    if lock(&PLACES_TAKEN).readable.contains(&member.pid) {
        return true;
    }
    let mut word = 0u64;
    // SAFETY: - valid for writes of a word: a local variable.
    let read = unsafe { direct::read(member.pid, probe, (&raw mut word).cast(), size_of::<u64>()) };
    let can = read.is_ok() && word == PROBE.load(Ordering::Relaxed);
    if can {
        lock(&PLACES_TAKEN).readable.insert(member.pid);
    }
    can
}

const _: () = assert!(PLACES == u32::BITS);
