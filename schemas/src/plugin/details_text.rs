//! Text of a plan's details, for the CLI and for approvals on a runner's host. The runner and its
//! plugins wrote the values, so every line is sanitized.
use serde_json::Value;

use super::{Action, AttributeDetails, DetailValue, PlanDetails, ResourceDetails};
use crate::sanitize::sanitize;

/// Parts that a reader does not need at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// Shows every attribute and every value.
    Nothing,
    /// Shows the first attributes of a resource and the beginning of a long value.
    Long,
}

/// Meaning of a line, for its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// A resource, output or value that the apply creates.
    Added,
    /// A resource, output or value that the apply removes, also to replace it.
    Removed,
    /// A resource, output or value that the apply changes.
    Changed,
    /// A remark about what is not shown.
    Remark,
}

/// Line of the text, without a newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetailLine {
    /// Meaning of the line.
    pub kind: LineKind,
    /// Sanitized text.
    pub text: String,
}

/// Most lines of one resource in a folded text.
const FOLDED_LINES: usize = 12;
/// Most characters of a value in a folded text.
const FOLDED_CHARS: usize = 80;
/// Number of equal characters that a folded text shows before a difference.
const CONTEXT_CHARS: usize = 20;

/// Returns the lines of all details.
pub fn lines(details: &PlanDetails, fold: Fold) -> Vec<DetailLine> {
    let mut lines = Vec::new();
    for resource in &details.resources {
        add(&mut lines, "", resource, fold);
    }
    for output in &details.outputs {
        add(&mut lines, "output ", output, fold);
    }
    if details.omitted > 0 {
        lines.push(remark(format!(
            "… {} more resources and outputs, whose details are too long",
            details.omitted
        )));
    }
    lines
}

fn remark(text: String) -> DetailLine {
    DetailLine { kind: LineKind::Remark, text }
}

fn add(lines: &mut Vec<DetailLine>, prefix: &str, resource: &ResourceDetails, fold: Fold) {
    let (sign, kind) = match resource.action {
        Action::Create => ("+", LineKind::Added),
        Action::Delete => ("-", LineKind::Removed),
        Action::Replace => ("±", LineKind::Removed),
        Action::Update | Action::Forget | Action::Adopt => ("~", LineKind::Changed),
    };
    let verb = match resource.action {
        Action::Replace => " (replaced)",
        Action::Forget => " (no longer managed)",
        Action::Adopt => " (adopted)",
        Action::Create | Action::Update | Action::Delete => "",
    };
    let address = sanitize(&resource.address);
    lines.push(DetailLine { kind, text: format!("{sign} {prefix}{address}{verb}") });
    let shown: Vec<DetailLine> =
        resource.attributes.iter().flat_map(|one| attribute_lines(one, fold)).collect();
    let is_folded = fold == Fold::Long && shown.len() > FOLDED_LINES;
    let kept = if is_folded { FOLDED_LINES - 1 } else { shown.len() };
    let more = shown.len() - kept;
    lines.extend(shown.into_iter().take(kept));
    if more > 0 {
        lines.push(remark(format!("    … {more} more lines; show them with --details=full")));
    }
    if resource.omitted > 0 {
        lines.push(remark(format!(
            "    … {} more attributes, which are too many to send",
            resource.omitted
        )));
    }
}

fn attribute_lines(attribute: &AttributeDetails, fold: Fold) -> Vec<DetailLine> {
    let AttributeDetails { path, before, after, replaces } = attribute;
    let kind = match (before, after) {
        (None, _) => LineKind::Added,
        (Some(_), None) => LineKind::Removed,
        (Some(_), Some(_)) => LineKind::Changed,
    };
    let name = if path.is_empty() { String::new() } else { format!("{}: ", sanitize(path)) };
    let forces = if *replaces { "  # forces replacement" } else { "" };
    if fold == Fold::Nothing
        && let Some(changed) = changed_lines(before.as_ref(), after.as_ref())
    {
        let mut lines = vec![DetailLine { kind, text: format!("    {name}{forces}") }];
        lines.extend(changed);
        return lines;
    }
    let values = match (before.as_ref().map(value_text), after.as_ref().map(value_text)) {
        (Some(before), Some(after)) => {
            let same = common_start(&before, &after, fold);
            format!("{} → {}", before.folded(same, fold), after.folded(same, fold))
        }
        (Some(before), None) => format!("{} → (none)", before.folded(0, fold)),
        (None, Some(after)) => after.folded(0, fold),
        (None, None) => String::new(),
    };
    vec![DetailLine { kind, text: format!("    {name}{values}{forces}") }]
}

/// Returns the changed lines of a text of several lines. `None` for other values.
fn changed_lines(
    before: Option<&DetailValue>,
    after: Option<&DetailValue>,
) -> Option<Vec<DetailLine>> {
    let text = |value: Option<&DetailValue>| match value {
        None => Some(String::new()),
        Some(DetailValue::Value(Value::String(text))) => Some(text.clone()),
        Some(
            DetailValue::Value(_)
            | DetailValue::Truncated { .. }
            | DetailValue::KnownAfterApply
            | DetailValue::Sensitive,
        ) => None,
    };
    let (before, after) = (text(before)?, text(after)?);
    // The CLI receives sanitized text, in which `⏎` stands for a line feed.
    let split = |text: &str| -> Vec<String> {
        let mut lines: Vec<String> = text.split(['\n', '⏎']).map(str::to_owned).collect();
        // A text ends with a line feed, or is empty.
        lines.pop_if(|last| last.is_empty());
        lines
    };
    let (before, after) = (split(&before), split(&after));
    if before.len().max(after.len()) < 2 {
        return None;
    }
    let start = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let (before_rest, after_rest) = (&before[start..], &after[start..]);
    let pairs = before_rest.iter().rev().zip(after_rest.iter().rev());
    let end = pairs.take_while(|(one, other)| one == other).count();
    let line = |kind: LineKind, sign: &str, text: &String| DetailLine {
        kind,
        text: format!("      {sign} {}", sanitize(text)),
    };
    let removed = before_rest[..before_rest.len() - end].iter();
    let added = after_rest[..after_rest.len() - end].iter();
    let removed = removed.map(|text| line(LineKind::Removed, "-", text));
    Some(removed.chain(added.map(|text| line(LineKind::Added, "+", text))).collect())
}

/// Sanitized text of a value, and a remark after it.
struct ValueText {
    text: String,
    remark: String,
}

fn value_text(value: &DetailValue) -> ValueText {
    let (text, remark) = match value {
        DetailValue::Value(Value::String(text)) => {
            (format!("\"{}\"", sanitize(text)), String::new())
        }
        DetailValue::Value(
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)),
        ) => (sanitize(&value.to_string()), String::new()),
        DetailValue::Truncated { text, size_bytes } => {
            (format!("\"{}…\"", sanitize(text)), format!(" ({size_bytes} bytes)"))
        }
        DetailValue::KnownAfterApply => ("(known after apply)".into(), String::new()),
        DetailValue::Sensitive => ("(sensitive)".into(), String::new()),
    };
    ValueText { text, remark }
}

impl ValueText {
    /// Returns the text without its first characters. A long text is folded.
    fn folded(&self, skipped: usize, fold: Fold) -> String {
        let rest: String = self.text.chars().skip(skipped).collect();
        let rest = if skipped > 0 { format!("…{rest}") } else { rest };
        let shown = match fold {
            Fold::Long if rest.chars().count() > FOLDED_CHARS => {
                let start: String = rest.chars().take(FOLDED_CHARS - 1).collect();
                format!("{start}…")
            }
            Fold::Long | Fold::Nothing => rest,
        };
        shown + &self.remark
    }
}

/// Returns the number of equal characters to leave out, so that a folded text shows the first
/// difference. 0 if the difference is within the shown start.
fn common_start(before: &ValueText, after: &ValueText, fold: Fold) -> usize {
    let same = before.text.chars().zip(after.text.chars()).take_while(|(one, other)| one == other);
    match (fold, same.count()) {
        (Fold::Long, same) if same + 1 >= FOLDED_CHARS => same - CONTEXT_CHARS,
        (Fold::Long | Fold::Nothing, _) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(details: Value, fold: Fold) -> Vec<String> {
        let details = serde_json::from_value(details).unwrap();
        lines(&details, fold).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn each_change_is_one_line() {
        let details = json!({ "resources": [
            { "address": "a.web", "action": "replace", "attributes": [
                { "path": "ami", "before": { "value": "a" }, "after": { "value": "b" }, "replaces": true },
                { "path": "id", "before": { "value": 7 }, "after": "known_after_apply" },
                { "path": "password", "before": "sensitive", "after": "sensitive" },
                { "path": "old", "before": { "value": [1] } },
                { "path": "long", "after": { "truncated": { "text": "abc", "size_bytes": 9000 } } },
            ] },
            { "address": "a.gone", "action": "delete" }],
            "outputs": [{ "address": "url", "action": "create",
                          "attributes": [{ "path": "", "after": { "value": "http://a" } }] }],
            "omitted": 3 });
        assert_eq!(
            text(details, Fold::Long),
            [
                "± a.web (replaced)",
                "    ami: \"a\" → \"b\"  # forces replacement",
                "    id: 7 → (known after apply)",
                "    password: (sensitive) → (sensitive)",
                "    old: [1] → (none)",
                "    long: \"abc…\" (9000 bytes)",
                "- a.gone",
                "+ output url",
                "    \"http://a\"",
                "… 3 more resources and outputs, whose details are too long",
            ]
        );
    }

    #[test]
    fn long_details_are_folded() {
        let many: Vec<Value> = (0..20)
            .map(|n| json!({ "path": format!("p{n}"), "after": { "value": "x".repeat(200) } }))
            .collect();
        let details =
            json!({ "resources": [{ "address": "a", "action": "create", "attributes": many }] });
        let folded = text(details.clone(), Fold::Long);
        assert_eq!(folded.len(), FOLDED_LINES + 1);
        assert_eq!(folded[FOLDED_LINES], "    … 9 more lines; show them with --details=full");
        assert!(folded.iter().all(|line| line.chars().count() < 100), "{folded:?}");
        let full = text(details, Fold::Nothing);
        assert_eq!(full.len(), 21);
        assert!(full[1].contains(&"x".repeat(200)));
    }

    #[test]
    fn a_folded_value_shows_its_first_difference() {
        let change = |before: &str, after: &str| {
            json!({ "resources": [{ "address": "a", "action": "update", "attributes": [
                { "path": "p", "before": { "value": before }, "after": { "value": after } }] }] })
        };
        let start = "x".repeat(100);
        let details = change(&format!("{start}-allow"), &format!("{start}-deny"));
        let context = "x".repeat(19);
        let expected = format!("    p: …{context}-allow\" → …{context}-deny\"");
        assert_eq!(text(details, Fold::Long)[1], expected);
        // Equal starts that are shown stay.
        let details = change(&format!("one{start}"), &format!("two{start}"));
        assert!(text(details, Fold::Long)[1].starts_with("    p: \"one"));
        let grown = change(&start, &format!("{start}{start}"));
        let shown = &text(grown, Fold::Long)[1];
        assert!(shown.starts_with(&format!("    p: …{context}x\" → …{context}x")), "{shown}");
    }

    #[test]
    fn full_text_shows_the_changed_lines_of_a_value() {
        let details = |before: &str, after: &str| {
            json!({ "resources": [{ "address": "a", "action": "update", "attributes": [
                { "path": "data", "before": { "value": before }, "after": { "value": after } }] }] })
        };
        let expected = ["~ a", "    data: ", "      - two", "      + 2", "      + 2b"];
        assert_eq!(text(details("one\ntwo\nend", "one\n2\n2b\nend"), Fold::Nothing), expected);
        assert_eq!(text(details("one⏎two⏎end", "one⏎2⏎2b⏎end"), Fold::Nothing), expected);
        let removed = text(details("one\n\ntwo\n", "one\ntwo\n"), Fold::Nothing);
        assert_eq!(removed, ["~ a", "    data: ", "      - "]);
    }

    #[test]
    fn no_control_character_is_shown() {
        let bad = "x\u{1b}[2J\r\u{202e}";
        let details = json!({ "resources": [{ "address": bad, "action": "update", "attributes": [
            { "path": bad, "before": { "value": bad }, "after": { "value": { bad: bad } } },
            { "path": "t", "after": { "truncated": { "text": bad, "size_bytes": 1 } } },
            { "path": "m", "before": { "value": format!("a\n{bad}") }, "after": { "value": bad } }] }] });
        for fold in [Fold::Nothing, Fold::Long] {
            let shown = text(details.clone(), fold).concat();
            assert!(
                !shown.chars().any(char::is_control) && !shown.contains('\u{202e}'),
                "{shown:?}"
            );
        }
    }
}
