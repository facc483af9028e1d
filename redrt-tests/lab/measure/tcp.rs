//! Messages between two hosts, beside Open MPI and MPICH over the same link, with the same congestion control.

use redrt_tests::lab::lab;
use redrt_tests::{Lab, prefix, root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const SECONDS: &str = "0.2";

/// A library: its name, its compiler, and the command that starts two of its processes on two hosts.
struct Peer {
    name: &'static str,
    compiler: PathBuf,
    start: fn(&Lab, &mut Command),
}

fn peers() -> [Peer; 3] {
    [
        Peer {
            name: "redrt",
            compiler: prefix().join("bin/mpicc"),
            start: |lab, command| {
                command.arg(prefix().join("bin/redrun"));
                command.args([
                    "-q",
                    "-n",
                    "2",
                    "-hosts",
                    "h1:1,h2:1",
                    "--transport",
                    "tcp",
                    "--launcher-exec",
                    &lab.ssh(),
                ]);
            },
        },
        Peer {
            name: "Open MPI",
            compiler: "mpicc.openmpi".into(),
            start: |lab, command| {
                // Both hosts are this machine: if bound, both processes would share a processor.
                command.args([
                    "mpirun.openmpi",
                    "--allow-run-as-root",
                    "--bind-to",
                    "none",
                    "-n",
                    "2",
                    "--host",
                    "h1:1,h2:1",
                ]);
                command.args(["--mca", "plm_rsh_agent", &lab.ssh(), "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
                command.args(["--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]);
            },
        },
        Peer {
            name: "MPICH",
            compiler: "mpicc.mpich".into(),
            start: |lab, command| {
                command.args([
                    "UCX_TLS=tcp,self",
                    "UCX_NET_DEVICES=eth0",
                    "mpiexec.mpich",
                    "-n",
                    "2",
                    "-hosts",
                    "h1,h2",
                ]);
                command.args(["-ppn", "1", "-iface", "eth0", "-launcher", "ssh", "-launcher-exec", &lab.ssh()]);
            },
        },
    ]
}

fn compile(peer: &Peer, directory: &Path) -> Option<PathBuf> {
    let program = directory.join(peer.name.replace(' ', "-"));
    let source = root().join("redrt-benches/programs/pairs.c");
    let mut command = Command::new(&peer.compiler);
    let output = command.args(["-O2", "-w", "-o"]).arg(&program).arg(source).arg("-lm").output();
    match output {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            eprintln!("{} is left out: {}", peer.name, String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(error) => {
            eprintln!("{} is left out: {error}", peer.name);
            None
        }
    }
}

/// The best slice of each figure, with the figure's unit.
fn run(peer: &Peer, lab: &Lab, program: &Path) -> BTreeMap<String, (f64, String)> {
    let mut command = lab.on("h1");
    command.arg(format!("PATH={}", std::env::var("PATH").unwrap_or_default()));
    (peer.start)(lab, &mut command);
    let output = command.arg(program).arg(SECONDS).output().expect("nsenter can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}{}", peer.name, String::from_utf8_lossy(&output.stderr));
    let figure = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, _, best, unit) = (words.next()?, words.next()?, words.next()?, words.next()?);
        Some((name.to_owned(), (best.parse().ok()?, unit.to_owned())))
    };
    text.lines().filter_map(figure).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the table: medians of `count` runs of each library in turn.
pub fn compare(count: usize) -> Option<()> {
    let lab = lab(2)?;
    for host in ["h1", "h2"] {
        // A namespace may not set its default congestion control freely, but may set a route's.
        let route = ["ip", "route", "replace", "10.77.0.0/24", "dev", "eth0", "congctl", "cubic"];
        assert!(lab.on(host).args(route).status().is_ok_and(|status| status.success()), "cubic cannot be chosen");
    }
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let compiled = |peer: Peer| compile(&peer, directory.path()).map(|program| (peer, program));
    let peers: Vec<_> = peers().into_iter().filter_map(compiled).collect();
    let mut figures: BTreeMap<String, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    let mut units = BTreeMap::new();
    for _ in 0..count {
        for (peer, program) in &peers {
            for (name, (value, unit)) in run(peer, &lab, program) {
                units.insert(name.clone(), unit);
                figures.entry(name).or_default().entry(peer.name).or_default().push(value);
            }
        }
    }
    println!("medians of {count} alternating runs, best slices, two hosts, cubic for all\n");
    let names: Vec<_> = peers.iter().map(|(peer, _)| peer.name).collect();
    println!("| | unit | {} | redrt / best peer |", names.join(" | "));
    println!("|---|---|{}---:|", "---:|".repeat(names.len()));
    for (figure, of) in figures {
        let medians: Vec<f64> =
            names.iter().map(|name| of.get(name).map_or(f64::NAN, |values| median(values.clone()))).collect();
        let is_rate = units[&figure].ends_with("/s");
        let best = medians[1..].iter().copied().fold(f64::NAN, if is_rate { f64::max } else { f64::min });
        let cells: Vec<_> = medians.iter().map(|value| format!("{value:.2}")).collect();
        println!("| {figure} | {} | {} | {:.2} |", units[&figure], cells.join(" | "), medians[0] / best);
    }
    Some(())
}
