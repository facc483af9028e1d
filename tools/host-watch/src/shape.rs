//! Shape of the tree: maps host numbers to parents and children.
//!
//! ```text
//!  fan-out 2:        redrun
//!                   ╱      ╲
//!                  0        1
//!                 ╱ ╲      ╱ ╲
//!                2   3    4   5
//! ```

/// Default number of daemons that connect to one. Few jobs have more hosts than its square.
pub const FAN_OUT: u32 = 32;

/// Children of a host, or of the coordinator (`None`).
pub fn children(parent: Option<u32>, fan_out: u32, host_count: u32) -> std::ops::Range<u32> {
    let first = parent.map_or(0, |parent| u64::from(fan_out) * (u64::from(parent) + 1));
    let end = (first + u64::from(fan_out)).min(u64::from(host_count));
    first.min(u64::from(host_count)) as u32..end as u32
}

/// Parent of a host. `None`: the coordinator.
#[must_use]
pub fn parent(host: u32, fan_out: u32) -> Option<u32> {
    (host / fan_out).checked_sub(1)
}

/// True if `host` is `ancestor`, or below it.
#[must_use]
pub fn is_below(host: u32, ancestor: u32, fan_out: u32) -> bool {
    std::iter::successors(Some(host), |host| parent(*host, fan_out)).any(|host| host == ancestor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_picture_above() {
        assert_eq!(children(None, 2, 6), 0..2);
        assert_eq!(children(Some(1), 2, 6), 4..6);
        assert_eq!(children(Some(2), 2, 6), 6..6);
        assert_eq!((parent(0, 2), parent(3, 2), parent(4, 2)), (None, Some(0), Some(1)));
        assert!(is_below(5, 1, 2) && is_below(1, 1, 2) && !is_below(3, 1, 2));
    }

    proptest! {
        #[test]
        fn every_host_is_a_child_of_its_parent_only(fan_out in 1u32..9, host_count in 1u32..200) {
            let parents = std::iter::once(None).chain((0..host_count).map(Some));
            let mut seen: Vec<u32> = Vec::new();
            for above in parents {
                for child in children(above, fan_out, host_count) {
                    prop_assert_eq!(parent(child, fan_out), above);
                    seen.push(child);
                }
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..host_count).collect::<Vec<_>>());
        }
    }
}
