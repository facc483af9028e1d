//! The table is complete and its renderings are sound.

use crate::{Bound, Table, render_constants, render_coverage, render_exports, render_header};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn header_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/mpi.h")
}

#[test]
fn the_interface_is_complete() {
    let table = Table::standard();
    // 503 functions of the standard ABI, and 28 that convert to and from Fortran.
    assert_eq!(table.functions.len(), 503 + 28);
    // 159 functions and 2 callback types have a large-count version.
    assert_eq!(table.functions.iter().filter(|f| f.twin).count(), 159);
    assert_eq!(table.callbacks.iter().filter(|f| f.twin).count(), 2);
    let names: HashSet<_> = table.functions.iter().map(|f| &f.name).collect();
    assert_eq!(names.len(), table.functions.len(), "a function appears twice");
    let constants: HashSet<_> = table.constants.iter().map(|c| &c.name).collect();
    assert_eq!(constants.len(), table.constants.len(), "a constant appears twice");
}

#[test]
fn every_callback_that_is_named_exists() {
    let table = Table::standard();
    let known: HashSet<_> = table.callbacks.iter().map(|c| c.name.clone()).collect();
    let parameters = table.functions.iter().flat_map(|f| &f.parameters).filter_map(|p| p.callback.clone());
    let constants = table.constants.iter().filter_map(|c| c.callback.clone());
    for name in parameters.chain(constants) {
        assert!(known.contains(name.trim_end_matches("_c")), "{name}");
    }
}

/// With `REDRT_UPDATE` set, writes the file instead of comparing it.
fn check_committed(path: &Path, rendered: &str) {
    if std::env::var_os("REDRT_UPDATE").is_some() {
        std::fs::write(path, rendered).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(rendered == committed, "{} is out of date: REDRT_UPDATE=1 cargo test -p mpi-table", path.display());
}

#[test]
fn committed_header_is_the_rendering() {
    check_committed(&header_path(), &render_header(&Table::standard()));
}

#[test]
fn committed_coverage_is_the_rendering_and_has_every_function() {
    let table = Table::standard();
    let bound = Bound::parse(include_str!("../bound"), &table).unwrap();
    let coverage = render_coverage(&table, &bound);
    for function in &table.functions {
        let name = format!("`{}`", function.name.trim_start_matches("MPI_"));
        assert_eq!(coverage.matches(&name).count(), 1, "{name}");
    }
    check_committed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mpi-coverage.md"), &coverage);
}

/// The program takes the address of every function and uses every constant: as C and as C++, by the system's compiler.
#[test]
fn a_program_that_uses_every_name_compiles() {
    let table = Table::standard();
    let mut program = "#include <mpi.h>\n#include <stddef.h>\ntypedef void (*any)(void);\nany all[] = {\n".to_owned();
    for function in &table.functions {
        let suffixes: &[&str] = if function.twin { &["", "_c"] } else { &[""] };
        for suffix in suffixes {
            program += &format!("(any){0}{suffix}, (any)P{0}{suffix},\n", function.name);
        }
    }
    program += "};\nint main(void) {\n";
    for constant in &table.constants {
        program += &format!("(void){};\n", constant.name);
    }
    program += "char layout[sizeof(MPI_Status) == 32 && offsetof(MPI_Status, MPI_ERROR) == 8 ? 1 : -1];\n";
    program += "(void)layout; return 0; }\n";
    let directory = tempfile::tempdir().unwrap();
    for (compiler, file) in [("cc", "all.c"), ("c++", "all.cc")] {
        let source = directory.path().join(file);
        std::fs::write(&source, &program).unwrap();
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Werror", "-Wno-cast-function-type", "-fsyntax-only"]);
        command.arg("-I").arg(header_path().parent().unwrap()).arg(&source);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn unknown_words_are_errors_with_their_line() {
    for (text, reason) in [
        ("MPI_X - a:what", "line 1: unknown kind 'what'"),
        ("\n# c\nMPI_X maybe", "line 3: unknown flag 'maybe'"),
        ("MPI_X", "line 1: expected flags"),
        ("X -", "line 1: 'X' does not begin with MPI_"),
        ("MPI_X - a:int:up", "line 1: 'a:int:up': unknown part 'up'"),
        ("MPI_X - f:function", "line 1: 'function': a function kind, and no other, names a callback type"),
    ] {
        assert_eq!(crate::parse::parse_functions(text).unwrap_err().to_string(), reason);
    }
    assert!(crate::parse::parse_constants("MPI_X int").is_err());
    assert!(crate::parse::parse_constants("MPI_X int one").is_err());
}

#[test]
fn bound_accepts_known_functions_only() {
    let table = Table::standard();
    assert!(Bound::parse("p2p: Sendd", &table).is_err());
    assert!(Bound::parse("p2q: *", &table).is_err());
    let bound = Bound::parse("p2p: Send Recv\ncoll: *", &table).unwrap();
    let is_bound = |name: &str| bound.contains(table.functions.iter().find(|f| f.name == name).unwrap());
    assert!(is_bound("MPI_Send") && is_bound("MPI_Bcast") && !is_bound("MPI_Ssend") && !is_bound("MPI_Comm_dup"));
    assert!(Bound::parse(include_str!("../bound"), &table).is_ok());
}

#[test]
fn twins_share_one_implementation_with_widened_arguments() {
    let table = Table::standard();
    let bound = Bound::parse(include_str!("../bound"), &table).unwrap();
    let exports = render_exports(&table, &bound);
    assert_eq!(exports.matches("crate::api::p2p::send(buf, count as i64, datatype, dest, tag, comm)").count(), 2);
    assert!(exports.contains("pub unsafe extern \"C\" fn PMPI_Send_c(buf: *const c_void, count: Count,"));
    assert!(render_constants(&table).contains("impl CommHandle { pub const WORLD: Self = Self(257); }"));
}
