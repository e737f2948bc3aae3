//! Sanitizes untrusted text for a terminal.
//!
//! Modules, customers' runners and vendors' servers choose resource addresses, outputs and error
//! texts. An operator decides by what the terminal shows. Such text must not move the cursor, set
//! the title, reverse the text direction or imitate Stead's own output.

/// Returns the text as one line. Replaces a line feed by `⏎`, and every other control or invisible
/// character by U+FFFD. Tabs stay.
pub fn sanitize(line: &str) -> String {
    line.chars().map(shown).collect()
}

fn shown(c: char) -> char {
    match c {
        '\n' => '⏎',
        c if (c.is_control() && c != '\t') || turns(c) => '\u{fffd}',
        c => c,
    }
}

/// Returns whether `c` is a Unicode line separator, or reorders or hides neighboring characters.
fn turns(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_stranger_cannot_drive_the_terminal() {
        assert_eq!(sanitize("a\tb\u{1b}]0;x\u{7} é"), "a\tb\u{fffd}]0;x\u{fffd} é");
        assert_eq!(sanitize("a\n  - gone\r\u{9b}2K"), "a⏎  - gone\u{fffd}\u{fffd}2K");
        assert_eq!(sanitize("\u{202e}nalp\u{2066}"), "\u{fffd}nalp\u{fffd}");
    }
}
