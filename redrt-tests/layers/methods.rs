//! No type has methods all over its crate: the state that many files reach is that of no one idea.

use super::{Crate, crates, root, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Number of files with inherent methods of one type.
const FILES_MAX: usize = 5;
/// Number of inherent methods of a type.
const METHODS_MAX: usize = 60;
/// Number of fields of what carries out the decisions of a job's coordinator.
const SHELL_FIELDS_MAX: usize = 15;

/// Types with more: crate, type, files, methods. They may have fewer, and not more.
const MORE: [(&str, &str, usize, usize); 8] = [
    ("quiesce", "Replica", 10, 131),
    ("job-coordinator", "Coordinator", 7, 96),
    ("quiesce", "Decisions", 2, 82),
    ("quiesce", "Simulation", 7, 82),
    ("redrtd", "HostDaemon", 7, 77),
    ("redrun", "Fleet", 5, 73),
    ("redrt-window", "Window", 5, 71),
    ("quiesce", "Process", 4, 65),
];

/// The type of which this line begins a block of inherent methods.
fn implemented(line: &str) -> Option<&str> {
    let after = line.strip_prefix("unsafe ").unwrap_or(line).strip_prefix("impl")?;
    let after = match after.strip_prefix('<') {
        // Lifetimes and parameters of types have no brackets in one line with others.
        Some(parameters) => parameters.split_once("> ")?.1,
        None => after.strip_prefix(' ')?,
    };
    let name = after.split(['<', ' ', '{']).next()?;
    (!after.contains(" for ")).then(|| name.rsplit("::").next().unwrap_or(name))
}

/// True if this line, in such a block, begins a method.
fn is_method(line: &str) -> bool {
    let Some(line) = line.strip_prefix("    ").filter(|line| !line.starts_with(' ')) else { return false };
    let line = match line.strip_prefix("pub") {
        Some(after) if after.starts_with('(') => after.split_once(") ").map_or(after, |(_, after)| after),
        Some(after) => after.trim_start(),
        None => line,
    };
    let words = ["async ", "const ", "unsafe ", "extern \"C\" "];
    let line = words.iter().fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
    line.starts_with("fn ")
}

/// Number of inherent methods of each type in a file.
fn methods(text: &str) -> BTreeMap<&str, usize> {
    let mut found = BTreeMap::new();
    let mut of = None;
    let own = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    for line in own.lines() {
        if line == "}" {
            of = None;
        } else if let Some(name) = implemented(line).filter(|_| line.ends_with('{')) {
            of = Some(name);
        } else if let Some(name) = of.filter(|_| is_method(line)) {
            *found.entry(name).or_default() += 1;
        }
    }
    found
}

#[test]
fn no_type_has_methods_all_over_its_crate() {
    let mut wrong = Vec::new();
    for Crate { name: of, place, .. } in crates() {
        let mut files = Vec::new();
        sources(&root().join(&place).join("src"), &mut files);
        files.retain(|path| !path.components().any(|part| part.as_os_str() == "tests") && !path.ends_with("tests.rs"));
        let mut counts = BTreeMap::<String, Vec<usize>>::new();
        for path in &files {
            let text = std::fs::read_to_string(path).expect("it is text");
            for (name, count) in methods(&text) {
                counts.entry(name.to_owned()).or_default().push(count);
            }
        }
        for (name, counts) in counts {
            let (file_count, method_count) = (counts.len(), counts.iter().sum::<usize>());
            let more = MORE.iter().find(|(crate_of, other, ..)| *crate_of == of && *other == name);
            let (files_max, methods_max) =
                more.map_or((FILES_MAX, METHODS_MAX), |(_, _, files, methods)| (*files, *methods));
            if name == "Shell" || more.is_some() {
                println!("{of}: {name} has {method_count} methods in {file_count} files");
            }
            if file_count > files_max || method_count > methods_max {
                wrong.push(format!("{of}: {name} has {method_count} methods in {file_count} files"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_shell_of_redrun_has_few_parts() {
    let text = std::fs::read_to_string(root().join("tools/redrun/src/lib.rs")).expect("it is there");
    let (_, after) = text.split_once("struct Shell<'a> {\n").expect("it is there");
    let body = after.split("\n}").next().unwrap_or_default();
    let fields: BTreeSet<_> = body.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    println!("redrun: Shell has {} fields", fields.len());
    assert!((1..=SHELL_FIELDS_MAX).contains(&fields.len()), "{fields:?}");
}

#[test]
fn methods_are_counted_however_they_are_written() {
    let text = "impl<'a> Shell<'a> {\n    fn new() {\n        fn inner() {}\n    }\n}\n\
        impl Shell<'_> {\n    pub(super) fn one(&self) {}\n    pub async fn two() {}\n}\n\
        impl fmt::Display for Shell<'_> {\n    fn fmt() {}\n}\nimpl Other {\n    pub const fn three() {}\n}\n";
    assert_eq!(methods(text), BTreeMap::from([("Shell", 3), ("Other", 1)]));
}
