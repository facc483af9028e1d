//! What a host is: processor, kernel, files. Both sides of a clone compare it before anything moves.

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
/// Register sets beyond the first two have a size and a place each.
const REGISTER_SET_COUNT: u32 = 32;

/// This host.
pub fn facts() -> io::Result<HostFacts> {
    let names = nix::sys::utsname::uname()?;
    let processors = fs::read_to_string("/proc/cpuinfo")?;
    let flags = processors.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let flags = flags.map_or("", |(_, flags)| flags);
    // SAFETY: - every x86-64 processor that Linux runs on today saves its state with XSAVE; if not, flags say so below.
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

/// What keeps a process from `there` from running `here`.
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

/// What the kernel maps by itself. `[vsyscall]` is the same everywhere and not part of it.
#[must_use]
pub fn system_areas(mappings: &[Mapping]) -> Vec<SystemArea> {
    let system = mappings.iter().filter(|mapping| mapping.is_system() && mapping.name != "[vsyscall]");
    system
        .map(|mapping| SystemArea { name: mapping.name.to_string(), start: mapping.start, end: mapping.end })
        .collect()
}

/// Digest of this process's vdso.
pub fn own_vdso_hash() -> io::Result<u64> {
    let mappings = crate::maps::parse(fs::read("/proc/self/maps")?)?;
    let Some(vdso) = mappings.iter().find(|mapping| mapping.name == "[vdso]") else { return Ok(0) };
    // SAFETY: - the kernel maps it readable, for as long as the process lives.
    Ok(XxHash3_64::oneshot(unsafe { std::slice::from_raw_parts(vdso.start as *const u8, vdso.bytes() as usize) }))
}

/// Extended processor state (AMX) that this process may use.
#[must_use]
pub fn extended_state() -> u64 {
    let mut mask = 0_u64;
    // SAFETY: - writes eight bytes. A kernel that does not know it leaves them alone.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &raw mut mask) };
    mask
}

/// Asks for what the program had asked for. This must come before the process has another thread.
pub fn request_extended_state(wanted: u64) -> io::Result<()> {
    let missing = wanted & !extended_state();
    for set in (0..64).filter(|set| missing & (1 << set) != 0) {
        // SAFETY: - touches no memory.
        Errno::result(unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, set as u64) })
            .map_err(|error| io::Error::other(format!("processor state {set} is not to be had: {error}")))?;
    }
    Ok(())
}

/// Limits by which a program is ended, or refused what it has had: their numbers and names. Others only bound what it
/// may ask for besides, and differ between hosts by themselves.
const STRICT_LIMITS: [(usize, &str); 6] = [
    (libc::RLIMIT_CPU as usize, "processor time (ulimit -t)"),
    (libc::RLIMIT_FSIZE as usize, "the size of files (ulimit -f)"),
    (libc::RLIMIT_DATA as usize, "its data (ulimit -d)"),
    (libc::RLIMIT_STACK as usize, "the stack (ulimit -s)"),
    (libc::RLIMIT_NOFILE as usize, "open files (ulimit -n)"),
    (libc::RLIMIT_AS as usize, "memory (ulimit -v)"),
];

/// A limit that cannot be what it is in the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the program's limit of {} is {}, and at most {most} is to be had on this host: raise the hard limit here",
    name_of_limit(*resource), shown(*wanted)
)]
pub struct Lowered {
    /// Its number.
    pub resource: usize,
    /// In the source.
    pub wanted: u64,
    /// The hard limit here.
    pub most: u64,
}

fn shown(limit: u64) -> String {
    if limit == libc::RLIM64_INFINITY { "unlimited".into() } else { limit.to_string() }
}

fn name_of_limit(resource: usize) -> &'static str {
    STRICT_LIMITS.iter().find(|(number, _)| *number == resource).map_or("something", |(_, name)| name)
}

/// The first limit that a program would miss, where `most` is to be had.
fn first_lowered(limits: &[(u64, u64)], most: impl Fn(usize) -> u64) -> Option<Lowered> {
    STRICT_LIMITS.iter().find_map(|(resource, _)| {
        let (wanted, most) = (limits.get(*resource)?.0, most(*resource));
        (wanted > most).then_some(Lowered { resource: *resource, wanted, most })
    })
}

/// Whether the limits of a program can be had here. A smaller one would end it later, at a place that says nothing of
/// the reason.
pub fn check_limits(limits: &[(u64, u64)]) -> io::Result<()> {
    let most = |resource: usize| {
        let wanted = limits.get(resource).map_or(0, |(soft, _)| *soft);
        let Ok(now) = limit(resource, None) else { return u64::MAX };
        // Only who is privileged raises it; the soft limit stays what it is.
        let raised = libc::rlimit64 { rlim_max: wanted.max(now.rlim_max), ..now };
        limit(resource, Some(raised)).map_or(now.rlim_max, |_| raised.rlim_max)
    };
    first_lowered(limits, most).map_or(Ok(()), |lowered| Err(io::Error::other(lowered)))
}

/// A limit of this process, before it is set if `to` is given.
fn limit(resource: usize, to: Option<libc::rlimit64>) -> nix::Result<libc::rlimit64> {
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let to = to.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: - the limit that was there is written, the new one is read if there is one.
    Errno::result(unsafe { libc::prlimit64(0, resource as libc::__rlimit_resource_t, to, &raw mut now) })?;
    Ok(now)
}

/// Sets the limits of this process, by number.
pub fn set_limits(limits: &[(u64, u64)]) -> io::Result<()> {
    for (resource, (soft, hard)) in limits.iter().enumerate() {
        let now = limit(resource, None)?;
        // A hard limit cannot be raised by users; then the program gets what there is here.
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
        // Of processes, signals and locked memory each host allows as much as its memory lets it.
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
