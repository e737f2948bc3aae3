use super::*;
use crate::{
    actor::Actor,
    testing::{examples, given, transitions},
};

const ID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn by() -> Actor {
    format!("prn_{ID}").parse().unwrap()
}
fn shred(reason: &str) -> SubjectCommand {
    SubjectCommand::Shred { by: by(), reason: reason.into() }
}
fn shredded() -> SubjectEvent {
    SubjectEvent::Shredded { by: by(), reason: "asked on 3 May".into() }
}

#[test]
fn a_subject_is_shredded_once_and_with_a_reason() {
    given::<Subject>([]).when(shred("asked on 3 May")).then([shredded()]);
    given::<Subject>([]).when(shred(" ")).then_rejected(SubjectError::NoReason);
    given::<Subject>([shredded()]).when(shred("again")).then_nothing();
}

#[test]
fn erasure_completes_only_after_the_shredding() {
    let erased = || SubjectEvent::ErasureCompleted;
    given::<Subject>([])
        .when(SubjectCommand::CompleteErasure)
        .then_rejected(SubjectError::NotShredded);
    given::<Subject>([shredded()]).when(SubjectCommand::CompleteErasure).then([erased()]);
    given::<Subject>([shredded(), erased()]).when(SubjectCommand::CompleteErasure).then_nothing();
    given::<Subject>([shredded(), erased()]).when(shred("again")).then_nothing();
}

#[test]
fn a_subject_is_an_install_or_a_principal() {
    for text in [format!("ins_{ID}"), format!("prn_{ID}")] {
        assert_eq!(text.parse::<SubjectId>().unwrap().to_string(), text);
    }
    for other in ["acme", "", &format!("job_{ID}")] {
        assert!(other.parse::<SubjectId>().is_err(), "{other}");
    }
}

#[test]
fn every_event_has_an_example() {
    examples::<Subject>(shredded(), |event| match event {
        SubjectEvent::Shredded { .. } => Some(SubjectEvent::ErasureCompleted),
        SubjectEvent::ErasureCompleted => None,
    });
}

#[test]
fn transitions_match_the_golden_table() {
    transitions::<Subject>(
        vec![
            ("not shredded", vec![]),
            ("shredded", vec![shredded()]),
            ("erased", vec![shredded(), SubjectEvent::ErasureCompleted]),
        ],
        vec![
            ("shred", shred("asked on 3 May")),
            ("complete erasure", SubjectCommand::CompleteErasure),
        ],
    );
}
