//! Words, and what is made of them: hosts, URLs, titles, search texts.

use crate::rng::RowRng;

/// What Latin words are made of.
const LATIN: [&str; 40] = [
    "ba", "be", "bi", "bo", "da", "de", "di", "do", "fa", "fe", "ga", "go", "ka", "ke", "ki", "ko",
    "la", "le", "li", "lo", "ma", "me", "mi", "mo", "na", "ne", "ni", "no", "pa", "pe", "ra", "re",
    "ri", "ro", "sa", "se", "ta", "te", "va", "ze",
];

/// What Cyrillic words are made of, two bytes a letter.
const CYRILLIC: [&str; 40] = [
    "ба", "бе", "би", "бо", "да", "де", "ди", "до", "фа", "фе", "га", "го", "ка", "ке", "ки", "ко",
    "ла", "ле", "ли", "ло", "ма", "ме", "ми", "мо", "на", "не", "ни", "но", "па", "пе", "ра", "ре",
    "ри", "ро", "са", "се", "та", "те", "ва", "зе",
];

/// Number of words in each alphabet: three syllables.
const WORDS: u64 = 64_000;

/// The word that queries look for inside URLs and titles.
pub(super) const SOUGHT: &str = "balloon";

/// One page of so many has the sought word in its URL.
const PAGES_PER_SOUGHT_URL: u64 = 2_000;

/// One page of so many has it in its title.
const PAGES_PER_SOUGHT_TITLE: u64 = 500;

/// A number below `n` of which small ones are likely: each octave is as likely as the others,
/// so number k has a probability of about 1/k.
pub(super) fn skewed(rng: &mut RowRng, n: u64) -> u64 {
    debug_assert!(n > 0);
    let octaves = u64::from(n.ilog2()) + 1;
    loop {
        let octave = 1_u64 << rng.below(octaves);
        let number = octave + rng.below(octave) - 1;
        if number < n {
            return number;
        }
    }
}

/// Appends word `number` in an alphabet.
fn push_word(text: &mut String, syllables: &[&str; 40], number: u64) {
    // 7,919 is prime to 64,000, so neighbours do not look alike.
    let number = number % WORDS * 7_919 % WORDS;
    for divisor in [1, 40, 1_600] {
        text.push_str(syllables[(number / divisor % 40) as usize]);
    }
}

/// Appends a Latin word, short numbers being frequent words.
pub(super) fn push_latin(text: &mut String, number: u64) {
    push_word(text, &LATIN, number);
}

/// Appends a site's host name.
pub(super) fn push_host(text: &mut String, site: u64) {
    if site.is_multiple_of(3) {
        text.push_str("www.");
    }
    push_latin(text, site * 11 + 5);
    if site.is_multiple_of(64) {
        text.push('.');
        text.push_str(SOUGHT);
    }
    text.push_str([".example", ".example.org", ".example.com"][(site % 3) as usize]);
}

/// Appends a page's URL: host, section, some words, often a number or parameters.
pub(super) fn push_url(text: &mut String, site: u64, rng: &mut RowRng) {
    text.push_str(if site.is_multiple_of(5) {
        "https://"
    } else {
        "http://"
    });
    push_host(text, site);
    text.push('/');
    if rng.below(PAGES_PER_SOUGHT_URL) == 0 {
        text.push_str(SOUGHT);
    } else {
        push_latin(text, skewed(rng, 200));
    }
    text.push('/');
    for at in 0..=rng.below(5) {
        if at > 0 {
            text.push('-');
        }
        push_latin(text, skewed(rng, WORDS));
    }
    match rng.below(4) {
        0 => text.push_str(".html"),
        1 => push_number(text, "/", rng.below(10_000_000)),
        2 => push_number(text, ".html?id=", rng.below(1_000_000_000)),
        _ => {
            push_number(text, "?page=", rng.below(40));
            push_number(text, "&from=", rng.below(100_000));
            text.push_str("&kind=");
            push_latin(text, skewed(rng, 1_000));
        }
    }
}

/// Appends a page's title: three to ten words, two of three Cyrillic.
pub(super) fn push_title(text: &mut String, site: u64, rng: &mut RowRng) {
    for _ in 0..3 + rng.below(8) {
        let number = skewed(rng, WORDS);
        let syllables = if rng.below(3) == 0 { &LATIN } else { &CYRILLIC };
        push_word(text, syllables, number);
        text.push(' ');
    }
    if rng.below(PAGES_PER_SOUGHT_TITLE) == 0 {
        text.push_str("Balloon ");
    }
    text.push_str("| ");
    push_host(text, site);
}

/// Appends a search text: one to four words, in one alphabet.
pub(super) fn push_phrase(text: &mut String, rng: &mut RowRng) {
    let syllables = if rng.below(2) == 0 { &LATIN } else { &CYRILLIC };
    for at in 0..=rng.below(4) {
        if at > 0 {
            text.push(' ');
        }
        push_word(text, syllables, skewed(rng, WORDS));
    }
}

/// Appends text and a number.
pub(super) fn push_number(text: &mut String, before: &str, number: u64) {
    use std::fmt::Write;
    write!(text, "{before}{number}").expect("a String takes any text");
}
