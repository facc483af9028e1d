//! Advice that the program has given the kernel about its memory (`madvise`), and policies of areas.
//!
//! Only `/proc/PID/smaps` shows it, and reading it takes 40 ms for each GiB because the kernel counts all pages. So a
//! thread of its own reads it while memory is sent, and it is read again only if areas have changed by the cut.

use crate::control::Control;
use crate::image::state::{
    ADVICE_DONT_DUMP, ADVICE_DONT_FORK, ADVICE_HUGE, ADVICE_LOCKED, ADVICE_MERGEABLE, ADVICE_NO_HUGE,
    ADVICE_WIPE_ON_FORK,
};
use crate::maps::Mapping;
use crate::refusal::{Of, Refusal};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Advice by address. Kept between looks: it rarely changes, and reading it takes long.
#[derive(Clone, Default)]
pub struct Advice {
    flags: Vec<(u64, u64, u8, bool)>,
    /// First address of an area with a NUMA policy of its own, and the policy as the kernel prints it.
    policy: Option<(u64, String)>,
}

impl Advice {
    /// Parses the `VmFlags` lines of `/proc/PID/smaps`.
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
        Self { flags: all, policy: None }
    }

    /// Reason why a copy cannot have this advice: a NUMA policy of one area.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let (start, policy) = self.policy.clone()?;
        Some(Refusal::Process(Of::MemoryPolicy { start, policy }))
    }

    /// `ADVICE_` flags of the area at an address, and whether the area grows downwards.
    #[must_use]
    pub fn at(&self, address: u64) -> (u8, bool) {
        let found = self.flags.iter().find(|(start, end, ..)| (*start..*end).contains(&address));
        found.map_or((0, false), |(_, _, advice, grows_down)| (*advice, *grows_down))
    }
}

/// Files of `/proc/PID` from which advice is read.
pub struct Files {
    pub smaps: File,
    /// Policies of areas. `None` on a host with one NUMA node, where policies have no effect.
    pub numa_maps: Option<File>,
}

impl Files {
    pub fn of(control: &Control) -> io::Result<Self> {
        let nodes = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
        let has_nodes = !matches!(nodes.trim(), "" | "0");
        let numa_maps = if has_nodes { control.proc_file("numa_maps").ok() } else { None };
        Ok(Self { smaps: control.proc_file("smaps")?, numa_maps })
    }
}

/// Finds the first area whose policy differs from the most frequent one. Areas without a policy of their own show that
/// of the first thread.
fn own_policy(numa_maps: &str) -> Option<(u64, String)> {
    let lines = numa_maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        Some((u64::from_str_radix(words.next()?, 16).ok()?, words.next()?))
    });
    let lines: Vec<(u64, &str)> = lines.collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    lines.iter().for_each(|(_, policy)| *counts.entry(policy).or_default() += 1);
    let (usual, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    lines.iter().find(|(_, policy)| *policy != usual).map(|(start, policy)| (*start, (*policy).to_owned()))
}

/// Advice that a thread is reading.
pub struct Reading {
    /// Areas of the process when reading began.
    mappings: Vec<Mapping>,
    known: Arc<OnceLock<Advice>>,
    reader: Option<JoinHandle<io::Result<()>>>,
}

impl Reading {
    /// Starts a thread that reads the advice of a process with these areas.
    #[must_use]
    pub fn begin(files: Files, mappings: Vec<Mapping>) -> Self {
        let known = Arc::new(OnceLock::new());
        let tell = known.clone();
        let reader = std::thread::spawn(move || {
            let _ = tell.set(read(files)?);
            Ok(())
        });
        Self { mappings, known, reader: Some(reader) }
    }

    /// Returns true if advice is known and does not forbid huge pages at this address.
    #[must_use]
    pub fn allows_huge(&self, address: u64) -> bool {
        self.known.get().is_some_and(|advice| advice.at(address).0 & ADVICE_NO_HUGE == 0)
    }

    /// Waits for the thread. Returns the advice if areas are unchanged; on `None` it must be read again.
    pub fn end(&mut self, mappings: &[Mapping]) -> io::Result<Option<Advice>> {
        if let Some(reader) = self.reader.take() {
            reader.join().map_err(|_| io::Error::other("the thread that reads smaps panicked"))??;
        }
        Ok(self.known.get().filter(|_| self.mappings == mappings).cloned())
    }
}

/// Reads all advice from these files.
pub fn read(mut files: Files) -> io::Result<Advice> {
    // Paths in it may be invalid UTF-8, and are not used.
    let text = |file: &mut File| {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut advice = Advice::parse(&text(&mut files.smaps)?);
    if let Some(file) = &mut files.numa_maps {
        advice.policy = own_policy(&text(file)?);
    }
    Ok(advice)
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
    fn memory_with_a_policy_of_its_own_is_found() {
        let usual = "1000 default file=/bin/a mapped=1\n2000 default anon=2 N0=2\n";
        assert_eq!(own_policy(usual), None);
        assert_eq!(own_policy(&usual.replace("default", "bind:0")), None);
        let bound = format!("{usual}3000 bind:1 anon=5 N1=5\n");
        assert_eq!(own_policy(&bound), Some((0x3000, "bind:1".to_owned())));
    }

    #[test]
    fn advice_of_areas_that_have_changed_is_not_used() {
        let mappings = || crate::maps::parse(std::fs::read("/proc/self/maps").unwrap()).unwrap();
        let files = || Files { smaps: File::open("/proc/self/smaps").unwrap(), numa_maps: None };
        // A mapping of the test's own: a sanitizer may have given advice for other memory.
        let page = crate::sys::memory::Mapped::new(4096).unwrap();
        let before = mappings();
        let mut reading = Reading::begin(files(), before.clone());
        assert!(reading.end(&before).unwrap().is_some());
        assert!(reading.allows_huge(page.address()));
        assert!(reading.end(&before[1..]).unwrap().is_none());
    }
}
