use super::*;
use control_network::door;
use control_network::link::{Link, Received};
use control_network::munge::Munge;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::SfdFlags;
use pool_client::refusal::Unsound;
use pool_client::{Client, identity};
use spare_pool::{News, Settings, Spare, Spares};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const TIME_MAX: Duration = Duration::from_secs(10);

/// Serves a pool with keys of adam and eve. Its state is in the directory.
fn serve(directory: &std::path::Path, munge: Option<Munge>) -> (SocketAddr, Vec<redrt_wire::secret::Secret>) {
    let users = directory.join("users");
    fs::create_dir(&users).unwrap();
    for (name, digits) in [("adam.key", "11"), ("eve.key", "22")] {
        fs::write(users.join(name), digits.repeat(32)).unwrap();
        fs::set_permissions(users.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let keys = Keys::load(&directory.join("secret"), &directory.join("admin"), Some(&users)).unwrap();
    let secrets = keys.secrets();
    let users = munge.map(|munge| Users::by(munge, keys.authority()).unwrap());
    let state = directory.join("state");
    let (told, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let store = Store::open(&state).unwrap();
        // A host is available once a look says so: the look of this pool never does.
        let probes = HostProbes::new("redrtd".into(), vec!["false".into()], TIME_MAX).unwrap();
        let pool = Pool::restore(Settings::shared(), store.load().unwrap(), Duration::ZERO);
        let console = Console::new("redspared");
        let server = Server::new(([127, 0, 0, 1], 0).into(), keys, users, pool, store, probes, &console).unwrap();
        told.send(server.hub.address()).unwrap();
        // The server ends with this process.
        let signals = SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_NONBLOCK).unwrap();
        let _ = server.run(&signals);
    });
    (address.recv().unwrap(), secrets)
}

fn say(
    address: SocketAddr,
    secret: &redrt_wire::secret::Secret,
    message: &ToPool,
) -> (Link<std::net::TcpStream>, FromPool) {
    let opened = door::dial(address, secret, TIME_MAX).unwrap();
    let mut link = Link::new(opened.stream, Some(opened.cipher));
    link.send(message).unwrap();
    loop {
        if let Some(answer) = link.next_message().unwrap() {
            return (link, answer);
        }
        assert!(matches!(link.receive().unwrap(), Received::Bytes), "it does not answer");
    }
}

#[test]
fn each_key_opens_what_its_holder_may_do() {
    let directory = tempfile::tempdir().unwrap();
    let (address, secrets) = serve(directory.path(), None);
    let [jobs, administrator, adam, eve] = &secrets[..] else { panic!("four keys") };
    let version = || env!("CARGO_PKG_VERSION").to_owned();
    let ask = |secret, question| match say(address, secret, &ToPool::Ask { version: version(), question }).1 {
        FromPool::Answer(answer) => answer,
        other => panic!("{other:?}"),
    };
    let add = |launcher: Option<&str>| {
        Question::Add(vec![Spare { launcher: launcher.map(str::to_owned), ..Spare::new("h9", 1) }])
    };
    for secret in [jobs, adam] {
        for question in [add(None), Question::Drain(vec!["h9".into()])] {
            let why = ask(secret, question).unwrap_err();
            assert_eq!(why, Refusal::NotAdministrator);
        }
        ask(secret, Question::Status).unwrap();
    }
    // Even the administrator may not name a command to run.
    let why = ask(administrator, add(Some("sh -c id"))).unwrap_err();
    assert_eq!(why, Refusal::Unsound(Unsound::Launcher("sh -c id".into())));
    ask(administrator, add(None)).unwrap();

    let hello = || ToPool::Hello { version: version(), job: JobId(7), leases: Vec::new(), proof: None };
    let (_link, welcome) = say(address, adam, &hello());
    assert!(matches!(welcome, FromPool::Welcome { .. }), "{welcome:?}");
    for stranger in [eve, jobs] {
        let (_link, refused) = say(address, stranger, &hello());
        assert_eq!(refused, FromPool::Refused(Refusal::OtherUser(JobId(7))));
    }
    let (_link, again) = say(address, adam, &hello());
    assert!(matches!(again, FromPool::Welcome { .. }), "{again:?}");
}

/// Stand-ins for MUNGE's commands that seal as user `uid`, and open without a key.
fn commands(directory: &std::path::Path, uid: u32) -> Munge {
    let program = |name: String, script: &str| {
        let path = directory.join(name);
        script_file::write(&path, &format!("#!/bin/sh\n{script}\n"));
        path.display().to_string()
    };
    let seal = program(format!("seal-{uid}"), &format!("printf MUNGE:{uid}:; cat"));
    let open = program(format!("open-{uid}"), r"sed '1s/^MUNGE:\([0-9]*\):/UID:   \1\n\n/'");
    Munge::with(&seal, &open)
}

#[test]
fn users_of_one_key_are_told_apart_by_munge() {
    let directory = tempfile::tempdir().unwrap();
    let root = commands(directory.path(), 0);
    let (address, secrets) = serve(directory.path(), Some(root.clone()));
    let [jobs, _, adam, _] = &secrets[..] else { panic!("four keys") };
    let hello = |proof| {
        let version = env!("CARGO_PKG_VERSION").into();
        ToPool::Hello { version, job: JobId(7), leases: Vec::new(), proof }
    };
    let sealed = |munge: &Munge, job| Some(Proof::Munge(munge.seal(&identity::words(job), None).unwrap()));
    let (_link, asked) = say(address, jobs, &hello(None));
    assert_eq!(asked, FromPool::Prove);
    let (_link, welcome) = say(address, jobs, &hello(sealed(&root, JobId(7))));
    let FromPool::Welcome { pass: Some(pass), .. } = welcome else { panic!("{welcome:?}") };
    let (_link, again) = say(address, jobs, &hello(Some(Proof::Pass(pass.clone()))));
    assert!(matches!(again, FromPool::Welcome { .. }), "{again:?}");

    let nobody = commands(directory.path(), 65534);
    let why = |secret, proof| match say(address, secret, &hello(proof)).1 {
        FromPool::Refused(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(why(jobs, sealed(&nobody, JobId(7))).contains("another user"));
    assert!(why(jobs, sealed(&nobody, JobId(8))).contains("for something else"));
    assert!(why(jobs, Some(Proof::Munge("rubbish".into()))).contains("cannot be opened"));
    assert!(why(adam, None).contains("another user"), "a key of a user says whose job it is");
}

/// Works until the pool was away and has let the job in again. False if that takes too long.
fn comes_back(job: &mut Client) -> bool {
    let since = Instant::now();
    while since.elapsed() < TIME_MAX {
        let mut fds = [PollFd::new(job.fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(10u8)).unwrap();
        job.work(since.elapsed());
        if matches!(job.poll_news(), Some(News::Note(line)) if line.ends_with("is back")) {
            return true;
        }
    }
    false
}

/// Later connections need no proof.
#[test]
fn a_job_proves_its_user_once_by_munge() {
    let directory = tempfile::tempdir().unwrap();
    let munge = commands(directory.path(), 0);
    let (address, secrets) = serve(directory.path(), Some(munge.clone()));
    let connect = |munge: &Munge| Client::connect_by(munge, address, &secrets[0], JobId(9), Duration::ZERO);
    let mut job = connect(&munge).unwrap();
    // A second connection of the same job displaces the first, which reconnects.
    let other = connect(&munge).unwrap();
    drop(other);
    assert!(comes_back(&mut job), "it was let in by its pass");
    let why = format!("{:#}", connect(&Munge::with("/no/such/munge", "")).err().expect("there is no MUNGE"));
    assert!(why.contains("tells users apart by MUNGE"), "{why}");
}
