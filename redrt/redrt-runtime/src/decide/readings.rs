//! Readings of clocks and of the system's counts, decided by the leader.

use super::READINGS_PER_POLL;
use crate::faults::{self, Shown};
use crate::threads;
use quiesce::{Outcome, StreamId};
use redrt_engine::reading::{Awaited, Patience, Reading};
use redrt_engine::replication::times::{Read, Time};
use redrt_engine::{self as engine, Cell, tasks};
use redrt_process::clock::monotonic_ns;
use redrt_wire::event::Parting;
use std::sync::atomic::{AtomicU32, Ordering};

/// Error of an injected falsified clock: one hour.
const FALSIFIED_BY_NS: u64 = 3_600_000_000_000;

/// The leader's reading, in nanoseconds, of a clock that the program reads by a call of MPI. `here` reads this
/// machine's clock.
pub fn time_of_call(clock: i32, here: impl Fn() -> u64) -> u64 {
    let ns = if threads::is_in_callback() { tasks::hold(|| read(clock, here)) } else { read(clock, here) };
    if faults::is_falsified(Shown::Clock) { ns + FALSIFIED_BY_NS } else { ns }
}

/// Makes progress in some readings: a program may consist of readings only until a message comes, and its followers'
/// acknowledgements would fill its inbox.
fn poll_for_reading(cell: &Cell) {
    process_local! {
        static COUNT: AtomicU32 = AtomicU32::new(0);
    }
    if COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(READINGS_PER_POLL) {
        cell.poll_once();
    }
}

/// The leader's reading, in nanoseconds, of a clock that the program reads past MPI; `None` if no sibling makes this
/// reading. `asker` identifies the reading function of the program; `here` reads this machine's clock.
pub fn reading(clock: i32, asker: u64, here: impl Fn() -> u64) -> Option<u64> {
    let read = || match read_by(asker, clock, || Outcome::Clock { clock, ns: here() })? {
        Outcome::Clock { ns, .. } => Some(ns),
        other => unreachable!("{other:?} was decided for a clock"),
    };
    let ns = if threads::is_in_callback() { tasks::hold(read) } else { read() };
    ns.map(|ns| if faults::is_falsified(Shown::Clock) { ns + FALSIFIED_BY_NS } else { ns })
}

/// The leader's value of a count of the system; `None` if no sibling asks for it. `of` is its number
/// (`redrt_wire::event::is_count`); `asker` identifies the asking function of the program; `here` returns this
/// machine's value.
pub fn counted(of: i32, asker: u64, here: impl Fn() -> Vec<u8>) -> Option<Vec<u8>> {
    match read_by(asker, of, || Outcome::Bytes(here()))? {
        Outcome::Bytes(bytes) => Some(bytes),
        other => unreachable!("{other:?} was decided for what the system counts"),
    }
}

fn read_by(asker: u64, of: i32, here: impl Fn() -> Outcome) -> Option<Outcome> {
    let cell = engine::cell();
    let read = Read { stream: threads::stream(), asker, of };
    let mut patience = Patience::short();
    poll_for_reading(cell);
    cell.wait_for(|engine| {
        loop {
            return match engine.agree(|sphere| sphere.ask_time(read, &mut patience)) {
                Time::Decided(outcome) => Some(Some(outcome)),
                Time::Decide => {
                    let outcome = here();
                    engine.agree(|sphere| sphere.answer_time(read, outcome.clone(), monotonic_ns()));
                    Some(Some(outcome))
                }
                Time::Alone => Some(None),
                Time::Crowded
                    if engine.agree(|sphere| patience.is_vain(sphere, StreamId::Readings(threads::number()))) =>
                {
                    continue;
                }
                Time::Crowded | Time::Wait => None,
            };
        }
    })
}

fn read(clock: i32, here: impl Fn() -> u64) -> u64 {
    let cell = engine::cell();
    let stream = threads::stream();
    let mut patience = Patience::default();
    poll_for_reading(cell);
    cell.wait_for(|engine| {
        loop {
            let awaited = match engine.agree(|sphere| sphere.ask_reading(stream, clock, &patience)) {
                Reading::Decided(ns) => return Some(ns),
                Reading::Decide => {
                    let ns = here();
                    engine.agree(|sphere| sphere.answer_reading(stream, clock, ns, monotonic_ns()));
                    return Some(ns);
                }
                Reading::Crowded if engine.agree(|sphere| patience.is_vain(sphere, stream)) => continue,
                Reading::Crowded => return None,
                Reading::Missing => Awaited::Never,
                Reading::Wait => engine.agree(|sphere| patience.awaited(sphere, stream)),
            };
            match awaited {
                Awaited::Perhaps => return None,
                Awaited::Voted => {}
                Awaited::Never => {
                    engine.agree(|sphere| sphere.report_divergence(Parting::ClockAlone, None));
                    return Some(here());
                }
                Awaited::Ended => return Some(here()),
            }
        }
    })
}
