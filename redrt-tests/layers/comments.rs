//! Comments are read beside code, and once.

use super::{Crate, crates, root};
use std::path::{Path, PathBuf};

/// Sources in a crate's directory, tests included, without those of crates within it.
fn sources_of(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            let is_other = path.join("Cargo.toml").exists() || path.ends_with("target");
            if !is_other {
                sources_of(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Sources of all crates.
pub fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for Crate { place, .. } in crates() {
        sources_of(&root().join(place), &mut files);
    }
    files
}

/// The first line of each comment in a source, with its number.
fn beginnings(text: &str) -> Vec<(usize, &str)> {
    let marker = |line: &str| ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker));
    let (mut before, mut found) = (None, Vec::new());
    for (line, number) in text.lines().map(str::trim_start).zip(1..) {
        let kind = marker(line);
        if let Some(kind) = kind.filter(|_| kind != before) {
            found.push((number, line[kind.len()..].trim()));
        }
        before = kind;
    }
    found
}

/// No line of a comment is longer than one of code may be (`rustfmt.toml`).
#[test]
fn no_line_of_a_comment_is_longer_than_120_characters() {
    let files = sources();
    assert!(files.len() > 500, "only {} files were found", files.len());
    let mut long = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("it is text");
        let lines = text.lines().zip(1..).filter(|(line, _)| line.trim_start().starts_with("//"));
        let lines = lines.filter(|(line, _)| line.chars().count() > 120);
        long.extend(lines.map(|(_, number)| format!("{}:{number}", path.display())));
    }
    assert!(long.is_empty(), "{}", long.join(", "));
}

/// A subject that is a clause ("Whether a thread waits.") has to be read twice: comments begin with a noun or a verb
/// ("True while a thread waits."). Help texts are for users, and describe options.
#[test]
fn no_comment_begins_with_a_clause_as_its_subject() {
    const CLAUSES: [&str; 6] = ["What", "Who", "Whom", "Whose", "Whether", "Those"];
    let mut found = Vec::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("it is text");
        if text.contains("clap::") {
            continue;
        }
        let is_clause = |comment: &str| CLAUSES.contains(&comment.split([' ', ',']).next().unwrap_or_default());
        let clauses = beginnings(&text).into_iter().filter(|(_, comment)| is_clause(comment));
        found.extend(clauses.map(|(number, comment)| format!("{}:{number}: {comment}", path.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_comment_begins_where_its_marker_does() {
    let text = "//! One\n//! line.\n\n/// Two.\nfn two() {\n    // Three.\n}\n";
    assert_eq!(beginnings(text), [(1, "One"), (4, "Two."), (6, "Three.")]);
}

/// Longer names are sentences, whose subject is hard to find. The rest of the claim belongs in a doc line.
const TEST_NAME_CHARACTERS_MAX: usize = 60;

/// Names of the tests in a source, with their lines.
fn tests_in(text: &str) -> Vec<(usize, &str)> {
    let (mut is_test, mut found) = (false, Vec::new());
    for (line, number) in text.lines().map(str::trim_start).zip(1..) {
        is_test |= line == "#[test]";
        if let Some(name) = line.strip_prefix("fn ").filter(|_| is_test) {
            found.push((number, name.split(['(', '<']).next().unwrap_or_default()));
            is_test = false;
        }
    }
    found
}

#[test]
fn no_test_has_a_name_of_more_than_60_characters() {
    let mut long = Vec::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let names = tests_in(&text).into_iter().filter(|(_, name)| name.len() > TEST_NAME_CHARACTERS_MAX);
        long.extend(names.map(|(number, name)| format!("{}:{number}: {name}", path.display())));
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn names_of_tests_are_found() {
    let text = "fn one() {}\n#[test]\n#[ignore]\nfn two() {\n    #[test]\n    fn three(count in 1..2) {}\n";
    assert_eq!(tests_in(text), [(4, "two"), (6, "three")]);
}
