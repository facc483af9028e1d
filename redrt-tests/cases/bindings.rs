//! Processors that processes may use.

use redrt_tests::{Ended, Job, compile};
use std::path::Path;

/// A job whose processes print the processors that they may use.
fn bound(rank_count: u32, options: &[&str]) -> Ended {
    let job = Job::new(rank_count, Path::new("/bin/sh")).arguments(&["-c", "grep Cpus_allowed_list /proc/self/status"]);
    job.options(options).run().ended_with(0)
}

/// The lists that the processes have printed, sorted.
fn lists(ended: &Ended) -> Vec<&str> {
    let mut lists: Vec<_> = ended.out.lines().filter_map(|line| Some(line.split_once(':')?.1.trim())).collect();
    lists.sort_unstable();
    lists
}

#[test]
fn processes_are_bound_to_cores() {
    let all = lists(&bound(1, &[])).concat();
    // The two processes get the first two cores of the machine.
    let one = lists(&bound(1, &["--bind-to", "core"])).concat();
    let ended = bound(2, &["--bind-to", "core", "--report-bindings"]);
    let two = lists(&ended);
    assert!(two.contains(&one.as_str()), "{ended}");
    assert_eq!(two[0] == two[1], one == all, "of one core both have it: {ended}");
    for (replica, list) in [("0.0", &one), ("1.0", &two.concat().replacen(&one, "", 1))] {
        assert!(ended.err.lines().any(|line| line.contains(replica) && line.ends_with(&format!(" {list}"))), "{ended}");
    }
    // Processes with more threads than there are cores have all.
    let threads = bound(2, &["--bind-to", "core", "-x", "OMP_NUM_THREADS=4096,2"]);
    assert_eq!(lists(&threads), [&all, &all], "{threads}");
}

/// Number of processors in a list.
fn count(list: &str) -> usize {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<usize>().expect("a number") - first.parse::<usize>().expect("a number") + 1
    };
    list.split(',').map(range).sum()
}

#[test]
fn processes_have_equal_shares_of_the_cores_if_nothing_is_said() {
    let all = lists(&bound(1, &[])).concat();
    let ended = bound(2, &["--report-bindings"]);
    assert_eq!(ended.err.matches("binding: ").count(), 2, "{ended}");
    let two = lists(&ended);
    match count(&all) {
        1 => assert_eq!(two, [&all, &all], "{ended}"),
        // With an odd number of cores, one process has more.
        of_all => assert!(two.iter().map(|list| count(list)).sum::<usize>() == of_all && two[0] != two[1], "{ended}"),
    }
    // Processes have no shares where there are too few processors, where binding is off, or where threads have places
    // already.
    let many = u32::try_from(count(&all)).expect("few") + 1;
    let unbound: [(u32, &[&str]); 4] =
        [(many, &[]), (2, &["--bind-to", "none"]), (2, &["-x", "OMP_PLACES=cores"]), (2, &["--spares", "1"])];
    for (rank_count, options) in unbound {
        let ended = bound(rank_count, options);
        assert!(lists(&ended).iter().all(|list| *list == all), "{options:?}: {ended}");
    }
}

/// Runs a job with a rankfile of these lines.
fn placed(lines: &str, rank_count: u32, options: &[&str], code: i32) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ranks");
    std::fs::write(&file, lines).unwrap();
    let job = Job::new(rank_count, Path::new("/bin/sh")).arguments(&["-c", "grep Cpus_allowed_list /proc/self/status"]);
    job.options(&["--rankfile", file.to_str().unwrap(), "--report-bindings"]).options(options).run().ended_with(code)
}

#[test]
fn a_rankfile_says_what_a_process_may_use() {
    let all = lists(&bound(1, &[])).concat();
    let one = lists(&bound(1, &["--bind-to", "core"])).concat();
    let ended = placed("rank 1=localhost slot=0 # the first\n", 2, &["--bind-to", "none"], 0);
    let bindings: Vec<_> = ended.err.lines().filter(|line| line.contains("binding: ")).collect();
    let of = |replica: &str| bindings.iter().find(|line| line.contains(&format!(" {replica} on "))).copied();
    assert!(of("0.0").is_some_and(|line| line.ends_with(&format!(" {all}"))), "{ended}");
    assert!(of("1.0").is_some_and(|line| line.ends_with(&format!(" {one}"))), "{ended}");
    // The reported bindings are the real ones.
    let mut expected = vec![&all[..], &one];
    expected.sort_unstable();
    assert_eq!(lists(&ended), expected, "{ended}");
    // A replica that can be copied. With one host it cannot be moved away from its sibling.
    let ended = placed("rank 0.1=+n0 slot=*\n", 1, &["-r", "2", "--spares", "1", "--stdout", "leader"], 0);
    assert!(ended.err.contains("binding: 0.1 on "), "{ended}");
}

#[test]
fn cores_that_are_not_there_are_named() {
    let ended = placed("rank 0=+n0 slot=0\nrank 1=+n0 slot=60000\n", 2, &[], 2);
    ended.said("line 2: slot=60000 for 1.0: this host has ");
}

/// The parent of such a process is its helper.
#[test]
fn replicas_that_can_be_copied_are_bound_too() {
    let one = lists(&bound(1, &["--bind-to", "core"])).concat();
    let ended = bound(1, &["--bind-to", "core", "-r", "2", "--spares", "1", "--stdout", "leader"]);
    assert_eq!(lists(&ended), [one], "{ended}");
}

/// Replicas have the same environment except for the variables with their devices.
#[test]
fn each_replica_is_told_of_its_own_gpus() {
    let directory = tempfile::tempdir().unwrap();
    let told = "echo $REDRT_RANK $CUDA_VISIBLE_DEVICES > $0/$REDRT_LOCAL_INDEX";
    let job = Job::new(2, Path::new("/bin/sh")).degree(2).environment("CUDA_VISIBLE_DEVICES", "4,5,6,7");
    let directory_name = directory.path().to_str().unwrap();
    let ended = job.arguments(&["-c", told, directory_name]).options(&["--gpus-per-process", "1"]).run().ended_with(0);
    let told = (0..4).map(|index| std::fs::read_to_string(directory.path().join(index.to_string())).unwrap());
    let mut told: Vec<_> = told.map(|line| line.trim().to_owned()).collect();
    assert!((4..8).zip(&told).all(|(device, line)| line.ends_with(&format!(" {device}"))), "{told:?}");
    told.sort();
    assert_eq!(told.iter().filter(|line| line.starts_with("0 ")).count(), 2, "{told:?}\n{ended}");
}

#[test]
fn too_few_gpus_are_told() {
    let job = Job::new(2, Path::new("/bin/true")).environment("CUDA_VISIBLE_DEVICES", "0");
    let ended = job.options(&["--gpus-per-process", "1"]).run().ended_with(0);
    ended.said("2 processes share 1 GPUs, of which 2 are needed");
}

/// A process without a core of its own copies more; the choice to copy or to read in place must be the same for all.
#[test]
fn ranks_that_may_use_different_cores_agree_on_what_is_copied() {
    let boards = compile("boards");
    let lines = |ended: &Ended| {
        let mut lines: Vec<_> = ended.out.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let expected = lines(&Job::new(2, &boards).arguments(&["1"]).run().ended_with(0));
    let first = lists(&bound(1, &["--bind-to", "core"])).concat();
    for bound in ["0", "1"] {
        let run = r#"[ $REDRT_RANK = "$2" ] && exec taskset -c "$1" "$0" 1; exec "$0" 1"#;
        let arguments = ["-c", run, boards.to_str().unwrap(), &first, bound];
        let ended = Job::new(2, Path::new("/bin/sh")).arguments(&arguments).run().ended_with(0);
        assert_eq!(lines(&ended), expected, "{ended}");
    }
}
