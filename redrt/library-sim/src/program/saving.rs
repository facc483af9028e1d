//! Programs that ask for checkpoints of their job.

use super::mpi::{self, WORD, mpi};
use super::{Member, messages, same};
use redrt::exports::*;
use redrt_dynamic::checkpoint;
use redrt_runtime::threads;
use redrt_wire::profile::CallKind;

/// Asks for checkpoints between messages. All processes get the same answer.
pub fn asked_for(member: &mut Member) {
    for _ in 0..1 + member.common.below(3) {
        let told = {
            // Counted as the exported function counts itself.
            let _inside = threads::enter(CallKind::Other);
            [checkpoint::checkpoint() as u64]
        };
        let mut of_all = vec![0; member.size];
        mpi!(call_allgather(mpi::from(&told), 1, WORD, mpi::into(&mut of_all), 1, WORD, member.comm));
        same(&of_all, &vec![told[0]; member.size], "what ranks are told of a checkpoint");
        member.output.push(told[0]);
        if member.common.chance(50) {
            messages::named(member);
        }
    }
}
