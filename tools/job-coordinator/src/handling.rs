//! Messages of daemons, checked against the hosts of the processes they are about.

use super::{Coordinator, Misplaced, Output, Unfit};
use redrt_types::ReplicaId;
use redrt_wire::checkpoint::CheckpointStep;
use redrt_wire::control::FromAgent;
use redrt_wire::daemon::FromDaemon;
use redrt_wire::dynamic::Request;
use replication_manager::Input;

impl Coordinator {
    pub(super) fn handle_daemon(&mut self, host: u32, message: FromDaemon) {
        let why = match message.replica() {
            Some(replica) if !self.world.contains(replica) => Misplaced::NoReplica(replica),
            // If replicas can move, the message may be late: the replica has moved, or its clone was given up.
            Some(replica) if self.home_told_of(replica, &message) != Some(host) && self.is_cloneable => return,
            Some(replica) if self.home_told_of(replica, &message) != Some(host) => Misplaced::NotItsReplica(replica),
            _ => return self.take(host, message),
        };
        self.outputs.push_back(Output::Expel { host, why: Unfit::Misplaced(why) });
    }

    /// The host whose daemon may send this message about a replica. The trap: a replica may have gone, or moved, since
    /// it was copied for a checkpoint, and its image is still written on its former host.
    fn home_told_of(&self, replica: ReplicaId, message: &FromDaemon) -> Option<u32> {
        match message {
            FromDaemon::Checkpoint { generation, .. } if self.manager.checkpoint_under_way() == Some(*generation) => {
                self.homes.host_at_checkpoint(self.world.process(replica))
            }
            _ => self.host(replica),
        }
    }

    fn take(&mut self, host: u32, message: FromDaemon) {
        let output = match message {
            FromDaemon::Started { replica, pid } => {
                self.history.record_started();
                self.outputs.push_back(Output::Started { replica, pid });
                return self.notify_manager(Input::Started { replica, pid });
            }
            FromDaemon::OtherMpi { replica, found } => return self.notify_manager(Input::OtherMpi { replica, found }),
            FromDaemon::NotStarted { replica, message } => {
                return self.notify_manager(Input::NotStarted { replica, message });
            }
            FromDaemon::Bound { replica, processors } => Output::Bound { replica, processors },
            FromDaemon::Note(note) => Output::Note(note),
            FromDaemon::Agent { replica, message: FromAgent::Dynamic(number, Request::Checkpoint) } => {
                return self.want_checkpoint_of_process(replica, number);
            }
            FromDaemon::Agent { replica, message: FromAgent::Dynamic(number, request) } => {
                return self.with_other_jobs(|jobs| jobs.ask((replica, number), request));
            }
            FromDaemon::Agent { replica, message } => return self.notify_manager(Input::Agent(replica, message)),
            FromDaemon::Output { replica, stream, bytes } => return self.printed(replica, stream, bytes),
            FromDaemon::InputTaken { byte_count } => return self.input.record_taken(host, byte_count),
            FromDaemon::Clone { id, step } => return self.notify_manager(Input::Clone { host, id, step }),
            FromDaemon::Checkpoint { generation, replica, step } => {
                if let CheckpointStep::Progress(progress) = &step {
                    self.checkpoints.images_mut().record(generation, replica, *progress);
                }
                return self.notify_manager(Input::Checkpoint { generation, replica, step });
            }
            FromDaemon::Part { generation, source, step } => {
                return self.handle_part(host, generation, source, step);
            }
            FromDaemon::Exited { replica, exit, .. } => return self.notify_manager(Input::Exited(replica, exit)),
            FromDaemon::Drained(replica) => {
                self.outputs.push_back(Output::ErrorEnded(replica));
                return self.notify_manager(Input::Drained(replica));
            }
            // These concern hosts, and are handled where hosts are watched.
            FromDaemon::HostFailed { .. } | FromDaemon::Observed { .. } => return,
        };
        self.outputs.push_back(output);
    }

    fn notify_manager(&mut self, input: Input) {
        self.manager.handle(self.now, input);
    }
}
