//! Suggestions for mistyped names.
use strsim::osa_distance;

/// Maximum length of a compared name in bytes. The cost of a comparison is the product of both
/// lengths, and a longer name is not a typing mistake.
const MAX_LENGTH: usize = 64;

/// Most similar known name, if it is close enough for a suggestion.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > MAX_LENGTH {
        return None;
    }
    let letters = word.chars().count();
    let max_distance = if letters < 3 { 0 } else { (letters / 3).max(1) };
    let close = known.into_iter().filter(|name| name.len() <= MAX_LENGTH).map(|name| {
        // `schedule` differs from `cron_schedule` by many letters, but is a likely mistake.
        let part = name.split('_').count() > 1 && name.split('_').any(|part| part == word);
        (if part { max_distance } else { osa_distance(name, word) }, name)
    });
    close
        .filter(|(distance, name)| *distance <= max_distance && *name != word)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_word_is_suggested() {
        let known = ["cron_schedule", "index", "type", "component_name"];
        for (word, expected) in [
            ("schedule", Some("cron_schedule")),
            ("tpye", Some("type")),
            ("typ", Some("type")),
            ("indx", Some("index")),
            ("component_nmae", Some("component_name")),
            ("colour", None),
            ("a", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}
