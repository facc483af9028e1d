//! Placement of processes: replicas on hosts when a job begins, and the pool of spare hosts that replace losses. Pure:
//! without clock, sockets and threads. Events and the time come in, actions go out.
//!
//! A job sees a pool as [`Spares`], and all places that it may use, its own and those of a site, as [`Places`].
//!
//! A pool is used in two ways: inside `redrun`, with the spares of one job, and in `redspared`, shared by many jobs.
//! Inside a job:
//!
//! ```
//! use spare_pool::{JobId, Pool, Request, Settings, Spare};
//! use std::time::Duration;
//!
//! let now = Duration::from_secs(1); // since any moment that stays the same
//! let mut pool = Pool::new(Settings::embedded());
//! pool.add(Spare::new("h5", 2), now); // two places for replicas
//! let request = Request::new(JobId(7)).apart_from(["h1"]); // where a sibling lives
//! let lease = pool.lease(request.clone(), now).expect("there is a spare");
//! assert_eq!(lease.spare.name, "h5");
//!
//! // The clone failed: the host is left alone for a while, longer each time.
//! pool.failed(lease.id, "the restorer was killed", now);
//! assert!(pool.lease(request.clone(), now).is_none());
//! let later = pool.next_event(now).expect("when the host may be tried again");
//!
//! // Then it went well; when the copy is gone, its place is given back.
//! let lease = pool.lease(request, later).expect("it is tried again");
//! pool.succeeded(lease.id, later);
//! pool.release(lease.id, later);
//! ```
#![forbid(unsafe_code)]

mod health;
mod host;
mod lease;
mod placement;
mod places;
mod pool;
mod site;
mod spares;
mod stored;

pub use host::{Admission, Facts, Spare, Unseen};
pub use lease::{JobId, Lease, LeaseId, Request, Ticket};
pub use placement::{Host, Order, Placement, PlacementError, place};
pub use places::{PlaceNews, PlaceOrder, Places};
pub use pool::{Ended, HostStatus, Output, Pool, Settings, Unfit, Watch};
pub use site::{Site, SiteOrder};
pub use spares::{Embedded, News, Spares, ended};
pub use stored::{Change, HostRecord, Stored, StoredError};
