use super::*;
use crate::Level;
use redrt_types::{Incarnation, ReplicaId, View, VirtualRank, World};
use redrt_wire::checkpoint::{Proof, SavedText};
use redrt_wire::clone::Position;
use redrt_wire::control::Options;
use redrt_wire::daemon::{Abi, Application};
use redrt_wire::secret::Secret;

fn options() -> Options {
    Options { seed: u64::MAX, ..Options::default() }
}

fn manifest(generation: u64) -> Manifest {
    let world = World::uniform(2, 2);
    let view = View::with_degrees(&world, &[2, 1]);
    let member = |replica| crate::Member {
        replica,
        host: 1,
        position: Position { output_bytes: 9, input: vec![1, 2, 255], input_has_ended: true, lacks_script: false },
        output: SavedText { units: 1, lines: 1, text: b"x\n".to_vec(), ..SavedText::default() },
        error: SavedText::default(),
    };
    Manifest {
        job: 0xabc,
        generation: Generation(generation),
        taken_at_ns: 1,
        job_time_ns: 2,
        program_version: "1.2.3".into(),
        hosts: vec!["a".into(), "b".into()],
        members: [ReplicaId::new(0, 1), ReplicaId::new(1, 0)].map(member).into(),
        degrees: vec![2, 2],
        next_life: Incarnation(3),
        placement: vec![Some(0), Some(1), Some(1), None],
        view,
        world,
        applications: vec![Application {
            program: "/bin/true".into(),
            arguments: vec!["true".into()],
            environment: vec![("A".into(), "b".into())],
            directory: "/".into(),
            abi: Abi::Any,
        }],
        application_of_rank: vec![0, 0],
        options: options(),
        host_name: "a".into(),
        input_bytes: 0,
        files: Vec::new(),
        image_bytes: 100,
        chain: Vec::new(),
        level: Level::Shared,
        objects: Vec::new(),
        has_shared_log: false,
        pieces: Vec::new(),
        copies: Vec::new(),
        pinned: Vec::new(),
        proof: None,
    }
}

fn taken(store: &Store, generation: u64) -> StoredCheckpoint {
    let directory = store.begin(Generation(generation)).unwrap();
    fs::write(directory.join("0.image"), vec![7; 100]).unwrap();
    store.commit(manifest(generation)).unwrap()
}

#[test]
fn what_was_committed_is_opened_again() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 0xabc);
    assert_eq!((store.next().unwrap(), store.generations().unwrap()), (Generation(1), vec![]));
    let kept = taken(&store, 1);
    let (opened, unfit) = store.newest(None).unwrap();
    assert_eq!((opened.manifest, unfit.len()), (kept.manifest, 0));
    assert_eq!(opened.directory, kept.directory);
    assert_eq!(store.next().unwrap(), Generation(2));
}

/// Manifest of a checkpoint on hosts, taken at this time.
fn taken_at(generation: u64, taken_at_ns: u64, chain: &[u64]) -> Manifest {
    let chain = chain.iter().copied().map(Generation).collect();
    Manifest { taken_at_ns, chain, level: Level::Local, copies: vec![None; 2], ..manifest(generation) }
}

fn numbers(store: &Store) -> Vec<u64> {
    store.generations().unwrap().into_iter().map(|generation| generation.0).collect()
}

/// A host gets each manifest when the checkpoint counts. One that has overtaken an earlier one stays; one of a time
/// before a return goes.
#[test]
fn a_host_keeps_the_manifests_of_the_one_that_commits() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 0xabc);
    store.keep_copy(taken_at(1, 10, &[]), &[1].map(Generation)).unwrap();
    store.keep_copy(taken_at(2, 20, &[1]), &[1, 2].map(Generation)).unwrap();
    store.keep_copy(taken_at(1, 10, &[]), &[1].map(Generation)).unwrap();
    assert_eq!(numbers(&store), [2, 1]);
    // The host was lost; the job went back to 1 and took 2 once more.
    store.keep_copy(taken_at(2, 30, &[1]), &[1, 2].map(Generation)).unwrap();
    assert_eq!(store.open(Generation(2)).unwrap().manifest.taken_at_ns, 30);
    store.keep_copy(taken_at(3, 40, &[]), &[3, 2, 1].map(Generation)).unwrap();
    assert_eq!(numbers(&store)[0], 3);
    // Without the one that it is built on a checkpoint is of no use.
    let joined = Store::of_job(parent.path(), 0xdef);
    assert!(joined.keep_copy(taken_at(4, 50, &[3]), &[4, 3].map(Generation)).is_err());
}

/// The host on which a job is resumed has none, an old one, or one that the job has gone back beyond.
#[test]
fn the_newest_checkpoint_of_any_host_is_taken_in() {
    let parent = tempfile::tempdir().unwrap();
    let of = |job| Store::of_job(parent.path(), job).with_key(Secret::from_text(&"5a".repeat(32)));
    let (there, here) = (of(1), of(2));
    there.keep_copy(taken_at(1, 10, &[]), &[]).unwrap();
    there.keep_copy(taken_at(2, 20, &[1]), &[Generation(1)]).unwrap();
    let found = there.manifests().unwrap();
    assert_eq!(found.len(), 2);
    here.take_in(found.clone()).unwrap();
    here.take_in(found.clone()).unwrap();
    assert_eq!((numbers(&here), here.newest(None).unwrap().0.manifest.taken_at_ns), (vec![2, 1], 20));
    // Another host was lost before the job went back to 1: its 2 and 3 are void, since 2 was taken again.
    let lost = of(3);
    lost.keep_copy(taken_at(2, 15, &[]), &[]).unwrap();
    lost.keep_copy(taken_at(3, 17, &[]), &[Generation(2)]).unwrap();
    let stale = lost.manifests().unwrap();
    let again = of(4);
    again.take_in([stale.clone(), found.clone()].concat()).unwrap();
    assert_eq!((numbers(&again), again.open(Generation(2)).unwrap().manifest.taken_at_ns), (vec![2, 1], 20));
    lost.take_in(found.clone()).unwrap();
    assert_eq!((numbers(&lost), lost.open(Generation(2)).unwrap().manifest.taken_at_ns), (vec![2, 1], 20));
    // A damaged one is passed over, unless there is no other.
    let torn = vec![(Generation(5), vec![1, 2, 3])];
    again.take_in(torn.clone()).unwrap();
    assert_eq!(numbers(&again), [2, 1]);
    assert!(of(5).take_in(torn).is_err());
}

#[test]
fn two_checkpoints_are_kept_and_torn_ones_are_cleaned() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 1);
    store.begin(Generation(1)).unwrap();
    for generation in 2..6 {
        taken(&store, generation);
    }
    assert_eq!(store.generations().unwrap(), [5, 4].map(Generation));
    assert_eq!(store.names().unwrap().len(), 2);
    // The checkpoint that is being written is kept.
    store.begin(Generation(6)).unwrap();
    store.collect(Some(Generation(6))).unwrap();
    assert_eq!(store.names().unwrap().len(), 3);
    store.drop_partial(Generation(6)).unwrap();
    store.drop_partial(Generation(6)).unwrap();
    store.delete(Generation(5)).unwrap();
    assert_eq!(store.generations().unwrap(), [Generation(4)]);
}

/// Commits a checkpoint of this size that is built on others.
fn built(store: &Store, generation: u64, chain: &[u64], bytes: u64) -> Result<StoredCheckpoint, Error> {
    let directory = store.begin(Generation(generation))?;
    fs::write(directory.join("0.image"), vec![7; 100]).unwrap();
    let chain = chain.iter().map(|link| Generation(*link)).collect();
    store.commit(Manifest { chain, image_bytes: bytes, ..manifest(generation) })
}

#[test]
fn what_a_checkpoint_is_built_on_stays_as_long_as_it_does() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 1);
    let numbers = || store.generations().unwrap().into_iter().map(|generation| generation.0).collect::<Vec<_>>();
    taken(&store, 1);
    built(&store, 2, &[1], 10).unwrap();
    built(&store, 3, &[2, 1], 10).unwrap();
    assert_eq!(numbers(), [3, 2, 1]);
    taken(&store, 4);
    built(&store, 5, &[4], 10).unwrap();
    // A checkpoint is kept that shares no link with the newest.
    assert_eq!(numbers(), [5, 4, 3, 2, 1]);
    let needed = store.delete(Generation(2)).unwrap_err().to_string();
    assert_eq!(needed, "checkpoint 3 is built on checkpoint 2: remove that one first");
    taken(&store, 6);
    assert_eq!(numbers(), [6, 5, 4]);
    assert_eq!(store.basis(Generation(6), 8).map(|basis| basis.generation), Some(Generation(6)));
    assert_eq!(store.basis(Generation(5), 2), None);
    assert!(matches!(built(&store, 7, &[3], 10), Err(Error::Broken { .. })));
    assert!(matches!(built(&store, 7, &[8], 10), Err(Error::Broken { .. })));
}

#[test]
fn without_a_link_a_checkpoint_is_passed_over() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 1);
    taken(&store, 1);
    taken(&store, 2);
    built(&store, 3, &[2], 10).unwrap();
    let link = store.directory().join("line-2/0.image");
    fs::write(&link, vec![7; 99]).unwrap();
    let (kept, unfit) = store.newest(None).unwrap();
    assert_eq!((kept.manifest.generation, unfit.len()), (Generation(1), 2));
    assert!(unfit[0].to_string().starts_with("checkpoint 3 is built on checkpoint 2: "), "{}", unfit[0]);
    assert_eq!(store.basis(Generation(3), 8), None);
    fs::remove_dir_all(store.directory().join("line-2")).unwrap();
    assert_eq!(store.newest(None).unwrap().0.manifest.generation, Generation(1));
}

#[test]
fn a_checkpoint_that_was_not_committed_is_never_found() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 1);
    let directory = store.begin(Generation(1)).unwrap();
    fs::write(directory.join(MANIFEST), manifest(1).to_bytes().unwrap()).unwrap();
    assert!(matches!(store.newest(None), Err(Error::Empty(_))));
    // Images left over from an earlier attempt at the same number are removed too.
    assert!(fs::read_dir(store.begin(Generation(1)).unwrap()).unwrap().next().is_none());
}

#[test]
fn a_damaged_checkpoint_is_reported_and_the_older_one_is_used() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 1);
    taken(&store, 1);
    let directory = taken(&store, 2).directory;
    let said = |store: &Store| {
        let (kept, unfit) = store.newest(None).unwrap();
        (kept.manifest.generation.0, unfit.iter().map(ToString::to_string).collect::<String>())
    };
    fs::write(directory.join("0.image"), vec![7; 99]).unwrap();
    assert!(said(&store).1.ends_with("0.image has 99 bytes, and had 100"), "{:?}", said(&store));
    fs::remove_file(directory.join("0.image")).unwrap();
    assert!(said(&store).1.contains("Failed to look at"), "{:?}", said(&store));
    fs::write(directory.join("0.image"), vec![7; 100]).unwrap();
    assert_eq!(said(&store), (2, String::new()));
    // A complete checkpoint that failed to restore can be skipped.
    assert_eq!(store.newest(Some(Generation(2))).unwrap().0.manifest.generation, Generation(1));
    assert!(matches!(store.newest(Some(Generation(1))), Err(Error::Empty(_))));
    let path = directory.join(MANIFEST);
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, why) in [
        ("\"version\": 12", "\"version\": 11", "it has version 11, this program 12"),
        ("/bin/true", "/bin/tree", "its digest is that of another"),
        ("\"version\"", "version", "it cannot be read"),
    ] {
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let (generation, said) = said(&store);
        assert!(generation == 1 && said.contains(why), "{said}");
    }
}

#[test]
fn the_next_life_knows_the_shown_output_unless_it_is_damaged() {
    let parent = tempfile::tempdir().unwrap();
    for key in [None, Some(Secret::new([7; 32]))] {
        let store = Store::of_job(parent.path(), 0xabc).with_key(key);
        store.make().unwrap();
        assert_eq!(store.shown(), None);
        store.write_shown(b"some digests").unwrap();
        assert_eq!(store.shown().as_deref(), Some(&b"some digests"[..]));
        let path = store.directory().join(SHOWN);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(store.shown(), None);
        store.forget_shown();
        assert!(!path.exists());
    }
}

#[test]
fn newer_checkpoints_than_the_one_loaded_do_not_count_any_more() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 0xabc);
    assert!(!store.abandon_newer(Generation(1)).unwrap());
    taken(&store, 1);
    let damaged = taken(&store, 2).directory;
    fs::write(damaged.join("0.image"), "short").unwrap();
    assert!(!store.abandon_newer(Generation(2)).unwrap());
    assert!(store.abandon_newer(Generation(1)).unwrap());
    // This holds even if its files are intact again.
    fs::write(store.path(Name::partial(Generation(2))).join("0.image"), vec![7; 100]).unwrap();
    assert_eq!(store.generations().unwrap(), [Generation(1)]);
    assert_eq!(store.next().unwrap(), Generation(3));
    taken(&store, 3);
    assert_eq!(store.generations().unwrap(), [Generation(3), Generation(1)]);
    assert!(!store.path(Name::partial(Generation(2))).exists());
}

#[test]
fn an_encrypted_checkpoint_is_opened_with_its_key_alone() {
    let key = |byte| Some(Secret::new([byte; 32]));
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 1);
    taken(&store, 1);
    let kept = taken(&store.clone().with_key(key(1)), 2);
    let text = fs::read(kept.directory.join(MANIFEST)).unwrap();
    assert!(!text.windows(9).any(|window| window == b"/bin/true"));
    // An older, unencrypted checkpoint can still be read.
    let of_key = |key| store.clone().with_key(key).newest(None).unwrap();
    let (opened, unfit) = of_key(key(1));
    assert_eq!((opened.manifest, unfit.len()), (kept.manifest, 0));
    for (key, said) in
        [(None, "is encrypted: name the file that has its key"), (key(2), "with another key than the one")]
    {
        let (opened, unfit) = of_key(key);
        assert_eq!(opened.manifest.generation, Generation(1));
        assert!(unfit[0].to_string().contains(said), "{}", unfit[0]);
    }
    // A file that was changed, or belongs to another checkpoint.
    let path = kept.directory.join(MANIFEST);
    for (other, said) in [(text.len() - 1, "was changed"), (20, "another key")] {
        let mut text = text.clone();
        text[other] ^= 1;
        fs::write(&path, text).unwrap();
        assert!(of_key(key(1)).1[0].to_string().contains(said), "{}", of_key(key(1)).1[0]);
    }
}

#[test]
fn bytes_of_a_checkpoints_file_are_read_back_wherever_it_is() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 1);
    for key in [None, Some(Secret::new([1; 32]))] {
        let path = store.begin(Generation(1)).unwrap().join("0.image");
        let mut output = writer(create(&path).unwrap(), &path, key.as_ref()).unwrap();
        output.write_all(b"short").unwrap();
        output.flush().unwrap();
        let moved = store.commit(manifest(1)).unwrap().directory.join("0.image");
        let mut text = String::new();
        reader(&moved, key.as_ref()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "short");
        store.delete(Generation(1)).unwrap();
    }
}

#[test]
fn a_manifest_whose_parts_do_not_fit_is_refused() {
    let refused = |change: fn(&mut Manifest)| {
        let mut manifest = manifest(1);
        change(&mut manifest);
        Manifest::from_bytes(&manifest.to_bytes().unwrap()).unwrap_err().to_string()
    };
    assert!(refused(|manifest| drop(manifest.members.pop())).contains("not one process of every rank"));
    assert!(refused(|manifest| manifest.members[1].replica = ReplicaId::new(1, 1)).contains("not one process"));
    assert!(refused(|manifest| manifest.degrees = vec![2, 3]).contains("degrees are of another"));
    assert!(refused(|manifest| manifest.placement.truncate(3)).contains("not every place"));
    assert!(refused(|manifest| drop(manifest.hosts.pop())).contains("a host that is not there"));
    assert!(refused(|manifest| drop(manifest.applications.pop())).contains("program is missing"));
    assert!(refused(|manifest| manifest.application_of_rank.truncate(1)).contains("not every rank"));
    assert!(refused(|manifest| manifest.world = World::uniform(3, 1)).contains("another job"));
    assert!(refused(|manifest| manifest.chain = vec![Generation(1)]).contains("built on a newer one"));
    assert!(refused(|manifest| manifest.level = Level::Local).contains("copies are of another job"));
    assert!(refused(|manifest| manifest.copies = vec![None, Some(2)]).contains("a copy is on a host"));
}

/// Replicas that lived at the cut come first.
#[test]
fn the_wanted_number_of_replicas_goes_on_from_an_image() {
    let manifest = manifest(1);
    let live = |degrees: &[u16]| {
        let view = manifest.view_of_images(degrees);
        manifest.world.replicas().filter(|replica| view.is_live(*replica)).map(|it| it.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(live(&[1, 1]), ["0.1", "1.0"]);
    assert_eq!(live(&[2, 1]), ["0.0", "0.1", "1.0"]);
    assert_eq!(live(&manifest.degrees), ["0.0", "0.1", "1.0", "1.1"]);
    let view = manifest.view_of_images(&manifest.degrees);
    assert!(view.number > manifest.view.number && view.fits(&manifest.world));
    assert!((0..2).all(|rank| view.kinship(VirtualRank(rank)).is_one_lineage(view.live_set(VirtualRank(rank)))));
    let proven = Manifest { proof: Some(Proof::Independent), ..manifest.clone() }.view_of_images(&manifest.degrees);
    assert!((0..2).all(|rank| proven.kinship(VirtualRank(rank)).is_trivial()));
    // Without sequence numbers, the view of the checkpoint is used as it is.
    let world = World::uniform(2, 1);
    let plain = Manifest { view: View::initial(&world), world, ..manifest };
    assert_eq!(plain.view_of_images(&[1, 1]), plain.view);
}

#[test]
fn a_part_is_found_on_its_own_host_or_on_that_with_its_copy() {
    let mut manifest = manifest(1);
    manifest.hosts.push("c".into());
    let homes = |manifest: &Manifest, there: &[&str]| manifest.homes(&|name| there.contains(&name));
    // A shared directory is visible to all hosts.
    assert_eq!(homes(&manifest, &[]), Ok(vec![None; 3]));
    (manifest.level, manifest.copies) = (Level::Partner, vec![Some(1), Some(2), None]);
    // All processes were on host b.
    assert_eq!(homes(&manifest, &["a", "b", "c"]), Ok(vec![None, Some(1), None]));
    assert_eq!(homes(&manifest, &["a", "c"]), Ok(vec![None, Some(2), None]));
    let homeless = homes(&manifest, &["a"]).unwrap_err();
    assert_eq!(homeless.to_string(), "a part of it is on b and c alone, which cannot be had");
}

#[test]
fn the_places_of_a_checkpoint_that_is_deleted_go_with_it() {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::of_job(parent.path(), 1);
    for generation in [1, 2] {
        crate::place::make(&crate::place::of_host(store.directory(), 0, Generation(generation)), &[Generation(1)])
            .unwrap();
        taken(&store, generation);
    }
    let seen = |generation| crate::place::seen(store.directory(), Generation(generation)).unwrap().len();
    store.delete(Generation(1)).unwrap();
    assert_eq!([1, 2].map(seen), [0, 1]);
    store.delete(Generation(2)).unwrap();
    assert!(!store.directory().join("at-0").exists());
}

#[test]
fn a_jobs_store_is_found_by_its_name_or_its_parents() {
    let parent = tempfile::tempdir().unwrap();
    let [one, other] = [1, 2].map(|job| Store::of_job(parent.path(), job));
    assert!(matches!(Store::find(parent.path()), Err(Error::Empty(_))));
    taken(&one, 1);
    assert_eq!(Store::find(parent.path()).unwrap().directory(), one.directory());
    assert_eq!(Store::find(one.directory()).unwrap().directory(), one.directory());
    taken(&other, 1);
    assert!(matches!(Store::find(parent.path()), Err(Error::Several { .. })));
    assert_eq!(Store::find(other.directory()).unwrap().directory(), other.directory());
    assert!(matches!(Store::find(&parent.path().join("nothing")), Err(Error::Empty(_))));
}

#[test]
fn nobody_else_can_read_a_checkpoint() {
    use std::os::unix::fs::MetadataExt;
    let parent = tempfile::tempdir().unwrap();
    let kept = taken(&Store::of_job(parent.path(), 1), 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&kept.directory), mode(&kept.directory.join(MANIFEST))), (0o700, 0o600));
}

#[test]
fn what_somebody_else_may_have_written_is_not_read() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let kept = taken(&Store::of_job(parent.path(), 1), 1);
    let manifest = kept.directory.join(MANIFEST);
    let allow = |mode| fs::set_permissions(&manifest, fs::Permissions::from_mode(mode)).unwrap();
    let is_foreign = || matches!(reader(&manifest, None), Err(Error::Foreign(path)) if path == manifest);
    allow(0o644);
    assert!(!is_foreign());
    for mode in [0o602, 0o620] {
        allow(mode);
        assert!(is_foreign(), "{mode:o}");
    }
    allow(0o600);
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only the superuser can give a file away");
    }
    std::os::unix::fs::chown(&manifest, Some(65534), None).unwrap();
    assert!(is_foreign());
    std::os::unix::fs::chown(&kept.directory, Some(65534), None).unwrap();
    assert!(!is_own(&kept.directory.metadata().unwrap()));
}

#[test]
fn where_there_is_no_directory_there_are_no_checkpoints() {
    let parent = tempfile::tempdir().unwrap();
    assert!(Store::below(&parent.path().join("nothing")).unwrap().is_empty());
}

/// A checkpoint stays while it is sent to the archive, and then until the next one is there.
#[test]
fn checkpoints_of_the_archive_stay_beside_the_newest() {
    let parent = tempfile::tempdir().unwrap();
    let key = Some(Secret::new([7; 32]));
    let store = Store::of_job(parent.path(), 0xabc).with_key(key.clone());
    let take = |generation, pinned: &[u64]| {
        store.begin(Generation(generation)).unwrap();
        let pinned = pinned.iter().copied().map(Generation).collect();
        store.commit(Manifest { pinned, ..taken_at(generation, generation, &[]) }).unwrap();
    };
    (1..5).for_each(|generation| take(generation, &[1]));
    assert_eq!(numbers(&store), [4, 3, 1]);
    let manifest = || archived_manifest(&store.open(Generation(1)).unwrap().manifest, Vec::new());
    let failed = store.archive(manifest(), |_| Err(io::Error::other("no room")));
    assert!(failed.is_err() && store.newest_archived().unwrap().is_none() && store.archived().is_none());
    // The file that is published is the manifest of a checkpoint in a store of its own.
    let elsewhere = Store::of_job(parent.path(), 0xdef).with_key(key);
    let kept = store.archive(manifest(), |path| {
        let place = elsewhere.mirror(&[Generation(1)]).unwrap().pop().unwrap().1;
        fs::create_dir(place.parent().unwrap())?;
        fs::copy(path, place).map(drop)
    });
    let kept = kept.unwrap().manifest;
    assert_eq!(elsewhere.open(Generation(1)).unwrap().manifest, kept);
    assert_eq!((store.newest_archived().unwrap(), store.archived().unwrap().manifest), (Some(Generation(1)), kept));
    (5..8).for_each(|generation| take(generation, &[1, 5]));
    assert_eq!(numbers(&store), [7, 6, 5, 1]);
    // A host that does not commit has the same ones.
    let copy = Store::of_job(&parent.path().join("copy"), 0xabc).with_key(store.key.clone());
    for generation in [1, 5, 6, 7] {
        let manifest = store.open(Generation(generation)).unwrap().manifest;
        copy.keep_copy(Manifest { files: Vec::new(), ..manifest }, &[6, 7].map(Generation)).unwrap();
    }
    assert_eq!(numbers(&copy), [7, 6, 5, 1]);
    // The one on its way was given up.
    take(8, &[1]);
    assert_eq!(numbers(&store), [8, 7, 1]);
}
