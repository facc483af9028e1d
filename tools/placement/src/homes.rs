//! Hosts on which a job continues from a checkpoint: those with its parts, if hosts keep them, and those with room.

use crate::plan::{HostPlan, PlannedHost};
use checkpoint_store::{Homeless, Manifest, objects, place};
use redrt_types::{View, VirtualRank, is_same_host};
use redrt_wire::checkpoint::{PiecePlace, Place, WantedPart, image_path, memory_path};
use redrt_wire::control::Transport;
use redrt_wire::object::ObjectEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A job cannot continue from a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoHome {
    /// No host is left.
    #[error("no host is left to go on with")]
    NoHost,
    /// A part of the checkpoint is on no host.
    #[error(transparent)]
    Homeless(#[from] Homeless),
}

/// True if the host had this name when a checkpoint was taken.
fn is_called(host: &PlannedHost, name: &str) -> bool {
    // A host without a name is that of redrun, and the only one.
    host.name.as_ref().map_or(host.local, |own| is_same_host(&own.name, name))
}

fn group_size(manifest: &Manifest, group: usize) -> usize {
    manifest.placement.iter().filter(|host| **host == Some(group as u32)).count()
}

/// Hosts on which a job continues after a loss. Living hosts of the checkpoint stay; each lost one is replaced by a
/// living host, by one with a copy of its part if hosts keep them. Processes that shared memory stay together, so a
/// host may get several such groups.
///
/// # Errors
/// When no host is left, or none has a part.
pub fn after_loss(manifest: &Manifest, plan: &HostPlan, is_dead: &dyn Fn(u32) -> bool) -> Result<HostPlan, NoHome> {
    // If only a daemon has ended, its host gets another one. That is known to be possible for this host alone.
    let lives = |host: usize| plan.hosts.get(host).is_some_and(|planned| planned.local || !is_dead(host as u32));
    let find = |name: &str| (0..plan.hosts.len()).find(|host| lives(*host) && is_called(&plan.hosts[*host], name));
    let homes = manifest.homes(&|name| find(name).is_some())?;
    let fixed = |group: usize| {
        let name = &manifest.hosts[homes[group]? as usize];
        let is_own = lives(group) && is_called(&plan.hosts[group], name);
        if is_own { Some(group) } else { find(name) }
    };
    let mut load = vec![0_usize; plan.hosts.len()];
    let first = |group: usize| fixed(group).or(Some(group).filter(|group| lives(*group)));
    for group in 0..manifest.hosts.len() {
        if let Some(host) = first(group) {
            load[host] += group_size(manifest, group);
        }
    }
    let mut hosts: Vec<PlannedHost> = Vec::new();
    for group in 0..manifest.hosts.len() {
        let size = group_size(manifest, group);
        let host = match first(group) {
            Some(host) => host,
            None => {
                let living = (0..plan.hosts.len()).filter(|host| lives(*host));
                let least = living.min_by_key(|host| load[*host]).ok_or(NoHome::NoHost)?;
                load[least] += size;
                least
            }
        };
        let spare = plan.hosts[host].spare && size == 0;
        hosts.push(PlannedHost { spare, ..plan.hosts[host].clone() });
    }
    Ok(HostPlan { hosts, ..plan.clone() })
}

/// Checks that a job can continue from a checkpoint on these hosts.
///
/// # Errors
/// When a part is on none of them.
pub fn check(manifest: &Manifest, plan: &HostPlan) -> Result<(), Homeless> {
    manifest.homes(&|name| plan.hosts.iter().any(|host| is_called(host, name))).map(drop)
}

/// Hosts for the groups of processes of a resumed job: those with their parts, or the user's hosts in turn.
///
/// # Errors
/// As [`check`].
pub fn resumed(manifest: &Manifest, plan: &HostPlan) -> Result<HostPlan, Homeless> {
    let find = |name: &str| (0..plan.hosts.len()).find(|host| is_called(&plan.hosts[*host], name));
    let homes = manifest.homes(&|name| find(name).is_some())?;
    let used: Vec<_> = (0..plan.hosts.len()).filter(|host| !plan.hosts[*host].spare).collect();
    let named = |name: &str| {
        plan.hosts.iter().position(|host| host.name.as_ref().is_some_and(|own| is_same_host(&own.name, name)))
    };
    let hosts = manifest.hosts.iter().zip(homes).enumerate().map(|(group, (name, home))| {
        let home = home.and_then(|holder| find(&manifest.hosts[holder as usize]));
        // A plan has a host that is no spare.
        let host = home.or_else(|| named(name)).unwrap_or_else(|| used[group % used.len()]);
        let spare = plan.hosts[host].spare && home.is_none();
        PlannedHost { spare, ..plan.hosts[host].clone() }
    });
    Ok(HostPlan { hosts: hosts.collect(), ..plan.clone() })
}

/// Directory of each host's part of a checkpoint, on the hosts where the job continues. Living hosts have it where it
/// was.
#[must_use]
pub fn places(manifest: &Manifest, plan: &HostPlan, job: &Path, of_all: &Path) -> Vec<Place> {
    let place = |host: u32| {
        let directory = directory_on(manifest, plan, host, host, job, of_all);
        let directory = directory.unwrap_or_else(|| place::of_host(job, host, manifest.generation));
        // Downloads and logs of files of another machine are not on this one.
        let is_other = manifest.level.is_fetched()
            && plan.hosts.get(host as usize).is_some_and(|own| !is_called(own, &manifest.hosts[host as usize]));
        let has_sources = !is_other && manifest.members.iter().any(|member| member.host == host);
        Place { directory, has_sources }
    };
    (0..manifest.hosts.len() as u32).map(place).collect()
}

/// Numbers and names of hosts that had processes and are gone.
pub fn gone<'a>(manifest: &'a Manifest, plan: &'a HostPlan) -> impl Iterator<Item = (u32, &'a str)> {
    let hosts = manifest.hosts.iter().enumerate().filter(|(group, _)| group_size(manifest, *group) > 0);
    hosts
        .filter(|(group, name)| !is_called(&plan.hosts[*group], name))
        .map(|(group, name)| (group as u32, name.as_str()))
}

/// Place at which a process continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestorePlace {
    /// Number of its host.
    pub host: u32,
    /// Directory on that host with its rank's image.
    pub directory: PathBuf,
}

/// Place of each process of `view`, in the order of process numbers. A process stays on its host if its rank's image
/// can be had there. Otherwise it goes to the host with the fewest processes among those that can have the image,
/// without siblings if possible.
#[must_use]
pub fn restore_places(
    manifest: &Manifest,
    plan: &HostPlan,
    view: &View,
    job: &Path,
    of_all: &Path,
) -> Vec<Option<RestorePlace>> {
    let mut taken: Vec<Vec<VirtualRank>> = vec![Vec::new(); plan.hosts.len()];
    let mut restore_places = vec![None; manifest.world.process_count() as usize];
    // Processes with fixed places come first.
    let mut later = Vec::new();
    let live = manifest.world.replicas().filter(|replica| view.is_live(*replica));
    for replica in live {
        let image = manifest.image(replica.rank);
        let process = manifest.world.process(replica).0 as usize;
        let own = if replica == image.replica { Some(image.host) } else { manifest.placement[process] };
        match own.and_then(|host| Some((host, directory_on(manifest, plan, image.host, host, job, of_all)?))) {
            Some((host, directory)) => {
                taken[host as usize].push(replica.rank);
                restore_places[process] = Some(RestorePlace { host, directory });
            }
            None => later.push(replica),
        }
    }
    for replica in later {
        let image = manifest.image(replica.rank);
        let restore_place =
            |host| Some(RestorePlace { host, directory: directory_on(manifest, plan, image.host, host, job, of_all)? });
        let order = |restore_place: &RestorePlace| {
            let ranks = &taken[restore_place.host as usize];
            (ranks.contains(&replica.rank), plan.hosts[restore_place.host as usize].spare, ranks.len())
        };
        let best = (0..plan.hosts.len() as u32).filter_map(restore_place).min_by_key(order);
        if let Some(restore_place) = &best {
            taken[restore_place.host as usize].push(replica.rank);
        }
        restore_places[manifest.world.process(replica).0 as usize] = best;
    }
    restore_places
}

/// Directory on host `here` with the part of host `of`. `None` if it is not seen there.
fn directory_on(
    manifest: &Manifest,
    plan: &HostPlan,
    of: u32,
    here: u32,
    job: &Path,
    of_all: &Path,
) -> Option<PathBuf> {
    let planned = plan.hosts.get(here as usize)?;
    if !manifest.level.is_of_hosts() {
        return Some(of_all.to_owned());
    }
    if manifest.level.is_fetched() {
        return Some(place::of_host(job, here, manifest.generation));
    }
    let is_here = |holder: &u32| is_called(planned, &manifest.hosts[*holder as usize]);
    let holder = manifest.holders(of).find(is_here)?;
    Some(place::of_host(job, holder, manifest.generation))
}

/// Objects that each host must download of a checkpoint and its chain: images of the ranks seated there, and the memory
/// that its processes shared.
#[must_use]
pub fn objects(
    newest: &Manifest,
    older: &[Manifest],
    seated: &[(VirtualRank, u32)],
    host_count: usize,
    directory: &dyn Fn(u32, &Manifest) -> PathBuf,
) -> Vec<Vec<ObjectEntry>> {
    let mut wanted = vec![BTreeSet::new(); host_count];
    for manifest in std::iter::once(newest).chain(older) {
        let stored: BTreeMap<_, _> =
            manifest.objects.iter().map(|stored| (stored.key.as_str(), &stored.facts)).collect();
        let mut want = |host: u32, path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // An older checkpoint may have no page of a process that a newer one does not have too.
            if let Some(facts) = stored.get(name.as_str()) {
                let (key, facts) = (objects::key(manifest.generation, &name), Some((*facts).clone()));
                wanted[host as usize].insert(ObjectEntry { key, path, facts });
            }
        };
        for (rank, host) in seated {
            want(*host, image_path(&directory(*host, manifest), *rank));
            if manifest.generation == newest.generation && !newest.world.is_replicated() {
                want(*host, memory_path(&directory(*host, manifest), *host));
            }
        }
    }
    wanted.into_iter().map(|entries| entries.into_iter().collect()).collect()
}

/// Parts that each host makes of pieces of a checkpoint and its chain: images of the ranks seated there, and the memory
/// that its processes shared.
#[must_use]
pub fn parts(
    newest: &Manifest,
    older: &[Manifest],
    seated: &[(VirtualRank, u32)],
    plan: &HostPlan,
    directory: &dyn Fn(u32, &Manifest) -> PathBuf,
) -> Vec<Vec<WantedPart>> {
    let mut wanted = vec![Vec::new(); plan.hosts.len()];
    for manifest in std::iter::once(newest).chain(older) {
        let Some(code) = manifest.level.code() else { continue };
        let mut files: BTreeMap<(u32, u32), BTreeSet<String>> = BTreeMap::new();
        let mut want = |host: u32, source: u32, path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.entry((host, source)).or_default().insert(name);
        };
        let has_memory = manifest.generation == newest.generation
            && !newest.world.is_replicated()
            && newest.options.transport != Transport::Tcp;
        for (rank, host) in seated {
            let source = manifest.image(*rank).host;
            want(*host, source, image_path(Path::new(""), *rank));
            if has_memory {
                want(*host, source, memory_path(Path::new(""), source));
            }
        }
        for ((host, source), files) in files {
            let at =
                |holder: u32| (0..).zip(&plan.hosts).find(|(_, at)| is_called(at, &manifest.hosts[holder as usize]));
            let place = |(index, holder)| Some(PiecePlace { index, holder, host: at(holder)?.0 });
            wanted[host as usize].push(WantedPart {
                generation: manifest.generation,
                source,
                code: (code.data, code.parity),
                pieces: manifest.pieces_of(source).filter_map(place).collect(),
                directory: directory(host, manifest),
                files: files.into_iter().collect(),
            });
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkpoint_store::pieces::Code;
    use checkpoint_store::{Level, Member};
    use redrt_types::{ReplicaId, View, World};
    use redrt_wire::checkpoint::Generation;
    use redrt_wire::daemon::HostName;
    use redrt_wire::object::{Facts, Stored};

    fn planned(name: &str, spare: bool) -> PlannedHost {
        PlannedHost { name: Some(HostName { user: None, name: name.into() }), slot_count: None, spare, local: false }
    }

    fn plan(names: &[&str], spares: &[&str]) -> HostPlan {
        let used = names.iter().map(|name| planned(name, false));
        HostPlan { hosts: used.chain(spares.iter().map(|name| planned(name, true))).collect(), ..HostPlan::here() }
    }

    /// A process on each of a and b; c is a spare host.
    fn manifest(level: Level) -> Manifest {
        let world = World::uniform(2, 1);
        let member = |(host, replica)| Member {
            replica,
            host,
            position: Default::default(),
            output: Default::default(),
            error: Default::default(),
        };
        Manifest {
            pinned: Vec::new(),
            proof: None,
            job: 1,
            generation: Generation(3),
            taken_at_ns: 0,
            job_time_ns: 0,
            program_version: String::new(),
            hosts: ["a", "b", "c"].map(str::to_owned).into(),
            view: View::with_degrees(&world, &[1, 1]),
            degrees: vec![1, 1],
            next_life: Default::default(),
            placement: vec![Some(0), Some(1)],
            members: (0..).zip(world.replicas().collect::<Vec<ReplicaId>>()).map(member).collect(),
            world,
            applications: Vec::new(),
            application_of_rank: Vec::new(),
            options: Default::default(),
            host_name: String::new(),
            input_bytes: 0,
            files: Vec::new(),
            image_bytes: 0,
            chain: Vec::new(),
            level,
            objects: Vec::new(),
            has_shared_log: false,
            pieces: Vec::new(),
            copies: if level.is_of_hosts() { vec![None; 3] } else { Vec::new() },
        }
    }

    fn names(plan: &HostPlan) -> Vec<(&str, bool)> {
        plan.hosts.iter().map(|host| (host.name.as_ref().unwrap().name.as_str(), host.spare)).collect()
    }

    #[test]
    fn where_all_see_it_the_host_with_the_least_takes_over() {
        let found = after_loss(&manifest(Level::Shared), &plan(&["a", "b"], &["c"]), &|host| host == 1).unwrap();
        assert_eq!(names(&found), [("a", false), ("c", false), ("c", true)]);
        let lost = after_loss(&manifest(Level::Shared), &plan(&["a", "b"], &["c"]), &|_| true);
        assert_eq!(lost, Err(NoHome::NoHost));
    }

    #[test]
    fn where_hosts_keep_it_the_one_with_the_copy_takes_over() {
        let (mut manifest, plan) = (manifest(Level::Partner), plan(&["a", "b"], &["c"]));
        let homeless = after_loss(&manifest, &plan, &|host| host == 1).unwrap_err();
        assert_eq!(homeless.to_string(), "a part of it is on b alone, which cannot be had");
        manifest.copies[1] = Some(0);
        let found = after_loss(&manifest, &plan, &|host| host == 1).unwrap();
        assert_eq!(names(&found), [("a", false), ("a", false), ("c", true)]);
        let places = |manifest: &Manifest, plan: &HostPlan| -> Vec<_> {
            let restore_places =
                restore_places(manifest, plan, &manifest.view, Path::new("/j"), Path::new("/j/line-3"));
            restore_places
                .into_iter()
                .flatten()
                .map(|restore_place| (restore_place.host, restore_place.directory.display().to_string()))
                .collect()
        };
        let expected = |names: [&str; 2]| (0..).zip(names.map(str::to_owned)).collect::<Vec<(u32, String)>>();
        assert_eq!(places(&manifest, &found), expected(["/j/at-0/line-3", "/j/at-0/line-3"]));
        // That host is lost after the next checkpoint: it has two groups, whose copies are elsewhere.
        manifest.hosts[1] = "a".into();
        manifest.copies = vec![Some(2), Some(2), None];
        let found = after_loss(&manifest, &found, &|host| host < 2).unwrap();
        assert_eq!(names(&found), [("c", false), ("c", false), ("c", true)]);
        assert_eq!(places(&manifest, &found), expected(["/j/at-2/line-3", "/j/at-2/line-3"]));
    }

    #[test]
    fn siblings_of_a_source_stay_or_go_to_a_host_with_its_image() {
        let world = World::uniform(2, 3);
        let mut manifest = Manifest {
            view: View::with_degrees(&world, &[2, 2]),
            degrees: vec![3, 2],
            placement: vec![Some(0), Some(1), None, Some(0), Some(1), None],
            world,
            ..manifest(Level::Shared)
        };
        (manifest.members[1].replica, manifest.members[1].host) = (ReplicaId::new(1, 1), 1);
        let plan = plan(&["a", "b", "c"], &[]);
        let hosts = |manifest: &Manifest| -> Vec<_> {
            let view = manifest.view_of_images(&manifest.degrees);
            let restore_places = restore_places(manifest, &plan, &view, Path::new("/j"), Path::new("/j/line-3"));
            restore_places
                .iter()
                .map(|restore_place| restore_place.as_ref().map(|restore_place| restore_place.host))
                .collect()
        };
        assert_eq!(hosts(&manifest), [Some(0), Some(1), Some(2), Some(0), Some(1), None]);
        // 0.0 is saved on a, and copied to b; 1.1 is on b alone.
        (manifest.level, manifest.copies) = (Level::Partner, vec![Some(1), None, None]);
        assert_eq!(hosts(&manifest), [Some(0), Some(1), Some(0), Some(1), Some(1), None]);
    }

    #[test]
    fn each_host_gets_the_images_it_loads_and_their_bases() {
        let stored = |key: &str| Stored { key: key.into(), facts: Facts { bytes: 1, digest: key.into() } };
        let with = |generation, names: &[&str]| Manifest {
            generation: Generation(generation),
            objects: names.iter().map(|name| stored(name)).collect(),
            ..manifest(Level::Object)
        };
        let newest = with(3, &["0.image", "1.image", "host-0.memory", "host-1.memory"]);
        // Rank 1 has all its pages in the newest.
        let older = [with(2, &["0.image", "host-0.memory"])];
        let directory = |host, of: &Manifest| place::of_host(Path::new("/j"), host, of.generation);
        let wanted = objects(&newest, &older, &[(VirtualRank(0), 0), (VirtualRank(1), 0)], 2, &directory);
        let names = wanted.iter().map(|one| one.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>());
        let of_first = vec!["line-2/0.image", "line-3/0.image", "line-3/1.image", "line-3/host-0.memory"];
        assert_eq!(names.collect::<Vec<_>>(), [of_first, vec![]]);
        assert_eq!(wanted[0][0].path, Path::new("/j/at-0/line-2/0.image"));
        assert_eq!(wanted[0][3].facts, Some(stored("host-0.memory").facts));
    }

    #[test]
    fn a_lost_part_is_made_of_pieces_where_its_processes_go_on() {
        let level = Level::Erasure(Code::new(2, 1).unwrap());
        // c is a spare host that has pieces.
        let pieces = vec![[0, 1, 2].map(Some).to_vec(), vec![Some(1), None, Some(0)], Vec::new()];
        let mut manifest = Manifest { pieces, ..manifest(level) };
        let plan = plan(&["a", "b"], &["c"]);
        let of_lost = after_loss(&manifest, &plan, &|host| host == 1).unwrap_err();
        let said = "2 pieces of the part of b are needed, and 1 can be had, without b";
        assert_eq!(of_lost.to_string(), said);
        manifest.pieces[1][1] = Some(2);
        let found = after_loss(&manifest, &plan, &|host| host == 1).unwrap();
        assert_eq!(names(&found), [("a", false), ("c", false), ("c", true)]);
        let restore_places = restore_places(&manifest, &found, &manifest.view, Path::new("/j"), Path::new("/j/line-3"));
        assert_eq!(restore_places[1], Some(RestorePlace { host: 1, directory: "/j/at-1/line-3".into() }));
        let directory = |host, of: &Manifest| place::of_host(Path::new("/j"), host, of.generation);
        let wanted = parts(&manifest, &[], &[(VirtualRank(0), 0), (VirtualRank(1), 1)], &found, &directory);
        let place = |index, holder, host| PiecePlace { index, holder, host };
        assert_eq!(wanted[0][0].pieces, [place(0, 0, 0), place(2, 2, 1)]);
        assert_eq!(
            (wanted[0][0].source, &wanted[0][0].files[..]),
            (0, &["0.image", "host-0.memory"].map(str::to_owned)[..])
        );
        assert_eq!(wanted[1][0].pieces, [place(1, 2, 1), place(2, 0, 0)]);
        assert_eq!(wanted[1][0].directory, Path::new("/j/at-1/line-3"));
        assert_eq!(wanted[2], []);
    }

    #[test]
    fn a_job_is_resumed_where_its_parts_are() {
        let mut manifest = manifest(Level::Partner);
        manifest.copies[1] = Some(2);
        let found = resumed(&manifest, &plan(&["x", "c", "a"], &[])).unwrap();
        assert_eq!(names(&found)[..2], [("a", false), ("c", false)]);
        assert!(check(&manifest, &plan(&["x", "a"], &[])).is_err());
        // If all hosts see the checkpoint, or can download it, any host will do.
        for level in [Level::Shared, Level::Object] {
            manifest.level = level;
            let found = resumed(&manifest, &plan(&["x", "b"], &[])).unwrap();
            assert_eq!(names(&found), [("x", false), ("b", false), ("x", false)]);
            let found = after_loss(&manifest, &plan(&["a", "b"], &["c"]), &|host| host == 1).unwrap();
            assert_eq!(names(&found), [("a", false), ("c", false), ("c", true)]);
            let restore_places =
                restore_places(&manifest, &found, &manifest.view, Path::new("/j"), Path::new("/j/line-3"));
            let directory = if level == Level::Shared { "/j/line-3" } else { "/j/at-1/line-3" };
            assert_eq!(restore_places[1], Some(RestorePlace { host: 1, directory: directory.into() }));
        }
    }
}
