//! The memory of the program, without the library's own: static data, heap and large blocks. The kernel's list of
//! mappings and the C library's allocator tell where they are. The library has a heap of its own.
//!
//! Large blocks are mappings without a name, as others are. They are recognized by the word that GNU's allocator keeps
//! before each: its size, with a mark for a mapping of its own. With another allocator they are not found, and no other
//! mapping is mistaken for one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE_BYTES: u64 = redrt_wire::scrub::PAGE_BYTES;
/// Mark of a block with a mapping of its own: a flag among the low bits of the size.
const IS_MAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// Bits of an address in a program.
const ADDRESS_BITS: u32 = 47;
/// Bits by which hidden addresses are turned: as many as are zero in an address.
const HIDING_BITS: u32 = u64::BITS - ADDRESS_BITS;
/// Number of pages that are searched for the beginning of a block: pages before it may have another owner.
const STRANGE_PAGES_MAX: u64 = 512;

/// A stretch of memory that the program may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Address of the first byte.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Kind of the memory.
    pub kind: RegionKind,
}

/// Kind of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// `.data` and `.bss` of the program's file.
    Static,
    /// Memory that the C library's allocator gets by `brk`.
    Heap,
    /// A block of the allocator that is large enough for a mapping of its own.
    Block,
    /// A mapping without a name, of unknown use.
    Unknown,
}

impl std::fmt::Display for RegionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Static => "static data",
            Self::Heap => "heap",
            Self::Block => "large block",
            Self::Unknown => "unknown",
        })
    }
}

/// Static data and heap of this process; empty if the kernel's list cannot be read.
pub fn small_regions() -> Vec<Region> {
    let mut regions = mappings();
    regions.retain(|region| region.kind != RegionKind::Unknown);
    regions
}

/// Static data, heap and large blocks of this process, by address.
pub fn regions() -> Vec<Region> {
    let Ok(memory) = File::open("/proc/self/mem") else { return small_regions() };
    // Read through the file, because a mapping of another owner may go away meanwhile.
    let head = |page: u64| {
        let mut bytes = [0; 16];
        memory.read_exact_at(&mut bytes, page).ok()?;
        let (first, second) = bytes.split_at(8);
        Some([first, second].map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))))
    };
    let found = mappings().into_iter().flat_map(|region| match region.kind {
        RegionKind::Unknown => blocks(region, head),
        _ => vec![region],
    });
    found.collect()
}

/// Words that GNU's C library draws anew in each process, and by which equal memory looks different.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disguise {
    /// The word in each small block that is free, by which the allocator knows one that is freed twice. Zero with an
    /// allocator that has none.
    pub free_block_mark: u64,
    /// The word that hides addresses of functions and stacks, in lists of what is called at the exit and in `jmp_buf`.
    /// Zero if it is not known.
    pub pointer_guard: u64,
}

impl Disguise {
    /// Finds the words of this process. Takes and frees two blocks of the program's allocator.
    pub fn find() -> Self {
        // Blocks of different sizes, in lists that few programs fill. What an allocator without the word leaves there
        // is zero or an address, or differs.
        let [one, other] = [1016, 984].map(mark_of_freed);
        let is_mark = one == other && one >> ADDRESS_BITS != 0;
        Self { free_block_mark: if is_mark { one } else { 0 }, pointer_guard: pointer_guard() }
    }

    /// The word without its disguise. Another word may look like one that hides an address, once in 2¹⁷.
    #[inline]
    pub fn plain(self, word: u64) -> u64 {
        match self.hides(word) {
            false => word,
            true if word == self.free_block_mark => 0,
            true => word.rotate_right(HIDING_BITS) ^ self.pointer_guard,
        }
    }

    /// True of a word that has a disguise, or looks like it.
    #[inline]
    pub fn hides(self, word: u64) -> bool {
        // Of an address the upper bits are zero, so these are the guard's. They are turned to the low end.
        let is_address = word & ((1 << HIDING_BITS) - 1) == self.pointer_guard >> (u64::BITS - HIDING_BITS);
        word == self.free_block_mark && word != 0 || is_address && self.pointer_guard != 0
    }
}

/// The word with which the C library hides addresses, in the calling thread's control block.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn pointer_guard() -> u64 {
    let guard: u64;
    // SAFETY: - `fs` leads to the control block of a thread of this C library, whose seventh word is the guard in all
    //           versions: compiled code relies on the place of the canary beside it.
    //         - nothing is written.
    unsafe { std::arch::asm!("mov {}, fs:[0x30]", out(reg) guard, options(nostack, readonly, preserves_flags)) };
    guard
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn pointer_guard() -> u64 {
    0
}

/// The second word of a block of `bytes` after it was freed. Zero if there is no memory.
fn mark_of_freed(bytes: usize) -> u64 {
    // SAFETY: - no duty: malloc takes a size, and returns memory or null.
    let block = unsafe { libc::malloc(bytes) }.cast::<u64>();
    if block.is_null() {
        return 0;
    }
    let word = block.wrapping_add(1);
    // SAFETY: - the block has more than two words, and it is aligned for them.
    //         - malloc returned it, and nothing else uses it; it is freed once.
    //         - the word is read as the allocator keeps its own there: by address, in memory that stays mapped, since
    //           blocks of this size lie in its heap.
    unsafe {
        word.write_volatile(0);
        libc::free(block.cast());
        word.read_volatile()
    }
}

fn mappings() -> Vec<Region> {
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    fs::read_to_string("/proc/self/maps").map_or_else(|_| Vec::new(), |maps| listed(&maps, &program))
}

/// The program's regions in a list of mappings, and the mappings without a name. `[heap]` is the program's: the library
/// has its own heap elsewhere.
fn listed(maps: &str, program: &Path) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for line in maps.lines() {
        let mut fields = line.splitn(6, ' ');
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else { continue };
        let name = fields.nth(3).unwrap_or_default().trim_start();
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else { continue };
        // The part of `.bss` beyond the file is a mapping without a name, behind the file's.
        let is_rest = || regions.last().is_some_and(|last| last.kind == RegionKind::Static && last.end == start);
        let kind = match name {
            "[heap]" => RegionKind::Heap,
            "" if is_rest() => RegionKind::Static,
            "" => RegionKind::Unknown,
            _ if !program.as_os_str().is_empty() && Path::new(name) == program => RegionKind::Static,
            _ => continue,
        };
        if rights.starts_with("rw") && rights.ends_with('p') {
            regions.push(Region { start, end, kind });
        }
    }
    regions
}

/// The blocks in a mapping, one after the other. `head` returns the first two words of a page.
fn blocks(mapping: Region, head: impl Fn(u64) -> Option<[u64; 2]>) -> Vec<Region> {
    let mut found = Vec::new();
    let (mut page, mut strange) = (mapping.start, 0);
    while page < mapping.end && strange < STRANGE_PAGES_MAX {
        let Some([before, size]) = head(page) else { break };
        let bytes = size & !FLAGS;
        let fits = bytes > 0 && bytes.is_multiple_of(PAGE_BYTES) && bytes <= mapping.end - page;
        if before == 0 && size & FLAGS == IS_MAPPED && fits {
            found.push(Region { start: page, end: page + bytes, kind: RegionKind::Block });
            page += bytes;
        } else {
            page += PAGE_BYTES;
            strange += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64, kind: RegionKind) -> Region {
        Region { start, end, kind }
    }

    #[test]
    fn static_data_and_heap_are_told_from_what_has_no_name() {
        let maps = "\
555555554000-555555555000 r--p 00000000 08:01 7                          /opt/my prog
555555555000-555555556000 r-xp 00001000 08:01 7                          /opt/my prog
555555557000-555555558000 r--p 00002000 08:01 7                          /opt/my prog
555555558000-555555559000 rw-p 00003000 08:01 7                          /opt/my prog
555555559000-55555555b000 rw-p 00000000 00:00 0 
55555555b000-55555557c000 rw-p 00000000 00:00 0                          [heap]
7ffff7a00000-7ffff7b00000 rw-p 00000000 00:00 0 
7ffff7b00000-7ffff7c00000 rw-p 00000000 08:01 9                          /lib/libc.so.6
7ffff7c00000-7ffff7d00000 rw-s 00000000 00:01 3                          /memfd:redrt (deleted)
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
";
        let found = listed(maps, Path::new("/opt/my prog"));
        assert_eq!(
            found,
            [
                region(0x5555_5555_8000, 0x5555_5555_9000, RegionKind::Static),
                region(0x5555_5555_9000, 0x5555_5555_b000, RegionKind::Static),
                region(0x5555_5555_b000, 0x5555_5557_c000, RegionKind::Heap),
                region(0x7fff_f7a0_0000, 0x7fff_f7b0_0000, RegionKind::Unknown),
            ]
        );
    }

    #[test]
    fn blocks_are_found_between_what_is_none() {
        let head = |page: u64| match page {
            // Longer than the rest of the mapping; a block of two pages; no mark; a block of one page; not a whole
            // number of pages.
            0x1000 => Some([0, 0x10_0000 | IS_MAPPED]),
            0x2000 => Some([0, 0x2000 | IS_MAPPED]),
            0x5000 => Some([0, 0x1000]),
            0x6000 => Some([0, 0x1000 | IS_MAPPED]),
            0x7000 => Some([0, 0x1010 | IS_MAPPED]),
            _ => Some([1, 0x1000 | IS_MAPPED]),
        };
        let found = blocks(region(0x1000, 0x9000, RegionKind::Unknown), head);
        assert_eq!(found, [region(0x2000, 0x4000, RegionKind::Block), region(0x6000, 0x7000, RegionKind::Block)]);
        assert_eq!(blocks(region(0x1000, 0x9000, RegionKind::Unknown), |_| None), []);
    }

    #[test]
    fn the_mark_of_free_blocks_is_in_a_block_that_was_freed() {
        let Disguise { free_block_mark: mark, .. } = Disguise::find();
        assert!(mark == mark_of_freed(200) || mark == 0 && mark_of_freed(1000) >> ADDRESS_BITS == 0);
    }

    #[test]
    fn words_lose_their_disguise() {
        let disguise = Disguise { free_block_mark: 0xfd35_7bc9_1234_5678, pointer_guard: 0x51aa_bda3_f88e_2891 };
        let hidden = (0x5555_5555_1230 ^ disguise.pointer_guard).rotate_left(17);
        let words = [disguise.free_block_mark, hidden, 0, 7, u64::MAX, disguise.pointer_guard];
        assert_eq!(words.map(|word| disguise.plain(word)), [0, 0x5555_5555_1230, 0, 7, u64::MAX, words[5]]);
        assert_eq!(words.map(|word| Disguise::default().plain(word))[1..], words[1..]);
    }

    #[test]
    fn static_data_and_a_large_block_of_this_process_are_found() {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(7);
        // SAFETY: - no duty: malloc takes a size, and returns memory or null.
        let block = unsafe { libc::malloc(64 << 20) };
        let found = regions();
        let kind_of =
            |address: u64| found.iter().find(|one| (one.start..one.end).contains(&address)).map(|one| one.kind);
        assert_eq!(kind_of(NUMBER.as_ptr() as u64), Some(RegionKind::Static), "{found:x?}");
        assert!(block.is_null() || kind_of(block as u64 + (32 << 20)) == Some(RegionKind::Block), "{found:x?}");
        // SAFETY: - malloc returned it, and it is not used or freed elsewhere.
        unsafe { libc::free(block) };
    }
}
