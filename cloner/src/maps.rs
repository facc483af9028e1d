//! `/proc/PID/maps`, as a list.

use std::io;

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
    pub name: String,
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
        self.name.starts_with("[vvar") || matches!(self.name.as_str(), "[vdso]" | "[vsyscall]")
    }
}

/// Reads all lines.
pub fn parse(text: &str) -> io::Result<Vec<Mapping>> {
    text.lines()
        .map(|line| parse_line(line).ok_or_else(|| io::Error::other(format!("cannot read the line of maps {line:?}"))))
        .collect()
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind.trim_start_matches(' ');
        word
    };
    let (start, end) = word().split_once('-')?;
    let flags = word().as_bytes();
    let (offset, device, inode) = (word(), word(), word());
    let flag = |at: usize, wanted: u8, value: i32| if flags.get(at) == Some(&wanted) { value as u8 } else { 0 };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection: flag(0, b'r', libc::PROT_READ) | flag(1, b'w', libc::PROT_WRITE) | flag(2, b'x', libc::PROT_EXEC),
        shared: flags.get(3) == Some(&b's'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        device: device.to_owned(),
        inode: inode.parse().ok()?,
        name: unescape(rest),
    })
}

/// The kernel writes a line feed in a path as `\012`.
fn unescape(name: &str) -> String {
    name.replace("\\012", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds() {
        let text = "55d0-55e0 r-xp 00001000 fd:00 42                         /usr/bin/a b\n\
                    7ffc0000-7ffd0000 rw-p 00000000 00:00 0                          [stack]\n\
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
    }
}
