//! Libraries whose results depend on which of their threads comes first: settings that make the results repeatable.
//!
//! These threads meet in atomic instructions, which nobody can order from outside. Replicas of a rank would compute
//! different results, each of them right. A variable that the user has set stays.

use super::pools::{set_all, value_of};
use redrt_wire::daemon::Application;

const SETTINGS: [(&str, &str); 2] = [
    // PT-SCOTCH 7: two vertices are matched by the thread that marks them first, so partitions differ.
    ("SCOTCH_PTHREAD_NUMBER", "1"),
    // OpenMP of LLVM and Intel: threads add to a sum in the order in which they end.
    ("KMP_DETERMINISTIC_REDUCTION", "true"),
];

/// Sets the variables for a program with replicas. Returns the settings, for the user.
pub fn make_repeatable(application: &mut Application) -> Vec<String> {
    let settings: Vec<_> = SETTINGS.iter().filter(|(name, _)| value_of(application, name).is_none()).collect();
    set_all(application, &settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_the_user_has_set_stay() {
        let mut application = Application {
            program: "/bin/true".into(),
            arguments: vec!["true".into()],
            environment: vec![("SCOTCH_PTHREAD_NUMBER".into(), "4".into())],
            directory: "/".into(),
            abi: redrt_wire::daemon::Abi::Standard,
        };
        assert_eq!(make_repeatable(&mut application), ["KMP_DETERMINISTIC_REDUCTION=true"]);
        let environment = [("SCOTCH_PTHREAD_NUMBER", "4"), ("KMP_DETERMINISTIC_REDUCTION", "true")]
            .map(|(a, b)| (a.into(), b.into()));
        assert_eq!(application.environment, environment);
    }
}
