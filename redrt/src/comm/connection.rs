//! Which processes are connected (MPI-5.0 §11.10.4), and how they part.
//!
//! Processes that have a communicator together are connected until both have let go of it. Whether one of another job
//! may end is decided by that: of one that this process is connected to, the end of a link is a death.
//!
//! ```text
//!   A: disconnect ── all are here? ──▶ parting ── all know that? ──▶ apart, may end
//!   B: disconnect ── all are here? ──▶ parting ── all know that? ──▶ apart, may end
//! ```
//! Two barriers. In the first a link that breaks is a death: nobody ends before everybody has come to the second. In
//! the second everybody knows that all are parting. So a link that breaks then says that the other end has passed it,
//! or has died with nothing left to do; either way all have come, and it need not be waited for any longer.
//!
//! Jobs of one tree, of which one has spawned the other, end together by their `redrun`s, with the exit code of the one
//! that failed first. So links between them that break say nothing.

use crate::coll::barrier::barrier;
use crate::coll::{Outcome, Peers};
use crate::comm::{self, Comm};
use crate::runtime;
use redrt_engine as engine;
use redrt_engine::contact::{self, ForeignNumber, Identity};
use redrt_engine::tasks::block_on;
use redrt_types::{ProcessIndex, VirtualRank};
use rustc_hash::FxHashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Processes that are connected with each other, by one communicator or several.
struct Connection {
    /// All of them, this one too, in an order that is the same for each.
    members: Arc<[VirtualRank]>,
    /// By how many communicators.
    count: u32,
    /// All are known to be letting go of the last.
    is_parting: bool,
    /// The link with one of them broke after that.
    is_over: bool,
}

process_local! {
    /// By a hash of who they are.
    static CONNECTIONS: LazyLock<Mutex<FxHashMap<u64, Connection>>> = LazyLock::new(Mutex::default);
}

fn connections() -> MutexGuard<'static, FxHashMap<u64, Connection>> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The members of both groups, and the number of what they are connected by.
fn of_comm(comm: &Comm) -> (u64, Arc<[VirtualRank]>) {
    let all = comm.members.iter().chain(comm.remote.iter().flat_map(|remote| remote.iter()));
    let mut all: Vec<(Identity, VirtualRank)> = all.map(|member| (contact::identity(*member), *member)).collect();
    all.sort_unstable();
    all.dedup();
    (comm::hash_of(all.iter().map(|(identity, _)| *identity)), all.into_iter().map(|(_, member)| member).collect())
}

/// A communicator with members of other jobs was made.
pub fn begin(comm: &Comm) {
    let (key, members) = of_comm(comm);
    let connection = || Connection { members, count: 0, is_parting: false, is_over: false };
    connections().entry(key).or_insert_with(connection).count += 1;
}

/// A communicator is let go of.
pub fn end(comm: &Comm) {
    release(of_comm(comm).0);
}

/// A communicator is about to be freed, which is not to disconnect: with jobs of other trees this process stays
/// connected until all finalize.
pub fn keep(comm: &Comm) {
    let own_tree = runtime::job().map_or(0, |job| job.welcome.origin.tree);
    let (key, members) = of_comm(comm);
    let foreign = members.iter().filter_map(|member| ForeignNumber::of_rank(*member));
    let mut foreign = foreign.filter_map(contact::of);
    if foreign.any(|contact| contact.tree != own_tree)
        && let Some(connection) = connections().get_mut(&key)
    {
        connection.count += 1;
    }
}

fn release(key: u64) {
    let mut connections = connections();
    if let Some(connection) = connections.get_mut(&key) {
        connection.count -= 1;
        if connection.count == 0 {
            connections.remove(&key);
        }
    }
}

/// The link with a process of another job broke. What that means for this one, if it cannot go on.
pub fn loss_of(process: ProcessIndex, name: &str) -> Option<String> {
    let number = ForeignNumber::of_process(process)?;
    let rank = number.rank();
    let own_tree = runtime::job().map_or(0, |job| job.welcome.origin.tree);
    let is_of_tree = contact::of(number).is_some_and(|contact| contact.tree == own_tree);
    let mut is_death = false;
    for connection in connections().values_mut().filter(|connection| connection.members.contains(&rank)) {
        connection.is_over |= connection.is_parting;
        is_death |= !connection.is_parting;
    }
    let is_loss = is_death && !is_of_tree;
    is_loss.then(|| format!("{name}, to which this process is connected, has ended without disconnecting"))
}

/// `MPI_Comm_disconnect`: waits for all members, and lets go of the communicator.
pub fn disconnect(comm: &Comm) {
    let (key, members) = of_comm(comm);
    let is_last = connections().get(&key).is_some_and(|connection| connection.count == 1);
    part(key, &members, is_last);
}

/// `MPI_Finalize` is collective over all that are connected (§11.2.2): in an order that is the same for all.
pub fn finalize() {
    let mut all: Vec<_> = connections().iter().map(|(key, one)| (*key, one.members.clone())).collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    for (key, members) in all {
        part(key, &members, true);
    }
}

fn part(key: u64, members: &Arc<[VirtualRank]>, is_last: bool) {
    let me = engine::cell().lock().me.rank;
    let Some(rank) = members.iter().position(|member| *member == me) else { return };
    let phase = |tag| Peers {
        context: comm::parting_context(key),
        tag,
        rank,
        members: members.clone(),
        across: None,
        table: None,
    };
    // Neither can fail: their messages are empty.
    let _ = block_on(barrier(phase(0)));
    if let Some(connection) = connections().get_mut(&key) {
        connection.is_parting = is_last;
    }
    wait_unless_over(barrier(phase(1)), key);
    let mut connections = connections();
    if is_last {
        connections.remove(&key);
    }
}

fn wait_unless_over(parting: impl Future<Output = Outcome>, key: u64) {
    let mut parting = pin!(parting);
    let cell = engine::cell();
    loop {
        let seen = cell.lock().requests.completions;
        let is_over = connections().get(&key).is_some_and(|connection| connection.is_over);
        let polled = parting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if is_over || matches!(polled, Poll::Ready(_)) {
            return;
        }
        cell.wait_for(|engine| (engine.requests.completions != seen).then_some(()));
    }
}
