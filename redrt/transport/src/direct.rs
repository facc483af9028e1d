//! Single copies out of and into another process of the same host.

use std::io;

/// Lets any process of this user read this one's memory, where a security module asks for that.
pub fn permit_readers() {
    // SAFETY: - sets a flag of this process; harmless where the module is absent.
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

/// Whether others can read these bytes of this process, as far as their ends show: not what a driver has mapped.
pub fn can_be_read(start: *const u8, length: usize) -> bool {
    let mut bytes = [0u8; 2];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let end = |at: usize| libc::iovec { iov_base: start.wrapping_add(at).cast_mut().cast(), iov_len: 1 };
    let remote = [end(0), end(length.saturating_sub(1))];
    // SAFETY: - `bytes` has room for both; the kernel checks where they are read.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, remote.as_ptr(), 2, 0) };
    count == 2
}
