//! Finds a keyword in SQL, which is not the same text in a comment, a string or a quoted name.

/// Whether `word` stands in `sql` as a bare word, in any case.
pub(crate) fn has_word(sql: &str, word: &str) -> bool {
    bare_words(sql).any(|bare| bare.eq_ignore_ascii_case(word))
}

fn bare_words(mut rest: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        loop {
            let first = rest.chars().next()?;
            if is_of_word(first) {
                let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                rest = after;
                return Some(word);
            }
            rest = skip(rest, first);
        }
    })
}

/// SQLite takes every character above ASCII as part of a name.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii()
}

/// What follows a comment, a quoted piece or any other single character at the start of `rest`.
///
/// A quote inside a quoted piece is doubled, which reads as two pieces side by side: the same here.
fn skip(rest: &str, first: char) -> &str {
    let (opening, closing) = match first {
        '\'' | '"' | '`' => (1, rest[..1].to_owned()),
        '[' => (1, "]".to_owned()),
        '-' if rest.starts_with("--") => (2, "\n".to_owned()),
        '/' if rest.starts_with("/*") => (2, "*/".to_owned()),
        _ => return &rest[first.len_utf8()..],
    };
    let inside = &rest[opening..];
    match inside.find(&closing) {
        Some(at) => &inside[at + closing.len()..],
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::has_word;

    #[test]
    fn a_keyword_is_found_in_any_case_and_place() {
        for sql in ["a CHECK (x)", "a check(x)", "a TEXT/**/Check(x)", "'it''s' CHECK", "check"] {
            assert!(has_word(sql, "CHECK"), "{sql}");
        }
    }

    #[test]
    fn the_same_letters_elsewhere_are_no_keyword() {
        for sql in [
            "/* CHECK */ a",
            "-- CHECK\n a",
            "-- CHECK",
            "'CHECK'",
            "'it''s a CHECK'",
            "\"CHECK\" TEXT",
            "`check` TEXT",
            "[check] TEXT",
            "checked TEXT",
            "my_check TEXT",
            "écheck TEXT",
            "/* open CHECK",
        ] {
            assert!(!has_word(sql, "CHECK"), "{sql}");
        }
    }
}
