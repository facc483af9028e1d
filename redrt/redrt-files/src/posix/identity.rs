//! Identities of files, by which a successor can tell the file that its predecessor found from a new one of the same
//! name.
//!
//! The trap: an inode number alone does not suffice, since file systems reuse numbers of removed files at once. If the
//! file system has handles for files (`name_to_handle_at`), they contain the inode's generation. The time of birth
//! counts as well.

use std::ffi::{CStr, c_int};
use std::fs;
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// Bytes of the largest handle: `MAX_HANDLE_SZ`.
const HANDLE_BYTES: usize = 128;

/// Identity of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity {
    inode: u64,
    /// Digest of time of birth and handle, which may differ on another host.
    version: u64,
    /// Digest of the id of the kernel that reported the version.
    kernel: u64,
}

/// Equal for the same file, as far as that can be known. Only files of one name are compared, so devices, whose numbers
/// differ between hosts, do not count.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.inode == other.inode && (self.kernel != other.kernel || self.version == other.version)
    }
}

/// `struct file_handle` of the C library, with room for the handle.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: c_int,
    handle: [u8; HANDLE_BYTES],
}

impl Identity {
    /// Length of an encoded identity in bytes.
    pub const BYTES: usize = 24;

    /// Identity of the file that a path names in a directory, with the flags of `statx`. Also returns its type and
    /// mode.
    pub fn at(directory: c_int, path: &CStr, flags: c_int) -> Result<(Self, u32), c_int> {
        // SAFETY: - all zeros are a valid statx: its fields are numbers.
        let mut status: libc::statx = unsafe { std::mem::zeroed() };
        let wanted = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        // SAFETY: - zero-terminated: path is a CStr; status is valid for writes: a local variable.
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
        // SAFETY: - zero-terminated: path is a CStr; mount is valid for writes.
        //         - place is valid for writes of the handle: it has as many bytes as its field says.
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

    /// Identity of an open file.
    pub fn of(fd: c_int) -> Result<Self, c_int> {
        Self::at(fd, c"", libc::AT_EMPTY_PATH).map(|(identity, _)| identity)
    }

    /// Inode number of the file.
    pub fn inode(self) -> u64 {
        self.inode
    }

    /// Encodes the identity for a decision.
    pub fn encode(self) -> Vec<u8> {
        [self.inode, self.version, self.kernel].map(u64::to_le_bytes).concat()
    }

    /// Decodes an identity; `None` if there are too few bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self { inode: word(0)?, version: word(8)?, kernel: word(16)? })
    }
}

/// Id of the running kernel; empty if it is unknown. Not cached: a copy of the process may be on another host.
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
