//! Memory facts from the kernel: free memory for another process, and kills for want of memory. Both come from the host
//! and from cgroups, of either version.

use nix::unistd::{Pid, SysconfVar, sysconf};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time from a kill for want of memory to the noticed death. Older counts concern other processes, such as a
/// child of a rank.
const DEATH_TIME_MAX: Duration = Duration::from_secs(30);

/// Counters of kills for want of memory, by their files.
#[derive(Default)]
pub struct Kills(BTreeMap<PathBuf, Counter>);

/// Counter of one file: of a cgroup or the host.
#[derive(Debug)]
struct Counter {
    count: u64,
    /// Kills not matched to a death yet, and the time at which the last was counted.
    open: u64,
    seen_at: Option<Instant>,
}

impl Kills {
    /// Begins to count kills around a living process: in its cgroup, or on the host if no cgroup counts. Returns the
    /// file for [`Kills::explain`].
    pub fn watch(&mut self, process: &str) -> Option<PathBuf> {
        let files = groups_of(process).into_iter().flat_map(|group| FILES.map(|name| group.join(name)));
        let mut files = files.chain([PathBuf::from("/proc/vmstat")]);
        let (path, count) = files.find_map(|path| kill_count(&path).map(|count| (path, count)))?;
        self.0.entry(path.clone()).or_insert(Counter { count, open: 0, seen_at: None });
        Some(path)
    }

    /// Reads all counters.
    pub fn read(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|(path, counter)| counter.read(path, now));
    }

    /// True if a kill for want of memory explains the death of a process that this file covers.
    pub fn explain(&mut self, path: &Path, now: Instant) -> bool {
        self.0.get_mut(path).is_some_and(|counter| {
            counter.read(path, now);
            counter.explain()
        })
    }
}

impl Counter {
    fn read(&mut self, path: &Path, now: Instant) {
        self.take(kill_count(path).unwrap_or(self.count), now);
    }

    fn explain(&mut self) -> bool {
        let explains = self.open > 0;
        self.open = self.open.saturating_sub(1);
        explains
    }

    /// Kills older than [`DEATH_TIME_MAX`] are settled: their processes' deaths were noticed.
    fn take(&mut self, count: u64, now: Instant) {
        if self.seen_at.is_some_and(|at| now > at + DEATH_TIME_MAX) {
            self.open = 0;
        }
        if count > self.count {
            self.open += count - self.count;
            self.seen_at = Some(now);
        }
        self.count = count;
    }
}

/// Files of a cgroup with a line `oom_kill COUNT`, in versions 2 and 1.
const FILES: [&str; 2] = ["memory.events", "memory.oom_control"];

fn kill_count(path: &Path) -> Option<u64> {
    field(&fs::read_to_string(path).ok()?, "oom_kill")
}

/// Resident memory of a process. `None` if it has ended.
pub fn resident_bytes(process: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    let page_bytes = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    pages.checked_mul(page_bytes).filter(|bytes| *bytes > 0)
}

/// Memory that a new process may use: the minimum of the host's available memory and the room in each cgroup of this
/// process. `None` if unknown.
pub fn free_bytes() -> Option<u64> {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        available.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = groups_of("self");
    let left = groups.iter().filter_map(|group| left_in(|name| fs::read_to_string(group.join(name)).ok()));
    left.chain(host).min()
}

/// Room in a cgroup. `None` without a limit. Its page cache counts as room, since files can be read again.
fn left_in(text: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let stat = text("memory.stat").unwrap_or_default();
    let sum = |names: &[&str]| names.iter().filter_map(|name| field(&stat, name)).sum::<u64>();
    let (limit, used, files) = match number("memory.current") {
        Some(used) => (number("memory.max")?, used, sum(&["inactive_file", "active_file", "slab_reclaimable"])),
        None => {
            let used = number("memory.usage_in_bytes")?;
            (number("memory.limit_in_bytes")?, used, sum(&["total_inactive_file", "total_active_file"]))
        }
    };
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

/// The number in the line `NAME NUMBER`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Cgroups that account for a process's memory, its own first, then their parents.
fn groups_of(process: &str) -> Vec<PathBuf> {
    let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    groups(&text(Path::new("/proc").join(process).join("cgroup")), &text("/proc/self/mountinfo".into()))
}

/// Parses `/proc/PID/cgroup` and `/proc/self/mountinfo`.
fn groups(cgroup: &str, mounts: &str) -> Vec<PathBuf> {
    let lines = || cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    // Where both versions are mounted, one of them has the memory controller.
    let old = lines().find(|(controllers, _)| controllers.split(',').any(|one| one == "memory"));
    let new = || lines().find(|(controllers, _)| controllers.is_empty());
    let Some((is_old, path)) = old.map(|(_, path)| (true, path)).or_else(|| Some((false, new()?.1))) else {
        return Vec::new();
    };
    let mount = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_its = match kind.next()? {
            "cgroup" => is_old && kind.nth(1)?.split(',').any(|one| one == "memory"),
            "cgroup2" => !is_old,
            _ => false,
        };
        let mut place = place.split(' ').skip(3);
        is_its.then(|| Some((place.next()?, place.next()?)))?
    });
    let Some((root, point)) = mount else { return Vec::new() };
    // In a container the path may be the outer one, and only a part of the tree is mounted.
    let path = Path::new(path);
    let below = path.strip_prefix(root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
    let is_within = below.components().all(|part| matches!(part, Component::Normal(_)));
    let own: PathBuf =
        [Path::new(point), below].iter().take(if is_within { 2 } else { 1 }).flat_map(|part| part.iter()).collect();
    own.ancestors().take_while(|group| group.starts_with(point)).map(Path::to_path_buf).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                       33 30 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                       34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const NEW: &str = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const PART: &str = "29 22 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n";

    #[test]
    fn the_groups_of_a_process_are_found_in_either_version() {
        let table: [(&str, &str, &str); 9] = [
            (
                "4:memory:/a/b\n1:cpu:/\n0::/\n",
                OLD,
                "/sys/fs/cgroup/memory/a/b /sys/fs/cgroup/memory/a /sys/fs/cgroup/memory",
            ),
            ("0::/user.slice/x\n", NEW, "/sys/fs/cgroup/user.slice/x /sys/fs/cgroup/user.slice /sys/fs/cgroup"),
            ("0::/\n", NEW, "/sys/fs/cgroup"),
            ("0::/docker/ab/c\n", PART, "/sys/fs/cgroup/c /sys/fs/cgroup"),
            ("0::/c\n", PART, "/sys/fs/cgroup/c /sys/fs/cgroup"),
            ("0::/docker/abc\n", PART, "/sys/fs/cgroup/docker/abc /sys/fs/cgroup/docker /sys/fs/cgroup"),
            ("0::/../other\n", NEW, "/sys/fs/cgroup"),
            ("4:memory:/a\n", NEW, ""),
            ("", NEW, ""),
        ];
        for (cgroup, mounts, expected) in table {
            let found = groups(cgroup, mounts);
            let found: Vec<_> = found.iter().map(|group| group.display().to_string()).collect();
            assert_eq!(found.join(" "), expected, "{cgroup}");
        }
    }

    #[test]
    fn a_group_has_left_what_is_neither_used_nor_of_files() {
        let left = |files: &[(&str, &str)]| {
            left_in(|name| files.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned()))
        };
        let stat = ("memory.stat", "anon 60\ninactive_file 5\nactive_file 3\nslab_reclaimable 2\n");
        assert_eq!(left(&[("memory.max", "100\n"), ("memory.current", "80\n"), stat]), Some(30));
        assert_eq!(left(&[("memory.max", "max\n"), ("memory.current", "80\n"), stat]), None);
        let stat = ("memory.stat", "inactive_file 1\ntotal_inactive_file 5\ntotal_active_file 3\n");
        let old = [("memory.limit_in_bytes", "100\n"), ("memory.usage_in_bytes", "80\n"), stat];
        assert_eq!(left(&old), Some(28));
        assert_eq!(left(&[("memory.max", "50\n"), ("memory.current", "80\n")]), Some(0));
        assert_eq!(left(&[]), None);
    }

    #[test]
    fn each_kill_of_the_kernel_explains_one_death_soon_after() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut kills = Counter { count: 3, open: 0, seen_at: None };
        let mut explain = |count: u64, seconds: u64| {
            kills.take(count, at(seconds));
            kills.explain()
        };
        assert!(!explain(3, 0), "killed by somebody else");
        assert!(explain(4, 1));
        assert!(!explain(4, 2), "one death was put down to it");
        // Two at once.
        assert!(explain(6, 3) && explain(6, 4) && !explain(6, 4));
        // A rank's child was killed, and much later the rank for another reason.
        explain(7, 5);
        assert!(explain(8, 6) && !explain(8, 6));
        kills.take(9, at(7));
        kills.take(9, at(7 + 31));
        assert!(!kills.explain());
    }

    #[test]
    fn this_host_says_what_it_has_free() {
        let free = free_bytes().expect("Linux says it");
        assert!(free > 0);
        let own = resident_bytes(Pid::this()).expect("this process is there");
        assert!(own > 1 << 16, "{own}");
        assert_eq!(resident_bytes(Pid::from_raw(i32::MAX)), None);
        let mut kills = Kills::default();
        let path = kills.watch("self").expect("Linux counts them");
        kills.read(Instant::now());
        assert!(!kills.explain(&path, Instant::now()), "nobody was killed in this moment");
        assert!(kills.watch("none").is_some(), "the host counts where no group is known");
    }

    proptest! {
        #[test]
        fn any_text_names_groups_below_the_mount(cgroup in "[0-9:a-z/.,\n]{0,40}", root in "/[a-z/.]{0,6}") {
            let mounts = format!("29 22 0:26 {root} /mount rw - cgroup2 none rw\n");
            for group in groups(&cgroup, &mounts) {
                prop_assert!(group.starts_with("/mount") && !group.display().to_string().contains("/.."), "{:?}", group);
            }
        }
    }
}
