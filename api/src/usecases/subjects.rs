//! Whose data is kept, and the end of it.
use domain::{
    access::Access,
    install::Install,
    subject::{Subject, SubjectCommand, SubjectId},
};
use event_log::sealed::shred;
use futures::FutureExt as _;

use crate::{
    execute::{Call, Done, Unit},
    problem::{Code, Problem},
    state::App,
};

/// Make everything that is kept of a subject unreadable, for ever. Refused while it is in use. From the answer on nobody
/// reads it at this server; copies are erased afterwards (`background/erasure.rs`). Of a subject that is shredded already
/// the copies are erased again.
pub async fn shred(
    app: &App,
    call: &Call,
    subject: SubjectId,
    reason: String,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    let told = app.engine.transact(call, move |unit| {
        let command = SubjectCommand::Shred { by: by.clone(), reason: reason.clone() };
        async move {
            is_over(unit, subject).await?;
            unit.tell::<Subject>(subject, command).await.map(drop)
        }
        .boxed()
    });
    let told = told.await?;
    // Whoever is killed before this finds it undone when they start; others hear of the event.
    app.log().ring().forget(&subject.to_string());
    shred::delete_key(&app.pool, &subject.to_string(), app.now()).await?;
    // Shredded once more: its copies are looked for and erased once more.
    shred::erase_again(&app.pool, &subject.to_string()).await?;
    Ok(told)
}

/// What is read here is guarded: an install that is begun again at the same moment is not shredded.
async fn is_over(unit: &mut Unit, subject: SubjectId) -> Result<(), Problem> {
    match subject {
        SubjectId::Install(install) => {
            let state = unit.load::<Install>(install).await?;
            if state.app.is_none() {
                return Err(Problem::not_found(install));
            }
            match state.is_over() {
                true => Ok(()),
                false => Err(refused(format!(
                    "{install} is in use: what is kept of it is needed to take it down; first \
                     `stead installs deprovision {}`, and wait until that has ended",
                    state.name
                ))),
            }
        }
        SubjectId::Principal(principal) => {
            let now = unit.now();
            let access = unit.load::<Access>(principal).await?;
            if access.kind.is_none() {
                return Err(Problem::not_found(principal));
            }
            let heard = access.tokens.iter().find(|token| access.hears(token.token, now));
            match heard {
                None => Ok(()),
                Some(token) => Err(refused(format!(
                    "{principal} still logs in; first `stead tokens revoke {}`",
                    token.token
                ))),
            }
        }
    }
}

fn refused(detail: String) -> Problem {
    Problem::new(Code::Rejected, detail)
}
