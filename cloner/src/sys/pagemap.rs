//! PAGEMAP_SCAN and userfaultfd registration, which the C library's headers do not have yet.

use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Categories(u64);

impl Categories {
    /// Written since it was last write-protected.
    pub const WRITTEN: Self = Self(1 << 1);
    /// A page of a file, not a private copy.
    pub const FILE: Self = Self(1 << 2);
    /// In memory.
    pub const PRESENT: Self = Self(1 << 3);
    /// In swap.
    pub const SWAPPED: Self = Self(1 << 4);
    /// The page of zeros that all share.
    pub const ZERO_PAGE: Self = Self(1 << 5);

    /// None.
    #[must_use]
    pub const fn empty() -> Self {
        Self(0)
    }

    /// As the kernel shows them.
    #[must_use]
    pub const fn from_bits_truncate(bits: u64) -> Self {
        Self(bits)
    }

    /// True when all of `other` are in.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Categories {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// `struct page_region`: pages in a row of the same categories.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// Those that were asked for.
    pub categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    page_count_max: u64,
    inverted: u64,
    all: u64,
    any: u64,
    shown: u64,
}

const PAGEMAP_SCAN: u64 = 0xc060_6610;
const WRITE_PROTECT_MATCHING: u64 = 1;
const CHECK_ASYNC: u64 = 2;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const MODE_WRITE_PROTECT: u64 = 2;
const REGION_COUNT: usize = 4096;
const _: () = assert!(size_of::<ScanArgument>() == 96 && size_of::<Region>() == 24);

/// Calls `each` for the regions from `start` to `end` whose pages are in all categories of `all` and in one of `any`.
/// With `protect` they are write-protected in the same step.
#[allow(clippy::too_many_arguments, reason = "they are those of the system call")]
pub fn scan(
    pagemap: &File,
    start: u64,
    end: u64,
    protect: bool,
    all: Categories,
    any: Categories,
    shown: Categories,
    each: &mut dyn FnMut(&Region),
) -> io::Result<()> {
    let mut regions = [Region::default(); REGION_COUNT];
    let mut argument = ScanArgument {
        size: size_of::<ScanArgument>() as u64,
        flags: if protect { WRITE_PROTECT_MATCHING | CHECK_ASYNC } else { 0 },
        start,
        end,
        regions: regions.as_mut_ptr() as u64,
        region_count: REGION_COUNT as u64,
        all: all.0,
        any: any.0,
        shown: shown.0,
        ..ScanArgument::default()
    };
    loop {
        // SAFETY: - the argument has the size it states; the regions have room for as many as it states.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        if count < 0 {
            let errno = Errno::last();
            if errno == Errno::EINTR {
                argument.start = argument.walk_end.max(argument.start);
                continue;
            }
            return Err(errno.into());
        }
        regions[..count as usize].iter().for_each(&mut *each);
        if argument.walk_end >= end || argument.walk_end <= argument.start {
            return Ok(());
        }
        argument.start = argument.walk_end;
    }
}

/// True when there is a page at an address, in memory or in swap.
pub fn is_there(pagemap: &File, address: u64) -> io::Result<bool> {
    let mut entry = [0; 8];
    pagemap.read_exact_at(&mut entry, address / 4096 * 8)?;
    // The two highest bits: present, swapped.
    Ok(u64::from_ne_bytes(entry) >> 62 != 0)
}

/// Registers a range for write protection with the process that the userfaultfd belongs to.
pub fn register(userfaultfd: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    let mut argument = [start, end - start, MODE_WRITE_PROTECT, 0];
    // SAFETY: - struct uffdio_register is four words.
    let result = unsafe { libc::ioctl(userfaultfd.as_raw_fd(), UFFDIO_REGISTER, argument.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
