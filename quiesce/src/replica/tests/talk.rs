//! Exchange of frames between replicas, in tests.

use crate::{Output, Replica};
use redrt_types::ReplicaId;

/// Delivers frames between replicas until none are left. `handle` gets each output that is no frame, with its replica.
/// Frames for replicas that are not among them are lost.
pub fn talk(replicas: &mut [Replica], mut handle: impl FnMut(ReplicaId, Output)) {
    loop {
        let mut frames = Vec::new();
        for replica in replicas.iter_mut() {
            replica.flush();
            let me = replica.me();
            while let Some(output) = replica.poll_output() {
                match output {
                    Output::Transmit { to, frame, .. } => frames.push((me, to, frame)),
                    other => handle(me, other),
                }
            }
        }
        if frames.is_empty() {
            return;
        }
        for (from, to, frame) in frames {
            if let Some(replica) = replicas.iter_mut().find(|replica| replica.me() == to) {
                replica.handle(from, frame).unwrap();
            }
        }
    }
}
