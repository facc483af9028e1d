//! Control messages and hops that one failure costs, counted over the real shape of the tree and by the real
//! replication machines, for jobs too large to be run here. Only tests use it; `docs/hosts.md` shows the table.
//!
//! The daemon that saw the death reports it to the coordinator: as many messages as it is deep in the tree. The
//! coordinator sends the view to the daemons below it, these to those below them; each hands it to its processes. Then
//! every process that the lost replica has sent anything sends one `Resume` to the next of its sphere. That is one for
//! each partner, whatever the size of the job.

use host_watch::shape;
use quiesce::{Config, Frame, Output, Protocol, Replica, Verification};
use redrt_types::{ContextId, Digest, Envelope, ReplicaId, SeqNum, Tag, View, VirtualRank, World};

/// Processes on one host.
const SLOTS: u32 = 16;
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    hosts: u32,
    /// Messages that carry the report to the coordinator.
    report_hops: u32,
    /// Messages that carry the view to all daemons.
    broadcast_messages: u32,
    /// Length of the longest chain of these.
    broadcast_hops: u32,
    /// Maximum of these that one daemon, or the coordinator, sends.
    sent_by_one: u32,
    /// `Resume`s of a partner in the lost replica's plane, and of one in the other plane.
    resumes_by_one: [usize; 2],
    /// `Resume`s of processes that are no partners of its rank.
    resumes_by_others: [usize; 2],
}

fn depth(host: u32, fan_out: u32) -> u32 {
    shape::parent(host, fan_out).map_or(1, |above| depth(above, fan_out) + 1)
}

/// Number of `Resume`s of one process at the change of view. `lost`: rank from which it has received a message before,
/// `None` for no message.
fn resumes(world: &World, me: ReplicaId, before: &View, after: &View, lost: Option<VirtualRank>) -> usize {
    let (protocol, verification) = (Protocol::Hash, Verification::Strict);
    let mut machine = Replica::new(Config { me, world: world.clone(), view: before.clone(), protocol, verification });
    if let Some(rank) = lost {
        let envelope = Envelope { source: rank.0, tag: Tag(0), length_bytes: 0 };
        let (context, sequence, digest) = (ContextId(0), SeqNum(0), Digest(0));
        let supplier = ReplicaId { rank, index: me.index };
        let offer = Frame::Offer { context, sequence, envelope, digest, core: None };
        machine.handle(supplier, offer).expect("it is the first");
        while machine.poll_output().is_some() {}
    }
    machine.apply_view(after.clone()).expect("nobody has said anything");
    let outputs = std::iter::from_fn(|| machine.poll_output());
    outputs.filter(|output| matches!(output, Output::Transmit { frame: Frame::Resume { .. }, .. })).count()
}

/// Cost of one replica's death in a job of this many spheres with two replicas each.
fn cost(spheres: u32, fan_out: u32) -> Cost {
    let hosts = (2 * spheres).div_ceil(SLOTS);
    let told = std::iter::once(None).chain((0..hosts).map(Some));
    let told: Vec<_> = told.map(|above| shape::children(above, fan_out, hosts).count() as u32).collect();
    let world = World::uniform(spheres, 2);
    let before = View::initial(&world);
    let lost = ReplicaId::new(spheres / 2, 1);
    let after = before.without(&[lost]);
    let resumes = |partner: Option<VirtualRank>| {
        [1, 0].map(|plane| resumes(&world, ReplicaId::new(0, plane), &before, &after, partner))
    };
    Cost {
        hosts,
        report_hops: depth(hosts - 1, fan_out),
        broadcast_messages: told.iter().sum(),
        broadcast_hops: depth(hosts - 1, fan_out),
        sent_by_one: told.into_iter().max().unwrap_or(0),
        resumes_by_one: resumes(Some(lost.rank)),
        resumes_by_others: resumes(None),
    }
}

/// It costs nothing more for each partner.
#[test]
fn a_failure_costs_a_logarithm_of_the_number_of_spheres() {
    let sizes = [100, 1_000, 10_000, 100_000];
    println!("fan-out spheres   hosts  report  hops  messages  by one  resumes by one");
    for fan_out in [2, shape::FAN_OUT] {
        for spheres in sizes {
            let cost = cost(spheres, fan_out);
            println!(
                "{fan_out:>7} {spheres:>7} {:>7} {:>7} {:>5} {:>9} {:>7}  {:?}",
                cost.hosts,
                cost.report_hops,
                cost.broadcast_hops,
                cost.broadcast_messages,
                cost.sent_by_one,
                cost.resumes_by_one
            );
            // Each host gets the view once, from a sender within its fan-out.
            assert_eq!(cost.broadcast_messages, cost.hosts);
            assert!(cost.sent_by_one <= fan_out);
            let levels = f64::from(cost.hosts).log(f64::from(fan_out)).ceil() as u32 + 1;
            assert!(cost.broadcast_hops <= levels && cost.report_hops <= levels, "{spheres} spheres: {cost:?}");
            assert_eq!((cost.resumes_by_one, cost.resumes_by_others), ([1, 0], [0, 0]), "{spheres} spheres");
        }
    }
}
