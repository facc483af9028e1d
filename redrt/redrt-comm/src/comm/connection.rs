//! Connections of processes (MPI-5.0 §11.10.4), and their end.
//!
//! Processes with a common communicator are connected until all its members have let go of it, each by `MPI_Comm_free`,
//! `MPI_Comm_disconnect` or `MPI_Finalize`, in any mixture. A process of another job may end only when it is not
//! connected: the end of a link with a connected process counts as its death.
//!
//! ```text
//!   A: lets go ── all have? ──▶ parting ── all know that? ──▶ apart, may end
//!   B: lets go ── all have? ──▶ parting ── all know that? ──▶ apart, may end
//! ```
//! Each communicator has two barriers, in a task that begins when this process lets go. In the first, a link that
//! breaks is a death: no process ends before all have come to the second. In the second, all processes know that all
//! are parting. So a link that breaks then means that the peer has passed the barrier, or has died with nothing left to
//! do. Either way all have come, and nobody waits for the peer. The trap: others may have no link with that peer, and
//! wait for this process's messages, which therefore are sent in any case.
//!
//! Only the waits differ. `MPI_Comm_free` waits for nothing, and `MPI_Comm_disconnect` until its communicator is apart.
//! `MPI_Finalize`, which is collective over all connected processes, waits until all communicators are. It begins all
//! barriers before it waits for one: another process may be in the disconnect of any of them.
//!
//! Jobs of one tree, in which one has spawned the other, end together by their `redrun`s, with the exit code of the
//! first one that failed. So a broken link between them has no meaning.

use crate::coll::barrier::barrier;
use crate::coll::{self, Peers};
use crate::comm::{self, Comm};
use redrt_engine as engine;
use redrt_engine::contact::{self, ForeignNumber, Identity};
use redrt_runtime as runtime;
use redrt_runtime::progress::{self, Helped};
use redrt_transport::memory::Region;
use redrt_types::{ProcessIndex, VirtualRank};
use rustc_hash::FxHashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// Progress of the members of a communicator with parting, as far as this process knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// This process has the communicator.
    Held,
    /// This process has let go of it.
    LettingGo,
    /// All members have let go of it.
    Parting,
    /// The link with a member broke while all were parting.
    Over,
}

/// Processes that are connected by a communicator.
struct Connection {
    /// All members, this process included, in the same order at each.
    members: Arc<[VirtualRank]>,
    stage: Stage,
}

process_local! {
    /// Connections by their [`key`].
    static CONNECTIONS: LazyLock<Mutex<FxHashMap<u64, Connection>>> = LazyLock::new(Mutex::default);
}

fn connections() -> MutexGuard<'static, FxHashMap<u64, Connection>> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The members of both groups, in the same order at each.
fn members(comm: &Comm) -> Vec<(Identity, VirtualRank)> {
    let all = comm.members.iter().chain(comm.remote.iter().flat_map(|remote| remote.iter()));
    let mut all: Vec<(Identity, VirtualRank)> = all.map(|member| (contact::identity(*member), *member)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Key of the communicator, the same at all members. The context alone does not suffice: groups that were split off in
/// one call may share it.
fn key(comm: &Comm, members: &[(Identity, VirtualRank)]) -> u64 {
    comm::parting_context(comm.context, comm::hash_of(members.iter().map(|(identity, _)| *identity)))
}

/// Connects the members of a new communicator with members of other jobs.
pub fn begin(comm: &Comm) {
    let members = members(comm);
    let key = key(comm, &members);
    let members = members.into_iter().map(|(_, member)| member).collect();
    connections().insert(key, Connection { members, stage: Stage::Held });
}

/// `MPI_Comm_free`: lets go of the communicator. With open operations (`is_busy`) `MPI_Finalize` does that: until they
/// are complete the end of another member is a death.
pub fn free(comm: &Comm, is_busy: bool) {
    if !is_busy {
        let_go(key(comm, &members(comm)), progress::help);
    }
}

/// `MPI_Comm_disconnect`: lets go of the communicator, and waits for all members.
pub fn disconnect(comm: &Comm) {
    let key = key(comm, &members(comm));
    let_go(key, || None);
    wait_until_apart(key);
}

/// `MPI_Finalize`: lets go of all communicators, and waits for all connected processes (MPI-5.0 §11.2.2).
pub fn finalize() {
    let keys: Vec<u64> = connections().keys().copied().collect();
    keys.iter().for_each(|key| let_go(*key, || None));
    keys.into_iter().for_each(wait_until_apart);
}

fn wait_until_apart(key: u64) {
    engine::cell().wait_for(|_| (!connections().contains_key(&key)).then_some(()));
}

/// Begins the barriers of a communicator, unless that was done. `help` returns a guard under which progress is made
/// while the program does other things.
fn let_go(key: u64, help: impl FnOnce() -> Option<Helped>) {
    let members = match connections().get_mut(&key) {
        Some(connection) if connection.stage == Stage::Held => {
            connection.stage = Stage::LettingGo;
            connection.members.clone()
        }
        _ => return,
    };
    let cell = engine::cell();
    let me = cell.lock().me.rank;
    let rank = members.iter().position(|member| *member == me).expect("a member has the communicator");
    let helped = help();
    let request = coll::start(async move {
        let peers = |tag| Peers { context: key, tag, rank, members: members.clone(), across: None, table: None };
        // Neither can fail: their messages are empty.
        let _ = barrier(peers(0)).await;
        set_parting(key);
        part(peers(1), key).await;
        connections().remove(&key);
        drop(helped);
        Ok(())
    });
    cell.lock().requests.detach(request);
}

fn set_parting(key: u64) {
    if let Some(connection) = connections().get_mut(&key) {
        connection.stage = Stage::Parting;
    }
}

/// The second barrier: a dissemination barrier, except that a link that breaks ends it as all messages would.
async fn part(peers: Peers, key: u64) {
    let size = peers.size();
    let mut distance = 1;
    while distance < size {
        let to = (peers.rank + distance) % size;
        let from = (peers.rank + size - distance) % size;
        let sent = peers.start_send(to, Region::empty());
        until_over(peers.receive(from, Region::empty()), key).await;
        until_over(sent, key).await;
        distance *= 2;
    }
}

async fn until_over(parting: impl Future, key: u64) {
    let mut parting = pin!(parting);
    poll_fn(|context| {
        let is_over = connections().get(&key).is_some_and(|connection| connection.stage == Stage::Over);
        if is_over || parting.as_mut().poll(context).is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Handles a broken link with a process of another job. Returns the error message if this process cannot go on.
pub fn loss_of(process: ProcessIndex, name: &str) -> Option<String> {
    let number = ForeignNumber::of_process(process)?;
    let rank = number.rank();
    let own_tree = runtime::job().map_or(0, |job| job.welcome.origin.tree);
    let is_of_tree = contact::of(number).is_some_and(|contact| contact.tree == own_tree);
    let mut is_death = false;
    for connection in connections().values_mut().filter(|connection| connection.members.contains(&rank)) {
        match connection.stage {
            Stage::Held | Stage::LettingGo => is_death = true,
            Stage::Parting | Stage::Over => connection.stage = Stage::Over,
        }
    }
    let is_loss = is_death && !is_of_tree;
    is_loss.then(|| format!("{name}, to which this process is connected, has ended without disconnecting"))
}
