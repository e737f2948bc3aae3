//! What strangers wrote, for a terminal. A module, a runner in somebody else's account or a vendor's server chooses
//! resource addresses, outputs and error texts, and a person decides by what is on the screen: none of them may move
//! its cursor, retitle it, turn its direction round, or look like a line of ours.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_stranger_cannot_drive_the_terminal() {
        assert_eq!(harmless("a\tb\u{1b}]0;x\u{7} é"), "a\tb\u{fffd}]0;x\u{fffd} é");
        assert_eq!(harmless("a\n  - gone\r\u{9b}2K"), "a⏎  - gone\u{fffd}\u{fffd}2K");
        assert_eq!(harmless("\u{202e}nalp\u{2066}"), "\u{fffd}nalp\u{fffd}");
    }
}
