//! Test that the oracle detects a store of states without fences.
use proof::fault_injection::{Fault, inject};
use tests::oracle;

use super::*;

/// Stores a state of an earlier execution after one of a later execution. Returns the status, and
/// the findings of the oracle.
async fn late_upload() -> (u16, Vec<String>) {
    let (world, agent, install) = world().await;
    let former = run(&world, &agent, install, "web").await;
    end(&world, &former).await;
    let later = run(&world, &agent, install, "web").await;
    put(&world, &later.token, &by_job(head(later.fence, 2, "new")), "new").await.ok();
    let written_by = Some((former.job, former.execution.parse().unwrap()));
    let late = StateUpload { written_by, ..by_job(head(former.fence, 3, "late")) };
    let status = put(&world, &agent.token, &late, "late").await.status.as_u16();
    (status, oracle::check_states(&world.app.pool).await)
}

#[tokio::test]
async fn the_oracle_finds_a_state_of_an_earlier_execution() {
    assert_eq!(late_upload().await, (412, vec![]));
    let _fault = inject(Fault::StateWithoutFence);
    let (status, findings) = late_upload().await;
    assert_eq!(status, 200);
    assert!(findings.iter().any(|what| what.contains("an earlier execution")), "{findings:?}");
}
