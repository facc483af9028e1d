//! Records all state besides memory while the threads are stopped.

use super::descriptors::Descriptors;
use crate::control::Control;
use crate::image::state::{AgentState, Places, ProcessState, ThreadState};
use crate::maps::Mapping;
use crate::ranges::RangeSet;
use cloner_agent::abi::{SLOT_PARKED, Timer};
use std::io::{self, Read};

const LIMIT_COUNT: usize = 16;

/// Collects the state of the stopped process.
pub fn gather(
    control: &Control,
    mappings: &[Mapping],
    descriptors: Descriptors,
    guarded: &RangeSet,
) -> io::Result<ProcessState> {
    let (address, block) = control.block()?;
    let mut threads: Vec<ThreadState> = control
        .slots(&block)?
        .into_iter()
        .filter(|(_, slot)| slot.state == SLOT_PARKED)
        .map(|(at, slot)| ThreadState {
            tid: slot.tid,
            slot: at,
            frame: slot.frame,
            fs: slot.fs,
            clear_tid: slot.clear_tid,
        })
        .collect();
    threads.sort_unstable_by_key(|thread| (thread.tid != block.pid, thread.tid));
    if threads.first().is_none_or(|first| first.tid != block.pid) {
        return Err(io::Error::other("the program's first thread has ended, which cannot be copied"));
    }
    let agent = AgentState {
        block: address,
        tid: block.agent_tid,
        fs: block.agent_fs,
        stack: block.agent_stack,
        entry: block.agent_entry,
        thread_entry: block.thread_entry,
        own_files: block.own_files != 0,
        listener: block.listener,
    };
    let mut auxiliary = Vec::new();
    control.proc_file("auxv")?.read_to_end(&mut auxiliary)?;
    let status = control.proc_text("status")?;
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let personality = control.proc_text("personality")?;
    Ok(ProcessState {
        threads,
        agent,
        places: places(&control.proc_text("stat")?, block.heap_end)?,
        auxiliary: auxiliary.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight"))).collect(),
        system_areas: crate::host::system_areas(mappings),
        guards: guarded.iter().collect(),
        executable: control.proc_link("exe")?,
        directory: control.proc_link("cwd")?,
        umask: umask.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o22),
        limits: limits(&control.proc_text("limits")?),
        personality: u32::from_str_radix(personality.trim(), 16).unwrap_or(0),
        descriptors: descriptors.list,
        pipes: descriptors.pipes,
        sockets: descriptors.sockets,
        memory_hash: None,
    })
}

/// Parses `/proc/PID/stat`. Fields count from 1, and the second may contain anything within parentheses.
fn places(stat: &str, heap_end: u64) -> io::Result<Places> {
    let behind = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = behind.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    let words = [
        field(26),
        field(27),
        field(45),
        field(46),
        field(47),
        heap_end,
        field(28),
        field(48),
        field(49),
        field(50),
        field(51),
    ];
    if words.contains(&0) {
        Err(io::Error::other("/proc/PID/stat does not show where code and stack are"))
    } else {
        Ok(Places { words })
    }
}

/// Parses `/proc/PID/limits`, whose lines are ordered by the number of the limit.
fn limits(text: &str) -> Vec<(u64, u64)> {
    let number = |text: &str| if text == "unlimited" { u64::MAX } else { text.parse().unwrap_or(u64::MAX) };
    text.lines()
        .skip(1)
        .take(LIMIT_COUNT)
        .filter_map(|line| {
            let mut words = line.get(25..)?.split_ascii_whitespace();
            Some((number(words.next()?), number(words.next()?)))
        })
        .collect()
}

/// Parses the POSIX timers in `/proc/PID/timers`, in the order of their ids: a kernel that lists the newest first
/// counts up the ids of new ones, so a copy makes them in that order.
pub fn timers(text: &str) -> Vec<Timer> {
    let mut all: Vec<Timer> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        match (name, all.last_mut()) {
            ("ID", _) => all.push(Timer { id: value.parse().unwrap_or(-1), ..Timer::default() }),
            ("signal", Some(timer)) => {
                let (signal, pointer) = value.split_once('/').unwrap_or((value, "0"));
                timer.signal = signal.parse().unwrap_or(0);
                timer.value = u64::from_str_radix(pointer.trim_start_matches("0x"), 16).unwrap_or(0);
            }
            ("notify", Some(timer)) => {
                let (how, whom) = value.split_once('/').unwrap_or((value, ""));
                timer.notify = match how {
                    "none" => libc::SIGEV_NONE,
                    "thread" => libc::SIGEV_THREAD,
                    _ => libc::SIGEV_SIGNAL,
                };
                if let Some(tid) = whom.strip_prefix("tid.") {
                    timer.notify |= libc::SIGEV_THREAD_ID;
                    timer.tid = tid.parse().unwrap_or(0);
                }
            }
            ("ClockID", Some(timer)) => timer.clock = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    all.sort_unstable_by_key(|timer| timer.id);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_read_from_the_kernels_lines() {
        let text = "ID: 3\nsignal: 32/00007f0011223344\nnotify: signal/tid.44\nClockID: 0\n\
                    ID: 0\nsignal: 14/0000000000000007\nnotify: signal/pid.42\nClockID: 1\n";
        let timers = timers(text);
        assert_eq!(timers.len(), 2);
        assert_eq!(
            (timers[0].id, timers[0].signal, timers[0].value, timers[0].notify, timers[0].clock),
            (0, 14, 7, 0, 1)
        );
        assert_eq!((timers[1].id, timers[1].tid, timers[1].notify), (3, 44, libc::SIGEV_THREAD_ID));
        assert_eq!(timers[1].value, 0x7f00_1122_3344);
    }

    #[test]
    fn limits_and_places_are_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max cpu time              unlimited            unlimited            seconds   \n\
                    Max open files            1024                 4096                 files     \n";
        assert_eq!(limits(text), [(u64::MAX, u64::MAX), (1024, 4096)]);
        let fields: Vec<String> = (3..=52).map(|number: u32| number.to_string()).collect();
        let stat = format!("1 (a) b) {}", fields.join(" "));
        assert_eq!(places(&stat, 99).unwrap().words, [26, 27, 45, 46, 47, 99, 28, 48, 49, 50, 51]);
        assert!(places("", 1).is_err());
    }
}
