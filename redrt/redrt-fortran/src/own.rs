//! Procedures that Fortran has and the C ABI lacks: comparison of handles, copies of statuses, `MPI_Sizeof`,
//! `MPI_F_sync_reg`.

use crate::section::Section;
use crate::standard::Status;
use fortran_binding::handles::give_error;
use std::ffi::c_int;

macro_rules! comparisons {
    ($($equal:ident, $unequal:ident;)*) => {$(
        /// `==`
        ///
        /// # Safety
        /// Two handles by reference.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $equal(a: *const c_int, b: *const c_int) -> c_int {
            // SAFETY: - Fortran passes the addresses of two variables.
            c_int::from(unsafe { *a == *b })
        }

        /// `/=`
        ///
        /// # Safety
        /// Two handles by reference.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $unequal(a: *const c_int, b: *const c_int) -> c_int {
            // SAFETY: - Fortran passes the addresses of two variables.
            c_int::from(unsafe { *a != *b })
        }
    )*};
}

comparisons! {
    redrt_comm_eq_, redrt_comm_ne_;
    redrt_datatype_eq_, redrt_datatype_ne_;
    redrt_errhandler_eq_, redrt_errhandler_ne_;
    redrt_file_eq_, redrt_file_ne_;
    redrt_group_eq_, redrt_group_ne_;
    redrt_info_eq_, redrt_info_ne_;
    redrt_message_eq_, redrt_message_ne_;
    redrt_op_eq_, redrt_op_ne_;
    redrt_request_eq_, redrt_request_ne_;
    redrt_session_eq_, redrt_session_ne_;
    redrt_win_eq_, redrt_win_ne_;
}

/// `MPI_STATUS_F082F` and `MPI_STATUS_F2F08`: both forms of a status are the same eight integers. Returns
/// `MPI_SUCCESS`.
///
/// # Safety
/// Two statuses by reference.
pub unsafe fn copy_status(from: *const Status, to: *mut Status) -> c_int {
    // SAFETY: - both pointers are to statuses: the caller's duty.
    unsafe { *to = *from };
    0
}

macro_rules! fortran_only {
    ($sizeof:ident, $sync:ident) => {
        /// `MPI_SIZEOF`: the size of an element.
        ///
        /// # Safety
        /// The arguments of the Fortran call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $sizeof(x: *const Section, size: *mut c_int, ierror: *mut c_int) {
            // SAFETY: - `x` is a descriptor that the compiler made.
            let length = unsafe { (*x).element_length() };
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { *size = length as c_int };
            // SAFETY: - Fortran passes the address of a variable, or null.
            unsafe { give_error(ierror, 0) };
        }

        /// `MPI_F_SYNC_REG`: an empty procedure. Across a call of it the compiler keeps no copies of the buffer in
        /// registers.
        #[unsafe(no_mangle)]
        pub extern "C" fn $sync(_buffer: *const Section) {}
    };
}

fortran_only!(mpi_sizeof_f08ts_, mpi_f_sync_reg_f08ts_);
fortran_only!(pmpi_sizeof_f08ts_, pmpi_f_sync_reg_f08ts_);
