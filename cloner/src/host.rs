//! Facts of a host: processor, kernel, files. Both sides of a clone compare them before any memory moves.

use crate::difference::Difference;
use crate::image::state::{HostFacts, MappedFile, SystemArea};
use crate::maps::Mapping;
use bstr::{BStr, ByteSlice};
use nix::errno::Errno;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use twox_hash::{XxHash3_64, XxHash3_128};

const ARCH_GET_XCOMP_PERM: i32 = 0x1022;
const ARCH_REQ_XCOMP_PERM: i32 = 0x1023;
/// Bits of XCR0 that CPUID leaf 0xd describes: sets 0 and 1 (x87, SSE) have fixed places, later ones a size and offset.
const REGISTER_SET_COUNT: u32 = 32;

/// Collects the facts of this host.
pub fn facts() -> io::Result<HostFacts> {
    let names = nix::sys::utsname::uname()?;
    let processors = fs::read_to_string("/proc/cpuinfo")?;
    let flags = processors.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let flags = flags.map_or("", |(_, flags)| flags);
    // SAFETY: - `xgetbv` needs OSXSAVE, which Linux sets on each processor whose flags list `xsave`.
    let register_sets = if flags.contains(" xsave ") { unsafe { _xgetbv(0) } } else { 0 };
    let register_places = (2..REGISTER_SET_COUNT)
        .filter(|set| register_sets & (1 << set) != 0)
        .map(|set| {
            let leaf = __cpuid_count(0xd, set);
            (leaf.eax, leaf.ebx)
        })
        .collect();
    Ok(HostFacts {
        machine: names.machine().to_string_lossy().into_owned(),
        release: names.release().to_string_lossy().into_owned(),
        page_size: nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(0) as u64,
        register_sets,
        register_places,
        processor_flags: flags.split_whitespace().map(str::to_owned).collect(),
    })
}

/// Lists the reasons why a process from host `there` cannot run on host `here`; empty if there are none.
#[must_use]
pub fn differences(there: &HostFacts, here: &HostFacts) -> Vec<Difference> {
    let mut reasons = Vec::new();
    if there.machine != here.machine {
        reasons.push(Difference::Machine { there: there.machine.clone(), here: here.machine.clone() });
    }
    if there.page_size != here.page_size {
        reasons.push(Difference::PageSize { there: there.page_size, here: here.page_size });
    }
    let missing = there.processor_flags.iter().filter(|flag| !here.processor_flags.contains(flag));
    let missing: Vec<_> = missing.cloned().collect();
    if !missing.is_empty() {
        reasons.push(Difference::Processor(missing));
    }
    if there.register_sets != here.register_sets || there.register_places != here.register_places {
        reasons.push(Difference::Registers { there: there.register_sets, here: here.register_sets });
    }
    reasons
}

/// Identifies a file by its length and a digest of its content.
///
/// Errors if `path` is not a regular file, or cannot be read.
pub fn identify(path: &BStr) -> io::Result<MappedFile> {
    let mut file = File::open(path.to_os_str_lossy())?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other(format!("{path} is not a regular file")));
    }
    let mut digest = XxHash3_128::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => digest.write(&buffer[..count]),
        }
    }
    Ok(MappedFile { path: path.to_owned(), len: facts.size(), hash: digest.finish_128() })
}

/// Areas that the kernel maps by itself. `[vsyscall]` is left out: its address is the same on every host.
#[must_use]
pub fn system_areas(mappings: &[Mapping]) -> Vec<SystemArea> {
    let system = mappings.iter().filter(|mapping| mapping.is_system() && mapping.name != "[vsyscall]");
    system
        .map(|mapping| SystemArea { name: mapping.name.to_string(), start: mapping.start, end: mapping.end })
        .collect()
}

/// Digest of this process's vdso; 0 if it has none.
pub fn own_vdso_hash() -> io::Result<u64> {
    let mappings = crate::maps::parse(fs::read("/proc/self/maps")?)?;
    let Some(vdso) = mappings.iter().find(|mapping| mapping.name == "[vdso]") else { return Ok(0) };
    // SAFETY: - `vdso` was just read from this process's maps: the kernel maps it readable for the life of the process.
    Ok(XxHash3_64::oneshot(unsafe { std::slice::from_raw_parts(vdso.start as *const u8, vdso.bytes() as usize) }))
}

/// Bits of the extended processor states (AMX) that this process may use.
#[must_use]
pub fn extended_state() -> u64 {
    let mut mask = 0_u64;
    // SAFETY: - the kernel writes at most eight bytes, to `mask`; one that lacks the request writes nothing.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &raw mut mask) };
    mask
}

/// Requests the extended states of `wanted` that this process lacks. Must be called while it has one thread.
///
/// Errors if the kernel denies one of them.
pub fn request_extended_state(wanted: u64) -> io::Result<()> {
    let missing = wanted & !extended_state();
    for set in (0..64).filter(|set| missing & (1 << set) != 0) {
        // SAFETY: - `ARCH_REQ_XCOMP_PERM` takes a number and touches no memory of this process.
        Errno::result(unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, set as u64) })
            .map_err(|error| io::Error::other(format!("processor state {set} is not to be had: {error}")))?;
    }
    Ok(())
}

/// Limits by which a running program is killed or denied what it already had: number and name. The other limits only
/// bound later requests, and differ between hosts anyway.
const STRICT_LIMITS: [(usize, &str); 6] = [
    (libc::RLIMIT_CPU as usize, "processor time (ulimit -t)"),
    (libc::RLIMIT_FSIZE as usize, "the size of files (ulimit -f)"),
    (libc::RLIMIT_DATA as usize, "its data (ulimit -d)"),
    (libc::RLIMIT_STACK as usize, "the stack (ulimit -s)"),
    (libc::RLIMIT_NOFILE as usize, "open files (ulimit -n)"),
    (libc::RLIMIT_AS as usize, "memory (ulimit -v)"),
];

/// A soft limit of the source that this host's hard limit does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the program's limit of {} is {}, and at most {most} is to be had on this host: raise the hard limit here",
    name_of_limit(*resource), shown(*wanted)
)]
pub struct Lowered {
    /// Number of the limit, `RLIMIT_…`.
    pub resource: usize,
    /// Soft limit in the source; `RLIM64_INFINITY` if unlimited.
    pub wanted: u64,
    /// Hard limit of this host.
    pub most: u64,
}

fn shown(limit: u64) -> String {
    if limit == libc::RLIM64_INFINITY { "unlimited".into() } else { limit.to_string() }
}

fn name_of_limit(resource: usize) -> &'static str {
    STRICT_LIMITS.iter().find(|(number, _)| *number == resource).map_or("something", |(_, name)| name)
}

/// Finds the first strict limit whose soft value exceeds `most` of that resource.
fn first_lowered(limits: &[(u64, u64)], most: impl Fn(usize) -> u64) -> Option<Lowered> {
    STRICT_LIMITS.iter().find_map(|(resource, _)| {
        let (wanted, most) = (limits.get(*resource)?.0, most(*resource));
        (wanted > most).then_some(Lowered { resource: *resource, wanted, most })
    })
}

/// Checks that this process can be given the soft limits of a program, as `(soft, hard)` by number.
///
/// Errors with [`Lowered`] for the first strict limit it cannot have: a smaller one would kill the program later, at a
/// place that does not show the reason.
pub fn check_limits(limits: &[(u64, u64)]) -> io::Result<()> {
    let most = |resource: usize| {
        let wanted = limits.get(resource).map_or(0, |(soft, _)| *soft);
        let Ok(now) = limit(resource, None) else { return u64::MAX };
        // Only privileged processes may raise the hard limit. The soft limit is left alone.
        let raised = libc::rlimit64 { rlim_max: wanted.max(now.rlim_max), ..now };
        limit(resource, Some(raised)).map_or(now.rlim_max, |_| raised.rlim_max)
    };
    first_lowered(limits, most).map_or(Ok(()), |lowered| Err(io::Error::other(lowered)))
}

/// Returns a limit of this process, as it was before `to`, if given, is set.
fn limit(resource: usize, to: Option<libc::rlimit64>) -> nix::Result<libc::rlimit64> {
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let to = to.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: - `to` is null or points to an `rlimit64` that outlives the call.
    //         - `now` is a local of the size that the kernel writes.
    Errno::result(unsafe { libc::prlimit64(0, resource as libc::__rlimit_resource_t, to, &raw mut now) })?;
    Ok(now)
}

/// Sets the limits of this process, as `(soft, hard)` by number. Hard limits above the host's are lowered to them.
pub fn set_limits(limits: &[(u64, u64)]) -> io::Result<()> {
    for (resource, (soft, hard)) in limits.iter().enumerate() {
        let now = limit(resource, None)?;
        // Unprivileged processes cannot raise a hard limit: the program gets that of this host.
        let hard = if nix::unistd::geteuid().is_root() { *hard } else { (*hard).min(now.rlim_max) };
        let wanted = libc::rlimit64 { rlim_cur: (*soft).min(hard), rlim_max: hard };
        match limit(resource, Some(wanted)) {
            Ok(_) | Err(Errno::EPERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_fits_itself_and_every_difference_is_named() {
        let here = facts().unwrap();
        assert!(differences(&here, &here).is_empty());
        let mut there = here.clone();
        there.machine = "m68k".into();
        there.page_size = 8192;
        there.processor_flags.push("fortytwo".into());
        there.register_sets ^= 1 << 40;
        let reasons = differences(&there, &here);
        assert_eq!(reasons.len(), 4, "{reasons:?}");
        assert_eq!(reasons[2], Difference::Processor(vec!["fortytwo".into()]));
    }

    #[test]
    fn limits_that_would_end_the_program_later_are_not_lowered() {
        let stack = libc::RLIMIT_STACK as usize;
        let limits = |resource: usize, soft| {
            let mut all = vec![(100, 200); 16];
            all[resource].0 = soft;
            all
        };
        let refused = |resource, soft| first_lowered(&limits(resource, soft), |_| 150);
        assert_eq!(refused(stack, 150), None);
        let lowered = refused(stack, u64::MAX).unwrap();
        assert_eq!((lowered.resource, lowered.most), (stack, 150));
        let said =
            "the program's limit of the stack (ulimit -s) is unlimited, and at most 150 is to be had on this host";
        assert!(lowered.to_string().starts_with(said), "{lowered}");
        // RLIMIT_NPROC, RLIMIT_SIGPENDING and RLIMIT_MEMLOCK follow the memory size of each host by default.
        for resource in [libc::RLIMIT_NPROC, libc::RLIMIT_SIGPENDING, libc::RLIMIT_MEMLOCK] {
            assert_eq!(refused(resource as usize, u64::MAX), None);
        }
        let own: Vec<_> = (0..16).map(|resource| limit(resource, None).unwrap()).collect();
        check_limits(&own.iter().map(|own| (own.rlim_cur, own.rlim_max)).collect::<Vec<_>>()).unwrap();
    }

    #[test]
    fn files_differ_by_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let name = BStr::new(path.as_os_str().as_encoded_bytes());
        fs::write(&path, "one").unwrap();
        let one = identify(name).unwrap();
        fs::write(&path, "two").unwrap();
        assert_ne!(identify(name).unwrap(), one);
        assert!(identify("/dev/null".into()).is_err());
    }
}
