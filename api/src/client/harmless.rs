//! What strangers wrote, for a terminal. A module or a runner in somebody else's account chooses resource
//! addresses, outputs and error texts, and a person decides by what is on the screen: none of them may move
//! its cursor, retitle it, turn its direction round, or look like a line of ours.
use serde_json::Value;

/// One line, with everything that is not seen made visible.
pub fn harmless(line: &str) -> String {
    line.chars().map(shown).collect()
}

fn shown(c: char) -> char {
    match c {
        '\n' => '⏎',
        c if (c.is_control() && c != '\t') || turns(c) => '\u{fffd}',
        c => c,
    }
}

/// Line separators of Unicode, and what reorders or hides the characters around it.
fn turns(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The same answer with every text in it harmless; what is no JSON stays what it is.
pub(super) fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    tame(&mut value);
    serde_json::to_vec(&value).ok()
}

fn tame(value: &mut Value) {
    match value {
        Value::String(text) => *text = harmless(text),
        Value::Array(items) => items.iter_mut().for_each(tame),
        Value::Object(members) => {
            let all = std::mem::take(members).into_iter();
            members.extend(all.map(|(name, mut value)| {
                tame(&mut value);
                (harmless(&name), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_of_a_stranger_cannot_drive_the_terminal() {
        assert_eq!(harmless("a\tb\u{1b}]0;x\u{7} é"), "a\tb\u{fffd}]0;x\u{fffd} é");
        assert_eq!(harmless("a\n  - gone\r\u{9b}2K"), "a⏎  - gone\u{fffd}\u{fffd}2K");
        assert_eq!(harmless("\u{202e}nalp\u{2066}"), "\u{fffd}nalp\u{fffd}");
    }

    #[test]
    fn no_text_of_an_answer_is_forgotten() {
        let wild = "x\u{1b}[1A";
        let answered = json!({wild: [wild, {"deep": wild}], "n": 7, "none": null}).to_string();
        let tamed = answer(answered.as_bytes()).unwrap();
        let text = String::from_utf8(tamed).unwrap();
        assert!(!text.contains("u001b") && text.matches('\u{fffd}').count() == 3, "{text}");
        assert_eq!(answer(b"no JSON"), None);
    }
}
