//! Seeds of the simulator, and steps of a few members whose order a test chooses.

use super::*;
use crate::{SPREAD_TICKS, TIMEOUT_TICKS};
use simulation_kit::sweep;

#[test]
fn no_kept_record_is_lost_and_a_member_leads_in_the_end() {
    let roots: u64 = sweep::right::<QuorumSimulator>(0..60, &Setup::default()).iter().map(|run| run.roots).sum();
    assert!(roots > 150, "{roots} roots are too few to show anything");
}

/// The others are planted below, in elections whose steps a test chooses.
#[test]
fn planted_mistakes_are_found() {
    use Mistake::{BeginsEarly, CountsOthers, ForgetsLast, GrowsEarly, KeptAtOnce, LeadsUnsure, PermitsEarly};
    let mistakes = [KeptAtOnce, LeadsUnsure, ForgetsLast, BeginsEarly, CountsOthers, GrowsEarly, PermitsEarly];
    sweep::finds::<QuorumSimulator>(&mistakes, 0..400, &Setup::default());
}

/// Delivers all messages until there are none.
fn deliver(members: &mut BTreeMap<Id, Member>) -> Vec<(Id, Output)> {
    let mut others = Vec::new();
    loop {
        let outputs: Vec<_> = members
            .iter_mut()
            .flat_map(|(id, member)| member.outputs().into_iter().map(|output| (*id, output)))
            .collect();
        if outputs.is_empty() {
            return others;
        }
        for (id, output) in outputs {
            match output {
                Output::Send { to, message } => {
                    if let Some(member) = members.get_mut(&to) {
                        member.hear(*message);
                    }
                }
                output => others.push((id, output)),
            }
        }
    }
}

fn three() -> BTreeMap<Id, Member> {
    grown([1, 2, 3])
}

/// Three members, the first of which leads.
fn grown([first, second, third]: [Id; 3]) -> BTreeMap<Id, Member> {
    let mut members = BTreeMap::from([(first, Member::found(first, place(first), 3))]);
    members.values_mut().for_each(Member::permit);
    deliver(&mut members);
    for id in [second, third] {
        members.insert(id, Member::join(id, 3));
        if let Some(first) = members.get_mut(&first) {
            first.greet(id, place(id));
        }
    }
    for _ in 0..20 {
        members.values_mut().for_each(Member::tick);
        deliver(&mut members);
    }
    members
}

#[test]
fn three_become_voters_together_and_a_lost_one_is_replaced() {
    let mut members = three();
    assert_eq!(members[&1].voters(), [1, 2, 3]);
    assert_eq!(members[&3].places().len(), 3);
    members.remove(&3);
    members.insert(4, Member::join(4, 3));
    members.get_mut(&1).expect("it is there").greet(4, place(4));
    for _ in 0..60 {
        members.values_mut().for_each(Member::tick);
        deliver(&mut members);
    }
    assert_eq!(members[&1].voters(), [1, 2, 4]);
    assert!(!members[&2].places().contains_key(&3));
    // With a single follower the leader decides alone: the follower would only be another host to lose.
    members.remove(&4);
    for _ in 0..60 {
        members.values_mut().for_each(Member::tick);
        deliver(&mut members);
    }
    assert_eq!(members[&1].voters(), [1]);
}

/// The leader is lost, with all its messages under way, as soon as three decide. True if another member leads
/// afterwards.
fn goes_on_without_the_first(mistake: Option<Mistake>) -> bool {
    let mut members =
        BTreeMap::from([(1, Member::found(1, place(1), 3)), (2, Member::join(2, 3)), (3, Member::join(3, 3))]);
    members.values_mut().for_each(|member| member.mistake = mistake);
    let first = members.get_mut(&1).expect("it is there");
    first.permit();
    [2, 3].into_iter().for_each(|id| first.greet(id, place(id)));
    let mut mail = VecDeque::new();
    while members[&1].deciding().len() < 3 {
        let sent = members.values_mut().flat_map(Member::outputs);
        mail.extend(
            sent.filter_map(
                |output| if let Output::Send { to, message } = output { Some((to, message)) } else { None },
            ),
        );
        match mail.pop_front() {
            Some((to, message)) => members.get_mut(&to).expect("all are there").hear(*message),
            None => members.values_mut().for_each(Member::tick),
        }
    }
    members.remove(&1);
    // Messages between the others are lost too.
    members.values_mut().for_each(|member| drop(member.outputs()));
    for _ in 0..100 {
        members.values_mut().for_each(Member::tick);
        deliver(&mut members);
    }
    members.values().any(Member::is_leading)
}

#[test]
fn three_voters_survive_a_loss_at_the_report_that_they_decide() {
    assert!(goes_on_without_the_first(None));
    assert!(!goes_on_without_the_first(Some(Mistake::DecidesEarly)), "the planted mistake is not found");
}

/// Two members are left that wait equally long, and whose messages cross. True if one of them leads in the end.
fn one_of_two_is_elected(other: Id, mistake: Option<Mistake>) -> bool {
    let mut members = grown([1, 2, other]);
    members.values_mut().for_each(|member| member.mistake = mistake);
    members.remove(&1);
    for _ in 0..20 * TIMEOUT_TICKS {
        members.values_mut().for_each(Member::tick);
        deliver(&mut members);
    }
    members.values().any(Member::is_leading)
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
    let mut members = three();
    let record = |text: &str| vec![ByteBuf::from(text)];
    let first = members.get_mut(&1).expect("it is there");
    assert!(first.propose(&Proposal::Append(record("one"))));
    assert!(first.propose(&Proposal::Replace(record("all"))));
    assert!(first.propose(&Proposal::Append(record("two"))));
    assert!(deliver(&mut members).contains(&(1, Output::Kept(3))));
    members.remove(&1);
    let mut ticks = 0;
    while !members.values().any(Member::is_leading) {
        members.values_mut().for_each(Member::tick);
        deliver(&mut members);
        ticks += 1;
        assert!(ticks < 100, "nobody leads");
    }
    assert!(ticks <= 2 * TIMEOUT_TICKS, "{ticks} ticks");
    let leading = members.values().find(|member| member.is_leading()).expect("one does");
    assert_eq!(leading.records(), ["all", "two"].map(ByteBuf::from));
}

#[test]
fn no_root_begins_during_or_after_a_proposed_end() {
    let mut members = three();
    let first = members.get_mut(&1).expect("it is there");
    assert!(first.may_begin_root());
    assert!(first.propose(&Proposal::End("why".into())));
    assert!(!first.may_begin_root());
    assert!(deliver(&mut members).contains(&(1, Output::Ended("why".into()))));
    assert!(members.values().all(|member| !member.may_begin_root()));
}

#[test]
fn a_former_roots_proposals_do_not_count_for_the_next() {
    let mut members = three();
    let record = |text: &str| vec![ByteBuf::from(text)];
    for root in ["one", "other"] {
        let first = members.get_mut(&1).expect("it is there");
        first.begin_root();
        assert!(first.propose(&Proposal::Append(record(root))));
        assert!(deliver(&mut members).contains(&(1, Output::Kept(1))), "of the {root} root");
    }
}

#[test]
fn one_that_is_cut_off_yields() {
    let mut members = three();
    for _ in 0..3 * TIMEOUT_TICKS {
        let first = members.get_mut(&1).expect("it is there");
        first.tick();
        if first.outputs().contains(&Output::Yield) {
            return;
        }
    }
    panic!("it leads on");
}
