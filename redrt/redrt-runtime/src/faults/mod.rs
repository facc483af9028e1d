//! Faults that `--inject` asks for. Each has its place: the n-th send of this process, the n-th message that it
//! receives, or its n-th change of a file.

mod standstill;

pub use standstill::end as end_standstill;

use crate::{Job, job, threads};
use quiesce::Place;
use redrt_abi::program_memory;
use redrt_engine::injection::Faults;
use redrt_engine::link::Links;
use redrt_engine::payload::{Payload, Target};
use redrt_transport::network::Source;
use redrt_wire::control::FromAgent;
use redrt_wire::event::Event;
use redrt_wire::fault::ProcessFault;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

process_local! {
    /// True while faults are injected; read before every send.
    static ARE_INJECTED: AtomicBool = AtomicBool::new(false);
    static SENDS: AtomicU64 = AtomicU64::new(0);
    static RECEIVES: AtomicU64 = AtomicU64::new(0);
    static CHANGES: AtomicU64 = AtomicU64::new(0);
    /// Frames with decisions that this process has sent.
    static DECISIONS: AtomicU64 = AtomicU64::new(0);
    /// Pieces of files that this process has read on behalf of its rank.
    static READS: AtomicU64 = AtomicU64::new(0);
    /// Faults that have falsified their outcome: bits by the fault's index, modulo 64.
    static FALSIFIED: AtomicU64 = AtomicU64::new(0);
    /// Index of the fault that hits the next transmitted payload; -1 for none.
    static NEXT_WIRE: AtomicI64 = AtomicI64::new(-1);
    /// Index of the fault that hits the next payload in the retention log; -1 for none.
    static NEXT_LOG: AtomicI64 = AtomicI64::new(-1);
    /// The host that corrupts data: one send in `SICK_PERIOD` is hit. A period of 0 means that there is none.
    static SICK_HOST: AtomicU32 = AtomicU32::new(0);
    static SICK_PERIOD: AtomicU64 = AtomicU64::new(0);
}

/// Returns true if faults may be injected into this process.
#[inline]
pub fn are_injected() -> bool {
    ARE_INJECTED.load(Ordering::Relaxed)
}

/// Arms the faults that the daemon has passed on. `host` is the number of this process's host.
pub fn arm(faults: &[ProcessFault], host: u32) {
    let mut armed = false;
    for fault in faults {
        match *fault {
            ProcessFault::Sick { host: sick, period } => {
                SICK_HOST.store(sick, Ordering::Release);
                SICK_PERIOD.store(period, Ordering::Release);
                armed |= sick == host;
            }
            ProcessFault::FlipOutput { .. } | ProcessFault::FlipClone { .. } => {}
            _ => armed = true,
        }
    }
    ARE_INJECTED.store(armed, Ordering::Release);
}

/// In a copy: disarms all faults, which were meant for the source, except a sick host's, if this process is on it now.
pub fn become_copy(host: u32) {
    let is_sick = SICK_PERIOD.load(Ordering::Acquire) > 0 && SICK_HOST.load(Ordering::Acquire) == host;
    ARE_INJECTED.store(is_sick, Ordering::Release);
}

/// Called before each message of the application or a collective to another rank, by a thread that does not hold the
/// engine.
#[inline(always)]
pub fn before_send(payload: &Payload) {
    if are_injected() {
        carry_out(payload.bytes(), None);
    }
}

/// Like [`before_send`], for a thread that holds the engine. `links` are those of the engine.
#[inline(always)]
pub fn before_send_of_holder(payload: &Payload, links: &mut Links) {
    if are_injected() {
        carry_out(payload.bytes(), Some(links));
    }
}

#[cold]
fn carry_out(payload: &[u8], mut links: Option<&mut Links>) {
    let Some(job) = job() else { return };
    let number = SENDS.fetch_add(1, Ordering::AcqRel) + 1;
    be_sick(job, payload, number);
    for (at, fault) in job.welcome.faults.iter().enumerate() {
        match *fault {
            ProcessFault::Kill { send } if send == number => {
                report(*fault, format!("kill at send {number}"));
                end_this_process();
            }
            ProcessFault::FlipPayload { send, bit } if send == number && !payload.is_empty() => {
                let bit = bit % (payload.len() as u64 * 8);
                if flip(payload, bit) {
                    report(*fault, format!("bit {bit} of the payload of send {number} flipped in memory"));
                }
            }
            ProcessFault::FlipWire { send, .. } if send == number && !payload.is_empty() => {
                NEXT_WIRE.store(at as i64, Ordering::Release);
            }
            ProcessFault::FlipHeap { send, bit } if send == number => {
                if let Some((address, bit, kind)) = flip_memory(bit) {
                    report(
                        *fault,
                        format!("bit {bit} of the word at {address:#x} ({kind}) flipped before send {number}"),
                    );
                }
            }
            ProcessFault::FlipLogged { send, .. } if send == number && !payload.is_empty() => {
                NEXT_LOG.store(at as i64, Ordering::Release);
            }
            ProcessFault::Reset { send, peer } if send == number => {
                let process = job.welcome.world.process(peer);
                let is_reset = match &mut links {
                    Some(links) => links.disconnect(process),
                    None => redrt_engine::cell().lock().links.disconnect(process),
                };
                if is_reset {
                    report(*fault, format!("reset of the connections with {peer} at send {number}"));
                }
            }
            ProcessFault::FlipThread { send, .. } if send <= number => standstill::once(*fault, at, number),
            _ => {}
        }
    }
}

fn end_this_process() -> ! {
    // SAFETY: - touches no memory: both calls take numbers only. The signal ends this process, which is the fault.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    loop {
        std::hint::spin_loop();
    }
}

/// Called when this process has changed a file for its rank, before any sibling has the outcome.
#[inline]
pub fn after_change() {
    if are_injected() {
        die_after_change();
    }
}

#[cold]
fn die_after_change() {
    let Some(job) = job() else { return };
    let number = CHANGES.fetch_add(1, Ordering::AcqRel) + 1;
    let asked = ProcessFault::KillAfterChange { change: number };
    if job.welcome.faults.contains(&asked) {
        report(asked, format!("kill after change {number} of a file"));
        end_this_process();
    }
}

/// On a sick host: flips a bit in one send of each period. Processes have different sends hit.
fn be_sick(job: &Job, payload: &[u8], number: u64) {
    let period = SICK_PERIOD.load(Ordering::Acquire);
    let me = job.welcome.me;
    let process = u64::from(job.welcome.world.process(me).0);
    let is_hit = period > 0 && SICK_HOST.load(Ordering::Acquire) == job.welcome.host_number;
    if is_hit && !payload.is_empty() && (number + process.wrapping_mul(0x9e37_79b9)).is_multiple_of(period) {
        let bit = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (payload.len() as u64 * 8);
        let asked = ProcessFault::Sick { host: job.welcome.host_number, period };
        if flip(payload, bit) {
            report(asked, format!("bit {bit} of the payload of send {number} flipped by a sick host"));
        }
    }
}

/// Flips a bit of the program's memory, in a word that is not zero, since memory that was never used is of no interest.
/// `drawn` chooses the word and the bit. Returns the word's address, the bit's number in it and the kind of memory;
/// `None` if there is no such word.
fn flip_memory(drawn: u64) -> Option<(u64, u32, program_memory::RegionKind)> {
    let regions = program_memory::small_regions();
    let words = || regions.iter().flat_map(|region| (region.start..region.end).step_by(8).map(move |at| (at, region)));
    // SAFETY: - readable: mapped a moment ago; mappings of the heap and of static data stay while the program is in a
    //           send.
    //         - aligned: mappings begin at pages, and the step is 8.
    let value = |at: u64| unsafe { (at as *const u64).read_volatile() };
    let used = words().filter(|(at, _)| value(*at) != 0).count() as u64;
    let wanted = drawn.checked_rem(used)?;
    let (at, region) = words().filter(|(at, _)| value(*at) != 0).nth(wanted as usize)?;
    let bit = (drawn >> 58) as u32;
    // SAFETY: - writable: mapped a moment ago, and still mapped, as for the reads above.
    //         - the program's data may change: that is the purpose of the fault.
    unsafe { (at as *mut u64).write_volatile(value(at) ^ 1 << bit) };
    Some((at, bit, region.kind))
}

/// Flips a bit of the application's own memory, through /proc/self/mem, which ignores page protection: a send buffer
/// may be read-only. Returns true if that was possible.
fn flip(payload: &[u8], bit: u64) -> bool {
    let address = payload.as_ptr() as u64 + bit / 8;
    let value = [payload[(bit / 8) as usize] ^ 1 << (bit % 8)];
    let written = OpenOptions::new().write(true).open("/proc/self/mem").and_then(|file| file.write_at(&value, address));
    if let Err(error) = &written {
        redrt_process::say(format_args!("redrt: no bit could be flipped: {error}"));
    }
    written.is_ok()
}

/// Flips a bit of a piece of a file, if a fault asks for it. Called when this process has read the piece for its rank,
/// before its siblings have it.
pub fn after_read(bytes: &mut [u8]) {
    let hit = numbered(&READS, bytes.len(), |fault| match fault {
        ProcessFault::FlipRead { read, bit } => Some((read, bit)),
        _ => None,
    });
    if let Some((asked, bit, number)) = hit {
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        report(asked, format!("bit {bit} of piece {number} flipped that was read from a file"));
    }
}

/// An outcome that is about to be returned to the program.
pub enum Shown<'a> {
    /// A test, or a probe that does not wait, has found something.
    Found,
    /// A probe that does not wait has found nothing.
    NothingProbed,
    /// A clock was read.
    Clock,
    /// These bytes were read from a file.
    Read(&'a mut [u8]),
}

/// Returns true if the program has to get another outcome instead. In bytes that were read, a bit was flipped then.
#[inline]
pub fn is_falsified(shown: Shown<'_>) -> bool {
    are_injected() && falsify(shown)
}

#[cold]
fn falsify(shown: Shown<'_>) -> bool {
    let Some(job) = job() else { return false };
    let place = threads::place();
    let is_due = |at: &usize, fault: &ProcessFault| {
        let is_left = FALSIFIED.load(Ordering::Acquire) & 1 << (at % 64) == 0;
        is_left
            && place != Place::NOWHERE
            && matches!(fault, ProcessFault::Falsify { call, .. } if *call <= place.calls)
    };
    let due = job.welcome.faults.iter().enumerate().find(|(at, fault)| is_due(at, fault));
    let Some((at, fault @ ProcessFault::Falsify { bit, .. })) = due else { return false };
    let what = match shown {
        Shown::Read([]) => return false,
        Shown::Read(bytes) => {
            let bit = bit % (bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            format!("bit {bit} of what the program has read from a file flipped")
        }
        Shown::Found => "a test has found nothing".to_owned(),
        Shown::NothingProbed => "a probe has found a message".to_owned(),
        Shown::Clock => "a clock is an hour late".to_owned(),
    };
    FALSIFIED.fetch_or(1 << (at % 64), Ordering::AcqRel);
    report(*fault, format!("outcome falsified at MPI call {}: {what}", place.calls));
    true
}

/// Counts an item of `length` bytes, and finds the fault that hits it. Returns the fault, the bit, and the item's
/// number. `of` returns the number and the bit of a fault of the right kind.
fn numbered(
    counter: &AtomicU64,
    length: usize,
    of: impl Fn(ProcessFault) -> Option<(u64, u64)>,
) -> Option<(ProcessFault, u64, u64)> {
    if !are_injected() || length == 0 {
        return None;
    }
    let number = counter.fetch_add(1, Ordering::AcqRel) + 1;
    let faults = &job()?.welcome.faults;
    let hit = |fault: &ProcessFault| of(*fault).filter(|(at, _)| *at == number).map(|(_, bit)| (*fault, bit));
    let (asked, bit) = faults.iter().find_map(hit)?;
    Some((asked, bit % (length as u64 * 8), number))
}

/// Takes the fault that hits a payload of `length` bytes, and its bit.
fn take(next: &AtomicI64, length: usize) -> Option<(ProcessFault, u64)> {
    if !are_injected() || length == 0 {
        return None;
    }
    let at = usize::try_from(next.swap(-1, Ordering::AcqRel)).ok()?;
    let asked = *job()?.welcome.faults.get(at)?;
    let (ProcessFault::FlipWire { bit, .. } | ProcessFault::FlipLogged { bit, .. }) = asked else { return None };
    Some((asked, bit % (length as u64 * 8)))
}

/// The faults that `--inject` asks for, as the engine's source of faults.
pub struct OfJob;

impl Faults for OfJob {
    /// If another thread's message comes first, it is hit.
    fn take_wire_bit(&self, length: usize) -> Option<u64> {
        let (asked, bit) = take(&NEXT_WIRE, length)?;
        report(asked, format!("bit {bit} of a payload of {length} bytes flipped in flight"));
        Some(bit)
    }

    /// The checksum of the frame was taken already.
    fn take_decision_bit(&self, length: usize) -> Option<u64> {
        let (asked, bit, number) = numbered(&DECISIONS, length, |fault| match fault {
            ProcessFault::FlipDecision { frame, bit } => Some((frame, bit)),
            _ => None,
        })?;
        report(asked, format!("bit {bit} of decision frame {number} flipped in flight"));
        Some(bit)
    }

    /// The bytes in flight stay as they are.
    fn corrupt_kept(&self, payload: &Payload) -> Option<Payload> {
        let (asked, bit) = take(&NEXT_LOG, payload.len())?;
        let mut bytes = payload.bytes().to_vec();
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        report(asked, format!("bit {bit} of a payload of {} bytes flipped in the retention log", bytes.len()));
        Some(Payload::Owned(bytes.into()))
    }

    fn before_delivery(&self, target: &Target, length: u64) {
        let Some(job) = job().filter(|_| are_injected()) else { return };
        let number = RECEIVES.fetch_add(1, Ordering::AcqRel) + 1;
        for fault in &job.welcome.faults {
            let ProcessFault::FlipReceived { message, bit } = *fault else { continue };
            if message == number && length > 0 {
                let bit = bit % (length * 8);
                // SAFETY: - valid for writes of length bytes: they were placed in the receive's buffer, which is lent
                //           until the receive completes, and it has not completed.
                unsafe { target.flip(bit, length as usize) };
                report(*fault, format!("bit {bit} of received message {number} flipped in its buffer"));
            }
        }
    }
}

fn report(asked: ProcessFault, fault: String) {
    if let Some(job) = job()
        && let Some(control) = job.control
    {
        // If the daemon is gone, so is the job.
        let _ = control.send(&FromAgent::Event(Event::Injected { replica: job.welcome.me, asked, fault }));
    }
}
