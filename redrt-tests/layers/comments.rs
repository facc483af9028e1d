//! Comments are read beside code, and once.

use super::{Crate, crates, root, sources};
use std::path::PathBuf;

/// Sources of all crates whose place begins with one of these.
fn sources_below(places: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for Crate { place, .. } in crates() {
        if places.iter().any(|below| place.starts_with(below)) {
            sources(&root().join(place).join("src"), &mut files);
        }
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
    let files = sources_below(&[""]);
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

/// Crates whose comments were rewritten. The rest of the workspace is to follow.
const REWRITTEN: [&str; 14] = [
    "cloner",
    "line-store",
    "planner",
    "quiesce",
    "redrt/redrt-engine",
    "redrt/redrt-process",
    "redrt/redrt-sync",
    "redrt/redrt-transport",
    "redrt/redrt-types",
    "redrt/redrt-wire",
    "redrt/thread-order",
    "sdc-detect",
    "spare-pool",
    "tools",
];

/// A subject that is a clause ("Whether a thread waits.") has to be read twice: comments begin with a noun or a verb
/// ("True while a thread waits."). Help texts are for users, and say what an option does.
#[test]
fn no_comment_begins_with_a_clause_as_its_subject() {
    const CLAUSES: [&str; 6] = ["What", "Who", "Whom", "Whose", "Whether", "Those"];
    let mut found = Vec::new();
    for path in sources_below(&REWRITTEN) {
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
