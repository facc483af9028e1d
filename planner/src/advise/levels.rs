//! Checkpoints of the runtime by their level: where they are, their cost, and the chance that they are lost.
//!
//! The cost in a directory that all hosts share is measured, or given. Those of the levels on the hosts follow from the
//! rates of a host's disk and network: a host first writes its part to its disk, then reads it again to send it, while
//! it takes what others send. What is slowest counts (docs/checkpoints.md has what is sent and kept).

use super::SaveCost;
use serde::Serialize;

/// Level of checkpoints of the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// In a directory that all hosts share.
    Shared,
    /// On the disk of a host, with a copy on another one's.
    Partner,
    /// In the memory of a host, with a copy in another one's.
    Memory,
    /// In pieces on hosts: the numbers of data pieces and of parity pieces.
    Erasure(u32, u32),
}

/// Capacities of a host.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct HostBounds {
    /// Bytes that a host's own disk writes, or reads, in a second; `None` without such a disk.
    pub disk_rate: Option<f64>,
    /// Bytes that a host sends, and at the same time receives, in a second; `None` if unknown.
    pub network_rate: Option<f64>,
    /// Room in bytes on a host's own disk; `None` for no limit.
    pub disk_bytes: Option<f64>,
    /// Memory of a host in bytes; `None` for no limit.
    pub memory_bytes: Option<f64>,
}

/// Codes of pieces that are considered, the one that survives most last.
const CODES: [(u32, u32); 3] = [(2, 1), (4, 2), (8, 3)];
/// Checkpoints for which a host has room: two that are kept, and the one being written.
const KEPT: f64 = 3.0;
/// Rate in bytes a second of a host's memory, read and written once.
const MEMORY_RATE: f64 = 4e9;
/// Rate in bytes a second of parts, of one processor that makes pieces of them.
const ENCODE_RATE: f64 = 1.2e9;
/// Share of a host's memory that stays free.
const MEMORY_FREE: f64 = 0.1;

impl Level {
    /// All levels for a job on this number of hosts.
    pub(super) fn all(hosts: u32) -> impl Iterator<Item = Self> {
        let codes = CODES.into_iter().filter(move |(data, parity)| data + parity <= hosts);
        let of_two = [Self::Partner, Self::Memory].into_iter().filter(move |_| hosts >= 2);
        std::iter::once(Self::Shared).chain(of_two).chain(codes.map(|(data, parity)| Self::Erasure(data, parity)))
    }

    /// The value of `redrun --checkpoint-level`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Shared => "shared".into(),
            Self::Partner => "partner".into(),
            Self::Memory => "memory".into(),
            Self::Erasure(data, parity) => format!("erasure:{data}+{parity}"),
        }
    }

    /// Number of times that a checkpoint is kept, in parts of all processes.
    #[must_use]
    pub fn copies(self) -> f64 {
        match self {
            Self::Shared => 1.0,
            Self::Partner | Self::Memory => 2.0,
            Self::Erasure(data, parity) => f64::from(data + parity) / f64::from(data),
        }
    }

    /// Cost of a checkpoint of which a host has a part of `part_bytes`. `None` if the cost is not known, or hosts have
    /// no room for the part. `used_bytes`: memory of a host that processes use.
    pub(super) fn cost(
        self,
        shared: SaveCost,
        part_bytes: Option<f64>,
        used_bytes: f64,
        bounds: &HostBounds,
    ) -> Option<SaveCost> {
        if self == Self::Shared {
            return Some(shared);
        }
        let (part, network) = (part_bytes?, bounds.network_rate?);
        let kept = part * self.copies() * KEPT;
        let has_room = match self {
            Self::Memory => bounds.memory_bytes.is_none_or(|all| used_bytes + kept <= all * (1.0 - MEMORY_FREE)),
            _ => bounds.disk_bytes.is_none_or(|all| kept <= all),
        };
        let rate = if self == Self::Memory { MEMORY_RATE } else { bounds.disk_rate? };
        // Parts that leave the host, and come to it.
        let sent = match self {
            Self::Shared => 0.0,
            Self::Partner | Self::Memory => 1.0,
            Self::Erasure(data, parity) => f64::from(data + parity - 1) / f64::from(data),
        };
        let coded = if let Self::Erasure(..) = self { part / ENCODE_RATE } else { 0.0 };
        // The image is read once, and what others send, and own pieces, are written.
        let disk = part * self.copies() / rate;
        let time_s = part / rate + (part * sent / network).max(disk).max(coded);
        has_room.then_some(SaveCost { time_s: time_s.max(shared.stop_s), ..shared })
    }

    /// Expected number of times that a job loses its checkpoints with its hosts. `returns`: how often it goes back,
    /// each time after the loss of a host; it is in vain if other hosts with pieces of the same part were lost before
    /// the next checkpoint counted. `exposed_s`: the time until then; `mttf_s`: of a host.
    pub(super) fn times_lost(self, returns: f64, exposed_s: f64, mttf_s: f64) -> f64 {
        let each = -(-exposed_s / mttf_s).exp_m1();
        match self {
            Self::Shared => 0.0,
            // The partner is lost, or the host whose partner this was.
            Self::Partner | Self::Memory => returns * (1.0 - (1.0 - each).powi(2)),
            Self::Erasure(data, parity) => {
                // The groups of a host: with as many hosts as pieces, one.
                let others = data + parity - 1;
                let ways = (0..parity).map(|at| f64::from(others - at) / f64::from(at + 1)).product::<f64>();
                returns * (ways * each.powi(parity as i32)).min(1.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: SaveCost = SaveCost { stop_s: 0.1, time_s: 60.0, slowdown: 0.1 };
    const BOUNDS: HostBounds =
        HostBounds { disk_rate: Some(1e9), network_rate: Some(1e10), disk_bytes: None, memory_bytes: None };

    fn time(level: Level, bounds: &HostBounds) -> Option<f64> {
        level.cost(SHARED, Some(1e10), 1e10, bounds).map(|cost| cost.time_s)
    }

    #[test]
    fn a_level_costs_what_is_slowest() {
        assert_eq!(time(Level::Shared, &HostBounds::default()), Some(60.0));
        // Ten seconds to write; the partner's disk reads and writes as much again.
        assert_eq!(time(Level::Partner, &BOUNDS), Some(10.0 + 20.0));
        assert_eq!(time(Level::Erasure(4, 2), &BOUNDS), Some(10.0 + 15.0));
        assert_eq!(time(Level::Memory, &BOUNDS), Some(2.5 + 5.0));
        let slow = HostBounds { network_rate: Some(1e8), ..BOUNDS };
        assert_eq!(time(Level::Partner, &slow), Some(10.0 + 100.0));
        assert_eq!(time(Level::Erasure(4, 2), &slow), Some(10.0 + 125.0));
        // Unknown rates make no rows.
        assert_eq!(time(Level::Partner, &HostBounds { network_rate: None, ..BOUNDS }), None);
        assert_eq!(time(Level::Partner, &HostBounds { disk_rate: None, ..BOUNDS }), None);
        assert!(time(Level::Memory, &HostBounds { disk_rate: None, ..BOUNDS }).is_some());
        assert_eq!(Level::Partner.cost(SHARED, None, 0.0, &BOUNDS), None);
    }

    #[test]
    fn hosts_need_room() {
        let disk = HostBounds { disk_bytes: Some(5e10), ..BOUNDS };
        assert_eq!((time(Level::Partner, &disk), time(Level::Erasure(4, 2), &disk)), (None, Some(25.0)));
        let memory = HostBounds { memory_bytes: Some(7e10), ..BOUNDS };
        assert_eq!(time(Level::Memory, &memory), None);
        assert!(time(Level::Memory, &HostBounds { memory_bytes: Some(8e10), ..BOUNDS }).is_some());
        assert_eq!(Level::all(1).collect::<Vec<_>>(), [Level::Shared]);
        assert_eq!(Level::all(6).last(), Some(Level::Erasure(4, 2)));
    }

    #[test]
    fn more_parity_loses_fewer_checkpoints() {
        let lost = |level: Level| level.times_lost(10.0, 100.0, 1e6);
        assert_eq!(lost(Level::Shared), 0.0);
        let all = [Level::Partner, Level::Erasure(2, 1), Level::Erasure(4, 2), Level::Erasure(8, 3)].map(lost);
        assert!((all[0] - 10.0 * 2e-4).abs() < 1e-6, "{all:?}");
        assert!((all[2] - 10.0 * 10.0 * 1e-8).abs() < 1e-9, "{all:?}");
        assert!(all[0] >= all[2] && all[2] > all[3]);
    }
}
