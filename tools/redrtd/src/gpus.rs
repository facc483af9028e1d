//! GPUs of each process. Replicas of a rank see one environment, so no variable that gives a rank's place can tell its
//! replicas apart: on one host all would take the same device. The variables here are the only ones that differ between
//! replicas.

use std::path::Path;

/// Variable with the index of this process among those of its host.
pub const INDEX: &str = "REDRT_LOCAL_INDEX";
/// Variables that CUDA, ROCm and Level Zero read.
const DEVICES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
/// Pads these variables to the same total length in each replica: the environment lies above the stack, whose addresses
/// must equal those of the siblings.
const FILL: &str = "REDRT_LOCAL_FILL";
/// Total lengths are padded to a multiple of this, which exceeds any list of devices.
const FILL_BYTES: usize = 64;

/// GPUs of a host, and how many a process gets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gpus {
    /// Names of the devices for [`DEVICES`].
    names: Vec<String>,
    per_process: usize,
}

impl Gpus {
    /// The GPUs that a batch system has assigned to this host's daemon, or else all that are found. Empty if processes
    /// get none.
    #[must_use]
    pub fn of_this_host(per_process: u16) -> Self {
        let given = DEVICES.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
        let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let devices: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let of_amd = std::fs::read_dir(Path::new("/sys/class/kfd/kfd/topology/nodes")).into_iter().flatten().flatten();
        // Nodes without SIMD units are processors.
        let is_gpu = |text: &String| text.lines().any(|line| line.starts_with("simd_count ") && line != "simd_count 0");
        let texts = of_amd.filter_map(|node| std::fs::read_to_string(node.path().join("properties")).ok());
        Self::new(&given, &devices, texts.filter(is_gpu).count(), per_process)
    }

    /// From the value of such a variable, the names in `/dev`, and the number of AMD's GPUs.
    fn new(given: &str, devices: &[String], amd_count: usize, per_process: u16) -> Self {
        if per_process == 0 {
            return Self::default();
        }
        let is_nvidia = |name: &&String| {
            let number = name.strip_prefix("nvidia");
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let names: Vec<_> =
            given.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let count = devices.iter().filter(is_nvidia).count().max(amd_count);
        let names = if names.is_empty() { (0..count).map(|number| number.to_string()).collect() } else { names };
        Self { names, per_process: per_process.into() }
    }

    /// A warning if the GPUs do not suffice for this number of processes.
    #[must_use]
    pub fn record(&self, process_count: usize) -> Option<String> {
        let (per_process, needed, count) = (self.per_process, self.per_process * process_count, self.names.len());
        match count {
            _ if needed <= count => None,
            0 => {
                Some(format!("--gpus-per-process {per_process}: no GPU was found here; processes are not told of any"))
            }
            _ => Some(format!(
                "--gpus-per-process {per_process}: {process_count} processes share {count} GPUs, of which {needed} are \
                 needed"
            )),
        }
    }

    /// Variables of the process with this index on its host.
    #[must_use]
    pub fn variables(&self, index: usize) -> Vec<(&'static str, String)> {
        if self.per_process == 0 {
            return Vec::new();
        }
        let mut variables = vec![(INDEX, index.to_string())];
        if let count @ 1.. = self.names.len() {
            let first = index * self.per_process;
            // A higher count would name a device twice.
            let own = (first..first + self.per_process.min(count)).map(|number| self.names[number % count].as_str());
            let own = own.collect::<Vec<_>>().join(",");
            variables.extend(DEVICES.map(|name| (name, own.clone())));
        }
        let used: usize = variables.iter().map(|(_, value)| value.len()).sum();
        variables.push((FILL, ".".repeat(used.next_multiple_of(FILL_BYTES) - used)));
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_nvidia(count: usize, given: &str, per_process: u16) -> Gpus {
        let mut devices: Vec<_> = (0..count).map(|number| format!("nvidia{number}")).collect();
        devices.extend(["nvidiactl", "nvidia-uvm", "nvidia", "null"].map(str::to_owned));
        Gpus::new(given, &devices, 0, per_process)
    }

    fn devices(gpus: &Gpus, process_count: usize) -> Vec<String> {
        let value = |index| gpus.variables(index).into_iter().find(|(name, _)| *name == "CUDA_VISIBLE_DEVICES");
        (0..process_count).filter_map(|index| Some(value(index)?.1)).collect()
    }

    #[test]
    fn each_process_has_its_own() {
        assert_eq!(devices(&of_nvidia(4, "", 1), 4), ["0", "1", "2", "3"]);
        assert_eq!(devices(&of_nvidia(4, "", 2), 2), ["0,1", "2,3"]);
        assert_eq!(of_nvidia(4, "", 1).record(4), None);
        assert_eq!(devices(&Gpus::new("", &[], 2, 1), 2), ["0", "1"]);
    }

    #[test]
    fn what_a_batch_system_has_given_is_shared_out() {
        assert_eq!(devices(&of_nvidia(8, "5,7", 1), 2), ["5", "7"]);
        assert_eq!(devices(&of_nvidia(8, "GPU-a, GPU-b", 1), 2), ["GPU-a", "GPU-b"]);
    }

    #[test]
    fn too_few_are_shared_and_told() {
        let gpus = of_nvidia(2, "", 1);
        assert_eq!(devices(&gpus, 3), ["0", "1", "0"]);
        assert!(gpus.record(3).is_some_and(|note| note.contains("3 processes share 2 GPUs")));
        assert_eq!(devices(&of_nvidia(2, "", 3), 1), ["0,1"], "none is named twice");
    }

    #[test]
    fn without_gpus_a_process_knows_its_number() {
        let gpus = of_nvidia(0, "", 1);
        assert_eq!(gpus.variables(3)[0], (INDEX, "3".to_owned()));
        assert!(devices(&gpus, 2).is_empty() && gpus.record(1).is_some());
        assert_eq!(of_nvidia(4, "", 0).variables(0), []);
        assert_eq!(of_nvidia(4, "", 0).record(9), None);
    }

    #[test]
    fn the_environment_is_as_long_for_each_process() {
        let gpus = of_nvidia(128, "", 1);
        let bytes = |index| gpus.variables(index).iter().map(|(_, value)| value.len()).sum::<usize>();
        assert!((1..128).all(|index| bytes(index) == bytes(0)));
    }
}
