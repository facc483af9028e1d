//! Properties of the whole process that a copy cannot have.

use crate::control::Control;
use crate::refusal::{Of, Refusal};
use std::io;

/// Reasons for which the process as a whole cannot be copied.
pub fn refusals(control: &Control) -> io::Result<Vec<Refusal>> {
    let mut reasons = children(control)?;
    let status = control.proc_text("status")?;
    let own = std::fs::read_to_string("/proc/self/status")?;
    reasons.extend(of_status(&status, &own));
    // The link of one's own root reads `/` even in a chroot, if both processes are in the same one.
    if control.proc_link("root")? != "/" {
        reasons.push(Refusal::Process(Of::Root));
    }
    reasons.extend(namespaces(control).map(|name| Refusal::Process(Of::Namespace(name))));
    Ok(reasons)
}

/// Reasons that only the agent can see, once threads are stopped.
pub fn refusals_at_cut(control: &Control) -> io::Result<Option<Refusal>> {
    let (_, block) = control.block()?;
    Ok((block.local_segment_bytes != 0).then_some(Refusal::Process(Of::LocalSegments)))
}

fn children(control: &Control) -> io::Result<Vec<Refusal>> {
    let mut reasons = Vec::new();
    for tid in control.proc_numbers("task")? {
        // The thread may have ended meanwhile; then it has no children.
        let children = control.proc_text(&format!("task/{tid}/children")).unwrap_or_default();
        for child in children.split_ascii_whitespace() {
            // The number belongs to the PID namespace of the process, so it is looked up in that `/proc`.
            let name = control.proc_bytes(&format!("../{child}/comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).trim().to_owned();
            reasons.push(Refusal::Child { pid: child.parse().unwrap_or_default(), name });
        }
    }
    Ok(reasons)
}

/// Reasons in `/proc/PID/status`, compared with that of this process, which acts for the same user.
fn of_status(status: &str, own: &str) -> Vec<Refusal> {
    fn field<'a>(status: &'a str, name: &str) -> &'a str {
        status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim)
    }
    let mut reasons = Vec::new();
    if !matches!(field(status, "Seccomp:"), "" | "0") {
        reasons.push(Refusal::Seccomp);
    }
    if field(status, "State:").starts_with('Z') {
        reasons.push(Refusal::NoFirstThread);
    }
    if field(status, "TracerPid:") != "0" {
        reasons.push(Refusal::Traced { by: field(status, "TracerPid:").to_owned() });
    }
    if ["Uid:", "Gid:", "Groups:"].iter().any(|name| field(status, name) != field(own, name)) {
        reasons.push(Refusal::Process(Of::Identity));
    }
    let mask = |status: &str| u64::from_str_radix(field(status, "CapAmb:"), 16).unwrap_or(0);
    if mask(status) & !mask(own) != 0 {
        reasons.push(Refusal::Process(Of::AmbientCapabilities));
    }
    if field(status, "x86_Thread_features:").contains("shstk") {
        reasons.push(Refusal::Process(Of::ShadowStack));
    }
    if !field(status, "untag_mask:").trim_start_matches("0x").trim_matches('f').is_empty() {
        reasons.push(Refusal::Process(Of::TaggedAddresses));
    }
    reasons
}

/// Namespaces that the program has made: those that differ both from this process's and from those of process 1 in its
/// PID namespace, which started it.
fn namespaces(control: &Control) -> impl Iterator<Item = &'static str> {
    const NAMES: [&str; 8] =
        ["ns/net", "ns/mnt", "ns/uts", "ns/ipc", "ns/user", "ns/cgroup", "ns/time", "ns/time_for_children"];
    NAMES.into_iter().filter(|name| {
        let (Ok(own), Ok(first)) = (control.proc_link(name), control.proc_link(&format!("../1/{name}"))) else {
            // Reading the links of process 1 may be forbidden; then nothing can be said.
            return false;
        };
        let here = std::fs::read_link(format!("/proc/self/{name}"));
        own != first && here.is_ok_and(|here| here.as_os_str().as_encoded_bytes() != &**own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "Name:\tredclone\nState:\tS (sleeping)\nTracerPid:\t0\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\n\
                       Groups:\t8 9 \nSeccomp:\t0\nCapAmb:\t0000000000000000\n";

    #[test]
    fn what_a_copy_cannot_be_is_found_in_the_status() {
        let with = |from: &str, to: &str| of_status(&OWN.replace(from, to), OWN);
        assert_eq!(with("", ""), []);
        let features = "Seccomp:\t0\nx86_Thread_features:\tshstk wrss \nuntag_mask:\t0xffffffffffffffff\n";
        let cases = [
            ("Seccomp:\t0", "Seccomp:\t2", Refusal::Seccomp),
            ("S (sleeping)", "Z (zombie)", Refusal::NoFirstThread),
            ("TracerPid:\t0", "TracerPid:\t44", Refusal::Traced { by: "44".into() }),
            ("\t7\t7\t7\t7", "\t7\t0\t7\t0", Refusal::Process(Of::Identity)),
            ("\t8\t8\t8\t8", "\t9\t9\t9\t9", Refusal::Process(Of::Identity)),
            ("8 9 ", "8 ", Refusal::Process(Of::Identity)),
            ("CapAmb:\t00000000", "CapAmb:\t00000400", Refusal::Process(Of::AmbientCapabilities)),
            ("Seccomp:\t0\n", features, Refusal::Process(Of::ShadowStack)),
            ("Seccomp:\t0", "Seccomp:\t0\nuntag_mask:\t0x81ffffffffffffff", Refusal::Process(Of::TaggedAddresses)),
        ];
        for (from, to, reason) in cases {
            assert_eq!(with(from, to), [reason], "{to}");
        }
    }
}
