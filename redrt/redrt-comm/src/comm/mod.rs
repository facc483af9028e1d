//! Communicators.
//!
//! A communicator's context is derived from its parent's, by hashing facts that all its members know: the number of the
//! creating call on the parent, and the colour or group. So no messages are exchanged for a context, and all replicas
//! of all members compute the same one. Among n communicators two collide with a probability of about n²/2^65. In
//! replicated worlds numbers are reused (`children.rs`).

pub mod cards;
pub mod check;
mod children;
pub mod comm_board;
pub mod connection;
pub mod queue;
pub mod topology;

use crate::coll::board;
use crate::coll::gather::allgather;
use crate::coll::inter;
use crate::coll::{Outcome, Peers, start};
use crate::objects::attached::Attached;
use crate::objects::attachment::Attachment;
use crate::objects::info::Info;
use crate::objects::session::Session;
use check::Checks;
use children::{Agreement, Children, Origin, Series};
use comm_board::CommBoard;
use queue::Queue;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{CommHandle, HandleTable, Held};
use redrt_abi::{MPI_ERR_COMM, MPI_ERR_RANK, MPI_ERR_TOPOLOGY, MPI_UNDEFINED};
use redrt_engine::contact::{self, Identity};
use redrt_engine::request::{Operation, Request, RequestId};
use redrt_engine::tasks::block_on;
use redrt_process::lock;
use redrt_runtime as runtime;
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::Scratch;
use redrt_types::VirtualRank;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use topology::{Neighbors, Topology};

/// A communicator of this process.
pub struct Comm {
    handle: OnceLock<CommHandle>,
    /// Context of its point-to-point messages.
    pub context: u64,
    /// Rank of this process.
    pub rank: u32,
    /// The virtual rank of each member; of an intercommunicator, those of the local group.
    pub members: Arc<[VirtualRank]>,
    /// True if there are members of other jobs.
    pub is_mixed: bool,
    /// The remote group of an intercommunicator; `None` in others.
    pub remote: Option<Arc<[VirtualRank]>>,
    /// Error handler and attributes.
    pub attached: Arc<Attached>,
    /// Name that the program has given it; empty before that.
    pub name: Mutex<String>,
    /// Hints of the program.
    pub info: Mutex<Arc<Info>>,
    /// Virtual topology; `None` without one.
    pub topology: Option<Topology>,
    /// Buffer attached to the communicator for buffered mode.
    pub buffer: Mutex<Option<Attachment>>,
    /// Session of the process set from which the communicator was made; unset in the world model.
    pub session: OnceLock<Arc<Session>>,
    /// Number of partitioned operations made so far, by direction (true for sends), peer and tag.
    partitioned: Mutex<HashMap<(bool, c_int, c_int), u64>>,
    children: Arc<Children>,
    collectives: AtomicU32,
    nonblocking: Nonblocking,
    persistent: AtomicU64,
    comm_board: CommBoard,
    /// Nonblocking collectives and rounds of persistent ones.
    pub queue: Queue,
    /// Calls of the members, if collectives are checked.
    pub checks: Checks,
}

/// Maximum number of nonblocking collectives of one communicator at a time.
///
/// Any thread that makes progress sends their messages, so messages of two collectives interleave differently in each
/// replica. Therefore each has a context of its own, from a fixed set: the k-th takes number k modulo this, and waits
/// until the previous owner has sent and received everything.
const NONBLOCKING_COUNT: u64 = 256;

/// The nonblocking collectives of a communicator, by number.
#[derive(Default)]
struct Nonblocking {
    begun: AtomicU64,
    /// One bit for each context that is in use.
    under_way: [AtomicU64; NONBLOCKING_COUNT as usize / 64],
}

impl Nonblocking {
    /// Takes the context of an operation. Returns false if it is in use.
    fn take(&self, number: u64) -> bool {
        let (word, bit) = self.place(number);
        word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    fn give_back(&self, number: u64) {
        let (word, bit) = self.place(number);
        word.fetch_and(!bit, Ordering::AcqRel);
    }

    fn place(&self, number: u64) -> (&AtomicU64, u64) {
        let place = number % NONBLOCKING_COUNT;
        (&self.under_way[(place / 64) as usize], 1 << (place % 64))
    }
}

/// Mixes one more word into a context.
fn mix(context: u64, word: u64) -> u64 {
    let mixed = (context ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0xd1b5_4a32_d192_ed03);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

const WORLD_CONTEXT: u64 = 1;
const SELF_CONTEXT: u64 = 2;

process_local! {
    static WORLD: OnceLock<Arc<Comm>> = OnceLock::new();
    static SELF: OnceLock<Arc<Comm>> = OnceLock::new();
    static COMMS: HandleTable<Comm> = HandleTable::new();
}

/// Makes `MPI_COMM_WORLD` and `MPI_COMM_SELF`, in `MPI_Init`.
pub fn install(rank: VirtualRank, rank_count: u32, world: Arc<Attached>, this: Arc<Attached>) {
    let members: Arc<[VirtualRank]> = (0..rank_count).map(VirtualRank).collect();
    let predefined = |context, rank, members, attached, handle, name: &str| {
        let comm = Comm::new(context, rank, members, attached);
        *lock(&comm.name) = name.to_owned();
        let _ = comm.handle.set(handle);
        Arc::new(comm)
    };
    let _ = WORLD.set(predefined(WORLD_CONTEXT, rank.0, members, world, CommHandle::WORLD, "MPI_COMM_WORLD"));
    let alone: Arc<[VirtualRank]> = Arc::new([rank]);
    let _ = SELF.set(predefined(SELF_CONTEXT, 0, alone, this, CommHandle::SELF, "MPI_COMM_SELF"));
}

/// The communicator with this handle. Fails with `MPI_ERR_COMM` if none exists.
#[inline]
pub fn resolve(handle: CommHandle) -> Result<Held<Comm>> {
    let found = match handle {
        CommHandle::WORLD => WORLD.get().map(Held::Forever),
        CommHandle::SELF => SELF.get().map(Held::Forever),
        CommHandle(value) => COMMS.get(value).map(Held::Counted),
    };
    found.ok_or_else(|| invalid(handle))
}

#[cold]
fn invalid(handle: CommHandle) -> Error {
    if handle == CommHandle::NULL {
        Error::new(MPI_ERR_COMM, "the communicator is MPI_COMM_NULL")
    } else {
        Error::new(MPI_ERR_COMM, format!("{:#x} is not a communicator, or it has been freed", handle.0))
    }
}

impl Comm {
    fn new(context: u64, rank: u32, members: Arc<[VirtualRank]>, attached: Arc<Attached>) -> Self {
        Self {
            handle: OnceLock::new(),
            context,
            rank,
            is_mixed: members.iter().any(|member| contact::is_foreign(*member)),
            members,
            remote: None,
            attached,
            name: Mutex::default(),
            info: Mutex::new(Arc::new(Info::default())),
            topology: None,
            buffer: Mutex::default(),
            session: OnceLock::new(),
            partitioned: Mutex::default(),
            children: Arc::new(Children::new(None)),
            collectives: AtomicU32::new(0),
            nonblocking: Nonblocking::default(),
            persistent: AtomicU64::new(0),
            comm_board: CommBoard::default(),
            queue: Queue::default(),
            checks: Checks::default(),
        }
    }

    /// Number of members, of the local group if there are two.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The group that ranks of sources and destinations refer to: the remote one, if there are two (MPI-5.0 §3.2.3).
    pub fn others(&self) -> &Arc<[VirtualRank]> {
        self.remote.as_ref().unwrap_or(&self.members)
    }

    /// Handle of the communicator.
    pub fn handle(&self) -> CommHandle {
        *self.handle.get().expect("a communicator is registered when it is made")
    }

    /// The member of a rank. Fails with `MPI_ERR_RANK` for other values, also for `MPI_PROC_NULL` and wildcards.
    #[inline]
    pub fn member(&self, rank: c_int) -> Result<VirtualRank> {
        match usize::try_from(rank).ok().and_then(|rank| self.others().get(rank)) {
            Some(member) => Ok(*member),
            None => Err(self.bad_rank(rank)),
        }
    }

    #[cold]
    fn bad_rank(&self, rank: c_int) -> Error {
        Error::new(MPI_ERR_RANK, format!("rank {rank} is not in 0..{} of {}", self.others().len(), self.label()))
    }

    /// Name of the communicator for messages to the user.
    pub fn label(&self) -> String {
        let name = lock(&self.name);
        if name.is_empty() { format!("communicator {:#x}", self.handle().0) } else { name.clone() }
    }

    /// Number of a member, the same at all members, also in other jobs.
    pub fn name_of(&self, member: VirtualRank) -> u64 {
        if self.is_mixed { hash_of([contact::identity(member)]) >> 1 } else { u64::from(member.0) }
    }

    /// The members, for the next collective operation.
    pub fn peers(&self) -> Peers {
        self.peers_later()()
    }

    /// Counts the next collective operation. The returned closure makes the members for it, if messages are needed.
    #[inline(always)]
    pub fn peers_later(&self) -> impl Fn() -> Peers + '_ {
        let number = self.count_collective();
        move || self.peers_in(self.context ^ COLLECTIVE, (number & 0x3fff_ffff) as i32)
    }

    /// The members, for the next blocking collective: over a board, if they have one.
    #[inline]
    pub fn blocking_peers(&self) -> Result<Peers> {
        Ok(self.peers_with(self.table()?.cloned()))
    }

    /// Takes the number of the next collective operation. Each operation takes one, even if it sends no messages here:
    /// other members may send.
    #[inline(always)]
    pub fn count_collective(&self) -> u32 {
        // One thread at a time is in collectives of a communicator (MPI-5.0 §6.14).
        let number = self.collectives.load(Ordering::Relaxed);
        self.collectives.store(number.wrapping_add(1), Ordering::Relaxed);
        number
    }

    /// The board for the next blocking collective, if members have one. To be called once for each.
    #[inline]
    pub fn table(&self) -> Result<Option<&Arc<board::SharedBoard>>> {
        self.comm_board.table(self)
    }

    /// The board for a blocking collective, if there is one; `None` if collectives are checked.
    #[inline(always)]
    pub fn unchecked_table(&self) -> Option<&Arc<board::SharedBoard>> {
        if check::is_on() { None } else { self.comm_board.taken() }
    }

    /// The members, for a blocking collective over this board or in messages.
    pub fn peers_with(&self, table: Option<Arc<board::SharedBoard>>) -> Peers {
        Peers { table, ..self.peers() }
    }

    /// The members, for an operation with its own context and tag.
    pub(crate) fn peers_in(&self, context: u64, tag: i32) -> Peers {
        let (rank, members) = (self.rank as usize, self.members.clone());
        let Some(remote) = &self.remote else {
            return Peers { context, tag, rank, members, across: None, table: None };
        };
        let across = Peers { context, tag, rank, members: remote.clone(), across: None, table: None };
        // Each group has a context of its own as well, derived from its first member.
        let context = mix(context, self.name_of(members[0]) + 1) | COLLECTIVE;
        Peers { context, tag, rank, members, across: Some(Arc::new(across)), table: None }
    }

    /// Takes the number of the next nonblocking collective; waits while its context is in use.
    pub fn next_nonblocking(&self) -> u64 {
        let number = self.nonblocking.begun.fetch_add(1, Ordering::Relaxed);
        if !self.nonblocking.take(number) {
            redrt_engine::cell().wait_for(|_| self.nonblocking.take(number).then_some(()));
        }
        number
    }

    /// The members, for a nonblocking collective.
    pub fn nonblocking_peers(&self, number: u64) -> Peers {
        let number = if mutation::is_planted(Mutation::NonblockingMixed) { 0 } else { number };
        let context = mix(self.context ^ COLLECTIVE, number % NONBLOCKING_COUNT) | COLLECTIVE;
        self.peers_in(context, (number & 0x3fff_ffff) as i32)
    }

    /// Gives back the context of a nonblocking collective, which has sent and received everything.
    pub fn nonblocking_done(&self, number: u64) {
        self.nonblocking.give_back(number);
    }

    /// The neighbours of this process. Fails with `MPI_ERR_TOPOLOGY` if the communicator has no topology.
    pub fn neighbors(&self) -> Result<Neighbors> {
        let Some(topology) = &self.topology else {
            return Err(Error::new(MPI_ERR_TOPOLOGY, format!("{} has no topology", self.label())));
        };
        Ok(topology.neighbors(self.rank as usize))
    }

    /// Takes the number of the next persistent collective. All members make them in the same order (MPI-5.0 §6.13), but
    /// may start them in any order: each has a context of its own, for all its rounds.
    pub fn next_persistent(&self) -> u64 {
        self.persistent.fetch_add(1, Ordering::Relaxed)
    }

    /// The members, for a round of a persistent collective.
    pub fn persistent_peers(&self, number: u64) -> Peers {
        self.peers_in(self.persistent_context(number), 0)
    }

    fn persistent_context(&self, number: u64) -> u64 {
        mix(mix(self.context ^ COLLECTIVE, PERSISTENT_DETAIL), number) | COLLECTIVE
    }

    /// The members, for exchanging their calls of the collective with this number. Part 0 has the length of a call,
    /// part 1 the call.
    pub(crate) fn check_peers(&self, number: u64, part: u64) -> Peers {
        self.peers_in(self.check_context(part), (number & 0x3fff_ffff) as i32)
    }

    /// Returns true if members exchange their calls of collectives in this context.
    fn checks_in(&self, context: u64) -> bool {
        // In an intercommunicator each group has a context of its own as well.
        let of_group = |part| self.check_peers(0, part).context == context;
        (0..2).any(|part| self.check_context(part) == context || of_group(part))
    }

    fn check_context(&self, part: u64) -> u64 {
        mix(mix(self.context ^ COLLECTIVE, CHECK_DETAIL), part) | COLLECTIVE
    }

    /// The context of the next partitioned operation with this rank and tag: the k-th of the sender matches the k-th of
    /// the receiver (MPI-5.0 §4.2.2).
    pub fn next_partitioned_context(&self, sends: bool, peer: c_int, tag: c_int) -> u64 {
        let mut made = lock(&self.partitioned);
        let number = made.entry((sends, peer, tag)).or_insert(0);
        *number += 1;
        mix(mix(self.context ^ COLLECTIVE, PARTITIONED_DETAIL), *number) | COLLECTIVE
    }

    /// Context for a purpose of the window that owns this communicator.
    pub fn window_context(&self, purpose: u64) -> u64 {
        mix(mix(self.context, WINDOW_DETAIL), purpose) | COLLECTIVE
    }

    /// The context of the next communicator made by all members. `detail`, a colour or group, separates the
    /// communicators of one call.
    pub fn next_context(&self, detail: u64) -> NewContext {
        let (number, origin) = self.next_number(Series::All);
        NewContext { context: self.child_context(number, detail), origin }
    }

    /// This group's half of the context of the next intercommunicator that it makes with another group.
    pub fn next_half(&self) -> Result<NewContext> {
        self.agree(Series::Halves, |_| self.peers())?;
        let (number, origin) = self.next_number(Series::Halves);
        Ok(NewContext { context: self.child_context(number, HALF_DETAIL), origin })
    }

    /// The context of the next communicator that exactly `members` make from this one with `tag`. All of them call, and
    /// may wait for each other.
    pub fn group_context(&self, members: &[VirtualRank], tag: u64) -> Result<NewContext> {
        let group = members.iter().fold(mix(self.context, tag), |hash, member| mix(hash, self.name_of(*member)));
        let me = self.members[self.rank as usize];
        if let Some(rank) = members.iter().position(|member| *member == me) {
            let (context, members) = (agreement_context(group), members.into());
            let tag = |number: u64| (number & 0x3fff_ffff) as i32;
            let peers = |number| Peers { context, tag: tag(number), rank, members, across: None, table: None };
            self.agree(Series::Group(group), peers)?;
        }
        let (number, origin) = self.next_number(Series::Group(group));
        Ok(NewContext { context: mix(mix(group, number), GROUP_DETAIL) & !COLLECTIVE, origin })
    }

    fn child_context(&self, number: u64, detail: u64) -> u64 {
        mix(mix(self.context, number), detail) & !COLLECTIVE
    }

    /// Takes the next number of a series. In a replicated world a number is reused once all members have freed its
    /// communicator; without replicas that would save nothing.
    fn next_number(&self, series: Series) -> (u64, Option<Origin>) {
        if runtime::job().is_some_and(|job| job.welcome.world.is_replicated()) {
            let origin = self.children.lend(series);
            (origin.number(), Some(origin))
        } else {
            (self.children.next(series), None)
        }
    }

    /// If there are many children, agrees with the other members on those that all have freed. All members, of both
    /// groups if there are two, call this before they make another child, where they may wait for each other.
    pub fn reclaim(&self) -> Result {
        self.agree(Series::All, |_| self.peers())
    }

    /// Begins such an agreement where members must not wait for each other; a later call uses the outcome. Returns the
    /// request of the agreement, if one was begun.
    pub fn reclaim_later(self: &Arc<Self>) -> Option<RequestId> {
        self.settle(Series::All, false);
        let Agreement { over, .. } = self.children.due(Series::All, false)?;
        let outcome = self.children.begin(Series::All);
        let (owner, number) = (self.clone(), self.next_nonblocking());
        let said = agreed(self.nonblocking_peers(number), over);
        Some(start(async move {
            let said = said.await;
            // After a failure no child counts as freed.
            let _ = outcome.set(said.as_ref().map_or_else(|_| Vec::new(), Vec::clone));
            owner.nonblocking_done(number);
            said.map(drop)
        }))
    }

    /// Uses the agreement of an earlier call, if it is due: at once in a call that may wait for others.
    fn settle(&self, series: Series, may_wait: bool) {
        if let Some(outcome) = self.children.owed(series, may_wait) {
            let agreed = redrt_engine::cell().wait_for(|_| outcome.get().cloned());
            self.children.take_back(series, &agreed);
        }
    }

    /// Agrees on the freed children of a series. `peers` returns the members for an agreement with this number.
    fn agree(&self, series: Series, peers: impl FnOnce(u64) -> Peers) -> Result {
        self.settle(series, true);
        let Some(Agreement { number, over }) = self.children.due(series, true) else { return Ok(()) };
        let agreed = block_on(agreed(peers(number), over))?;
        self.children.take_back(series, &agreed);
        Ok(())
    }

    /// Makes a communicator of the same members, with these attributes.
    pub fn duplicate(&self, attached: Arc<Attached>) -> Arc<Self> {
        let new = self.next_context(DUPLICATE_DETAIL);
        let context = if mutation::is_planted(Mutation::ContextShared) { self.context } else { new.context };
        let mut comm = Self::new(context, self.rank, self.members.clone(), attached);
        comm.children = new.into_children();
        comm.topology = self.topology.clone();
        comm.session.clone_from(&self.session);
        comm.remote.clone_from(&self.remote);
        comm.is_mixed = self.is_mixed;
        register(comm)
    }

    /// Makes an intercommunicator of this process's group and another; `None` if this process is not in the group, or
    /// the other one is empty.
    pub fn bridge(&self, new: NewContext, local: &[VirtualRank], remote: &[VirtualRank]) -> Option<Arc<Self>> {
        let me = self.members[self.rank as usize];
        let rank = local.iter().position(|member| *member == me).filter(|_| !remote.is_empty())? as u32;
        let attached = Arc::new(Attached::with_errhandler(self.attached.errhandler()));
        let mut comm = Self::new(new.context, rank, local.into(), attached);
        comm.children = new.into_children();
        comm.remote = Some(remote.into());
        comm.is_mixed |= remote.iter().any(|member| contact::is_foreign(*member));
        Some(register(comm))
    }

    /// Makes a communicator of some members. `detail` separates the communicators of one call. `None` if this process
    /// is not a member. Collective over this communicator.
    pub fn derive(
        &self,
        members: &[VirtualRank],
        detail: u64,
        topology: Option<Topology>,
    ) -> Result<Option<Arc<Self>>> {
        self.reclaim()?;
        Ok(self.part(self.next_context(detail), members, topology))
    }

    /// Makes a communicator of some members with a given context; `None` if this process is not a member.
    pub fn with_context(&self, new: NewContext, members: &[VirtualRank]) -> Option<Arc<Self>> {
        self.part(new, members, None)
    }

    fn part(&self, new: NewContext, members: &[VirtualRank], topology: Option<Topology>) -> Option<Arc<Self>> {
        let me = self.members[self.rank as usize];
        let rank = members.iter().position(|member| *member == me)? as u32;
        let attached = Arc::new(Attached::with_errhandler(self.attached.errhandler()));
        let mut comm = Self::new(new.context, rank, members.into(), attached);
        comm.children = new.into_children();
        comm.topology = topology;
        comm.session.clone_from(&self.session);
        Some(register(comm))
    }

    /// Returns true if the program has open requests on the communicator. Sends do not count: sequence numbers keep
    /// their order.
    fn is_busy(&self) -> bool {
        let is_used = |request: &Request| {
            request.comm == self.handle().0 && !request.detached && !matches!(request.operation, Operation::Send)
        };
        redrt_engine::cell().lock().requests.iter().any(is_used)
    }
}

/// Of the numbers finished here, those finished at every member, of both groups if there are two.
async fn agreed(peers: Peers, over: Vec<u64>) -> Outcome<Vec<u64>> {
    if mutation::is_planted(Mutation::ContextReusedEarly) {
        return Ok(over);
    }
    let bytes = size_of_val(&over[..]);
    let (count, across) = (peers.size(), peers.across.clone());
    let others_count = across.as_ref().map_or(0, |across| across.size());
    let mut scratch = Scratch::new(bytes * (count + others_count));
    let all = scratch.region();
    let pieces: Vec<_> = (0..count + others_count).map(|place| all.part(place * bytes, bytes)).collect();
    let (own, others) = pieces.split_at(count);
    let mine = own[peers.rank];
    mine.with_bytes_mut(|bytes| {
        bytes
            .chunks_exact_mut(size_of::<u64>())
            .zip(&over)
            .for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
    });
    if let Some(across) = &across {
        inter::alltoall(across, vec![mine], others.to_vec()).await?;
    }
    allgather(peers, None, own.to_vec()).await?;
    let mut agreed = over;
    for piece in &pieces {
        piece.with_bytes(|bytes| {
            let words = bytes.chunks_exact(size_of::<u64>()).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
            agreed.iter_mut().zip(words).for_each(|(agreed, word)| *agreed &= word);
        });
    }
    Ok(agreed)
}

/// The bit that tells a communicator's collective context from its point-to-point context.
const COLLECTIVE: u64 = 1 << 63;
const DUPLICATE_DETAIL: u64 = u64::MAX;
const PERSISTENT_DETAIL: u64 = u64::MAX - 2;
const LEADERS_DETAIL: u64 = u64::MAX - 3;
const GROUP_DETAIL: u64 = u64::MAX - 1;
const WINDOW_DETAIL: u64 = u64::MAX - 4;
const PARTITIONED_DETAIL: u64 = u64::MAX - 5;
const PARTING_DETAIL: u64 = u64::MAX - 6;
const CHECK_DETAIL: u64 = u64::MAX - 7;
const HALF_DETAIL: u64 = u64::MAX - 8;
const AGREEMENT_DETAIL: u64 = u64::MAX - 9;
/// Number of contexts with messages that a window has.
const WINDOW_CONTEXTS: u64 = 4;

/// The context of a communicator to be made. If it is dropped unused, its number counts as finished here.
pub struct NewContext {
    /// Context of the messages of the new communicator.
    pub context: u64,
    origin: Option<Origin>,
}

impl NewContext {
    /// A context that was chosen elsewhere and is not reused.
    pub fn given(context: u64) -> Self {
        Self { context, origin: None }
    }

    /// Completes the context of an intercommunicator by the other group's half.
    pub fn with_other_half(mut self, other: u64) -> Self {
        self.context = bridge_context(self.context, other);
        self
    }

    /// Hands the number over to the communicator, in the record of its own children.
    fn into_children(mut self) -> Arc<Children> {
        Arc::new(Children::new(self.origin.take()))
    }
}

impl Drop for NewContext {
    fn drop(&mut self) {
        self.origin.iter().for_each(Origin::end);
    }
}

/// The context in which a group agrees on finished numbers.
fn agreement_context(group: u64) -> u64 {
    mix(group, AGREEMENT_DETAIL) | COLLECTIVE
}

fn register(comm: Comm) -> Arc<Comm> {
    let comm = Arc::new(comm);
    if comm.is_mixed {
        connection::begin(&comm);
    }
    let handle = CommHandle(COMMS.insert(comm.clone()));
    let _ = comm.handle.set(handle);
    comm
}

/// The handle of a communicator; `MPI_COMM_NULL` for `None`.
pub fn handle_of(comm: Option<Arc<Comm>>) -> CommHandle {
    comm.map_or(CommHandle::NULL, |comm| comm.handle())
}

/// Takes a communicator out of the table. It lives on as long as operations use it. Fails for predefined ones.
pub fn remove(handle: CommHandle) -> Result {
    if handle == CommHandle::WORLD || handle == CommHandle::SELF {
        return Err(Error::new(MPI_ERR_COMM, "a predefined communicator cannot be freed"));
    }
    let comm = COMMS.remove(handle.0).ok_or_else(|| invalid(handle))?;
    if comm.is_mixed {
        connection::free(&comm, comm.is_busy());
    }
    if comm.children.can_be_over() {
        comm.children.free(comm.is_busy());
    }
    redrt_engine::cell().lock().sweep_contexts();
    Ok(())
}

/// A hash of processes, the same in all processes that compute it.
pub fn hash_of(processes: impl IntoIterator<Item = Identity>) -> u64 {
    processes.into_iter().fold(0, |hash, (job, rank)| mix(mix(hash, job), u64::from(rank)))
}

/// The context in which the members of a communicator with this context part. `members` is a hash of the members.
pub fn parting_context(context: u64, members: u64) -> u64 {
    mix(mix(context, members), PARTING_DETAIL) | COLLECTIVE
}

/// The context of an intercommunicator, from the halves of both groups.
pub fn bridge_context(one: u64, other: u64) -> u64 {
    mix(one.min(other), one.max(other)) & !COLLECTIVE
}

/// The context in which the leaders of two groups exchange messages on `peer` with `tag` (MPI-5.0 §7.6.2).
pub fn leaders_context(peer: &Comm, tag: c_int) -> u64 {
    mix(mix(peer.context, LEADERS_DETAIL), tag as u64) | COLLECTIVE
}

/// Compares the members of two communicators (MPI-5.0 §7.4.1). Returns true for the same members in the same order, and
/// true for the same members in any order.
pub fn same_members(left: &[VirtualRank], right: &[VirtualRank]) -> (bool, bool) {
    let same_order = left == right;
    let sorted = |members: &[VirtualRank]| {
        let mut members = members.to_vec();
        members.sort_unstable();
        members
    };
    (same_order, same_order || left.len() == right.len() && sorted(left) == sorted(right))
}

/// The name of the communicator that has this context, for messages to the user.
pub fn label_of_context(context: u64) -> String {
    let kind = if context & COLLECTIVE == 0 { "" } else { " (collective)" };
    let has = |comm: &Comm| {
        let nonblocking = |number| mix(comm.context ^ COLLECTIVE, number) | COLLECTIVE == context;
        let persistent = |number| comm.persistent_context(number) == context;
        comm.context == context & !COLLECTIVE
            || (0..WINDOW_CONTEXTS).any(|purpose| comm.window_context(purpose) == context)
            || (0..NONBLOCKING_COUNT).any(nonblocking)
            || (0..comm.persistent.load(Ordering::Relaxed)).any(persistent)
            || comm.checks_in(context)
            || comm.children.groups().into_iter().any(|group| agreement_context(group) == context)
    };
    all().find(|comm| has(comm)).map_or_else(|| "a freed communicator".to_owned(), |comm| comm.label() + kind)
}

/// Description of the collective that waits for the other members' calls, if members exchange their calls in this
/// context.
pub fn told_in_context(context: u64) -> Option<String> {
    let comm = all().find(|comm| comm.checks_in(context))?;
    let (number, call) = comm.checks.first_open()?;
    Some(format!("collective number {number} of {}, here {call}", comm.label()))
}

/// All communicators of this process.
fn all() -> impl Iterator<Item = Arc<Comm>> {
    let predefined = [WORLD.get(), SELF.get()].into_iter().flatten().cloned();
    predefined.chain(COMMS.snapshot().into_iter().map(|(_, comm)| comm))
}

/// The colour; `None` for `MPI_UNDEFINED`, with which the caller gets no communicator.
pub fn color(color: c_int) -> Option<c_int> {
    (color != MPI_UNDEFINED).then_some(color)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_successive_children_differ_and_members_agree() {
        let make = |rank| {
            let members: Arc<[VirtualRank]> = (0..3).map(VirtualRank).collect();
            Comm::new(WORLD_CONTEXT, rank, members, Arc::new(Attached::new()))
        };
        let (one, other) = (make(0), make(2));
        let mut seen = std::collections::HashSet::new();
        for detail in 0..1000 {
            let context = one.next_context(detail).context;
            assert_eq!(context, other.next_context(detail).context);
            assert!(seen.insert(context));
        }
        let pair = [VirtualRank(0), VirtualRank(2)];
        for _ in 0..10 {
            let [context, same] = [&one, &other].map(|comm| comm.group_context(&pair, 5).unwrap().context);
            assert_eq!(context, same);
            assert!(seen.insert(context));
        }
    }
}
