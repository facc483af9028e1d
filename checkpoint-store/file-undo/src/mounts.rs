//! File systems that a host sees, identified so that another host recognizes the same one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use twox_hash::XxHash3_64;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MOUNTS: &str = "/proc/self/mountinfo";
/// Types of file systems shared by several hosts although their source does not show that.
const OF_SEVERAL_HOSTS: [&str; 8] = ["beegfs", "gpfs", "ocfs2", "gfs2", "afs", "pvfs2", "wekafs", "lustre"];

/// File systems of a host, by its own device numbers.
///
/// The trap: a device number means nothing on another host. A file system that is 0:43 on one may be 0:51 on the next,
/// and each host has a disk 8:1. So a network file system is the same on two hosts if server and directory are. One on
/// a disk or in memory is the same if both hosts have one kernel and one device number, as containers do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mounts {
    /// Boot id of the kernel.
    boot: String,
    /// By device number: a digest that identifies a network file system on all hosts, `None` for another one.
    file_systems: BTreeMap<u64, Option<u64>>,
}

/// Digest that identifies a network file system on all hosts. `None` for a local one.
fn network_identity(kind: &str, source: &str) -> Option<u64> {
    let is_of_server = source.starts_with("//") || source.split_once(':').is_some_and(|(server, _)| !server.is_empty());
    let is_of_several = is_of_server || OF_SEVERAL_HOSTS.contains(&kind);
    // Two versions of a protocol reach the same file system.
    let kind = if kind == "nfs4" { "nfs" } else { kind };
    // 0 is reserved for the file system of the log.
    is_of_several.then(|| XxHash3_64::oneshot(format!("{kind} {source}").as_bytes()).max(1))
}

impl Mounts {
    /// Reads the mounts of this host.
    ///
    /// # Errors
    /// If the kernel does not provide them.
    pub fn own() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(BOOT_ID)?, &String::from_utf8_lossy(&fs::read(MOUNTS)?)))
    }

    /// Parses `/proc/self/mountinfo` (`man proc_pid_mountinfo`). Malformed lines are skipped.
    fn parse(boot: &str, lines: &str) -> Self {
        let mount = |line: &str| {
            let (place, what) = line.split_once(" - ")?;
            let (major, minor) = place.split(' ').nth(2)?.split_once(':')?;
            let device = nix::sys::stat::makedev(major.parse().ok()?, minor.parse().ok()?);
            let mut what = what.split(' ');
            Some((device, network_identity(what.next()?, what.next()?)))
        };
        Self { boot: boot.trim().to_owned(), file_systems: lines.lines().filter_map(mount).collect() }
    }

    /// Identity of a network file system on all hosts. `None` for a local or unknown one.
    pub(crate) fn identity(&self, device: u64) -> Option<u64> {
        self.file_systems.get(&device).copied().flatten()
    }

    /// Returns true if another host also sees the file system with this local device number.
    pub(crate) fn is_seen_by(&self, other: &Self, device: u64) -> bool {
        match self.file_systems.get(&device) {
            Some(Some(identity)) => other.file_systems.values().any(|theirs| *theirs == Some(*identity)),
            Some(None) => self.boot == other.boot && other.file_systems.contains_key(&device),
            None => false,
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.boot);
        for (device, identity) in &self.file_systems {
            text += &match identity {
                Some(identity) => format!("{device} {identity}\n"),
                None => format!("{device}\n"),
            };
        }
        text + "end\n"
    }

    pub(crate) fn from_text(text: &str) -> io::Result<Self> {
        let torn = || io::Error::new(io::ErrorKind::InvalidData, "it is no list of the file systems of a host");
        let (boot, lines) = text.strip_suffix("end\n").and_then(|text| text.split_once('\n')).ok_or_else(torn)?;
        let row = |line: &str| {
            let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
            Some((numbers.next()??, numbers.next().flatten()))
        };
        let file_systems = lines.lines().map(row).collect::<Option<_>>().ok_or_else(torn)?;
        Ok(Self { boot: boot.to_owned(), file_systems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::makedev;

    const ROOT: &str = "\
        22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        30 22 0:43 / /home rw shared:2 - nfs4 server:/home rw\n\
        31 22 0:44 / /work rw - lustre 10.0.0.1@tcp:/work rw\n\
        32 22 0:5 / /proc rw - proc proc rw\n\
        33 22 0:50 / /fast rw - beegfs beegfs_nodev rw\n";
    const OTHER: &str = "\
        22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        40 22 0:51 / /home rw - nfs server:/home rw\n\
        41 22 0:43 / /images rw - nfs4 server:/nodes/n2 rw\n\
        a line of another form\n\
        43 22 0:60 / /fast rw - beegfs beegfs_nodev rw\n";

    #[test]
    fn a_network_file_system_is_known_by_its_server() {
        let (root, other) = (Mounts::parse("a\n", ROOT), Mounts::parse("b\n", OTHER));
        let seen = [(8, 1), (0, 51), (0, 43), (0, 60), (0, 99)];
        let seen = seen.map(|(major, minor)| other.is_seen_by(&root, makedev(major, minor)));
        // A disk with the same number is another one, and a device without an entry is local.
        assert_eq!(seen, [false, true, false, true, false]);
        assert_eq!(root.identity(makedev(0, 43)), other.identity(makedev(0, 51)));
    }

    #[test]
    fn hosts_with_one_kernel_have_its_disks_in_common() {
        let (one, other) = (Mounts::parse("a", ROOT), Mounts::parse("a", OTHER));
        assert!(one.is_seen_by(&other, makedev(8, 1)));
        assert!(!one.is_seen_by(&other, makedev(0, 5)), "a mount of its own");
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_a_torn_one_is_none() {
        let mounts = Mounts::parse("a", ROOT);
        let text = mounts.to_text();
        assert_eq!(Mounts::from_text(&text).unwrap(), mounts);
        for length in 0..text.len() {
            assert!(Mounts::from_text(&text[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn this_host_sees_its_root() {
        let own = Mounts::own().unwrap();
        assert!(!own.boot.is_empty() && !own.file_systems.is_empty(), "{own:?}");
    }
}
