//! Operations of the program on a target's memory: done at once if this process reaches the memory, else by a request.

use super::Window;
use super::apply::{Done, Form, Spot};
use super::direct::{Direct, Reached};
use super::order::{Combination, Order, Place};
use super::origin::Effect;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::OpHandle;
use redrt_engine::payload::{Payload, Target};
use redrt_engine::request::RequestId;
use redrt_transport::memory::Scratch;
use redrt_transport::network::Source;
use std::ffi::c_int;
use std::sync::Arc;

/// Destination of an operation: a target and a place in its memory. The place was checked, unless the window is
/// dynamic.
pub struct There {
    /// Rank of the target.
    pub target: u32,
    /// Displacement in the target's units; in a dynamic window an address.
    pub displacement: i64,
    /// Form of the bytes at the displacement.
    pub form: Form,
}

impl There {
    fn place(&self) -> Place {
        Place::new(self.displacement, &self.form.layout())
    }
}

/// Copies bytes of a target to the program's buffer.
fn deliver(reached: &Reached, into: &Target) -> Done {
    match into.scatter {
        // SAFETY: - valid for writes of as many bytes: the program's buffer, whose size the operation's caller has
        //           checked.
        None => unsafe { reached.read_to(into.start) },
        Some(_) => scatter(reached, into),
    }
}

#[inline(never)]
fn scatter(reached: &Reached, into: &Target) -> Done {
    let mut scratch = Scratch::spare(reached.size());
    let packed = scratch.region();
    // SAFETY: - valid for writes of reached.size() bytes: the scratch has just been made with that many.
    unsafe { reached.read_to(packed.start())? };
    // SAFETY: - valid for writes: the program's buffer has room for its datatype, and is lent to the operation.
    packed.with_bytes(|bytes| unsafe { into.place(bytes) });
    Ok(())
}

/// Copies a spot's bytes to the program's buffer, before an operation changes them.
fn deliver_from(spot: &Spot, into: &Target) -> Done {
    deliver(&Reached::Mapped(spot.clone()), into)
}

impl Window {
    /// The memory at a destination; `None` if this process does not reach it.
    fn reach(&self, there: &There) -> Option<(&Arc<Direct>, Reached)> {
        let direct = self.direct.as_ref()?;
        // Wrapping, since a form without bytes may have any displacement; others were checked.
        let offset = there.displacement.wrapping_mul(self.members[there.target as usize].unit as i64);
        Some((direct, direct.part(there.target).reach(offset, &there.form)))
    }

    fn outcome(&self, there: &There, done: Done) -> Result {
        done.map_err(|class| self.unreachable(there.target, class))
    }

    /// Carries out gathered operations on a target, or on all for `None`, in a direct window.
    #[inline]
    pub(super) fn carry_out(&self, direct: &Direct, target: Option<u32>) -> Result {
        direct.carry_out(target).map_err(|(target, class)| self.unreachable(target, class))
    }

    #[cold]
    fn unreachable(&self, target: u32, class: c_int) -> Error {
        Error::new(class, format!("the memory of rank {target} in {} cannot be reached", self.label()))
    }

    #[inline(never)]
    fn ask_to_write(&self, there: &There, data: Payload, effect: Effect) -> Option<RequestId> {
        let at = there.place();
        self.push(there.target, |apart| Order::Put { at, apart }, data, effect)
    }

    #[inline(never)]
    fn ask_to_read(&self, there: &There, into: Target, effect: Effect) -> Option<RequestId> {
        let at = there.place();
        self.ask(there.target, |tag| Order::Get { at, tag }, &[], into, effect)
    }

    /// Writes data to a target. `data` may be lent. Returns the program's request, if `effect` asks for one.
    pub fn put(&self, there: &There, data: Payload, effect: Effect) -> Result<Option<RequestId>> {
        let Some((direct, reached)) = self.reach(there) else {
            return Ok(self.ask_to_write(there, data, effect));
        };
        self.outcome(there, direct.put(there.target, &reached, data.bytes(), effect == Effect::Plain))?;
        Ok(self.user_request(effect, true))
    }

    /// Reads from a target. The caller has checked that `into` has room. Returns the program's request, if `effect`
    /// asks for one.
    pub fn get(&self, there: &There, into: Target, effect: Effect) -> Result<Option<RequestId>> {
        let Some((direct, reached)) = self.reach(there) else {
            return Ok(self.ask_to_read(there, into, effect));
        };
        let done = match into.scatter {
            // SAFETY: - valid for writes of as many bytes until the operation is done: the program's buffer, whose size
            //           the caller has checked.
            None => unsafe { direct.get(there.target, &reached, into.start, effect == Effect::Plain) },
            Some(_) => direct.after_others(there.target).and_then(|()| scatter(&reached, &into)),
        };
        self.outcome(there, done)?;
        Ok(self.user_request(effect, true))
    }

    /// Combines data with a target's memory. `data` may be lent. Returns the program's request, if `effect` asks for
    /// one.
    pub fn accumulate(
        &self,
        there: &There,
        how: Combination,
        data: Payload,
        effect: Effect,
    ) -> Result<Option<RequestId>> {
        let Some((direct, reached)) = self.reach(there) else {
            let at = there.place();
            return Ok(self.push(there.target, |_| Order::Accumulate { at, how }, data.into_owned(), effect));
        };
        self.outcome(there, direct.after_others(there.target))?;
        self.outcome(there, direct.alone(there.target, || reached.combine(how, data.bytes())))?;
        Ok(self.user_request(effect, true))
    }

    /// Combines data with a target's memory, and reads the previous contents. The caller has checked that `into` has
    /// room. Returns the program's request, if `effect` asks for one.
    pub fn fetch(
        &self,
        there: &There,
        how: Combination,
        data: &[u8],
        into: Target,
        effect: Effect,
    ) -> Result<Option<RequestId>> {
        let Some((direct, reached)) = self.reach(there) else {
            let at = there.place();
            return Ok(self.ask(there.target, |tag| Order::Fetch { at, how, tag }, data, into, effect));
        };
        let changes = how.operation != OpHandle::NO_OP.0 as u32;
        let fetch = || match changes {
            false => deliver(&reached, &into),
            true => reached.change(|spot| {
                deliver_from(spot, &into)?;
                spot.combine(how, data)
            }),
        };
        self.outcome(there, direct.after_others(there.target))?;
        self.outcome(there, direct.alone(there.target, fetch))?;
        Ok(self.user_request(effect, true))
    }

    /// Compares and swaps one element, and reads its previous value. `data` holds two elements: the first is written if
    /// the memory equals the second.
    pub fn compare_and_swap(&self, there: &There, data: &[u8], into: Target) -> Result {
        let Some((direct, reached)) = self.reach(there) else {
            let at = there.place();
            self.ask(there.target, |tag| Order::Compare { at, tag }, data, into, Effect::Plain);
            return Ok(());
        };
        let swap = || {
            reached.change(|spot| {
                deliver_from(spot, &into)?;
                spot.compare_and_swap(data).map(drop)
            })
        };
        self.outcome(there, direct.after_others(there.target))?;
        self.outcome(there, direct.alone(there.target, swap))
    }
}
