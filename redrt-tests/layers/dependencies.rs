//! All dependencies have a licence that deny.toml allows.
//!
//! `scripts/test.sh --all` runs cargo-deny, which checks more. Building it takes longer than all of these tests.

use super::{packages, root};
use serde_json::Value;
use spdx::{Expression, ParseMode};

/// The licences that deny.toml allows.
fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("it is there");
    let rules: toml::Value = toml::from_str(&text).expect("it is TOML");
    let allowed = rules["licenses"]["allow"].as_array().expect("a list");
    allowed.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}

/// True if a package with these licences may be used.
fn may_be_used(licences: &str, allowed: &[String]) -> bool {
    // Some packages write a slash for OR.
    let expression = Expression::parse_mode(licences, ParseMode::LAX);
    expression.is_ok_and(|expression| expression.evaluate(|asked| allowed.contains(&asked.to_string())))
}

#[test]
fn dependencies_have_licences_and_sources_that_are_allowed() {
    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
    let allowed = allowed();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let refused = |package: &Value| {
        let (name, licences) = (text(&package["name"]), text(&package["license"]));
        let is_elsewhere = !package["source"].is_null() && package["source"] != REGISTRY;
        (is_elsewhere || !may_be_used(&licences, &allowed))
            .then(|| format!("{name}: {licences}, from {}", package["source"]))
    };
    // Packages for other systems are not used.
    let packages = packages(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let refused: Vec<_> = packages.iter().filter_map(refused).collect();
    assert!(refused.is_empty(), "deny.toml does not allow {refused:#?}");
}

#[test]
fn one_licence_of_several_is_enough_and_all_of_a_sum_are_needed() {
    let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned()];
    assert!(may_be_used("GPL-3.0-only OR MIT", &allowed));
    assert!(may_be_used("Apache-2.0/MIT", &allowed));
    assert!(may_be_used("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed));
    assert!(!may_be_used("MIT AND Apache-2.0", &allowed));
    assert!(!may_be_used("", &allowed));
}
