//! ANSI control sequences in the output of jobs: colors and weights become values, everything else
//! is removed.

/// Text attributes that control sequences select.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Color of the text: 0 to 7, bright from 8 to 15.
    pub color: Option<u8>,
    /// Color behind the text.
    pub background: Option<u8>,
    /// Weights and decorations, a set of the constants of this type.
    pub attributes: u8,
}

impl Style {
    /// Bold text.
    pub const BOLD: u8 = 1;
    /// Dim text.
    pub const DIM: u8 = 2;
    /// Italic text.
    pub const ITALIC: u8 = 4;
    /// Underlined text.
    pub const UNDERLINE: u8 = 8;
    /// Text in the color of the background, on the color of the text.
    pub const INVERSE: u8 = 16;

    /// Returns true if the text has this attribute.
    #[must_use]
    pub fn has(self, attribute: u8) -> bool {
        self.attributes & attribute != 0
    }

    /// Applies the parameters of a "select graphic rendition" sequence.
    fn apply(&mut self, parameters: &str) {
        let mut codes = parameters.split([';', ':']).map(|code| match code {
            "" => Some(0),
            code => code.parse::<u16>().ok(),
        });
        while let Some(code) = codes.next() {
            match code {
                Some(0) => *self = Style::default(),
                Some(1) => self.attributes |= Style::BOLD,
                Some(2) => self.attributes |= Style::DIM,
                Some(3) => self.attributes |= Style::ITALIC,
                Some(4) => self.attributes |= Style::UNDERLINE,
                Some(7) => self.attributes |= Style::INVERSE,
                Some(22) => self.attributes &= !(Style::BOLD | Style::DIM),
                Some(23) => self.attributes &= !Style::ITALIC,
                Some(24) => self.attributes &= !Style::UNDERLINE,
                Some(27) => self.attributes &= !Style::INVERSE,
                Some(code @ (30..=37 | 90..=97)) => self.color = Some(basic(code)),
                Some(38) => self.color = extended(&mut codes),
                Some(39) => self.color = None,
                Some(code @ (40..=47 | 100..=107)) => self.background = Some(basic(code)),
                Some(48) => self.background = extended(&mut codes),
                Some(49) => self.background = None,
                Some(_) | None => {}
            }
        }
    }
}

/// Number of a basic color: the last digit of its code, bright from 90 on.
fn basic(code: u16) -> u8 {
    let bright = if code >= 90 { 8 } else { 0 };
    u8::try_from(code % 10).unwrap_or(0) + bright
}

/// A color of 256 or of 16 million, as the nearest basic one.
fn extended(codes: &mut impl Iterator<Item = Option<u16>>) -> Option<u8> {
    let mut next = || codes.next().flatten();
    match next()? {
        5 => Some(match next()? {
            basic @ 0..=15 => u8::try_from(basic).unwrap_or(0),
            cube @ 16..=231 => {
                let level = |step: u16| (cube - 16) / step % 6 * 51;
                nearest(level(36), level(6), level(1))
            }
            gray => {
                let level = gray.min(255).saturating_sub(232) * 10 + 8;
                nearest(level, level, level)
            }
        }),
        2 => Some(nearest(next()?, next()?, next()?)),
        _ => None,
    }
}

fn nearest(red: u16, green: u16, blue: u16) -> u8 {
    let max = red.max(green).max(blue);
    if max < 64 {
        return 0;
    }
    let bit = |level: u16, bit: u8| if level * 2 > max { bit } else { 0 };
    let bright = if max > 200 { 8 } else { 0 };
    match bit(red, 1) + bit(green, 2) + bit(blue, 4) {
        7 if max < 150 => 8,
        color => color + bright,
    }
}

/// Styles of the streams of a job. Each stream is a terminal of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Styles {
    output: Style,
    errors: Style,
    shim: Style,
}

impl Styles {
    /// Style of the stream with this name in a [`LogRecord`](crate::control::jobs::LogRecord).
    pub fn of(&mut self, stream: &str) -> &mut Style {
        match stream {
            "e" => &mut self.errors,
            "x" => &mut self.shim,
            _ => &mut self.output,
        }
    }
}

/// Calls `emit` with each part of the text and its style, and leaves the style of the text that
/// follows in `style`. Removes control characters except tabs.
pub fn parse<'t>(text: &'t str, style: &mut Style, mut emit: impl FnMut(Style, &'t str)) {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_control() && c != '\t') {
        if at > 0 {
            emit(*style, &rest[..at]);
        }
        rest = after_control(&rest[at..], style);
    }
    if !rest.is_empty() {
        emit(*style, rest);
    }
}

/// The text without control sequences.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    parse(text, &mut Style::default(), |_, part| plain.push_str(part));
    plain
}

/// Returns the text after a control sequence, and applies it to the style.
fn after_control<'t>(text: &'t str, style: &mut Style) -> &'t str {
    let mut characters = text.chars();
    characters.next();
    if !text.starts_with('\u{1b}') {
        return characters.as_str();
    }
    match characters.next() {
        Some('[') => {
            let sequence = characters.as_str();
            let Some(end) = sequence.find(|c: char| ('@'..='~').contains(&c)) else { return "" };
            if sequence[end..].starts_with('m') {
                style.apply(&sequence[..end]);
            }
            // The final character is ASCII, so it has one byte.
            &sequence[end + 1..]
        }
        // A title or a link. Without its end, the text stays.
        Some(']') => {
            let title = characters.as_str();
            match title.find(['\u{7}', '\u{1b}']) {
                Some(end) => {
                    let rest = &title[end..];
                    let ended =
                        rest.strip_prefix('\u{7}').or_else(|| rest.strip_prefix("\u{1b}\\"));
                    ended.unwrap_or(rest)
                }
                None => title,
            }
        }
        // A selection of a character set.
        Some('(' | ')') => {
            characters.next();
            characters.as_str()
        }
        Some(_) | None => &text[1..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<(Style, &str)> {
        let mut parts = Vec::new();
        parse(text, &mut Style::default(), |style, part| parts.push((style, part)));
        parts
    }

    fn color(color: u8) -> Style {
        Style { color: Some(color), ..Style::default() }
    }

    #[test]
    fn sequences_select_styles_and_are_removed() {
        let bold = Style { attributes: Style::BOLD, ..color(2) };
        assert_eq!(
            parts("a\u{1b}[31mred\u{1b}[0m b \u{1b}[1;92;32mgreen\u{1b}[22m\u{1b}[mc"),
            [
                (Style::default(), "a"),
                (color(1), "red"),
                (Style::default(), " b "),
                (bold, "green"),
                (Style::default(), "c")
            ]
        );
        assert_eq!(parts("\u{1b}[38;5;196mx")[0].0, color(9));
        assert_eq!(parts("\u{1b}[38;2;0;0;120;4mx")[0].0, Style { attributes: 8, ..color(4) });
        assert_eq!(parts("\u{1b}[48;5;244mx")[0].0.background, Some(8));
    }

    #[test]
    fn other_control_characters_are_removed() {
        assert_eq!(plain("\u{1b}[31mred\u{1b}[0m\tok\u{7}\u{1b}]0;title"), "red\tok0;title");
        assert_eq!(plain("cut \u{1b}[3"), "cut ");
        assert_eq!(plain("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{7}!"), "link!");
        assert_eq!(plain("\u{1b}(B\u{1b}[m50%\r\u{1b}[2K100%\u{1b}"), "50%100%");
    }

    #[test]
    fn any_text_loses_only_control_sequences() {
        // given all texts of five of these characters
        let characters = ['a', 'é', ';', '1', 'm', '[', ']', '(', '\u{1b}', '\u{7}'];
        for number in 0..100_000_usize {
            let digits = (0..5).map(|place| number / 10_usize.pow(place) % 10);
            let text: String = digits.map(|digit| characters[digit]).collect();
            // then the rest has no control character, and nothing new
            let plain = plain(&text);
            assert!(!plain.contains(['\u{1b}', '\u{7}']), "{text:?}");
            let mut rest = text.chars();
            assert!(plain.chars().all(|c| rest.any(|of| of == c)), "{text:?} → {plain:?}");
        }
    }
}
