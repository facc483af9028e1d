//! Faults that `--inject` asks for, carried out at the n-th send of this process.

use crate::engine::payload::Payload;
use crate::runtime;
use crate::transport::tcp::Source;
use redrt_wire::control::{FromAgent, ProcessFault};
use redrt_wire::event::Event;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Whether there are any: looked at by every send.
static ARMED: AtomicBool = AtomicBool::new(false);
static SENDS: AtomicU64 = AtomicU64::new(0);
/// The bit to flip in the next transmitted payload, -1 for none.
static WIRE_BIT: AtomicI64 = AtomicI64::new(-1);

/// Arms what the daemon asked for.
pub fn arm(faults: &[ProcessFault]) {
    ARMED.store(!faults.is_empty(), Ordering::Release);
}

/// In a copy: the faults were meant for its source.
pub fn disarm() {
    ARMED.store(false, Ordering::Release);
}

/// Called before each message to another rank that the application or a collective sends.
#[inline]
pub fn before_send(payload: &mut Payload) {
    if ARMED.load(Ordering::Relaxed) {
        carry_out(payload);
    }
}

#[cold]
fn carry_out(payload: &mut Payload) {
    let Some(job) = runtime::job() else { return };
    let number = SENDS.fetch_add(1, Ordering::AcqRel) + 1;
    for fault in &job.welcome.faults {
        match *fault {
            ProcessFault::Kill { send } if send == number => {
                report(format!("kill at send {number}"));
                // SAFETY: - ends this process, as asked.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                loop {
                    std::hint::spin_loop();
                }
            }
            ProcessFault::FlipPayload { send, bit } if send == number && payload.len() > 0 => {
                let bit = bit % (payload.len() as u64 * 8);
                flip(payload, bit);
                report(format!("bit {bit} of the payload of send {number} flipped in memory"));
            }
            ProcessFault::FlipWire { send, bit } if send == number && payload.len() > 0 => {
                let bit = bit % (payload.len() as u64 * 8);
                WIRE_BIT.store(bit as i64, Ordering::Release);
                report(format!("bit {bit} of the payload of send {number} flipped in flight"));
            }
            ProcessFault::Reset { send, peer } if send == number => {
                let process = job.welcome.world.process(peer);
                if crate::engine::cell().lock().links.disconnect(process) {
                    report(format!("reset of the connections with {peer} at send {number}"));
                }
            }
            _ => {}
        }
    }
}

/// Flips a bit of the application's own memory, through the file that ignores page protection: a send buffer may be
/// read-only.
fn flip(payload: &Payload, bit: u64) {
    let address = payload.address() + bit / 8;
    let value = [payload.bytes()[(bit / 8) as usize] ^ 1 << (bit % 8)];
    let written = OpenOptions::new().write(true).open("/proc/self/mem").and_then(|file| file.write_at(&value, address));
    if let Err(error) = written {
        report(format!("the flip could not be carried out: {error}"));
    }
}

/// The bit to flip in the copy of a payload of `length` bytes that is about to be transmitted, if any; asked once. Another
/// thread's message may come first: then it is hit.
pub fn take_wire_bit(length: usize) -> Option<u64> {
    if !ARMED.load(Ordering::Relaxed) || length == 0 {
        return None;
    }
    let bit = u64::try_from(WIRE_BIT.swap(-1, Ordering::AcqRel)).ok()?;
    Some(bit % (length as u64 * 8))
}

fn report(fault: String) {
    if let Some(job) = runtime::job()
        && let Some(control) = job.control
    {
        // If the daemon is gone, so is the job.
        let _ = control.send(&FromAgent::Event(Event::Injected { replica: job.welcome.me, fault }));
    }
}
