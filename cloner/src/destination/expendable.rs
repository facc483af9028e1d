//! While memory of a living process comes, this one is the first that the kernel ends when memory runs out. Another
//! copy can be made of the source, but not of this one, and of a rank's last replica there is no other.

use std::fs;

/// What a process is asked for before all others.
const FIRST: &str = "1000";
const PATH: &str = "/proc/self/oom_score_adj";

/// As long as this is there, this process is the first that is ended.
pub struct Expendable {
    before: Option<String>,
}

impl Expendable {
    /// From now on. Anybody may ask for this; where it cannot be written, it is as it was.
    pub fn begin() -> Self {
        let before = fs::read_to_string(PATH).ok().filter(|_| fs::write(PATH, FIRST).is_ok());
        Self { before }
    }
}

impl Drop for Expendable {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // What a process had it may have again.
            let _ = fs::write(PATH, before.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_ended_first_until_it_has_all() {
        let now = || fs::read_to_string(PATH).expect("it can be read").trim().to_owned();
        let before = now();
        let expendable = Expendable::begin();
        assert_eq!(now(), FIRST);
        drop(expendable);
        assert_eq!(now(), before);
    }
}
