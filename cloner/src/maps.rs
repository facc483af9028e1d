//! `/proc/PID/maps`, as a list.

use bstr::{BString, ByteSlice};
use std::io;

/// First address above user space on x86-64 with four-level page tables (`TASK_SIZE`).
pub const ADDRESSES_END: u64 = 0x7fff_ffff_f000;

/// One line: an area of addresses with one protection and one backing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address; a multiple of the page size.
    pub start: u64,
    /// First address after the area.
    pub end: u64,
    /// `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`, or-ed.
    pub protection: u8,
    /// True for `MAP_SHARED`, false for `MAP_PRIVATE`.
    pub shared: bool,
    /// Offset of `start` in the file, in bytes; 0 for memory without a file.
    pub offset: u64,
    /// Device of the file as the kernel prints it, `major:minor` in hexadecimal.
    pub device: String,
    /// Inode of the file; 0 for memory without one.
    pub inode: u64,
    /// Path of the file, a name in brackets such as `[heap]`, or empty for anonymous memory.
    pub name: BString,
}

impl Mapping {
    /// Length of the area in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Returns true if the kernel maps this area by itself: vdso, vvar or vsyscall.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.name.starts_with(b"[vvar") || self.name == "[vdso]" || self.name == "[vsyscall]"
    }
}

/// Parses all lines into a list that is sorted by address and has no overlaps.
///
/// The trap: the kernel writes a page of lines at a time and resumes where the last mapping ended. If that mapping grew
/// or was merged with its successor in between, it is printed again in its new extent. So a later line wins over an
/// earlier one for the same addresses.
pub fn parse(text: impl AsRef<[u8]>) -> io::Result<Vec<Mapping>> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in text.as_ref().lines() {
        let unread = || io::Error::other(format!("cannot read the line of maps {:?}", line.as_bstr()));
        let mapping = parse_line(line).filter(|mapping| mapping.start < mapping.end).ok_or_else(unread)?;
        while all.last().is_some_and(|last| last.start >= mapping.start) {
            all.pop();
        }
        if let Some(last) = all.last_mut() {
            last.end = last.end.min(mapping.start);
        }
        all.push(mapping);
    }
    Ok(all)
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, behind) = rest.split_once_str(" ").unwrap_or((rest, b""));
        rest = behind.trim_start_with(|c| c == ' ');
        word
    };
    let hexadecimal = |text: &[u8]| u64::from_str_radix(text.to_str().ok()?, 16).ok();
    let (start, end) = word().split_once_str("-")?;
    let flags = word();
    let (offset, device, inode) = (word(), word(), word());
    let flag = |at: usize, wanted: u8, value: i32| if flags.get(at) == Some(&wanted) { value as u8 } else { 0 };
    Some(Mapping {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        protection: flag(0, b'r', libc::PROT_READ) | flag(1, b'w', libc::PROT_WRITE) | flag(2, b'x', libc::PROT_EXEC),
        shared: flags.get(3) == Some(&b's'),
        offset: hexadecimal(offset)?,
        device: device.to_str().ok()?.to_owned(),
        inode: inode.to_str().ok()?.parse().ok()?,
        // The kernel writes a line feed in a path as `\012`.
        name: rest.replace("\\012", "\n").into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds() {
        let text = "55d0-55e0 r-xp 00001000 fd:00 42                         /usr/bin/a b\n\
                    6000-7000 rw-p 00000000 00:00 0                          [stack]\n\
                    8000-9000 ---s 00000000 00:01 7 /dev/zero (deleted)\n\
                    9000-a000 rw-p 00000000 00:00 0 \n";
        let all = parse(text).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!((all[0].start, all[0].end, all[0].protection, all[0].offset), (0x55d0, 0x55e0, 5, 0x1000));
        assert_eq!(all[0].name, "/usr/bin/a b");
        assert_eq!(all[1].name, "[stack]");
        assert!(all[2].shared && all[2].protection == 0 && all[2].inode == 7);
        assert_eq!(all[3].name, "");
        assert!(parse("nonsense").is_err());
        let all = parse(b"1000-2000 r--p 00000000 fd:00 9 /gr\xfc\xdfe\\012n").unwrap();
        assert_eq!(all[0].name, b"/gr\xfc\xdfe\nn".as_slice());
        assert!(parse("2000-1000 rw-p 00000000 00:00 0 ").is_err());
    }

    #[test]
    fn what_is_written_twice_is_as_it_was_written_last() {
        let text = "1000-2000 r--p 00000000 00:00 0 \n\
                    2000-3000 rw-p 00000000 00:00 0 [heap]\n\
                    2000-6000 rw-p 00000000 00:00 0 [heap]\n\
                    5000-7000 r--p 00000000 00:00 0 \n\
                    1000-9000 rw-p 00000000 00:00 0 \n\
                    8000-a000 rw-p 00000000 00:00 0 \n";
        let found = |lines: usize| -> Vec<_> {
            let text: String = text.split_inclusive('\n').take(lines).collect();
            parse(&text).unwrap().iter().map(|mapping| (mapping.start, mapping.end)).collect()
        };
        assert_eq!(found(3), [(0x1000, 0x2000), (0x2000, 0x6000)]);
        assert_eq!(found(4), [(0x1000, 0x2000), (0x2000, 0x5000), (0x5000, 0x7000)]);
        assert_eq!(found(6), [(0x1000, 0x8000), (0x8000, 0xa000)]);
    }

    #[test]
    fn maps_of_a_process_that_changes_them_are_in_order() {
        const PAGES: usize = 400;
        let mut memory = crate::sys::memory::Mapped::new(PAGES * 4096).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let repeated = std::thread::scope(|scope| {
            scope.spawn(|| {
                for index in (0..).map(|step: usize| step * 7919) {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let page = &mut memory.bytes_mut()[index % PAGES * 4096..][..4096];
                    let protection = if index % 3 == 0 { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
                    // SAFETY: - `page` is one page of `memory`, which is borrowed mutably: nothing reads or writes it
                    //           meanwhile.
                    unsafe { libc::mprotect(page.as_mut_ptr().cast(), page.len(), protection) };
                }
            });
            let mut repeated = 0;
            for _ in 0..2000 {
                let text = std::fs::read_to_string("/proc/self/maps").unwrap();
                let all = parse(&text).unwrap();
                assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{text}");
                repeated += text.lines().count() - all.len();
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            repeated
        });
        eprintln!("{repeated} lines were written again");
    }
}
