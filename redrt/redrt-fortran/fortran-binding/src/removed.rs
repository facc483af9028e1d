//! Procedures of MPI-1 that MPI-3.0 removed. Libraries of the families still have them. Their displacements are
//! `INTEGER`s.

/// Defines the procedures, over the functions that replaced them.
#[macro_export]
macro_rules! removed_procedures {
    () => {
        $crate::removed_procedures! {
            MPI_Type_get_extent, MPI_Type_create_hvector, MPI_Type_create_hindexed, MPI_Type_create_struct,
            MPI_Comm_get_errhandler, MPI_Comm_set_errhandler:
            mpi_address_, mpi_type_extent_, mpi_type_lb_, mpi_type_ub_, mpi_type_hvector_, mpi_type_hindexed_,
            mpi_type_struct_, mpi_errhandler_create_, mpi_errhandler_get_, mpi_errhandler_set_
        }
        $crate::removed_procedures! {
            PMPI_Type_get_extent, PMPI_Type_create_hvector, PMPI_Type_create_hindexed, PMPI_Type_create_struct,
            PMPI_Comm_get_errhandler, PMPI_Comm_set_errhandler:
            pmpi_address_, pmpi_type_extent_, pmpi_type_lb_, pmpi_type_ub_, pmpi_type_hvector_, pmpi_type_hindexed_,
            pmpi_type_struct_, pmpi_errhandler_create_, pmpi_errhandler_get_, pmpi_errhandler_set_
        }
    };
    ($get_extent:ident, $hvector_c:ident, $hindexed_c:ident, $struct_c:ident, $get_c:ident, $set_c:ident:
     $address:ident, $extent:ident, $lb:ident, $ub:ident, $hvector:ident, $hindexed:ident, $structure:ident,
     $create:ident, $get:ident, $set:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $address(location: *mut c_void, address: *mut c_int, ierror: *mut c_int) {
            // An INTEGER has no more room; programs that need more call MPI_GET_ADDRESS.
            // SAFETY: - Fortran passes the addresses of variables.
            unsafe { *address = sentinels::buffer::<Own>(location).addr() as c_int };
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { give_error(ierror, 0) };
        }

        $crate::removed_procedures! { $get_extent: $extent(_lb, extent) extent }
        $crate::removed_procedures! { $get_extent: $lb(lb, _extent) lb }
        $crate::removed_procedures! { $get_extent: $ub(lb, extent) lb + extent }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $hvector(
            count: *const c_int,
            length: *const c_int,
            stride: *const c_int,
            old: *const c_int,
            new: *mut c_int,
            ierror: *mut c_int,
        ) {
            let mut made = Datatype::UNSET;
            // SAFETY: - Fortran passes the addresses of variables; `made` is a local.
            let code = unsafe { $hvector_c(*count, *length, *stride as Aint, Datatype::of_fortran(*old), &mut made) };
            // SAFETY: - Fortran passes the addresses of variables.
            unsafe { give_handle(new, made) };
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { give_error(ierror, code) };
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $hindexed(
            count: *const c_int,
            lengths: *const c_int,
            places: *const c_int,
            old: *const c_int,
            new: *mut c_int,
            ierror: *mut c_int,
        ) {
            // SAFETY: - the program passes arrays of `count` elements.
            let places = unsafe { $crate::handles::widened(places, *count) };
            let mut made = Datatype::UNSET;
            // SAFETY: - Fortran passes the addresses of variables and arrays; the others are of locals.
            let code = unsafe { $hindexed_c(*count, lengths, places.as_ptr(), Datatype::of_fortran(*old), &mut made) };
            // SAFETY: - Fortran passes the addresses of variables.
            unsafe { give_handle(new, made) };
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { give_error(ierror, code) };
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $structure(
            count: *const c_int,
            lengths: *const c_int,
            places: *const c_int,
            types: *const c_int,
            new: *mut c_int,
            ierror: *mut c_int,
        ) {
            // SAFETY: - the program passes arrays of `count` elements.
            let (places, types) =
                unsafe { ($crate::handles::widened(places, *count), handles::<Datatype>(types, *count)) };
            let mut made = Datatype::UNSET;
            // SAFETY: - Fortran passes the addresses of variables and arrays; the others are of locals.
            let code = unsafe { $struct_c(*count, lengths, places.as_ptr(), types.as_ptr(), &mut made) };
            // SAFETY: - Fortran passes the addresses of variables.
            unsafe { give_handle(new, made) };
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { give_error(ierror, code) };
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(function: usize, errhandler: *mut c_int, ierror: *mut c_int) {
            let mut made = Errhandler::UNSET;
            // SAFETY: - `function` is a procedure of the program, and `made` a local.
            let code = unsafe { redrt_fortran_comm_create_errhandler(function, &mut made) };
            // SAFETY: - Fortran passes the addresses of variables.
            unsafe { give_handle(errhandler, made) };
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { give_error(ierror, code) };
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(comm: *const c_int, errhandler: *mut c_int, ierror: *mut c_int) {
            let mut found = Errhandler::UNSET;
            // SAFETY: - Fortran passes the address of a variable; `found` is a local.
            let code = unsafe { $get_c(Comm::of_fortran(*comm), &mut found) };
            // SAFETY: - Fortran passes the addresses of variables.
            unsafe { give_handle(errhandler, found) };
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { give_error(ierror, code) };
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(comm: *const c_int, errhandler: *const c_int, ierror: *mut c_int) {
            // SAFETY: - Fortran passes the addresses of variables.
            let code = unsafe { $set_c(Comm::of_fortran(*comm), Errhandler::of_fortran(*errhandler)) };
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { give_error(ierror, code) };
        }
    };
    ($get_extent:ident: $name:ident($lb:ident, $extent:ident) $value:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(datatype: *const c_int, value: *mut c_int, ierror: *mut c_int) {
            let (mut $lb, mut $extent) = (0, 0);
            // SAFETY: - Fortran passes the address of a variable; the others are of locals.
            let code = unsafe { $get_extent(Datatype::of_fortran(*datatype), &mut $lb, &mut $extent) };
            if code == 0 {
                let found: Aint = $value;
                // SAFETY: - Fortran passes the address of a variable.
                unsafe { *value = found as c_int };
            }
            // SAFETY: - Fortran passes the address of a variable.
            unsafe { give_error(ierror, code) };
        }
    };
}
