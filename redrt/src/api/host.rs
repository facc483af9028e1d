//! Facts about this process, for the MPI objects (`redrt_comm::objects::host`).

use redrt_abi::error::Scope;
use redrt_abi::handle::CommHandle;
use redrt_abi::{MPI_APPNUM, MPI_TAG_UB, MPI_UNIVERSE_SIZE, MPI_WTIME_IS_GLOBAL};
use redrt_comm::comm;
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::host::{Host, TAG_MAX};
use redrt_comm::objects::session;
use redrt_files::file;
use redrt_runtime as runtime;
use redrt_runtime::clock;
use redrt_window as window;
use redrt_wire::control::{FromAgent, Welcome};
use redrt_wire::event::Event;
use std::ffi::c_int;
use std::sync::Arc;

/// A process that has its place in a job.
pub struct InJob;

fn welcome() -> &'static Welcome {
    &runtime::job().expect("this is installed when there is a job").welcome
}

impl Host for InJob {
    fn attached(&self, scope: Scope) -> Option<Arc<Attached>> {
        let handle = match scope {
            Scope::Default => CommHandle::SELF,
            Scope::Comm(handle) => handle,
            Scope::Win(handle) => return window::resolve(handle).ok().map(|window| window.attached.clone()),
            Scope::Session(handle) => return session::resolve(handle).ok().map(|session| session.attached.clone()),
            Scope::File(handle) => return file::attached(handle),
        };
        comm::resolve(handle).ok().map(|comm| comm.attached.clone())
    }

    fn rank(&self) -> u32 {
        welcome().me.rank.0
    }

    fn world_size(&self) -> u32 {
        welcome().world.rank_count()
    }

    fn identity(&self) -> String {
        let welcome = welcome();
        if welcome.world.is_replicated() {
            format!("redrt: rank {} (replica {}) on {}", welcome.me.rank, welcome.me, welcome.host)
        } else {
            format!("redrt: rank {} on {}", welcome.me.rank, welcome.host)
        }
    }

    fn unsupported(&self, function: &str, why: &str) {
        match runtime::job().and_then(|job| job.control) {
            // redrun reports it once, however many processes send it. If the daemon is gone, so is the job.
            Some(control) => {
                let (function, why) = (function.to_owned(), why.to_owned());
                let event = Event::Unsupported { replica: welcome().me, function, why };
                let _ = control.send(&FromAgent::Event(event));
            }
            None => self.report(&format!("{}: {function}: {why}", self.identity())),
        }
    }

    fn abort(&self, _scope: Scope, code: c_int) -> ! {
        runtime::abort(code, String::new())
    }

    fn processor_name(&self) -> String {
        let welcome = welcome();
        if welcome.world.is_replicated() {
            // The replicas have different hosts, and must show the same name.
            format!("redrt-rank-{}", welcome.me.rank)
        } else {
            welcome.host.clone()
        }
    }

    fn wtime(&self) -> f64 {
        clock::wtime()
    }

    fn predefined_attribute(&self, keyval: c_int) -> Option<c_int> {
        match keyval {
            MPI_TAG_UB => Some(TAG_MAX),
            MPI_WTIME_IS_GLOBAL => Some(0),
            MPI_UNIVERSE_SIZE => Some(welcome().origin.place_count.max(self.world_size()) as c_int),
            MPI_APPNUM => Some(welcome().application as c_int),
            _ => None,
        }
    }
}
