//! The structure in ARCHITECTURE.md and docs/crates.md is that of the code.

mod comments;
mod dependencies;
mod ends;
mod methods;
mod words;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// A crate of the workspace.
struct Crate {
    name: String,
    /// Directory of the crate, relative to the root.
    place: String,
    description: String,
    /// Crates of the workspace that it depends on; dependencies of tests are left out.
    uses: BTreeSet<String>,
}

/// The packages that `cargo metadata` lists with these options.
fn packages(options: &[&str]) -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = ["metadata", "--offline", "--locked", "--format-version", "1"];
    let output = Command::new(cargo).args(asked).args(options).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("there are some").clone()
}

/// All crates, in the order of the workspace's list.
fn crates() -> Vec<Crate> {
    let packages = packages(&["--no-deps"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: BTreeSet<_> = packages.iter().map(|package| text(&package["name"])).collect();
    let of_package = |package: &Value| {
        let uses = package["dependencies"].as_array().expect("there may be some").iter();
        let uses = uses.filter(|used| used["kind"] != "dev").map(|used| text(&used["name"]));
        let uses = uses.filter(|name| names.contains(name)).collect();
        let (manifest, root) = (text(&package["manifest_path"]), root());
        let directory = Path::new(&manifest).parent().expect("it is in one").strip_prefix(root);
        let place = directory.expect("it is in the workspace").display().to_string();
        Crate { name: text(&package["name"]), place, description: text(&package["description"]), uses }
    };
    let mut crates: Vec<_> = packages.iter().map(of_package).collect();
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("it is there");
    let at = |of: &Crate| manifest.find(&format!("\n    \"{}\",\n", of.place));
    crates.sort_by_key(at);
    crates
}

/// The table in `docs/crates.md`.
fn table(crates: &[Crate]) -> String {
    let uses = |of: &Crate| of.uses.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let row = |of: &Crate| format!("| `{}` | {} | {} |\n", of.place, of.description, uses(of));
    let rows: String = crates.iter().map(row).collect();
    format!("| Crate | What it is | Uses |\n|---|---|---|\n{rows}")
}

#[test]
fn the_table_in_crates_md_shows_the_crates_and_what_they_use() {
    let (crates, path) = (crates(), root().join("docs/crates.md"));
    let text = std::fs::read_to_string(&path).expect("it is there");
    let is_row = |line: &&str| line.starts_with('|');
    let shown: String = text.split_inclusive('\n').skip_while(|line| !is_row(line)).take_while(is_row).collect();
    let table = table(&crates);
    if std::env::var_os("REDRT_UPDATE").is_some() {
        std::fs::write(&path, text.replace(&shown, &table)).expect("it can be written");
    } else {
        assert!(shown == table, "docs/crates.md: REDRT_UPDATE=1 cargo test -p redrt-tests --test layers");
    }
}

#[test]
fn crates_are_named_like_directories_and_use_those_above_them() {
    let mut above = BTreeSet::new();
    for Crate { name, place, description, uses } in crates() {
        assert_eq!(Path::new(&place).file_name(), Some(name.as_ref()), "the directory of {name}");
        assert!(!description.is_empty(), "{place}/Cargo.toml does not describe {name}");
        let upward: Vec<_> = uses.difference(&above).collect();
        assert!(upward.is_empty(), "{name} uses {upward:?}, which Cargo.toml does not list above it");
        above.insert(name);
    }
}

/// All sources below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The first names of a list of imports that begins with a brace, or of one path.
fn first_names(after: &str) -> Vec<String> {
    let (mut names, mut depth) = (vec![String::new()], 0);
    for c in after.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(String::new()),
            _ if depth < 2 => names.last_mut().expect("there is one").push(c),
            _ => {}
        }
        if depth == 0 && !(c.is_alphanumeric() || c == '_') {
            break;
        }
    }
    let word = |name: &String| name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    names.iter().map(word).collect()
}

/// For each top-level module the modules that it names with `crate::`, or with as many `super::` as lead to the crate's
/// root. Tests in files of their own are left out.
fn imports(directory: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let (source, mut files) = (directory.join("src"), Vec::new());
    sources(&source, &mut files);
    let module_of = |file: &Path| {
        let first = file.strip_prefix(&source).ok()?.components().next()?;
        let name = Path::new(first.as_os_str()).file_stem()?.to_str()?.to_owned();
        (!["lib", "main", "bin"].contains(&&*name)).then_some(name)
    };
    let modules: BTreeSet<_> = files.iter().filter_map(|file| module_of(file)).collect();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let is_test =
            file.components().any(|part| ["tests", "tests.rs", "fuzz.rs"].iter().any(|name| part.as_os_str() == *name));
        let Some(module) = module_of(file).filter(|_| !is_test) else { continue };
        let text = std::fs::read_to_string(file).expect("it can be read");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let place = file.strip_prefix(&source).expect("it was found there");
        let depth = place.components().count() - usize::from(place.ends_with("mod.rs"));
        let code = code.replace(&"super::".repeat(depth), "crate::");
        for name in code.split("crate::").skip(1).flat_map(first_names) {
            if name != module && modules.contains(&name) {
                all.entry(module.clone()).or_default().insert(name);
            }
        }
    }
    all
}

/// A module from which its own imports lead back to it, and the import that does.
fn cycle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<(String, String)> {
    let reached = |from: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            open.extend(imports.get(module).into_iter().flatten().filter(|next| reached.insert((*next).clone())));
        }
        reached
    };
    imports.iter().find_map(|(module, direct)| {
        let back = direct.iter().find(|next| reached(next).contains(module));
        back.map(|back| (module.clone(), back.clone()))
    })
}

#[test]
fn no_crate_has_a_cycle_among_its_top_level_modules() {
    let told = |Crate { name, place, .. }: Crate| {
        let (module, back) = cycle(&imports(&root().join(place)))?;
        Some(format!("{name}: {module} imports {back}, which imports it, perhaps by way of others"))
    };
    let told: Vec<_> = crates().into_iter().filter_map(told).collect();
    assert!(told.is_empty(), "{}", told.join("; "));
}

/// A row of the map at the head of ARCHITECTURE.md: crates, and below them their modules, by row, if it shows any.
struct Row {
    crates: Vec<String>,
    modules: Vec<Vec<String>>,
}

/// The map, from the top. Modules are further to the right than the crate that they belong to.
fn mapped() -> Vec<Row> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let map = text.split("```").find(|block| block.contains("\n redrt ")).expect("a map");
    let mut rows: Vec<Row> = Vec::new();
    for line in map.lines().skip(1) {
        // Descriptions begin at this column.
        let names: String = line.chars().take(25).collect();
        let words = names.split_whitespace().map(str::to_owned).collect();
        match rows.last_mut() {
            Some(row) if names.starts_with("   ") => row.modules.push(words),
            _ => rows.push(Row { crates: words, modules: Vec::new() }),
        }
    }
    rows
}

#[test]
fn the_map_shows_crates_that_use_none_of_their_row_or_above_it() {
    let (crates, map) = (crates(), mapped());
    let row_of = |name: &str| map.iter().position(|row| row.crates.iter().any(|one| one == name));
    for (row, number) in map.iter().zip(0..) {
        for name in &row.crates {
            let of = crates.iter().find(|one| one.name == *name).unwrap_or_else(|| panic!("{name} is no crate"));
            let upward: Vec<_> = of.uses.iter().filter(|used| row_of(used).is_some_and(|at| at <= number)).collect();
            assert!(upward.is_empty(), "{name} uses {upward:?}, which the map does not have below it");
            if !row.modules.is_empty() {
                check_modules(of, &row.modules);
            }
        }
    }
    let is_with_modules = |row: &&Row| !row.modules.is_empty() && row.crates.len() == 1;
    assert!(map.iter().filter(is_with_modules).count() > 0, "the map shows no modules");
}

/// Asserts that these rows have the modules of a crate, and that none uses another of its row or above it.
fn check_modules(Crate { name, place, .. }: &Crate, rows: &[Vec<String>]) {
    let imports = imports(&root().join(place));
    let row_of = |module: &str| rows.iter().position(|row| row.iter().any(|one| one == module));
    for (module, used) in &imports {
        let row = row_of(module).unwrap_or_else(|| panic!("{module} of {name} is not on the map"));
        for other in used {
            let below = row_of(other).unwrap_or_else(|| panic!("{other} of {name} is not on the map"));
            assert!(below > row, "{module} of {name} uses {other}, which the map does not have below it");
        }
    }
    let is_there = |module: &String| {
        let source = root().join(place).join("src").join(module);
        source.is_dir() || source.with_extension("rs").exists()
    };
    assert!(rows.iter().flatten().all(is_there), "the map shows modules of {name} that it has not: {rows:?}");
}

#[test]
fn imports_are_found_however_they_are_written() {
    assert_eq!(first_names("runtime::job;"), ["runtime"]);
    assert_eq!(first_names("{coll::{self, Peers}, comm, window::Window}; use std::io;"), ["coll", "comm", "window"]);
    let found = imports(&root().join("quiesce"));
    assert!(
        found["decision"].is_superset(&["error", "frame", "hashable_map", "outcome"].map(str::to_owned).into()),
        "{found:?}"
    );
}

#[test]
fn a_cycle_is_found() {
    let imports = |pairs: &[(&str, &str)]| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        pairs.iter().for_each(|(from, to)| _ = all.entry((*from).into()).or_default().insert((*to).into()));
        all
    };
    assert_eq!(cycle(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert!(cycle(&imports(&[("a", "b"), ("b", "c"), ("c", "b")])).is_some());
}

/// The number at the end of this text, multiplied by its unit: bytes, seconds or pieces.
fn number_at_end(text: &str) -> u64 {
    let mut words = text.trim().rsplit(' ').map(|word| word.replace(',', ""));
    let mut next = || words.next().unwrap_or_default();
    let last = next();
    let (number, factor) = match &*last {
        "KiB" => (next(), 1 << 10),
        "MiB" => (next(), 1 << 20),
        "bytes" | "s" => (next(), 1),
        _ => (last, 1),
    };
    number.parse::<u64>().unwrap_or_else(|_| panic!("no number before a constant: …{text}")) * factor
}

/// Value of a constant that a source writes in numbers alone. Where simulations have another value, the usual one,
/// which stands in the `else` branch.
fn constant(source: &str, name: &str) -> Option<u64> {
    let after = source.split(&format!("const {name}: ")).nth(1)?;
    let said = after.split(';').next()?.split_once('=')?.1;
    let said = said.rsplit_once("else {").map_or(said, |(_, usual)| usual.trim_end().trim_end_matches('}'));
    let said = said.trim().trim_start_matches("Duration::from_secs(").trim_end_matches(')');
    said.split('*').try_fold(1, |product, factor| {
        let mut parts = factor.split("<<").map(|part| part.trim().replace('_', "").parse::<u64>().ok());
        let first = parts.next()??;
        Some(product * parts.try_fold(first, |value, shift| Some(value << shift?))?)
    })
}

/// A cell's text without the numbers that need no constant, and each number with the constant that the cell links
/// behind it.
fn numbers_of(cell: &str) -> (String, Vec<(u64, String, String)>) {
    let (mut rest, mut found) = (cell.to_owned(), Vec::new());
    for part in ["r = 1", "r ≥ 2", "rank 0"] {
        rest = rest.replace(part, "");
    }
    let mut left = String::new();
    while let Some((before, after)) = rest.split_once(" ([`") {
        let (link, behind) = after.split_once("))").expect("a link ends");
        let (name, path) = link.split_once("`](").expect("a name and a path");
        found.push((number_at_end(before), name.to_owned(), path.to_owned()));
        left += before.trim_end_matches(|c: char| c != ' ').trim_end().trim_end_matches(|c: char| c != ' ');
        rest = behind.to_owned();
    }
    (left + &rest, found)
}

#[test]
fn each_limit_in_the_table_of_queues_is_a_constants_value() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let section = text.split("\n## Queues and what bounds them\n").nth(1).expect("a section on queues");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut count = 0;
    for row in section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Queue")) {
        let cells: Vec<_> = row.split('|').collect();
        let (left, numbers) = numbers_of(cells[2]);
        assert!(!left.contains(|c: char| c.is_ascii_digit()), "a number that nothing checks: {left}");
        for (number, name, path) in numbers {
            let source = std::fs::read_to_string(root().join(&path)).unwrap_or_else(|why| panic!("{path}: {why}"));
            let value = constant(&source, &name).unwrap_or_else(|| panic!("no value of {name} in {path}"));
            assert_eq!(number, value, "{name} in {path}, of:{}", cells[1]);
            count += 1;
        }
    }
    assert!(count > 30, "only {count} limits were found");
}

#[test]
fn limits_are_read_as_they_are_written() {
    let source = "const A: usize = 64 << 20;\npub const B: Duration = Duration::from_secs(20);\nconst C: u64 = 1_000 * 2;\n\
                  const D: usize = if cfg!(test) { 2 } else { 64 };\nconst E: usize = A;\n";
    let values = ["A", "B", "C", "D", "E", "F"].map(|name| constant(source, name));
    assert_eq!(values, [Some(64 << 20), Some(20), Some(2000), Some(64), None, None]);
    let (left, found) = numbers_of(" at r = 1 4,096 KiB ([`A`](a.rs)) of each, 7 ([`B`](b.rs)) at once, or 3 ");
    let found: Vec<_> = found.iter().map(|(number, name, path)| (*number, &**name, &**path)).collect();
    assert_eq!(found, [(4096 << 10, "A", "a.rs"), (7, "B", "b.rs")]);
    assert!(left.contains('3') && !left.contains('7') && !left.contains('4'), "{left}");
}

/// Tests that `docs/conventions.md` names exist.
#[test]
fn each_convention_of_launchers_has_a_test_that_is_there() {
    let mut files = Vec::new();
    ["tools", "redrt-tests"].iter().for_each(|directory| sources(&root().join(directory), &mut files));
    let text: String = files.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    let table = std::fs::read_to_string(root().join("docs/conventions.md")).expect("it is there");
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Feature"));
    let tests: Vec<_> = rows.map(|row| row.rsplit('|').nth(1).unwrap_or_default().trim().trim_matches('`')).collect();
    let is_there = |test: &&&str| !test.is_empty() && text.contains(&format!("#[test]\nfn {test}()"));
    let missing: Vec<_> = tests.iter().filter(|test| !is_there(test)).collect();
    assert!(tests.len() > 20 && missing.is_empty(), "of {}, not there: {missing:?}", tests.len());
}

/// The arguments of each `Result<...>` in a source, at the top level of its brackets.
fn results(text: &str) -> Vec<Vec<String>> {
    let after = |at: usize| &text[at + "Result<".len()..];
    let arguments = |text: &str| {
        let (mut depth, mut all) = (0_u32, vec![String::new()]);
        for (at, letter) in text.char_indices() {
            match letter {
                '>' if text[..at].ends_with('-') => {}
                '<' | '(' | '[' => depth += 1,
                '>' if depth == 0 => break,
                '>' | ')' | ']' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    all.push(String::new());
                    continue;
                }
                _ => {}
            }
            all.last_mut().expect("there is one").push(letter);
        }
        all.iter().map(|argument| argument.trim().to_owned()).filter(|argument| !argument.is_empty()).collect()
    };
    text.match_indices("Result<").map(|(at, _)| arguments(after(at))).collect()
}

/// A caller has to tell one error from another: errors are types with fields, not sentences.
#[test]
fn no_function_has_a_string_for_an_error() {
    let mut files = Vec::new();
    for Crate { place, .. } in crates() {
        sources(&root().join(place).join("src"), &mut files);
    }
    let mut count = 0;
    for path in &files {
        let text = std::fs::read_to_string(path).expect("it is text");
        // Errors that tests return are read by no caller.
        let own = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
        let is_test = path.components().any(|part| part.as_os_str() == "tests")
            || path.file_name().is_some_and(|name| name == "tests.rs" || name == "simulation.rs");
        if is_test {
            continue;
        }
        let results = results(own);
        count += results.len();
        let is_text = |error: &str| error == "String" || error.starts_with('&');
        let has_text = |arguments: &Vec<String>| matches!(&arguments[..], [_, error] if is_text(error));
        assert!(!results.iter().any(has_text), "{} has a Result<_, String>", path.display());
    }
    assert!(count > 1000, "only {count} results were found");
}

#[test]
fn errors_that_are_strings_are_found_however_deep_the_result_is() {
    let text = "fn a() -> Result<Vec<(u8, u16)>, String> {} fn b() -> io::Result<String> {} \
        fn c(f: Box<dyn Fn() -> Result<(), E>>)";
    let found: Vec<_> = results(text).into_iter().map(|arguments| arguments.join(" | ")).collect();
    assert_eq!(found, ["Vec<(u8, u16)> | String", "String", "() | E"]);
}

/// Work below a call of the library is not the program's. The allocator reads a clock now and then: outside of a call
/// that would be taken for a reading by the program, which its siblings do not make.
#[test]
fn each_function_that_programs_call_marks_the_library_at_work() {
    let mut files = Vec::new();
    let crates = crates();
    let library = crates.iter().find(|one| one.name == "redrt").expect("it is there");
    for Crate { place, .. } in crates.iter().filter(|one| library.uses.contains(&one.name)).chain([library]) {
        sources(&root().join(place).join("src"), &mut files);
    }
    let mut count = 0;
    for path in files {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let is_table = path.ends_with("exports/facades.rs");
        for (before, after) in text.match_indices("extern \"C\" fn redrt_").map(|(at, _)| text.split_at(at)) {
            if !is_table && !before.lines().rev().take(2).any(|line| line.contains("no_mangle")) {
                continue;
            }
            let body = after.split("\n}").next().unwrap_or_default();
            let name = after.split(['(', '<']).next().unwrap_or_default();
            assert!(body.contains("threads::enter"), "{name} of {} is no call", path.display());
            count += 1;
        }
    }
    assert!(count >= 4, "{count} functions were found");
}

/// Readers find a page by a list or a link only.
#[test]
fn each_page_of_the_documentation_is_in_the_list_of_the_site() {
    let list = std::fs::read_to_string(root().join("docs/SUMMARY.md")).expect("it is there");
    let names = ["", "decisions/"].into_iter().flat_map(|below| {
        let pages = std::fs::read_dir(root().join("docs").join(below)).expect("it is there");
        pages.map(move |page| format!("{below}{}", page.expect("it is read").file_name().display()))
    });
    let pages: Vec<_> = names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    let missing: Vec<_> = pages.iter().filter(|name| !list.contains(&format!("({name})"))).collect();
    assert!(pages.len() > 20 && missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
    let listed = list.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let at = |name: &str| if root().join("docs").join(name).exists() { "docs" } else { "" };
    let gone: Vec<_> = listed.filter(|name| !root().join(at(name)).join(name).exists()).collect();
    assert!(gone.is_empty(), "docs/SUMMARY.md has {gone:?}, which are not there");
}

/// Crates that handle users' files.
const WITH_PATHS: [&str; 4] = ["redrt/redrt-types", "redrt/redrt-wire", "checkpoint-store", "tools"];

/// Places where a file name is taken for text: file, count, and the reason why that loses no name of a user's.
const TAKEN_FOR_TEXT: &[(&str, usize, &str)] = &[
    ("redrt/redrt-types/src/path_bytes.rs", 1, "a path that is text is shown as text, another as its bytes"),
    ("checkpoint-store/src/place.rs", 2, "names of checkpoints: redrt's own"),
    ("checkpoint-store/src/store.rs", 5, "names of jobs, checkpoints and their files: redrt's own"),
    ("checkpoint-store/file-undo/src/directory.rs", 2, "names of logs, and of lengths of logs: redrt's own"),
    ("checkpoint-store/file-undo/src/model.rs", 1, "of tests alone"),
    ("checkpoint-store/file-undo/src/shared.rs", 1, "numbers of hosts"),
    ("tools/job-options/src/arguments.rs", 2, "whether a word is an option; the word itself stays as it is"),
    ("tools/job-options/src/checkpoint/archive.rs", 2, "numbers of jobs; a directory that has to be a URL is refused"),
    ("tools/job-options/src/checkpoint/resuming.rs", 3, "numbers of jobs; a program that is named in an error"),
    ("tools/job-options/src/choices.rs", 2, "how a value begins (rankfile:file=, erasure:); another is taken as it is"),
    ("tools/job-options/src/lib.rs", 3, "names of options and of parameters (--mca), and numbers of jobs"),
    ("tools/job-options/src/program.rs", 1, "whether a variable has a name of AWS's"),
    ("tools/audit-log/src/heads.rs", 1, "whether a file is named by a word"),
    ("tools/redstore/src/access.rs", 2, "names of objects: redrt's own; the name of a host, for people"),
    ("tools/redrtd/src/program.rs", 1, "a number"),
    ("tools/placement/src/homes.rs", 2, "names of files of a line: redrt's own"),
    ("tools/host-addresses/src/lib.rs", 1, "the name of a host"),
    ("tools/running-jobs/src/lib.rs", 5, "names that redrt has given to jobs"),
    ("tools/redctl/src/checkpoints/objects.rs", 1, "the number of a job"),
    ("tools/redctl/src/checkpoints/parts.rs", 2, "names of checkpoints and their files: redrt's own"),
    ("tools/redctl/src/checkpoints.rs", 3, "shown to people; names of pieces: redrt's own"),
    ("tools/redrtd/src/copying/flip/code.rs", 1, "compared with a name that has lost the same, and shown to people"),
    ("tools/redrtd/src/copying/flip/mod.rs", 1, "a number of a thread"),
    ("tools/redrtd/src/gpus.rs", 1, "devices of the kernel"),
    ("tools/redrtd/src/lib.rs", 2, "the name of this host"),
    ("tools/redrtd/src/sockets.rs", 1, "names of directories that daemons have made"),
    ("tools/redrtd/src/spawn.rs", 2, "names of variables that are known, and a number"),
    ("tools/host-processes/src/sweep.rs", 1, "a number of a process"),
    ("tools/redrun/src/quorum.rs", 1, "the name of this host"),
    ("tools/redrun/src/fleet.rs", 1, "the name of this host"),
    ("tools/redrun/src/pools.rs", 1, "a number"),
    ("tools/redrun/src/run.rs", 1, "shown to people"),
    ("tools/redrun/src/targets.rs", 1, "names of files that redrun has made"),
    ("tools/redspared/src/keys.rs", 1, "names of users of the pool, which are text"),
    (
        "tools/checkpoint-files/src/remote.rs",
        5,
        "whether a path is a URL; numbers of jobs; what the library of object stores takes",
    ),
    ("tools/job-console/src/client.rs", 1, "a flag and the number of a job"),
    ("tools/checkpoint-files/src/undo.rs", 1, "numbers of hosts"),
];

/// Functions that take a name for text, and lose or refuse a name that is none.
const TAKES_FOR_TEXT: [&str; 4] = ["to_string_lossy()", ".to_str()", ".into_string()", "env::args()"];

/// Sources of these crates without their tests, by path in the tree.
fn with_paths() -> BTreeMap<String, String> {
    let mut files = Vec::new();
    WITH_PATHS.iter().for_each(|directory| sources(&root().join(directory), &mut files));
    let own = |file: PathBuf| {
        let is_test = |part: std::path::Component<'_>| {
            ["tests", "tests.rs", "fuzz.rs", "examples", "build.rs"].iter().any(|name| part.as_os_str() == *name)
        };
        let place = file.strip_prefix(root()).expect("it was found there").to_owned();
        let text = std::fs::read_to_string(&file).expect("it can be read");
        let own = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (!place.components().any(is_test)).then(|| (place.display().to_string(), own))
    };
    files.into_iter().filter_map(own).collect()
}

#[test]
fn names_of_users_are_taken_for_text_only_where_that_loses_none() {
    let mut wrong = Vec::new();
    let all = with_paths();
    for (file, text) in &all {
        let count: usize = TAKES_FOR_TEXT.iter().map(|call| text.matches(call).count()).sum();
        let allowed = TAKEN_FOR_TEXT.iter().find(|(allowed, ..)| allowed == file).map_or(0, |(_, count, _)| *count);
        if count != allowed {
            wrong.push(format!("{file} takes names for text {count} times, and {allowed} times with a reason"));
        }
    }
    let gone = TAKEN_FOR_TEXT.iter().filter(|(file, ..)| !all.contains_key(*file));
    wrong.extend(gone.map(|(file, ..)| format!("{file} is not there")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Fields with a file's name that are text: file, and the reason why that loses no name of a user's.
const NAMED_BY_TEXT: [(&str, &str); 9] = [
    ("redrt/redrt-wire/src/event.rs", "shown to people"),
    ("redrt/redrt-wire/src/checkpoint.rs", "files of a checkpoint: redrt's own names"),
    ("redrt/redrt-wire/src/trace.rs", "shown to people"),
    ("checkpoint-store/src/manifest.rs", "files of a checkpoint: redrt's own names"),
    ("tools/attribution/src/lib.rs", "shown to people"),
    ("tools/redctl/src/checkpoints/parts.rs", "files of a checkpoint: redrt's own names"),
    ("tools/redctl/src/list.rs", "shown to people"),
    ("tools/redrtd/src/copying/mod.rs", "files of a checkpoint: redrt's own names"),
    ("tools/replication-manager/src/determinism.rs", "a path that replicas took: words for people"),
];

/// Fields with paths in types for `serde`: it would refuse a path that is no text.
fn paths_in_text_form(text: &str) -> Vec<String> {
    let (mut found, mut is_written, mut before) = (Vec::new(), false, "");
    for line in text.lines() {
        if line.starts_with("#[derive(") {
            is_written = line.contains("Serialize");
        } else if before.starts_with('}') || before.ends_with(");") {
            is_written = false;
        }
        let code = line.trim_start();
        let is_field = is_written && !code.starts_with("//") && !code.contains("fn ");
        let name = code.trim_start_matches("pub ").split(':').next().unwrap_or_default();
        let names_file = ["path", "paths", "file", "files", "directory", "program"].contains(&name);
        let has_path = code.contains("PathBuf") || names_file && code.contains("String") && !code.contains("OsString");
        if is_field && has_path && ![before, line].iter().any(|line| line.contains("path_bytes")) {
            found.push(code.to_owned());
        }
        before = line;
    }
    found
}

#[test]
fn paths_are_written_as_bytes() {
    let mut wrong = Vec::new();
    for (file, text) in with_paths() {
        let allowed = NAMED_BY_TEXT.iter().any(|(allowed, _)| *allowed == file);
        let found = paths_in_text_form(&text);
        let found: Vec<_> = found.into_iter().filter(|field| !allowed || field.contains("PathBuf")).collect();
        wrong.extend(found.into_iter().map(|field| format!("{file}: {field}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let bad = "#[derive(Serialize)]\npub struct A {\n    /// Where.\n    pub at: PathBuf,\n    file: String,\n}\n";
    assert_eq!(paths_in_text_form(bad), ["pub at: PathBuf,", "file: String,"]);
    let good = "#[derive(Serialize)]\nstruct A {\n    #[serde(with = \"redrt_types::path_bytes\")]\n    at: PathBuf,\n}\n\
        struct B {\n    at: PathBuf,\n}\n";
    assert!(paths_in_text_form(good).is_empty());
}
