use super::*;
use redrt_wire::control::Transport;
use redrt_wire::dynamic::{Command, INITIAL_ERRHANDLER_VARIABLE};

/// Words of a command line, behind the program's name.
pub fn words(line: &str) -> Vec<OsString> {
    std::iter::once("redrun").chain(line.split(' ')).map(OsString::from).collect()
}

fn parse_line(line: &str) -> Result<Box<Job>, String> {
    match expand(words(line), &Defaults::default()).and_then(parse) {
        Ok(Request::Run(job)) => Ok(job),
        Ok(Request::RunSpawned(_)) => Err("spawned".into()),
        Ok(Request::Attach { wanted: job, .. }) => Err(format!("attach to {job:?}")),
        Ok(Request::Print(text)) => Err(String::from_utf8(text).unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn both_dialects_of_mpiexec_are_understood() {
    let job = parse_line("-np 3 -genv A 1 -env B 2 -x C=3 -wdir /tmp --seed 5 sh -n -c true").unwrap();
    assert_eq!(job.world.rank_count(), 3);
    let application = &job.applications[0];
    assert_eq!(application.arguments, ["sh", "-n", "-c", "true"]);
    assert_eq!(application.directory, PathBuf::from("/tmp"));
    for (name, value) in [("A", "1"), ("B", "2"), ("C", "3")] {
        assert!(application.environment.contains(&(name.into(), value.into())), "{name}");
    }
    assert_eq!(job.options.seed, 5);
    let job = parse_line("-n4 -lq -r2 --timeout=5 -y-is-no-option true").unwrap_err();
    assert!(job.contains("'-y-is-no-option'"), "{job}");
    assert!(parse_line("-np 2 --oversubscribe --allow-run-as-root -envall -genvall true").is_ok());
    let job = parse_line("-n4 -lq -r2 --timeout=5 true -x").unwrap();
    assert!(job.world.process_count() == 8 && job.label && job.quiet);
}

#[test]
fn what_the_standard_wants_of_mpiexec_is_understood() {
    // MPI-5.0 section 11.5.
    let count = |line: &str| parse_line(line).unwrap().world.rank_count();
    assert_eq!(count("-n 10 -soft 1,4:16:4 true"), 8);
    assert_eq!(count("-n 3 -soft 2:9 -arch x86_64 true"), 3);
    assert_eq!(count("-n 2 -soft 1:2 true : -n 9 -soft 0:8:2 true"), 10);
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/sh", directory.path().join("own-program")).unwrap();
    let path = directory.path().display();
    let job = parse_line(&format!("-path /nowhere:{path} own-program")).unwrap();
    assert_eq!(job.applications[0].program, directory.path().join("own-program"));
    let file = directory.path().join("config");
    let text = "# two programs\n-n 2 -wdir / sh -c 'exit 3'\n\n -n 3 \\\n true\n";
    std::fs::write(&file, text).unwrap();
    let job = parse_line(&format!("-configfile {}", file.display())).unwrap();
    assert_eq!(job.application_of_rank, [0, 0, 1, 1, 1]);
    assert_eq!(job.applications[0].arguments, ["sh", "-c", "exit 3"]);
    std::fs::write(&file, "[redrun]\ndegree = 2\nlabel = true\n").unwrap();
    let job = parse_line(&format!("-n 2 -file {} true", file.display())).unwrap();
    assert!(job.label && job.world.process_count() == 4);
    let handler = |job: &Job, at: usize| {
        let environment = &job.applications[at].environment;
        environment.iter().find(|(name, _)| name == INITIAL_ERRHANDLER_VARIABLE).map(|(_, value)| value.clone())
    };
    let job = parse_line("-initial-errhandler mpi_errors_return true : -initial-errhandler mpi_errors_abort true");
    let job = job.unwrap();
    assert_eq!(
        (handler(&job, 0), handler(&job, 1)),
        (Some("mpi_errors_return".into()), Some("mpi_errors_abort".into()))
    );
    for (text, says) in [
        ("sh -c 'exit", "line 1: a quote has no end"),
        ("true \\", "the last line goes on"),
        ("-configfile x", "cannot name another"),
        ("-n x true", "-n x: not a number"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = parse_line(&format!("-configfile {}", file.display())).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_job_outlives_its_terminal_if_that_is_wanted() {
    assert_eq!(parse_line("-n 2 true").unwrap().terminal, Terminal::Own);
    assert_eq!(parse_line("--detachable true").unwrap().terminal, Terminal::Detachable { leaves: false });
    assert_eq!(parse_line("--detach true").unwrap().terminal, Terminal::Detachable { leaves: true });
    assert_eq!(
        parse_line("--coordinator --detach true").unwrap().terminal,
        Terminal::Coordinator { comes_back: None, quorum: None }
    );
    let back = parse_line("--coordinator --come-back=00000000000001ab --detach true").unwrap_err();
    assert_eq!(back, "job 00000000000001ab has left nothing to go on with");
    assert_eq!(parse_line("--attach 01ab").unwrap_err(), r#"attach to Some("01ab")"#);
    assert_eq!(parse_line("--attach").unwrap_err(), "attach to None");
}

#[test]
fn processes_wait_for_a_coordinator_that_can_come_back() {
    let lease = |line| parse_line(line).map(|job| job.hosts.coordinator_lease.as_secs());
    assert_eq!(lease("--detachable --coordinator-lease 2min true"), Ok(120));
    assert_eq!(lease("--detachable --coordinator-lease 0 true"), Ok(0));
    assert_eq!(lease("true"), Ok(0));
    assert_eq!(lease("--detachable -r 2 --spares 1 --arbitrate true"), Ok(600));
    assert_eq!(lease("--detach --checkpoint asked --output-dir out true"), Ok(600));
    let journal = |line| parse_line(line).map(|job| job.hosts.coordinator_journal_bytes);
    assert_eq!((journal("--detach --coordinator-journal 4KiB true"), journal("true")), (Ok(4096), Ok(32 << 20)));
    let coordinators = |line| parse_line(line).map(|job| job.hosts.coordinators);
    assert_eq!((coordinators("--detach --coordinators 3 true"), coordinators("--detach true")), (Ok(3), Ok(1)));
    let old = "--detachable --roots 3 --root-lease 2min --root-journal 4KiB true";
    assert_eq!((coordinators(old), lease(old), journal(old)), (Ok(3), Ok(120), Ok(4096)));
    assert_eq!(
        (coordinators("--coordinators 1 true"), coordinators("--detachable --coordinators 5 true")),
        (Ok(1), Ok(5))
    );
    for (line, count) in [
        ("--detachable -hosts h1,h2,h3 true", 3),
        ("--detach --coordinators 1 -hosts h1,h2,h3 true", 1),
        ("-hosts h1,h2,h3 true", 1),
        ("--detachable --coordinator-lease 0 -hosts h1,h2,h3 true", 1),
        ("--detach -hosts h1,h2 true", 1),
    ] {
        assert_eq!(coordinators(line), Ok(count), "{line}");
    }
    let refused = [
        ("--coordinators 3 true", "--coordinators 3: only the coordinator of a job with --detachable"),
        ("--detach --coordinators 3 --coordinator-lease 0 true", "--coordinator-lease 0"),
        ("--detach --coordinators 2 true", "--coordinators 2: 1, 3 or 5"),
        ("--detach --coordinators 0 true", "--coordinators 0"),
        ("--coordinator-lease 1min true", "--detachable"),
        ("--detach --coordinator-lease soon true", "not a time"),
        ("--coordinator-journal 1MiB true", "--detachable"),
        ("--detach --coordinator-journal long true", "--coordinator-journal"),
        ("--detach --coordinator-journal 1GiB true", "at most 256 MiB"),
        ("--detach --coordinator-journal 1 true", "--coordinator-journal 1: say 4 KiB or more"),
    ];
    for (line, says) in refused {
        let error = lease(line).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn several_programs_share_one_world() {
    let job = parse_line("-r 2 -genv A 1 -n 2 sh : -n 3 -env B 2 true : false").unwrap();
    assert_eq!(job.application_of_rank, [0, 0, 1, 1, 1, 2]);
    assert_eq!(job.world.process_count(), 12);
    let has = |number: usize, name: &str| job.applications[number].environment.iter().any(|(other, _)| other == name);
    assert!(has(0, "A") && has(1, "A") && has(2, "A"));
    assert!(has(1, "B") && !has(0, "B") && !has(2, "B"));
}

#[test]
fn a_host_file_of_spares_alone_leaves_none_for_the_job() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "localhost spare\n").unwrap();
    let error = parse_line(&format!("--hostfile {} true", file.path().display())).unwrap_err();
    assert_eq!(error, "all hosts are spares: there is none left for the job");
}

#[test]
fn wrong_command_lines_say_why_in_one_line() {
    let mut wrong = Vec::new();
    for (line, says) in [
        ("-n 2", "no program"),
        ("-n 0 true", "at least one rank"),
        ("-n x true", "not a number of ranks"),
        ("--attach -r 2 ab", "leave out --degree"),
        ("--attach -n 2 ab", "leave out --np"),
        ("--attach ab cd", "leave out 'cd'"),
        ("--attach ab : true", "leave out ':'"),
        ("-r 0 true", "at least one replica"),
        ("-n 2 no-such-program", "no program no-such-program"),
        ("-n 2 /proc/version", "not executable"),
        ("-n 2 /etc", "directory"),
        ("-wdir /no/such true", "/no/such"),
        ("-n 2 --inject kill:5.0@#1 true", "no replica 5.0"),
        ("-n 2 --inject kill true", "--inject kill"),
        ("-n 2 --replicate 0-5:2 true", "ranks 0 to 1"),
        ("-n 2 no\nsuch", "no program no such"),
        ("--timeout soon true", "--timeout"),
        ("--max-degree 3 true", "--spares"),
        ("--pool-secret /x true", "--pool"),
        ("--pool no-such-host.invalid true", "no-such-host.invalid"),
        ("-r 2 -H h1,h2 --spares 2 true", "one at least"),
        ("--no-such true", "unexpected argument '--no-such'"),
        ("-z true", "-z"),
        ("--transport pigeon true", "pigeon"),
        ("--stdout loud true", "loud"),
        ("-r 3 --check-determinism true", "two replicas"),
        ("--spares 1 --check-determinism true", "--spares"),
        ("-r 2 --arbitrate=0 true", "no interval"),
        ("-r 2 --arbitrate=soon true", "--arbitrate: 'soon'"),
        ("-r 3 --arbitrate true", "no rank has two replicas"),
        ("-r 2 --arbitrate --verify deferred true", "--verify deferred"),
        ("--arbitrate --check-determinism true", "--arbitrate"),
        ("--metrics :x true", "not HOST:PORT or PORT"),
        ("--metrics no-such-host.invalid:9100 true", "no-such-host.invalid"),
        ("-n 1 true : -n 0 true", "at least one rank"),
        ("-n 1 true : --bad true", "after ':': unexpected"),
        ("--audit /no/such/file true", "/no/such/file"),
        ("-rmk slurm true", "there is no option '-rmk'; -r takes a value: -r mk"),
        ("-nolocal true", "there is no option '-nolocal'"),
        ("-file /nosuch true", "/nosuch: No such file"),
        ("-file /dev/null true : -file /dev/null true", "after ':': -file is for the whole job"),
        ("-initial-errhandler mpi_errors true", "invalid value 'mpi_errors' for '--initial-errhandler <NAME>'"),
        ("-gpus-per-process 0 true", "invalid value '0' for '--gpus-per-process <N>'"),
        ("--web :x true", "--web :x: not HOST:PORT or PORT"),
        ("--metrics-targets /tmp true", "--metrics"),
        ("-rank-by core true", "there is no option '-rank-by'"),
        ("-rankfile /nosuch true", "--rankfile /nosuch: No such file"),
        ("-rf /dev/null true", "--rankfile /dev/null: it names no rank"),
        ("-rankfile", "a value is required for '--rankfile <FILE>'"),
        ("--map-by rankfile true", "invalid value 'rankfile' for '--map-by <WHAT>'"),
        ("--map-by rankfile:file=/nosuch true", "--rankfile /nosuch: No such file"),
        ("--map-by rankfile:file=/a -rankfile /b true", "--rankfile and --map-by rankfile exclude each other"),
        ("-rankfile /a --resume /b", "go where their images are"),
        ("-arch sparc true", "--arch sparc: this redrt is for x86_64"),
        ("-n 4 -soft x true", "--soft x: expected numbers of ranks"),
        ("-n 4 -soft 1:2:0 true", "--soft 1:2:0: a range is FIRST:LAST"),
        ("-n 4 -soft 0,5:9 true", "--soft 0,5:9: none of these is at least 1 and at most 4"),
        ("-path /usr/share no-such-program", "there is no program no-such-program"),
        ("-configfile /nosuch", "--configfile /nosuch: No such file"),
        ("-configfile /dev/null", "no program is in it"),
        ("-configfile /dev/null true", "leave out 'true'"),
        ("-r 2 -configfile /dev/null", "leave out --degree"),
        ("-mca btl", "2 values required for '--mca <NAME> <VALUE>'"),
        ("-bind-to rope true", "invalid value 'rope' for '--bind-to <WHAT>'"),
        ("-gpu true", "there is no option '-gpu'"),
        ("-lz true", "there is no option '-lz'"),
        ("-usize 5 true", "there is no option '-usize'"),
        ("--bind-to hwthread true", "invalid value 'hwthread' for '--bind-to <WHAT>'"),
        ("--bind-to", "a value is required for '--bind-to <WHAT>'"),
        ("--map-by ppr:2:socket true", "invalid value 'ppr:2:socket' for '--map-by <WHAT>'"),
        ("--map-by socket true", "say to what processes are bound"),
        ("-n -1 true", "-n -1: not a number of ranks"),
        ("-n -1x true", "-n -1x: not a number of ranks"),
        ("-np -3 true", "-n -3: not a number of ranks"),
        ("-n 1.5 true", "-n 1.5: not a number of ranks"),
        ("-n 99999999999 true", "not a number of ranks (1 to"),
        ("-n", "a value is required for '--np <N>'"),
        ("-r", "a value is required for '--degree <R>'"),
        ("-r x true", "-r x: not a number of replicas"),
        ("-r -2 true", "at least one replica"),
        ("-r 0.5 true", "at least one replica"),
        ("-r nan true", "at least one replica"),
        ("-r 99999999 true", "more than 64 replicas"),
        ("--timeout -1 true", "--timeout"),
        ("--seed x true", "invalid value 'x' for '--seed <N>'"),
        ("--seed -1 true", "invalid value '-1' for '--seed <N>'"),
        ("-ppn 0 true", "invalid value '0' for '--ppn <N>'"),
        ("--ppn", "a value is required for '--ppn <N>'"),
        ("-wdir", "a value is required for '--wdir <DIR>'"),
        ("-wdir /proc/version true", "Not a directory"),
        ("-env A true", "no program was given"),
        ("-x =3 true", "not a name of an environment variable"),
        ("--on-sdc foo true", "possible values: heal"),
        ("--strikes x true", "invalid value 'x' for '--strikes <N>'"),
        ("--on-event= true", "--on-event: the command is empty"),
        ("--checkpoint 5 true", "--checkpoint 5: say the unit, as in 5s, 5min or 5h"),
        ("--checkpoint 1.5 true", "--checkpoint 1.5: say the unit"),
        ("--checkpoint 0 true", "--checkpoint 0: say a time such as"),
        ("--checkpoint auto --mtbf 90 true", "--mtbf 90: say the unit"),
        ("--checkpoint 1h --checkpoint-dir /proc/version true", "/proc/version is not a directory"),
        ("--checkpoint 1h --checkpoint-dir /proc/version/below true", "/proc/version is not a directory"),
        ("--output-dir /proc/version true", "--output-dir /proc/version: /proc/version is not a directory"),
        ("--output-dir /proc/version/below true", "/proc/version is not a directory"),
        ("--profile /no/such/file true", "--profile /no/such/file: No such file"),
        ("--json-summary /no/such/file true", "--json-summary /no/such/file: No such file"),
        ("--json-summary /tmp true", "--json-summary /tmp: Is a directory"),
        ("--rankfile /dev/zero true", "--rankfile /dev/zero: it has more than 64 MiB"),
        ("--replicate x true", "expected RANKS:R"),
        ("--replicate 0 true", "expected RANKS:R"),
        ("--replicate 0:0 true", "a rank has 1 to 64 replicas"),
        ("--replicate 0:65 true", "a rank has 1 to 64 replicas"),
        ("-n 4 --replicate 3-1:2 true", "the range is backwards"),
        ("-n 2 --replicate 0:2,0:3 true", "--replicate 0:3: rank 0 is named twice"),
        ("-n 4 --replicate 0-2:2,2-3:3 true", "rank 2 is named twice"),
        ("--topology /nosuch true", "--topology /nosuch"),
        ("-f /nosuch true", "--hostfile /nosuch"),
        ("-hostfile /nosuch true", "--hostfile /nosuch"),
        ("-machinefile /nosuch true", "--hostfile /nosuch"),
        ("-H h1 -f /nosuch true", "exclude each other"),
        ("-hosts , true", "'' is not a host"),
        ("-H localhost:0 true", "'0' is not a number of slots"),
        ("-H localhost:x true", "'x' is not a number of slots"),
        ("-H h1,h1 true", "named twice"),
        ("-H h1,H1.cluster.example true", "host H1.cluster.example is named twice (also as h1)"),
        ("--launcher slurm true", "not inside a Slurm allocation"),
        ("--launcher fork -H h1 true", "this host only"),
        ("--spares -1 true", "invalid value '-1' for '--spares <N>'"),
        ("--scrub foo true", "--scrub: 'foo' is not a time"),
        ("--scrub 0 true", "0 seconds is no interval"),
        ("-r 2 --on-sdc return true", "say --checkpoint too"),
        ("--checkpoint 1h --checkpoint-proof always true", "at r = 1 nobody can vouch"),
        ("--look-interval 0 true", "0.1 seconds or more"),
        ("--stall-timeout 0.1 true", "processes are asked every"),
        ("--detect-timeout 0 true", "--detect-timeout"),
        ("--inject flip true", "unknown fault"),
        ("--inject kill:0.0@x true", "expected kill:V.I@#K"),
        ("--verify foo true", "possible values: strict, deferred"),
        ("--files foo true", "possible values: once, leader, all"),
        ("--threads foo true", "possible values: order, none"),
        ("--audit", "a value is required for '--audit <FILE>'"),
        ("-n 1 true :", "program 2, after ':': no program was given"),
        ("-n 1 true : -n 2", "program 2, after ':': no program was given"),
        ("-n 1 true : true : no-such-program", "program 3, after ':': there is no program no-such-program"),
        ("-n 1 true : -rmk x true", "after ':': there is no option '-rmk'"),
        (": true", "no program was given"),
    ] {
        let error = parse_line(line).err().unwrap_or_else(|| "it is taken for right".into());
        if !error.contains(says) || error.contains('\n') || error.contains("tip: to pass") {
            wrong.push(format!("{line}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ranks_that_can_be_copied_have_a_place_more() {
    for (line, place_count, live_count) in [
        ("-r 2 -n 2 true", 4, 4),
        ("-r 2 -n 2 --spares 1 true", 6, 4),
        ("-n 2 --spares 0 true", 4, 2),
        ("-r 2 -n 2 --spares 1 --max-degree 4 true", 10, 4),
        ("-r 3 -n 2 --spares 1 --max-degree 2 true", 8, 6),
        // And two for arbiters.
        ("-r 2 -n 2 --arbitrate true", 10, 4),
        ("-n 2 --replicate 0:2 --arbitrate=5 true", 7, 3),
    ] {
        let job = parse_line(line).unwrap();
        let live: u32 = (0..2).map(|rank| u32::from(job.degree(VirtualRank(rank)))).sum();
        assert_eq!((job.world.process_count(), live), (place_count, live_count), "{line}");
        assert_eq!(job.is_cloneable, place_count != live_count, "{line}");
        assert_eq!(job.arbitration_interval.is_some(), line.contains("--arbitrate"), "{line}");
    }
}

#[test]
fn settings_of_open_mpi_are_ignored_and_named() {
    let job = parse_line("--mca btl self,tcp -n 1 -mca oob_base x true : -mca btl tcp -n 1 true").unwrap();
    assert_eq!(job.world.rank_count(), 2);
    let ignored = job.ignored.expect("they are told");
    assert!(ignored.contains("Open MPI: btl, oob_base ("), "{ignored}");
    assert_eq!(parse_line("-n 1 true --mca btl tcp").unwrap().ignored, None, "the program's own");
}

#[test]
fn help_manual_and_completions_are_made() {
    assert!(parse_line("--help").unwrap_err().contains("Replication"));
    for (what, has) in
        [("man", ".TH redrun"), ("bash", "complete"), ("zsh", "#compdef"), ("fish", "complete -c redrun")]
    {
        assert!(parse_line(&format!("--generate {what}")).unwrap_err().contains(has), "{what}");
    }
}

#[test]
fn a_spawned_job_has_its_parents_options_and_hosts() {
    let spawned = |line: &str, hosts: Option<&str>, program: &str| {
        let job = parse_line(line).unwrap();
        let options = options_for_spawned(&job);
        let arguments = ["redrun".into(), "--spawned".into()].into_iter().chain(options).collect();
        let Ok(Request::RunSpawned(arguments)) = parse(arguments) else { panic!("it is spawned") };
        let command = Command {
            program: program.into(),
            arguments: vec![":".into(), "-n".into()],
            rank_count: 3,
            directory: "/usr".into(),
            path: Some("/nowhere:bin".into()),
            hosts: hosts.map(Into::into),
            initial_errhandler: Some("mpi_errors_abort".into()),
        };
        assemble_spawned(&arguments, vec![command.clone(), command], Origin::default())
    };
    let job = spawned("-n 1 --transport tcp -hosts localhost:2 --secure -l true", None, "env").unwrap();
    assert_eq!((job.world.rank_count(), job.application_of_rank.clone()), (6, vec![0, 0, 0, 1, 1, 1]));
    assert_eq!(job.applications[0].arguments[1..], [":", "-n"]);
    assert_eq!(
        (job.applications[0].program.clone(), job.applications[0].directory.clone()),
        ("/usr/bin/env".into(), "/usr".into())
    );
    let handler = (INITIAL_ERRHANDLER_VARIABLE.into(), "mpi_errors_abort".into());
    assert!(job.applications.iter().all(|application| application.environment.contains(&handler)));
    assert!(job.hosts.secure && job.label && job.quiet && job.options.transport == Transport::Tcp);
    assert_eq!((job.hosts.hosts.len(), job.hosts.hosts[0].slot_count), (1, Some(2)));
    assert!(!job.is_replicated() && job.origin.is_some());
    assert_eq!(spawned("-n 1 true", Some("h7,h8"), "env").unwrap().hosts.hosts.len(), 2);
    assert!(spawned("-n 1 true", None, "no-such-program").unwrap_err().0.contains("no program no-such-program"));
}
