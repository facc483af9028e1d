//! The same inputs make the same outputs, also in a coordinator that was saved and loaded between them.

mod checkpoints;
mod input;
mod world;

use super::*;
use redrt_wire::daemon::FromDaemon;
use redrt_wire::frame::{decode_body, encode_body};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use world::{Recording, Scenario, record, record_growth, record_silence};

/// Gives a coordinator these inputs of a recording, each as a journal would have kept it. Returns the outputs of each.
fn replay(coordinator: &mut Coordinator, recording: &Recording, inputs: std::ops::Range<usize>) -> Vec<String> {
    let give = |(now, input): &(Duration, Input)| {
        let input = decode_body(&encode_body(input)).expect("an input can be written down");
        coordinator.handle(*now, input);
        outputs(coordinator)
    };
    recording.inputs[inputs].iter().map(give).collect()
}

/// All outputs of the latest input, as text.
fn outputs(coordinator: &mut Coordinator) -> String {
    std::iter::from_fn(|| coordinator.poll_output()).map(|output| words(&output)).collect()
}

/// An output as text. Printed bytes are left out, since they may be many.
fn words(output: &Output) -> String {
    match output {
        Output::Show { rank, bytes, is_anew } => {
            let mut hasher = DefaultHasher::new();
            hasher.write(bytes);
            format!("Show {{ {rank:?}, {} bytes, {:x}, {is_anew} }}\n", bytes.len(), hasher.finish())
        }
        output => format!("{output:?}\n"),
    }
}

fn begin(recording: &Recording) -> Coordinator {
    let mut coordinator = Coordinator::new(recording.settings.clone());
    outputs(&mut coordinator);
    coordinator
}

fn written_down(coordinator: &Coordinator) -> Coordinator {
    decode_body(&encode_body(coordinator)).expect("a coordinator can be written down")
}

#[test]
fn the_same_inputs_make_the_same_outputs() {
    let spawning = (0..30).map(|seed| Scenario::of_seed(seed).spawning());
    for (seed, scenario) in (0..120).map(Scenario::of_seed).chain(spawning).enumerate() {
        let recording = record(scenario);
        let mut coordinator = begin(&recording);
        let again = replay(&mut coordinator, &recording, 0..recording.inputs.len());
        assert_eq!(again, recording.outputs, "scenario {seed}");
    }
}

#[test]
fn a_coordinator_saved_between_two_inputs_goes_on_unchanged() {
    for seed in 0..30 {
        let scenario = Scenario::of_seed(seed);
        let recording = record(if seed % 4 == 0 { scenario.spawning() } else { scenario });
        let count = recording.inputs.len();
        let mut coordinator = begin(&recording);
        for at in 0..count {
            // Each coordinator goes on from the saved state of the one before. State that is lost shows in later
            // outputs.
            coordinator = written_down(&coordinator);
            assert_eq!(
                replay(&mut coordinator, &recording, at..at + 1)[0],
                recording.outputs[at],
                "seed {seed}, input {at}"
            );
        }
        let mut other = begin(&recording);
        replay(&mut other, &recording, 0..count);
        assert_eq!(encode_body(&coordinator), encode_body(&other), "seed {seed}");
    }
}

/// Shows that these tests can tell coordinators apart: one that lost an input acts differently.
#[test]
fn a_coordinator_that_has_lost_an_input_is_not_the_same() {
    let recording = record(Scenario::of_seed(1));
    let count = recording.inputs.len();
    let is_loss = |at: &usize| recording.outputs[*at].contains("Lost(");
    let lost = (0..count).find(is_loss).expect("a replica is lost in this scenario");
    let mut coordinator = begin(&recording);
    replay(&mut coordinator, &recording, 0..lost);
    assert_ne!(replay(&mut coordinator, &recording, lost + 1..count), recording.outputs[lost + 1..]);
}

type RecordKind = (&'static str, fn(&Input) -> bool);

/// Shows that each record counts: a journal that lacks the first of its kind makes another coordinator.
#[test]
fn a_record_that_is_forgotten_makes_another_coordinator() {
    let kinds: [RecordKind; 7] = [
        ("Opened", |input| matches!(input, Input::Store { answer: StoreAnswer::Opened(_), .. })),
        ("Kept", |input| matches!(input, Input::Store { answer: StoreAnswer::Kept(_), .. })),
        ("Part", |input| matches!(input, Input::Daemon { message: FromDaemon::Part { .. }, .. })),
        ("WentBack", |input| matches!(input, Input::WentBack(_))),
        ("HostLost", |input| matches!(input, Input::HostLost { .. })),
        ("StandardInput", |input| matches!(input, Input::StandardInput(_))),
        ("Checkpoint", |input| matches!(input, Input::Checkpoint { .. })),
    ];
    for (name, is_it) in kinds {
        let is_found = (0..200).any(|seed| {
            let mut recording = record(Scenario::of_seed(seed));
            let Some(at) = recording.inputs.iter().position(|(_, input)| is_it(input)) else { return false };
            recording.inputs.remove(at);
            recording.outputs.remove(at);
            let mut coordinator = begin(&recording);
            replay(&mut coordinator, &recording, 0..recording.inputs.len()) != recording.outputs
        });
        assert!(is_found, "{name}");
    }
}

#[test]
fn a_checkpoint_is_given_up_when_nobody_answers() {
    let mut stages: BTreeSet<&str> = BTreeSet::new();
    for seed in 0..600 {
        let Some(recording) = record_silence(Scenario::of_seed(seed), seed as usize % 300) else { continue };
        let last = recording.outputs.last().expect("it was given up");
        stages.extend(["Late(", "Unwritten(", "StoreSilent("].into_iter().find(|why| last.contains(why)));
    }
    assert_eq!(stages.len(), 3, "{stages:?}");
}

#[test]
fn a_checkpoint_whose_images_grow_slowly_is_not_given_up() {
    let given_up: Vec<_> = (0..40).filter_map(|seed| record_growth(Scenario::of_seed(seed).calm())).collect();
    assert!(given_up.len() > 10 && !given_up.contains(&true), "{given_up:?}");
}

#[test]
fn the_scenarios_are_of_all_kinds() {
    let all: String = (0..1000).flat_map(|seed| record(Scenario::of_seed(seed)).outputs).collect();
    let kinds = [
        "Show {",
        "ShowError",
        "Recovered(",
        "CheckpointTaken",
        "CheckpointFailed",
        "GoBack",
        "Finish { code: 0",
        "DaemonLost",
        "outcome: Ok",
        "outcome: Err",
        "OutputMismatch",
        "Input {",
        "NoSpare",
        "KilledByUser",
        "HoldOutput",
        "Expel",
        "SphereLost",
        "OutputHeld",
        "Left {",
        "will_go_on: true",
        "Checkpoint(true)",
        "Checkpoint(false)",
        "Site(Request",
        "Site(Release",
        "FindHost",
        "DismissHost",
        "cannot be used",
    ];
    let missing: Vec<_> = kinds.into_iter().filter(|kind| !all.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
