//! Collective communication (MPI-5.0 chapter 6): arguments in, an algorithm of `redrt_comm::coll` run to its end or
//! begun.
//!
//! Each operation is one function that checks its arguments and returns a [`Plan`]. The blocking, the nonblocking and
//! the persistent function are made from it: they run the plan, begin it, or keep it to begin a round at each start.

mod describe;
mod direct;
mod moving;
mod neighbor;
mod reducing;
mod section;
mod slots;

pub use moving::*;
pub use neighbor::*;
pub use reducing::*;

use crate::api::p2p;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::RequestHandle;
use redrt_abi::{MPI_ERR_BUFFER, MPI_ERR_COMM, MPI_ERR_ROOT, MPI_IN_PLACE, MPI_PROC_NULL, MPI_ROOT, Output};
use redrt_comm::coll::board::{self, Algorithm, Call as OverBoard, MakePeers, SharedBoard};
use redrt_comm::coll::inter::Role;
use redrt_comm::coll::start;
use redrt_comm::coll::{Outcome, Peers};
use redrt_comm::comm::Comm;
use redrt_comm::comm::check::{self, call::Call};
use redrt_comm::comm::queue::{self, Queue};
use redrt_engine as engine;
use redrt_engine::tasks;
use std::ffi::{c_int, c_void};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An operation under way.
pub trait Running: Future<Output = Outcome> + Send + 'static {}
impl<T: Future<Output = Outcome> + Send + 'static> Running for T {}

/// An operation whose arguments were checked. It holds all that it needs of them: the program may free datatypes,
/// operations and arrays of counts. Its buffers are accessed only while it runs.
pub trait Plan: Clone + Send + Sync + 'static {
    /// Reads this member's contribution, and begins.
    fn run(self, peers: Peers) -> impl Running;

    /// The operation over a board, in place. `peers` makes the members for the parts that go in messages. `None` if
    /// data must be packed, or do not fit a board.
    #[inline(always)]
    fn over<'a, P: MakePeers>(
        &'a self,
        _table: &'a SharedBoard,
        _peers: P,
    ) -> Option<OverBoard<'a, P, impl Algorithm + 'a>> {
        None::<OverBoard<'a, P, board::Barrier>>
    }
}

/// Runs the plan to its end. With a board of the members, a collective is likely to be over at once.
fn block(plan: impl Plan, peers: Peers) -> Outcome {
    let has_table = peers.table.is_some();
    tasks::run(plan.run(peers), has_table)
}

/// Runs a collective over the board in place, without a plan: it is so short that making one would count.
#[inline(always)]
fn at_once(comm: &Comm, table: &SharedBoard, arguments: impl Algorithm) -> Outcome {
    let peers = comm.peers_later();
    tasks::run(OverBoard::new(table, &peers, arguments).run(), true)
}

impl<F, R> Plan for F
where
    F: FnOnce(Peers) -> R + Clone + Send + Sync + 'static,
    R: Running,
{
    fn run(self, peers: Peers) -> impl Running {
        self(peers)
    }
}

/// The blocking, nonblocking and persistent forms of an operation.
macro_rules! collective {
    (
        $blocking:ident, $nonblocking:ident, $persistent:ident, $plan:ident ( $($argument:ident : $type:ty),* )
        $(, in_place: $in_place:path)?
    ) => {
        /// The blocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $blocking($($argument: $type,)* comm: redrt_abi::handle::CommHandle) -> Result {
            let comm = redrt_comm::comm::resolve(comm)?;
            $crate::api::coll::try_in_place!(($($in_place)?) &*comm, $($argument),*);
            let planned = $plan($($argument,)* &comm);
            if planned.is_err() {
                return planned.map(drop);
            }
            redrt_runtime::scrub::at_collective();
            if let Some(call) = $crate::api::coll::call!($blocking, $blocking, &comm, $($argument),*) {
                redrt_comm::comm::check::blocking(&comm, call?)?;
            }
            let peers = comm.blocking_peers()?;
            Ok($crate::api::coll::block(planned?, peers)?)
        }

        /// The nonblocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $nonblocking(
            $($argument: $type,)*
            comm: redrt_abi::handle::CommHandle,
            request: redrt_abi::Output<redrt_abi::handle::RequestHandle>,
        ) -> Result {
            let comm = redrt_comm::comm::resolve(comm)?;
            let plan = $plan($($argument,)* &comm)?;
            let call = $crate::api::coll::call!($nonblocking, $blocking, &comm, $($argument),*).transpose()?;
            $crate::api::coll::begin(&comm, request, plan, call)
        }

        /// The persistent form.
        ///
        /// # Safety
        /// The pointers are those of the C call, and the buffers stay valid until the request is freed.
        pub unsafe fn $persistent(
            $($argument: $type,)*
            comm: redrt_abi::handle::CommHandle,
            info: redrt_abi::handle::InfoHandle,
            request: redrt_abi::Output<redrt_abi::handle::RequestHandle>,
        ) -> Result {
            let comm = redrt_comm::comm::resolve(comm)?;
            redrt_comm::objects::info::resolve_hints(info)?;
            let plan = $plan($($argument,)* &comm)?;
            let call = $crate::api::coll::call!($persistent, $blocking, &comm, $($argument),*).transpose()?;
            $crate::api::coll::keep(&comm, request, plan, call)
        }
    };
}
use collective;

/// Returns from the function if `$in_place` accepts the arguments and the collective was run over a board in place.
macro_rules! try_in_place {
    (() $comm:expr, $($argument:ident),*) => {};
    (($in_place:path) $comm:expr, $($argument:ident),*) => {
        let comm: &Comm = $comm;
        if let Some(table) = comm.unchecked_table()
            && let Some(arguments) = $in_place($($argument,)* table)
        {
            redrt_runtime::scrub::at_collective();
            return Ok($crate::api::coll::at_once(comm, table, arguments)?);
        }
    };
}
use try_in_place;

/// Description of this member's call under `--check-collectives`: its function, the blocking function of its kind, and
/// its arguments.
macro_rules! call {
    ($function:ident, $kind:ident, $comm:expr, $($argument:ident),*) => {
        redrt_comm::comm::check::is_on().then(|| {
            let shown = [$((stringify!($argument), $crate::api::coll::describe::Shown::shown(&$argument))),*];
            $crate::api::coll::describe::$kind($($argument,)* $comm)
                .map(|call| $crate::api::coll::describe::named(call, stringify!($function), &shown))
        })
    };
}
use call;

fn begin(comm: &Arc<Comm>, request: Output<RequestHandle>, plan: impl Plan, call: Option<Call>) -> Result {
    let check = call.map(|call| check::start(comm, call));
    let (number, owner) = (comm.next_nonblocking(), comm.clone());
    let id = match check {
        None if queue::may_have(comm) => start(async move {
            let outcome = in_turn(&owner.queue, &owner, number + 1, || owner.nonblocking_peers(number), &plan).await;
            owner.nonblocking_done(number);
            outcome
        }),
        None => start(async move {
            let outcome = plan.run(owner.nonblocking_peers(number)).await;
            owner.nonblocking_done(number);
            outcome
        }),
        // No turn: a member whose call differs from the others' does not run it, so operations do not follow each
        // other.
        Some(check) => start(async move {
            let running = async {
                check.await?;
                plan.run(owner.nonblocking_peers(number)).await
            };
            let outcome = running.await;
            owner.nonblocking_done(number);
            outcome
        }),
    };
    request.set(p2p::handle(&mut engine::cell().lock(), id, comm))
}

/// Runs a plan as operation `number` of a queue, counted from 1. Boxes keep rare cases out of the future's size.
async fn in_turn(
    queue: &Queue,
    comm: &Comm,
    number: u64,
    peers: impl Fn() -> Peers + Send + Sync,
    plan: &impl Plan,
) -> Outcome {
    let Some(table) = queue.table() else {
        return Box::pin(queue.run(comm, number, peers(), |peers| plan.clone().run(peers))).await;
    };
    queue.turn_of(number).await;
    let outcome = match plan.over(table, &peers) {
        Some(call) => call.run().await,
        None => Box::pin(plan.clone().run(Peers { table: Some(table.clone()), ..peers() })).await,
    };
    queue.pass(number);
    outcome
}

/// State that the rounds of a persistent collective share.
struct PersistentState<P> {
    comm: Arc<Comm>,
    /// Number among the communicator's persistent collectives.
    number: u64,
    queue: Queue,
    plan: P,
}

impl<P: Plan> PersistentState<P> {
    fn peers(&self) -> Peers {
        self.comm.persistent_peers(self.number)
    }
}

fn keep(comm: &Arc<Comm>, request: Output<RequestHandle>, plan: impl Plan, call: Option<Call>) -> Result {
    let check = call.map(|call| check::Later::new(comm, call));
    let kept = PersistentState { comm: comm.clone(), number: comm.next_persistent(), queue: Queue::default(), plan };
    let (kept, rounds) = (Arc::new(kept), AtomicU64::new(0));
    p2p::persistent::create(comm, request, move || {
        let kept = kept.clone();
        Ok(Some(match check.clone() {
            None if queue::may_have(&kept.comm) => {
                let round = rounds.fetch_add(1, Ordering::Relaxed) + 1;
                start(async move { in_turn(&kept.queue, &kept.comm, round, || kept.peers(), &kept.plan).await })
            }
            None => start(kept.plan.clone().run(kept.peers())),
            Some(check) => {
                let peers = kept.peers();
                start(async move {
                    check.outcome().await?;
                    kept.plan.clone().run(peers).await
                })
            }
        }))
    })
}

fn is_in_place(buffer: *const c_void) -> bool {
    std::ptr::eq(buffer, MPI_IN_PLACE)
}

fn not_in_place(buffer: *const c_void) -> Result {
    if is_in_place(buffer) {
        return Err(Error::new(MPI_ERR_BUFFER, "MPI_IN_PLACE is not allowed for this buffer here"));
    }
    Ok(())
}

/// The root of a collective, as this member sees it.
#[derive(Clone, Copy)]
struct Root {
    /// Rank of the root; in a collective of two groups, its rank in the other group, and 0 if the root is in the own
    /// group.
    rank: usize,
    /// Role of this member in a collective of two groups; `None` in one group.
    role: Option<Role>,
    /// True if this member is the root.
    is_me: bool,
    /// True if this member contributes: every member in one group, members of the group without the root in two.
    is_member: bool,
}

impl Root {
    #[inline(always)]
    fn new(comm: &Comm, root: c_int) -> Result<Self> {
        let role = match root {
            MPI_ROOT if comm.remote.is_some() => Role::Root,
            MPI_PROC_NULL if comm.remote.is_some() => Role::Idle,
            rank => match usize::try_from(rank).ok().filter(|rank| *rank < comm.others().len()) {
                Some(rank) => Role::Member(rank),
                None => {
                    let message = format!("root {root} is not in 0..{} of {}", comm.others().len(), comm.label());
                    return Err(Error::new(MPI_ERR_ROOT, message));
                }
            },
        };
        let rank = if let Role::Member(rank) = role { rank } else { 0 };
        Ok(match comm.remote {
            Some(_) => {
                Self { rank, role: Some(role), is_me: role == Role::Root, is_member: matches!(role, Role::Member(_)) }
            }
            None => Self { rank, role: None, is_me: comm.rank as usize == rank, is_member: true },
        })
    }
}

/// The other group, in a collective of two.
fn across(peers: &Peers) -> Option<Arc<Peers>> {
    peers.across.clone()
}

/// Returns true for `MPI_IN_PLACE`. Between two groups it is an error (MPI-5.0 §6.2.3).
fn in_place(comm: &Comm, buffer: *const c_void) -> Result<bool> {
    if comm.remote.is_some() {
        not_in_place(buffer)?;
    }
    Ok(is_in_place(buffer))
}

/// Refuses an intercommunicator: prefix sums have no meaning between two groups (MPI-5.0 §6.11).
fn one_group(comm: &Comm) -> Result {
    if comm.remote.is_some() {
        return Err(Error::new(MPI_ERR_COMM, format!("{} is an intercommunicator", comm.label())));
    }
    Ok(())
}
