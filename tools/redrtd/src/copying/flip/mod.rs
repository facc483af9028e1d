//! Flips a bit of a thread's registers or stack (`--inject thread:`) from outside.
//!
//! The thread waits in the library for a word of its memory to change. The helper stops it by ptrace, writes the word,
//! and single-steps it. After a drawn number of steps the bit flips, and the thread goes on by itself. Steps are
//! counted from a place that is the same in every run, so the outcome does not depend on time.

mod aim;
mod code;
mod held;
mod registers;

use super::{HelperConnection, Reply};
use aim::{Aim, STEPS_MAX, Spot, Walk};
use anyhow::{Context, Result};
use code::Code;
use held::Held;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The thread to hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Victim {
    pub pid: i32,
    /// The thread's id in the innermost PID namespace of its process.
    pub thread: i32,
    /// Address of the word that it waits for.
    pub word: u64,
}

/// Carries out the fault that `drawn` gives.
pub fn flip(victim: Victim, drawn: u64, daemon: &mut HelperConnection) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let aim = Aim::of(drawn);
    let thread = task(victim)?;
    let mut held = Held::seize(thread)?;
    let memory = File::options().read(true).write(true).open(format!("/proc/{thread}/mem"));
    let memory = memory.context("Failed to open its memory")?;
    memory.write_all_at(&1_u32.to_ne_bytes(), victim.word).context("Failed to let it go on")?;
    let steps = walk(&mut held, aim.walk, &Code::of(victim.pid)?)?;
    let place = Code::of(victim.pid)?.describe(registers::pointers(thread)?.instruction);
    let spot = hit(thread, aim.spot, &memory, victim.pid)?;
    daemon.say(&Reply::Flipped { what: spot, steps, place })
}

/// The thread's id in this process's namespace.
fn task(victim: Victim) -> Result<Pid> {
    let directory = format!("/proc/{}/task", victim.pid);
    for entry in std::fs::read_dir(&directory).with_context(|| format!("Failed to read {directory}"))? {
        let path = entry?.path();
        // A thread may have ended meanwhile: it has no status.
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        if inner_id(&status) == Some(victim.thread) {
            let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            return id.map(Pid::from_raw).context("a thread without a number");
        }
    }
    anyhow::bail!("process {} has no thread {}", victim.pid, victim.thread)
}

/// The id in the innermost namespace.
fn inner_id(status: &str) -> Option<i32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().next_back()?.parse().ok()
}

/// Steps the thread. Returns the number of executed instructions.
fn walk(held: &mut Held, walk: Walk, code: &Code) -> Result<u64> {
    let in_program = walk.in_program && !code.is_unknown();
    let (mut counted, mut steps) = (0, 0);
    while counted < walk.instructions && steps < STEPS_MAX {
        held.step()?;
        steps += 1;
        let counts = !in_program || code.is_program(registers::pointers(held.thread())?.instruction);
        counted += u64::from(counts);
    }
    Ok(steps)
}

/// Flips the bit. Returns a description of it.
fn hit(thread: Pid, spot: Spot, memory: &File, pid: i32) -> Result<String> {
    Ok(match spot {
        Spot::General { register, bit } => {
            registers::flip_general(thread, register, bit)?;
            format!("bit {bit} of {}", registers::GENERAL[register])
        }
        Spot::Flags { bit } => {
            registers::flip_flags(thread, bit)?;
            format!("bit {bit} of the flags")
        }
        Spot::Vector { register, bit } => {
            registers::flip_vector(thread, register, bit)?;
            format!("bit {bit} of xmm{register}")
        }
        Spot::Stack { word, bit } => {
            let begin = registers::pointers(thread)?.stack & !7;
            // Near the end of the stack fewer words exist.
            let words = Code::of(pid)?.end_of_mapping(begin).map_or(1, |end| (end - begin) / 8);
            let address = begin + word % words.max(1) * 8;
            let mut bytes = [0; 8];
            memory.read_exact_at(&mut bytes, address).context("Failed to read its stack")?;
            let value = u64::from_ne_bytes(bytes) ^ 1 << bit;
            memory.write_all_at(&value.to_ne_bytes(), address).context("Failed to write to its stack")?;
            format!("bit {bit} of the word at {address:#x}, {} bytes above the stack pointer,", address - begin)
        }
    })
}

#[cfg(test)]
mod tests;
