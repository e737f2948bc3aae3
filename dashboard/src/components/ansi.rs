//! Output of a job with its colors, as classes: the security policy allows no inline style.
use maud::{Markup, html};
use schemas::ansi::{self, Style};

/// Text of one record. `style` is the style at its start, and then the style at its end.
pub(crate) fn output(text: &str, style: &mut Style) -> Markup {
    let mut parts: Vec<(Style, &str)> = Vec::new();
    ansi::parse(text, style, |style, part| parts.push((style, part)));
    html! {
        @for (style, part) in parts {
            @let class = class(style);
            @if class.is_empty() { (part) } @else { span class=(class) { (part) } }
        }
    }
}

/// Classes of a style. Empty for the default style.
fn class(style: Style) -> String {
    let colors = match style.has(Style::INVERSE) {
        // Default colors have no number, and their inverse is one class.
        true => (style.background, Some(style.color.unwrap_or(7))),
        false => (style.color, style.background),
    };
    let color = |prefix: &str, color: Option<u8>| color.map(|color| format!("{prefix}{color}"));
    let attributes = [
        (Style::BOLD, "bold"),
        (Style::DIM, "dim"),
        (Style::ITALIC, "italic"),
        (Style::UNDERLINE, "underline"),
    ];
    let attributes = attributes
        .into_iter()
        .filter(|(attribute, _)| style.has(*attribute))
        .map(|(_, name)| name.to_owned());
    let classes = color("c", colors.0).into_iter().chain(color("b", colors.1)).chain(attributes);
    classes.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_classes_and_text_is_escaped() {
        let mut style = Style::default();
        let html = output("a\u{1b}[1;31m<b>\u{1b}[0;7mc\u{1b}[33m", &mut style).into_string();
        assert_eq!(html, "a<span class=\"c1 bold\">&lt;b&gt;</span><span class=\"b7\">c</span>");
        assert_eq!(output("next", &mut style).into_string(), "<span class=\"b3\">next</span>");
    }
}
