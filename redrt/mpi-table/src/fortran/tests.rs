//! The rendered text for Fortran is complete, and compilers accept it.

use super::*;
use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

#[test]
fn every_function_that_fortran_has_is_there() {
    // 531 functions, less 44 and 4 that convert handles and statuses and 51 of the tool interface. Five are deprecated
    // and not in mpi_f08. Of 159 with large counts, four differ in nothing but arguments of the size of an address.
    let table = Table::standard();
    assert_eq!(counts(&table), (432, 427, 155));
}

#[test]
fn no_two_procedures_have_one_symbol() {
    let table = Table::standard();
    let mut symbols = HashSet::new();
    for dialect in [Dialect::Old, Dialect::New] {
        for procedure in procedures(&table, dialect) {
            for prefix in PREFIXES {
                assert!(symbols.insert(procedure.symbol(prefix)), "{}", procedure.symbol(prefix));
            }
        }
    }
    for symbol in ["mpi_send_", "pmpi_wait_f08_", "mpi_send_f08ts_", "mpi_send_c_f08ts_", "mpi_pack_external_f08_"] {
        assert!(symbols.contains(symbol), "{symbol}");
    }
}

#[test]
fn buffers_of_calls_that_go_on_are_asynchronous() {
    let table = Table::standard();
    let keeping = |name: &str| keeps_buffers(table.functions.iter().find(|f| f.name == name).unwrap());
    for name in
        ["MPI_Isend", "MPI_Ineighbor_alltoallw", "MPI_Recv_init", "MPI_Put", "MPI_File_iread_at", "MPI_Psend_init"]
    {
        assert!(keeping(name), "{name}");
    }
    for name in ["MPI_Send", "MPI_Info_set", "MPI_Initialized", "MPI_Iprobe", "MPI_File_read", "MPI_Pack", "MPI_Gather"]
    {
        assert!(!keeping(name), "{name}");
    }
}

fn compiles(directory: &Path, arguments: &[&str]) {
    let mut compiler = Command::new("gfortran");
    let output = compiler.arg("-fsyntax-only").args(arguments).current_dir(directory).output().expect("gfortran");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_modules_and_mpif_h_compile() {
    let table = Table::standard();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("base.f90", &render_base_module(&table));
    write("mpi.f90", &render_mpi_module(&table));
    write("mpi_f08.f90", &render_mpi_f08_module(&table));
    compiles(directory.path(), &["-std=f2018", "base.f90", "mpi.f90", "mpi_f08.f90"]);
    // Programs in an older standard's mode may use the modules, and both of them at once.
    write("user.f90", "subroutine a\nuse mpi\nend\nsubroutine b\nuse mpi_f08\nend\n");
    compiles(directory.path(), &["-std=f2008", "user.f90"]);

    let text = render_mpif_h(&table);
    let short = |line: &str| line.len() <= 72 && (line.starts_with("      ") || line.starts_with('!'));
    assert!(text.lines().all(short), "{:?}", text.lines().find(|line| !short(line)));
    write("mpif.h", &text);
    write("fixed.f", "      SUBROUTINE A\n      IMPLICIT NONE\n      INCLUDE 'mpif.h'\n      END\n");
    write("free.f90", "subroutine a\nimplicit none\ninclude 'mpif.h'\nend\n");
    compiles(directory.path(), &["-Wall", "-Werror", "-Wno-unused-parameter", "fixed.f"]);
    compiles(directory.path(), &["-Wall", "-Werror", "-Wno-unused-parameter", "free.f90"]);
}
