//! Mappings of a process: identifies the program's own code, and names addresses.

use anyhow::{Context, Result};
use std::ops::Range;

#[derive(Debug, Default)]
pub struct Code {
    mappings: Vec<Mapping>,
    program: String,
}

#[derive(Debug)]
struct Mapping {
    range: Range<u64>,
    offset: u64,
    is_code: bool,
    name: String,
}

impl Code {
    /// Reads the mappings of a process.
    pub fn of(pid: i32) -> Result<Self> {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).context("Failed to find its program")?;
        let maps = std::fs::read(format!("/proc/{pid}/maps")).context("Failed to read its mappings")?;
        // Invalid UTF-8 is replaced alike in both names.
        Ok(Self::read(&String::from_utf8_lossy(&maps), &program.to_string_lossy()))
    }

    /// Parses `/proc/PID/maps`. `program`: path of the program's file.
    fn read(maps: &str, program: &str) -> Self {
        Self { mappings: maps.lines().filter_map(mapping).collect(), program: program.to_owned() }
    }

    /// True if no mapping belongs to the program.
    pub fn is_unknown(&self) -> bool {
        !self.mappings.iter().any(|mapping| self.is_own(mapping))
    }

    /// True if the address is in the program's own code.
    pub fn is_program(&self, address: u64) -> bool {
        self.at(address).is_some_and(|mapping| self.is_own(mapping))
    }

    /// End of the mapping with this address.
    pub fn end_of_mapping(&self, address: u64) -> Option<u64> {
        self.at(address).map(|mapping| mapping.range.end)
    }

    /// File and offset of an address, for a message.
    pub fn describe(&self, address: u64) -> String {
        match self.at(address) {
            Some(mapping) => {
                let name = mapping.name.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("memory");
                format!("{name}+{:#x}", address - mapping.range.start + mapping.offset)
            }
            None => format!("{address:#x}"),
        }
    }

    fn is_own(&self, mapping: &Mapping) -> bool {
        mapping.is_code && mapping.name == self.program
    }

    fn at(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| mapping.range.contains(&address))
    }
}

/// Parses one line: range, rights, offset, device, inode, name.
fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line.splitn(2, ' ');
    let (start, end) = rest.next()?.split_once('-')?;
    let mut words = rest.next()?.split_whitespace();
    let (rights, offset) = (words.next()?, words.next()?);
    let name: Vec<_> = words.skip(2).collect();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    Some(Mapping { range, offset: number(offset)?, is_code: rights.contains('x'), name: name.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        1000-2000 r--p 00000000 08:01 7 /home/me/a program\n\
        2000-3000 r-xp 00001000 08:01 7 /home/me/a program\n\
        7000-8000 r-xp 00003000 08:01 9 /usr/lib/libc.so.6\n\
        9000-a000 rw-p 00000000 00:00 0 \n";

    #[test]
    fn instructions_of_the_program_are_told_from_those_of_libraries() {
        let code = Code::read(MAPS, "/home/me/a program");
        assert!(code.is_program(0x2fff) && !code.is_program(0x1fff) && !code.is_program(0x7000));
        assert!(!code.is_unknown() && Code::read(MAPS, "/bin/sh").is_unknown());
        assert_eq!(code.describe(0x2010), "a program+0x1010");
        assert_eq!(code.describe(0x7010), "libc.so.6+0x3010");
        assert_eq!(code.describe(0x9010), "memory+0x10");
        assert_eq!(code.describe(0xa000), "0xa000");
        assert_eq!(code.end_of_mapping(0x9010), Some(0xa000));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        for line in ["", "1000", "1000-2000", "x-y r-xp 0 0 0 a", "1000-2000 r-xp"] {
            assert!(mapping(line).is_none(), "{line}");
        }
    }
}
