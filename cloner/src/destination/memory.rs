//! Memory of the copy while it is being received.
//!
//! Each piece is at its final address if that is free in this process, else staged elsewhere. Staging keeps the offset
//! within 2 MiB, so that moving a piece later moves page tables, not pages. Shared objects are memfds.

use crate::image::state::{Area, Backing, Layout, MappedFile};
use crate::maps::ADDRESSES_END;
use crate::maps::{self, Mapping};
use bstr::ByteSlice;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::plan::MemoryPiece;

mod unite;

/// Staging keeps the offset within this many bytes.
const ALIGNMENT: u64 = 2 << 20;
const ADDRESSES_BEGIN: u64 = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    end: u64,
    at: u64,
    backing: Backing,
}

/// All pieces of memory received so far, and the layout that they belong to.
#[derive(Default)]
pub struct Memory {
    pieces: Vec<Piece>,
    layout: Layout,
    objects: BTreeMap<u64, OwnedFd>,
    files: Vec<MappedFile>,
}

impl Memory {
    /// Makes an empty memory. Areas will refer to `files` by index.
    #[must_use]
    pub fn new(files: Vec<MappedFile>) -> Self {
        Self { files, ..Self::default() }
    }

    /// The layout that was applied last.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memfd of a shared object.
    #[must_use]
    pub fn object(&self, id: u64) -> Option<&OwnedFd> {
        self.objects.get(&id)
    }

    /// Gives shared objects the modes and seals of the source. Nothing can be received into them afterwards.
    pub fn seal_objects(&self) -> io::Result<()> {
        use nix::fcntl::{FcntlArg, SealFlag, fcntl};
        use nix::sys::stat::{Mode, fchmod};
        for object in &self.layout.objects {
            let Some(fd) = self.objects.get(&object.id) else { continue };
            let mode = Mode::from_bits_truncate(object.mode);
            if nix::sys::stat::fstat(fd)?.st_mode & 0o7777 != mode.bits() {
                fchmod(fd, mode)?;
            }
            if object.seals != 0 {
                fcntl(fd, FcntlArg::F_ADD_SEALS(SealFlag::from_bits_retain(object.seals as i32)))?;
            }
        }
        Ok(())
    }

    /// Final and current address of each piece.
    #[must_use]
    pub fn kept(&self) -> Vec<MemoryPiece> {
        self.pieces
            .iter()
            .map(|piece| MemoryPiece { start: piece.start, len: piece.end - piece.start, at: piece.at })
            .collect()
    }

    /// Current addresses of `len` bytes of the copy from `address` on, as parts of address and length. `None` if some
    /// are not mapped.
    #[must_use]
    pub fn locate(&self, address: u64, len: u64) -> Option<Vec<(u64, u64)>> {
        let end = address.checked_add(len)?;
        let mut index = self.pieces.partition_point(|piece| piece.end <= address);
        let (mut from, mut parts) = (address, Vec::with_capacity(1));
        while from < end {
            let piece = self.pieces.get(index).filter(|piece| piece.start <= from)?;
            let until = end.min(piece.end);
            parts.push((piece.at + (from - piece.start), until - from));
            from = until;
            index += 1;
        }
        Some(parts)
    }

    /// Applies `layout`. Memory with the same backing as before keeps its content; new memory starts from its backing;
    /// memory outside the layout is unmapped.
    pub fn apply(&mut self, layout: Layout) -> io::Result<()> {
        check(&layout, self.files.len())?;
        // An object that disappears and returns later is a new one.
        self.objects.retain(|id, _| layout.objects.iter().any(|object| object.id == *id));
        for object in &layout.objects {
            if let Entry::Vacant(vacant) = self.objects.entry(object.id) {
                let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
                vacant.insert(memfd_create(object.name.as_slice(), flags)?);
            }
            nix::unistd::ftruncate(&self.objects[&object.id], object.len.try_into().map_err(io::Error::other)?)?;
        }
        let mut before = std::mem::take(&mut self.pieces);
        let mut wanted: Vec<Piece> = Vec::with_capacity(layout.areas.len());
        for area in &layout.areas {
            keep(area, &mut before, &mut wanted);
        }
        // Leftovers are unmapped first, because their addresses may be needed.
        for piece in before {
            unmap(piece.at, piece.end - piece.start)?;
        }
        self.layout = layout;
        self.make_way(&mut wanted)?;
        let areas = self.layout.areas.clone();
        for area in &areas {
            self.fill(area, &mut wanted)?;
        }
        wanted.sort_unstable_by_key(|piece| piece.start);
        self.pieces = self.unite(wanted)?;
        Ok(())
    }

    /// Moves staged pieces away from addresses that the layout now needs.
    fn make_way(&self, pieces: &mut [Piece]) -> io::Result<()> {
        for piece in pieces.iter_mut().filter(|piece| piece.at != piece.start) {
            let len = piece.end - piece.start;
            let areas = &self.layout.areas;
            let next = areas.partition_point(|area| area.end <= piece.at);
            if areas.get(next).is_some_and(|area| area.start < piece.at + len) {
                let to = self.hole(piece.start, len)?;
                relocate(piece.at, len, to)?;
                piece.at = to;
            }
        }
        Ok(())
    }

    /// Maps the parts of `area` that no piece covers.
    fn fill(&self, area: &Area, pieces: &mut Vec<Piece>) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut from = area.start;
        let mut there: Vec<(u64, u64)> = pieces
            .iter()
            .filter(|piece| piece.start < area.end && area.start < piece.end)
            .map(|piece| (piece.start, piece.end))
            .collect();
        there.sort_unstable();
        for (start, end) in there.into_iter().chain([(area.end, area.end)]) {
            if start > from {
                missing.push((from, start));
            }
            from = from.max(end);
        }
        for (start, end) in missing {
            let backing = area.backing.advanced(start - area.start);
            let at = self.map(start, end - start, backing, area.grows_down)?;
            pieces.push(Piece { start, end, at, backing });
        }
        Ok(())
    }

    fn map(&self, start: u64, len: u64, backing: Backing, grows_down: bool) -> io::Result<u64> {
        let file;
        let (fd, offset, mut flags) = match backing {
            Backing::Anonymous => (-1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE),
            Backing::File { file: index, offset } => {
                let path = &self.files[index as usize].path;
                file = File::open(path.to_os_str_lossy())
                    .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
                (file.as_raw_fd(), offset, libc::MAP_PRIVATE)
            }
            Backing::Shared { object, offset } => {
                let object =
                    self.objects.get(&object).ok_or_else(|| io::Error::other("an area names an unknown object"))?;
                (object.as_raw_fd(), offset, libc::MAP_SHARED)
            }
        };
        if grows_down {
            flags |= libc::MAP_GROWSDOWN;
        }
        match map_fixed(start, len, flags, fd, offset) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                let at = self.hole(start, len)?;
                map_fixed(at, len, flags, fd, offset)?;
                Ok(at)
            }
            Err(error) => Err(error),
            Ok(()) => Ok(start),
        }
    }

    /// Finds an address for `len` bytes that is free in this process and in the copy, with the offset of `like`.
    pub fn hole(&self, like: u64, len: u64) -> io::Result<u64> {
        let own = own_mappings()?;
        let mut used: Vec<(u64, u64)> = own.iter().map(|mapping| (mapping.start, mapping.end)).collect();
        used.extend(self.layout.areas.iter().map(|area| (area.start, area.end)));
        largest_gap(used)
            .and_then(|(start, end)| {
                // The middle of the largest gap, far from areas that grow upwards, and with room above for stacks.
                let middle = start + (end - start) / 2;
                let at = (middle & !(ALIGNMENT - 1)) + (like & (ALIGNMENT - 1));
                (at + len + ALIGNMENT <= end).then_some(at)
            })
            .ok_or_else(|| io::Error::other(format!("no room for {len} bytes that both sides leave free")))
    }
}

/// Mappings of this process, as they are now.
pub fn own_mappings() -> io::Result<Vec<Mapping>> {
    maps::parse(std::fs::read("/proc/self/maps")?)
}

fn largest_gap(mut used: Vec<(u64, u64)>) -> Option<(u64, u64)> {
    used.sort_unstable();
    let mut from = ADDRESSES_BEGIN;
    let mut largest = None;
    for (start, end) in used.into_iter().chain([(ADDRESSES_END, ADDRESSES_END)]) {
        let start = start.min(ADDRESSES_END);
        if start > from && largest.is_none_or(|(a, b)| b - a < start - from) {
            largest = Some((from, start));
        }
        from = from.max(end);
    }
    largest
}

/// Checks that areas are sorted, disjoint, made of pages, and refer to existing files and objects.
fn check(layout: &Layout, file_count: usize) -> io::Result<()> {
    let wrong = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    let mut end = ADDRESSES_BEGIN;
    for area in &layout.areas {
        let aligned = (area.start | area.end).is_multiple_of(4096);
        if area.start < end || area.end <= area.start || area.end > ADDRESSES_END || !aligned || area.protection > 7 {
            return wrong(format!("the area {:#x} to {:#x} cannot be", area.start, area.end));
        }
        end = area.end;
        let (known, offset) = match area.backing {
            Backing::Anonymous => (true, 0),
            Backing::File { file, offset } => ((file as usize) < file_count, offset),
            Backing::Shared { object, offset } => (layout.objects.iter().any(|known| known.id == object), offset),
        };
        if !known || !offset.is_multiple_of(4096) || offset >= 1 << 62 {
            return wrong(format!("the area at {:#x} names something unknown", area.start));
        }
    }
    match layout.objects.iter().find(|object| object.len >= 1 << 46 || object.name.contains(&0)) {
        Some(object) => wrong(format!("the shared object {} cannot be", object.id)),
        None => Ok(()),
    }
}

/// Moves the parts of `before` that `area` can reuse to `wanted`; the rest stays. The source computes the same: see
/// [`Layout::kept`].
fn keep(area: &Area, before: &mut Vec<Piece>, wanted: &mut Vec<Piece>) {
    let from = before.partition_point(|piece| piece.end <= area.start);
    let until = before.partition_point(|piece| piece.start < area.end);
    let mut rest = Vec::new();
    for piece in before.drain(from..until) {
        let (start, end) = (piece.start.max(area.start), piece.end.min(area.end));
        let part = |start: u64, end: u64| Piece {
            start,
            end,
            at: piece.at + (start - piece.start),
            backing: piece.backing.advanced(start - piece.start),
        };
        let fits = part(start, end).backing == area.backing.advanced(start - area.start);
        if fits {
            wanted.push(part(start, end));
            rest.extend(
                [(piece.start, start), (end, piece.end)].iter().filter(|(a, b)| a < b).map(|(a, b)| part(*a, *b)),
            );
        } else {
            rest.push(piece);
        }
    }
    before.splice(from..from, rest);
}

fn map_fixed(at: u64, len: u64, flags: i32, fd: i32, offset: u64) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: - `MAP_FIXED_NOREPLACE` fails rather than replace an existing mapping.
    let address = unsafe {
        libc::mmap(at as *mut _, len as usize, protection, flags | libc::MAP_FIXED_NOREPLACE, fd, offset as libc::off_t)
    };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn unmap(at: u64, len: u64) -> io::Result<()> {
    // SAFETY: - the range is a piece that no layout needs any more.
    //         - no reference points into it: only pieces know its address.
    if unsafe { libc::munmap(at as *mut _, len as usize) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn relocate(from: u64, len: u64, to: u64) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: - `from` is a piece, into which no reference points.
    //         - `to` is a hole, so nothing is replaced.
    let moved = unsafe { libc::mremap(from as *mut _, len as usize, len as usize, flags, to as *mut libc::c_void) };
    if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::state::SharedObject;
    use bstr::BString;
    use proptest::prelude::*;
    use std::sync::{Mutex, PoisonError};

    fn area() -> impl Strategy<Value = Area> {
        // Few pages, so that areas touch and overlap; sometimes arbitrary addresses.
        let address = prop_oneof![4 => (16_u64..40).prop_map(|page| page * 4096), 1 => any::<u64>()];
        let backing = prop_oneof![
            Just(Backing::Anonymous),
            (0_u32..3, any::<u64>()).prop_map(|(file, offset)| Backing::File { file, offset: offset & !4095 }),
            (0_u64..3, any::<u64>()).prop_map(|(object, offset)| Backing::Shared { object, offset }),
        ];
        (address.clone(), address, any::<u8>(), any::<bool>(), any::<u8>(), backing).prop_map(
            |(start, end, protection, grows_down, advice, backing)| Area {
                start,
                end,
                protection: protection % 9,
                grows_down,
                advice,
                backing,
            },
        )
    }

    /// Serializes tests that map memory at addresses that look free: two of them could choose the same.
    pub(super) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Areas that touch each other and overlap another layout's, backed by one of two files or by none, from page 0 on.
    fn sound_areas() -> impl Strategy<Value = Vec<(u64, u64, Backing)>> {
        let backing = prop_oneof![
            2 => Just(Backing::Anonymous),
            1 => (0_u32..2, 0_u64..3).prop_map(|(file, page)| Backing::File { file, offset: page * 4096 }),
        ];
        prop::collection::vec((0_u64..4, 1_u64..8, backing), 1..5).prop_map(|gaps| {
            let mut from = 0;
            let place = |(gap, pages, backing)| {
                let start: u64 = from + gap;
                from = start + pages;
                (start, from, backing)
            };
            gaps.into_iter().map(place).collect()
        })
    }

    fn layout_at(base: u64, areas: &[(u64, u64, Backing)]) -> Layout {
        let area = |(from, until, backing): &(u64, u64, Backing)| Area {
            start: base + from * 4096,
            end: base + until * 4096,
            protection: 3,
            grows_down: false,
            advice: 0,
            backing: *backing,
        };
        Layout { areas: areas.iter().map(area).collect(), objects: Vec::new() }
    }

    #[test]
    fn what_the_source_takes_for_kept_is_what_is_kept() {
        const MARK: u8 = 0xa5;
        let files: Vec<_> = (0..2).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
        files.iter().for_each(|file| file.as_file().set_len(1 << 20).unwrap());
        let path = |file: &tempfile::NamedTempFile| file.path().as_os_str().as_encoded_bytes().into();
        let named = |file| MappedFile { path: path(file), len: 1 << 20, hash: 0 };
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runner = proptest::test_runner::TestRunner::default();
        let outcome = runner.run(&prop::collection::vec(sound_areas(), 2..5), |layouts| {
            let mut memory = Memory::new(files.iter().map(named).collect());
            let base = memory.hole(0, 64 * 4096).unwrap();
            let mut before = Layout::default();
            for areas in layouts {
                let layout = layout_at(base, &areas);
                memory.apply(layout.clone()).unwrap();
                let kept = layout.kept(&before);
                for page in layout.areas.iter().flat_map(|area| (area.start..area.end).step_by(4096)) {
                    let byte = memory.locate(page, 1).unwrap()[0].0 as *mut u8;
                    // SAFETY: - `byte` is a mapped page of the layout, and no reference points into it.
                    let is_marked = unsafe { byte.read() } == MARK;
                    prop_assert_eq!(is_marked, kept.contains(page), "{:x}", page - base);
                    // SAFETY: - `byte` is a mapped, writable page of the layout, and no reference points into it.
                    unsafe { byte.write(MARK) };
                }
                before = layout;
            }
            memory.apply(Layout::default()).unwrap();
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn an_object_that_was_gone_begins_anew() {
        let objects = |len| vec![SharedObject { id: 1, name: BString::default(), len, seals: 0, mode: 0o777 }];
        let layout = |objects| Layout { areas: Vec::new(), objects };
        let content = |memory: &Memory| {
            let object = std::fs::File::from(memory.object(1).unwrap().try_clone().unwrap());
            let mut content = [0; 5];
            std::os::unix::fs::FileExt::read_exact_at(&object, &mut content, 0).map(|()| content)
        };
        let mut memory = Memory::new(Vec::new());
        memory.apply(layout(objects(4096))).unwrap();
        let object = std::fs::File::from(memory.object(1).unwrap().try_clone().unwrap());
        std::os::unix::fs::FileExt::write_all_at(&object, b"there", 0).unwrap();
        memory.apply(layout(objects(8192))).unwrap();
        assert_eq!(&content(&memory).unwrap(), b"there");
        memory.apply(layout(Vec::new())).unwrap();
        assert!(memory.object(1).is_none());
        memory.apply(layout(objects(4096))).unwrap();
        assert_eq!(content(&memory).unwrap(), [0; 5]);
    }

    proptest! {
        #[test]
        fn fuzz_layouts_are_refused_or_can_be_mapped(
            mut areas in prop::collection::vec(area(), 0..4), sorted: bool, len: u64
        ) {
            if sorted {
                areas.sort_unstable_by_key(|area| area.start);
            }
            let objects = vec![SharedObject { id: 1, name: BString::default(), len, seals: 0, mode: 0o777 }];
            let layout = Layout { areas, objects };
            if check(&layout, 2).is_ok() {
                let ends: Vec<u64> = layout.areas.iter().flat_map(|area| [area.start, area.end]).collect();
                prop_assert!(ends.is_sorted() && ends.iter().all(|end| (ADDRESSES_BEGIN..=ADDRESSES_END).contains(end)));
                prop_assert!(layout.areas.iter().all(|area| area.start < area.end));
            }
        }
    }
}
