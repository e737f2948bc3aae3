//! Formats findings like a compiler, with the source line and a marker.
use annotate_snippets::{
    AnnotationKind, Element, Level, Origin, Renderer, Snippet, renderer::DecorStyle,
};

use super::{Diagnostic, Severity};
use crate::tree::Tree;

/// Maximum length in bytes of a source line in the output. A longer line is not shown.
const MAX_LENGTH: usize = 400;

/// Formats all findings in order. `app` holds the files.
pub fn format_findings(findings: &[Diagnostic], app: &Tree, colour: bool, unicode: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let style = if unicode { DecorStyle::Unicode } else { DecorStyle::Ascii };
    let renderer = renderer.decor_style(style);
    let mut text = String::new();
    for finding in findings {
        text += &one(finding, app, &renderer);
        text += "\n\n";
    }
    text
}

fn one(finding: &Diagnostic, app: &Tree, renderer: &Renderer) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = level.primary_title(&finding.message).id(finding.code).elements(
        // A finding about a whole file has no line to show.
        place(finding, app),
    );
    if !finding.remedy.is_empty() {
        group = group.element(Level::HELP.message(&finding.remedy));
    }
    renderer.render(&[group])
}

fn place<'f>(finding: &'f Diagnostic, app: &'f Tree) -> Option<Element<'f>> {
    if finding.file.is_empty() {
        return None;
    }
    let whole = || Origin::path(&finding.file);
    let line = app.text(&finding.file).filter(|_| finding.line > 0).and_then(|text| {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        text.lines().nth(finding.line as usize - 1)
    });
    let Some(line) = line.filter(|line| line.len() <= MAX_LENGTH) else {
        let at = (finding.line as usize, finding.column as usize);
        return Some(match at {
            (0, _) => whole().into(),
            (line, column) => whole().line(line).char_column(column).into(),
        });
    };
    let byte = |column: usize| line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
    let column = (finding.column as usize).saturating_sub(1);
    let span = byte(column)..byte(column + finding.length.max(1) as usize);
    let snippet = Snippet::source(line)
        .path(&finding.file)
        .line_start(finding.line as usize)
        .annotation(AnnotationKind::Primary.span(span));
    Some(snippet.into())
}
