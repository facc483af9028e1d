//! Assignment of daemons to sruns. A job step of Slurm uses each of its nodes once, in the order of the allocation,
//! within one group of a heterogeneous job. The hosts of a job that continues from a checkpoint need not fit: there may
//! be more or fewer nodes than before, and several of its hosts may be on one node. So the hosts are cut into steps.

/// Daemons that one srun starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobStep<'a> {
    /// Group of the nodes, in a heterogeneous job.
    pub group: Option<usize>,
    /// Number of the first host; the others follow.
    pub first: u32,
    /// The nodes, one for each host.
    pub nodes: Vec<&'a str>,
}

/// Start of a job's daemons.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobSteps<'a> {
    /// Steps for srun.
    pub steps: Vec<JobStep<'a>>,
    /// Numbers of hosts outside the allocation, which were added to the job.
    pub elsewhere: Vec<u32>,
}

/// Cuts these hosts into steps, given the groups of nodes of the allocation.
#[must_use]
pub fn job_steps<'a>(hosts: &[&'a str], groups: &[Vec<String>]) -> JobSteps<'a> {
    let place = |host: &str| {
        let in_group = |(group, nodes): (usize, &Vec<String>)| Some((group, nodes.iter().position(|one| one == host)?));
        groups.iter().enumerate().find_map(in_group)
    };
    let JobSteps { mut steps, mut elsewhere } = JobSteps::default();
    let mut last = None;
    for (number, host) in (0..).zip(hosts) {
        let found = place(host);
        let Some((group, node)) = found else {
            elsewhere.push(number);
            last = None;
            continue;
        };
        let follows = last.is_some_and(|(last_group, last_node)| group == last_group && node > last_node);
        match steps.last_mut().filter(|_| follows) {
            Some(step) => step.nodes.push(host),
            None => {
                steps.push(JobStep { group: (groups.len() > 1).then_some(group), first: number, nodes: vec![host] })
            }
        }
        last = found;
    }
    JobSteps { steps, elsewhere }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps as `FIRST:NODE+NODE`, with the group before a slash.
    fn shown(hosts: &[&str], groups: &[&[&str]]) -> String {
        let groups: Vec<Vec<String>> =
            groups.iter().map(|group| group.iter().map(|node| (*node).to_owned()).collect()).collect();
        let JobSteps { steps, elsewhere } = job_steps(hosts, &groups);
        let shown = |step: &JobStep<'_>| {
            let group = step.group.map_or(String::new(), |group| format!("{group}/"));
            format!("{group}{}:{}", step.first, step.nodes.join("+"))
        };
        let elsewhere = elsewhere.iter().map(|number| format!("{number}:elsewhere"));
        steps.iter().map(shown).chain(elsewhere).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_hosts_of_an_allocation_are_one_step_a_group() {
        assert_eq!(shown(&["h1", "h2", "h3"], &[&["h1", "h2", "h3"]]), "0:h1+h2+h3");
        assert_eq!(shown(&["h1", "h2", "g1"], &[&["h1", "h2"], &["g1"]]), "0/0:h1+h2 1/2:g1");
    }

    #[test]
    fn a_resumed_job_has_daemons_on_fewer_or_more_nodes() {
        // Two hosts on one node, and one host where there are two nodes.
        assert_eq!(shown(&["h1", "h1"], &[&["h1"]]), "0:h1 1:h1");
        assert_eq!(shown(&["h1"], &[&["h1", "h2"]]), "0:h1");
        assert_eq!(shown(&["h1", "h2", "h1", "h2"], &[&["h1", "h2"]]), "0:h1+h2 2:h1+h2");
        // Slurm numbers the nodes of a step in its own order.
        assert_eq!(shown(&["h2", "h1", "h3"], &[&["h1", "h2", "h3"]]), "0:h2 1:h1+h3");
        assert_eq!(shown(&["g1", "h1"], &[&["h1"], &["g1"]]), "1/0:g1 0/1:h1");
        assert_eq!(shown(&[], &[&["h1"]]), "");
    }

    #[test]
    fn a_host_from_outside_the_allocation_is_started_apart() {
        assert_eq!(shown(&["h1", "spare", "h2"], &[&["h1", "h2"]]), "0:h1 2:h2 1:elsewhere");
    }
}
