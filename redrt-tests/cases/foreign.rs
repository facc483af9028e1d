//! Programs for another MPI are refused: no job may seem protected when its messages are not compared.

use redrt_tests::{Job, compile_case, prefix};
use std::path::{Path, PathBuf};
use std::process::Command;

fn cc(words: &[&str], directory: &Path) {
    let output = Command::new("cc").args(words).current_dir(directory).output().expect("there is a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program that needs a library that needs a library named `soname`, like those of another MPI.
fn built_for(directory: &Path, soname: &str) -> PathBuf {
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).expect("it can be written");
    let others = "int MPI_Finalize(void) { return 0; }\nint MPI_Get_library_version(char *v, int *n) { return *v = 0; }\nint MPIX_Query_cuda_support(void) { return 1; }\n";
    write("mpi.c", &format!("int MPI_Init(int *c, char ***v) {{ return 0; }}\n{others}"));
    write("solver.c", "int MPI_Init(int *, char ***);\nint solve(void) { return MPI_Init(0, 0); }\n");
    write("main.c", "#include <stdio.h>\nint solve(void);\nint main(void) { printf(\"alone\\n\"); return solve(); }\n");
    cc(&["-shared", "-fPIC", &format!("-Wl,-soname,{soname}"), "-o", soname, "mpi.c"], directory);
    cc(
        &["-shared", "-fPIC", "-o", "libsolver.so", "solver.c", &format!("./{soname}"), "-Wl,-rpath,$ORIGIN"],
        directory,
    );
    cc(&["-o", "app", "main.c", "-L.", "-lsolver", "-Wl,-rpath,$ORIGIN"], directory);
    directory.join("app")
}

/// The one line that `redrun` prints for a program that it refuses with exit code 2.
fn refused(options: &[&str], program: &Path) -> String {
    let mut redrun = Command::new(prefix().join("bin/redrun"));
    let output = redrun.args(["-n", "2"]).args(options).arg(program).output().expect("redrun can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len(), said.lines().count()), (Some(2), 0, 1), "{said}");
    said
}

#[test]
fn a_program_for_another_mpi_is_refused_before_the_start() {
    for (soname, family) in [("libmpi.so.20", "Open MPI"), ("libmpich.so.10", "MPICH, Intel MPI or MVAPICH")] {
        let directory = tempfile::tempdir().expect("there is room");
        let program = built_for(directory.path(), soname);
        for degree in ["1", "2"] {
            let said = refused(&["-r", degree], &program);
            assert!(said.contains(&format!("is built for {family} ({soname}), and not for redrt")), "{said}");
        }
        // With the option it runs, and at r = 2 the user is warned that it is not protected.
        let job = Job::new(2, &program).degree(2).options(&["--allow-other-mpi", "--quiet"]);
        let ended = job.run().ended_with(0).printed("alone\nalone\n").said("no message was compared");
        assert!(ended.err.contains("called MPI_Init"), "{ended}");
    }
}

/// As with Python and a wheel for another MPI: the command line does not show the libraries that will be loaded.
#[test]
fn a_script_with_a_program_of_another_mpi_ends_at_its_output() {
    let directory = tempfile::tempdir().expect("there is room");
    built_for(directory.path(), "libmpi.so.20");
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("it can be written");
    let begins = "#include <stdio.h>\n#include <unistd.h>\nint solve(void);\nint main(void) {\n    solve();\n";
    // A program that computes after its first output: a check at the end would come too late.
    write("main.c", &format!("{begins}    printf(\"begun\\n\");\n    fflush(stdout);\n    return sleep(300);\n}}\n"));
    cc(&["-o", "app", "main.c", "-L.", "-lsolver", "-Wl,-rpath,$ORIGIN"], directory.path());
    let script = directory.path().join("script");
    script_file::write(&script, &format!("#!/bin/sh\n{}/app\necho done\n", directory.path().display()));
    for degree in [1, 2] {
        let ended =
            Job::new(2, &script).degree(degree).run().ended_with(2).said("is built for Open MPI (libmpi.so.20)");
        assert_eq!(ended.events("other-mpi").count(), 1, "{ended}");
        assert!(!ended.out.contains("done"), "{ended}");
    }
}

#[test]
fn a_program_with_an_mpi_inside_is_refused() {
    let directory = tempfile::tempdir().expect("there is room");
    let source = directory.path().join("static.c");
    std::fs::write(
        &source,
        "int MPI_Init(int *c, char ***v) { return 0; }\nint main(void) { return MPI_Init(0, 0); }\n",
    )
    .expect("it can be written");
    cc(&["-static", "-o", "app", "static.c"], directory.path());
    let said = refused(&["-r", "2"], &directory.path().join("app"));
    assert!(said.contains("has an MPI linked into it"), "{said}");
}

#[test]
fn a_program_for_another_machine_is_refused() {
    let directory = tempfile::tempdir().expect("there is room");
    // Headers of programs without any section; bytes 4 and 5: 32 or 64 bits, little endian; 18: the machine.
    for (name, class, machine, length) in [("32-bit x86", 1, 3, 52), ("Aarch64", 2, 183, 64), ("x32", 1, 62, 52)] {
        let mut header = vec![0; length];
        header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        (header[16], header[18], header[20]) = (2, machine, 1);
        header[if class == 1 { 40 } else { 52 }] = length as u8;
        let program = directory.path().join("app");
        std::fs::write(&program, header).expect("there is room");
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is there");
        for degree in ["1", "2"] {
            let said = refused(&["-r", degree], &program);
            assert!(said.contains(name) && said.contains("and not for redrt"), "{said}");
        }
    }
}

#[test]
fn an_installation_without_the_programs_library_says_so() {
    let directory = tempfile::tempdir().expect("there is room");
    for (soname, library) in [("libmpi.so.12", "libmpi.so.12"), ("libmpi.so.40", "libmpi_mpifh.so.40")] {
        let program = built_for(directory.path(), soname);
        let moved = directory.path().join(soname.replace("so", "d"));
        for place in ["bin", "lib/redrt"] {
            std::fs::create_dir_all(moved.join(place)).expect("there is room");
        }
        // All files but the one library.
        for name in ["bin/redrun", "lib/libmpi_abi.so.1", "lib/redrt/libmpi.so.40", "lib/redrt/libmpifort.so.12"] {
            std::fs::copy(prefix().join(name), moved.join(name)).expect("there is room");
        }
        let output = Command::new(moved.join("bin/redrun")).args(["-n", "2"]).arg(&program).output();
        let output = output.expect("redrun can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(&format!("{library}, which")) && said.contains("install redrt again"), "{said}");
    }
}

#[test]
fn a_program_of_ours_that_another_launcher_starts_says_so() {
    let program = compile_case("flood");
    for (rank, count, launcher) in [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
        ("PMI_RANK", "PMI_SIZE", "the mpiexec of MPICH"),
    ] {
        let run = |size: &str| {
            let mut command = Command::new(&program);
            command.args(["1", "8"]).env(rank, "0").env(count, size).output().expect("it can be run")
        };
        let output = run("2");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(launcher) && said.contains("redrun"), "{said}");
    }
}

/// redrt has these ABIs: calls reach redrt, however the program finds its library.
#[test]
fn a_program_for_mpich_or_open_mpi_runs_with_replicas() {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
        int MPI_Init(int *, char ***), MPI_Finalize(void), MPI_Get_library_version(char *, int *);\n\
        int MPIX_Query_cuda_support(void);\nint main(void) {\n    char *version = malloc(8192);\n    int length;\n    MPI_Init(0, 0);\n\
        MPI_Get_library_version(version, &length);\n    version[5] = 0;\n    puts(version);\n    return MPI_Finalize() || MPIX_Query_cuda_support();\n}\n";
    for (soname, tag) in [("libmpi.so.40", "runpath"), ("libmpi.so.12", "rpath"), ("libmpich.so.12", "rpath")] {
        let directory = tempfile::tempdir().expect("there is room");
        built_for(directory.path(), soname);
        std::fs::write(directory.path().join("main.c"), source).expect("it can be written");
        let tags = if tag == "rpath" { "--disable-new-dtags" } else { "--enable-new-dtags" };
        cc(&["-o", "app", "main.c", &format!("./{soname}"), &format!("-Wl,{tags},-rpath,$ORIGIN")], directory.path());
        for degree in [1, 2] {
            let program = directory.path().join("app");
            Job::new(2, &program).degree(degree).run().ended_with(0).printed("redrt\nredrt\n");
            // A script that starts the program; redrun does not see the program before.
            let script = format!("{}; true", program.display());
            let job = Job::new(2, Path::new("/bin/sh")).degree(degree).arguments(&["-c", &script]);
            job.run().ended_with(0).printed("redrt\nredrt\n");
            let said = refused(&["--abi", "standard"], &program);
            assert!(said.contains(&format!("({soname}), and not for redrt")), "{said}");
        }
    }
}

#[test]
fn a_library_that_a_program_loads_by_its_path_is_redrts() {
    let directory = tempfile::tempdir().expect("there is room");
    built_for(directory.path(), "libmpi.so.40");
    // Under the name of its link, and by a program that only needs it.
    std::os::unix::fs::symlink("libmpi.so.40", directory.path().join("libmpi.so")).expect("there is room");
    let source = "#include <dlfcn.h>\n#include <stdio.h>\n#include <string.h>\nint main(int count, char **words) {\n\
        void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);\n\
        if (!library) { puts(dlerror()); return 1; }\n\
        int (*init)(int *, char ***) = (int (*)(int *, char ***))dlsym(library, \"MPI_Init\");\n\
        int (*finalize)(void) = (int (*)(void))dlsym(library, \"MPI_Finalize\");\n\
        puts(init && finalize && init(0, 0) == 0 && finalize() == 0 ? \"well\" : \"bad\");\n    return 0;\n}\n";
    std::fs::write(directory.path().join("main.c"), source).expect("it can be written");
    cc(&["-o", "app", "main.c", "-ldl"], directory.path());
    for name in ["libmpi.so", "libmpi.so.40", "libsolver.so"] {
        let library = directory.path().join(name).display().to_string();
        let ended = Job::new(2, &directory.path().join("app")).arguments(&[&library]).run();
        ended.ended_with(0).printed("well\nwell\n");
    }
    // By the link name alone, wherever the linker would look.
    let (place, app) = (directory.path().display(), directory.path().join("app").display().to_string());
    let search = format!("LD_LIBRARY_PATH={place}");
    let job = Job::new(2, Path::new("/usr/bin/env")).arguments(&[&search, &app, "libmpi.so"]);
    job.run().ended_with(0).printed("well\nwell\n");
    // A missing library stays missing, and other libraries are untouched.
    let missing = directory.path().join("none/libmpi.so.40").display().to_string();
    let ended = Job::new(1, &directory.path().join("app")).arguments(&[&missing]).run().ended_with(1);
    assert!(ended.out.contains("cannot open shared object file"), "{ended}");
}

#[test]
fn libraries_call_their_own_functions_in_any_company() {
    for name in ["libmpi_abi.so.1", "redrt/libmpi.so.12", "redrt/libmpi.so.40"] {
        let library = prefix().join("lib").join(name);
        let output = Command::new("readelf").arg("-Wr").arg(&library).output().expect("binutils are there");
        let relocations = String::from_utf8_lossy(&output.stdout);
        assert!(relocations.contains("R_X86_64_RELATIVE"), "{name} was not read");
        // A function bound by name would be that of a library loaded earlier, a façade or a tool.
        let is_own = |symbol: &&str| symbol.starts_with("MPI_") || symbol.starts_with("PMPI_");
        let by_name = relocations.split_whitespace().find(is_own);
        assert_eq!(by_name, None, "{name} calls what it has itself by its name");
    }
}
