//! While memory of a living process comes, this one is the first that the kernel ends when memory runs out. Another
//! copy can be made of the source, but not of this one, and of a rank's last replica there is no other.

use std::fs;

/// What a process is asked for before all others.
const FIRST: &str = "1000";
const PATH: &str = "/proc/self/oom_score_adj";

/// How ready this process is to be ended.
pub fn score() -> i64 {
    fs::read_to_string(PATH).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// From now on this process is the first that is ended, until the agent of the copy lets the program begin. Anybody may
/// ask for this; where it cannot be written, it is as it was.
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
        // What a process had it may have again.
        fs::write(PATH, before.to_string()).expect("it can be written");
    }
}
