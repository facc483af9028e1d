//! Programs that change a file: each rank has one, which the leader changes on behalf of all replicas.

use super::{Member, leaving, messages, same};
use crate::world;
use redrt_runtime::decide;
use redrt_runtime::undo::SIMULATED_SINCE;
use redrt_runtime::{job, threads};
use std::sync::atomic::{AtomicU64, Ordering};

process_local! {
    /// Number of additions of this program to its file.
    static CHANGES: AtomicU64 = AtomicU64::new(0);
}

/// A call about a file, at a place of its own in the program.
fn call(act: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let _inside = threads::enter_quietly();
    act()
}

/// Reads a number, adds one and writes it back, with messages in between. The next reading notices a change that was
/// lost or made twice. The process that changes the file must record changes since the latest checkpoint.
pub fn changed(member: &mut Member) {
    let rank = job().expect("it is in a job").welcome.me.rank.0;
    let file = move |act: &dyn Fn(&mut u64) -> u64| {
        let done = world::with_current(|world| act(world.files.entry(rank).or_default()));
        done.expect("it is in a world").to_le_bytes().to_vec()
    };
    for _ in 0..2 + member.common.below(6) {
        let read = call(|| decide::outside(0, || file(&|number| *number)));
        let number = u64::from_le_bytes(read.try_into().expect("it is a number"));
        same(&[number], &[CHANGES.load(Ordering::Relaxed)], "what is in the file");
        if leaving::is_left_out() {
            continue;
        }
        let change = || {
            let last = world::with_current(|world| world.line_count).unwrap_or_default();
            let since = SIMULATED_SINCE.load(Ordering::Relaxed);
            assert_eq!(since, last, "it changes a file, and it is not written down since which checkpoint");
            file(&|written| {
                *written = number + 1;
                *written
            })
        };
        call(|| decide::effect(number, number + 1, change));
        CHANGES.fetch_add(1, Ordering::Relaxed);
        if member.common.chance(50) {
            messages::named(member);
        }
    }
}
