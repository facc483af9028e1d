//! The loop of all kernels.

/// `in_out[i] = f(input[i], in_out[i])`, for `count` elements at any alignment: messages arrive packed.
#[inline(always)]
pub(super) fn each<T: Copy>(count: usize, input: *const u8, in_out: *mut u8, f: impl Fn(T, T) -> T) {
    let (input, in_out) = (input.cast::<T>(), in_out.cast::<T>());
    for index in 0..count {
        let (input, in_out) = (input.wrapping_add(index), in_out.wrapping_add(index));
        // SAFETY: - `input` holds `count` elements of `T`, of which `index` is one: the promise of the MPI call.
        //         - any bits are a `T`: it is used with integers, floating point and arrays of these.
        let left = unsafe { input.read_unaligned() };
        // SAFETY: - `in_out` holds `count` elements, which were initialized: they are the other operand of the call.
        let right = unsafe { in_out.read_unaligned() };
        // SAFETY: - the element that was just read. The MPI call gave it to be written to, and the reference is not
        //           kept.
        unsafe { in_out.write_unaligned(f(left, right)) };
    }
}
