//! Damaged messages between jobs that meet.

use super::port::Terms;
use super::{OutcomeMessage, contacts, contacts_from_words, words_of_contacts};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use redrt_engine::contact::Contact;
use redrt_types::ProcessIndex;
use redrt_wire::frame::{FrameReader, encode};
use redrt_wire::secret::Secret;

fn contact(rank: u32) -> Contact {
    let address = (rank != 1).then(|| ([127, 0, 0, 1], 99).into());
    Contact { job: 5, tree: 5, process: ProcessIndex(rank), address, secret: Secret::new([6; 32]) }
}

fn members() -> Vec<Contact> {
    (0..3).map(contact).collect()
}

fn damaged(bytes: &[u8], damage: &[(Index, u8)], cut: Option<Index>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, value) in damage {
        *place.get_mut(&mut bytes) = *value;
    }
    bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
    bytes
}

#[test]
fn undamaged_words_are_understood() {
    assert_eq!(contacts_from_words(&words_of_contacts(&members())), Some(members()));
    assert_eq!(contacts_from_words(&[]), None);
    assert_eq!(contacts_from_words(&[u64::MAX]), None);
}

proptest! {
    #[test]
    fn fuzz_damaged_terms_are_heard_or_refused(
        damage in vec((any::<Index>(), any::<u8>()), 1..4),
        cut in proptest::option::weighted(0.2, any::<Index>()),
        step in 1_usize..200,
    ) {
        let bytes = damaged(&encode(&Terms { members: members(), context: 7 }), &damage, cut);
        let mut frames = FrameReader::default();
        for part in bytes.chunks(step) {
            frames.push(part);
            match frames.next::<Terms>() {
                Ok(None) => {}
                // Each member takes at least a byte.
                Ok(Some(terms)) => prop_assert!(terms.members.len() <= bytes.len()),
                Err(_) => break,
            }
        }
    }

    #[test]
    fn fuzz_what_a_damaged_root_tells_is_understood_or_refused(
        fails: bool,
        damage in vec((any::<Index>(), any::<u8>()), 1..4),
        cut in proptest::option::weighted(0.2, any::<Index>()),
    ) {
        let told = match fails {
            true => OutcomeMessage::Failed { code: 16, message: "no port".into() },
            false => OutcomeMessage::Met { context: 7, remote: members(), note: 1 },
        };
        let bytes = damaged(&postcard::to_stdvec(&told).unwrap(), &damage, cut);
        if let Ok(OutcomeMessage::Met { remote, .. }) = postcard::from_bytes(&bytes) {
            prop_assert!(remote.len() <= bytes.len());
        }
    }

    #[test]
    fn fuzz_damaged_contacts_are_understood_or_refused(
        place in any::<Index>(), word: u64, damage in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut words = words_of_contacts(&members());
        *place.get_mut(&mut words) = word;
        if let Some(members) = contacts_from_words(&words) {
            prop_assert!(members.len() <= 8 * words.len());
        }
        let said = damaged(&postcard::to_stdvec(&contact(2)).unwrap(), &damage, None);
        if let Ok(members) = contacts(vec![said]) {
            prop_assert_eq!(members.len(), 1);
        }
    }
}
