//! `/proc/PID/maps`, as a list.

use bstr::{BString, ByteSlice};
use std::io;

/// End of a program's addresses.
pub const ADDRESSES_END: u64 = 0x7fff_ffff_f000;

/// One line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// `PROT_` flags.
    pub protection: u8,
    /// Shared, not private.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device, as it is written.
    pub device: String,
    /// Number of the file; 0 for memory without one.
    pub inode: u64,
    /// Path, or a name in brackets, or nothing.
    pub name: BString,
}

impl Mapping {
    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// True when the kernel itself maps it: code and data that it lends to programs.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.name.starts_with(b"[vvar") || self.name == "[vdso]" || self.name == "[vsyscall]"
    }
}

/// Reads all lines. What it gives is sorted and disjoint.
///
/// The trap: the kernel writes a page of lines at a time, and goes on where the last mapping ended. If that has grown,
/// or was merged with what follows, between two such pieces, it is written again, as it is now. So a later line is
/// right, and what an earlier one said of the same addresses goes.
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
                    // SAFETY: - a page of the mapping, borrowed alone; nobody reads or writes it.
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
