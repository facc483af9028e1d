//! Names for connections that the coordinator answers.

use serde::{Deserialize, Serialize};

/// The number of a connection of `redctl`, to which an answer goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Asker(pub u64);
