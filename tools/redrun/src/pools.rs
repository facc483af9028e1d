//! Thread pools where cores are shared: idle threads are to sleep, not to spin.
//!
//! OpenMP's threads spin at the end of each parallel region, and those of BLAS libraries do likewise. That saves a
//! wake-up where each thread has a core. Where threads share cores, a spinning thread keeps a core from threads with
//! work, and a region lasts as long as the kernel's time slice of an idle thread.
//!
//! The program gets the same settings on all hosts: replicas must see the same environment. A program for which the
//! user has set any of a pool's variables is left alone.

use redrt_wire::daemon::Application;
use std::ffi::OsStr;

/// A kind of pool: variables with its number of threads, of which the first that is set counts, and variables that make
/// it sleep.
struct Pool {
    counts: &'static [&'static str],
    settings: &'static [(&'static str, &'static str)],
}

const POOLS: [Pool; 2] = [
    // Variables of the standard, of GNU, and of Intel and LLVM, whose runtime MKL uses.
    Pool {
        counts: &["OMP_NUM_THREADS"],
        settings: &[("OMP_WAIT_POLICY", "passive"), ("GOMP_SPINCOUNT", "0"), ("KMP_BLOCKTIME", "0")],
    },
    // OpenBLAS with its own threads: the spin time as a power of two of cycles, of which 4 is the least.
    Pool {
        counts: &["OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"],
        settings: &[("OPENBLAS_THREAD_TIMEOUT", "4")],
    },
];

/// A host's load by the job.
#[derive(Clone, Copy)]
pub struct Host {
    /// Processes of the job on the host.
    pub process_count: u32,
    /// Cores; 0 if unknown.
    pub cpu_count: u32,
}

impl Host {
    /// True if processes with pools of `threads` threads share cores. `None`: one thread for each core.
    fn is_shared(&self, threads: Option<u32>) -> bool {
        let threads = threads.unwrap_or(self.cpu_count);
        self.cpu_count > 0 && threads > 1 && self.process_count.saturating_mul(threads) > self.cpu_count
    }
}

/// Sets the variables for a program that runs on these hosts. Returns the settings, for the user.
pub fn let_sleep(application: &mut Application, hosts: &[Host]) -> Vec<String> {
    let is_set = |name: &str| value_of(application, name).is_some();
    let has_to_sleep = |pool: &&Pool| {
        let threads = pool.counts.iter().find_map(|name| value_of(application, name)).and_then(first_count);
        hosts.iter().any(|host| host.is_shared(threads)) && !pool.settings.iter().any(|(name, _)| is_set(name))
    };
    let settings: Vec<_> = POOLS.iter().filter(has_to_sleep).flat_map(|pool| pool.settings).collect();
    set_all(application, &settings)
}

/// Adds variables to a program's environment. Returns them, for the user.
pub fn set_all(application: &mut Application, settings: &[&(&str, &str)]) -> Vec<String> {
    application.environment.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    settings.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

pub fn value_of<'a>(application: &'a Application, name: &str) -> Option<&'a OsStr> {
    application.environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_os_str())
}

/// Number of threads of the outermost level: the first of a list (OpenMP 5.2 §21.1.2).
fn first_count(value: &OsStr) -> Option<u32> {
    value.to_str()?.split(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(environment: &[(&str, &str)], hosts: &[(u32, u32)]) -> Vec<String> {
        let environment: Vec<_> = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let mut application = Application {
            program: "/bin/true".into(),
            arguments: vec!["true".into()],
            environment: environment.clone(),
            directory: "/".into(),
            abi: redrt_wire::daemon::Abi::Standard,
        };
        let host =
            |(process_count, cpu_count): &(u32, u32)| Host { process_count: *process_count, cpu_count: *cpu_count };
        let hosts: Vec<_> = hosts.iter().map(host).collect();
        let told = let_sleep(&mut application, &hosts);
        let added = &application.environment[environment.len()..];
        let lines = added.iter().map(|(name, value)| format!("{}={}", name.display(), value.display()));
        assert_eq!(lines.collect::<Vec<_>>(), told);
        told
    }

    const OPENMP: [&str; 3] = ["OMP_WAIT_POLICY=passive", "GOMP_SPINCOUNT=0", "KMP_BLOCKTIME=0"];
    const BLAS: &str = "OPENBLAS_THREAD_TIMEOUT=4";

    #[test]
    fn pools_sleep_where_threads_share_cores() {
        let all = [&OPENMP[..], &[BLAS]].concat();
        // In order: a thread for each core in two processes; two threads on eight cores; and again, with a smaller
        // second host.
        assert_eq!(set(&[], &[(2, 2)]), all);
        assert!(set(&[("OMP_NUM_THREADS", "2")], &[(4, 8)]).is_empty());
        assert_eq!(set(&[("OMP_NUM_THREADS", "2")], &[(4, 8), (4, 4)]), all);
        assert_eq!(set(&[("OMP_NUM_THREADS", "3,2")], &[(3, 8)]), all);
        // In order: one process with all cores; one thread, so no pool; a host with unknown cores.
        assert!(set(&[], &[(1, 16)]).is_empty());
        assert!(set(&[("OMP_NUM_THREADS", "1")], &[(64, 2)]).is_empty());
        assert!(set(&[], &[(8, 0)]).is_empty());
    }

    #[test]
    fn what_the_user_has_set_stays() {
        assert_eq!(set(&[("OMP_WAIT_POLICY", "active")], &[(2, 2)]), [BLAS]);
        assert_eq!(set(&[("KMP_BLOCKTIME", "200")], &[(2, 2)]), [BLAS]);
        assert_eq!(set(&[("OPENBLAS_THREAD_TIMEOUT", "26")], &[(2, 2)]), OPENMP);
        assert_eq!(set(&[("OPENBLAS_NUM_THREADS", "1")], &[(2, 2)]), OPENMP);
        assert_eq!(set(&[("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "2")], &[(2, 2)]), [BLAS]);
        // A value that is no number is left to the runtime, and counts as unset.
        assert_eq!(set(&[("OMP_NUM_THREADS", "many")], &[(2, 2)]).len(), 4);
    }
}
