use super::*;
use proptest::prelude::*;
use redrt_types::{ReplicaId, ViewNumber};
use redrt_wire::checkpoint::Generation;
use redrt_wire::event::Event;
use redrt_wire::lack::Lack;
use replication_manager::{EndReason, Refusal, Report, RetireReason};

const VIEW: ViewNumber = ViewNumber(1);

fn told(report: &Report) -> String {
    line(report, &|_| "h".into()).expect("it has a line").1
}

#[test]
fn a_replica_that_goes_is_told_of_with_its_host_and_the_reason() {
    let (by, peer) = (ReplicaId::new(0, 0), ReplicaId::new(1, 1));
    let refusal = || Refusal { by: Some(by), peer: Some(peer), what: "sent rubbish".into() };
    let retired = told(&Report::Retired { replica: peer, reason: RetireReason::Refused(refusal()) });
    let beginning = "retiring replica 1.1 on h: it sent what no sound process sends: replica 0.0";
    assert!(retired.starts_with(beginning), "{retired}");
    let ending = told(&Report::Ending(EndReason::Refused(refusal())));
    assert!(ending.contains("replica 0.0 refused a frame: replica 1.1 sent rubbish"), "{ending}");
    assert!(ending.contains("ending the job"), "{ending}");
    let lack = Lack::Connection { errno: 24 };
    let unable = told(&Report::Retired { replica: by, reason: RetireReason::Unable(lack) });
    assert!(unable.starts_with("retiring replica 0.0 on h: it cannot"), "{unable}");
    let unable = told(&Report::Ending(EndReason::Unable { replica: by, lack }));
    assert!(unable.starts_with("replica 0.0 on h cannot"), "{unable}");
}

#[test]
fn what_the_kernel_killed_for_want_of_memory_is_told_as_that() {
    use redrt_wire::exit::Exit;
    use redrt_wire::no_image::NoImage;
    use replication_manager::{CloneFailure, Loss};
    let (replica, source) = (ReplicaId::new(0, 1), ReplicaId::new(0, 0));
    let loss = Loss { replica, exit: Exit::OutOfMemory, is_of_host: false, greeted: true, left: 1, view: VIEW };
    let lost = told(&Report::Lost(loss));
    assert!(lost.contains("killed by signal 9 (SIGKILL) of the kernel, which had no memory left"), "{lost}");
    let why = CloneFailure::NoImage(NoImage::NotEnoughMemory { needed_bytes: 90 << 20, free_bytes: 31 << 20 });
    let waits = told(&Report::CloneFailed { replica, source, host: "h".into(), why });
    assert_eq!(
        waits,
        "0.0 is copied to h as 0.1 when there is memory for it: it needs about 90 MiB, and 31 MiB are free there"
    );
}

/// A crash is the program's, a kill from outside is not.
#[test]
fn a_job_that_went_back_too_often_says_whose_fault_it_is() {
    use redrt_wire::exit::Exit;
    use replication_manager::Loss;
    let told_of = |exit| {
        let replica = ReplicaId::new(0, 0);
        let loss = Loss { replica, exit, is_of_host: false, greeted: true, left: 0, view: VIEW };
        told(&Report::Ending(EndReason::SphereLost { loss, spent: Some(Generation(4)) }))
    };
    let crash = told_of(Exit::Signal(11));
    assert!(
        crash.ends_with(
            "to checkpoint 4 3 times, and the program fails on its way from there each time; ending the job"
        )
    );
    let kill = told_of(Exit::Signal(9));
    assert!(kill.ends_with("3 times without another since; ending it, to be resumed (redrun --resume)"), "{kill}");
}

#[test]
fn a_function_that_a_job_does_not_have_is_told_with_the_reason() {
    let (function, why) = ("MPI_Comm_spawn".into(), "with redrun -r 1 only".into());
    let event = Event::Unsupported { replica: ReplicaId::new(3, 1), function, why };
    assert_eq!(told(&Report::Event(event)), "rank 3 on h: MPI_Comm_spawn was refused: with redrun -r 1 only");
}

proptest! {
    /// Every event of an agent has a record.
    #[test]
    fn fuzz_any_event_has_a_record_and_perhaps_a_line(kind in 0u8..12, bytes in proptest::collection::vec(any::<u8>(), 1..80)) {
        // Arbitrary bytes in the form of a message: the variant first.
        let mut frame = (bytes.len() as u32 + 3).to_le_bytes().to_vec();
        frame.extend(redrt_wire::frame::WIRE_VERSION.to_le_bytes());
        frame.push(kind);
        frame.extend(&bytes);
        let mut reader = redrt_wire::frame::FrameReader::default();
        reader.push(&frame);
        if let Ok(Some(event)) = reader.next::<Event>() {
            let report = Report::Event(event);
            let _ = line(&report, &|_| "h".into());
            prop_assert!(!record(&report, &|_| "h".into()).0.is_empty());
        }
    }
}
