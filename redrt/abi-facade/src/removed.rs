//! Functions of MPI-1 that the standard has removed and the families still have, where no other has the same arguments.

/// `MPI_Type_extent`, `MPI_Type_lb` and `MPI_Type_ub`, for a library with `Datatype` and `error_out`.
#[macro_export]
macro_rules! removed_functions {
    () => {
        $crate::removed_functions! {
            MPI_Type_extent, PMPI_Type_extent: |_lb, extent| extent;
            MPI_Type_lb, PMPI_Type_lb: |lb, _extent| lb;
            MPI_Type_ub, PMPI_Type_ub: |lb, extent| lb + extent;
        }
    };
    ($($name:ident, $profiled:ident: |$lb:ident, $extent:ident| $value:expr;)*) => {$(
        /// Of MPI-1: a number of `MPI_Type_get_extent`.
        ///
        /// # Safety
        /// The result is valid for a write.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled(datatype: Datatype, result: *mut isize) -> c_int {
            let (mut $lb, mut $extent) = (0_isize, 0_isize);
            // SAFETY: - the pointers are to locals.
            let code = unsafe { (core().type_get_extent)(datatype.core(), &mut $lb, &mut $extent) };
            if code == 0 {
                // SAFETY: - `result` is valid for a write: the caller's duty.
                unsafe { *result = $value };
            }
            error_out(code)
        }

        /// Of MPI-1: a number of `MPI_Type_get_extent`.
        ///
        /// # Safety
        /// The result is valid for a write.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(datatype: Datatype, result: *mut isize) -> c_int {
            // SAFETY: - `result` is valid for a write: the caller's duty.
            unsafe { $profiled(datatype, result) }
        }
    )*};
}
