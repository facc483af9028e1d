//! The daemon's part in copies of checkpoint parts: helpers that send files or pieces to other hosts or an object
//! store, that receive them, and that give pieces to hosts which fetch them.

use super::HostDaemon;
use super::child::ChildEvent;
use super::clones::no_helper;
use super::copying::{Reply, Task, heard};
use super::spawn;
use checkpoint_files::remote::Access;
use control_network::link::Link;
use redrt_wire::checkpoint::{Generation, PartOrder, PartStep};
use redrt_wire::daemon::FromDaemon;
use redrt_wire::no_image::NoImage;
use std::os::unix::net::UnixStream;

pub struct Carrier {
    helper: std::process::Child,
    pub(super) link: Link<UnixStream>,
    generation: Generation,
    /// Host whose part it is.
    source: u32,
    /// True if it gives pieces to others until all processes are loaded.
    serves: bool,
    /// True once its words and its end have no meaning any more.
    is_done: bool,
}

impl HostDaemon {
    pub(super) fn take_part_in_copy(&mut self, generation: Generation, source: u32, order: PartOrder) {
        if let PartOrder::Fetch { servers } = order {
            return self.gather(servers);
        }
        if let Err(why) = self.start_carrier(generation, source, order) {
            self.send(&FromDaemon::Part { generation, source, step: PartStep::Failed(why) });
        }
    }

    fn start_carrier(&mut self, generation: Generation, source: u32, order: PartOrder) -> Result<(), NoImage> {
        let secret = self.post.secret().of_images();
        let host = self.post.host();
        let task = match order {
            PartOrder::Keep { directory, own_beside, files } => {
                Task::Keep { secret, address: self.post.address(), directory, own_beside, files }
            }
            PartOrder::Give { directory, files, address } => {
                Task::Give { secret, destination: address, directory, files }
            }
            PartOrder::Store { directory, files, prefix, sealed_access } => {
                let access = Access::unsealed(&sealed_access, self.post.secret()).map_err(no_helper)?;
                Task::Store { access, directory, files, prefix }
            }
            PartOrder::Cut { directory, files, code, outlets } => {
                Task::Cut { secret, host, generation, code, directory, files, outlets }
            }
            PartOrder::Settle { job, beside, replaced, manifest, sealed_key } => {
                let key = sealed_key.map(|sealed| checkpoint_store::sealed::carried(&sealed, self.post.secret()));
                let key = key.transpose().map_err(|error| no_helper(error.into()))?;
                Task::Settle { job, host, beside, replaced, manifest, key }
            }
            PartOrder::Serve { job } => Task::Serve { secret, address: self.post.address(), job },
            PartOrder::Fetch { .. } => unreachable!("it is handled before"),
        };
        let serves = matches!(task, Task::Serve { .. });
        // Before the launch the job is not known.
        let started = if serves { spawn::start_helper(&task) } else { self.job()?.prepared.send(&task) };
        let (helper, link) = started.map_err(no_helper)?;
        // Whole files that stay take room, and nothing else.
        let is_done = matches!(task, Task::Settle { .. });
        let number = self.next_carrier;
        self.next_carrier += 1;
        self.watch_helper(ChildEvent::Carrier, number, &link).map_err(|error| no_helper(error.into()))?;
        self.carriers.insert(number, Carrier { helper, link, generation, source, serves, is_done });
        Ok(())
    }

    /// Ends the helpers of a checkpoint that was given up.
    pub(super) fn abandon_parts(&mut self, generation: Generation) {
        for carrier in self.carriers.values_mut().filter(|carrier| carrier.generation == generation) {
            let _ = carrier.helper.kill();
            carrier.is_done = true;
        }
    }

    /// Ends the helper that gives pieces to others: all processes are loaded.
    pub(super) fn stop_serving(&mut self) {
        for carrier in self.carriers.values_mut().filter(|carrier| carrier.serves) {
            let _ = carrier.helper.kill();
            carrier.is_done = true;
        }
    }

    /// Handles replies of such a helper.
    pub(super) fn carrier_ready(&mut self, number: usize) {
        let Some(carrier) = self.carriers.get_mut(&number) else { return };
        let (generation, source) = (carrier.generation, carrier.source);
        let (replies, has_ended) = heard(&mut carrier.link);
        for reply in replies {
            let Some(carrier) = self.carriers.get_mut(&number).filter(|carrier| !carrier.is_done) else { break };
            let step = match reply {
                Reply::Listening(address) => PartStep::Listening(address),
                Reply::Kept(bytes) => PartStep::Kept(bytes),
                Reply::Moved(bytes) => PartStep::Moved(bytes),
                Reply::Stored(objects) => PartStep::Stored(objects),
                Reply::Failed(told) => PartStep::Failed(NoImage::Helper(told)),
                // The receiving host reports the arrival.
                Reply::Sent(_) => {
                    carrier.is_done = true;
                    continue;
                }
                _ => continue,
            };
            carrier.is_done = !matches!(step, PartStep::Listening(_) | PartStep::Moved(_));
            self.send(&FromDaemon::Part { generation, source, step });
        }
        if has_ended {
            self.carrier_ended(number);
        }
    }

    fn carrier_ended(&mut self, number: usize) {
        let Some(Carrier { helper, link, generation, source, is_done, .. }) = self.carriers.remove(&number) else {
            return;
        };
        let exit = self.end_helper(helper, &link);
        if !is_done {
            let step = PartStep::Failed(NoImage::HelperEnded(exit));
            self.send(&FromDaemon::Part { generation, source, step });
        }
    }
}
