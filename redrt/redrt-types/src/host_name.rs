//! Names of hosts, as users, batch systems and hosts themselves write them.

use std::net::IpAddr;

/// Returns true if two names are of one host. The case of letters does not matter (RFC 4343), nor does a domain that
/// only one name has. Addresses must be equal.
///
/// ```
/// use redrt_types::is_same_host;
///
/// assert!(is_same_host("Node1", "node1.cluster.example"));
/// assert!(!is_same_host("node1.east", "node1.west"));
/// assert!(!is_same_host("10.0.0.1", "10.0.0.2"));
/// ```
#[must_use]
pub fn is_same_host(one: &str, other: &str) -> bool {
    let is_address = |name: &str| name.parse::<IpAddr>().is_ok();
    let (one, other) = (one.trim_end_matches('.'), other.trim_end_matches('.'));
    if one.eq_ignore_ascii_case(other) {
        return true;
    }
    let is_lacking = match (one.split_once('.'), other.split_once('.')) {
        (Some((label, _)), None) => label.eq_ignore_ascii_case(other),
        (None, Some((label, _))) => label.eq_ignore_ascii_case(one),
        _ => false,
    };
    is_lacking && !is_address(one) && !is_address(other)
}

#[cfg(test)]
mod tests {
    use super::is_same_host;

    #[test]
    fn case_and_a_missing_domain_do_not_matter() {
        for (one, other, is_same) in [
            ("node1", "node1", true),
            ("NODE1", "node1", true),
            ("node1", "node1.a.b", true),
            ("Node1.A.b.", "node1.a.B", true),
            ("node1.a", "node1.a.b", false),
            ("node1", "node10", false),
            ("node1", "node10.a", false),
            ("10.0.0.1", "10", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("fe80::1", "FE80::1", true),
            ("", "node1", false),
        ] {
            assert_eq!(is_same_host(one, other), is_same, "{one} {other}");
            assert_eq!(is_same_host(other, one), is_same, "{other} {one}");
        }
    }
}
