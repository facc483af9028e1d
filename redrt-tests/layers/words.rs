//! Names follow the glossary: no word that it has retired is part of one.

use super::comments::sources;
use super::root;
use std::collections::BTreeSet;

/// Names in which a retired word has another meaning: their place, the name, the meaning.
const OTHERS: [(&str, &str, &str); 24] = [
    ("cloner/cloner-tests/framework/processes.rs", "Lines", "lines of text"),
    ("cloner/src/refusal.rs", "Root", "the root directory"),
    ("redrt-benches/src/picture.rs", "Line", "a line of a drawing"),
    ("redrt/redrt-comm/src/coll/inter.rs", "Root", "the root of a collective"),
    ("redrt/redrt-comm/src/comm/check/call.rs", "Root", "the root of a collective"),
    ("redrt/redrt-comm/src/comm/check/compare.rs", "Root", "the root of a collective"),
    ("redrt/redrt-log/src/lib.rs", "Lines", "lines of text"),
    ("redrt/redrt-log/src/lib.rs", "Line", "a line of text"),
    ("redrt/redrt-window/src/direct/control.rs", "Line", "a line of a cache"),
    ("redrt/src/api/coll/mod.rs", "Root", "the root of a collective"),
    ("tools/audit-log/src/read.rs", "Line", "a line of text"),
    ("tools/command-line", "command-line", "the line that starts a program"),
    ("tools/job-options/src/arguments.rs", "allow-run-as-root", "the user root; Open MPI's option"),
    ("tools/job-options/src/hosts/file.rs", "HostLine", "a line of text"),
    ("tools/job-options/src/hosts/rankfile.rs", "LineError", "a line of text"),
    ("tools/job-options/src/hosts/rankfile.rs", "Line", "a line of text"),
    ("tools/job-report/src/line.rs", "line", "a line of text"),
    ("tools/redplan/src/picture.rs", "Line", "a line of a drawing"),
    ("tools/redplan/src/picture.rs", "Lines", "lines of a drawing"),
    ("tools/redrun/src/folding.rs", "Line", "a line of text"),
    ("tools/redrun/src/status_lines.rs", "StatusLines", "lines of text"),
    ("tools/redrun/src/status_lines.rs", "status_lines", "lines of text"),
    ("tools/replica-output/src/lines.rs", "LineCutter", "a line of text"),
    ("tools/say/src/console.rs", "Lines", "lines of text"),
];
/// The same for a module whose types are in the list.
const MODULES: [(&str, &str); 1] = [("tools/replica-output/src/lines.rs", "lines")];

/// The retired words, from the first table of this section in the glossary.
fn retired(heading: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/glossary.md")).expect("it is there");
    let (_, section) = text.split_once(&format!("\n{heading}\n")).expect("the glossary has the section");
    let table = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = table.skip(2).filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split(", ")).map(str::to_owned).collect()
}

/// The words of a name in singular: `CamelCase`, `snake_case` and kebab-case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for letter in name.chars() {
        if !letter.is_alphanumeric() || letter.is_uppercase() && before.is_lowercase() {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("there is one").extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.iter().map(|word| word.strip_suffix('s').unwrap_or(word).to_owned()).collect()
}

fn identifier(text: &str) -> &str {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default()
}

/// Keyword and name of the type that this line declares.
fn declared(code: &str) -> Option<(&str, &str)> {
    let (visibility, after) = code.split_once(' ')?;
    let declaration = if visibility.starts_with("pub") { after } else { code };
    let (keyword, rest) = declaration.split_once(' ')?;
    ["struct", "enum", "trait", "type", "union"].contains(&keyword).then(|| (keyword, identifier(rest)))
}

/// Types, variants of enums and long options in a source.
fn names(text: &str) -> Vec<&str> {
    let (mut found, mut variants_at) = (Vec::new(), None);
    for line in text.lines() {
        let code = line.trim_start();
        let depth = line.len() - code.len();
        if code.starts_with("//") {
            continue;
        }
        if let Some((keyword, name)) = declared(code) {
            found.push(name);
            if keyword == "enum" && !code.ends_with('}') {
                variants_at = Some(depth + 4);
            }
        } else if variants_at == Some(depth) && code.starts_with(char::is_uppercase) {
            found.push(identifier(code));
        } else if variants_at == Some(depth + 4) && code == "}" {
            variants_at = None;
        }
        found.extend(code.split("long = \"").skip(1).filter_map(|option| option.split('"').next()));
    }
    found
}

/// Types, modules with their files, crates, options and variants of enums, messages among them.
#[test]
fn no_name_has_a_retired_word() {
    let retired = retired("## Retired words");
    assert!(retired.len() > 10, "{retired:?}");
    let is_retired = |name: &str| words(name).iter().any(|word| retired.contains(word));
    let (mut wrong, mut used) = (BTreeSet::new(), BTreeSet::new());
    for path in sources() {
        let place = path.strip_prefix(root()).expect("it was found there").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("it is text");
        let parts = place.strip_suffix(".rs").unwrap_or(&place).split('/');
        for name in names(&text).into_iter().chain(parts).filter(|name| is_retired(name)) {
            let other = OTHERS.iter().find(|(of, other, _)| place.starts_with(of) && *other == name);
            match other {
                Some((of, other, _)) => drop(used.insert((*of, *other))),
                None if MODULES.contains(&(&*place, name)) => {}
                None => drop(wrong.insert(format!("{place}: {name}"))),
            }
        }
    }
    assert!(wrong.is_empty(), "docs/glossary.md has other words for {wrong:#?}");
    let unused: Vec<_> = OTHERS.iter().filter(|(of, name, _)| !used.contains(&(*of, *name))).collect();
    assert!(unused.is_empty(), "these exceptions are not needed: {unused:?}");
}

#[test]
fn no_function_has_a_retired_verb() {
    let retired = retired("### Retired verbs");
    assert!(retired.len() > 1, "{retired:?}");
    let mut wrong = BTreeSet::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let names = code.filter_map(|line| line.split_once("fn ").map(|(_, rest)| identifier(rest)));
        let is_retired = |name: &&str| name.split('_').next().is_some_and(|verb| retired.contains(verb));
        wrong.extend(names.filter(is_retired).map(|name| format!("{}: {name}", path.display())));
    }
    assert!(wrong.is_empty(), "docs/glossary.md has other verbs for {wrong:#?}");
}

#[test]
fn no_type_has_a_retired_name() {
    let retired = retired("### Retired names of types");
    assert!(retired.len() > 5, "{retired:?}");
    let mut wrong = BTreeSet::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let types = text.lines().filter_map(|line| declared(line.trim_start())).map(|(_, name)| name);
        let types = types.filter(|name| retired.contains(*name));
        wrong.extend(types.map(|name| format!("{}: {name}", path.display())));
    }
    assert!(wrong.is_empty(), "docs/glossary.md has better names for {wrong:#?}");
}

#[test]
fn words_of_names_are_found() {
    assert_eq!(declared("pub(super) type Kind<T> = Vec<T>;"), Some(("type", "Kind")));
    assert_eq!(declared("// A type Kind."), None);
    assert_eq!(words("StatusLines"), ["statu", "line"]);
    assert_eq!(words("root-lease_time"), ["root", "lease", "time"]);
    let text = "pub(super) enum Order {\n    /// Root.\n    Lines(Vec<u8>),\n    Other { line: u64 },\n}\n\
        struct Table;\n#[arg(long = \"root-lease\")]\nroot: u8,\n";
    assert_eq!(names(text), ["Order", "Lines", "Other", "Table", "root-lease"]);
}
