//! How processes find each other.

use redrt_types::ProcessIndex;
use serde::{Deserialize, Serialize};

/// How the others reach a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Whose card.
    pub process: ProcessIndex,
    /// Number of its host.
    pub host_number: u32,
    /// Name of its host, for messages to the user.
    pub host: String,
    /// Its process id on its host.
    pub pid: i32,
    /// Where it accepts connections for data, the best one first.
    pub endpoints: Vec<Endpoint>,
}

/// Where a process can be reached over a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Name of the network.
    pub network: String,
    /// The address there, in the network's own terms.
    pub address: String,
}
