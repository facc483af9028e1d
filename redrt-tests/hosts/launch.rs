//! Launches of jobs on several hosts, and launches that fail.

use crate::{HOSTS, nothing_left};
use redrt_tests::lab::{address, lab};
use redrt_tests::{Job, prefix};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Limit on the time until a failed launch has printed its one message and ended.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(10);

fn shell(rank_count: u32, script: &str) -> Job {
    Job::new(rank_count, Path::new("sh")).arguments(&["-c", script])
}

#[test]
fn ranks_run_where_they_are_put() {
    let Some(lab) = lab(4) else { return };
    let host = "cat /proc/sys/kernel/hostname";
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let where_is = |hosts: &str, options: &[&str]| {
        let script = format!("echo $REDRT_RANK $({host})");
        sorted(&shell(4, &script).on_hosts(&lab, hosts).options(options).run().ended_well().out)
    };
    assert_eq!(where_is("h1:2,h2:2", &[]), ["0 h1", "1 h1", "2 h2", "3 h2"]);
    assert_eq!(where_is("h1:3,h3:1", &[]), ["0 h1", "1 h1", "2 h1", "3 h3"]);
    assert_eq!(where_is("h2,h3", &["--map-by", "node"]), ["0 h2", "1 h3", "2 h2", "3 h3"]);
    assert_eq!(where_is("h1,h2,h3", &["-ppn", "2"]), ["0 h1", "1 h1", "2 h2", "3 h2"]);
    assert_eq!(where_is(HOSTS, &["--fan-out", "1"]), ["0 h1", "1 h2", "2 h3", "3 h4"]);
    let report = shell(2, "true").on_hosts(&lab, HOSTS).degree(2).options(&["--report-placement"]).run().ended_well();
    let report = report.said("placement: h1: 0.0\n").said("h2: 1.0").said("h3: 0.1").said("h4: 1.1");
    let racks = lab.path("racks");
    fs::write(&racks, "r1 h1 h3\nr2 h2 h4\n").expect("the temporary directory can be written");
    let options = ["--report-placement", "--topology", racks.to_str().expect("a plain path")];
    let apart = shell(1, "true").on_hosts(&lab, "h1,h3,h2").degree(2).options(&options).run().ended_well();
    let _ = apart.said("h1: 0.0").said("h3: free").said("h2: 0.1");
    nothing_left(&lab, &report);
}

#[test]
fn a_rankfile_places_replicas_and_siblings_go_elsewhere() {
    let Some(lab) = lab(4) else { return };
    let file = lab.path("ranks");
    let placed = |lines: &str, hosts: &[&str], rank_count: u32, degree: u16| {
        fs::write(&file, lines).expect("it can be written");
        let file = file.display().to_string();
        let job = shell(rank_count, "true").on(&lab, "h1").degree(degree).options(hosts);
        let options = ["--map-by", &format!("rankfile:file={file}"), "--launcher-exec", &lab.ssh()];
        job.options(&options).options(&["--report-placement"]).run()
    };
    let on_four = ["-hosts", HOSTS];
    let job = placed("rank 0=h4\nrank 1=h4\nrank 2.1=+n0 slot=0\n", &on_four, 4, 2).ended_well();
    let line = |host: &str| job.err.lines().find(|line| line.contains(&format!("placement: {host}: ")));
    let has = |host: &str, replica: &str| line(host).is_some_and(|line| line.split(' ').any(|word| word == replica));
    assert!(has("h4", "0.0") && has("h4", "1.0") && has("h1", "2.1"), "{job}");
    assert!(!has("h4", "0.1") && !has("h4", "1.1") && !has("h1", "2.0"), "{job}");
    assert!(!job.err.contains("replicas on the same host"), "{job}");
    nothing_left(&lab, &job);
    // When no hosts are named, the job gets those of the rankfile, and processes are bound there.
    let job = placed("rank 0=h2 slot=0\nrank 1=h3\n", &["--report-bindings"], 2, 1).ended_well();
    let job = job.said("placement: h2: 0.0\n").said("placement: h3: 1.0\n").said("binding: 0.0 on h2: processors ");
    nothing_left(&lab, &job);
    let ended = placed("rank 0=h1\nrank 1=h9\n", &on_four, 2, 1).ended_with(2);
    let ended = ended.said("line 2: host h9 is none of this job's");
    nothing_left(&lab, &ended);
}

/// The installed scripts run with the variables of these systems. In place of `blaunch` there is a script with the same
/// arguments.
#[test]
fn the_scripts_for_pbs_and_lsf_run_a_job_on_their_hosts() {
    let Some(lab) = lab(4) else { return };
    fs::create_dir(lab.path("bin")).expect("a new directory");
    let write = |name: &str, text: &str| script_file::write(lab.path(name), text);
    let ssh = format!("/usr/bin/ssh -F {}", lab.path("ssh_config").display());
    write("bin/ssh", &format!("#!/bin/sh\nexec {ssh} \"$@\"\n"));
    write("bin/blaunch", &format!("#!/bin/sh\nhost=$1\nshift\nexec {ssh} \"$host\" -- \"$@\"\n"));
    write("app", "#!/bin/sh\necho $REDRT_RANK $1 of $REDRT_SIZE\n");
    fs::write(lab.path("nodes"), "h1\nh1\nh2\nh2\nh3\nh3\nh4\nh4\n").expect("it can be written");
    let here = lab.path(".").display().to_string();
    let path = format!("PATH={}:{}:/usr/bin:/bin", lab.path("bin").display(), prefix().join("bin").display());
    let batch = |script: &str, variables: &[String]| {
        let mut command = lab.on("h1");
        command.arg("env").arg(format!("--chdir={here}")).arg(&path).arg("RANKS=3").args(variables);
        let output = command.arg(prefix().join("share/redrt").join(script)).output().expect("it can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines: Vec<_> = printed.lines().collect();
        lines.sort_unstable();
        assert!(output.status.success(), "{said}");
        assert_eq!(lines, ["0 input of 3", "1 input of 3", "2 input of 3"], "{said}");
        assert!(said.contains("3 ranks x 2 replicas"), "{said}");
    };
    let hosts = |name: &str| {
        let log = fs::read_to_string(lab.path(name)).unwrap_or_default();
        assert!(["h1", "h2", "h3", "h4"].iter().all(|host| log.contains(&format!("\"{host}\""))), "{log}");
    };
    let pbs = ["PBS_JOBID=7", "PROGRAM=./app", "ARGUMENTS=input"].map(str::to_owned);
    let node_file = format!("PBS_NODEFILE={}", lab.path("nodes").display());
    batch("redrun.pbs", &[&pbs[..], &[node_file, format!("PBS_O_WORKDIR={here}")]].concat());
    hosts("redrun.7.audit");
    let lsf = ["LSB_JOBID=8", "LSB_MCPU_HOSTS=h1 2 h2 2 h3 2 h4 2"].map(str::to_owned);
    batch("redrun.lsf", &lsf);
    hosts("redrun.8.audit");
    let of_file = format!("LSB_DJOB_HOSTFILE={}", lab.path("nodes").display());
    batch("redrun.lsf", &["LSB_JOBID=9".to_owned(), of_file]);
    hosts("redrun.9.audit");
    assert_eq!(lab.left_behind(Duration::from_secs(5)), Vec::<String>::new());
}

#[test]
fn a_host_file_is_read_in_all_its_forms() {
    let Some(lab) = lab(4) else { return };
    let file = lab.path("hostfile");
    fs::write(&file, "# the lab\nh1:1\nroot@h2 slots=2 # two\nh3\n\nh4 spare\n").expect("it can be written");
    let file = file.display().to_string();
    let job = shell(4, "cat /proc/sys/kernel/hostname").on(&lab, "h1");
    let job = job.options(&["-f", &file, "--launcher-exec", &lab.ssh(), "--report-placement"]).run().ended_well();
    let mut lines: Vec<_> = job.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["h1", "h2", "h2", "h3"], "{job}");
    let job = job.said("h4: spare");
    nothing_left(&lab, &job);
}

#[test]
fn environment_and_directory_go_along() {
    let Some(lab) = lab(2) else { return };
    let script = "echo $ONE $TWO $THREE $(pwd)";
    let job = shell(2, script).on_hosts(&lab, "h1,h2").environment("ONE", "1");
    let job = job.options(&["-x", "TWO=2", "-genv", "THREE", "it's three", "-wdir", "/usr/share"]).run().ended_well();
    assert_eq!(job.out, "1 2 it's three /usr/share\n".repeat(2), "{job}");
}

#[test]
fn input_and_output_cross_hosts_whole() {
    let Some(lab) = lab(3) else { return };
    let mut command = lab.on("h1");
    command.arg(prefix().join("bin/redrun")).args(["-q", "-l", "-r", "2", "-n", "2", "-hosts", "h2,h3"]);
    command.args(["--launcher-exec", &lab.ssh(), "sh", "-c", "[ $REDRT_RANK = 1 ] || wc -c; seq 50000"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("redrun can be run");
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, &vec![b'x'; 20 << 20]));
    let output = child.wait_with_output().expect("redrun is our child");
    writer.join().expect("no panic").expect("all input is taken");
    let text = String::from_utf8(output.stdout).expect("plain text");
    assert!(output.status.success());
    assert!(text.contains(&format!("[0] {}\n", 20 << 20)), "the input is not whole");
    for rank in 0..2 {
        let label = format!("[{rank}] ");
        let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&label)).collect();
        let numbers = lines.iter().skip(1 - rank).map(|line| line.parse::<u32>().expect("a whole line"));
        assert!(numbers.eq(1..=50_000), "rank {rank} is not whole");
    }
}

#[test]
fn a_failed_launch_has_one_message_that_names_the_host() {
    let Some(lab) = lab(3) else { return };
    // One host is switched off, and another's link is cut.
    lab.cut_power("h3");
    let refused = |hosts: &str, options: &[&str], says: &[&str]| {
        let job = Job::new(3, Path::new("true")).on(&lab, "h1").options(&["-hosts", hosts]);
        let job =
            if options.contains(&"--launcher-exec") { job } else { job.options(&["--launcher-exec", &lab.ssh()]) };
        let ended = job.options(options).run().within(REFUSAL_TIME_MAX);
        if ended.code == Some(0) || ended.hung() || ended.err.lines().count() != 1 {
            ended.fail("expected one message and an exit code");
        }
        let ended = says.iter().fold(ended, |ended, what| ended.said(what));
        nothing_left(&lab, &ended);
    };
    refused("h1,h2,h3", &[], &["host h3"]);
    refused("h1,h2,10.77.0.99", &[], &["host 10.77.0.99"]);
    refused("h1,h2,nowhere", &[], &["host nowhere"]);
    refused("h1,h2,h2", &[], &["h2 is named twice"]);
    refused(&format!("h1,h2,{}", address("h2")), &[], &["named twice"]);
    refused("h1,h2", &["--fan-out", "1", "-wdir", "/run/only-here"], &["/run/only-here"]);
    // The other host has another installation, or none: the launcher plays its part.
    let launcher = |name: &str, script: &str| {
        let path = lab.path(name);
        fs::write(&path, script).expect("it can be written");
        format!("sh {} {}", path.display(), lab.ssh())
    };
    let other = launcher(
        "other",
        "ssh=$1 host=$2; shift 2; exec $ssh $host \"$(echo \"$*\" | sed 's/version-wanted [^ ]*/version-wanted 9.9.9/')\"",
    );
    refused("h1,h2", &["--launcher-exec", &other], &["host h2", "version"]);
    let none = launcher(
        "none",
        "ssh=$1 host=$2; shift 2; exec $ssh $host \"$(echo \"$*\" | sed 's:/redrtd :/no-such-daemon :')\"",
    );
    refused("h1,h2", &["--launcher-exec", &none], &["host h2", "installed"]);
    // The daemon starts and cannot reach redrun.
    let astray = launcher(
        "astray",
        "ssh=$1 host=$2; shift 2; exec $ssh $host \"$(echo \"$*\" | sed 's/10.77.0.1:/10.77.0.77:/g')\"",
    );
    refused("h1,h2", &["--launcher-exec", &astray], &["host h2", "connect to redrun"]);
}

#[test]
fn a_program_that_is_missing_on_a_host_is_named_with_it() {
    let Some(lab) = lab(2) else { return };
    // Each host has a /run of its own.
    let copied = lab.on("h1").args(["cp", "/bin/true", "/run/only-here"]).status().expect("cp can be run");
    assert!(copied.success());
    let job = Job::new(2, Path::new("/run/only-here")).on_hosts(&lab, "h1,h2").run().ended_with(127);
    let job = job.said("h2").said("/run/only-here").within(REFUSAL_TIME_MAX);
    nothing_left(&lab, &job);
}

#[test]
fn a_link_that_is_cut_during_the_launch_ends_it_in_time() {
    let Some(lab) = lab(2) else { return };
    lab.cut_link("h2");
    let begin = Instant::now();
    let job = Job::new(2, Path::new("true")).on_hosts(&lab, "h1,h2").run().said("host h2");
    assert!(begin.elapsed() < REFUSAL_TIME_MAX, "{job}");
}
