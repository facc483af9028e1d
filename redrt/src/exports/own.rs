//! Functions for programs beyond the standard (`include/redrt.h`).

use redrt_abi::phase;
use redrt_dynamic::checkpoint;
use redrt_runtime::threads;
use redrt_wire::profile::CallKind;
use std::ffi::c_int;

/// Takes a checkpoint of the job now (`redrun --checkpoint`). Collective over all ranks. Returns 0 once the images of
/// all processes are copied, and in a process that goes on from one of them; 1 if the job takes no checkpoints; 2 if
/// none could be taken this time.
#[unsafe(no_mangle)]
extern "C" fn redrt_checkpoint() -> c_int {
    if !phase::is_active() {
        return checkpoint::NONE;
    }
    let _inside = threads::enter(CallKind::Other);
    checkpoint::checkpoint()
}
