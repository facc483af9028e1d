//! What a host is: processor, kernel, files. Both sides of a clone compare it before anything moves.

use crate::difference::Difference;
use crate::image::state::{HostFacts, MappedFile, SystemArea};
use crate::maps::Mapping;
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
pub fn identify(path: &str) -> io::Result<MappedFile> {
    let mut file = File::open(path)?;
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
    system.map(|mapping| SystemArea { name: mapping.name.clone(), start: mapping.start, end: mapping.end }).collect()
}

/// Digest of this process's vdso.
pub fn own_vdso_hash() -> io::Result<u64> {
    let mappings = crate::maps::parse(&fs::read_to_string("/proc/self/maps")?)?;
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

/// Sets the limits of this process, by number.
pub fn set_limits(limits: &[(u64, u64)]) -> io::Result<()> {
    for (resource, (soft, hard)) in limits.iter().enumerate() {
        let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: - now is written, wanted is read.
        unsafe {
            Errno::result(libc::prlimit64(0, resource as libc::__rlimit_resource_t, std::ptr::null(), &raw mut now))?;
            // A hard limit cannot be raised by users; then the program gets what there is here.
            let hard = if nix::unistd::geteuid().is_root() { *hard } else { (*hard).min(now.rlim_max) };
            let wanted = libc::rlimit64 { rlim_cur: (*soft).min(hard), rlim_max: hard };
            Errno::result(libc::prlimit64(
                0,
                resource as libc::__rlimit_resource_t,
                &raw const wanted,
                std::ptr::null_mut(),
            ))
            .or_else(|error| if error == Errno::EPERM { Ok(0) } else { Err(error) })?;
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
    fn files_differ_by_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "one").unwrap();
        let one = identify(path.to_str().unwrap()).unwrap();
        fs::write(&path, "two").unwrap();
        assert_ne!(identify(path.to_str().unwrap()).unwrap(), one);
        assert!(identify("/dev/null").is_err());
    }
}
