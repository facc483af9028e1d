//! Single copies from and to the memory of another process of the same host.

use std::io;

/// Lets any process of this user read this one's memory, where a security module requires permission.
pub fn permit_readers() {
    // SAFETY: - sets a flag of this process, and touches no memory; fails harmlessly where the module is absent.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Reads `length` bytes at `address` of process `pid` to `to`.
///
/// # Safety
/// `to` must be valid for `length` bytes of writes that nobody else accesses meanwhile.
pub unsafe fn read(pid: i32, address: u64, to: *mut u8, length: usize) -> io::Result<()> {
    // SAFETY: - the local vector is inside the caller's buffer; the kernel checks the remote one.
    transfer(to, address, length, |local, remote| unsafe { libc::process_vm_readv(pid, local, 1, remote, 1, 0) })
}

/// Writes `length` bytes from `from` to `address` of process `pid`.
///
/// # Safety
/// `from` must be valid for `length` bytes of reads, and the other process must expect the bytes there.
pub unsafe fn write(pid: i32, address: u64, from: *const u8, length: usize) -> io::Result<()> {
    let from = from.cast_mut();
    // SAFETY: - the local vector is inside the caller's buffer, and only read; the kernel checks the remote one.
    transfer(from, address, length, |local, remote| unsafe { libc::process_vm_writev(pid, local, 1, remote, 1, 0) })
}

/// A stretch of a process's memory: its address and its bytes.
pub type Block = (u64, usize);

/// Bound of the kernel on the blocks of one call.
const BLOCKS_MAX: usize = 1024;

/// Reads consecutive blocks of process `pid` to blocks of this process with the same total of bytes.
///
/// # Safety
/// `to` must be valid for writes that nobody else accesses meanwhile.
pub unsafe fn read_blocks(pid: i32, from: &[Block], to: &[Block]) -> io::Result<()> {
    // SAFETY: - the local vectors are the caller's blocks; the kernel checks the remote ones.
    transfer_blocks(to, from, |local, remote| unsafe {
        libc::process_vm_readv(pid, local.as_ptr(), local.len() as u64, remote.as_ptr(), remote.len() as u64, 0)
    })
}

/// Writes consecutive blocks of this process to blocks of process `pid`, of which the last may get fewer bytes.
///
/// # Safety
/// `from` must be valid for reads, and the other process must expect the bytes there.
pub unsafe fn write_blocks(pid: i32, to: &[Block], from: &[Block]) -> io::Result<()> {
    // SAFETY: - the local vectors are the caller's blocks, and only read; the kernel checks the remote ones.
    transfer_blocks(from, to, |local, remote| unsafe {
        libc::process_vm_writev(pid, local.as_ptr(), local.len() as u64, remote.as_ptr(), remote.len() as u64, 0)
    })
}

/// Progress of a transfer on one side.
#[derive(Default)]
struct Place {
    /// Number of blocks done.
    next: usize,
    /// Bytes done of the next block.
    within: usize,
}

impl Place {
    /// Makes the kernel's vectors of the next blocks, as many as one call takes and at most `limit` bytes. Returns the
    /// number of bytes.
    fn take(&self, blocks: &[Block], limit: usize, vectors: &mut Vec<libc::iovec>) -> usize {
        vectors.clear();
        let (mut skipped, mut size) = (self.within, 0);
        for (address, bytes) in blocks[self.next..].iter().take(BLOCKS_MAX) {
            let wanted = (bytes - skipped).min(limit - size);
            let start = (*address as usize).wrapping_add(skipped) as *mut libc::c_void;
            vectors.push(libc::iovec { iov_base: start, iov_len: wanted });
            size += wanted;
            skipped = 0;
        }
        size
    }

    fn advance(&mut self, blocks: &[Block], count: usize) {
        self.within += count;
        while self.next < blocks.len() && self.within >= blocks[self.next].1 {
            self.within -= blocks[self.next].1;
            self.next += 1;
        }
    }
}

/// Repeats `call` until all bytes of `here` were moved.
fn transfer_blocks(
    here: &[Block],
    there: &[Block],
    call: impl Fn(&[libc::iovec], &[libc::iovec]) -> isize,
) -> io::Result<()> {
    let mut left: usize = here.iter().map(|block| block.1).sum();
    let (mut near, mut far) = (Place::default(), Place::default());
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    while left > 0 {
        let size = near.take(here, left, &mut local);
        if far.take(there, size, &mut remote) == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let count = call(&local, &remote);
        if count <= 0 {
            return Err(io::Error::last_os_error());
        }
        near.advance(here, count as usize);
        far.advance(there, count as usize);
        left -= count as usize;
    }
    Ok(())
}

/// Repeats `call` until all `length` bytes were moved between `here` and `there`: the kernel may move fewer at once.
fn transfer(
    here: *mut u8,
    there: u64,
    length: usize,
    call: impl Fn(*const libc::iovec, *const libc::iovec) -> isize,
) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        let local = libc::iovec { iov_base: here.wrapping_add(done).cast(), iov_len: length - done };
        let remote = (there as usize).wrapping_add(done) as *mut libc::c_void;
        let remote = libc::iovec { iov_base: remote, iov_len: length - done };
        let count = call(&raw const local, &raw const remote);
        if count <= 0 {
            return Err(io::Error::last_os_error());
        }
        done += count as usize;
    }
    Ok(())
}

/// Returns true if other processes can read these bytes, as far as the first and the last byte show. Memory mapped by a
/// driver cannot be read.
pub fn can_be_read(start: *const u8, length: usize) -> bool {
    let mut bytes = [0u8; 2];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let end = |at: usize| libc::iovec { iov_base: start.wrapping_add(at).cast_mut().cast(), iov_len: 1 };
    let remote = [end(0), end(length.saturating_sub(1))];
    // SAFETY: - `bytes` has room for both bytes; the kernel checks the addresses they are read from.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, remote.as_ptr(), 2, 0) };
    count == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_moved_one_after_the_other_however_many_there_are() {
        let pid = std::process::id() as i32;
        // Three bytes of each eight, in more blocks than one call takes.
        let count = 3 * BLOCKS_MAX + 7;
        let memory: Vec<u8> = (0..8 * count).map(|number| (number % 251) as u8).collect();
        let blocks: Vec<Block> = (0..count).map(|block| (memory[8 * block..].as_ptr() as u64, 3)).collect();
        let expected: Vec<u8> = memory.chunks(8).flat_map(|chunk| &chunk[..3]).copied().collect();
        let mut packed = vec![0; 3 * count];
        // SAFETY: - `packed` has as many bytes as the blocks.
        unsafe { read_blocks(pid, &blocks, &[(packed.as_mut_ptr() as u64, packed.len())]).unwrap() };
        assert!(packed == expected);
        packed.fill(0);
        // Reads to as many other blocks as needed, of other sizes.
        let start = packed.as_mut_ptr() as u64;
        let spans: Vec<Block> =
            (0..packed.len()).step_by(2).map(|at| (start + at as u64, 2.min(packed.len() - at))).collect();
        // SAFETY: - the spans cover `packed`, each byte once.
        unsafe { read_blocks(pid, &blocks, &spans).unwrap() };
        assert!(packed == expected);
        let mut copy = vec![0u8; memory.len()];
        let start = copy.as_mut_ptr();
        let blocks: Vec<Block> = (0..count).map(|block| (start as u64 + 8 * block as u64, 3)).collect();
        // The last block gets only a part.
        // SAFETY: - within both buffers.
        unsafe { write_blocks(pid, &blocks, &[(packed.as_ptr() as u64, packed.len() - 2)]).unwrap() };
        let whole = copy.chunks(8).zip(memory.chunks(8)).take(count - 1);
        assert!({ whole }.all(|(copied, chunk)| copied[..3] == chunk[..3] && copied[3..] == [0; 5]));
        assert_eq!(copy[8 * (count - 1)..][..3], [expected[3 * (count - 1)], 0, 0]);
        // SAFETY: - the kernel refuses an address where nothing is mapped.
        assert!(unsafe { read_blocks(pid, &[(8, 3)], &[(start as u64, 3)]) }.is_err());
        // SAFETY: - fewer bytes than asked for are read, so the rest stays as it is.
        assert!(unsafe { read_blocks(pid, &blocks[..1], &[(start as u64, 4)]) }.is_err());
    }
}
