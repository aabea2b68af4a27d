//! One view: who saw which page when, and how the visitor came there.

use std::ops::Range;

use super::columns::{COLUMNS, Shape, Source};
use super::names::{self, skewed};
use super::{Hits, SITES, stream};
use crate::copy::RowWriter;
use crate::rng::RowRng;

/// March 2026, which all rows are of: its days and its seconds.
pub(super) const DAYS: u64 = 31;
const SECONDS: u64 = DAYS * 86_400;

/// Weights of the sites are this over rank + [`WEIGHT_SHIFT`].
const WEIGHT_UNIT: u64 = 1 << 32;

/// Keeps the largest site at about 2% of the rows.
const WEIGHT_SHIFT: u64 = 8;

/// Phones there are, and brands they are of.
const PHONE_MODELS: u64 = 160;
const PHONE_BRANDS: u64 = 40;

/// A site, with the rows that are views of it.
pub(super) struct Site {
    /// Position in the order of ids.
    position: u64,
    pub(super) rows: Range<u64>,
    /// Weights of the sites up to this one's end, of those of all.
    weight_end: u64,
    weight_all: u64,
}

/// Sizes do not follow ids: the rank of the site at a position. Odd factors make it a bijection.
fn rank(position: u64) -> u64 {
    (position * 2_467 + 2_000) % SITES
}

fn weight(position: u64) -> u64 {
    WEIGHT_UNIT / (rank(position) + WEIGHT_SHIFT)
}

/// The id of the site at a position.
pub(super) fn site_id(position: u64) -> u64 {
    17 + position * 23
}

/// The position of the largest site.
pub(super) fn largest_site() -> u64 {
    (0..SITES)
        .find(|&position| rank(position) == 0)
        .unwrap_or(0)
}

impl Site {
    fn first(hits: &Hits) -> Self {
        let weight_all = (0..SITES).map(weight).sum();
        let before = Self {
            position: 0,
            rows: 0..0,
            weight_end: weight(0),
            weight_all,
        };
        let end = before.row_at(hits, before.weight_end);
        Self {
            rows: 0..end,
            ..before
        }
    }

    /// The site with this row.
    pub(super) fn of_row(hits: &Hits, row: u64) -> Self {
        let mut site = Self::first(hits);
        while row >= site.rows.end && site.position + 1 < SITES {
            site = site.next(hits);
        }
        site
    }

    /// The site behind this one.
    pub(super) fn next(&self, hits: &Hits) -> Self {
        let position = self.position + 1;
        let weight_end = self.weight_end + weight(position);
        Self {
            position,
            rows: self.rows.end..self.row_at(hits, weight_end),
            weight_end,
            weight_all: self.weight_all,
        }
    }

    /// The row behind which sites of this weight end; the last site's is the number of rows.
    fn row_at(&self, hits: &Hits, weight: u64) -> u64 {
        let row = u128::from(hits.rows) * u128::from(weight) / u128::from(self.weight_all);
        row as u64
    }

    fn pages(&self) -> u64 {
        (self.rows.end - self.rows.start) / 8 + 4
    }
}

/// A page of a site.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    pub(super) site: u64,
    pub(super) number: u64,
}

impl Page {
    fn key(self) -> u64 {
        self.site << 40 | self.number
    }

    /// What stands for the page in `url_hash` and `referrer_hash`.
    pub(super) fn hash(self, hits: &Hits) -> i64 {
        RowRng::new(hits.seed, stream::PAGE_HASH, self.key()).bits() as i64
    }

    fn rng(self, hits: &Hits) -> RowRng {
        RowRng::new(hits.seed, stream::PAGE, self.key())
    }
}

/// Where a visitor came from.
enum Origin {
    Nowhere,
    /// A page of the same site.
    Inside(Page),
    /// Another site's page.
    Outside(Page),
    /// An engine, and the number of the text searched for.
    Search(u64, u64),
}

/// The number that stands for a visitor in `visitor_id`.
pub(super) fn visitor_id(hits: &Hits, visitor: u64) -> i64 {
    (RowRng::new(hits.seed, stream::VISITOR_ID, visitor).bits() >> 1) as i64
}

/// A row before it is written.
pub(super) struct View<'a> {
    hits: &'a Hits,
    row: u64,
    page: Page,
    second: u64,
    visitor: u64,
    origin: Origin,
    /// The visitor's phone, if it is one.
    phone: Option<u64>,
    rng: RowRng,
    visitor_rng: RowRng,
}

impl<'a> View<'a> {
    pub(super) fn draw(hits: &'a Hits, site: &Site, row: u64) -> Self {
        let mut rng = RowRng::new(hits.seed, stream::VIEW, row);
        let page = page(&mut rng, site.position, site.pages());
        let origin = match rng.below(100) {
            0..35 => Origin::Nowhere,
            35..48 => Origin::Search(skewed(&mut rng, 40) + 1, phrase(&mut rng, hits)),
            48..88 => Origin::Inside(self::page(&mut rng, site.position, site.pages())),
            _ => Origin::Outside(Page {
                site: skewed(&mut rng, SITES),
                number: skewed(&mut rng, 1_000),
            }),
        };
        let visitor = visitor(&mut rng, hits);
        let mut visitor_rng = RowRng::new(hits.seed, stream::VISITOR, visitor);
        let phone = (visitor_rng.below(100) < 6).then(|| skewed(&mut visitor_rng, PHONE_MODELS));
        let position = row - site.rows.start;
        Self {
            hits,
            row,
            page,
            second: position * SECONDS / (site.rows.end - site.rows.start),
            visitor,
            origin,
            phone,
            rng,
            visitor_rng,
        }
    }

    /// Writes all columns, in order: each takes its draws from where those before it stopped.
    pub(super) fn write(mut self, out: &mut RowWriter<'_>) {
        // Longer than nearly all URLs.
        let mut text = String::with_capacity(256);
        for (_, _, source) in COLUMNS {
            text.clear();
            match source {
                Source::View(shape) => write_shape(&mut self.rng, shape, &mut text, out),
                Source::Visitor(shape) => {
                    write_shape(&mut self.visitor_rng, shape, &mut text, out);
                }
                Source::Site => out.int(site_id(self.page.site) as i64),
                Source::ViewedAt => out.text(&time(self.second)),
                Source::ViewedOn => out.text(&date(self.second)),
                Source::ReceivedAt => {
                    let later = self.second + self.rng.below(6);
                    out.text(&time(later.min(SECONDS - 1)));
                }
                Source::ViewId => {
                    let bits = RowRng::new(self.hits.seed, stream::VIEW_ID, self.row).bits();
                    out.int((bits >> 1) as i64);
                }
                Source::VisitorId => out.int(visitor_id(self.hits, self.visitor)),
                Source::Url => {
                    names::push_url(&mut text, self.page.site, &mut self.page.rng(self.hits));
                    out.text(&text);
                }
                Source::UrlHash => out.int(self.page.hash(self.hits)),
                Source::Title => {
                    self.push_title(&mut text);
                    out.text(&text);
                }
                Source::Referrer => {
                    self.push_referrer(&mut text);
                    out.text(&text);
                }
                Source::ReferrerHash => out.int(self.referrer_hash()),
                Source::SearchEngine => out.int(match self.origin {
                    Origin::Search(engine, _) => engine as i64,
                    _ => 0,
                }),
                Source::SearchText => {
                    if let Origin::Search(_, phrase) = self.origin {
                        push_phrase(&mut text, self.hits, phrase);
                    }
                    out.text(&text);
                }
                Source::Traffic => out.int(match self.origin {
                    Origin::Nowhere => 0,
                    Origin::Inside(_) => -1,
                    Origin::Outside(page) => 1 + (page.site % 6) as i64,
                    Origin::Search(..) => 7,
                }),
                Source::IsMobile => out.int(self.phone.is_some()),
                Source::PhoneBrand => out.int(match self.phone {
                    Some(model) => (model % PHONE_BRANDS) as i64 + 1,
                    None => 0,
                }),
                Source::PhoneModel => {
                    if let Some(model) = self.phone {
                        names::push_latin(&mut text, model);
                        names::push_number(&mut text, " ", model % 9 + 1);
                    }
                    out.text(&text);
                }
            }
        }
    }

    /// One page of eight has no title.
    fn push_title(&self, text: &mut String) {
        let mut rng = RowRng::new(self.hits.seed, stream::PAGE, !self.page.key());
        if rng.below(8) != 0 {
            names::push_title(text, self.page.site, &mut rng);
        }
    }

    fn push_referrer(&self, text: &mut String) {
        match self.origin {
            Origin::Nowhere => {}
            Origin::Inside(page) | Origin::Outside(page) => {
                names::push_url(text, page.site, &mut page.rng(self.hits));
            }
            Origin::Search(engine, phrase) => {
                text.push_str("https://search.");
                names::push_latin(text, engine);
                names::push_number(text, ".example/find?number=", phrase);
            }
        }
    }

    fn referrer_hash(&self) -> i64 {
        match self.origin {
            Origin::Nowhere => 0,
            Origin::Inside(page) | Origin::Outside(page) => page.hash(self.hits),
            Origin::Search(engine, phrase) => {
                let searched = Page {
                    site: SITES + engine,
                    number: phrase,
                };
                searched.hash(self.hits)
            }
        }
    }
}

/// Two of three views are of frequent pages.
fn page(rng: &mut RowRng, site: u64, pages: u64) -> Page {
    let number = if rng.below(3) == 0 {
        rng.below(pages)
    } else {
        skewed(rng, pages)
    };
    Page { site, number }
}

/// One view of fifty is by a frequent visitor.
fn visitor(rng: &mut RowRng, hits: &Hits) -> u64 {
    if rng.below(50) == 0 {
        skewed(rng, hits.visitors())
    } else {
        rng.below(hits.visitors())
    }
}

/// Half of the searches are for frequent texts.
fn phrase(rng: &mut RowRng, hits: &Hits) -> u64 {
    if rng.below(2) == 0 {
        skewed(rng, hits.phrases())
    } else {
        rng.below(hits.phrases())
    }
}

fn push_phrase(text: &mut String, hits: &Hits, phrase: u64) {
    names::push_phrase(text, &mut RowRng::new(hits.seed, stream::PHRASE, phrase));
}

fn write_shape(rng: &mut RowRng, shape: Shape, text: &mut String, out: &mut RowWriter<'_>) {
    match shape {
        Shape::Flag(share) => out.int(rng.below(1_000) < share),
        Shape::Range(low, high) => out.int(rng.between(low, high)),
        Shape::Skewed(n) => out.int(skewed(rng, n) as i64),
        Shape::Seldom(share, n) => out.int(if rng.below(1_000) < share {
            skewed(rng, n) as i64 + 1
        } else {
            0
        }),
        Shape::Of(values) => out.int(values[skewed(rng, values.len() as u64) as usize]),
        Shape::Wide => out.int((rng.bits() >> 1) as i64),
        Shape::Word(share, n) => {
            if rng.below(1_000) < share {
                names::push_latin(text, skewed(rng, n));
            }
            out.text(text);
        }
    }
}

fn date(second: u64) -> String {
    format!("2026-03-{:02}", second / 86_400 + 1)
}

fn time(second: u64) -> String {
    let of_day = second % 86_400;
    let (hour, minute) = (of_day / 3_600, of_day / 60 % 60);
    format!("{} {hour:02}:{minute:02}:{:02}", date(second), of_day % 60)
}
