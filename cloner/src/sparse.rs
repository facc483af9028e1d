//! Reading memfds, which are mostly holes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Finds the ranges of a memfd that hold data, starts rounded down to pages, as `(start, end)`.
pub fn parts(object: &OwnedFd, len: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut parts = Vec::new();
    let mut from = 0_i64;
    while (from as u64) < len {
        // SAFETY: - `lseek` takes numbers only and touches no memory of this process.
        let (start, end) = unsafe {
            let start = libc::lseek(object.as_raw_fd(), from, libc::SEEK_DATA);
            (start, if start < 0 { start } else { libc::lseek(object.as_raw_fd(), start, libc::SEEK_HOLE) })
        };
        if start < 0 || end < 0 {
            break;
        }
        parts.push((start as u64 & !4095, (end as u64).min(len)));
        from = end;
    }
    Ok(parts)
}

/// Fills `bytes` from a memfd. Bytes past its end are zeros: the file may have shrunk since its size was read.
pub fn read(object: &OwnedFd, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let file = std::fs::File::from(object.try_clone()?);
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes[done..].fill(0);
    Ok(())
}
