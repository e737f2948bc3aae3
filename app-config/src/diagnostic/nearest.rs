//! Suggestions for mistyped names.
use strsim::osa_distance;

/// Maximum length of a compared word. The cost is the product of both lengths, and a longer word is
/// not a typing mistake.
const LONGEST: usize = 64;

/// Most similar known word, if it is close enough for a suggestion.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > LONGEST {
        return None;
    }
    let letters = word.chars().count();
    let far_enough = if letters < 3 { 0 } else { (letters / 3).max(1) };
    let close = known.into_iter().filter(|name| name.len() <= LONGEST).map(|name| {
        // `schedule` differs from `cron_schedule` by many letters, but is a likely mistake.
        let part = name.split('_').count() > 1 && name.split('_').any(|part| part == word);
        (if part { far_enough } else { osa_distance(name, word) }, name)
    });
    close.filter(|(far, name)| *far <= far_enough && *name != word).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_meant_and_a_far_one_is_not() {
        let known = ["cron_schedule", "index", "type", "component_name"];
        for (word, meant) in [
            ("schedule", Some("cron_schedule")),
            ("tpye", Some("type")),
            ("typ", Some("type")),
            ("indx", Some("index")),
            ("component_nmae", Some("component_name")),
            ("colour", None),
            ("a", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
