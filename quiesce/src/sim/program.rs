//! Simulated MPI programs: one list of instructions for each virtual rank, made from a seed. They end whatever the
//! outcomes of their wildcards, tests and probes are.
//!
//! Every outcome enters the register `state`, and `state` enters every payload and some destinations. So replicas that
//! take different outcomes send different messages, and are detected.

use crate::matching::Pattern;
use redrt_types::{ContextId, Tag};
use simulation_kit::Random;

/// Length from which payloads are announced, and pulled when matched. Sends of that length complete when released.
pub const LARGE_BYTES: u64 = 1_000;

/// The destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum To {
    /// This rank, fixed in the program.
    Rank(u32),
    /// The source of the latest message received, which depends on matching.
    Matched,
}

/// One step of a program. Open receives wait in a list, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Instruction {
    /// Starts a send. Its payload is made from `state`.
    Send {
        /// Destination of the message.
        to: To,
        /// Context of the message.
        context: ContextId,
        /// Tag of the message.
        tag: Tag,
        /// Length in bytes, as in the envelope.
        length_bytes: u64,
    },
    /// Opens a receive, which waits in the list.
    Post {
        /// Context of the receive.
        context: ContextId,
        /// The messages it accepts.
        pattern: Pattern,
    },
    /// `MPI_Wait` for the oldest open receive.
    WaitNext,
    /// `MPI_Waitany` over the open receives.
    WaitAny,
    /// `MPI_Test` for the oldest open receive until it succeeds. The number of false answers enters `state`.
    TestNext,
    /// `MPI_Probe` for any source, then a receive from the source found.
    Probe {
        /// Context of the probe.
        context: ContextId,
        /// Tag of the probe.
        tag: Tag,
    },
    /// `MPI_Improbe` for any source until it succeeds, then `MPI_Mrecv`.
    PollProbe {
        /// Context of the probe.
        context: ContextId,
        /// Tag of the probe.
        tag: Tag,
    },
    /// Cancels the newest open receive. If that succeeds, opens it again.
    CancelLast {
        /// Context of the receive.
        context: ContextId,
        /// The messages it accepts.
        pattern: Pattern,
    },
    /// Reads a number from outside. All replicas get the leader's.
    Read,
    /// Appends `state` to the rank's file, once for all replicas.
    Write,
    /// One `MPI_Iprobe` for a message that never comes.
    PollOnce {
        /// Context of the probe.
        context: ContextId,
    },
    /// Waits until all large sends are complete.
    WaitSends,
    /// Announces to every other rank who will get a token, and sends it there. The choice comes from `state`.
    PassToken {
        /// Context of announcement and token.
        context: ContextId,
        /// Tag of the announcement. The token's is one more.
        tag: Tag,
    },
    /// Receives such an announcement, and the token if it is for this rank.
    TakeToken {
        /// Rank that passes it.
        from: u32,
        /// Context of announcement and token.
        context: ContextId,
        /// Tag of the announcement.
        tag: Tag,
    },
    /// A reading of a clock.
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

/// The kinds of phases in programs.
#[derive(Clone, Copy, Debug)]
pub struct PhaseKinds(usize);

impl PhaseKinds {
    /// Phases of point-to-point messages only.
    pub const WITHOUT: Self = Self(4);
    /// Point-to-point phases and collectives, some of which overlap with other work.
    pub const WITH_COLLECTIVES: Self = Self(6);
    /// Point-to-point phases, collectives and files.
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

/// Adds readings of clocks to programs.
pub(super) fn with_times(random: &mut Random, programs: Vec<Vec<Instruction>>) -> Vec<Vec<Instruction>> {
    let mut with = |instruction| (0..random.below(3)).map(|_| Clock).chain([instruction]).collect::<Vec<_>>();
    programs.into_iter().map(|program| program.into_iter().flat_map(&mut with).collect()).collect()
}

fn length(random: &mut Random) -> u64 {
    if random.chance(25) { LARGE_BYTES + random.below(100_000) as u64 } else { random.below(100) as u64 }
}

/// A phase in which some ranks send to some. Each receiver has its own way of receiving.
fn exchange(random: &mut Random, programs: &mut [Vec<Instruction>], phase: usize) {
    let rank_count = programs.len();
    let own = ContextId(100 + phase as u64);
    let tag = Tag(phase as i32 * 10);
    for receiver in 0..rank_count {
        let mode = random.below(5);
        // Receives that accept any message need a context that no later phase uses.
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
                // All messages come from one rank with one tag, so any mixture of patterns receives them.
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

/// A phase in which one rank answers requests in the order they come.
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

/// A phase in which some ranks read from outside, poll for a message, and write their results.
fn use_files(random: &mut Random, programs: &mut [Vec<Instruction>]) {
    for program in programs {
        for _ in 0..random.below(4) {
            program.push(random.pick(&[Read, Write, Write, PollOnce { context: ContextId(2) }]));
        }
    }
}

/// A phase in which all ranks combine their values in rounds of doubling distance, like a barrier or a reduction. Some
/// compute in between, with their receives open before they send.
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
