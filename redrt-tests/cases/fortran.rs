//! Fortran: the test programs with lost replicas, programs in two languages, and the compiler's wrapper.

use redrt_tests::{Job, Program, prefix, root};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Kills a replica before its k-th send, for several k that all programs reach.
#[track_caller]
fn survives(name: &str) {
    let program = Program::named(name).expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    for (transport, degree) in [("shm", 2), ("tcp", 2), ("shm", 3)] {
        for (replica, send) in [("0.0", 1), ("1.1", 5), ("2.0", 12), ("0.1", 15), ("1.0", 18)] {
            let job = Job::of(&program).degree(degree).transport(transport);
            let ended = job.inject(&format!("kill:{replica}@#{send}")).run().ended_well().printed(&alone.out);
            let lost = ended.summary["lost"].as_array().map_or(0, Vec::len);
            if lost != 1 {
                ended.fail(&format!("{lost} replicas lost instead of one"));
            }
        }
    }
}

#[test]
fn mpi_f08_survives_kills() {
    survives("fortran_f08");
}

#[test]
fn module_mpi_survives_kills() {
    survives("fortran_mpi");
}

#[test]
fn mpif_h_survives_kills() {
    survives("fortran_mpif");
}

#[test]
fn heat_in_fortran_survives_kills() {
    survives("fortran_heat");
}

/// A directory to compile in.
struct Workshop(TempDir);

impl Workshop {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary directory can be written"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a program of the installation in the directory.
    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        self.run_with(program, arguments, &[])
    }

    fn run_with(&self, program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(prefix().join("bin").join(program));
        for variable in ["REDRT_FC", "MPIFORT_FC", "REDRT_FORTRAN_MODULES"] {
            command.env_remove(variable);
        }
        command.envs(environment.iter().copied());
        command.args(arguments).current_dir(self.0.path()).output().expect("it can be run")
    }

    #[track_caller]
    fn compile(&self, wrapper: &str, arguments: &[&str]) {
        let output = self.run(wrapper, arguments);
        assert!(output.status.success(), "{}", err(&output));
    }
}

fn case(name: &str) -> String {
    root().join("redrt-tests/cases/fortran").join(name).display().to_string()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The words of each line: list-directed output may have any blanks between them.
fn words(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn c_and_fortran_see_each_others_objects() {
    let workshop = Workshop::new();
    workshop.compile("mpicc", &["-c", &case("attributes.c")]);
    workshop.compile("mpifort", &[&case("languages.f90"), "attributes.o", "-o", "program"]);
    let expected = ["C reads 1 42", "Fortran reads T T", "from C 0 3 0 1"];
    for degree in [1, 2] {
        let ended = Job::new(1, &workshop.path("program")).degree(degree).run().ended_well();
        assert_eq!(words(&ended.out), expected, "{ended}");
    }
}

#[test]
fn a_section_that_cannot_be_used_is_refused_and_named() {
    let workshop = Workshop::new();
    workshop.compile("mpifort", &[&case("refused.f90"), "-o", "program"]);
    let ended = Job::new(1, &workshop.path("program")).run().ended_well();
    assert_eq!(words(&ended.out), ["T", "T", "T"], "{ended}");
    for named in ["MPI_Psend_init: buf is a section", "MPI_Win_create: base is a section"] {
        assert!(ended.err.contains(named), "{ended}");
    }
}

/// Found by MPICH's test spawnargvf.
#[test]
fn blanks_around_words_of_spawned_programs_do_not_count() {
    let workshop = Workshop::new();
    workshop.compile("mpifort", &[&case("spawning.f90"), "-o", "spawning"]);
    let directory = workshop.0.path().display().to_string();
    let ended = Job::new(1, &workshop.path("spawning")).options(&["--wdir", &directory]).run().ended_well();
    assert_eq!(words(&ended.out), ["right"], "{ended}");
}

/// MPI-5.0 section 14.5.3, with callbacks of the program.
#[test]
fn a_data_representation_in_fortran_converts_both_ways() {
    let workshop = Workshop::new();
    workshop.compile("mpifort", &[&case("datarep.f90"), "-o", "program"]);
    for degree in [1, 2] {
        let file = workshop.path(&format!("file{degree}")).display().to_string();
        let ended = Job::new(3, &workshop.path("program")).degree(degree).arguments(&[&file]).run().ended_well();
        ended.printed("right\n");
        assert_eq!(std::fs::metadata(&file).expect("it is there").len(), 3 * 40);
    }
}

#[test]
fn sections_with_strides_survive_kills() {
    survives("fortran_sections");
}

/// MPI-5.0 section 15.2: a tool's MPI_Send comes before the library's.
#[test]
fn a_tool_in_c_sees_the_calls_of_fortran() {
    let workshop = Workshop::new();
    let tool = "#include <mpi.h>\n#include <stdio.h>\nstatic int sends;
        int MPI_Send(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c)
        { sends++; return PMPI_Send(b, n, t, to, tag, c); }
        int MPI_Finalize(void) { printf(\"sends %d\\n\", sends); fflush(stdout); return PMPI_Finalize(); }\n";
    let program = "program p
        use mpi_f08
        integer :: x(6) = 1, y(6)
        type(MPI_Request) :: r
        call MPI_Init()
        call MPI_Irecv(y, 6, MPI_INTEGER, 0, 1, MPI_COMM_SELF, r)
        call MPI_Send(x(1:6:2), 3, MPI_INTEGER, 0, 1, MPI_COMM_SELF)
        call MPI_Wait(r, MPI_STATUS_IGNORE)
        call MPI_Irecv(y, 6, MPI_INTEGER, 0, 1, MPI_COMM_SELF, r)
        call PMPI_Send(x, 6, MPI_INTEGER, 0, 1, MPI_COMM_SELF)
        call MPI_Wait(r, MPI_STATUS_IGNORE)
        call MPI_Finalize()
        end program\n";
    for (name, text) in [("tool.c", tool), ("program.f90", program)] {
        std::fs::write(workshop.path(name), text).expect("the directory can be written");
    }
    workshop.compile("mpicc", &["-shared", "-fPIC", "tool.c", "-o", "libtool.so"]);
    workshop.compile("mpif90", &["program.f90", "-o", "program"]);
    let mut run = Command::new(workshop.path("program"));
    let output = run.env("LD_PRELOAD", workshop.path("libtool.so")).output().expect("it can be run");
    assert_eq!((out(&output), output.status.code()), ("sends 1\n".into(), Some(0)), "{}", err(&output));
}

#[test]
fn the_wrapper_tells_what_it_does_and_what_is_missing() {
    let workshop = Workshop::new();
    let show = |arguments: &[&str]| out(&workshop.run("mpifort", arguments));
    let directory = prefix().canonicalize().expect("it is installed");
    let link = format!("-L{0}/lib -Wl,-rpath,{0}/lib -lredrt_mpifort -lmpi_abi\n", directory.display());
    assert_eq!(show(&["--showme:link"]), link);
    let compile = show(&["-show", "x.f90"]);
    let begins = format!("gfortran -I{0}/include -I{0}/include/redrt-fortran/gfortran-", directory.display());
    assert!(compile.starts_with(&begins) && compile.ends_with(&format!(" x.f90 {link}")), "{compile}");
    assert!(show(&["--version"]).contains("GNU Fortran"));

    std::fs::write(workshop.path("x.f90"), "use mpi_f08\nend\n").expect("the directory can be written");
    let missing = workshop.run_with("mpifort", &["-c", "x.f90"], &[("REDRT_FC", "no-such-fortran")]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).contains("there is no no-such-fortran here"), "{}", err(&missing));
    let elsewhere = workshop.path("modules").display().to_string();
    let modules = [("REDRT_FORTRAN_MODULES", &*elsewhere)];
    let missing = workshop.run_with("mpif77", &["-c", "x.f90"], &modules);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).contains("no modules were made for gfortran yet; run: "), "{}", err(&missing));

    workshop.compile("redrt-fortran-modules", &["--output", &elsewhere]);
    let made = workshop.run_with("mpif77", &["-c", "x.f90"], &modules);
    assert!(made.status.success(), "{}", err(&made));
    let wrong = workshop.run("redrt-fortran-modules", &["--compiler", "no-such-fortran"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(err(&wrong).contains("cannot run no-such-fortran"), "{}", err(&wrong));
    assert_eq!(workshop.run("redrt-fortran-modules", &["--nonsense"]).status.code(), Some(2));
}

/// The library would silently take an `INTEGER` of 64 bits for an int.
#[test]
fn options_that_change_the_size_of_an_integer_are_refused() {
    let workshop = Workshop::new();
    let directory = workshop.path("modules").display().to_string();
    let arguments = ["--compiler", "gfortran -fdefault-integer-8", "--output", &directory];
    let refused = workshop.run("redrt-fortran-modules", &arguments);
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    assert!(err(&refused).contains("an INTEGER of 32 bits"), "{}", err(&refused));
    assert!(!Path::new(&directory).exists());
    // Programs with mpif.h need no modules.
    std::fs::write(workshop.path("x.f"), "      include 'mpif.h'\n      end\n").expect("the directory can be written");
    workshop.compile("mpif77", &["-c", "x.f"]);
    assert!(!workshop.run("mpif77", &["-fdefault-integer-8", "-c", "x.f"]).status.success());
}
