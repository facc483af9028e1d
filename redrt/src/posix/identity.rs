//! Which file something is, so that a successor can tell whether it is what its predecessor has seen, or something new
//! of the same name.
//!
//! A number of an inode is not enough: file systems use the numbers of removed files again, at once. Where the file
//! system has handles for files (`name_to_handle_at`), these hold the inode's generation; beside that counts the time
//! of birth.

use std::ffi::{CStr, c_int};
use std::fs;
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// Bytes of the largest handle: `MAX_HANDLE_SZ`.
const HANDLE_BYTES: usize = 128;

/// Which file it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity {
    inode: u64,
    /// Of birth and handle; these need not be the same on another host.
    version: u64,
    /// The running kernel by which the version was seen.
    kernel: u64,
}

/// Whether it is the same file, as far as that can be told. Only files of one name are compared, so devices, which have
/// other numbers on other hosts, do not count.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.inode == other.inode && (self.kernel != other.kernel || self.version == other.version)
    }
}

/// As the C library has it: `struct file_handle` with room for the handle.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: c_int,
    handle: [u8; HANDLE_BYTES],
}

impl Identity {
    /// How long one is, as it is told.
    pub const BYTES: usize = 24;

    /// Of what a path names in a directory, with the flags of `statx`. Also gives its type and mode.
    pub fn at(directory: c_int, path: &CStr, flags: c_int) -> Result<(Self, u32), c_int> {
        // SAFETY: - all zeros are a statx.
        let mut status: libc::statx = unsafe { std::mem::zeroed() };
        let wanted = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        // SAFETY: - path ends with NUL; status is valid for writing.
        if unsafe { libc::statx(directory, path.as_ptr(), flags, wanted, &raw mut status) } != 0 {
            return Err(super::agree::errno());
        }
        let mut version = XxHash3_64::new();
        version.write(&status.stx_btime.tv_sec.to_le_bytes());
        version.write(&status.stx_btime.tv_nsec.to_le_bytes());
        let mut handle = Handle { bytes: HANDLE_BYTES as u32, kind: 0, handle: [0; HANDLE_BYTES] };
        let follow = if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { libc::AT_SYMLINK_FOLLOW } else { 0 };
        let flags = follow | flags & libc::AT_EMPTY_PATH;
        let (place, mut mount) = ((&raw mut handle).cast::<libc::file_handle>(), 0);
        // SAFETY: - path ends with NUL; handle has as much room as it says, mount is valid for writing.
        if unsafe { libc::name_to_handle_at(directory, path.as_ptr(), place, &raw mut mount, flags) } == 0 {
            version.write(&handle.kind.to_le_bytes());
            version.write(&handle.handle[..(handle.bytes as usize).min(HANDLE_BYTES)]);
        }
        let identity = Self {
            inode: status.stx_ino,
            version: version.finish(),
            kernel: XxHash3_64::oneshot(boot_id().as_bytes()),
        };
        Ok((identity, status.stx_mode.into()))
    }

    /// Of an open file.
    pub fn of(fd: c_int) -> Result<Self, c_int> {
        Self::at(fd, c"", libc::AT_EMPTY_PATH).map(|(identity, _)| identity)
    }

    /// Its number in its file system.
    pub fn inode(self) -> u64 {
        self.inode
    }

    /// As it is told to siblings.
    pub fn encode(self) -> Vec<u8> {
        [self.inode, self.version, self.kernel].map(u64::to_le_bytes).concat()
    }

    /// As it was told.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self { inode: word(0)?, version: word(8)?, kernel: word(16)? })
    }
}

/// Of the running kernel. Not remembered: a copy of the process may be on another host.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_file_with_the_number_of_a_removed_one_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut before = None;
        for _ in 0..50 {
            let file = fs::File::create(&path).unwrap();
            let (identity, mode) = Identity::at(libc::AT_FDCWD, &name, libc::AT_SYMLINK_NOFOLLOW).unwrap();
            assert_eq!(mode & libc::S_IFMT, libc::S_IFREG);
            assert_eq!(Identity::of(file.as_raw_fd()), Ok(identity));
            assert_eq!(Identity::decode(&identity.encode()), Some(identity));
            assert_ne!(before, Some(identity), "the same, though it was removed");
            before = Some(identity);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn on_another_host_only_the_number_counts() {
        let here = Identity { inode: 7, version: 1, kernel: 1 };
        assert_eq!(here, Identity { inode: 7, version: 2, kernel: 2 });
        assert_ne!(here, Identity { inode: 8, version: 2, kernel: 2 });
        assert_ne!(here, Identity { version: 2, ..here });
        assert_eq!(Identity::decode(&[0; 23]), None);
    }
}
