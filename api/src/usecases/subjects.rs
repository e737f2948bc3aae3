//! Shredding of data subjects.
use domain::{
    access::Access,
    install::Install,
    subject::{Subject, SubjectCommand, SubjectId},
};
use event_log::encryption::shred;
use futures::FutureExt as _;

use crate::{
    execute::{Call, Done, UnitOfWork},
    problem::{Code, Problem},
    state::App,
};

/// Shreds a data subject: makes its personal data unreadable, irreversibly. Rejects a subject in
/// use. After this call, this server cannot decrypt the data. A background task erases copies
/// (`reactions/erasure.rs`). If the subject is already shredded, its copies are erased again.
pub(crate) async fn shred(
    app: &App,
    call: &Call,
    subject: SubjectId,
    reason: String,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    let shredded = app.engine.transact(call, move |unit| {
        let command = SubjectCommand::Shred { by: by.clone(), reason: reason.clone() };
        async move {
            require_unused(unit, subject).await?;
            unit.handle::<Subject>(subject, command).await.map(drop)
        }
        .boxed()
    });
    let shredded = shredded.await?;
    // If the server stops before it deletes the key, the background task deletes it after the
    // restart.
    app.log().key_ring().mark_shredded(&subject.to_string());
    shred::delete_key(&app.pool, &subject.to_string(), app.now()).await?;
    // Repeated shredding erases the copies again.
    shred::erase_again(&app.pool, &subject.to_string()).await?;
    Ok(shredded)
}

/// Rejects a subject in use. The commit guards the streams that this function reads, so an install
/// that starts again concurrently is not shredded.
async fn require_unused(unit: &mut UnitOfWork, subject: SubjectId) -> Result<(), Problem> {
    match subject {
        SubjectId::Install(install) => {
            let state = unit.load::<Install>(install).await?;
            if state.app.is_none() {
                return Err(Problem::not_found(install));
            }
            match state.is_over() {
                true => Ok(()),
                false => Err(rejection(format!(
                    "cannot shred {install}: its data is required to destroy its resources; run `stead installs \
                 deprovision {}` and wait until the run has finished",
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
            let valid_token =
                access.tokens.iter().find(|token| access.is_token_valid(token.token, now));
            match valid_token {
                None => Ok(()),
                Some(token) => Err(rejection(format!(
                    "cannot shred {principal}: it has a valid token; revoke the token first: `stead tokens revoke {}`",
                    token.token
                ))),
            }
        }
    }
}

fn rejection(detail: String) -> Problem {
    Problem::new(Code::Rejected, detail)
}
