//! Seeds of the simulator, and steps of a few peers whose order a test chooses.

use super::*;
use crate::{SPREAD_TICKS, TIMEOUT_TICKS};
use simulation_kit::sweep;

#[test]
fn no_kept_record_is_lost_and_a_peer_leads_in_the_end() {
    let coordinators: u64 =
        sweep::right::<QuorumSimulator>(0..30, &Setup::default()).iter().map(|run| run.coordinators).sum();
    assert!(coordinators > 70, "{coordinators} coordinators are too few to show anything");
}

/// The others are planted below, in elections whose steps a test chooses.
#[test]
fn planted_mistakes_are_found() {
    use Mistake::{BeginsEarly, CountsOthers, ForgetsLast, GrowsEarly, KeptAtOnce, LeadsUnsure, PermitsEarly};
    let mistakes = [KeptAtOnce, LeadsUnsure, ForgetsLast, BeginsEarly, CountsOthers, GrowsEarly, PermitsEarly];
    sweep::finds::<QuorumSimulator>(&mistakes, 0..400, &Setup::default());
}

/// Delivers all messages until there are none.
fn deliver(peers: &mut BTreeMap<Id, Peer>) -> Vec<(Id, Output)> {
    let mut others = Vec::new();
    loop {
        let outputs: Vec<_> =
            peers.iter_mut().flat_map(|(id, peer)| peer.outputs().into_iter().map(|output| (*id, output))).collect();
        if outputs.is_empty() {
            return others;
        }
        for (id, output) in outputs {
            match output {
                Output::Send { to, message } => {
                    if let Some(peer) = peers.get_mut(&to) {
                        peer.handle(*message);
                    }
                }
                output => others.push((id, output)),
            }
        }
    }
}

fn three() -> BTreeMap<Id, Peer> {
    grown([1, 2, 3])
}

/// Three peers, the first of which leads.
fn grown([first, second, third]: [Id; 3]) -> BTreeMap<Id, Peer> {
    let mut peers = BTreeMap::from([(first, Peer::found(first, place(first), 3))]);
    peers.values_mut().for_each(Peer::permit);
    deliver(&mut peers);
    for id in [second, third] {
        peers.insert(id, Peer::join(id, 3));
        if let Some(first) = peers.get_mut(&first) {
            first.greet(id, place(id));
        }
    }
    for _ in 0..20 {
        peers.values_mut().for_each(Peer::tick);
        deliver(&mut peers);
    }
    peers
}

#[test]
fn three_become_voters_together_and_a_lost_one_is_replaced() {
    let mut peers = three();
    assert_eq!(peers[&1].voters(), [1, 2, 3]);
    assert_eq!(peers[&3].places().len(), 3);
    peers.remove(&3);
    peers.insert(4, Peer::join(4, 3));
    peers.get_mut(&1).expect("it is there").greet(4, place(4));
    for _ in 0..60 {
        peers.values_mut().for_each(Peer::tick);
        deliver(&mut peers);
    }
    assert_eq!(peers[&1].voters(), [1, 2, 4]);
    assert!(!peers[&2].places().contains_key(&3));
    // With a single follower the leader decides alone: the follower would only be another host to lose.
    peers.remove(&4);
    for _ in 0..60 {
        peers.values_mut().for_each(Peer::tick);
        deliver(&mut peers);
    }
    assert_eq!(peers[&1].voters(), [1]);
}

/// The leader is lost, with all its messages under way, as soon as three decide. True if another peer leads
/// afterwards.
fn goes_on_without_the_first(mistake: Option<Mistake>) -> bool {
    let mut peers = BTreeMap::from([(1, Peer::found(1, place(1), 3)), (2, Peer::join(2, 3)), (3, Peer::join(3, 3))]);
    peers.values_mut().for_each(|peer| peer.mistake = mistake);
    let first = peers.get_mut(&1).expect("it is there");
    first.permit();
    [2, 3].into_iter().for_each(|id| first.greet(id, place(id)));
    let mut mail = VecDeque::new();
    while peers[&1].deciding().len() < 3 {
        let sent = peers.values_mut().flat_map(Peer::outputs);
        mail.extend(
            sent.filter_map(
                |output| if let Output::Send { to, message } = output { Some((to, message)) } else { None },
            ),
        );
        match mail.pop_front() {
            Some((to, message)) => peers.get_mut(&to).expect("all are there").handle(*message),
            None => peers.values_mut().for_each(Peer::tick),
        }
    }
    peers.remove(&1);
    // Messages between the others are lost too.
    peers.values_mut().for_each(|peer| drop(peer.outputs()));
    for _ in 0..100 {
        peers.values_mut().for_each(Peer::tick);
        deliver(&mut peers);
    }
    peers.values().any(Peer::is_leading)
}

#[test]
fn three_voters_survive_a_loss_at_the_report_that_they_decide() {
    assert!(goes_on_without_the_first(None));
    assert!(!goes_on_without_the_first(Some(Mistake::DecidesEarly)), "the planted mistake is not found");
}

/// Two peers are left that wait equally long, and whose messages cross. True if one of them leads in the end.
fn one_of_two_is_elected(other: Id, mistake: Option<Mistake>) -> bool {
    let mut peers = grown([1, 2, other]);
    peers.values_mut().for_each(|peer| peer.mistake = mistake);
    peers.remove(&1);
    for _ in 0..20 * TIMEOUT_TICKS {
        peers.values_mut().for_each(Peer::tick);
        deliver(&mut peers);
    }
    peers.values().any(Peer::is_leading)
}

#[test]
fn two_that_stand_together_do_not_do_so_for_ever() {
    for other in (1..40).map(|times| 2 + times * SPREAD_TICKS) {
        assert!(one_of_two_is_elected(other, None), "of 2 and {other}");
        let is_found = !one_of_two_is_elected(other, Some(Mistake::StandsTogether));
        assert!(is_found, "the planted mistake is not found with {other}");
    }
}

#[test]
fn a_lost_leaders_records_are_with_another_in_two_timeouts() {
    let mut peers = three();
    let record = |text: &str| vec![ByteBuf::from(text)];
    let first = peers.get_mut(&1).expect("it is there");
    assert!(first.propose(&Proposal::Append(record("one"))));
    assert!(first.propose(&Proposal::Replace(record("all"))));
    assert!(first.propose(&Proposal::Append(record("two"))));
    assert!(deliver(&mut peers).contains(&(1, Output::Kept(3))));
    peers.remove(&1);
    let mut ticks = 0;
    while !peers.values().any(Peer::is_leading) {
        peers.values_mut().for_each(Peer::tick);
        deliver(&mut peers);
        ticks += 1;
        assert!(ticks < 100, "nobody leads");
    }
    assert!(ticks <= 2 * TIMEOUT_TICKS, "{ticks} ticks");
    let leading = peers.values().find(|peer| peer.is_leading()).expect("one does");
    assert_eq!(leading.records(), ["all", "two"].map(ByteBuf::from));
}

#[test]
fn no_coordinator_begins_during_or_after_a_proposed_end() {
    let mut peers = three();
    let first = peers.get_mut(&1).expect("it is there");
    assert!(first.may_begin_coordinator());
    assert!(first.propose(&Proposal::End("why".into())));
    assert!(!first.may_begin_coordinator());
    assert!(deliver(&mut peers).contains(&(1, Output::Ended("why".into()))));
    assert!(peers.values().all(|peer| !peer.may_begin_coordinator()));
}

#[test]
fn a_former_coordinators_proposals_do_not_count_for_the_next() {
    let mut peers = three();
    let record = |text: &str| vec![ByteBuf::from(text)];
    for coordinator in ["one", "other"] {
        let first = peers.get_mut(&1).expect("it is there");
        first.begin_coordinator();
        assert!(first.propose(&Proposal::Append(record(coordinator))));
        assert!(deliver(&mut peers).contains(&(1, Output::Kept(1))), "of the {coordinator} coordinator");
    }
}

#[test]
fn one_that_is_cut_off_yields() {
    let mut peers = three();
    for _ in 0..3 * TIMEOUT_TICKS {
        let first = peers.get_mut(&1).expect("it is there");
        first.tick();
        if first.outputs().contains(&Output::Yield) {
            return;
        }
    }
    panic!("it leads on");
}
