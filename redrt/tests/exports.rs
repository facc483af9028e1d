//! The shared library as a program sees it: every name, both as `MPI_` and `PMPI_`, under the standard's library name.

use redrt_tests::prefix;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared library of the installation that is tested.
fn library() -> PathBuf {
    prefix().join("lib/libmpi_abi.so.1")
}

/// Compiles a C program against the header and the library, and runs it. Returns its output and exit code.
fn run_c(program: &str) -> (String, Option<i32>) {
    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (directory.path().join("program.c"), directory.path().join("program"));
    std::fs::write(&source, program).unwrap();
    std::os::unix::fs::symlink(library(), directory.path().join("libmpi_abi.so.1")).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-o"]).arg(&binary).arg(&source);
    compiler.arg("-I").arg(include).arg(directory.path().join("libmpi_abi.so.1"));
    compiler.arg(format!("-Wl,-rpath,{}", directory.path().display()));
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    (
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        output.status.code(),
    )
}

#[test]
fn every_name_is_exported() {
    let mut table = String::new();
    for function in mpi_table::Table::standard().functions {
        let suffixes: &[&str] = if function.twin { &["", "_c"] } else { &[""] };
        for suffix in suffixes {
            table += &format!("(any){0}{suffix}, (any)P{0}{suffix},\n", function.name);
        }
    }
    let program = format!(
        "#include <mpi.h>\n#include <stdio.h>\ntypedef void (*any)(void);\nany all[] = {{ {table} }};
         int main(void) {{ printf(\"%zu\", sizeof all / sizeof *all); return all[0] == 0; }}"
    );
    // 531 functions and 159 large-count versions, under two names each.
    assert_eq!(run_c(&program), ((2 * (531 + 159)).to_string(), Some(0)));
}

#[test]
fn what_the_standard_allows_before_init_works_before_init() {
    let program = r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <string.h>
        int main(void) {
            int version, subversion, flag, length = 0, class, code;
            char text[MPI_MAX_ERROR_STRING];
            MPI_Info info;
            MPI_Get_version(&version, &subversion);
            MPI_Info_create(&info);
            MPI_Info_set(info, "colour", "blue");
            MPI_Info_get_string(info, "colour", &length, text, &flag);
            printf("%d.%d %d %d\n", version, subversion, flag, length);
            MPI_Info_free(&info);
            MPI_Add_error_class(&class);
            MPI_Add_error_code(class, &code);
            MPI_Add_error_string(code, "melted");
            MPI_Error_string(code, text, &length);
            printf("%s %d %d\n", text, length, info == MPI_INFO_NULL);
            printf("%d %d\n", MPI_Comm_toint(MPI_COMM_WORLD), MPI_Comm_fromint(257) == MPI_COMM_WORLD);
            fflush(stdout);
            return MPI_Barrier(MPI_COMM_WORLD);
        }"#;
    let (output, code) = run_c(program);
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[..3], ["5.0 1 5", "melted 6 1", "257 1"]);
    assert!(lines[3].ends_with("MPI_Barrier: MPI_ERR_OTHER: called before MPI_Init"), "{output}");
    assert_eq!(code, Some(16));
}

#[test]
fn predefined_types_have_the_sizes_and_extents_of_the_compiler() {
    use redrt_abi::handle::DatatypeHandle as H;
    use redrt_comm::datatype::resolve;
    let types = [
        (H::CHAR, "char"),
        (H::WCHAR, "wchar_t"),
        (H::SHORT, "short"),
        (H::INT, "int"),
        (H::LONG, "long"),
        (H::LONG_LONG, "long long"),
        (H::FLOAT, "float"),
        (H::DOUBLE, "double"),
        (H::LONG_DOUBLE, "long double"),
        (H::C_BOOL, "_Bool"),
        (H::C_FLOAT_COMPLEX, "float _Complex"),
        (H::C_DOUBLE_COMPLEX, "double _Complex"),
        (H::C_LONG_DOUBLE_COMPLEX, "long double _Complex"),
        (H::AINT, "MPI_Aint"),
        (H::COUNT, "MPI_Count"),
        (H::OFFSET, "MPI_Offset"),
        (H::FLOAT_INT, "struct { float v; int i; }"),
        (H::DOUBLE_INT, "struct { double v; int i; }"),
        (H::LONG_INT, "struct { long v; int i; }"),
        (H::SHORT_INT, "struct { short v; int i; }"),
        (H::LONG_DOUBLE_INT, "struct { long double v; int i; }"),
        (H::_2INT, "struct { int v; int i; }"),
    ];
    let sizes: String = types.iter().map(|(_, name)| format!("printf(\"%zu \", sizeof({name}));\n")).collect();
    let program =
        format!("#include <mpi.h>\n#include <stdio.h>\n#include <wchar.h>\nint main(void) {{ {sizes} return 0; }}");
    let (output, code) = run_c(&program);
    let found: Vec<i64> = output.split_whitespace().map(|size| size.parse().unwrap()).collect();
    let extents: Vec<_> = types.iter().map(|(handle, _)| resolve(*handle).unwrap().extent()).collect();
    assert_eq!((extents, Some(0)), (found, code));
}

/// A function that is written but not listed in `table/bound` would stay unsupported without anyone noticing.
#[test]
fn everything_that_is_written_is_bound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = mpi_table::Table::standard();
    let bound =
        mpi_table::Bound::parse(&std::fs::read_to_string(root.join("mpi-table/bound")).unwrap(), &table).unwrap();
    for function in table.functions.iter().filter(|function| !bound.contains(function)) {
        let file = root.join("src/api").join(format!("{}.rs", function.module));
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let definition = format!("fn {}(", function.snake_name());
        assert!(!text.contains(&definition), "{} is not listed in redrt/mpi-table/bound", function.name);
    }
}
