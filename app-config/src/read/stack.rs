//! `stack.toml`: what the customer applies once to admit the runner.
use super::reader::Reader;
use crate::model::Stack;

pub fn read(reader: &Reader<'_>) -> Option<Stack> {
    let document = reader.document("stack.toml")?;
    let section = reader.section(&document);
    let nested = section.sections("custom_nested_stacks").len();
    let stack = Stack {
        stack_type: section.required("type"),
        name: section.text("name"),
        description: section.text("description"),
        vpc_nested_template_url: section.text("vpc_nested_template_url"),
        runner_nested_template_url: section.text("runner_nested_template_url"),
        custom_nested_stacks: nested,
    };
    // Stacks of other clouds have keys of their own, and none of them acts yet.
    let own: Vec<&str> = section.table.keys().map(String::as_str).collect();
    section.ignore(&own);
    section.finish();
    Some(stack)
}
