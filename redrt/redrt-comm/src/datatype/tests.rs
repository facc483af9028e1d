//! Datatypes as objects: predefined ones, handles, and lifetimes.

use super::*;
use redrt_datatype::contiguous;

fn derived() -> DatatypeHandle {
    let int = resolve(DatatypeHandle::INT).unwrap();
    let envelope = Envelope::new(MPI_COMBINER_DUP, false).datatype(&int);
    register(Arc::new(Datatype::new(contiguous(3, &int).unwrap(), envelope)))
}

#[test]
fn predefined_types_have_the_sizes_of_c_and_fortran() {
    for (handle, size, extent) in [
        (DatatypeHandle::INT, 4, 4),
        (DatatypeHandle::LONG_DOUBLE, 16, 16),
        (DatatypeHandle::C_LONG_DOUBLE_COMPLEX, 32, 32),
        (DatatypeHandle::WCHAR, 4, 4),
        (DatatypeHandle::FLOAT_INT, 8, 8),
        (DatatypeHandle::DOUBLE_INT, 12, 16),
        (DatatypeHandle::LONG_INT, 12, 16),
        (DatatypeHandle::SHORT_INT, 6, 8),
        (DatatypeHandle::LONG_DOUBLE_INT, 20, 32),
        (DatatypeHandle::_2DOUBLE_PRECISION, 16, 16),
        (DatatypeHandle::LOGICAL, 4, 4),
        (DatatypeHandle::COMPLEX32, 32, 32),
    ] {
        let datatype = resolve(handle).unwrap().shared();
        assert_eq!((datatype.size(), datatype.extent()), (size, extent), "{}", datatype.name());
        assert!(datatype.is_committed() && free(handle).is_err());
    }
    let null = DatatypeHandle::NULL;
    for (name, value) in redrt_abi::DATATYPE_NAMES.iter().filter(|(_, value)| *value != null.to_int()) {
        assert!(resolve(DatatypeHandle::from_int(*value)).is_ok(), "{name}");
    }
    assert!(resolve(null).is_err() && resolve(DatatypeHandle(0)).is_err() && resolve(DatatypeHandle(767)).is_err());
}

#[test]
fn packed_data_fits_any_type() {
    let signature = |handle, count| resolve(handle).unwrap().signature(count);
    let packed = signature(DatatypeHandle::PACKED, 12);
    assert!(packed.has_types_of(&signature(DatatypeHandle::INT, 3)));
    let twice = Datatype::duplicate(&resolve(DatatypeHandle::PACKED).unwrap()).signature(12);
    assert!(twice.has_types_of(&signature(DatatypeHandle::INT, 3)));
    assert!(!signature(DatatypeHandle::CHARACTER, 12).has_types_of(&signature(DatatypeHandle::INT, 3)));
}

#[test]
fn a_kept_type_outlives_its_handle() {
    let handle = derived();
    assert!(keep(handle).is_err(), "it is not committed");
    resolve(handle).unwrap().commit();
    let kept = keep(handle).unwrap();
    free(handle).unwrap();
    assert!(resolve(handle).is_err() && free(handle).is_err());
    assert_eq!(resolve_committed(kept.handle()).unwrap().size(), 12);
    let own = kept.handle();
    drop(kept);
    assert!(resolve(own).is_err());
}

#[test]
fn callbacks_get_the_handle_that_the_program_knows_until_freed() {
    let handle = derived();
    let datatype = resolve(handle).unwrap().shared();
    with_handle(&datatype, |given| assert_eq!(given, handle));
    free(handle).unwrap();
    let mut temporary = DatatypeHandle::NULL;
    with_handle(&datatype, |given| {
        assert_ne!(given, handle);
        assert!(Arc::ptr_eq(&resolve(given).unwrap(), &datatype));
        temporary = given;
    });
    assert!(resolve(temporary).is_err());
}

#[test]
fn the_basic_types_of_a_derived_type_are_those_it_was_made_from() {
    let datatype = resolve(derived()).unwrap().shared();
    assert_eq!(handle_of_basic(&datatype, datatype.sequence().uniform().unwrap()), DatatypeHandle::INT);
    let kind = f90_integer(4).unwrap();
    assert_eq!(handle_of_basic(&kind, kind.basic().unwrap()), register(Arc::clone(&kind)));
    assert!(Arc::ptr_eq(&kind, &f90_integer(4).unwrap()) && f90_integer(39).is_err());
}
