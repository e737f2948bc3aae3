//! Sanitizes untrusted text for a terminal.
//!
//! Modules, runners and servers of other parties choose resource addresses, outputs and error
//! texts. Users make decisions by the text on their terminal. Untrusted text must therefore not
//! move the cursor, set the title, reverse the text direction or imitate Stead's own output.

/// Returns the text as one line. Replaces line feeds by `⏎`, and other control and invisible
/// characters by U+FFFD. Tabs stay.
pub fn sanitize(line: &str) -> String {
    line.chars().map(sanitize_char).collect()
}

fn sanitize_char(c: char) -> char {
    match c {
        '\n' => '⏎',
        c if (c.is_control() && c != '\t') || reorders_or_hides(c) => '\u{fffd}',
        c => c,
    }
}

/// Returns true for a Unicode line separator, and for an invisible character that can reorder or
/// hide text.
fn reorders_or_hides(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_replaced() {
        assert_eq!(sanitize("a\tb\u{1b}]0;x\u{7} é"), "a\tb\u{fffd}]0;x\u{fffd} é");
        assert_eq!(sanitize("a\n  - gone\r\u{9b}2K"), "a⏎  - gone\u{fffd}\u{fffd}2K");
        assert_eq!(sanitize("\u{202e}nalp\u{2066}"), "\u{fffd}nalp\u{fffd}");
    }
}
