//! What the program has advised the kernel to do with its memory.
//!
//! Only `/proc/PID/smaps` shows it, and that takes the kernel 40 ms for each GiB: it counts all pages. So it is read by
//! a thread of its own while memory is sent, and again only when areas have changed until the cut.

use crate::image::state::{
    ADVICE_DONT_DUMP, ADVICE_DONT_FORK, ADVICE_HUGE, ADVICE_LOCKED, ADVICE_MERGEABLE, ADVICE_NO_HUGE,
    ADVICE_WIPE_ON_FORK,
};
use crate::maps::Mapping;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Flags by address, from `/proc/PID/smaps`: they change rarely and reading them takes long.
#[derive(Clone, Default)]
pub struct Advice(Vec<(u64, u64, u8, bool)>);

impl Advice {
    /// Reads the lines `VmFlags`.
    #[must_use]
    pub fn parse(smaps: &str) -> Self {
        const FLAGS: [(&str, u8); 7] = [
            ("hg", ADVICE_HUGE),
            ("nh", ADVICE_NO_HUGE),
            ("dc", ADVICE_DONT_FORK),
            ("dd", ADVICE_DONT_DUMP),
            ("wf", ADVICE_WIPE_ON_FORK),
            ("mg", ADVICE_MERGEABLE),
            ("lo", ADVICE_LOCKED),
        ];
        let (mut all, mut range) = (Vec::new(), None);
        for line in smaps.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags:") {
                let mut words = flags.split_ascii_whitespace();
                let advice = words.clone().filter_map(|word| FLAGS.iter().find(|(name, _)| *name == word));
                let advice = advice.fold(0, |all, (_, flag)| all | flag);
                if let Some((start, end)) = range.take() {
                    all.push((start, end, advice, words.any(|word| word == "gd")));
                }
            } else if let Some((start, end)) = line.split(' ').next().and_then(|word| word.split_once('-'))
                && let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
            {
                range = Some((start, end));
            }
        }
        Self(all)
    }

    /// The flags of the area at an address, and whether it grows downwards.
    #[must_use]
    pub fn at(&self, address: u64) -> (u8, bool) {
        let found = self.0.iter().find(|(start, end, ..)| (*start..*end).contains(&address));
        found.map_or((0, false), |(_, _, advice, grows_down)| (*advice, *grows_down))
    }
}

/// Advice that is being read.
pub struct Reading {
    /// The areas at the begin.
    mappings: Vec<Mapping>,
    known: Arc<OnceLock<Advice>>,
    reader: Option<JoinHandle<io::Result<()>>>,
}

impl Reading {
    /// Begins to read `smaps` of a process that has these areas.
    #[must_use]
    pub fn begin(smaps: File, mappings: Vec<Mapping>) -> Self {
        let known = Arc::new(OnceLock::new());
        let tell = known.clone();
        let reader = std::thread::spawn(move || {
            let _ = tell.set(read(smaps)?);
            Ok(())
        });
        Self { mappings, known, reader: Some(reader) }
    }

    /// True when it is known already that the program wants no huge pages at an address, or does not mind.
    #[must_use]
    pub fn allows_huge(&self, address: u64) -> bool {
        self.known.get().is_some_and(|advice| advice.at(address).0 & ADVICE_NO_HUGE == 0)
    }

    /// The advice, if areas still are as they were; else it must be read again.
    pub fn end(&mut self, mappings: &[Mapping]) -> io::Result<Option<Advice>> {
        if let Some(reader) = self.reader.take() {
            reader.join().map_err(|_| io::Error::other("the thread that reads smaps panicked"))??;
        }
        Ok(self.known.get().filter(|_| self.mappings == mappings).cloned())
    }
}

/// Reads `smaps`.
pub fn read(mut smaps: File) -> io::Result<Advice> {
    let mut text = String::new();
    smaps.read_to_string(&mut text)?;
    Ok(Advice::parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_by_address() {
        let text = "3000-6000 rw-p 00000000 00:00 0 [heap]\nRss: 4 kB\nVmFlags: rd wr mr hg dc\n\
                    7000-8000 rw-p 00000000 00:00 0 [stack]\nVmFlags: rd wr gd\n";
        let advice = Advice::parse(text);
        assert_eq!(advice.at(0x3fff), (ADVICE_HUGE | ADVICE_DONT_FORK, false));
        assert_eq!(advice.at(0x7000), (0, true));
        assert_eq!(advice.at(0x6000), (0, false));
    }

    #[test]
    fn advice_of_areas_that_have_changed_is_not_used() {
        let mappings = || crate::maps::parse(&std::fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
        let smaps = || File::open("/proc/self/smaps").unwrap();
        // Not any mapping: a sanitizer may have given advice for its own.
        let page = crate::sys::memory::Mapped::new(4096).unwrap();
        let before = mappings();
        let mut reading = Reading::begin(smaps(), before.clone());
        assert!(reading.end(&before).unwrap().is_some());
        assert!(reading.allows_huge(page.address()));
        assert!(reading.end(&before[1..]).unwrap().is_none());
    }
}
