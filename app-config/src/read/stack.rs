//! `stack.toml`: stack that the customer applies once to admit the runner.
use super::{names::Kind, reader::Reader, section::Section};
use crate::model::{NestedStack, Stack};

const TYPES: [&str; 3] = ["aws-cloudformation", "azure-bicep", "gcp-terraform"];

pub fn read(reader: &Reader<'_>) -> Option<Stack> {
    let document = reader.document("stack.toml")?;
    let section = reader.section(&document);
    let nested: Vec<NestedStack> =
        section.sections("custom_nested_stacks").into_iter().map(nested).collect();
    let stack = Stack {
        at: section.place(),
        stack_type: section.required("type"),
        name: section.text("name"),
        description: section.text("description"),
        vpc_nested_template_url: section.text("vpc_nested_template_url"),
        runner_nested_template_url: section.text("runner_nested_template_url"),
        custom_nested_stacks: nested.len(),
        nested_stacks: nested,
    };
    section.one_of("type", "stack type", &TYPES);
    section.ignore(&["labels"]);
    section.finish();
    Some(stack)
}

fn nested(section: Section<'_>) -> NestedStack {
    section.required("template_url");
    let stack = NestedStack {
        at: section.place(),
        name: section.declared(Kind::NestedStack),
        template_url: section.text("template_url").unwrap_or_default(),
        index: section.table.get("index").and(section.integer("index")).unwrap_or_default(),
        parameters: section.texts("parameters"),
    };
    section.ignore(&["labels"]);
    section.finish();
    stack
}
