//! The known word that a user most likely meant.

/// The candidate nearest to `word`, if one is near enough to be worth saying.
///
/// Distance counts insertions, deletions, substitutions and swaps of neighbours (optimal string
/// alignment); hyphens and underscores are the same, and so are cases. At most a third of the
/// longer word may differ. Ties go to the earlier candidate.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = folded(word);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other = folded(candidate);
        let longer = word.len().max(other.len());
        // A word of one or two letters is near to everything.
        if !(3..=WORD_CHARS_MAX).contains(&longer) {
            continue;
        }
        let distance = alignment_distance(&word, &other);
        if distance <= longer / 3 && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Longer words are not compared: the cost is the product of the lengths.
const WORD_CHARS_MAX: usize = 100;

fn folded(word: &str) -> Vec<char> {
    word.chars()
        .map(|c| {
            if c == '-' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

fn alignment_distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substituted = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substituted.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = ["num_layers", "hidden_size", "ffn_hidden_size", "lr"];

    #[test]
    fn typing_slips_are_recognised() {
        assert_eq!(nearest("num_layer", KEYS), Some("num_layers"));
        assert_eq!(nearest("hiden_size", KEYS), Some("hidden_size"));
        assert_eq!(nearest("hidden-size", KEYS), Some("hidden_size"));
        assert_eq!(nearest("nmu_layers", KEYS), Some("num_layers"));
        assert_eq!(nearest("FFN_HIDDEN_SIZE", KEYS), Some("ffn_hidden_size"));
    }

    #[test]
    fn an_unrelated_word_gets_no_suggestion() {
        assert_eq!(nearest("colour", KEYS), None);
        assert_eq!(nearest("", KEYS), None);
        assert_eq!(nearest(&"x".repeat(10_000), KEYS), None);
    }

    #[test]
    fn distance_matches_a_recursive_definition() {
        fn slow(a: &[char], b: &[char]) -> usize {
            let (Some((x, rest_a)), Some((y, rest_b))) = (a.split_last(), b.split_last()) else {
                return a.len() + b.len();
            };
            let mut least = (slow(rest_a, rest_b) + usize::from(x != y))
                .min(slow(rest_a, b) + 1)
                .min(slow(a, rest_b) + 1);
            if let ([.., a2, a1], [.., b2, b1]) = (a, b)
                && (a1, a2) == (b2, b1)
            {
                least = least.min(slow(&a[..a.len() - 2], &b[..b.len() - 2]) + 1);
            }
            least
        }
        let words: Vec<Vec<char>> = (0..81u32)
            .map(|n| (0..4).map(move |place| ['a', 'b', 'c'][(n / 3u32.pow(place) % 3) as usize]))
            .map(|letters| letters.collect())
            .collect();
        for a in words.iter().step_by(7) {
            for b in &words {
                assert_eq!(alignment_distance(a, &b[1..]), slow(a, &b[1..]));
            }
        }
    }
}
