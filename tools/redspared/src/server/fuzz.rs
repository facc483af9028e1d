//! Damaged messages of jobs and administrators, and damaged results of looks at hosts.

use super::*;
use damage::{Damage, damage};
use proptest::collection::vec;
use proptest::prelude::*;
use redrt_wire::frame::{FrameReader, encode};
use spare_pool::{Facts, Settings, Spare};
use std::cell::RefCell;

const TIME_MAX: Duration = Duration::from_secs(10);
const HOSTS: [&str; 2] = ["h1", "h2"];

fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

fn facts() -> Facts {
    Facts {
        version: version(),
        memory_bytes: 1 << 40,
        cpu_features: ["avx2".into(), "x86_64".into()].into(),
        cpu_count: 4,
        load_milli: 1500,
    }
}

/// At least one message of each kind.
fn messages() -> Vec<Vec<u8>> {
    let asked = |question| ToPool::Ask { version: version(), question };
    let request = Request::new(JobId(7)).with_memory(1 << 20).apart_from(["h1"]).excluding(["h9"]);
    let hosts = || HOSTS.map(str::to_owned).to_vec();
    let all = [
        ToPool::Hello { version: version(), job: JobId(7), leases: vec![LeaseId(0), LeaseId(3)], proof: None },
        ToPool::Hello { version: version(), job: JobId(7), leases: Vec::new(), proof: None },
        ToPool::Hello { version: version(), job: JobId(7), leases: Vec::new(), proof: Some(Proof::Munge("x".into())) },
        ToPool::Request { number: 1, request: request.clone() },
        ToPool::Request { number: 2, request: Request { version: Some(version()), ..request } },
        ToPool::Withdraw { number: 1 },
        ToPool::Renew { round: 4 },
        ToPool::Succeeded(LeaseId(0)),
        ToPool::End { lease: LeaseId(0), end: End::Released },
        ToPool::End { lease: LeaseId(1), end: End::Failed("it broke".into()) },
        ToPool::Leave,
        asked(Question::Status),
        asked(Question::Add(vec![Spare { rack: Some("r".into()), ..Spare::new("h3", 2) }, Spare::new("h1", 4)])),
        asked(Question::Remove { hosts: hosts(), force: true }),
        asked(Question::Drain(hosts())),
        asked(Question::Bad { hosts: hosts(), why: "it burns".into() }),
    ];
    all.iter().map(encode).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// A message on one of two connections; the second is the administrator's.
    Message { which: prop::sample::Index, link: u64, damage: Option<Damage> },
    /// A look at a host has printed its answer, possibly damaged.
    Look { host: usize, damage: Option<Damage> },
}

fn step() -> impl Strategy<Value = Step> {
    let damage = || proptest::option::of(damage());
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 0u64..2, damage())
            .prop_map(|(which, link, damage)| Step::Message { which, link, damage }),
        1 => (0..HOSTS.len(), damage()).prop_map(|(host, damage)| Step::Look { host, damage }),
    ]
}

fn after(damage: Option<&Damage>, bytes: &[u8]) -> Vec<u8> {
    damage.map_or_else(|| bytes.to_vec(), |damage| damage.done_to(bytes))
}

fn new_pool() -> Pool {
    let mut pool = Pool::new(Settings { watch: None, ..Settings::shared() });
    for host in HOSTS {
        pool.add(Spare::new(host, 2), Duration::ZERO);
    }
    pool
}

/// A server without connections.
fn server() -> Server<'static> {
    let directory = tempfile::tempdir().unwrap();
    let keys = Keys::load(&directory.path().join("jobs"), &directory.path().join("admin"), None).unwrap();
    let probes = HostProbes::new("redrtd".into(), vec!["false".into()], TIME_MAX).unwrap();
    let console = Box::leak(Box::new(Console::silent("redspared")));
    Server::new(([127, 0, 0, 1], 0).into(), keys, None, new_pool(), Store::in_memory(), probes, console).unwrap()
}

thread_local! {
    /// Shared by all cases: a server's parts other than the pool are expensive to make.
    static SERVER: RefCell<Server<'static>> = RefCell::new(server());
}

impl Server<'_> {
    fn take(&mut self, step: &Step, messages: &[Vec<u8>]) {
        match step {
            Step::Message { which, link, damage } => {
                let (link, holder) =
                    (LinkId::of_nobody(*link), [Holder::Jobs, Holder::Administrator][*link as usize].clone());
                self.holders.insert(link, holder);
                let mut frames = FrameReader::default();
                frames.push(&after(damage.as_ref(), which.get::<Vec<u8>>(messages)));
                while let Ok(Some(message)) = frames.next::<ToPool>() {
                    self.handle(link, message);
                }
            }
            Step::Look { host, damage } => {
                let printed = after(damage.as_ref(), &serde_json::to_vec(&facts()).unwrap());
                if let Ok(found) = serde_json::from_slice::<Facts>(&printed) {
                    let now = self.now();
                    self.pool.seen(HOSTS[*host], Ok(found), now);
                }
            }
        }
        self.carry_out().unwrap();
    }
}

proptest! {
    #[test]
    fn fuzz_damaged_messages_leave_a_pool_that_can_be(steps in vec(step(), 1..12)) {
        let messages = messages();
        SERVER.with_borrow_mut(|server| {
            server.pool = new_pool();
            (server.jobs, server.tickets, server.holders) = Default::default();
            for step in &steps {
                server.take(step, &messages);
                let stored = server.pool.stored();
                prop_assert_eq!(stored.check(), Ok(()));
                prop_assert!(stored.hosts.values().all(|record| check(&record.spare).is_ok()));
                let names: Vec<_> = server.jobs.keys().copied().collect();
                let shown = report::status(&server.pool, &names, server.now());
                prop_assert_eq!(shown["hosts"].as_array().map(Vec::len), Some(stored.hosts.len()));
            }
            Ok(())
        })?;
    }
}
