//! While this process receives memory of a living one, it volunteers for the OOM killer. The source can be copied
//! again; if the source were killed and it was its rank's last replica, nothing could replace it.

use std::fs;

/// Highest value of `oom_score_adj`.
const FIRST: &str = "1000";
const PATH: &str = "/proc/self/oom_score_adj";

/// The `oom_score_adj` of this process; 0 if it cannot be read.
pub fn score() -> i64 {
    fs::read_to_string(PATH).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Makes this process the first choice of the OOM killer, until the agent of the copy lets the program begin. Raising
/// the score needs no privilege; if it cannot be written, it stays as it is.
pub fn come_first() {
    let _ = fs::write(PATH, FIRST);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_ended_first() {
        let before = score();
        come_first();
        assert_eq!(score().to_string(), FIRST);
        // A process may lower its score again to where it was.
        fs::write(PATH, before.to_string()).expect("it can be written");
    }
}
