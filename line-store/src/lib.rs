//! Where lines are kept: the images of all processes of a job at one moment, from which it can be started again.
//!
//! ```text
//!  DIRECTORY/JOB/line-7.partial/   images are being written, or were when their job was lost: never read
//!                line-6/           0.image 1.image … host-0.memory manifest.json
//!                line-5/           the older one, until there is a line 7
//! ```
//! A line may be built on older ones, which it then needs ([`chain`]): of what was as in the one before it has only
//! digests.
//!
//! With a level of hosts ([`Level`]) the images are in a place of each host ([`place`]), on its own disk or in its
//! memory ([`room`]), and perhaps copied to another ([`copies`]),
//! or with the manifest to an object store ([`objects`]); else only that is here.
//!
//! A line counts from the rename of its directory on, which comes when all its images and its manifest are on the disk.
//! So a line that is there is whole, and what is torn has another name. Which lines are kept and which go is decided in
//! [`names`], without a look at any disk; [`Store`] carries it out. With a key all of
//! these files are encrypted ([`sealed`]).
#![forbid(unsafe_code)]

pub mod chain;
pub mod copies;
mod direct;
mod level;
mod manifest;
pub mod names;
pub mod objects;
pub mod place;
pub mod room;
pub mod sealed;
mod store;

pub use level::Level;
pub use manifest::{Homeless, Manifest, ManifestError, Member};
pub use store::{Error, Kept, Store, create, is_own, reader, writer};
