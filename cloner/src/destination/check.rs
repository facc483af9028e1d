//! Checks that a state read from an image can become a process here. Whatever goes into the list of steps and the
//! descriptors is trusted afterwards.

use crate::image::state::{Layout, Open, ProcessState, SystemArea, Watch};
use crate::maps::ADDRESSES_END;
use std::io;

/// Most bytes between a signal frame and the lowest use of the stack below it, in the copy's first steps.
const BELOW_FRAME_BYTES: u64 = 512;
/// More words than any kernel's auxiliary vector has.
const AUXILIARY_WORDS_MAX: usize = 512;
/// Highest descriptor number: numbers above it are needed while descriptors are made.
const DESCRIPTOR_MAX: i32 = 1 << 30;

/// A property that the state of a process cannot have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Impossible {
    /// There is no thread, or the first one's id is not the process id.
    #[error("the first thread of the image is not the process")]
    FirstThread,
    /// An area that the kernel maps by itself (vdso and the like) has another size here, or a place that is not free.
    #[error("{0} is of another size here, or lies where it cannot")]
    SystemArea(String),
    /// Guard pages are out of order, not whole pages, or outside the program's memory.
    #[error("guard pages at {0:#x} are where no memory is")]
    Guard(u64),
    /// A thread has no memory for its stack below the frame, or for its slot.
    #[error("thread {0} has no memory for its stack")]
    ThreadStack(u32),
    /// The agent has no memory for its stack.
    #[error("the agent has no memory for its stack")]
    AgentStack,
    /// The auxiliary vector is longer than any kernel's.
    #[error("the auxiliary vector has {0} words")]
    Auxiliary(usize),
    /// A descriptor number is repeated, too high or out of order, or the standard stream does not exist.
    #[error("descriptor {0} is out of order, or unknown")]
    Descriptor(i32),
    /// An epoll watches a descriptor that does not exist, or under an impossible number.
    #[error("an epoll watches {0}, which there is not")]
    Watched(i32),
}

impl From<Impossible> for io::Error {
    fn from(error: Impossible) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Checks a state before anything irreversible is done with it. `own` are the areas that the kernel maps here, `pid` is
/// the id of this process.
///
/// # Errors
/// The first impossible property.
pub fn check_state(state: &ProcessState, layout: &Layout, own: &[SystemArea], pid: u32) -> Result<(), Impossible> {
    if state.threads.first().is_none_or(|first| first.tid != pid) {
        return Err(Impossible::FirstThread);
    }
    if let Some(area) = state.system_areas.iter().find(|area| !fits(area, layout, own)) {
        return Err(Impossible::SystemArea(area.name.clone()));
    }
    let mut end = 0;
    for (start, until) in &state.guards {
        let is_place = *start >= end && start < until && (start | until).is_multiple_of(4096);
        if !is_place || !is_mapped(layout, *start, until - start) {
            return Err(Impossible::Guard(*start));
        }
        end = *until;
    }
    let has_stack = |thread: &&crate::image::state::ThreadState| {
        let from = thread.frame.checked_sub(BELOW_FRAME_BYTES);
        from.is_some_and(|from| is_mapped(layout, from, BELOW_FRAME_BYTES)) && is_mapped(layout, thread.slot, 8)
    };
    if let Some(thread) = state.threads.iter().find(|thread| !has_stack(thread)) {
        return Err(Impossible::ThreadStack(thread.tid));
    }
    let stack = state.agent.stack.checked_sub(BELOW_FRAME_BYTES);
    if stack.is_none_or(|from| !is_mapped(layout, from, BELOW_FRAME_BYTES)) {
        return Err(Impossible::AgentStack);
    }
    if state.auxiliary.len() > AUXILIARY_WORDS_MAX {
        return Err(Impossible::Auxiliary(state.auxiliary.len()));
    }
    check_descriptors(state)
}

fn check_descriptors(state: &ProcessState) -> Result<(), Impossible> {
    let mut last = -1;
    for descriptor in &state.descriptors {
        let is_known = !matches!(descriptor.open, Open::Standard(3..));
        if !(last + 1..=DESCRIPTOR_MAX).contains(&descriptor.fd) || !is_known {
            return Err(Impossible::Descriptor(descriptor.fd));
        }
        last = descriptor.fd;
        if let Open::Epoll { watched } = &descriptor.open {
            let is_there = |fd| state.descriptors.iter().any(|other| other.fd == fd);
            let is_wrong = |watch: &&Watch| !(0..=DESCRIPTOR_MAX).contains(&watch.number) || !is_there(watch.fd);
            if let Some(watch) = watched.iter().find(is_wrong) {
                return Err(Impossible::Watched(watch.number));
            }
        }
    }
    Ok(())
}

/// Returns true if all `len` bytes from `address` on belong to the copy's memory.
fn is_mapped(layout: &Layout, address: u64, len: u64) -> bool {
    let Some(end) = address.checked_add(len) else { return false };
    let mut from = address;
    for area in &layout.areas {
        if (area.start..area.end).contains(&from) {
            from = area.end;
        }
        if from >= end {
            return true;
        }
    }
    false
}

/// Returns true if the kernel's area of this name can be moved to the place of `area`.
fn fits(area: &SystemArea, layout: &Layout, own: &[SystemArea]) -> bool {
    let is_place = area.start.is_multiple_of(4096) && area.start < area.end && area.end <= ADDRESSES_END;
    let is_free = layout.areas.iter().all(|other| other.end <= area.start || area.end <= other.start);
    let has_size = |own: &SystemArea| own.name == area.name && own.end - own.start == area.end - area.start;
    is_place && is_free && own.iter().any(has_size)
}

#[cfg(test)]
mod tests {
    use super::super::plan::{self, MemoryPiece, Situation};
    use super::*;
    use crate::image::state::tests::state;
    use crate::image::state::{Area, Backing, Descriptor};
    use proptest::prelude::*;

    const PID: u32 = 11;

    fn area(start: u64, end: u64) -> Area {
        Area { start, end, protection: 3, grows_down: false, advice: 0, backing: Backing::Anonymous }
    }

    fn layout() -> Layout {
        let areas = vec![area(0x4000, 0x7000), area(0x1fff_f000, 0x2000_1000), area(0x6fff_0000, 0x7000_1000)];
        Layout { areas, objects: Vec::new() }
    }

    fn vdso(start: u64) -> SystemArea {
        SystemArea { name: "[vdso]".into(), start, end: start + 0x2000 }
    }

    fn sound() -> ProcessState {
        let descriptor =
            |fd| Descriptor { fd, flags: 0, same_as: None, open: Open::Standard(fd as u8), locks: Vec::new() };
        let watch = Watch { number: 7, fd: 2, events: 1, data: 0 };
        let epoll = Descriptor { open: Open::Epoll { watched: vec![watch] }, ..descriptor(3) };
        ProcessState {
            system_areas: vec![vdso(0x7f00_0000)],
            guards: vec![(0x5000, 0x6000)],
            descriptors: (0..3).map(descriptor).chain([epoll]).collect(),
            auxiliary: vec![7; 40],
            ..state()
        }
    }

    fn checked(state: &ProcessState) -> Result<(), Impossible> {
        check_state(state, &layout(), &[vdso(0x9000)], PID)
    }

    /// Makes the list of a state that was accepted: all steps must fit, and all addresses must be valid.
    fn plan_of(state: &ProcessState) {
        let areas = layout().areas;
        let kept: Vec<_> = areas
            .iter()
            .map(|area| MemoryPiece { start: area.start, len: area.end - area.start, at: area.start })
            .collect();
        let room = plan::PlanCapacity::new(kept.len(), areas.len(), state);
        let situation = Situation {
            kept: &kept,
            areas: &areas,
            own_system_areas: &[vdso(0x9000)],
            restorer: (0x10_0000, room.list_bytes as u64),
            scratch: (0x200_0000, 1 << 20),
            data: 0x10_0000 + room.data_offset() as u64,
            executable: 5,
            closed: &[3, 4],
            state,
        };
        let (steps, data) = plan::make(&situation);
        assert!(steps.len() <= room.step_count && room.data_offset() + 8 * data.len() <= room.list_bytes);
        let ends = steps.iter().filter(|step| step.number == 0).count();
        assert_eq!(ends, 1, "one step leaves, the last");
    }

    fn watch(state: &mut ProcessState) -> &mut Watch {
        let Open::Epoll { watched } = &mut state.descriptors[3].open else { unreachable!("it is one") };
        &mut watched[0]
    }

    #[test]
    fn a_sound_state_passes_and_has_a_plan() {
        checked(&sound()).unwrap();
        plan_of(&sound());
    }

    #[test]
    fn states_that_cannot_be_are_refused() {
        type Edit = fn(&mut ProcessState);
        let edits: [(Edit, Impossible); 13] = [
            (|state| state.threads.clear(), Impossible::FirstThread),
            (|state| state.threads[0].tid = 12, Impossible::FirstThread),
            (|state| state.threads[1].frame = 8, Impossible::ThreadStack(12)),
            (|state| state.threads[1].slot = u64::MAX, Impossible::ThreadStack(12)),
            (|state| state.guards[0].0 = 0x3000, Impossible::Guard(0x3000)),
            (|state| state.guards.push((0x4000, 0x5000)), Impossible::Guard(0x4000)),
            (|state| state.agent.stack = 0, Impossible::AgentStack),
            (|state| state.auxiliary = vec![0; 100_000], Impossible::Auxiliary(100_000)),
            (|state| state.system_areas[0].end = 0, Impossible::SystemArea("[vdso]".into())),
            (|state| state.descriptors[2].fd = i32::MAX, Impossible::Descriptor(i32::MAX)),
            (|state| state.descriptors[0].open = Open::Standard(3), Impossible::Descriptor(0)),
            (|state| watch(state).number = i32::MAX, Impossible::Watched(i32::MAX)),
            (|state| watch(state).fd = 9, Impossible::Watched(7)),
        ];
        for (edit, why) in edits {
            let mut state = sound();
            edit(&mut state);
            assert_eq!(checked(&state), Err(why));
        }
        let overlapping = ProcessState { system_areas: vec![vdso(0x6000)], ..sound() };
        assert_eq!(checked(&overlapping), Err(Impossible::SystemArea("[vdso]".into())));
    }

    proptest! {
        #[test]
        fn fuzz_damaged_states_are_refused_or_have_a_plan(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4),
        ) {
            let mut bytes = postcard::to_stdvec(&sound()).unwrap();
            for (place, value, is_flip) in damage {
                let byte = place.get_mut(&mut bytes);
                *byte = if is_flip { *byte ^ 1 << (value % 8) } else { value };
            }
            if let Ok(state) = postcard::from_bytes::<ProcessState>(&bytes)
                && checked(&state).is_ok()
            {
                plan_of(&state);
            }
        }
    }
}
