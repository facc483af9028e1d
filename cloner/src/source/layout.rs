//! Turns `/proc/PID/maps` into the areas of an image, and into ranges to watch and to send.

use super::advice::Advice;
use crate::dirty::Watched;
use crate::image::state::{Area, Backing, Layout, SharedObject};
use crate::maps::Mapping;
use crate::refusal::{OfMemory, Refusal};
use bstr::{BString, ByteSlice};
use std::collections::BTreeMap;

/// Files that the destination has too: path to index in the prologue.
pub type Files = BTreeMap<BString, u32>;

/// Result of one look at the maps.
#[derive(Default)]
pub struct Plan {
    /// Areas and shared objects, as sent to the destination.
    pub layout: Layout,
    /// Ranges whose writes are tracked and whose pages are sent, by address.
    pub watched: Vec<Watched>,
    /// Ranges of files that the destination lacks: all their pages are sent.
    pub whole: Vec<(u64, u64)>,
    /// Mappings of shared objects: object, first address, offset in the object, length in bytes.
    pub shared: Vec<(u64, u64, u64, u64)>,
    /// Ranges that cannot be registered for write protection: system areas, and shared mappings of anything but
    /// writable memory.
    pub unfit: Vec<(u64, u64)>,
    /// Areas that cannot be copied.
    pub refusals: Vec<Refusal>,
}

/// Makes the plan. Ranges of `excluded`, as `[address, length]`, are left out.
#[must_use]
pub fn plan(mappings: &[Mapping], advice: &Advice, files: &Files, excluded: &[[u64; 2]]) -> Plan {
    // Shared memory is not watched, but lies within the ranges registered for write protection. That works only where
    // it can be written.
    let is_memory = |mapping: &Mapping| {
        mapping.name.starts_with(b"/memfd:") && mapping.protection & libc::PROT_WRITE as u8 != 0
            || mapping.name == "/dev/zero (deleted)"
    };
    let is_unfit = |mapping: &&Mapping| {
        mapping.is_system() || mapping.shared && mapping.name.starts_with(b"/") && !is_memory(mapping)
    };
    let unfit = mappings.iter().filter(is_unfit);
    let mut plan = Plan { unfit: unfit.map(|mapping| (mapping.start, mapping.end)).collect(), ..Plan::default() };
    for mapping in mappings.iter().filter(|mapping| !mapping.is_system()) {
        for (start, end) in without(mapping.start, mapping.end, excluded) {
            let offset = mapping.offset + (start - mapping.start);
            match classify(mapping, files, offset) {
                Ok(kind) => add(&mut plan, mapping, advice, kind, start, end),
                Err(what) => plan.refusals.push(Refusal::Memory { start: mapping.start, what }),
            }
        }
    }
    plan
}

enum Class {
    Anonymous,
    Content,
    File { file: u32, offset: u64 },
    Shared { object: u64, offset: u64, name: BString },
}

fn classify(mapping: &Mapping, files: &Files, offset: u64) -> Result<Class, OfMemory> {
    let name = mapping.name.as_bstr();
    if [&b"/anon_hugepage"[..], b"/SYSV", b"/dev/hugepages"].iter().any(|begin| name.starts_with(begin)) {
        return Err(OfMemory::Special(name.to_string()));
    }
    let file = files.get(&mapping.name).copied();
    if mapping.shared {
        let unnamed = name == "/dev/zero (deleted)";
        if unnamed || name.starts_with(b"/memfd:") {
            let name = name.strip_prefix(b"/memfd:").and_then(|name| name.strip_suffix(b" (deleted)"));
            return Ok(Class::Shared { object: mapping.inode, offset, name: name.unwrap_or_default().into() });
        }
        let writable = mapping.protection & libc::PROT_WRITE as u8 != 0;
        return match file {
            // A read-only shared mapping behaves like a private one.
            Some(file) if !writable => Ok(Class::File { file, offset }),
            _ => Err(OfMemory::SharedFile(name.to_string())),
        };
    }
    Ok(match file {
        _ if mapping.inode == 0 => Class::Anonymous,
        Some(file) => Class::File { file, offset },
        None if name.starts_with(b"/dev/") && name != "/dev/zero" && !name.starts_with(b"/dev/shm/") => {
            return Err(OfMemory::Device(name.to_string()));
        }
        None => Class::Content,
    })
}

fn add(plan: &mut Plan, mapping: &Mapping, advice: &Advice, class: Class, start: u64, end: u64) {
    let mut watched = true;
    let backing = match class {
        Class::Anonymous => Backing::Anonymous,
        Class::Content => {
            plan.whole.push((start, end));
            Backing::Anonymous
        }
        Class::File { file, offset } => Backing::File { file, offset },
        Class::Shared { object, offset, name } => {
            watched = false;
            plan.shared.push((object, start, offset, end - start));
            let len = offset + (end - start);
            match plan.layout.objects.iter_mut().find(|known| known.id == object) {
                Some(known) => known.len = known.len.max(len),
                None => plan.layout.objects.push(SharedObject { id: object, name, len, seals: 0, mode: 0o777 }),
            }
            Backing::Shared { object, offset }
        }
    };
    let (advice, grows_down) = advice.at(start);
    let grows_down = grows_down || mapping.name == "[stack]";
    plan.layout.areas.push(Area { start, end, protection: mapping.protection, grows_down, advice, backing });
    if watched {
        plan.watched.push(Watched { start, end, file_backed: matches!(backing, Backing::File { .. }) });
    }
}

/// Subtracts the excluded ranges, given as `[address, length]`.
fn without(start: u64, end: u64, excluded: &[[u64; 2]]) -> Vec<(u64, u64)> {
    let mut rest = vec![(start, end)];
    for [from, len] in excluded {
        let (from, until) = (*from, from.saturating_add(*len));
        rest = rest
            .into_iter()
            .flat_map(|(start, end)| [(start, end.min(from)), (start.max(until), end)])
            .filter(|(start, end)| start < end)
            .collect();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps() -> Vec<Mapping> {
        crate::maps::parse(
            "1000-2000 r-xp 00001000 fd:00 42 /bin/known\n\
             2000-3000 rw-p 00000000 fd:00 43 /bin/other\n\
             3000-6000 rw-p 00000000 00:00 0 [heap]\n\
             6000-8000 rw-s 00000000 00:01 7 /dev/zero (deleted)\n\
             8000-9000 rw-s 00003000 00:01 8 /memfd:mine (deleted)\n\
             9000-a000 r-xp 00000000 00:00 0 [vdso]\n\
             a000-b000 rw-s 00000000 fd:00 44 /data/file\n\
             b000-c000 rw-s 00000000 00:06 9 /dev/nvidia0\n",
        )
        .unwrap()
    }

    #[test]
    fn each_kind_of_mapping_finds_its_place() {
        let files = Files::from([("/bin/known".into(), 0)]);
        let plan = plan(&maps(), &Advice::default(), &files, &[[0x4000, 0x1000]]);
        let places: Vec<_> = plan.layout.areas.iter().map(|area| (area.start, area.end)).collect();
        assert_eq!(
            places,
            [
                (0x1000, 0x2000),
                (0x2000, 0x3000),
                (0x3000, 0x4000),
                (0x5000, 0x6000),
                (0x6000, 0x8000),
                (0x8000, 0x9000)
            ]
        );
        assert_eq!(plan.layout.areas[0].backing, Backing::File { file: 0, offset: 0x1000 });
        assert_eq!(plan.whole, [(0x2000, 0x3000)]);
        assert_eq!(plan.layout.objects.len(), 2);
        assert_eq!((plan.layout.objects[1].name.as_slice(), plan.layout.objects[1].len), (&b"mine"[..], 0x4000));
        assert_eq!(plan.watched.len(), 4);
        assert_eq!(plan.refusals.len(), 2);
        let refusals: Vec<_> = plan.refusals.iter().map(ToString::to_string).collect();
        assert!(refusals[0].contains("/data/file") && refusals[1].contains("/dev/nvidia0"));
    }
}
