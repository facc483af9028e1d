//! `clone-bench`: the cost of cloning a process, beside a plain stream of as many bytes over the same link.
//!
//! The process has memory of a given size and 16 threads that write to it at a given rate. Source and destination share
//! the processors of this machine, over loopback.

mod plain;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const SECRET: &str = "c10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10ec10e";

/// Measure the cost of clones.
#[derive(Parser)]
struct CloneBenchArguments {
    /// An installation of redrt
    #[arg(long, value_name = "DIRECTORY")]
    prefix: PathBuf,
    /// Sizes in GiB
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    sizes: Vec<u64>,
    /// Rates of writing in MiB a second
    #[arg(long, value_delimiter = ',', default_value = "0,100,500")]
    rates: Vec<u64>,
    /// Clones of each; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Connections
    #[arg(long, default_value_t = 2)]
    streams: u16,
}

/// Measurements of one clone.
struct Figures {
    size: f64,
    total: f64,
    downtime: f64,
    plain: f64,
    sent: f64,
    slowdown: f64,
}

impl Figures {
    /// Total time over that of a plain stream of as many bytes.
    fn ratio(&self) -> f64 {
        self.total / (self.plain * self.sent / self.size)
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = CloneBenchArguments::parse();
    let private = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    let work = tempfile::Builder::new().permissions(private).tempdir()?;
    let ballast = work.path().join("ballast");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/ballast.c");
    let built = Command::new("cc").args(["-O2", "-pthread", "-o"]).args([&ballast, &source]).status()?;
    ensure!(built.success(), "{} does not compile", source.display());
    println!("Load average before: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    println!();
    println!(
        "| GiB | written, MiB/s | total, s | plain stream, s | ratio | downtime, ms | sent, GiB | program slower by, % |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    for size in &arguments.sizes {
        for rate in &arguments.rates {
            let mut all = Vec::new();
            for _ in 0..arguments.runs {
                all.push(measure(&arguments, work.path(), &ballast, *size, *rate)?);
            }
            let median = |f: fn(&Figures) -> f64| {
                let mut values: Vec<f64> = all.iter().map(f).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            println!(
                "| {size} | {rate} | {:.2} | {:.2} | {:.2} | {:.1} | {:.2} | {:.0} |",
                median(|f| f.total),
                median(|f| f.plain),
                median(Figures::ratio),
                median(|f| f.downtime),
                median(|f| f.sent),
                median(|f| f.slowdown),
            );
        }
    }
    Ok(())
}

/// A child that is killed when this is dropped.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(
    arguments: &CloneBenchArguments,
    work: &Path,
    ballast: &Path,
    size: u64,
    rate: u64,
) -> anyhow::Result<Figures> {
    let redclone = arguments.prefix.join("bin/redclone");
    let command = || {
        let mut command = Command::new(&redclone);
        command.env("REDCLONE_SECRET", SECRET).env("REDCLONE_DIR", work);
        command
    };
    let (address_file, pid_file) = (work.join("address"), work.join("pid"));
    let _ = std::fs::remove_file(&address_file);
    let mut serve = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--address-file"]).arg(&address_file);
    let _serve = Owned(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let mut run = command();
    run.args(["run", "--quiet", "--pid-file"]).arg(&pid_file).arg("--").arg(ballast);
    run.args([(size << 10).to_string(), rate.to_string()]);
    let mut source = Owned(run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let mut program = Program {
        input: source.0.stdin.take().context("piped")?,
        output: BufReader::new(source.0.stdout.take().context("piped")?),
    };
    ensure!(program.line()? == "running", "the program does not start");
    let pid = std::fs::read_to_string(&pid_file)?;
    let address = std::fs::read_to_string(&address_file)?;

    // Each side begins with memory that was in use just before.
    let ready = (size << 30) + (256 << 20);
    plain::touch(ready)?;
    let plain = plain::stream(size << 30, usize::from(arguments.streams))?.as_secs_f64();
    let usual = program.rate(Duration::from_millis(500))?;
    plain::touch(ready)?;
    let (begin, before) = (Instant::now(), program.count()?);
    let mut push = command();
    push.args(["push", pid.trim(), address.trim(), "--json", "--close-unsupported", "--streams"])
        .arg(arguments.streams.to_string());
    let pushed = push.arg("--quiet").stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let during = (program.count()? - before) as f64 / begin.elapsed().as_secs_f64();
    ensure!(pushed.status.success(), "redclone push ended with {}", pushed.status);
    let text = String::from_utf8(pushed.stdout)?;
    let done = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|event| event["event"] == "done");
    let Some(done) = done else { bail!("redclone push did not report") };
    let number = |name: &str| done[name].as_f64().with_context(|| format!("no {name} in the report"));
    Ok(Figures {
        size: size as f64,
        total: number("total_ms")? / 1e3,
        downtime: number("downtime_ms")?,
        plain,
        sent: number("sent_bytes")? / f64::from(1 << 30),
        slowdown: 100.0 * (1.0 - during / usual),
    })
}

/// The program to clone.
struct Program {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Steps that its threads have done.
    fn count(&mut self) -> anyhow::Result<u64> {
        self.input.write_all(b"\n")?;
        Ok(self.line()?.parse()?)
    }

    /// Steps a second, over `time`.
    fn rate(&mut self, time: Duration) -> anyhow::Result<f64> {
        let (begin, before) = (Instant::now(), self.count()?);
        std::thread::sleep(time);
        Ok((self.count()? - before) as f64 / begin.elapsed().as_secs_f64())
    }
}
