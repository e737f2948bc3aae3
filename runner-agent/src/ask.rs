//! "Ask me first": a job that waits for the word of a person at the customer's, on this host.
//!
//! The question and the answer are files of the execution. The server only sees that the job waits.
use std::{fs, io, time::Duration};

use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId},
};
use schemas::{
    manifest::Manifest,
    moment,
    runner::{JobClass, JobKind},
};
use serde::{Deserialize, Serialize};

use crate::{
    data::{self, Data},
    host,
    journal::{Fact, Journal},
    policy::Refusal,
};

/// How often the answer is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The job.
    pub job: JobId,
    /// The execution: what the answer names.
    pub execution: ExecutionId,
    /// Its kind.
    pub kind: JobKind,
    /// Its class.
    pub class: JobClass,
    /// Who would do it.
    pub plugin: String,
    /// To what: the component or the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The approved plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Digest>,
    /// Since when it waits.
    #[serde(with = "moment")]
    pub asked_at: DateTime<Utc>,
    /// Until when an answer counts.
    #[serde(with = "moment")]
    pub deadline: DateTime<Utc>,
}

/// What the person said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it may be done.
    pub yes: bool,
    /// Why.
    pub reason: String,
}

impl Question {
    /// The question about a job that was granted.
    pub fn new(manifest: &Manifest, execution: ExecutionId, deadline: DateTime<Utc>) -> Self {
        let named = ["component", "action"].into_iter().find_map(|key| manifest.inputs.get(key));
        Question {
            job: manifest.job,
            execution,
            kind: manifest.kind,
            class: manifest.class,
            plugin: manifest.plugin.name.clone(),
            subject: named.and_then(|name| name.as_str()).map(String::from),
            plan: manifest.plan.clone(),
            asked_at: host::now(),
            deadline,
        }
    }
}

/// Ask, and wait for the word. A cancel ends the waiting: the shim finds it, too.
pub async fn wait(data: &Data, journal: &Journal, question: &Question) -> Result<(), Refusal> {
    let Question { job, execution, .. } = *question;
    let dir = data.job(execution);
    dir.create()
        .and_then(|()| data::replace_json(&dir.question(), question))
        .and_then(|()| journal.write(Fact::Asked { job, execution }))
        .map_err(|error| Refusal::policy("ask", format!("nobody can be asked: {error}")))?;
    let said = loop {
        match data::read_json::<Answer>(&dir.answer()) {
            Ok(Some(Answer { yes: true, .. })) => break Ok(()),
            Ok(Some(Answer { reason, .. })) => break Err(Refusal::policy("ask", reason)),
            Ok(None) | Err(_) => {}
        }
        if dir.cancel().exists() {
            break Ok(());
        }
        if host::server_now() >= question.deadline {
            break Err(Refusal::policy("ask", "nobody answered before the deadline"));
        }
        tokio::time::sleep(LOOK).await;
    };
    // A question that cannot be removed is answered already.
    let _best_effort = data::remove(&dir.question());
    said
}

/// The questions that wait.
pub fn waiting(data: &Data) -> io::Result<Vec<Question>> {
    let dirs = fs::read_dir(data.path("jobs"))?.filter_map(Result::ok);
    let asked = dirs.filter_map(|dir| data::read_json(&dir.path().join("question.json")).ok()?);
    let mut questions: Vec<Question> = asked.collect();
    questions.sort_unstable_by_key(|question| question.asked_at);
    Ok(questions)
}

/// Answer one. `false`: it does not wait.
pub fn answer(data: &Data, execution: ExecutionId, answer: &Answer) -> io::Result<bool> {
    let dir = data.job(execution);
    if !dir.question().exists() {
        return Ok(false);
    }
    let Answer { yes, reason } = answer.clone();
    // In the journal first: a word that counts is a word that is kept.
    Journal::open(data)?.write(Fact::Answered { execution, yes, reason })?;
    data::replace_json(&dir.answer(), answer)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn question(deadline: TimeDelta) -> Question {
        let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        Question {
            job: format!("job_{id}").parse().unwrap(),
            execution: format!("exe_{id}").parse().unwrap(),
            kind: JobKind::Apply,
            class: JobClass::Mutating,
            plugin: "terraform_module".into(),
            subject: Some("network".into()),
            plan: None,
            asked_at: host::now(),
            deadline: host::now() + deadline,
        }
    }

    async fn asked(deadline: TimeDelta, said: Option<bool>) -> Result<(), Refusal> {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let journal = Journal::open(&data).unwrap();
        let question = question(deadline);
        let waits = wait(&data, &journal, &question);
        let speaks = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(waiting(&data).unwrap(), std::slice::from_ref(&question));
            if let Some(yes) = said {
                let word = Answer { yes, reason: "not today".into() };
                assert!(answer(&data, question.execution, &word).unwrap());
            }
        };
        let (ended, ()) = tokio::join!(waits, speaks);
        assert_eq!(waiting(&data).unwrap(), []);
        let late = Answer { yes: true, reason: String::new() };
        assert!(!answer(&data, question.execution, &late).unwrap());
        ended
    }

    #[tokio::test]
    async fn a_persons_word_decides() {
        assert_eq!(asked(TimeDelta::minutes(1), Some(true)).await, Ok(()));
        let no = asked(TimeDelta::minutes(1), Some(false)).await.unwrap_err();
        assert_eq!((no.rule.as_str(), no.detail.as_str()), ("ask", "not today"));
    }

    #[tokio::test]
    async fn silence_is_no_word() {
        let refused = asked(TimeDelta::milliseconds(300), None).await.unwrap_err();
        assert!(refused.detail.contains("nobody answered"));
    }
}
