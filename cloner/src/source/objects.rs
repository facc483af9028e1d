//! Shared memory: which parts hold data, and which of those the destination lacks.
//!
//! The trap: writes through another mapping of the same object, or by `write` to its descriptor, escape every tracking
//! method. So a digest of each sent page is kept, and at the cut all shared memory is read again and compared. Reading
//! takes a fraction of the time of sending.

use super::layout::Plan;
use super::send::{self, Output, PIECE_BYTES};
use crate::control::Control;
use crate::image::digest::object_page_hash;
use crate::image::frame::{FrameContent, Header};
use crate::image::state::SharedObject;
use crate::refusal::{OfMemory, Refusal};
use crate::sparse;
use bstr::BString;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

const PAGE: u64 = 4096;

/// Open objects by id: a descriptor of each, and its name.
pub type Open = BTreeMap<u64, (OwnedFd, BString)>;

/// Adds open memfds to the plan, mapped or not. A mapped one that is sealed against writing is refused.
pub fn add_open(plan: &mut Plan, open: &Open) -> io::Result<()> {
    for (id, (fd, name)) in open {
        let facts = nix::sys::stat::fstat(fd)?;
        let (len, mode) = (facts.st_size as u64, facts.st_mode & 0o7777);
        let seals = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GET_SEALS)? as u32;
        let object = SharedObject { id: *id, name: name.clone(), len, seals, mode };
        match plan.layout.objects.iter_mut().find(|known| known.id == *id) {
            Some(known) => {
                // The copy's object would be mapped writable until it is filled, and the kernel refuses the seal as
                // long as such a mapping exists.
                if seals & libc::F_SEAL_WRITE as u32 != 0
                    && let Some((_, start, ..)) = plan.shared.iter().find(|(object, ..)| object == id)
                {
                    let what = OfMemory::Sealed(name.to_string());
                    plan.refusals.push(Refusal::Memory { start: *start, what });
                }
                *known = object;
            }
            None => plan.layout.objects.push(object),
        }
    }
    Ok(())
}

/// A part of a shared object that holds data, as offsets. `address` is where it is mapped, if the object is not open.
pub struct Part {
    id: u64,
    start: u64,
    end: u64,
    address: u64,
}

/// Cuts parts to the current lengths of their objects: other processes may have shortened a shared one meanwhile.
pub fn within(parts: Vec<Part>, objects: &[SharedObject]) -> Vec<Part> {
    let len = |id: u64| objects.iter().find(|object| object.id == id).map_or(0, |object| object.len);
    let within = |part: Part| Part { end: part.end.min(len(part.id).next_multiple_of(PAGE)), ..part };
    parts.into_iter().map(within).filter(|part| part.start < part.end).collect()
}

/// Finds all parts. If the program is not `stopped`, mappings that are gone since the plan was made are skipped.
pub fn parts(control: &Control, plan: &Plan, open: &Open, stopped: bool) -> io::Result<Vec<Part>> {
    let mut all = Vec::new();
    for object in &plan.layout.objects {
        match open.get(&object.id) {
            Some((fd, _)) => {
                let parts = sparse::parts(fd, object.len)?;
                all.extend(parts.into_iter().map(|(start, end)| Part { id: object.id, start, end, address: 0 }));
            }
            None => mapped_parts(control, plan, object.id, stopped, &mut all)?,
        }
    }
    if !plan.layout.objects.is_empty() {
        control.forget_resident()?;
    }
    Ok(all)
}

/// Finds parts of an object through its mappings, for one that no descriptor refers to.
fn mapped_parts(control: &Control, plan: &Plan, id: u64, stopped: bool, all: &mut Vec<Part>) -> io::Result<()> {
    const STEP: u64 = 1 << 30;
    for (_, address, offset, len) in plan.shared.iter().filter(|(object, ..)| *object == id) {
        for from in (0..*len).step_by(STEP as usize) {
            let count = (*len - from).min(STEP);
            let resident = match control.resident(address + from, count) {
                Err(error) if !stopped && error.raw_os_error() == Some(libc::ENOMEM) => break,
                resident => resident?,
            };
            for (index, resident) in resident.into_iter().enumerate() {
                let at = from + index as u64 * PAGE;
                match all.last_mut() {
                    Some(last)
                        if resident
                            && last.id == id
                            && last.end == offset + at
                            && last.address + (last.end - last.start) == address + at =>
                    {
                        last.end += PAGE;
                    }
                    _ if resident => {
                        let start = offset + at;
                        all.push(Part { id, start, end: start + PAGE, address: address + at });
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Receives pages of an object: id, offset, content.
type Each<'a> = dyn FnMut(u64, u64, &[u8]) -> io::Result<()> + 'a;

/// Reads all parts, in pieces of [`PIECE_BYTES`].
fn read(control: &Control, parts: &[Part], open: &Open, each: &mut Each<'_>) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES as usize];
    for part in parts {
        for at in (part.start..part.end).step_by(buffer.len()) {
            let bytes = &mut buffer[..(part.end - at).min(PIECE_BYTES) as usize];
            match open.get(&part.id) {
                Some((fd, _)) => sparse::read(fd, at, bytes)?,
                None => send::read(&control.memory, part.address + (at - part.start), bytes),
            }
            each(part.id, at, bytes)?;
        }
    }
    Ok(())
}

/// Digest of all shared memory, comparable with the destination's. A page that is mapped twice counts once.
pub fn hash(control: &Control, parts: &[Part], open: &Open) -> io::Result<u64> {
    let mut pages = FxHashMap::default();
    read(control, parts, open, &mut |id, at, bytes| {
        for (index, page) in bytes.chunks(PAGE as usize).enumerate() {
            let at = at + index as u64 * PAGE;
            pages.insert((id, at), object_page_hash(id, at, page));
        }
        Ok(())
    })?;
    Ok(pages.values().fold(0, |sum: u64, hash| sum.wrapping_add(*hash)))
}

/// State of the destination's shared objects: by object and offset, the digest of each page and the look that last saw
/// it.
#[derive(Default)]
pub struct Objects {
    pages: FxHashMap<(u64, u64), (u64, u32)>,
    look_count: u32,
}

/// Pages that the destination lacks: object, offset and length of each run, and all content.
#[derive(Default)]
pub struct Changes {
    runs: Vec<(u64, u64, usize)>,
    bytes: Vec<u8>,
}

impl Changes {
    fn add(&mut self, id: u64, at: u64, bytes: &[u8]) {
        self.runs.push((id, at, bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }

    pub fn send(&self, output: &mut Output) -> io::Result<()> {
        let mut rest = &self.bytes[..];
        for (id, at, len) in &self.runs {
            let (now, behind) = rest.split_at(*len);
            output.send(&Header::new(FrameContent::Object, *at, *id, now), now)?;
            rest = behind;
        }
        Ok(())
    }
}

impl Objects {
    /// Forgets pages past the new lengths, as the destination is about to do. Must come before changes are searched, so
    /// that they refer to remaining pages only.
    pub fn truncate(&mut self, objects: &[SharedObject]) {
        let lens: FxHashMap<u64, u64> = objects.iter().map(|object| (object.id, object.len)).collect();
        self.pages.retain(|(id, at), _| lens.get(id).is_some_and(|len| at + PAGE <= *len));
    }

    /// Copies the pages that the destination lacks.
    pub fn changes(&mut self, control: &Control, parts: &[Part], open: &Open) -> io::Result<Changes> {
        let mut changes = Changes::default();
        self.each_change(control, parts, open, &mut |id, at, bytes| {
            changes.add(id, at, bytes);
            Ok(())
        })?;
        Ok(changes)
    }

    /// Sends the pages that the destination lacks.
    pub fn send(&mut self, control: &Control, parts: &[Part], open: &Open, output: &mut Output) -> io::Result<()> {
        self.each_change(control, parts, open, &mut |id, at, bytes| {
            output.send(&Header::new(FrameContent::Object, at, id, bytes), bytes)
        })
    }

    fn each_change(&mut self, control: &Control, parts: &[Part], open: &Open, each: &mut Each<'_>) -> io::Result<()> {
        self.look_count += 1;
        let (pages, now) = (&mut self.pages, self.look_count);
        read(control, parts, open, &mut |id, at, bytes| {
            let mut changed = None;
            for (index, page) in bytes.chunks(PAGE as usize).enumerate() {
                let from = index * PAGE as usize;
                let hash = object_page_hash(id, at + from as u64, page);
                let before = pages.insert((id, at + from as u64), (hash, now));
                let known = before.is_some_and(|(before, _)| before == hash);
                if known && let Some(start) = changed.take() {
                    each(id, at + start as u64, &bytes[start..from])?;
                } else if !known && changed.is_none() {
                    changed = Some(from);
                }
            }
            changed.map_or(Ok(()), |start| each(id, at + start as u64, &bytes[start..]))
        })?;
        // Pages that were sent and then released to the kernel (hole punching) read as zeros again.
        let zeros = |(hash, seen): &(u64, u32)| *hash != 0 && *seen != now;
        let gone: Vec<_> = pages.iter().filter(|(_, page)| zeros(page)).map(|(place, _)| *place).collect();
        for (id, at) in gone {
            pages.insert((id, at), (0, now));
            each(id, at, &[0; PAGE as usize])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(id: u64, len: u64) -> SharedObject {
        SharedObject { id, name: BString::default(), len, seals: 0, mode: 0o777 }
    }

    #[test]
    fn nothing_is_known_of_what_is_gone() {
        let pages = [(1, 0), (1, PAGE), (1, 2 * PAGE), (2, 0)].into_iter().map(|place| (place, (7, 1))).collect();
        let mut objects = Objects { pages, look_count: 1 };
        // The page with the new end is zeros past that end at the destination, so it is sent again.
        objects.truncate(&[object(1, PAGE + 1)]);
        assert_eq!(objects.pages.keys().collect::<Vec<_>>(), [&(1, 0)]);
    }

    #[test]
    fn parts_end_where_their_objects_do() {
        let part = |id, start, end| Part { id, start, end, address: 0 };
        let parts = vec![part(1, 0, 3 * PAGE), part(1, 4 * PAGE, 5 * PAGE), part(2, 0, PAGE)];
        let within = within(parts, &[object(1, PAGE + 1)]);
        assert_eq!(within.iter().map(|part| (part.id, part.start, part.end)).collect::<Vec<_>>(), [(1, 0, 2 * PAGE)]);
    }
}
