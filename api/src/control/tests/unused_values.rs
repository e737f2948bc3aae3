//! Sensitive values that an install does not use are deleted.
use chrono::TimeDelta;
use domain::{ids::ValueId, secret::placeholder};
use schemas::secret::{Ciphertext, EncryptedValue, all_jobs};
use serde_json::json;
use ulid::Ulid;

use super::{reactions::append_event, with_install};
use crate::{maintenance::sensitive_values::collect, sensitive};

fn value(id: ValueId) -> EncryptedValue {
    let ciphertext = Some(Ciphertext(vec![1; 200]));
    let (name, consumers) = ("inputs.token".to_owned(), all_jobs());
    EncryptedValue { id, name, consumers, signed: false, json: false, ciphertext }
}

#[tokio::test]
async fn the_value_that_an_install_uses_remains() {
    let (started, _, acme) = with_install().await;
    let app = started.app();
    let former = ValueId(Ulid::from_parts(1, 1));
    let used = ValueId(Ulid::from_parts(2, 2));
    let new = ValueId(Ulid::from_parts(3, 3));
    let long_ago = app.now() - TimeDelta::hours(2);
    sensitive::put(&app.pool, acme.id, &[value(former), value(used)], long_ago).await.unwrap();
    sensitive::put(&app.pool, acme.id, &[value(new)], app.now()).await.unwrap();
    for id in [former, used] {
        let set =
            json!({"type": "inputs_changed", "set": {"token": placeholder(id)}, "by": "system"});
        append_event(app.log(), acme.id, "install.inputs_changed", set).await;
    }
    assert_eq!(collect(app).await.unwrap(), 1);
    let left = sensitive::of_install(&app.pool, acme.id).await.unwrap();
    assert_eq!(left.into_keys().collect::<Vec<_>>(), [used, new]);
    // A second pass deletes nothing.
    assert_eq!(collect(app).await.unwrap(), 0);
}
