//! Storage of checkpoints: images of all processes of a job at one moment, from which it can be restarted.
//!
//! ```text
//!  DIRECTORY/JOB/line-7.partial/   being written, or left over from a lost job: never read
//!                line-6/           0.image 1.image … host-0.memory manifest.json
//!                line-5/           the previous one, kept until checkpoint 7 is complete
//! ```
//! A checkpoint may be built on older ones, which it then requires
//! ([`chain`]): of pages unchanged since the one before it has only digests.
//!
//! At a level of hosts ([`Level`]) each host stores its images in a directory of its own ([`place`]), on its disk or in
//! its memory ([`memory_budget`]). A copy may go to a partner host ([`copies`]), or with the manifest to an object
//! store ([`objects`]). The directory above then has the manifest only.
//!
//! A checkpoint counts from the rename of its directory on, which happens once all images and the manifest are on the
//! disk. So a directory with the final name is complete, and an incomplete one has another name. Module [`names`]
//! decides which checkpoints are kept, without I/O; [`Store`] carries that out. With a key, all these files are
//! encrypted ([`sealed`]).
#![forbid(unsafe_code)]

pub mod chain;
pub mod copies;
mod direct;
mod level;
mod manifest;
pub mod memory_budget;
pub mod names;
pub mod objects;
pub mod pieces;
pub mod place;
pub mod sealed;
mod store;

pub use level::Level;
pub use manifest::{Homeless, Manifest, ManifestError, Member};
pub use store::{Error, Store, StoredCheckpoint, archived_manifest, create, is_own, reader, writer};
