//! The tool interface, used as by a tool in C.

use super::*;
use std::ffi::c_char;
use std::sync::Mutex;

type Members = unsafe extern "C" fn(i32, i32, *mut i32) -> i32;

/// Each variable and event is in one category; the first category holds the other categories.
fn categories_hold_all_there_is() {
    let (mut count, mut index, mut update) = (0, -1, -1);
    call(|| unsafe_call!(MPI_T_category_changed(&mut update)));
    call(|| unsafe_call!(MPI_T_category_get_num(&mut count)));
    call(|| unsafe_call!(MPI_T_category_get_index(c"redrt".as_ptr(), &mut index)));
    assert_eq!((index, update), (0, 0));
    let members = |list: Members, category: i32, length: i32| {
        let mut found = vec![-1; 50];
        // SAFETY: - found has room for more than `length` elements.
        call(|| unsafe { list(category, length, found.as_mut_ptr()) });
        found.into_iter().take_while(|index| *index >= 0).collect::<Vec<_>>()
    };
    let all = |list: Members| {
        let mut found: Vec<_> = (0..count).flat_map(|category| members(list, category, 50)).collect();
        found.sort_unstable();
        found
    };
    let (mut cvars, mut pvars, mut events) = (0, 0, 0);
    call(|| unsafe_call!(MPI_T_cvar_get_num(&mut cvars)));
    call(|| unsafe_call!(MPI_T_pvar_get_num(&mut pvars)));
    call(|| unsafe_call!(MPI_T_event_get_num(&mut events)));
    assert_eq!(all(MPI_T_category_get_cvars), (0..cvars).collect::<Vec<_>>());
    assert_eq!(all(MPI_T_category_get_pvars), (0..pvars).collect::<Vec<_>>());
    assert_eq!(all(MPI_T_category_get_events), (0..events).collect::<Vec<_>>());
    assert_eq!(all(MPI_T_category_get_categories), (1..count).collect::<Vec<_>>());
    assert_eq!(members(MPI_T_category_get_categories, 0, 2), [1, 2]);
    let (mut in_first, mut name, mut length) = ([0; 3], [0; 6], 6);
    let [first_cvars, first_pvars, below] = &mut in_first;
    call(|| {
        let (name, desc) = (name.as_mut_ptr(), null_mut());
        unsafe_call!(MPI_T_category_get_info(
            0,
            name,
            &mut length,
            desc,
            null_mut(),
            &mut *first_cvars,
            &mut *first_pvars,
            &mut *below
        ))
    });
    assert_eq!((in_first, length, name), ([0, 0, count - 1], 6, b"redrt\0".map(|byte| byte as c_char)));
}

/// Values of variables have names.
fn enumerations_name_values() {
    let (mut index, mut datatype, mut names, mut count) = (-1, DatatypeHandle::NULL, MPI_T_ENUM_NULL, 0);
    let (int, text) = (null_mut(), null_mut());
    call(|| unsafe_call!(MPI_T_cvar_get_index(c"redrt_files".as_ptr(), &mut index)));
    call(|| unsafe_call!(MPI_T_cvar_get_info(index, text, int, int, &mut datatype, &mut names, text, int, int, int)));
    assert_eq!(datatype, DatatypeHandle::INT);
    call(|| unsafe_call!(MPI_T_enum_get_info(names, &mut count, text, int)));
    let (mut value, mut name, mut length) = (-1, [0; 8], 8);
    call(|| unsafe_call!(MPI_T_enum_get_item(names, 1, &mut value, name.as_mut_ptr(), &mut length)));
    assert_eq!((count, value, length, &name[..4]), (3, 1, 4, &b"all\0".map(|byte| byte as c_char)[..]));
    let mut cvar = MPI_T_CVAR_HANDLE_NULL;
    call(|| unsafe_call!(MPI_T_cvar_handle_alloc(index, null_mut(), &mut cvar, &mut count)));
    call(|| unsafe_call!(MPI_T_cvar_read(cvar, (&raw mut value).cast())));
    assert_eq!(value, 0);
    assert_eq!(unsafe_call!(MPI_T_enum_get_item(names, 3, &mut value, text, int)), MPI_T_ERR_INVALID_INDEX);
    assert_eq!(unsafe_call!(MPI_T_enum_get_info(ToolHandle(7), &mut value, text, int)), MPI_T_ERR_INVALID_HANDLE);
}

static TOLD: Mutex<Vec<(i64, i32)>> = Mutex::new(Vec::new());

unsafe extern "C" fn told(instance: ToolHandle, registration: ToolHandle, safety: i32, data: *mut c_void) {
    let (mut rank, mut all, mut source, mut at) = (-1_i64, [-1_i64; 2], -1, -1);
    assert_eq!((safety, data.addr()), (MPI_T_CB_REQUIRE_NONE, 77));
    call(|| unsafe_call!(MPI_T_event_read(instance, 0, (&raw mut rank).cast())));
    assert_eq!(unsafe_call!(MPI_T_event_read(instance, 2, (&raw mut rank).cast())), MPI_T_ERR_INVALID_INDEX);
    call(|| unsafe_call!(MPI_T_event_copy(instance, (&raw mut all).cast())));
    call(|| unsafe_call!(MPI_T_event_get_source(instance, &mut source)));
    call(|| unsafe_call!(MPI_T_event_get_timestamp(instance, &mut at)));
    assert!(at > 0 && all[0] == rank);
    TOLD.lock().unwrap().push((rank, source));
    // A registration may be freed in its own callback: it gets no further event, and its free callback is called.
    if rank == 6 {
        call(|| {
            unsafe_call!(MPI_T_event_handle_free(registration, std::ptr::without_provenance_mut(8), freed_callback()))
        });
    }
}

fn freed_callback() -> Callback {
    Callback(freed as *const () as usize)
}

unsafe extern "C" fn freed(_: ToolHandle, safety: i32, data: *mut c_void) {
    assert_eq!(safety, MPI_T_CB_REQUIRE_NONE);
    TOLD.lock().unwrap().push((data.addr() as i64, -1));
}

fn events_are_told_to_who_asks() {
    let (mut index, mut count, mut datatypes, mut places) = (-1, 5, [DatatypeHandle::NULL; 5], [-1; 5]);
    let (int, text) = (null_mut(), null_mut());
    call(|| unsafe_call!(MPI_T_event_get_index(c"redrt_paths_parted".as_ptr(), &mut index)));
    let (mut names, mut info) = (MPI_T_ENUM_NULL, InfoHandle::NULL);
    call(|| {
        let (datatypes, places) = (datatypes.as_mut_ptr(), places.as_mut_ptr());
        unsafe_call!(MPI_T_event_get_info(
            index, text, int, int, datatypes, places, &mut count, &mut names, &mut info, text, int, int
        ))
    });
    assert_eq!(
        (count, datatypes[1], datatypes[2], places[..3].to_vec()),
        (2, DatatypeHandle::INT64_T, DatatypeHandle::NULL, vec![0, 8, -1])
    );
    call(|| unsafe_call!(MPI_T_enum_get_info(names, &mut count, text, int)));
    assert_eq!(count, 2);
    let mut registration = ToolHandle(0);
    call(|| unsafe_call!(MPI_T_event_handle_alloc(index, null_mut(), info, &mut registration)));
    call(|| unsafe_call!(MPI_Info_free(&mut info)));
    let (data, none) = (std::ptr::without_provenance_mut(77), InfoHandle::NULL);
    let callback = Callback(told as *const () as usize);
    let register = |safety| unsafe_call!(MPI_T_event_register_callback(registration, safety, none, data, callback));
    assert_eq!(register(5), MPI_T_ERR_INVALID);
    call(|| register(MPI_T_CB_REQUIRE_THREAD_SAFE));
    let get = |safety, place: *mut InfoHandle| unsafe_call!(MPI_T_event_callback_get_info(registration, safety, place));
    assert_eq!(get(MPI_T_CB_REQUIRE_NONE, &mut info), MPI_T_ERR_INVALID);
    call(|| get(MPI_T_CB_REQUIRE_THREAD_SAFE, &mut info));
    call(|| unsafe_call!(MPI_T_event_callback_set_info(registration, MPI_T_CB_REQUIRE_THREAD_SAFE, info)));
    call(|| unsafe_call!(MPI_T_event_handle_set_info(registration, info)));
    call(|| unsafe_call!(MPI_T_event_handle_get_info(registration, &mut info)));
    call(|| unsafe_call!(MPI_T_event_set_dropped_handler(registration, Callback::NULL)));
    for rank in [5, 6, 7] {
        let own = redrt_types::ReplicaId { rank: redrt_types::VirtualRank(rank), index: redrt_types::ReplicaIndex(1) };
        redrt_runtime::events::paths_parted(own);
    }
    // Events are delivered at the end of a call, unless another thread delivers at that moment.
    while TOLD.lock().unwrap().len() < 3 {
        call(|| unsafe_call!(MPI_T_source_get_num(&mut count)));
    }
    assert_eq!(*TOLD.lock().unwrap(), [(5, 0), (6, 0), (8, -1)]);
    assert_eq!(unsafe_call!(MPI_T_event_handle_get_info(registration, &mut info)), MPI_T_ERR_INVALID_HANDLE);
    assert_eq!(unsafe_call!(MPI_T_event_read(ToolHandle(3), 0, null_mut())), MPI_T_ERR_INVALID_HANDLE);
    let (mut ordering, mut ticks, mut now, mut later) = (0, 0, 0, 0);
    call(|| {
        unsafe_call!(MPI_T_source_get_info(0, text, int, text, int, &mut ordering, &mut ticks, null_mut(), null_mut()))
    });
    assert_eq!((ordering, ticks, count), (MPI_T_SOURCE_ORDERED, 1_000_000_000, 1));
    call(|| unsafe_call!(MPI_T_source_get_timestamp(0, &mut now)));
    call(|| unsafe_call!(MPI_T_source_get_timestamp(0, &mut later)));
    assert!(later >= now);
    assert_eq!(unsafe_call!(MPI_T_source_get_timestamp(1, &mut now)), MPI_T_ERR_INVALID_INDEX);
}

#[test]
fn the_tool_interface_tells_what_there_is() {
    let (mut provided, mut count) = (0, -1);
    assert_eq!(unsafe_call!(MPI_T_cvar_get_num(&mut count)), MPI_T_ERR_NOT_INITIALIZED);
    assert_eq!(unsafe_call!(MPI_T_finalize()), MPI_T_ERR_NOT_INITIALIZED);
    call(|| unsafe_call!(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &mut provided)));
    call(|| unsafe_call!(MPI_T_cvar_get_num(&mut count)));
    let mut index = -1;
    call(|| unsafe_call!(MPI_T_cvar_get_index(c"redrt_eager_bytes_max".as_ptr(), &mut index)));
    assert!((0..count).contains(&index));
    let (mut cvar, mut value) = (MPI_T_CVAR_HANDLE_NULL, 0_u64);
    call(|| unsafe_call!(MPI_T_cvar_handle_alloc(index, null_mut(), &mut cvar, &mut count)));
    call(|| unsafe_call!(MPI_T_cvar_read(cvar, (&raw mut value).cast())));
    assert_eq!((count, value), (1, redrt_engine::send::EAGER_BYTES_MAX as u64));
    assert_eq!(unsafe_call!(MPI_T_cvar_write(cvar, (&raw const value).cast())), MPI_T_ERR_CVAR_SET_NEVER);
    call(|| unsafe_call!(MPI_T_cvar_handle_free(&mut cvar)));
    assert_eq!(unsafe_call!(MPI_T_cvar_read(cvar, (&raw mut value).cast())), MPI_T_ERR_INVALID_HANDLE);
    assert_eq!(unsafe_call!(MPI_T_cvar_get_index(c"x".as_ptr(), &mut count)), MPI_T_ERR_INVALID_NAME);
    assert_eq!(unsafe_call!(MPI_T_category_get_num_events(99, &mut count)), MPI_T_ERR_INVALID_INDEX);
    categories_hold_all_there_is();
    enumerations_name_values();
    events_are_told_to_who_asks();
    let mut session = MPI_T_PVAR_SESSION_NULL;
    call(|| unsafe_call!(MPI_T_pvar_session_create(&mut session)));
    call(|| unsafe_call!(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES)));
    assert_eq!(unsafe_call!(MPI_T_pvar_start(session, ToolHandle(5))), MPI_T_ERR_INVALID_HANDLE);
    call(|| unsafe_call!(MPI_T_pvar_session_free(&mut session)));
    call(|| unsafe_call!(MPI_T_finalize()));
}
