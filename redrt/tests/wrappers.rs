//! The compiler wrappers in an installation: found through a link, in a directory with a space.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Installation {
    directory: tempfile::TempDir,
}

impl Installation {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let prefix = directory.path().join("opt mpi");
        for part in ["bin", "include", "lib"] {
            std::fs::create_dir_all(prefix.join(part)).unwrap();
        }
        let library = redrt_tests::prefix().join("lib/libmpi_abi.so.1");
        for name in ["libmpi_abi.so", "libmpi_abi.so.1"] {
            symlink(&library, prefix.join("lib").join(name)).unwrap();
        }
        std::fs::copy(root.join("include/mpi.h"), prefix.join("include/mpi.h")).unwrap();
        // By another process: a file that this one has written cannot be run while a child of another test, just
        // forked, still has it open.
        let copied = Command::new("cp").arg(root.join("scripts/mpicc")).arg(prefix.join("bin/mpicc")).status();
        assert!(copied.unwrap().success());
        symlink("mpicc", prefix.join("bin/mpicxx")).unwrap();
        symlink(prefix.join("bin/mpicxx"), directory.path().join("mpicxx")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a wrapper in the directory above the installation. Returns its output, which must not be an error.
    fn run(&self, wrapper: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(self.path(wrapper));
        for variable in ["REDRT_CC", "MPICC_CC", "REDRT_CXX", "MPICXX_CXX"] {
            command.env_remove(variable);
        }
        let output = command.args(arguments).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn programs_compile_link_and_run() {
    let installation = Installation::new();
    let program = "#include <mpi.h>\nint main() { int v, s; MPI_Get_version(&v, &s); return v - 5; }\n";
    for (wrapper, source) in [("opt mpi/bin/mpicc", "a b.c"), ("mpicxx", "a b.cc")] {
        std::fs::write(installation.path(source), program).unwrap();
        installation.run(wrapper, &["-c", source, "-o", "object.o", "-Wall", "-Werror"]);
        installation.run(wrapper, &["object.o", "-o", "program"]);
        assert!(Command::new(installation.path("program")).status().unwrap().success());
    }
}

#[test]
fn the_wrappers_tell_what_they_do() {
    let installation = Installation::new();
    let prefix = installation.path("opt mpi").canonicalize().unwrap();
    let prefix = prefix.display();
    let mpicc = |arguments: &[&str]| installation.run("opt mpi/bin/mpicc", arguments);
    let link = format!("-L{prefix}/lib -Wl,-rpath,{prefix}/lib -lmpi_abi");
    assert_eq!(mpicc(&["-show", "x.c"]), format!("cc -I{prefix}/include x.c {link}\n"));
    assert_eq!(mpicc(&["-show", "-c", "x.c"]), format!("cc -I{prefix}/include -c x.c\n"));
    assert_eq!(mpicc(&["--showme:compile"]), format!("-I{prefix}/include\n"));
    assert_eq!(mpicc(&["--showme:link"]), format!("{link}\n"));
    assert_eq!(mpicc(&["-compile-info"]), format!("cc -I{prefix}/include\n"));
    assert_eq!(mpicc(&["-cc=gcc", "-link-info"]), format!("gcc {link}\n"));
    assert!(installation.run("mpicxx", &["-show"]).starts_with("c++ "));
    assert!(!mpicc(&["--version"]).is_empty());
}
