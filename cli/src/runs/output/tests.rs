//! Tests of the plan output. A golden file covers the output of a run.
use serde_json::json;

use crate::render::{Output, Screen};

#[test]
fn plan_shows_the_change_of_each_resource() {
    let summary = json!({
        "resources": [
            {"action": "create", "address": "aws_s3_bucket.b", "attributes": ["id", "arn"]},
            {"action": "delete", "address": "aws_iam_role.r"},
        ],
        "outputs": [{"action": "update", "name": "url"}],
    });
    let screen = Screen::new(Output::Table, true, true);
    let expected = "
plan of base
  + aws_s3_bucket.b (id, arn)
  - aws_iam_role.r
  output ~ url
";
    assert_eq!(super::plan("base", &summary, &screen), expected);
    let nothing = json!({"resources": []});
    assert_eq!(super::plan("base", &nothing, &screen), "\nplan of base\n  no changes\n");
}
