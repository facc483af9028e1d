//! Pieces of each host's part of a checkpoint on several hosts. They are made while the program runs, before the
//! commit.
//!
//! ```text
//!  of each part:  Waiting ─listens─▶ Listening ─all of its hosts have answered─▶ Sending ─received, checked─▶ Kept
//!                    └──────────────────┴── its host fails or is lost ──────────────┴─▶ Lost
//! ```
//! Enters: reports of the daemons, losses of hosts. Leaves: orders for daemons, the end. A checkpoint counts when each
//! piece is kept or lost, and K of each part are kept: it is worth more than an older one. If it survives the loss of
//! fewer hosts than it should, that is told.

use super::contents::Contents;
use super::{CheckpointEvent, Effect, Seen, lost_before};
use crate::mutation::{self, Mutation};
use checkpoint_store::copies::Place;
use checkpoint_store::pieces::{Code, groups, piece_path};
use checkpoint_store::place;
use redrt_wire::checkpoint::{Generation, Outlet, PartOrder, PartStep};
use redrt_wire::daemon::ToDaemon;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Stage {
    Waiting,
    /// At this address; none for the part's own host.
    Listening(Option<SocketAddr>),
    Sending,
    Kept,
    Lost,
}

/// Pieces of a part that go to one host.
#[derive(Debug, Serialize, Deserialize)]
struct Share {
    pieces: Vec<u8>,
    stage: Stage,
}

/// Pieces of a host's part, by the host that is to keep them.
type Shares = BTreeMap<u32, Share>;

/// The pieces of one checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spreading {
    contents: Contents,
    code: Code,
    /// By the host whose part it is.
    parts: BTreeMap<u32, Shares>,
    /// Machine of each host, by number.
    machines: Vec<String>,
    /// The first reason why a piece is lost.
    why_lost: Option<String>,
    begun_at: Duration,
    byte_count: u64,
}

/// Number of pieces in stages that fit.
fn count(shares: &Shares, fits: impl Fn(Stage) -> bool) -> usize {
    shares.values().filter(|share| fits(share.stage)).map(|share| share.pieces.len()).sum()
}

fn is_settled(stage: Stage) -> bool {
    matches!(stage, Stage::Kept | Stage::Lost)
}

impl Spreading {
    /// Begins the pieces of all parts. `places`: all hosts, by number. `beside`: checkpoints that stay.
    pub fn begin(
        contents: Contents,
        code: Code,
        places: &[Place],
        (directory, beside): (&Path, &[Generation]),
        seen: Seen<'_>,
        out: &mut VecDeque<Effect>,
    ) -> Self {
        let sources: Vec<_> = contents.cut.sources().into_iter().collect();
        let groups = groups::spread(&sources, places, code);
        let parts = groups.into_iter().map(|(source, group)| {
            let mut shares = Shares::new();
            for (index, host) in (0..).zip(group) {
                let host = if index == 1 && mutation::is(Mutation::PiecesTogether) { source } else { host };
                let stage = if host == source { Stage::Listening(None) } else { Stage::Waiting };
                shares.entry(host).or_insert(Share { pieces: Vec::new(), stage }).pieces.push(index);
            }
            (source, shares)
        });
        let mut spreading = Self {
            code,
            parts: parts.collect(),
            machines: places.iter().map(|place| place.machine.clone()).collect(),
            why_lost: None,
            contents,
            begun_at: seen.now,
            byte_count: 0,
        };
        let generation = spreading.contents.generation();
        for (source, shares) in &spreading.parts {
            for (host, share) in shares.iter().filter(|(_, share)| share.stage == Stage::Waiting) {
                let name = |index: &u8| piece_path(Path::new(""), *source, *index).display().to_string();
                let order = PartOrder::Keep {
                    directory: place::of_host(directory, *host, generation),
                    own_beside: beside.to_vec(),
                    files: share.pieces.iter().map(name).collect(),
                };
                out.push_back(Effect::Send(*host, ToDaemon::Part { generation, source: *source, order }));
            }
        }
        for source in sources {
            spreading.cut_when_awaited(source, directory, out);
        }
        spreading
    }

    /// Has a host cut its part, if all hosts of its pieces have answered.
    fn cut_when_awaited(&mut self, source: u32, directory: &Path, out: &mut VecDeque<Effect>) {
        let Some(shares) = self.parts.get_mut(&source) else { return };
        let is_due = shares.values().all(|share| matches!(share.stage, Stage::Listening(_) | Stage::Lost));
        if !is_due || shares.values().all(|share| share.stage == Stage::Lost) {
            return;
        }
        let mut outlets = Vec::new();
        for share in shares.values_mut() {
            if let Stage::Listening(address) = share.stage {
                outlets.push(Outlet { pieces: share.pieces.clone(), address });
                share.stage = Stage::Sending;
            }
        }
        let generation = self.contents.generation();
        let order = PartOrder::Cut {
            directory: place::of_host(directory, source, generation),
            files: self.contents.files(source),
            code: (self.code.data, self.code.parity),
            outlets,
        };
        out.push_back(Effect::Send(source, ToDaemon::Part { generation, source, order }));
    }

    /// Handles a daemon's report about pieces of the part of `source`. Returns why the checkpoint is of no use, if it
    /// is of none.
    pub fn handle(
        &mut self,
        host: u32,
        source: u32,
        step: PartStep,
        directory: &Path,
        seen: Seen<'_>,
        out: &mut VecDeque<Effect>,
    ) -> Option<String> {
        let share = self.parts.get_mut(&source)?.get_mut(&host)?;
        match step {
            PartStep::Listening(address) if share.stage == Stage::Waiting => {
                share.stage = Stage::Listening(Some(address));
            }
            PartStep::Kept(byte_count) if share.stage == Stage::Sending => {
                share.stage = Stage::Kept;
                self.byte_count += byte_count;
            }
            PartStep::Failed(why) if !is_settled(share.stage) => {
                let why = format!("on {}: {why}", seen.hosts.name(host));
                return self.lose_pieces(source, host, why, directory, out);
            }
            _ => return None,
        }
        self.cut_when_awaited(source, directory, out);
        None
    }

    /// Handles a lost host, its part, and the pieces that it was to keep. Returns why the checkpoint is of no use, if
    /// it is of none.
    pub fn lose(&mut self, host: u32, directory: &Path, seen: Seen<'_>, out: &mut VecDeque<Effect>) -> Option<String> {
        let why = lost_before(seen.hosts.name(host), self.contents.level);
        let sources: Vec<_> = self.parts.keys().copied().collect();
        let lost = sources.into_iter().map(|source| self.lose_pieces(source, host, why.clone(), directory, out));
        lost.reduce(Option::or).flatten()
    }

    /// The pieces of a part are lost that a host has, or was to keep. Without the part's own host, so are those that it
    /// has not begun to send.
    fn lose_pieces(
        &mut self,
        source: u32,
        host: u32,
        why: String,
        directory: &Path,
        out: &mut VecDeque<Effect>,
    ) -> Option<String> {
        let shares = self.parts.get_mut(&source)?;
        let mut is_new = false;
        for (holder, share) in &mut *shares {
            let is_unsent = matches!(share.stage, Stage::Waiting | Stage::Listening(_));
            if *holder == host || (source == host && is_unsent) {
                is_new |= share.stage != Stage::Lost;
                share.stage = Stage::Lost;
            }
        }
        if !is_new {
            return None;
        }
        let is_too_few = count(shares, |stage| stage != Stage::Lost) < self.code.data.into();
        if is_too_few && !mutation::is(Mutation::LostPartCommitted) {
            return Some(why);
        }
        self.why_lost.get_or_insert(why);
        self.cut_when_awaited(source, directory, out);
        None
    }

    /// True if no piece is being made.
    pub fn is_done(&self) -> bool {
        let is_enough = |shares: &Shares| count(shares, |stage| stage == Stage::Kept) >= self.code.data.into();
        if mutation::is(Mutation::PiecesUnawaited) {
            return self.parts.values().all(is_enough);
        }
        self.parts.values().flat_map(BTreeMap::values).all(|share| is_settled(share.stage))
    }

    /// The checkpoint with its pieces, to be committed.
    pub fn finish(self, seen: Seen<'_>, out: &mut VecDeque<Effect>) -> Contents {
        let generation = self.contents.generation();
        let mut pieces = vec![Vec::new(); seen.hosts.count() as usize];
        let mut holders = BTreeSet::new();
        let mut survived_min = usize::from(self.code.parity);
        for (source, shares) in &self.parts {
            let of_part = &mut pieces[*source as usize];
            of_part.resize(self.code.piece_count().into(), None);
            for (host, share) in shares.iter().filter(|(_, share)| share.stage == Stage::Kept) {
                holders.insert(*host);
                share.pieces.iter().for_each(|index| of_part[usize::from(*index)] = Some(*host));
            }
            let machines = of_part.iter().flatten().map(|host| self.machines[*host as usize].as_str());
            survived_min = survived_min.min(groups::losses_survived(machines, self.code).unwrap_or_default());
        }
        out.push_back(Effect::Note(CheckpointEvent::Spread {
            generation,
            bytes: self.byte_count,
            elapsed: seen.now - self.begun_at,
            host_count: holders.len(),
        }));
        if survived_min < self.code.parity.into() {
            let machine_count =
                holders.iter().map(|host| &self.machines[*host as usize]).collect::<BTreeSet<_>>().len();
            let few =
                || format!("its pieces are on {machine_count} hosts, and should be on {}", self.code.piece_count());
            let why = self.why_lost.unwrap_or_else(few);
            let (survived, wanted) = (survived_min as u32, u32::from(self.code.parity));
            out.push_back(Effect::Note(CheckpointEvent::Weakened { generation, survived, wanted, why }));
        }
        Contents { pieces, hosts: seen.hosts.names(), ..self.contents }
    }
}
