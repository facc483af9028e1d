//! Simulated MPI programs: one list of instructions per virtual rank, made from a seed so that they end whatever the
//! outcomes of their wildcards, tests and probes are.
//!
//! Every outcome goes into the register `state`, and `state` into every payload and some destinations: replicas that
//! take different outcomes send different messages and are found out.

use super::random::Random;
use crate::matching::Pattern;
use redrt_types::{ContextId, Tag};

/// Payloads from this length on are announced and pulled when matched; their sends complete when released.
pub const LARGE_BYTES: u64 = 1_000;

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum To {
    /// To this rank.
    Rank(u32),
    /// To the source of the message received last: depends on who was matched.
    Matched,
}

/// One step of a program. Receives wait in a list of open requests, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Instruction {
    /// Starts a send; its payload is made from `state`.
    Send {
        /// Destination.
        to: To,
        /// Context.
        context: ContextId,
        /// Tag.
        tag: Tag,
        /// Length.
        length_bytes: u64,
    },
    /// Opens a receive.
    Post {
        /// Context.
        context: ContextId,
        /// What it accepts.
        pattern: Pattern,
    },
    /// `MPI_Wait` for the oldest open receive.
    WaitNext,
    /// `MPI_Waitany` over the open receives.
    WaitAny,
    /// `MPI_Test` for the oldest open receive, again and again; the number of false answers goes into `state`.
    TestNext,
    /// `MPI_Probe` for any source, then a receive from the source found.
    Probe {
        /// Context.
        context: ContextId,
        /// Tag.
        tag: Tag,
    },
    /// `MPI_Improbe` for any source, again and again, then `MPI_Mrecv`.
    PollProbe {
        /// Context.
        context: ContextId,
        /// Tag.
        tag: Tag,
    },
    /// Cancels the receive opened last; if that succeeded, opens it again.
    CancelLast {
        /// Context.
        context: ContextId,
        /// What it accepts.
        pattern: Pattern,
    },
    /// Reads a number outside: the leader's is everyone's.
    Read,
    /// Appends `state` to the rank's file, once for all replicas.
    Write,
    /// `MPI_Iprobe` for a message that never comes, once.
    PollOnce {
        /// Context.
        context: ContextId,
    },
    /// Waits until all large sends are complete.
    WaitSends,
    /// Tells every other rank who will get a token, and sends it there; the choice comes from `state`.
    PassToken {
        /// Context.
        context: ContextId,
        /// Tag of the announcement; the token's is one more.
        tag: Tag,
    },
    /// Receives such an announcement, and the token if it is for this rank.
    TakeToken {
        /// Who passes it.
        from: u32,
        /// Context.
        context: ContextId,
        /// Tag of the announcement.
        tag: Tag,
    },
    /// Reads a clock.
    Clock,
}

use Instruction::{
    CancelLast, Clock, PassToken, PollOnce, PollProbe, Post, Probe, Read, Send, TakeToken, TestNext, WaitAny, WaitNext,
    WaitSends, Write,
};

impl Instruction {
    /// A number for each kind of instruction.
    pub(super) fn kind(&self) -> u16 {
        match self {
            Send { .. } => 1,
            Post { .. } => 2,
            WaitNext => 3,
            WaitAny => 4,
            TestNext => 5,
            Probe { .. } => 6,
            PollProbe { .. } => 7,
            CancelLast { .. } => 8,
            Read => 9,
            Write => 10,
            PollOnce { .. } => 11,
            WaitSends => 12,
            PassToken { .. } => 13,
            TakeToken { .. } => 14,
            Clock => 15,
        }
    }
}

/// Of which kinds the phases of programs are.
#[derive(Clone, Copy, Debug)]
pub struct PhaseKinds(usize);

impl PhaseKinds {
    /// Point-to-point only.
    pub const WITHOUT: Self = Self(4);
    /// Collectives, too, some of them under way while something else is done.
    pub const WITH_COLLECTIVES: Self = Self(6);
    /// These, and files.
    pub const WITH_FILES: Self = Self(9);
}

/// The program of each rank.
#[must_use]
pub fn generate(random: &mut Random, rank_count: u32, phase_count: usize, kinds: PhaseKinds) -> Vec<Vec<Instruction>> {
    let mut programs = vec![Vec::new(); rank_count as usize];
    for phase in 0..phase_count {
        match random.below(kinds.0) {
            4 | 5 if rank_count > 1 => reduce(random, &mut programs, phase),
            6..9 => use_files(random, &mut programs),
            0 if rank_count > 1 => serve(random, &mut programs, phase),
            1 if rank_count > 1 => token(random, &mut programs, phase),
            _ => exchange(random, &mut programs, phase),
        }
    }
    programs.iter_mut().for_each(|program| program.push(WaitSends));
    programs
}

/// The same, with readings of clocks in between.
pub(super) fn with_times(random: &mut Random, programs: Vec<Vec<Instruction>>) -> Vec<Vec<Instruction>> {
    let mut with = |instruction| (0..random.below(3)).map(|_| Clock).chain([instruction]).collect::<Vec<_>>();
    programs.into_iter().map(|program| program.into_iter().flat_map(&mut with).collect()).collect()
}

fn length(random: &mut Random) -> u64 {
    if random.chance(25) { LARGE_BYTES + random.below(100_000) as u64 } else { random.below(100) as u64 }
}

/// Some ranks send to some; each receiver has its own way of taking what comes.
fn exchange(random: &mut Random, programs: &mut [Vec<Instruction>], phase: usize) {
    let rank_count = programs.len();
    let own = ContextId(100 + phase as u64);
    let tag = Tag(phase as i32 * 10);
    for receiver in 0..rank_count {
        let mode = random.below(5);
        // Receives that accept anything need a context that no later phase uses.
        let context = if mode >= 3 { own } else { ContextId(1 + random.below(2) as u64) };
        let only = random.below(rank_count);
        let mut messages = Vec::new();
        for _ in 0..random.below(7) {
            let sender = if mode == 4 { only } else { random.below(rank_count) };
            let tag = if mode == 0 || mode == 3 { Tag(tag.0 + random.below(3) as i32) } else { tag };
            let to = To::Rank(receiver as u32);
            programs[sender].push(Send { to, context, tag, length_bytes: length(random) });
            messages.push((sender as u32, tag));
        }
        random.shuffle(&mut messages);
        for (sender, tag) in &messages {
            let pattern = match mode {
                0 => Pattern::exact(*sender, *tag),
                1 => Pattern { source: None, tag: Some(*tag) },
                2 => Pattern::exact(*sender, *tag),
                3 => Pattern { source: None, tag: None },
                // All come from one rank and carry one tag, so that any mixture of patterns is served.
                _ => Pattern { source: random.chance(50).then_some(*sender), tag: random.chance(50).then_some(*tag) },
            };
            programs[receiver].push(Post { context, pattern });
            if random.chance(15) {
                programs[receiver].push(CancelLast { context, pattern });
            }
        }
        let wait = random.pick(&[WaitNext, WaitAny, TestNext]);
        for _ in &messages {
            programs[receiver].push(if random.chance(80) { wait } else { WaitNext });
        }
        if random.chance(20) {
            programs[receiver].push(WaitSends);
        }
    }
}

/// One rank answers requests in the order they come.
fn serve(random: &mut Random, programs: &mut [Vec<Instruction>], phase: usize) {
    let server = random.below(programs.len());
    let context = ContextId(1 + random.below(2) as u64);
    let (request, reply) = (Tag(phase as i32 * 10), Tag(phase as i32 * 10 + 1));
    let mut request_count = 0;
    for (client, program) in programs.iter_mut().enumerate().filter(|(rank, _)| *rank != server) {
        for _ in 0..1 + random.below(2) {
            request_count += 1;
            let to = To::Rank(server as u32);
            program.push(Send { to, context, tag: request, length_bytes: length(random) });
            let source = (client % 2 == 0).then_some(server as u32);
            program.push(Post { context, pattern: Pattern { source, tag: Some(reply) } });
            program.push(random.pick(&[WaitNext, TestNext, WaitAny]));
        }
    }
    let any = Pattern { source: None, tag: Some(request) };
    for _ in 0..request_count {
        match random.below(4) {
            0 => programs[server].push(Probe { context, tag: request }),
            1 => programs[server].push(PollProbe { context, tag: request }),
            2 => programs[server].extend([Post { context, pattern: any }, TestNext]),
            _ => programs[server].extend([Post { context, pattern: any }, WaitNext]),
        }
        programs[server].push(Send { to: To::Matched, context, tag: reply, length_bytes: length(random) });
    }
}

/// Some ranks read what is outside, look whether something has come, and write what they have computed.
fn use_files(random: &mut Random, programs: &mut [Vec<Instruction>]) {
    for program in programs {
        for _ in 0..random.below(4) {
            program.push(random.pick(&[Read, Write, Write, PollOnce { context: ContextId(2) }]));
        }
    }
}

/// All ranks combine what they have with what others do, in rounds of doubling distance (as a barrier or a reduction
/// does). Some compute in between: their receives are open before they send.
fn reduce(random: &mut Random, programs: &mut [Vec<Instruction>], phase: usize) {
    let rank_count = programs.len();
    let (context, length_bytes) = (ContextId(100 + phase as u64), length(random));
    let rounds: Vec<_> = (0..).map(|round| 1_usize << round).take_while(|distance| *distance < rank_count).collect();
    for (rank, program) in programs.iter_mut().enumerate() {
        let source = |distance: usize| Some(((rank + rank_count - distance) % rank_count) as u32);
        let tag = |round: usize| Tag((phase * 10 + round) as i32);
        let posts = rounds.iter().enumerate().map(|(round, distance)| Post {
            context,
            pattern: Pattern { source: source(*distance), tag: Some(tag(round)) },
        });
        let sends = rounds.iter().enumerate().map(|(round, distance)| Send {
            to: To::Rank(((rank + distance) % rank_count) as u32),
            context,
            tag: tag(round),
            length_bytes,
        });
        if random.chance(40) {
            program.extend(posts);
            program.extend(sends.flat_map(|send| [send, WaitNext]));
        } else {
            program.extend(posts.zip(sends).flat_map(|(post, send)| [post, send, WaitNext]));
        }
    }
}

fn token(random: &mut Random, programs: &mut [Vec<Instruction>], phase: usize) {
    let from = random.below(programs.len());
    let (context, tag) = (ContextId(1), Tag(phase as i32 * 10));
    for (rank, program) in programs.iter_mut().enumerate() {
        program.push(if rank == from {
            PassToken { context, tag }
        } else {
            TakeToken { from: from as u32, context, tag }
        });
    }
}
